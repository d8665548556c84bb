//! The end of a change of several groups: each takes its part, and the deciding group forgets the change once all have.

use crate::order::held::{GroupSet, Held};
use crate::order::record::Record;
use crate::replica::across::Across;
use crate::state::State;
use crate::state::across::Decided;
use crate::state::load::{Wanted, rests_on};
use crate::{Group, Groups};
use base::{Edit, GroupId, IntentId, Kind, Result, Sync, VolumeId};
use names::{Part, Seen};
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
                if hold.asked_ns > 0 && now >= hold.asked_ns + FATE_NS {
                    fates.push(*id);
                }
                if hold.asked_ns == 0 || now >= hold.asked_ns + FATE_NS {
                    hold.asked_ns = now;
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
        let part = Part { volume, group: group.number, edits };
        let record = loop {
            let segment = self.store().log.segment_came.ticket();
            let missing = {
                let mut held = Held::new(self, &GroupSet::one(group.number));
                let state = held.of(group.number);
                let term = state.replica().serves()?;
                if !self.has_lease(state) {
                    return Err(crate::replica::elsewhere());
                }
                if !state.across.holds.contains_key(&id) && !active(Bug::PartTwice) {
                    // It has it already.
                    break (term, state.row.applied);
                }
                let rests = part.edits.iter().filter_map(rests_on);
                let missing = rests.filter(|ino| matches!(state.inode(volume, *ino), Seen::Missing));
                let missing: Vec<_> = missing.map(Wanted::Inode).collect();
                if missing.is_empty() {
                    match self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered) {
                        Err(error) if error.kind == Kind::Busy => {}
                        ordered => {
                            ordered?;
                            let index = held.of(group.number).row.applied;
                            self.end_closed(held.of(group.number), &part);
                            drop(held);
                            group.ranges.notify();
                            break (term, index);
                        }
                    }
                }
                missing
            };
            match missing.is_empty() {
                true => self.wait_for_segment(segment).await?,
                false => self.load(volume, missing, None).await?,
            }
        };
        self.replicated(group.number, record).await.map(drop)
    }

    /// Has the files freed that have lost their last name and were closed since it was decided that they live on.
    fn end_closed(&self, state: &mut State, part: &Part) {
        let closed = part.edits.iter().filter_map(|edit| match edit {
            Edit::OrphanPut { ino } if state.holds(part.volume, *ino) == 0 => Some((part.volume, *ino)),
            _ => None,
        });
        self.forgotten.lock().extend(closed);
        self.forgotten_came.notify();
    }

    /// A group has its part; once all have theirs, the change is forgotten. Errors: those of the log, and `Elsewhere`.
    pub(super) async fn part_taken(&self, group: &Group, id: IntentId, of: GroupId) -> Result<()> {
        loop {
            let segment = self.store().log.segment_came.ticket();
            {
                let mut held = Held::new(self, &GroupSet::one(group.number));
                let state = held.of(group.number);
                state.replica().serves()?;
                let Some(decided) = state.across.decided.get_mut(&id) else { return Ok(()) };
                assert!(of != group.number, "the deciding group's part is the decision");
                decided.left.remove(&of);
                if !decided.left.is_empty() {
                    return Ok(());
                }
                let part = Part { volume: VolumeId(0), group: group.number, edits: vec![Edit::IntentDrop { id }] };
                match self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered) {
                    Err(error) if error.kind == Kind::Busy => {}
                    ordered => return ordered.map(drop),
                }
            }
            self.wait_for_segment(segment).await?;
        }
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
