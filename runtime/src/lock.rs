//! The measured lock. It counts how often it was taken and how often a thread had to wait for it, and measures how long
//! waits and holds last. For short critical sections only: never held across I/O or await (decision D5).

use crate::OBSERVED;
use crate::histogram::{Histogram, Summary};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// Number of acquisitions per timed hold: timing each one takes two reads of the clock, more than most holds last.
const HOLD_SAMPLE: u32 = 256;

thread_local! {
    /// Nanoseconds for which this thread has waited for locks since its start.
    static WAITED_NS: Cell<u64> = const { Cell::new(0) };
}

/// The time for which the calling thread has waited for locks so far, in nanoseconds: the difference of two readings is
/// the wait of what ran in between.
#[inline]
pub fn waited_ns() -> u64 {
    WAITED_NS.get()
}

/// A mutex with a name and figures. A panic while it is held ends the process (broken invariant).
pub struct Lock<T> {
    name: &'static str,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    figures: Figures,
    value: T,
}

struct Figures {
    /// Number of acquisitions until the next timed hold; 0 during a timed hold. The number of acquisitions follows from
    /// this and the number of timed holds, so counting one costs only an instruction and a branch.
    left: u32,
    since: Option<Instant>,
    contended: u64,
    /// None before the first: each takes 2 KiB, and an idle group alone has a dozen of locks.
    wait: Option<Histogram>,
    hold: Option<Histogram>,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures { left: HOLD_SAMPLE, since: None, contended: 0, wait: None, hold: None }
    }
}

/// The figures of a lock since it was made.
#[derive(Clone)]
pub struct LockSummary {
    /// The lock's name; several locks may share one.
    pub name: &'static str,
    /// Number of acquisitions.
    pub acquired: u64,
    /// Number of acquisitions that had to wait.
    pub contended: u64,
    /// Durations of those waits.
    pub wait: Summary,
    /// Durations of holds (a sample).
    pub hold: Summary,
}

impl<T> Lock<T> {
    /// A lock with a name for reports.
    pub fn new(name: &'static str, value: T) -> Lock<T> {
        Lock { name, inner: Mutex::new(Inner { figures: Figures::default(), value }) }
    }
    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.inner.try_lock() {
            Ok(inner) => Guard::counted(inner),
            Err(error) => self.wait(error),
        }
    }
    #[cold]
    #[inline(never)]
    fn wait<'a>(&'a self, error: TryLockError<MutexGuard<'a, Inner<T>>>) -> Guard<'a, T> {
        if let TryLockError::Poisoned(_) = error {
            panic!("lock {}: a holder panicked", self.name);
        }
        let start = OBSERVED.then(Instant::now);
        let mut inner = self.inner.lock().expect("a holder panicked");
        if let Some(start) = start {
            let waited_ns = start.elapsed().as_nanos() as u64;
            WAITED_NS.set(WAITED_NS.get() + waited_ns);
            inner.figures.wait.get_or_insert_default().record(waited_ns);
            inner.figures.contended += 1;
        }
        Guard::counted(inner)
    }
    /// The lock's figures so far.
    pub fn summary(&self) -> LockSummary {
        let guard = self.inner.lock().expect("a holder panicked");
        let figures = &guard.figures;
        let summary =
            |histogram: &Option<Histogram>| histogram.as_ref().map_or_else(Summary::default, Histogram::summary);
        let hold = summary(&figures.hold);
        LockSummary {
            name: self.name,
            acquired: hold.count() * u64::from(HOLD_SAMPLE) + u64::from(HOLD_SAMPLE - figures.left),
            contended: figures.contended,
            wait: summary(&figures.wait),
            hold,
        }
    }
}

/// Access to the locked value.
pub struct Guard<'a, T> {
    inner: MutexGuard<'a, Inner<T>>,
}

impl<'a, T> Guard<'a, T> {
    #[inline]
    fn counted(mut inner: MutexGuard<'a, Inner<T>>) -> Guard<'a, T> {
        if OBSERVED {
            inner.figures.left -= 1;
            if inner.figures.left == 0 {
                return Guard::timed(inner);
            }
        }
        Guard { inner }
    }
    #[cold]
    #[inline(never)]
    fn timed(mut inner: MutexGuard<'a, Inner<T>>) -> Guard<'a, T> {
        inner.figures.since = Some(Instant::now());
        Guard { inner }
    }
}

impl Figures {
    #[cold]
    #[inline(never)]
    fn timed(&mut self) {
        let since = self.since.take().expect("the hold that is timed has a start");
        self.hold.get_or_insert_default().record(since.elapsed().as_nanos() as u64);
        self.left = HOLD_SAMPLE;
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.value
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if OBSERVED && self.inner.figures.left == 0 {
            self.inner.figures.timed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn waits_are_counted() {
        let lock = Arc::new(Lock::new("test", 0u32));
        let guard = lock.lock();
        let other = {
            let lock = lock.clone();
            std::thread::spawn(move || {
                let before_ns = waited_ns();
                *lock.lock() += 1;
                waited_ns() - before_ns
            })
        };
        std::thread::sleep(Duration::from_millis(30));
        drop(guard);
        let waited = other.join().expect("no panic");
        let summary = lock.summary();
        assert_eq!((waited, waited_ns()), (summary.wait.sum_ns(), 0), "each thread's wait is its own");
        assert_eq!((summary.acquired, summary.contended, summary.wait.count()), (2, 1, 1));
        assert!(summary.wait.max_ns() > 1_000_000);
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn every_acquisition_is_counted_and_some_are_timed() {
        let lock = Lock::new("test", ());
        let every = u64::from(HOLD_SAMPLE);
        for number in 1..=3 * every + 1 {
            let guard = lock.lock();
            assert_eq!(guard.inner.figures.since.is_some(), number % every == 0);
            drop(guard);
            let summary = lock.summary();
            assert_eq!((summary.acquired, summary.hold.count()), (number, number / every));
        }
    }
}
