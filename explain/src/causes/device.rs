//! The device: slower than it was, at its limit, shared with others, throttled above it; and its flush.

use super::{is_of_disks, percent, tiers, time};
use crate::snapshot::Io;
use crate::window::DiskWindow;
use crate::{Finding, Window};
use std::collections::BTreeMap;

/// Purposes whose I/O clients wait for.
const AWAITED: [&str; 3] = ["client", "log", "bulk"];
/// Multiple of the usual service that counts as slower: means of one class differ by a tenth from second to second.
const SLOWER: f64 = 1.25;
/// Least share of the transfers whose usual service is known.
const KNOWN_MIN: f64 = 0.5;
/// Share of the disk's bytes or requests that others must have to count.
const FOREIGN_MIN: f64 = 0.2;
/// Share of the I/O that is the program's own work and must overlap to count.
const OWN_WORK_MIN: f64 = 0.3;
/// Share of the highest rate that was ever seen from which on a device counts as at its limit: at that rate it is as quick as
/// it ever was, however long transfers wait in it.
const LIMIT_MIN: f64 = 0.85;
/// Multiple of the service with half as many transfers under way from which on more of them wait instead of being served: a
/// device with room takes hardly longer, one without takes twice as long, less what is spent on the way to it (a disk of four
/// channels: 1.43).
const DOUBLED_MIN: f64 = 1.4;
/// Part of our service that the kernel sees at most, if the rest was spent above the device: without a throttle it sees nine
/// tenths or more.
const BELOW_MAX: f64 = 0.75;

/// The I/O of one verb against what is usual.
#[derive(Clone, Copy, Default, Debug)]
struct Service {
    transfers: f64,
    took_ns: f64,
    /// Transfers of classes whose usual service is known; their times, and the times that they usually take.
    known: f64,
    known_ns: f64,
    usual_ns: f64,
    /// Their times if the device had nothing else to do.
    least_ns: f64,
    /// Times of transfers of which it is known what they usually take with half as many under way, and that.
    doubled_ns: f64,
    half_ns: f64,
    deepest: u64,
    /// Transfers a second as a part of the highest rate of their size that was ever seen.
    rate: f64,
}

impl Service {
    fn mean_ns(&self) -> f64 {
        self.took_ns / self.transfers.max(1.0)
    }
    /// The service as a multiple of the usual one; 1 if that is not known of most transfers.
    fn slower(&self) -> f64 {
        match self.known >= self.transfers * KNOWN_MIN && self.usual_ns > 0.0 {
            true => (self.known_ns / self.usual_ns).max(1.0),
            false => 1.0,
        }
    }
    /// The service as a multiple of what it is with half as many transfers under way; 1 if that is not known of most.
    fn doubled(&self) -> f64 {
        if self.doubled_ns >= self.took_ns * KNOWN_MIN && self.half_ns > 0.0 {
            self.doubled_ns / self.half_ns
        } else {
            1.0
        }
    }
    /// The service as a multiple of that of a device with nothing else to do.
    fn queued(&self) -> f64 {
        if self.least_ns > 0.0 { (self.known_ns / self.least_ns).max(1.0) } else { 1.0 }
    }
}

fn service(window: &Window, verb: &str) -> Service {
    let mut sum = Service::default();
    for io in window.verb(verb).filter(|io| AWAITED.contains(&&*io.purpose)) {
        let count = io.took.count as f64;
        // A busy core learns late of what has ended: that is not the device's time.
        let took_ns = (io.took.sum_ns as f64 - window.look_ns() * count).max(0.0);
        sum.transfers += count;
        sum.took_ns += took_ns;
        let class = (&*io.verb, io.bytes_max, io.depth);
        if let Some(usual_ns) = window.after.baseline.usual_ns(class) {
            sum.known += count;
            sum.known_ns += took_ns;
            sum.usual_ns += usual_ns * count;
            sum.least_ns += least_ns(window, io).unwrap_or(usual_ns) * count;
        }
        let half = window.after.baseline.class(&io.verb, io.bytes_max, io.depth / 2);
        if let Some(half_ns) = half.and_then(|class| class.usual_ns()) {
            sum.doubled_ns += took_ns;
            sum.half_ns += half_ns as f64 * count;
        }
        sum.deepest = sum.deepest.max(io.depth);
    }
    sum.rate = rate(window, verb);
    sum
}

/// The rate of the size that has most transfers, as a part of the highest that was ever seen.
fn rate(window: &Window, verb: &str) -> f64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for io in window.verb(verb).filter(|io| !is_of_disks(&io.purpose)) {
        *counts.entry(io.bytes_max).or_default() += io.took.count;
    }
    let Some((size, count)) = counts.into_iter().max_by_key(|&(_, count)| count) else { return 0.0 };
    let classes = window.after.baseline.classes.iter();
    let of_size = classes.filter(|class| class.verb == verb && class.bytes_max == size);
    let most = of_size.map(|class| class.rate_max).max().unwrap_or(0);
    window.per_second(count as f64) / most.max(1) as f64
}

/// The usual service of a class at the least depth that was seen.
fn least_ns(window: &Window, io: &Io) -> Option<f64> {
    let classes = window.after.baseline.classes.iter();
    let same = classes.filter(|class| class.verb == io.verb && class.bytes_max == io.bytes_max);
    same.filter_map(|class| Some((class.depth, class.usual_ns()?))).min().map(|(_, ns)| ns as f64)
}

/// The device, if transfers take longer than they usually do, or wait in it.
pub fn find(window: &Window) -> Option<Finding> {
    let (read, write) = (service(window, "read"), service(window, "write"));
    let (read_ns, write_ns) = stages_ns(window);
    // A quicker flash would have writers wait longer for room.
    let write_ns = if tiers::set_the_pace(window) { 0.0 } else { write_ns };
    let (more_read, more_write) = (slower_ns(read_ns, read), slower_ns(write_ns, write));
    let (verb, service) = if more_read >= more_write { ("read", read) } else { ("write", write) };
    let disk = window.disk.as_ref();
    let (cause, next) = kind(window, disk, verb, service);
    if service.slower() < SLOWER || (cause == "device-slower" && service.rate >= LIMIT_MIN) {
        return find_limit(window, [("read", read, read_ns), ("write", write, write_ns)]);
    }
    let mut evidence = vec![format!(
        "a {verb} takes {} where it usually takes {} ({:.1} times, {:.0} transfers)",
        time(service.mean_ns()),
        time(service.mean_ns() / service.slower()),
        service.slower(),
        service.transfers,
    )];
    evidence.extend(disk.map(|disk| kernels_word(disk, verb)));
    evidence.extend(disk.and_then(others_word));
    let more_ns = (more_read + more_write) * if cause == "background" { own_overlap(window) } else { 1.0 };
    Some(Finding::new(cause, window.device(), window, more_ns, evidence, next))
}

/// Nanoseconds that requests spent reading and writing flash.
fn stages_ns(window: &Window) -> (f64, f64) {
    let read_ns = window.stage_ns(&["read", "held"]) - tiers::disk_reads_ns(window);
    (read_ns.max(0.0), window.stage_ns(&["write", "queue", "backlog"]))
}

/// The part of a stage's time that would not be without what makes the device slower.
fn slower_ns(stage_ns: f64, service: Service) -> f64 {
    stage_ns * (1.0 - 1.0 / service.slower())
}

/// Nanoseconds for which requests waited longer than usual for a device that is busy with the program's own work.
pub(super) fn own_work_ns(window: &Window) -> f64 {
    if own_work(window) < OWN_WORK_MIN {
        return 0.0;
    }
    let (read_ns, write_ns) = stages_ns(window);
    let more_ns = slower_ns(read_ns, service(window, "read")) + slower_ns(write_ns, service(window, "write"));
    more_ns * own_overlap(window)
}

/// The reason why transfers are slow: others on the disk, a throttle, the program's own work, or the device itself.
fn kind(window: &Window, disk: Option<&DiskWindow>, verb: &str, service: Service) -> (&'static str, &'static str) {
    if own_work(window) >= OWN_WORK_MIN {
        return ("background", "the program's own work takes the device: more free space lets the cleaner move less");
    }
    if disk.and_then(|disk| kernel_ns(disk, verb)).is_some_and(|ns| ns < BELOW_MAX * service.mean_ns()) {
        return (
            "device-throttled",
            "the kernel holds I/O back before the device gets it: look for I/O limits of the daemon's cgroup (blkio.throttle.*, io.max); `sinter doctor` lists them",
        );
    }
    if disk.is_some_and(|disk| foreign(disk) >= FOREIGN_MIN) {
        return (
            "device-shared",
            "find who else uses the disk (iotop, pidstat -d), or give the brick a disk of its own",
        );
    }
    (
        "device-slower",
        "the device itself answers later: look at its health (smartctl, nvme smart-log), temperature, free flash (discard, over-provision) or, if it is remote, its network",
    )
}

/// The device at its limit: its service is as usual for so many transfers, but they wait for each other in it.
fn find_limit(window: &Window, verbs: [(&str, Service, f64); 2]) -> Option<Finding> {
    let waiting = |(_, service, stage_ns): &(&str, Service, f64)| stage_ns * (1.0 - 1.0 / service.queued());
    let (verb, service, _) = verbs.into_iter().max_by(|one, other| waiting(one).total_cmp(&waiting(other)))?;
    let waits = service.queued() >= 2.0 && service.deepest >= 8;
    let gives_no_more = service.doubled() >= DOUBLED_MIN && service.rate >= LIMIT_MIN;
    if !waits && !gives_no_more {
        return None;
    }
    let excess_ns = verbs.iter().map(waiting).sum();
    let mut evidence = vec![
        format!(
            "a {verb} takes {}, as usual with so many under way; alone it takes {}",
            time(service.mean_ns()),
            time(service.mean_ns() / service.queued())
        ),
        format!(
            "{:.0} {verb}s a second, up to {} and more of a core under way",
            window.per_second(service.transfers),
            service.deepest
        ),
    ];
    evidence.extend(super::core::shared(window));
    let next = "the device gives what it can: a faster device, or more of them; fewer clients at once shorten the wait, not the work";
    Some(Finding::new("device-limit", window.device(), window, excess_ns, evidence, next))
}

/// The flush, if it takes longer than it usually does.
pub fn find_flush(window: &Window) -> Option<Finding> {
    let flush = service(window, "flush");
    if flush.slower() < SLOWER {
        return None;
    }
    let excess_ns = window.stage_ns(&["flush", "queue"]) * (1.0 - 1.0 / flush.slower());
    let evidence = vec![format!(
        "a flush takes {} where it usually takes {} ({:.0} flushes)",
        time(flush.mean_ns()),
        time(flush.mean_ns() / flush.slower()),
        flush.transfers
    )];
    let next = "the device's write cache is slow to empty: a drive with power-loss protection flushes at once; see what else flushes it";
    Some(Finding::new("flush", window.device(), window, excess_ns, evidence, next))
}

/// The kernel's own mean for a verb: from the queue to the end.
fn kernel_ns(disk: &DiskWindow, verb: &str) -> Option<f64> {
    let place = usize::from(verb == "write");
    let (requests, took_ms) = (disk.requests[place], disk.took_ms[place]);
    // The kernel tells whole milliseconds of the sum.
    (requests >= 100 && took_ms > 0).then(|| took_ms as f64 * 1e6 / requests as f64)
}

fn kernels_word(disk: &DiskWindow, verb: &str) -> String {
    match kernel_ns(disk, verb) {
        Some(ns) => format!("the kernel's own account of {} says {} for each", disk.name, time(ns)),
        None => format!("the kernel's own account of {} has too few requests to tell", disk.name),
    }
}

/// The share of others in the disk's bytes.
fn foreign(disk: &DiskWindow) -> f64 {
    disk.bottom_bytes.saturating_sub(disk.own_bytes) as f64 / disk.bottom_bytes.max(1) as f64
}

fn others_word(disk: &DiskWindow) -> Option<String> {
    let share = foreign(disk);
    (disk.bottom_bytes > 0).then(|| format!("others have {} of the bytes of {}", percent(share), disk.bottom))
}

/// The I/O of flash that clients wait for, or that of the program's own work.
fn of_flash(window: &Window, awaited: bool) -> impl Iterator<Item = &Io> {
    let of_flash = window.io.iter().filter(|io| !is_of_disks(&io.purpose));
    of_flash.filter(move |io| AWAITED.contains(&&*io.purpose) == awaited)
}

/// The share of the program's own work in the bytes of its I/O.
fn own_work(window: &Window) -> f64 {
    let bytes = |awaited: bool| of_flash(window, awaited).map(|io| io.bytes as f64).sum::<f64>();
    bytes(false) / (bytes(false) + bytes(true)).max(1.0)
}

/// The part of the time in which transfers of the program's own work were under way, at most: only those that overlap with them can
/// have been slowed by them.
fn own_overlap(window: &Window) -> f64 {
    window.share(of_flash(window, false).map(|io| io.took.sum_ns).sum())
}
