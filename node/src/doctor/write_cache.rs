//! Write caches: what a device holds in volatile memory is durable only after a flush, which the kernel sends unless it
//! is told that there is nothing to flush.

use super::Finding;
use super::facts::{Block, Facts, Role};

const NAME: &str = "write cache";
const THROUGH: &str = "write through";
const BACK: &str = "write back";

/// Checks that flushes are sent where the device needs them.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.blocks().into_iter().filter_map(of_block).collect()
}

/// A finding for each disk, and for what lies above one if it sends no flushes on.
fn of_block(block: &Block) -> Option<Finding> {
    let name = &block.name;
    let device = block.device_cache.as_deref();
    Some(match block.write_cache.as_deref() {
        Some(THROUGH) if device.is_some_and(|cache| cache.starts_with(BACK)) => Finding::warning(
            NAME,
            format!("{name}: the device caches writes, but the kernel sends no flushes"),
            format!("echo write back >/sys/block/{name}/queue/write_cache"),
            "safety: without it, a power cut loses what was acknowledged as durable",
        ),
        _ if block.role != Role::Disk => return None,
        Some(THROUGH) => Finding::ok(NAME, format!("{name}: none that a power cut could lose, it says")),
        Some(BACK) => Finding::ok(
            NAME,
            match block.fua {
                Some(true) => format!("{name}: volatile; flushes and durable writes (FUA) work"),
                Some(false) => format!("{name}: volatile; flushes work, a durable write takes one (no FUA)"),
                None => format!("{name}: volatile; flushes work"),
            },
        ),
        _ => Finding::unknown(NAME, format!("{name}: the kernel does not tell")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::tests::on;

    fn of(role: Role, cache: &str, device: Option<&str>) -> Vec<State> {
        let write_cache = Some(cache.to_string());
        let device_cache = device.map(str::to_string);
        let block = Block { name: "sda".into(), role, write_cache, device_cache, ..Block::default() };
        check(&on(block)).into_iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn a_cache_that_nobody_flushes_is_unsafe() {
        assert_eq!(of(Role::Disk, "write through", Some("write back")), [State::Warning]);
        assert_eq!(of(Role::Disk, "write through", Some("write back, no read (daft)")), [State::Warning]);
        assert_eq!(of(Role::Disk, "write through", Some("write through")), [State::Ok]);
        assert_eq!(of(Role::Disk, "write through", None), [State::Ok]);
        assert_eq!(of(Role::Disk, "write back", Some("write back")), [State::Ok]);
        assert_eq!(of(Role::Disk, "\u{fffd}", None), [State::Unknown]);
    }

    #[test]
    fn what_lies_above_a_disk_is_not_told_twice() {
        let start_bytes = None;
        assert_eq!(of(Role::Partition { start_bytes }, "", None), []);
        assert_eq!(of(Role::Made { of: "raid1".into() }, "write back", None), []);
    }
}
