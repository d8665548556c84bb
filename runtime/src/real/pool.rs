//! The adaptive blocking pool (decision D7): it has as many threads as the jobs need, found by measuring how long jobs
//! wait, and none when there is nothing to do. There is no setting.

use super::{clock, scheduling};
use crate::histogram::{Histogram, Summary};
use crate::lock::{Lock, LockSummary};
use base::{Error, Kind, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Largest number of threads. Jobs are reads of one device by the index, and a device that answers 16 at once in 80 us
/// gives 200,000 reads a second, more than a brick's cores can use.
const THREADS_MAX: usize = 16;
/// Time after which a waiting job calls for another thread: several device reads, hence more than a hiccup.
const WAIT_NS: u64 = 500_000;
/// Longest wait of a job behind endless others, even when more threads could only compete for the CPU.
const WAIT_STARVED_NS: u64 = 10_000_000;
/// Time without work after which a thread ends.
const IDLE: Duration = Duration::from_secs(5);

/// The kind of jobs that a pool runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Jobs that clients wait for.
    Client,
    /// Jobs that no client waits for: their threads let others go first.
    Background,
}

/// A job and the time of its arrival.
type Job = (Box<dyn FnOnce() + Send>, Instant);

struct State {
    queue: VecDeque<Job>,
    /// Threads with nothing to do. The last one in gets the next job, so that the others can end.
    idle: Vec<(usize, Thread)>,
    threads: usize,
    threads_peak: usize,
    next_id: usize,
    jobs: u64,
    wait: Histogram,
    /// The CPU's share of a job's time, in 1/1024, smoothed over about eight jobs.
    cpu_share: u64,
    /// True if the watcher will check again by itself.
    watching: bool,
    stopping: bool,
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
    /// Figures of the queue's lock.
    pub lock: LockSummary,
}

/// The measurements that decide about one more thread.
#[derive(Clone, Copy, Debug)]
struct Need {
    oldest_wait_ns: u64,
    threads: usize,
    cpu_share: u64,
    cores: usize,
}

/// True if one more thread helps: jobs wait, and the present threads do not use up the cores.
fn should_grow(need: Need) -> bool {
    if need.threads >= THREADS_MAX || need.oldest_wait_ns < WAIT_NS {
        return false;
    }
    let cpu_used = need.threads as u64 * need.cpu_share;
    cpu_used < need.cores as u64 * 1024 || need.oldest_wait_ns >= WAIT_STARVED_NS
}

/// The pool; ends with `stop`.
pub(super) struct Pool {
    state: Lock<State>,
    work: Work,
    cores: usize,
    idle_max: Duration,
    watcher: Mutex<Option<JoinHandle<()>>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// A pool beside `cores` cores.
    pub fn start(work: Work, cores: usize) -> Result<Arc<Pool>> {
        Pool::start_with(work, cores, IDLE)
    }
    fn start_with(work: Work, cores: usize, idle_max: Duration) -> Result<Arc<Pool>> {
        let state = State {
            queue: VecDeque::new(),
            idle: Vec::with_capacity(THREADS_MAX),
            threads: 0,
            threads_peak: 0,
            next_id: 0,
            jobs: 0,
            wait: Histogram::default(),
            cpu_share: 0,
            watching: false,
            stopping: false,
        };
        let state = Lock::new(if work == Work::Client { "pool" } else { "background" }, state);
        let pool =
            Arc::new(Pool { state, work, cores, idle_max, watcher: Mutex::default(), workers: Mutex::default() });
        let watched = pool.clone();
        let watcher = std::thread::Builder::new().name("sinter-watch".to_string()).spawn(move || watched.watch());
        let watcher = watcher.map_err(|error| Error::new(Kind::Host, "no thread for the pool").with(error))?;
        *pool.watcher.lock().expect("no panic while held") = Some(watcher);
        pool.add_worker()?;
        Ok(pool)
    }
    /// Adds a job, with one short lock and at most one wake-up. False if the pool has ended: the job was dropped.
    pub fn run(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        let mut state = self.state.lock();
        if state.stopping {
            return false;
        }
        state.queue.push_back((job, Instant::now()));
        let idle = state.idle.pop().map(|(_, thread)| thread);
        let watch = idle.is_none() && !state.watching;
        state.watching |= watch;
        drop(state);
        match idle {
            Some(thread) => thread.unpark(),
            None if watch => self.wake_watcher(),
            None => {}
        }
        true
    }
    fn wake_watcher(&self) {
        if let Some(watcher) = &*self.watcher.lock().expect("no panic while held") {
            watcher.thread().unpark();
        }
    }
    fn add_worker(self: &Arc<Pool>) -> Result<()> {
        let id = {
            let mut state = self.state.lock();
            state.threads += 1;
            state.threads_peak = state.threads_peak.max(state.threads);
            state.next_id += 1;
            state.next_id
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
                self.state.lock().threads -= 1;
                Err(Error::new(Kind::Host, "no thread for the pool").with(error))
            }
        }
    }
    fn watch(self: Arc<Pool>) {
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            let Some(oldest) = state.queue.front().map(|(_, since)| since.elapsed().as_nanos() as u64) else {
                state.watching = false;
                drop(state);
                std::thread::park();
                continue;
            };
            let need =
                Need { oldest_wait_ns: oldest, threads: state.threads, cpu_share: state.cpu_share, cores: self.cores };
            drop(state);
            if should_grow(need) {
                // Without another thread the jobs wait for those there are.
                let _ = self.add_worker();
            }
            std::thread::park_timeout(Duration::from_nanos(WAIT_NS));
        }
    }
    fn perform(self: Arc<Pool>, id: usize) {
        let guard = super::abort::AbortOnPanic;
        if self.work == Work::Background {
            scheduling::set_batch_policy();
        }
        while let Some(job) = self.next_job(id) {
            let (start, cpu_start_ns) = (Instant::now(), thread_cpu_ns());
            job();
            let cpu_ns = thread_cpu_ns() - cpu_start_ns;
            let share = (cpu_ns * 1024 / (start.elapsed().as_nanos() as u64).max(1)).min(1024);
            let mut state = self.state.lock();
            state.cpu_share = (state.cpu_share * 7 + share) / 8;
        }
        drop(guard);
    }
    /// Waits for a job. `None`: the thread is to end, and no longer counts.
    fn next_job(&self, id: usize) -> Option<Box<dyn FnOnce() + Send>> {
        let mut idle_since: Option<Instant> = None;
        loop {
            let mut state = self.state.lock();
            // Whoever woke us has taken us off the list; a timeout or a stray wake-up has not.
            state.idle.retain(|(idle, _)| *idle != id);
            if let Some((job, since)) = state.queue.pop_front() {
                state.jobs += 1;
                state.wait.record(since.elapsed().as_nanos() as u64);
                return Some(job);
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            let over = since.elapsed() >= self.idle_max && state.threads > 1;
            if over || state.stopping {
                state.threads -= 1;
                return None;
            }
            state.idle.push((id, std::thread::current()));
            // The last thread has no reason to look at the clock.
            let last = state.threads == 1;
            drop(state);
            if last {
                std::thread::park();
            } else {
                std::thread::park_timeout(self.idle_max.saturating_sub(since.elapsed()));
            }
        }
    }
    /// Its figures so far.
    pub fn summary(&self) -> PoolSummary {
        let lock = self.state.summary();
        let state = self.state.lock();
        PoolSummary {
            threads: state.threads,
            threads_peak: state.threads_peak,
            queued: state.queue.len(),
            jobs: state.jobs,
            wait: state.wait.summary(),
            lock,
        }
    }
    /// Waits for the jobs that it has, then ends all threads; drops later jobs.
    pub fn stop(&self) {
        let idle: Vec<Thread> = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.idle.drain(..).map(|(_, thread)| thread).collect()
        };
        idle.iter().for_each(Thread::unpark);
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

/// CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    clock::read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn growth_needs_waiting_jobs_and_free_cores() {
        let need = Need { oldest_wait_ns: WAIT_NS, threads: 2, cpu_share: 100, cores: 2 };
        assert!(should_grow(need));
        assert!(!should_grow(Need { oldest_wait_ns: WAIT_NS - 1, ..need }));
        assert!(!should_grow(Need { threads: THREADS_MAX, ..need }));
        assert!(!should_grow(Need { cpu_share: 1024, ..need }));
        assert!(should_grow(Need { cpu_share: 1024, oldest_wait_ns: WAIT_STARVED_NS, ..need }));
    }

    #[test]
    fn it_grows_for_jobs_that_block_and_shrinks_when_idle() {
        let pool = Pool::start_with(Work::Client, 2, Duration::from_millis(100)).expect("threads");
        let (send, receive) = mpsc::sync_channel(40);
        for _ in 0..40 {
            let send = send.clone();
            pool.run(Box::new(move || {
                std::thread::sleep(Duration::from_millis(20));
                send.send(()).expect("the test waits");
            }));
        }
        (0..40).for_each(|_| receive.recv_timeout(Duration::from_secs(20)).expect("every job runs"));
        let summary = pool.summary();
        assert!((4..=THREADS_MAX).contains(&summary.threads_peak), "{}", summary.threads_peak);
        assert_eq!((summary.jobs, summary.wait.count(), summary.queued), (40, 40, 0));
        let start = Instant::now();
        while pool.summary().threads > 1 {
            assert!(start.elapsed() < Duration::from_secs(20), "idle threads end");
            std::thread::sleep(Duration::from_millis(20));
        }
        pool.run(Box::new(move || send.send(()).expect("the test waits")));
        receive.recv_timeout(Duration::from_secs(20)).expect("the last thread still works");
        pool.stop();
        assert_eq!(pool.summary().threads, 0);
    }
}
