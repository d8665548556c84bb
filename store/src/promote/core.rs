//! The order of the segments that hold copies, as a pure core: when one is taken, filled and dropped, and how much of what
//! was asked again is copied anew before that. The drive does one `Step` at a time and says what came of it.

use base::{Place, SegmentId};
use std::collections::VecDeque;

/// The part of a segment's blocks that are copied anew at most before it is dropped: each drop makes room for as much that
/// is new, so that a set that is too large for flash does not go round and round.
const AGAIN_PARTS: u32 = 2;
const _: () = assert!(AGAIN_PARTS > 1, "a drop must make room");

/// The measurements that a step is decided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// Segments of flash that can be opened now.
    pub free: u32,
    /// Segments that held copies, and are free once their last readers have ended.
    pub leaving: u32,
    /// Free segments of which the cleaner need not do anything: what is above is for copies.
    pub target: u32,
    /// Blocks that wait to be copied.
    pub queued: u64,
    /// The map's entries are nearly used up.
    pub map_is_short: bool,
    /// A segment with copies lies on a device that leaves the brick.
    pub is_leaving: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Refuse what is queued: there is no flash for copies.
    Refuse,
    /// Take a free segment, and say so by `took`.
    Take,
    /// Write so many blocks of what is queued at most, at the places that `fill` gives.
    Write(u32),
    /// Copy so many blocks anew at most, of what was asked again in this segment, at the places that `fill` gives; `copied_anew` if that was
    /// all.
    CopyAnew(SegmentId, u32),
    /// Drop a segment, and say so by `dropped`.
    Drop(SegmentId, Cause),
}

/// The cause of a segment's drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// New copies need room.
    Replaced,
    /// Less flash is to be had, or one with copies leaves the brick.
    GaveWay,
    /// The map has no room for a second segment.
    MapFull,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    segment: SegmentId,
    /// The next block to be written; only the youngest segment is still filled.
    next: u32,
}

/// See the module.
pub struct Order {
    /// Blocks of a segment, its header among them.
    blocks: u32,
    /// Oldest first.
    held: VecDeque<Held>,
    /// Segments that copies may take.
    budget: u32,
    /// Blocks of the oldest segment that may still be copied anew before it is dropped.
    anew: Option<u32>,
    last: Step,
}

/// The segments of flash that copies may take while they hold `held`: those of which the cleaner need not do anything.
pub fn budget(sight: &Sight, held: u32) -> u32 {
    (sight.free + sight.leaving + held).saturating_sub(sight.target)
}

impl Order {
    /// An order without segments. `blocks`: those of a segment that may be written, its header among them.
    pub fn new(blocks: u32) -> Order {
        assert!(blocks > 1 && blocks <= 1 << 16, "a segment has room behind its header");
        Order { blocks, held: VecDeque::new(), budget: 0, anew: None, last: Step::Rest }
    }
    /// Number of segments that hold copies.
    pub fn held(&self) -> u32 {
        self.held.len() as u32
    }
    /// The segments that hold copies, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.held.iter().map(|held| held.segment)
    }
    /// Number of segments that copies might take as of the last step.
    pub fn budget(&self) -> u32 {
        self.budget
    }
    /// Decides what to do next.
    pub fn step(&mut self, sight: &Sight) -> Step {
        self.budget = budget(sight, self.held());
        self.last = self.decide(sight);
        if let Step::Drop(segment, _) = self.last {
            assert!(self.held.front().is_some_and(|oldest| oldest.segment == segment), "the oldest goes first");
        }
        self.last
    }
    fn decide(&mut self, sight: &Sight) -> Step {
        let Some(oldest) = self.held.front().map(|held| held.segment) else {
            return match sight.queued {
                0 => Step::Rest,
                _ if self.budget == 0 => Step::Refuse,
                _ => Step::Take,
            };
        };
        if self.held() > self.budget || sight.is_leaving {
            return Step::Drop(oldest, Cause::GaveWay);
        }
        let is_only = self.held() == 1;
        if sight.map_is_short && is_only {
            return Step::Drop(oldest, Cause::MapFull);
        }
        if sight.map_is_short && self.anew.is_none() {
            self.begin_anew();
        }
        match self.anew.map(|anew| anew.min(self.room())) {
            Some(0) => Step::Drop(oldest, Cause::Replaced),
            Some(blocks) => Step::CopyAnew(oldest, blocks),
            None if sight.queued == 0 => Step::Rest,
            None if self.room() > 0 => Step::Write(self.room()),
            None if self.held() < self.budget => Step::Take,
            None => Step::Drop(oldest, Cause::Replaced),
        }
    }
    fn begin_anew(&mut self) {
        assert!(self.held.len() > 1, "copies go to another segment");
        self.anew = Some(self.blocks / AGAIN_PARTS);
    }
    /// Blocks that the youngest segment still takes.
    fn room(&self) -> u32 {
        self.held.back().map_or(0, |youngest| self.blocks - youngest.next)
    }
    /// Notes that a segment was taken. If it is the last that copies may take, the oldest one goes.
    pub fn took(&mut self, segment: SegmentId) {
        assert!(self.last == Step::Take, "a segment is taken when asked for, not after {:?}", self.last);
        assert!(self.held.iter().all(|held| held.segment != segment), "segment {segment} is taken twice");
        self.last = Step::Rest;
        self.held.push_back(Held { segment, next: 1 });
        if self.held() >= self.budget && self.held() > 1 {
            self.begin_anew();
        }
    }
    /// Gives the place of so many blocks of those that the last step has granted.
    pub fn fill(&mut self, blocks: u32) -> Place {
        let granted = match &mut self.last {
            Step::Write(granted) | Step::CopyAnew(_, granted) => granted,
            other => panic!("nothing is written after {other:?}"),
        };
        assert!(blocks > 0 && blocks <= *granted, "{blocks} blocks, of {granted} granted");
        *granted -= blocks;
        if let (Step::CopyAnew(..), Some(anew)) = (self.last, &mut self.anew) {
            *anew -= blocks;
        }
        let youngest = self.held.back_mut().expect("a step has granted room");
        let place = Place { segment: youngest.segment, block: youngest.next as u16 };
        youngest.next += blocks;
        assert!(youngest.next <= self.blocks, "a segment takes no more than it has");
        place
    }
    /// Notes that nothing is left to be copied anew.
    pub fn copied_anew(&mut self) {
        assert!(matches!(self.last, Step::CopyAnew(..)), "that was not asked for");
        assert!(self.anew.is_some(), "the oldest segment is about to go");
        self.anew = Some(0);
    }
    /// Notes that the oldest segment was dropped.
    pub fn dropped(&mut self, segment: SegmentId) {
        assert!(matches!(self.last, Step::Drop(asked, _) if asked == segment), "it is dropped when asked for");
        let oldest = self.held.pop_front().expect("a step has named it");
        assert!(oldest.segment == segment, "the oldest goes first");
        (self.anew, self.last) = (None, Step::Rest);
    }
}
