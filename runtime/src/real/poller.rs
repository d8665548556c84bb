//! Readiness of descriptors (`/dev/fuse`, sockets) for tasks on cores.

use super::device::poll_error;
use super::inbox::stopped;
use super::reactor::{self, Core};
use base::Result;
use std::future::Future;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Waits until `fd` has something to read, was hung up or is in error (reading it tells which). If several cores wait
/// for one descriptor, an event wakes one of them where the kernel can do that; so read until it would block. The
/// descriptor must stay open until the future has ended or was dropped. Only to be awaited on a core's task. Errors:
/// `Interrupted` when the core is stopping; the kernel's error for a descriptor that cannot be polled.
pub fn readable(fd: RawFd) -> Readable {
    Readable { fd, waiting: None }
}

/// See `readable`.
pub struct Readable {
    fd: RawFd,
    /// The core and the operation's number on it.
    waiting: Option<(Rc<Core>, usize)>,
}

impl Future for Readable {
    type Output = Result<()>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some((core, index)) = &self.waiting else {
            let core = reactor::current().expect("readiness is only awaited on a core's task");
            if core.is_stopping() {
                return Poll::Ready(Err(stopped()));
            }
            let index = core.device.borrow_mut().poll_start(self.fd, context.waker());
            self.waiting = Some((core, index));
            return Poll::Pending;
        };
        let Some(outcome) = core.device.borrow_mut().poll_outcome(*index, context.waker()) else {
            return Poll::Pending;
        };
        self.waiting = None;
        Poll::Ready(if outcome < 0 { Err(poll_error(outcome)) } else { Ok(()) })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if let Some((core, index)) = self.waiting.take() {
            core.device.borrow_mut().poll_abandon(index);
        }
    }
}
