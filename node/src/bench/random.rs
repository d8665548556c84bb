//! `sinter bench random`: threads that read or overwrite random 4 KiB blocks past the page cache, `depth` of them per
//! file.

use super::engine::{BLOCK_BYTES, Ground, Worker, random_bytes, run};
use super::report::{Progress, Report, Row};
use crate::failure::{Exit, Failure};
use runtime::random::SplitMix;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Each file if nobody says: with four jobs 1 GiB, above a device's own write cache.
const FILE_BYTES_DEFAULT: u64 = 256 << 20;
/// Threads at most: beyond it one machine's bench measures its own scheduling.
pub const THREADS_MAX: u32 = 64;

/// What to measure.
pub struct Plan {
    /// Files.
    pub jobs: u32,
    /// Requests in flight per file.
    pub depth: u32,
    /// Bytes of each file.
    pub file_bytes: Option<u64>,
    /// Time for reading, and again for writing.
    pub time: Duration,
}

/// Measures reads, then writes.
pub fn measure(
    directory: &Path,
    plan: &Plan,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<Report, Failure> {
    let threads = plan.jobs * plan.depth;
    if threads > THREADS_MAX {
        let failure = Failure::new(Exit::Usage, format!("jobs x depth is {threads}, at most {THREADS_MAX}"));
        return Err(failure.next("lower --jobs or --depth"));
    }
    let ground = Ground::make(directory)?;
    let failed = |error: std::io::Error| Failure::io(format!("bench in {}", directory.display()), &error);
    let file_bytes = plan.file_bytes.unwrap_or(FILE_BYTES_DEFAULT);
    for job in 0..plan.jobs {
        progress.begin(format!("laying out file {} of {}", job + 1, plan.jobs));
        ground.lay_out(&file_name(job), file_bytes, u64::from(job), interrupted).map_err(failed)?;
    }
    let mut rows = Vec::new();
    for (mode, write) in [("read", false), ("write", true)] {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        progress.begin(format!("random {mode}, {} files, depth {}", plan.jobs, plan.depth));
        let workers = (0..threads).map(|thread| worker(&ground, thread, plan.jobs, file_bytes, write));
        let workers =
            workers.collect::<std::io::Result<Vec<Worker>>>().map_err(|error| direct_refused(failed, error))?;
        let measured = run(workers, plan.time, progress, interrupted).map_err(failed)?;
        rows.push(Row::of(mode, threads, &measured));
    }
    progress.end();
    let directory = directory.display().to_string();
    let seconds = plan.time.as_secs();
    Ok(Report { bench: "random", directory, block_bytes: BLOCK_BYTES, file_bytes, direct: true, seconds, rows })
}

fn file_name(job: u32) -> String {
    format!("random-{job}")
}

fn direct_refused(failed: impl Fn(std::io::Error) -> Failure, error: std::io::Error) -> Failure {
    if error.raw_os_error() == Some(libc::EINVAL) {
        let failure = Failure::new(Exit::Host, "the file system of this directory refuses direct I/O (O_DIRECT)");
        return failure.next("measure another directory");
    }
    failed(error)
}

fn worker(ground: &Ground, thread: u32, jobs: u32, file_bytes: u64, write: bool) -> std::io::Result<Worker> {
    let file = ground.open(&file_name(thread % jobs), libc::O_DIRECT)?;
    let blocks = file_bytes / BLOCK_BYTES;
    let mut random = SplitMix(u64::from(thread) << 1 | u64::from(write));
    let mut block = random_bytes(BLOCK_BYTES as usize, random.next())?;
    Ok(match write {
        true => Box::new(move || file.write_all_at(&block, random.below(blocks) * BLOCK_BYTES)),
        false => Box::new(move || file.read_exact_at(&mut block, random.below(blocks) * BLOCK_BYTES)),
    })
}
