//! The choice of segments to clean (`choose`), and the work on the victims of one choice (`Choice`): pure, integers
//! only.

use base::SegmentId;
use runtime::seeded::{Bug, active};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// A sealed segment that may be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The segment.
    pub segment: SegmentId,
    /// Live blocks as of the last checkpoint.
    pub live: u32,
    /// All of its blocks, header and summary too.
    pub blocks: u32,
    /// Number of segments, of any stream, that were opened after it.
    pub age: u64,
}

impl Candidate {
    /// Cost and benefit, best first: the free space gained, weighted by how long it will stay, for reading the whole
    /// segment and writing what lives: (1 - u) * age / (1 + u) (Rosenblum and Ousterhout, "The design and
    /// implementation of a log-structured file system", 1991). Age counts from 1, so that the youngest still compare.
    fn better(&self, other: &Candidate) -> Ordering {
        let benefit = |one: &Candidate, two: &Candidate| {
            u128::from(one.blocks - one.live) * (u128::from(one.age) + 1) * u128::from(two.blocks + two.live)
        };
        let dead_first = (self.live > 0).cmp(&(other.live > 0));
        let score = benefit(other, self).cmp(&benefit(self, other));
        let score = if active(Bug::VictimsByNumber) { Ordering::Equal } else { score };
        dead_first.then(score).then(self.segment.cmp(&other.segment))
    }
}

/// A segment is worth moving only if more than one in this many of its blocks is dead. Header and summary take one
/// block in 64 to 85, and records of the moves one in 64 of the moved blocks. With fewer dead blocks, moving a segment
/// would take as much space as it frees, and the cleaner could go on for ever.
const GAIN_PARTS: u32 = 32;

/// The victims, at most `max`, chosen by cost and benefit; full segments never. Those without a live block come first,
/// as they cost nothing; the others from young to old, because survivors are written in this order, and blocks of like
/// age will die at like times.
pub fn choose(candidates: &[Candidate], max: usize) -> Vec<Candidate> {
    assert!(candidates.iter().all(|one| one.live <= one.blocks), "no more blocks live than there are");
    let gains = |one: &&Candidate| one.blocks - one.live > one.blocks / GAIN_PARTS || one.live == 0;
    let mut victims: Vec<Candidate> = candidates.iter().filter(gains).copied().collect();
    if victims.len() > max {
        // A large brick has a million candidates, and few are wanted: no full sort.
        if max > 0 {
            victims.select_nth_unstable_by(max - 1, Candidate::better);
        }
        victims.truncate(max);
    }
    victims.sort_unstable_by_key(|one| (one.live > 0, one.age, one.segment));
    victims
}

/// Blocks of some victims, and how many of them live.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    live: u64,
    blocks: u64,
}

impl Sum {
    fn add(&mut self, one: &Candidate) {
        self.live += u64::from(one.live);
        self.blocks += u64::from(one.blocks);
    }
    fn gain(&self) -> u64 {
        self.blocks - self.live
    }
}

/// The victims of one choice. They differ: where some blocks are written far more often than others, the young ones are
/// nearly dead, and the old ones nearly full. So one by one they would tell that room is cheap, and then that it is dear;
/// together they tell what it costs.
#[derive(Clone, Default, Debug)]
pub struct Choice {
    left: VecDeque<Candidate>,
    taken: Option<Candidate>,
    /// Blocks of a segment, if any was chosen.
    blocks: Option<u32>,
    /// Those with a live block, and of them the emptied ones: what is dead costs nothing.
    all: Sum,
    emptied: Sum,
}

impl Choice {
    /// Chooses `max` victims at most.
    pub fn new(candidates: &[Candidate], max: usize) -> Choice {
        let victims = choose(candidates, max);
        let mut all = Sum::default();
        victims.iter().filter(|one| one.live > 0).for_each(|one| all.add(one));
        let blocks = victims.first().map(|one| one.blocks);
        Choice { left: victims.into(), taken: None, blocks, all, emptied: Sum::default() }
    }
    /// The next victim.
    pub fn take(&mut self) -> Option<SegmentId> {
        self.taken = self.left.pop_front();
        self.taken.map(|one| one.segment)
    }
    /// The victim that was taken last is empty now.
    pub fn note_emptied(&mut self) {
        if let Some(one) = self.taken.take().filter(|one| one.live > 0) {
            self.emptied.add(&one);
        }
    }
    /// True if none is left to be taken.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
    /// Live blocks, and all blocks, of the mean victim; None if there is none.
    pub fn mean(&self) -> Option<(u32, u32)> {
        let blocks = u64::from(self.blocks?);
        let live = (self.all.live * blocks).checked_div(self.all.blocks).unwrap_or(0);
        Some((live as u32, blocks as u32))
    }
    /// Blocks that the victims emptied so far have gained beyond their share of all that will be gained, by what was
    /// moved for it. The later ones of the choice will gain less than theirs by as much.
    pub fn surplus_blocks(&self) -> u64 {
        if active(Bug::SurplusSpent) {
            return 0;
        }
        let share = (u128::from(self.all.gain()) * u128::from(self.emptied.live))
            .checked_div(u128::from(self.all.live))
            .unwrap_or(0);
        self.emptied.gain().saturating_sub(share as u64)
    }
}
