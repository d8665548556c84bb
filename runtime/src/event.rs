//! A condition that tasks wait for: "something changed, check again".

use crate::sync::{AtomicU64, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// A condition with any number of waiters; `notify` wakes all of them. A waiter takes a ticket *before* it checks the
/// state that it waits for, so that it misses no change between the check and the wait.
#[derive(Default)]
pub struct Event {
    /// Number of notifications. Changed under the lock; read without it by `ticket`.
    count: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl Event {
    /// An event without notifications.
    pub fn new() -> Event {
        Event::default()
    }
    /// A ticket for `after`: the number of notifications so far.
    pub fn ticket(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
    /// Wakes all waiters.
    pub fn notify(&self) {
        let mut wakers = self.wakers.lock().expect("no panic while held");
        self.count.fetch_add(1, Ordering::AcqRel);
        wakers.drain(..).for_each(Waker::wake);
    }
    /// Ends when `notify` has been called after `ticket` was taken.
    pub fn after(&self, ticket: u64) -> After<'_> {
        After { event: self, ticket }
    }
}

/// See `Event::after`.
pub struct After<'a> {
    event: &'a Event,
    ticket: u64,
}

impl Future for After<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut wakers = self.event.wakers.lock().expect("no panic while held");
        if self.event.ticket() != self.ticket {
            return Poll::Ready(());
        }
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
