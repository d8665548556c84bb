//! The file system that holds the brick's directory: its type, its options, and the room in it.

use super::Finding;
use super::facts::{Facts, Host, Layer, Room};
use crate::table::bytes;
use base::limits::BALLAST_BYTES_MAX;

const NAME: &str = "file system";
/// Types that don't keep what was made durable, or keep it elsewhere.
const VOLATILE: [&str; 2] = ["tmpfs", "ramfs"];
const REMOTE: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "fuse"];
/// Types that write each block to a new place, as Sinter does.
const COPYING: [&str; 3] = ["btrfs", "zfs", "bcachefs"];
/// A brick's share for the room that its index needs, as `store` has it.
const BALLAST_PARTS: u64 = 64;
/// Flash with less free has little room for its own cleaning.
const TIGHT_PERCENT: u64 = 10;

/// Checks the file system of each part of the brick that lies in one.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.places.is_empty() {
        return vec![Finding::unknown("brick", "none was named: `sinter doctor DATA` looks at its disks too")];
    }
    let tops = facts.places.iter().filter_map(|place| match place.layers.first() {
        Some(Layer::Host(host)) => Some(host),
        _ => None,
    });
    let mut findings: Vec<Finding> = tops.flat_map(of_host).collect();
    // A file below a loop device is flushed by its file system, or not.
    findings.extend(facts.hosts().into_iter().filter_map(barriers));
    if findings.is_empty() {
        findings.push(Finding::unknown(NAME, "the mount table does not tell"));
    }
    findings
}

fn of_host(host: &Host) -> Vec<Finding> {
    let mut findings = vec![kind(host)];
    findings.extend(options(host));
    // What is no place for files has no bytes at all.
    let room = host.room.filter(|room| room.all_bytes > 0);
    findings.extend(room.map(|room| of_room(host, room)));
    findings
}

fn kind(host: &Host) -> Finding {
    let Host { kind, point, .. } = host;
    let found = format!("{kind} at {point}");
    let remote = REMOTE.contains(&kind.as_str()) || kind.starts_with("fuse.");
    match kind.as_str() {
        volatile if VOLATILE.contains(&volatile) => Finding::warning(
            NAME,
            found + ": memory",
            "put the brick on a disk",
            "safety: the brick is gone when the machine stops",
        ),
        _ if remote => Finding::warning(
            NAME,
            found + ": not of this machine's own",
            "put the brick on a local disk, with ext4 or XFS",
            "safety and speed: what is durable there, and when, is up to another server",
        ),
        "overlay" => Finding::advice(
            NAME,
            found + ": a container's own files",
            "give the container a volume on ext4 or XFS, and put the brick there",
            "safety: the brick goes with the container",
        ),
        copying if COPYING.contains(&copying) => Finding::advice(
            NAME,
            found + ": copies on write below a store that does",
            "put the brick on ext4 or XFS, or on a device of its own (--device)",
            "fewer bytes written per byte of clients'; not measured by us",
        ),
        "ext4" | "xfs" => Finding::ok(NAME, found),
        _ => Finding::unknown(NAME, found + ": not tested with this type"),
    }
}

/// Options that cost, or that lose.
fn options(host: &Host) -> Option<Finding> {
    let point = &host.point;
    let has = |option: &str| host.options.iter().any(|own| own == option);
    Some(if has("ro") {
        let fix = format!("mount -o remount,rw {point}; if the kernel did it, look at its log for errors first");
        Finding::warning(NAME, format!("{point} is read-only"), fix, "it works: a daemon can't start there")
    } else if has("sync") || has("dirsync") {
        let fix = format!("mount -o remount,async {point}, without dirsync, and the same in /etc/fstab");
        Finding::warning(
            NAME,
            format!("{point} is mounted with sync or dirsync"),
            fix,
            "quicker checkpoints; not measured by us",
        )
    } else if has("data=journal") {
        let fix = format!("take data=journal from the options of {point} in /etc/fstab, and mount it anew");
        Finding::warning(
            NAME,
            format!("{point} writes data twice (data=journal)"),
            fix,
            "half the bytes written, and direct I/O",
        )
    } else {
        return None;
    })
}

/// A finding if the file system sends no flushes: it is mounted without barriers.
fn barriers(host: &Host) -> Option<Finding> {
    let off = host.options.iter().any(|option| matches!(option.as_str(), "nobarrier" | "barrier=0"));
    let point = &host.point;
    let fix = || format!("mount -o remount,barrier {point}, and the same in /etc/fstab");
    off.then(|| {
        let gain = "safety: without barriers, a power cut loses what was acknowledged as durable";
        Finding::warning(NAME, format!("{point} sends no flushes (nobarrier)"), fix(), gain)
    })
}

fn of_room(host: &Host, room: Room) -> Finding {
    let point = &host.point;
    let free_percent = u128::from(room.free_bytes) * 100 / u128::from(room.all_bytes.max(1));
    let found = format!("{point}: {} of {} free", bytes(room.free_bytes), bytes(room.all_bytes));
    let short = (room.all_bytes / BALLAST_PARTS).min(BALLAST_BYTES_MAX) / 2;
    if room.free_bytes < short {
        let fix = "free some; new data is taken again at once then";
        return Finding::warning(
            "room",
            found,
            fix,
            "it works: the index has no room to grow, so a brick refuses new data",
        );
    }
    if free_percent < u128::from(TIGHT_PERCENT) {
        let fix = format!("keep {TIGHT_PERCENT}% free");
        return Finding::advice(
            "room",
            found,
            fix,
            "steadier writes, if the drive is told what is free; not measured by us",
        );
    }
    Finding::ok("room", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::Place;

    fn of(kind: &str, options: &str, room: Option<(u64, u64)>) -> Vec<State> {
        let host = Host {
            kind: kind.into(),
            point: "/srv".into(),
            options: options.split(',').map(str::to_string).collect(),
            room: room.map(|(all_bytes, free_bytes)| Room { all_bytes, free_bytes }),
        };
        let places = vec![Place { holds: "brick", layers: vec![Layer::Host(host)] }];
        check(&Facts { places, ..Facts::default() }).into_iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn types_differ_in_what_they_keep() {
        use State::*;
        let types = ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "nfs4", "fuse.sshfs", "minix"];
        let states = types.map(|kind| of(kind, "rw", None)[0]);
        assert_eq!(states, [Ok, Ok, Advice, Advice, Warning, Warning, Warning, Unknown]);
    }

    #[test]
    fn options_that_lose_or_cost_are_told() {
        for options in ["ro,relatime", "rw,sync", "rw,dirsync", "rw,data=journal", "rw,nobarrier", "rw,barrier=0"] {
            assert_eq!(of("ext4", options, None), [State::Ok, State::Warning], "{options}");
        }
        assert_eq!(of("ext4", "rw,barrier=1,data=ordered,async", None), [State::Ok]);
    }

    #[test]
    fn barriers_count_below_loop_devices_too() {
        let host = |point: &str, option: &str| {
            let options = vec![option.to_string()];
            Layer::Host(Host { kind: "ext4".into(), point: point.into(), options, room: None })
        };
        let layers = vec![host("/srv", "rw"), host("/images", "nobarrier")];
        let facts = Facts { places: vec![Place { holds: "brick", layers }], ..Facts::default() };
        let found = check(&facts);
        assert!(
            found.len() == 2 && found[1].state == State::Warning && found[1].found.contains("/images"),
            "{found:?}"
        );
    }

    #[test]
    fn room_is_short_before_there_is_none() {
        let with = |free: u64| of("xfs", "rw", Some((100 << 30, free)))[1];
        assert_eq!(of("proc", "rw", Some((0, 0))).len(), 1, "there is none");
        assert_eq!([with(50 << 30), with(9 << 30), with(700 << 20)], [State::Ok, State::Advice, State::Warning]);
    }
}
