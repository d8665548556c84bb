//! The effects of events: all that an order wants done, gathered from the library.

use crate::convert::to_ours;
use crate::message::{Body, Message, Number, Position, Record, Shadow, Stage};
use crate::order::Order;
use base::seeded::{self, Bug};
use base::{Index, ReplicaId, Term};
use raft::StateRole;
use raft::eraftpb::MessageType;
use std::collections::VecDeque;

/// Batches under way that a group usually has at most.
const HELD_USUAL: usize = 8;
/// Records that are usually proposed at once.
const BATCH_USUAL: usize = 4;

/// A number of what must become durable: the order is told when it has. A higher one includes all lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// Records of a leader's log. It holds only while it leads in that term: later there may be others at these indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Old {
    /// The leader's term.
    pub term: Term,
    /// The first record.
    pub first: Index,
    /// The index after the last one.
    pub end: Index,
}

/// The part that a replica has in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It leads. The record at this index begins its term, and the replica serves once that is committed.
    Leader(Index),
    /// It asks for votes.
    Candidate,
    /// It follows, perhaps without knowing whom.
    Follower(Option<ReplicaId>),
}

/// The things to be done, in this order: into the log, as one stream, `vote`, then `append`; then messages, commits and the
/// rest.
#[derive(Debug, Default)]
pub struct Effects {
    /// A record of the term, and of the vote in it.
    pub vote: Option<(Term, Option<ReplicaId>)>,
    /// Records that were given before are void from this index on. Those of `append` that take their places may have lower
    /// terms: replay goes by what was written last.
    pub void_from: Option<Index>,
    /// Records for the log.
    pub append: Vec<Record>,
    /// The number by which to say that `vote` and `append` are durable.
    pub ticket: Option<Ticket>,
    /// Messages that may leave now: what they promise is durable.
    pub send: Vec<(ReplicaId, Message)>,
    /// The index up to which records are committed; perhaps above what is durable here.
    pub commit: Option<Index>,
    /// The new term or role.
    pub role: Option<(Term, Role)>,
    /// Old records whose shadows are to be read for followers; `found` takes them.
    pub old: Vec<Old>,
    /// Followers that need records which are no longer kept.
    pub heal: Vec<ReplicaId>,
    /// Followers that have lost records which they had acknowledged as durable (rule P13).
    pub lost: Vec<ReplicaId>,
}

/// Messages that wait until something is durable, and the library's number of what they belong to.
pub(crate) struct Held {
    after: Ticket,
    number: u64,
    messages: Vec<(ReplicaId, Message)>,
}

impl Held {
    pub(crate) fn memory(&self) -> usize {
        size_of::<Held>() + self.messages.capacity() * size_of::<(ReplicaId, Message)>()
    }
}

impl Order {
    /// All that is to be done now.
    pub fn take(&mut self) -> Effects {
        self.collect();
        self.tell_changes();
        // Who is asked for the first record that is kept may need old ones from there, and never older ones.
        while self.take_wanted() {}
        self.trim();
        std::mem::take(&mut self.out)
    }
    /// Takes what the library wants from the log and does not have. True if it is to be looked at again.
    fn take_wanted(&mut self) -> bool {
        let (old, lacking) = self.raw.mut_store().take_wanted();
        let (term, is_done) = (self.term(), lacking.is_empty());
        self.out.old.extend(old.into_iter().map(|(first, end)| Old { term, first, end }));
        lacking.into_iter().for_each(|to| self.ask_for_first(to));
        self.collect();
        !is_done
    }
    /// Takes from the library what it wants done.
    pub(crate) fn collect(&mut self) {
        let led = Some(self.term()).filter(|_| self.is_leader());
        if led != self.led {
            self.led = led;
            self.raw.mut_store().forget_wanted();
            self.out.old.clear();
        }
        while self.raw.has_ready() {
            self.collect_once();
        }
        self.answering = Number(0);
    }
    fn collect_once(&mut self) {
        let mut ready = self.raw.ready();
        let vote = ready.hs().map(|hard| (Term(hard.term), hard.vote)).filter(|vote| *vote != self.promised);
        if let Some((term, vote)) = vote {
            assert!(term >= self.promised.0, "terms never fall");
            self.promised = (term, vote);
            self.out.vote = Some((term, Some(vote).filter(|id| *id != 0).map(ReplicaId)));
        }
        let entries = ready.take_entries();
        for entry in &entries {
            let position = Position { index: Index(entry.index), term: Term(entry.term) };
            self.append(Record { position, shadow: Shadow::of_bytes(&entry.data) });
        }
        let (now, later) = (ready.take_messages(), ready.take_persisted_messages());
        let now: Vec<_> = now.into_iter().map(|message| self.address(message)).collect();
        let later: Vec<_> = later.into_iter().map(|message| self.address(message)).collect();
        if vote.is_some() || !entries.is_empty() {
            self.given.0 += 1;
            self.out.ticket = Some(self.given);
        }
        let number = ready.number();
        self.raw.advance_append_async(ready);
        let log = &self.raw.raft.raft_log;
        // There are no changes of membership, so to the library what is committed is applied.
        let applied = log.committed.min(log.persisted);
        assert!(applied >= log.applied, "neither falls below what is committed and durable");
        self.raw.advance_apply_to(applied);
        self.out.send.extend(now);
        self.hold(number, later);
    }
    fn append(&mut self, record: Record) {
        assert!(record.position.index > self.commit, "what is committed never changes");
        let voids = self.raw.mut_store().push(record);
        if voids {
            // Records of this batch that are void by now never reach the log.
            self.out.append.retain(|earlier| earlier.position.index < record.position.index);
            let earlier = self.out.void_from.unwrap_or(record.position.index);
            self.out.void_from = Some(earlier.min(record.position.index));
        }
        self.out.append.push(record);
    }
    fn hold(&mut self, number: u64, mut messages: Vec<(ReplicaId, Message)>) {
        if seeded::active(Bug::VoteBeforeDurable) || seeded::active(Bug::AckBeforeRecords) {
            let early = |(_, message): &mut (ReplicaId, Message)| match message.body {
                Body::Voted { stage: Stage::Vote, .. } => seeded::active(Bug::VoteBeforeDurable),
                Body::Appended { .. } => seeded::active(Bug::AckBeforeRecords),
                _ => false,
            };
            self.out.send.extend(messages.extract_if(.., early));
        }
        if seeded::active(Bug::OwnRecordsBelieved) && self.raw.raft.state == StateRole::Leader {
            self.raw.on_persist_ready(number);
        }
        assert!(self.held.back().is_none_or(|last| last.number < number), "the library numbers what it gives");
        self.held.push_back(Held { after: self.given, number, messages });
        self.let_go();
    }
    /// Lets go of messages that waited for what is durable by now, and tells the library what is.
    pub(crate) fn let_go(&mut self) {
        let mut number = None;
        while let Some(held) = self.held.pop_front_if(|held| held.after <= self.durable) {
            number = Some(held.number);
            self.out.send.extend(held.messages);
        }
        if let Some(number) = number {
            self.raw.on_persist_ready(number);
        }
        // An idle group gives back what a burst took.
        if self.held.is_empty() && self.held.capacity() > HELD_USUAL {
            self.held = VecDeque::new();
        }
    }
    /// A message of the library's as ours. What it says is said now, whenever it leaves: so is under which spell.
    fn address(&mut self, message: raft::eraftpb::Message) -> (ReplicaId, Message) {
        let to = ReplicaId(message.to);
        let number = match message.get_msg_type() {
            MessageType::MsgAppend => {
                self.appends.0 += 1;
                let at = self.others.iter().position(|member| member.replica == to).expect("it is sent to a member");
                let mut heard = self.heard(at);
                heard.sent = (self.appends, Index(message.commit));
                self.heard[at] = heard;
                self.appends
            }
            _ => self.answering,
        };
        let under = self.followed.filter(|followed| followed.leader == to && followed.term.0 == message.term);
        let under = under.and_then(|followed| followed.spell);
        (to, Message { term: Term(message.term), under, body: to_ours(&message, number) })
    }
    /// Tells a new role and a higher commit index.
    fn tell_changes(&mut self) {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Leader if matches!(self.told, (term, Role::Leader(_)) if term.0 == raft.term) => self.told.1,
            // The library appended the term's first record when it became leader; others may have followed.
            StateRole::Leader => Role::Leader(self.first_of_term()),
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower => Role::Follower(self.leader()),
        };
        if (self.term(), role) != self.told {
            self.told = (self.term(), role);
            self.out.role = Some(self.told);
        }
        let commit = if seeded::active(Bug::CommitUncounted) { self.acknowledged_by_one() } else { self.committed() };
        assert!(commit >= self.commit, "what is committed stays so");
        if commit > self.commit {
            self.commit = commit;
            self.out.commit = Some(commit);
        }
    }
    fn first_of_term(&self) -> Index {
        let (runs, term) = (self.raw.store().runs(), self.term());
        assert_eq!(runs.last().term, term, "a leader's first record is of its term");
        runs.last_run()
    }
    /// A seeded bug's idea of what is committed.
    fn acknowledged_by_one(&self) -> Index {
        let matched = self.raw.raft.prs().iter().map(|(_, progress)| Index(progress.matched));
        matched.max().filter(|_| self.is_leader()).unwrap_or_default().max(self.committed())
    }
    fn trim(&mut self) {
        let raft = &self.raw.raft;
        let (matched, committed) =
            (raft.prs().iter().map(|(_, progress)| progress.matched).min(), raft.raft_log.committed);
        let needless = matched.filter(|_| self.is_leader()).map_or(committed, |matched| matched.min(committed));
        self.raw.mut_store().trim(needless);
        // The library keeps the space of its largest batch of late.
        let unstable = &mut self.raw.raft.raft_log.unstable.entries;
        if unstable.is_empty() && unstable.capacity() > BATCH_USUAL {
            *unstable = Vec::new();
        }
    }
}
