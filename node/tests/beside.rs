//! Deleting much beside clients (rule K6): a file of a tebibyte that was written sparsely, and a tree of many files. What
//! clients do meanwhile, and while the blocks are freed in the background, takes at most three times as long at the 99th
//! percentile as alone. `SINTER_BESIDE` sets the number of files and of the large file's blocks, 1,000,000 by hand on a machine
//! that does nothing else. If it is not set, 10,000 in a minute, and only stalls are noticed.

use crate::daemon::{Daemon, Home};
use crate::space;
use crate::space::{BLOCK, space};
use runtime::random::SplitMix;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The 99th percentile is taken of each such span, and the median of these counts: the hosts of virtual machines take a
/// second now and then.
const SPAN: Duration = Duration::from_secs(3);
/// Spans for which clients run alone first, on a brick that does nothing else, to be compared with; one if only stalls
/// are to be noticed.
const ALONE: u32 = 3;
const COUNT: &str = "SINTER_BESIDE";
/// Blocks of the file that clients work on.
const BLOCKS: u64 = 1 << 14;
/// Bytes between two blocks of the large file.
const SPACING: u64 = 1 << 20;
/// Factor that operations may take longer, never asked of those that take less than this alone.
const TIMES: u32 = 3;
/// A timer tick and a wake-up on a busy core: below it times say more of the machine than of the brick. Beside other tests,
/// a slice of a core's time that somebody else gets.
const GRAINS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

fn by_hand() -> bool {
    std::env::var_os(COUNT).is_some()
}

fn count() -> u64 {
    crate::daemon::setting(COUNT, 10_000)
}

/// Each operation's times: when it ended, and how long it took.
type Times = BTreeMap<&'static str, Vec<(Instant, Duration)>>;

/// Two clients that do a little of everything, one after the other, until told to stop.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Times>>,
}

impl Clients {
    fn start(directory: &Path) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: u64| {
            let (directory, stop) = (directory.to_path_buf(), stop.clone());
            std::thread::spawn(move || work(&directory, number, &stop))
        };
        Clients { threads: (0..2).map(client).collect(), stop }
    }
    fn end(self) -> Times {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Times::new();
        for thread in self.threads {
            let times = thread.join().expect("no operation failed");
            times.into_iter().for_each(|(name, mut more)| all.entry(name).or_default().append(&mut more));
        }
        all
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// Memory that direct I/O takes.
fn aligned(bytes: &mut [u8]) -> &mut [u8] {
    let skip = bytes.as_ptr().align_offset(BLOCK as usize);
    &mut bytes[skip..skip + BLOCK as usize]
}

fn work(directory: &Path, number: u64, stop: &AtomicBool) -> Times {
    let mut times = Times::new();
    let mut random = SplitMix(number + 1);
    let mut memory = vec![7; 2 * BLOCK as usize];
    let block = aligned(&mut memory);
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(data(directory));
    let direct = direct.expect("it is there");
    let synced = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(data(directory));
    let synced = synced.expect("it is there");
    let own = directory.join(format!("own-{number}"));
    while !stop.load(Ordering::Relaxed) {
        let mut timed = |name, operation: &mut dyn FnMut() -> std::io::Result<()>| {
            let started = Instant::now();
            operation().unwrap_or_else(|error| panic!("{name}: {error}"));
            times.entry(name).or_default().push((Instant::now(), started.elapsed()));
        };
        let mut at = || random.below(BLOCKS) * BLOCK;
        let (first, second, third) = (at(), at(), at());
        timed("read", &mut || direct.read_exact_at(block, first));
        timed("write", &mut || direct.write_all_at(block, second));
        timed("write-sync", &mut || synced.write_all_at(block, third));
        timed("create", &mut || File::create_new(&own).map(drop));
        timed("stat", &mut || std::fs::metadata(&own).map(drop));
        timed("unlink", &mut || std::fs::remove_file(&own));
        // Two clients that leave the brick time: it is not to be measured at its limit.
        std::thread::sleep(Duration::from_millis(2));
    }
    times
}

/// The median of all spans' 99th percentiles; spans at the end that are too short for one are left out.
fn p99(times: &[(Instant, Duration)]) -> Duration {
    let begin = times.iter().map(|(when, _)| *when).min().expect("clients did some of it");
    let mut spans: BTreeMap<u128, Vec<Duration>> = BTreeMap::new();
    for (when, took) in times {
        spans.entry((*when - begin).as_nanos() / SPAN.as_nanos()).or_default().push(*took);
    }
    let largest = spans.values().map(Vec::len).max().unwrap_or_default();
    let mut all: Vec<Duration> = spans.into_values().filter(|span| span.len() * 4 >= largest).map(quantile).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// The 99th percentile.
pub fn quantile(mut span: Vec<Duration>) -> Duration {
    span.sort_unstable();
    span[span.len() * 99 / 100]
}

/// The operations that take too long beside `what`: name, alone and beside.
fn slow(what: &str, alone: &Times, beside: &Times) -> Vec<(String, Duration, Duration)> {
    let grain = GRAINS[usize::from(!by_hand())];
    let compared = beside.iter().map(|(name, times)| {
        let (count, alone, beside) = (times.len(), p99(&alone[name]), p99(times));
        println!("{what}: {name}: p99 {alone:?} alone, {beside:?} beside, {count} times");
        (format!("{what}: {name}"), alone, beside)
    });
    compared.filter(|(_, alone, beside)| *beside > TIMES * *alone.max(&grain)).collect()
}

fn start(home: &Home) -> Daemon {
    let mut command = crate::daemon::sinter();
    command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", "16G"]);
    if !by_hand() {
        // Small overlays: checkpoints come soon.
        command.args(["--memory-max", "256M"]);
    }
    Daemon::start(command)
}

/// Waits until what was deleted is freed: the data are as few as before.
fn await_freed(home: &Home, before: u64, patience: Duration) {
    let started = Instant::now();
    while space(home).logical > before {
        assert!(started.elapsed() < patience, "{:?}", space(home));
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn clients_hardly_notice_what_is_deleted_beside_them() {
    let home = Home::new("beside");
    let daemon = start(&home);
    let directory = home.mount.join("clients");
    std::fs::create_dir(&directory).expect("the mount is writable");
    std::fs::write(data(&directory), vec![1; (BLOCKS * BLOCK) as usize]).expect("there is room");
    let (large, tree) = (home.mount.join("large"), home.mount.join("tree"));
    // Not through the kernel's cache: it takes a second to let go of a million pages that lie so far apart.
    let sparse = OpenOptions::new().create_new(true).write(true).custom_flags(libc::O_DIRECT).open(&large);
    let sparse = sparse.expect("the mount is writable");
    let mut memory = vec![5; 2 * BLOCK as usize];
    let block = aligned(&mut memory);
    for number in 0..count() {
        sparse.write_all_at(block, number * SPACING).expect("there is room");
    }
    sparse.sync_all().expect("a healthy brick syncs");
    drop(sparse);
    for number in 0..count() {
        if number % 1000 == 0 {
            std::fs::create_dir_all(tree.join((number / 1000).to_string())).expect("the mount is writable");
        }
        std::fs::write(tree.join(format!("{}/{number}", number / 1000)), [6; 100]).expect("there is room");
    }
    // Until all of that is checkpointed.
    let settled = space::settle(&home);
    let alone = || {
        let clients = Clients::start(&directory);
        std::thread::sleep(SPAN * if by_hand() { ALONE } else { 1 });
        clients.end()
    };
    let before = alone();
    let clients = Clients::start(&directory);
    let started = Instant::now();
    std::fs::remove_file(&large).expect("it is there");
    let took = started.elapsed();
    std::thread::sleep(SPAN);
    // So few clients make no checkpoint due for minutes: the file's size does.
    await_freed(&home, settled.logical - (count() - 100) * BLOCK, Duration::from_secs(600));
    println!("unlinked in {took:?}, freed within {:?}", started.elapsed());
    let mut all = slow("unlink of a large file", &before, &clients.end());
    assert!(took < Duration::from_secs(1), "unlinking took {took:?}");
    let before = alone();
    let clients = Clients::start(&directory);
    let started = Instant::now();
    std::fs::remove_dir_all(&tree).expect("it is there");
    println!("{} files removed in {:?}", count(), started.elapsed());
    std::thread::sleep(SPAN);
    all.extend(slow("rm -rf", &before, &clients.end()));
    assert!(all.is_empty(), "{all:?} (alone, beside)");
    daemon.terminate();
    home.check();
}

/// The scheduler's view of each thread of a process, by its name: policy and nice value.
fn turns(pid: u32) -> BTreeMap<String, (i32, i32)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let turns = |thread: std::io::Result<std::fs::DirEntry>| {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        // The 41st and the 19th field, counted from 1; `rest` begins before the third.
        let mut fields = rest.split_whitespace();
        let nice = fields.nth(16)?.parse().ok()?;
        Some((name.to_string(), (fields.nth(21)?.parse().ok()?, nice)))
    };
    threads.filter_map(turns).collect()
}

#[test]
fn what_no_client_waits_for_gives_way_to_what_one_waits_for() {
    let home = Home::new("turns");
    let daemon = home.up();
    let all = turns(daemon.pid());
    for name in ["rocksdb:low", "rocksdb:high", "sinter-back-1"] {
        assert_eq!(all.get(name), Some(&(libc::SCHED_BATCH, 0)), "{name}: {all:?}");
    }
    assert_eq!(all.get("sinter-pool-1"), Some(&(libc::SCHED_OTHER, 0)), "{all:?}");
    // SAFETY: the call has no argument and can't fail.
    let first = if unsafe { libc::geteuid() } == 0 { -10 } else { 0 };
    assert_eq!(all.get("sinter-core-0"), Some(&(libc::SCHED_OTHER, first)), "{all:?}");
    daemon.terminate();
}
