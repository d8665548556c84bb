//! The machine's clocks, and the timers of a core.

use super::reactor;
use super::stamps::Stamps;
use crate::clock::{Clock, Sleep};
use base::Time;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// CLOCK_BOOTTIME and CLOCK_REALTIME, both read without a system call, and the tick counter that is calibrated against
/// them.
pub(super) struct RealClock(pub(super) Arc<Stamps>);

/// The time that a clock of the kernel shows. By the C library, whose way without a system call every debugger and profiler
/// knows (decision 0049).
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    assert!(failed == 0, "Linux has had these clocks since 2.6.39");
    time
}

/// The nanoseconds that a clock of the kernel shows.
pub(super) fn read_ns(clock: libc::clockid_t) -> u64 {
    let time = read(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since the machine started, suspended time included.
pub(super) fn now_ns() -> u64 {
    read_ns(libc::CLOCK_BOOTTIME)
}

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        now_ns()
    }
    fn wall(&self) -> Time {
        let time = read(libc::CLOCK_REALTIME);
        // It says 2262 from then on, and 1677 before that, as for times that clients set.
        Time::from_parts(time.tv_sec, time.tv_nsec as u32)
    }
    fn sleep(&self, ns: u64) -> Sleep {
        let now_ns = now_ns();
        // Somebody sleeps all the time.
        self.0.refine(now_ns);
        Box::pin(Sleeping { deadline_ns: now_ns.saturating_add(ns), timer: None })
    }
}

struct Sleeping {
    deadline_ns: u64,
    timer: Option<TimerId>,
}

impl Future for Sleeping {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let (deadline_ns, timer) = (self.deadline_ns, self.timer);
        let set = reactor::with_current(|core| core.timers.borrow_mut().set(deadline_ns, timer, context.waker()));
        self.timer = Some(set.expect("sleep is only awaited on a core's task"));
        Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // Dropped elsewhere, it fires for nothing.
            reactor::with_current(|core| core.timers.borrow_mut().cancel(timer));
        }
    }
}

/// A timer's deadline, by which timers sort, and a number that is unique among the timers of one core.
pub(super) type TimerId = (u64, u64);

/// The timers of one core, by deadline.
#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<TimerId, Waker>,
    last: u64,
}

impl Timers {
    /// Wakes `waker` at the deadline; `timer` is the one set earlier by the same sleeper.
    pub fn set(&mut self, deadline_ns: u64, timer: Option<TimerId>, waker: &Waker) -> TimerId {
        if let Some(timer) = timer
            && let Some(old) = self.waiting.get_mut(&timer)
        {
            old.clone_from(waker);
            return timer;
        }
        self.last += 1;
        self.waiting.insert((deadline_ns, self.last), waker.clone());
        (deadline_ns, self.last)
    }
    /// Forgets a timer.
    pub fn cancel(&mut self, timer: TimerId) {
        self.waiting.remove(&timer);
    }
    /// Deadline of the next timer.
    pub fn next_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(&(deadline_ns, _), _)| deadline_ns)
    }
    /// Takes a timer that is due.
    pub fn pop(&mut self, now_ns: u64) -> Option<Waker> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.waiting.pop_first().map(|(_, waker)| waker)
    }
}
