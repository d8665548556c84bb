//! Carrying out what the order wants: votes and records into the log, in turn; then messages, and the rest.

use crate::Groups;
use crate::replica::kept::{Carried, Kept, maps_of};
use crate::replica::{Stashed, Todo};
use crate::state::State;
use base::{Edit, Outcome, RequestId, Result, SessionId, Sync, Term, VolumeId};
use order_raft::{Record, Shadow};
use runtime::seeded::{Bug, active};
use std::sync::atomic::Ordering;
use store::format::record::{Head, Record as Logged, Run, Vote, encode_replicated};
use store::format::values::Promise;
use store::log::{Entry, Payload};

impl Groups {
    /// Does what the order wants, as far as the log has room; the rest as soon as it has.
    pub(crate) fn carry_out(&self, state: &mut State) {
        state.replica().collect();
        self.state(state.group).has_changed.store(true, Ordering::Relaxed);
        self.work_off(state);
    }

    /// Does what is still to be done.
    pub(crate) fn work_off(&self, state: &mut State) {
        while let Some(todo) = state.replica().todo.pop_front() {
            let kept_back = match todo {
                Todo::Vote(term, voted_for) => self.log_vote(state, term, voted_for).err().map(|_| todo),
                Todo::Append(record, stashed) => match self.log_record(state, record, stashed) {
                    Ok(()) => None,
                    Err(stashed) => Some(Todo::Append(record, stashed)),
                },
                other => {
                    self.do_at_once(state, other);
                    None
                }
            };
            if let Some(todo) = kept_back {
                // A log that has failed takes nothing any more (rule U4): then this waits for ever, and nothing is promised.
                state.replica().todo.push_front(todo);
                self.replication().stuck.lock().push(state.group);
                self.replication().stuck_came.notify();
                return;
            }
        }
    }

    fn do_at_once(&self, state: &mut State, todo: Todo) {
        let (group, applied) = (state.group, state.row.applied);
        let replica = state.replica();
        match todo {
            Todo::Void(from) => {
                replica.kept.truncate(from);
                if let Some((term, _)) = replica.leads {
                    replica.voided.entry(term).and_modify(|first| *first = (*first).min(from)).or_insert(from);
                }
                if applied >= from && !active(Bug::VoidKept) {
                    replica.rebuilds = true;
                    self.replication().wake(group);
                }
            }
            Todo::Ticket(ticket) => {
                let batch = replica.batch;
                assert!(batch > 0, "what is to be durable is in the log");
                replica.tickets.push_back((batch, ticket));
                let mut waiting = self.replication().waiting.lock();
                let at = waiting.partition_point(|(earlier, _)| *earlier <= batch);
                waiting.insert(at, (batch, group));
                drop(waiting);
                self.replication().waiting_came.notify();
            }
            Todo::Send(to, message) => self.ship(state, to, message),
            Todo::Committed => {
                replica.nudges = replica.order.is_leader();
                self.state(group).committed.notify();
                self.replication().wake(group);
            }
            Todo::Role(term, role) => {
                if replica.begin_role(term, role) {
                    self.end_service(state);
                }
                self.state(group).committed.notify();
                self.replication().wake(group);
            }
            Todo::Old(old) => {
                let shadows = replica.kept.shadows(old.first.0..old.end.0);
                replica.order.found(old, shadows);
                replica.collect();
            }
            Todo::Lacks(to) => {
                let first = replica.order.first();
                self.tell_lack(group, to, first);
            }
            Todo::Vote(..) | Todo::Append(..) => unreachable!("these go into the log"),
        }
    }

    fn log_vote(&self, state: &mut State, term: Term, voted_for: Option<base::ReplicaId>) -> Result<()> {
        let vote = Vote { group: state.group, term, voted_for };
        let ordered = self.store().log.append_vote(&vote)?;
        let replica = state.replica();
        assert!(term >= replica.promise.term, "terms never fall");
        replica.batch = ordered.batch;
        replica.promise = Promise::of(&vote);
        Ok(())
    }

    /// Logs a record that the order wants in the log, unless this replica has proposed it, and so logged it before. What the log has no
    /// room for comes back.
    fn log_record(
        &self,
        state: &mut State,
        record: Record,
        stashed: Option<Box<Stashed>>,
    ) -> Result<(), Option<Box<Stashed>>> {
        if state.replica().kept.get(record.position.index).is_some_and(|kept| kept.position == record.position) {
            return Ok(());
        }
        let Some(stashed) = stashed else {
            assert!(record.shadow == Shadow::TERM, "a record that was not sent is the first of this leader's term");
            let first = self.first_of_term(state, &record);
            return self.log_sent(state, record, &first).map_err(|_| None);
        };
        if self.log_sent(state, record, &stashed).is_err() {
            return Err(Some(stashed));
        }
        stashed.tickets.into_iter().for_each(|ticket| self.store().bulk.close(ticket));
        Ok(())
    }

    /// The record with which this leader's term begins, as if it had been sent.
    fn first_of_term(&self, state: &State, record: &Record) -> Stashed {
        let (term, index) = (record.position.term, record.position.index);
        let (volume, session, request, outcome) = (VolumeId(0), SessionId(0), RequestId(0), Outcome::Done);
        let head = Head { group: state.group, term, index, volume, session, request, outcome };
        let edits = vec![Edit::Term { term, start: self.store().epoch }];
        let mut bytes = Vec::with_capacity(128);
        encode_replicated(&mut bytes, &head, &edits);
        let record = Logged { group: state.group, term, index, volume, session, request, outcome, edits };
        let (from, slices, crcs, tickets) = (self.replication().me.brick, Vec::new(), Vec::new(), Vec::new());
        Stashed { from, record, bytes: bytes.into(), slices, crcs, more: 0, tickets }
    }

    fn log_sent(&self, state: &mut State, record: Record, sent: &Stashed) -> Result<()> {
        let Stashed { record: logged, bytes, slices, tickets, .. } = sent;
        assert!(logged.group == state.group && sent.position() == record.position, "a record is of its place");
        let described: Vec<_> = maps_of(&logged.edits).collect();
        let placed: Vec<Run> = tickets.iter().flat_map(|ticket| ticket.runs()).copied().collect();
        let payload = match (slices.is_empty(), placed.is_empty()) {
            (true, true) => Payload::None,
            (_, false) => Payload::Placed(&placed),
            (false, true) => Payload::Inline(slices),
        };
        let owner = (state.group, logged.volume, record.position.index);
        let entry = Entry { owner, replicated: bytes, payload, described: &described };
        let ordered = self.store().log.append_one_record(&entry, Sync::Data)?;
        let payload = match ordered.place {
            Some(place) => Carried::of(&logged.edits, slices, &[Run { place, count: sent.crcs.len() as u16 }]),
            None => Carried::of(&logged.edits, &[], &placed),
        };
        let (position, shadow, batch) = (record.position, record.shadow, ordered.batch);
        let replica = state.replica();
        replica.batch = batch;
        replica.kept.push(Kept { position, shadow, bytes: bytes.clone(), payload, batch });
        Ok(())
    }
}
