//! The queue of a pool: those who add jobs, threads that do them, and the watcher.

use crate::{Flag, Watched};
use interleave::explore;
use interleave::real::block_on;
use interleave::real::queue::Queue;
use loom::thread::{JoinHandle, park, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
struct Pool(Arc<Queue<Job, ()>>);

impl Pool {
    fn new() -> Pool {
        Pool(Arc::new(Queue::new("pool", ())))
    }
    fn worker(&self, id: usize) -> JoinHandle<()> {
        let pool = self.clone();
        spawn(move || {
            while let Some(job) = pool.0.next(id, |(), _| {}) {
                job();
            }
        })
    }
    /// Adds a job that sets a flag.
    fn set(&self, flag: &Arc<Flag>) {
        let flag = flag.clone();
        assert!(self.0.push(Box::new(move || flag.set())), "it was not stopped");
    }
    /// Adds a job that sets a flag once another one is set.
    fn set_after(&self, flag: &Arc<Flag>, other: &Arc<Flag>) {
        let (flag, other) = (flag.clone(), other.clone());
        let job = move || {
            block_on(other.wait());
            flag.set();
        };
        assert!(self.0.push(Box::new(job)), "it was not stopped");
    }
    /// Sleeps until jobs wait for which no thread is free. False: it was stopped.
    fn watch(&self) -> bool {
        loop {
            let (shift, _) = self.0.watch();
            if shift.is_stopping() || !shift.waiting().is_empty() {
                return !shift.is_stopping();
            }
            drop(shift);
            if self.0.stand_by() {
                park();
            }
        }
    }
}

fn a_job_is_done() {
    explore(4, || {
        let (pool, done, bytes) = (Pool::new(), Flag::new(), Arc::new(Watched::new()));
        let worker = pool.worker(0);
        let (set, seen) = (done.clone(), bytes.clone());
        bytes.write();
        let job = move || {
            seen.read();
            set.set();
        };
        assert!(pool.0.push(Box::new(job)), "it was not stopped");
        block_on(done.wait());
        pool.0.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn a_job_that_comes_while_the_thread_falls_asleep_is_done() {
    a_job_is_done();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_sleep_without_a_second_look_is_noticed() {
    assert!(base::seeded::fails(a_job_is_done, base::seeded::Bug::WakeUpLost));
}

#[test]
fn jobs_of_two_that_add_at_once_are_done() {
    explore(2, || {
        let (pool, flags) = (Pool::new(), [Flag::new(), Flag::new()]);
        let worker = pool.worker(0);
        let (other, flag) = (pool.clone(), flags[1].clone());
        let adder = spawn(move || other.set(&flag));
        pool.set(&flags[0]);
        flags.iter().for_each(|flag| block_on(flag.wait()));
        adder.join().expect("no panic");
        pool.0.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn who_was_called_calls_the_next_one() {
    explore(2, || {
        let (pool, first, second) = (Pool::new(), Flag::new(), Flag::new());
        let workers = [pool.worker(0), pool.worker(1)];
        pool.set_after(&first, &second);
        pool.set(&second);
        block_on(first.wait());
        pool.0.stop();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
}

#[test]
fn the_watcher_is_called_if_no_thread_is_free() {
    explore(2, || {
        let (pool, first, second) = (Pool::new(), Flag::new(), Flag::new());
        let worker = pool.worker(0);
        let watched = pool.clone();
        let watcher = spawn(move || {
            // Whether the only thread is slow or waits for what waits can't be told: it is given help.
            watched.watch().then(|| watched.worker(1).join().expect("no panic"));
        });
        pool.set_after(&first, &second);
        pool.set(&second);
        block_on(first.wait());
        pool.0.stop();
        watcher.join().expect("no panic");
        worker.join().expect("no panic");
    });
}

#[test]
fn a_thread_that_is_dismissed_leaves_its_job_to_another() {
    explore(2, || {
        let (pool, done) = (Pool::new(), Flag::new());
        let workers = [pool.worker(0), pool.worker(1)];
        let other = pool.clone();
        let watcher = spawn(move || {
            let sleepers = other.0.look().dismiss(1);
            sleepers.iter().for_each(loom::thread::Thread::unpark);
        });
        pool.set(&done);
        block_on(done.wait());
        watcher.join().expect("no panic");
        pool.0.stop();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
}

#[test]
fn a_job_is_done_or_refused_when_the_pool_ends() {
    explore(4, || {
        let (pool, sum, bytes) = (Pool::new(), Arc::new(AtomicUsize::new(0)), Arc::new(Watched::new()));
        let worker = pool.worker(0);
        let (other, there) = (pool.clone(), sum.clone());
        let adder = spawn(move || {
            bytes.write();
            usize::from(other.0.push(Box::new(move || {
                bytes.read();
                there.fetch_add(1, Ordering::Relaxed);
            })))
        });
        pool.0.stop();
        let added = adder.join().expect("no panic");
        worker.join().expect("no panic");
        assert_eq!(sum.load(Ordering::Relaxed), added);
    });
}
