//! Queue depth: flash is fast only while it has many requests.

use super::Finding;
use super::facts::{Block, Facts};

const NAME: &str = "queue depth";
/// The least number of requests that keeps a device busy: those of decision 0025 did more the more they had, up to 91.
const ENOUGH: u64 = 64;
/// Requests that a SATA drive takes: 32, of which some drivers keep one.
const SATA: u64 = 31;
const GAIN: &str = "more small requests per second: a device did 58,000 reads/s with 12 under way, 69,000 with 43, 72,000 \
                    with 91 (decision 0025)";

/// Checks how many requests each disk may have under way.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.disks().map(of_disk).collect()
}

fn of_disk(disk: &Block) -> Finding {
    let name = &disk.name;
    let Some(requests) = disk.requests else {
        return Finding::unknown(NAME, format!("{name}: the kernel does not tell"));
    };
    let queues = disk.queues.unwrap_or(1).max(1);
    let all = requests.saturating_mul(queues);
    let found = match queues {
        1 => format!("{name}: {requests} requests"),
        queues => format!("{name}: {queues} queues of {requests} requests"),
    };
    match disk.device_depth {
        Some(depth) if depth < SATA => {
            let fix = format!("echo 32 >/sys/block/{name}/device/queue_depth");
            Finding::advice(NAME, format!("{name}: the device has at most {depth} at a time"), fix, GAIN)
        }
        _ if all < ENOUGH => {
            Finding::advice(NAME, found, format!("echo 256 >/sys/block/{name}/queue/nr_requests"), GAIN)
        }
        Some(depth) => Finding::ok(NAME, format!("{found}, {depth} of them at the device")),
        None => Finding::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::tests::on;

    fn of(requests: Option<u64>, queues: Option<u64>, device_depth: Option<u64>) -> Finding {
        check(&on(Block { name: "sda".into(), requests, queues, device_depth, ..Block::default() })).remove(0)
    }

    #[test]
    fn short_queues_are_told() {
        assert_eq!(of(Some(256), Some(1), None).state, State::Ok);
        assert_eq!(of(Some(32), Some(1), None).state, State::Advice);
        assert_eq!(of(Some(32), Some(4), None).state, State::Ok, "there are four");
        assert_eq!(of(Some(256), None, Some(32)).state, State::Ok);
        let one = of(Some(256), None, Some(1));
        assert!(one.state == State::Advice && one.fix.expect("there is one").contains("queue_depth"));
        assert_eq!(of(None, Some(1), Some(1)).state, State::Unknown);
        assert_eq!(of(Some(u64::MAX), Some(u64::MAX), None).state, State::Ok);
    }
}
