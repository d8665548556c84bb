//! Keeps the machine's CPUs easy to wake while requests follow each other closely: a request at depth 1 otherwise waits
//! mostly for CPUs that have just gone to sleep, the core's and its client's (decision 0018).
//!
//! It asks by Linux's PM QoS: whoever holds `/dev/cpu_dma_latency` open names the longest that waking a CPU may take.
//! Promises: nothing is asked for and nothing runs while there are no requests; nothing is left of a killed daemon, for
//! the kernel forgets what was asked with the descriptor.

use super::figures::Figures;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Where Linux takes the longest time in microseconds, as four bytes.
const REQUEST: &str = "/dev/cpu_dma_latency";
/// Tells which kind of idle states there are.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// No request.
const ANY_US: i32 = -1;

/// How often the watcher looks while there are requests: it lets go this long after the last.
const PERIOD: Duration = Duration::from_millis(5);
/// A core that took this many turns in a period has one every 600 us, or half as many requests: one client's large ones, one after
/// the other, each of which waits for CPUs four times and more. Turns, not sleeps: a core that is too busy to sleep still waits
/// for those whom others' CPUs run.
const DENSE_TURNS: u64 = 8;
/// Below this it lets go; half, so that it does not change its mind with every period.
const SPARSE_TURNS: u64 = DENSE_TURNS / 2;
/// After so many periods in which nothing was worth asking for, the watcher sleeps: a core's own timers turn it a few
/// times in a period at most.
const QUIET_PERIODS: u32 = 4;
/// A core looks whether the watcher runs once in this many sleeps.
const LOOK_SLEEPS: u64 = 64;

/// The watcher's thread, and the way to wake it.
pub(super) struct Wakeful {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    /// Nobody looks now.
    parked: AtomicBool,
    stop: AtomicBool,
}

/// What the watcher asks for.
struct Request {
    file: File,
    /// While requests are dense.
    bound_us: i32,
    asked: bool,
}

impl Wakeful {
    /// Starts the watcher; none where the kernel takes no such request from this user.
    pub fn start(figures: &[Arc<Figures>]) -> Option<(Wakeful, JoinHandle<()>)> {
        let request = Request::open(Path::new(REQUEST), &std::fs::read_to_string(DRIVER).unwrap_or_default())?;
        let (shared, figures) = (Arc::new(Shared::default()), figures.to_vec());
        let body = {
            let shared = shared.clone();
            move || watch(&shared, &figures, request)
        };
        let handle = std::thread::Builder::new().name("sinter-wakeful".into()).spawn(body).ok()?;
        Some((Wakeful { shared, thread: handle.thread().clone() }, handle))
    }
    /// A core goes to sleep, for this time since its start.
    pub fn sleeps(&self, count: u64) {
        if count.is_multiple_of(LOOK_SLEEPS) && self.shared.parked.load(Ordering::Relaxed) {
            self.thread.unpark();
        }
    }
    /// Has the watcher end.
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
    /// A period is over, in which the busiest core took so many turns.
    fn period(&mut self, turns: u64) {
        self.ask(turns >= if self.asked { SPARSE_TURNS } else { DENSE_TURNS });
    }
}

/// The watcher's life.
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
        let path = std::env::temp_dir().join(format!("sinter-wakeful-{}", std::process::id()));
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
