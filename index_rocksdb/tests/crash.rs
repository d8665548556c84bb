//! A process that writes and persists is killed at any moment; what it left is a prefix of its writes that holds
//! everything persisted (rules X1 and U5 rest on this). The log is off, so memtables die with the process.
//!
//! What this can't show: that `persist` syncs the device. It is read from RocksDB's source (see `src/lib.rs`), and the
//! power-loss tests of the whole brick go through it.

use index_rocksdb::{Options, RocksIndex};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use store::index::{Index, IndexEdit};

const DIRECTORY: &str = "SINTER_CRASH_TEST_DIRECTORY";
const KEYS: u64 = 500;
const CACHE_BYTES: usize = 8 << 20;

/// Values are lists of write numbers: a patch appends its own.
fn append(value: Option<&[u8]>, patch: &[u8]) -> Vec<u8> {
    [value.unwrap_or_default(), patch].concat()
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn open(path: &Path, create: bool) -> RocksIndex {
    let options = Options::new(CACHE_BYTES);
    let options = if create { options.create() } else { options };
    RocksIndex::open(path, &options, append).expect("opens after a crash")
}

/// Write `number` puts its number under key 0, patches every key that it divides, and is large enough that memtables
/// fill up by themselves too.
fn edits(number: u64) -> Vec<IndexEdit> {
    let touched = (1..=KEYS).filter(|key| key % 7 == number % 7);
    let mut edits = vec![IndexEdit::Put(key(0), number.to_be_bytes().to_vec())];
    edits.extend(touched.map(|at| IndexEdit::Patch(key(at), number.to_be_bytes().to_vec())));
    edits.push(IndexEdit::Put(key(KEYS + 1 + number % 3), vec![number as u8; 40_000]));
    edits
}

/// The last write that is there; checks that it is there as a whole, and all before it.
fn last_write(index: &RocksIndex) -> u64 {
    let number_of = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    let last = index.get(&key(0)).expect("healthy").map_or(0, |value| number_of(&value));
    for at in 1..=KEYS {
        let value = index.get(&key(at)).expect("healthy").unwrap_or_default();
        let found: Vec<u64> = value.chunks_exact(8).map(number_of).collect();
        let expected: Vec<u64> = (1..=last).filter(|number| number % 7 == at % 7).collect();
        assert_eq!(found, expected, "key {at} after write {last}");
    }
    last
}

/// The process that is killed; no test of its own.
#[test]
#[ignore = "runs only as the child of `killed_at_any_moment`"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let index = open(Path::new(&directory), false);
    let mut number = last_write(&index);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        index.write(edits(number)).expect("healthy");
        if number.is_multiple_of(5) {
            index.persist().expect("healthy");
            writeln!(out, "persisted {number}").and_then(|()| out.flush()).expect("the parent listens");
        }
    }
}

/// Runs the child for a while, kills it, and returns the last write that it said to be persisted.
fn run_and_kill(directory: &Path, lines: usize, pause: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut persisted = 0;
    let mut take = |line: &str| {
        if let Some(number) = line.trim().strip_prefix("persisted ") {
            persisted = number.parse().expect("a number");
        }
    };
    let mut line = String::new();
    for _ in 0..lines {
        line.clear();
        reader.read_line(&mut line).expect("readable");
        take(&line);
    }
    std::thread::sleep(pause);
    child.kill().expect("SIGKILL");
    child.wait().expect("ends");
    reader.lines().map_while(Result::ok).for_each(|line| take(&line));
    persisted
}

#[test]
fn killed_at_any_moment() {
    let directory = std::env::temp_dir().join(format!("sinter-index-crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    drop(open(&directory, true));
    let mut last = 0;
    for round in 0..12 {
        let persisted = run_and_kill(&directory, 6 + round % 5, Duration::from_micros(1700 * round as u64));
        let found = last_write(&open(&directory, false));
        assert!(found >= persisted && found >= last, "round {round}: {found} < {persisted} or {last}");
        last = found;
    }
    assert!(last > 0);
    std::fs::remove_dir_all(&directory).expect("removable");
}
