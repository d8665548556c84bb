//! The CPU time of a daemon's threads, as the scheduler counts it.

use std::collections::BTreeMap;

/// Nanoseconds for which each thread of a process has run, by its id.
pub struct Threads(BTreeMap<u32, u64>);

/// The first number of a thread's `schedstat`: nanoseconds on a CPU.
fn run_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

impl Threads {
    /// The threads of a process now.
    pub fn of(process: u32) -> Result<Threads, String> {
        let path = format!("/proc/{process}/task");
        let wrong = |error: std::io::Error| format!("the daemon has ended: {path}: {error}");
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir(&path).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let id = entry.file_name().to_string_lossy().parse::<u32>().ok();
            // One that ends meanwhile has no figures.
            let ran = std::fs::read_to_string(entry.path().join("schedstat")).ok().and_then(|text| run_ns(&text));
            threads.extend(id.zip(ran));
        }
        Ok(Threads(threads))
    }
    /// Nanoseconds since `earlier`: of all threads, and of the busiest.
    pub fn since(&self, earlier: &Threads) -> (u64, u64) {
        let ran = |(id, now): (&u32, &u64)| now.saturating_sub(earlier.0.get(id).copied().unwrap_or(0));
        self.0.iter().map(ran).fold((0, 0), |(sum, most), ran| (sum + ran, most.max(ran)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_busiest_thread_is_told_beside_all() {
        assert_eq!((run_ns("123 4 5\n"), run_ns("")), (Some(123), None));
        let (before, after) = ([(1, 100), (2, 50)], [(1, 130), (2, 150), (3, 7)]);
        let [before, after] = [Threads(before.into()), Threads(after.into())];
        assert_eq!(after.since(&before), (30 + 100 + 7, 100));
    }

    #[test]
    fn this_process_has_threads_and_one_that_ended_is_an_error() {
        let before = Threads::of(std::process::id()).expect("it runs");
        // The kernel counts a thread that runs on at its ticks.
        let (began, mut sum) = (Instant::now(), 0u64);
        while began.elapsed() < Duration::from_millis(100) {
            sum = std::hint::black_box(sum + 1);
        }
        let (all, most) = Threads::of(std::process::id()).expect("it runs").since(&before);
        assert!(most > 0 && all >= most);
        assert!(Threads::of(u32::MAX).is_err());
    }
}
