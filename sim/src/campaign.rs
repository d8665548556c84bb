//! Many seeds, on all cores of the real machine. Which seeds: `SINTER_SEED` and `SINTER_SEEDS` say, else the day does,
//! so that every day's runs try others.

use crate::scenario::{Failure, Summary};
use crate::world::slabs;
use runtime::Slabs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seeds of a day: more than any campaign runs, so that days don't overlap.
const SEEDS_OF_A_DAY: u64 = 100_000_000;

/// The seeds to run: `usual` many unless `SINTER_SEEDS` says otherwise.
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let first = number("SINTER_SEED").unwrap_or(day * SEEDS_OF_A_DAY);
    first..first + number("SINTER_SEEDS").unwrap_or(usual)
}

/// Runs one seed; a panic is a failure like any other.
pub fn run_one<R>(seed: u64, run: impl FnOnce(u64) -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause");
        Err(Failure { seed, what: format!("panic: {text}") })
    })
}

/// Runs seeds on `threads` threads until `failures_max` have failed.
pub fn run_many<F>(seeds: Range<u64>, threads: usize, failures_max: usize, run: F) -> (Summary, Vec<Failure>)
where
    F: Fn(u64, &Arc<Slabs>) -> Result<Summary, Failure> + Sync,
{
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut total, mut failures, mut slabs) = (Summary::default(), Vec::new(), slabs());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.len() >= failures_max {
                return (total, failures);
            }
            match run_one(seed, |seed| run(seed, &slabs)) {
                Ok(summary) => total.add(&summary),
                Err(failure) => {
                    failures.push(failure);
                    // A panic may have left them locked.
                    slabs = crate::world::slabs();
                }
            }
        }
    };
    let mut sum = (Summary::default(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (total, failures) = worker.join().expect("panics of seeds are caught");
            sum.0.add(&total);
            sum.1.extend(failures);
        }
    });
    sum.1.sort_by_key(|failure| failure.seed);
    sum
}

/// Says how to replay a failure.
pub fn replay(failure: &Failure) -> String {
    let Failure { seed, what } = failure;
    format!("seed {seed}: {what}\n  replay: cargo run -p sim --release -- --seed {seed}")
}
