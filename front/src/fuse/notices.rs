//! What the kernel is told without having asked: that it shall forget pages which it has of a file (decision 0042).
//!
//! Promises: it is told from the pool, on no queue and under no lock (rule R2), and by a bounded number of threads, so that
//! the pool's other jobs go on while it takes its time; whoever waits until it has forgotten waits for a bounded time.
//! Forgetting takes the pages' locks: the kernel may wait for reads of them that are under way, and for what it writes back
//! of them. These are served meanwhile, and wait for no notice themselves. But they need a task or an entry, which those who
//! wait here hold: when many do, they don't wait for long, and the pages are forgotten after their answer.
//! Absent by design: what the kernel has, file by file. `Recent` tells whose pages it can't have, which is enough.

use super::abi::{self, Writer};
use super::recent::{Passed, Recent};
use super::reply;
use base::Ino;
use runtime::{Clock, Event, Runtime, Tasks};
use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

/// Threads of the pool that tell the kernel at the same time: half of what it has.
const TELLERS_MAX: usize = 8;
/// From so many notices on that nobody has begun to tell, those of a file become one.
const SEPARATE_MAX: usize = 64;
/// The longest wait for the kernel. It waits for nobody but this daemon, whose reads end or fail before that.
const WAIT_NS: u64 = 30_000_000_000;
/// The longest wait while so many wait that what the kernel needs may not be able to come: longer than most notices take on a
/// machine that is busy with other things.
const CROWDED_WAIT_NS: u64 = 100_000_000;
/// The longest wait for pages of a file that is being truncated: what the kernel writes back of them, it sends only after
/// the answer. It has cleared their bytes behind the end before.
const HELD_WAIT_NS: u64 = 20_000_000;

/// Why pages are forgotten, which says how long that may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// They may be older than what was written past them, or hold bytes behind the end.
    Stale,
    /// The same, and until the answer the kernel holds back what it writes.
    Held,
}

/// The kernel's ear.
pub struct Notices {
    clock: Arc<dyn Clock>,
    tasks: Arc<dyn Tasks>,
    told: Arc<Told>,
    /// Whose pages the kernel may have.
    pub recent: Recent,
    /// The volume's root directory, of which the kernel has a number of its own.
    root: Ino,
    /// Requests that wait, and how many may without being crowded.
    waiting: AtomicUsize,
    room: usize,
}

struct Told {
    device: Arc<File>,
    queue: Mutex<Queue>,
    /// Something was told.
    event: Event,
}

struct Queue {
    notices: VecDeque<Notice>,
    tellers: usize,
}

struct Notice {
    node: u64,
    first: u64,
    end: u64,
    done: Arc<AtomicBool>,
}

impl Notices {
    /// For a connection, by any descriptor of it, with so many tasks or entries for requests.
    pub fn new(runtime: &Runtime, device: Arc<File>, root: Ino, requests: usize, recent: Recent) -> Notices {
        let queue = Mutex::new(Queue { notices: VecDeque::new(), tellers: 0 });
        Notices {
            clock: runtime.clock.clone(),
            tasks: runtime.tasks.clone(),
            told: Arc::new(Told { device, queue, event: Event::new() }),
            recent,
            root,
            waiting: AtomicUsize::new(0),
            room: requests / 2,
        }
    }
    /// After a write past the page cache, and before its answer: the kernel forgets what it may have of the range. If nothing
    /// of it has overtaken the write, that is only for safety, and nobody waits: the kernel might need the entry of who does.
    pub async fn written_past(&self, written: Passed) {
        let Passed { ino, first, end, unique } = written;
        if !self.recent.may_have_pages(ino, || self.clock.now_ns()) {
            return;
        }
        if self.recent.may_overtake(ino, first..end, unique) {
            self.forget_pages(ino, first, end, Why::Stale).await;
        } else {
            self.push(ino, first, end);
        }
    }
    /// Has the kernel forget a file's pages from the byte `first` up to `end`, and waits for it.
    pub async fn forget_pages(&self, ino: Ino, first: u64, end: u64, why: Why) {
        let done = self.push(ino, first, end);
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _wait = Waiting(&self.waiting);
        let longest_ns = match why {
            Why::Held => HELD_WAIT_NS,
            Why::Stale if others < self.room => WAIT_NS,
            Why::Stale => CROWDED_WAIT_NS,
        };
        let mut over = self.clock.sleep(longest_ns);
        loop {
            let ticket = self.told.event.ticket();
            if done.load(Ordering::Acquire) {
                return;
            }
            let mut after = pin!(self.told.event.after(ticket));
            let is_over = poll_fn(|context| match (after.as_mut().poll(context), over.as_mut().poll(context)) {
                (_, Poll::Ready(())) => Poll::Ready(true),
                (Poll::Ready(()), _) => Poll::Ready(false),
                _ => Poll::Pending,
            });
            if is_over.await {
                return;
            }
        }
    }
    /// Leaves a notice to the pool; what will say that it was told.
    fn push(&self, ino: Ino, first: u64, end: u64) -> Arc<AtomicBool> {
        let node = reply::nodeid_of(ino, self.root);
        let mut queue = self.told.queue();
        let crowded = queue.notices.len() >= SEPARATE_MAX;
        if let Some(other) = queue.notices.iter_mut().find(|other| crowded && other.node == node) {
            (other.first, other.end) = (other.first.min(first), other.end.max(end));
            return other.done.clone();
        }
        let done = Arc::new(AtomicBool::new(false));
        queue.notices.push_back(Notice { node, first, end, done: done.clone() });
        if queue.tellers < TELLERS_MAX {
            queue.tellers += 1;
            let told = self.told.clone();
            self.tasks.blocking(Box::new(move || told.tell()));
        }
        done
    }
}

/// One who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Told {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while held")
    }
    /// Tells the kernel whatever there is to tell, in the pool.
    fn tell(&self) {
        while let Some(notice) = self.next() {
            let message = message(notice.node, notice.first, notice.end);
            // The kernel refuses only what it has nothing of: an inode that it forgot, or all of them, with the mount.
            let _ = (&*self.device).write(&message);
            notice.done.store(true, Ordering::Release);
            self.event.notify();
        }
    }
    /// The next notice; none: this teller has gone.
    fn next(&self) -> Option<Notice> {
        let mut queue = self.queue();
        let next = queue.notices.pop_front();
        if next.is_none() {
            queue.tellers -= 1;
        }
        next
    }
}

/// `FUSE_NOTIFY_INVAL_INODE`, whose code stands where an answer has its error, and zero where that has its request.
fn message(node: u64, first: u64, end: u64) -> [u8; abi::OUT_HEADER_BYTES + 24] {
    assert!(first < end, "a range of zero bytes would mean all from there on");
    let mut message = [0; abi::OUT_HEADER_BYTES + 24];
    let length = message.len() as u32;
    Writer::new(&mut message).u32(length).u32(abi::NOTIFY_INVAL_INODE).u64(0).u64(node).u64(first).u64(end - first);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::abi::Fields;

    #[test]
    fn a_notice_is_what_the_kernel_expects() {
        let message = message(7 << 20 | 3, 4096, 4097);
        let mut fields = Fields(&message);
        assert_eq!((fields.u32(), fields.u32(), fields.u64()), (Ok(40), Ok(2), Ok(0)));
        assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(7 << 20 | 3), Ok(4096), Ok(1)));
    }
}
