//! A brick's replica of a group, as values: what is ordered and not done yet, the records that are kept, the role. It is part of the
//! group's state, under the same lock.
//!
//! Absent by design: the log, the other bricks, and tasks (`replication`).

pub(crate) mod acks;
pub mod across;
pub mod codec;
pub mod heal;
pub(crate) mod kept;

use acks::Acks;
use base::limits::{BLOCK_BYTES, HEADER_BLOCKS_MAX};
use base::{Edit, Error, Index, Kind, ReplicaId, Result, Term};
use kept::{KeptRecords, maps_of, shadow_of};
use order_raft::support::BrickId;
use order_raft::{Effects, HardState, Member, Message, Order, Position, Record, Role, TermRuns, Ticket};
use runtime::Slice;
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::format::batch::FIXED_BYTES;
use store::format::record::framed_bytes;
use store::format::values::{HealRow, Promise, ReplicaRow};
use wire::peer::{PARCEL_BLOCKS_MAX, QUEUED_BYTES_MAX};

/// Records of a brick that wait for the message that names them, per group: more than one append names.
const STASHED_MAX: usize = 4096;
/// Bytes of them. A message and its records are sent in one go, and no more than half of this waits for a brick.
const STASHED_BYTES_MAX: usize = 2 * QUEUED_BYTES_MAX;
/// Blocks of a record's payload: the largest operation's, one more if it begins within a block, and then some.
const RECORD_BLOCKS_MAX: usize = 2 * PARCEL_BLOCKS_MAX;

/// Runs of such a payload on a brick, at most: it lies in two pieces, and in as many segments as they take.
const RUNS_MAX: usize = 32;

/// True for a replicated part that has room in a batch's header.
fn fits_header(bytes: usize) -> bool {
    FIXED_BYTES + framed_bytes(RUNS_MAX, bytes) <= HEADER_BLOCKS_MAX * BLOCK_BYTES
}

/// The parcels that a payload of so many blocks takes.
pub(crate) fn pieces(blocks: usize) -> usize {
    blocks.div_ceil(PARCEL_BLOCKS_MAX)
}

/// Something that the order wants done, in turn.
pub(crate) enum Todo {
    Vote(Term, Option<ReplicaId>),
    Void(Index),
    Append(Record, Option<Box<Stashed>>),
    Ticket(Ticket),
    Send(ReplicaId, order_raft::Message),
    Committed,
    Role(Term, Role),
    Old(order_raft::Old),
    Lacks(ReplicaId),
}

/// A record that another brick has sent, before the order has taken it.
pub(crate) struct Stashed {
    pub from: BrickId,
    pub record: store::format::record::Record,
    /// The replicated part.
    pub bytes: Arc<[u8]>,
    /// The pieces of the payload, and the checksums of their blocks.
    pub slices: Vec<Slice>,
    pub crcs: Vec<u32>,
    /// Pieces that are still to come.
    pub more: u8,
    /// A large payload's places, once it has been placed.
    pub tickets: Vec<store::bulk::Ticket>,
}

/// The way of a group to the brick that is to lead it, as the one who leads it knows it. Times are in nanoseconds.
#[derive(Default)]
pub(crate) struct Homecoming {
    /// The time since when that brick has been in step.
    pub in_step_ns: Option<u64>,
    /// The time up to which it may take the lead, once it was told to.
    pub takes_until_ns: Option<u64>,
    /// Times that it was told to, since this process began.
    pub times: u32,
}

/// A brick's replica of a group. It is part of the group's state, under the same lock.
pub(crate) struct Replica {
    pub order: Order,
    pub kept: KeptRecords,
    /// Work that is still to be done: there is some only while the log has no room.
    pub todo: VecDeque<Todo>,
    /// Batches of the log after which the order is told.
    pub tickets: VecDeque<(u64, Ticket)>,
    /// The last batch of the log with something of this group.
    pub batch: u64,
    /// The term and vote as the log has them.
    pub promise: Promise,
    /// Records that other bricks have sent, until a message of the same brick names them.
    pub stash: Vec<Stashed>,
    /// Those of the brick whose message the order has right now.
    pub named: Vec<Stashed>,
    /// The term that this replica leads in, and the record whose commit begins its service.
    pub leads: Option<(Term, Index)>,
    /// The term in which this replica serves.
    pub serves: Option<Term>,
    /// No change is ordered for a moment: a checkpoint waits until all that was ordered is committed.
    pub paused: bool,
    /// The first void record of each term in which this replica has led and ordered some.
    pub voided: BTreeMap<Term, Index>,
    /// The overlay holds void records.
    pub rebuilds: bool,
    /// The time at which this replica campaigns if nobody leads until then.
    pub campaigns_ns: Option<u64>,
    /// Campaigns since somebody led.
    pub campaigns: u32,
    /// The way of the group to the brick that is to lead it.
    pub homecoming: Homecoming,
    /// Followers don't know the latest commit index.
    pub nudges: bool,
    /// Times that the state was built again.
    pub rebuilt: u64,
    /// The last record that the latest checkpoint takes.
    pub included: Index,
    /// Followers to which only the first records of an append were sent, with the last of these.
    pub cut_at: BTreeMap<ReplicaId, Index>,
    /// The acknowledgements of followers.
    pub acks: BTreeMap<ReplicaId, Acks>,
    /// Every replica has the records up to this one, as far as was heard.
    pub everyone: Index,
    /// The value of `everyone` that followers were told last when there was nothing more to send.
    pub told_everyone: Index,
    /// The last record before those that replay may find in the log.
    pub before: Option<Position>,
    /// Times that a follower was found to need what is no longer kept, or to have lost what it had acknowledged.
    pub needs_heal: u64,
    /// The heal of this replica, if it heals.
    pub heal: Option<HealRow>,
    /// The heal has ended, and the index does not say so yet.
    pub healed: bool,
    /// The leader no longer keeps what comes next here: a heal is to begin.
    pub lacks: bool,
    /// The brick that led last, as far as this replica heard while it takes rows.
    pub fed_by: Option<BrickId>,
}

/// The state of a record that somebody waits for.
pub(crate) enum Fate {
    Committed,
    /// It may become committed.
    Open,
    /// This replica does not know.
    Elsewhere,
}

impl Replica {
    /// A replica as its log was found. `applied`: what the index includes.
    pub fn open(me: &Member, members: &[Member], row: ReplicaRow, applied: Position, kept: KeptRecords) -> Replica {
        let ReplicaRow { promise, before } = row;
        let noted = before.map(|(index, term)| Position { index, term });
        // If it was not noted, the first record that is kept says what the term before the second one is.
        let (first, mut positions) = (kept.first(), kept.positions());
        let before = match first {
            Index(1) => Position::default(),
            first if first > applied.index => applied,
            first => noted.filter(|noted| noted.index.0 + 1 == first.0).or_else(|| positions.next()).unwrap_or(applied),
        };
        let mut runs = TermRuns::new(before);
        positions.for_each(|position| runs.push(position));
        let hard = HardState { term: promise.term, vote: promise.voted_for, commit: applied.index };
        Replica {
            order: Order::open(me.replica, members, hard, runs),
            kept,
            todo: VecDeque::new(),
            tickets: VecDeque::new(),
            batch: 0,
            promise,
            stash: Vec::new(),
            named: Vec::new(),
            leads: None,
            serves: None,
            paused: false,
            voided: BTreeMap::new(),
            rebuilds: false,
            campaigns_ns: None,
            homecoming: Homecoming::default(),
            campaigns: 0,
            nudges: false,
            included: applied.index,
            cut_at: BTreeMap::new(),
            acks: BTreeMap::new(),
            everyone: Index(0),
            told_everyone: Index(0),
            before: noted,
            needs_heal: 0,
            rebuilt: 0,
            heal: None,
            healed: false,
            lacks: false,
            fed_by: None,
        }
    }
    /// A checkpoint takes all up to this record. The row that goes with it, and True if the heal has ended since the last one.
    pub fn include(&mut self, applied: Index) -> (ReplicaRow, bool) {
        assert!(self.included <= applied, "the index goes on from checkpoint to checkpoint");
        self.included = applied;
        let before = self.before.filter(|_| !active(Bug::EndNotKept));
        let row = ReplicaRow { promise: self.promise, before: before.map(|before| (before.index, before.term)) };
        (row, std::mem::take(&mut self.healed))
    }
    /// True while the rows are replaced, or are about to be.
    pub fn takes_rows(&self) -> bool {
        self.lacks || self.heal.is_some_and(|row| row.rows)
    }
    /// Takes over from a replica that this one replaces since it has all rows.
    pub fn go_on_after(&mut self, old: &Replica, heal: HealRow) {
        assert!(old.takes_rows() && !heal.rows, "all rows are here");
        self.heal = Some(heal);
        self.batch = old.batch;
        // Who waits for a record of its own term is told the same as before.
        self.voided = old.voided.clone();
        (self.needs_heal, self.rebuilt) = (old.needs_heal, old.rebuilt);
    }
    /// The term in which this replica serves. Errors: `Elsewhere`.
    pub fn serves(&self) -> Result<Term> {
        let serves = self.serves.filter(|term| *term == self.order.term() && self.order.is_leader());
        serves.ok_or_else(elsewhere)
    }
    /// Refuses to order a change. Errors: `Elsewhere`; `Busy` if the log has no room.
    pub fn may_order(&self) -> Result<()> {
        self.serves()?;
        match self.paused || !self.todo.is_empty() {
            true => Err(Error::new(Kind::Busy, "the group's earlier records come first")),
            false => Ok(()),
        }
    }
    /// The index up to which every replica has the records, as far as this one knows.
    pub fn everyone(&mut self) -> Index {
        self.everyone = self.everyone.max(self.order.acknowledged_by_all());
        self.everyone
    }
    /// True, once, for a leader that has nothing more to send, if its followers don't know that everyone has all: they keep their logs until they do.
    pub fn is_news_of_everyone(&mut self) -> bool {
        let everyone = self.everyone();
        let is_news = self.order.is_leader() && everyone == self.order.last().index && everyone > self.told_everyone;
        if is_news {
            self.told_everyone = everyone;
        }
        is_news
    }
    /// The fate of a record that this replica has ordered.
    pub fn fate(&self, (term, index): (Term, Index)) -> Fate {
        if self.voided.get(&term).is_some_and(|first| *first <= index) {
            return Fate::Elsewhere;
        }
        match self.order.committed() >= index {
            true => Fate::Committed,
            false if active(Bug::CommitUnawaited) => Fate::Committed,
            false if self.serves == Some(term) => Fate::Open,
            false => Fate::Elsewhere,
        }
    }
    /// True if all that is applied is committed, and nothing of it is void.
    pub fn is_settled(&self, applied: Index) -> bool {
        !self.rebuilds && self.order.committed() >= applied
    }

    fn note(&mut self, effects: Effects) {
        let Effects { vote, void_from, append, ticket, send, commit, role, old, heal, lost } = effects;
        self.todo.extend(vote.map(|(term, voted_for)| Todo::Vote(term, voted_for)));
        self.todo.extend(void_from.map(Todo::Void));
        for record in append {
            let sent = self.named.iter().position(|stashed| stashed.position() == record.position);
            // The others keep their places: the first of a position is the one that was compared.
            let stashed = sent.map(|at| Box::new(self.named.remove(at)));
            self.todo.push_back(Todo::Append(record, stashed));
        }
        self.todo.extend(ticket.map(Todo::Ticket));
        self.todo.extend(send.into_iter().map(|(to, message)| Todo::Send(to, message)));
        self.todo.extend(commit.map(|_| Todo::Committed));
        self.todo.extend(role.map(|(term, role)| Todo::Role(term, role)));
        self.todo.extend(old.into_iter().map(Todo::Old));
        self.needs_heal += (heal.len() + lost.len()) as u64;
        self.todo.extend(heal.into_iter().map(Todo::Lacks));
    }
    /// Takes down what the order wants now.
    pub fn collect(&mut self) {
        let effects = self.order.take();
        self.note(effects);
    }

    /// Begins a role. True if the replica's service ends with that.
    pub fn begin_role(&mut self, term: Term, role: Role) -> bool {
        self.acks.values_mut().for_each(Acks::lost);
        if let Role::Leader(from) = role {
            assert!(from.0 > 0 && term == self.order.term(), "a leader's term begins with a record");
            self.leads = Some((term, from));
        }
        let goes_on = self.serves == Some(term) && matches!(role, Role::Leader(_));
        if matches!(role, Role::Leader(_) | Role::Follower(Some(_))) {
            self.campaigns_no_more();
        }
        self.serves.is_some() && !goes_on
    }
    /// Somebody leads.
    pub fn campaigns_no_more(&mut self) {
        (self.campaigns_ns, self.campaigns) = (None, 0);
    }

    /// The tickets of batches up to this one are due: the latest of them.
    pub fn due(&mut self, durable: u64) -> Option<order_raft::Ticket> {
        let mut due = None;
        while let Some((_, ticket)) = self.tickets.front().copied().filter(|(batch, _)| *batch <= durable) {
            self.tickets.pop_front();
            assert!(due.is_none_or(|earlier| earlier <= ticket), "tickets become due in order");
            due = Some(ticket);
        }
        self.kept.release(durable);
        due
    }

    /// Keeps what another brick has sent until a message names it. Errors: `Corrupt` if none does for too long.
    pub fn stash(&mut self, stashed: Stashed) -> Result<()> {
        let bytes: usize = self.stash.iter().map(Stashed::bytes).sum();
        if self.stash.len() >= STASHED_MAX || bytes >= STASHED_BYTES_MAX {
            return Err(garbled("records that no message names"));
        }
        self.stash.push(stashed);
        Ok(())
    }
    /// Takes out what a brick has sent.
    pub fn unstash(&mut self, from: BrickId) -> Vec<Stashed> {
        self.stash.extract_if(.., |stashed| stashed.from == from).collect()
    }
    /// Refuses an append whose records its brick has not sent.
    pub fn has_all_of(&self, message: &Message) -> Result<()> {
        let order_raft::Body::Append { previous, entries, .. } = &message.body else { return Ok(()) };
        for (number, entry) in (1..).zip(entries) {
            let position = Position { index: Index(previous.index.0 + number), term: entry.term };
            let sent = self.named.iter().find(|stashed| stashed.position() == position);
            let sent =
                sent.filter(|stashed| stashed.more == 0).ok_or_else(|| garbled("an append without its records"))?;
            let shadow = if sent.begins_term() { order_raft::Shadow::TERM } else { shadow_of(&sent.bytes) };
            if shadow != entry.shadow {
                return Err(garbled("a record that differs from what its leader ordered"));
            }
        }
        Ok(())
    }
}

impl Stashed {
    /// The record's place in the group's order.
    pub fn position(&self) -> Position {
        Position { index: self.record.index, term: self.record.term }
    }
    /// True for the record with which its term begins.
    fn begins_term(&self) -> bool {
        matches!(self.record.edits[..], [Edit::Term { term, .. }] if term == self.record.term)
    }
    fn bytes(&self) -> usize {
        self.bytes.len() + self.slices.iter().map(|slice| slice.len()).sum::<usize>()
    }
    /// Refuses a record that is larger than any, one whose payload takes other pieces than it says, and one whose payload, once all of it
    /// is here, is not what the record says.
    pub fn check(&self) -> Result<()> {
        let crcs = || maps_of(&self.record.edits).flat_map(|described| described.crcs);
        let blocks = crcs().count();
        if !fits_header(self.bytes.len()) || blocks > RECORD_BLOCKS_MAX {
            return Err(garbled("a record that is larger than any"));
        }
        let missing = blocks.checked_sub(self.crcs.len()).map(pieces);
        // The connection has compared the blocks with the checksums that came with them.
        match missing == Some(self.more.into()) && (self.more > 0 || crcs().eq(&self.crcs)) {
            true => Ok(()),
            false => Err(garbled("a payload that is not its record's")),
        }
    }
}

/// The refusal of who is no leader.
pub(crate) fn elsewhere() -> Error {
    Error::new(Kind::Elsewhere, "another brick leads the group, or will")
}

/// The error of who says what no replica says.
pub(crate) fn garbled(what: &'static str) -> Error {
    Error::new(
        Kind::Corrupt,
        "another brick sends what no replica says: the way to it damages data, or it is of another build",
    )
    .with(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{GroupId, Outcome, RequestId, SessionId, VolumeId};
    use order_raft::support::{Ended, Epoch, Supports};
    use order_raft::{Body, Entry, Moment, Number};
    use store::format::record::{Head, encode_replicated};

    fn sent(from: BrickId) -> Stashed {
        record(from, 1, 0, Vec::new())
    }

    fn record(from: BrickId, index: u64, request: u64, edits: Vec<Edit>) -> Stashed {
        let (group, term, index, volume) = (GroupId(0), Term(1), Index(index), VolumeId(0));
        let (session, request, outcome) = (SessionId(0), RequestId(request), Outcome::Done);
        let mut bytes = Vec::new();
        encode_replicated(&mut bytes, &Head { group, term, index, volume, session, request, outcome }, &edits);
        let record = store::format::record::Record { group, term, index, volume, session, request, outcome, edits };
        let (slices, crcs, tickets) = (Vec::new(), Vec::new(), Vec::new());
        Stashed { from, record, bytes: bytes.into(), slices, crcs, more: 0, tickets }
    }

    fn replica() -> (Replica, Supports) {
        let members: Vec<_> =
            (1..=3).map(|number| Member { replica: ReplicaId(number), brick: BrickId(number.into()) }).collect();
        let kept = KeptRecords::after(Index(0));
        let replica = Replica::open(&members[0], &members, ReplicaRow::default(), Position::default(), kept);
        (replica, Supports::open(Epoch(1), Ended::SupportingNobody, 0))
    }

    fn append(shadows: &[order_raft::Shadow]) -> Message {
        let entries = shadows.iter().map(|shadow| Entry { term: Term(1), shadow: *shadow }).collect();
        let (previous, commit, number) = (Position::default(), Index(0), Number(1));
        Message { term: Term(2), under: None, body: Body::Append { number, previous, commit, entries } }
    }

    /// Two leaders have sent the same record, of which the one before is late: the message of each finds its own.
    #[test]
    fn a_message_takes_the_records_that_its_own_brick_has_sent() {
        let (mut replica, supports) = replica();
        let message = append(&[shadow_of(&sent(BrickId(2)).bytes)]);
        for brick in [2, 3].map(BrickId) {
            replica.stash(sent(brick)).expect("there is room");
        }
        replica.named = replica.unstash(BrickId(3));
        assert_eq!(replica.has_all_of(&message), Ok(()));
        replica.order.receive(ReplicaId(3), message.clone(), Moment { supports: &supports, now: 0 });
        replica.collect();
        let logs = |todo: &Todo| matches!(todo, Todo::Append(_, Some(sent)) if sent.from == BrickId(3));
        assert!(replica.todo.iter().any(logs) && replica.named.is_empty(), "it goes into the log as it was sent");
        replica.named = replica.unstash(BrickId(2));
        assert_eq!(replica.has_all_of(&message), Ok(()), "the other one's is still there");
        replica.named.clear();
        assert!(replica.has_all_of(&message).is_err(), "a brick has to send what it names");
    }

    #[test]
    fn of_two_records_at_one_position_the_one_that_was_compared_is_logged() {
        let (mut replica, supports) = replica();
        let brick = BrickId(2);
        let sent = [(1, 0), (2, 0), (2, 7)].map(|(index, request)| record(brick, index, request, Vec::new()));
        let good = sent[1].bytes.clone();
        let message = append(&[shadow_of(&sent[0].bytes), shadow_of(&good)]);
        replica.named = sent.into();
        assert_eq!(replica.has_all_of(&message), Ok(()));
        replica.order.receive(ReplicaId(2), message, Moment { supports: &supports, now: 0 });
        replica.collect();
        let mut logged = replica.todo.iter().filter_map(|todo| match todo {
            Todo::Append(_, Some(sent)) => Some(sent.bytes.clone()),
            _ => None,
        });
        assert_eq!(logged.next_back(), Some(good));
    }

    #[test]
    fn only_the_record_with_which_a_term_begins_passes_for_one() {
        let (mut replica, _) = replica();
        let begins = |term| vec![Edit::Term { term: Term(term), start: 1 }];
        let mut passes = |edits: Vec<Edit>, is_named_so: bool| {
            let sent = record(BrickId(2), 1, 0, edits);
            let shadow = if is_named_so { order_raft::Shadow::TERM } else { shadow_of(&sent.bytes) };
            replica.named = vec![sent];
            replica.has_all_of(&append(&[shadow])).is_ok()
        };
        assert!(passes(begins(1), true) && passes(Vec::new(), false));
        assert!(!passes(begins(1), false) && !passes(Vec::new(), true) && !passes(begins(2), true));
    }

    #[test]
    fn a_record_has_the_payload_that_it_says() {
        let of = |blocks: u32, more, sent: u32| {
            let edits = vec![Edit::Map { ino: base::Ino(2), first: 0, crcs: (0..blocks).collect() }];
            let stashed = record(BrickId(2), 1, 0, edits);
            Stashed { more, crcs: (0..sent).collect(), ..stashed }.check().is_ok()
        };
        let piece = PARCEL_BLOCKS_MAX as u32;
        assert!(of(0, 0, 0) && of(3, 0, 3) && of(piece, 0, piece) && of(piece + 1, 1, piece));
        assert!(of(piece + 1, 0, piece + 1) && of(2 * piece, 1, piece));
        assert!(!of(0, 1, 0) && !of(3, 0, 2) && !of(3, 0, 4) && !of(3, 1, 3), "other pieces");
        assert!(!of(piece + 1, 2, piece) && !of(piece, 1, piece), "more pieces than it takes");
        assert!(!of(2 * piece + 1, 2, piece), "more than any record has");
        let long = |bytes| Stashed { bytes: vec![0; bytes].into(), ..sent(BrickId(2)) }.check();
        assert!(long(HEADER_BLOCKS_MAX * BLOCK_BYTES - 1000).is_ok());
        assert!(long(HEADER_BLOCKS_MAX * BLOCK_BYTES - 300).is_err(), "it would not fit into the log");
    }

    #[test]
    fn records_that_no_message_names_take_bounded_memory() {
        const RECORD_BYTES: usize = 64 << 10;
        let (mut replica, _) = replica();
        let bytes: Arc<[u8]> = vec![0; RECORD_BYTES].into();
        let mut stash = || replica.stash(Stashed { bytes: bytes.clone(), ..sent(BrickId(2)) });
        let count = (0..STASHED_MAX).take_while(|_| stash().is_ok()).count();
        assert!(count < STASHED_MAX && count * RECORD_BYTES <= STASHED_BYTES_MAX + RECORD_BYTES);
        replica.unstash(BrickId(2));
        assert_eq!(replica.stash(sent(BrickId(2))), Ok(()));
    }
}
