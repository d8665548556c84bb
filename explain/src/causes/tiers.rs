//! The tiers of a hybrid brick: reads that must go down to a disk, and writers that wait for room which blocks on their way
//! down to disks will leave.

use super::{device, per_request, percent, time};
use crate::snapshot::Tiers;
use crate::{Finding, Window};

/// Purpose of reads of disks that clients wait for.
const READS: &str = "disk";
/// Purpose of all else that disks do.
const WORK: &str = "destage";
/// Share of the time in which blocks are on their way down from which on it is the disks that writers wait for.
const BUSY_MIN: f64 = 0.5;
/// Share of what lives on flash, or goes down, that belongs on flash from which on that is the reason.
const PINNED_MIN: f64 = 0.5;
/// Share of the requests' time that is spent waiting for room at least, if that sets the writers' pace.
const ROOM_MIN: f64 = 0.1;
/// Share of the disks' own cleaner in what they read and write from which on it is the reason.
const CLEANING_MIN: f64 = 0.5;

/// True for the purposes of I/O of disks: its times and bytes say nothing of the flash.
pub fn is_of_disks(purpose: &str) -> bool {
    purpose == READS || purpose == WORK
}

/// The reason why writers wait for room.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Shortage {
    /// The cleaner of a brick without disks, or of the flash, with hardly anything going down.
    Cleaner,
    /// The blocks that must stay on flash, while the disks are idle.
    Pinned,
    /// The disks, which take no more.
    Disks,
    /// The disks, whose own cleaner keeps them busy.
    DisksCleaner,
}

/// The reason why room is short.
pub(super) fn shortage(window: &Window) -> Shortage {
    let Some(tiers) = &window.tiers else { return Shortage::Cleaner };
    if tiers.destaged_bytes > 0 && share(tiers.unpinned_bytes, tiers.destaged_bytes) >= PINNED_MIN {
        return Shortage::Pinned;
    }
    if window.share(tiers.destage_ns) >= BUSY_MIN {
        let is_cleaner = cleaning(window, tiers) >= CLEANING_MIN;
        return if is_cleaner { Shortage::DisksCleaner } else { Shortage::Disks };
    }
    match share(tiers.pinned_bytes, tiers.flash.live_bytes) >= PINNED_MIN {
        true => Shortage::Pinned,
        false => Shortage::Cleaner,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The share of the disks' own cleaner in the bytes that they read and write, other than for clients.
fn cleaning(window: &Window, tiers: &Tiers) -> f64 {
    let (_, _, read_bytes) = sum(window, WORK, "read");
    let (_, _, write_bytes) = sum(window, WORK, "write");
    let moved = share(tiers.disks.moved_bytes, tiers.disks.moved_bytes + tiers.destaged_bytes);
    (read_bytes + write_bytes * moved) / (read_bytes + write_bytes).max(1.0)
}

/// True if writers wait for room because of the tiers: these set their pace, whatever else takes time.
pub(super) fn set_the_pace(window: &Window) -> bool {
    window.stage_ns(&["space"]) >= ROOM_MIN * window.total_ns() && shortage(window) != Shortage::Cleaner
}

/// Nanoseconds of reads of disks that clients waited for.
pub(super) fn disk_reads_ns(window: &Window) -> f64 {
    sum(window, READS, "read").1
}

/// Number of transfers of a purpose, their time, and their bytes.
fn sum(window: &Window, purpose: &str, verb: &str) -> (f64, f64, f64) {
    let of = window.verb(verb).filter(|io| io.purpose == purpose);
    of.fold((0.0, 0.0, 0.0), |(count, took_ns, bytes), io| {
        (count + io.took.count as f64, took_ns + io.took.sum_ns as f64, bytes + io.bytes as f64)
    })
}

/// Reads of disks, for as much of the requests' time as is spent reading.
pub fn find_disk(window: &Window) -> Option<Finding> {
    let (count, took_ns, _) = sum(window, READS, "read");
    if count == 0.0 {
        return None;
    }
    let read_ns = window.stage_ns(&["read", "held"]);
    let evidence = vec![
        format!("a read of a disk takes {}; {:.0} of them a second", time(took_ns / count), window.per_second(count)),
        format!("a request spends {} reading, from disks and flash", per_request(window, &["read", "held"])),
    ];
    let next = "what is read is not on flash any more: more flash keeps more of it, more disks read more at once, and memory keeps what is read again";
    Some(Finding::new("disk", "the disks".into(), window, took_ns.min(read_ns), evidence, next))
}

/// Writers that wait for room while blocks go down to disks.
pub fn find_destage(window: &Window) -> Option<Finding> {
    if shortage(window) != Shortage::Disks {
        return None;
    }
    let next = "clients write more than the disks take: more disks take more at once, and more flash lets more blocks die before they go down";
    let waited_ns = window.stage_ns(&["space"]);
    Some(Finding::new("destage", "the disks".into(), window, waited_ns, evidence_of_disks(window), next))
}

/// Writers that wait for room while disks are busy with their own cleaning, for its share of that time.
pub fn find_cleaning(window: &Window) -> Option<Finding> {
    let tiers = window.tiers.as_ref()?;
    if shortage(window) != Shortage::DisksCleaner {
        return None;
    }
    let next = "the disks are nearly full for what is overwritten on them: delete something, or add a disk (`sinter brick add-device`)";
    let excess_ns = window.stage_ns(&["space"]) * cleaning(window, tiers);
    let resource = "the disks' cleaner".into();
    Some(Finding::new("background", resource, window, excess_ns, evidence_of_disks(window), next))
}

fn evidence_of_disks(window: &Window) -> Vec<String> {
    let tiers = window.tiers.clone().unwrap_or_default();
    let (writes, took_ns, _) = sum(window, WORK, "write");
    vec![
        format!(
            "a request waits {} for room; blocks are on their way down for {} of the time",
            per_request(window, &["space"]),
            percent(window.share(tiers.destage_ns))
        ),
        format!(
            "{:.1} MB go down to disks a second, in writes of {}; {} of what the disks read and write is their own cleaning",
            window.per_second(tiers.destaged_bytes as f64) / 1e6,
            time(took_ns / writes.max(1.0)),
            percent(cleaning(window, &tiers))
        ),
        format!(
            "{} of the disks' room is in use",
            percent(1.0 - share(tiers.disks.free_bytes, tiers.disks.size_bytes))
        ),
    ]
}

/// Writers that wait for room on flash that is full of what must stay there, and for a flash that is busy with moving it.
pub fn find_flash_full(window: &Window) -> Option<Finding> {
    if shortage(window) != Shortage::Pinned {
        return None;
    }
    let tiers = window.tiers.clone().unwrap_or_default();
    let mib = |bytes: u64| bytes >> 20;
    let evidence = vec![
        format!(
            "a request waits {} for room; blocks are on their way down for {} of the time",
            per_request(window, &["space"]),
            percent(window.share(tiers.destage_ns))
        ),
        format!(
            "{} MiB of {} MiB of flash live, and {} MiB of these are known to belong there",
            mib(tiers.flash.live_bytes),
            mib(tiers.flash.size_bytes),
            // Some have died since they were found.
            mib(tiers.pinned_bytes.min(tiers.flash.live_bytes))
        ),
        format!(
            "{} MiB of {} MiB of the disks are free; {} MiB went down although they belong on flash",
            mib(tiers.disks.free_bytes),
            mib(tiers.disks.size_bytes),
            mib(tiers.unpinned_bytes)
        ),
    ];
    let next = "more must stay on flash than it holds: add flash (`sinter brick add-device`), or let some of it go to disks (`sinter volume set \
                --policy write-back`, the attribute user.sinter.tier)";
    let moving_ns = if set_the_pace(window) { device::own_work_ns(window) } else { 0.0 };
    let excess_ns = window.stage_ns(&["space"]) + moving_ns;
    Some(Finding::new("flash-full", "the flash".into(), window, excess_ns, evidence, next))
}

#[cfg(test)]
mod tests {
    use super::find_disk;
    use crate::Window;
    use crate::baseline::{Baseline, Class};
    use crate::causes::OF_BRICKS;
    use crate::snapshot::{Io, Operation, Snapshot, Tier, Tiers};
    use crate::times::Times;
    use std::collections::BTreeMap;

    fn times(count: u64, sum_ns: u64) -> Times {
        Times { count, sum_ns, ..Times::default() }
    }

    /// A second in which 100 requests spent 9 of their 10 ms in a stage, and what disks and tiers did meanwhile.
    fn second(stage: &str, io: &[Io], tiers: Option<Tiers>) -> Window {
        let before = Snapshot { at_ns: 1, ..Snapshot::default() };
        let stages = BTreeMap::from([(stage.to_string(), times(100, 900_000_000))]);
        let operation =
            Operation { name: "read".into(), total: times(100, 1_000_000_000), stages, ..Operation::default() };
        let (operations, io) = (vec![operation], io.to_vec());
        let after = Snapshot { at_ns: 1_000_000_001, operations, io, tiers, ..Snapshot::default() };
        Window::between(&before, &after).expect("of one daemon")
    }

    /// Disks' I/O: its purpose, verb, and MiB in transfers of one.
    fn io((purpose, verb, mib): (&str, &str, u64)) -> Io {
        let (purpose, verb, took) = (purpose.into(), verb.into(), times(mib, mib * 7_000_000));
        Io { purpose, verb, bytes_max: 1 << 20, took, bytes: mib << 20, ..Io::default() }
    }

    /// The causes that are found to have more than half of the requests' time, each with its resource.
    fn found(window: &Window) -> Vec<(String, String)> {
        let all = OF_BRICKS.iter().filter_map(|cause| cause(window)).filter(|found| found.share > 0.5);
        all.map(|found| (found.cause, found.resource)).collect()
    }

    #[test]
    fn reads_of_disks_are_named_and_reads_of_flash_are_not() {
        let io = |purpose: &str| Io { took: times(90, 880_000_000), ..io((purpose, "read", 1)) };
        let found = find_disk(&second("read", &[io("disk")], None)).expect("disks were read");
        assert!(found.cause == "disk" && (0.87..0.89).contains(&found.share), "{found:?}");
        assert!(found.evidence[0].contains("9.8 ms") && found.evidence[0].contains("90 of them"), "{found:?}");
        assert!(find_disk(&second("read", &[io("client")], None)).is_none());
    }

    #[test]
    fn writers_that_wait_for_room_are_told_of_one_reason() {
        let mib = 1 << 20;
        let flash = |live| Tier { size_bytes: 100 * mib, live_bytes: live * mib, ..Tier::default() };
        let disks = |moved| Tier { size_bytes: 100 * mib, moved_bytes: moved * mib, ..Tier::default() };
        let busy = Tiers { destage_ns: 900_000_000, destaged_bytes: 40 * mib, ..Tiers::default() };
        let idle = Tiers { destage_ns: 100_000_000, destaged_bytes: 4 * mib, ..Tiers::default() };
        let full = Tiers { flash: flash(80), pinned_bytes: 60 * mib, ..idle.clone() };
        let told = |tiers: Tiers, io: &[Io]| found(&second("space", io, Some(tiers)));
        let one = |cause: &str, resource: &str| vec![(cause.to_string(), resource.to_string())];
        let write = |mib| io(("destage", "write", mib));
        let read = |mib| io(("destage", "read", mib));
        assert_eq!(told(busy.clone(), &[write(40)]), one("destage", "the disks"));
        // 40 MiB go down, and as many are moved: half of what is written, and all that is read.
        let moving = Tiers { disks: disks(40), ..busy.clone() };
        assert_eq!(told(moving, &[write(80), read(60)]), one("background", "the disks' cleaner"));
        let moving = Tiers { disks: disks(10), ..busy.clone() };
        assert_eq!(told(moving, &[write(50), read(15)]), one("destage", "the disks"));
        assert_eq!(told(full.clone(), &[write(4)]), one("flash-full", "the flash"));
        let unpinned = Tiers { unpinned_bytes: 39 * mib, ..busy };
        assert_eq!(told(unpinned, &[write(40)]), one("flash-full", "the flash"));
        let few = Tiers { pinned_bytes: 10 * mib, ..full };
        assert_eq!(told(few, &[write(4)]), one("background", "the cleaner"));
        assert_eq!(found(&second("space", &[], None)), one("background", "the cleaner"));
    }

    #[test]
    fn a_slow_flash_is_no_cause_while_the_disks_set_the_pace() {
        // A tenth and a half of the time goes into waiting for room, most of the rest into writes of three times the usual length.
        let write = Io { purpose: "log".into(), depth: 1, took: times(100, 300_000_000), ..io(("", "write", 1)) };
        let class = Class { verb: "write".into(), bytes_max: 1 << 20, depth: 1, rate_max: 1000, ..Class::default() };
        let classes = vec![Class { means_ns: vec![1_000_000; 3], ..class }];
        let told = |space_ns: u64, destage_ns: u64| {
            let stages = [("space", space_ns), ("write", 700_000_000)];
            let stages = stages.map(|(stage, ns)| (stage.to_string(), times(100, ns))).into();
            let total = times(100, 1_000_000_000);
            let operations = vec![Operation { name: "write".into(), total, stages, ..Operation::default() }];
            let tiers = Some(Tiers { destage_ns, destaged_bytes: 1 << 20, ..Tiers::default() });
            let baseline = Baseline { classes: classes.clone() };
            let (before, io) = (Snapshot { at_ns: 1, ..Snapshot::default() }, vec![write.clone()]);
            let after = Snapshot { at_ns: 1_000_000_001, operations, io, tiers, baseline, ..Snapshot::default() };
            let window = Window::between(&before, &after).expect("of one daemon");
            let all = OF_BRICKS.iter().filter_map(|cause| cause(&window)).filter(|found| found.share > 0.1);
            all.map(|found| found.cause).collect::<Vec<_>>()
        };
        assert_eq!(told(150_000_000, 900_000_000), ["destage"]);
        assert_eq!(told(150_000_000, 100_000_000), ["device-slower", "background"], "the disks are idle");
        assert_eq!(told(50_000_000, 900_000_000), ["device-slower"], "hardly anybody waits for room");
    }
}
