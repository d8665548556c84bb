//! A checkpoint of a brick with replicas: it takes what is committed, and all that was in the log when it began (rule P21).

use crate::state::State;
use crate::{Groups, KEPT_RECORD_BYTES};
use base::{GroupId, Index, Result};
use order_raft::Position;
use runtime::seeded::{Bug, active};
use runtime::tasks::run_blocking;
use std::collections::VecDeque;
use store::Store;
use store::cleaner::Thresholds;
use store::format::devices::Tier;
use store::format::values::ReplayRow;

/// The time that a checkpoint waits for a majority. A commit takes milliseconds, and until it has come no change is ordered.
const SETTLES_NS: u64 = 1_000_000_000;
/// The pause between looks.
const LOOK_NS: u64 = 500_000;

/// Largest number of segments of the log that followers which lack records may hold back: beyond that they have to heal.
const PINNED_SEGMENTS: u64 = 16;
/// The same for a small brick: one in so many of its segments.
const PINNED_ONE_IN: u64 = 16;

/// A place where replay may start, and the last records of all groups before it.
pub(crate) struct Cut {
    replay: ReplayRow,
    /// Empty for the place where this process began: the rows of the replicas have them.
    ends: Vec<Position>,
}

impl Cut {
    /// The place where the replay of this process started.
    pub fn first(store: &Store) -> Cut {
        Cut { replay: store.replay_start(), ends: Vec::new() }
    }
}

impl Groups {
    /// The place where replay starts from the checkpoint on whose cut this is: the last one before which no follower lacks a record. Followers
    /// hold back a bounded part of the log, and nothing while free segments are short.
    pub(crate) fn replay_for_all(&self, replay: ReplayRow, ends: Vec<Position>) -> ReplayRow {
        let mut cuts = self.replication().cuts.lock();
        assert!(ends.len() == self.states().len(), "each group has its last record");
        assert!(cuts.back().is_none_or(|last| last.replay.number <= replay.number), "cuts come one after the other");
        cuts.push_back(Cut { replay, ends });
        let everyone: Vec<_> = self.states().iter().map(|group| group.state.lock().replica().everyone()).collect();
        let lacks_none = |cut: &Cut| cut.ends.iter().zip(&everyone).all(|(end, everyone)| end.index <= *everyone);
        let segments = self.store().segments_of(Tier::Flash);
        let is_short = segments.free_segments < u64::from(Thresholds::new(segments.segments as u32).high);
        let pinned_max = match is_short {
            true => 0,
            false => PINNED_SEGMENTS.min(segments.segments / PINNED_ONE_IN) * self.store().segment_bytes(),
        };
        let is_pinned = |cuts: &VecDeque<Cut>| {
            cuts.get(1)
                .is_some_and(|next| !lacks_none(next) && self.store().log_bytes_from(&cuts[0].replay) <= pinned_max)
        };
        while cuts.len() > 1 && !is_pinned(&cuts) {
            cuts.pop_front();
        }
        for (group, end) in self.states().iter().zip(&cuts[0].ends) {
            group.state.lock().replica().before = Some(*end);
        }
        cuts[0].replay
    }

    /// Orders no more changes, until `resume_replicas`, and waits until all that is in the log is committed and applied. None if that takes too
    /// long: then changes are ordered again. Else the last records that are in it.
    pub(crate) async fn settle_replicas(&self) -> Option<Vec<Position>> {
        let mut ends = Vec::new();
        for group in self.states() {
            let mut state = group.state.lock();
            let applied = Position { index: state.row.applied, term: state.row.term };
            let replica = state.replica();
            replica.paused = true;
            ends.push(replica.kept.last_position().unwrap_or(applied));
        }
        if active(Bug::UncommittedCheckpoint) {
            return Some(ends);
        }
        let until = self.store().runtime.clock.now_ns() + SETTLES_NS;
        loop {
            let settled = |(group, end): (&crate::Group, &Position)| {
                let state = group.state.lock();
                let applied = state.row.applied;
                applied >= end.index && state.replica.as_ref().is_some_and(|replica| replica.is_settled(applied))
            };
            if self.states().iter().zip(&ends).all(settled) {
                return Some(ends);
            }
            // The news of a commit may wait behind a record that the log has no room for, until this checkpoint makes some.
            self.states().iter().for_each(|group| self.replication().wake(group.number));
            if self.store().runtime.clock.now_ns() >= until {
                self.resume_replicas();
                return None;
            }
            self.store().runtime.clock.sleep(LOOK_NS).await;
        }
    }

    /// The last record of a group that the index has after a checkpoint, and the checksum of what it says: equal on all replicas that have
    /// applied the same records. Errors: those of a checkpoint.
    pub async fn checksum(&self, group: GroupId) -> Result<(Index, u32)> {
        self.checkpoint().await?;
        let _still = self.checkpoint_token.take().await;
        let index = self.store().index.clone();
        run_blocking(&*self.store().runtime.tasks, move || store::check::logical::checksum(&*index, group)).await
    }

    /// The position of a group's rows that a follower is being given.
    pub(crate) fn given_from(&self, group: GroupId) -> Option<Index> {
        self.replication.as_ref()?.healing.gives_from(group, self.store().runtime.clock.now_ns())
    }

    /// Orders changes again.
    pub(crate) fn resume_replicas(&self) {
        if self.replication.is_none() {
            return;
        }
        self.states().iter().for_each(|group| group.state.lock().replica().paused = false);
        self.store().log.segment_came.notify();
    }
}

/// Bytes of records that are kept, in multiples of those of the usual number of records, and at least, over all groups: a follower that is
/// given rows needs all that is ordered meanwhile.
const KEPT_TIMES: u64 = 4;
const KEPT_BYTES_LEAST: u64 = 32 << 20;

impl State {
    /// Drops records that the index has since the checkpoint, but for those that followers may still need. `kept_records`: of all groups, which
    /// are so many. `given`: the position of rows that a follower is being given.
    pub fn forget_kept(&mut self, (kept_records, groups): (u64, u64), given: Option<Index>) {
        let Some(replica) = self.replica.as_deref_mut() else { return };
        let (included, kept_records) = (replica.included, kept_records / groups);
        assert!(included <= replica.order.committed(), "the index has what is committed (rule P21)");
        assert!(given.is_none_or(|given| given <= included), "the rows that a follower is given were in the index");
        let wanted = Index((included.0 + 1).saturating_sub(kept_records).max(1));
        let wanted = given.map_or(wanted, |given| wanted.min(Index(given.0 + 1)));
        let bytes_max = (KEPT_TIMES * kept_records * KEPT_RECORD_BYTES).max(KEPT_BYTES_LEAST / groups);
        let first = wanted.max(replica.kept.first_within(bytes_max as usize)).min(Index(included.0 + 1));
        replica.kept.keep_from(first);
        replica.order.keep_from(first);
    }
}
