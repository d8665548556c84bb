//! Many and large requests.

use crate::{Fixture, eventually};
use front::fuse::Transport;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

/// Bytes that tell their position, so that any exchange is noticed.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn writes_of_every_size_arrive_whole_and_aligned() {
    let Some(fixture) = Fixture::new() else { return };
    let sizes = [1, 79, 80, 4095, 4096, 4097, 65_536, 131_072, 262_144, 262_145, 1 << 20, (1 << 20) + 1, 3 << 20];
    for (number, size) in sizes.into_iter().enumerate() {
        let path = fixture.path(&format!("f{number}"));
        let bytes = pattern(size, number);
        fs::write(&path, &bytes).expect("write");
        fs::File::open(&path).expect("open").sync_all().expect("fsync");
        assert!(fs::read(&path).expect("read") == bytes, "{size} bytes come back");
        let stored = &fixture.memory.tree.lock().expect("no panic");
        assert!(stored.nodes.values().any(|node| node.data == bytes), "{size} bytes arrived");
    }
    assert_eq!(fixture.memory.misaligned.load(Ordering::Relaxed), 0);
}

#[test]
fn reads_past_the_page_cache_come_back_whole() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    let bytes = pattern(5 << 20, 9);
    fs::write(&path, &bytes).expect("write");
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DSYNC).open(&path).expect("open without cache");
    let mut seen = vec![0; bytes.len()];
    file.read_exact_at(&mut seen, 0).expect("read");
    assert!(seen == bytes);
    let mut part = vec![0; 10_000];
    assert_eq!(file.read_at(&mut part, bytes.len() as u64 - 77).expect("read at the end"), 77);
    assert_eq!(file.read_at(&mut part, bytes.len() as u64 + 77).expect("read past the end"), 0);
}

/// Readers and writers of so many bytes at a time, all on the first CPU, so that they share one queue.
fn ask_in_parallel(path: &Path, readers: usize, bytes: usize) {
    std::thread::scope(|scope| {
        for reader in 0..readers {
            scope.spawn(move || {
                // SAFETY: a set of CPUs of ours.
                unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(0, &mut set);
                    assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
                }
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).custom_flags(libc::O_DSYNC).open(path).expect("open");
                let mut seen = vec![0; bytes];
                for round in 0..50 {
                    let (offset, expected) = (reader * bytes, pattern(bytes, reader + round));
                    file.write_all_at(&expected, offset as u64).expect("write");
                    file.read_exact_at(&mut seen, offset as u64).expect("read");
                    assert!(seen == expected);
                }
            });
        }
    });
}

#[test]
fn the_next_core_helps_with_large_requests_of_one_busy_cpu() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    fs::write(&path, pattern(6 << 20, 0)).expect("write");
    let cores = || std::mem::take(&mut *fixture.memory.bulk_cores.lock().expect("no panic"));
    cores();
    ask_in_parallel(&path, 6, 512 << 10);
    let count = cores().iter().filter(|&&core| core == 1).count();
    if fixture.serving().transport() == Transport::Rings {
        assert!(count > 0, "nobody helps");
        // One at a time stays beside its client.
        ask_in_parallel(&path, 1, 512 << 10);
        let cores = cores();
        let elsewhere = cores.iter().filter(|&&core| core == 1).count();
        assert!(cores.len() >= 100 && elsewhere == 0, "{cores:?}");
    }
}

#[test]
fn concurrent_writers_each_get_their_own_bytes() {
    let Some(fixture) = Fixture::new() else { return };
    let fixture = &fixture;
    std::thread::scope(|scope| {
        for writer in 0..8usize {
            scope.spawn(move || {
                let path = fixture.path(&format!("w{writer}"));
                let flags = if writer % 2 == 0 { 0 } else { libc::O_DSYNC };
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).create(true).custom_flags(flags);
                let file = options.open(&path).expect("create");
                for block in 0..200usize {
                    let bytes = pattern(4096, writer * 1000 + block);
                    file.write_all_at(&bytes, block as u64 * 4096).expect("write");
                }
                for block in (0..200usize).rev() {
                    let mut seen = vec![0; 4096];
                    file.read_exact_at(&mut seen, block as u64 * 4096).expect("read");
                    assert!(seen == pattern(4096, writer * 1000 + block));
                }
            });
        }
    });
    eventually("every open is released", || fixture.memory.opens() == 0);
    let mut requests = fixture.memory.requests.lock().expect("no panic").clone();
    requests.sort_unstable();
    let count = requests.len();
    requests.dedup();
    assert_eq!(requests.len(), count, "no two operations share a request number (rule R1)");
    // A request's account is closed after its reply.
    eventually("every request is in the profile", || {
        let profile = fixture.runtime.ledger.profile();
        let named = |name| profile.iter().find(|row| row.name == name).map_or(0, |row| row.total.count());
        named("write-sync") >= 800 && named("write") >= 800 && named("create") == 8 && named("release") == 8
    });
}

#[test]
fn dd_in_parallel() {
    let Some(fixture) = Fixture::new() else { return };
    let dd = |number: usize, flag: &str| {
        let output = format!("of={}", fixture.path(&format!("dd{number}")).display());
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", &output, "bs=1M", "count=24", flag]);
        command.stderr(std::process::Stdio::null()).spawn().expect("dd runs")
    };
    let flags = ["conv=fsync", "oflag=direct", "oflag=dsync", "oflag=append"];
    let running: Vec<_> = flags.into_iter().enumerate().map(|(number, flag)| dd(number, flag)).collect();
    for mut child in running {
        assert!(child.wait().expect("dd ends").success());
    }
    for number in 0..4 {
        assert_eq!(fs::metadata(fixture.path(&format!("dd{number}"))).expect("stat").len(), 24 << 20);
    }
}

#[test]
fn a_full_memory_makes_writers_wait_before_it_refuses_them() {
    if !crate::possible() {
        return;
    }
    let fixture = Fixture::with_memory(crate::directory(), 16 << 20);
    let path = fixture.path("f");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).expect("create");
    let mut hoard = Vec::new();
    for (core, length) in [(0, 1 << 20), (0, 4096), (1, 4096)] {
        hoard.extend(std::iter::from_fn(|| fixture.runtime.slabs.take(core, length, runtime::Need::Finishing).ok()));
    }
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_all_at(&[1; 4096], 0));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!writer.is_finished(), "it waits for memory");
        hoard.clear();
        writer.join().expect("no panic").expect("it was not refused");
    });
    assert!(start.elapsed().as_millis() >= 300);
    assert_eq!(fs::read(&path).expect("read"), [1; 4096]);
}
