//! The decisions of the promotion, each with its reason: how many blocks they were about since start, and the last ones.

use base::Place;
use std::collections::VecDeque;

/// Decisions that are kept.
pub const DECISIONS_MAX: usize = 1000;

/// Classes of decisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// A copy was made.
    Admitted,
    /// Blocks that were read from disk were not copied.
    Refused,
    /// A copy was dropped.
    Evicted,
}

/// The reasons of decisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Read from disk again.
    ReadAgain,
    /// Found in more pieces than are read at once: copied again, into one.
    Scattered,
    /// Asked for since it was copied, and copied anew before its segment was dropped.
    AskedAgain,
    /// Read for the first time, as far as anybody remembers.
    ReadOnce,
    /// Part of a stream.
    Stream,
    /// Read ahead.
    Ahead,
    /// More waits to be copied than memory is kept for.
    Busy,
    /// No flash is to be had that the cleaner would not need.
    NoFlash,
    /// The map has no room.
    MapFull,
    /// The segment on disk began another life before the copy was made.
    Changed,
    /// The segment on disk began more lives since start than are told apart.
    Worn,
    /// Part of the oldest segment when room was needed, and not asked for since it was copied.
    Replaced,
    /// Flash was needed for something else.
    GaveWay,
    /// The map had no room for a second segment.
    MapShort,
    /// The segment on disk has begun another life.
    Outlived,
    /// The copy differed from its checksum, or could not be read.
    Bad,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 16] = [
        Reason::ReadAgain,
        Reason::Scattered,
        Reason::AskedAgain,
        Reason::ReadOnce,
        Reason::Stream,
        Reason::Ahead,
        Reason::Busy,
        Reason::NoFlash,
        Reason::MapFull,
        Reason::Changed,
        Reason::Worn,
        Reason::Replaced,
        Reason::GaveWay,
        Reason::MapShort,
        Reason::Outlived,
        Reason::Bad,
    ];
    /// The reason's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Reason::ReadAgain => "read again",
            Reason::Scattered => "scattered",
            Reason::AskedAgain => "asked again",
            Reason::ReadOnce => "read once",
            Reason::Stream => "stream",
            Reason::Ahead => "read ahead",
            Reason::Busy => "busy",
            Reason::NoFlash => "no flash",
            Reason::MapFull => "map full",
            Reason::Changed => "changed",
            Reason::Worn => "worn",
            Reason::Replaced => "replaced",
            Reason::GaveWay => "gave way",
            Reason::MapShort => "map short",
            Reason::Outlived => "outlived",
            Reason::Bad => "bad",
        }
    }
    /// Its class.
    pub fn verdict(self) -> Verdict {
        match self {
            Reason::ReadAgain | Reason::Scattered | Reason::AskedAgain => Verdict::Admitted,
            Reason::ReadOnce
            | Reason::Stream
            | Reason::Ahead
            | Reason::Busy
            | Reason::NoFlash
            | Reason::MapFull
            | Reason::Changed
            | Reason::Worn => Verdict::Refused,
            Reason::Replaced | Reason::GaveWay | Reason::MapShort | Reason::Outlived | Reason::Bad => Verdict::Evicted,
        }
    }
}

/// One decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The clock.
    pub at_ns: u64,
    /// The reason, which tells what was decided.
    pub reason: Reason,
    /// The first block on disk; of a segment that was dropped, its first block on flash.
    pub place: Place,
    /// Number of blocks.
    pub blocks: u32,
}

/// See the module.
pub(super) struct Journal {
    counts: [u64; Reason::ALL.len()],
    last: VecDeque<Decision>,
}

impl Journal {
    pub fn new() -> Journal {
        Journal { counts: [0; Reason::ALL.len()], last: VecDeque::with_capacity(DECISIONS_MAX) }
    }
    pub fn bytes_of() -> u64 {
        (DECISIONS_MAX * size_of::<Decision>()) as u64
    }
    pub fn bytes(&self) -> u64 {
        (self.last.capacity() * size_of::<Decision>()) as u64
    }
    /// Notes a decision about at least one block.
    pub fn note(&mut self, decision: Decision) {
        if decision.blocks == 0 {
            return;
        }
        self.counts[decision.reason as usize] += u64::from(decision.blocks);
        if self.last.len() == DECISIONS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(decision);
    }
    /// Blocks by reason, in the order of `Reason::ALL`.
    pub fn counts(&self) -> [(Reason, u64); Reason::ALL.len()] {
        Reason::ALL.map(|reason| (reason, self.counts[reason as usize]))
    }
    /// The last decisions, oldest first.
    pub fn last(&self) -> Vec<Decision> {
        self.last.iter().copied().collect()
    }
}
