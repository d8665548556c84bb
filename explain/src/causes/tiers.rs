//! The tiers of a hybrid brick: reads that must go down to a disk, and writers that wait for room which blocks on their way
//! down to disks will leave.

use super::{per_request, time};
use crate::{Finding, Window};

/// Purpose of reads of disks that clients wait for.
const READS: &str = "disk";
/// Purpose of all else that disks do.
const WORK: &str = "destage";

/// True for the purposes of I/O of disks: its times and bytes say nothing of the flash.
pub fn is_of_disks(purpose: &str) -> bool {
    purpose == READS || purpose == WORK
}

/// True if blocks went down to disks.
pub(super) fn goes_down(window: &Window) -> bool {
    window.verb("write").any(|io| io.purpose == WORK && io.took.count > 0)
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
    if !goes_down(window) {
        return None;
    }
    let (writes, took_ns, bytes) = sum(window, WORK, "write");
    let (_, _, read_bytes) = sum(window, WORK, "read");
    let evidence = vec![
        format!("a request waits {} for room", per_request(window, &["space"])),
        format!(
            "{:.1} MB go down to disks a second, in writes of {}; disks' own cleaning reads {:.1} MB a second",
            window.per_second(bytes) / 1e6,
            time(took_ns / writes),
            window.per_second(read_bytes) / 1e6
        ),
    ];
    let next = "clients write more than the disks take: more disks take more at once, and more flash lets more blocks die before they go down";
    Some(Finding::new("destage", "the disks".into(), window, window.stage_ns(&["space"]), evidence, next))
}

#[cfg(test)]
mod tests {
    use super::{find_destage, find_disk};
    use crate::Window;
    use crate::causes::space;
    use crate::snapshot::{Io, Operation, Snapshot};
    use crate::times::Times;
    use std::collections::BTreeMap;

    fn times(count: u64, sum_ns: u64) -> Times {
        Times { count, sum_ns, ..Times::default() }
    }

    /// A second in which 100 requests spent 9 of their 10 ms in a stage, and what disks did meanwhile.
    fn second(stage: &str, io: Io) -> Window {
        let before = Snapshot { at_ns: 1, ..Snapshot::default() };
        let stages = BTreeMap::from([(stage.to_string(), times(100, 900_000_000))]);
        let operation =
            Operation { name: "read".into(), total: times(100, 1_000_000_000), stages, ..Operation::default() };
        let after = Snapshot { at_ns: 1_000_000_001, operations: vec![operation], io: vec![io], ..Snapshot::default() };
        Window::between(&before, &after).expect("of one daemon")
    }

    #[test]
    fn reads_of_disks_are_named_and_reads_of_flash_are_not() {
        let io = |purpose: &str| Io {
            purpose: purpose.into(),
            verb: "read".into(),
            bytes_max: 4096,
            took: times(90, 880_000_000),
            ..Io::default()
        };
        let found = find_disk(&second("read", io("disk"))).expect("disks were read");
        assert!(found.cause == "disk" && (0.87..0.89).contains(&found.share), "{found:?}");
        assert!(found.evidence[0].contains("9.8 ms") && found.evidence[0].contains("90 of them"), "{found:?}");
        let window = second("read", io("client"));
        assert!(find_disk(&window).is_none() && find_destage(&window).is_none());
    }

    #[test]
    fn writers_that_wait_for_what_goes_down_are_told_so() {
        let io = Io {
            purpose: "destage".into(),
            verb: "write".into(),
            bytes: 100 << 20,
            bytes_max: 1 << 20,
            took: times(100, 700_000_000),
            ..Io::default()
        };
        let window = second("space", io);
        let found = find_destage(&window).expect("blocks went down");
        assert!(found.cause == "destage" && (0.89..0.91).contains(&found.share), "{found:?}");
        assert!(found.evidence[1].contains("104.9 MB"), "{found:?}");
        let background = space::find(&window).expect("its evidence is told");
        assert!(background.share < 0.01, "that time is told once: {background:?}");
    }
}
