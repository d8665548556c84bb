//! Bounds the wake-up latency of the machine's CPUs while requests follow each other closely. Otherwise a request at
//! depth 1 mostly waits for CPUs that have just gone to sleep, the core's and its client's (decision 0018).
//!
//! The bound is set by Linux's PM QoS: a process that holds `/dev/cpu_dma_latency` open names the longest time that
//! waking a CPU may take. Promises: while there are no requests, no bound is set and no thread runs; a killed daemon
//! leaves nothing behind, as the kernel drops the bound with the descriptor.

use super::figures::Figures;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// The file of Linux's PM QoS that takes the longest wake-up time, in microseconds, as four bytes.
const REQUEST: &str = "/dev/cpu_dma_latency";
/// The file that names the driver of idle states.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The value that sets no bound.
const ANY_US: i32 = -1;

/// Time between two checks of the watcher while there are requests. It lifts the bound this long after the last one.
const PERIOD: Duration = Duration::from_millis(5);
/// Turns of a core in a period from which on requests are dense: a turn every 600 us. That is half as many requests,
/// one client's large ones one after the other, each of which waits for CPUs four times and more. Turns are counted,
/// not sleeps: a core that is too busy to sleep still waits for threads that other CPUs run.
const DENSE_TURNS: u64 = 8;
/// Turns below which the bound is lifted: half, so that it does not change with every period.
const SPARSE_TURNS: u64 = DENSE_TURNS / 2;
/// Number of periods without dense requests after which the watcher sleeps: a core's own timers cause a few turns in a
/// period at most.
const QUIET_PERIODS: u32 = 4;
/// Sleeps of a core between two checks whether the watcher runs.
const LOOK_SLEEPS: u64 = 64;

/// The watcher's thread, and the way to wake it.
pub(super) struct PmQos {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    /// True while the watcher sleeps.
    parked: AtomicBool,
    stop: AtomicBool,
}

/// The bound that the watcher sets.
struct Request {
    file: File,
    /// The bound while requests are dense, in microseconds.
    bound_us: i32,
    asked: bool,
}

impl PmQos {
    /// Starts the watcher; None if the kernel takes no such bound from this user.
    pub fn start(figures: &[Arc<Figures>]) -> Option<(PmQos, JoinHandle<()>)> {
        let request = Request::open(Path::new(REQUEST), &std::fs::read_to_string(DRIVER).unwrap_or_default())?;
        let (shared, figures) = (Arc::new(Shared::default()), figures.to_vec());
        let body = {
            let shared = shared.clone();
            move || watch(&shared, &figures, request)
        };
        let handle = std::thread::Builder::new().name("sinter-pm-qos".into()).spawn(body).ok()?;
        Some((PmQos { shared, thread: handle.thread().clone() }, handle))
    }
    /// Notes that a core goes to sleep, for the `count`th time since its start.
    pub fn sleeps(&self, count: u64) {
        if count.is_multiple_of(LOOK_SLEEPS) && self.shared.parked.load(Ordering::Relaxed) {
            self.thread.unpark();
        }
    }
    /// Ends the watcher.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Request {
    fn open(path: &Path, driver: &str) -> Option<Request> {
        let file = File::options().write(true).open(path).ok()?;
        // A virtual machine's only idle state says that it takes a microsecond, but gives the CPU back to the host: none
        // will do. Elsewhere the lightest state is woken from in a microsecond or two, and spares the other CPUs' power.
        let bound_us = if driver.trim() == "haltpoll" { 0 } else { 2 };
        let mut request = Request { file, bound_us, asked: true };
        // The kernel takes a descriptor without a number for the strictest of all requests.
        request.ask(false);
        Some(request)
    }
    fn ask(&mut self, wanted: bool) {
        if self.asked != wanted {
            let bound_us = if wanted { self.bound_us } else { ANY_US };
            // If it is refused, requests only take as long as without.
            let _ = self.file.write_all(&bound_us.to_ne_bytes());
            self.asked = wanted;
        }
    }
    /// Ends a period in which the busiest core took `turns` turns: sets or lifts the bound.
    fn period(&mut self, turns: u64) {
        self.ask(turns >= if self.asked { SPARSE_TURNS } else { DENSE_TURNS });
    }
}

/// The life of the watcher's thread.
fn watch(shared: &Shared, figures: &[Arc<Figures>], mut request: Request) {
    let mut before: Vec<u64> = figures.iter().map(|figures| figures.turns()).collect();
    let mut quiet = QUIET_PERIODS;
    while !shared.stop.load(Ordering::Acquire) {
        if quiet >= QUIET_PERIODS {
            shared.parked.store(true, Ordering::Relaxed);
            std::thread::park();
            shared.parked.store(false, Ordering::Relaxed);
            before = figures.iter().map(|figures| figures.turns()).collect();
            quiet = 0;
        }
        std::thread::sleep(PERIOD);
        let mut most = 0;
        for (figures, before) in figures.iter().zip(&mut before) {
            let now = figures.turns();
            most = most.max(now - std::mem::replace(before, now));
        }
        request.period(most);
        quiet = if request.asked { 0 } else { quiet + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_while_requests_are_dense() {
        let path = std::env::temp_dir().join(format!("sinter-pm-qos-{}", std::process::id()));
        std::fs::write(&path, "").expect("writable");
        let said = || {
            let bytes = std::fs::read(&path).expect("readable");
            let numbers = bytes.chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().expect("four")));
            numbers.collect::<Vec<_>>()
        };
        let mut request = Request::open(&path, "haltpoll\n").expect("it is there");
        assert_eq!(said(), [ANY_US], "nothing is asked for at first");
        request.period(DENSE_TURNS - 1);
        assert_eq!(said(), [ANY_US]);
        request.period(DENSE_TURNS);
        request.period(SPARSE_TURNS);
        assert_eq!(said(), [ANY_US, 0]);
        request.period(SPARSE_TURNS - 1);
        request.period(0);
        assert_eq!(said(), [ANY_US, 0, ANY_US]);
        assert_eq!(Request::open(&path, "intel_idle\n").expect("it is there").bound_us, 2);
        std::fs::remove_file(&path).expect("it is there");
        assert!(Request::open(&path, "").is_none(), "where there is no such file there is no watcher");
    }
}
