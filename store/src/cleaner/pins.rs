//! Knowledge of pinned blocks: those of files that belong on flash (`Pins`). Pure. That a block is pinned is a matter of its
//! inode, so it is found out only when a victim is taken; from then on the choice knows how much of the segment is, and leaves
//! alone what is held by its pins (`Tiering::is_held`) instead of taking it again and again. Bounded: an entry for each segment of
//! flash with pinned blocks.

use super::choice::Candidate;
use base::{Life, SegmentId};
use std::collections::BTreeMap;

/// Shortest time between two times at which all is forgotten. Restoring a backup changes many hints, one after the other.
const FORGET_NS: u64 = 10_000_000_000;

/// Numbers of pinned blocks in segments.
#[derive(Default)]
pub struct Pins {
    known: BTreeMap<SegmentId, (Life, u32)>,
    /// Their sum, as of the last choice.
    blocks: u64,
    /// Number of changes of hints and policies when all was forgotten last, and the time.
    changes: u64,
    forgot_ns: u64,
}

impl Pins {
    /// Notes how many blocks of a segment's life were pinned.
    pub fn note(&mut self, segment: SegmentId, life: Life, pinned: u32) {
        if pinned > 0 {
            self.known.insert(segment, (life, pinned));
        }
    }
    /// Forgets all if hints or policies have changed since it did so last. `changes`: their number since start.
    pub fn follow(&mut self, changes: u64, now_ns: u64) {
        if changes != self.changes && now_ns.saturating_sub(self.forgot_ns) >= FORGET_NS {
            (self.changes, self.forgot_ns) = (changes, now_ns);
            self.known.clear();
        }
    }
    /// True if pinned blocks are known.
    pub fn any(&self) -> bool {
        !self.known.is_empty()
    }
    /// Number of pinned blocks that were known at the last choice. Some may have died since they were found.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
    /// Tells candidates how many of their blocks are known to be pinned. `life`: the life that a segment is in.
    pub fn tell(&mut self, candidates: &mut [Candidate], life: impl Fn(SegmentId) -> Life) {
        self.known.retain(|segment, (of, _)| life(*segment) == *of);
        self.blocks = self.known.values().map(|(_, pinned)| u64::from(*pinned)).sum();
        if self.known.is_empty() {
            return;
        }
        for one in candidates {
            // Blocks that have died since may have been any of them.
            one.pinned = self.known.get(&one.segment).map_or(0, |(_, pinned)| *pinned).min(one.live);
        }
    }
}
