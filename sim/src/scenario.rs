//! The life of a brick by one seed: several lives of its daemon, each ended by a crash or a clean stop, and all
//! checks on what each of them left.

use crate::check::answers::{self, Excuse};
use crate::check::prefix::{Evidence, Witness};
use crate::check::readback::Found;
use crate::check::{durable, missing, prefix, readback, space, tree};
use crate::history::{Call, History, Key};
use crate::model::Model;
use crate::small::{self, Script, Trouble};
use crate::workload::{Client, Focus, Profile, Shared};
use crate::world::{Image, Machine, SEGMENTS_AMPLE, Served, context, format, serve, volume_name};
use base::limits::SEGMENT_BYTES_MIN;
use base::{FileKind, Kind, Op, Outcome, RequestId, SessionId, VolumeId};
use group::Options;
use runtime::disk::device_name;
use runtime::random::SplitMix;
use runtime::sim::{Fail, FaultPlan, Ran, Side, SimDisk, Survival};
use runtime::{Runtime, Slabs};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::format::devices::{self, DeviceId, Tier};

/// The figures of a seed's run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Crash images that were checked.
    pub images: u64,
    /// Calls by clients.
    pub calls: u64,
    /// Changes found in logs.
    pub changes: u64,
    /// Lives of the daemon.
    pub lives: u64,
    /// Changes that were answered and then lost, as they may be when they were not durable.
    pub lost: u64,
    /// Crashes during recovery.
    pub recoveries_crashed: u64,
    /// Writes of killed processes that landed while the next one ran.
    pub late: u64,
    /// Steps of the disks: durable writes and flushes.
    pub steps: u64,
    /// Answers that blamed a failing device.
    pub blamed: u64,
    /// Blocks that the cleaner has moved.
    pub moved: u64,
    /// Blocks that went down to disks.
    pub destaged: u64,
    /// Blocks that could not be read while their disk was missing.
    pub unread: u64,
    /// Removals of disks that went on, and ended.
    pub removals: [u64; 2],
    /// The same of flash.
    pub flash_removals: [u64; 2],
    /// Blocks on disks that were read from their copies on flash.
    pub copies_read: u64,
    /// Segments that were discarded.
    pub discarded: u64,
    /// Calls of disks and indexes that failed by plan.
    pub faults: u64,
    /// A hash over everything that happened.
    pub fingerprint: u64,
}

impl Summary {
    /// Adds another seed's.
    pub fn add(&mut self, other: &Summary) {
        self.images += other.images;
        self.calls += other.calls;
        self.changes += other.changes;
        self.lives += other.lives;
        self.lost += other.lost;
        self.recoveries_crashed += other.recoveries_crashed;
        self.late += other.late;
        self.steps += other.steps;
        self.blamed += other.blamed;
        self.moved += other.moved;
        self.destaged += other.destaged;
        self.unread += other.unread;
        self.removals = [0, 1].map(|at| self.removals[at] + other.removals[at]);
        self.flash_removals = [0, 1].map(|at| self.flash_removals[at] + other.flash_removals[at]);
        self.copies_read += other.copies_read;
        self.discarded += other.discarded;
        self.faults += other.faults;
        // In any order: seeds run on several threads.
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }
    fn count(&mut self, machine: &Machine) {
        self.discarded += machine.discarded();
        self.faults += machine.faults_met();
        self.steps += machine.world.steps();
        self.mix(machine.world.fingerprint());
    }
    fn mix(&mut self, value: u64) {
        self.fingerprint = (self.fingerprint.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The checkers' own requests.
const NOBODY: Key = (SessionId(0), RequestId(0));

/// The end of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The machine crashes at a durable step of the disk.
    Step(u64, Side),
    /// It crashes at a step of the index engine.
    IndexStep(u64),
    /// It crashes when the clients have ended.
    Quiet,
    /// An end like `Quiet`, after everything was synced.
    Synced,
    /// The daemon stops, then the machine is switched off.
    Stop,
}

/// The story of a life until it ended.
struct Life {
    history: History,
    witness: Witness,
    checkpointed: Option<u64>,
    /// Time of its end, if nothing failed before.
    crashed_ns: Option<u64>,
    recovered: bool,
    /// The volume's content when everything had been synced.
    settled: Option<Found>,
}

/// The content found in an image.
#[derive(Clone)]
struct State {
    formatted: bool,
    /// The last batch that counted.
    tail: u64,
    /// Unlinked open files are still in it: late writes may concern them.
    model: Model,
    /// Every change that ever took effect.
    earlier: BTreeMap<Key, Outcome>,
}

struct Scenario<'a> {
    rng: SplitMix,
    slabs: &'a Arc<Slabs>,
    profile: Profile,
    focus: Focus,
    /// The end of every life, if not as drawn.
    ends: Option<End>,
    /// The script that takes the place of clients by seed.
    small: Option<Trouble>,
    summary: Summary,
    told: &'a dyn Fn(&str),
    /// Format has said that it is done.
    format_done: bool,
    image: Option<Image>,
    state: State,
    /// The writes of a killed life.
    inherited: Witness,
    /// Calls of a killed life, whose late writes may still bring their changes.
    ghosts: BTreeMap<Key, Call>,
    /// Requests of the life before, to be delivered again.
    echoes: Vec<(Key, Op, u32)>,
}

/// The parameters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// Its focus.
    pub focus: Focus,
    /// One life only, which ends like this.
    pub once: Option<End>,
    /// The lives of the script instead of any by seed, and what fails there.
    pub small: Option<Trouble>,
}

impl Plan {
    /// A seed about everything.
    pub fn new(seed: u64) -> Plan {
        Plan { seed, focus: Focus::Any, once: None, small: None }
    }
}

/// Runs a plan to its end and tells what happens. Errors: the promise that was broken.
pub fn run(plan: Plan, slabs: &Arc<Slabs>, told: &dyn Fn(&str)) -> Result<Summary, String> {
    let Plan { seed, focus, once, small } = plan;
    let mut rng = SplitMix(seed);
    let profile = Profile::draw(&mut rng).focused(focus);
    let profile = if small.is_some() { profile.small() } else { profile };
    let state = State { formatted: false, tail: 0, model: Model::default(), earlier: BTreeMap::new() };
    let mut scenario = Scenario {
        rng,
        slabs,
        profile,
        focus,
        ends: once,
        small,
        summary: Summary::default(),
        told,
        format_done: false,
        image: None,
        state,
        inherited: Witness::default(),
        ghosts: BTreeMap::new(),
        echoes: Vec::new(),
    };
    let drawn = 1 + scenario.rng.below(4);
    let lives = match (once, small) {
        (Some(_), _) => 1,
        (None, Some(_)) => small::LIVES,
        (None, None) => drawn,
    };
    for life in 0..lives {
        scenario.life(life)?;
    }
    Ok(scenario.summary)
}

impl Scenario<'_> {
    fn tell(&self, line: String) {
        (self.told)(&line);
    }

    fn options(&mut self) -> Options {
        if self.small.is_some() {
            return small::OPTIONS;
        }
        let overlay_bytes: u64 = 4 << (10 + self.rng.below(10));
        // Half of the bricks also make checkpoints when clients pause.
        let quiet_ns = if overlay_bytes.trailing_zeros().is_multiple_of(2) { 200_000_000 } else { u64::MAX };
        Options {
            overlay_bytes,
            quiet_ns,
            replay_bytes: 1 << (16 + self.rng.below(10)),
            replay_records: 8 << self.rng.below(10),
            cache_bytes: 1 << (10 + self.rng.below(14)),
            read_cache_bytes: 256 << 10,
            promotion_bytes: 256 << 10,
            // So few that they run out again and again.
            numbers_at_once: 16,
            free: store::FreeLimits {
                at_once: 1 + self.rng.below(4) as usize,
                slots_at_once: 1 << self.rng.below(10),
                slots_later: 1 << self.rng.below(8),
            },
            kept_records: 100,
        }
    }

    fn end(&mut self, number: u64) -> End {
        if self.small.is_some() {
            return if number == 0 { End::Quiet } else { End::Stop };
        }
        let side = if self.rng.one_in(2) { Side::Before } else { Side::After };
        let steps = 20 + self.profile.clients * self.profile.calls * 2;
        let drawn = match self.rng.below(16) {
            // Format and recovery take about a dozen steps.
            0..3 => End::Step(1 + self.rng.below(25), side),
            3..11 => End::Step(1 + self.rng.below(steps), side),
            11..13 => End::IndexStep(1 + self.rng.below(8)),
            13 => End::Quiet,
            14 => End::Synced,
            _ => End::Stop,
        };
        self.ends.unwrap_or(drawn)
    }

    /// The script's failure in this life.
    fn trouble(&self, number: u64) -> Option<Trouble> {
        self.small.filter(|trouble| trouble.life == number)
    }

    /// The faults of this life, if any, and whether they begin with its start.
    fn faults(&mut self, number: u64, machine: &Machine) -> (Option<FaultPlan>, bool) {
        if let Some(trouble) = self.trouble(number) {
            self.tell(format!("  {trouble:?}"));
            machine.index.set_trouble(trouble);
            return (Some(trouble.plan()), true);
        }
        let faults = if self.small.is_some() { None } else { self.drawn_faults() };
        let at_start = self.rng.one_in(4);
        if let Some(faults) = &faults {
            self.tell(format!("  faults: {faults:?}, from the start: {at_start}"));
        }
        (faults, at_start)
    }

    /// The errors that a life may have.
    fn excuse(&self, number: u64, faulty: bool) -> Excuse {
        let full = match self.small {
            Some(_) => self.trouble(number).is_some_and(|trouble| trouble.calls.fills()),
            None => faulty || self.profile.segments < SEGMENTS_AMPLE,
        };
        Excuse { full, faulty }
    }

    fn drawn_faults(&mut self) -> Option<FaultPlan> {
        if self.focus != Focus::Faults || self.rng.one_in(3) {
            return None;
        }
        let rare = |rng: &mut SplitMix| Fail::OneIn(8 << rng.below(8));
        let mut plan = FaultPlan::default();
        match self.rng.below(5) {
            0 => plan.reads = rare(&mut self.rng),
            1 => plan.writes = rare(&mut self.rng),
            2 => plan.flushes = rare(&mut self.rng),
            3 => plan.space = Fail::OneIn(1 + self.rng.below(4)),
            _ => (plan.stalls, plan.slowness) = (rare(&mut self.rng), 1 + self.rng.below(50)),
        }
        Some(plan)
    }

    fn boot(&mut self) -> Machine {
        let segments = self.profile.device.then_some(self.profile.segments);
        let (seed, image) = (self.rng.next(), self.image.take());
        let further: Vec<_> = self.profile.further().map(|(_, segments)| segments).collect();
        Machine::boot_with(seed, self.profile.cores, image, (segments, &further), self.slabs)
    }

    fn life(&mut self, number: u64) -> Result<(), String> {
        let end = self.end(number);
        let mut machine = self.boot();
        match end {
            End::Step(step, side) => machine.world.crash_at_step(step, side),
            End::IndexStep(step) => machine.index.crash_at_step(step),
            _ => {}
        }
        let options = self.options();
        self.tell(format!("life {number}: ends by {end:?}; {options:?}"));
        let (faults, at_start) = self.faults(number, &machine);
        let disk = machine.world.disk().clone();
        let fail = |when: bool| faults.into_iter().filter(|_| when).for_each(|plan| disk.set_faults(plan));
        let witness = std::mem::take(&mut self.inherited);
        witness.listen_to(&disk);
        let shared = Shared::new(std::mem::take(&mut self.echoes));
        let (runtime, index) = (machine.runtime(), machine.index.clone());
        let rng = SplitMix(self.rng.next());
        let mut formatted = false;
        let (mut served, mut settled) = (None, None);
        let ran = machine.world.run(async {
            fail(at_start);
            if !self.state.formatted {
                format(&runtime, &self.profile).await?;
                formatted = true;
            }
            let daemon = serve(runtime.clone(), index, options).await?;
            served = Some(daemon.clone());
            fail(!at_start);
            self.work(&runtime, &daemon, &shared, number, rng, &disk).await?;
            if end == End::Synced || end == End::Stop {
                daemon.groups.call(&context(VolumeId(0), NOBODY), Op::SyncAll, None).await?;
                settled = Some(self.settle(&runtime, &daemon).await?);
            }
            if end == End::Stop { daemon.groups.close().await } else { Ok(()) }
        });
        self.format_done |= formatted;
        let recovered = served.is_some();
        self.note_moves(served.take(), faults.is_some())?;
        let excuse = self.excuse(number, faults.is_some());
        match &ran {
            Ran::Finished(Err(error)) if !excuse.covers(error.kind) => {
                return Err(format!("life {number} ended with an error: {error:?}"));
            }
            _ => shared.broken().map_or(Ok(()), Err)?,
        }
        let life = Life {
            history: shared.history(),
            witness,
            checkpointed: shared.checkpointed(),
            crashed_ns: faults.is_none().then(|| runtime.clock.now_ns()),
            recovered,
            settled: if matches!(ran, Ran::Finished(_)) { settled } else { None },
        };
        self.summary.lives += 1;
        self.summary.calls += life.history.calls().len() as u64;
        self.summary.recoveries_crashed += u64::from(!life.recovered);
        self.summary.count(&machine);
        self.tell(format!("  {} calls, {} steps of the disk", life.history.calls().len(), machine.world.steps()));
        self.summary.blamed += answers::blaming(&life.history);
        answers::check(&life.history, &self.state.earlier, excuse)?;
        let stopped = end == End::Stop && matches!(ran, Ran::Finished(Ok(())));
        if stopped && machine.faults_met() > 0 && self.ends_changes(number) {
            return Err(format!("life {number} stopped as if nothing had failed (rule U4)"));
        }
        self.choose_echoes(&life);
        self.check_images(&machine, &life, stopped)
    }

    /// Reads back what has come to rest, from copies too.
    async fn settle(&self, runtime: &Runtime, daemon: &Served) -> base::Result<Found> {
        if self.profile.further().next().is_some() {
            // What is read from a disk again is copied, once flash was cleaned for that; and what leaves needs time.
            for _ in 0..4 {
                readback::read(daemon).await?;
                runtime.clock.sleep(2_000_000_000).await;
            }
        }
        readback::read(daemon).await
    }

    /// Counts the moves of a life. Errors: without faults, the cleaner takes a segment for damaged.
    fn note_moves(&mut self, served: Option<Served>, faulty: bool) -> Result<(), String> {
        let Some(served) = served else { return Ok(()) };
        self.summary.moved += served.groups.cleaner().moved_blocks;
        self.summary.destaged += served.groups.destaged_blocks();
        let devices = served.groups.store().devices();
        let of = |tier| devices.iter().filter(move |device| device.row.tier == tier);
        let leaving = |tier| of(tier).filter(|device| device.row.state == devices::State::Leaving).count() as u64;
        let gone = |tier, before: usize| (before - of(tier).count()) as u64;
        self.summary.removals[0] += leaving(Tier::Disk);
        self.summary.removals[1] += gone(Tier::Disk, self.profile.disks.len());
        self.summary.flash_removals[0] += leaving(Tier::Flash);
        self.summary.flash_removals[1] += gone(Tier::Flash, 1 + self.profile.flashes.len());
        self.summary.copies_read += served.groups.store().promotion.figures().found;
        let damaged = [Tier::Flash, Tier::Disk].map(|tier| served.groups.cleaner_of(tier).damaged_segments);
        if faulty || damaged == [0, 0] { Ok(()) } else { Err("the cleaner takes a whole segment for damaged".into()) }
    }

    /// True if what fails in a life is something after which there are no more changes.
    fn ends_changes(&self, number: u64) -> bool {
        self.trouble(number).is_some_and(|trouble| trouble.calls.ends_changes())
    }

    /// Has a device leave in some lives, at some time; flash more often, since there is less of it.
    fn remove_a_device(&self, runtime: &Runtime, served: &Served, rng: &mut SplitMix) {
        let further: Vec<_> = self.profile.further().collect();
        let often = if self.profile.flashes.is_empty() { 4 } else { 2 };
        if further.is_empty() || !rng.one_in(often) {
            return;
        }
        let (groups, clock) = (served.groups.clone(), runtime.clock.clone());
        let any = self.profile.flashes.is_empty() || rng.one_in(2);
        let first = if any { 0 } else { self.profile.disks.len() as u64 };
        let device = DeviceId(2 + (first + rng.below(further.len() as u64 - first)) as u32);
        let pause_ns = rng.below(1 << 30);
        let remove = move || async move {
            clock.sleep(pause_ns).await;
            // It may have left, or the others have no room.
            drop(groups.remove_device(device).await);
        };
        runtime.tasks.spawn(0, Box::new(move || Box::pin(remove())));
    }

    /// The clients of one life.
    async fn work(
        &self,
        runtime: &Runtime,
        served: &Served,
        shared: &Arc<Shared>,
        number: u64,
        mut rng: SplitMix,
        disk: &SimDisk,
    ) -> base::Result<()> {
        self.remove_a_device(runtime, served, &mut rng);
        let session = |client: u64| SessionId(1 + number * 100 + client);
        let mut client = |number| {
            let (runtime, profile, rng) = (runtime.clone(), self.profile.clone(), SplitMix(rng.next()));
            Client::new(runtime, served.clone(), shared.clone(), profile, session(number), rng)
        };
        let mut first = client(0);
        let key = (session(0), RequestId(1));
        let name = volume_name();
        let volume = match served.groups.volume(&name).await {
            Ok(volume) => volume,
            Err(_) => {
                first.deliver(key, Op::VolumeCreate { name: name.clone(), size_bytes: None }, 0).await?;
                served.groups.volume(&name).await?
            }
        };
        shared.found_volume(volume.id, volume.root);
        if self.small.is_some() {
            let mut sure = self.state.model.clone();
            sure.purge();
            if sure.root.is_none() {
                sure.found(volume.root);
            }
            let script = Script::new(first, runtime, served, session(0), (volume.root, sure));
            return script.play(number, disk, self.trouble(number)).await;
        }
        let known = |wanted: FileKind| {
            let nodes = self.state.model.nodes.iter().filter(move |(_, node)| node.kind == wanted);
            nodes.map(|(ino, _)| *ino).filter(|ino| *ino != volume.root).collect()
        };
        let entries = self.state.model.nodes.iter().flat_map(|(dir, node)| {
            node.entries.iter().map(|(name, ino)| (*dir, name.clone(), self.state.model.nodes[ino].kind))
        });
        shared.found(known(FileKind::Directory), known(FileKind::File), entries.collect());
        for number in 1..=self.profile.clients {
            client(number).start(number as usize % runtime.tasks.cores());
        }
        first.end();
        shared.all_ended().await;
        Ok(())
    }

    /// Requests of this life that the next one gets again: those that were under way, and some that were answered.
    fn choose_echoes(&mut self, life: &Life) {
        for (key, call) in life.history.requests() {
            let volume = matches!(call.op, Op::VolumeCreate { .. } | Op::VolumeDelete { .. });
            let repeatable = call.op.mutates() && !matches!(call.op, Op::Release { .. }) && !volume;
            let refused = call.ack.as_ref().is_some_and(|ack| ack.told.is_err());
            if repeatable && !refused && (call.ack.is_none() || self.rng.one_in(8)) {
                self.echoes.push((key, call.op.clone(), call.length));
            }
        }
    }

    /// Draws images of the moment, checks each, and goes on with one of them.
    fn check_images(&mut self, machine: &Machine, life: &Life, stopped: bool) -> Result<(), String> {
        if !stopped && self.rng.one_in(4) {
            return self.kill(machine, life);
        }
        // The script is run hundreds of times: two images each.
        let random = if self.small.is_some() { 1 } else { 2 };
        let mut survivals = vec![Survival::Random; random];
        survivals.push(if self.rng.one_in(2) { Survival::Nothing } else { Survival::Everything });
        let chosen = self.rng.below(survivals.len() as u64) as usize;
        let mut next = None;
        for (number, survival) in survivals.into_iter().enumerate() {
            let image = machine.crash(survival, &mut self.rng);
            self.tell(format!("  image {number}: {survival:?}"));
            let state = self.check_image(image.clone(), life, stopped)?;
            self.summary.images += 1;
            if number == chosen {
                next = Some((image, state));
            }
        }
        let (image, state) = next.expect("one was chosen");
        self.image = Some(image);
        self.state = state;
        self.ghosts.clear();
        Ok(())
    }

    /// Kills the process alone: all that was written stays, and what was in flight may land in the next life.
    fn kill(&mut self, machine: &Machine, life: &Life) -> Result<(), String> {
        // Writes of the superblock and of segments being made ready have no dead space to hit: the brick's lock, which
        // outlives I/O in flight, is all that keeps them from the next process. Here there is no lock.
        let unlocked = |file: &str, at: u64| file != "superblock" && !at.is_multiple_of(SEGMENT_BYTES_MIN);
        let disk = machine.world.kill(&mut self.rng).keep_late(unlocked);
        let late: Vec<_> = disk.late_writes().map(|(file, at)| format!("{file}+{at}")).collect();
        self.tell(format!("  killed; late writes: {}", late.join(" ")));
        let index = machine.index.crashed(&mut self.rng);
        let image = Image { disk: disk.clone().keep_late(|_, _| false), index: index.clone() };
        self.state = self.check_image(image, life, false)?;
        self.summary.images += 1;
        self.summary.late += late.len() as u64;
        let requests = life.history.requests();
        let ghosts = requests.into_iter().filter(|(key, _)| !self.state.earlier.contains_key(key));
        self.inherited = life.witness.inherited();
        self.ghosts.extend(ghosts.map(|(key, call)| (key, call.clone())));
        self.image = Some(Image { disk, index });
        Ok(())
    }

    fn check_image(&mut self, image: Image, life: &Life, stopped: bool) -> Result<State, String> {
        let kept = image.clone();
        let mut machine = Machine::boot(self.rng.next(), self.profile.cores, Some(image), self.slabs);
        let (runtime, index) = (machine.runtime(), machine.index.clone());
        let before = self.state.tail;
        let read = machine.world.block_on(async {
            if !self.format_done && !is_brick(&runtime).await? {
                return Ok(None);
            }
            prefix::read(&runtime, &index, before, &life.witness).await.map(Some)
        });
        let evidence = read.map_err(|error| format!("the image can't be read: {error:?}"))?;
        let Some(evidence) = evidence else {
            self.tell("    not formatted yet".into());
            return Ok(self.state.clone());
        };
        let checked = self.check_evidence(&evidence, life, stopped);
        let Ok(state) = checked else {
            let Evidence { last, tail, replay, epoch, .. } = &evidence;
            self.tell(format!("    epoch {epoch}, tail {tail}, {last:?}, {replay:?}"));
            return checked;
        };
        let reopen = self.rng.one_in(3);
        let (first, second) = (self.options(), self.options());
        let mut model = state.model.clone();
        model.purge();
        let model = &model;
        let checked = machine.world.block_on(async {
            tree::check_crashed(&runtime, &index).await?;
            let settled = life.settled.as_ref();
            check_tree(&runtime, &index, (first, false), model, settled).await?;
            // A process that ends takes its tasks with it: here they end by themselves, the last segment made ready first.
            runtime.clock.sleep(1_000_000_000).await;
            if reopen { check_tree(&runtime, &index, (second, true), model, settled).await } else { Ok(()) }
        });
        checked?;
        self.summary.mix(machine.world.fingerprint());
        self.check_without_a_disk(&kept, model)?;
        Ok(state)
    }

    /// Has a brick start without one of its disks, and then with all of them.
    fn check_without_a_disk(&mut self, image: &Image, model: &Model) -> Result<(), String> {
        if self.profile.disks.is_empty() || !self.rng.one_in(2) {
            return Ok(());
        }
        let disk = DeviceId(2 + self.rng.below(self.profile.disks.len() as u64) as u32);
        let name = device_name(disk.0);
        let without = Image { disk: image.disk.clone().without(&name), index: image.index.clone() };
        let (stops, options, mut rng) = (self.rng.one_in(2), self.options(), SplitMix(self.rng.next()));
        self.tell(format!("    without {disk:?}, stops: {stops}"));
        let mut machine = Machine::boot(self.rng.next(), self.profile.cores, Some(without), self.slabs);
        let (runtime, index) = (machine.runtime(), machine.index.clone());
        let unread =
            machine.world.block_on(missing::check((&runtime, &index), (options, stops), disk, model, &mut rng))?;
        self.summary.unread += unread;
        self.summary.mix(machine.world.fingerprint());
        let image_without = machine.crash(Survival::Random, &mut self.rng);
        let disk = image_without.disk.with_file_of(&image.disk, &name);
        let back = Image { disk, index: image_without.index };
        let mut machine = Machine::boot(self.rng.next(), self.profile.cores, Some(back), self.slabs);
        let (runtime, index) = (machine.runtime(), machine.index.clone());
        let options = (self.options(), self.rng.one_in(3));
        let checked = machine.world.block_on(async {
            tree::check_crashed(&runtime, &index).await?;
            check_tree(&runtime, &index, options, model, None).await
        });
        checked.map_err(|what| format!("{name} was missing and is back: {what}"))?;
        self.summary.mix(machine.world.fingerprint());
        Ok(())
    }

    fn check_evidence(&mut self, evidence: &Evidence, life: &Life, stopped: bool) -> Result<State, String> {
        let Evidence { logged, tail, replay, .. } = evidence;
        let earlier = &self.state.earlier;
        let mut requests = life.history.requests();
        for (key, ghost) in &self.ghosts {
            requests.entry(*key).or_insert(ghost);
        }
        prefix::check(&life.history, evidence, earlier, &requests)?;
        durable::check(&life.history, evidence, earlier, life.crashed_ns)?;
        if let Some(checkpointed) = life.checkpointed
            && replay.number <= checkpointed
        {
            return Err(format!(
                "a checkpoint up to batch {checkpointed} ended, but replay begins at {}",
                replay.number
            ));
        }
        if stopped && *tail >= replay.number {
            return Err(format!("a clean stop leaves batches {} to {tail} to replay", replay.number));
        }
        let mut state = self.state.clone();
        state.formatted = true;
        state.tail = *tail;
        for logged in logged {
            let call = requests[&logged.key];
            let applied = state.model.apply(logged.key, &call.op, call.length, logged.outcome);
            applied.map_err(|what| format!("{what}: {logged:?} {call:?}"))?;
            state.earlier.insert(logged.key, logged.outcome);
        }
        let answered = life.history.calls().iter().filter(|call| {
            let placed = call.done().is_some_and(|(_, told)| told.position.is_some());
            placed && !state.earlier.contains_key(&call.key)
        });
        let lost = answered.count() as u64;
        self.summary.changes += logged.len() as u64;
        self.summary.lost += lost;
        self.tell(format!(
            "    {} changes up to batch {tail}, replay from {}, {lost} lost",
            logged.len(),
            replay.number
        ));
        Ok(state)
    }
}

async fn is_brick(runtime: &Runtime) -> base::Result<bool> {
    Ok(matches!(store::brick::look(runtime).await?, store::brick::Found::Brick(_)))
}

/// Starts the brick, compares all of it with the model, stops it, and checks it offline. `rests`: before it is stopped it
/// comes to rest, and its space is counted.
async fn check_tree(
    runtime: &Runtime,
    index: &Arc<crate::index::CrashIndex>,
    (options, rests): (Options, bool),
    model: &Model,
    settled: Option<&Found>,
) -> Result<(), String> {
    let served = match serve(runtime.clone(), index.clone(), options).await {
        Ok(served) => served,
        Err(error) => return Err(format!("the brick does not start: {error:?}")),
    };
    let found = match readback::read(&served).await {
        Ok(found) => found,
        Err(error) if error.kind == Kind::Corrupt => return Err(format!("damage: {error:?}")),
        Err(error) => return Err(format!("the volume can't be read: {error:?}")),
    };
    readback::compare(model, &found.model)?;
    if let Some(settled) = settled {
        readback::compare_found(settled, &found)?;
    }
    if rests {
        space::check(runtime, index, &served).await?;
    }
    served.groups.close().await.map_err(|error| format!("the brick does not stop: {error:?}"))?;
    tree::check(runtime, index).await
}
