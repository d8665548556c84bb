//! Notices to the kernel: they ask it to forget pages of a file (decision 0042).
//!
//! Promises: notices are sent from the pool, under no lock (rule R2), and by a bounded number of threads, so that the
//! pool's other jobs go on while the kernel takes its time. Waiting for a notice is bounded in time: to forget a page
//! the kernel takes the page's lock, so it may wait for its own reads and writes of the page that are under way. These
//! are served meanwhile and wait for no notice themselves. But they need a task or a ring entry, and each caller that
//! waits here holds one. So when many callers wait, each waits only briefly, and the pages are forgotten after the
//! answer.
//!
//! Absent by design: a list of the kernel's pages, file by file. `Recent` tells which files it can have no pages of,
//! which is enough.

use super::abi::{self, Writer};
use super::recent::{Passed, Recent};
use super::reply;
use base::Ino;
use runtime::tasks::{either, run_blocking};
use runtime::{Clock, Event, Runtime, Tasks};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Largest number of threads of the pool that send notices at the same time: an eighth of what it may have.
const TELLERS_MAX: usize = 8;
/// Number of queued notices from which on notices of one file are merged.
const SEPARATE_MAX: usize = 64;
/// Number of inodes that are forgotten together.
const TOGETHER_MAX: usize = 1024;
/// Longest wait for the kernel. The kernel waits only for this daemon, whose reads end or fail before that.
const WAIT_NS: u64 = 30_000_000_000;
/// Longest wait while so many callers wait that requests which the kernel needs may find no task: longer than most
/// notices take on a machine that is busy with other things.
const CROWDED_WAIT_NS: u64 = 100_000_000;
/// Longest wait for a thread that sends a notice about a file that is being truncated: all of them may wait for writes
/// that the kernel holds back until this answer. Far longer than a busy machine takes to begin with it.
const BEGIN_WAIT_NS: u64 = 1_000_000_000;
/// Longest wait for pages of a file that is being truncated, from when the kernel was told. It sends its writes of them
/// only after the answer, but clears the bytes behind the end before.
const HELD_WAIT_NS: u64 = 20_000_000;

/// The reason for forgetting pages, which bounds the wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The pages may be older than a write that bypassed them, or hold bytes behind the end of the file.
    Stale,
    /// The same, and the kernel holds its writes of them back until the answer.
    Held,
}

/// The sender of notices for one mount.
pub struct Notices {
    clock: Arc<dyn Clock>,
    tasks: Arc<dyn Tasks>,
    told: Arc<Shared>,
    /// The files of which the kernel may have pages.
    pub recent: Recent,
    /// The volume's root directory, for which the kernel uses a number of its own.
    root: Ino,
    /// Number of requests that wait; and the number above which they count as crowded.
    waiting: AtomicUsize,
    room: usize,
}

struct Shared {
    device: Arc<File>,
    queue: Mutex<Queue>,
    /// Notified when a notice is about to be sent, and when it has been.
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
    progress: Arc<Progress>,
}

/// The progress of a notice.
#[derive(Default)]
struct Progress {
    begun: AtomicBool,
    done: AtomicBool,
}

impl Notices {
    /// A sender for the connection of `device` (any descriptor of it), which has `requests` tasks or entries for
    /// requests.
    pub fn new(runtime: &Runtime, device: Arc<File>, root: Ino, requests: usize, recent: Recent) -> Notices {
        let queue = Mutex::new(Queue { notices: VecDeque::new(), tellers: 0 });
        Notices {
            clock: runtime.clock.clone(),
            tasks: runtime.tasks.clone(),
            told: Arc::new(Shared { device, queue, event: Event::new() }),
            recent,
            root,
            waiting: AtomicUsize::new(0),
            room: requests / 2,
        }
    }
    /// Makes the kernel forget its pages of a range that was written past the page cache; called before the write's
    /// answer. If nothing of the range can have overtaken the write in the page cache, this is only a precaution and is
    /// not waited for: the kernel might need the entry that the waiter holds.
    pub async fn written_past(&self, written: Passed) {
        let Passed { ino, first, end, unique } = written;
        if !self.recent.may_have_pages(ino, || self.clock.now_ns()) {
            return;
        }
        if self.recent.may_overtake(ino, first..end, unique) {
            let _ = self.forget_pages(ino, first, end, Why::Stale).await;
        } else {
            self.push(ino, first, end);
        }
    }
    /// Makes the kernel forget a file's pages from byte `first` up to `end`, and waits until it has, within the bound
    /// of `why`. False if that was over before.
    pub async fn forget_pages(&self, ino: Ino, first: u64, end: u64, why: Why) -> bool {
        let notice = self.push(ino, first, end);
        let is_crowded = self.waiting.fetch_add(1, Ordering::Relaxed) >= self.room;
        let _wait = Waiting(&self.waiting);
        let bounded = |longest_ns| if is_crowded { CROWDED_WAIT_NS } else { longest_ns };
        match why {
            Why::Stale => self.waits_for(&notice.done, bounded(WAIT_NS)).await,
            Why::Held => {
                self.waits_for(&notice.begun, bounded(BEGIN_WAIT_NS)).await
                    && self.waits_for(&notice.done, HELD_WAIT_NS).await
            }
        }
    }
    /// Waits until a notice is as far as `flag` says. False if it was not within that time.
    async fn waits_for(&self, flag: &AtomicBool, longest_ns: u64) -> bool {
        let mut over = self.clock.sleep(longest_ns);
        loop {
            let ticket = self.told.event.ticket();
            if flag.load(Ordering::Acquire) {
                return true;
            }
            if either(&mut over, self.told.event.after(ticket)).await {
                return false;
            }
        }
    }
    /// Makes the kernel forget what it has of these inodes, attributes included, and waits until it has.
    pub async fn forget_inodes(&self, inodes: &[Ino]) {
        for some in inodes.chunks(TOGETHER_MAX) {
            let all: Vec<_> = some.iter().map(|ino| self.push(*ino, 0, u64::MAX)).collect();
            loop {
                let ticket = self.told.event.ticket();
                if all.iter().all(|notice| notice.done.load(Ordering::Acquire)) {
                    break;
                }
                self.told.event.after(ticket).await;
            }
        }
    }
    /// Makes the kernel look every name up again. False if it can't be told: it is older than Linux 6.16.
    pub async fn forget_names(&self) -> bool {
        let told = self.told.clone();
        let tell = move || {
            let mut message = [0; abi::OUT_HEADER_BYTES];
            Writer::new(&mut message).u32(abi::OUT_HEADER_BYTES as u32).u32(abi::NOTIFY_INC_EPOCH).u64(0);
            (&*told.device).write(&message).is_ok()
        };
        run_blocking(&*self.tasks, tell).await
    }
    /// Queues a notice for the pool.
    fn push(&self, ino: Ino, first: u64, end: u64) -> Arc<Progress> {
        let node = reply::nodeid_of(ino, self.root);
        let mut queue = self.told.queue();
        let crowded = queue.notices.len() >= SEPARATE_MAX;
        if let Some(other) = queue.notices.iter_mut().find(|other| crowded && other.node == node) {
            (other.first, other.end) = (other.first.min(first), other.end.max(end));
            return other.progress.clone();
        }
        let progress = Arc::new(Progress::default());
        queue.notices.push_back(Notice { node, first, end, progress: progress.clone() });
        if queue.tellers < TELLERS_MAX {
            queue.tellers += 1;
            let told = self.told.clone();
            self.tasks.blocking(Box::new(move || told.tell()));
        }
        progress
    }
}

/// Counts one waiting request until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while held")
    }
    /// Sends queued notices until there are none. Runs in the pool.
    fn tell(&self) {
        while let Some(notice) = self.next() {
            let message = message(notice.node, notice.first, notice.end);
            notice.progress.begun.store(true, Ordering::Release);
            self.event.notify();
            // The kernel refuses only what it has nothing of: an inode that it forgot, or all of them, with the mount.
            let _ = (&*self.device).write(&message);
            notice.progress.done.store(true, Ordering::Release);
            self.event.notify();
        }
    }
    /// The next notice. None: there is none, and this sender counts as gone.
    fn next(&self) -> Option<Notice> {
        let mut queue = self.queue();
        let next = queue.notices.pop_front();
        if next.is_none() {
            queue.tellers -= 1;
        }
        next
    }
}

/// `FUSE_NOTIFY_INVAL_INODE`: its code stands in the place of an answer's error, and zero in the place of the request's
/// number.
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
    use runtime::noop::NoTasks;
    use runtime::sim::World;
    use runtime::tasks::MakeTask;

    #[test]
    fn a_notice_is_what_the_kernel_expects() {
        let message = message(7 << 20 | 3, 4096, 4097);
        let mut fields = Fields(&message);
        assert_eq!((fields.u32(), fields.u32(), fields.u64()), (Ok(40), Ok(2), Ok(0)));
        assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(7 << 20 | 3), Ok(4096), Ok(1)));
    }

    /// A pool whose threads are busy: jobs are kept.
    #[derive(Default)]
    struct Busy(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

    impl Tasks for Busy {
        fn cores(&self) -> usize {
            NoTasks.cores()
        }
        fn core(&self) -> usize {
            NoTasks.core()
        }
        fn spawn(&self, core: usize, make: MakeTask) {
            NoTasks.spawn(core, make);
        }
        fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
            self.0.lock().expect("no panic").push(job);
        }
    }

    /// True if a truncation waits until a notice is sent that a thread has taken up only after so long.
    fn waits_for_a_thread(late_ns: u64) -> bool {
        let mut world = World::new(0);
        let pool = Arc::new(Busy::default());
        let runtime = Runtime { tasks: pool.clone(), ..world.runtime() };
        let device = File::options().write(true).open("/dev/null").expect("every system has it");
        let notices = Notices::new(&runtime, Arc::new(device), Ino(1), 8, Recent::new(1, false, 0));
        let is_sent = AtomicBool::new(false);
        world.block_on(async {
            let truncation = async {
                is_sent.store(notices.forget_pages(Ino(2), 100, 101, Why::Held).await, Ordering::Relaxed);
            };
            let thread = async {
                runtime.clock.sleep(late_ns).await;
                pool.0.lock().expect("no panic").drain(..).for_each(|job| job());
                std::future::pending().await
            };
            either(truncation, thread).await;
        });
        is_sent.into_inner()
    }

    #[test]
    fn a_busy_pool_does_not_keep_bytes_behind_the_end() {
        assert!(waits_for_a_thread(0));
        assert!(waits_for_a_thread(10 * HELD_WAIT_NS));
        assert!(!waits_for_a_thread(BEGIN_WAIT_NS + 1_000_000), "all threads may wait for this answer");
    }
}
