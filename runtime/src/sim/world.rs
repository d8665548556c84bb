//! The world itself: owns the tasks, and decides by seed which runs next.

use super::disk::{Side, SimDisk};
use super::image::{DiskImage, Survival};
use super::schedule::{Due, Schedule, SimClock, TaskWaker};
use super::trace::{TraceEvent, TraceKind};
use crate::Budget;
use crate::Runtime;
use crate::buffer::Slabs;
use crate::disk::device_name;
use crate::ledger::Ledger;
use crate::random::SplitMix;
use crate::tasks::{Local, MakeTask};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

/// The number of the main future in the queue of tasks.
const MAIN: usize = usize::MAX;

/// Runs of tasks without any event between them after which the world counts as spinning: more than any honest burst.
const SPINS_MAX: u64 = 1_000_000;

/// Wall time at the first boot: 2026-01-01 00:00:00 UTC.
const WALL_NS: i64 = 1_767_225_600_000_000_000;

/// The properties of a world to make. `Setup::new` gives defaults to change field by field.
pub struct Setup {
    /// The seed, which decides everything.
    pub seed: u64,
    /// Number of logical cores; one thread runs them all.
    pub cores: usize,
    /// The disk at boot; None: an empty one of `capacity_bytes`.
    pub image: Option<DiskImage>,
    /// Bytes of an empty disk.
    pub capacity_bytes: u64,
    /// Bytes of a blank block device beside it; None: the image's, or none. A device that grew keeps its content.
    pub device_bytes: Option<u64>,
    /// The same of further devices, `device-2` and so on.
    pub further_bytes: Vec<u64>,
    /// Names of the devices that are hard disks, beside those that the image has: the model `sim::spindle` says how long their
    /// transfers take. All others are flash.
    pub spindles: Vec<String>,
    /// Slabs of an earlier world of this thread with at least as many cores; None: new ones.
    pub slabs: Option<Arc<Slabs>>,
    /// Names of the ledger's operations.
    pub names: &'static [&'static str],
    /// Simulated time after which `run` gives up on its future and panics.
    pub patience_ns: u64,
}

impl Setup {
    /// Two cores, an empty disk of 64 GiB, no names for the ledger, an hour of patience.
    pub fn new(seed: u64) -> Setup {
        Setup {
            seed,
            cores: 2,
            image: None,
            capacity_bytes: 64 << 30,
            device_bytes: None,
            further_bytes: Vec::new(),
            spindles: Vec::new(),
            slabs: None,
            names: &[],
            patience_ns: 3_600_000_000_000,
        }
    }
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran<T> {
    /// The future gave this value.
    Finished(T),
    /// The crash came that `crash_at_step` requested.
    Crashed,
}

/// A simulated machine.
pub struct World {
    seed: u64,
    patience_ns: u64,
    schedule: Arc<Schedule>,
    disk: Arc<SimDisk>,
    runtime: Runtime,
    tasks: Vec<Option<Task>>,
    ready: Vec<usize>,
}

struct Task {
    core: usize,
    body: Body,
    flag: Arc<TaskWaker>,
    waker: Waker,
}

enum Body {
    Unmade(MakeTask),
    Made(Local),
}

type Main<'a, 'b> = Option<(Pin<&'a mut (dyn Future<Output = ()> + 'b)>, Arc<TaskWaker>)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Main { until_ns: u64 },
    Idle,
    Time { until_ns: u64 },
}

#[derive(PartialEq, Eq)]
enum End {
    Reached,
    Crashed,
}

impl World {
    /// A machine with two cores and an empty disk.
    pub fn new(seed: u64) -> World {
        World::with(Setup::new(seed))
    }
    /// A machine that boots with the disk that a crash left.
    pub fn from_image(seed: u64, image: DiskImage) -> World {
        World::with(Setup { image: Some(image), ..Setup::new(seed) })
    }
    /// A machine that uses the slabs of an earlier one, which saves their allocation.
    pub fn with_slabs(seed: u64, slabs: Arc<Slabs>) -> World {
        World::with(Setup { slabs: Some(slabs), ..Setup::new(seed) })
    }
    /// A machine as described.
    pub fn with(setup: Setup) -> World {
        assert!(setup.cores > 0, "a machine has a core");
        let mut rng = SplitMix(setup.seed);
        let blank = || DiskImage {
            capacity_bytes: setup.capacity_bytes,
            wall_ns: WALL_NS,
            files: BTreeMap::new(),
            late: Vec::new(),
            spindles: BTreeSet::new(),
        };
        let mut image = setup.image.unwrap_or_else(blank);
        let further = setup.further_bytes.iter().zip(2..).map(|(&bytes, number)| (number, bytes));
        for (number, bytes) in setup.device_bytes.map(|bytes| (1, bytes)).into_iter().chain(further) {
            image.files.entry(device_name(number)).or_default().length = bytes;
        }
        image.spindles.extend(setup.spindles);
        // A reboot takes up to a minute.
        let wall_ns = image.wall_ns + rng.below(60_000_000_000) as i64;
        let schedule = Arc::new(Schedule::new(SplitMix(rng.next()), setup.cores, wall_ns));
        let disk = Arc::new(SimDisk::new(schedule.clone(), SplitMix(rng.next()), &image));
        let slabs = setup.slabs.unwrap_or_else(|| Arc::new(Slabs::new(setup.cores, 256 << 20)));
        let runtime = Runtime {
            clock: Arc::new(SimClock(schedule.clone())),
            disk: disk.clone(),
            net: Arc::new(crate::noop::NoNet),
            tasks: schedule.clone(),
            random: schedule.clone(),
            slabs,
            ledger: Ledger::new(setup.cores, setup.names),
            budget: Arc::new(Budget::new(0)),
        };
        let (seed, patience_ns) = (setup.seed, setup.patience_ns);
        World { seed, patience_ns, schedule, disk, runtime, tasks: Vec::new(), ready: Vec::new() }
    }
    /// The runtime of the code under test.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }
    /// The disk, for faults and figures.
    pub fn disk(&self) -> &Arc<SimDisk> {
        &self.disk
    }
    /// Runs `future` on core 0, with all spawned tasks, until it ends. Panics, naming the seed, if it never can, or if
    /// a requested crash comes first: see `run`.
    pub fn block_on<T>(&mut self, future: impl Future<Output = T>) -> T {
        match self.run(future) {
            Ran::Finished(value) => value,
            Ran::Crashed => panic!("seed {}: the machine crashed; use run to expect that", self.seed),
        }
    }
    /// Like `block_on`, for a world that may crash.
    pub fn run<T>(&mut self, future: impl Future<Output = T>) -> Ran<T> {
        let mut value = None;
        let end = {
            let main = pin!(async { value = Some(future.await) });
            let flag = TaskWaker::new(MAIN, self.schedule.ready());
            let until_ns = self.schedule.now().saturating_add(self.patience_ns);
            self.drive(Some((main, flag)), Goal::Main { until_ns })
        };
        match (end, value) {
            (End::Reached, Some(value)) => Ran::Finished(value),
            (End::Reached, None) => unreachable!("the goal was the value"),
            (End::Crashed, _) => Ran::Crashed,
        }
    }
    /// Runs until no task can run and no transfer or job is under way. Timers alone don't count: background tasks that
    /// wake now and then never end.
    pub fn run_until_idle(&mut self) -> Ran<()> {
        self.drive_alone(Goal::Idle)
    }
    /// Runs for `ns` of simulated time.
    pub fn run_for(&mut self, ns: u64) -> Ran<()> {
        self.drive_alone(Goal::Time { until_ns: self.schedule.now().saturating_add(ns) })
    }
    fn drive_alone(&mut self, goal: Goal) -> Ran<()> {
        match self.drive(None, goal) {
            End::Reached => Ran::Finished(()),
            End::Crashed => Ran::Crashed,
        }
    }
    /// Durable steps so far; see `SimDisk::steps`.
    pub fn steps(&self) -> u64 {
        self.disk.steps()
    }
    /// Makes `run` end with `Crashed` at a durable step (from 1): right before it happens, or right after.
    pub fn crash_at_step(&mut self, step: u64, side: Side) {
        self.disk.crash_at_step(step, side);
    }
    /// The disk after a crash at this moment, by `rng`. The world stays: several images can be drawn from one moment.
    pub fn crash(&self, rng: &mut SplitMix) -> DiskImage {
        self.crash_as(Survival::Random, rng)
    }
    /// The disk after a crash of a certain kind at this moment.
    pub fn crash_as(&self, survival: Survival, rng: &mut SplitMix) -> DiskImage {
        self.disk.crash_image(survival, rng)
    }
    /// The disk after a kill of the process, while the machine goes on: all writes stay, and those in flight may land
    /// while the next world runs already (rule L4). To be called once: this world is over.
    pub fn kill(&self, rng: &mut SplitMix) -> DiskImage {
        self.disk.kill_image(rng)
    }
    /// Moves the wall clock, and only that, forward or back.
    pub fn jump_wall(&mut self, ns: i64) {
        self.schedule.jump_wall(ns);
    }
    /// A hash over everything that has happened: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.schedule.with_trace(|trace| trace.fingerprint())
    }
    /// Number of events so far: runs of tasks, timers, jobs and operations of the disk.
    pub fn events(&self) -> u64 {
        self.schedule.with_trace(|trace| trace.count())
    }
    /// Keeps the last `events_max` events from now on, for `trace`; a panic prints them.
    pub fn keep_trace(&mut self, events_max: usize) {
        self.schedule.with_trace(|trace| trace.keep(events_max));
    }
    /// The events kept, oldest first.
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.schedule.with_trace(|trace| trace.events())
    }

    fn drive(&mut self, mut main: Main<'_, '_>, goal: Goal) -> End {
        let mut spins = 0;
        loop {
            if self.fire_due() {
                spins = 0;
            }
            if self.schedule.stopped() {
                return End::Crashed;
            }
            self.adopt();
            if self.past(goal) {
                return End::Reached;
            }
            if self.ready.is_empty() {
                if self.wait(goal) {
                    return End::Reached;
                }
                continue;
            }
            spins += 1;
            assert!(spins < SPINS_MAX, "seed {}: tasks spin without waiting for anything", self.seed);
            let choice = self.schedule.below(self.ready.len() as u64) as usize;
            let ended = match self.ready.swap_remove(choice) {
                MAIN => self.poll_main(&mut main),
                task => {
                    self.poll(task);
                    false
                }
            };
            // A turn takes time, so that nothing happens twice at the same nanosecond and spinning does not stop it.
            self.schedule.spend(200 + self.schedule.below(800));
            if ended && !self.schedule.stopped() {
                return End::Reached;
            }
        }
    }
    /// Performs all events that are due. True if there were any.
    fn fire_due(&mut self) -> bool {
        let mut fired = false;
        while !self.schedule.stopped()
            && let Some(due) = self.schedule.take_due()
        {
            fired = true;
            match due {
                Due::Transfer(id) => self.disk.end(id),
                Due::Spindle(file) => self.disk.look(file as usize),
                Due::Timer(id) => {
                    self.schedule.note(TraceKind::Timer, id, 0);
                    self.schedule.end_timer(id);
                }
                Due::Job(id) => {
                    self.schedule.note(TraceKind::Job, id, 0);
                    self.schedule.enter_core(0);
                    self.schedule.take_job(id)();
                }
            }
        }
        fired
    }
    /// Takes in spawned and woken tasks.
    fn adopt(&mut self) {
        for (core, make) in self.schedule.take_spawned() {
            let flag = TaskWaker::new(self.tasks.len(), self.schedule.ready());
            let waker = Waker::from(flag.clone());
            self.tasks.push(Some(Task { core, body: Body::Unmade(make), flag, waker }));
        }
        self.schedule.take_woken(&mut self.ready);
    }
    fn past(&self, goal: Goal) -> bool {
        let now = self.schedule.now();
        match goal {
            Goal::Idle => false,
            Goal::Time { until_ns } => now >= until_ns,
            Goal::Main { until_ns } => {
                assert!(now < until_ns, "seed {}: not finished after {} ns", self.seed, self.patience_ns);
                false
            }
        }
    }
    /// Lets time jump to the next event when nothing can run. True if the goal is reached instead.
    fn wait(&mut self, goal: Goal) -> bool {
        let next = self.schedule.next_due_ns();
        match (goal, next) {
            (Goal::Idle, _) if !self.schedule.busy() => return true,
            (Goal::Main { .. }, None) => panic!("seed {}: deadlock: all wait and nothing is under way", self.seed),
            (Goal::Time { until_ns }, None) => self.schedule.jump(until_ns),
            (Goal::Time { until_ns }, Some(next_ns)) => self.schedule.jump(next_ns.min(until_ns)),
            (Goal::Main { until_ns }, Some(next_ns)) => self.schedule.jump(next_ns.min(until_ns)),
            (Goal::Idle, next) => self.schedule.jump(next.expect("what is under way ends some time")),
        }
        false
    }
    fn poll_main(&mut self, main: &mut Main<'_, '_>) -> bool {
        // A waker of an earlier main future may outlive it.
        let Some((main, flag)) = main else { return false };
        self.schedule.note(TraceKind::Poll, MAIN as u64, 0);
        self.schedule.enter_core(0);
        flag.start();
        let waker = Waker::from(flag.clone());
        main.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }
    fn poll(&mut self, index: usize) {
        // A waker may outlive its task.
        let Some(mut task) = self.tasks[index].take() else { return };
        self.schedule.note(TraceKind::Poll, index as u64, task.core as u64);
        self.schedule.enter_core(task.core);
        task.flag.start();
        let mut future = match task.body {
            Body::Unmade(make) => make(),
            Body::Made(future) => future,
        };
        let polled = future.as_mut().poll(&mut Context::from_waker(&task.waker));
        if polled.is_pending() {
            task.body = Body::Made(future);
            self.tasks[index] = Some(task);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.trace().iter().for_each(|event| eprintln!("{event}"));
            eprintln!("simulation: seed {}, {} ns, step {}", self.seed, self.schedule.now(), self.steps());
        }
        self.schedule.stop();
        // Tasks hold the runtime, whose queues hold tasks and wakers: cut here. Nothing is added once stopped.
        self.tasks.clear();
        self.schedule.clear();
        self.disk.clear();
    }
}
