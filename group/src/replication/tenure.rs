//! Tenures: the times in which this brick leads a group, and serves clients of that. A tenure is to clients what a start of the process is
//! where a brick has its groups alone: sessions go on, and until each has told what it has open, nothing is freed (rule P11).
//!
//! A tenure ends when another brick may lead, be it that nobody does: who has lost its lease can't answer, and clients look elsewhere
//! (rule P4).

use crate::led::{Led, Look};
use crate::state::State;
use crate::{Group, Groups, Scope};
use base::{GroupId, Result, SessionId, Term};
use order_raft::support::{BrickId, SILENCE_NS};
use runtime::{Event, Lock};
use wire::peer::PeerId;

/// The longest time for which a brick that ends waits until another one leads. An election takes two round trips and two writes.
const HAND_OVER_NS: u64 = 1_000_000_000;
/// The pause between looks.
const HAND_OVER_LOOK_NS: u64 = 2_000_000;

/// The present tenures.
pub(crate) struct Tenures {
    /// The tenures, by the groups' positions.
    groups: Vec<Tenure>,
    /// The leaders of the groups, by position.
    led: Lock<Vec<Led>>,
}

/// The present tenure of a group.
struct Tenure {
    now: Lock<Now>,
    changed: Event,
}

#[derive(Default)]
struct Now {
    /// Number of tenures so far.
    count: u64,
    is_in: bool,
}

impl Tenures {
    /// Those of so many groups.
    pub fn new(groups: usize) -> Tenures {
        let tenure = |_| Tenure { now: Lock::new("tenure", Now::default()), changed: Event::new() };
        Tenures { groups: (0..groups).map(tenure).collect(), led: Lock::new("led", vec![Led::default(); groups]) }
    }
    /// Wakes all who wait, so that they see that the groups close.
    pub fn wake(&self) {
        self.groups.iter().for_each(|tenure| tenure.changed.notify());
    }
}

impl Tenure {
    /// The number of the present one.
    fn number(&self) -> Option<u64> {
        let now = self.now.lock();
        now.is_in.then_some(now.count)
    }
    fn begin(&self) {
        let mut now = self.now.lock();
        assert!(!now.is_in, "a tenure ends before the next one begins");
        *now = Now { count: now.count + 1, is_in: true };
        drop(now);
        self.changed.notify();
    }
    fn end(&self) {
        self.now.lock().is_in = false;
        self.changed.notify();
    }
}

impl Groups {
    /// True if other bricks have these groups, too.
    pub fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }
    /// True if clients of a group can be served: nobody else leads it.
    pub fn leads(&self, group: GroupId) -> bool {
        !self.is_replicated() || self.serves(group)
    }
    fn tenure(&self, group: GroupId) -> &Tenure {
        &self.replication().tenures.groups[self.position(group)]
    }
    /// Waits for a tenure of a group. Its number; None if the groups close.
    pub async fn next_tenure(&self, group: GroupId) -> Option<u64> {
        let tenure = self.tenure(group);
        loop {
            let ticket = tenure.changed.ticket();
            if self.is_closing() {
                return None;
            }
            if let Some(number) = tenure.number() {
                return Some(number);
            }
            tenure.changed.after(ticket).await;
        }
    }
    /// Waits for the end of a tenure of a group, or until the groups close.
    pub async fn tenure_ends(&self, group: GroupId, number: u64) {
        let tenure = self.tenure(group);
        loop {
            let ticket = tenure.changed.ticket();
            if self.is_closing() || tenure.number() != Some(number) {
                return;
            }
            tenure.changed.after(ticket).await;
        }
    }
    /// Begins to serve clients in a tenure of a group, after the last request of the one before has ended: what sessions have is not known, and
    /// what no session may have is freed. The sessions that have not told. Errors: those of a change.
    pub async fn begin_sessions(&self, group: GroupId) -> Result<Vec<SessionId>> {
        let scope = Scope::One(group);
        self.forget_sessions_here(scope);
        let untold = self.expect_sessions(scope);
        let volumes = self.volumes().await?;
        let free = volumes.iter().map(|volume| volume.id).filter(|volume| !untold.contains(volume));
        self.purge_orphans(scope, free.collect()).await?;
        Ok(self.network_sessions(scope).iter().map(|known| known.session).collect())
    }

    /// Hands the lead of all groups to other bricks, before this one ends. Returns once others lead, or after a second: then they find
    /// out by themselves. A brick that has just begun takes no lead; if nobody else can, it is waited for, and clients are served meanwhile.
    pub async fn hand_over(&self) {
        let clock = &self.store().runtime.clock;
        let until_ns = clock.now_ns() + SILENCE_NS;
        let may_soon = |brick| self.may_soon_lead(brick);
        let may_now = |brick| may_soon(brick) && !self.has_just_begun(brick);
        let waits = |group: &Group| {
            let mut state = group.state.lock();
            let order = &state.replica().order;
            order.heir(may_soon).is_some() && order.heir(may_now).is_none()
        };
        while self.states().iter().any(waits) && clock.now_ns() < until_ns {
            clock.sleep(HAND_OVER_LOOK_NS).await;
        }
        let hand_over = |group: &&Group| {
            let mut state = group.state.lock();
            let order = &state.replica().order;
            let Some(heir) = order.heir(may_now).or_else(|| order.heir(may_soon)) else { return false };
            if state.replica().serves.is_some() {
                self.end_service(&mut state);
            }
            let is_handed = state.replica().order.transfer(heir).is_ok();
            self.carry_out(&mut state);
            is_handed
        };
        let handed: Vec<&Group> = self.states().iter().filter(hand_over).collect();
        // The next leader must be known before this brick ends: its vote may be the one that is lacking.
        let until_ns = clock.now_ns() + HAND_OVER_NS;
        let is_lacking = |group: &&Group| {
            let mut state = group.state.lock();
            let (me, leader) = (self.replication().me.replica, state.replica().order.leader());
            leader.is_none_or(|leader| leader == me)
        };
        while handed.iter().any(is_lacking) && clock.now_ns() < until_ns {
            clock.sleep(HAND_OVER_LOOK_NS).await;
        }
        for group in self.states() {
            let mut state = group.state.lock();
            state.replica().order.resign();
            self.carry_out(&mut state);
        }
    }

    /// True if another brick is connected.
    pub(super) fn is_there(&self, brick: BrickId) -> bool {
        self.replication().peers().is_some_and(|peers| peers.is_connected(PeerId(brick.0)))
    }
    /// True if another brick is connected and lacks nothing: it may lead, perhaps once its process has run for some time.
    pub(super) fn may_soon_lead(&self, brick: BrickId) -> bool {
        self.is_there(brick) && !self.heals(brick)
    }
    /// True if a brick's process has just begun, as far as this one knows.
    fn has_just_begun(&self, brick: BrickId) -> bool {
        self.replication().supports.lock().is_new(brick, self.store().runtime.clock.now_ns())
    }

    /// The state has all that was committed in the terms before: the tenure begins, unless it is over already.
    pub(crate) fn begin_tenure(&self, number: GroupId, term: Term) {
        let mut state = self.state(number).state.lock();
        if state.replica().serves == Some(term) {
            self.tenure(number).begin();
        }
    }
    /// Ends the service of a group: what waits for a commit is told that this brick can't say.
    pub(crate) fn end_service(&self, state: &mut State) {
        state.replica().serves = None;
        // Those who lead from now on are told anew what clients have open.
        state.known.end_all();
        state.across.running.clear();
        self.tenure(state.group).end();
        let group = self.state(state.group);
        [&group.committed, &group.ranges].into_iter().for_each(Event::notify);
    }

    /// The brick that leads each of the groups, and what came before; none of a brick without replicas.
    pub fn led(&self) -> Vec<(GroupId, Led)> {
        let Some(replication) = &self.replication else { return Vec::new() };
        let led = replication.tenures.led.lock();
        self.numbers().zip(led.iter().copied()).collect()
    }
    /// Looks who leads a group. False if it serves nobody, as far as this brick can tell.
    pub(super) fn look_who_leads(&self, group: &Group, now: u64) -> bool {
        let look = self.leader_seen(group, now);
        let led = &mut self.replication().tenures.led.lock()[self.position(group.number)];
        led.look(look);
        !led.is_without
    }
    /// The leader of a group, as this brick sees it now.
    fn leader_seen(&self, group: &Group, now: u64) -> Look {
        let replication = self.replication();
        let (lacks, term, leader) = {
            let mut state = group.state.lock();
            let lacks = self.at_this_moment(&mut state, |order, moment| order.lacks_leader(moment));
            let order = &state.replica().order;
            (lacks, order.term(), order.leader())
        };
        let found = replication.members.iter().copied().find(|member| Some(member.replica) == leader);
        let (serves, asked_ns) = match found {
            Some(leader) if leader.brick == replication.me.brick => {
                (self.tenure(group.number).number().is_some(), None)
            }
            Some(leader) => {
                let is_there = self.is_there(leader.brick);
                (is_there && !lacks, replication.supports.lock().asked_ns(leader.brick, now))
            }
            None => (false, None),
        };
        Look { at_ns: now, leader: found.map(|leader| (leader.brick, term)), serves, asked_ns }
    }
}
