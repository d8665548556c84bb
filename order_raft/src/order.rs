//! A replica's order: the events that it is told of.

use crate::collect::{Effects, Held, Old, Role, Ticket};
use crate::convert::to_theirs;
use crate::log::Log;
use crate::message::{Body, Message, Number, Position, Shadow};
use crate::runs::TermRuns;
use crate::support::{BrickId, Nanos, Spell, Supports};
use base::seeded::{self, Bug};
use base::{Index, ReplicaId, Term};
use raft::eraftpb::{self, ConfState};
use raft::{Config, ProgressState, RawNode, StateRole};
use std::collections::VecDeque;

/// Bytes of entries, as the library counts them, in one append: its 16 bytes of shadow and their frame are about 32, and as many
/// as the log gives at once go together.
const APPEND_BYTES_MAX: u64 = 32 * crate::log::ENTRIES_MAX as u64;
/// Appends under way to a follower: beyond them it gets no more until it has answered. With 16 records in each that is more than a
/// round trip of a millisecond needs at 100,000 records a second.
const APPENDS_UNDER_WAY_MAX: usize = 64;

/// A replica of the group that votes, and the brick on which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The replica.
    pub replica: ReplicaId,
    /// Its brick.
    pub brick: BrickId,
}

/// Things that are durable beside the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// The highest term that was heard of.
    pub term: Term,
    /// The replica that this one voted for in that term.
    pub vote: Option<ReplicaId>,
    /// An index that is known to be committed; it may lag.
    pub commit: Index,
}

/// A moment, and what the brick's support is then. A vote is decided by it, so support must not change meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The brick's support.
    pub supports: &'a Supports,
    /// The brick's clock.
    pub now: Nanos,
}

/// A refusal: this replica does not lead, or hands over. The one that does, if it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLeader(pub Option<ReplicaId>);

/// The last leader whose term this replica has acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    pub(crate) leader: ReplicaId,
    pub(crate) term: Term,
    /// The spell in which its brick was supported then.
    pub(crate) spell: Option<Spell>,
}

/// Things that a leader knows of a follower in its term, and the library does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// The leader's term; what was heard in another one counts no longer.
    term: Term,
    /// The latest spell in which the follower acknowledged the term.
    pub(crate) spell: Option<Spell>,
    /// Appends up to this number were sent before the follower's highest acknowledged index was known.
    pub(crate) before: Number,
    /// The last append that was sent to the follower, and the commit index that it told.
    pub(crate) sent: (Number, Index),
    /// Appends up to this number were sent before the follower was asked for the record before the first that is kept.
    asked_for_first: Number,
}

/// The order of a replicated group, at one of its replicas.
pub struct Order {
    pub(crate) me: Member,
    pub(crate) others: Vec<Member>,
    pub(crate) raw: RawNode<Log>,
    /// The term and role that were told last.
    pub(crate) told: (Term, Role),
    /// The hard state that was told last.
    pub(crate) promised: (Term, u64),
    /// The term in which this replica leads, as of the last look.
    pub(crate) led: Option<Term>,
    pub(crate) commit: Index,
    pub(crate) held: VecDeque<Held>,
    pub(crate) given: Ticket,
    pub(crate) durable: Ticket,
    pub(crate) appends: Number,
    /// The number of the append that is being answered.
    pub(crate) answering: Number,
    pub(crate) followed: Option<Followed>,
    /// One for each of `others`.
    pub(crate) heard: Vec<Heard>,
    /// The term in which this leader has given up its lease for another replica.
    pub(crate) released: Option<Term>,
    pub(crate) out: Effects,
}

impl Order {
    /// An order with what its log and its last vote were found to be. Members are the voters, `me` among them.
    pub fn open(me: ReplicaId, members: &[Member], hard: HardState, log: TermRuns) -> Order {
        let mine = *members.iter().find(|member| member.replica == me).expect("a replica is a member of its group");
        let others: Vec<Member> = members.iter().copied().filter(|member| member.replica != me).collect();
        let mut voters = ConfState::default();
        voters.set_voters(members.iter().map(|member| member.replica.0).collect());
        assert!(me.0 > 0 && others.len() + 1 == members.len(), "replicas' ids are above 0 and differ");
        let (before, last) = (log.before().index, log.last());
        let mut theirs = eraftpb::HardState::default();
        // A record is as good as a vote record for its term.
        theirs.term = hard.term.max(last.term).0;
        theirs.vote = hard.vote.filter(|_| hard.term.0 == theirs.term).map_or(0, |replica| replica.0);
        theirs.commit = hard.commit.clamp(before, last.index).0;
        let (term, vote, commit) = (Term(theirs.term), theirs.vote, Index(theirs.commit));
        let config = Config {
            id: me.0,
            applied: theirs.commit,
            pre_vote: true,
            skip_bcast_commit: true,
            batch_append: true,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: APPENDS_UNDER_WAY_MAX,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, Log::new(log, theirs, voters), &silent).expect("the configuration is valid");
        let heard = vec![Heard::default(); others.len()];
        Order {
            me: mine,
            others,
            raw,
            told: (term, Role::Follower(None)),
            promised: (term, vote),
            led: None,
            commit,
            held: VecDeque::new(),
            given: Ticket(0),
            durable: Ticket(0),
            appends: Number(0),
            answering: Number(0),
            followed: None,
            heard,
            released: None,
            out: Effects::default(),
        }
    }
    /// Proposes a record: its index, if this replica leads and stays to do so.
    pub fn propose(&mut self, shadow: Shadow) -> Result<Index, NotLeader> {
        assert_ne!(shadow.kind, Shadow::TERM.kind, "this kind is the order's own");
        if !self.is_leader() || self.released == Some(self.term()) {
            return Err(NotLeader(self.leader()));
        }
        let data = shadow.to_bytes().to_vec();
        let before = self.last().index;
        self.raw.propose(Vec::new(), data).expect("a leader takes proposals, as many as there are");
        assert_eq!(
            self.last(),
            Position { index: Index(before.0 + 1), term: self.term() },
            "a proposal is the next record"
        );
        Ok(self.last().index)
    }
    /// False for an append that this replica refuses, since it lacks the record before the first one, or knows a later term.
    pub fn may_take(&self, message: &Message) -> bool {
        let Body::Append { previous, .. } = &message.body else { return true };
        let known = self.raw.store().runs().term(previous.index);
        message.term >= self.term() && (known == Some(previous.term) || previous.index < self.committed())
    }
    /// A message from another member.
    pub fn receive(&mut self, from: ReplicaId, message: Message, moment: Moment<'_>) {
        let Some(at) = self.others.iter().position(|member| member.replica == from) else { return };
        match &message.body {
            _ if !message.is_sound() => return,
            // Nobody has more than its leader.
            Body::Appended { index, .. } if self.leads(message.term) && *index > self.last().index => return,
            Body::Vote { released, .. } if !self.may_answer(from, message.term, *released, moment) => return,
            Body::Release if !self.may_succeed(from, message.term, moment) => return,
            Body::Append { number, .. } => {
                // Answers to earlier messages keep their numbers.
                self.collect();
                self.answering = *number;
                self.follow(from, message.term, moment);
            }
            Body::Refused { number, index, .. } if self.is_final(at, message.term, *number, *index) => return,
            _ => {}
        }
        let answered = message.answers();
        let under = message.under.filter(|_| answered.is_some() && self.leads(message.term));
        let matched = self.matched(from);
        let was_asked = self.is_asked(from);
        self.step(to_theirs(from, self.me.replica, message));
        let mut heard = self.heard(at);
        heard.spell = heard.spell.max(under);
        if self.matched(from) > matched {
            heard.before = self.appends;
        }
        self.heard[at] = heard;
        self.collect();
        if let Some(answered) = answered.filter(|_| !seeded::active(Bug::RestUnsent)) {
            self.go_on(at, answered);
            if was_asked && !self.is_asked(from) {
                self.tell_commit(at, answered);
            }
        }
    }
    /// True while a follower is asked what it has, and gets nothing else.
    fn is_asked(&self, replica: ReplicaId) -> bool {
        self.raw.raft.prs().get(replica.0).is_some_and(|known| known.state == ProgressState::Probe)
    }
    /// Tells a follower that has just answered what it has, and has all, of records that became committed while it was asked: it was told of
    /// nothing meanwhile, and if the group is idle from now on, nothing else would tell it.
    fn tell_commit(&mut self, at: usize, (answered, commit): (Number, Index)) {
        if self.is_leader() && answered == self.heard(at).sent.0 && commit < self.committed() {
            self.raw.raft.send_append(self.others[at].replica.0);
            self.collect();
        }
    }
    /// Sends a follower all that it lacks, as far as it may be under way. The library sends one append after an answer, and what is left only
    /// with the next record or heartbeat, which may never come.
    fn go_on(&mut self, at: usize, (answered, commit): (Number, Index)) {
        let to = self.others[at].replica;
        self.send_more(to);
        self.collect();
        // Nothing more is under way, nor about to be once it is read, so what is still lacking was ignored: a follower takes neither records
        // nor the commit index from an append that begins before what it knows to be committed, as one does that was asked anew while
        // messages to it were late.
        let next = self.raw.raft.prs().get(to.0).map(|progress| progress.next_idx);
        let waits_for_read = next.is_some_and(|next| self.raw.store().is_reading(next));
        let (sent, told) = self.heard(at).sent;
        if self.is_leader()
            && !waits_for_read
            && answered == sent
            && (self.matched(to) < self.last().index || commit < told)
        {
            self.reconnected(to);
            self.collect();
        }
    }
    fn send_more(&mut self, to: ReplicaId) {
        let last = self.last().index.0;
        loop {
            let progress = self.raw.raft.prs().get(to.0).filter(|_| self.is_leader());
            let next = progress.filter(|progress| !progress.is_paused()).map(|progress| progress.next_idx);
            let Some(next) = next.filter(|next| *next <= last) else { return };
            self.raw.raft.send_append(to.0);
            // Unless it has to be read first: then it is sent by `found`.
            if self.raw.raft.prs().get(to.0).is_none_or(|progress| progress.next_idx == next) {
                return;
            }
        }
    }
    /// All that this replica has heard of another one in its term.
    pub(crate) fn heard(&self, at: usize) -> Heard {
        let term = self.term();
        let known = Some(self.heard[at]).filter(|heard| heard.term == term);
        known.unwrap_or(Heard { term, ..Heard::default() })
    }
    /// Gives the library a message; what it refuses is of an earlier state and changes nothing.
    fn step(&mut self, message: eraftpb::Message) {
        let _ = self.raw.step(message);
    }
    /// Remembers a leader whose append is about to be acknowledged.
    fn follow(&mut self, leader: ReplicaId, term: Term, moment: Moment<'_>) {
        if term >= self.term() {
            let spell = moment.supports.given(self.brick(leader), moment.now);
            self.followed = Some(Followed { leader, term, spell });
        }
    }
    /// True for a refusal that the library does not get. One at or below what the follower has acknowledged is either old, or the
    /// append was sent since then, and the follower has lost what was durable (rule P13). One at the record before the
    /// first that is kept is either old, or the follower must heal.
    fn is_final(&mut self, at: usize, term: Term, number: Number, index: Index) -> bool {
        let (from, heard) = (self.others[at].replica, self.heard(at));
        if !self.leads(term) || seeded::active(Bug::LossAccepted) {
            return false;
        }
        let (is_lost, is_behind) = (index <= self.matched(from), index.0 + 1 == self.first().0);
        if is_lost && number > heard.before && !self.out.lost.contains(&from) {
            self.out.lost.push(from);
        }
        match is_behind && !is_lost {
            // The answer to the latest append says more, if one is under way: two questions must not keep each other going.
            true if number <= heard.asked_for_first
                && number < heard.sent.0
                && !seeded::active(Bug::QuestionsRepeat) => {}
            true if number <= heard.asked_for_first => self.ask_for_first(from),
            true if !self.out.heal.contains(&from) => self.out.heal.push(from),
            _ => {}
        }
        is_lost || is_behind
    }
    /// All that was given with `ticket`, and before it, is durable.
    pub fn persisted(&mut self, ticket: Ticket) {
        assert!(ticket <= self.given, "only what was given can be durable");
        self.durable = self.durable.max(ticket);
        self.let_go();
        self.collect();
    }
    /// Begins an election, unless this replica leads or has promised not to: then false.
    pub fn campaign(&mut self, moment: Moment<'_>) -> bool {
        let may = self.lacks_leader(moment);
        if may {
            self.raw.campaign().expect("a voter may always campaign");
        }
        may
    }
    /// The follower that lacks least, as far as this leader knows, of those that `may` lead; None where nobody may, or somebody else leads.
    pub fn heir(&self, may: impl Fn(BrickId) -> bool) -> Option<ReplicaId> {
        let others = self.others.iter().filter(|member| self.is_leader() && may(member.brick));
        let others = others.map(|member| member.replica);
        others.max_by_key(|replica| self.matched(*replica))
    }
    /// Hands the lead to another replica: from now on this one has no lease and takes no proposals in its term. Nothing comes of
    /// it if a message is lost; `resign` ends it.
    pub fn transfer(&mut self, to: ReplicaId) -> Result<(), NotLeader> {
        assert!(self.others.iter().any(|member| member.replica == to), "a leader hands over to another member");
        if !self.is_leader() {
            return Err(NotLeader(self.leader()));
        }
        self.released = Some(self.term());
        self.raw.transfer_leader(to.0);
        Ok(())
    }
    /// Stops to lead. Others stay bound to this replica until support for its brick ends: either it campaigns anew, or its brick gives
    /// its support back.
    pub fn resign(&mut self) {
        if self.is_leader() {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
    }
    /// Tells followers the commit index, which else travels with the next record.
    pub fn nudge(&mut self) {
        if self.is_leader() {
            self.raw.raft.bcast_append();
        }
    }
    /// Messages to and from a replica may have been lost, and from now on they arrive: a leader asks it anew what it has.
    pub fn reconnected(&mut self, to: ReplicaId) {
        if !self.is_leader() {
            return;
        }
        let first = self.first().0;
        let Some(progress) = self.raw.raft.mut_prs().get_mut(to.0) else { return };
        match progress.state {
            // It is not paused any more, and begins after what it has acknowledged.
            ProgressState::Replicate | ProgressState::Snapshot => progress.become_probe(),
            ProgressState::Probe => progress.resume(),
        }
        match progress.next_idx < first {
            true => self.ask_for_first(to),
            false => self.raw.raft.send_append(to.0),
        }
    }
    /// Asks a follower for the record before the first that is kept: it may well have it. The library would stop here for good:
    /// it sends nothing to who seems to need what the log does not keep, and a heartbeat that might tell more never comes.
    pub(crate) fn ask_for_first(&mut self, to: ReplicaId) {
        let first = self.first().0;
        let Some(at) = self.others.iter().position(|member| member.replica == to) else { return };
        self.heard[at] = Heard { asked_for_first: self.appends, ..self.heard(at) };
        let Some(progress) = self.raw.raft.mut_prs().get_mut(to.0) else { return };
        assert!(progress.matched < first, "who has acknowledged the first that is kept lacks nothing");
        progress.next_idx = first;
        progress.resume();
        self.raw.raft.send_append(to.0);
    }
    /// Shadows of records that `Effects::old` asked for, as many of them as were found.
    pub fn found(&mut self, old: Old, shadows: Vec<Shadow>) {
        // A leader's own log never changes. Under another leader it may have, while these were read.
        let believes = seeded::active(Bug::OldReadBelieved) && self.is_leader();
        if !self.leads(old.term) && !believes {
            return;
        }
        let (first, end) = (old.first, old.first.0 + shadows.len() as u64);
        assert!(end <= old.end.0, "only what was asked for is found");
        self.raw.mut_store().lend_found(first, shadows);
        let progress = self.raw.raft.prs().iter();
        let waiting = progress.filter(|(_, progress)| (first.0..end).contains(&progress.next_idx));
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).filter(|id| *id != self.me.replica.0).collect();
        waiting.iter().for_each(|id| self.raw.raft.send_append(*id));
        self.raw.mut_store().forget_found();
        // The next ones have to be read, too: who waited for the answer to these would lack what is ordered meanwhile.
        waiting.into_iter().for_each(|id| self.send_more(ReplicaId(id)));
    }
    /// The log no longer keeps what is before `first`, which is committed, and durable here: a follower that needs it must heal.
    pub fn keep_from(&mut self, first: Index) {
        let applied = self.raw.raft.raft_log.applied;
        assert!(first.0 <= applied + 1, "only what is committed and durable is let go of");
        self.raw.mut_store().keep_from(first);
        // What was refused before says nothing of the record that is the one before the first by now.
        for at in 0..self.heard.len() {
            self.heard[at] = Heard { asked_for_first: self.appends, ..self.heard(at) };
        }
        if self.is_leader() {
            let progress = self.raw.raft.prs().iter();
            let behind = progress.filter(|(_, progress)| progress.next_idx < first.0);
            let behind: Vec<u64> = behind.map(|(id, _)| *id).collect();
            behind.into_iter().for_each(|id| self.ask_for_first(ReplicaId(id)));
        }
    }

    /// The term.
    pub fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }
    /// The index up to which records are committed.
    pub fn committed(&self) -> Index {
        Index(self.raw.raft.raft_log.committed)
    }
    /// The first index that the log keeps, or would.
    pub fn first(&self) -> Index {
        Index(self.raw.store().runs().before().index.0 + 1)
    }
    /// The index up to which every replica has the records, as far as this one knows; 0 if it does not lead.
    pub fn acknowledged_by_all(&self) -> Index {
        let matched = self.raw.raft.prs().iter().map(|(_, progress)| progress.matched).min();
        Index(matched.filter(|_| self.is_leader()).unwrap_or(0))
    }
    /// The last position of the log.
    pub fn last(&self) -> Position {
        let log = &self.raw.raft.raft_log;
        Position { index: Index(log.last_index()), term: Term(log.last_term()) }
    }
    /// The replica that leads, if this one knows it.
    pub fn leader(&self) -> Option<ReplicaId> {
        Some(self.raw.raft.leader_id).filter(|id| *id != 0).map(ReplicaId)
    }
    /// True if this replica leads.
    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }
    /// The bytes of memory that the order takes, aside from maps of the library's.
    pub fn memory(&self) -> usize {
        let held: usize = self.held.iter().map(Held::memory).sum();
        let inflight = self.raw.raft.inflight_buffers_size();
        size_of::<Order>() + self.raw.store().memory() + held + inflight + self.others.len() * size_of::<Member>()
    }
    pub(crate) fn leads(&self, term: Term) -> bool {
        self.is_leader() && self.term() == term
    }
    /// The index up to which a replica has the records, as far as this one knows; 0 if it does not lead.
    pub fn matched(&self, replica: ReplicaId) -> Index {
        let progress = self.raw.raft.prs().get(replica.0).filter(|_| self.is_leader());
        Index(progress.map_or(0, |progress| progress.matched))
    }
    pub(crate) fn brick(&self, replica: ReplicaId) -> BrickId {
        let others = self.others.iter().find(|member| member.replica == replica);
        others.unwrap_or(&self.me).brick
    }
}

/// An order goes from core to core with its group.
const fn is_send<T: Send>() {}
const _: () = is_send::<Order>();
