//! Background work beside clients (decision D7): what requests of four classes take at the 99th percentile beside the cleaner,
//! checkpoints, the scrub and the freeing of many blocks, each alone and all together, against what they take without, in turns. Every
//! one of them comes to its end, and neither free segments nor the estimated replay leave their bounds.
//!
//! `SINTER_AGENTS` sets the seconds of a phase, by hand on a machine that does nothing else: then the promise is asked for, a quarter
//! and 0.2 ms. If it is not set, phases are short, and a phase may be as much slower as other programs make it.

use crate::beside::quantile;
use crate::calls::Mapping;
use crate::daemon::{Daemon, Home, run, setting, sinter, text};
use crate::scrub::scrub as scrubbed;
use crate::space::BLOCK;
use runtime::random::SplitMix;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECONDS: &str = "SINTER_AGENTS";
/// Rounds, each a phase without and one beside; medians count.
const ROUNDS: usize = 3;
/// Time between two requests of a client: two hundred in a second leave the device idle.
const EVERY: Duration = Duration::from_millis(2);
/// Blocks of the file that clients read and write: more than the daemon caches with the memory that it gets here.
const BLOCKS: u64 = 1 << 18;
/// The estimated replay after a crash, at most.
const REPLAY_MS_MAX: u64 = 10_000;
/// Four segments, which are the cleaner's and the log's own.
const FLOOR_BYTES: u64 = 4 << 26;
/// Directory of the kernel's groups of block I/O, and the reads that a slow device has: clients here want five hundred.
const GROUPS: &str = "/sys/fs/cgroup/blkio";
const READS_PER_SECOND: u64 = 800;
/// Seconds in which the budget has compared all turns three times.
const LEARNS: u64 = 5;
/// The pace of a writer whose blocks the cleaner has to make room for.
const WRITER_EVERY: Duration = Duration::from_micros(250);
/// Durable writes without any work take one to two milliseconds at the 99th percentile. Where they take longer than this, other programs
/// have the disk, and what work adds is not to be told from what they add.
const STEADY_MAX: Duration = Duration::from_millis(6);
/// Series that are measured at most until one tells something: each takes seconds.
const SERIES_MAX: usize = 4;

/// Seeds of phases so far: each has three, and names of its own.
static PHASES: AtomicU64 = AtomicU64::new(0);

type Times = BTreeMap<&'static str, Vec<Duration>>;

fn by_hand() -> bool {
    std::env::var_os(SECONDS).is_some()
}

fn phase() -> Duration {
    Duration::from_secs(setting(SECONDS, 1))
}

/// Phases until the budget, or the cleaner's controller, knows its clients.
fn warm_up() -> u64 {
    LEARNS.div_ceil(phase().as_secs())
}

/// Time that requests may take beside the work, by the time that they take without.
fn bound(without: Duration) -> Duration {
    let slack = if by_hand() { Duration::from_micros(200) } else { Duration::from_millis(3) };
    without + without / 4 + slack
}

fn open(path: &Path, flags: i32) -> File {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT | flags).open(path);
    file.expect("it is there")
}

/// Runs a client of each class for a phase, each with a request in flight and time between two.
fn clients(directory: &Path) -> Times {
    let seed = PHASES.fetch_add(3, Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let paced = |name: &'static str, request: &mut dyn FnMut(u64)| {
        let mut times = Vec::new();
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            request(times.len() as u64);
            times.push(started.elapsed());
            std::thread::sleep((began + EVERY * times.len() as u32).saturating_duration_since(Instant::now()));
        }
        (name, times)
    };
    let data = directory.join("data");
    let at = |random: &mut SplitMix| random.below(BLOCKS) * BLOCK;
    std::thread::scope(|scope| {
        let (paced, data) = (&paced, &data);
        let threads = [
            scope.spawn(move || {
                let (file, mut random, mut memory) =
                    (open(data, 0), SplitMix(seed), Mapping::anonymous(BLOCK as usize));
                paced("read", &mut |_| file.read_exact_at(memory.bytes_mut(), at(&mut random)).expect("it is readable"))
            }),
            scope.spawn(move || {
                let (file, mut random, memory) =
                    (open(data, 0), SplitMix(seed + 1), Mapping::anonymous(BLOCK as usize));
                paced("write", &mut |_| file.write_all_at(memory.bytes(), at(&mut random)).expect("there is room"))
            }),
            scope.spawn(move || {
                let (file, mut random, memory) =
                    (open(data, libc::O_DSYNC), SplitMix(seed + 2), Mapping::anonymous(BLOCK as usize));
                paced("durable write", &mut |_| {
                    file.write_all_at(memory.bytes(), at(&mut random)).expect("there is room");
                })
            }),
            scope.spawn(move || {
                paced("metadata", &mut |number| {
                    let own = directory.join(format!("own-{seed}-{}", number / 2));
                    match number % 2 {
                        0 => drop(File::create_new(&own).expect("a new name")),
                        _ => std::fs::remove_file(&own).expect("it was made"),
                    }
                })
            }),
        ];
        std::thread::sleep(phase());
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no request failed")).collect()
    })
}

/// Tells whoever works beside a test to stop, also if the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs clients without and beside something, in turns; the classes that it slows. None: see `judged`.
fn slowed(what: &str, directory: &Path, mut begin: impl FnMut(), mut end: impl FnMut()) -> Option<Vec<String>> {
    let series = || {
        let mut seen: [Vec<Times>; 2] = Default::default();
        for _ in 0..ROUNDS {
            seen[0].push(clients(directory));
            begin();
            seen[1].push(clients(directory));
            end();
        }
        (above(what, &seen[0], &seen[1]), seen[0].iter().all(is_steady))
    };
    judged(series)
}

/// True if other programs left the disk alone while clients ran without any work.
fn is_steady(without: &Times) -> bool {
    quantile(without["durable write"].clone()) <= STEADY_MAX
}

/// The classes that are slowed in two series, each of which tells them and whether the disk was steady: in the seconds of one, a shared machine may
/// give the whole disk to somebody else. None, with a note: the disk was not steady, so nothing is known.
fn judged(mut series: impl FnMut() -> (Vec<String>, bool)) -> Option<Vec<String>> {
    let mut slowed_before = false;
    for _ in 0..SERIES_MAX {
        match series() {
            (above, true) if slowed_before || above.is_empty() => return Some(above),
            (above, false) if above.is_empty() => break,
            (_, steady) => slowed_before |= steady,
        }
    }
    println!("not judged: without any work, durable writes take longer than {STEADY_MAX:?}, so others use the disk");
    None
}

/// The classes whose median of the rounds' percentiles is above the bound.
fn above(what: &str, without: &[Times], beside: &[Times]) -> Vec<String> {
    let median = |seen: &[Times], class: &str| {
        let mut all: Vec<Duration> = seen.iter().map(|times| quantile(times[class].clone())).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let classes = without[0].keys().map(|class| {
        let [without, beside] = [without, beside].map(|seen| median(seen, class));
        println!("{what}: {class}: p99 {without:?} without, {beside:?} beside");
        (class, without, beside)
    });
    let above = classes.filter(|(_, without, beside)| *beside > bound(*without));
    above.map(|(class, without, beside)| format!("{what}: {class}: {without:?}, {beside:?} beside")).collect()
}

fn served(name: &str, size: &str) -> (Home, Daemon, PathBuf) {
    served_with(name, size, None)
}

/// A brick on which a file of 1 GiB is to be read and written, perhaps by a daemon with a bug.
fn served_with(name: &str, size: &str, bug: Option<&str>) -> (Home, Daemon, PathBuf) {
    let home = Home::new(name);
    let mut command = sinter();
    command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", size, "--memory-max", "512M"]);
    command.envs(bug.map(|bug| ("SINTER_TEST_BUG", bug)));
    let daemon = Daemon::start(command);
    let directory = home.mount.join("clients");
    std::fs::create_dir(&directory).expect("the mount is writable");
    write(&directory.join("data"), BLOCKS * BLOCK);
    (home, daemon, directory)
}

/// Writes a new file, durably and past the kernel's cache.
fn write(path: &Path, bytes: u64) {
    const PIECE: usize = 1 << 20;
    let file = OpenOptions::new().create_new(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.expect("the mount is writable");
    let mut memory = Mapping::anonymous(PIECE);
    for at in (0..bytes).step_by(PIECE) {
        memory.bytes_mut()[0] = (at >> 20) as u8;
        file.write_all_at(memory.bytes(), at).expect("there is room");
    }
    file.sync_all().expect("a healthy brick syncs");
}

fn json(arguments: &[&str]) -> Value {
    let said = run(arguments).stdout;
    serde_json::from_slice(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn status(home: &Home) -> Value {
    json(&["status", text(&home.data), "--json"])
}

fn figure(home: &Home, name: &str) -> u64 {
    let status = status(home);
    let found = status["figures"].as_array().expect("a list").iter().find(|figure| figure["name"] == name);
    found.and_then(|figure| figure["value"].as_u64()).unwrap_or_else(|| panic!("no {name}: {status}"))
}

/// The nanoseconds for which an agent has worked.
fn worked(home: &Home, name: &str) -> u64 {
    let status = status(home);
    let found = status["agents"].as_array().expect("a list").iter().find(|agent| agent["name"] == name);
    found.and_then(|agent| agent["worked_ns"].as_u64()).unwrap_or_else(|| panic!("no {name}: {status}"))
}

fn await_that(home: &Home, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what} does not end: {}", status(home));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts, goes on with or stops a pass of the scrub; one that has just ended can't be stopped.
fn scrub(home: &Home, what: &str) {
    scrubbed(home, &[what]);
}

/// Has checkpoints come as fast as a client that asks for space can, until `stop`. The estimated replay is then within its bound.
fn ask_for_space(home: &Home, stop: &AtomicBool) {
    let before = figure(home, "checkpoints");
    while !stop.load(Ordering::Relaxed) {
        rustix::fs::statvfs(&home.mount).expect("it is mounted");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(figure(home, "replay estimate ms") <= REPLAY_MS_MAX);
    await_that(home, "a checkpoint", || figure(home, "checkpoints") > before);
}

/// Deletes a file of so many GiB; four are 10^6 blocks.
fn delete_much(home: &Home, gib: u64) {
    let large = home.mount.join("large");
    write(&large, gib << 30);
    std::fs::remove_file(&large).expect("it is there");
}

/// Measures beside checkpoints, and whatever else begins and ends with them.
fn slowed_by_checkpoints(
    home: &Home,
    what: &str,
    directory: &Path,
    begin: impl Fn(),
    end: impl Fn(),
) -> Option<Vec<String>> {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(stop);
        let begin = || {
            begin();
            stop.store(false, Ordering::Relaxed);
            scope.spawn(|| ask_for_space(home, stop));
        };
        let end = || {
            stop.store(true, Ordering::Relaxed);
            end();
        };
        slowed(what, directory, begin, end)
    })
}

#[test]
fn clients_hardly_notice_the_scrub_checkpoints_and_freeing() {
    let (home, daemon, directory) = served("agents", "16G");
    let home = &home;
    let mut above = slowed("scrub", &directory, || scrub(home, "start"), || scrub(home, "stop")).unwrap_or_default();
    assert!(worked(home, "scrub") > 0);
    above.extend(slowed("freeing of 10^6 blocks", &directory, || delete_much(home, 4), || ()).unwrap_or_default());
    above.extend(slowed_by_checkpoints(home, "checkpoints", &directory, || (), || ()).unwrap_or_default());
    let all = || {
        scrub(home, "start");
        delete_much(home, if by_hand() { 4 } else { 1 });
    };
    above.extend(slowed_by_checkpoints(home, "all three", &directory, all, || scrub(home, "stop")).unwrap_or_default());
    assert!(above.is_empty(), "{above:?}");
    scrub(home, "start");
    await_that(home, "the scrub", || scrubbed(home, &["status"]).1["state"] == "done");
    let used = || crate::space::space(home).logical;
    await_that(home, "freeing", || used() < 2 * BLOCKS * BLOCK);
    daemon.terminate();
    home.check();
}

/// Blocks that are overwritten at random, one in each interval, until `stop`.
fn overwrite(path: &Path, blocks: u64, every: Duration, stop: &AtomicBool) {
    let (file, mut random, memory) = (open(path, 0), SplitMix(99), Mapping::anonymous(BLOCK as usize));
    let (began, mut count) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        file.write_all_at(memory.bytes(), random.below(blocks) * BLOCK).expect("there is room");
        count += 1;
        std::thread::sleep((began + every * count).saturating_duration_since(Instant::now()));
    }
}

/// Writes a file until the brick is full, and removes it.
fn overfill(path: &Path) {
    std::fs::File::create(path).expect("there is room");
    let file = open(path, 0);
    let piece = Mapping::anonymous(1 << 20);
    let pieces = (0..).map_while(|at| file.write_all_at(piece.bytes(), at << 20).ok()).count();
    assert!(pieces > 100, "there was room for {pieces} MiB");
    std::fs::remove_file(path).expect("a full brick deletes");
}

/// Bytes of free segments.
fn free(home: &Home) -> u64 {
    let told = json(&["brick", "devices", text(&home.data), "--json"]);
    told["devices"][0]["free_bytes"].as_u64().expect("a number")
}

fn keeps_pace(home: &Home) -> bool {
    status(home)["cleaner"].as_str().is_some_and(|state| state.contains("keeps pace") || state.contains("slowed"))
}

/// A writer overwrites a nearly full brick at random: clients beside it without cleaning, and once the cleaner keeps its pace.
#[test]
fn clients_hardly_notice_the_cleaner() {
    /// Blocks of the file that is overwritten: with the clients' file three quarters of the brick.
    const FILLED: u64 = 14 << 16;
    let (home, daemon, directory) = served("agents-cleaner", "6G");
    let filled = home.mount.join("filled");
    write(&filled, FILLED * BLOCK);
    // Segments that were never written make durable writes slow, whoever works beside them: all have been.
    let had = free(&home);
    overfill(&home.mount.join("junk"));
    await_that(&home, "freeing", || free(&home) >= had / 10 * 9);
    let beside_writer = |_| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            scope.spawn(|| overwrite(&filled, FILLED, WRITER_EVERY, &stop));
            clients(&directory)
        })
    };
    let without: Vec<Times> = (0..ROUNDS).map(beside_writer).collect();
    assert!(!keeps_pace(&home), "too little was free to begin with");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| overwrite(&filled, FILLED, Duration::ZERO, &stop));
        await_that(&home, "room", || keeps_pace(&home));
    });
    // The delay of that writer's blocks fades within seconds.
    (0..warm_up()).for_each(|_| drop(beside_writer(0)));
    let series = || {
        let emptied = figure(&home, "segments emptied by the cleaner");
        let (mut beside, began) = (Vec::new(), Instant::now());
        // A segment of a full brick takes some seconds.
        while beside.len() < ROUNDS || figure(&home, "segments emptied by the cleaner") == emptied {
            assert!(began.elapsed() < Duration::from_secs(120), "it does not clean: {}", status(&home));
            beside.push(beside_writer(0));
        }
        assert!(free(&home) >= FLOOR_BYTES, "{}", free(&home));
        let above = above("cleaner", &without, &beside);
        await_that(&home, "cleaning", || {
            status(&home)["cleaner"].as_str().is_some_and(|state| state.contains("rests"))
        });
        let is_steady = above.is_empty() || without.iter().chain([&clients(&directory)]).all(is_steady);
        (above, is_steady)
    };
    if let Some(above) = judged(series) {
        assert!(above.is_empty(), "{above:?}");
    }
    daemon.terminate();
    home.check();
}

/// Group of block I/O, of kernels with the first version of control groups, that lets whoever is in it read so often per second.
struct Throttle(PathBuf);

impl Throttle {
    /// None if this machine has no such groups.
    fn new(home: &Home, reads_per_second: u64) -> Option<Throttle> {
        let group = Path::new(GROUPS).join(format!("sinter-agents-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        let throttle = Throttle(group);
        let device = std::fs::metadata(&home.data).expect("it is there").dev();
        let limit = format!("{}:{} {reads_per_second}", libc::major(device), libc::minor(device));
        std::fs::write(throttle.0.join("blkio.throttle.read_iops_device"), limit).ok()?;
        Some(throttle)
    }
    fn put(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("root may");
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // The daemon may still be about to end.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The classes that a scrub slows on a device that has little to spare beside the clients; None if this machine can't make one, or is too busy.
fn slowed_on_a_slow_device(name: &str, bug: Option<&str>) -> Option<Vec<String>> {
    let (home, daemon, directory) = served_with(name, "6G", bug);
    let throttle = Throttle::new(&home, READS_PER_SECOND);
    throttle.iter().for_each(|throttle| throttle.put(daemon.pid()));
    let above = throttle.as_ref().and_then(|_| {
        // It has to meet the device's limit before it knows it: a few turns of each eight.
        scrub(&home, "start");
        (0..warm_up()).for_each(|_| drop(clients(&directory)));
        scrub(&home, "stop");
        let above = slowed(name, &directory, || scrub(&home, "start"), || scrub(&home, "stop"));
        assert!(worked(&home, "scrub") > 0);
        above
    });
    daemon.terminate();
    drop(throttle);
    home.check();
    above
}

#[test]
fn a_scrub_gives_way_on_a_device_that_has_little_to_spare() {
    match slowed_on_a_slow_device("agents-slow", None) {
        Some(above) => assert!(above.is_empty(), "{above:?}"),
        None => println!("not tested: {GROUPS} is missing, or others use the disk"),
    }
    #[cfg(feature = "seeded-bugs")]
    if let Some(above) = slowed_on_a_slow_device("agents-slow-seeded", Some("BudgetIgnored")) {
        assert!(!above.is_empty(), "nobody asks the budget, and clients do not notice");
    }
}
