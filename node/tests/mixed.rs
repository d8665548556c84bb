//! One file, written and read at the same time in every way that Linux has: whoever reads after a write has completed sees
//! it, in another process too. By hand for minutes: `SINTER_MIXED_SECONDS=300`, for each depth.

use crate::asynchronous::{Queue, Way};
use crate::calls::Mapping;
#[cfg(feature = "seeded-bugs")]
use crate::daemon::Daemon;
use crate::daemon::{Home, setting};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Threads that write, each with places of its own.
const WRITERS: usize = 2;
/// Places at most, of all writers.
const PLACES_MAX: usize = 64;

/// The writers' and readers' knowledge of a place, beside the file.
struct Place {
    /// Number of the last write that was begun, and of the last that has completed.
    begun: AtomicU64,
    completed: AtomicU64,
}

/// A board in memory that all processes share.
struct Board {
    end: AtomicU64,
    looks: AtomicU64,
    /// A look that went wrong: how it looked, what it saw and what it should have seen at least.
    wrong: AtomicU64,
    way: AtomicU64,
    seen: AtomicU64,
    least: AtomicU64,
    places: [Place; PLACES_MAX],
}

/// The layout of the file in a round.
#[derive(Clone, Copy)]
struct Layout {
    depth: usize,
    bytes: usize,
    ways: &'static [Write],
}

/// The way in which a place is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Write {
    Aio,
    Ring,
    Direct,
    Durable,
    Buffered,
    Mapped,
}

const ALL: &[Write] = &[Write::Aio, Write::Ring, Write::Direct, Write::Durable, Write::Buffered, Write::Mapped];

fn open(path: &Path, flags: i32) -> File {
    File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).expect("open")
}

/// The board, in shared memory that is never given back: the process is a test's.
fn board() -> &'static Board {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, all zeros, which is a valid board, and stays mapped.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), size_of::<Board>(), access, kind, -1, 0);
        assert!(start != libc::MAP_FAILED);
        &*start.cast::<Board>()
    }
}

/// A generator of numbers that needs no state elsewhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// The first number of each page.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    // Another process changes a mapping meanwhile.
    // SAFETY: each page begins with eight aligned bytes.
    bytes.chunks(PAGE).map(|page| unsafe { page.as_ptr().cast::<u64>().read_volatile() })
}

/// Writes until the time is over, `depth` places at once, each in a way that the dice choose.
fn write(path: &Path, board: &Board, layout: Layout, writer: usize) {
    let Layout { depth, bytes, ways } = layout;
    let (plain, direct, durable) = (open(path, 0), open(path, libc::O_DIRECT), open(path, libc::O_DSYNC));
    let mut mapping = Mapping::of(&plain, WRITERS * depth * bytes, libc::MAP_SHARED).expect("mmap");
    let (mut aio, mut ring) = (Queue::new(Way::Aio, depth as u32), Queue::new(Way::Ring, depth as u32));
    let mut payloads: Vec<Mapping> = (0..depth).map(|_| Mapping::anonymous(bytes)).collect();
    let mut dice = Dice(writer as u64);
    let mut number = 0;
    while board.end.load(Ordering::Relaxed) == 0 {
        number += 1;
        let mut under_way = [0, 0];
        for (turn, payload) in payloads.iter_mut().enumerate() {
            let place = writer * depth + turn;
            let offset = place * bytes;
            payload.bytes_mut().chunks_mut(8).for_each(|word| word.copy_from_slice(&u64::to_ne_bytes(number)));
            board.places[place].begun.store(number, Ordering::SeqCst);
            let payload = payload.bytes();
            match ways[dice.below(ways.len())] {
                Write::Aio => {
                    aio.write(&direct, place as u64, payload, offset as u64);
                    under_way[0] += 1;
                    continue;
                }
                Write::Ring => {
                    ring.write(&direct, place as u64, payload, offset as u64);
                    under_way[1] += 1;
                    continue;
                }
                Write::Direct => direct.write_all_at(payload, offset as u64).expect("write"),
                Write::Durable => durable.write_all_at(payload, offset as u64).expect("write"),
                Write::Buffered => plain.write_all_at(payload, offset as u64).expect("write"),
                Write::Mapped => mapping.bytes_mut()[offset..offset + bytes].copy_from_slice(payload),
            }
            board.places[place].completed.store(number, Ordering::SeqCst);
        }
        for (queue, count) in [&mut aio, &mut ring].into_iter().zip(under_way) {
            for _ in 0..count {
                let (place, result) = queue.next();
                assert_eq!(result, bytes as i64, "a write of everything");
                board.places[place as usize].completed.store(number, Ordering::SeqCst);
            }
        }
    }
}

/// The ways in which the file is read.
const LOOKS: [&str; 3] = ["read", "mapping", "O_DIRECT read"];

/// Looks in a process of its own until the time is over; nothing is allocated here, as it was forked from many threads.
fn look(board: &Board, layout: Layout, way: usize, file: &File, mapping: &Mapping, room: &mut Mapping) {
    let mut dice = Dice(77 + way as u64);
    while board.end.load(Ordering::Relaxed) == 0 {
        let place = dice.below(WRITERS * layout.depth);
        let offset = place * layout.bytes;
        let least = board.places[place].completed.load(Ordering::SeqCst);
        let range = offset..offset + layout.bytes;
        let (mut lowest, mut highest) = (u64::MAX, 0);
        let mut seen = |number: u64| (lowest, highest) = (lowest.min(number), highest.max(number));
        if way == 1 {
            numbers(&mapping.bytes()[range]).for_each(&mut seen);
        } else {
            let length = file.read_at(&mut room.bytes_mut()[..layout.bytes], offset as u64);
            assert!(length.is_ok_and(|length| length == layout.bytes));
            numbers(&room.bytes()[..layout.bytes]).for_each(&mut seen);
        }
        board.looks.fetch_add(1, Ordering::Relaxed);
        let most = board.places[place].begun.load(Ordering::SeqCst);
        if lowest < least || highest > most {
            board.way.store(way as u64, Ordering::SeqCst);
            board.seen.store(if lowest < least { lowest } else { highest }, Ordering::SeqCst);
            board.least.store(least, Ordering::SeqCst);
            board.wrong.fetch_add(1, Ordering::SeqCst);
            board.end.store(1, Ordering::SeqCst);
        }
    }
}

/// Forks a process that looks.
fn looker(path: &Path, board: &Board, layout: Layout, way: usize) -> libc::pid_t {
    let file = open(path, if way == 2 { libc::O_DIRECT } else { 0 });
    let mapping = Mapping::of(&file, WRITERS * layout.depth * layout.bytes, libc::MAP_SHARED).expect("mmap");
    let mut room = Mapping::anonymous(layout.bytes);
    // SAFETY: the child calls nothing but reads, and ends without running what belongs to the parent.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            look(board, layout, way, &file, &mapping, &mut room);
            libc::_exit(0);
        }
        child
    }
}

/// Writers and lookers at work for a while; what went wrong first, and how many looks there were.
fn round(path: &Path, layout: Layout, time: Duration) -> (Option<String>, u64) {
    assert!(WRITERS * layout.depth <= PLACES_MAX);
    let board = board();
    std::fs::write(path, vec![0; WRITERS * layout.depth * layout.bytes]).expect("create");
    let lookers: Vec<libc::pid_t> = [0, 0, 1, 2].into_iter().map(|way| looker(path, board, layout, way)).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || write(path, board, layout, writer));
        }
        let deadline = Instant::now() + time;
        while Instant::now() < deadline && board.end.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        board.end.store(1, Ordering::SeqCst);
    });
    for child in lookers {
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a looker ended by itself");
    }
    let told = |number: &AtomicU64| number.load(Ordering::SeqCst);
    let wrong = (told(&board.wrong) > 0).then(|| {
        let way = LOOKS[told(&board.way) as usize];
        format!("a {way} saw write {} where {} had completed", told(&board.seen), told(&board.least))
    });
    (wrong, told(&board.looks))
}

/// 640 KiB at a time, as the fault was found; then smaller ones, more of them.
const LAYOUTS: [(usize, usize); 3] = [(1, 640 << 10), (4, 64 << 10), (16, 8 << 10)];

#[test]
fn whoever_reads_after_a_write_has_completed_sees_it() {
    let home = Home::new("mixed");
    let daemon = home.up();
    let time = Duration::from_secs(setting("SINTER_MIXED_SECONDS", 2));
    for (depth, bytes) in LAYOUTS {
        for ways in [&[Write::Aio, Write::Ring], ALL] {
            let (wrong, looks) = round(&home.mount.join("file"), Layout { depth, bytes, ways }, time);
            assert_eq!(wrong, None, "{bytes} bytes, depth {depth}, {ways:?}");
            assert!(looks > 0, "somebody looked");
            eprintln!("{bytes} bytes, depth {depth}, {} ways: {looks} looks", ways.len());
        }
    }
    daemon.terminate();
    home.check();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn pages_that_are_kept_are_noticed() {
    let home = Home::new("mixed-seeded");
    let mut command = home.command();
    command.env("SINTER_TEST_BUG", format!("{:?}", runtime::seeded::Bug::PagesKept));
    let daemon = Daemon::start(command);
    let layout = Layout { depth: 1, bytes: 640 << 10, ways: &[Write::Aio, Write::Ring] };
    let (wrong, looks) = round(&home.mount.join("file"), layout, Duration::from_secs(60));
    assert!(wrong.is_some(), "{looks} looks saw nothing old");
    daemon.terminate();
    home.check();
}
