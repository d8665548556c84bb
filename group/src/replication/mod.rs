//! A group that several bricks have: each change is a record of the group's order, and it is answered once the record is committed,
//! that is durable on a majority of the bricks (rules P1, P20).
//!
//! One replica leads. It orders a change as a brick does that has the group alone: the record enters its log and its overlay at
//! once. So its overlay may hold what is not committed yet; no answer tells of it before it is. The others append what
//! they are sent to their logs, and apply it once it is committed. A leader that is deposed may find that records in its overlay are
//! void: then it builds the group's state again, from the index and the records since the last checkpoint.
//! No checkpoint takes what is not committed (rule P21).
//!
//! Absent by design: the protocol (`order_raft`), the way to the other bricks (`wire::peer`), and changes that concern several groups
//! (`across`). Absent so far: changes of membership.

mod apply;
mod drive;
pub(crate) mod found;
mod home;
pub(crate) mod lead;
mod passes;
mod peek;
mod rebuild;
pub(crate) mod settle;
mod ship;
mod tenure;
mod work;

pub use drive::announce;
pub use lead::{Follower, ReplicaStatus};

use crate::Groups;
use crate::across::Mail;
use crate::heal::Healing;
use crate::state::State;
use base::GroupId;
use order_raft::support::{BrickId, Ended, Epoch, Supports};
use order_raft::{Member, Moment, Order};
use runtime::{Event, Lock};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use store::Store;
use wire::peer::Peers;

/// The bricks that share the groups of a brick. All groups have the same members.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// This brick.
    pub me: BrickId,
    /// The members of every group, this brick's among them.
    pub members: Vec<Member>,
    /// The end of the brick's process before this one.
    pub ended: Ended,
}

/// The state that a brick with replicas has besides its groups.
pub(crate) struct Replication {
    pub me: Member,
    /// The other members.
    pub others: Vec<Member>,
    /// All members, in ascending order of their replicas.
    pub members: Vec<Member>,
    /// The way to the others, once there is one. Its tasks own it, and it has the groups.
    pub peers: OnceLock<Weak<Peers<Groups>>>,
    pub supports: Lock<Supports>,
    /// Batches of the log that groups wait for, in ascending order.
    pub waiting: Lock<VecDeque<(u64, GroupId)>>,
    pub waiting_came: Event,
    /// Groups that may have something to apply.
    pub applying: Lock<VecDeque<GroupId>>,
    pub applying_came: Event,
    /// Groups that have something for the log, which had no room for it.
    pub stuck: Lock<Vec<GroupId>>,
    pub stuck_came: Event,
    /// The way to each of the others.
    pub ways: Vec<ship::Way>,
    pub tenures: tenure::Tenures,
    pub healing: Healing,
    pub across: Mail,
    /// Cuts of checkpoints that replay may start at.
    pub cuts: Lock<VecDeque<settle::Cut>>,
}

impl Replication {
    /// The state of a brick with so many groups.
    pub fn new(store: &Store, replicas: Replicas, groups: usize) -> Replication {
        let Replicas { me, mut members, ended } = replicas;
        members.sort_unstable_by_key(|member| member.replica);
        let is_me = |member: &&Member| member.brick == me;
        let mine = *members.iter().find(is_me).expect("a brick with replicas is one of them");
        let others: Vec<_> = members.iter().copied().filter(|member| member.brick != me).collect();
        assert!(others.iter().all(|other| other.replica != mine.replica), "each brick has a replica of its own");
        let supports = Supports::open(Epoch(store.epoch), ended, store.runtime.clock.now_ns());
        Replication {
            me: mine,
            ways: others.iter().map(|_| ship::Way::default()).collect(),
            others,
            members,
            peers: OnceLock::new(),
            supports: Lock::new("supports", supports),
            waiting: Lock::new("durable", VecDeque::new()),
            waiting_came: Event::new(),
            applying: Lock::new("applying", VecDeque::new()),
            applying_came: Event::new(),
            stuck: Lock::new("stuck", Vec::new()),
            stuck_came: Event::new(),
            tenures: tenure::Tenures::new(groups),
            healing: Healing::new(),
            across: Mail::new(),
            cuts: Lock::new("cuts", VecDeque::from([settle::Cut::first(store)])),
        }
    }
    /// The other member with this brick.
    pub fn member(&self, brick: BrickId) -> Option<Member> {
        self.others.iter().copied().find(|member| member.brick == brick)
    }
    /// Ends the connections, and wakes all tasks, so that they see that the groups close.
    pub fn end(&self) {
        self.peers().inspect(|peers| peers.stop());
        [&self.waiting_came, &self.applying_came, &self.stuck_came].into_iter().for_each(Event::notify);
        self.tenures.wake();
        self.healing.end();
        self.across.wake();
        self.ways.iter().for_each(ship::Way::wake);
    }
    pub fn peers(&self) -> Option<Arc<Peers<Groups>>> {
        self.peers.get()?.upgrade()
    }
    /// Has the applying task look at a group.
    pub fn wake(&self, group: GroupId) {
        let mut applying = self.applying.lock();
        if !applying.contains(&group) {
            applying.push_back(group);
        }
        drop(applying);
        self.applying_came.notify();
    }
}

impl Groups {
    /// The brick's part in replication. Called for groups that have replicas.
    pub(crate) fn replication(&self) -> &Replication {
        self.replication.as_ref().expect("only bricks with replicas are asked for them")
    }
    /// Asks the order something that depends on the brick's support, as it is now.
    pub(crate) fn at_this_moment<T>(&self, state: &mut State, ask: impl FnOnce(&mut Order, Moment<'_>) -> T) -> T {
        let now = self.store().runtime.clock.now_ns();
        let supports = self.replication().supports.lock();
        ask(&mut state.replica().order, Moment { supports: &supports, now })
    }
}
