//! Limits of the process that serves the brick, or else of this one, whose shell may start it.

use super::Finding;
use super::facts::{Facts, Layer, Limit};
use crate::table::{bytes, count};
use base::limits::BALLAST_BYTES_MAX;

const NAME: &str = "limits";
/// Descriptors of a daemon beside its segments' files.
const FILES: u64 = 1024;
/// The size of a file of segments.
const FILE_BYTES: u64 = 1 << 30;

/// Checks the limits that a daemon can meet.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let process = &facts.process;
    let (Some(files), Some(locked), Some(size)) = (process.open_files, process.locked_bytes, process.file_bytes) else {
        return vec![Finding::unknown(NAME, "the kernel does not tell them")];
    };
    let whose = match process.daemon {
        Some(pid) => format!("the daemon (process {pid})"),
        None => "this shell".to_string(),
    };
    let mut findings = Vec::new();
    // The directory's file system may become full of segments. A daemon raises what it may raise.
    let needed = FILES + room_bytes(facts) / FILE_BYTES;
    if let Some(most) = files.1.number().filter(|most| *most < needed) {
        findings.push(Finding::warning(
            NAME,
            format!("{whose}: at most {} open files; a full brick needs {}", count(most), count(needed)),
            format!("LimitNOFILE={needed} in the daemon's unit, or: ulimit -n {needed}"),
            "it works: a brick that can open no more files can't grow",
        ));
    }
    if let Some(most) = size.1.number().filter(|most| *most < BALLAST_BYTES_MAX) {
        findings.push(Finding::warning(
            NAME,
            format!("{whose}: files of at most {}", bytes(most)),
            "LimitFSIZE=infinity in the daemon's unit, or: ulimit -f unlimited",
            "it works: a daemon refuses to start with less than 4 GiB",
        ));
    }
    if findings.is_empty() {
        let shown = |limit: Limit, number: fn(u64) -> String| limit.number().map_or("unlimited".into(), number);
        // Rings take their memory from the control group since Linux 5.12: no bound to check.
        let (files, size, locked) = (shown(files.1, count), shown(size.1, bytes), shown(locked.1, bytes));
        let found = format!("{whose}: open files {files}, file size {size}, locked memory {locked} (none needed)");
        findings.push(Finding::ok(NAME, found));
    }
    findings
}

fn room_bytes(facts: &Facts) -> u64 {
    let first = facts.places.first().and_then(|place| place.layers.first());
    match first {
        // Segments on a device are one file.
        Some(Layer::Host(host)) if facts.places.len() == 1 => host.room.map_or(0, |room| room.all_bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Host, Place, Process, Room};

    fn of(files: Limit, size: Limit, places: usize) -> Vec<State> {
        let room = Some(Room { all_bytes: 4000 << 30, free_bytes: 0 });
        let host = Host { room, ..Host::default() };
        let place = Place { holds: "brick", layers: vec![Layer::Host(host)] };
        let both = |limit| Some((Limit::Of(1), limit));
        let process = Process {
            open_files: both(files),
            file_bytes: both(size),
            locked_bytes: both(Limit::None),
            ..Process::default()
        };
        let facts = Facts { places: vec![place; places], process, ..Facts::default() };
        check(&facts).into_iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn the_hard_limits_count() {
        assert_eq!(of(Limit::None, Limit::None, 1), [State::Ok]);
        assert_eq!(of(Limit::Of(1 << 20), Limit::Of(8 << 30), 1), [State::Ok]);
        assert_eq!(of(Limit::Of(4096), Limit::None, 1), [State::Warning], "a file per GiB");
        assert_eq!(of(Limit::Of(4096), Limit::None, 2), [State::Ok], "segments lie on a device");
        assert_eq!(of(Limit::Of(512), Limit::Of(1 << 30), 2), [State::Warning; 2]);
    }
}
