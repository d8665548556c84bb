//! The pools of threads for jobs that block (decision D7): each has as many threads as its jobs need, by a model of what they
//! do, and one that sleeps when there is nothing to do. There is no setting.
//!
//! `queue` is how jobs come to threads, `size` how many threads are wanted, `gauges` what the kernel knows of them. A watcher
//! adds threads and has them end; it sleeps until jobs come for which no thread is free, and while more threads than one are there
//! it looks once a second.

mod gauges;
mod queue;
mod size;
#[cfg(test)]
mod size_tests;

use super::scheduling;
use super::stamps::Stamps;
use crate::histogram::{Histogram, Summary};
use crate::lock::LockSummary;
use base::{Error, Kind, Result};
use gauges::{Gauge, Gauges};
use queue::{Queue, Turn};
use size::{LOOK_NS, Look, SPAN_NS, Size, Sums};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread, park, park_timeout};
use std::time::Duration;

/// The kind of jobs that a pool runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Jobs that clients wait for.
    Client,
    /// Jobs that no client waits for: their threads let others go first.
    Background,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    /// Time of its arrival.
    since_ns: u64,
}

/// The measurements of a pool, behind the lock of its queue.
#[derive(Default)]
struct Measured {
    threads: usize,
    threads_peak: usize,
    next_id: usize,
    /// Number of jobs that have begun.
    jobs: u64,
    wait: Histogram,
    waited_ns: u64,
    /// Number of threads that have a job, and the most since the watcher's last look.
    busy: usize,
    busy_most: usize,
    /// Time for which threads had a job until `busy_until_ns`.
    busy_ns: u64,
    busy_until_ns: u64,
}

impl Measured {
    fn advance(&mut self, now_ns: u64) {
        // Readings of several threads are not quite in order.
        self.busy_ns += self.busy as u64 * now_ns.saturating_sub(self.busy_until_ns);
        self.busy_until_ns = self.busy_until_ns.max(now_ns);
    }
    /// Books a thread's turn; `is_busy`: whether it has had a job until now.
    fn turn(&mut self, is_busy: &mut bool, turn: Turn<'_, Job>, now_ns: u64) {
        self.advance(now_ns);
        let was_busy = std::mem::replace(is_busy, matches!(turn, Turn::Begins(_)));
        self.busy = self.busy + usize::from(*is_busy) - usize::from(was_busy);
        self.busy_most = self.busy_most.max(self.busy);
        match turn {
            Turn::Begins(job) => {
                let waited_ns = now_ns.saturating_sub(job.since_ns);
                self.jobs += 1;
                self.waited_ns += waited_ns;
                self.wait.record(waited_ns);
            }
            Turn::Rests => {}
            Turn::Ends => self.threads -= 1,
        }
    }
    fn sums(&self) -> Sums {
        let done = self.jobs - self.busy as u64;
        Sums { now_ns: self.busy_until_ns, done, waited_ns: self.waited_ns, busy_ns: self.busy_ns }
    }
}

/// The figures of the pool since its start.
#[derive(Clone)]
pub struct PoolSummary {
    /// Number of threads now.
    pub threads: usize,
    /// Highest number of threads at one time.
    pub threads_peak: usize,
    /// Number of jobs that wait now.
    pub queued: usize,
    /// Number of jobs started.
    pub jobs: u64,
    /// Durations for which started jobs had waited.
    pub wait: Summary,
    /// Figures of the lock by which threads take jobs.
    pub lock: LockSummary,
}

/// The pool; ends with `stop`.
pub(super) struct Pool {
    queue: Queue<Job, Measured>,
    work: Work,
    stamps: Arc<Stamps>,
    gauges: Gauges,
    watcher: Mutex<Option<JoinHandle<()>>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// A pool beside `cores` cores. `pinned`: its number of threads, if a test says it.
    pub fn start(work: Work, cores: usize, pinned: Option<usize>, stamps: Arc<Stamps>) -> Result<Arc<Pool>> {
        let name = if work == Work::Client { "pool" } else { "background" };
        let pool = Arc::new(Pool {
            queue: Queue::new(name, Measured::default()),
            work,
            stamps,
            gauges: Gauges::default(),
            watcher: Mutex::default(),
            workers: Mutex::default(),
        });
        pool.add_worker()?;
        let (watched, size) = (pool.clone(), Size::new(cores, pinned));
        let watcher = std::thread::Builder::new().name("sinter-watch".to_string()).spawn(move || watched.watch(size));
        match watcher {
            Ok(watcher) => *pool.watcher.lock().expect("no panic while held") = Some(watcher),
            Err(error) => {
                pool.stop();
                return Err(Error::new(Kind::Host, "no thread for the pool").with(error));
            }
        }
        Ok(pool)
    }
    /// Adds a job, with one atomic operation; a lock and a wake-up only if a thread sleeps. False if the pool has ended: the
    /// job was dropped.
    pub fn run(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        self.queue.push(Job { work, since_ns: self.stamps.now_ns() })
    }
    fn add_worker(self: &Arc<Pool>) -> Result<()> {
        let id = {
            let measured = &mut self.queue.lock().lock().measured;
            measured.threads += 1;
            measured.threads_peak = measured.threads_peak.max(measured.threads);
            measured.next_id += 1;
            measured.next_id
        };
        let pool = self.clone();
        let name = match self.work {
            Work::Client => format!("sinter-pool-{id}"),
            Work::Background => format!("sinter-back-{id}"),
        };
        let spawned = std::thread::Builder::new().name(name).spawn(move || pool.perform(id));
        match spawned {
            Ok(worker) => {
                let mut workers = self.workers.lock().expect("no panic while held");
                workers.retain(|worker| !worker.is_finished());
                workers.push(worker);
                Ok(())
            }
            Err(error) => {
                self.queue.lock().lock().measured.threads -= 1;
                Err(Error::new(Kind::Host, "no thread for the pool").with(error))
            }
        }
    }
    fn perform(self: Arc<Pool>, id: usize) {
        let guard = super::abort::AbortOnPanic;
        if self.work == Work::Background {
            scheduling::set_batch_policy();
        }
        self.gauges.add(Gauge::of_this_thread(id));
        let mut is_busy = false;
        while let Some(job) =
            self.queue.next(id, |measured, turn| measured.turn(&mut is_busy, turn, self.stamps.now_ns()))
        {
            (job.work)();
        }
        self.gauges.remove(id);
        drop(guard);
    }
    fn watch(self: Arc<Pool>, mut size: Size) {
        let mut stands_by = false;
        loop {
            let Some((look, stood_by)) = self.look() else { return };
            let was_called = stands_by && !stood_by;
            let parts = size.asks(&look).then(|| self.gauges.parts());
            let wanted = size.wanted(&look, parts);
            let threads = self.set_threads(wanted);
            // Calls cost those who have jobs to do: one is enough for a while.
            stands_by = look.waiting == 0 && !was_called && self.queue.stand_by();
            if !stands_by {
                park_timeout(Duration::from_nanos(LOOK_NS));
            } else if threads > 1 {
                park_timeout(Duration::from_nanos(SPAN_NS));
            } else {
                park();
            }
        }
    }
    /// The pool's state, and whether nobody has called the watcher; None: it is to end.
    fn look(&self) -> Option<(Look, bool)> {
        let (mut shift, stood_by) = self.queue.watch();
        if shift.is_stopping() {
            return None;
        }
        let waiting = shift.waiting().len();
        let measured = &mut shift.measured;
        measured.advance(self.stamps.now_ns());
        let busy_most = std::mem::replace(&mut measured.busy_most, measured.busy);
        Some((Look { sums: measured.sums(), waiting, threads: measured.threads, busy_most }, stood_by))
    }
    /// Adds threads, or has some end. Returns how many there will be.
    fn set_threads(self: &Arc<Pool>, wanted: usize) -> usize {
        let (threads, leaving) = {
            let mut shift = self.queue.look();
            let threads = shift.measured.threads;
            (threads, shift.dismiss(threads.saturating_sub(wanted)))
        };
        leaving.iter().for_each(Thread::unpark);
        // Without another thread the jobs wait for those there are.
        let added = (threads..wanted).take_while(|_| self.add_worker().is_ok()).count();
        threads.min(wanted) + added
    }
    /// Its figures so far.
    pub fn summary(&self) -> PoolSummary {
        let lock = self.queue.lock().summary();
        let shift = self.queue.look();
        let measured = &shift.measured;
        PoolSummary {
            threads: measured.threads,
            threads_peak: measured.threads_peak,
            queued: shift.waiting().len(),
            jobs: measured.jobs,
            wait: measured.wait.summary(),
            lock,
        }
    }
    /// Waits for the jobs that it has, then ends all threads; drops later jobs.
    pub fn stop(&self) {
        self.queue.stop();
        let watcher = self.watcher.lock().expect("no panic while held").take();
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
            watcher.join().expect("the watcher does not panic");
        }
        // Only the watcher adds workers, so none comes after this.
        let workers = std::mem::take(&mut *self.workers.lock().expect("no panic while held"));
        for worker in workers {
            worker.join().expect("a job that panics ends the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    /// Patience with a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn pool(work: Work, pinned: Option<usize>) -> Arc<Pool> {
        Pool::start(work, 2, pinned, Arc::new(Stamps::start())).expect("threads")
    }

    fn wait_until(what: impl Fn() -> bool) {
        let start = Instant::now();
        while !what() {
            assert!(start.elapsed() < PATIENCE, "it comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_grows_for_jobs_that_block_and_ends_threads_that_are_not_needed() {
        let pool = pool(Work::Client, None);
        let (send, receive) = mpsc::sync_channel(40);
        for _ in 0..40 {
            let send = send.clone();
            pool.run(Box::new(move || {
                std::thread::sleep(Duration::from_millis(20));
                send.send(()).expect("the test waits");
            }));
        }
        (0..40).for_each(|_| receive.recv_timeout(PATIENCE).expect("every job runs"));
        let summary = pool.summary();
        assert!((8..=size::THREADS_MAX).contains(&summary.threads_peak), "{}", summary.threads_peak);
        assert_eq!((summary.jobs, summary.wait.count(), summary.queued), (40, 40, 0));
        assert!(summary.lock.acquired > 0);
        assert_eq!(pool.set_threads(1), 1);
        wait_until(|| pool.summary().threads == 1);
        pool.run(Box::new(move || send.send(()).expect("the test waits")));
        receive.recv_timeout(PATIENCE).expect("the last thread still works");
        pool.stop();
        assert_eq!(pool.summary().threads, 0);
    }

    #[test]
    fn threads_end_while_jobs_wait_for_them() {
        let pool = pool(Work::Background, Some(8));
        wait_until(|| pool.summary().threads == 8);
        let (send, receive) = mpsc::sync_channel(1000);
        for _ in 0..1000 {
            let send = send.clone();
            pool.run(Box::new(move || send.send(()).expect("the test waits")));
        }
        pool.set_threads(2);
        (0..1000).for_each(|_| receive.recv_timeout(PATIENCE).expect("every job runs"));
        pool.stop();
    }

    #[test]
    fn jobs_that_have_come_are_done_and_later_ones_are_not() {
        let pool = pool(Work::Client, None);
        let (send, receive) = mpsc::sync_channel(100);
        let accepted = (0..100).filter(|_| {
            let send = send.clone();
            pool.run(Box::new(move || send.send(()).expect("the test waits")))
        });
        assert_eq!(accepted.count(), 100);
        pool.stop();
        assert_eq!(receive.try_iter().count(), 100);
        assert!(!pool.run(Box::new(|| unreachable!("it has ended"))));
    }
}
