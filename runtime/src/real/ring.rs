//! One io_uring: set up with the best flags that the kernel accepts, submission that never drops or blocks, and the one
//! system call in which a core sleeps. Used only by the thread that made it. Its entries have 128 bytes, which handing
//! over the kernel's FUSE requests takes.

use base::{Error, Kind, Result};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Number of submission entries. A turn submits after a few, so these only have to hold a burst; more wait in
/// `backlog`.
const SUBMISSIONS: u32 = 256;
/// Number of completion entries: several device queues deep, so that the kernel's slow overflow list is rarely used.
const COMPLETIONS: u32 = 4096;

/// The longest wait of `enter` for a completion. A time limit is a completion too: see `Device::sleep_until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// No wait.
    No,
    /// A wait until one comes.
    Forever,
}

/// An entry that points to no memory.
pub(super) enum Plain {
    /// Waits until a descriptor is readable.
    Poll(opcode::PollAdd),
    /// Ends such a wait.
    EndPoll(opcode::PollRemove),
    /// Ends a call.
    Cancel(opcode::AsyncCancel),
}

pub(super) struct Ring {
    inner: IoUring<squeue::Entry128>,
    unsubmitted: usize,
    backlog: VecDeque<squeue::Entry128>,
    no_iowait: EnterFlags,
}

impl Ring {
    /// A ring for the calling thread. Errors: `Host`, with the next step.
    pub fn new() -> Result<Ring> {
        let inner = build().map_err(refused)?;
        let params = inner.params();
        if !(params.is_feature_ext_arg() && params.is_feature_nodrop() && params.is_feature_submit_stable()) {
            return Err(Error::new(Kind::Host, "this kernel's io_uring is too old: use Linux 6.1 or newer"));
        }
        // A core that sleeps here is idle, it does not wait for a disk: it must not show up as iowait.
        let no_iowait = if params.is_feature_no_iowait() { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        Ok(Ring { inner, unsubmitted: 0, backlog: VecDeque::with_capacity(SUBMISSIONS as usize), no_iowait })
    }
    /// Holds a descriptor open for as long as the ring and its I/O live.
    pub fn hold(&self, fd: RawFd) -> Result<()> {
        let held = self.inner.submitter().register_files(&[fd]);
        held.map_err(|error| os("io_uring cannot hold the brick's lock", &error))
    }
    /// Releases the held descriptor at once; closing the ring alone would do so later, in the background.
    pub fn release(&self) {
        // The only error is that nothing is registered.
        let _ = self.inner.submitter().unregister_files();
    }
    /// Queues an entry for the next `enter`.
    ///
    /// # Safety
    /// What the entry points to must stay valid until its completion has been taken.
    pub unsafe fn push(&mut self, entry: impl Into<squeue::Entry128>) {
        let entry = entry.into();
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        // SAFETY: the caller's promise.
        match unsafe { self.inner.submission().push(&entry) } {
            Ok(()) => self.unsubmitted += 1,
            Err(_) => self.backlog.push_back(entry),
        }
    }
    /// Queues an entry that points to no memory.
    pub fn push_plain(&mut self, plain: Plain, tag: u64) {
        let entry = match plain {
            Plain::Poll(poll) => poll.build(),
            Plain::EndPoll(end) => end.build(),
            Plain::Cancel(cancel) => cancel.build(),
        };
        // SAFETY: no kind has a pointer.
        unsafe { self.push(entry.user_data(tag)) }
    }
    fn refill(&mut self) {
        let mut queue = self.inner.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: whoever pushed it promised that what it points to stays valid.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
            self.unsubmitted += 1;
        }
    }
    /// Entries that the kernel has not seen yet.
    pub fn unsubmitted(&self) -> usize {
        self.unsubmitted + self.backlog.len()
    }
    /// The next completion.
    pub fn next(&mut self) -> Option<cqueue::Entry> {
        self.inner.completion().next()
    }
    /// True if completions are there for `next`.
    pub fn has_completions(&mut self) -> bool {
        !self.inner.completion().is_empty()
    }
    /// Submits the queued entries; cheap when there are none.
    pub fn submit(&mut self) {
        let queue = self.inner.submission();
        // Deferred completions are only posted by an enter.
        let deferred = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if self.unsubmitted() > 0 || deferred {
            self.enter(Wait::No);
        }
    }
    /// Submits, and waits for a completion. Returns early when there was more to submit than fits.
    pub fn enter(&mut self, wait: Wait) {
        if !self.backlog.is_empty() {
            self.refill();
        }
        let wait = if self.backlog.is_empty() { wait } else { Wait::No };
        let count = self.unsubmitted as u32;
        let (least, flags) = match wait {
            Wait::No => (0, EnterFlags::GETEVENTS),
            Wait::Forever => (1, EnterFlags::GETEVENTS | self.no_iowait),
        };
        let none: Option<&libc::sigset_t> = None;
        // SAFETY: no argument is passed.
        let entered = unsafe { self.inner.submitter().enter(count, least, flags.bits(), none) };
        if let Err(error) = entered {
            // Interrupted, or short of memory or completion space: the next turn goes on from there.
            let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
            let errno = error.raw_os_error().unwrap_or(0);
            assert!(passing.contains(&errno), "io_uring_enter: {error}");
        }
        self.unsubmitted = self.inner.submission().len();
    }
}

/// Tries flags from the best down: an older kernel may refuse some.
fn build() -> std::io::Result<IoUring<squeue::Entry128>> {
    let mut last = None;
    for level in (0..3).rev() {
        let mut builder = IoUring::<squeue::Entry128>::builder();
        builder.dontfork().setup_clamp().setup_cqsize(COMPLETIONS);
        if level >= 1 {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
        }
        if level >= 2 {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        match builder.build(SUBMISSIONS) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("the loop ran"))
}

fn os(what: &'static str, error: &std::io::Error) -> Error {
    Error::os(what, error.raw_os_error().unwrap_or(libc::EIO))
}

fn refused(error: std::io::Error) -> Error {
    let what = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring: use Linux 6.1 or newer",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is switched off: set sysctl kernel.io_uring_disabled to 0, or allow it in the container's profile"
        }
        Some(libc::ENOMEM) => "no memory for io_uring: raise the limit of locked memory (ulimit -l)",
        Some(libc::EMFILE | libc::ENFILE) => {
            "no descriptor left for io_uring: raise the limit of open files (ulimit -n)"
        }
        _ => "io_uring cannot be set up: use Linux 6.1 or newer",
    };
    Error::new(Kind::Host, what).with(error)
}
