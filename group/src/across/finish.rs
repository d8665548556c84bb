//! The end of a change of several groups: each takes its part, and the deciding group forgets the change once all have.

use crate::replica::across::Across;
use crate::replica::elsewhere;
use crate::state::State;
use crate::state::across::Decided;
use crate::{Group, Groups};
use base::{Edit, GroupId, IntentId, Result, VolumeId};
use runtime::seeded::{Bug, active};

/// The time after which a group that has not said that it has its part is told again.
const TELL_NS: u64 = 200_000_000;
/// The time after which a group asks what became of a change for which it holds something, and asks again.
const FATE_NS: u64 = 500_000_000;

impl Groups {
    /// Tells the other groups of a change that was decided and committed, as far as they have not said that they have their parts.
    pub(crate) fn send_parts(&self, deciding: GroupId, id: IntentId) {
        let now = self.store().runtime.clock.now_ns();
        let parts: Vec<_> = {
            let mut state = self.state(deciding).state.lock();
            let committed = state.replica().order.committed();
            let Some(decided) = state.across.decided.get_mut(&id) else { return };
            if decided.index > committed && !active(Bug::PartBeforeDecision) {
                return;
            }
            assert!(id.group == deciding && decided.told_ns <= now, "a group tells of its own changes");
            decided.told_ns = now;
            let left = decided.intent.follow.iter().filter(|follow| decided.left.contains(&follow.group));
            left.cloned().collect()
        };
        for follow in parts {
            let across = Across::Part { id, volume: follow.volume, edits: follow.edits };
            self.tell_leader(follow.group, across);
        }
    }

    /// Looks, for a group that this brick leads, for changes that have not come to their end.
    pub(crate) fn look_across(&self, group: &Group, now: u64) {
        let (mut parts, mut fates) = (Vec::new(), Vec::new());
        {
            let mut state = group.state.lock();
            if state.replica().serves().is_err() {
                return;
            }
            let late = |(id, decided): (&IntentId, &Decided)| (now >= decided.told_ns + TELL_NS).then_some(*id);
            parts.extend(state.across.decided.iter().filter_map(late));
            for (id, hold) in &mut state.across.holds {
                if hold.asked_ns == 0 {
                    // Its time begins with this brick's lead.
                    hold.asked_ns = now;
                } else if now >= hold.asked_ns + FATE_NS {
                    hold.asked_ns = now;
                    fates.push(*id);
                }
            }
        }
        parts.into_iter().for_each(|id| self.send_parts(group.number, id));
        for id in fates {
            self.tell_leader(id.group, Across::Fate { id, group: group.number });
        }
    }

    /// Takes this group's part of a change, once. Returns when that is committed. Errors: those of the log, and `Elsewhere`.
    pub(super) async fn take_part(
        &self,
        group: &Group,
        id: IntentId,
        (volume, mut edits): (VolumeId, Vec<Edit>),
    ) -> Result<()> {
        edits.push(Edit::LockDrop { id });
        let mut before = None;
        let wanted = |state: &mut State| {
            let term = state.replica().serves()?;
            if !self.has_lease(state) {
                return Err(elsewhere());
            }
            // Without a hold it has its part already.
            before = Some((term, state.row.applied));
            let holds = state.across.holds.contains_key(&id) || active(Bug::PartTwice);
            Ok(holds.then(|| edits.clone()))
        };
        let taken = self.order_when(group.number, volume, wanted).await?;
        if taken.is_some() {
            group.ranges.notify();
            self.end_closed(&group.state.lock(), volume, &edits);
        }
        let record = taken.or(before).expect("it was looked at");
        self.replicated(group.number, record).await.map(drop)
    }

    /// Has the files freed that have lost their last name and were closed since it was decided that they live on.
    fn end_closed(&self, state: &State, volume: VolumeId, edits: &[Edit]) {
        let closed = edits.iter().filter_map(|edit| match edit {
            Edit::OrphanPut { ino } if state.holds(volume, *ino) == 0 => Some((volume, *ino)),
            _ => None,
        });
        self.forgotten.lock().extend(closed);
        self.forgotten_came.notify();
    }

    /// A group has its part; once all have theirs, the change is forgotten. Errors: those of the log, and `Elsewhere`.
    pub(super) async fn part_taken(&self, group: &Group, id: IntentId, of: GroupId) -> Result<()> {
        let wanted = |state: &mut State| {
            state.replica().serves()?;
            let Some(decided) = state.across.decided.get_mut(&id) else { return Ok(None) };
            decided.left.remove(&of);
            Ok(decided.left.is_empty().then(|| vec![Edit::IntentDrop { id }]))
        };
        self.order_when(group.number, VolumeId(0), wanted).await.map(drop)
    }

    /// Tells a group that holds something for a change what became of it, if that is known.
    pub(super) fn tell_fate(&self, group: &Group, id: IntentId, of: GroupId) {
        let is_decided = {
            let mut state = group.state.lock();
            let knows = state.replica().serves().is_ok() && self.has_lease(&mut state);
            if (!knows && !active(Bug::FateGuessed)) || state.across.running.contains(&id) {
                return;
            }
            state.across.decided.contains_key(&id)
        };
        match is_decided {
            true => self.send_parts(group.number, id),
            false => drop(self.tell_leader(of, Across::Drop(id))),
        }
    }
}
