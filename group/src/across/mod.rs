//! Changes that concern several groups of a replicated volume, each of which may be led by another brick (rules M3, P15, P16, P18, P20).
//!
//! One group decides. Its leader evaluates the change as ever; what it needs of other groups it asks their leaders for. Each of these
//! orders a record by which the inodes are *held* for the change, and answers once that record is committed: from then on nobody else
//! changes them or looks at them, whoever leads. So what the decision rests on is durable before the decision is, and stays true until the change is
//! whole. The decision is one record of the deciding group, with the other groups' parts in it. Once it is committed the client is
//! answered, and the parts are sent. A group takes its part by a record that ends the hold as well: so it takes it once, and whoever finds no hold has
//! had it. When all have their parts, the deciding group forgets the change.
//!
//! Nobody waits for a hold while others hold something for it: it lets go of all, and begins again after a pause. So there is no
//! deadlock. A group that holds something and hears nothing asks the deciding group's leader. What that one neither has decided nor is about
//! to decide in its own term never will be: a change has a number that nobody else uses, and a leader before it can commit nothing any
//! more.
//!
//! An operation that changes nothing asks in the same way, and nothing is held for it.
//!
//! Absent so far: a shorter way for parts that are right whatever became of the rest (a new directory's inode, a removed name's file).

mod attempt;
mod finish;
mod hold;

pub(crate) use attempt::Attempt;

use crate::Groups;
use crate::replica::across::{Across, Answer, Ask};
use crate::replica::codec::{Told, put_told};
use base::{GroupId, IntentId};
use order_raft::Member;
use runtime::{Event, Lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::peer::{Parcel, PeerId};

/// Messages that wait to be dealt with, at most; who sends more asks again.
const CAME_MAX: usize = 4096;
/// The longest wait for an answer: a commit, and the time that an election takes.
const ANSWER_NS: u64 = 1_000_000_000;

/// A question that waits for its answer.
struct Question {
    until_ns: u64,
    answer: Option<Answer>,
}

/// Messages between leaders, on their way within this brick.
pub(crate) struct Mail {
    came: Lock<VecDeque<(Member, GroupId, Across)>>,
    has_come: Event,
    asked: AtomicU64,
    questions: Lock<BTreeMap<u64, Question>>,
    answered: Event,
}

impl Mail {
    pub fn new() -> Mail {
        Mail {
            came: Lock::new("across", VecDeque::new()),
            has_come: Event::new(),
            asked: AtomicU64::new(1),
            questions: Lock::new("across asked", BTreeMap::new()),
            answered: Event::new(),
        }
    }
    /// Wakes all that wait, so that they see that the groups close.
    pub fn wake(&self) {
        [&self.has_come, &self.answered].into_iter().for_each(Event::notify);
    }
}

/// The changes of several groups that a group has to do with, as its replica here knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Those for which it holds something.
    pub held: Vec<IntentId>,
    /// Those that it has decided, and of which others may lack their parts.
    pub decided: Vec<IntentId>,
    /// Those that it is about to decide, if this brick leads it.
    pub running: Vec<IntentId>,
}

impl Groups {
    /// The changes of several groups that a group has to do with.
    pub fn changes(&self, number: GroupId) -> Changes {
        let Some(group) = self.hosted(number) else { return Changes::default() };
        let state = group.state.lock();
        let (held, decided) = (state.across.holds.keys().copied(), state.across.decided.keys().copied());
        let running = state.across.running.iter().copied().collect();
        Changes { held: held.collect(), decided: decided.collect(), running }
    }

    /// True if a change may concern groups that have other orders than the one that decides it.
    #[inline]
    pub(crate) fn is_across(&self) -> bool {
        self.replication.is_some() && self.states().len() > 1
    }

    /// Starts the task.
    pub(crate) fn start_across(self: &Arc<Groups>) {
        let there = self.clone();
        self.store().runtime.spawn(0, move || there.run_across());
    }

    /// Deals with messages. Ends when the groups close.
    async fn run_across(self: Arc<Groups>) {
        let mail = &self.replication().across;
        loop {
            let ticket = mail.has_come.ticket();
            if self.is_closing() {
                return;
            }
            let next = mail.came.lock().pop_front();
            let Some((from, number, across)) = next else {
                mail.has_come.after(ticket).await;
                continue;
            };
            let there = self.clone();
            // Each by itself: some wait for a commit.
            self.store().runtime.spawn(0, move || async move { there.deal_with(from, number, across).await });
        }
    }

    async fn deal_with(&self, from: Member, number: GroupId, across: Across) {
        let Some(group) = self.hosted(number).filter(|_| self.makes_sense(number, &across)) else { return };
        match across {
            Across::Ask(ask) => {
                let (asked, answer) = (ask.number, self.answer_ask(group, ask).await);
                self.tell_across(from, number, Across::Answer(asked, answer));
            }
            Across::Answer(..) => {}
            Across::Drop(id) => drop(self.drop_hold(group, id).await),
            Across::Part { id, volume, edits } => {
                if self.take_part(group, id, (volume, edits)).await.is_ok() {
                    self.tell_across(from, id.group, Across::Done { id, group: number });
                }
            }
            Across::Done { id, group: of } => drop(self.part_taken(group, id, of).await),
            Across::Fate { id, group: of } => self.tell_fate(group, id, of),
        }
    }

    /// True if a group may be told this: another brick's message is data, which may be wrong, so no assertion rests on it.
    fn makes_sense(&self, number: GroupId, across: &Across) -> bool {
        match across {
            Across::Ask(ask) => ask.id.is_none_or(|id| self.hosted(id.group).is_some()),
            Across::Answer(..) | Across::Drop(_) => true,
            Across::Part { id, .. } => id.group != number && self.hosted(id.group).is_some(),
            Across::Done { id, group } | Across::Fate { id, group } => {
                id.group == number && self.hosted(*group).is_some()
            }
        }
    }

    /// A message of another leader has come.
    pub(crate) fn across_came(&self, from: Member, number: GroupId, across: Across) {
        let mail = &self.replication().across;
        if let Across::Answer(asked, answer) = across {
            if let Some(question) = mail.questions.lock().get_mut(&asked) {
                question.answer = Some(answer);
            }
            mail.answered.notify();
            return;
        }
        let mut came = mail.came.lock();
        if came.len() < CAME_MAX {
            came.push_back((from, number, across));
        }
        drop(came);
        mail.has_come.notify();
    }

    /// Tells a brick something about a group.
    fn tell_across(&self, to: Member, number: GroupId, across: Across) {
        if to.brick == self.replication().me.brick {
            return self.across_came(to, number, across);
        }
        let Some(peers) = self.replication().peers() else { return };
        let mut body = Vec::with_capacity(256);
        put_told(&mut body, &Told::Across(across));
        peers.send(PeerId(to.brick.0), &Parcel::new(number, body, Vec::new()));
    }

    /// Tells the leader of a group something. False if nobody is known to lead it.
    fn tell_leader(&self, number: GroupId, across: Across) -> bool {
        let Some(group) = self.hosted(number) else { return false };
        let leader = group.state.lock().replica().order.leader();
        let members = &self.replication().members;
        let Some(member) = members.iter().find(|member| Some(member.replica) == leader) else { return false };
        self.tell_across(*member, number, across);
        true
    }

    /// Asks the leader of a group.
    async fn ask_leader(&self, number: GroupId, mut ask: Ask) -> Answer {
        let mail = &self.replication().across;
        ask.number = mail.asked.fetch_add(1, Ordering::Relaxed);
        let (asked, until_ns) = (ask.number, self.store().runtime.clock.now_ns() + ANSWER_NS);
        mail.questions.lock().insert(asked, Question { until_ns, answer: None });
        if !self.tell_leader(number, Across::Ask(ask)) {
            mail.questions.lock().remove(&asked);
            return Answer::Elsewhere;
        }
        loop {
            let ticket = mail.answered.ticket();
            let mut questions = mail.questions.lock();
            match questions.get(&asked) {
                Some(Question { answer: None, .. }) if !self.is_closing() => {}
                _ => return questions.remove(&asked).and_then(|question| question.answer).unwrap_or(Answer::Elsewhere),
            }
            drop(questions);
            mail.answered.after(ticket).await;
        }
    }

    /// Gives up questions that were not answered in time.
    pub(crate) fn end_questions(&self, now: u64) {
        let mail = &self.replication().across;
        let mut questions = mail.questions.lock();
        let before = questions.len();
        questions.retain(|_, question| now < question.until_ns);
        let has_ended = questions.len() < before;
        drop(questions);
        if has_ended {
            mail.answered.notify();
        }
    }
}
