//! Threads that repeat one operation for a given time, or until nothing is left to do, and note how long each took.

use super::report::Progress;
use crate::failure::{Exit, Failure};
use crate::host;
use runtime::Histogram;
use runtime::buffer::{Buf, Need, Slabs};
use runtime::histogram::Summary;
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The unit of access: the product's block and most databases' smallest page.
pub const BLOCK_BYTES: u64 = 4096;
/// Chunk of laying out a file: as much as one request carries to most file systems.
pub const LAYOUT_BYTES: usize = 1 << 20;
/// Threads at most: beyond it one machine's bench measures its own scheduling.
pub const THREADS_MAX: u32 = 64;

/// The result of one call of a worker.
pub enum Step {
    /// An operation was done, on so many bytes.
    Done(u64),
    /// The same, but it counts from when it was due, however late it began.
    DoneSince(u64, Instant),
    /// Nothing was due yet.
    Idle,
    /// Nothing is left to do, and nothing was done.
    End,
}

/// One writer or reader: performs its operation once per call.
pub type Worker = Box<dyn FnMut() -> Result<Step> + Send>;

/// The result of a measurement.
pub struct Measured {
    /// Durations of operations.
    pub latency: Summary,
    /// Bytes of all operations.
    pub bytes: u64,
    /// Wall time until the last operation's end.
    pub elapsed: Duration,
}

impl Measured {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.latency.count() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// The companion of all measurements of a bench: the receiver of progress, the signal that ends it early, and the notes
/// that its report must have beside the figures.
pub struct Course {
    progress: Progress,
    interrupted: Arc<AtomicBool>,
    /// Said before each measurement: whose turn it is.
    turn: String,
    notes: Vec<String>,
}

impl Course {
    /// A course that goes on until `interrupted`.
    pub fn new(progress: Progress, interrupted: Arc<AtomicBool>) -> Course {
        Course { progress, interrupted, turn: String::new(), notes: Vec::new() }
    }
    /// The bench is to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
    /// Sets whose turn it is.
    pub fn set_turn(&mut self, turn: String) {
        self.turn = turn;
    }
    /// A new measurement, or a preparation, begins.
    pub fn begin(&mut self, what: &str) {
        self.progress.begin(format!("{}{what}", self.turn));
    }
    /// Nothing more will be said.
    pub fn end(&mut self) {
        self.progress.end();
    }
    /// Something that who reads the figures must know; it is told once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
    /// All notes since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
    /// Has the kernel forget what it holds of files, so that what is read next is read cold.
    pub fn forget_files(&mut self) {
        if let Err(error) = host::drop_caches() {
            self.note(format!(
                "the kernel's caches could not be dropped ({error}): what is called cold was read from memory; run it as root"
            ));
        }
    }
}

/// Runs each worker on a thread of its own for `time`, or until it has nothing left to do, an interruption or the first error.
pub fn run(workers: Vec<Worker>, time: Duration, course: &mut Course) -> Result<Measured> {
    run_groups(vec![workers], time, course, |_| {}).map(|mut groups| groups.remove(0))
}

/// Runs several groups of workers at the same time, each measured by itself; see `run`. All end once the first group
/// has nothing left to do. `watch` is told once a second how many operations the first group has done.
pub fn run_groups(
    groups: Vec<Vec<Worker>>,
    time: Duration,
    course: &mut Course,
    mut watch: impl FnMut(u64),
) -> Result<Vec<Measured>> {
    let first = groups.first().map_or(0, Vec::len);
    let shared = Arc::new(Shared {
        start: Barrier::new(groups.iter().map(Vec::len).sum::<usize>() + 1),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        running: AtomicUsize::new(first),
    });
    let start = |(group, worker): (usize, Worker)| {
        let shared = shared.clone();
        (group, std::thread::spawn(move || repeat(worker, group == 0, &shared)))
    };
    let workers =
        groups.into_iter().enumerate().map(|(group, workers)| workers.into_iter().map(move |worker| (group, worker)));
    let count = workers.len();
    let threads: Vec<_> = workers.flatten().map(start).collect();
    shared.start.wait();
    let begin = Instant::now();
    let mut told = 0;
    while begin.elapsed() < time && !shared.is_over() && !course.is_interrupted() {
        std::thread::sleep(Duration::from_millis(20).min(time));
        let done = shared.done.load(Ordering::Relaxed);
        course.progress.tick(begin.elapsed(), time, done);
        if begin.elapsed().as_secs() > told {
            told += 1;
            watch(done);
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    let empty = || Measured { latency: Summary::default(), bytes: 0, elapsed: Duration::ZERO };
    let mut measured: Vec<Measured> = (0..count).map(|_| empty()).collect();
    // All are waited for before the first error is told: whoever hears it may remove their files.
    let ended = threads.into_iter().map(|(group, thread)| (group, thread.join().expect("a panic ends the process")));
    for (group, part) in ended.collect::<Vec<_>>() {
        let (part, sum) = (part?, &mut measured[group]);
        part.latency.add_to(&mut sum.latency);
        sum.bytes += part.bytes;
        sum.elapsed = sum.elapsed.max(part.elapsed);
    }
    Ok(measured)
}

struct Shared {
    start: Barrier,
    stop: AtomicBool,
    /// Operations of the first group, for the progress line.
    done: AtomicU64,
    /// Workers of the first group that have something left to do.
    running: AtomicUsize,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.running.load(Ordering::Relaxed) == 0
    }
}

/// The part of one worker.
struct Part {
    latency: Histogram,
    bytes: u64,
    elapsed: Duration,
}

fn repeat(mut worker: Worker, is_first: bool, shared: &Shared) -> Result<Part> {
    let (latency, mut bytes) = (Histogram::default(), 0);
    shared.start.wait();
    let begin = Instant::now();
    let (mut before, mut end) = (begin, begin);
    while !shared.stop.load(Ordering::Relaxed) {
        let step = worker().inspect_err(|_| shared.stop.store(true, Ordering::Relaxed))?;
        let now = Instant::now();
        let (moved, since) = match step {
            Step::Done(moved) => (moved, before),
            Step::DoneSince(moved, due) => (moved, due),
            Step::Idle => {
                before = now;
                continue;
            }
            Step::End => break,
        };
        latency.record((now - since).as_nanos() as u64);
        bytes += moved;
        (before, end) = (now, now);
        if is_first {
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
    }
    if is_first {
        shared.running.fetch_sub(1, Ordering::Relaxed);
    }
    Ok(Part { latency, bytes, elapsed: end - begin })
}

/// Numbers from 0, each of which one worker gets.
pub struct Tickets {
    next: AtomicU64,
    count: u64,
}

impl Tickets {
    /// Tickets, `count` of them.
    pub fn new(count: u64) -> Arc<Tickets> {
        Arc::new(Tickets { next: AtomicU64::new(0), count })
    }
    /// The next one, if any is left.
    pub fn take(&self) -> Option<u64> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < self.count)
    }
    /// Number of tickets.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Number of tickets taken.
    pub fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.count)
    }
}

/// A step with which all of so many are reached, each once, in an order that is none for who looks ahead: about the golden
/// section of them, and without a common factor. For less than 2^32, so that a product fits.
pub fn stride(count: u64) -> u64 {
    let common = |mut one: u64, mut other: u64| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let golden = count * 618 / 1000 + 1;
    (golden..).find(|step| common(*step, count) == 1).expect("every number has a neighbour without a common factor")
}

/// The bench's own directory in the directory that is measured; removed with its files when dropped.
pub struct Ground {
    path: PathBuf,
    is_kept: bool,
}

impl Ground {
    /// Makes it.
    pub fn make(directory: &Path, name: &str) -> std::result::Result<Ground, Failure> {
        let shown = directory.display();
        if !directory.is_dir() {
            let failure = Failure::new(Exit::Usage, format!("{shown} is not a directory"));
            return Err(failure.next("give an existing directory to measure"));
        }
        let path = directory.join(name);
        std::fs::create_dir(&path).map_err(|error| Failure::io(format!("can't write to {shown}"), &error))?;
        Ok(Ground { path, is_kept: false })
    }
    /// One that an earlier run kept.
    pub fn existing(directory: &Path, name: &str) -> Option<Ground> {
        let path = directory.join(name);
        path.is_dir().then_some(Ground { path, is_kept: false })
    }
    /// Leaves it and its files for a later run.
    pub fn keep(mut self) -> Ground {
        self.is_kept = true;
        self
    }
    /// The path of a file of the bench.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
    /// Opens a file of the bench with further open flags, making it if it is not there.
    pub fn open(&self, name: &str, flags: i32) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(self.path(name))
    }
    /// Writes a file of `bytes` random bytes and makes them durable, so that overwriting allocates nothing.
    pub fn lay_out(&self, name: &str, bytes: u64, seed: u64, course: &Course) -> Result<()> {
        let file = self.open(name, 0)?;
        let chunk = random_bytes(LAYOUT_BYTES, seed)?;
        let mut offset = 0;
        while offset < bytes && !course.is_interrupted() {
            let length = (bytes - offset).min(LAYOUT_BYTES as u64);
            file.write_all_at(&chunk[..length as usize], offset)?;
            offset += length;
        }
        file.sync_all()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.is_kept {
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}

/// An aligned buffer (direct I/O needs that) of random bytes, which no compression or deduplication shrinks.
pub fn random_bytes(length: usize, seed: u64) -> Result<Buf> {
    // Each buffer has its own slab: workers share nothing.
    let slabs = Slabs::new(1, 4 << 20);
    let mut buffer =
        slabs.take(0, length, Need::Finishing).map_err(|error| std::io::Error::other(error.to_string()))?;
    let mut random = SplitMix(seed);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    Ok(buffer)
}
