//! Runs one core's tasks. A task is in the run queue at most once; waking it allocates nothing, from its own core
//! or from any other thread.

use super::figures::Figures;
use super::inbox::Inbox;
use super::reactor;
use crate::sync::AtomicBool;
use crate::tasks::Local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// The part of a task that wakers hold: where the task lives. The future itself never leaves its core.
pub(super) struct Task {
    inbox: Arc<Inbox>,
    index: usize,
    /// True if the task is in a queue, or has ended: either way it need not be queued again.
    queued: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            enqueue(self);
        }
    }
    fn wake_by_ref(self: &Arc<Task>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            enqueue(self.clone());
        }
    }
}

fn enqueue(task: Arc<Task>) {
    let mut task = Some(task);
    reactor::with_current(|core| {
        if task.as_ref().is_some_and(|task| Arc::ptr_eq(&task.inbox, &core.inbox)) {
            core.executor.queue.borrow_mut().extend(task.take());
        }
    });
    if let Some(task) = task {
        task.inbox.clone().wake(task);
    }
}

struct Entry {
    task: Arc<Task>,
    /// The future and its waker; `None` while it is being polled.
    body: Option<(Local, Waker)>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

/// The tasks of one core.
#[derive(Default)]
pub(super) struct Executor {
    queue: RefCell<VecDeque<Arc<Task>>>,
    table: RefCell<Table>,
    live: Cell<usize>,
}

impl Executor {
    /// Adds a task, to be polled soon.
    pub fn add(&self, inbox: &Arc<Inbox>, future: Local) {
        let mut table = self.table.borrow_mut();
        let index = table.free.pop().unwrap_or(table.entries.len());
        let task = Arc::new(Task { inbox: inbox.clone(), index, queued: AtomicBool::new(true) });
        let entry = Some(Entry { task: task.clone(), body: Some((future, Waker::from(task.clone()))) });
        match table.entries.get_mut(index) {
            Some(place) => *place = entry,
            None => table.entries.push(entry),
        }
        self.live.set(self.live.get() + 1);
        let mut queue = self.queue.borrow_mut();
        // Room for all tasks at once, so that no wake-up has to allocate.
        let missing = self.live.get().saturating_sub(queue.len());
        queue.reserve(missing);
        queue.push_back(task);
    }
    /// Takes over tasks that other threads have woken.
    pub fn take(&self, woken: &mut Vec<Arc<Task>>) {
        self.queue.borrow_mut().extend(woken.drain(..));
    }
    /// True if no task is ready to run.
    pub fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty()
    }
    /// Polls the next task of the queue. False if the queue is empty.
    pub fn run_one(&self, figures: &Figures) -> bool {
        let Some(task) = self.queue.borrow_mut().pop_front() else { return false };
        // From here on a wake-up queues it again; acquires what wakers wrote before.
        task.queued.swap(false, Ordering::AcqRel);
        let Some((mut future, waker)) = self.lift(&task) else { return true };
        let start_ns = figures.run().then(|| figures.stamp_ns());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if let Some(start_ns) = start_ns {
            figures.ran_since(start_ns);
        }
        match polled {
            Poll::Pending => self.put_back(&task, (future, waker)),
            Poll::Ready(()) => self.remove(&task),
        }
        true
    }
    fn lift(&self, task: &Arc<Task>) -> Option<(Local, Waker)> {
        let mut table = self.table.borrow_mut();
        let entry = table.entries[task.index].as_mut()?;
        // A wake-up that raced with the task's end may come after its place was given to another.
        if Arc::ptr_eq(&entry.task, task) { entry.body.take() } else { None }
    }
    fn put_back(&self, task: &Arc<Task>, body: (Local, Waker)) {
        let mut table = self.table.borrow_mut();
        let entry = table.entries[task.index].as_mut().expect("a task that is being polled keeps its place");
        assert!(Arc::ptr_eq(&entry.task, task) && entry.body.is_none());
        entry.body = Some(body);
    }
    fn remove(&self, task: &Arc<Task>) {
        task.queued.store(true, Ordering::Release);
        let mut table = self.table.borrow_mut();
        let entry = table.entries[task.index].take().expect("a task ends once");
        assert!(entry.body.is_none());
        table.free.push(task.index);
        self.live.set(self.live.get() - 1);
    }
    /// Drops every task, also those that are added while others are dropped.
    pub fn clear(&self) {
        loop {
            let entry = {
                let mut table = self.table.borrow_mut();
                let Some(index) = table.entries.iter().position(Option::is_some) else { break };
                table.free.push(index);
                table.entries[index].take().expect("just found")
            };
            self.live.set(self.live.get() - 1);
            entry.task.queued.store(true, Ordering::Release);
            // Outside any borrow: a future's drop may wake, spawn or cancel.
            drop(entry);
        }
        self.queue.borrow_mut().clear();
    }
}
