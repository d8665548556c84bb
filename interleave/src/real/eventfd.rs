//! An eventfd: a signal stays until the core has slept.

use base::Result;
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

pub struct EventFd(Arc<Signal>);

#[derive(Default)]
pub struct Signal {
    given: Mutex<bool>,
    changed: Condvar,
}

impl EventFd {
    pub fn new() -> Result<EventFd> {
        Ok(EventFd(Arc::default()))
    }
    pub fn fd(&self) -> Arc<Signal> {
        self.0.clone()
    }
    pub fn signal(&self) {
        *self.0.given.lock().expect("no panic while held") = true;
        self.0.changed.notify_one();
    }
}

impl Signal {
    /// Sleeps until there has been a signal since the last sleep.
    pub fn sleep(&self) {
        let mut given = self.given.lock().expect("no panic while held");
        while !*given {
            given = self.changed.wait(given).expect("no panic while held");
        }
        *given = false;
    }
}
