//! A core with its inbox and its tasks, and threads that are none.

use crate::Flag;
use base::Kind;
use interleave::disk::FileId;
use interleave::explore;
use interleave::real::{Door, block_on, start};
use interleave::sync::{AtomicBool, Mutex};
use interleave::tasks::{Flow, MakeTask, Tasks, both, enter, run_blocking};
use interleave::transfer::Request;
use loom::thread::spawn;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

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
fn a_run_sees_what_all_wrote_who_had_asked_for_it() {
    explore(3, || {
        let (door, core) = start();
        let (registered, done) = (Flag::new(), Flag::new());
        let waker = Arc::new(Mutex::new(None));
        // Nothing but the wake-up itself orders these.
        let written = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let (place, seen, ready, end) = (waker.clone(), written.clone(), registered.clone(), done.clone());
        door.spawn(task(async move {
            let mut first = true;
            poll_fn(|context| {
                if std::mem::take(&mut first) {
                    *place.lock().expect("no panic while held") = Some(context.waker().clone());
                    ready.set();
                }
                let all = seen.iter().all(|one| one.load(Ordering::Relaxed));
                if all { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            end.set();
        }));
        block_on(registered.wait());
        let waker = waker.lock().expect("no panic while held").take().expect("it is registered");
        let (there, other) = (written.clone(), waker.clone());
        let thread = spawn(move || {
            there[1].store(true, Ordering::Relaxed);
            other.wake();
        });
        written[0].store(true, Ordering::Relaxed);
        waker.wake();
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
    fn enter(&self, flow: &Arc<Flow>) -> bool {
        interleave::real::enter(flow)
    }
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        spawn(job);
    }
}

/// It may be woken before, while and after it changes its queue.
#[test]
fn a_task_that_changes_its_flow_is_woken() {
    explore(3, || {
        let (door, core) = start();
        let pool = Arc::new(Pool(door.clone()));
        let (asked, done) = (Flag::new(), Flag::new());
        let (one, other) = (asked.clone(), done.clone());
        door.spawn(task(async move {
            let flow = Arc::new(Flow::new(100));
            both(one.wait(), enter(&*pool, &flow)).await;
            assert!(!pool.enter(&flow), "it is of this flow now");
            other.set();
        }));
        asked.set();
        block_on(done.wait());
        door.stop();
        core.join().expect("no panic");
    });
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
