//! The tasks, the rows of the table that each gives, and Sinter's targets in them.

use crate::flash::figures::Target;
use crate::flash::fio::{Durable, FILES, Files, Load};

/// The file system on which the sides of a task lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// XFS on a loop device.
    Xfs,
    /// The host's own file system.
    Ext4,
}

/// The work of a side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    Fio(Load),
    /// Small files, sprayed over directories: created durably, then read cold.
    Small {
        threads: usize,
        bytes: usize,
    },
    /// Empty files in one directory: created, then looked up cold, then unlinked.
    Empty {
        threads: usize,
    },
    /// Nothing, with a volume mounted.
    Idle,
    /// Small synchronous writers, alone and beside a massive commit.
    CommitMix,
    /// Streams of a constant bit rate, alone and beside a reader at full speed.
    Streams,
    /// Random overwrites of a brick that is filled to 80%.
    Steady,
}

/// The unit of a row's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    PerSecond,
    MegabytesPerSecond,
    PercentOfCore,
    /// Multiple of something else.
    Times,
    Percent,
    Count,
    Gigabytes,
}

impl Unit {
    /// True if more is better, so that there is a ratio.
    pub fn is_rate(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::MegabytesPerSecond)
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name on the command line.
    pub name: String,
    pub title: String,
    pub unit: Unit,
    pub target: Target,
}

/// A point of a curve: which curve, and where on its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub curve: &'static str,
    pub axis: &'static str,
    pub at: u32,
}

/// The work done in one go, and the rows that it gives.
#[derive(Clone, Debug)]
pub struct Task {
    pub place: Place,
    pub work: Work,
    pub rows: Vec<Row>,
    /// Set for what belongs to a plot, not to the table.
    pub point: Option<Point>,
}

const PLAIN: Load = Load {
    pattern: "randread",
    block_bytes: 4096,
    jobs: 1,
    depth: 1,
    direct: true,
    durable: Durable::Some,
    files: Files::One,
    again: false,
};

const NONE: Target = Target {
    of_raw: None,
    of_peer: None,
    above_raw_us: None,
    p50_us: None,
    daemon_us: None,
    below: None,
    at_least: None,
};

fn of_raw(ratio: f64) -> Target {
    Target { of_raw: Some(ratio), ..NONE }
}

fn of_both(raw: f64, peer: f64) -> Target {
    Target { of_raw: Some(raw), of_peer: Some(peer), ..NONE }
}

fn of_peer(ratio: f64) -> Target {
    Target { of_peer: Some(ratio), ..NONE }
}

fn below(value: f64) -> Target {
    Target { below: Some(value), ..NONE }
}

fn row(name: &str, title: &str, unit: Unit, target: Target) -> Row {
    Row { name: name.to_string(), title: title.to_string(), unit, target }
}

fn fio(name: &str, title: &str, load: Load, target: Target) -> Task {
    let unit = if load.block_bytes > 4096 { Unit::MegabytesPerSecond } else { Unit::PerSecond };
    Task { place: Place::Xfs, work: Work::Fio(load), rows: vec![row(name, title, unit, target)], point: None }
}

/// All rows of the table, in its order.
pub fn all() -> Vec<Task> {
    [random(), depth_one(), sequential(), synchronous(), appends(), small(), empty(), idle(), beside()].concat()
}

/// Rows that are measured with three copies, too, with targets of their own. The host's own file system has no peer, and streams and
/// small commits beside a massive one ask for nothing that copies change.
pub fn copied() -> Vec<Task> {
    let mut tasks = all();
    tasks.retain(|task| task.place == Place::Xfs && !matches!(task.work, Work::CommitMix | Work::Streams));
    tasks.iter_mut().flat_map(|task| &mut task.rows).for_each(|row| row.target = target_of_copies(&row.name));
    tasks
}

/// The target of a row with three copies. A file system with one copy is none to compare with.
fn target_of_copies(name: &str) -> Target {
    match name {
        "random-read" => of_peer(4.0),
        "random-write" => Target { daemon_us: Some(45.0), ..of_peer(10.0) },
        "depth1-dsync" => Target { p50_us: Some(350.0), ..NONE },
        "append-16" => of_peer(15.0),
        "small-create-16x4k" => of_peer(20.0),
        _ => NONE,
    }
}

fn random() -> Vec<Task> {
    let load = Load { jobs: FILES, depth: 8, files: Files::Laid, ..PLAIN };
    let (write, again) = (Load { pattern: "randwrite", ..load }, Load { again: true, ..load });
    let reads = Target { daemon_us: Some(10.0), ..of_both(0.85, 5.0) };
    let writes = Target { daemon_us: Some(12.0), ..of_both(0.85, 7.0) };
    vec![
        fio("random-read", "4 KiB random read, O_DIRECT, 4 jobs at depth 8, from the device", load, reads),
        fio("random-reread", "the same places, read a third time", again, NONE),
        fio("random-write", "4 KiB random write, O_DIRECT, 4 jobs at depth 8", write, writes),
    ]
}

fn depth_one() -> Vec<Task> {
    let target = Target { above_raw_us: Some(25.0), ..NONE };
    let write = Load { pattern: "randwrite", ..PLAIN };
    let durable = Load { durable: Durable::Each, ..write };
    vec![
        fio("depth1-read", "4 KiB random read, O_DIRECT, depth 1, from the device", PLAIN, target),
        fio("depth1-write", "4 KiB random write, O_DIRECT, depth 1", write, target),
        fio("depth1-dsync", "4 KiB random write, O_DIRECT and O_DSYNC, depth 1", durable, target),
    ]
}

fn sequential() -> Vec<Task> {
    let mut tasks = Vec::new();
    for (pattern, depth) in [("read", 1), ("read", 8), ("write", 1), ("write", 8)] {
        let load = Load { pattern, depth, block_bytes: 1 << 20, files: Files::Ordered, ..PLAIN };
        let title = format!("1 MiB sequential {pattern}, O_DIRECT, depth {depth}");
        tasks.push(fio(&format!("sequential-{pattern}-{depth}"), &title, load, of_both(0.8, 2.0)));
    }
    let scattered = Load { pattern: "read", depth: 8, block_bytes: 1 << 20, ..PLAIN };
    let title = "1 MiB read in order of a file that was overwritten at random, O_DIRECT, depth 8";
    tasks.push(fio("scattered-read-8", title, scattered, NONE));
    tasks
}

fn synchronous() -> Vec<Task> {
    let mut tasks = Vec::new();
    for (name, flags, direct) in [("dsync", "O_DIRECT and O_DSYNC", true), ("dsync-buffered", "O_DSYNC", false)] {
        for (jobs, ratio) in [(1, 1.0), (16, 1.5), (64, 1.0)] {
            let load = Load { pattern: "randwrite", jobs, direct, durable: Durable::Each, ..PLAIN };
            let target = if direct { of_raw(ratio) } else { NONE };
            let title = format!("4 KiB overwrite of one file, {flags}, {}", counted(jobs, "writer"));
            tasks.push(fio(&format!("{name}-{jobs}"), &title, load, target));
        }
    }
    tasks
}

fn appends() -> Vec<Task> {
    let (xfs, ext4) = ([(1, 2.2), (16, 2.5), (64, 2.0)], [(1, 1.0), (16, 1.5), (64, 1.2)]);
    let mut tasks = Vec::new();
    for (place, suffix, on, ratios) in [(Place::Xfs, "", "", xfs), (Place::Ext4, "-ext4", " (on ext4)", ext4)] {
        for (jobs, ratio) in ratios {
            let (durable, files) = (Durable::After, Files::Fresh);
            let load = Load { pattern: "write", jobs, direct: false, durable, files, ..PLAIN };
            let title = format!("4 KiB append and fdatasync, {}{on}", counted(jobs, "writer"));
            tasks.push(Task { place, ..fio(&format!("append{suffix}-{jobs}"), &title, load, of_raw(ratio)) });
        }
    }
    tasks
}

fn small() -> Vec<Task> {
    let mut tasks = Vec::new();
    for threads in [1, 4, 16] {
        for kib in [4, 16, 64] {
            let created = match (threads, kib) {
                (1, 64) => of_both(1.3, 6.0),
                (1, _) => of_both(1.5, 6.0),
                (4, _) => of_both(1.5, 8.0),
                _ => of_both(0.9, 8.0),
            };
            let read = of_both(if threads == 16 { 0.5 } else { 0.7 }, 4.0);
            let cell = format!("{threads}x{kib}k");
            let what = format!("{kib} KiB file, {}", counted(threads as u32, "thread"));
            let rows = vec![
                row(
                    &format!("small-create-{cell}"),
                    &format!("create, write, fsync, close a {what}"),
                    Unit::PerSecond,
                    created,
                ),
                row(&format!("small-read-{cell}"), &format!("open, read, close a {what}, cold"), Unit::PerSecond, read),
            ];
            let work = Work::Small { threads, bytes: kib << 10 };
            tasks.push(Task { place: Place::Xfs, work, rows, point: None });
        }
    }
    tasks
}

fn empty() -> Vec<Task> {
    let mut tasks = Vec::new();
    for (threads, raw) in [(1, [0.4, 0.3, 0.5]), (4, [0.4, 0.5, 0.5])] {
        let what = counted(threads as u32, "thread");
        let kinds = [("create", "create an empty file", 15.0), ("stat", "stat, cold", 8.0), ("unlink", "unlink", 8.0)];
        let rows = kinds.into_iter().zip(raw).map(|((name, title, peer), raw)| {
            let title = format!("{title}, one directory, {what}");
            row(&format!("empty-{name}-{threads}"), &title, Unit::PerSecond, of_both(raw, peer))
        });
        let work = Work::Empty { threads };
        tasks.push(Task { place: Place::Xfs, work, rows: rows.collect(), point: None });
    }
    tasks
}

fn idle() -> Vec<Task> {
    let rows = vec![row("idle", "idle, a volume mounted: of one core", Unit::PercentOfCore, below(1.0))];
    vec![Task { place: Place::Xfs, work: Work::Idle, rows, point: None }]
}

/// Those that others must not hold up.
fn beside() -> Vec<Task> {
    let mix = "small O_DSYNC writers beside a commit of 1 GiB";
    let mix = vec![
        row("commit-mix-p99", &format!("{mix}: p99 / p99 alone"), Unit::Times, below(2.0)),
        row("commit-mix-alone", "the same alone", Unit::PerSecond, NONE),
        row("commit-mix-beside", "the same beside it", Unit::PerSecond, NONE),
        row("commit-mix-massive", "the massive commit", Unit::MegabytesPerSecond, NONE),
    ];
    // Raw, the reader gets what the streams leave of the device.
    let streams = vec![
        row("streams-missed", "4,000 streams of 1 Mb/s: chunks that came late", Unit::Count, below(1.0)),
        row("streams-beside", "the same beside a reader at full speed", Unit::Count, below(1.0)),
        row("streams-reader", "that reader", Unit::MegabytesPerSecond, of_raw(0.9)),
    ];
    let task = |work, rows| Task { place: Place::Xfs, work, rows, point: None };
    vec![task(Work::CommitMix, mix), task(Work::Streams, streams)]
}

/// The load on a brick for life: it takes the whole XFS and a quarter of an hour, so it is measured alone.
pub fn steady() -> Vec<Task> {
    let least = Target { at_least: Some(50.0), ..NONE };
    let rows = vec![
        row("steady", "4 KiB random overwrite at 80% of a brick", Unit::PerSecond, NONE),
        row("steady-first", "the same in its first minute", Unit::PerSecond, NONE),
        row("steady-ratio", "all of it / its first minute", Unit::Times, Target { at_least: Some(0.5), ..NONE }),
        row("steady-least", "its slowest second, of the mean", Unit::Percent, least),
        row("steady-zero", "its seconds without a write", Unit::Count, below(1.0)),
        row("steady-device", "what the brick wrote to the device meanwhile", Unit::Gigabytes, NONE),
        row("steady-amplification", "that / what was written to the brick", Unit::Times, NONE),
        row("steady-whole", "filling it and XFS included: of the device / of the writes", Unit::Times, NONE),
    ];
    vec![Task { place: Place::Xfs, work: Work::Steady, rows, point: None }]
}

/// The growth of throughput with depth and with jobs.
pub fn curves() -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut add = |curve, axis, at, load| {
        let task = fio(&format!("curve-{curve}-{axis}-{at}"), &format!("{curve} at {axis} {at}"), load, NONE);
        tasks.push(Task { point: Some(Point { curve, axis, at }), ..task });
    };
    for (curve, pattern) in [("random-read", "randread"), ("random-write", "randwrite")] {
        for depth in [1, 2, 4, 8, 16, 32, 64] {
            add(curve, "depth", depth, Load { pattern, depth, ..PLAIN });
        }
        for jobs in [1, 2, 4, 8, 16] {
            add(curve, "jobs", jobs, Load { pattern, jobs, ..PLAIN });
        }
    }
    tasks
}

/// The tasks that give a row with one of these names, or one that begins so; all if there are none.
pub fn picked(all: Vec<Task>, names: &[String]) -> Result<Vec<Task>, String> {
    let is = |row: &Row, name: &str| row.name == name || row.name.starts_with(&format!("{name}-"));
    let known = |name: &&String| all.iter().flat_map(|task| &task.rows).any(|row| is(row, name));
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let rows: Vec<&str> = all.iter().flat_map(|task| &task.rows).map(|row| row.name.as_str()).collect();
        return Err(format!("no row {name}; there are: {}", rows.join(" ")));
    }
    let wanted = |row: &Row| names.is_empty() || names.iter().any(|name| is(row, name));
    Ok(all.into_iter().filter(|task| task.rows.iter().any(wanted)).collect())
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(picked: &[&str]) -> Vec<String> {
        let picked: Vec<String> = picked.iter().map(|name| name.to_string()).collect();
        let tasks = super::picked(all(), &picked).expect("these are rows");
        tasks.into_iter().flat_map(|task| task.rows).map(|row| row.name).collect()
    }

    #[test]
    fn each_row_has_a_name_of_its_own() {
        let all: Vec<String> =
            [all(), curves()].concat().into_iter().flat_map(|task| task.rows).map(|row| row.name).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }

    #[test]
    fn rows_are_picked_by_name_or_by_how_it_begins() {
        assert_eq!(names(&["random"]), ["random-read", "random-reread", "random-write"]);
        assert_eq!(names(&["dsync-1", "idle"]), ["dsync-1", "idle"]);
        // What is measured in one go comes together.
        assert_eq!(names(&["small-read-4x64k"]), ["small-create-4x64k", "small-read-4x64k"]);
        assert_eq!(names(&[]).len(), 3 + 3 + 5 + 6 + 6 + 18 + 6 + 1 + 4 + 3);
        assert!(picked(all(), &["fast".to_string()]).is_err_and(|error| error.contains("no row fast")));
    }

    #[test]
    fn targets_stand_where_they_belong() {
        let target = |name: &str| {
            let rows = all().into_iter().flat_map(|task| task.rows);
            rows.into_iter().find(|row| row.name == name).expect("there is such a row").target
        };
        assert_eq!(target("random-write"), Target { daemon_us: Some(12.0), ..of_both(0.85, 7.0) });
        assert_eq!((target("append-16"), target("append-ext4-16")), (of_raw(2.5), of_raw(1.5)));
        assert_eq!(
            (target("small-create-1x64k"), target("small-create-16x64k")),
            (of_both(1.3, 6.0), of_both(0.9, 8.0))
        );
        assert_eq!((target("small-read-4x4k"), target("small-read-16x4k")), (of_both(0.7, 4.0), of_both(0.5, 4.0)));
        assert_eq!((target("empty-stat-1"), target("empty-stat-4")), (of_both(0.3, 8.0), of_both(0.5, 8.0)));
    }

    #[test]
    fn copies_have_rows_and_targets_of_their_own() {
        let rows: Vec<Row> = copied().into_iter().flat_map(|task| task.rows).collect();
        assert_eq!(rows.len(), 3 + 3 + 5 + 6 + 3 + 18 + 6 + 1);
        let with: Vec<&str> = rows.iter().filter(|row| row.target != NONE).map(|row| row.name.as_str()).collect();
        assert_eq!(with, ["random-read", "random-write", "depth1-dsync", "append-16", "small-create-16x4k"]);
        assert!(rows.iter().all(|row| row.target.of_raw.is_none() && row.target.above_raw_us.is_none()));
        assert_eq!(target_of_copies("random-write"), Target { daemon_us: Some(45.0), ..of_peer(10.0) });
    }
}
