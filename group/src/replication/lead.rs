//! The leader's side: changes become records of the group's order, and answers wait until what they tell of is committed (rules P1, P20).

use crate::heal::HealStatus;
use crate::replica::acks::Acknowledged;
use crate::replica::kept::{Carried, Kept, shadow_of};
use crate::replica::{Fate, elsewhere};
use crate::state::State;
use crate::{Answer, Group, Groups, Position, foreign};
use base::{GroupId, Index, Op, ReplicaId, Result, Term};
use order_raft::support::BrickId;
use runtime::seeded::{Bug, active};
use runtime::{Buf, Span, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::format::record::Head;
use wire::Context;
use wire::peer::Reach;

/// The state of a replica, as an operator wants to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// The term.
    pub term: Term,
    /// The replica that leads, if this one knows it.
    pub leader: Option<ReplicaId>,
    /// The last record in its log.
    pub last: Index,
    /// The last one that it knows to be committed.
    pub committed: Index,
    /// The last one that its state has.
    pub applied: Index,
    /// Things that wait for room in its log.
    pub waits: usize,
    /// Times that this process has built the group's state again, because a leader before had ordered what is void.
    pub rebuilt: u64,
    /// Times that a follower was found to need what is no longer kept, or a message had to be dropped.
    pub needs_heal: u64,
    /// The heal of this replica.
    pub heal: Option<HealStatus>,
}

/// A follower, as the brick that leads knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Follower {
    /// Records that it has not acknowledged.
    pub lacks: u64,
    /// It asks for what is no longer kept.
    pub heals: bool,
    /// Its acknowledgements since this process began to lead a group, of all that it has led, by how much was under way: they only grow.
    pub acknowledged: Vec<Acknowledged>,
    /// Records that became committed by its acknowledgement: those of which it was the last one that was needed.
    pub needed: u64,
}

impl Groups {
    /// Gives a record that is in this brick's log, in this batch, to the other replicas. `bytes`: its replicated part.
    #[cold]
    pub(crate) fn propose(&self, state: &mut State, head: &Head, bytes: Arc<[u8]>, payload: Carried, batch: u64) {
        let replica = state.replica();
        assert!(head.term == replica.order.term(), "a leader orders in its own term");
        let shadow = shadow_of(&bytes);
        let index = replica.order.propose(shadow).expect("it was asked before");
        assert_eq!(index, head.index, "the order and the state count the same records");
        let position = order_raft::Position { index, term: head.term };
        replica.batch = batch;
        replica.kept.push(Kept { position, shadow, bytes, payload, batch });
        self.carry_out(state);
    }

    /// Waits until a record of a replicated group is committed. True if it was not when this was called. Errors: `Elsewhere` if this
    /// replica can't tell.
    pub(crate) async fn replicated(&self, number: GroupId, record: (Term, Index)) -> Result<bool> {
        let group = self.state(number);
        let mut waited = false;
        loop {
            let ticket = group.committed.ticket();
            self.store().log.check()?;
            match group.state.lock().replica().fate(record) {
                Fate::Committed => return Ok(waited),
                Fate::Elsewhere => return Err(elsewhere()),
                Fate::Open => {}
            }
            group.committed.after(ticket).await;
            waited = true;
        }
    }

    /// Waits until the record of an answer, which is in this batch of the log, is committed. The time goes to this brick's log, as far as that had it by then, and the rest to
    /// the others. Errors: as `replicated`.
    pub(crate) async fn replicated_at(&self, position: Option<Position>, batch: u64, span: &Span) -> Result<()> {
        let Position { group, term, index, .. } = position.expect("who waits has ordered a record");
        self.replicated(group, (term, index)).await?;
        if let Some(phases) = self.store().log.phases_of(batch) {
            span.mark_commit(phases, phases.ended);
        }
        span.mark(Stage::Peer, self.stamp());
        Ok(())
    }

    /// Performs an operation of a replicated volume. One that orders nothing is answered once all that it may have seen is committed, and
    /// while nobody else can lead (rules P4, P20). Errors: `Elsewhere`.
    pub async fn call_replicated(&self, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        let number = crate::change::deciding_group(&op);
        if !self.concerns(&op) {
            return Err(foreign());
        }
        let term = self.state(number).state.lock().replica().serves()?;
        let answer = self.call(context, op, data).await;
        if let Ok(Answer { position: Some(position), .. }) = answer {
            // It was committed before it was answered.
            return answer.map(|answer| Answer { position: Some(Position { durable: true, ..position }), ..answer });
        }
        if answer.as_ref().is_err_and(|error| error.kind == base::Kind::Elsewhere) {
            return answer;
        }
        let seen = {
            let mut state = self.state(number).state.lock();
            let serves = state.replica().serves()? == term;
            match serves && self.has_lease(&mut state) {
                true => state.row.applied,
                false => return Err(elsewhere()),
            }
        };
        if !active(Bug::ReadUncommitted) && self.replicated(number, (term, seen)).await? {
            context.span.mark(Stage::Peer, self.stamp());
        }
        answer
    }

    /// True while nobody else can lead a group.
    pub(crate) fn has_lease(&self, state: &mut State) -> bool {
        self.at_this_moment(state, |order, moment| order.has_lease(moment)) || active(Bug::LeaseUnasked)
    }
    /// True if this brick serves a group, and nobody else can.
    pub fn serves(&self, number: GroupId) -> bool {
        self.hosted(number).is_some_and(|group| {
            let mut state = group.state.lock();
            state.replica().serves().is_ok() && self.has_lease(&mut state)
        })
    }
    /// The state of this brick's replica of a group; None if the brick has none.
    pub fn replica_status(&self, number: GroupId) -> Option<ReplicaStatus> {
        self.replication.as_ref()?;
        let mut state = self.hosted(number)?.state.lock();
        let applied = state.row.applied;
        let replica = state.replica();
        let (order, waits) = (&replica.order, replica.todo.len());
        let (term, leader, committed) = (order.term(), order.leader(), order.committed());
        let (last, rebuilt, needs_heal) = (order.last().index, replica.rebuilt, replica.needs_heal);
        let heal = replica.heal.map(|row| self.replication().healing.status(row));
        Some(ReplicaStatus { term, leader, last, committed, applied, waits, rebuilt, needs_heal, heal })
    }
    /// Another brick as the follower in all groups that this one leads, added up; None if this one leads none.
    pub fn follower(&self, brick: BrickId) -> Option<Follower> {
        let member = self.replication.as_ref()?.member(brick)?;
        let mut acknowledged: BTreeMap<u64, Acknowledged> = BTreeMap::new();
        let mut sum = Follower { lacks: 0, heals: self.heals(brick), acknowledged: Vec::new(), needed: 0 };
        let mut leads = false;
        for group in self.states() {
            let mut state = group.state.lock();
            let replica = state.replica();
            if replica.order.is_leader() {
                leads = true;
                sum.lacks += replica.order.last().index.0 - replica.order.matched(member.replica).0;
            }
            let Some(acks) = replica.acks.get(&member.replica) else { continue };
            sum.needed += acks.needed;
            for Acknowledged { depth, count, took_ns } in acks.figures() {
                let all = acknowledged.entry(depth).or_insert(Acknowledged { depth, ..Acknowledged::default() });
                all.count += count;
                all.took_ns += took_ns;
            }
        }
        sum.acknowledged = acknowledged.into_values().collect();
        leads.then_some(sum)
    }
    /// The other bricks, each with what this one knows of it as a follower, if this one leads, and how it is reached.
    pub fn others(&self) -> Vec<(BrickId, Option<Follower>, Reach)> {
        let members = self.replication.iter().flat_map(|replication| &replication.others);
        let told = |brick| (brick, self.follower(brick), self.reach(brick).unwrap_or_default());
        members.map(|member| told(member.brick)).collect()
    }
    /// Waits until all that this brick has ordered in groups with replicas is committed. Errors: `Elsewhere`.
    pub(crate) async fn all_replicated(&self) -> Result<()> {
        for group in self.states() {
            // What others lead they have ordered.
            if group.state.lock().replica().serves().is_ok() {
                self.group_replicated(group).await?;
            }
        }
        Ok(())
    }
    /// Waits until all that this brick has ordered in a group is committed. Errors: `Elsewhere`.
    pub(crate) async fn group_replicated(&self, group: &Group) -> Result<()> {
        let last = {
            let mut state = group.state.lock();
            let applied = state.row.applied;
            (state.replica().serves()?, applied)
        };
        self.replicated(group.number, last).await.map(drop)
    }
}
