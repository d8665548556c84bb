//! I/O schedulers: they order requests for disks that seek. Flash only pays for it.

use super::Finding;
use super::facts::{Block, Facts};

const NAME: &str = "scheduler";
const GAIN: &str = "less CPU time per request, and no request held behind others; not measured by us";

/// Checks the scheduler of each disk.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.disks().map(of_disk).collect()
}

fn of_disk(disk: &Block) -> Finding {
    let name = &disk.name;
    let line = disk.scheduler.as_deref().unwrap_or_default();
    // `none [mq-deadline] kyber`: the one in brackets is in use. A device without queues says `none` alone.
    let bracketed = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(used, _)| used);
    let used = bracketed.or(Some(line).filter(|line| *line == "none"));
    match used {
        None => Finding::unknown(NAME, format!("{name}: the kernel does not tell")),
        Some("none") => Finding::ok(NAME, format!("{name}: none")),
        Some(used) => {
            let command = format!("echo none >/sys/block/{name}/queue/scheduler");
            let fix = match disk.is_flash_or_virtual() {
                true => command,
                false => format!("if {name} is flash: {command}"),
            };
            Finding::advice(NAME, format!("{name}: {used}"), fix, GAIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::tests::on;

    fn of(name: &str, line: Option<&str>) -> Finding {
        let block = Block { name: name.into(), scheduler: line.map(str::to_string), ..Block::default() };
        check(&on(block)).remove(0)
    }

    #[test]
    fn flash_needs_no_scheduler() {
        assert_eq!(of("nvme0n1", Some("[none] mq-deadline")).state, State::Ok);
        assert_eq!(of("nvme0n1", Some("none")).state, State::Ok);
        let odd = of("nvme0n1", Some("none mq-deadline [bfq]"));
        assert_eq!((odd.state, odd.found.as_str()), (State::Advice, "nvme0n1: bfq"));
        assert_eq!(odd.fix.as_deref(), Some("echo none >/sys/block/nvme0n1/queue/scheduler"));
    }

    #[test]
    fn nobody_knows_whether_a_scsi_disk_is_flash() {
        let fix = of("sda", Some("none [mq-deadline]")).fix.expect("there is one");
        assert!(fix.starts_with("if sda is flash: "), "{fix}");
    }

    #[test]
    fn junk_is_no_scheduler() {
        for line in [None, Some(""), Some("]["), Some("\u{0}none")] {
            assert_eq!(of("sda", line).state, State::Unknown, "{line:?}");
        }
    }
}
