//! The homes of groups, where bricks have several. A group's home is the brick whose turn to campaign comes first. Another brick that leads it hands the lead to
//! its home once that has been in step for some time: so all bricks lead some groups again after one was away.
//!
//! Absent by design: a home that follows what clients do, or how full bricks are.

use crate::replica::Homecoming;
use crate::{Group, Groups};
use base::GroupId;
use order_raft::Member;

/// The time for which a home is in step, and all clients are there, before it is given the lead. It doubles with each time, so that a brick
/// which comes and goes is given it less and less often. It is longer than a client may be silent unnoticed (`wire::server::LEASE_NS`): the
/// clients of a tenure that begins wait for those that don't come, as long.
const IN_STEP_NS: u64 = 12_000_000_000;
const DOUBLED_MAX: u32 = 6;
/// Records that a home may lack then: they are on their way.
const LACKS_MAX: u64 = 256;
/// The longest time for the home to take the lead: two round trips and two writes. Then whoever had it gives it up, and all may campaign.
const TAKES_NS: u64 = 1_000_000_000;

impl Groups {
    /// The brick that is to lead a group if it can.
    pub fn home(&self, group: GroupId) -> Member {
        let members = &self.replication().members;
        // The one whose number and the group's add up to a round.
        let count = members.len();
        members[(count - group.0 as usize % count) % count]
    }

    /// Hands the lead of a group to its home, if it is time.
    pub(super) fn look_home(&self, group: &Group, now: u64) {
        let home = self.home(group.number);
        if home.brick == self.replication().me.brick {
            return;
        }
        let may_lead = self.may_soon_lead(home.brick);
        let mut state = group.state.lock();
        let replica = state.replica();
        let leads = replica.order.is_leader();
        if let Some(until_ns) = replica.homecoming.takes_until_ns {
            if !leads || now >= until_ns {
                replica.homecoming.takes_until_ns = None;
                replica.order.resign();
                self.carry_out(&mut state);
            }
            return;
        }
        let lacks = replica.order.last().index.0.saturating_sub(replica.order.matched(home.replica).0);
        if !may_lead || !leads || !self.clients_are_there(group.number) || replica.serves.is_none() || lacks > LACKS_MAX
        {
            replica.homecoming.in_step_ns = None;
            return;
        }
        let Homecoming { in_step_ns, takes_until_ns, times } = &mut replica.homecoming;
        let since_ns = *in_step_ns.get_or_insert(now);
        if now - since_ns < IN_STEP_NS << (*times).min(DOUBLED_MAX) {
            return;
        }
        (*in_step_ns, *takes_until_ns, *times) = (None, Some(now + TAKES_NS), *times + 1);
        self.end_service(&mut state);
        if state.replica().order.transfer(home.replica).is_ok() {
            self.carry_out(&mut state);
        }
    }
}
