//! Delays of which a verdict must find the cause. A file, named by an environment variable, says how long they are; it is
//! read again and again, so that a test switches them on and off while requests are under way.
//!
//! Nothing here leaves a figure or a name of its own: what an observer sees are a lock that is held, an engine that is slow
//! and a pool whose threads have other work.

use base::{Error, Kind, Result};
use group::Groups;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::index::{Index, IndexEdit, Pair, Peeked};

/// The variable that names the file. Each of its lines is a delay's name and its numbers: `lock-held MICROSECONDS
/// TIMES-PER-SECOND`, `engine-delayed MICROSECONDS`, `pool-delayed MICROSECONDS`. What it leaves out is off.
const FILE: &str = "SINTER_TEST_DELAYS";
/// The variable that keeps the index out of memory if it is 1: otherwise a small brick's rows are read once and never again.
const COLD: &str = "SINTER_TEST_COLD";
/// Time between two looks at the file.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of all the groups' caches when the index is to stay out of memory: room for a few requests' rows.
const COLD_CACHE_BYTES: u64 = 256 << 10;
/// Twice the pool's largest number of threads: so many jobs at a time keep all of them busy, with as many in the queue.
const JOBS: usize = 128;

/// The delays as the file has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Delays {
    lock_held_us: u64,
    lock_per_second: u64,
    engine_us: u64,
    pool_us: u64,
}

impl Delays {
    /// Reads a file's text. Errors: the line that is not understood.
    fn read(text: &str) -> std::result::Result<Delays, String> {
        let mut delays = Delays::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse::<u64>().map_err(|_| line.to_string());
            match words[..] {
                ["lock-held", held, times] => {
                    (delays.lock_held_us, delays.lock_per_second) = (number(held)?, number(times)?);
                }
                ["engine-delayed", us] => delays.engine_us = number(us)?,
                ["pool-delayed", us] => delays.pool_us = number(us)?,
                _ => return Err(line.to_string()),
            }
        }
        Ok(delays)
    }
    /// The time between the starts of two holds of the lock.
    fn lock_period(&self) -> Option<Duration> {
        let is_on = self.lock_held_us > 0 && self.lock_per_second > 0;
        is_on.then(|| Duration::from_nanos(1_000_000_000 / self.lock_per_second))
    }
}

/// The file, as it was at the last look: a half-written one changes nothing.
struct Watched {
    path: PathBuf,
    delays: Delays,
}

impl Watched {
    fn look(&mut self) -> Delays {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        self.delays = Delays::read(&text).unwrap_or(self.delays);
        self.delays
    }
}

fn is_cold() -> bool {
    std::env::var_os(COLD).is_some_and(|value| value == "1")
}

/// Options with caches so small that rows come from the index again and again, if that is asked for.
pub fn cold(options: group::Options) -> group::Options {
    if is_cold() { group::Options { cache_bytes: COLD_CACHE_BYTES, ..options } } else { options }
}

/// The index behind its delay.
pub fn delayed(index: Arc<dyn Index>) -> Arc<dyn Index> {
    let Some(path) = std::env::var_os(FILE) else { return index };
    let us = Arc::new(AtomicU64::new(0));
    let (mut watched, told) = (Watched { path: path.into(), delays: Delays::default() }, us.clone());
    let spawned = std::thread::Builder::new().spawn(move || {
        loop {
            told.store(watched.look().engine_us, Ordering::Relaxed);
            std::thread::sleep(LOOK);
        }
    });
    spawned.expect("a test's machine has room for a thread");
    Arc::new(Delayed { index, us, cold: is_cold() })
}

/// An index whose reads take longer.
struct Delayed {
    index: Arc<dyn Index>,
    us: Arc<AtomicU64>,
    cold: bool,
}

impl Delayed {
    fn wait(&self) {
        pause(Duration::from_micros(self.us.load(Ordering::Relaxed)));
    }
}

impl Index for Delayed {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.wait();
        self.index.get(key)
    }
    fn peek(&self, key: &[u8]) -> Result<Peeked> {
        if self.cold { Ok(Peeked::Unknown) } else { self.index.peek(key) }
    }
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.wait();
        self.index.get_many(keys)
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        self.wait();
        self.index.scan(from, to, count)
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.index.write(edits)
    }
    fn persist(&self) -> Result<()> {
        self.index.persist()
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        let index = self.index.clone().snapshot()?;
        Ok(Arc::new(Delayed { index, us: self.us.clone(), cold: self.cold }))
    }
    fn written_bytes(&self) -> u64 {
        self.index.written_bytes()
    }
    fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }
}

/// Sleeps, if there is anything to sleep for: even a sleep of nothing takes a timer's time.
fn pause(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// Starts what holds the groups' locks and what keeps the pool busy, while the file says so. Errors: the file can't be read.
pub fn obey(groups: &Arc<Groups>) -> Result<()> {
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
    let wrong = |what: String| Error::new(Kind::Invalid, "the file that SINTER_TEST_DELAYS names").with(what);
    let text =
        std::fs::read_to_string(&path).map_err(|error| wrong(format!("{}: {error}", Path::new(&path).display())))?;
    Delays::read(&text).map_err(wrong)?;
    let path = PathBuf::from(path);
    // Weak: a brick that is closed ends them.
    let (holder, occupier) = (Arc::downgrade(groups), Arc::downgrade(groups));
    let mut watched = Watched { path: path.clone(), delays: Delays::default() };
    let hold = move || {
        while let Some(groups) = holder.upgrade() {
            let delays = watched.look();
            let Some(period) = delays.lock_period() else {
                drop(groups);
                std::thread::sleep(LOOK);
                continue;
            };
            let held = Duration::from_micros(delays.lock_held_us);
            for _ in 0..(LOOK.as_nanos() / period.as_nanos()).max(1) {
                groups.hold_locks(|| pause(held));
                pause(period.saturating_sub(held));
            }
        }
    };
    let mut watched = Watched { path, delays: Delays::default() };
    let us = Arc::new(AtomicU64::new(0));
    let occupy = move || {
        while let Some(groups) = occupier.upgrade() {
            let (before, now) = (us.load(Ordering::Relaxed), watched.look().pool_us);
            us.store(now, Ordering::Relaxed);
            if before == 0 && now > 0 {
                (0..JOBS).for_each(|_| sleep_in_pool(groups.store().runtime.tasks.clone(), us.clone()));
            }
            drop(groups);
            std::thread::sleep(LOOK);
        }
    };
    std::thread::Builder::new().spawn(hold).expect("a test's machine has room for a thread");
    std::thread::Builder::new().spawn(occupy).expect("a test's machine has room for a thread");
    Ok(())
}

/// A job that takes a thread of the pool for the delay, and comes again until there is none any more.
fn sleep_in_pool(tasks: Arc<dyn runtime::Tasks>, us: Arc<AtomicU64>) {
    let again = tasks.clone();
    tasks.blocking(Box::new(move || {
        let delay_us = us.load(Ordering::Relaxed);
        pause(Duration::from_micros(delay_us));
        if delay_us > 0 {
            sleep_in_pool(again, us);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_which_delays_there_are() {
        assert_eq!(Delays::read(""), Ok(Delays::default()));
        let text = "lock-held 500 200\nengine-delayed 300\n";
        let delays = Delays { lock_held_us: 500, lock_per_second: 200, engine_us: 300, pool_us: 0 };
        assert_eq!(Delays::read(text), Ok(delays));
        assert_eq!(delays.lock_period(), Some(Duration::from_millis(5)));
        assert_eq!(Delays::read("lock-held 0 0\npool-delayed 7").map(|delays| delays.lock_period()), Ok(None));
    }

    #[test]
    fn a_line_that_is_not_understood_is_told() {
        for line in ["lock-held 5", "engine-delayed", "pool-delayed soon", "flush 3"] {
            assert_eq!(Delays::read(&format!("engine-delayed 1\n{line}\n")), Err(line.to_string()));
        }
    }

    #[test]
    fn a_file_that_is_half_written_changes_nothing() {
        let delays = Delays { pool_us: 9, ..Delays::default() };
        let path = std::env::temp_dir().join(format!("sinter-delays-{}", std::process::id()));
        let mut watched = Watched { path: path.clone(), delays };
        std::fs::write(&path, "pool-del").expect("a test's directory can be written");
        assert_eq!(watched.look(), delays);
        std::fs::write(&path, "pool-delayed 3").expect("a test's directory can be written");
        assert_eq!(watched.look(), Delays { pool_us: 3, ..Delays::default() });
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(watched.look(), Delays::default());
    }
}
