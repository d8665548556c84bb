//! Requests of processes that are being killed, while the target may have them wait for long.
//!
//! A process whose request is with the daemon can't end before the answer, whatever kills it. The kernel tells of the first signal that
//! comes meanwhile (INTERRUPT), not of which one, and of no other. Most signals end nobody: timers, profilers, runtimes that move their
//! threads. So from then on the request's thread is looked at, and its request is given up once SIGKILL waits for it, which is what the
//! kernel makes of each signal that ends a process.
//!
//! Promises: a program that goes on never sees a call interrupted; one that is killed ends within a moment, although its server is
//! away. Absent by design: mounts whose target always answers, which count nothing here.

use super::serve::Target;
use runtime::{Event, Runtime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Interval between two looks at a thread.
const LOOK_NS: u64 = 100_000_000;
/// The bit of SIGKILL in the kernel's masks of signals.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// Signals that are remembered for requests which are not listed: they come by another way than the signal, and may come later.
const EARLY_MAX: usize = 64;

/// The requests of a mount that may wait.
#[derive(Default)]
pub struct Waiting {
    requests: Mutex<Requests>,
    /// Notified when a signal has come for a request.
    pub signals: Event,
}

#[derive(Default)]
struct Requests {
    /// Those with the daemon, by the kernel's number.
    listed: BTreeMap<u64, Request>,
    /// The last ones that signals came for while they were not listed.
    early: VecDeque<u64>,
}

/// A request.
struct Request {
    thread: u32,
    /// Changes of what its mount may cache, before it was begun.
    cache_changes: u64,
    /// True if a signal has come for it.
    is_interrupted: bool,
}

/// A request in the list; it leaves it when this is dropped.
pub struct Listed<'a>(&'a Waiting, u64);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.requests().listed.remove(&self.1);
    }
}

impl Waiting {
    /// Lists a request of a thread. `cache_changes`: those of what its mount may cache, so far.
    pub fn list(&self, unique: u64, thread: u32, cache_changes: u64) -> Listed<'_> {
        let mut requests = self.requests();
        let is_interrupted = requests.early.contains(&unique);
        requests.listed.insert(unique, Request { thread, cache_changes, is_interrupted });
        Listed(self, unique)
    }
    /// Notes that a signal has come for a request.
    pub fn interrupt(&self, unique: u64) {
        let mut requests = self.requests();
        match requests.listed.get_mut(&unique) {
            Some(request) => request.is_interrupted = true,
            None => {
                if requests.early.len() == EARLY_MAX {
                    requests.early.pop_front();
                }
                requests.early.push_back(unique);
            }
        }
        drop(requests);
        self.signals.notify();
    }
    /// True if a signal has come for a listed request.
    pub fn is_interrupted(&self, unique: u64) -> bool {
        self.requests().listed.get(&unique).is_some_and(|request| request.is_interrupted)
    }
    /// Changes of what its mount may cache, before a listed request was begun.
    pub fn cache_changes(&self, unique: u64) -> Option<u64> {
        self.requests().listed.get(&unique).map(|request| request.cache_changes)
    }
    fn thread(&self, unique: u64) -> Option<u32> {
        self.requests().listed.get(&unique).map(|request| request.thread)
    }
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no panic while held")
    }
}

/// Looks at the thread of a request until that is answered, and has the target give the request up once the thread is being killed.
pub async fn watch<T: Target>(runtime: Runtime, waiting: Arc<Waiting>, target: Arc<T>, unique: u64) {
    while let Some(thread) = waiting.thread(unique) {
        if is_dying(thread) {
            target.give_up(unique);
        }
        runtime.clock.sleep(LOOK_NS).await;
    }
}

/// True if a thread is being killed. One of another namespace has no number here, and is not known.
fn is_dying(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    is_killed(&status)
}

fn is_killed(status: &str) -> bool {
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & KILLED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_while_it_waits() {
        let waiting = Waiting::default();
        let listed = waiting.list(4, 17, 5);
        assert_eq!((waiting.thread(4), waiting.thread(6)), (Some(17), None));
        assert_eq!((waiting.cache_changes(4), waiting.cache_changes(6)), (Some(5), None));
        drop(listed);
        assert_eq!(waiting.thread(4), None);
    }

    #[test]
    fn a_signal_may_come_before_its_request() {
        let waiting = Waiting::default();
        let (early, listed) = (waiting.signals.ticket(), waiting.list(4, 17, 5));
        [6, 4].into_iter().for_each(|unique| waiting.interrupt(unique));
        let _late = waiting.list(6, 18, 5);
        assert!(waiting.is_interrupted(4) && waiting.is_interrupted(6) && !waiting.is_interrupted(8));
        assert_eq!(waiting.signals.ticket(), early + 2);
        drop(listed);
        assert!(!waiting.is_interrupted(4));
    }

    #[test]
    fn killed_threads_are_told_from_others() {
        let status = |own: &str, shared: &str| {
            format!("Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\tffff\n")
        };
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000000102")));
        assert!(
            !is_killed(&status("0000000000002000", "0000000000000402")),
            "SIGALRM, SIGINT and SIGUSR1 that are handled"
        );
        assert!(!is_killed(""), "it has ended");
        assert!(!is_dying(std::process::id()));
    }
}
