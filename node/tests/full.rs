//! A brick on a real mount that is filled to its last block and emptied, again and again: names and deletions work
//! when it is full, no byte and no segment gets lost, and a kill while it is full leaves a brick that starts, deletes
//! and is intact. `SINTER_FULL_ROUNDS` sets the number of rounds (2 if not set: half a minute each).

use crate::daemon::{Daemon, Home, system, text};
use crate::space::{BLOCK, Space, content, settle};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// No operation takes longer, on a machine that is busy with other tests: a checkpoint of a full brick is the longest
/// that one waits for.
const SLOWEST: Duration = Duration::from_secs(10);
/// Segments that a brick without data keeps: open, prepared, and one per stream that waits for its checkpoint.
const KEPT_SEGMENTS: u64 = 12;

fn rounds() -> u64 {
    crate::daemon::setting("SINTER_FULL_ROUNDS", 2)
}

/// Small segments: a brick of the smallest size has many.
fn start(home: &Home) -> Daemon {
    let mut command = home.command();
    command.args(["--segment-size", "16M", "--memory-max", "256M", "--groups", "16"]);
    Daemon::start(command)
}

/// Performs an operation, which must not take long.
fn timed<T>(what: &str, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let done = operation();
    assert!(started.elapsed() < SLOWEST, "{what} took {:?}", started.elapsed());
    done
}

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

/// A file that was written, perhaps only its beginning.
struct Filled {
    path: PathBuf,
    number: u64,
    length: usize,
    whole: bool,
}

/// Sizes of 85 files, 62 MB in all: less than a block, blocks, parts of blocks, commit stream, bulk stream.
fn sizes() -> impl Iterator<Item = usize> {
    let kinds = [(20, 100), (20, 4096), (20, 5000), (10, 60 << 10), (10, 300 << 10), (4, 3 << 20), (1, 40 << 20)];
    kinds.into_iter().flat_map(|(count, size)| std::iter::repeat_n(size, count))
}

/// Writes a new file until it is whole or the brick is full.
fn write_one(directory: &Path, number: u64, size: usize) -> Filled {
    let path = directory.join(format!("file-{number}"));
    let bytes = content(number, 1, size);
    let file = timed("create", || File::create(&path)).expect("names can be made on a full brick");
    let mut length = 0;
    for piece in bytes.chunks(1 << 20) {
        match timed("write", || file.write_at(piece, length as u64)) {
            Ok(written) => length += written,
            Err(error) if is_full(&error) => break,
            Err(error) => panic!("{}: {error}", path.display()),
        }
        if !length.is_multiple_of(1 << 20) {
            break;
        }
    }
    Filled { path, number, length, whole: length == size }
}

/// Fills the brick with files of all sizes, then with ever smaller ones until not even a block fits.
fn fill(directory: &Path) -> Vec<Filled> {
    std::fs::create_dir(directory).expect("names can be made on a full brick");
    let mut files = Vec::new();
    let mut number = 0;
    let mut more = |size| {
        number += 1;
        files.push(write_one(directory, number, size));
        files.last().is_some_and(|file| file.whole)
    };
    while sizes().all(&mut more) {}
    for size in [1 << 20, 64 << 10, BLOCK as usize] {
        while more(size) {}
    }
    files
}

fn blocks(files: &[Filled]) -> u64 {
    files.iter().map(|file| (file.length as u64).div_ceil(BLOCK)).sum()
}

fn verify(file: &Filled) {
    let found = std::fs::read(&file.path).unwrap_or_else(|error| panic!("{}: {error}", file.path.display()));
    assert!(found == content(file.number, 1, file.length), "{} differs, {} bytes", file.path.display(), found.len());
}

/// Operations that must work on a full brick.
fn operate_when_full(directory: &Path, files: &mut Vec<Filled>) {
    let refused = timed("write", || std::fs::write(directory.join("more"), vec![1; 1 << 20]));
    assert!(refused.is_err_and(|error| is_full(&error)), "the brick is full");
    timed("unlink", || std::fs::remove_file(directory.join("more"))).expect("names can be removed");
    let first = &files[0].path;
    timed("chmod", || std::fs::set_permissions(first, Permissions::from_mode(0o600))).expect("modes can be changed");
    timed("rename", || std::fs::rename(first, directory.join("renamed"))).expect("names can be changed");
    timed("rename", || std::fs::rename(directory.join("renamed"), first)).expect("names can be changed");
    timed("mkdir", || std::fs::create_dir(directory.join("sub"))).expect("directories can be made");
    timed("rmdir", || std::fs::remove_dir(directory.join("sub"))).expect("directories can be removed");
    // What a deletion or a truncation gives back can be written at once.
    for delete in [true, false] {
        let large = files.iter().position(|file| file.length == 40 << 20).expect("there are large files");
        let gone = files.swap_remove(large);
        match delete {
            true => timed("unlink", || std::fs::remove_file(&gone.path)).expect("a full brick deletes"),
            false => {
                let file = OpenOptions::new().write(true).open(&gone.path).expect("it is there");
                timed("truncate", || file.set_len(0)).expect("a full brick truncates");
            }
        }
        let again = write_one(directory, 1_000_000 + gone.number, 39 << 20);
        assert!(again.whole, "40 MiB were given back, of 39 MiB {} bytes were taken", again.length);
        verify(&again);
        files.push(again);
    }
}

fn empty(home: &Home, directory: &Path, before: &Space) {
    let started = Instant::now();
    std::fs::remove_dir_all(directory).expect("a full brick deletes");
    let deleted = started.elapsed();
    let after = settle(home);
    println!("emptied in {deleted:?}, counted in {:?}: {after:?}", started.elapsed() - deleted);
    assert_eq!(after.logical, before.logical, "to the byte");
    assert_eq!(after.statfs_free, before.statfs_free, "to the byte");
    let kept = (after.physical - after.free) / after.segment;
    assert!(kept <= KEPT_SEGMENTS, "{kept} segments are not free although nothing is left: {after:?}");
}

#[test]
fn a_brick_is_filled_and_emptied_again_and_again() {
    let home = Home::new("full");
    let daemon = start(&home);
    let before = settle(&home);
    let directory = home.mount.join("fill");
    let mut first = None;
    for round in 0..rounds() {
        let started = Instant::now();
        let mut files = fill(&directory);
        let fitted = blocks(&files);
        println!("round {round}: {} files, {fitted} blocks in {:?}", files.len(), started.elapsed());
        let expected = *first.get_or_insert(fitted);
        assert!(fitted.abs_diff(expected) <= 1, "{fitted} blocks fit, {expected} did in the first round");
        assert!(fitted * BLOCK <= before.usable, "no more than there is");
        assert!(fitted * BLOCK >= before.usable / 100 * 99, "full at {fitted} blocks: {before:?}");
        operate_when_full(&directory, &mut files);
        files.iter().step_by(20).for_each(verify);
        empty(&home, &directory, &before);
    }
    daemon.terminate();
    home.check();
}

/// `fallocate` keeps its promise on a full brick, also after a kill, and gives back what it did not need.
#[test]
fn what_fallocate_promised_is_there_when_the_brick_is_full() {
    const MIB: u64 = 1 << 20;
    let home = Home::new("fallocate");
    let daemon = start(&home);
    let before = settle(&home);
    let (promised, directory) = (home.mount.join("promised"), home.mount.join("fill"));
    system("fallocate", &["--length", "200M", text(&promised)]);
    assert_eq!(std::fs::metadata(&promised).expect("it is there").len(), 200 * MIB);
    system("fallocate", &["--length", "100M", "--offset", "200M", "--keep-size", text(&promised)]);
    assert_eq!(std::fs::metadata(&promised).expect("it is there").len(), 200 * MIB);
    let too_much = (before.usable - 290 * MIB).to_string();
    let refused = Command::new("fallocate").args(["--length", &too_much]).arg(home.mount.join("more")).output();
    let refused = String::from_utf8(refused.expect("fallocate runs").stderr).expect("text");
    assert!(refused.contains("No space left on device"), "{refused}");
    // The program has made it, and its name takes room.
    std::fs::remove_file(home.mount.join("more")).expect("names can be removed");
    let files = fill(&directory);
    let fitted = blocks(&files) * BLOCK;
    assert!(fitted <= before.usable - 300 * MIB, "{fitted} bytes fit beside what was promised: {before:?}");
    File::open(&promised).and_then(|file| file.sync_all()).expect("a healthy brick syncs");
    daemon.kill();
    let daemon = start(&home);
    let file = OpenOptions::new().write(true).open(&promised).expect("it is there");
    for number in 0..300 {
        let written = file.write_all_at(&content(7, number, 1 << 20), number * MIB);
        written.unwrap_or_else(|error| panic!("MiB {number} of what was promised: {error}"));
    }
    assert!(std::fs::write(directory.join("more"), vec![1; 1 << 20]).is_err_and(|error| is_full(&error)));
    file.sync_all().expect("a healthy brick syncs");
    std::fs::remove_file(&promised).expect("a full brick deletes");
    drop(file);
    empty(&home, &directory, &before);
    daemon.terminate();
    home.check();
}

/// Overwrites, appends and deletes on a full brick until the daemon is gone; "full" is the only other answer.
fn press(directory: PathBuf, killed: Arc<AtomicBool>) {
    let failed = |error: &Error| match is_full(error) {
        true => false,
        false => {
            assert!(killed.load(Ordering::SeqCst), "failed before the kill: {error}");
            true
        }
    };
    for number in 0.. {
        let path = directory.join(format!("pressed-{}", number % 7));
        if std::fs::write(&path, vec![3; 100_000]).is_err_and(|error| failed(&error)) {
            return;
        }
        let file = OpenOptions::new().append(true).open(&path);
        let appended = file.and_then(|file| file.write_at(&[4; 5000], 0).and_then(|_| file.sync_data()));
        if appended.is_err_and(|error| failed(&error)) {
            return;
        }
        if number % 3 == 0 && std::fs::remove_file(&path).is_err_and(|error| failed(&error)) {
            return;
        }
    }
}

#[test]
fn a_full_brick_survives_a_kill() {
    let home = Home::new("full-kill");
    let daemon = start(&home);
    let before = settle(&home);
    let (directory, pressed) = (home.mount.join("fill"), home.mount.join("pressed"));
    std::fs::create_dir(&pressed).expect("the mount is writable");
    let mut files = fill(&directory);
    // A little room, so that the writers get something done between two refusals.
    let spare = files.swap_remove(files.iter().position(|file| file.length == 3 << 20).expect("there are such"));
    std::fs::remove_file(&spare.path).expect("a full brick deletes");
    // By then the fill is durable without any sync (rule U3).
    std::thread::sleep(Duration::from_secs(2));
    let killed = Arc::new(AtomicBool::new(false));
    let writer = |number: u64| {
        let (own, killed) = (pressed.join(number.to_string()), killed.clone());
        std::fs::create_dir(&own).expect("names can be made on a full brick");
        std::thread::spawn(move || press(own, killed))
    };
    let writers: Vec<_> = (0..2).map(writer).collect();
    std::thread::sleep(Duration::from_secs(3));
    killed.store(true, Ordering::SeqCst);
    daemon.kill();
    writers.into_iter().for_each(|writer| writer.join().expect("no other failure than full"));
    // What the kill left is no damage.
    home.check();
    let started = Instant::now();
    let daemon = start(&home);
    println!("ready {:?} after the kill", started.elapsed());
    let large = files.swap_remove(files.iter().position(|file| file.length == 40 << 20).expect("there are such"));
    timed("unlink", || std::fs::remove_file(&large.path)).expect("a full brick deletes after a kill");
    let again = timed("write", || Ok(write_one(&directory, 2_000_000, 8 << 20))).expect("it has no error");
    assert!(again.whole, "40 MiB were given back, of 8 MiB {} bytes were taken", again.length);
    files.iter().for_each(verify);
    verify(&again);
    daemon.terminate();
    home.check();
    let daemon = start(&home);
    std::fs::remove_dir_all(&pressed).expect("a full brick deletes");
    empty(&home, &directory, &before);
    daemon.terminate();
    home.check();
}
