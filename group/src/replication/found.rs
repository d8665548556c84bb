//! A brick's replicas as its log has them at a start.

use super::Replication;
use crate::hosted::Hosted;
use crate::replica::Replica;
use crate::replica::kept::{Carried, Kept, KeptRecords, shadow_of};
use crate::state::across::Across;
use base::{Edit, Error, GroupId, Index, Kind, Result};
use order_raft::{Position, Shadow};
use runtime::Tasks;
use runtime::tasks::run_blocking;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::format::record::{Head, Record, Run, Vote, encode_replicated};
use store::format::values::{Promise, ReplicaRow};
use store::format::{keys, values};
use store::index::Index as Engine;

/// The records of a group that its index does not have, and its last vote.
#[derive(Default)]
pub(crate) struct FoundReplica {
    kept: Option<KeptRecords>,
    promise: Promise,
}

impl FoundReplica {
    /// Takes a record that the log has, be it in the index already: a follower may lack it. One at an index that was there already takes
    /// its place (rule L6: replay goes by what was written last). `applied`: the last record that the index has. Errors: `Corrupt`.
    pub fn find(&mut self, record: Record, runs: Vec<Run>, batch: u64, applied: Index) -> Result<()> {
        let before = Index(record.index.0.saturating_sub(1));
        let kept = self.kept.get_or_insert_with(|| KeptRecords::after(before));
        // A gap that the index covers is one that a heal has filled.
        if record.index < kept.first() || (before > kept.last() && before <= applied) {
            *kept = KeptRecords::after(before);
        }
        if record.index.0 > kept.last().0 + 1 {
            return Err(missing(record.group, record.index, kept.last()));
        }
        let Record { group, term, index, volume, session, request, outcome, edits } = record;
        let mut bytes = Vec::with_capacity(256);
        encode_replicated(&mut bytes, &Head { group, term, index, volume, session, request, outcome }, &edits);
        let shadow = if matches!(edits[..], [Edit::Term { .. }]) { Shadow::TERM } else { shadow_of(&bytes) };
        let (position, payload) = (Position { index, term }, Carried::of(&edits, &[], &runs));
        kept.push(Kept { position, shadow, bytes: Arc::from(bytes), payload, batch });
        Ok(())
    }
    /// Takes a vote.
    pub fn vote(&mut self, vote: &Vote) {
        self.promise = self.promise.and(Promise::of(vote));
    }
}

/// The error of a log that lacks a record before this one.
pub(crate) fn missing(group: GroupId, index: Index, last: Index) -> Error {
    let error = Error::new(Kind::Corrupt, "a record is missing from a group's order");
    error.with(format!("group {group}: {index} after {last}"))
}

impl Replication {
    /// Gives each group its replica. Errors: the index's.
    pub async fn begin(
        &self,
        hosted: &Hosted,
        index: Arc<dyn Engine>,
        mut found: BTreeMap<GroupId, FoundReplica>,
        tasks: &dyn Tasks,
    ) -> Result<()> {
        for group in hosted.all() {
            let (number, reading) = (group.number, index.clone());
            let read = move || reading.get(&keys::promise(number));
            let row = run_blocking(tasks, read).await?;
            let row = row.map_or(Ok(ReplicaRow::default()), |row| values::decode_replica(&row))?;
            let index = index.clone();
            let read =
                move || -> Result<_> { Ok((store::heal::heal_row(&*index, number)?, Across::read(&*index, number)?)) };
            let (heal, across) = run_blocking(tasks, read).await?;
            let FoundReplica { kept, promise } = found.remove(&number).unwrap_or_default();
            let row = ReplicaRow { promise: row.promise.and(promise), ..row };
            let mut state = group.state.lock();
            let applied = Position { index: state.row.applied, term: state.row.term };
            let kept = kept.filter(|kept| kept.last() >= applied.index && kept.first().0 <= applied.index.0 + 1);
            let kept = kept.unwrap_or_else(|| KeptRecords::after(applied.index));
            assert!(kept.last() >= applied.index, "what the index has is kept, or before what is");
            let mut replica = Replica::open(&self.me, &self.members, row, applied, kept);
            replica.heal = heal;
            state.across = across;
            state.replica = Some(Box::new(replica));
        }
        Ok(())
    }
}
