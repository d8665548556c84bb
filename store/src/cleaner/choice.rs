//! The choice of segments to clean (`choose`), and the work on the victims of one choice (`Choice`): pure, integers
//! only.

use super::core::Mean;
use super::destage::{Destination, Tiering};
use crate::format::segment::Stream;
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
    /// The stream that it belongs to.
    pub stream: Stream,
}

/// The cost of a block that is destaged, in blocks read or written on flash: a disk takes about as much longer for it, what
/// its own cleaner moves included.
const DOWN_COST: u64 = 8;

/// A candidate, and where its live blocks would go.
#[derive(Clone, Copy, Debug)]
struct Bound {
    candidate: Candidate,
    destination: Destination,
}

impl Bound {
    /// Number of live blocks that are written to the same tier again.
    fn stays(&self) -> u32 {
        match self.destination {
            Destination::Stay => self.candidate.live,
            Destination::Down => 0,
        }
    }
    fn gain(&self) -> u32 {
        assert!(self.candidate.live <= self.candidate.blocks, "no more blocks live than there are");
        self.candidate.blocks - self.stays()
    }
    fn cost(&self) -> u64 {
        let Candidate { live, blocks, .. } = self.candidate;
        let write = match self.destination {
            Destination::Stay => 1,
            Destination::Down => DOWN_COST,
        };
        u64::from(blocks) + u64::from(live) * write
    }
    /// Order by benefit per cost, best first: the space gained (1 - u), weighted by how long it will probably stay free
    /// (age), over reading the whole segment and writing its live part (1 + u), where u is the live share: (1 - u) *
    /// age / (1 + u) (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system", 1991).
    /// Age counts from 1, so that the youngest segments differ too. What is destaged is gained as a whole, at a higher cost.
    fn better(&self, other: &Bound) -> Ordering {
        let benefit = |one: &Bound, two: &Bound| {
            u128::from(one.gain()) * (u128::from(one.candidate.age) + 1) * u128::from(two.cost())
        };
        let dead_first = (self.candidate.live > 0).cmp(&(other.candidate.live > 0));
        let score = benefit(other, self).cmp(&benefit(self, other));
        let score = if active(Bug::VictimsByNumber) { Ordering::Equal } else { score };
        dead_first.then(score).then(self.candidate.segment.cmp(&other.candidate.segment))
    }
}

/// A segment is moved only if more than 1/32 of its blocks look dead, because moving it takes about that much: up to
/// 1/64 for header and summary, which always look dead here but are needed again where the blocks go, and 1/64 for the
/// records of the moves (a block per 64 moved ones). With less, moving would take as much space as it frees, and the
/// cleaner could go on for ever.
const GAIN_PARTS: u32 = 32;

/// Chooses at most `max` victims by cost and benefit, and never those that gain nothing. Victims without a live block come
/// first, since they cost nothing. The others follow from young to old: their live blocks are written in this order, so
/// blocks of similar age, which will die at similar times, get into the same segments.
fn choose(candidates: &[Candidate], max: usize, tiering: Option<&Tiering>) -> Vec<Bound> {
    assert!(candidates.iter().all(|one| one.live <= one.blocks), "no more blocks live than there are");
    let bound = |one: &Candidate| {
        let destination = tiering.map_or(Destination::Stay, |tiering| tiering.destination(one));
        Bound { candidate: *one, destination }
    };
    let gains = |one: &Bound| one.gain() > one.candidate.blocks / GAIN_PARTS || one.candidate.live == 0;
    let mut victims: Vec<Bound> = candidates.iter().map(bound).filter(gains).collect();
    if victims.len() > max {
        // A large brick has a million candidates, and only a few are needed: they are selected without a full sort.
        if max > 0 {
            victims.select_nth_unstable_by(max - 1, Bound::better);
        }
        victims.truncate(max);
    }
    assert!(victims.len() <= max, "{} victims, at most {max} are wanted", victims.len());
    victims.sort_unstable_by_key(|Bound { candidate: one, .. }| (one.live > 0, one.age, one.segment));
    victims
}

/// A victim to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The segment.
    pub segment: SegmentId,
    /// Number of its live blocks as of the last checkpoint: there are no more of them now.
    pub live: u32,
    /// The destination of these blocks.
    pub destination: Destination,
}

/// Number of blocks of some victims, and how many of these are live, and stay on their tier.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    live: u64,
    blocks: u64,
    stays: u64,
}

impl Sum {
    fn add(&mut self, one: &Bound) {
        self.live += u64::from(one.candidate.live);
        self.blocks += u64::from(one.candidate.blocks);
        self.stays += u64::from(one.stays());
    }
    fn gain(&self) -> u64 {
        assert!(self.stays <= self.live && self.live <= self.blocks, "no more blocks live than there are");
        self.blocks - self.stays
    }
}

/// The victims of one choice. If some blocks are written far more often than others, young victims are nearly dead, and
/// old ones nearly full. Looked at one by one, they would make freeing space look cheap at first and expensive later;
/// their mean says what it costs.
#[derive(Clone, Default, Debug)]
pub struct Choice {
    left: VecDeque<Bound>,
    /// Victims taken and not emptied yet.
    taken: Vec<Bound>,
    /// Number of blocks of a segment; None if no victim was chosen.
    blocks: Option<u32>,
    /// Sums over victims with a live block, of all and of the emptied ones. Dead victims cost nothing and are left out.
    all: Sum,
    emptied: Sum,
}

impl Choice {
    /// Chooses at most `max` victims of a tier with none below it: a disk, or a brick without tiers.
    pub fn new(candidates: &[Candidate], max: usize) -> Choice {
        Choice::of(choose(candidates, max, None))
    }
    /// Chooses at most `max` victims of a hybrid brick's flash.
    pub fn tiered(candidates: &[Candidate], max: usize, tiering: &Tiering) -> Choice {
        Choice::of(choose(candidates, max, Some(tiering)))
    }
    fn of(victims: Vec<Bound>) -> Choice {
        let mut all = Sum::default();
        victims.iter().filter(|one| one.candidate.live > 0).for_each(|one| all.add(one));
        let blocks = victims.first().map(|one| one.candidate.blocks);
        Choice { left: victims.into(), taken: Vec::new(), blocks, all, emptied: Sum::default() }
    }
    /// The next victim to be taken.
    pub fn peek(&self) -> Option<Victim> {
        let Bound { candidate: Candidate { segment, live, .. }, destination } = *self.left.front()?;
        Some(Victim { segment, live, destination })
    }
    /// Takes the next victim.
    pub fn take(&mut self) -> Option<Victim> {
        let next = self.peek();
        self.taken.extend(self.left.pop_front());
        next
    }
    /// Notes that a victim that was taken is empty now. It may be of an earlier choice.
    pub fn note_emptied(&mut self, segment: SegmentId) {
        let Some(at) = self.taken.iter().position(|one| one.candidate.segment == segment) else { return };
        let one = self.taken.swap_remove(at);
        if one.candidate.live > 0 {
            self.emptied.add(&one);
            assert!(self.emptied.live <= self.all.live, "what was emptied was chosen");
        }
    }
    /// True if no victim is left to be taken.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
    /// The mean victim; None if no victim was chosen.
    pub fn mean(&self) -> Option<Mean> {
        let blocks = self.blocks?;
        let share = |part: u64| (part * u64::from(blocks)).checked_div(self.all.blocks).unwrap_or(0) as u32;
        Some(Mean { live: share(self.all.live), blocks, stays: share(self.all.stays) })
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
