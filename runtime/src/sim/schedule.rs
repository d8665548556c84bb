//! Simulated time and everything that waits for it: timers, transfers, jobs, and the queue of tasks that can run.
//! Shared with the code under test through the traits `Clock`, `Tasks` and `Random`; the tasks themselves belong to the
//! world.

use super::trace::{Trace, TraceEvent, TraceKind};
use crate::clock::{Clock, Sleep};
use crate::random::{Random, SplitMix};
use crate::tasks::{MakeTask, Tasks};
use base::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The clock at boot: not zero, so that nobody takes zero for "never".
pub(super) const BOOT_NS: u64 = 1_000_000_000;

/// Longest delay of a job in the pool; the shortest is zero. An index miss on a busy device takes that long.
const JOB_NS_MAX: u64 = 500_000;

/// A job of the pool.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Timer(u64),
    Transfer(u64),
    Job(u64),
    /// A spindle, by its file, may have ended a transfer.
    Spindle(u64),
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
    cores: usize,
    now_ns: AtomicU64,
    wall_ahead_ns: AtomicI64,
    core: AtomicUsize,
    stopped: AtomicBool,
    ready: Arc<Ready>,
    state: Mutex<State>,
}

struct State {
    rng: SplitMix,
    random: SplitMix,
    dues: BinaryHeap<Reverse<(u64, u64, Due)>>,
    next: u64,
    timers: BTreeMap<u64, Waker>,
    jobs: BTreeMap<u64, Job>,
    spawned: Vec<(usize, MakeTask)>,
    transfers: usize,
    trace: Trace,
}

impl Schedule {
    pub(super) fn new(mut rng: SplitMix, cores: usize, wall_ns: i64) -> Schedule {
        let random = SplitMix(rng.next());
        let state = State {
            rng,
            random,
            dues: BinaryHeap::new(),
            next: 0,
            timers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            spawned: Vec::new(),
            transfers: 0,
            trace: Trace::default(),
        };
        Schedule {
            cores,
            now_ns: AtomicU64::new(BOOT_NS),
            wall_ahead_ns: AtomicI64::new(wall_ns - BOOT_NS as i64),
            core: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            ready: Arc::default(),
            state: Mutex::new(state),
        }
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
    /// Moves the wall clock alone.
    pub(super) fn jump_wall(&self, ns: i64) {
        self.wall_ahead_ns.fetch_add(ns, Ordering::Relaxed);
    }
    pub(super) fn wall_ns(&self) -> i64 {
        self.now() as i64 + self.wall_ahead_ns.load(Ordering::Relaxed)
    }
    /// Sets the core on which the code that runs now is.
    pub(super) fn enter_core(&self, core: usize) {
        self.core.store(core, Ordering::Relaxed);
    }
    /// Ends the world: nothing more happens in it.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
    pub(super) fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }
    /// Adds to `tasks` those that were woken since the last call.
    pub(super) fn take_woken(&self, tasks: &mut Vec<usize>) {
        tasks.append(&mut self.ready.woken.lock().expect("no panic while held"));
    }
    /// The tasks that were spawned since the last call.
    pub(super) fn take_spawned(&self) -> Vec<(usize, MakeTask)> {
        std::mem::take(&mut self.state().spawned)
    }
    /// Uniform in `0..bound`, for the world's own decisions.
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.state().rng.below(bound)
    }
    /// Adds a transfer that ends `delay_ns` from now. Returns the number under which it falls due.
    pub(super) fn add_transfer(&self, delay_ns: u64) -> u64 {
        let now = self.now();
        let mut state = self.state();
        state.transfers += 1;
        state.add(now.saturating_add(delay_ns), Due::Transfer)
    }
    /// Adds a transfer of which only its device knows when it ends. Returns its number; `end_transfer` ends it.
    pub(super) fn start_transfer(&self) -> u64 {
        let mut state = self.state();
        state.transfers += 1;
        state.next += 1;
        state.next - 1
    }
    /// Ends a transfer that `start_transfer` began.
    pub(super) fn end_transfer(&self) {
        self.state().transfers -= 1;
    }
    /// Adds a look at a spindle.
    pub(super) fn add_look(&self, at_ns: u64, file: u64) {
        self.state().add(at_ns, |_| Due::Spindle(file));
    }
    /// Time of the next event, if there is any.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let mut state = self.state();
        while let Some(&Reverse((at_ns, _, due))) = state.dues.peek() {
            match due {
                Due::Timer(id) if !state.timers.contains_key(&id) => state.dues.pop(),
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
        if let Due::Transfer(_) = due {
            state.transfers -= 1;
        }
        Some(due)
    }
    /// True while a transfer or a job is under way.
    pub(super) fn busy(&self) -> bool {
        let state = self.state();
        state.transfers > 0 || !state.jobs.is_empty()
    }
    /// Ends a timer and wakes its waiter.
    pub(super) fn end_timer(&self, id: u64) {
        let waker = self.state().timers.remove(&id);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    pub(super) fn take_job(&self, id: u64) -> Job {
        self.state().jobs.remove(&id).expect("a job falls due once")
    }
    pub(super) fn note(&self, kind: TraceKind, subject: u64, detail: u64) {
        let event = TraceEvent { at_ns: self.now(), kind, subject, detail };
        self.state().trace.note(event);
    }
    pub(super) fn with_trace<R>(&self, with: impl FnOnce(&mut Trace) -> R) -> R {
        with(&mut self.state().trace)
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
        self.dues.push(Reverse((at_ns, tie, due(id))));
        id
    }
}

impl Tasks for Schedule {
    fn cores(&self) -> usize {
        self.cores
    }
    fn core(&self) -> usize {
        self.core.load(Ordering::Relaxed)
    }
    fn spawn(&self, core: usize, make: MakeTask) {
        assert!(core < self.cores, "no core {core}");
        if !self.stopped() {
            self.state().spawned.push((core, make));
        }
    }
    fn blocking(&self, job: Job) {
        if self.stopped() {
            return;
        }
        let now = self.now();
        let mut state = self.state();
        let delay_ns = state.rng.below(JOB_NS_MAX);
        let id = state.add(now + delay_ns, Due::Job);
        state.jobs.insert(id, job);
    }
}

impl Random for Schedule {
    fn next_u64(&self) -> u64 {
        self.state().random.next()
    }
}

/// The clock of a simulated world.
pub(super) struct SimClock(pub(super) Arc<Schedule>);

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0.now()
    }
    fn wall(&self) -> Time {
        Time(self.0.wall_ns())
    }
    fn sleep(&self, ns: u64) -> Sleep {
        let at_ns = self.0.now().saturating_add(ns);
        Box::pin(Timer { schedule: self.0.clone(), at_ns, id: None })
    }
}

struct Timer {
    schedule: Arc<Schedule>,
    at_ns: u64,
    id: Option<u64>,
}

impl Future for Timer {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.schedule.now() >= self.at_ns {
            return Poll::Ready(());
        }
        let (at_ns, id) = (self.at_ns, self.id);
        let mut state = self.schedule.state();
        let id = id.unwrap_or_else(|| state.add(at_ns, Due::Timer));
        state.timers.insert(id, context.waker().clone());
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // The waker may be the last handle of something: it is dropped without the lock.
            let waker = self.schedule.state().timers.remove(&id);
            drop(waker);
        }
    }
}
