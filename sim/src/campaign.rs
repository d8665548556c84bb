//! Many seeds, on all cores of the real machine. Which seeds: `SINTER_SEED` and `SINTER_SEEDS` say, else the day does,
//! so that every day's runs try others.

use crate::scenario::{self, Plan, Summary};
use crate::small::Trouble;
use crate::workload::Focus;
use crate::world::slabs;
use runtime::Slabs;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The plan that was run.
    pub plan: Plan,
    /// The finding.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, focus, once, small } = self.plan;
        writeln!(out, "seed {seed} ({focus:?}): {}", self.what)?;
        let replay = "  replay: cargo run -p sim --release -- --seed";
        if let Some(Trouble { life, calls, nth }) = small {
            return write!(out, "{replay} {seed} --small {life} {calls:?} {nth}");
        }
        match once {
            None => write!(out, "{replay} {seed} --focus {focus:?}"),
            Some(end) => write!(out, "  one life only, which ended by {end:?}"),
        }
    }
}

/// Seeds of a day: more than any campaign runs, so that days don't overlap.
pub const SEEDS_OF_A_DAY: u64 = 100_000_000;

/// The seeds to run: `usual` many unless `SINTER_SEEDS` says otherwise.
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let first = number("SINTER_SEED").unwrap_or(day * SEEDS_OF_A_DAY);
    first..first + number("SINTER_SEEDS").unwrap_or(usual)
}

/// Runs one plan; a panic is a failure like any other.
pub fn run_one(plan: Plan, slabs: &Arc<Slabs>, told: &dyn Fn(&str)) -> Result<Summary, Failure> {
    let run = || scenario::run(plan, slabs, told).map_err(|what| Failure { plan, what });
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause");
        Err(Failure { plan, what: format!("panic: {text}") })
    })
}

/// Runs seeds on all cores until `failures_max` have failed.
pub fn run_many(seeds: Range<u64>, focus: Focus, failures_max: usize) -> (Summary, Vec<Failure>) {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut total, mut failures, mut slabs) = (Summary::default(), Vec::new(), slabs());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.len() >= failures_max {
                return (total, failures);
            }
            match run_one(Plan { focus, ..Plan::new(seed) }, &slabs, &|_| {}) {
                Ok(summary) => total.add(&summary),
                Err(failure) => {
                    failures.push(failure);
                    // A panic may have left them locked.
                    slabs = crate::world::slabs();
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sum = (Summary::default(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (total, failures) = worker.join().expect("panics of seeds are caught");
            sum.0.add(&total);
            sum.1.extend(failures);
        }
    });
    sum.1.sort_by_key(|failure| failure.plan.seed);
    sum
}
