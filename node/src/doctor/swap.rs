//! Swap: a request whose memory was swapped out waits for a disk, perhaps for the one that waits for the request.

use super::Finding;
use super::facts::Facts;
use crate::table::{bytes, count};

const NAME: &str = "swap";

/// Checks whether anything is swapped now, or of the daemon.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(areas) = &facts.swap else {
        return vec![Finding::unknown(NAME, "the kernel does not tell")];
    };
    let gain = "no request waits for memory that is on a disk; not measured by us";
    let keep = "MemorySwapMax=0 in the daemon's unit (systemctl edit sinter@NAME), and a restart of it";
    if let (Some(daemon), Some(swapped @ 1..)) = (facts.process.daemon, facts.process.swapped_bytes) {
        let found = format!("{} of the daemon (process {daemon}) are swapped out", bytes(swapped));
        return vec![Finding::warning(NAME, found, keep, gain)];
    }
    if areas.is_empty() {
        return vec![Finding::ok(NAME, "none")];
    }
    let used: u64 = areas.iter().map(|area| area.used_bytes).fold(0, u64::saturating_add);
    let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
    let found = format!("{} used of {}", bytes(used), names.join(", "));
    vec![match facts.window.swapped_pages {
        Some(pages @ 1..) => {
            let found = format!("{found}; {} pages moved while this looked", count(pages));
            Finding::warning(NAME, found, "find out who takes the memory: ps -eo pid,rss,comm --sort=-rss | head", gain)
        }
        _ if used > 0 => Finding::advice(NAME, found, keep, gain),
        _ => Finding::ok(NAME, found),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Process, Swap, Window};

    fn of(used: &[u64], pages: u64, swapped: Option<u64>) -> State {
        let area = |&used_bytes: &u64| Swap { name: "/dev/sda2".into(), used_bytes };
        let process = Process { daemon: Some(7), swapped_bytes: swapped, ..Process::default() };
        let window = Window { swapped_pages: Some(pages), ..Window::default() };
        check(&Facts { swap: Some(used.iter().map(area).collect()), process, window, ..Facts::default() })[0].state
    }

    #[test]
    fn the_daemons_own_memory_matters_most() {
        assert_eq!(of(&[], 0, Some(0)), State::Ok);
        assert_eq!(of(&[0], 0, None), State::Ok);
        assert_eq!(of(&[4096, u64::MAX], 0, Some(0)), State::Advice);
        assert_eq!(of(&[4096], 3, Some(0)), State::Warning);
        assert_eq!(of(&[4096], 0, Some(4096)), State::Warning);
    }
}
