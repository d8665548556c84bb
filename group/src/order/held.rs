//! The locks of the groups that one evaluation needs, taken in ascending order, and the `View` through which `evaluate`
//! reads these groups. Nothing awaits while the locks are held: missing rows are loaded after they were released, then
//! `evaluate` runs again.

use crate::order::fetched::Fetched;
use crate::replica::across::Want;
use crate::state::State;
use crate::{CATALOGUE, Groups, Spread};
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

/// The view of one volume through the held groups, and through what was fetched of others.
pub struct HeldView<'h, 'a> {
    /// The groups.
    pub held: &'h mut Held<'a>,
    /// The volume.
    pub volume: VolumeId,
    /// The session that asks.
    pub session: SessionId,
    /// The wall clock.
    pub now: Time,
    /// The place of a new directory.
    pub spread: Spread,
    /// The inode that was seen last and the number of blocks in its row, if the overlay has no change of the inode.
    pub counted: Option<(Ino, u64)>,
    /// The part of other groups as it was fetched; None where all groups share one log, and are held.
    pub fetched: Option<&'h Fetched>,
    /// The first thing of another group that is wanted and was not fetched.
    pub wanted: Option<(GroupId, Want)>,
    /// True if something that was looked at is held for another change: then the answer is `Missing`.
    pub barred: bool,
}

impl<'h, 'a> HeldView<'h, 'a> {
    /// The view of a volume for a session, through these groups.
    pub fn new(
        held: &'h mut Held<'a>,
        (volume, session): (VolumeId, SessionId),
        (now, spread): (Time, Spread),
        fetched: Option<&'h Fetched>,
    ) -> HeldView<'h, 'a> {
        HeldView { held, volume, session, now, spread, counted: None, fetched, wanted: None, barred: false }
    }
    /// A value of a group that is held.
    #[inline]
    fn see<T>(&mut self, group: GroupId, with: impl FnOnce(&mut State, VolumeId) -> Seen<T>) -> Seen<T> {
        let volume = self.volume;
        match self.held.get(group) {
            Some(state) => with(state, volume),
            None => Seen::Elsewhere(group),
        }
    }
    /// A value of the group of `ino` where groups have orders of their own: from its state if that is held, else as it was fetched.
    #[cold]
    fn see_across<T>(
        &mut self,
        ino: Ino,
        here: impl FnOnce(&mut State, VolumeId) -> Seen<T>,
        fetched: impl FnOnce(&Fetched) -> Option<Option<T>>,
        want: impl FnOnce() -> Want,
    ) -> Seen<T> {
        let (volume, group) = (self.volume, ino.group());
        if let Some(state) = self.held.get(group) {
            if self.fetched.is_some_and(|fetched| state.across.bars(volume, ino, fetched.id)) {
                self.barred = true;
                return Seen::Missing;
            }
            return here(state, volume);
        }
        match self.fetched.and_then(fetched) {
            Some(value) => Seen::Known(value),
            None => {
                self.want(group, want);
                Seen::Elsewhere(group)
            }
        }
    }
    fn want(&mut self, group: GroupId, want: impl FnOnce() -> Want) {
        if self.fetched.is_some() && self.wanted.is_none() {
            self.wanted = Some((group, want()));
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
        if self.fetched.is_some() {
            let mut of_row = None;
            let here = |state: &mut State, volume| {
                let (seen, counted) = state.counted_inode(volume, ino);
                of_row = counted;
                seen
            };
            let seen = self.see_across(ino, here, |fetched| fetched.inode(ino), || Want::Inode(ino));
            self.counted = of_row.map(|blocks| (ino, blocks));
            return seen;
        }
        let volume = self.volume;
        let Some(state) = self.held.get(ino.group()) else { return Seen::Elsewhere(ino.group()) };
        let (seen, counted) = state.counted_inode(volume, ino);
        self.counted = counted.map(|blocks| (ino, blocks));
        seen
    }
    fn entry(&mut self, dir: Ino, name: &Name) -> Seen<Entry> {
        let here = |state: &mut State, volume| state.entry(volume, dir, name);
        match self.fetched {
            None => self.see(dir.group(), here),
            Some(_) => {
                self.see_across(dir, here, |fetched| fetched.entry(dir, name), || Want::Entry(dir, name.clone()))
            }
        }
    }
    fn target(&mut self, ino: Ino) -> Seen<Box<[u8]>> {
        let here = |state: &mut State, volume| state.target(volume, ino);
        match self.fetched {
            None => self.see(ino.group(), here),
            Some(_) => self.see_across(ino, here, |_| None, || Want::Inode(ino)),
        }
    }
    fn xattrs(&mut self, ino: Ino) -> Seen<Arc<Xattrs>> {
        let here = |state: &mut State, volume| state.xattrs(volume, ino);
        match self.fetched {
            None => self.see(ino.group(), here),
            Some(_) => self.see_across(ino, here, |fetched| fetched.xattrs(ino), || Want::Xattrs(ino)),
        }
    }
    fn volume(&mut self, name: &Name) -> Seen<Volume> {
        self.see(CATALOGUE, |state, _| state.volume(name))
    }
    fn fresh_ino(&mut self, group: GroupId) -> Result<Ino, Need> {
        if let Some(fetched) = self.fetched {
            if let Some(ino) = fetched.fresh(group) {
                return Ok(ino);
            }
            if self.held.get(group).is_none() {
                self.want(group, || Want::Fresh);
            }
        }
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
        // Whoever has fetched something to change it has a number by which the others know the change.
        if let Some(id) = self.fetched.and_then(|fetched| fetched.id) {
            return Ok(id);
        }
        let state = self.fresh(group)?;
        state.row.next_intent += 1;
        state.check_granted();
        Ok(IntentId { group, number: state.row.next_intent - 1 })
    }
    fn fresh_volume(&mut self) -> Result<VolumeId, Need> {
        let state = self.at_hand(CATALOGUE)?;
        state.row.next_volume += 1;
        Ok(VolumeId(state.row.next_volume - 1))
    }
    fn opens(&mut self, ino: Ino) -> Result<u64, Need> {
        if let Some(fetched) = self.fetched {
            if let Some(opens) = fetched.opens(ino) {
                return Ok(opens);
            }
            if self.held.get(ino.group()).is_none() {
                self.want(ino.group(), || Want::Opens(ino));
            }
        }
        let (volume, session) = (self.volume, self.session);
        Ok(self.at_hand(ino.group())?.holds_for((volume, session), ino))
    }
    fn spread(&mut self, parent: Ino) -> GroupId {
        let Spread { group, stays } = self.spread;
        if !stays {
            return group;
        }
        let is_root = matches!(self.inode(parent), Seen::Known(Some(inode)) if inode.parent == parent);
        if is_root { group } else { parent.group() }
    }
    fn now(&self) -> Time {
        self.now
    }
}
