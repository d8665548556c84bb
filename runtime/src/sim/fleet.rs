//! Several hosts on one schedule, under one seed. A fleet owns the tasks of all hosts, and decides by seed which runs next.

use super::disk::{Side, SimDisk};
use super::host::{Host, Inside};
use super::image::{DiskImage, Survival};
use super::links::Links;
use super::net::SimNet;
use super::schedule::{Boot, Due, Schedule, TaskWaker};
use super::trace::{TraceEvent, TraceKind};
use super::world::{Ran, Setup};
use crate::Budget;
use crate::Clock;
use crate::Runtime;
use crate::buffer::Slabs;
use crate::ledger::Ledger;
use crate::random::SplitMix;
use crate::tasks::{Local, MakeTask};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The number of the main future in the queue of tasks.
const MAIN: usize = usize::MAX;

/// Runs of tasks without any event between them after which the fleet counts as spinning: more than any honest burst.
const SPINS_MAX: u64 = 1_000_000;

/// The number of what is outside of all hosts: the test's own future.
pub(super) const OUTSIDE: usize = 0xffff;

/// A host that was booted.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) host: Arc<Host>,
    pub(super) disk: Arc<SimDisk>,
    pub(super) runtime: Runtime,
    /// True if it has ended, and all know that.
    is_buried: bool,
}

/// The hosts of a fleet, by their numbers. A handle that the test's future and hosts' tasks may have too.
pub struct Hosts {
    pub(super) schedule: Arc<Schedule>,
    links: Arc<Links>,
    outside: Arc<Host>,
    state: Mutex<State>,
}

struct State {
    rng: SplitMix,
    /// The draws of the first boot, made as it always was, so that seeds of a single host replay as they did.
    first: Option<(u64, SplitMix, SplitMix)>,
    boots: usize,
    machines: BTreeMap<usize, Machine>,
    /// Hosts that have ended, whose tasks are still there.
    ended: Vec<Boot>,
}

impl Hosts {
    fn new(seed: u64) -> Hosts {
        let mut rng = SplitMix(seed);
        // A reboot takes up to a minute.
        let reboot_ns = rng.below(60_000_000_000);
        let mut schedule_rng = SplitMix(rng.next());
        let random = SplitMix(schedule_rng.next());
        let first = Some((reboot_ns, random, SplitMix(rng.next())));
        let schedule = Arc::new(Schedule::new(schedule_rng));
        let links = Arc::new(Links::new(&schedule, SplitMix(rng.next())));
        let numbers = (OUTSIDE, Boot(0));
        let outside = Host::new(&schedule, numbers, 1, super::BootClock::default(), 0, SplitMix(rng.next()));
        let state = State { rng, first, boots: 1, machines: BTreeMap::new(), ended: Vec::new() };
        Hosts { schedule, links, outside, state: Mutex::new(state) }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Boots a host: a new one, or one that has ended. The setup's seed and patience are the fleet's.
    pub fn boot(&self, number: usize, setup: Setup) -> Runtime {
        self.boot_machine(number, setup).runtime
    }
    pub(super) fn boot_machine(&self, number: usize, setup: Setup) -> Machine {
        assert!(number < OUTSIDE && !self.is_up(number), "host {number} is up already");
        self.notice();
        let mut state = self.state();
        let (reboot_ns, random, disk_rng) = match state.first.take() {
            Some(first) => first,
            None => {
                let rng = &mut state.rng;
                (rng.below(60_000_000_000), SplitMix(rng.next()), SplitMix(rng.next()))
            }
        };
        let boot = Boot(state.boots);
        state.boots += 1;
        let image = setup.disk_image();
        let wall_ns = image.wall_ns + reboot_ns as i64;
        let host = Host::new(&self.schedule, (number, boot), setup.cores, setup.clock, wall_ns, random);
        let disk = Arc::new(SimDisk::new(host.clone(), disk_rng, &image));
        let slabs = setup.slabs.unwrap_or_else(|| Arc::new(Slabs::new(setup.cores, 256 << 20)));
        let inside = Arc::new(Inside(host.clone()));
        self.links.boot(&host);
        let runtime = Runtime {
            clock: inside.clone(),
            disk: disk.clone(),
            net: Arc::new(SimNet::new(host.clone(), self.links.clone())),
            tasks: inside.clone(),
            random: inside,
            slabs,
            ledger: Ledger::new(setup.cores, setup.names),
            budget: Arc::new(Budget::new(0)),
        };
        let machine = Machine { host, disk, runtime, is_buried: false };
        state.machines.insert(number, machine.clone());
        machine
    }
    fn machine(&self, number: usize) -> Machine {
        self.state().machines.get(&number).unwrap_or_else(|| panic!("no host {number}")).clone()
    }
    /// The runtime of a host's code, since its last boot.
    pub fn runtime(&self, number: usize) -> Runtime {
        self.machine(number).runtime
    }
    /// The disk of a host, for faults and figures.
    pub fn disk(&self, number: usize) -> Arc<SimDisk> {
        self.machine(number).disk
    }
    /// The links between the hosts.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }
    /// A clock of true time, for the test's own future.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Inside(self.outside.clone()))
    }
    /// True while a host runs: since its boot it was not killed and has not crashed.
    pub fn is_up(&self, number: usize) -> bool {
        self.state().machines.get(&number).is_some_and(|machine| !machine.host.stopped())
    }
    /// Kills the process of a host that is up; the machine goes on, and tells the other ends of its connections. Returns its
    /// disk: all writes stay, and those in flight may land while the next process runs already (rule L4).
    pub fn kill(&self, number: usize) -> DiskImage {
        let Machine { host, disk, .. } = self.machine(number);
        assert!(!host.stopped(), "host {number} has ended already");
        let image = disk.kill_image(&mut self.rng());
        self.links.kill(&host);
        self.bury_soon(number);
        image
    }
    /// Switches a host off, or looks at one that has crashed at a step, and returns its disk. Nobody is told.
    pub fn crash(&self, number: usize, survival: Survival) -> DiskImage {
        let Machine { host, disk, .. } = self.machine(number);
        if !host.stopped() {
            disk.crash_now();
        }
        self.notice();
        disk.crash_image(survival, &mut self.rng())
    }
    fn rng(&self) -> SplitMix {
        SplitMix(self.state().rng.next())
    }
    /// Has the tasks of a host that has ended dropped. False if that was said already.
    fn bury_soon(&self, number: usize) -> bool {
        let mut state = self.state();
        let machine = state.machines.get_mut(&number).expect("the caller looked");
        let is_new = !std::mem::replace(&mut machine.is_buried, true);
        let boot = machine.host.boot();
        if is_new {
            state.ended.push(boot);
        }
        is_new
    }
    /// Takes in that hosts have crashed by themselves: a machine that is off tells nobody.
    fn notice(&self) {
        let crashed = |machine: &&Machine| machine.host.stopped() && !machine.is_buried;
        let hosts: Vec<Arc<Host>> =
            self.state().machines.values().filter(crashed).map(|machine| machine.host.clone()).collect();
        for host in hosts {
            if self.bury_soon(host.number()) {
                self.links.switch_off(&host);
            }
        }
    }
    /// Stops the processes of a host for a while, as SIGSTOP does: no task of it runs, and timers are late. Its kernel goes on.
    pub fn pause(&self, number: usize, ns: u64) {
        self.machine(number).host.pause(ns);
    }
    /// Moves the wall clock of a host, and only that, forward or back.
    pub fn jump_wall(&self, number: usize, ns: i64) {
        self.machine(number).host.jump_wall(ns);
    }
    /// Has a host crash at a durable step of its disk (from 1 since its boot): right before it happens, or right after.
    pub fn crash_at_step(&self, number: usize, step: u64, side: Side) {
        self.disk(number).crash_at_step(step, side);
    }
    /// Does what a host's disk does now.
    fn disk_of(&self, boot: Boot) -> Option<Arc<SimDisk>> {
        let state = self.state();
        let machine = state.machines.values().find(|machine| machine.host.boot() == boot)?;
        (!machine.host.stopped()).then(|| machine.disk.clone())
    }
    /// The boots that have ended since the last call.
    fn take_ended(&self) -> Vec<Boot> {
        let mut state = self.state();
        if state.ended.is_empty() { Vec::new() } else { std::mem::take(&mut state.ended) }
    }
}

/// Simulated hosts, and their tasks.
pub struct Fleet {
    seed: u64,
    patience_ns: u64,
    hosts: Arc<Hosts>,
    tasks: Vec<Option<Task>>,
    ready: Vec<usize>,
    /// Ready tasks of hosts that are paused.
    held: Vec<usize>,
}

struct Task {
    host: Arc<Host>,
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
pub(super) enum Goal {
    Main { until_ns: u64 },
    Idle,
    Time { until_ns: u64 },
}

impl Fleet {
    /// A fleet without hosts, which gives up on a future after an hour of simulated time.
    pub fn new(seed: u64) -> Fleet {
        Fleet::with_patience(seed, 3_600_000_000_000)
    }
    /// A fleet that gives up on a future after this much simulated time.
    pub fn with_patience(seed: u64, patience_ns: u64) -> Fleet {
        let hosts = Arc::new(Hosts::new(seed));
        Fleet { seed, patience_ns, hosts, tasks: Vec::new(), ready: Vec::new(), held: Vec::new() }
    }
    /// The hosts.
    pub fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }
    /// Runs a future that belongs to no host, with all hosts' tasks, until it ends. It has a clock of its own
    /// (`Hosts::clock`), and may boot, kill and pause hosts. Panics, naming the seed, if it never can end.
    pub fn block_on<T>(&mut self, future: impl Future<Output = T>) -> T {
        match self.run(None, future) {
            Ran::Finished(value) => value,
            Ran::Crashed => unreachable!("what is outside does not crash"),
        }
    }
    /// Runs for `ns` of simulated time.
    pub fn run_for(&mut self, ns: u64) {
        self.drive(None, None, Goal::Time { until_ns: self.hosts.schedule.now().saturating_add(ns) });
    }
    /// Runs until no task can run, and no transfer, job or message is under way; see `World::run_until_idle`.
    pub fn run_until_idle(&mut self) {
        self.drive(None, None, Goal::Idle);
    }
    /// A hash over everything that has happened: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.hosts.schedule.with_trace(|trace| trace.fingerprint())
    }
    /// Number of events so far: runs of tasks, timers, jobs, operations of disks and of the network.
    pub fn events(&self) -> u64 {
        self.hosts.schedule.with_trace(|trace| trace.count())
    }
    /// Keeps the last `events_max` events from now on, for `trace`; a panic prints them.
    pub fn keep_trace(&mut self, events_max: usize) {
        self.hosts.schedule.with_trace(|trace| trace.keep(events_max));
    }
    /// The events kept, oldest first.
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.hosts.schedule.with_trace(|trace| trace.events())
    }

    /// Runs a future of a host, or of none, until it ends or that host crashes.
    pub(super) fn run<T>(&mut self, owner: Option<&Arc<Host>>, future: impl Future<Output = T>) -> Ran<T> {
        let mut value = None;
        let end = {
            let main = pin!(async { value = Some(future.await) });
            let flag = TaskWaker::new(MAIN, self.hosts.schedule.ready());
            let until_ns = self.hosts.schedule.now().saturating_add(self.patience_ns);
            self.drive(owner, Some((main, flag)), Goal::Main { until_ns })
        };
        match (end, value) {
            (Ran::Finished(()), Some(value)) => Ran::Finished(value),
            (Ran::Finished(()), None) => unreachable!("the goal was the value"),
            (Ran::Crashed, _) => Ran::Crashed,
        }
    }
    pub(super) fn drive(&mut self, owner: Option<&Arc<Host>>, mut main: Main<'_, '_>, goal: Goal) -> Ran<()> {
        let has_crashed = || owner.is_some_and(|host| host.stopped());
        let schedule = self.hosts.schedule.clone();
        let mut spins = 0;
        loop {
            if self.fire_due(owner) {
                spins = 0;
            }
            if has_crashed() {
                return Ran::Crashed;
            }
            if owner.is_none() {
                self.hosts.notice();
                self.bury();
            }
            self.adopt();
            if self.past(goal) {
                return Ran::Finished(());
            }
            if self.ready.is_empty() {
                if self.wait(goal) {
                    return Ran::Finished(());
                }
                continue;
            }
            spins += 1;
            assert!(spins < SPINS_MAX, "seed {}: tasks spin without waiting for anything", self.seed);
            let choice = schedule.below(self.ready.len() as u64) as usize;
            let ended = match self.ready.swap_remove(choice) {
                MAIN => self.poll_main(owner, &mut main),
                task => {
                    self.poll(task);
                    false
                }
            };
            // A turn takes time, so that nothing happens twice at the same nanosecond and spinning does not stop it.
            schedule.spend(200 + schedule.below(800));
            if ended && !has_crashed() {
                return Ran::Finished(());
            }
        }
    }
    /// Performs all events that are due. True if there were any.
    fn fire_due(&mut self, owner: Option<&Arc<Host>>) -> bool {
        let schedule = self.hosts.schedule.clone();
        let mut fired = false;
        while owner.is_none_or(|host| !host.stopped())
            && let Some(due) = schedule.take_due()
        {
            fired = true;
            match due {
                Due::Transfer(boot, id) => self.hosts.disk_of(boot).into_iter().for_each(|disk| disk.end(id)),
                Due::Spindle(boot, file) => {
                    self.hosts.disk_of(boot).into_iter().for_each(|disk| disk.look(file as usize));
                }
                Due::Timer(id) => {
                    schedule.note(TraceKind::Timer, id, 0);
                    schedule.end_timer(id);
                }
                Due::Job(id) => self.run_job(id),
                Due::Net(id) | Due::Look(id) => self.hosts.links.happen(id),
                Due::Resume(_) => self.ready.append(&mut self.held),
            }
        }
        fired
    }
    fn run_job(&self, id: u64) {
        let schedule = &self.hosts.schedule;
        let (host, job) = schedule.take_job(id);
        if let Some(until_ns) = host.paused_until() {
            return schedule.postpone(until_ns, host, job);
        }
        schedule.note(TraceKind::Job, id, 0);
        host.enter_core(0);
        job();
    }
    /// Drops the tasks of hosts that have ended, and what waits for them.
    fn bury(&mut self) {
        for boot in self.hosts.take_ended() {
            for task in &mut self.tasks {
                // Dropped with no lock held: a future's end may call back.
                drop(task.take_if(|task| task.host.boot() == boot));
            }
            self.hosts.schedule.forget(boot);
        }
    }
    /// Takes in spawned and woken tasks.
    fn adopt(&mut self) {
        let schedule = self.hosts.schedule.clone();
        for (host, core, make) in schedule.take_spawned() {
            let flag = TaskWaker::new(self.tasks.len(), schedule.ready());
            let waker = Waker::from(flag.clone());
            self.tasks.push(Some(Task { host, core, body: Body::Unmade(make), flag, waker }));
        }
        schedule.take_woken(&mut self.ready);
        let Fleet { tasks, ready, held, .. } = self;
        let is_paused = |task: usize| {
            tasks.get(task).and_then(Option::as_ref).is_some_and(|task| task.host.paused_until().is_some())
        };
        held.extend(ready.extract_if(.., |task| is_paused(*task)));
    }
    fn past(&self, goal: Goal) -> bool {
        let now = self.hosts.schedule.now();
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
        let schedule = &self.hosts.schedule;
        let next = schedule.next_due_ns();
        match (goal, next) {
            (Goal::Idle, _) if !schedule.busy() && self.held.is_empty() => return true,
            (Goal::Main { .. }, None) => panic!("seed {}: deadlock: all wait and nothing is under way", self.seed),
            (Goal::Time { until_ns }, None) => schedule.jump(until_ns),
            (Goal::Time { until_ns }, Some(next_ns)) => schedule.jump(next_ns.min(until_ns)),
            (Goal::Main { until_ns }, Some(next_ns)) => schedule.jump(next_ns.min(until_ns)),
            (Goal::Idle, next) => schedule.jump(next.expect("what is under way ends some time")),
        }
        false
    }
    fn poll_main(&mut self, owner: Option<&Arc<Host>>, main: &mut Main<'_, '_>) -> bool {
        // A waker of an earlier main future may outlive it.
        let Some((main, flag)) = main else { return false };
        self.hosts.schedule.note(TraceKind::Poll, MAIN as u64, 0);
        owner.unwrap_or(&self.hosts.outside).enter_core(0);
        flag.start();
        let waker = Waker::from(flag.clone());
        main.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }
    fn poll(&mut self, index: usize) {
        // A waker may outlive its task, and a task its host.
        let Some(mut task) = self.tasks[index].take() else { return };
        if task.host.stopped() {
            return;
        }
        let place = task.core as u64 | (task.host.number() as u64) << 32;
        self.hosts.schedule.note(TraceKind::Poll, index as u64, place);
        task.host.enter_core(task.core);
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

impl Drop for Fleet {
    fn drop(&mut self) {
        let machines: Vec<Machine> = self.hosts.state().machines.values().cloned().collect();
        if std::thread::panicking() {
            self.trace().iter().for_each(|event| eprintln!("{event}"));
            let steps: Vec<u64> = machines.iter().map(|machine| machine.disk.steps()).collect();
            eprintln!("simulation: seed {}, {} ns, step {steps:?}", self.seed, self.hosts.schedule.now());
        }
        machines.iter().for_each(|machine| machine.host.stop());
        self.hosts.outside.stop();
        // Tasks hold the runtime, whose queues hold tasks and wakers: cut here. Nothing is added once stopped.
        self.tasks.clear();
        self.hosts.schedule.clear();
        self.hosts.links.clear();
        machines.iter().for_each(|machine| machine.disk.clear());
        let machines = std::mem::take(&mut self.hosts.state().machines);
        drop(machines);
    }
}
