//! Switches for the test suite, compiled in only with the feature `seeded-bugs`: a volatile write cache that dies
//! with the process, another patience with open files at the end, a number of the pool's threads, single wrong decisions that the suite must catch, and delays
//! (`delays`). Never in a product build.

mod delays;

pub use delays::{cold, delayed, obey};

use crate::daemon::say;
use crate::failure::{Exit, Failure};
use runtime::seeded::{Bug, set_for_process};
use std::time::Duration;

const VOLATILE_CACHE: &str = "SINTER_TEST_VOLATILE_CACHE";
const PATIENCE: &str = "SINTER_TEST_PATIENCE_MS";
const BUG: &str = "SINTER_TEST_BUG";
const POOL_THREADS: &str = "SINTER_TEST_POOL_THREADS";
/// The numbers of threads that a measurement may ask for.
const POOL_THREADS_ALLOWED: std::ops::RangeInclusive<usize> = 1..=64;

/// Reads the switches from the environment, and says loudly what is on.
pub fn apply() -> Result<(), Failure> {
    if volatile_cache() {
        say(
            "WARNING: TEST BUILD: unflushed writes stay in memory and die with this process (SINTER_TEST_VOLATILE_CACHE)",
        );
    }
    if let Some(value) = std::env::var_os(POOL_THREADS) {
        let value = value.to_string_lossy().into_owned();
        if pool_threads().is_none() {
            let failure = Failure::new(Exit::Usage, format!("{POOL_THREADS}={value}: no pool has so many threads"));
            return Err(failure.next("a number from 1 to 64".to_string()));
        }
        say(&format!("WARNING: TEST BUILD: the pool does not find its own size ({POOL_THREADS}={value})"));
    }
    let Some(name) = std::env::var_os(BUG) else { return Ok(()) };
    let name = name.to_string_lossy().into_owned();
    let bug = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    let bug = bug.ok_or_else(|| {
        let failure = Failure::new(Exit::Usage, format!("{BUG}={name}: there is no such bug"));
        failure.next(format!("one of {:?}", Bug::ALL))
    })?;
    say(&format!("WARNING: TEST BUILD: this process makes a mistake on purpose, data will be lost ({BUG}={name})"));
    set_for_process(bug);
    Ok(())
}

/// True if the volatile write cache is asked for.
pub fn volatile_cache() -> bool {
    std::env::var_os(VOLATILE_CACHE).is_some_and(|value| value == "1")
}

/// The number of threads for jobs that clients wait for, if one is asked for.
pub fn pool_threads() -> Option<usize> {
    let threads = std::env::var(POOL_THREADS).ok()?.parse().ok()?;
    POOL_THREADS_ALLOWED.contains(&threads).then_some(threads)
}

/// Time for which files that stay open are served when the daemon ends, if that is not the usual time.
pub fn patience() -> Option<Duration> {
    let ms = std::env::var(PATIENCE).ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}
