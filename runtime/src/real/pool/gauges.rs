//! The kernel's figures of a pool's threads: the CPU time that they had, and how long they waited for a CPU.

use super::size::Parts;
use crate::real::clock;
use rustix::thread::gettid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// The file with a thread's CPU time, its waits for a CPU in nanoseconds, and the number of its turns. A kernel without it
/// has waits for a CPU count as waits for the device.
const WAITS: &str = "/proc/thread-self/schedstat";
/// Room for three numbers.
const WAITS_BYTES: usize = 64;

/// The figures of a thread.
pub(super) struct Gauge {
    id: usize,
    clock: libc::clockid_t,
    waits: Option<File>,
}

impl Gauge {
    /// Those of the calling thread, which has this number.
    pub fn of_this_thread(id: usize) -> Gauge {
        // The clock of a thread's CPU time, as pthread_getcpuclockid makes it of the thread's number: see clock_getres(2).
        let clock = (!gettid().as_raw_nonzero().get() << 3) | 6;
        Gauge { id, clock, waits: File::open(WAITS).ok() }
    }
    fn read(&self) -> Parts {
        Parts { cpu_ns: clock::read_ns(self.clock), ready_ns: self.ready_ns().unwrap_or(0) }
    }
    fn ready_ns(&self) -> Option<u64> {
        let mut text = [0; WAITS_BYTES];
        let length = self.waits.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_whitespace().nth(1)?.parse().ok()
    }
}

/// The figures of all threads.
#[derive(Default)]
pub(super) struct Gauges(Mutex<State>);

#[derive(Default)]
struct State {
    threads: Vec<Gauge>,
    /// The parts of threads that have ended.
    ended: Parts,
}

impl Gauges {
    /// Adds a thread. It must be removed before it ends.
    pub fn add(&self, gauge: Gauge) {
        self.0.lock().expect("no panic while held").threads.push(gauge);
    }
    /// Removes the thread with this number.
    pub fn remove(&self, id: usize) {
        let mut state = self.0.lock().expect("no panic while held");
        if let Some(at) = state.threads.iter().position(|gauge| gauge.id == id) {
            let gauge = state.threads.swap_remove(at);
            state.ended = sum(state.ended, gauge.read());
        }
    }
    /// The parts of all threads.
    pub fn parts(&self) -> Parts {
        let state = self.0.lock().expect("no panic while held");
        state.threads.iter().fold(state.ended, |parts, gauge| sum(parts, gauge.read()))
    }
}

fn sum(one: Parts, other: Parts) -> Parts {
    Parts { cpu_ns: one.cpu_ns + other.cpu_ns, ready_ns: one.ready_ns + other.ready_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_time_of_threads_is_divided_also_once_they_have_ended() {
        let gauges = Gauges::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gauges.add(Gauge::of_this_thread(1));
                let start = Instant::now();
                while clock::read_ns(libc::CLOCK_THREAD_CPUTIME_ID) < 20_000_000 {
                    assert!(start.elapsed() < Duration::from_secs(20), "it has a CPU");
                }
                std::thread::sleep(Duration::from_millis(20));
                assert!((20_000_000..40_000_000).contains(&gauges.parts().cpu_ns), "{:?}", gauges.parts());
                gauges.remove(1);
            });
        });
        assert!((20_000_000..60_000_000).contains(&gauges.parts().cpu_ns), "{:?}", gauges.parts());
    }
}
