use super::*;
use crate::buffer::{Buf, Slice};
use crate::disk::{FileId, OpenMode};
use crate::transfer::{Request, Start};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sinter-real-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory can be written");
        Scratch(path)
    }
    fn options(&self, cores: usize) -> Options {
        Options { cores: Some(cores), ..Options::new(Directory::open(&self.0).expect("ours"), 64 << 20, &["op"]) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the test made it");
    }
}

fn filled(runtime: &Runtime, length: usize, byte: u8) -> Buf {
    let mut buffer = runtime.buffer(length).expect("within the bound");
    buffer.fill(byte);
    buffer
}

fn whole(buffer: Buf) -> Slice {
    let length = buffer.len();
    buffer.share().slice(0..length)
}

fn make_file(runtime: &Runtime, name: &str, bytes: u64) -> FileId {
    let file = runtime.disk.open(name, OpenMode::Create).expect("a new file");
    runtime.disk.allocate(file, bytes).expect("there is space");
    file
}

#[test]
fn io_round_trips_in_all_sizes_from_cores_and_elsewhere() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(2)).expect("io_uring works here");
    let file = make_file(&runtime, "data", 8 << 20);
    let work = {
        let runtime = runtime.clone();
        move || async move {
            let mut offset = 0;
            for (round, length) in [4 * KIB, 12 * KIB, 64 * KIB, 252 * KIB, MIB].into_iter().enumerate() {
                let byte = round as u8 + 1;
                let slices = vec![
                    whole(filled(&runtime, length, byte)),
                    whole(filled(&runtime, 4 * KIB, 100 + byte)),
                    whole(filled(&runtime, length, byte)),
                ];
                let durable = round % 2 == 0;
                let (slices, result) = crate::disk::write(&*runtime.disk, file, offset, slices, durable).await;
                result.expect("the write is within the file");
                assert_eq!(slices.len(), 3);
                crate::disk::flush(&*runtime.disk, file).await.expect("it can be flushed");
                let buffer = filled(&runtime, length.min(MIB - 4 * KIB) + 4 * KIB, 0);
                let from = offset + (length - length.min(MIB - 4 * KIB)) as u64;
                let (buffer, result) = crate::disk::read(&*runtime.disk, file, from, buffer).await;
                result.expect("the read is within the file");
                let (first, second) = buffer.split_at(buffer.len() - 4 * KIB);
                assert!(first.iter().all(|&b| b == byte) && second.iter().all(|&b| b == 100 + byte));
                offset += 2 * length as u64 + 4 * KIB as u64;
            }
        }
    };
    reactors.run(0, work.clone()).expect("the core runs");
    reactors.run(1, work.clone()).expect("the core runs");
    block_on(work());
    let cores = reactors.probe().cores();
    // Five writes, flushes and reads each; what came from elsewhere went to core 0.
    assert_eq!([cores[0].write.count(), cores[0].flush.count(), cores[0].read.count()], [10, 10, 10]);
    assert_eq!([cores[1].write.count(), cores[1].flush.count(), cores[1].read.count()], [5, 5, 5]);
    assert!(cores.iter().all(|core| core.turns >= core.sleeps && core.sleeps > 0 && core.runs > 0));
    reactors.stop();
}

#[test]
fn errors_name_the_file_and_the_place() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let file = make_file(&runtime, "short", 8 << 10);
    let read = |offset, length| {
        let buffer = filled(&runtime, length, 0);
        block_on(crate::disk::read(&*runtime.disk, file, offset, buffer)).1
    };
    for (offset, length) in [(8 << 10, 4 * KIB), (4 << 10, 8 * KIB), (1 << 30, 4 * KIB)] {
        let error = read(offset, length).expect_err("it goes past the end");
        assert_eq!(error.kind, Kind::Io);
        assert!(error.to_string().contains("short"), "{error}");
    }
    read(4 << 10, 4 * KIB).expect("within the file");
    assert_eq!(read(1, 4 * KIB).expect_err("not a block").kind, Kind::Invalid);
    assert_eq!(read(0, 100).expect_err("not whole blocks").kind, Kind::Invalid);
    std::fs::write(scratch.0.join("odd"), [7u8; 6000]).expect("the test may write there");
    let odd = runtime.disk.open("odd", OpenMode::ReadOnly).expect("it exists");
    let buffer = filled(&runtime, 8 * KIB, 0);
    let error = block_on(crate::disk::read(&*runtime.disk, odd, 0, buffer)).1.expect_err("it ends at 6000");
    assert!(error.to_string().contains("offset 4096"), "{error}");
    let slices = vec![whole(filled(&runtime, 4 * KIB, 1))];
    let error = block_on(crate::disk::write(&*runtime.disk, odd, 0, slices, false)).1.expect_err("read only");
    assert_eq!(error.kind, Kind::ReadOnly);
    reactors.stop();
}

#[test]
fn names_and_modes() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let disk = &runtime.disk;
    std::fs::create_dir(scratch.0.join("index")).expect("the test may write there");
    assert_eq!(disk.open("a", OpenMode::Existing).expect_err("not there").kind, Kind::NotFound);
    let b = make_file(&runtime, "b", 4096);
    let a = make_file(&runtime, "a", 4096);
    assert_ne!(a, b);
    assert_eq!(disk.open("a", OpenMode::Create).expect_err("there").kind, Kind::Exists);
    assert_eq!(disk.open("a", OpenMode::ReadOnly).expect("there"), a);
    assert_eq!(disk.list().expect("readable"), ["a", "b"]);
    for bad in ["", ".", "..", "lock", "x/y"] {
        assert_eq!(disk.open(bad, OpenMode::Existing).expect_err("no name").kind, Kind::Invalid);
    }
    disk.sync_names().expect("the directory can be synced");
    assert_eq!(disk.length(a).expect("open"), 4096);
    disk.allocate(a, 1 << 20).expect("there is space");
    assert_eq!(disk.length(a).expect("open"), 1 << 20);
    assert!(disk.free_bytes().expect("known") > 0);
    reactors.stop();

    let (runtime, reactors) = start(scratch.options(1)).expect("the lock is free again");
    let disk = &runtime.disk;
    let write = |runtime: &Runtime, file| {
        let slices = vec![whole(filled(runtime, 4 * KIB, 1))];
        block_on(crate::disk::write(&*runtime.disk, file, 0, slices, true)).1
    };
    let a = disk.open("a", OpenMode::ReadOnly).expect("there");
    assert_eq!(write(&runtime, a).expect_err("read only").kind, Kind::ReadOnly);
    assert_eq!(disk.open("a", OpenMode::Existing).expect("there"), a);
    write(&runtime, a).expect("it is open for writing now");
    reactors.stop();
}

#[test]
fn more_io_at_once_than_the_ring_holds() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(2)).expect("io_uring works here");
    let file = make_file(&runtime, "data", 16 << 20);
    let blocks = 16 * MIB / (4 * KIB);
    let there = runtime.clone();
    reactors
        .run(1, move || async move {
            let write = |block: usize| {
                let slices = vec![whole(filled(&there, 4 * KIB, block as u8))];
                there.disk.submit(Request::Write { file, offset: block as u64 * 4096, slices, durable: false })
            };
            let writes: Vec<_> = (0..blocks).map(write).collect();
            for write in writes {
                write.await.result.expect("within the file");
            }
            let read = |block: usize| {
                let start = if block.is_multiple_of(2) { Start::AtOnce } else { Start::Paced };
                let buffer = filled(&there, 4 * KIB, 0);
                there.disk.submit(Request::Read { file, offset: block as u64 * 4096, buffer, start })
            };
            let reads: Vec<_> = (0..blocks).map(read).collect();
            let mut held = 0;
            for (block, read) in reads.into_iter().enumerate() {
                let done = read.await;
                done.result.expect("within the file");
                assert!(done.buffer.expect("of a read").iter().all(|&byte| byte == block as u8));
                assert!(block % 2 == 1 || done.held_ns == 0, "only paced reads are held back");
                held += usize::from(done.held_ns > 0);
            }
            assert!(held > blocks / 4, "of {blocks} reads {held} were held back");
        })
        .expect("the core runs");
    reactors.stop();
}

#[test]
fn large_transfers_wait_for_their_turn_unless_they_are_durable() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let file = make_file(&runtime, "data", 32 << 20);
    let there = runtime.clone();
    reactors
        .run(0, move || async move {
            let write = |number: usize, durable: bool| {
                let slices = vec![whole(filled(&there, MIB, number as u8))];
                there.disk.submit(Request::Write { file, offset: (number * MIB) as u64, slices, durable })
            };
            for durable in [false, true] {
                // All are begun before any may end.
                let writes: Vec<_> = (0..32).map(|number| write(number, durable)).collect();
                let mut held = 0;
                for write in writes {
                    let done = write.await;
                    done.result.expect("within the file");
                    held += usize::from(done.held_ns > 0);
                }
                assert_eq!(held, if durable { 0 } else { 32 - 4 }, "durable: {durable}");
            }
        })
        .expect("the core runs");
    reactors.stop();

    // A limit that has measured nothing yet: by the writes it may have learned that the device needs more.
    let (runtime, reactors) = start_beside_forks(|| scratch.options(1));
    let file = runtime.disk.open("data", OpenMode::Existing).expect("it was made");
    let there = runtime.clone();
    reactors
        .run(0, move || async move {
            let read = |number: usize| {
                let buffer = filled(&there, MIB, 0);
                let offset = (number * MIB) as u64;
                there.disk.submit(Request::Read { file, offset, buffer, start: Start::AtOnce })
            };
            let reads: Vec<_> = (0..32).map(read).collect();
            let mut held = 0;
            for (number, read) in reads.into_iter().enumerate() {
                let done = read.await;
                done.result.expect("within the file");
                assert!(done.buffer.expect("of a read").iter().all(|&byte| byte == number as u8));
                held += usize::from(done.held_ns > 0);
            }
            assert_eq!(held, 32 - 4);
        })
        .expect("the core runs");
    reactors.stop();
}

/// The flags of the mapping in which an address lies, as /proc/self/smaps tells them.
fn mapping_flags(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(from, to)| (bound(from), bound(to))) {
            inside = (from..to).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.to_string();
        }
    }
    panic!("the address is mapped")
}

#[test]
fn buffers_ask_for_huge_pages() {
    let scratch = Scratch::new();
    let (runtime, _reactors) = start(scratch.options(1)).expect("starts");
    let buffer = runtime.buffer(4096).expect("memory is left");
    let flags = mapping_flags(buffer.as_ptr() as usize);
    // A kernel without huge pages has no such flag to set.
    let can = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert!(!can || flags.split(' ').any(|flag| flag == "hg"), "{flags}");
}

/// Starts a write, wakes another task of the core, and tells how many entries the kernel had not seen when that ran.
fn unsubmitted_beside_a_write((length, durable): (usize, bool)) -> usize {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let file = make_file(&runtime, "data", length as u64);
    let (began, seen) = (Arc::new(crate::Event::new()), Arc::new(AtomicUsize::new(usize::MAX)));
    let other = {
        let (began, seen) = (began.clone(), seen.clone());
        move || -> crate::tasks::Local {
            Box::pin(async move {
                began.after(began.ticket()).await;
                let unsubmitted = reactor::with_current(|core| core.device.borrow().unsubmitted());
                seen.store(unsubmitted.expect("a task runs on a core"), Ordering::SeqCst);
            })
        }
    };
    runtime.tasks.spawn(0, Box::new(other));
    let write = async move || {
        runtime.clock.sleep(10_000_000).await;
        let slices = vec![whole(filled(&runtime, length, 1))];
        let transfer = runtime.disk.submit(Request::Write { file, offset: 0, slices, durable });
        began.notify();
        transfer.await.result
    };
    reactors.run(0, write).expect("the core runs").expect("the write is within the file");
    reactors.stop();
    seen.load(Ordering::SeqCst)
}

#[test]
fn a_device_is_shared_as_long_as_several_flows_are_active_on_whichever_cores() {
    let active: Vec<_> = (0..2).map(|_| reactor::Active::default()).collect();
    let tell = |core, mask, at_ms: u64| reactor::tell_active(&active, core, mask, at_ms * 1_000_000);
    assert!(!tell(0, 1, 100) && !tell(1, 1, 101), "it is the same flow");
    assert!(tell(1, 2, 102) && tell(0, 1, 103) && tell(0, 3, 103));
    assert!(!tell(0, 0, 104), "the first core has none any more");
    assert!(tell(0, 1, 105) && !tell(0, 1, 120), "the other one sleeps");
}

#[test]
fn what_many_wait_for_or_takes_long_is_submitted_before_others_run() {
    let writes = [(4 * KIB, false), (4 * KIB, true), (super::device::AT_ONCE_BYTES, false)];
    assert_eq!(writes.map(unsubmitted_beside_a_write), [1, 0, 0]);
}

#[test]
fn buffers_outlive_dropped_transfers_and_the_end() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let file = make_file(&runtime, "data", 4 << 20);
    let there = runtime.clone();
    runtime.tasks.spawn(
        0,
        Box::new(move || {
            Box::pin(async move {
                loop {
                    let slices = vec![whole(filled(&there, MIB, 9))];
                    let write = Request::Write { file, offset: MIB as u64, slices, durable: true };
                    drop(there.disk.submit(write));
                    crate::tasks::yield_now().await;
                    let slices = vec![whole(filled(&there, 4 * KIB, 9))];
                    crate::disk::write(&*there.disk, file, 0, slices, false).await.1.expect("within the file");
                }
            })
        }),
    );
    std::thread::sleep(Duration::from_millis(50));
    reactors.stop();
    let buffer = filled(&runtime, 4 * KIB, 0);
    let error = block_on(crate::disk::read(&*runtime.disk, file, 0, buffer)).1.expect_err("all has ended");
    assert_eq!(error.kind, Kind::Interrupted);
}

#[test]
fn wake_ups_cross_cores_and_none_is_lost() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(3)).expect("io_uring works here");
    // A ring of tasks on all cores that pass a token; a lost wake-up would hang it.
    const TASKS: usize = 30;
    const ROUNDS: usize = 2000;
    let turn = Arc::new(AtomicUsize::new(0));
    let events: Arc<Vec<crate::Event>> = Arc::new((0..TASKS).map(|_| crate::Event::new()).collect());
    let (done, finished) = mpsc::sync_channel(TASKS);
    for task in 0..TASKS {
        let (turn, events, done) = (turn.clone(), events.clone(), done.clone());
        let make = move || -> crate::tasks::Local {
            Box::pin(async move {
                for round in 0..ROUNDS {
                    loop {
                        let ticket = events[task].ticket();
                        if turn.load(Ordering::SeqCst) == round * TASKS + task {
                            break;
                        }
                        events[task].after(ticket).await;
                    }
                    turn.fetch_add(1, Ordering::SeqCst);
                    events[(task + 1) % TASKS].notify();
                }
                done.send(()).expect("the test waits");
            })
        };
        runtime.tasks.spawn(task % 3, Box::new(make));
    }
    for _ in 0..TASKS {
        finished.recv_timeout(Duration::from_secs(60)).expect("no wake-up is lost");
    }
    reactors.stop();
}

#[test]
fn wake_ups_from_foreign_threads() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(2)).expect("io_uring works here");
    let tasks = runtime.tasks.clone();
    let sum = reactors.run(1, move || async move {
        let mut sum = 0u64;
        for number in 0..2000 {
            sum += crate::tasks::run_blocking(&*tasks, move || number).await;
        }
        assert_eq!((tasks.core(), current_core()), (1, Some(1)));
        sum
    });
    assert_eq!(sum.expect("the core runs"), 1999 * 1000);
    assert!(reactors.probe().cores()[1].run.count() > 0);
    assert_eq!((runtime.tasks.core(), current_core()), (0, None));
    assert_eq!(reactors.probe().pool().jobs, 2000);
    reactors.stop();
}

#[test]
fn timers_fire_in_order_and_an_idle_world_uses_no_cpu() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let (send, receive) = mpsc::sync_channel(3);
    for ms in [30u64, 10, 20] {
        let (clock, send) = (runtime.clock.clone(), send.clone());
        let make = move || -> crate::tasks::Local {
            Box::pin(async move {
                let start_ns = clock.now_ns();
                // Dropped, it must neither fire nor keep anything.
                drop(clock.sleep(1_000_000));
                clock.sleep(ms * 1_000_000).await;
                send.send((ms, clock.now_ns() - start_ns)).expect("the test waits");
            })
        };
        runtime.tasks.spawn(0, Box::new(make));
    }
    for expected in [10, 20, 30] {
        let (ms, took_ns) = receive.recv_timeout(Duration::from_secs(10)).expect("timers fire");
        assert_eq!(ms, expected);
        assert!(took_ns >= ms * 1_000_000, "{ms} ms took {took_ns} ns");
    }
    // Let the last task end.
    std::thread::sleep(Duration::from_millis(50));
    let turns = || reactors.probe().cores()[0].turns;
    let before = turns();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(turns(), before, "an idle core sleeps");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    assert!((wall.as_nanos() as i64 - runtime.clock.wall().0).abs() < 1_000_000_000);
    reactors.stop();
}

#[test]
fn a_sleep_that_begins_later_and_ends_sooner_ends_in_time() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let (send, receive) = mpsc::sync_channel(300);
    let start_one = |seconds: u64, ms: u64| {
        let (clock, send) = (runtime.clock.clone(), send.clone());
        let make = move || -> crate::tasks::Local {
            Box::pin(async move {
                let due_ns = clock.now_ns() + ms * 1_000_000;
                clock.sleep(seconds * 1_000_000_000 + ms * 1_000_000).await;
                let _ = send.send(clock.now_ns() - due_ns);
            })
        };
        runtime.tasks.spawn(0, Box::new(make));
        // The core goes to sleep until then.
        std::thread::sleep(Duration::from_micros(200));
    };
    start_one(3600, 0);
    // Each ends before all that were begun: each is one more alarm of the core.
    (0..200).for_each(|number| start_one(0, 800 - 3 * number));
    for _ in 0..200 {
        let late_ns = receive.recv_timeout(Duration::from_secs(10)).expect("it ends long before the hour");
        assert!(late_ns < 2_000_000_000, "{late_ns}");
    }
    let turns = || reactors.probe().cores()[0].turns;
    let before = turns();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(turns(), before, "nothing wakes the core before the hour");
    reactors.stop();
}

/// The present bound on the CPUs' wake-up latency, in microseconds; None if this machine can't be asked.
fn wake_up_bound_us() -> Option<i32> {
    use std::io::Read;
    let mut bytes = [0; 4];
    let mut file = std::fs::File::options().read(true).write(true).open("/dev/cpu_dma_latency").ok()?;
    // Opened, it counts as a request for the least of all until it has said something else.
    std::io::Write::write_all(&mut file, &(-1i32).to_ne_bytes()).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

#[test]
fn cpus_stay_awake_while_requests_follow_each_other() {
    if wake_up_bound_us().is_none() {
        return println!("this user can't ask for it here");
    }
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let file = make_file(&runtime, "data", 4 * KIB as u64);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            let asked = || wake_up_bound_us().is_some_and(|bound_us| bound_us <= 2);
            while !asked() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            asked() || Instant::now() < until
        })
    };
    let reads = async move || {
        let mut buffer = filled(&runtime, 4 * KIB, 0);
        while !stop.load(Ordering::Relaxed) {
            let (back, result) = crate::disk::read(&*runtime.disk, file, 0, buffer).await;
            result.expect("the read is within the file");
            buffer = back;
        }
    };
    reactors.run(0, reads).expect("the core runs");
    assert!(seen.join().expect("no panic"), "nothing was asked for within 20 s of reads at depth 1");
    reactors.stop();
}

/// Number of times that the thread that watches for dense requests has gone to sleep.
fn watcher_sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let watchers = statuses.filter(|status| status.lines().next().is_some_and(|name| name.ends_with("sinter-pm-qos")));
    let sleeps = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::to_string));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("Linux counts them")
    };
    watchers.map(sleeps).sum()
}

/// A child process with timers. It is a process of its own because other tests have watchers too.
#[test]
#[ignore = "run by the test below"]
fn child_with_timers() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let clock = runtime.clock.clone();
    let ticks = async move || {
        // Wakes the watcher, if it is not awake already.
        for _ in 0..200 {
            clock.sleep(10_000).await;
        }
        for _ in 0..10 {
            clock.sleep(5_000_000).await;
        }
        let before = watcher_sleeps();
        for _ in 0..200 {
            clock.sleep(5_000_000).await;
        }
        watcher_sleeps() - before
    };
    let slept = reactors.run(0, ticks).expect("the core runs");
    reactors.stop();
    assert!(slept < 60, "the watcher went to sleep {slept} times in a second of timers alone");
}

#[test]
fn timers_alone_keep_nobody_awake() {
    let test = "real::tests::child_with_timers";
    let program = std::env::current_exe().expect("the test knows its program");
    let output = std::process::Command::new(program).args([test, "--exact", "--ignored"]).output();
    let output = output.expect("the test can run itself");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }, 0);
    // SAFETY: the call has just made both, and nobody else has them.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

#[test]
fn readiness_of_descriptors() {
    use std::io::{Read, Write};
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(2)).expect("io_uring works here");
    let (reader, writer) = pipe();
    let (mut reader, mut writer) = (std::fs::File::from(reader), std::fs::File::from(writer));
    let fd = reader.as_raw_fd();
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    let feeder = std::thread::spawn(move || {
        for _ in 0..500 {
            writer.write_all(b"x").expect("the pipe has room");
            std::thread::sleep(Duration::from_micros(100));
        }
        writer
    });
    let total = reactors.run(0, move || async move {
        let mut buffer = [0; 64];
        while count.load(Ordering::Relaxed) < 500 {
            readable(reader.as_raw_fd()).await.expect("a pipe can be polled");
            let got = reader.read(&mut buffer).unwrap_or(0);
            count.fetch_add(got, Ordering::Relaxed);
        }
        drop(reader);
        count.load(Ordering::Relaxed)
    });
    assert_eq!(total.expect("the core runs"), 500);
    drop(feeder.join().expect("no panic"));
    let closed = reactors.run(1, move || readable(fd)).expect("the core runs");
    assert_eq!(closed.expect_err("it is closed").kind, Kind::Io);
    drop(runtime);
    reactors.stop();
}

#[test]
fn several_cores_share_a_descriptor() {
    use std::io::{Read, Write};
    const BYTES: usize = 2000;
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(3)).expect("io_uring works here");
    let (reader, writer) = pipe();
    let (reader, mut writer) = (Arc::new(std::fs::File::from(reader)), std::fs::File::from(writer));
    let received = Arc::new(AtomicUsize::new(0));
    let (send, receive) = mpsc::sync_channel(1);
    for core in 0..3 {
        let (reader, received, send) = (reader.clone(), received.clone(), send.clone());
        let make = move || -> crate::tasks::Local {
            Box::pin(async move {
                loop {
                    readable(reader.as_raw_fd()).await.expect("a pipe can be polled");
                    let mut byte = [0];
                    while (&*reader).read(&mut byte).is_ok_and(|got| got == 1) {
                        if received.fetch_add(1, Ordering::SeqCst) + 1 == BYTES {
                            send.send(()).expect("the test waits");
                        }
                        crate::tasks::yield_now().await;
                    }
                }
            })
        };
        runtime.tasks.spawn(core, Box::new(make));
    }
    for number in 0..BYTES {
        writer.write_all(b"x").expect("the pipe has room");
        if number % 7 == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    receive.recv_timeout(Duration::from_secs(20)).expect("no byte is left lying");
    reactors.stop();
}

#[test]
fn waiting_for_readiness_ends_with_the_core_or_the_future() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let (reader, writer) = pipe();
    let fd = reader.as_raw_fd();
    let dropped = Arc::new(AtomicBool::new(false));
    let clock = runtime.clock.clone();
    reactors
        .run(0, move || async move {
            for _ in 0..100 {
                let mut wait = std::pin::pin!(readable(fd));
                let once =
                    std::future::poll_fn(|context| std::task::Poll::Ready(wait.as_mut().poll(context).is_pending()));
                assert!(once.await);
            }
            clock.sleep(1_000_000).await;
        })
        .expect("the core runs");
    let mark = dropped.clone();
    struct Mark(Arc<AtomicBool>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let make = move || -> crate::tasks::Local {
        Box::pin(async move {
            let _mark = Mark(mark);
            let _ = readable(fd).await;
        })
    };
    runtime.tasks.spawn(0, Box::new(make));
    std::thread::sleep(Duration::from_millis(20));
    reactors.stop();
    assert!(dropped.load(Ordering::SeqCst));
    drop((reader, writer));
}

#[test]
fn a_brick_has_one_daemon() {
    let scratch = Scratch::new();
    let (_runtime, reactors) = start(scratch.options(1)).expect("io_uring works here");
    let refused = |options| start(options).map(|_| ()).expect_err("the brick is in use");
    let error = refused(scratch.options(1));
    assert_eq!(error.kind, Kind::Busy);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let reading = || Options { read_only: true, ..scratch.options(1) };
    assert_eq!(refused(reading()).kind, Kind::Busy);
    reactors.stop();

    let (first, first_reactors) = start_beside_forks(reading);
    let (_second, second_reactors) = start(reading()).expect("readers share");
    assert_eq!(refused(scratch.options(1)).kind, Kind::Busy);
    assert_eq!(first.disk.open("x", OpenMode::Create).expect_err("read only").kind, Kind::ReadOnly);
    drop((first_reactors, second_reactors));
    for _ in 0..20 {
        start_beside_forks(|| scratch.options(1)).1.stop();
    }
}

/// Starts on a brick that nobody has. Another test's child holds the lock of one that has just been stopped from its fork until it
/// runs its program, some milliseconds on a busy machine.
fn start_beside_forks(options: impl Fn() -> Options) -> (Runtime, Reactors) {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match start(options()) {
            Err(error) if error.kind == Kind::Busy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1))
            }
            started => return started.expect("stopping gives up the lock at once"),
        }
    }
}

/// Runs `child_daemon` in another process, and returns when it has the brick.
fn start_child(scratch: &Scratch) -> std::process::Child {
    use std::io::BufRead;
    let mut child = std::process::Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "real::tests::child_daemon", "--ignored", "--nocapture"])
        .env("SINTER_TEST_BRICK", &scratch.0)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the test can run itself");
    let lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.map_while(|line| line.ok()).any(|line| line.contains("child has the brick"));
    assert!(ready, "the child starts");
    child
}

/// Writes for ever, with much I/O in flight.
#[test]
#[ignore = "run by a_killed_process_gives_up_the_brick in a process of its own"]
fn child_daemon() {
    let directory = PathBuf::from(std::env::var_os("SINTER_TEST_BRICK").expect("the parent sets it"));
    let directory = Directory::open(&directory).expect("the parent made it");
    let options = Options { cores: Some(2), ..Options::new(directory, 64 << 20, &[]) };
    let (runtime, reactors) = start(options).expect("io_uring works here");
    let file = make_file(&runtime, &format!("data-{}", std::process::id()), 32 << 20);
    println!("child has the brick");
    let work = move || async move {
        loop {
            let write = |mib: u64| {
                let slices = vec![whole(filled(&runtime, MIB, 1))];
                runtime.disk.submit(Request::Write { file, offset: mib << 20, slices, durable: true })
            };
            for write in (0..16).map(write).collect::<Vec<_>>() {
                write.await.result.expect("within the file");
            }
        }
    };
    reactors.run(0, work).expect("the core runs")
}

#[test]
fn a_killed_process_gives_up_the_brick() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        let mut child = start_child(&scratch);
        let error = start(scratch.options(1)).map(|_| ()).expect_err("the child has it");
        assert_eq!(error.kind, Kind::Busy);
        assert!(error.to_string().contains(&format!("process {}", child.id())), "{error}");
        std::thread::sleep(Duration::from_millis(30));
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        // Its I/O in flight may hold the lock for a moment: that is waited for.
        start(scratch.options(1)).expect("the brick is free").1.stop();
    }
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new();
    let error = Directory::open(&scratch.0.join("nowhere")).expect_err("it is not there");
    assert_eq!(error.kind, Kind::NotFound);
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn random_numbers_differ() {
    let (one, other) = (Entropy::new().expect("seeded"), Entropy::new().expect("seeded"));
    let all: std::collections::BTreeSet<u64> = (0..1000).flat_map(|_| [one.next_u64(), other.next_u64()]).collect();
    assert_eq!(all.len(), 2000);
}

#[test]
fn tasks_end_with_their_core() {
    let scratch = Scratch::new();
    let (runtime, reactors) = start(scratch.options(2)).expect("io_uring works here");
    let alive = Arc::new(());
    for core in 0..2 {
        let (alive, clock) = (alive.clone(), runtime.clock.clone());
        let make = move || -> crate::tasks::Local {
            Box::pin(async move {
                let _alive = alive;
                clock.sleep(u64::MAX / 2).await;
            })
        };
        runtime.tasks.spawn(core, Box::new(make));
    }
    let start = Instant::now();
    reactors.stop();
    assert!(start.elapsed() < Duration::from_secs(5));
    let late = alive.clone();
    runtime.tasks.spawn(0, Box::new(move || Box::pin(async move { drop(late) })));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[cfg(feature = "seeded-bugs")]
mod volatile_cache {
    use super::*;

    fn world(scratch: &Scratch) -> (Runtime, Reactors) {
        start(Options { volatile_cache: true, ..scratch.options(1) }).expect("io_uring works here")
    }

    fn write(runtime: &Runtime, file: FileId, block: u64, byte: u8, durable: bool) {
        let slices = vec![whole(filled(runtime, 4 * KIB, byte))];
        block_on(crate::disk::write(&*runtime.disk, file, block * 4096, slices, durable)).1.expect("in the file");
    }

    fn read(runtime: &Runtime, file: FileId, block: u64) -> u8 {
        let buffer = filled(runtime, 4 * KIB, 255);
        let (buffer, result) = block_on(crate::disk::read(&*runtime.disk, file, block * 4096, buffer));
        result.expect("in the file");
        assert!(buffer.iter().all(|&byte| byte == buffer[0]));
        buffer[0]
    }

    #[test]
    fn what_was_not_flushed_is_lost() {
        let scratch = Scratch::new();
        let (runtime, reactors) = world(&scratch);
        let (a, b) = (make_file(&runtime, "a", 4 << 20), make_file(&runtime, "b", 4 << 20));
        for block in 0..100 {
            write(&runtime, a, block, 1, false);
            write(&runtime, b, block, 2, false);
        }
        // One cache: the flush of one file is a flush of all.
        block_on(crate::disk::flush(&*runtime.disk, b)).expect("it can be flushed");
        for block in 50..150 {
            write(&runtime, a, block, 3, false);
        }
        write(&runtime, a, 120, 4, true);
        assert_eq!([read(&runtime, a, 60), read(&runtime, a, 120), read(&runtime, a, 149)], [3, 4, 3]);
        let buffer = filled(&runtime, MIB, 0);
        let (buffer, result) = block_on(crate::disk::read(&*runtime.disk, a, 0, buffer));
        result.expect("in the file");
        assert_eq!([buffer[49 * 4096], buffer[50 * 4096], buffer[150 * 4096]], [1, 3, 0]);
        drop((reactors, runtime));

        let (runtime, reactors) = world(&scratch);
        let open = |name| runtime.disk.open(name, OpenMode::Existing).expect("it is there");
        let (a, b) = (open("a"), open("b"));
        assert!((0..50).all(|block| read(&runtime, a, block) == 1));
        assert!((0..100).all(|block| read(&runtime, b, block) == 2));
        assert_eq!(read(&runtime, a, 120), 4);
        let lost = (50..150).filter(|&block| read(&runtime, a, block) < 3).count();
        assert!(lost > 50, "only blocks written out early survive: {lost} were lost");
        reactors.stop();
    }

    #[test]
    fn its_memory_is_bounded_and_errors_are_the_same() {
        let scratch = Scratch::new();
        let (runtime, reactors) = world(&scratch);
        let file = make_file(&runtime, "a", 300 << 20);
        for block in (0..300u64).map(|mib| mib * 256) {
            let slices = vec![whole(filled(&runtime, MIB, block as u8 | 1))];
            block_on(crate::disk::write(&*runtime.disk, file, block * 4096, slices, false)).1.expect("in the file");
        }
        assert!((0..300u64).all(|mib| read(&runtime, file, mib * 256 + 7) == (mib * 256) as u8 | 1));
        let (_, result) = block_on(crate::disk::read(&*runtime.disk, file, 300 << 20, filled(&runtime, 4 * KIB, 0)));
        assert_eq!(result.expect_err("past the end").kind, Kind::Io);
        let (_, result) = block_on(crate::disk::read(&*runtime.disk, file, 5, filled(&runtime, 4 * KIB, 0)));
        assert_eq!(result.expect_err("no block").kind, Kind::Invalid);
        reactors.stop();
    }
}
