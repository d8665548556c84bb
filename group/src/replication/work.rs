//! Carrying out what the order wants: votes and records into the log, in turn; then messages, and the rest.

use crate::Groups;
use crate::replica::kept::{Carried, Kept, maps_of};
use crate::replica::{Stashed, Todo};
use crate::state::State;
use base::limits::BLOCK_BYTES;
use base::{Edit, Outcome, RequestId, Result, SessionId, Sync, Term, VolumeId};
use order_raft::{Record, Shadow};
use runtime::seeded::{Bug, active};
use std::sync::Arc;
use store::format::record::{Head, Run, Vote, encode_replicated};
use store::log::{Entry, Payload as Logged};

impl Groups {
    /// Does what the order wants, as far as the log has room; the rest as soon as it has.
    pub(crate) fn carry_out(&self, state: &mut State) {
        let effects = state.replica().order.take();
        state.replica().note(effects);
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
                    // Those who lead from now on are told anew what clients have open.
                    state.known.end_all();
                }
                self.state(group).committed.notify();
                self.replication().wake(group);
            }
            Todo::Old(old) => {
                let shadows = replica.kept.shadows(old.first.0..old.end.0);
                replica.order.found(old, shadows);
                let effects = replica.order.take();
                replica.note(effects);
            }
            Todo::Vote(..) | Todo::Append(..) => unreachable!("these go into the log"),
        }
    }

    fn log_vote(&self, state: &mut State, term: Term, voted_for: Option<base::ReplicaId>) -> Result<()> {
        let ordered = self.store().log.append_vote(&Vote { group: state.group, term, voted_for })?;
        let replica = state.replica();
        assert!(term >= replica.promise.term, "terms never fall");
        replica.batch = ordered.batch;
        replica.promise = store::format::values::Promise { term, voted_for };
        Ok(())
    }

    /// Logs a record that the order wants in the log, unless this replica has proposed it, and so logged it before. What the log has no
    /// room for comes back.
    fn log_record(&self, state: &mut State, record: Record, stashed: Option<Stashed>) -> Result<(), Option<Stashed>> {
        if state.replica().kept.get(record.position.index).is_some_and(|kept| kept.position == record.position) {
            return Ok(());
        }
        let Some(stashed) = stashed else {
            assert!(record.shadow == Shadow::TERM, "a record that was not sent is the first of this leader's term");
            let bytes = self.first_of_term(state, &record);
            return self.log_bytes(state, record, bytes, &[], &[]).map_err(|_| None);
        };
        let runs: Vec<Run> = stashed.tickets.iter().flat_map(|ticket| ticket.runs()).copied().collect();
        if self.log_bytes(state, record, stashed.bytes.clone(), &stashed.slices, &runs).is_err() {
            return Err(Some(stashed));
        }
        stashed.tickets.into_iter().for_each(|ticket| self.store().bulk.close(ticket));
        Ok(())
    }

    /// The record with which this leader's term begins.
    fn first_of_term(&self, state: &State, record: &Record) -> Arc<[u8]> {
        let (term, index) = (record.position.term, record.position.index);
        let (session, request, outcome) = (SessionId(0), RequestId(0), Outcome::Done);
        let head = Head { group: state.group, term, index, volume: VolumeId(0), session, request, outcome };
        let mut bytes = Vec::with_capacity(128);
        encode_replicated(&mut bytes, &head, &[Edit::Term { term, start: self.store().epoch }]);
        bytes.into()
    }

    fn log_bytes(
        &self,
        state: &mut State,
        record: Record,
        bytes: Arc<[u8]>,
        slices: &[runtime::Slice],
        placed: &[Run],
    ) -> Result<()> {
        let decoded = store::format::record::decode_record(&bytes).expect("it was read before it was taken");
        let described: Vec<_> = maps_of(&decoded.edits).collect();
        assert!((decoded.group, decoded.index) == (state.group, record.position.index), "a record is of its place");
        let payload = match (slices.is_empty(), placed.is_empty()) {
            (true, true) => Logged::None,
            (_, false) => Logged::Placed(placed),
            (false, true) => Logged::Inline(slices),
        };
        let owner = (state.group, decoded.volume, record.position.index);
        let entry = Entry { owner, replicated: &bytes, payload, described: &described };
        let ordered = self.store().log.append_one_record(&entry, Sync::Data)?;
        let blocks = slices.iter().map(|slice| slice.len() / BLOCK_BYTES).sum::<usize>();
        let runs = match ordered.place {
            Some(place) => vec![Run { place, count: blocks as u16 }],
            None => placed.to_vec(),
        };
        let slices = if ordered.place.is_some() { slices } else { &[] };
        let (position, shadow, batch) = (record.position, record.shadow, ordered.batch);
        let replica = state.replica();
        replica.batch = batch;
        replica.kept.push(Kept { position, shadow, bytes, payload: Carried::of(slices, runs), batch });
        Ok(())
    }
}
