//! The benches on a scratch directory with tiny sizes.

use super::access;
use super::compare::{Figure, beside};
use super::engine::Course;
use super::report::{Form, Progress, Report, Row};
use super::turns::{Bench, alone};
use super::{commit_mix, metadata, scorecard, smallfile, streams, sync};
use crate::cli::{Phase, SyncMode};
use crate::failure::{Exit, Failure};
use crate::scratch::Scratch;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(60);

/// A course that says nothing.
pub fn silent() -> Course {
    course(false)
}

/// The same; `interrupted`: from the beginning.
pub fn course(interrupted: bool) -> Course {
    let progress = Progress::to(Box::new(std::io::sink()), false);
    Course::new(progress, Arc::new(AtomicBool::new(interrupted)))
}

fn measure(bench: &dyn Bench, directory: &Path) -> Result<Report, Failure> {
    alone(bench, directory, &mut silent())
}

fn sync_plan(modes: Vec<SyncMode>, direct: bool) -> sync::Plan {
    sync::Plan { writers: vec![1, 3], modes, file_bytes: Some(64 << 10), direct, time: SHORT }
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).expect("it is there").count()
}

fn is_plausible(row: &Row) -> bool {
    row.operations > 0
        && row.per_second > 0.0
        && 0 < row.p50_ns.min(row.mean_ns)
        && row.p50_ns <= row.p99_ns
        && row.p99_ns <= row.max_ns
}

fn modes(report: &Report) -> Vec<(&str, u32)> {
    report.rows.iter().map(|row| (row.mode.as_str(), row.threads)).collect()
}

#[test]
fn sync_measures_every_mode_and_cleans_up() {
    let scratch = Scratch::new();
    let report = measure(&sync_plan(Vec::new(), false), scratch.path()).expect("it can write");
    let expected = ["overwrite-dsync", "append-fdatasync", "fsync"].into_iter().flat_map(|mode| [(mode, 1), (mode, 3)]);
    assert_eq!(modes(&report), expected.collect::<Vec<(&str, u32)>>());
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn sync_measures_what_is_asked() {
    let scratch = Scratch::new();
    let report = measure(&sync_plan(vec![SyncMode::Fsync], true), scratch.path()).expect("it can write");
    assert_eq!((report.rows.len(), report.form.direct), (2, true));
}

#[test]
fn random_reads_and_writes() {
    let scratch = Scratch::new();
    let report = measure(&access::Plan::random(2, 2, Some(64 << 10), SHORT), scratch.path()).expect("it can write");
    assert_eq!(modes(&report), [("read", 4), ("write", 4)]);
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn sequential_access_has_blocks_of_any_size() {
    let scratch = Scratch::new();
    let order = access::Order::Sequential;
    let plan = access::Plan { order, block_bytes: 64 << 10, ..access::Plan::random(1, 2, Some(100 << 10), SHORT) };
    let report = measure(&plan, scratch.path()).expect("it can write");
    assert_eq!((modes(&report), report.form.file_bytes), (vec![("read", 2), ("write", 2)], Some(128 << 10)));
    let whole = |row: &Row| (row.bytes_per_second / row.per_second - 65536.0).abs() < 0.1;
    assert!(report.rows.iter().all(|row| is_plausible(row) && whole(row)), "{report:?}");
}

#[test]
fn threads_are_bounded() {
    let scratch = Scratch::new();
    let refused = measure(&access::Plan::random(64, 2, None, SHORT), scratch.path()).expect_err("too many");
    assert_eq!(refused.exit, Exit::Usage);
}

#[test]
fn an_interruption_ends_early_and_cleans_up() {
    let scratch = Scratch::new();
    let plan = sync::Plan { time: Duration::from_secs(3600), ..sync_plan(Vec::new(), false) };
    let report = alone(&plan, scratch.path(), &mut course(true)).expect("it can write");
    assert_eq!((report.rows.len(), entries(scratch.path())), (0, 0));
}

#[test]
fn a_missing_directory_is_a_wrong_line() {
    let scratch = Scratch::new();
    let refused = measure(&sync_plan(Vec::new(), false), &scratch.path().join("absent")).expect_err("not there");
    assert_eq!(refused.exit, Exit::Usage);
}

fn smallfile_plan(phase: Phase) -> smallfile::Plan {
    smallfile::Plan {
        threads: vec![2],
        sizes: vec![1000, 5000],
        exponential: false,
        files: 200,
        phase,
        time: SHORT * 50,
    }
}

#[test]
fn small_files_are_created_read_and_removed() {
    let scratch = Scratch::new();
    let report = measure(&smallfile_plan(Phase::Both), scratch.path()).expect("it can write");
    let rows: Vec<(&str, u64, u64)> =
        report.rows.iter().map(|row| (row.mode.as_str(), row.block_bytes, row.operations)).collect();
    let expected = [("create", 1000, 200), ("read", 1000, 200), ("create", 5000, 200), ("read", 5000, 200)];
    assert_eq!(rows, expected, "each file once");
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    let bytes = |row: &Row| row.bytes_per_second / row.per_second;
    assert!((bytes(&report.rows[3]) - 5000.0).abs() < 0.1, "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn small_files_end_with_their_time() {
    let scratch = Scratch::new();
    let plan = smallfile::Plan { files: 1 << 40, sizes: vec![1], time: SHORT, ..smallfile_plan(Phase::Both) };
    let report = measure(&plan, scratch.path()).expect("it can write");
    assert!(report.rows[0].operations > 0 && report.rows[1].operations <= report.rows[0].operations, "{report:?}");
}

#[test]
fn small_files_of_one_run_are_read_by_another() {
    let scratch = Scratch::new();
    let kept = scratch.path().join("sinter-bench-smallfile");
    let run = |phase| measure(&smallfile::Plan { exponential: true, ..smallfile_plan(phase) }, scratch.path());
    assert_eq!(run(Phase::Read).expect_err("none").exit, Exit::Usage);
    assert_eq!(modes(&run(Phase::Create).expect("it can write")), [("create", 2); 2]);
    assert_eq!(run(Phase::Create).expect_err("there are some").exit, Exit::Usage);
    let reads = run(Phase::Read).expect("they are there");
    assert_eq!((modes(&reads), reads.rows[1].operations), (vec![("read", 2); 2], 200));
    let other = measure(&smallfile_plan(Phase::Read), scratch.path()).expect_err("other files");
    assert!(other.to_string().contains("same options"), "{other}");
    assert!(kept.is_dir());
    assert!(run(Phase::Remove).expect("they are there").rows.is_empty() && !kept.exists());
}

#[test]
fn a_wrong_byte_of_a_small_file_is_found_and_named() {
    type Damage = fn(&Path);
    let damages: [(Damage, &str); 3] = [
        (|file| flip(file, 700), "byte 700 "),
        (|file| std::fs::write(file, "short").expect("ours"), "fewer"),
        (|file| append(file), "more"),
    ];
    for (damage, said) in damages {
        let scratch = Scratch::new();
        measure(&smallfile_plan(Phase::Create), scratch.path()).expect("it can write");
        let set = scratch.path().join("sinter-bench-smallfile/2x1000/40");
        let file = std::fs::read_dir(set).expect("a set").next().expect("a file").expect("its entry").path();
        damage(&file);
        let failure = measure(&smallfile_plan(Phase::Read), scratch.path()).expect_err("a wrong byte").to_string();
        assert!(failure.contains(said) && failure.contains(file.to_str().expect("text")), "{failure}");
    }
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).expect("ours");
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("ours");
}

fn append(file: &Path) {
    let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("ours");
    file.write_all(b"!").expect("ours");
}

#[test]
fn names_are_created_looked_at_listed_and_unlinked() {
    let scratch = Scratch::new();
    let plan = metadata::Plan { threads: vec![1, 3], files: 300, time: SHORT * 50 };
    let report = measure(&plan, scratch.path()).expect("it can write");
    let of = |threads| ["create", "stat", "statx", "readdir", "unlink"].map(|mode| (mode, threads));
    assert_eq!(modes(&report), [of(1), of(3)].concat());
    let operations: Vec<u64> = report.rows.iter().map(|row| row.operations).collect();
    assert_eq!(operations, [300, 300, 300, 300, 300, 300, 300, 300, 900, 300], "each thread lists all");
    assert!(report.rows.iter().all(is_plausible) && !report.table().contains("MB/s"), "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn small_commits_are_measured_alone_and_beside_a_massive_one() {
    let scratch = Scratch::new();
    let plan = commit_mix::Plan { writers: 2, massive_bytes: 3 << 19, time: SHORT * 5 };
    let report = measure(&plan, scratch.path()).expect("it can write");
    assert_eq!(modes(&report), [("small alone", 2), ("small beside", 2), ("massive", 1)]);
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    let [alone, beside] = [&report.rows[0], &report.rows[1]];
    assert_eq!(beside.p99_times_alone, Some(beside.p99_ns as f64 / alone.p99_ns as f64));
    assert!(report.table().contains("p99 x alone") && alone.p50_times_alone.is_none());
    assert_eq!(entries(scratch.path()), 0);
}

fn streams_plan(bit_rate: u64) -> streams::Plan {
    let chunk = streams::CHUNK_BYTES;
    streams::Plan {
        streams: 40,
        bit_rate,
        file_bytes: 2 * chunk,
        reader_bytes: 3 << 20,
        time: SHORT * 10,
        start_over: None,
    }
}

#[test]
fn streams_that_can_be_served_miss_little_and_few_threads_serve_them() {
    let scratch = Scratch::new();
    // A chunk each 210 ms: 190 per second of all.
    let report = measure(&streams_plan(5_000_000), scratch.path()).expect("it can write");
    assert_eq!(modes(&report), [("streams", 40), ("streams beside", 40), ("reader", 1)]);
    for row in &report.rows[..2] {
        // Of about 114 that are due in all; a machine that is busy may be late for some.
        assert!((60..=125).contains(&row.operations) && row.missed.is_some_and(|missed| missed < 30), "{row:?}");
    }
    assert_eq!((report.rows[2].operations, report.rows[2].missed), (3, None), "its file, once");
    assert!(report.table().contains("missed"), "{}", report.table());
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn misses_are_counted_when_a_rate_cannot_be_met() {
    let scratch = Scratch::new();
    // 40 streams of 10 GB/s each: memory alone has a tenth of that.
    let report = measure(&streams_plan(80_000_000_000), scratch.path()).expect("it can write");
    let row = &report.rows[0];
    let due = 40.0 * (row.operations as f64 / row.per_second) / 13.1e-6;
    let missed = row.missed.expect("streams can be late") as f64;
    // All but those few that came in time, read late or not at all.
    assert!(missed > 0.8 * due && missed < 1.2 * due, "{missed} of {due}: {row:?}");
}

#[test]
fn two_directories_are_measured_in_turns() {
    let scratch = [Scratch::new(), Scratch::new()];
    let said = Said::default();
    let mut course = Course::new(Progress::to(Box::new(said.clone()), false), Arc::default());
    let plan = sync_plan(vec![SyncMode::Fsync], false);
    let comparison = beside(&plan, [scratch[0].path(), scratch[1].path()], 2, &mut course).expect("it can write");
    let lines: Vec<(u32, Figure)> = comparison.lines.iter().map(|line| (line.threads, line.figure)).collect();
    let of = |threads| [Figure::Rate, Figure::Mean, Figure::P99].map(|figure| (threads, figure));
    assert_eq!(lines, [of(1), of(3)].concat());
    for line in &comparison.lines {
        assert_eq!((line.here_rounds.len(), line.beside_rounds.len()), (2, 2));
        assert!(
            line.ratio.low <= line.ratio.ratio && line.ratio.ratio <= line.ratio.high && line.here > 0.0,
            "{line:?}"
        );
    }
    let turns = said.text();
    let turns: Vec<&str> = turns.lines().filter(|line| line.ends_with("with 3 writers")).collect();
    let at = |round: u32, side: usize| {
        format!("round {round} of 2, {}: fsync with 3 writers", scratch[side].path().display())
    };
    assert_eq!(turns, [at(1, 0), at(1, 1), at(2, 0), at(2, 1)]);
    let table = comparison.table();
    let picture = comparison.svg();
    assert!(picture.matches("<circle ").count() == 4 && picture.contains("fsync, 3 writers, 4K, p99"), "{picture}");
    assert!(table.contains("interval at 50% (sign test)") && table.contains("writes/s"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&comparison.json()).expect("it is JSON");
    assert_eq!((&json["bench"], &json["lines"][0]["figure"]), (&"sync".into(), &"rate".into()));
    assert!(json["lines"][0]["low"].is_f64(), "{json}");
    assert_eq!(scratch.map(|scratch| entries(scratch.path())), [0, 0]);
}

#[test]
fn a_scorecard_has_fourteen_verdicts() {
    let scratch = Scratch::new();
    let plan = scorecard::Plan { file_bytes: Some(64 << 10), files: 50, rounds: 2, time: SHORT / 4 };
    let card = scorecard::measure([scratch.path(); 2], &plan, &mut silent()).expect("it can write");
    assert_eq!(card.scores.len(), 14);
    assert!(card.table().contains("4 KiB O_DSYNC, 16 writers"), "{}", card.table());
    assert_eq!(card.svg().matches("<circle ").count(), 14);
    let json: serde_json::Value = serde_json::from_str(&card.json()).expect("it is JSON");
    assert!(["ahead", "at-par", "behind"].contains(&json["scores"][13]["verdict"].as_str().expect("text")), "{json}");
    assert_eq!(entries(scratch.path()), 0);
}

fn report() -> Report {
    let row = |mode: &str, threads, per_second: f64| Row {
        mode: mode.to_string(),
        threads,
        block_bytes: 4096,
        operations: 10,
        per_second,
        bytes_per_second: per_second * 4096.0,
        mean_ns: 90_000,
        p50_ns: 83_000,
        p99_ns: 1_500_000,
        max_ns: 20_000_000,
        missed: None,
        errors: None,
        stolen_percent: None,
        p50_times_alone: None,
        p99_times_alone: None,
    };
    let rows = vec![row("overwrite-dsync", 1, 11_600.4), row("fsync", 64, 57_000.0)];
    let form = sync_plan(Vec::new(), false).form();
    Report { form: Form { seconds: Some(5), ..form }, directory: "/mnt".to_string(), notes: Vec::new(), rows }
}

#[test]
fn a_report_reads_well() {
    let expected = "\
mode             writers  writes/s   MB/s      p50      p99      max
overwrite-dsync        1    11,600   47.5  83.0 us  1.50 ms  20.0 ms
fsync                 64    57,000  233.5  83.0 us  1.50 ms  20.0 ms
";
    assert_eq!(report().table(), expected);
    let picture = report().svg();
    assert!(picture.contains(">fsync, 64 writers, 4K<") && picture.contains(">57,000<"), "{picture}");
    let json: serde_json::Value = serde_json::from_str(&report().json()).expect("it is JSON");
    assert_eq!(json["rows"][1]["threads"], 64);
    assert_eq!(json["rows"][0]["p99_ns"], 1_500_000);
    assert_eq!((&json["bench"], &json["seconds"]), (&"sync".into(), &5.into()));
}

#[test]
fn a_report_says_what_differs_and_what_to_know() {
    let mut report = report();
    report.rows[1] = Row { block_bytes: 16384, bytes_per_second: 0.0, ..report.rows[1].clone() };
    report.rows[0].bytes_per_second = 0.0;
    report.notes.push("it was warm".to_string());
    let expected = "\
mode             writers  size  writes/s      p50      p99      max
overwrite-dsync        1    4K    11,600  83.0 us  1.50 ms  20.0 ms
fsync                 64   16K    57,000  83.0 us  1.50 ms  20.0 ms
note: it was warm
";
    assert_eq!(report.table(), expected);
}

/// Text that can be read while it is still being written.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic while held").clone()).expect("text")
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while held").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn progress_speaks_once_a_second() {
    for (terminal, expected) in [
        (false, "fsync\nfsync: 1 of 5 s, 1,000/s\nfsync: 2 of 5 s, 900/s\n"),
        (true, "\r\x1b[Kfsync\r\x1b[Kfsync: 1 of 5 s, 1,000/s\r\x1b[Kfsync: 2 of 5 s, 900/s\r\x1b[K"),
    ] {
        let said = Said::default();
        let mut progress = Progress::to(Box::new(said.clone()), terminal);
        progress.begin("fsync".to_string());
        let time = Duration::from_secs(5);
        for (ms, done) in [(500, 400), (1000, 1000), (1500, 1400), (2000, 1800), (2100, 1900)] {
            progress.tick(Duration::from_millis(ms), time, done);
        }
        progress.end();
        assert_eq!(said.text(), expected);
    }
}
