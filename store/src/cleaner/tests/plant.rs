//! A model of a brick under load: segments whose blocks live and die, one device shared by clients and the cleaner,
//! checkpoints that free emptied segments after a while. The drive's part is played in the simplest honest way.

use super::super::{Candidate, Choice, Controller, Pace, Sight, State};
use crate::format::segment::Stream;
use base::SegmentId;
use runtime::random::SplitMix;

/// The model advances in steps of this length.
const QUANTUM_NS: u64 = 250_000;
const SECOND_NS: u64 = 1_000_000_000;
const NOBODY: u32 = u32::MAX;

/// The brick and its clients.
#[derive(Clone, Debug)]
pub struct Shape {
    pub segments: u32,
    /// Blocks of a segment.
    pub blocks: u32,
    /// Blocks that are live after filling, in percent of what is usable.
    pub fill_percent: u64,
    /// The device takes this long to read or to write a block.
    pub device_ns: u64,
    /// Clients want to write a block every so often.
    pub client_ns: u64,
    /// A checkpoint takes this long.
    pub checkpoint_ms: u64,
    /// A slice takes this long besides its blocks, whatever their number.
    pub slice_ns: u64,
    /// Checkpoints that nobody asks for come this often.
    pub checkpoint_every_ms: u64,
    pub seed: u64,
}

/// The behaviour of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    Idle,
    /// Overwrite any block.
    Uniform,
    /// Seven of eight overwrite one sixteenth of the blocks.
    Hot,
    /// Overwrite the n-th most popular block with a likelihood of about 1/n.
    Zipf,
    /// Write blocks that were never written.
    Append,
}

/// A second of the model's life.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub client_blocks: u64,
    pub moved_blocks: u64,
    pub free_min: u32,
    pub reclaimable: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Free,
    Open,
    /// Sealed while this checkpoint, counted from start, had not begun.
    Sealed(u32),
}

#[derive(Clone, Debug)]
struct Segment {
    used_as: Use,
    live: u32,
    /// Live blocks as of the last checkpoint.
    live_seen: u32,
    opened: u64,
    /// The cleaner has moved all that lived here.
    moved: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub segment: u32,
    pub used: u32,
}

/// A checkpoint under way.
struct Cut {
    live: Vec<u32>,
    moved: Vec<u32>,
    ends_ns: u64,
}

/// The model.
pub struct Plant {
    shape: Shape,
    pub controller: Controller,
    random: SplitMix,
    pub now_ns: u64,
    segments: Vec<Segment>,
    free: Vec<u32>,
    /// The place of each logical block, and the logical block that lies, or lay, at each place.
    places: Vec<u32>,
    owners: Vec<u32>,
    opened: u64,
    /// Open segments of clients and of the cleaner.
    open: [Option<Open>; 2],
    checkpoint: u32,
    cut: Option<Cut>,
    checkpoint_wanted: bool,
    checkpoint_ended_ns: u64,
    pub checkpoints: u64,
    choice: Choice,
    /// Nothing of the choice was taken.
    untouched: bool,
    /// The victim, and its number among all that were opened.
    victim: Option<(u32, u64)>,
    cursor: u32,
    pub pace: Pace,
    slice_left: u32,
    slice_at_ns: u64,
    step_at_ns: u64,
    client_at_ns: u64,
    debt_ns: i64,
    pub client_blocks: u64,
    pub moved_blocks: u64,
    /// Clients, or the cleaner, found no segment to open.
    pub held: u64,
    pub windows: Vec<Window>,
    pub free_min: u32,
}

impl Plant {
    /// A brick, filled in random order.
    pub fn new(shape: Shape) -> Plant {
        let controller = Controller::new(shape.segments);
        let usable = u64::from(shape.segments - controller.thresholds().reserve) * u64::from(shape.blocks);
        let segment = Segment { used_as: Use::Free, live: 0, live_seen: 0, opened: 0, moved: false };
        let pace = Pace {
            slice_blocks: 0,
            pause_ns: 0,
            destage_rate: 0,
            client_delay_ns: 0,
            checkpoint: false,
            state: State::Idle,
        };
        let mut plant = Plant {
            controller,
            random: SplitMix(shape.seed),
            now_ns: 0,
            segments: vec![segment; shape.segments as usize],
            free: (0..shape.segments).rev().collect(),
            places: Vec::new(),
            owners: vec![NOBODY; (shape.segments * shape.blocks) as usize],
            opened: 0,
            open: [None; 2],
            checkpoint: 1,
            cut: None,
            checkpoint_wanted: false,
            checkpoint_ended_ns: 0,
            checkpoints: 0,
            choice: Choice::default(),
            untouched: true,
            victim: None,
            cursor: 0,
            pace,
            slice_left: 0,
            slice_at_ns: 0,
            step_at_ns: 0,
            client_at_ns: 0,
            debt_ns: 0,
            client_blocks: 0,
            moved_blocks: 0,
            held: 0,
            windows: vec![Window { free_min: u32::MAX, ..Window::default() }],
            free_min: shape.segments,
            shape,
        };
        for block in 0..usable * plant.shape.fill_percent / 100 {
            plant.places.push(NOBODY);
            assert!(plant.write(block as u32, 0), "there is room while filling");
        }
        plant.begin_checkpoint();
        plant.end_checkpoint();
        plant.free_min = plant.free.len() as u32;
        plant
    }
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }
    pub fn logical_blocks(&self) -> u64 {
        self.places.len() as u64
    }
    pub fn segments(&self) -> f64 {
        f64::from(self.shape.segments)
    }
    pub fn blocks_of(&self, segments: u32) -> u32 {
        segments * self.shape.blocks
    }
    fn emptied(&self) -> u32 {
        self.segments.iter().filter(|segment| segment.moved && segment.used_as != Use::Free).count() as u32
    }
    /// Takes a free segment. Clients leave the last two.
    fn take(&mut self, opener: usize) -> Option<Open> {
        if opener == 0 && self.free.len() <= 2 {
            return None;
        }
        let segment = self.free.pop()?;
        self.free_min = self.free_min.min(self.free.len() as u32);
        self.opened += 1;
        let row = &mut self.segments[segment as usize];
        assert!(row.live == 0 && row.used_as == Use::Free);
        *row = Segment { used_as: Use::Open, live: 0, live_seen: 0, opened: self.opened, moved: false };
        Some(Open { segment, used: 0 })
    }
    /// Writes a logical block to the end of an open segment. False if there is none.
    fn write(&mut self, block: u32, opener: usize) -> bool {
        if self.open[opener].is_none() {
            self.open[opener] = self.take(opener);
        }
        let Some(open) = &mut self.open[opener] else { return false };
        let (segment, place) = (open.segment, open.segment * self.shape.blocks + open.used);
        open.used += 1;
        if open.used == self.shape.blocks {
            self.open[opener] = None;
            self.segments[segment as usize].used_as = Use::Sealed(self.checkpoint);
        }
        self.kill(block);
        self.places[block as usize] = place;
        self.owners[place as usize] = block;
        self.segments[segment as usize].live += 1;
        true
    }
    fn kill(&mut self, block: u32) {
        let old = std::mem::replace(&mut self.places[block as usize], NOBODY);
        if old != NOBODY {
            self.segments[(old / self.shape.blocks) as usize].live -= 1;
        }
    }
    /// Everything is deleted.
    pub fn delete_all(&mut self) {
        (0..self.places.len() as u32).for_each(|block| self.kill(block));
    }
    fn begin_checkpoint(&mut self) {
        self.checkpoint += 1;
        self.checkpoint_wanted = false;
        self.checkpoints += 1;
        self.cut = Some(Cut {
            live: self.segments.iter().map(|segment| segment.live).collect(),
            moved: (0..self.shape.segments).filter(|&number| self.segments[number as usize].moved).collect(),
            ends_ns: self.now_ns + self.shape.checkpoint_ms * 1_000_000,
        });
    }
    fn end_checkpoint(&mut self) {
        let cut = self.cut.take().expect("one was begun");
        self.checkpoint_ended_ns = self.now_ns;
        assert!(cut.moved.iter().all(|&number| cut.live[number as usize] == 0));
        for (number, (segment, live)) in self.segments.iter_mut().zip(cut.live).enumerate() {
            segment.live_seen = live;
            if segment.used_as != Use::Free && is_known(segment.used_as, self.checkpoint) && live == 0 {
                (segment.used_as, segment.moved) = (Use::Free, false);
                self.free.insert(0, number as u32);
            }
        }
        if self.untouched {
            self.choose();
        }
    }
    fn candidates(&self) -> Vec<Candidate> {
        let numbered = (0..self.shape.segments).zip(&self.segments);
        let known = self.checkpoint - u32::from(self.cut.is_some());
        let cleanable = numbered.filter(|(_, one)| is_known(one.used_as, known) && !one.moved);
        let candidate = |(number, one): (u32, &Segment)| Candidate {
            segment: SegmentId(number),
            live: one.live_seen,
            blocks: self.shape.blocks,
            age: self.opened - one.opened,
            stream: Stream::Bulk,
            pinned: 0,
        };
        cleanable.map(candidate).collect()
    }
    /// The controller's present measurements.
    pub fn sight(&self) -> Sight {
        Sight {
            for_copies: 0,
            now_ns: self.now_ns,
            free: self.free(),
            emptied: self.emptied(),
            segments: self.shape.segments,
            client_blocks: self.client_blocks,
            moved_blocks: self.moved_blocks,
            victim: self.choice.mean(),
            surplus_blocks: self.choice.surplus_blocks(),
            destaged: None,
        }
    }
    fn choose(&mut self) {
        let max = self.controller.thresholds().victims_max();
        (self.choice, self.untouched) = (Choice::new(&self.candidates(), max), true);
    }
    fn control(&mut self) {
        let sight = self.sight();
        self.pace = self.controller.step(&sight);
        self.checkpoint_wanted |= self.pace.checkpoint;
        self.slice_left = self.pace.slice_blocks;
        self.slice_at_ns = self.now_ns + self.shape.slice_ns;
        self.step_at_ns = self.now_ns + self.pace.pause_ns;
    }
    /// Moves one live block. False if there is none to move, or nowhere to move it.
    fn move_block(&mut self) -> bool {
        loop {
            if self.victim.is_none() {
                if self.choice.is_empty() {
                    self.choose();
                }
                let Some(SegmentId(next)) = self.choice.take() else { return false };
                self.untouched = false;
                (self.victim, self.cursor) = (Some((next, self.segments[next as usize].opened)), 0);
            }
            let (victim, opened) = self.victim.expect("just taken");
            let row = &self.segments[victim as usize];
            let gone = row.used_as == Use::Free || row.opened != opened;
            if gone || self.cursor == self.shape.blocks {
                if !gone {
                    assert!(row.live == 0, "all was moved");
                    self.segments[victim as usize].moved = true;
                }
                self.choice.note_emptied(SegmentId(victim));
                self.victim = None;
                continue;
            }
            let place = victim * self.shape.blocks + self.cursor;
            let owner = self.owners[place as usize];
            if self.places[owner as usize] == place {
                let written = self.write(owner, 1);
                self.cursor += u32::from(written);
                self.moved_blocks += u64::from(written);
                return written;
            }
            self.cursor += 1;
        }
    }
    fn pick(&mut self, load: Load) -> u32 {
        let blocks = self.places.len() as u64;
        let block = match load {
            Load::Idle => unreachable!("idle clients write nothing"),
            Load::Uniform => self.random.below(blocks),
            Load::Hot if !self.random.one_in(8) => self.random.below(blocks / 16),
            Load::Hot => self.random.below(blocks),
            Load::Zipf => {
                let uniform = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
                let rank = (blocks as f64).powf(uniform) as u64;
                rank.wrapping_mul(0x9e37_79b1) % blocks
            }
            Load::Append => {
                self.places.push(NOBODY);
                blocks
            }
        };
        block as u32
    }
    fn write_client(&mut self, load: Load) -> bool {
        let block = self.pick(load);
        let written = self.write(block, 0);
        if !written && load == Load::Append {
            self.places.pop();
        }
        self.client_blocks += u64::from(written);
        written
    }
    /// Runs a load for a while.
    pub fn run(&mut self, load: Load, run_ns: u64) {
        let end_ns = self.now_ns + run_ns;
        while self.now_ns < end_ns {
            self.run_quantum(load);
            self.now_ns += QUANTUM_NS;
            self.note_window();
            let periodic_ns = self.checkpoint_ended_ns + self.shape.checkpoint_every_ms * 1_000_000;
            match &self.cut {
                Some(cut) if cut.ends_ns <= self.now_ns => self.end_checkpoint(),
                None if self.checkpoint_wanted || periodic_ns <= self.now_ns => self.begin_checkpoint(),
                _ => {}
            }
            if self.slice_left == 0 && self.now_ns >= self.step_at_ns {
                self.control();
            }
        }
    }
    /// One quantum of the device's time, shared fairly by those who want it.
    fn run_quantum(&mut self, load: Load) {
        let end_ns = self.now_ns + QUANTUM_NS;
        let mut left_ns = QUANTUM_NS as i64 - self.debt_ns;
        let (mut by_clients_ns, mut by_cleaner_ns) = (0, 0);
        self.client_at_ns = self.client_at_ns.max(self.now_ns.saturating_sub(QUANTUM_NS));
        while left_ns > 0 {
            let client = load != Load::Idle && self.client_at_ns < end_ns;
            let cleaner = self.slice_left > 0 && self.slice_at_ns <= self.now_ns;
            if client && (!cleaner || by_clients_ns <= by_cleaner_ns) {
                if !self.write_client(load) {
                    self.held += 1;
                    self.client_at_ns = end_ns;
                    continue;
                }
                by_clients_ns += self.shape.device_ns;
                left_ns -= self.shape.device_ns as i64;
                self.client_at_ns += self.shape.client_ns.max(self.pace.client_delay_ns);
            } else if cleaner {
                if self.move_block() {
                    by_cleaner_ns += 2 * self.shape.device_ns;
                    left_ns -= 2 * self.shape.device_ns as i64;
                    self.slice_left -= 1;
                } else {
                    self.slice_left = 0;
                }
                self.step_at_ns = end_ns + self.pace.pause_ns;
            } else {
                break;
            }
        }
        self.debt_ns = (-left_ns).max(0);
    }
    fn note_window(&mut self) {
        let (free, reclaimable) = (self.free(), self.free() + self.emptied());
        if self.now_ns.is_multiple_of(SECOND_NS) {
            self.windows.push(Window { free_min: u32::MAX, ..Window::default() });
        }
        let before = |count: fn(&Window) -> u64| {
            let (_, earlier) = self.windows.split_last().expect("there is always one");
            earlier.iter().map(count).sum::<u64>()
        };
        // Only the last quantum of a second is told: the sums are worked out once.
        let ends = (self.now_ns + QUANTUM_NS).is_multiple_of(SECOND_NS);
        let sums = ends.then(|| (before(|one| one.client_blocks), before(|one| one.moved_blocks)));
        let window = self.windows.last_mut().expect("there is always one");
        window.free_min = window.free_min.min(free);
        window.reclaimable = reclaimable;
        if let Some((clients, moved)) = sums {
            window.client_blocks = self.client_blocks - clients;
            window.moved_blocks = self.moved_blocks - moved;
        }
    }
}

fn is_known(used_as: Use, checkpoint: u32) -> bool {
    matches!(used_as, Use::Sealed(before) if before < checkpoint)
}
