//! The positions of records in their groups' orders: who gives them, and who waits until a record may be answered.
//!
//! A brick orders a group that it has alone by its log: the next record gets the next index, and it may be answered once the log is as
//! durable as the client asked for. Nothing else in this package gives a new record its index, or knows what an answer waits for.

use crate::state::State;
use crate::{Groups, Position, Scope};
use base::{Index, Outcome, RequestId, Result, SessionId, Sync, VolumeId};
use runtime::{Span, Stage};
use store::format::record::Head;
use store::format::values::TermRow;

/// The record that an answer has to wait for: the log's batch with it, by which the wait of a group goes that this brick has alone. 0:
/// there is none.
#[derive(Clone, Copy, Default)]
#[must_use = "a change is answered after a wait"]
pub(crate) struct Awaited(u64);

impl Awaited {
    /// The wait for the record in a batch which the overlay names.
    pub fn in_batch(batch: u64) -> Awaited {
        Awaited(batch)
    }
    /// The log's batch with the record.
    pub fn batch(self) -> u64 {
        self.0
    }
    /// True if there is nothing to wait for.
    pub fn is_nothing(self) -> bool {
        self.0 == 0
    }
}

/// An ordered record.
#[derive(Clone, Copy)]
pub(crate) struct Receipt {
    position: Position,
    /// The wait for it.
    pub awaited: Awaited,
}

impl Receipt {
    /// The receipt of a record that the log has taken. Its group's lock is held.
    pub fn of(state: &State, batch: u64) -> Receipt {
        let position = Position { group: state.group, term: state.row.term, index: state.row.applied, durable: false };
        Receipt { position, awaited: Awaited(batch) }
    }
    /// The record's position, as the answer to a change tells it that waited as `sync` says (rule R1).
    pub fn position(&self, sync: Sync) -> Position {
        Position { durable: sync >= Sync::Data, ..self.position }
    }
}

impl Groups {
    /// Waits until a record of a group that this brick has alone may be answered to who asked for this. Errors: `Io` if it never may.
    pub(crate) fn committed(&self, awaited: Awaited, sync: Sync, span: &Span) -> impl Future<Output = Result<()>> {
        self.store().log.wait(awaited.0, sync, Some(span))
    }
    /// Waits as `committed` for all that this brick has ordered.
    pub(crate) async fn all_committed(&self, sync: Sync, span: Option<&Span>) -> Result<()> {
        if self.replication.is_some() {
            Box::pin(self.all_replicated()).await?;
            span.inspect(|span| span.mark(Stage::Peer, self.stamp()));
            return Ok(());
        }
        let log = &self.store().log;
        log.wait(log.last_batch(), sync, span).await
    }
    /// Waits as `all_committed` for what this brick has ordered in the groups of a scope; in groups with replicas, until it is committed.
    pub(crate) async fn scope_committed(&self, scope: Scope, sync: Sync, span: Option<&Span>) -> Result<()> {
        match scope {
            Scope::One(group) if self.replication.is_some() => {
                self.group_replicated(self.state(group)).await?;
                span.inspect(|span| span.mark(Stage::Peer, self.stamp()));
                Ok(())
            }
            _ => self.all_committed(sync, span).await,
        }
    }
}

impl State {
    /// The head of the group's next record, or of one that is ordered at once with so many in front of it.
    pub(crate) fn head(
        &self,
        behind: u64,
        volume: VolumeId,
        (session, request): (SessionId, RequestId),
        outcome: Outcome,
    ) -> Head {
        let index = Index(self.row.applied.0 + 1 + behind);
        Head { group: self.group, term: self.term(), index, volume, session, request, outcome }
    }
    /// Notes that a record has been ordered: its index is used, and its result is kept if its client may deliver the request
    /// again. `done`: see `wire::Context`.
    pub(crate) fn ordered(&mut self, head: &Head, done: u64) {
        assert!(head.index.0 == self.row.applied.0 + 1, "records are applied in order");
        self.row.applied = head.index;
        if self.row.term != head.term {
            self.row.term = head.term;
            if self.terms.last().is_some_and(|last| last.term < head.term) {
                self.note_term(TermRow { term: head.term, first: head.index, start: 0 });
            }
        }
        self.active.records += 1;
        if self.keep_result(head.session, head.request, head.outcome, done) {
            self.active.sessions.entry(head.session).or_insert(None);
        }
    }
}
