//! The replica's vote, who gets it, and a leader's lease (rules P4 and P17).
//!
//! A follower that acknowledges a leader's term while its brick supports the leader's is bound to it as long as that support lasts
//! without a break. It neither votes nor campaigns then, whatever terms it has heard of since. So as long as a leader counts a majority
//! of such followers, nobody else is elected, and it may answer reads alone.

use crate::order::{Followed, Moment, Order};
use base::seeded::{self, Bug};
use base::{ReplicaId, Term};

impl Order {
    /// True if the replica may answer a candidate's request for its vote in `term`. A leader that has its lease does not either:
    /// the candidate has only not heard of it.
    pub(crate) fn may_answer(&mut self, from: ReplicaId, term: Term, released: bool, moment: Moment<'_>) -> bool {
        if moment.supports.is_silent(moment.now) {
            return false;
        }
        if self.has_lease(moment) && !seeded::active(Bug::VoteAgainstSupported) {
            self.reconnected(from);
            self.collect();
            return false;
        }
        let Some(bound) = self.bound(moment) else { return true };
        if released && term.0 == bound.term.0 + 1 {
            // The leader serves no read any more in its term.
            self.followed = None;
        }
        self.followed.is_none() || bound.leader == from
    }
    /// True if the replica may campaign because its leader asks it to.
    pub(crate) fn may_succeed(&mut self, from: ReplicaId, term: Term, moment: Moment<'_>) -> bool {
        let is_leaders = self.followed.is_some_and(|to| to.leader == from && to.term == term);
        let may = is_leaders && !moment.supports.is_silent(moment.now);
        if may {
            self.followed = None;
        }
        may
    }
    /// True if an election is called for: the replica does not lead, and is not bound to who does. That it knows a leader whose brick
    /// it supports is not enough: that brick may have been started anew, and the leader with it; and others may have
    /// committed what it has lost, so that it can't be elected again. A leader that is well answers by an append.
    pub fn lacks_leader(&self, moment: Moment<'_>) -> bool {
        !self.is_leader() && self.is_free(moment)
    }
    /// True if nobody has a promise that this replica will not campaign.
    pub(crate) fn is_free(&self, moment: Moment<'_>) -> bool {
        !moment.supports.is_silent(moment.now) && self.bound(moment).is_none()
    }
    /// The leader whose lease may count on this replica.
    fn bound(&self, moment: Moment<'_>) -> Option<Followed> {
        let stands = |to: &Followed| {
            let spell = moment.supports.given(self.brick(to.leader), moment.now);
            spell.is_some() && spell == to.spell
        };
        // A seeded bug forgets the leader with its term.
        let forgets = |to: &Followed| seeded::active(Bug::BondEndsWithTerm) && to.term < self.term();
        self.followed.filter(|to| stands(to) && !forgets(to) && !seeded::active(Bug::VoteAgainstSupported))
    }
    /// True if this replica leads and nobody else can, so that what it has committed is all that is: bricks of a majority of
    /// the voters support its brick, and acknowledged its term in the same spells. A leader that has committed nothing
    /// yet in its term may not know all that was committed before.
    pub fn has_lease(&self, moment: Moment<'_>) -> bool {
        let serves = self.is_leader() && self.raw.raft.commit_to_current_term();
        let is_released = self.released == Some(self.term()) && !seeded::active(Bug::LeaseKeptInTransfer);
        if !serves || is_released {
            return false;
        }
        let counts = |(at, member): (usize, &crate::order::Member)| {
            let had = moment.supports.had(member.brick, moment.now);
            let any_spell = seeded::active(Bug::AnySpellCounts) && self.heard(at).spell.is_some();
            had.is_some() && (had == self.heard(at).spell || any_spell)
        };
        let supporters = self.others.iter().enumerate().filter(|other| counts(*other)).count();
        // The leader's own brick is one of them.
        2 * (supporters + 1) > self.others.len() + 1
    }
}
