//! Runs one core's tasks. A task is in a run queue at most once; waking it allocates nothing, from its own core
//! or from any other thread.
//!
//! Tasks that belong to no flow, the program's own, and those of one flow run in the order in which they got ready. Of several flows
//! the one that comes first by its share of the core's time runs (`shares`), and the program's own tasks keep their places among its.

use super::figures::Figures;
use super::inbox::Inbox;
use super::reactor;
use super::shares::Shares;
use crate::sync::{AtomicBool, AtomicUsize};
use crate::tasks::{Flow, Local};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// The part of a task that wakers hold: where the task lives. The future itself never leaves its core.
pub(super) struct Task {
    inbox: Arc<Inbox>,
    index: usize,
    /// Number of its run queue, which changes on its core alone.
    queue: AtomicUsize,
    /// True if the task is in a queue, or has ended: either way it need not be queued again.
    queued: AtomicBool,
}

impl Task {
    /// True if it belongs to a flow.
    pub fn is_of_flow(&self) -> bool {
        self.queue() > 0
    }
    fn queue(&self) -> usize {
        self.queue.load(Ordering::Relaxed)
    }
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
            task.take().into_iter().for_each(|task| core.executor.queues.borrow_mut().push(task));
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

/// The run queue of a flow, or of the tasks of none.
struct Queue {
    flow: Option<Arc<Flow>>,
    /// Number of tasks that it may have.
    live: usize,
    /// The ready tasks, each with its number in the order in which tasks got ready.
    ready: VecDeque<(u64, Arc<Task>)>,
}

/// The run queues. The first is that of the program's own tasks, the others are of flows.
struct Queues {
    all: Vec<Queue>,
    /// Shares of the flows, whose numbers are the queues' less one.
    shares: Shares,
    next: u64,
    ready: usize,
}

impl Default for Queues {
    fn default() -> Queues {
        let own = Queue { flow: None, live: 0, ready: VecDeque::new() };
        Queues { all: vec![own], shares: Shares::default(), next: 0, ready: 0 }
    }
}

impl Queues {
    /// The queue of a flow's tasks, and one more task in it.
    fn of(&mut self, flow: Option<Arc<Flow>>) -> usize {
        let found = self.all.iter().position(|queue| match (&queue.flow, &flow) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        });
        let number = found.unwrap_or_else(|| {
            // A task that has ended may still be in its queue, if something woke it too late.
            let is_free = |queue: &Queue| queue.live == 0 && queue.ready.is_empty();
            let free = (1..self.all.len()).find(|number| is_free(&self.all[*number]));
            let number = free.unwrap_or(self.all.len());
            let queue = Queue { flow, live: 0, ready: VecDeque::new() };
            match self.all.get_mut(number) {
                Some(place) => *place = queue,
                None => self.all.push(queue),
            }
            self.shares.add(number - 1);
            if number == 2 {
                // From here on it counts whether the first one has something to do.
                match self.all[1].ready.is_empty() {
                    true => self.shares.done(0),
                    false => self.shares.ready(0),
                }
            }
            number
        });
        self.all[number].live += 1;
        number
    }
    /// Makes room for all tasks of a queue at once, so that no wake-up has to allocate.
    fn make_room(&mut self, queue: usize) {
        let of = &mut self.all[queue];
        let missing = of.live.saturating_sub(of.ready.len());
        of.ready.reserve(missing);
    }
    /// Gives up a task's place in its queue.
    fn leave(&mut self, task: &Arc<Task>) {
        self.all[task.queue()].live -= 1;
    }
    /// True if there are flows to choose from, so that it counts which of them have something to do.
    fn are_shared(&self) -> bool {
        self.all.len() > 2
    }
    #[inline]
    fn push(&mut self, task: Arc<Task>) {
        let (number, next) = (task.queue(), self.next);
        let queue = &mut self.all[number];
        let was_empty = queue.ready.is_empty();
        queue.ready.push_back((next, task));
        self.next += 1;
        self.ready += 1;
        if was_empty && number > 0 && self.are_shared() {
            self.shares.ready(number - 1);
        }
    }
    /// The next ready task of a queue, unless one of the program's own has been ready for longer.
    #[inline]
    fn pop(&mut self, queue: usize) -> Option<Arc<Task>> {
        let first = |queue: usize| self.all[queue].ready.front().map(|(number, _)| *number);
        let from = match first(0) {
            Some(own) if queue > 0 && first(queue).is_some_and(|other| other < own) => queue,
            Some(_) => 0,
            None => queue,
        };
        let (_, task) = self.all[from].ready.pop_front()?;
        self.ready -= 1;
        if from > 0 && self.are_shared() && self.all[from].ready.is_empty() {
            self.shares.done(from - 1);
        }
        Some(task)
    }
}

/// Tasks that a turn of the core may run.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The queue beside that of the program's own tasks.
    queue: usize,
    /// Number of that queue's tasks.
    pub most: usize,
    /// True if flows share the core: the turn is to be charged.
    pub shared: bool,
}

/// The tasks of one core.
#[derive(Default)]
pub(super) struct Executor {
    queues: RefCell<Queues>,
    table: RefCell<Table>,
    /// The queue of the task that runs; 0 beside tasks.
    running: Cell<usize>,
    /// The queue that the task which runs is to change to; 0: none.
    entered: Cell<usize>,
    shared: Cell<bool>,
}

impl Executor {
    /// Adds a task of a flow, or of none, to be polled soon.
    pub fn add(&self, inbox: &Arc<Inbox>, flow: Option<Arc<Flow>>, future: Local) {
        let mut table = self.table.borrow_mut();
        let mut queues = self.queues.borrow_mut();
        let index = table.free.pop().unwrap_or(table.entries.len());
        let queue = queues.of(flow);
        let (own, queued) = (AtomicUsize::new(queue), AtomicBool::new(true));
        let task = Arc::new(Task { inbox: inbox.clone(), index, queue: own, queued });
        let entry = Some(Entry { task: task.clone(), body: Some((future, Waker::from(task.clone()))) });
        match table.entries.get_mut(index) {
            Some(place) => *place = entry,
            None => table.entries.push(entry),
        }
        queues.make_room(queue);
        queues.push(task);
    }
    /// Has the running task change to another flow once it waits. False if it is of that flow.
    pub fn enter(&self, flow: &Arc<Flow>) -> bool {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.of(Some(flow.clone()));
        let changes = queue != self.running.get();
        if changes {
            queues.make_room(queue);
            self.entered.set(queue);
        } else {
            queues.all[queue].live -= 1;
        }
        changes
    }
    /// Changes a task's queue, and queues it there unless something has woken it before.
    fn change_queue(&self, task: Arc<Task>, queue: usize) {
        let mut queues = self.queues.borrow_mut();
        queues.leave(&task);
        task.queue.store(queue, Ordering::Relaxed);
        if !task.queued.swap(true, Ordering::AcqRel) {
            queues.push(task);
        }
    }
    /// Takes over tasks that other threads have woken.
    pub fn take(&self, woken: &mut Vec<Arc<Task>>) {
        let mut queues = self.queues.borrow_mut();
        woken.drain(..).for_each(|task| queues.push(task));
    }
    /// True if no task is ready to run.
    pub fn is_idle(&self) -> bool {
        self.queues.borrow().ready == 0
    }
    /// True if flows shared the core in the turn before.
    pub fn is_shared(&self) -> bool {
        self.shared.get()
    }
    /// Begins a turn: what it may run, of at most `most` tasks of a flow, and a mask of the flows that use the core. There is none while
    /// there is one flow at most, which has nobody to share with.
    #[inline]
    pub fn begin(&self, most: usize) -> (Turn, Option<u64>) {
        let queues = self.queues.borrow_mut();
        match queues.all.len() {
            flows @ 1..=2 => (Turn { queue: flows - 1, most, shared: false }, None),
            _ => {
                let (turn, mask) = self.begin_shared(queues, most);
                (turn, Some(mask))
            }
        }
    }
    #[inline(never)]
    fn begin_shared(&self, mut queues: RefMut<'_, Queues>, most: usize) -> (Turn, u64) {
        let Queues { all, shares, .. } = &mut *queues;
        let mut mask = 0;
        let shared = shares.begin(|flow| mask |= all[flow + 1].flow.as_ref().map_or(0, |flow| flow.mask())) > 1;
        self.shared.set(shared);
        let turn = match shares.first(most) {
            Some((flow, fewer)) => Turn { queue: flow + 1, most: if shared { fewer } else { most }, shared },
            None => Turn { queue: 0, most, shared: false },
        };
        (turn, mask)
    }
    /// Charges the flow of a turn with the time that it took. `tasks`: that ran.
    pub fn charge(&self, turn: Turn, tasks: usize, took_ns: u64) {
        let mut queues = self.queues.borrow_mut();
        if !turn.shared {
            return queues.shares.charge_elsewhere(turn.queue - 1, took_ns);
        }
        queues.shares.charge(turn.queue - 1, tasks, took_ns);
    }
    /// Takes over what flows claim, tells the other cores what they have had here, and learns what they have had there. `weigh`: called
    /// with each flow's number, from 1, and the weight by which it is charged from now on.
    pub fn correct(&self, mut weigh: impl FnMut(usize, u64)) {
        let Queues { all, shares, .. } = &mut *self.queues.borrow_mut();
        let flow = |number: usize| all[number + 1].flow.as_ref().expect("only the first queue has none");
        let weights = shares.weigh(|number| (flow(number).tenant(), flow(number).claim()));
        weights.enumerate().for_each(|(number, weight)| weigh(number + 1, weight));
        shares.correct(|number, ns| flow(number).add_served(ns));
    }
    /// The number of the flow whose task runs, from 1; 0: one of the program's own, or none.
    pub fn running(&self) -> usize {
        self.running.get()
    }
    /// Takes the next task of a turn out of its queue, if one is ready.
    pub fn next(&self, turn: Turn) -> Option<Arc<Task>> {
        self.queues.borrow_mut().pop(turn.queue)
    }
    /// Polls a task.
    pub fn run(&self, task: Arc<Task>, figures: &Figures) {
        // From here on a wake-up queues it again; acquires what wakers wrote before.
        task.queued.swap(false, Ordering::AcqRel);
        let Some((mut future, waker)) = self.lift(&task) else { return };
        self.running.set(task.queue());
        let start_ns = figures.run().then(|| figures.stamp_ns());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if let Some(start_ns) = start_ns {
            figures.ran_since(start_ns);
        }
        self.running.set(0);
        match polled {
            Poll::Pending => self.put_back(&task, (future, waker)),
            Poll::Ready(()) => return self.remove(&task),
        }
        let entered = self.entered.take();
        if entered > 0 {
            self.change_queue(task, entered);
        }
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
        self.queues.borrow_mut().leave(task);
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
            self.queues.borrow_mut().leave(&entry.task);
            entry.task.queued.store(true, Ordering::Release);
            // Outside any borrow: a future's drop may wake, spawn or cancel.
            drop(entry);
        }
        let mut queues = self.queues.borrow_mut();
        (0..queues.all.len()).for_each(|queue| while queues.pop(queue).is_some() {});
    }
}
