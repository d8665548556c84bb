//! The measured lock: how often it was taken, how often someone had to wait, how long waits and holds lasted.
//! Short critical sections only: never held across I/O or await (decision D5).

use crate::OBSERVED;
use crate::histogram::{Histogram, Summary};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// Holds are timed once in this many acquisitions: two clock reads each time would cost more than most holds.
const HOLD_SAMPLE: u64 = 64;

/// A mutex with a name and figures. A panic while it is held ends the process (broken invariant).
pub struct Lock<T> {
    name: &'static str,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    figures: Figures,
    value: T,
}

#[derive(Default)]
struct Figures {
    acquired: u64,
    /// Since when it is held, if this time is one of the sample.
    since: Option<Instant>,
    contended: u64,
    wait: Histogram,
    hold: Histogram,
}

/// What a lock has seen so far.
#[derive(Clone)]
pub struct LockSummary {
    /// The lock's name; several locks may share one.
    pub name: &'static str,
    /// Acquisitions.
    pub acquired: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    /// How long those waited.
    pub wait: Summary,
    /// How long it was held (a sample).
    pub hold: Summary,
}

impl<T> Lock<T> {
    /// A lock named for the ledger.
    pub fn new(name: &'static str, value: T) -> Lock<T> {
        Lock { name, inner: Mutex::new(Inner { figures: Figures::default(), value }) }
    }
    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(_)) => panic!("lock {}: a holder panicked", self.name),
            Err(TryLockError::WouldBlock) => {
                let start = OBSERVED.then(Instant::now);
                let mut inner = self.inner.lock().expect("a holder panicked");
                if let Some(start) = start {
                    inner.figures.wait.record(start.elapsed().as_nanos() as u64);
                    inner.figures.contended += 1;
                }
                inner
            }
        };
        if OBSERVED {
            inner.figures.acquired += 1;
            if inner.figures.acquired.is_multiple_of(HOLD_SAMPLE) {
                inner.figures.since = Some(Instant::now());
            }
        }
        Guard { inner }
    }
    /// What it has seen so far.
    pub fn summary(&self) -> LockSummary {
        let guard = self.inner.lock().expect("a holder panicked");
        let figures = &guard.figures;
        LockSummary {
            name: self.name,
            acquired: figures.acquired,
            contended: figures.contended,
            wait: figures.wait.summary(),
            hold: figures.hold.summary(),
        }
    }
}

/// Access to the locked value.
pub struct Guard<'a, T> {
    inner: MutexGuard<'a, Inner<T>>,
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
        let figures = &mut self.inner.figures;
        // The count tells without a look at the clock's time.
        if OBSERVED && figures.acquired.is_multiple_of(HOLD_SAMPLE) {
            let since = figures.since.take();
            figures.hold.record(since.map_or(0, |since| since.elapsed().as_nanos() as u64));
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
            std::thread::spawn(move || *lock.lock() += 1)
        };
        std::thread::sleep(Duration::from_millis(30));
        drop(guard);
        other.join().expect("no panic");
        let summary = lock.summary();
        assert_eq!((summary.acquired, summary.contended, summary.wait.count()), (2, 1, 1));
        assert!(summary.wait.max_ns() > 1_000_000);
        assert_eq!(*lock.lock(), 1);
    }
}
