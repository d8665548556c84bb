//! Healing: a replica that lacks what the others no longer keep gets the group anew, rows first and blocks later.
//!
//! The leader reads the rows of its index as of one position from a snapshot. The follower puts them in the place of its own
//! (`store::heal`): a block of a file that has not changed since keeps its place, and the others are marked as missing. From
//! that position on it takes part as ever, so what is written from then on is never missing. Then it asks the others for the missing
//! blocks; each that comes is moved to a place, as the cleaner moves blocks (rule K2), so one that a client has overwritten meanwhile
//! stays as the client wrote it. The marks are what is left to do: they are durable, and only become fewer.
//!
//! Until its rows are of one position the replica gives no room to the leader's records, and does not campaign. It votes by
//! the log that it had, so nothing that it has ever acknowledged can be outvoted. With blocks missing it counts as
//! a copy of what was written since, and leads only if nobody else does for a time; then reads of missing blocks wait for them.

mod blocks;
pub(crate) mod gather;
mod give;
mod rows;

use crate::replica::codec::{Told, put_told};
use crate::replica::heal::{Answer, Ask, Heal};
use crate::{Group, Groups};
use base::{Error, GroupId, Index, Ino, Result, VolumeId};
use order_raft::Member;
use order_raft::support::BrickId;
use runtime::{Event, Lock, Slice};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::format::values::HealRow;
use wire::peer::{Parcel, PeerId};

/// Questions of other bricks that wait at most: each brick has fewer under way.
const ASKED_MAX: usize = 64;
/// Tasks that answer questions, each one at a time: files of one block each are read beside one another, too.
const GIVERS: usize = 8;
/// The longest wait for an answer: a checkpoint and a page of rows take a second or two on a busy brick.
const ANSWER_NS: u64 = 10_000_000_000;
/// The time after which a wait for answers looks whether it is still of use.
const LOOK_NS: u64 = 100_000_000;
/// The pause before a brick asks again that could not be answered.
const AGAIN_NS: u64 = 200_000_000;
/// The pause after a try that came to nothing.
const FAILED_NS: u64 = 1_000_000_000;
/// The time after its last question in which a brick counts as one that heals.
const HEALS_NS: u64 = 10_000_000_000;

/// A question of another brick.
struct Asked {
    from: Member,
    group: GroupId,
    number: u64,
    ask: Ask,
}

/// An answer, and its payload.
type Answered = (Answer, Vec<Slice>);

/// Blocks that somebody waits for: file, first and last block.
type Wanted = (VolumeId, Ino, u64, u64);

/// The part of a brick's replication that heals, this brick or others.
pub(crate) struct Healing {
    asked: Lock<VecDeque<Asked>>,
    asked_came: Event,
    giving: Lock<Option<give::Giving>>,
    /// The times at which other bricks asked last.
    asking: Lock<BTreeMap<BrickId, u64>>,
    /// The questions of this brick that are to be answered, and answers.
    answers: Lock<BTreeMap<u64, Option<Answered>>>,
    answers_came: Event,
    questions: AtomicU64,
    /// Blocks that readers wait for.
    wanted: Lock<BTreeSet<Wanted>>,
    /// Notified when blocks are missing, when somebody waits for some, and when some have come.
    blocks_came: Event,
    blocks_left: AtomicU64,
    blocks_filled: AtomicU64,
    /// The error of the last try.
    error: Lock<Option<Error>>,
}

/// The healing of a replica, as an operator wants to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealStatus {
    /// The rows are being replaced: the replica takes part in nothing yet.
    pub rows: bool,
    /// Missing blocks, as far as they were counted.
    pub blocks_left: u64,
    /// Blocks that came since the start of the process.
    pub blocks_filled: u64,
    /// The time at which the heal began, in nanoseconds of the wall clock.
    pub began_ns: u64,
}

impl Healing {
    pub fn new() -> Healing {
        Healing {
            asked: Lock::new("heal asked", VecDeque::new()),
            asked_came: Event::new(),
            giving: Lock::new("heal giving", None),
            asking: Lock::new("heal asking", BTreeMap::new()),
            answers: Lock::new("heal answers", BTreeMap::new()),
            answers_came: Event::new(),
            questions: AtomicU64::new(1),
            wanted: Lock::new("heal wanted", BTreeSet::new()),
            blocks_came: Event::new(),
            blocks_left: AtomicU64::new(0),
            blocks_filled: AtomicU64::new(0),
            error: Lock::new("heal error", None),
        }
    }
    /// Wakes all that wait, so that they see that the groups close.
    pub fn wake(&self) {
        [&self.asked_came, &self.answers_came, &self.blocks_came].into_iter().for_each(Event::notify);
    }
    /// Drops what other bricks are given.
    pub fn end(&self) {
        self.wake();
        drop(self.giving.lock().take());
    }
    pub fn status(&self, row: HealRow) -> HealStatus {
        let (blocks_left, blocks_filled) =
            (self.blocks_left.load(Ordering::Relaxed), self.blocks_filled.load(Ordering::Relaxed));
        HealStatus { rows: row.rows, blocks_left, blocks_filled, began_ns: row.started }
    }
}

impl Groups {
    /// Starts the tasks.
    pub(crate) fn start_healing(self: &Arc<Groups>) {
        for number in 0..GIVERS {
            let there = self.clone();
            self.store().runtime.spawn(0, move || there.run_giving(number == 0));
        }
        let there = self.clone();
        self.store().runtime.spawn(0, move || there.run_filling());
    }

    pub(crate) fn tell_heal(&self, group: GroupId, to: BrickId, heal: Heal, payload: Vec<Slice>) {
        let Some(peers) = self.replication().peers() else { return };
        let mut body = Vec::with_capacity(256);
        put_told(&mut body, &Told::Heal(heal));
        peers.send(PeerId(to.0), &Parcel::new(group, body, payload));
    }

    /// A message about healing has come.
    pub(crate) fn heal_came(&self, group: &Group, from: Member, heal: Heal, payload: Vec<Slice>) {
        let healing = &self.replication().healing;
        match heal {
            Heal::Lacks { first } => self.told_of_lack(group, from.brick, first),
            Heal::Ask(number, ask) => {
                healing.asking.lock().insert(from.brick, self.store().runtime.clock.now_ns());
                let mut asked = healing.asked.lock();
                if asked.len() < ASKED_MAX {
                    asked.push_back(Asked { from, group: group.number, number, ask });
                }
                drop(asked);
                healing.asked_came.notify();
            }
            Heal::Answer(number, answer) => {
                if let Some(place) = healing.answers.lock().get_mut(&number) {
                    *place = Some((answer, payload));
                }
                healing.answers_came.notify();
            }
            Heal::Done => {
                self.given(from.brick);
                let mut state = group.state.lock();
                state.replica().order.reconnected(from.replica);
                self.carry_out(&mut state);
            }
        }
    }

    /// A leader has told that it no longer keeps what this replica needs next. If it leads no longer, and who does keeps more, rows are
    /// taken that need not be.
    fn told_of_lack(&self, group: &Group, leader: BrickId, first: Index) {
        let mut state = group.state.lock();
        let replica = state.replica();
        if first.0 > replica.order.last().index.0 + 1 && !replica.takes_rows() && !replica.order.is_leader() {
            replica.lacks = true;
            replica.fed_by = Some(leader);
            self.replication().wake(group.number);
        }
    }

    /// Tells a follower that records before the first that is kept are gone.
    pub(crate) fn tell_lack(&self, group: GroupId, to: base::ReplicaId, first: Index) {
        if let Some(brick) = self.brick_of(to) {
            self.tell_heal(group, brick, Heal::Lacks { first }, Vec::new());
        }
    }

    fn brick_of(&self, replica: base::ReplicaId) -> Option<BrickId> {
        let others = self.replication().others.iter();
        others.copied().find(|member| member.replica == replica).map(|member| member.brick)
    }

    /// Blocks that came from others since the start of the process.
    pub fn blocks_filled(&self) -> u64 {
        self.replication().healing.blocks_filled.load(Ordering::Relaxed)
    }

    /// The reason why the last try to heal came to nothing, if it did.
    pub fn heal_error(&self) -> Option<Error> {
        self.replication.as_ref()?.healing.error.lock().clone()
    }

    /// Notes what came of a try, and waits a little if it failed.
    pub(crate) async fn note_heal(&self, tried: Result<()>) {
        let failed = tried.is_err();
        *self.replication().healing.error.lock() = tried.err();
        if failed {
            self.store().runtime.clock.sleep(FAILED_NS).await;
        }
    }

    /// True while a brick heals, as far as this one knows.
    pub(crate) fn heals(&self, brick: BrickId) -> bool {
        let now = self.store().runtime.clock.now_ns();
        let asked_ns = self.replication().healing.asking.lock().get(&brick).copied();
        asked_ns.is_some_and(|asked_ns| now - asked_ns < HEALS_NS)
    }

    /// Asks another brick several questions at once. The answers, in their order; None for what was not answered in time.
    async fn ask_all(&self, group: GroupId, to: BrickId, asks: Vec<Ask>) -> Vec<Option<Answered>> {
        let healing = &self.replication().healing;
        let clock = &self.store().runtime.clock;
        assert!(!asks.is_empty() && asks.len() <= ASKED_MAX, "as many questions as the other brick takes");
        let first = healing.questions.fetch_add(asks.len() as u64, Ordering::Relaxed);
        let numbers = first..first + asks.len() as u64;
        healing.answers.lock().extend(numbers.clone().map(|number| (number, None)));
        for (number, ask) in numbers.clone().zip(asks) {
            self.tell_heal(group, to, Heal::Ask(number, ask), Vec::new());
        }
        let until = clock.now_ns() + ANSWER_NS;
        loop {
            let ticket = healing.answers_came.ticket();
            let all = {
                let answers = healing.answers.lock();
                numbers.clone().all(|number| answers.get(&number).is_some_and(Option::is_some))
            };
            if all || self.is_closing() || clock.now_ns() >= until {
                let mut answers = healing.answers.lock();
                return numbers.map(|number| answers.remove(&number).flatten()).collect();
            }
            runtime::tasks::either(healing.answers_came.after(ticket), clock.sleep(LOOK_NS)).await;
        }
    }
}
