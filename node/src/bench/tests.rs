//! The benches on a scratch directory with tiny sizes.

use super::random;
use super::report::{Progress, Report, Row};
use super::sync;
use crate::cli::SyncMode;
use crate::failure::Exit;
use crate::scratch::Scratch;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(60);

fn silent() -> Progress {
    Progress::to(Box::new(std::io::sink()), false)
}

fn sync_plan(modes: Vec<SyncMode>, direct: bool) -> sync::Plan {
    sync::Plan { writers: vec![1, 3], modes, file_bytes: Some(64 << 10), direct, time: SHORT }
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).expect("it is there").count()
}

fn is_plausible(row: &Row) -> bool {
    row.operations > 0 && row.per_second > 0.0 && 0 < row.p50_ns && row.p50_ns <= row.p99_ns && row.p99_ns <= row.max_ns
}

#[test]
fn sync_measures_every_mode_and_cleans_up() {
    let scratch = Scratch::new();
    let plan = sync_plan(Vec::new(), false);
    let report = sync::measure(scratch.path(), &plan, &mut silent(), &AtomicBool::new(false)).expect("it can write");
    let rows: Vec<(&str, u32)> = report.rows.iter().map(|row| (row.mode.as_str(), row.threads)).collect();
    let modes = ["overwrite-dsync", "append-fdatasync", "fsync"];
    let expected: Vec<(&str, u32)> = modes.into_iter().flat_map(|mode| [(mode, 1), (mode, 3)]).collect();
    assert_eq!(rows, expected);
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn sync_measures_what_is_asked() {
    let scratch = Scratch::new();
    let plan = sync_plan(vec![SyncMode::Fsync], true);
    let report = sync::measure(scratch.path(), &plan, &mut silent(), &AtomicBool::new(false)).expect("it can write");
    assert_eq!((report.rows.len(), report.direct), (2, true));
}

#[test]
fn random_reads_and_writes() {
    let scratch = Scratch::new();
    let plan = random::Plan { jobs: 2, depth: 2, file_bytes: Some(64 << 10), time: SHORT };
    let report = random::measure(scratch.path(), &plan, &mut silent(), &AtomicBool::new(false)).expect("it can write");
    let modes: Vec<&str> = report.rows.iter().map(|row| row.mode.as_str()).collect();
    assert_eq!(modes, ["read", "write"]);
    assert!(report.rows.iter().all(is_plausible), "{report:?}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn threads_are_bounded() {
    let scratch = Scratch::new();
    let plan = random::Plan { jobs: 64, depth: 2, file_bytes: None, time: SHORT };
    let refused = random::measure(scratch.path(), &plan, &mut silent(), &AtomicBool::new(false)).expect_err("too many");
    assert_eq!(refused.exit, Exit::Usage);
}

#[test]
fn an_interruption_ends_early_and_cleans_up() {
    let scratch = Scratch::new();
    let plan = sync::Plan { time: Duration::from_secs(3600), ..sync_plan(Vec::new(), false) };
    let report = sync::measure(scratch.path(), &plan, &mut silent(), &AtomicBool::new(true)).expect("it can write");
    assert_eq!((report.rows.len(), entries(scratch.path())), (0, 0));
}

#[test]
fn a_missing_directory_is_a_wrong_line() {
    let scratch = Scratch::new();
    let absent = scratch.path().join("absent");
    let plan = sync_plan(Vec::new(), false);
    let refused = sync::measure(&absent, &plan, &mut silent(), &AtomicBool::new(false)).expect_err("not there");
    assert_eq!(refused.exit, Exit::Usage);
}

fn report() -> Report {
    let row = |mode: &str, threads, per_second: f64| Row {
        mode: mode.to_string(),
        threads,
        operations: 10,
        per_second,
        bytes_per_second: per_second * 4096.0,
        p50_ns: 83_000,
        p99_ns: 1_500_000,
        max_ns: 20_000_000,
    };
    let rows = vec![row("overwrite-dsync", 1, 11_600.4), row("fsync", 64, 57_000.0)];
    let directory = "/mnt".to_string();
    Report { bench: "sync", directory, block_bytes: 4096, file_bytes: 65536, direct: false, seconds: 5, rows }
}

#[test]
fn a_report_reads_well() {
    let expected = "\
mode             writers  writes/s   MB/s      p50      p99      max
overwrite-dsync        1    11,600   47.5  83.0 us  1.50 ms  20.0 ms
fsync                 64    57,000  233.5  83.0 us  1.50 ms  20.0 ms
";
    assert_eq!(report().table("writers", "writes/s"), expected);
    let json: serde_json::Value = serde_json::from_str(&report().json()).expect("it is JSON");
    assert_eq!(json["rows"][1]["threads"], 64);
    assert_eq!(json["rows"][0]["p99_ns"], 1_500_000);
    assert_eq!(json["bench"], "sync");
}

/// Text that can be read while it is still being written.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

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
        let text = String::from_utf8(said.0.lock().expect("no panic while held").clone()).expect("text");
        assert_eq!(text, expected);
    }
}
