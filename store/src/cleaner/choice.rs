//! The choice of segments to clean, and the work on the victims of one choice (`Choice`): pure, integers
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
    /// Number of live blocks that are known to be pinned: they belong on flash (see `Pins`).
    pub pinned: u32,
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
    /// The same for what is destaged: all of the segment but for its pinned blocks is gained, and the cost is the disk's time for the
    /// other live blocks.
    fn better_down(&self, other: &Candidate) -> Ordering {
        let benefit = |one: &Candidate, two: &Candidate| {
            u128::from(one.blocks - one.pinned) * (u128::from(one.age) + 1) * u128::from(two.live - two.pinned)
        };
        let dead_first = (self.live > 0).cmp(&(other.live > 0));
        dead_first.then(benefit(other, self).cmp(&benefit(self, other))).then(self.segment.cmp(&other.segment))
    }
}

/// A segment is moved only if more than 1/32 of its blocks look dead, because moving it takes about that much: up to
/// 1/64 for header and summary, which always look dead here but are needed again where the blocks go, and 1/64 for the
/// records of the moves (a block per 64 moved ones). With less, moving would take as much space as it frees, and the
/// cleaner could go on for ever.
const GAIN_PARTS: u32 = 32;

/// True if moving a segment within its tier gains something, or needs no move.
fn gains(one: &Candidate) -> bool {
    one.blocks - one.live > one.blocks / GAIN_PARTS || one.live == 0
}

/// Chooses the best `max` victims. Those without a live block come first, since they cost nothing. The others follow from
/// young to old: their live blocks are written in this order, so blocks of similar age, which will die at similar times, get
/// into the same segments.
fn choose(mut victims: Vec<Candidate>, max: usize, better: fn(&Candidate, &Candidate) -> Ordering) -> Choice {
    if victims.len() > max {
        // A large brick has a million candidates, and only a few are needed: they are selected without a full sort.
        if max > 0 {
            victims.select_nth_unstable_by(max - 1, better);
        }
        victims.truncate(max);
    }
    assert!(victims.len() <= max, "{} victims, at most {max} are wanted", victims.len());
    victims.sort_unstable_by_key(|one| (one.live > 0, one.age, one.segment));
    let mut all = Sum::default();
    victims.iter().filter(|one| one.live > 0).for_each(|one| all.add(one));
    let blocks = victims.first().map(|one| one.blocks);
    Choice { left: victims.into(), taken: Vec::new(), blocks, all, emptied: Sum::default() }
}

/// Number of blocks of some victims, and how many of these are live.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    live: u64,
    blocks: u64,
}

impl Sum {
    /// Counts a victim; what is pinned in it is neither gained nor moved away.
    fn add(&mut self, one: &Candidate) {
        self.live += u64::from(one.live - one.pinned);
        self.blocks += u64::from(one.blocks - one.pinned);
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
    /// Victims taken and not emptied yet.
    taken: Vec<Candidate>,
    /// Number of blocks of a segment; None if no victim was chosen.
    blocks: Option<u32>,
    /// Sums over victims with a live block, of all and of the emptied ones. Dead victims cost nothing and are left out.
    all: Sum,
    emptied: Sum,
}

impl Choice {
    /// Chooses at most `max` victims by cost and benefit, and never full segments: of a disk, or of a brick without tiers.
    pub fn new(candidates: &[Candidate], max: usize) -> Choice {
        assert!(candidates.iter().all(|one| one.live <= one.blocks), "no more blocks live than there are");
        choose(candidates.iter().filter(|one| gains(one)).copied().collect(), max, Candidate::better)
    }
    /// Chooses victims of a hybrid brick's flash whose live blocks stay there.
    pub fn staying(candidates: &[Candidate], max: usize, tiering: &Tiering) -> Choice {
        let stays = |one: &&Candidate| tiering.destination(one) == Some(Destination::Stay);
        let stays = candidates.iter().filter(stays).filter(|one| gains(one));
        // Here all live blocks are moved, pinned or not.
        choose(stays.map(|one| Candidate { pinned: 0, ..*one }).collect(), max, Candidate::better)
    }
    /// Chooses victims of a hybrid brick's flash whose live blocks are destaged, but for those that are pinned.
    pub fn destaged(candidates: &[Candidate], max: usize, tiering: &Tiering) -> Choice {
        assert!(candidates.iter().all(|one| one.pinned <= one.live), "what is pinned lives");
        let goes = |one: &&Candidate| tiering.destination(one) == Some(Destination::Down);
        let goes = candidates.iter().filter(goes);
        let pinned = |one: &Candidate| if tiering.pins_hold() { one.pinned } else { 0 };
        choose(goes.map(|one| Candidate { pinned: pinned(one), ..*one }).collect(), max, Candidate::better_down)
    }
    /// The next victim to be taken, and its number of blocks that are to be moved as of the last checkpoint: there are no more now.
    pub fn peek(&self) -> Option<(SegmentId, u32)> {
        self.left.front().map(|one| (one.segment, one.live - one.pinned))
    }
    /// Takes the next victim.
    pub fn take(&mut self) -> Option<SegmentId> {
        let next = self.left.pop_front()?;
        self.taken.push(next);
        Some(next.segment)
    }
    /// Notes that a victim that was taken is empty now. One of an earlier choice is not known here any more.
    pub fn note_emptied(&mut self, segment: SegmentId) {
        let Some(at) = self.taken.iter().position(|one| one.segment == segment) else { return };
        let one = self.taken.swap_remove(at);
        if one.live > 0 {
            self.emptied.add(&one);
            assert!(self.emptied.live <= self.all.live, "what was emptied was chosen");
        }
    }
    /// True if a segment is still to be taken.
    pub fn contains(&self, segment: SegmentId) -> bool {
        self.left.iter().any(|one| one.segment == segment)
    }
    /// True if no victim is left to be taken.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
    /// The mean victim; None if no victim was chosen.
    pub fn mean(&self) -> Option<Mean> {
        let blocks = u64::from(self.blocks?);
        let live = (self.all.live * blocks).checked_div(self.all.blocks).unwrap_or(0);
        Some(Mean { live: live as u32, blocks: blocks as u32 })
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
