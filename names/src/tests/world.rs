//! All groups and volumes in plain maps. Apply is strict here: what a blind apply would swallow is a failed test.

use crate::{Caller, Decision, Entry, Need, Part, Seen, Stop, View, apply_inode, evaluate};
use base::{Edit, GroupId, Ino, Inode, Intent, IntentId, Name, Op, Time, Volume, VolumeId, Xattrs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Numbers given out so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Numbers {
    pub(super) inos: u64,
    pub(super) cookies: u64,
    pub(super) intents: u64,
    pub(super) volumes: u64,
}

#[derive(Default)]
pub(super) struct World {
    pub(super) clock: i64,
    pub(super) groups: u32,
    /// The group in which the next directories are created; None: they spread by number.
    pub(super) spread: Option<GroupId>,
    pub(super) volume: VolumeId,
    pub(super) numbers: Numbers,
    pub(super) volumes: BTreeMap<Name, Volume>,
    pub(super) inodes: BTreeMap<(VolumeId, Ino), Inode>,
    pub(super) entries: BTreeMap<(VolumeId, Ino, Name), Entry>,
    pub(super) cookies: BTreeMap<(VolumeId, Ino, u64), Name>,
    pub(super) targets: BTreeMap<(VolumeId, Ino), Box<[u8]>>,
    pub(super) xattrs: BTreeMap<(VolumeId, Ino), Xattrs>,
    pub(super) orphans: BTreeSet<(VolumeId, Ino)>,
    pub(super) opens: BTreeMap<Ino, u64>,
    pub(super) intents: BTreeMap<IntentId, Intent>,
    pub(super) followed: BTreeSet<(VolumeId, GroupId, IntentId)>,
}

/// The part of the world that is loaded; nothing else is seen.
#[derive(Default)]
pub(super) struct Loaded {
    groups: BTreeSet<GroupId>,
    inodes: BTreeSet<Ino>,
    entries: BTreeSet<(Ino, Name)>,
    targets: BTreeSet<Ino>,
    xattrs: BTreeSet<Ino>,
    volumes: BTreeSet<Name>,
}

/// The world, wholly visible or as far as loaded.
pub(super) struct Eyes<'a> {
    pub(super) world: &'a mut World,
    pub(super) loaded: Option<Loaded>,
}

impl Eyes<'_> {
    fn at_hand(&self, group: GroupId) -> Result<(), Need> {
        match &self.loaded {
            Some(loaded) if !loaded.groups.contains(&group) => Err(Need::Group(group)),
            _ => Ok(()),
        }
    }
    fn see<T>(&self, group: GroupId, loaded: impl Fn(&Loaded) -> bool, value: Option<T>) -> Seen<T> {
        match &self.loaded {
            Some(all) if !all.groups.contains(&group) => Seen::Elsewhere(group),
            Some(all) if !loaded(all) => Seen::Missing,
            _ => Seen::Known(value),
        }
    }
}

impl Loaded {
    /// Fetches what was asked for; asking twice for the same would never end.
    fn load(&mut self, need: &Need) {
        let new = match need.clone() {
            Need::Group(group) => self.groups.insert(group),
            Need::Inode(ino) => self.inodes.insert(ino),
            Need::Entry(dir, name) => self.entries.insert((dir, name)),
            Need::Target(ino) => self.targets.insert(ino),
            Need::Xattrs(ino) => self.xattrs.insert(ino),
            Need::Volume(name) => self.volumes.insert(name),
            Need::Numbers => unreachable!("this world has all numbers"),
        };
        assert!(new, "asked twice for {need:?}");
    }
}

impl View for Eyes<'_> {
    fn inode(&mut self, ino: Ino) -> Seen<Inode> {
        let value = self.world.inodes.get(&(self.world.volume, ino)).copied();
        self.see(ino.group(), |loaded| loaded.inodes.contains(&ino), value)
    }
    fn entry(&mut self, dir: Ino, name: &Name) -> Seen<Entry> {
        let value = self.world.entries.get(&(self.world.volume, dir, name.clone())).copied();
        self.see(dir.group(), |loaded| loaded.entries.contains(&(dir, name.clone())), value)
    }
    fn target(&mut self, ino: Ino) -> Seen<Box<[u8]>> {
        let value = self.world.targets.get(&(self.world.volume, ino)).cloned();
        self.see(ino.group(), |loaded| loaded.targets.contains(&ino), value)
    }
    fn xattrs(&mut self, ino: Ino) -> Seen<Arc<Xattrs>> {
        assert!(self.world.inode(ino).is_some_and(|inode| inode.xattrs.are_stored()), "asked of one that has none");
        let value = self.world.xattrs.get(&(self.world.volume, ino)).cloned().map(Arc::new);
        self.see(ino.group(), |loaded| loaded.xattrs.contains(&ino), value)
    }
    fn volume(&mut self, name: &Name) -> Seen<Volume> {
        let value = self.world.volumes.get(name).cloned();
        self.see(GroupId(0), |loaded| loaded.volumes.contains(name), value)
    }
    fn fresh_ino(&mut self, group: GroupId) -> Result<Ino, Need> {
        self.at_hand(group)?;
        self.world.numbers.inos += 1;
        Ok(Ino::new(self.world.numbers.inos, group))
    }
    fn fresh_cookie(&mut self, dir: Ino) -> Result<u64, Need> {
        self.at_hand(dir.group())?;
        self.world.numbers.cookies += 1;
        Ok(self.world.numbers.cookies)
    }
    fn fresh_intent(&mut self, group: GroupId) -> Result<IntentId, Need> {
        self.at_hand(group)?;
        self.world.numbers.intents += 1;
        Ok(IntentId { group, number: self.world.numbers.intents })
    }
    fn fresh_volume(&mut self) -> Result<VolumeId, Need> {
        self.at_hand(GroupId(0))?;
        self.world.numbers.volumes += 1;
        Ok(VolumeId(self.world.numbers.volumes as u32))
    }
    fn opens(&mut self, ino: Ino) -> Result<u64, Need> {
        self.at_hand(ino.group())?;
        Ok(self.world.opens.get(&ino).copied().unwrap_or(0))
    }
    fn spread(&mut self, parent: Ino) -> GroupId {
        let next = (parent.0 ^ self.world.numbers.inos).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.world.spread.unwrap_or(GroupId(next as u32 % self.world.groups))
    }
    fn now(&self) -> Time {
        Time(self.world.clock)
    }
}

impl World {
    /// A world with one volume, made by the operation that makes volumes.
    pub(super) fn new(groups: u32) -> (World, Ino) {
        let mut world = World { groups, clock: 1000, ..World::default() };
        let name = Name::new(b"main").expect("a good name");
        let caller = Caller { volume: VolumeId(0), uid: 0, gid: 0, umask: 0 };
        let decision = world
            .decide(&Op::VolumeCreate { name: name.clone(), size_bytes: None }, &caller)
            .expect("the first volume");
        world.apply_all(&decision.parts);
        world.volume = world.volumes[&name].id;
        let root = world.volumes[&name].root;
        (world, root)
    }

    /// Evaluates with everything in sight.
    pub(super) fn decide(&mut self, op: &Op, caller: &Caller) -> Result<Decision, Stop> {
        evaluate(op, caller, &mut Eyes { world: self, loaded: None })
    }

    /// Evaluates from nothing in sight, loading what is asked for; no number may be taken before the end.
    pub(super) fn decide_by_needs(&mut self, op: &Op, caller: &Caller) -> (Result<Decision, Stop>, Vec<Need>) {
        let before = self.numbers;
        let mut needs = Vec::new();
        let mut loaded = Loaded::default();
        loop {
            let mut eyes = Eyes { world: self, loaded: Some(loaded) };
            let result = evaluate(op, caller, &mut eyes);
            loaded = eyes.loaded.take().expect("put there above");
            match result {
                Err(Stop::Need(need)) => {
                    assert_eq!(self.numbers, before, "a need wasted a number: {op:?}");
                    loaded.load(&need);
                    needs.push(need);
                }
                done => return (done, needs),
            }
        }
    }

    /// Applies every part, then ends the intent as the group does when all have followed.
    pub(super) fn apply_all(&mut self, parts: &[Part]) {
        parts.iter().for_each(|part| self.apply(part));
        self.finish_intents();
    }

    /// Applies the first parts only, then recovers: followers that lack their mark redo what the intent says.
    pub(super) fn apply_crashed(&mut self, parts: &[Part], kept: usize) {
        assert!(kept > 0, "the deciding record was not written: nothing happened");
        parts[..kept].iter().for_each(|part| self.apply(part));
        let intents: Vec<Intent> = self.intents.values().cloned().collect();
        for Intent { id, follow } in intents {
            for follow in follow {
                if !self.followed.contains(&(follow.volume, follow.group, id)) {
                    let mut edits = follow.edits;
                    edits.push(Edit::FollowedPut { id });
                    self.apply(&Part { volume: follow.volume, group: follow.group, edits });
                }
            }
        }
        self.finish_intents();
    }

    /// Every intent must be followed by exactly the groups that it names.
    fn finish_intents(&mut self) {
        for (id, intent) in std::mem::take(&mut self.intents) {
            for follow in &intent.follow {
                assert!(self.followed.remove(&(follow.volume, follow.group, id)), "not followed: {intent:?}");
            }
        }
        assert!(self.followed.is_empty(), "marks without an intent");
    }

    fn apply(&mut self, part: &Part) {
        for edit in &part.edits {
            self.apply_edit(part, edit);
        }
    }

    fn apply_edit(&mut self, part: &Part, edit: &Edit) {
        let volume = part.volume;
        match edit {
            Edit::InodePut { ino, .. }
            | Edit::InodeTouch { ino, .. }
            | Edit::InodeParent { ino, .. }
            | Edit::InodeProject { ino, .. }
            | Edit::InodeExtend { ino, .. }
            | Edit::InodeCut { ino, .. }
            | Edit::Punch { ino, .. }
            | Edit::InodeDrop { ino } => self.apply_to_inode(part, *ino, edit),
            Edit::OrphanPut { ino } => assert!(self.orphans.insert((volume, *ino))),
            Edit::OrphanDrop { ino } => assert!(self.orphans.remove(&(volume, *ino))),
            Edit::EntryPut { dir, name, ino, kind, cookie } => {
                assert_eq!(dir.group(), part.group);
                let entry = Entry { ino: *ino, kind: *kind, cookie: *cookie };
                let old = self.entries.insert((volume, *dir, name.clone()), entry);
                let old_name = self.cookies.insert((volume, *dir, *cookie), name.clone());
                assert_eq!(old.map(|old| old.cookie), old_name.map(|_| *cookie), "a cookie was reused");
            }
            Edit::EntryDrop { dir, name, cookie } => {
                assert_eq!(dir.group(), part.group);
                let old = self.entries.remove(&(volume, *dir, name.clone())).expect("drops what is there");
                assert_eq!(old.cookie, *cookie);
                assert_eq!(self.cookies.remove(&(volume, *dir, *cookie)), Some(name.clone()));
            }
            Edit::TargetPut { ino, target } => {
                assert_eq!(ino.group(), part.group);
                assert!(self.targets.insert((volume, *ino), target.clone()).is_none());
            }
            Edit::XattrPut { ino, name, value } => {
                assert_eq!(ino.group(), part.group);
                self.xattrs.entry((volume, *ino)).or_default().insert(name.clone(), value.clone());
            }
            Edit::XattrDrop { ino, name } => {
                let all = self.xattrs.get_mut(&(volume, *ino)).expect("it has attributes");
                all.remove(name).expect("drops what is there");
                if all.is_empty() {
                    self.xattrs.remove(&(volume, *ino));
                }
            }
            Edit::IntentPut(intent) => {
                assert_eq!(intent.id.group, part.group);
                assert!(self.intents.insert(intent.id, intent.clone()).is_none());
            }
            Edit::FollowedPut { id } => assert!(self.followed.insert((volume, part.group, *id))),
            Edit::VolumePut(new) => {
                assert_eq!((volume, part.group), (VolumeId(0), GroupId(0)));
                assert!(self.volumes.insert(new.name.clone(), new.clone()).is_none());
            }
            Edit::VolumeChange { name, volume: changed } => {
                assert_eq!((volume, part.group), (VolumeId(0), GroupId(0)));
                let before = self.volumes.remove(name).expect("changes what is there");
                assert_eq!((before.id, before.root), (changed.id, changed.root));
                assert!(self.volumes.insert(changed.name.clone(), changed.clone()).is_none());
            }
            Edit::VolumeDrop { id } => self.volumes.retain(|_, old| old.id != *id),
            _ => panic!("not an edit of names: {edit:?}"),
        }
    }

    /// Every change of an inode moves its change time (rule M6), except what says nothing about it.
    fn apply_to_inode(&mut self, part: &Part, ino: Ino, edit: &Edit) {
        assert_eq!(ino.group(), part.group, "an edit in the wrong group: {edit:?}");
        let key = (part.volume, ino);
        let old = self.inodes.get(&key).copied();
        let creates = matches!(edit, Edit::InodePut { .. });
        assert!(old.is_some() || creates, "an edit of nothing: {edit:?}");
        match apply_inode(old, edit) {
            Some(new) => {
                let timeless = matches!(edit, Edit::InodeParent { .. } | Edit::InodeProject { .. });
                // A put that follows a cut of the same record speaks for the record: the cut has ticked.
                let again = creates && part.edits.iter().any(|edit| matches!(edit, Edit::InodeCut { .. }));
                let ticked = again || old.is_none_or(|old| new.ctime > old.ctime);
                assert!(timeless || ticked, "{edit:?} leaves the change time");
                self.inodes.insert(key, new);
            }
            None => {
                self.inodes.remove(&key);
                self.targets.remove(&key);
                self.xattrs.remove(&key);
            }
        }
    }

    /// The last release of an orphan, as the group orders it.
    pub(super) fn release(&mut self, ino: Ino) {
        let count = self.opens.get_mut(&ino).expect("is open");
        *count -= 1;
        if *count == 0 {
            self.opens.remove(&ino);
            if self.orphans.contains(&(self.volume, ino)) {
                let edits = vec![Edit::InodeDrop { ino }, Edit::OrphanDrop { ino }];
                self.apply(&Part { volume: self.volume, group: ino.group(), edits });
            }
        }
    }

    pub(super) fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&(self.volume, ino))
    }

    pub(super) fn entries_of(&self, dir: Ino) -> impl Iterator<Item = (&Name, &Entry)> {
        let volume = self.volume;
        let from = (volume, dir, Name::new(b"\x01").expect("the least name"));
        self.entries.range(from..).take_while(move |(key, _)| key.1 == dir).map(|(key, entry)| (&key.2, entry))
    }
}
