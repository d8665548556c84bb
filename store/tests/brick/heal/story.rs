//! A group's history that several bricks follow, each in its own way: places, and what is left to free, are their own.

use crate::rig::{Brick, GROUP, file, payload};
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::*;
use runtime::random::SplitMix;
use runtime::tasks;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::checkpoint::END;
use store::format::charge;
use store::format::leaf::{Leaf, Slot};
use store::format::values::{GroupRow, SessionRow, TermRow};
use store::purge::{DROPPED, Purges};
use store::reserve::Reserves;
use store::{Change, Count, Cut, FreeLimits, GroupPart, XattrChanges};

/// Blocks that a step writes.
#[derive(Clone, Debug)]
pub struct Data {
    pub volume: VolumeId,
    pub ino: Ino,
    pub project: u32,
    pub first: u64,
    pub blocks: usize,
    /// Says what they hold.
    pub tag: u64,
}

/// A record, as a checkpoint takes it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Changes before those of leaves.
    before: Vec<Change>,
    pub data: Option<Data>,
    after: Vec<Change>,
}

struct Node {
    inode: Inode,
    name: Name,
    cookie: u64,
    /// It has a name.
    named: bool,
}

struct Directory {
    volume: Volume,
    root: Inode,
    nodes: BTreeMap<Ino, Node>,
}

/// The writer of a history.
pub struct Author {
    rng: SplitMix,
    volumes: BTreeMap<VolumeId, Directory>,
    next_ino: u64,
    next_cookie: u64,
    next_volume: u32,
    /// Number of steps; stands for time as well.
    steps: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Author {
    pub fn new(seed: u64) -> Author {
        Author { rng: SplitMix(seed), volumes: BTreeMap::new(), next_ino: 10, next_cookie: 3, next_volume: 1, steps: 0 }
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        self.steps += 1;
        let mut step = Step { before: Vec::new(), data: None, after: Vec::new() };
        if self.volumes.len() < 2 || (self.volumes.len() < 4 && self.rng.one_in(20)) {
            self.make_volume(&mut step);
            return step;
        }
        let all: Vec<_> = self.volumes.keys().copied().collect();
        let volume = all[self.rng.below(all.len() as u64) as usize];
        if self.rng.one_in(40) {
            let gone = self.volumes.remove(&volume).expect("it is there");
            step.after.extend([Change::Volume(gone.volume.name, None), Change::VolumeDrop(volume)]);
            return step;
        }
        let files: Vec<_> = self.volumes[&volume].nodes.keys().copied().collect();
        if files.len() < 3 || self.rng.one_in(8) {
            self.make_file(volume, &mut step);
            return step;
        }
        let ino = files[self.rng.below(files.len() as u64) as usize];
        match self.rng.below(20) {
            0..10 => self.write((volume, ino), &mut step),
            10..12 => self.truncate((volume, ino), &mut step),
            12..14 => self.unlink((volume, ino), &mut step),
            14 => self.attribute((volume, ino), &mut step),
            15 => self.project((volume, ino), &mut step),
            16 => {
                let first = self.rng.below(300);
                let Node { inode, .. } = &self.volumes[&volume].nodes[&ino];
                step.after.push(Change::Reserve(volume, ino, inode.project, first..first + 1 + self.rng.below(40)));
                self.touch((volume, ino), &mut step);
            }
            17 => {
                let row = (!self.rng.one_in(3)).then(SessionRow::default);
                step.after.push(Change::Session(SessionId(self.rng.below(4)), row));
            }
            18 => {
                let id = IntentId { group: GroupId(0), number: self.rng.below(4) };
                step.after.push(Change::Followed(id, self.rng.one_in(2)));
            }
            _ => {
                let first = Index(self.steps);
                step.after.push(Change::Terms(vec![TermRow { term: Term(self.steps), first, start: 1 }]));
            }
        }
        step
    }

    fn make_volume(&mut self, step: &mut Step) {
        let (id, root) = (VolumeId(self.next_volume), file(self.next_ino));
        self.next_volume += 1;
        self.next_ino += 1;
        let created = Time(self.steps as i64);
        let inode = Inode { links: 2, ..Inode::blank(FileKind::Directory, root, root, created) };
        let name = name(&format!("volume{id}"));
        let (policy, limits) = (TierPolicy::default(), Limits::NONE);
        let volume =
            Volume { id, name: name.clone(), root, created, size_bytes: None, layers: Box::default(), policy, limits };
        step.after.extend([
            Change::Volume(name, Some(volume.clone())),
            Change::Inode(id, root, Some(inode)),
            Change::Count(id, 0, Count { inodes: 1, names: 0 }),
        ]);
        self.volumes.insert(id, Directory { volume, root: inode, nodes: BTreeMap::new() });
    }

    /// The root of a volume gets or loses a name.
    fn list(&mut self, volume: VolumeId, more: i64, step: &mut Step) -> Ino {
        let directory = self.volumes.get_mut(&volume).expect("it is there");
        directory.root.entries = directory.root.entries.saturating_add_signed(more);
        directory.root.ctime = Time(self.steps as i64);
        step.after.push(Change::Inode(volume, directory.volume.root, Some(directory.root)));
        directory.volume.root
    }

    fn make_file(&mut self, volume: VolumeId, step: &mut Step) {
        let (ino, cookie, now) = (file(self.next_ino), self.next_cookie, Time(self.steps as i64));
        (self.next_ino, self.next_cookie) = (self.next_ino + 1, self.next_cookie + 1);
        let root = self.list(volume, 1, step);
        let link = self.rng.one_in(4);
        let kind = if link { FileKind::Link } else { FileKind::File };
        let mut inode = Inode { links: 1, ..Inode::blank(kind, ino, root, now) };
        let name = name(&format!("file{}", ino.0));
        let mut names = charge::name(&name);
        if link {
            inode.size = 4;
            names += charge::target(4);
            step.after.push(Change::Target(volume, ino, Some((*b"goal").into())));
        }
        step.after.extend([
            Change::Inode(volume, ino, Some(inode)),
            Change::Entry(volume, root, name.as_bytes().into(), Some((ino, kind, cookie))),
            Change::Cookie(volume, root, cookie, Some((name.clone(), ino, kind))),
            Change::Count(volume, 0, Count { inodes: 1, names: names as i64 }),
        ]);
        let node = Node { inode, name, cookie, named: true };
        self.volumes.get_mut(&volume).expect("it is there").nodes.insert(ino, node);
    }

    fn node(&mut self, (volume, ino): (VolumeId, Ino)) -> &mut Node {
        self.volumes.get_mut(&volume).and_then(|volume| volume.nodes.get_mut(&ino)).expect("it is there")
    }

    fn touch(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        let now = Time(self.steps as i64);
        let node = self.node((volume, ino));
        node.inode.ctime = now;
        step.after.push(Change::Inode(volume, ino, Some(node.inode)));
    }

    fn write(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        if self.node((volume, ino)).inode.kind != FileKind::File {
            return self.touch((volume, ino), step);
        }
        let (first, blocks) = (self.rng.below(300), 1 + self.rng.below(12) as usize);
        let tag = self.rng.next() >> 24;
        let inode = &mut self.node((volume, ino)).inode;
        inode.size = inode.size.max((first + blocks as u64) * BLOCK_BYTES as u64);
        let project = inode.project;
        self.touch((volume, ino), step);
        step.data = Some(Data { volume, ino, project, first, blocks, tag });
    }

    fn truncate(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        let keep = self.rng.below(100);
        let inode = &mut self.node((volume, ino)).inode;
        let size = inode.size.min(keep * BLOCK_BYTES as u64);
        if inode.kind == FileKind::File && size < inode.size {
            (inode.size, inode.trim) = (size, inode.trim + 1);
            let (project, trim) = (inode.project, inode.trim);
            step.before.push(Change::Cut(Cut { volume, ino, project, blocks: keep..END, trim }));
        }
        self.touch((volume, ino), step);
    }

    fn unlink(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        let stays_open = self.rng.one_in(3);
        let node = self.volumes.get_mut(&volume).expect("it is there").nodes.remove(&ino).expect("it is there");
        let Node { mut inode, name, cookie, named } = node;
        let mut count = Count::default();
        if named {
            let root = self.list(volume, -1, step);
            count.names -= charge::name(&name) as i64;
            step.after.push(Change::Entry(volume, root, name.as_bytes().into(), None));
            step.after.push(Change::Cookie(volume, root, cookie, None));
        }
        if named && stays_open {
            inode.links = 0;
            inode.ctime = Time(self.steps as i64);
            step.after.extend([
                Change::Inode(volume, ino, Some(inode)),
                Change::Orphan(volume, ino, true),
                Change::Count(volume, 0, count),
            ]);
            let node = Node { inode, name, cookie, named: false };
            self.volumes.get_mut(&volume).expect("it is there").nodes.insert(ino, node);
            return;
        }
        let project = inode.project;
        if inode.kind == FileKind::File {
            step.before.push(Change::Cut(Cut { volume, ino, project, blocks: 0..END, trim: DROPPED }));
        } else {
            count.names -= charge::target(4) as i64;
            step.after.push(Change::Target(volume, ino, None));
        }
        if inode.xattrs.are_stored() {
            step.after.push(Change::Xattrs(volume, ino, None));
        }
        step.after.extend([
            Change::Inode(volume, ino, None),
            Change::Orphan(volume, ino, false),
            Change::Count(volume, 0, count),
            Change::Count(volume, project, Count { inodes: -1, names: 0 }),
        ]);
    }

    fn attribute(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        let attribute = Name::of_attribute(format!("user.a{}", self.rng.below(3)).as_bytes()).expect("a name");
        let value = vec![b'x'; self.rng.below(5000) as usize];
        let inode = &mut self.node((volume, ino)).inode;
        inode.xattrs = inode.xattrs.with_stored(true);
        let changes = XattrChanges::from([(attribute, Some(value.into()))]);
        step.after.push(Change::Xattrs(volume, ino, Some(changes)));
        self.touch((volume, ino), step);
    }

    fn project(&mut self, (volume, ino): (VolumeId, Ino), step: &mut Step) {
        let new = self.rng.below(3) as u32;
        let inode = &mut self.node((volume, ino)).inode;
        let old = std::mem::replace(&mut inode.project, new);
        step.before.push(Change::Project(volume, ino, new));
        for (project, inodes) in [(old, -1), (new, 1)] {
            step.after.push(Change::Count(volume, project, Count { inodes, names: 0 }));
        }
        self.touch((volume, ino), step);
    }
}

/// A brick that follows a history.
pub struct Follower {
    pub brick: Brick,
    pub purges: Arc<Purges>,
    pub reserves: Arc<Reserves>,
    pub rng: SplitMix,
}

impl Follower {
    /// Follows a step: its record is the one of this number.
    pub async fn follow(&mut self, number: u64, step: &Step) {
        self.brick.applied.store(number - 1, Ordering::Relaxed);
        let mut changes = step.before.clone();
        if let Some(data) = &step.data {
            let leaves = self.place(data).await;
            changes.extend(leaves.into_iter().map(|(at, leaf)| Change::Leaf(data.volume, at, leaf, data.project)));
        }
        // Reservations come before leaves.
        let (reserves, after): (Vec<_>, Vec<_>) =
            step.after.iter().cloned().partition(|change| matches!(change, Change::Reserve(..)));
        changes.splice(step.before.len()..step.before.len(), reserves);
        changes.extend(after);
        self.brick.applied.store(number, Ordering::Relaxed);
        self.checkpoint(changes).await;
    }

    /// Writes blocks to the log, by a record of their own.
    pub async fn place(&mut self, data: &Data) -> BTreeMap<LeafKey, Leaf> {
        self.brick.volume.store(data.volume.0, Ordering::Relaxed);
        let bytes = payload(data.tag, data.blocks);
        let written = self.brick.append(data.ino, data.first, &bytes, Sync::Ordered).await.expect("it has room");
        let mut map = BTreeMap::new();
        written.lay_over(&mut map);
        let mut leaves: BTreeMap<LeafKey, Leaf> = BTreeMap::new();
        for ((ino, block), (place, crc)) in map {
            let (key, slot) = LeafKey::of(ino, block);
            leaves.entry(key).or_default().set(slot, Slot::Local { place, crc, birth: 1 });
        }
        leaves
    }

    /// Takes the changes into the index; some of what they cut is left to free.
    pub async fn checkpoint(&mut self, changes: Vec<Change>) {
        let (replay, _, (applied, taken)) = self.brick.ready_for_checkpoint().await.expect("a healthy brick");
        let mut of = || [0, 1, 3, 100][self.rng.below(4) as usize];
        let limits = FreeLimits { at_once: 1 + of(), slots_at_once: of() * 20, slots_later: of() * 10 };
        let row = GroupRow { applied, term: Term(1), ..GroupRow::fresh() };
        let (purges, reserves) = (self.purges.clone(), self.reserves.clone());
        let part = GroupPart { group: GROUP, row, young: u64::MAX, changes, purges, reserves, replica: None };
        let store = self.brick.store.clone();
        let write = move || store::checkpoint::write(&store, replay, vec![part], limits);
        let left = tasks::run_blocking(&*self.brick.runtime.tasks, write).await;
        let left = left.expect("a healthy brick checkpoints").pop().expect("one group");
        (self.purges, self.reserves) = (left.purges, left.reserves);
        self.brick.fresh.lock().expect("no panic while held").drain(..taken);
    }
}

/// The number of a leaf's slot within the file.
pub fn block(at: LeafKey, slot: usize) -> u64 {
    at.leaf * BLOCKS_PER_LEAF as u64 + slot as u64
}
