//! The locks of the groups that one evaluation needs, taken in ascending order, and the `View` through which `evaluate`
//! reads these groups. Nothing awaits while the locks are held: missing rows are loaded after they were released, then
//! `evaluate` runs again.

use crate::Groups;
use crate::state::State;
use base::{GroupId, Ino, Inode, IntentId, Name, SessionId, Time, Volume, VolumeId, Xattrs};
use names::{Entry, Need, Seen, View};
use runtime::lock::Guard;
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// Largest number of groups that one operation locks, except the deletion of a volume, which locks all.
const FEW: usize = 8;

/// A small ascending set of groups.
#[derive(Clone, Debug, Default)]
pub struct GroupSet {
    few: [GroupId; FEW],
    length: usize,
    all: bool,
}

impl GroupSet {
    /// One group.
    pub fn one(group: GroupId) -> GroupSet {
        GroupSet { few: std::array::from_fn(|_| group), length: 1, all: false }
    }
    /// Every group of the brick.
    pub fn all() -> GroupSet {
        GroupSet { all: true, ..GroupSet::default() }
    }
    /// Adds a group.
    pub fn insert(&mut self, group: GroupId) {
        let at = self.few[..self.length].partition_point(|&known| known < group);
        if self.few[..self.length].get(at) != Some(&group) {
            assert!(self.length < FEW, "an operation concerns few groups");
            self.few.copy_within(at..self.length, at + 1);
            self.few[at] = group;
            self.length += 1;
            let set = &self.few[..self.length];
            assert!(set.is_sorted_by(|one, next| one < next), "locks are taken in ascending order: {set:?}");
        }
    }
}

/// Locked groups.
pub struct Held<'a> {
    guards: Vec<Guard<'a, State>>,
    first: Option<Guard<'a, State>>,
}

impl<'a> Held<'a> {
    /// Locks the groups of a set in ascending order.
    pub fn new(groups: &'a Groups, set: &GroupSet) -> Held<'a> {
        if set.all {
            return Held { first: None, guards: groups.states().iter().map(|group| group.state.lock()).collect() };
        }
        let mut guards = set.few[..set.length].iter().map(|&group| groups.state(group).state.lock());
        let first = guards.next();
        // One group is the common case: no list is made for it.
        Held { first, guards: if set.length > 1 { guards.collect() } else { Vec::new() } }
    }
    /// A group's state, if it is held.
    pub fn get(&mut self, group: GroupId) -> Option<&mut State> {
        if self.first.as_ref().is_some_and(|first| first.group == group) {
            return self.first.as_deref_mut();
        }
        self.guards.iter_mut().map(|guard| &mut **guard).find(|state| state.group == group)
    }
    /// A group's state, which evaluate has seen.
    pub fn of(&mut self, group: GroupId) -> &mut State {
        self.get(group).expect("evaluate has seen this group")
    }
}

/// The view of one volume through the held groups.
pub struct HeldView<'h, 'a> {
    /// The groups.
    pub held: &'h mut Held<'a>,
    /// The volume.
    pub volume: VolumeId,
    /// The session that asks.
    pub session: SessionId,
    /// The wall clock.
    pub now: Time,
    /// The group of a new directory.
    pub spread: GroupId,
    /// The inode that was seen last and the number of blocks in its row, if the overlay has no change of the inode.
    pub counted: Option<(Ino, u64)>,
}

impl HeldView<'_, '_> {
    fn see<T>(&mut self, group: GroupId, with: impl FnOnce(&mut State, VolumeId) -> Seen<T>) -> Seen<T> {
        let volume = self.volume;
        match self.held.get(group) {
            Some(state) => with(state, volume),
            None => Seen::Elsewhere(group),
        }
    }
    fn at_hand(&mut self, group: GroupId) -> Result<&mut State, Need> {
        self.held.get(group).ok_or(Need::Group(group))
    }
    /// The state of a group that may give out another number.
    fn fresh(&mut self, group: GroupId) -> Result<&mut State, Need> {
        let state = self.at_hand(group)?;
        if state.is_out_of_numbers() { Err(Need::Numbers) } else { Ok(state) }
    }
}

impl View for HeldView<'_, '_> {
    fn inode(&mut self, ino: Ino) -> Seen<Inode> {
        let volume = self.volume;
        let Some(state) = self.held.get(ino.group()) else { return Seen::Elsewhere(ino.group()) };
        let (seen, counted) = state.counted_inode(volume, ino);
        self.counted = counted.map(|blocks| (ino, blocks));
        seen
    }
    fn entry(&mut self, dir: Ino, name: &Name) -> Seen<Entry> {
        self.see(dir.group(), |state, volume| state.entry(volume, dir, name))
    }
    fn target(&mut self, ino: Ino) -> Seen<Box<[u8]>> {
        self.see(ino.group(), |state, volume| state.target(volume, ino))
    }
    fn xattrs(&mut self, ino: Ino) -> Seen<Arc<Xattrs>> {
        self.see(ino.group(), |state, volume| state.xattrs(volume, ino))
    }
    fn volume(&mut self, name: &Name) -> Seen<Volume> {
        self.see(GroupId(0), |state, _| state.volume(name))
    }
    fn fresh_ino(&mut self, group: GroupId) -> Result<Ino, Need> {
        let state = self.fresh(group)?;
        state.row.next_ino += 1;
        state.check_granted();
        Ok(Ino::new(state.row.next_ino - 1, group))
    }
    fn fresh_cookie(&mut self, dir: Ino) -> Result<u64, Need> {
        let state = self.fresh(dir.group())?;
        if active(Bug::CookieReused) {
            return Ok((state.row.next_cookie - 1).max(3));
        }
        state.row.next_cookie += 1;
        state.check_granted();
        Ok(state.row.next_cookie - 1)
    }
    fn fresh_intent(&mut self, group: GroupId) -> Result<IntentId, Need> {
        let state = self.fresh(group)?;
        state.row.next_intent += 1;
        state.check_granted();
        Ok(IntentId { group, number: state.row.next_intent - 1 })
    }
    fn fresh_volume(&mut self) -> Result<VolumeId, Need> {
        let state = self.at_hand(GroupId(0))?;
        state.row.next_volume += 1;
        Ok(VolumeId(state.row.next_volume - 1))
    }
    fn opens(&mut self, ino: Ino) -> Result<u64, Need> {
        let (volume, session) = (self.volume, self.session);
        Ok(self.at_hand(ino.group())?.holds_for((volume, session), ino))
    }
    fn spread(&mut self, _: Ino) -> GroupId {
        self.spread
    }
    fn now(&self) -> Time {
        self.now
    }
}
