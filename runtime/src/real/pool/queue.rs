//! The way of jobs to the threads that do them: whoever has a job pays one atomic operation, and a wake-up only if somebody
//! sleeps.
//!
//! New jobs are a list that grows at one pointer, so that adding one takes no lock. Threads take the whole list under a lock of
//! their own, and bring it into the order in which jobs came. A thread that finds nothing to do leaves a mark in the very pointer
//! at which jobs are added: whoever adds the next one has to call somebody. So no job comes unseen between a thread's look and
//! its sleep. One call is under way at a time, and who was called calls the next one if there is more to do.
//!
//! Absent by design: time and figures (`measured` is the caller's), and the number of threads.

use crate::lock::{Guard, Lock};
use crate::sync::{AtomicPtr, Thread, current, park};
use base::seeded::{Bug, active};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::Ordering;

/// A new job, which points to the one that came before it.
struct Node<T> {
    job: T,
    older: *mut Node<T>,
}

/// A mark in the place of a node: nothing is there, and whoever adds a job has to call somebody.
const CALL: usize = 1;
/// A mark in the place of a node: nothing can be added any more. The largest number that is no node.
const CLOSED: usize = 2;

const fn mark<T>(number: usize) -> *mut Node<T> {
    ptr::without_provenance_mut(number)
}

fn is_node<T>(node: *mut Node<T>) -> bool {
    node.addr() > CLOSED
}

/// Takes back a node that nobody else can reach: it is not in the list yet, or the list was taken out.
fn own<T>(node: *mut Node<T>) -> Box<Node<T>> {
    // SAFETY: all nodes come from `Box::leak` in `push`. A node that is not in the list is known to one thread only.
    unsafe { Box::from_raw(node) }
}

/// The next turn of a thread.
pub enum Turn<'a, T> {
    /// A job.
    Begins(&'a T),
    /// It has nothing to do.
    Rests,
    /// It ends.
    Ends,
}

/// The jobs of a pool, and its threads that sleep.
pub struct Queue<T, M> {
    /// The newest of the new jobs, or a mark, or null: nothing is there, and nobody has to be called.
    newest: AtomicPtr<Node<T>>,
    shift: Lock<Shift<T, M>>,
}

/// The knowledge that a pool's threads share.
pub struct Shift<T, M> {
    /// Jobs in the order in which they came, all before the new ones.
    waiting: VecDeque<T>,
    /// Threads that sleep. The last one in is called first, so that the others can end.
    idle: Vec<(usize, Thread)>,
    /// The watcher, if it sleeps until no thread is left to be called.
    watcher: Option<Thread>,
    /// Number of threads that are to end, whatever waits.
    leaving: usize,
    stopping: bool,
    /// The caller's own, behind the same lock.
    pub measured: M,
}

impl<T, M> Shift<T, M> {
    /// Jobs that wait, oldest first.
    pub fn waiting(&self) -> &VecDeque<T> {
        &self.waiting
    }
    /// True once the queue takes nothing any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }
    /// Has so many threads end, those that have slept longest before those that are at work; who was told so earlier counts. One at
    /// least must stay. Returns those that have to be woken.
    pub fn dismiss(&mut self, count: usize) -> Vec<Thread> {
        self.leaving = count;
        self.idle.drain(..count.min(self.idle.len())).map(|(_, thread)| thread).collect()
    }
    fn somebody(&mut self) -> Option<Thread> {
        self.idle.pop().map(|(_, thread)| thread).or_else(|| self.watcher.take())
    }
}

impl<T, M> Queue<T, M> {
    /// An empty queue whose lock has a name.
    pub fn new(name: &'static str, measured: M) -> Queue<T, M> {
        let (waiting, idle) = (VecDeque::new(), Vec::new());
        let shift = Shift { waiting, idle, watcher: None, leaving: 0, stopping: false, measured };
        Queue { newest: AtomicPtr::new(ptr::null_mut()), shift: Lock::new(name, shift) }
    }
    /// The lock, for its figures.
    pub fn lock(&self) -> &Lock<Shift<T, M>> {
        &self.shift
    }
    /// Adds a job. False if the queue was stopped: the job was dropped.
    pub fn push(&self, job: T) -> bool {
        let node = Box::leak(Box::new(Node { job, older: ptr::null_mut() }));
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            if newest == mark(CLOSED) {
                drop(own(node));
                return false;
            }
            node.older = newest;
            // Release: who takes the list sees the jobs.
            let added = self.newest.compare_exchange_weak(newest, &raw mut *node, Ordering::Release, Ordering::Relaxed);
            match added {
                Ok(_) => break,
                Err(found) => newest = found,
            }
        }
        if newest == mark(CALL) {
            self.call();
        }
        true
    }
    #[cold]
    fn call(&self) {
        let called = self.shift.lock().somebody();
        if let Some(thread) = called {
            thread.unpark();
        }
    }
    /// Has new jobs wait behind the others.
    fn gather(&self, shift: &mut Shift<T, M>) {
        if is_node(self.newest.load(Ordering::Relaxed)) {
            line_up(self.newest.swap(ptr::null_mut(), Ordering::Acquire), &mut shift.waiting);
        }
    }
    /// Leaves the mark, unless something has come.
    fn ask_for_call(&self) -> bool {
        let (nothing, asked) = (ptr::null_mut(), mark(CALL));
        // Whoever finds the mark takes the lock, under which it is left.
        match self.newest.compare_exchange(nothing, asked, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(found) => !is_node(found) || active(Bug::WakeUpLost),
        }
    }
    /// Sees to it that somebody comes for what waits now or comes next. Returns who has to be woken for that.
    fn settle(&self, shift: &mut Shift<T, M>) -> Option<Thread> {
        if shift.waiting.is_empty() {
            if (shift.idle.is_empty() && shift.watcher.is_none()) || self.ask_for_call() {
                return None;
            }
            self.gather(shift);
        }
        shift.somebody()
    }
    /// The next job of the thread with this number, which sleeps until there is one. None: the thread is to end. `turn` is called
    /// under the lock, whenever it is known what the thread does next.
    pub fn next(&self, id: usize, mut turn: impl FnMut(&mut M, Turn<'_, T>)) -> Option<T> {
        loop {
            let mut shift = self.shift.lock();
            // Whoever woke us has taken us off the list; a stray wake-up has not.
            shift.idle.retain(|(idle, _)| *idle != id);
            self.gather(&mut shift);
            let leaves = shift.leaving > 0 && !shift.stopping;
            let job = if leaves { None } else { shift.waiting.pop_front() };
            let ends = leaves || (job.is_none() && shift.stopping);
            if let Some(job) = &job {
                turn(&mut shift.measured, Turn::Begins(job));
            } else if ends {
                shift.leaving -= usize::from(leaves);
                turn(&mut shift.measured, Turn::Ends);
            } else {
                shift.idle.push((id, current()));
                turn(&mut shift.measured, Turn::Rests);
            }
            let called = self.settle(&mut shift);
            drop(shift);
            if let Some(thread) = called {
                thread.unpark();
            }
            if job.is_some() || ends {
                return job;
            }
            park();
        }
    }
    /// Access to what waits, new jobs included.
    pub fn look(&self) -> Guard<'_, Shift<T, M>> {
        let mut shift = self.shift.lock();
        self.gather(&mut shift);
        shift
    }
    /// The same for the watcher, which is called no more. True if it still stood by.
    pub fn watch(&self) -> (Guard<'_, Shift<T, M>>, bool) {
        let mut shift = self.look();
        let stood_by = shift.watcher.take().is_some();
        (shift, stood_by)
    }
    /// Has the calling thread woken once a job comes for which no thread is free. False if jobs wait already.
    pub fn stand_by(&self) -> bool {
        let mut shift = self.look();
        if !shift.waiting.is_empty() || shift.stopping {
            return false;
        }
        shift.watcher = Some(current());
        let may = self.ask_for_call();
        if !may {
            shift.watcher = None;
        }
        may
    }
    /// Refuses jobs from now on, and wakes all. Threads end once they have done what waits.
    pub fn stop(&self) {
        let mut shift = self.shift.lock();
        shift.stopping = true;
        line_up(self.newest.swap(mark(CLOSED), Ordering::Acquire), &mut shift.waiting);
        let sleepers: Vec<Thread> = std::iter::from_fn(|| shift.somebody()).collect();
        drop(shift);
        sleepers.iter().for_each(Thread::unpark);
    }
}

/// Adds a list of new jobs to those that wait, oldest first.
fn line_up<T>(mut newest: *mut Node<T>, waiting: &mut VecDeque<T>) {
    let before = waiting.len();
    while is_node(newest) {
        let Node { job, older } = *own(newest);
        waiting.push_back(job);
        newest = older;
    }
    if waiting.len() > before + 1 {
        waiting.make_contiguous()[before..].reverse();
    }
}

impl<T, M> Drop for Queue<T, M> {
    fn drop(&mut self) {
        line_up(self.newest.swap(mark(CLOSED), Ordering::Acquire), &mut VecDeque::new());
    }
}
