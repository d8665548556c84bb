//! An eventfd: how other threads wake a core that sleeps in its ring.

use base::{Error, Kind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(super) struct EventFd(OwnedFd);

impl EventFd {
    /// Errors: `Host` when the process has too many files open.
    pub fn new() -> Result<EventFd> {
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Error::new(Kind::Host, "no eventfd: raise the limit of open files (ulimit -n)").with(error));
        }
        // SAFETY: the descriptor was just made and is nobody else's.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
    /// The descriptor becomes readable with every signal. It is never read: pollers see its edges.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
    /// Wakes whoever polls the descriptor, now or later.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        loop {
            // SAFETY: the descriptor is open and the buffer has eight bytes.
            let wrote = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
            if wrote == one.len() as isize {
                return;
            }
            let error = std::io::Error::last_os_error();
            assert!(error.kind() == std::io::ErrorKind::Interrupted, "write to an eventfd: {error}");
        }
    }
}
