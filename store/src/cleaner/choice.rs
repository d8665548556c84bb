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
    /// Number of live blocks as of the last checkpoint.
    pub live: u32,
    /// Number of all its blocks, including header and summary, which never count as live.
    pub blocks: u32,
    /// Number of segments, of any stream, that were opened later.
    pub age: u64,
}

impl Candidate {
    /// Order by benefit per cost, best first: the space gained (1 - u), weighted by how long it will probably stay free
    /// (age), over reading the whole segment and writing its live part (1 + u), where u is the live share: (1 - u) *
    /// age / (1 + u) (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system", 1991).
    /// Age counts from 1, so that the youngest segments differ too.
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

/// A segment is moved only if more than 1/32 of its blocks look dead, because moving it takes about that much: up to
/// 1/64 for header and summary, which always look dead here but are needed again where the blocks go, and 1/64 for the
/// records of the moves (a block per 64 moved ones). With less, moving would take as much space as it frees, and the
/// cleaner could go on for ever.
const GAIN_PARTS: u32 = 32;

/// Chooses at most `max` victims by cost and benefit, and never full segments. Victims without a live block come first,
/// since they cost nothing. The others follow from young to old: their live blocks are written in this order, so blocks
/// of similar age, which will die at similar times, get into the same segments.
pub fn choose(candidates: &[Candidate], max: usize) -> Vec<Candidate> {
    assert!(candidates.iter().all(|one| one.live <= one.blocks), "no more blocks live than there are");
    let gains = |one: &&Candidate| one.blocks - one.live > one.blocks / GAIN_PARTS || one.live == 0;
    let mut victims: Vec<Candidate> = candidates.iter().filter(gains).copied().collect();
    if victims.len() > max {
        // A large brick has a million candidates, and only a few are needed: they are selected without a full sort.
        if max > 0 {
            victims.select_nth_unstable_by(max - 1, Candidate::better);
        }
        victims.truncate(max);
    }
    assert!(victims.len() <= max, "{} victims, at most {max} are wanted", victims.len());
    victims.sort_unstable_by_key(|one| (one.live > 0, one.age, one.segment));
    victims
}

/// Number of blocks of some victims, and how many of these are live.
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
        assert!(self.live <= self.blocks, "no more blocks live than there are");
        self.blocks - self.live
    }
}

/// The victims of one choice. If some blocks are written far more often than others, young victims are nearly dead, and
/// old ones nearly full. Looked at one by one, they would make freeing space look cheap at first and expensive later;
/// their mean says what it costs.
#[derive(Clone, Default, Debug)]
pub struct Choice {
    left: VecDeque<Candidate>,
    taken: Option<Candidate>,
    /// Number of blocks of a segment; None if no victim was chosen.
    blocks: Option<u32>,
    /// Sums over victims with a live block, of all and of the emptied ones. Dead victims cost nothing and are left out.
    all: Sum,
    emptied: Sum,
}

impl Choice {
    /// Chooses at most `max` victims.
    pub fn new(candidates: &[Candidate], max: usize) -> Choice {
        let victims = choose(candidates, max);
        let mut all = Sum::default();
        victims.iter().filter(|one| one.live > 0).for_each(|one| all.add(one));
        let blocks = victims.first().map(|one| one.blocks);
        Choice { left: victims.into(), taken: None, blocks, all, emptied: Sum::default() }
    }
    /// Takes the next victim.
    pub fn take(&mut self) -> Option<SegmentId> {
        self.taken = self.left.pop_front();
        self.taken.map(|one| one.segment)
    }
    /// Notes that the victim taken last is empty now.
    pub fn note_emptied(&mut self) {
        if let Some(one) = self.taken.take().filter(|one| one.live > 0) {
            self.emptied.add(&one);
            assert!(self.emptied.live <= self.all.live, "what was emptied was chosen");
        }
    }
    /// True if no victim is left to be taken.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
    /// Numbers of live blocks and of all blocks of the mean victim; None if no victim was chosen.
    pub fn mean(&self) -> Option<(u32, u32)> {
        let blocks = u64::from(self.blocks?);
        let live = (self.all.live * blocks).checked_div(self.all.blocks).unwrap_or(0);
        Some((live as u32, blocks as u32))
    }
    /// The number of blocks by which the victims emptied so far have gained more than the mean gain per moved block
    /// would have given. The victims that remain will gain less than the mean by as much.
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
