//! Threads that repeat one operation for a given time and note how long each took.

use super::report::Progress;
use crate::failure::{Exit, Failure};
use runtime::Histogram;
use runtime::buffer::{Buf, Need, Slabs};
use runtime::histogram::Summary;
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The unit of access: the product's block and most databases' smallest page.
pub const BLOCK_BYTES: u64 = 4096;
/// Chunk of laying out a file: as much as one request carries to most file systems.
const LAYOUT_BYTES: usize = 1 << 20;

/// One writer or reader: performs its operation once per call.
pub type Worker = Box<dyn FnMut() -> std::io::Result<()> + Send>;

/// What a measurement found.
pub struct Measured {
    /// How long each operation took.
    pub latency: Summary,
    /// Wall time.
    pub elapsed: Duration,
}

impl Measured {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.latency.count() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// Runs each worker on a thread of its own for `time`, or until `interrupted` or the first error.
pub fn run(
    workers: Vec<Worker>,
    time: Duration,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> std::io::Result<Measured> {
    run_watched(workers, time, progress, interrupted, |_| {})
}

/// As `run`; `watch` hears once a second how many operations are done.
pub fn run_watched(
    workers: Vec<Worker>,
    time: Duration,
    progress: &mut Progress,
    interrupted: &AtomicBool,
    mut watch: impl FnMut(u64),
) -> std::io::Result<Measured> {
    let shared = Arc::new(Shared {
        start: Barrier::new(workers.len() + 1),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
    });
    let threads: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let shared = shared.clone();
            std::thread::spawn(move || repeat(worker, &shared))
        })
        .collect();
    shared.start.wait();
    let begin = Instant::now();
    let mut told = 0;
    while begin.elapsed() < time && !shared.stop.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20).min(time));
        let done = shared.done.load(Ordering::Relaxed);
        progress.tick(begin.elapsed(), time, done);
        if begin.elapsed().as_secs() > told {
            told += 1;
            watch(done);
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a panic ends the process")).collect();
    let elapsed = begin.elapsed();
    let mut latency = Summary::default();
    for result in results {
        result?.add_to(&mut latency);
    }
    Ok(Measured { latency, elapsed })
}

struct Shared {
    start: Barrier,
    stop: AtomicBool,
    /// Operations done, for the progress line.
    done: AtomicU64,
}

fn repeat(mut worker: Worker, shared: &Shared) -> std::io::Result<Histogram> {
    let latency = Histogram::default();
    shared.start.wait();
    let mut before = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        if let Err(error) = worker() {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let now = Instant::now();
        latency.record((now - before).as_nanos() as u64);
        before = now;
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(latency)
}

/// The bench's own directory in the directory that is measured; removed with its files when dropped.
pub struct Ground(PathBuf);

impl Ground {
    /// Makes it.
    pub fn make(directory: &Path) -> Result<Ground, Failure> {
        let shown = directory.display();
        if !directory.is_dir() {
            let failure = Failure::new(Exit::Usage, format!("{shown} is not a directory"));
            return Err(failure.next("give an existing directory to measure"));
        }
        let path = directory.join(format!("sinter-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| Failure::io(format!("can't write to {shown}"), &error))?;
        Ok(Ground(path))
    }
    /// Opens a file of the bench with further open flags, making it if it is not there.
    pub fn open(&self, name: &str, flags: i32) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(self.0.join(name))
    }
    /// Writes a file of `bytes` random bytes and makes them durable, so that overwriting allocates nothing.
    pub fn lay_out(&self, name: &str, bytes: u64, seed: u64, interrupted: &AtomicBool) -> std::io::Result<()> {
        let file = self.open(name, 0)?;
        let chunk = random_bytes(LAYOUT_BYTES, seed)?;
        let mut offset = 0;
        while offset < bytes && !interrupted.load(Ordering::Relaxed) {
            let length = (bytes - offset).min(LAYOUT_BYTES as u64);
            file.write_all_at(&chunk[..length as usize], offset)?;
            offset += length;
        }
        file.sync_all()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// An aligned buffer (direct I/O needs that) of random bytes, which no compression or deduplication shrinks.
pub fn random_bytes(length: usize, seed: u64) -> std::io::Result<Buf> {
    // Each buffer has its own slab: workers share nothing.
    let slabs = Slabs::new(1, 4 << 20);
    let mut buffer = slabs.take(0, length, Need::Third).map_err(|error| std::io::Error::other(error.to_string()))?;
    let mut random = SplitMix(seed);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    Ok(buffer)
}
