//! The protocol's words about durability reach the stack (rule F1).

use crate::Fixture;
use base::Sync;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// 8 KiB at a page boundary, as O_DIRECT needs it.
#[repr(align(4096))]
struct Pages([u8; 8192]);

fn open(fixture: &Fixture, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).create(true).custom_flags(flags).open(fixture.path("f")).expect("open")
}

#[test]
fn the_flags_of_every_write_are_honoured() {
    let Some(fixture) = Fixture::new() else { return };
    let pages = Pages([7; 8192]);
    let cases = [
        (0, Sync::Ordered),
        (libc::O_DIRECT, Sync::Written),
        (libc::O_DSYNC, Sync::Data),
        (libc::O_DIRECT | libc::O_DSYNC, Sync::Data),
        (libc::O_SYNC, Sync::All),
        (libc::O_DIRECT | libc::O_SYNC, Sync::All),
    ];
    for (flags, sync) in cases {
        let file = open(&fixture, flags);
        fixture.memory.take_syncs();
        file.write_all_at(&pages.0, 4096).expect("write");
        let asked = fixture.memory.take_syncs();
        assert!(asked.iter().any(|&(what, asked)| (what, asked) == ("write", sync)), "{flags:#o}: {asked:?}");
        assert!(asked.iter().all(|&(_, asked)| asked == sync), "{flags:#o}: {asked:?}");
    }
}

#[test]
fn a_single_write_may_ask_for_durability() {
    let Some(fixture) = Fixture::new() else { return };
    let file = open(&fixture, 0);
    let bytes = [1u8; 4096];
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    for (flag, sync) in [(libc::RWF_DSYNC, Sync::Data), (libc::RWF_SYNC, Sync::All)] {
        fixture.memory.take_syncs();
        // SAFETY: one part, whose bytes outlive the call.
        let wrote = unsafe { libc::pwritev2(std::os::fd::AsRawFd::as_raw_fd(&file), &raw const part, 1, 0, flag) };
        assert_eq!(wrote, 4096);
        let asked = fixture.memory.take_syncs();
        assert_eq!(asked, [("write", sync), ("fsync", sync)], "the kernel adds an fsync to cached writes");
    }
}

#[test]
fn fsync_and_fdatasync_are_told_apart() {
    let Some(fixture) = Fixture::new() else { return };
    let mut file = open(&fixture, 0);
    file.write_all(b"x").expect("write");
    fixture.memory.take_syncs();
    file.sync_data().expect("fdatasync");
    file.sync_all().expect("fsync");
    File::open(fixture.path("")).expect("opendir").sync_all().expect("fsync of a directory");
    assert_eq!(fixture.memory.take_syncs(), [("fsync", Sync::Data), ("fsync", Sync::All), ("fsync", Sync::All)]);
}

#[test]
fn direct_and_cached_views_agree() {
    let Some(fixture) = Fixture::new() else { return };
    let (cached, direct) = (open(&fixture, 0), open(&fixture, libc::O_DIRECT));
    let mut seen = Pages([0; 8192]);
    cached.write_all_at(&[1; 8192], 0).expect("write");
    direct.read_exact_at(&mut seen.0, 0).expect("read");
    assert_eq!(seen.0, [1; 8192]);
    direct.write_all_at(&Pages([2; 8192]).0, 0).expect("write");
    cached.read_exact_at(&mut seen.0, 0).expect("read");
    assert_eq!(seen.0, [2; 8192]);
}

/// The kernel drops cached pages before and after a direct write; a cached read in between must not bring old
/// bytes back for good.
#[test]
fn cached_reads_beside_direct_writes_leave_nothing_stale() {
    let Some(fixture) = Fixture::new() else { return };
    let (cached, direct) = (open(&fixture, 0), open(&fixture, libc::O_DIRECT));
    cached.write_all_at(&[0; 8192], 0).expect("write");
    let done = std::sync::atomic::AtomicBool::new(false);
    for round in 1..=100u8 {
        done.store(false, std::sync::atomic::Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = [0; 8192];
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    cached.read_exact_at(&mut seen, 0).expect("read");
                }
            });
            direct.write_all_at(&Pages([round; 8192]).0, 0).expect("write");
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut seen = [0; 8192];
        cached.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, [round; 8192], "round {round}");
    }
}

#[test]
fn appends_of_two_handles_never_overlap() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("log");
    let append = |flags| OpenOptions::new().append(true).create(true).custom_flags(flags).open(&path).expect("open");
    let (mut a, mut b) = (append(0), append(libc::O_DSYNC));
    for _ in 0..100 {
        a.write_all(&[1; 100]).expect("write");
        b.write_all(&[2; 50]).expect("write");
    }
    let all = std::fs::read(&path).expect("read");
    assert_eq!(all.len(), 15_000);
    assert!(all.chunks(150).all(|chunk| chunk[..100] == [1; 100] && chunk[100..] == [2; 50]));
}
