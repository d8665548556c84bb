//! A world of a single host: a fleet of one, which ends when that host does.

use super::disk::{Side, SimDisk};
use super::fleet::{Fleet, Goal, Machine};
use super::host::BootClock;
use super::image::{DiskImage, Survival};
use super::trace::TraceEvent;
use crate::Runtime;
use crate::buffer::Slabs;
use crate::disk::device_name;
use crate::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

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
    /// The clock of the machine.
    pub clock: BootClock,
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
            clock: BootClock::default(),
        }
    }
    /// The disk at boot.
    pub(super) fn disk_image(&self) -> DiskImage {
        let blank = || DiskImage {
            capacity_bytes: self.capacity_bytes,
            wall_ns: WALL_NS,
            files: BTreeMap::new(),
            late: Vec::new(),
            spindles: BTreeSet::new(),
        };
        let mut image = self.image.clone().unwrap_or_else(blank);
        let further = self.further_bytes.iter().zip(2..).map(|(&bytes, number)| (number, bytes));
        for (number, bytes) in self.device_bytes.map(|bytes| (1, bytes)).into_iter().chain(further) {
            image.files.entry(device_name(number)).or_default().length = bytes;
        }
        image.spindles.extend(self.spindles.iter().cloned());
        image
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
    fleet: Fleet,
    machine: Machine,
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
        let seed = setup.seed;
        let fleet = Fleet::with_patience(seed, setup.patience_ns);
        let machine = fleet.hosts().boot_machine(0, setup);
        World { seed, fleet, machine }
    }
    /// The runtime of the code under test.
    pub fn runtime(&self) -> Runtime {
        self.machine.runtime.clone()
    }
    /// The disk, for faults and figures.
    pub fn disk(&self) -> &Arc<SimDisk> {
        &self.machine.disk
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
        self.fleet.run(Some(&self.machine.host), future)
    }
    /// Runs until no task can run and no transfer or job is under way. Timers alone don't count: background tasks that
    /// wake now and then never end.
    pub fn run_until_idle(&mut self) -> Ran<()> {
        self.fleet.drive(Some(&self.machine.host), None, Goal::Idle)
    }
    /// Runs for `ns` of simulated time.
    pub fn run_for(&mut self, ns: u64) -> Ran<()> {
        let until_ns = self.machine.host.now().saturating_add(ns);
        self.fleet.drive(Some(&self.machine.host), None, Goal::Time { until_ns })
    }
    /// Durable steps so far; see `SimDisk::steps`.
    pub fn steps(&self) -> u64 {
        self.disk().steps()
    }
    /// Makes `run` end with `Crashed` at a durable step (from 1): right before it happens, or right after.
    pub fn crash_at_step(&mut self, step: u64, side: Side) {
        self.disk().crash_at_step(step, side);
    }
    /// The disk after a crash at this moment, by `rng`. The world stays: several images can be drawn from one moment.
    pub fn crash(&self, rng: &mut SplitMix) -> DiskImage {
        self.crash_as(Survival::Random, rng)
    }
    /// The disk after a crash of a certain kind at this moment.
    pub fn crash_as(&self, survival: Survival, rng: &mut SplitMix) -> DiskImage {
        self.disk().crash_image(survival, rng)
    }
    /// The disk after a kill of the process, while the machine goes on: all writes stay, and those in flight may land
    /// while the next world runs already (rule L4). To be called once: this world is over.
    pub fn kill(&self, rng: &mut SplitMix) -> DiskImage {
        self.disk().kill_image(rng)
    }
    /// Moves the wall clock, and only that, forward or back.
    pub fn jump_wall(&mut self, ns: i64) {
        self.machine.host.jump_wall(ns);
    }
    /// A hash over everything that has happened: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.fleet.fingerprint()
    }
    /// Number of events so far: runs of tasks, timers, jobs and operations of the disk.
    pub fn events(&self) -> u64 {
        self.fleet.events()
    }
    /// Keeps the last `events_max` events from now on, for `trace`; a panic prints them.
    pub fn keep_trace(&mut self, events_max: usize) {
        self.fleet.keep_trace(events_max);
    }
    /// The events kept, oldest first.
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.fleet.trace()
    }
}
