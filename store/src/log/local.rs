//! Records of the brick's own, which no group orders: the cleaner's moves, and votes. Promises the same as for other records: they lie in
//! the one stream, and count in its order. Absent by design: what a vote means (`order_raft`), and whether a move counts (`group`).

use super::{Entry, Log, Ordered, Payload};
use crate::format::record::{MOVED_BYTES, Moved, Moves, Run, VOTE_BYTES, Vote, encode_moves, encode_vote};
use crate::format::summary::SummaryEntry;
use base::{Index, Result, Sync, VolumeId};

impl Log {
    /// Appends the cleaner's record; as `append`. `runs`: the new places of the blocks.
    pub fn append_moves(&self, moves: &Moves, runs: &[Run]) -> Result<Ordered> {
        assert!(!moves.blocks.is_empty(), "a record says something");
        let placed: usize = runs.iter().map(|run| usize::from(run.count)).sum();
        assert!(placed == moves.blocks.len(), "each of {} moved blocks has one of {placed} places", moves.blocks.len());
        let mut replicated = Vec::with_capacity(16 + MOVED_BYTES * moves.blocks.len());
        encode_moves(&mut replicated, moves);
        let owner = (moves.group, moves.volume, Index(0));
        let entry = Entry { owner, replicated: &replicated, payload: Payload::Placed(runs), described: &[] };
        let mut state = self.state.lock();
        state.check()?;
        state.reserve(self, std::slice::from_ref(&entry))?;
        let ordered = state.append_one(self, &entry, None)?;
        let mut blocks = moves.blocks.iter();
        for run in runs {
            let entries = state.summaries.entry(run.place.segment).or_default();
            for (block, moved) in (run.place.block..).zip(blocks.by_ref().take(usize::from(run.count))) {
                let Moved { ino, block: offset, crc, index, .. } = *moved;
                let (group, volume) = (moves.group, moves.volume);
                entries.push(SummaryEntry { block, group, volume, ino, offset, index, crc });
            }
        }
        Ok(ordered)
    }

    /// Appends a vote; as `append`. It is to be durable at once: nothing that it promises is said before
    /// `wait(batch, Sync::Data, ..)` has returned. The brick was marked with `REPLICAS` before (`feature::require`).
    pub fn append_vote(&self, vote: &Vote) -> Result<Ordered> {
        let mut replicated = Vec::with_capacity(VOTE_BYTES);
        encode_vote(&mut replicated, vote);
        let owner = (vote.group, VolumeId(0), Index(0));
        let entry = Entry { owner, replicated: &replicated, payload: Payload::None, described: &[] };
        self.append_one_record(&entry, Sync::Data)
    }
}
