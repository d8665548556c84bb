//! An eventfd: how other threads wake a core that sleeps in its ring.

use base::{Error, Kind, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{retry_on_intr, write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

pub(super) struct EventFd(OwnedFd);

impl EventFd {
    /// Errors: `Host` when the process has too many files open.
    pub fn new() -> Result<EventFd> {
        eventfd(0, EventfdFlags::CLOEXEC).map(EventFd).map_err(|error| {
            Error::new(Kind::Host, "no eventfd: raise the limit of open files (ulimit -n)").with(error)
        })
    }
    /// The descriptor becomes readable with every signal. It is never read: pollers see its edges.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
    /// Wakes whoever polls the descriptor, now or later.
    pub fn signal(&self) {
        let wrote = retry_on_intr(|| write(&self.0, &1u64.to_ne_bytes()));
        assert!(wrote == Ok(size_of::<u64>()), "write to an eventfd: {wrote:?}");
    }
}
