//! A model of a hybrid brick under load: flash whose segments live and die as in `plant`, a disk that positions and
//! transfers, a destage that sweeps, and checkpoints that free what was emptied on both. One granule stands for some blocks, so
//! that an hour passes in a second; the controllers see blocks.

use super::super::run_ns;
use super::super::{
    Batch, Candidate, Choice, Controller, Destaged, Held, Pace, RUN_BLOCKS, Sight, State, Survivor, Tiering,
};
use super::plant::{Load, Open, Use};
use crate::format::segment::Stream;
use crate::format::summary::SummaryEntry;
use base::{GroupId, Index, Ino, Life, SegmentId, VolumeId};
use runtime::random::SplitMix;
use std::collections::VecDeque;

/// The model advances in steps of this length.
const QUANTUM_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const NOBODY: u32 = u32::MAX;
/// Runs that are written before the disk is flushed.
const FLUSH_RUNS: usize = 8;
/// Number of granules of a file.
const FILE: u32 = 4_096;
const FLASH: usize = 0;
const DISK: usize = 1;

/// The brick and its clients.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Segments of flash and of disk, and blocks of each.
    pub segments: [u32; 2],
    pub blocks: [u32; 2],
    /// Blocks of a granule.
    pub grain: u32,
    /// Blocks that are live after filling, in percent of all.
    pub fill_percent: u64,
    /// The flash takes this long to read or to write a block.
    pub device_ns: u64,
    /// Clients want to write a block every so often.
    pub client_ns: u64,
    /// The disk takes this long to transfer a block, to get to another place, and to flush.
    pub disk_ns: u64,
    pub seek_ns: u64,
    pub flush_ns: u64,
    /// A checkpoint takes this long.
    pub checkpoint_ms: u64,
    /// Largest memory of a batch, in blocks.
    pub batch_blocks: usize,
    pub seed: u64,
}

/// A second of the model's life.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub client_blocks: u64,
    /// Blocks moved within the flash, to the disk, and within the disk.
    pub moved_blocks: [u64; 2],
    pub destaged_blocks: u64,
    /// Longest delay of a client's block.
    pub delay_ns: u64,
}

/// The fate of granules in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Granules destaged, and copies of them on flash before.
    destaged: u64,
    copied: u64,
    /// Granules overwritten, and those of them that lay on flash.
    overwritten: u64,
    absorbed: u64,
    /// Longest delay of clients while more than a fifth of the flash could be reclaimed.
    pub dirty_delay_ns: u64,
}

impl Counts {
    pub fn copies_percent(&self) -> u64 {
        self.copied * 100 / self.destaged.max(1)
    }
    pub fn absorbed_percent(&self) -> u64 {
        self.absorbed * 100 / self.overwritten.max(1)
    }
}

#[derive(Clone, Debug)]
struct Row {
    used_as: Use,
    stream: Stream,
    live: u32,
    /// Live granules as of the last checkpoint.
    live_seen: u32,
    opened: u64,
    /// The cleaner has moved all that lived here.
    moved: bool,
}

/// One tier.
pub struct Tier {
    pub controller: Controller,
    pub pace: Pace,
    /// Granules of a segment, and the number of the first place.
    granules: u32,
    base: u32,
    rows: Vec<Row>,
    free: VecDeque<u32>,
    /// Segments that were emptied and are not free yet.
    emptied: u32,
    /// The granule that lies, or lay, at each place.
    owners: Vec<u32>,
    /// Open segments of what comes in and of the cleaner.
    open: [Option<Open>; 2],
    choice: Choice,
    untouched: bool,
    chosen_at: u64,
    /// The victim that is emptied within the tier, its number among all that were opened, and how far that is.
    victim: Option<(u32, u64, u32)>,
    slice_left: i64,
    step_at_ns: u64,
    /// Blocks that came in, and that were moved within the tier.
    pub client_blocks: u64,
    pub moved_blocks: u64,
    /// The incoming stream found no segment to open.
    pub held: u64,
    pub free_min: u32,
}

/// Work of the disk.
enum Work {
    Run(Vec<Survivor>),
    Flush,
    Slice,
}

/// The destage.
struct Destage {
    batch: Batch,
    choice: Choice,
    untouched: bool,
    /// The end of the checkpoint before the choice.
    chosen_at: u64,
    queued: Option<Vec<Survivor>>,
    /// Runs that are written and not flushed.
    written: Vec<Vec<Survivor>>,
    /// The time at which the last run began, and its blocks.
    began_ns: u64,
    blocks: u64,
    counts: Destaged,
}

/// A checkpoint under way.
struct Cut {
    live: [Vec<u32>; 2],
    moved: [Vec<u32>; 2],
    ends_ns: u64,
}

/// The model.
pub struct Hybrid {
    pub shape: Shape,
    pub tiers: [Tier; 2],
    pub now_ns: u64,
    /// Speed of the disk, in percent, and whether destage gets an answer.
    pub disk_percent: u64,
    pub disk_answers: bool,
    random: SplitMix,
    /// The place of each granule, and how often it was copied on flash since a client wrote it.
    places: Vec<u32>,
    copies: Vec<u8>,
    opened: u64,
    checkpoint: u32,
    cut: Option<Cut>,
    checkpoint_wanted: bool,
    checkpoint_ended_ns: u64,
    destage: Destage,
    work: Option<Work>,
    work_ends_ns: u64,
    /// The disk's turn is the cleaner's.
    turn: bool,
    client_at_ns: u64,
    debt_ns: i64,
    /// Time that clients had of the flash beyond the cleaner's, since both want it.
    lead_ns: i64,
    /// Time for what the destage has still to read from flash.
    reads_ns: u64,
    pub counts: Counts,
    pub windows: Vec<Window>,
}

const REST: Pace =
    Pace { slice_blocks: 0, pause_ns: 0, destage_rate: 0, client_delay_ns: 0, checkpoint: false, state: State::Idle };

impl Tier {
    fn new(controller: Controller, segments: u32, granules: u32, base: u32) -> Tier {
        let row = Row { used_as: Use::Free, stream: Stream::Bulk, live: 0, live_seen: 0, opened: 0, moved: false };
        Tier {
            controller,
            pace: REST,
            granules,
            base,
            rows: vec![row; segments as usize],
            free: (0..segments).collect(),
            emptied: 0,
            owners: vec![NOBODY; (segments * granules) as usize],
            open: [None; 2],
            choice: Choice::default(),
            untouched: true,
            chosen_at: u64::MAX,
            victim: None,
            slice_left: 0,
            step_at_ns: 0,
            client_blocks: 0,
            moved_blocks: 0,
            held: 0,
            free_min: segments,
        }
    }
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }
    pub fn live(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.live)).sum()
    }
    fn places(&self) -> u64 {
        self.owners.len() as u64
    }
    /// Share of the tier that is free or dead, in percent.
    pub fn reclaimable_percent(&self) -> u64 {
        (self.places() - self.live()) * 100 / self.places()
    }
    fn note_emptied(&mut self, segment: u32) {
        let row = &mut self.rows[segment as usize];
        // A checkpoint may have freed it first, once the last of its blocks had died.
        if row.used_as != Use::Free {
            assert!(row.live == 0, "all was moved");
            row.moved = true;
            self.emptied += 1;
        }
    }
}

impl Hybrid {
    /// A brick that was filled in order: the disk up to its reserve at most, the flash with what came last.
    pub fn new(shape: Shape) -> Hybrid {
        let granules = shape.blocks.map(|blocks| blocks / shape.grain);
        let flash = Tier::new(Controller::new(shape.segments[FLASH]), shape.segments[FLASH], granules[FLASH], 0);
        let base = shape.segments[FLASH] * granules[FLASH];
        let disk = Tier::new(Controller::of_disk(shape.segments[DISK]), shape.segments[DISK], granules[DISK], base);
        let batch = Batch::new(shape.batch_blocks / shape.grain as usize * size_of::<SummaryEntry>());
        let all = flash.places() + disk.places();
        let mut hybrid = Hybrid {
            tiers: [flash, disk],
            now_ns: 0,
            disk_percent: 100,
            disk_answers: true,
            random: SplitMix(shape.seed),
            places: Vec::new(),
            copies: Vec::new(),
            opened: 0,
            checkpoint: 1,
            cut: None,
            checkpoint_wanted: false,
            checkpoint_ended_ns: 0,
            destage: Destage {
                batch,
                choice: Choice::default(),
                untouched: true,
                chosen_at: u64::MAX,
                queued: None,
                written: Vec::new(),
                began_ns: 0,
                blocks: 0,
                counts: Destaged::default(),
            },
            work: None,
            work_ends_ns: 0,
            turn: false,
            client_at_ns: 0,
            debt_ns: 0,
            lead_ns: 0,
            reads_ns: 0,
            counts: Counts::default(),
            windows: vec![Window::default()],
            shape,
        };
        let fill = all * hybrid.shape.fill_percent / 100;
        let reserve = hybrid.tiers[DISK].controller.thresholds().reserve;
        let on_disk = u64::from((hybrid.shape.segments[DISK] - reserve) * granules[DISK]);
        let on_flash = fill.min(hybrid.tiers[FLASH].places() * 3 / 4).max(fill.saturating_sub(on_disk));
        for granule in 0..fill {
            hybrid.places.push(NOBODY);
            hybrid.copies.push(0);
            let tier = if granule < fill - on_flash { DISK } else { FLASH };
            assert!(hybrid.write(granule as u32, tier, 0), "there is room while filling");
        }
        hybrid.begin_checkpoint();
        hybrid.end_checkpoint();
        hybrid.tiers.iter_mut().for_each(|tier| tier.free_min = tier.free());
        hybrid
    }
    /// Begins a new phase.
    pub fn begin_counts(&mut self) {
        self.counts = Counts::default();
        self.tiers.iter_mut().for_each(|tier| (tier.held, tier.free_min) = (0, tier.free()));
    }
    fn tier_of(&self, place: u32) -> usize {
        usize::from(place >= self.tiers[DISK].base)
    }
    /// Takes a free segment. What comes in leaves the last two.
    fn take(&mut self, tier: usize, opener: usize) -> Option<Open> {
        let one = &mut self.tiers[tier];
        if opener == 0 && one.free.len() <= 2 {
            return None;
        }
        let segment = one.free.pop_front()?;
        one.free_min = one.free_min.min(one.free.len() as u32);
        self.opened += 1;
        let stream = if opener == 0 && tier == FLASH { Stream::Bulk } else { Stream::Cold };
        let row = &mut one.rows[segment as usize];
        assert!(row.live == 0 && row.used_as == Use::Free);
        *row = Row { used_as: Use::Open, stream, live: 0, live_seen: 0, opened: self.opened, moved: false };
        Some(Open { segment, used: 0 })
    }
    /// Writes a granule to the end of an open segment. False if there is none.
    fn write(&mut self, granule: u32, tier: usize, opener: usize) -> bool {
        if self.tiers[tier].open[opener].is_none() {
            self.tiers[tier].open[opener] = self.take(tier, opener);
        }
        let one = &mut self.tiers[tier];
        let Some(open) = &mut one.open[opener] else { return false };
        let (segment, at) = (open.segment, open.segment * one.granules + open.used);
        open.used += 1;
        if open.used == one.granules {
            one.open[opener] = None;
            one.rows[segment as usize].used_as = Use::Sealed(self.checkpoint);
        }
        one.rows[segment as usize].live += 1;
        one.owners[at as usize] = granule;
        let place = one.base + at;
        self.kill(granule);
        self.places[granule as usize] = place;
        true
    }
    fn kill(&mut self, granule: u32) {
        let old = std::mem::replace(&mut self.places[granule as usize], NOBODY);
        if old != NOBODY {
            let tier = &mut self.tiers[usize::from(old >= self.tiers[DISK].base)];
            tier.rows[((old - tier.base) / tier.granules) as usize].live -= 1;
        }
    }
    /// Every so many granules on flash die, of those that were there, until so many percent of the flash live.
    pub fn delete_on_flash(&mut self, live_percent: u64) {
        let mut granules: Vec<u32> = (0..self.places.len() as u32).collect();
        granules.retain(|&granule| self.tier_of(self.places[granule as usize]) == FLASH);
        while self.tiers[FLASH].live() * 100 > self.tiers[FLASH].places() * live_percent {
            for _ in 0..self.tiers[FLASH].granules {
                let at = self.random.below(granules.len() as u64) as usize;
                self.kill(granules.swap_remove(at));
            }
        }
    }
    fn begin_checkpoint(&mut self) {
        self.checkpoint += 1;
        self.checkpoint_wanted = false;
        let moved = |tier: &Tier| (0..tier.rows.len() as u32).filter(|&at| tier.rows[at as usize].moved).collect();
        self.cut = Some(Cut {
            live: [FLASH, DISK].map(|tier| self.tiers[tier].rows.iter().map(|row| row.live).collect()),
            moved: [FLASH, DISK].map(|tier| moved(&self.tiers[tier])),
            ends_ns: self.now_ns + self.shape.checkpoint_ms * 1_000_000,
        });
    }
    fn end_checkpoint(&mut self) {
        let cut = self.cut.take().expect("one was begun");
        self.checkpoint_ended_ns = self.now_ns;
        for ((tier, live), moved) in self.tiers.iter_mut().zip(cut.live).zip(cut.moved) {
            assert!(moved.iter().all(|&number| live[number as usize] == 0));
            for (number, (row, live)) in tier.rows.iter_mut().zip(live).enumerate() {
                row.live_seen = live;
                if is_known(row.used_as, self.checkpoint) && live == 0 {
                    tier.emptied -= u32::from(row.moved);
                    (row.used_as, row.moved) = (Use::Free, false);
                    tier.free.push_back(number as u32);
                }
            }
        }
    }
    fn candidates(&self, tier: usize) -> Vec<Candidate> {
        let one = &self.tiers[tier];
        let known = self.checkpoint - u32::from(self.cut.is_some());
        let busy = |number: u32| {
            tier == FLASH && (self.destage.batch.contains(SegmentId(number)) || self.chosen(SegmentId(number)))
                || one.victim.is_some_and(|(victim, ..)| victim == number)
        };
        let cleanable = (0..one.rows.len() as u32).filter(|&number| {
            let row = &one.rows[number as usize];
            is_known(row.used_as, known) && !row.moved && !busy(number)
        });
        let candidate = |number: u32| {
            let row = &one.rows[number as usize];
            Candidate {
                segment: SegmentId(number),
                live: row.live_seen * self.shape.grain,
                blocks: one.granules * self.shape.grain,
                age: self.opened - row.opened,
                stream: row.stream,
                pinned: 0,
            }
        };
        cleanable.map(candidate).collect()
    }
    fn chosen(&self, segment: SegmentId) -> bool {
        self.destage.choice.contains(segment) || self.tiers[FLASH].choice.contains(segment)
    }
    fn tiering(&self) -> Tiering {
        let held = |tier: &Tier| {
            let live = tier.rows.iter().map(|row| u64::from(row.live_seen)).sum();
            Held { segments: tier.rows.len() as u32, live, blocks: tier.places() }
        };
        let [flash, disk] = &self.tiers;
        Tiering::new(held(flash), held(disk), disk.pace.state)
    }
    /// Chooses victims when there are none left, or none was taken and there is news.
    fn choose(&mut self, tier: usize) {
        let one = &self.tiers[tier];
        let stale = one.chosen_at != self.checkpoint_ended_ns;
        let due = if one.untouched { stale } else { one.choice.is_empty() };
        if !due || one.victim.is_some() {
            return;
        }
        let (candidates, max) = (self.candidates(tier), one.controller.thresholds().victims_max());
        let choice = match tier {
            FLASH => Choice::staying(&candidates, max, &self.tiering()),
            _ => Choice::new(&candidates, max),
        };
        let ended_ns = self.checkpoint_ended_ns;
        let one = &mut self.tiers[tier];
        (one.choice, one.untouched, one.chosen_at) = (choice, true, ended_ns);
    }
    /// The same for the destage.
    fn choose_down(&mut self) {
        let stale = self.destage.chosen_at != self.checkpoint_ended_ns;
        let due = if self.destage.untouched { stale } else { self.destage.choice.is_empty() };
        if !due {
            return;
        }
        self.destage.choice = Choice::default();
        let max = self.tiers[FLASH].controller.thresholds().victims_max();
        self.destage.choice = Choice::destaged(&self.candidates(FLASH), max, &self.tiering());
        (self.destage.untouched, self.destage.chosen_at) = (true, self.checkpoint_ended_ns);
    }
    /// The measurements of a tier.
    pub fn sight(&self, tier: usize) -> Sight {
        let one = &self.tiers[tier];
        let grain = u64::from(self.shape.grain);
        let destaged = Destaged {
            victim: self.destage.choice.mean(),
            left_blocks: self.destage.batch.left() as u64 * grain,
            ..self.destage.counts
        };
        Sight {
            for_copies: 0,
            now_ns: self.now_ns,
            free: one.free(),
            emptied: one.emptied,
            segments: one.rows.len() as u32,
            client_blocks: one.client_blocks,
            moved_blocks: one.moved_blocks,
            victim: one.choice.mean(),
            surplus_blocks: one.choice.surplus_blocks(),
            destaged: (tier == FLASH).then_some(destaged),
        }
    }
    fn control(&mut self, tier: usize) {
        self.choose(tier);
        self.choose_down();
        let sight = self.sight(tier);
        let now_ns = self.now_ns;
        let one = &mut self.tiers[tier];
        one.pace = one.controller.step(&sight);
        one.slice_left += i64::from(one.pace.slice_blocks);
        one.step_at_ns = now_ns + one.pace.pause_ns;
        self.checkpoint_wanted |= one.pace.checkpoint;
    }
    /// The victim that is emptied within the tier, or the next one.
    fn next_victim(&mut self, tier: usize) -> Option<(u32, u64, u32)> {
        let one = &mut self.tiers[tier];
        if one.victim.is_none() {
            let SegmentId(next) = one.choice.take()?;
            one.untouched = false;
            one.victim = Some((next, one.rows[next as usize].opened, 0));
        }
        one.victim
    }
    /// Moves one live granule within a tier. None if there is none to move, or nowhere to move it; else the number of granules
    /// looked at.
    fn move_granule(&mut self, tier: usize) -> Option<u32> {
        let mut looked = 0;
        loop {
            let (victim, opened, cursor) = match self.next_victim(tier) {
                Some(next) => next,
                None => {
                    self.choose(tier);
                    self.next_victim(tier)?
                }
            };
            let one = &self.tiers[tier];
            let row = &one.rows[victim as usize];
            let gone = row.used_as == Use::Free || row.opened != opened;
            if gone || cursor == one.granules {
                let one = &mut self.tiers[tier];
                one.victim = None;
                one.choice.note_emptied(SegmentId(victim));
                if !gone {
                    one.note_emptied(victim);
                }
                continue;
            }
            looked += 1;
            let at = victim * one.granules + cursor;
            let owner = one.owners[at as usize];
            let is_there = self.places[owner as usize] == one.base + at;
            if is_there && !self.write(owner, tier, 1) {
                return None;
            }
            self.tiers[tier].victim = Some((victim, opened, cursor + 1));
            if is_there {
                self.tiers[tier].moved_blocks += u64::from(self.shape.grain);
                let copies = &mut self.copies[owner as usize];
                *copies = copies.saturating_add(u8::from(tier == FLASH));
                return Some(looked);
            }
        }
    }
    fn pick(&mut self, load: Load) -> u32 {
        let granules = self.places.len() as u64;
        let granule = match load {
            Load::Uniform => self.random.below(granules),
            // A tenth of the flash, or a third.
            Load::Hot | Load::Zipf if !self.random.one_in(8) => {
                let hot = self.tiers[FLASH].places() / if load == Load::Hot { 10 } else { 3 };
                self.random.below(hot) * granules / hot
            }
            Load::Hot | Load::Zipf => self.random.below(granules),
            Load::Idle | Load::Append => unreachable!("the model of a hybrid brick only overwrites"),
        };
        granule as u32
    }
    fn write_client(&mut self, load: Load) -> bool {
        let granule = self.pick(load);
        let absorbed = self.tier_of(self.places[granule as usize]) == FLASH;
        let written = self.write(granule, FLASH, 0);
        if written {
            self.copies[granule as usize] = 0;
            self.counts.overwritten += 1;
            self.counts.absorbed += u64::from(absorbed);
            self.tiers[FLASH].client_blocks += u64::from(self.shape.grain);
        }
        written
    }
    /// Runs a load for a while.
    pub fn run(&mut self, load: Load, run_ns: u64) {
        let end_ns = self.now_ns + run_ns;
        while self.now_ns < end_ns {
            self.run_flash(load);
            self.run_destage();
            self.now_ns += QUANTUM_NS;
            self.run_disk();
            self.note_window();
            match &self.cut {
                Some(cut) if cut.ends_ns <= self.now_ns => self.end_checkpoint(),
                None if self.checkpoint_wanted || self.checkpoint_ended_ns + 5 * SECOND_NS <= self.now_ns => {
                    self.begin_checkpoint();
                }
                _ => {}
            }
            for tier in [FLASH, DISK] {
                if self.tiers[tier].slice_left <= 0 && self.now_ns >= self.tiers[tier].step_at_ns {
                    self.control(tier);
                }
            }
        }
    }
    /// One quantum of the flash's time, shared fairly by clients and the cleaner.
    fn run_flash(&mut self, load: Load) {
        let grain = u64::from(self.shape.grain);
        let granule_ns = self.shape.device_ns * grain;
        let end_ns = self.now_ns + QUANTUM_NS;
        // The destage's reads get half of it at most.
        let reads_ns = self.reads_ns.min(QUANTUM_NS / 2);
        self.reads_ns -= reads_ns;
        let mut left_ns = (QUANTUM_NS - reads_ns) as i64 - self.debt_ns;
        self.client_at_ns = self.client_at_ns.max(self.now_ns.saturating_sub(QUANTUM_NS));
        while left_ns > 0 {
            let client = load != Load::Idle && self.client_at_ns < end_ns;
            let cleaner = self.tiers[FLASH].slice_left > 0;
            if client && (!cleaner || self.lead_ns <= 0) {
                if !self.write_client(load) {
                    self.tiers[FLASH].held += 1;
                    self.client_at_ns = end_ns;
                    continue;
                }
                self.lead_ns = if cleaner { self.lead_ns + granule_ns as i64 } else { 0 };
                left_ns -= granule_ns as i64;
                self.client_at_ns += self.shape.client_ns.max(self.tiers[FLASH].pace.client_delay_ns) * grain;
            } else if cleaner {
                let moved = self.move_granule(FLASH).is_some();
                let flash = &mut self.tiers[FLASH];
                if moved {
                    self.lead_ns = if client { self.lead_ns - 2 * granule_ns as i64 } else { 0 };
                    left_ns -= 2 * granule_ns as i64;
                    flash.slice_left -= grain as i64;
                } else {
                    flash.slice_left = 0;
                }
                flash.step_at_ns = end_ns + flash.pace.pause_ns;
            } else {
                break;
            }
        }
        self.debt_ns = (-left_ns).max(0);
    }
    /// Lets victims join, and queues a run.
    fn run_destage(&mut self) {
        let since_ns = self.now_ns - self.destage.began_ns;
        let (rate, delay_ns) = (self.tiers[FLASH].pace.destage_rate, self.tiers[DISK].pace.client_delay_ns);
        let held = since_ns < self.destage.blocks * delay_ns;
        let works = matches!(self.work, Some(Work::Run(_) | Work::Flush));
        let busy = self.destage.queued.is_some() || works || held;
        self.destage.counts.busy_ns += if busy { QUANTUM_NS } else { 0 };
        let next_ns = run_ns(self.destage.blocks, rate, delay_ns);
        if self.destage.queued.is_some() || next_ns.is_none_or(|next_ns| since_ns < next_ns) {
            return;
        }
        self.choose_down();
        self.join();
        let Some(mut run) = self.destage.batch.next_run(RUN_BLOCKS / self.shape.grain as usize) else { return };
        let grain = u64::from(self.shape.grain);
        (self.destage.began_ns, self.destage.blocks) = (self.now_ns, run.len() as u64 * grain);
        // Those that have died since are noted at once.
        let gone = run.extract_if(.., |one| !self.is_there(one)).collect::<Vec<_>>();
        self.note_moved(&gone);
        self.reads_ns += run.len() as u64 * grain * self.shape.device_ns;
        self.destage.queued = (!run.is_empty()).then_some(run);
    }
    fn join(&mut self) {
        let max = self.tiers[FLASH].controller.thresholds().batch_max();
        let grain = self.shape.grain;
        while let Some((segment, live)) = self.destage.choice.peek() {
            if !self.destage.batch.wants(live / grain, max) {
                return;
            }
            self.destage.choice.take();
            self.destage.untouched = false;
            let flash = &mut self.tiers[FLASH];
            let row = &flash.rows[segment.0 as usize];
            let (first, life) = (segment.0 * flash.granules, Life(row.opened as u32));
            let freed = row.used_as == Use::Free;
            let entry = |at: u32| {
                let granule = flash.owners[at as usize];
                SummaryEntry {
                    block: (at - first) as u16,
                    group: GroupId(0),
                    volume: VolumeId(0),
                    ino: Ino(u64::from(granule / FILE)),
                    offset: u64::from(granule % FILE),
                    index: Index(0),
                    crc: 0,
                }
            };
            let there = (first..first + flash.granules).filter(|&at| {
                let granule = flash.owners[at as usize];
                granule != NOBODY && self.places[granule as usize] == flash.base + at
            });
            let entries: Vec<SummaryEntry> = there.map(entry).collect();
            if entries.is_empty() && !freed {
                flash.note_emptied(segment.0);
            } else if !entries.is_empty() {
                self.destage.batch.join(segment, life, entries);
            }
        }
    }
    fn granule_of(one: &Survivor) -> u32 {
        one.entry.ino.0 as u32 * FILE + one.entry.offset as u32
    }
    fn is_there(&self, one: &Survivor) -> bool {
        let place = one.segment.0 * self.tiers[FLASH].granules + u32::from(one.entry.block);
        self.places[Hybrid::granule_of(one) as usize] == place
    }
    fn note_moved(&mut self, run: &[Survivor]) {
        for (segment, life) in self.destage.batch.note_moved(run) {
            let flash = &mut self.tiers[FLASH];
            if flash.rows[segment.0 as usize].opened as u32 == life.0 {
                flash.note_emptied(segment.0);
            }
        }
    }
    /// The disk's work up to now.
    fn run_disk(&mut self) {
        while self.work_ends_ns <= self.now_ns {
            match self.work.take() {
                Some(Work::Run(run)) => self.destage.written.push(run),
                Some(Work::Flush) => self.end_flush(),
                Some(Work::Slice) | None => {}
            }
            let Some((work, taken_ns)) = self.next_work() else { return };
            self.work = Some(work);
            // What was queued begins where the last work has ended.
            let begin_ns = self.work_ends_ns.max(self.now_ns - QUANTUM_NS);
            self.work_ends_ns = begin_ns + taken_ns * 100 / self.disk_percent;
        }
    }
    fn end_flush(&mut self) {
        for run in std::mem::take(&mut self.destage.written) {
            self.destage.counts.blocks += run.len() as u64 * u64::from(self.shape.grain);
            self.note_moved(&run);
        }
    }
    fn next_work(&mut self) -> Option<(Work, u64)> {
        self.turn = !self.turn;
        let cleaner = self.tiers[DISK].slice_left > 0;
        if cleaner && (self.turn || self.destage.queued.is_none() || !self.disk_answers) {
            return Some(self.slice());
        }
        if !self.disk_answers {
            return None;
        }
        let full = self.destage.written.len() >= FLUSH_RUNS;
        if full || !self.destage.written.is_empty() && self.destage.queued.is_none() {
            return Some((Work::Flush, self.shape.flush_ns));
        }
        let run = self.destage.queued.take()?;
        // The first block decides whether there is a segment to be written to.
        for (at, one) in run.iter().enumerate() {
            if self.is_there(one) {
                let granule = Hybrid::granule_of(one);
                if !self.write(granule, DISK, 0) {
                    self.tiers[DISK].held += 1;
                    let rest = run[at..].to_vec();
                    self.note_moved(&run[..at]);
                    self.destage.queued = Some(rest);
                    return cleaner.then(|| self.slice());
                }
                self.counts.destaged += 1;
                self.counts.copied += u64::from(self.copies[granule as usize]);
            }
        }
        let blocks = run.len() as u64 * u64::from(self.shape.grain);
        self.tiers[DISK].client_blocks += blocks;
        // Another stream was written to in between, if the cleaner works.
        let seek_ns = if cleaner { self.shape.seek_ns } else { 0 };
        Some((Work::Run(run), seek_ns + blocks * self.shape.disk_ns))
    }
    /// A slice of the disk's cleaner: all that was left of it, read in order with the dead blocks between.
    fn slice(&mut self) -> (Work, u64) {
        let grain = self.shape.grain;
        let (mut moved, mut looked) = (0, 0);
        while self.tiers[DISK].slice_left > 0 {
            let Some(granules) = self.move_granule(DISK) else {
                self.tiers[DISK].slice_left = 0;
                break;
            };
            (moved, looked) = (moved + 1, looked + granules);
            self.tiers[DISK].slice_left -= i64::from(grain);
        }
        let taken_ns = u64::from((moved + looked) * grain) * self.shape.disk_ns + 2 * self.shape.seek_ns;
        let disk = &mut self.tiers[DISK];
        disk.step_at_ns = self.now_ns + taken_ns * 100 / self.disk_percent + disk.pace.pause_ns;
        (Work::Slice, if moved + looked == 0 { 0 } else { taken_ns })
    }
    fn note_window(&mut self) {
        let sums = (
            self.tiers[FLASH].client_blocks,
            [FLASH, DISK].map(|tier| self.tiers[tier].moved_blocks),
            self.destage.counts.blocks,
        );
        let delay_ns = self.tiers[FLASH].pace.client_delay_ns;
        if delay_ns > self.counts.dirty_delay_ns && self.tiers[FLASH].reclaimable_percent() > 20 {
            self.counts.dirty_delay_ns = delay_ns;
        }
        // The last window holds the sums at its beginning until it ends.
        let window = self.windows.last_mut().expect("there is always one");
        window.delay_ns = window.delay_ns.max(delay_ns);
        if self.now_ns.is_multiple_of(SECOND_NS) {
            window.client_blocks = sums.0 - window.client_blocks;
            window.moved_blocks = [0, 1].map(|tier| sums.1[tier] - window.moved_blocks[tier]);
            window.destaged_blocks = sums.2 - window.destaged_blocks;
            let (client_blocks, moved_blocks, destaged_blocks) = sums;
            self.windows.push(Window { client_blocks, moved_blocks, destaged_blocks, delay_ns: 0 });
        }
    }
}

fn is_known(used_as: Use, checkpoint: u32) -> bool {
    matches!(used_as, Use::Sealed(before) if before < checkpoint)
}
