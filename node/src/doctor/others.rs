//! Others that use the brick's disks at this moment.

use super::Finding;
use super::facts::{Facts, Transfers};
use crate::table::bytes;

const NAME: &str = "disk use";
/// Transfers per second below which others don't count.
const LITTLE_BYTES: u64 = 1 << 20;
/// Share of the time below which a disk's transfers don't count, in percent.
const LITTLE_PERCENT: u64 = 5;
/// Share of the time from which on even few bytes of others count: small synchronous writes.
const MUCH_PERCENT: u64 = 20;

/// Compares what the disks did with what the daemon asked for.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let window = &facts.window;
    let disks = facts.disks().map(|disk| (disk, window.disks.iter().find(|transfers| transfers.name == disk.name)));
    // Mirrors write all bytes twice: what is ours can't be told by disk.
    let several = facts.disks().count() > 1;
    disks
        .map(|(disk, transfers)| match transfers {
            Some(transfers) if window.ms > 0 => of_disk(facts, transfers, several),
            _ => Finding::unknown(NAME, format!("{}: the kernel does not tell", disk.name)),
        })
        .collect()
}

fn of_disk(facts: &Facts, transfers: &Transfers, several: bool) -> Finding {
    let Transfers { name, .. } = transfers;
    let window = &facts.window;
    let per_second = |number: u64| (u128::from(number) * 1000 / u128::from(window.ms)) as u64;
    let busy_percent = per_second(transfers.busy_ms) / 10;
    let found =
        format!("{name}: {}/s, busy {}% of the time", bytes(per_second(transfers.bytes)), busy_percent.min(100));
    let quiet = |all: u64| per_second(all) < LITTLE_BYTES;
    if busy_percent < LITTLE_PERCENT {
        return Finding::ok(NAME, found);
    }
    let Some(own) = window.own_bytes.filter(|_| !several) else {
        return Finding::unknown(NAME, found + "; whose it is can't be told");
    };
    let others = transfers.bytes.saturating_sub(own);
    if own > others && quiet(others) {
        return Finding::ok(NAME, found + ", by the daemon");
    }
    if quiet(others) && busy_percent < MUCH_PERCENT {
        return Finding::ok(NAME, found);
    }
    let most = match &window.other {
        Some((command, pid, moved)) if !quiet(*moved) => format!(", most by {command} (process {pid})"),
        _ => String::new(),
    };
    Finding::advice(
        NAME,
        format!("{found}; {}/s of it by others{most}", bytes(per_second(others))),
        "see who: pidstat -d 1 5 (package sysstat); let it wait, or give the brick a disk of its own",
        "shorter waits while both work; the more, the busier the disk",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Block, Window};
    use crate::doctor::tests::on;

    fn of(moved: u64, busy_ms: u64, own_bytes: Option<u64>, other: Option<u64>) -> Finding {
        let disks = vec![Transfers { name: "sda".into(), bytes: moved, busy_ms }];
        let other = other.map(|moved| ("rsync".to_string(), 77, moved));
        let window = Window { ms: 2000, disks, own_bytes, other, ..Window::default() };
        check(&Facts { window, ..on(Block { name: "sda".into(), ..Block::default() }) }).remove(0)
    }

    #[test]
    fn only_others_are_told() {
        assert_eq!(of(0, 0, None, None).state, State::Ok);
        assert_eq!(of(64 << 20, 50, Some(0), None).state, State::Ok, "nobody waits for that");
        assert_eq!(of(64 << 20, 1000, Some(63 << 20), None).state, State::Ok);
        assert_eq!(of(1 << 20, 200, Some(0), None).state, State::Ok, "little");
        assert_eq!(of(1 << 20, 1500, Some(0), None).state, State::Advice, "few bytes, but busy");
        assert_eq!(of(64 << 20, 1000, None, None).state, State::Unknown);
        let told = of(64 << 20, 1000, Some(4 << 20), Some(50 << 20));
        assert_eq!(told.state, State::Advice);
        let found = "sda: 32 MiB/s, busy 50% of the time; 30 MiB/s of it by others, most by rsync (process 77)";
        assert_eq!(told.found, found);
        assert!(!of(64 << 20, 1000, Some(0), Some(10)).found.contains("rsync"), "it moved next to nothing");
    }

    #[test]
    fn mirrors_and_silence_are_unknown() {
        let mut facts = on(Block { name: "sda".into(), ..Block::default() });
        assert_eq!(check(&facts)[0].state, State::Unknown);
        facts.window.ms = 1000;
        assert_eq!(check(&facts)[0].state, State::Unknown, "diskstats don't have it");
    }
}
