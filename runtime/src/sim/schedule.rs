//! Simulated time and everything that waits for it, on all hosts: timers, transfers, jobs, what travels between hosts, and the queue of
//! tasks that can run. Hosts share it with the code under test; the tasks themselves belong to the fleet.

use super::host::Host;
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::random::SplitMix;
use crate::tasks::MakeTask;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The clock at boot: not zero, so that nobody takes zero for "never".
pub(super) const BOOT_NS: u64 = 1_000_000_000;

/// Longest delay of a job in the pool; the shortest is zero. An index miss on a busy device takes that long.
const JOB_NS_MAX: u64 = 500_000;

/// A job of the pool.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The number of a boot of a host: what a host that has ended left behind is told from what its next life does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Boot(pub usize);

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Timer(u64),
    /// A transfer of a host's disk.
    Transfer(Boot, u64),
    Job(u64),
    /// A spindle of a host, by its file, may have ended a transfer.
    Spindle(Boot, u64),
    /// Something happens on the way between hosts, or at its ends.
    Net(u64),
    /// A look at what has been silent for long; nobody waits for it.
    Look(u64),
    /// A host may go on after a pause.
    Resume(Boot),
}

/// Tasks that were woken, in the order of waking.
#[derive(Default)]
pub(super) struct Ready {
    woken: Mutex<Vec<usize>>,
}

/// A task's waker. It knows the queue only, so that a waker kept somewhere does not keep the world.
pub(super) struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    /// The waker of a task that is queued from the start.
    pub(super) fn new(task: usize, ready: &Arc<Ready>) -> Arc<TaskWaker> {
        let waker = Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready: ready.clone() });
        waker.wake_by_ref();
        waker
    }
    /// Notes that the task is about to run: a wake queues it again from now on.
    pub(super) fn start(&self) {
        self.queued.store(false, Ordering::Relaxed);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.woken.lock().expect("no panic while held").push(self.task);
        }
    }
}

/// See the module's head.
pub(super) struct Schedule {
    now_ns: AtomicU64,
    ready: Arc<Ready>,
    state: Mutex<State>,
}

struct State {
    rng: SplitMix,
    dues: BinaryHeap<Reverse<(u64, u64, Due)>>,
    next: u64,
    timers: BTreeMap<u64, (Boot, Waker)>,
    jobs: BTreeMap<u64, (Arc<Host>, Job)>,
    spawned: Vec<(Arc<Host>, usize, MakeTask)>,
    /// Transfers under way, of each host that runs and of what is between them.
    transfers: BTreeMap<Boot, usize>,
    net: usize,
    trace: Trace,
}

impl Schedule {
    pub(super) fn new(rng: SplitMix) -> Schedule {
        let state = State {
            rng,
            dues: BinaryHeap::new(),
            next: 0,
            timers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            spawned: Vec::new(),
            transfers: BTreeMap::new(),
            net: 0,
            trace: Trace::default(),
        };
        Schedule { now_ns: AtomicU64::new(BOOT_NS), ready: Arc::default(), state: Mutex::new(state) }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in the code under test may have poisoned it; the world's end still needs what is in there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn now(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
    /// Lets time pass; events that fall due meanwhile happen later.
    pub(super) fn spend(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }
    /// Jumps forward to `at_ns`, if that is in the future.
    pub(super) fn jump(&self, at_ns: u64) {
        self.now_ns.fetch_max(at_ns, Ordering::Relaxed);
    }
    pub(super) fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }
    /// Adds to `tasks` those that were woken since the last call.
    pub(super) fn take_woken(&self, tasks: &mut Vec<usize>) {
        tasks.append(&mut self.ready.woken.lock().expect("no panic while held"));
    }
    pub(super) fn spawn(&self, host: Arc<Host>, core: usize, make: MakeTask) {
        self.state().spawned.push((host, core, make));
    }
    /// The tasks that were spawned since the last call.
    pub(super) fn take_spawned(&self) -> Vec<(Arc<Host>, usize, MakeTask)> {
        std::mem::take(&mut self.state().spawned)
    }
    /// Uniform in `0..bound`, for the world's own decisions.
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.state().rng.below(bound)
    }
    /// Adds a transfer of a host that ends `delay_ns` from now. Returns the number under which it falls due.
    pub(super) fn add_transfer(&self, boot: Boot, delay_ns: u64) -> u64 {
        let now = self.now();
        let mut state = self.state();
        *state.transfers.entry(boot).or_default() += 1;
        state.add(now.saturating_add(delay_ns), |id| Due::Transfer(boot, id))
    }
    /// Adds a transfer of which only its device knows when it ends. Returns its number; `end_transfer` ends it.
    pub(super) fn start_transfer(&self, boot: Boot) -> u64 {
        let mut state = self.state();
        *state.transfers.entry(boot).or_default() += 1;
        state.next += 1;
        state.next - 1
    }
    /// Ends a transfer that `start_transfer` began.
    pub(super) fn end_transfer(&self, boot: Boot) {
        self.state().transfers.entry(boot).and_modify(|count| *count -= 1);
    }
    /// Adds an event that is no transfer of a disk. Returns its number.
    pub(super) fn add(&self, at_ns: u64, due: impl FnOnce(u64) -> Due) -> u64 {
        self.state().add(at_ns, due)
    }
    /// Time of the next event, if there is any.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let mut state = self.state();
        while let Some(&Reverse((at_ns, _, due))) = state.dues.peek() {
            match due {
                Due::Timer(id) if !state.timers.contains_key(&id) => state.dues.pop(),
                Due::Job(id) if !state.jobs.contains_key(&id) => state.dues.pop(),
                _ => return Some(at_ns),
            };
        }
        None
    }
    /// Takes the next event if it is due by now.
    pub(super) fn take_due(&self) -> Option<Due> {
        let now = self.now();
        self.next_due_ns().filter(|&at_ns| at_ns <= now)?;
        let mut state = self.state();
        let Reverse((_, _, due)) = state.dues.pop().expect("just seen");
        match due {
            Due::Transfer(boot, _) => {
                state.transfers.entry(boot).and_modify(|count| *count -= 1);
            }
            Due::Net(_) => state.net -= 1,
            _ => {}
        }
        Some(due)
    }
    /// True while a transfer or a job is under way, or something between hosts.
    pub(super) fn busy(&self) -> bool {
        let state = self.state();
        state.net > 0 || state.transfers.values().any(|&count| count > 0) || !state.jobs.is_empty()
    }
    /// Sets a timer of a host, or moves it to another waiter. Returns its number.
    pub(super) fn set_timer(&self, boot: Boot, at_ns: u64, id: Option<u64>, waker: &Waker) -> u64 {
        let mut state = self.state();
        let id = id.unwrap_or_else(|| state.add(at_ns, Due::Timer));
        state.timers.insert(id, (boot, waker.clone()));
        id
    }
    /// Forgets a timer.
    pub(super) fn drop_timer(&self, id: u64) {
        // The waker may be the last handle of something: it is dropped without the lock.
        let timer = self.state().timers.remove(&id);
        drop(timer);
    }
    /// Ends a timer and wakes its waiter.
    pub(super) fn end_timer(&self, id: u64) {
        let timer = self.state().timers.remove(&id);
        if let Some((_, waker)) = timer {
            waker.wake();
        }
    }
    pub(super) fn add_job(&self, host: Arc<Host>, job: Job) {
        let now = self.now();
        let mut state = self.state();
        let delay_ns = state.rng.below(JOB_NS_MAX);
        let id = state.add(now + delay_ns, Due::Job);
        state.jobs.insert(id, (host, job));
    }
    pub(super) fn take_job(&self, id: u64) -> (Arc<Host>, Job) {
        self.state().jobs.remove(&id).expect("a job falls due once")
    }
    /// Puts a job off until a time.
    pub(super) fn postpone(&self, at_ns: u64, host: Arc<Host>, job: Job) {
        let mut state = self.state();
        let id = state.add(at_ns, Due::Job);
        state.jobs.insert(id, (host, job));
    }
    pub(super) fn note(&self, kind: TraceKind, subject: u64, detail: u64) {
        let event = TraceEvent { at_ns: self.now(), kind, subject, detail };
        self.state().trace.note(event);
    }
    pub(super) fn with_trace<R>(&self, with: impl FnOnce(&mut Trace) -> R) -> R {
        with(&mut self.state().trace)
    }
    /// Drops what waits for a host that has ended. Destructors may call back, so no lock is held.
    pub(super) fn forget(&self, boot: Boot) {
        let mut state = self.state();
        let timers: Vec<_> = state.timers.extract_if(.., |_, (of, _)| *of == boot).collect();
        let jobs: Vec<_> = state.jobs.extract_if(.., |_, (host, _)| host.boot() == boot).collect();
        let (gone, spawned) =
            std::mem::take(&mut state.spawned).into_iter().partition::<Vec<_>, _>(|(host, ..)| host.boot() == boot);
        state.spawned = spawned;
        state.transfers.remove(&boot);
        drop(state);
        drop((timers, jobs, gone));
    }
    /// Drops all waiters. Destructors may call back, so no lock is held.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        let timers = std::mem::take(&mut state.timers);
        let jobs = std::mem::take(&mut state.jobs);
        let spawned = std::mem::take(&mut state.spawned);
        state.dues.clear();
        drop(state);
        drop((timers, jobs, spawned));
    }
}

impl State {
    fn add(&mut self, at_ns: u64, due: impl FnOnce(u64) -> Due) -> u64 {
        let id = self.next;
        self.next += 1;
        // Events of the same nanosecond come in any order.
        let tie = self.rng.next();
        let due = due(id);
        self.net += usize::from(matches!(due, Due::Net(_)));
        self.dues.push(Reverse((at_ns, tie, due)));
        id
    }
}
