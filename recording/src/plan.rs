//! The plan by which a recording's operations are done again: what must be there before, and the operations with the places of
//! their files.
//!
//! A recording has inodes and hashes of names. Walking through it tells which name each inode had at each moment, as far as
//! operations tell; an inode that was there before and is never looked up gets a name of its own.
//!
//! Some operations are part of another call, and are not done by themselves: mkdir(2), mknod(2), symlink(2), link(2) and rename(2)
//! make the kernel look up the name that they make, whatever it has cached, and the first write(2) to a file after its attributes
//! were told has it look at the file's capabilities.

use crate::file::Recording;
use crate::operation::{Deed, FileShape, Flags, Inode, Operation};
use crate::overlap::Overlap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The number of a node: its position in `Plan::nodes`. 0 is the directory in which all is done.
pub type NodeId = usize;

/// A name in that directory or below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Label {
    /// A recorded name.
    Name(u64),
    /// The name of an inode whose own is not known.
    Inode(u32, u64),
    /// The root of a volume, where a recording has several.
    Volume(u32),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Name(hash) => write!(f, "{hash:016x}"),
            Label::Inode(volume, ino) => write!(f, "inode-{volume}-{ino}"),
            Label::Volume(volume) => write!(f, "volume-{volume}"),
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The directory.
    pub directory: NodeId,
    /// The name in it.
    pub label: Label,
}

/// A file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its kind.
    pub shape: FileShape,
    /// Its size at the beginning.
    pub size: u64,
    /// Its place at the beginning; None: it is made by an operation, or it is the directory in which all is done.
    pub place: Option<Place>,
    /// Handles that are open at the beginning.
    pub ready: Vec<Flags>,
    /// The kernel does not know at the beginning whether the file has capabilities.
    pub told_anew: bool,
}

/// The way in which an operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A call of its own does it.
    Itself,
    /// A later call brings it about.
    Implied,
    /// Nothing does: programs have no call for it.
    LeftOut,
}

/// An operation with the places that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The operation.
    pub operation: Operation,
    /// The way in which it is done.
    pub way: Way,
    /// The node that it is about; of an operation that makes or removes a name, its directory.
    pub node: NodeId,
    /// The node that it finds, opens, makes or renames.
    pub made: Option<NodeId>,
    /// The name that it is about, or a name of its node. None: its file has lost its last one.
    pub place: Option<Place>,
    /// Its second name.
    pub new_place: Option<Place>,
}

/// The whole of what is done.
pub struct Plan {
    /// Files and directories; those with a place must be there before, and a directory stands before what it holds or behind.
    pub nodes: Vec<Node>,
    /// The operations, by their beginning.
    pub steps: Vec<Step>,
    /// Their order.
    pub overlap: Overlap,
}

impl Plan {
    /// The plan of a recording.
    pub fn of(recording: &Recording) -> Plan {
        let mut walker = Walker::new(recording);
        // The first walk finds out what there was before, the second one begins with that.
        for operation in &recording.operations {
            walker.step(*operation);
        }
        walker.settle();
        let mut steps: Vec<Step> = Vec::with_capacity(recording.operations.len());
        for operation in &recording.operations {
            let step = walker.step(*operation);
            walker.imply(&step, &mut steps);
            walker.use_handles(&step);
            walker.tell(&step);
            steps.push(step);
        }
        Plan { nodes: walker.nodes, steps, overlap: Overlap::of(&recording.operations) }
    }
    /// Bytes of the files that must be there.
    pub fn bytes(&self) -> u64 {
        let files = self.nodes.iter().filter(|node| node.place.is_some() && node.shape == FileShape::File);
        files.fold(0, |sum, node| sum.saturating_add(node.size))
    }
}

/// The state of names and handles while walking through a recording.
struct Walker<'a> {
    facts: BTreeMap<(u32, u64), &'a Inode>,
    /// Largest ends of reads of inodes without facts.
    read_ends: BTreeMap<(u32, u64), u64>,
    nodes: Vec<Node>,
    by_inode: BTreeMap<(u32, u64), NodeId>,
    /// The root of each volume.
    roots: BTreeMap<u32, NodeId>,
    /// The names that there are now.
    names: BTreeMap<Place, NodeId>,
    /// A name of each node, if it has one now.
    places: BTreeMap<NodeId, Place>,
    /// The last look-up of a name since which nothing was done to it.
    looked_up: BTreeMap<Place, usize>,
    /// The open handles of each node, the oldest first.
    handles: BTreeMap<NodeId, Vec<Flags>>,
    /// The nodes whose attributes were told.
    told: BTreeSet<NodeId>,
}

impl<'a> Walker<'a> {
    fn new(recording: &'a Recording) -> Walker<'a> {
        let facts = recording.inodes.iter().map(|inode| ((inode.volume, inode.ino), inode)).collect();
        let mut read_ends = BTreeMap::new();
        for read in recording.operations.iter().filter(|operation| operation.deed == Deed::Read) {
            let end: &mut u64 = read_ends.entry((read.volume, read.ino)).or_default();
            *end = (*end).max(read.offset.saturating_add(u64::from(read.bytes)));
        }
        let top = Node { shape: FileShape::Directory, size: 0, place: None, ready: Vec::new(), told_anew: false };
        let mut walker = Walker {
            facts,
            read_ends,
            nodes: vec![top],
            by_inode: BTreeMap::new(),
            roots: BTreeMap::new(),
            names: BTreeMap::new(),
            places: BTreeMap::new(),
            looked_up: BTreeMap::new(),
            handles: BTreeMap::new(),
            told: BTreeSet::new(),
        };
        walker.add_roots(recording);
        walker
    }
    /// The root of the only volume is the directory itself, those of several lie in it.
    fn add_roots(&mut self, recording: &Recording) {
        let mut volumes: Vec<u32> = recording.operations.iter().map(|operation| operation.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for &volume in &volumes {
            let place = Place { directory: 0, label: Label::Volume(volume) };
            let root = if volumes.len() == 1 { 0 } else { self.add(FileShape::Directory, 0, Some(place)) };
            self.roots.insert(volume, root);
        }
        for (volume, ino) in &recording.begin.volumes {
            if let Some(&root) = self.roots.get(volume) {
                self.by_inode.insert((*volume, *ino), root);
            }
        }
    }
    fn add(&mut self, shape: FileShape, size: u64, place: Option<Place>) -> NodeId {
        self.nodes.push(Node { shape, size, place, ready: Vec::new(), told_anew: false });
        self.nodes.len() - 1
    }
    /// The node of an inode that is there, `shape` if nothing else is known.
    fn node(&mut self, (volume, ino): (u32, u64), shape: FileShape) -> NodeId {
        if let Some(&known) = self.by_inode.get(&(volume, ino)) {
            return known;
        }
        let fact = self.facts.get(&(volume, ino));
        let (shape, size) = match fact {
            Some(inode) => (inode.shape, inode.size),
            None => (shape, self.read_ends.get(&(volume, ino)).copied().unwrap_or(0)),
        };
        let root = self.roots.get(&volume).copied().unwrap_or(0);
        let node = self.add(shape, size, Some(Place { directory: root, label: Label::Inode(volume, ino) }));
        self.by_inode.insert((volume, ino), node);
        node
    }
    /// The node of an inode that the operation has made; made before if a file of that name was opened.
    fn made(&mut self, operation: &Operation, shape: FileShape) -> Option<NodeId> {
        let inode = (operation.volume, operation.made);
        if operation.made == 0 {
            return None;
        }
        if let Some(&known) = self.by_inode.get(&inode) {
            return Some(known);
        }
        let node = self.add(shape, 0, None);
        self.by_inode.insert(inode, node);
        Some(node)
    }
    /// The node behind a name that must have been there; one of an unknown inode if nobody has told.
    fn behind(&mut self, place: Place, shape: FileShape) -> NodeId {
        if let Some(&known) = self.names.get(&place) {
            return known;
        }
        let node = self.add(shape, 0, Some(place));
        self.put(place, node);
        node
    }
    fn put(&mut self, place: Place, node: NodeId) {
        if let Some(before) = self.names.insert(place, node) {
            self.lose(before, place);
        }
        self.places.insert(node, place);
    }
    fn lose(&mut self, node: NodeId, place: Place) {
        if self.places.get(&node) == Some(&place) {
            self.places.remove(&node);
        }
    }
    fn remove(&mut self, place: Place) {
        if let Some(node) = self.names.remove(&place) {
            self.lose(node, place);
        }
    }
    /// A name was looked up, and this node was found. If neither name nor node had another before, it was there from the start.
    fn found(&mut self, place: Place, operation: &Operation) -> NodeId {
        let inode = (operation.volume, operation.made);
        let known = self.by_inode.get(&inode).copied();
        match (self.names.get(&place).copied(), known) {
            // It was renamed by a name that nobody had told before.
            (Some(node), None) => {
                self.by_inode.insert(inode, node);
                if let Some(fact) = self.facts.get(&inode) {
                    (self.nodes[node].shape, self.nodes[node].size) = (fact.shape, fact.size);
                }
                node
            }
            (Some(node), Some(known)) if node == known => node,
            _ => {
                let node = self.node(inode, FileShape::File);
                let is_nameless = matches!(self.nodes[node].place, Some(Place { label: Label::Inode(..), .. }));
                if is_nameless && !self.is_above(node, place.directory) {
                    self.nodes[node].place = Some(place);
                }
                self.put(place, node);
                node
            }
        }
    }
    /// True if `node` is the directory or one above it: then it can't lie in it.
    fn is_above(&self, node: NodeId, directory: NodeId) -> bool {
        let mut at = directory;
        for _ in 0..self.nodes.len() {
            match self.nodes[at].place {
                _ if at == node => return true,
                Some(place) => at = place.directory,
                None => return false,
            }
        }
        true
    }
    /// The state of the beginning, now that it is known.
    fn settle(&mut self) {
        self.names.clear();
        self.places.clear();
        self.looked_up.clear();
        for (node, place) in (0..).zip(self.nodes.iter().map(|node| node.place)) {
            if let Some(place) = place {
                self.names.insert(place, node);
                self.places.insert(node, place);
            }
        }
    }
    /// Walks past an operation.
    fn step(&mut self, operation: Operation) -> Step {
        let directory = |ino: u64| (operation.volume, ino);
        let named = has_name(operation.deed);
        let shape = if named || operation.deed == Deed::ReadDir { FileShape::Directory } else { shape(operation.deed) };
        let has_inode = !matches!(operation.deed, Deed::StatFs | Deed::SyncAll);
        let node = if has_inode { self.node(directory(operation.ino), shape) } else { 0 };
        let own = named.then_some(Place { directory: node, label: Label::Name(operation.name) });
        let new_place = (operation.new_parent != 0).then(|| {
            let directory = self.node(directory(operation.new_parent), FileShape::Directory);
            Place { directory, label: Label::Name(operation.new_name) }
        });
        let place = own.or_else(|| self.places.get(&node).copied());
        let way = match operation.deed {
            Deed::Recall => Way::LeftOut,
            Deed::GetXattr if operation.flags.has(Flags::KERNEL) => Way::Implied,
            _ => Way::Itself,
        };
        let mut step = Step { operation, way, node, made: None, place, new_place };
        if operation.errno == 0 {
            step.made = self.change(&step);
        }
        step
    }
    /// Does to the names what the operation did. Returns the node that it found or made.
    fn change(&mut self, step: &Step) -> Option<NodeId> {
        let operation = &step.operation;
        match (operation.deed, step.place, step.new_place) {
            (Deed::Lookup, Some(place), _) if operation.made != 0 => Some(self.found(place, operation)),
            (Deed::Lookup, Some(place), _) => {
                self.remove(place);
                None
            }
            (Deed::Create | Deed::CreateNode | Deed::MakeDir | Deed::SymLink | Deed::MakeNode, Some(place), _) => {
                let made = self.made(operation, shape(operation.deed))?;
                self.put(place, made);
                Some(made)
            }
            (Deed::TempFile, ..) => self.made(operation, FileShape::File),
            (Deed::Unlink | Deed::RemoveDir, Some(place), _) => {
                self.behind(place, shape(operation.deed));
                self.remove(place);
                None
            }
            (Deed::Rename, Some(place), Some(new_place)) => {
                let node = self.behind(place, FileShape::File);
                self.remove(place);
                self.put(new_place, node);
                Some(node)
            }
            (Deed::Exchange, Some(place), Some(new_place)) => {
                let [one, other] = [place, new_place].map(|place| self.behind(place, FileShape::File));
                self.put(place, other);
                self.put(new_place, one);
                None
            }
            (Deed::Link, _, Some(new_place)) => {
                self.put(new_place, step.node);
                None
            }
            (Deed::Open, ..) => Some(step.node),
            _ => None,
        }
    }
    /// Marks the look-up that this step brings about, if there was one.
    fn imply(&mut self, step: &Step, steps: &mut [Step]) {
        let forced = match step.operation.deed {
            Deed::MakeDir | Deed::MakeNode | Deed::CreateNode | Deed::SymLink => step.place,
            Deed::Link | Deed::Rename => step.new_place,
            _ => None,
        };
        if let Some(before) = forced.and_then(|place| self.looked_up.get(&place)) {
            steps[*before].way = Way::Implied;
        }
        for place in [step.place, step.new_place].into_iter().flatten() {
            if step.operation.deed == Deed::Lookup {
                self.looked_up.insert(place, steps.len());
            } else if has_name(step.operation.deed) || step.new_place == Some(place) {
                self.looked_up.remove(&place);
            }
        }
    }
    /// Notes of whose capabilities the kernel must know nothing at the beginning: it looked at them before anybody was told of
    /// the file's attributes.
    fn tell(&mut self, step: &Step) {
        let Step { operation, node, made, .. } = *step;
        match operation.deed {
            Deed::GetXattr if operation.flags.has(Flags::KERNEL) => {
                self.nodes[node].told_anew |= !self.told.contains(&node);
                self.told.insert(node);
            }
            Deed::GetAttr | Deed::SetAttr => drop(self.told.insert(node)),
            // An open tells nothing.
            Deed::Open => {}
            _ => self.told.extend(made),
        }
    }
    /// Notes which handles must be open at the beginning, so that this step finds the one that it needs.
    fn use_handles(&mut self, step: &Step) {
        let Step { operation, node, made, .. } = *step;
        match operation.deed {
            Deed::Open | Deed::Create | Deed::TempFile if operation.errno == 0 => {
                let opened = made.unwrap_or(node);
                self.handles.entry(opened).or_default().push(operation.flags);
            }
            Deed::Release => {
                let handles = self.handles.entry(node).or_default();
                if handles.is_empty() {
                    self.make_ready(node, Flags::READ);
                } else {
                    handles.remove(0);
                }
            }
            _ => {
                let Some(needed) = Needed::by(&operation).filter(|_| self.nodes[node].shape == FileShape::File) else {
                    return;
                };
                let handles = self.handles.entry(node).or_default();
                if !handles.iter().any(|handle| needed.fits(*handle)) {
                    handles.push(needed.opened());
                    self.make_ready(node, needed.opened());
                }
            }
        }
    }
    fn make_ready(&mut self, node: NodeId, flags: Flags) {
        // A file that an operation makes is opened by that operation, or when it is needed.
        if self.nodes[node].place.is_some() && self.nodes[node].shape == FileShape::File {
            self.nodes[node].ready.push(flags);
        }
    }
}

/// True if the operation's inode is the directory of its name.
fn has_name(deed: Deed) -> bool {
    use Deed::{Create, CreateNode, Exchange, Lookup, MakeDir, MakeNode, RemoveDir, Rename, SymLink, TempFile, Unlink};
    matches!(
        deed,
        Lookup | Create | CreateNode | MakeDir | SymLink | Unlink | RemoveDir | Rename | Exchange | MakeNode | TempFile
    )
}

/// The kind of what an operation makes, removes or reads, if nothing else tells.
fn shape(deed: Deed) -> FileShape {
    match deed {
        Deed::MakeDir | Deed::RemoveDir => FileShape::Directory,
        Deed::SymLink | Deed::ReadLink => FileShape::SymLink,
        Deed::MakeNode => FileShape::Other,
        _ => FileShape::File,
    }
}

/// The handle that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// Any that may do this.
    Access(Flags),
    /// One whose reads and writes are acknowledged like those of this one.
    Like(Flags),
}

impl Needed {
    /// The handle that an operation needs; None: none.
    pub fn by(operation: &Operation) -> Option<Needed> {
        let flags = operation.flags;
        match operation.deed {
            Deed::Read => Some(Needed::Like(flags.and(Flags::HANDLE).with(true, Flags::READ))),
            Deed::Write => {
                let kept = flags.and(Flags::HANDLE).with(flags.has(Flags::APPEND), Flags::APPEND);
                Some(Needed::Like(kept.with(true, Flags::WRITE)))
            }
            Deed::Allocate => Some(Needed::Access(Flags::WRITE)),
            Deed::SetAttr if flags.has(Flags::SIZE) => Some(Needed::Access(Flags::WRITE)),
            Deed::Fsync | Deed::Seek => Some(Needed::Access(Flags::default())),
            _ => None,
        }
    }
    /// True if the operation can be done through this handle at all.
    pub fn may(self, handle: Flags) -> bool {
        let (Needed::Access(wanted) | Needed::Like(wanted)) = self;
        handle.has(wanted.and(Flags(Flags::READ.0 | Flags::WRITE.0)))
    }
    /// True if the operation is the same through this handle.
    pub fn fits(self, handle: Flags) -> bool {
        let Needed::Like(wanted) = self else { return self.may(handle) };
        // The kernel itself tells where an appending write with O_DIRECT goes.
        let appends = handle.has(Flags::APPEND) && !handle.has(Flags::DIRECT);
        let is_placed = !wanted.has(Flags::WRITE) || appends == wanted.has(Flags::APPEND);
        self.may(handle) && class(handle) == class(wanted) && is_placed
    }
    /// A handle that fits, opened for reading and writing.
    pub fn opened(self) -> Flags {
        let (Needed::Access(wanted) | Needed::Like(wanted)) = self;
        wanted.with(true, Flags::READ).with(true, Flags::WRITE)
    }
}

/// The strictest of a handle's promises.
fn class(flags: Flags) -> Flags {
    [Flags::SYNC, Flags::DATA_SYNC, Flags::DIRECT].into_iter().find(|class| flags.has(*class)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Begin;

    const ROOT: u64 = 1;

    /// The plan of these operations, one after the other.
    fn plan(operations: &[Operation], inodes: &[Inode]) -> Plan {
        let at =
            |(number, operation): (u64, &Operation)| Operation { start_ns: 10 * number, duration_ns: 5, ..*operation };
        let begin = Begin { version: String::new(), volumes: vec![(0, ROOT)] };
        let operations = (0..).zip(operations).map(at).collect();
        Plan::of(&Recording { begin, operations, inodes: inodes.to_vec(), ..Recording::default() })
    }

    fn named(deed: Deed, parent: u64, name: u64, made: u64) -> Operation {
        Operation { name, made, ..Operation::new(deed, parent) }
    }

    fn file(ino: u64, size: u64) -> Inode {
        Inode { volume: 0, ino, shape: FileShape::File, size }
    }

    fn place(directory: NodeId, name: u64) -> Option<Place> {
        Some(Place { directory, label: Label::Name(name) })
    }

    #[test]
    fn what_was_there_before_has_its_place_and_size() {
        let read = Operation { offset: 4096, length: 4096, bytes: 100, ..Operation::new(Deed::Read, 9) };
        let found =
            [named(Deed::Lookup, ROOT, 70, 7), named(Deed::Lookup, 7, 80, 8), read, named(Deed::Lookup, 7, 90, 9)];
        let directory = Inode { shape: FileShape::Directory, ..file(7, 0) };
        let plan = plan(&found, &[directory, file(8, 500)]);
        let told: Vec<_> = plan.nodes.iter().map(|node| (node.shape, node.size, node.place)).collect();
        // The last one has no facts: that it was read tells how large it was at least.
        let expected = [
            (FileShape::Directory, 0, None),
            (FileShape::Directory, 0, place(0, 70)),
            (FileShape::File, 500, place(1, 80)),
            (FileShape::File, 4196, place(1, 90)),
        ];
        assert_eq!(told, expected);
        assert_eq!(plan.steps[2].place, place(1, 90), "also before it was looked up");
        assert_eq!(plan.nodes[3].ready.len(), 1, "nobody had opened it before it was read");
        assert_eq!(plan.bytes(), 4696);
    }

    #[test]
    fn what_operations_make_is_not_there_before_and_follows_its_names() {
        let write = Operation { length: 9, ..Operation::new(Deed::Write, 7) };
        let renamed = Operation { new_parent: ROOT, new_name: 71, ..named(Deed::Rename, ROOT, 70, 0) };
        let flags = Flags::READ.with(true, Flags::WRITE);
        let created = Operation { flags, ..named(Deed::Create, ROOT, 70, 7) };
        let [attr, release] = [Deed::GetAttr, Deed::Release].map(|deed| Operation::new(deed, 7));
        let unlink = named(Deed::Unlink, ROOT, 71, 0);
        let plan = plan(&[created, write, attr, renamed, attr, unlink, attr, release], &[]);
        assert!(plan.nodes.iter().all(|node| node.place.is_none() && node.ready.is_empty()), "{:?}", plan.nodes);
        let places: Vec<_> = [2, 4, 6].iter().map(|&at| plan.steps[at].place).collect();
        assert_eq!(places, [place(0, 70), place(0, 71), None]);
        assert_eq!((plan.steps[0].made, plan.steps[1].node), (Some(1), 1));
    }

    #[test]
    fn look_ups_that_other_calls_bring_about_are_not_done_twice() {
        let rename = Operation { new_parent: ROOT, new_name: 72, ..named(Deed::Rename, ROOT, 70, 0) };
        let looked = |name, made| named(Deed::Lookup, ROOT, name, made);
        let made = named(Deed::MakeDir, ROOT, 71, 8);
        let operations = [
            looked(71, 0),
            made,
            looked(70, 7),
            looked(72, 0),
            rename,
            looked(73, 0),
            named(Deed::Create, ROOT, 73, 9),
        ];
        let plan = plan(&operations, &[]);
        let ways: Vec<Way> = plan.steps.iter().map(|step| step.way).collect();
        use Way::{Implied, Itself};
        assert_eq!(ways, [Implied, Itself, Itself, Implied, Itself, Itself, Itself]);
    }

    #[test]
    fn a_name_that_nobody_looked_up_was_there_if_it_was_removed_or_renamed() {
        let rename = Operation { new_parent: ROOT, new_name: 72, ..named(Deed::Rename, ROOT, 71, 0) };
        let operations = [named(Deed::Unlink, ROOT, 70, 0), rename, named(Deed::Lookup, ROOT, 72, 9)];
        let plan = plan(&operations, &[file(9, 300)]);
        let told: Vec<_> = plan.nodes[1..].iter().map(|node| (node.size, node.place)).collect();
        assert_eq!(told, [(0, place(0, 70)), (300, place(0, 71))]);
        assert_eq!(plan.steps[2].made, Some(2));
    }

    #[test]
    fn handles_are_ready_for_what_was_open_before() {
        let io = |deed, flags: Flags| Operation { flags, length: 4096, ..Operation::new(deed, 7) };
        let direct = Flags::READ.with(true, Flags::DIRECT);
        let opened = io(Deed::Open, direct);
        let release = Operation::new(Deed::Release, 7);
        let cached = Flags::CACHED;
        let operations = [
            io(Deed::Write, cached),
            io(Deed::Write, cached.with(true, Flags::APPEND)),
            opened,
            io(Deed::Read, direct),
            io(Deed::Read, Flags::READ.with(true, cached)),
            Operation::new(Deed::Fsync, 7),
            release,
            release,
            release,
            release,
        ];
        let plan = plan(&operations, &[file(7, 8192)]);
        let both = Flags::READ.with(true, Flags::WRITE);
        assert_eq!(plan.nodes[1].ready, [both, both.with(true, Flags::APPEND), Flags::READ]);
    }

    #[test]
    fn what_the_kernel_looks_at_before_a_write_is_not_done_by_itself() {
        let capability = |ino| Operation { flags: Flags::KERNEL, errno: 61, ..Operation::new(Deed::GetXattr, ino) };
        let attr = Operation::new(Deed::GetAttr, 8);
        let plan = plan(&[capability(7), attr, capability(8)], &[file(7, 1), file(8, 1)]);
        assert_eq!([0, 2].map(|at| plan.steps[at].way), [Way::Implied; 2]);
        let anew: Vec<bool> = plan.nodes[1..].iter().map(|node| node.told_anew).collect();
        assert_eq!(anew, [true, false], "of the second the attributes were told in between");
    }

    #[test]
    fn directories_that_contain_each_other_do_no_harm() {
        let operations = [named(Deed::Lookup, 7, 70, 8), named(Deed::Lookup, 8, 80, 7), named(Deed::Lookup, 7, 71, 7)];
        let plan = plan(&operations, &[]);
        for node in 0..plan.nodes.len() {
            let mut at = node;
            for _ in 0..plan.nodes.len() {
                at = plan.nodes[at].place.map_or(0, |place| place.directory);
            }
            assert_eq!(at, 0, "{:?} lies below the top", plan.nodes[node]);
        }
    }
}
