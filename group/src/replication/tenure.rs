//! Tenures: the times in which this brick leads a group, and serves clients of that. A tenure is to clients what a start of the process is
//! where a brick has its groups alone: sessions go on, and until each has told what it has open, nothing is freed (rule P11).
//!
//! A tenure ends when another brick may lead, be it that nobody does: who has lost its lease can't answer, and clients look elsewhere
//! (rule P4).

use crate::led::{Led, Look};
use crate::state::State;
use crate::{Groups, Scope};
use base::{GroupId, Result, SessionId, Term};
use runtime::{Event, Lock};

/// The longest time for which a brick that ends waits until another one leads. An election takes two round trips and two writes.
const HAND_OVER_NS: u64 = 1_000_000_000;
/// The pause between looks.
const HAND_OVER_LOOK_NS: u64 = 2_000_000;

/// The present tenures.
pub(crate) struct Tenures {
    /// The tenures, by the groups' positions.
    groups: Vec<Tenure>,
    led: Lock<Led>,
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
        Tenures { groups: (0..groups).map(tenure).collect(), led: Lock::new("led", Led::default()) }
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
    /// out by themselves.
    pub async fn hand_over(&self) {
        for group in self.states() {
            let mut state = group.state.lock();
            let Some(heir) = state.replica().order.heir(|brick| !self.heals(brick)) else { continue };
            if state.replica().serves.is_some() {
                self.end_service(&mut state);
            }
            if state.replica().order.transfer(heir).is_ok() {
                self.carry_out(&mut state);
            }
        }
        let clock = &self.store().runtime.clock;
        let until_ns = clock.now_ns() + HAND_OVER_NS;
        let leads = |group: &crate::Group| group.state.lock().replica().order.is_leader();
        while self.states().iter().any(leads) && clock.now_ns() < until_ns {
            clock.sleep(HAND_OVER_LOOK_NS).await;
        }
        for group in self.states() {
            let mut state = group.state.lock();
            state.replica().order.resign();
            self.carry_out(&mut state);
        }
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

    /// The brick that leads the first one of this one's groups, and what came before; None of a brick without replicas.
    pub fn led(&self) -> Option<Led> {
        Some(*self.replication.as_ref()?.tenures.led.lock())
    }
    /// Looks who leads the first group.
    pub(super) fn look_who_leads(&self, now: u64) {
        let (replication, Some(group)) = (self.replication(), self.states().first()) else { return };
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
                let is_there = self.reach(leader.brick).is_some_and(|reach| reach.is_connected);
                (is_there && !lacks, replication.supports.lock().asked_ns(leader.brick, now))
            }
            None => (false, None),
        };
        let leader = found.map(|leader| (leader.brick, term));
        replication.tenures.led.lock().look(Look { at_ns: now, leader, serves, asked_ns });
    }
}
