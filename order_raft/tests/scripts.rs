//! Short histories of three replicas, step by step: logs are durable when the script says so, messages arrive when it does.

use base::{Index, ReplicaId, Term};
use order_raft::support::{Answer, BrickId, Ended, Epoch, PROMISE_NS, Supports};
use order_raft::{
    Body, Effects, Entry, HardState, Member, Message, Moment, Old, Order, Position, Role, Shadow, TermRuns,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

fn members() -> Vec<Member> {
    (1..=3).map(|number| Member { replica: ReplicaId(number), brick: BrickId(u128::from(number)) }).collect()
}

fn shadow(crc: u32) -> Shadow {
    Shadow { length: 100, crc, kind: 1 }
}

/// A replica: its order, its brick's support, and its log, all of it durable but what is held back.
struct Replica {
    order: Order,
    supports: Supports,
    log: BTreeMap<u64, (Term, Shadow)>,
    hard: HardState,
    told: Vec<Effects>,
}

impl Replica {
    fn open(me: u64, log: BTreeMap<u64, (Term, Shadow)>, hard: HardState) -> Replica {
        let mut runs = TermRuns::default();
        log.iter().for_each(|(index, record)| runs.push(Position { index: Index(*index), term: record.0 }));
        let order = Order::open(ReplicaId(me), &members(), hard, runs);
        let supports = Supports::open(Epoch(1), Ended::SupportingNobody, 0);
        Replica { order, supports, log, hard, told: Vec::new() }
    }
}

struct Script {
    replicas: BTreeMap<u64, Replica>,
    way: VecDeque<(u64, u64, Message)>,
    /// Replicas that are cut off.
    cut: BTreeSet<u64>,
    /// Replicas whose disks hang.
    hung: BTreeSet<u64>,
    /// A replica that messages reach late, and those.
    late: (Option<u64>, VecDeque<(u64, u64, Message)>),
}

impl Script {
    fn new() -> Script {
        let replica = |me| (me, Replica::open(me, BTreeMap::new(), HardState::default()));
        let replicas = (1..=3).map(replica).collect();
        Script { replicas, way: VecDeque::new(), cut: BTreeSet::new(), hung: BTreeSet::new(), late: Default::default() }
    }
    fn of(&mut self, me: u64) -> &mut Replica {
        self.replicas.get_mut(&me).expect("it is there")
    }
    fn order(&mut self, me: u64) -> &mut Order {
        &mut self.of(me).order
    }
    /// Does what the orders want until they want nothing; returns the messages that this took.
    fn settle(&mut self) -> usize {
        let mut messages = 0;
        loop {
            let is_quiet = !(1..=3).map(|me| self.perform(me)).collect::<Vec<_>>().contains(&true);
            let Some((from, to, message)) = self.way.pop_front() else {
                if is_quiet {
                    return messages;
                }
                continue;
            };
            messages += 1;
            assert!(messages < 10_000, "messages lead to messages for ever");
            if self.late.0 == Some(to) {
                self.late.1.push_back((from, to, message));
                continue;
            }
            self.give(from, to, message);
        }
    }
    /// Gives a replica a message, unless one of the two is cut off.
    fn give(&mut self, from: u64, to: u64, message: Message) {
        if !self.cut.contains(&from) && !self.cut.contains(&to) {
            let Replica { order, supports, .. } = self.of(to);
            order.receive(ReplicaId(from), message, Moment { supports, now: 0 });
        }
    }
    /// Gives a replica the message that is first on its way.
    fn deliver(&mut self) {
        let (from, to, message) = self.way.pop_front().expect("one is on its way");
        self.give(from, to, message);
    }
    /// All that a replica's disk was given is durable.
    fn has_written(&mut self, me: u64) {
        let Replica { order, told, .. } = self.of(me);
        let ticket = told.iter().filter_map(|effects| effects.ticket).next_back();
        order.persisted(ticket.expect("it was given something"));
    }
    fn perform(&mut self, me: u64) -> bool {
        let is_hung = self.hung.contains(&me);
        let replica = self.of(me);
        let mut effects = replica.order.take();
        if let Some((term, vote)) = effects.vote {
            (replica.hard.term, replica.hard.vote) = (term, vote);
        }
        if let Some(from) = effects.void_from {
            replica.log.split_off(&from.0);
        }
        for record in &effects.append {
            replica.log.insert(record.position.index.0, (record.position.term, record.shadow));
        }
        let old = std::mem::take(&mut effects.old);
        let mut is_busy = !old.is_empty();
        for old in old {
            let shadows = replica.log.range(old.first.0..old.end.0).map(|(_, record)| record.1).collect();
            replica.order.found(old, shadows);
        }
        let ticket = effects.ticket.filter(|_| !is_hung);
        if let Some(ticket) = ticket {
            replica.order.persisted(ticket);
        }
        let sent: Vec<_> = std::mem::take(&mut effects.send);
        is_busy |= ticket.is_some() || !sent.is_empty();
        replica.told.push(effects);
        self.way.extend(sent.into_iter().map(|(to, message)| (me, to.0, message)));
        is_busy
    }
    fn elect(&mut self, me: u64) {
        let Replica { order, supports, .. } = self.of(me);
        assert!(order.campaign(Moment { supports, now: 0 }));
        self.settle();
        assert!(self.order(me).is_leader());
    }
    fn write(&mut self, leader: u64, crcs: std::ops::Range<u32>) {
        crcs.for_each(|crc| {
            self.order(leader).propose(shadow(crc)).expect("it leads");
        });
        self.settle();
    }
    fn cut(&mut self, me: u64) {
        self.cut.insert(me);
        self.settle();
    }
    /// Connects a replica again.
    fn heal(&mut self, me: u64) {
        self.cut.remove(&me);
        for (from, to) in (1..=3).filter(|other| *other != me).flat_map(|other| [(me, other), (other, me)]) {
            self.order(from).reconnected(ReplicaId(to));
        }
        self.settle();
    }
    /// Starts a replica anew with the records before `end`.
    fn restart(&mut self, me: u64, end: u64) {
        let Replica { mut log, hard, .. } = self.replicas.remove(&me).expect("it is there");
        log.split_off(&end);
        self.replicas.insert(me, Replica::open(me, log, hard));
    }
    fn agree(&mut self) {
        let leader = (1..=3).find(|me| self.order(*me).is_leader()).expect("one leads");
        self.order(leader).nudge();
        self.settle();
        let (log, last) = (self.of(leader).log.clone(), self.order(leader).last().index);
        for me in 1..=3 {
            assert!(self.of(me).log == log, "{me} has another log");
            assert_eq!(self.order(me).committed(), last);
        }
    }
}

#[test]
fn an_idle_group_says_nothing() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..10);
    script.order(1).nudge();
    script.settle();
    assert_eq!(script.settle(), 0);
    script.agree();
}

/// A follower that comes back without what it had acknowledged.
fn loss() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..10);
    script.restart(3, 8);
    script.order(1).reconnected(ReplicaId(3));
    script.settle();
    let lost: Vec<_> = script.of(1).told.iter().flat_map(|effects| effects.lost.clone()).collect();
    assert_eq!(lost, [ReplicaId(3)]);
    assert_eq!(script.order(3).last().index, Index(7), "it gets nothing as if nothing were");
}

#[test]
fn a_follower_that_lost_what_it_acknowledged_is_told() {
    loss();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_loss_that_is_accepted() {
    assert!(base::seeded::fails(loss, base::seeded::Bug::LossAccepted));
}

#[test]
fn a_follower_that_was_away_gets_what_it_lacks_from_memory_or_the_log() {
    for count in [10, 2000] {
        let mut script = Script::new();
        script.elect(1);
        script.cut(3);
        script.write(1, 0..count);
        assert!(script.order(1).memory() < 16 * 1024, "a replica that is away takes {}", script.order(1).memory());
        script.heal(3);
        script.agree();
    }
}

/// The leader is asked for a vote by a follower that messages reach late, and asks it anew what it has. Answers to both come, and no
/// other word.
fn late(count: u32) {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..3);
    script.late.0 = Some(3);
    for crc in 3..count {
        script.write(1, crc..crc + 1);
    }
    script.order(1).reconnected(ReplicaId(3));
    script.settle();
    script.order(1).nudge();
    script.settle();
    let late = std::mem::take(&mut script.late);
    script.way.extend(late.1);
    script.settle();
    let [leader, follower] = [1, 3].map(|me| script.order(me).last());
    assert_eq!(follower, leader, "the follower has all");
    let [leader, follower] = [1, 3].map(|me| script.order(me).committed());
    assert_eq!(follower, leader, "and knows that it is committed");
    assert_eq!(script.settle(), 0, "then nobody says anything");
}

#[test]
fn a_follower_that_messages_reach_late_gets_all() {
    // As many as may be under way at once, and more.
    [10, 60, 400].into_iter().for_each(late);
}

/// A follower gets all that it lacks before the commit index can be told, and answers after that: the leader has let go of records meanwhile, and is
/// about to read those from which it would ask the follower anew.
#[test]
fn a_follower_that_answers_late_learns_of_the_commit() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..3);
    script.cut(3);
    script.write(1, 3..20);
    script.cut.clear();
    // What a leader has from before its start is not in memory.
    script.restart(1, u64::MAX);
    let Replica { order, supports, .. } = script.of(1);
    assert!(order.campaign(Moment { supports, now: 0 }));
    while !script.order(1).is_leader() {
        for me in 1..=3 {
            script.perform(me);
        }
        script.deliver();
    }
    // Both have all, and neither can say so.
    script.hung.extend([2, 3]);
    script.settle();
    let last = script.order(1).last();
    assert_eq!([2, 3].map(|me| script.order(me).last()), [last; 2]);
    script.hung.clear();
    script.has_written(2);
    script.settle();
    assert_eq!(script.order(1).committed(), last.index);
    script.order(1).nudge();
    script.settle();
    script.order(1).keep_from(Index(15));
    script.has_written(3);
    script.perform(3);
    script.deliver();
    script.settle();
    assert_eq!(script.order(3).committed(), last.index, "it knows what is committed");
    assert_eq!(script.settle(), 0, "then nobody says anything");
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_rest_that_is_not_sent() {
    // The records are there, and not known to be committed; or not even that.
    assert!(base::seeded::fails(|| late(10), base::seeded::Bug::RestUnsent));
    assert!(base::seeded::fails(|| late(400), base::seeded::Bug::RestUnsent));
}

#[test]
fn a_leader_that_was_started_anew_sends_old_records() {
    let mut script = Script::new();
    script.elect(1);
    script.cut(3);
    script.write(1, 0..700);
    for me in [1, 2] {
        script.restart(me, u64::MAX);
    }
    script.elect(2);
    script.heal(3);
    script.agree();
}

#[test]
fn what_was_read_for_an_earlier_term_is_not_sent_in_a_later_one() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..2);
    // An earlier leader of term 1 read other records than there are by now, and the answer comes late.
    let late = Old { term: Term(1), first: Index(2), end: Index(4) };
    script.elect(2);
    script.elect(1);
    script.cut(3);
    script.write(1, 2..4);
    script.order(1).found(late, vec![shadow(99); 2]);
    script.heal(3);
    script.agree();
}

#[test]
fn a_follower_heals_only_if_it_lacks_what_is_kept_no_longer() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..10);
    script.cut(3);
    script.write(1, 10..20);
    // It has record 11, the one before the first that is kept.
    script.order(1).keep_from(Index(12));
    script.heal(3);
    script.agree();
    script.cut(3);
    script.write(1, 20..30);
    script.order(1).keep_from(Index(25));
    script.heal(3);
    let heal: Vec<_> = script.of(1).told.iter().flat_map(|effects| effects.heal.clone()).collect();
    assert_eq!(heal, [ReplicaId(3)]);
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn questions_that_repeat() {
    let two = two_questions_for_the_first_record_do_not_keep_each_other_going;
    assert!(base::seeded::fails(two, base::seeded::Bug::QuestionsRepeat));
}

#[test]
fn two_questions_for_the_first_record_do_not_keep_each_other_going() {
    let mut script = Script::new();
    script.elect(1);
    script.cut(3);
    script.write(1, 0..20);
    script.order(1).keep_from(Index(15));
    script.cut.remove(&3);
    for _ in 0..2 {
        script.order(1).reconnected(ReplicaId(3));
        script.perform(1);
    }
    // Both are under way when the leader lets go of records again.
    script.order(1).keep_from(Index(15));
    assert!(script.settle() < 20);
    let heal: Vec<_> = script.of(1).told.iter().flat_map(|effects| effects.heal.clone()).collect();
    assert_eq!(heal, [ReplicaId(3)]);
}

#[test]
fn records_come_back_after_some_of_a_higher_term_took_their_place() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..3);
    script.order(1).nudge();
    script.settle();
    // Record 5 of term 1 reaches replica 2, and counts nowhere.
    script.cut(3);
    script.hung.extend([1, 2]);
    script.write(1, 3..4);
    script.hung.clear();
    let first = script.of(1).log[&5];
    script.cut(1);
    script.cut(2);
    script.restart(2, u64::MAX);
    script.restart(1, u64::MAX);
    // Replica 3 leads with the vote of 2, which has lost the record, and its own record 5 of a higher term reaches 2.
    script.restart(2, 5);
    script.cut.clear();
    script.cut(1);
    script.elect(3);
    let second = script.of(2).log[&5];
    assert!(second.0 > first.0);
    // It was told that its record is committed, and a start forgets that.
    script.restart(2, u64::MAX);
    // Had nobody but 2 got it, 1 would lead again and bring the first one back: by its term alone nobody could tell.
    script.restart(3, 5);
    script.replicas.get_mut(&3).expect("it is there").hard.term = second.0;
    script.cut.clear();
    script.cut(2);
    let Replica { order, supports, .. } = script.of(1);
    order.campaign(Moment { supports, now: 0 });
    script.settle();
    let Replica { order, supports, .. } = script.of(1);
    if !order.is_leader() {
        order.campaign(Moment { supports, now: 0 });
        script.settle();
    }
    script.of(2).told.clear();
    script.heal(2);
    let voids: Vec<_> = script.of(2).told.iter().filter_map(|effects| effects.void_from).collect();
    assert_eq!(voids, [Index(5)]);
    assert_eq!(script.of(2).log[&5], first, "of a lower term than what it replaces");
    script.agree();
}

/// Support of each brick for each other, as of time 0.
fn support_all(script: &mut Script) {
    for _ in 0..2 {
        for (from, to) in (1..=3).flat_map(|from| (1..=3).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let (here, there) = (BrickId(u128::from(from)), BrickId(u128::from(to)));
            let ask = script.of(from).supports.ask(there, None, 0);
            let answer: Option<Answer> = script.of(to).supports.asked(here, ask, 0);
            script.of(from).supports.answered(there, answer.expect("it is new"), 0);
        }
    }
}

#[test]
fn a_lease_begins_with_acknowledgements_under_support_and_ends_with_it() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..3);
    support_all(&mut script);
    let lease = |script: &mut Script, now| {
        let Replica { order, supports, .. } = script.of(1);
        order.has_lease(Moment { supports, now })
    };
    assert!(!lease(&mut script, 0), "nobody has acknowledged the term under its support");
    script.order(1).nudge();
    script.settle();
    assert!(lease(&mut script, 0));
    assert!(lease(&mut script, PROMISE_NS / 10 * 9 - 1));
    assert!(!lease(&mut script, PROMISE_NS / 10 * 9 + 10), "nine tenths of the promise count");
    for me in [2, 3] {
        let Replica { order, supports, .. } = script.of(me);
        assert!(!order.campaign(Moment { supports, now: PROMISE_NS - 1 }), "the promise stands");
        assert!(order.lacks_leader(Moment { supports, now: PROMISE_NS + 10 }));
    }
}

#[test]
fn a_transfer_needs_no_end_of_support() {
    let mut script = Script::new();
    script.elect(1);
    script.write(1, 0..3);
    support_all(&mut script);
    script.write(1, 3..4);
    script.order(1).transfer(ReplicaId(2)).expect("it leads");
    let Replica { order, supports, .. } = script.of(1);
    assert!(!order.has_lease(Moment { supports, now: 0 }), "for good in its term");
    assert!(order.propose(shadow(9)).is_err());
    script.settle();
    assert!(script.order(2).is_leader());
    assert_eq!(
        script.of(2).told.iter().filter_map(|effects| effects.role).next_back(),
        Some((Term(2), Role::Leader(Index(6))))
    );
    script.agree();
}

#[test]
fn nothing_that_promises_leaves_before_it_is_durable() {
    let mut script = Script::new();
    script.hung.extend([1, 2, 3]);
    let Replica { order, supports, .. } = script.of(1);
    assert!(order.campaign(Moment { supports, now: 0 }));
    assert_eq!(script.settle(), 4, "two questions without a promise and their answers, but no request for a vote");
    script.hung.remove(&1);
    assert!(script.of(1).hard.vote == Some(ReplicaId(1)) && script.order(1).term() == Term(1));
}

#[test]
fn a_leader_counts_for_nobody_once_its_process_is_another_one() {
    let mut script = Script::new();
    script.elect(1);
    support_all(&mut script);
    // The leader's own disk is slow: the others commit what it has not durable.
    script.write(1, 0..3);
    script.restart(1, 3);
    script.of(1).supports = Supports::open(Epoch(2), Ended::SupportingNobody, 0);
    support_all(&mut script);
    let Replica { order, supports, .. } = script.of(2);
    let moment = Moment { supports, now: 0 };
    assert!(order.leader() == Some(ReplicaId(1)) && supports.given(BrickId(1), 0).is_some());
    assert!(order.lacks_leader(moment), "the brick is supported, but not the process that led");
    script.elect(2);
    script.heal(1);
    script.agree();
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut script = Script::new();
    script.elect(1);
    let Replica { order, supports, .. } = script.of(1);
    let moment = Moment { supports, now: 0 };
    let last = order.last();
    let appended = Body::Appended { number: Default::default(), index: Index(99), commit: Index(0) };
    order.receive(ReplicaId(2), Message { term: Term(1), under: None, body: appended }, moment);
    order.receive(ReplicaId(9), Message { term: Term(7), under: None, body: Body::Release }, moment);
    order.receive(ReplicaId(2), Message { term: Term(0), under: None, body: Body::Release }, moment);
    let entries = [7, 3].map(|term| Entry { term: Term(term), shadow: shadow(1) }).to_vec();
    let append = Body::Append { number: Default::default(), previous: last, commit: Index(0), entries };
    order.receive(ReplicaId(2), Message { term: Term(7), under: None, body: append }, moment);
    assert!(order.is_leader() && order.last() == last && order.term() == Term(1));
}
