//! The row `stopped`: the disk stands still under overwrites. What lies on flash is read on, and files are deleted on; writes wait.

use super::asked::Asked;
use super::brick::{Brick, Devices};
use super::load::{Clients, Done};
use super::overwrite::WRITERS;
use super::report::{Report, Wish};
use super::watch::Watch;
use crate::flash::ground::{Ground, sync};
use crate::flash::undo::Undo;
use crate::verdicts::load::{FILE, Load, READ};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROW: &str = "stopped";
/// Slowness of a disk that stands still.
const STILL: u64 = u64::MAX;
/// Seconds for which the rate is measured before, and after the rest below; no longer than the standstill.
const SECONDS_MAX: u64 = 30;
/// Seconds after which the rate must be back.
const REST_SECONDS: u64 = 10;
/// Seconds between looks at the state.
const LOOK_SECONDS: u64 = 5;
/// Part of the rate before that is wanted back: what single half minutes differ by.
const BACK_LEAST: f64 = 0.9;
/// Time between deletions.
const DELETE_PAUSE: Duration = Duration::from_millis(200);
/// Time after which a deletion under way must have ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// The file that is read while the disk stands still: written last, it is on flash.
const NEAR_BYTES: usize = 64 << 20;
/// The state's words for a log without room.
const FULL: &str = "no segment is free";

/// The outcome of deletions.
#[derive(Default)]
struct Deleted {
    count: u64,
    errors: u64,
    longest: Duration,
}

/// Files that are deleted one after the other.
struct Deletions {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Deleted>,
}

impl Deletions {
    fn start(files: Vec<PathBuf>) -> Deletions {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = std::thread::spawn(move || {
            let mut deleted = Deleted::default();
            for file in files {
                if told.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                deleted.errors += u64::from(std::fs::remove_file(&file).is_err());
                deleted.count += 1;
                deleted.longest = deleted.longest.max(began.elapsed());
                std::thread::sleep(DELETE_PAUSE);
            }
            deleted
        });
        Deletions { ends, thread }
    }
    /// Ends them. One that never ends is an error.
    fn end(self) -> Result<Deleted, String> {
        self.ends.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while !self.thread.is_finished() {
            if began.elapsed() > PATIENCE {
                return Err(format!("a deletion has not ended after {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(DELETE_PAUSE);
        }
        self.thread.join().map_err(|_| "the thread that deletes files panicked".to_string())
    }
}

/// The seconds' ranges of a run, and what was seen of the brick while the disk stood still.
struct Seen {
    before: std::ops::Range<u64>,
    still: std::ops::Range<u64>,
    after: std::ops::Range<u64>,
    /// Looks at which the log had no room, or took no changes.
    full: u64,
    watch: Watch,
}

/// Lets the disk stand still.
pub fn run(
    asked: &Asked,
    ground: &Ground,
    (brick, devices): (&Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let near = brick.file("near");
    let seconds = asked.stop_seconds + REST_SECONDS + 2 * SECONDS_MAX;
    let files = lay_out(brick, &near, seconds)?;
    let writers = Clients::start(&WRITERS, &brick.file(FILE), &ground.root, "writers", undo)?;
    let reader = Load { think_us: 20_000, ..READ };
    let readers = Clients::start(&reader, &near, &ground.root, "readers", undo)?;
    let deletions = Deletions::start(files);
    let seen = stand_still(asked, (brick, devices), undo)?;
    let deleted = deletions.end()?;
    let (reads, writes) = (readers.end(undo)?, writers.end(undo)?);
    told(&seen, (&writes, &reads, &deleted), report);
    Ok(())
}

/// Writes the file to read and as many files as are deleted in so many seconds.
fn lay_out(brick: &Brick, near: &Path, seconds: u64) -> Result<Vec<PathBuf>, String> {
    let count = seconds * 1000 / DELETE_PAUSE.as_millis() as u64;
    eprintln!("writing {count} files to delete, and one to read");
    let files: Vec<PathBuf> = (0..count).map(|number| brick.file(&format!("gone-{number}"))).collect();
    let written = |path: &Path, bytes: usize| {
        std::fs::write(path, vec![7; bytes]).map_err(|error| format!("{}: {error}", path.display()))
    };
    files.iter().try_for_each(|file| written(file, 4096))?;
    written(near, NEAR_BYTES)?;
    sync()?;
    Ok(files)
}

fn stand_still(asked: &Asked, (brick, devices): (&Brick, &Devices), undo: &Undo) -> Result<Seen, String> {
    let (mut watch, mut full) = (Watch::default(), 0);
    let mut wait = |seconds: u64, full: &mut u64| {
        for second in 0..seconds {
            watch.look(&devices.spindle)?;
            if second % LOOK_SECONDS == 0 {
                let status = brick.status()?;
                let reason = status["cleaner"].as_str().unwrap_or_default();
                *full += u64::from(reason.contains(FULL) || !status["read_only"].is_null());
                eprintln!("{second} s of {seconds}: {reason}");
            }
        }
        Ok::<_, String>(super::watch::now().as_secs())
    };
    let around = asked.stop_seconds.min(SECONDS_MAX);
    // The first second is that of fio's start.
    let first = wait(1, &mut full)?;
    let stopped = wait(around, &mut full)?;
    undo.add(&devices.goes_on)?;
    devices.spindle.set_slowness(STILL)?;
    eprintln!("the disk stands still for {} s", asked.stop_seconds);
    let resumed = wait(asked.stop_seconds, &mut full)?;
    devices.spindle.set_slowness(1)?;
    undo.forget(&devices.goes_on)?;
    eprintln!("the disk goes on");
    let rested = wait(REST_SECONDS, &mut full)?;
    let last = wait(around, &mut full)?;
    Ok(Seen { before: first..stopped, still: stopped..resumed, after: rested..last, full, watch })
}

fn told(seen: &Seen, (writes, reads, deleted): (&Done, &Done, &Deleted), report: &mut Report) {
    let rate = |done: &Done, range: &std::ops::Range<u64>| done.ended.mean(range.clone()).unwrap_or(0.0);
    let still_last = seen.still.start + (seen.still.end - seen.still.start) / 2..seen.still.end;
    let stolen = seen.watch.seconds.iter().filter(|second| second.stolen > super::seconds::STOLEN_MAX).count();
    let (before, after) = (rate(writes, &seen.before), rate(writes, &seen.after));
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    add("failed writes", writes.errors as f64, "", Wish::Zero);
    add("failed reads", reads.errors as f64, "", Wish::Zero);
    add("failed deletions", deleted.errors as f64, "", Wish::Zero);
    add("looks at which the log was full", seen.full as f64, "", Wish::Zero);
    add("writes before", before, "/s", Wish::None);
    add("writes in the second half of the standstill", rate(writes, &still_last), "/s", Wish::None);
    add("writes from 10 s after it on, in those before", after / before.max(1.0), "", Wish::LeastIfAlone(BACK_LEAST));
    add("longest write", writes.ended.longest_ns as f64 / 1e6, "ms", Wish::None);
    add("reads of flash before", rate(reads, &seen.before), "/s", Wish::None);
    add("reads of flash in the standstill", rate(reads, &seen.still), "/s", Wish::Least(1.0));
    add("longest read of flash", reads.ended.longest_ns as f64 / 1e6, "ms", Wish::None);
    add("deletions", deleted.count as f64, "", Wish::None);
    add("longest deletion", deleted.longest.as_secs_f64() * 1e3, "ms", Wish::None);
    add("seconds in which the host took the CPU", stolen as f64, "s", Wish::None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_that_fail_are_counted() {
        let dir = std::env::temp_dir().join(format!("sinter-hybrid-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("there is room");
        let files = [dir.join("there"), dir.join("missing")];
        std::fs::write(&files[0], "").expect("there is room");
        let deletions = Deletions::start(files.to_vec());
        while !deletions.thread.is_finished() {
            std::thread::yield_now();
        }
        let deleted = deletions.end().expect("it has ended");
        assert_eq!((deleted.count, deleted.errors), (2, 1));
        std::fs::remove_dir(&dir).expect("the file is gone");
    }
}
