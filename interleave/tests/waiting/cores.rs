//! A core with its inbox and its tasks, and threads that are none.

use crate::Flag;
use base::Kind;
use interleave::disk::FileId;
use interleave::explore;
use interleave::real::{Door, block_on, start};
use interleave::tasks::{MakeTask, Tasks, both, run_blocking};
use interleave::transfer::Request;
use loom::thread::spawn;
use std::sync::Arc;

fn task(future: impl Future<Output = ()> + Send + 'static) -> MakeTask {
    Box::new(move || Box::pin(future))
}

fn a_task_is_woken() {
    explore(4, || {
        let (door, core) = start();
        let (asked, done) = (Flag::new(), Flag::new());
        let (one, other) = (asked.clone(), done.clone());
        door.spawn(task(async move {
            one.wait().await;
            other.set();
        }));
        asked.set();
        block_on(done.wait());
        door.stop();
        core.join().expect("no panic");
    });
}

#[test]
fn a_task_that_another_thread_wakes_runs() {
    a_task_is_woken();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_lost_wake_up_is_noticed() {
    assert!(base::seeded::fails(a_task_is_woken, base::seeded::Bug::WakeUpLost));
}

#[test]
fn a_task_that_two_threads_wake_runs_for_both() {
    explore(3, || {
        let (door, core) = start();
        let flags = [Flag::new(), Flag::new(), Flag::new()];
        let [one, other, done] = flags.clone();
        door.spawn(task(async move {
            both(one.wait(), other.wait()).await;
            done.set();
        }));
        let [one, other, done] = flags;
        let thread = spawn(move || one.set());
        other.set();
        block_on(done.wait());
        door.stop();
        thread.join().expect("no panic");
        core.join().expect("no panic");
    });
}

#[test]
fn an_io_of_another_thread_ends_whenever_the_core_does() {
    explore(4, || {
        let (door, core) = start();
        let other = door.clone();
        let stopper = spawn(move || other.stop());
        let done = block_on(door.submit(Request::Flush { file: FileId(0) }));
        assert!(done.result.is_ok() || done.result.is_err_and(|error| error.kind == Kind::Interrupted));
        stopper.join().expect("no panic");
        core.join().expect("no panic");
    });
}

/// Has a thread for each job.
struct Pool(Door);

impl Tasks for Pool {
    fn cores(&self) -> usize {
        1
    }
    fn core(&self) -> usize {
        0
    }
    fn spawn(&self, _core: usize, make: MakeTask) {
        self.0.spawn(make);
    }
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        spawn(job);
    }
}

#[test]
fn the_answer_of_a_job_comes_back_to_its_core() {
    explore(4, || {
        let (door, core) = start();
        let pool = Arc::new(Pool(door.clone()));
        let done = Flag::new();
        let other = done.clone();
        door.spawn(task(async move {
            assert_eq!(run_blocking(&*pool, || 7).await, 7);
            other.set();
        }));
        block_on(done.wait());
        door.stop();
        core.join().expect("no panic");
    });
}
