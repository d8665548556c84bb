//! A group's state in memory: overlay generations above caches of the index, counters, opens, sessions. All
//! of it is behind the group's one short lock.

pub(crate) mod across;
pub(crate) mod cache;
mod cuts;
mod hash;
mod intervals;
pub(crate) mod known;
pub(crate) mod load;
mod names_of;
pub(crate) mod overlay;
mod replicated;
pub(crate) mod rows;
mod session;
mod taken;
mod terms;

use crate::replica::Replica;
use crate::state::cache::{Budget, Cache};
use crate::state::hash::{Map, NameKey};
use crate::state::known::Known;
use crate::state::overlay::{Generation, InodeSlot, blocks_of};
use crate::state::session::Session;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{
    Edit, FileKind, GroupId, Ino, Inode, LeafKey, Name, Numbers, Place, SessionId, Term, Volume, VolumeId, Xattrs,
};
use names::{Entry, Seen, apply_inode};
use runtime::Slice;
use runtime::seeded::{Bug, active};
use std::collections::VecDeque;
use std::sync::Arc;
use store::checkpoint::{END, lay_xattrs};
use store::format::charge;
use store::format::leaf::{BIRTH_KEPT, Leaf, Slot};
use store::format::record::{Moved, Places};
use store::format::values::{GroupRow, TermRow};
use store::purge::{DROPPED, Purges};
use store::reserve::Reserves;
use store::{Cut, Left};

/// The blocks of a range lock, both ends inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The volume.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
}

/// The number of a held range.
pub type RangeId = u64;

/// The content of a block, for a reader.
pub enum Block {
    /// Zeros.
    Hole,
    /// A block in memory: its device write may not have completed (rule K8).
    Memory(Slice),
    /// A block on the device.
    Device {
        /// Its place.
        place: Place,
        /// Its checksum.
        crc: u32,
    },
    /// Unknown: the leaf must be read from the index first.
    Missing,
}

/// The state of one group; see the module.
pub struct State {
    /// The group.
    pub group: GroupId,
    /// The generation that takes edits.
    pub active: Generation,
    /// The generation that waits for its checkpoint.
    pub frozen: Option<Arc<Generation>>,
    /// Number of checkpoints that changed the group's part of the index: rows read from there before the latest are
    /// stale.
    pub merges: u64,
    /// Rows in the index that are still to be freed: of cuts, and of inodes and volumes that are gone.
    pub purges: Arc<Purges>,
    /// Blocks reserved for files, as of the last checkpoint.
    pub reserves: Arc<Reserves>,
    /// Counters; `applied` is the last record ordered.
    pub row: GroupRow,
    /// First sequence number that no inode has used. `row.next_ino` may be higher: it rises when a number is given out.
    born: u64,
    /// First cookie that no name has. `row.next_cookie` may be higher: it rises when a cookie is given out.
    named: u64,
    /// First sequence number of inodes of which the index has nothing yet: everything about them is in memory.
    young: u64,
    /// End of the numbers that may be given out: a durable record reserves them for this life of the group (rule L2).
    granted: Numbers,
    /// Inodes that sessions have open, which keeps those without a name alive (rule R2), and inodes that clients know.
    pub known: Known,
    /// Sessions that a record was ordered for, with results of their requests (rule R1).
    pub sessions: Map<SessionId, Session>,
    /// Terms of the group, oldest first, since a client on another machine was served first (rule P3).
    pub terms: Vec<TermRow>,
    /// The term of records of this life: the log's epoch.
    term: Term,
    /// Index content, by key. `None` = the index has no such key. Inodes come with the number of their mapped blocks.
    pub inodes: Cache<(VolumeId, Ino), Option<(Inode, u64)>>,
    entries: Cache<NameKey, Option<Entry>>,
    targets: Cache<(VolumeId, Ino), Option<Box<[u8]>>>,
    xattrs: Cache<(VolumeId, Ino), Option<Arc<Xattrs>>>,
    /// Bytes of attributes loaded since `xattrs` was last emptied.
    xattr_bytes: usize,
    xattr_bytes_max: usize,
    leaves: Cache<(VolumeId, LeafKey), Leaf>,
    volumes: Map<Name, Option<Volume>>,
    /// Volumes dropped since start: the index may hold rows of them until the next checkpoint.
    dropped: Vec<VolumeId>,
    ranges: Vec<(RangeId, Range)>,
    next_range: RangeId,
    pending: Map<(VolumeId, Ino, u64), (u64, Slice)>,
    pending_order: VecDeque<(u64, (VolumeId, Ino, u64))>,
    /// The active generation's bytes as included in the brick's total.
    pub counted_bytes: usize,
    /// The secret of the keys of cached names.
    secret: u64,
    key_scratch: Option<Box<[u8]>>,
    /// Scratch memory for encoding records.
    pub encoded: Vec<u8>,
    /// The part in changes of several groups, of a group that other bricks have too.
    pub across: across::Across,
    /// The replica, if other bricks have the group too.
    pub replica: Option<Box<Replica>>,
    /// True once `volumes` has all that the index has.
    pub knows_volumes: bool,
}

/// The budgets that the caches of all groups share.
pub struct CacheBudgets {
    /// Inodes.
    pub inodes: Arc<Budget>,
    /// Names.
    pub entries: Arc<Budget>,
    /// Targets of symbolic links.
    pub targets: Arc<Budget>,
    /// Inodes' extended attributes.
    pub xattrs: Arc<Budget>,
    /// Leaves.
    pub leaves: Arc<Budget>,
    /// Largest number of bytes of extended attributes in one group's cache: one set may be as large as hundreds of
    /// names, so a number of entries is not bound enough.
    pub xattr_bytes: usize,
    /// The secret of the keys of cached names: random.
    pub secret: u64,
}

/// Bytes that an attribute takes in memory besides its value: its name, and its entry in a map.
const XATTR_BYTES: usize = 400;

impl State {
    /// A group as the index holds it.
    pub fn new(group: GroupId, row: GroupRow, purges: Purges, reserves: Reserves, budgets: &CacheBudgets) -> State {
        State {
            group,
            active: Generation::default(),
            frozen: None,
            merges: 0,
            purges: Arc::new(purges),
            reserves: Arc::new(reserves),
            born: row.next_ino,
            named: row.next_cookie,
            young: row.next_ino,
            row,
            granted: Numbers::default(),
            known: Known::new(&budgets.inodes),
            sessions: Map::default(),
            terms: Vec::new(),
            term: row.term,
            inodes: Cache::new(&budgets.inodes),
            entries: Cache::new(&budgets.entries),
            targets: Cache::new(&budgets.targets),
            xattrs: Cache::new(&budgets.xattrs),
            xattr_bytes: 0,
            xattr_bytes_max: budgets.xattr_bytes,
            leaves: Cache::new(&budgets.leaves),
            volumes: Map::default(),
            dropped: Vec::new(),
            ranges: Vec::new(),
            next_range: 1,
            pending: Map::default(),
            pending_order: VecDeque::new(),
            counted_bytes: 0,
            secret: budgets.secret,
            key_scratch: None,
            encoded: Vec::new(),
            across: across::Across::default(),
            replica: None,
            knows_volumes: false,
        }
    }

    /// True if the volume was deleted since start.
    pub fn is_dropped(&self, volume: VolumeId) -> bool {
        self.dropped.contains(&volume)
    }
    /// Number of opens of an inode, plus one while a client knows the inode. Unless it is zero, the inode lives on
    /// without a name.
    pub fn holds(&self, volume: VolumeId, ino: Ino) -> u64 {
        self.known.opens(volume, ino) + u64::from(self.known.knows(volume, ino))
    }
    /// The same for a session that takes the last name away: other sessions only know the inode, which keeps nothing alive.
    pub fn holds_for(&self, session: (VolumeId, SessionId), ino: Ino) -> u64 {
        self.known.opens(session.0, ino) + u64::from(self.known.knows_in(session, ino))
    }
    /// An inode with all ordered edits.
    pub fn inode(&mut self, volume: VolumeId, ino: Ino) -> Seen<Inode> {
        self.counted_inode(volume, ino).0
    }
    /// An inode with all ordered edits, and the number of blocks that its row counts if nothing has changed it since
    /// the last checkpoint.
    #[inline]
    pub fn counted_inode(&mut self, volume: VolumeId, ino: Ino) -> (Seen<Inode>, Option<u64>) {
        if self.is_dropped(volume) {
            return (Seen::Known(None), None);
        }
        if let Some(slot) = self.inode_slot(volume, ino) {
            return (Seen::Known(slot.inode), None);
        }
        let indexed = self.inodes.get(&(volume, ino), |indexed| match indexed {
            Some((inode, blocks)) => (Seen::Known(Some(*inode)), Some(*blocks)),
            None => (Seen::Known(None), None),
        });
        indexed.unwrap_or_else(|| (self.unindexed(ino), None))
    }
    /// The answer to a question about an inode if neither the overlay nor a cache knows: nothing exists if the index
    /// has nothing of the inode, else the index must be read.
    fn unindexed<T>(&self, ino: Ino) -> Seen<T> {
        if self.is_young(ino) { Seen::Known(None) } else { Seen::Missing }
    }
    /// True if the index has nothing of the inode.
    pub fn is_young(&self, ino: Ino) -> bool {
        ino.sequence() >= self.young
    }
    /// The inode in the overlay, if it has changed since the last checkpoint.
    pub fn inode_slot(&self, volume: VolumeId, ino: Ino) -> Option<&InodeSlot> {
        let frozen = || self.frozen.as_ref()?.inodes.get(&(volume, ino));
        self.active.inodes.get(&(volume, ino)).or_else(frozen)
    }
    /// The entry of a name.
    pub fn entry(&mut self, volume: VolumeId, dir: Ino, name: &Name) -> Seen<Entry> {
        if self.is_dropped(volume) {
            return Seen::Known(None);
        }
        let within = |generation: &Generation| {
            generation.entries.get(&(volume, dir)).and_then(|names| names.get(name.as_bytes()))
        };
        if let Some(entry) = within(&self.active).or_else(|| self.frozen.as_deref().and_then(within)) {
            return Seen::Known(entry);
        }
        if self.is_young(dir) {
            return Seen::Known(None);
        }
        // The cache's keys own their names. To look one up without allocating, a scratch key is kept and reused for
        // names of the same length.
        let scratch = self.scratch_of(name);
        let key = NameKey::new(self.secret, volume, dir, scratch);
        let seen = self.entries.get(&key, |entry| Seen::Known(*entry)).unwrap_or(Seen::Missing);
        self.key_scratch = Some(key.into_name());
        seen
    }
    fn scratch_of(&mut self, name: &Name) -> Box<[u8]> {
        match self.key_scratch.take() {
            Some(mut scratch) if scratch.len() == name.as_bytes().len() => {
                scratch.copy_from_slice(name.as_bytes());
                scratch
            }
            _ => name.as_bytes().into(),
        }
    }
    /// A link's target.
    pub fn target(&mut self, volume: VolumeId, ino: Ino) -> Seen<Box<[u8]>> {
        let frozen = || self.frozen.as_ref()?.targets.get(&(volume, ino)).cloned();
        if let Some(target) = self.active.targets.get(&(volume, ino)).cloned().or_else(frozen) {
            return Seen::Known(target);
        }
        let target = self.targets.get(&(volume, ino), Clone::clone);
        target.map_or_else(|| self.unindexed(ino), Seen::Known)
    }
    /// An inode's extended attributes. Called only for inodes that are marked as having some (`Inode::xattrs`).
    pub fn xattrs(&mut self, volume: VolumeId, ino: Ino) -> Seen<Arc<Xattrs>> {
        let key = (volume, ino);
        let stored = self.xattrs.get(&key, Clone::clone);
        let Seen::Known(stored) = stored.map_or_else(|| self.unindexed(ino), Seen::Known) else {
            return Seen::Missing;
        };
        let layers = self.frozen.iter().map(|frozen| &**frozen).chain([&self.active]);
        let mut changes = layers.filter_map(|generation| generation.xattrs.get(&key)).peekable();
        if changes.peek().is_none() {
            return Seen::Known(stored);
        }
        let mut all = stored.map_or_else(Xattrs::new, |all| (*all).clone());
        // They are gone with the inode, and nobody asks for those of a dropped inode.
        changes.flatten().for_each(|changes| lay_xattrs(&mut all, changes));
        Seen::Known(Some(Arc::new(all)))
    }
    /// True if an inode has an attribute; None if that must be read first.
    pub fn has_xattr(&mut self, volume: VolumeId, ino: Ino, name: &Name) -> Option<bool> {
        let key = (volume, ino);
        for generation in [Some(&self.active), self.frozen.as_deref()].into_iter().flatten() {
            match generation.xattrs.get(&key) {
                Some(None) => return Some(false),
                Some(Some(changes)) if changes.contains_key(name) => return Some(changes[name].is_some()),
                _ => {}
            }
        }
        let stored = self.xattrs.get(&key, |stored| stored.as_ref().is_some_and(|all| all.contains_key(name)));
        stored.or_else(|| self.is_young(ino).then_some(false))
    }
    /// A volume of the catalogue.
    pub fn volume(&self, name: &Name) -> Seen<Volume> {
        let frozen = || self.frozen.as_ref()?.volumes.get(name);
        let overlay = self.active.volumes.get(name).or_else(frozen);
        match overlay.or_else(|| self.volumes.get(name)) {
            Some(volume) => Seen::Known(volume.clone()),
            None => Seen::Missing,
        }
    }
    /// The content of a block of a file.
    pub fn block(&mut self, volume: VolumeId, ino: Ino, block: u64) -> Block {
        if let Some((_, slice)) = self.pending.get(&(volume, ino, block)) {
            return Block::Memory(slice.clone());
        }
        match self.slot(volume, ino, block) {
            None => Block::Missing,
            Some(Slot::Hole) => Block::Hole,
            Some(Slot::Local { place, crc, .. }) => Block::Device { place, crc },
        }
    }
    /// A block's slot; None if its leaf is not in memory.
    pub fn slot(&mut self, volume: VolumeId, ino: Ino, block: u64) -> Option<Slot> {
        let (key, index) = LeafKey::of(ino, block);
        let known = self.overlay_slot(volume, ino, block).or_else(|| self.is_young(ino).then_some(Slot::Hole));
        known.or_else(|| self.leaves.get(&(volume, key), |leaf| leaf.get(index).unwrap_or(Slot::Hole)))
    }
    /// Number of cuts of a file that the index does not have yet or has not carried out.
    pub fn cuts_of(&self, volume: VolumeId, ino: Ino) -> usize {
        let of = |generation: &Generation| generation.cuts.get(&(volume, ino)).map_or(0, |cuts| cuts.iter().len());
        of(&self.active) + self.frozen.as_deref().map_or(0, of) + self.purges.cuts_of(volume, ino)
    }
    /// True if the block is reserved for the file.
    pub fn is_promised(&self, volume: VolumeId, ino: Ino, block: u64) -> bool {
        if active(Bug::PromiseForgotten) {
            return false;
        }
        let frozen = || self.frozen.as_ref()?.promised(volume, ino, block);
        let overlay = self.active.promised(volume, ino, block).or_else(frozen);
        overlay.unwrap_or_else(|| self.reserves.holds(volume, ino, block))
    }
    /// The overlay's slot of a block; None if nothing was ordered about it since the index was brought up to date.
    pub fn overlay_slot(&self, volume: VolumeId, ino: Ino, block: u64) -> Option<Slot> {
        let frozen = || self.frozen.as_ref()?.slot(volume, ino, block);
        self.active.slot(volume, ino, block).or_else(frozen)
    }
    /// The first leaf of a range for which the overlay maps blocks.
    pub fn next_leaf(&self, volume: VolumeId, ino: Ino, leaves: std::ops::Range<u64>) -> Option<u64> {
        let keys = [leaves.start, leaves.end].map(|leaf| (volume, LeafKey { ino, leaf }));
        let of = |generation: &Generation| Some(generation.leaves.range(keys[0]..keys[1]).next()?.0.1.leaf);
        of(&self.active).into_iter().chain(self.frozen.as_deref().and_then(of)).min()
    }
    /// True if the block still is in the place from which the cleaner has copied it; None if its leaf must be loaded to
    /// tell. `indexed`: whether the block was there at the last durable checkpoint, if the live bitmap tells: the
    /// bitmap is exact as of that checkpoint (rule K1), and later changes are in the overlay.
    pub fn is_at(&mut self, volume: VolumeId, moved: &Moved, indexed: Option<bool>) -> Option<bool> {
        if self.is_dropped(volume) {
            return Some(false);
        }
        // A leaf that is still to be freed has blocks that are marked live although no file has them.
        let purged = self.purges.trim_of(volume, LeafKey::of(moved.ino, moved.block).0) > 0;
        let at = match (self.overlay_slot(volume, moved.ino, moved.block), indexed) {
            (None, Some(indexed)) if !purged => return Some(indexed),
            (None, _) => self.slot(volume, moved.ino, moved.block)?,
            (Some(slot), _) => slot,
        };
        // The place may have been freed and used again: then the checksum differs.
        Some(matches!(at, Slot::Local { place, crc, .. } if (place, crc) == (moved.old, moved.crc)))
    }
    /// Moves the block to `place` (rule K2). The block keeps its birth: a checkpoint takes that from the index.
    pub fn move_block(&mut self, volume: VolumeId, moved: &Moved, place: Place) {
        let overlaid = self.overlay_slot(volume, moved.ino, moved.block);
        let birth = match overlaid {
            Some(Slot::Local { birth, .. }) => birth,
            _ => BIRTH_KEPT,
        };
        // If the overlay does not map the block, the index has it in its old place (unless the seeded bug is on).
        let from = overlaid.is_none().then_some(moved.old);
        self.active.map(volume, moved.ino, moved.block, Slot::Local { place, crc: moved.crc, birth }, from);
        self.active.records += 1;
        self.active.loads += u64::from(from.is_some());
    }

    // What the index holds, taken into the caches.

    /// Caches an inode that was read from the index.
    pub fn learn_inode(&mut self, volume: VolumeId, ino: Ino, inode: Option<(Inode, u64)>) {
        self.inodes.insert((volume, ino), inode);
    }
    /// Caches an entry that was read from the index.
    pub fn learn_entry(&mut self, volume: VolumeId, dir: Ino, name: &Name, entry: Option<Entry>) {
        self.entries.insert(NameKey::new(self.secret, volume, dir, name.as_bytes().into()), entry);
    }
    /// Caches a target that was read from the index.
    pub fn learn_target(&mut self, volume: VolumeId, ino: Ino, target: Option<Box<[u8]>>) {
        self.targets.insert((volume, ino), target);
    }
    /// Caches an inode's extended attributes that were read from the index.
    pub fn learn_xattrs(&mut self, volume: VolumeId, ino: Ino, xattrs: Option<Arc<Xattrs>>) {
        let bytes = |all: &Arc<Xattrs>| all.values().map(|value| XATTR_BYTES + value.len()).sum::<usize>();
        let learned = xattrs.as_ref().map_or(XATTR_BYTES, bytes);
        if self.xattr_bytes + learned > self.xattr_bytes_max {
            self.xattrs.retain(|_, _| false);
            self.xattr_bytes = 0;
        }
        self.xattr_bytes += learned;
        self.xattrs.insert((volume, ino), xattrs);
    }
    /// Caches a volume that was read from the index.
    pub fn learn_volume(&mut self, name: &Name, volume: Option<Volume>) {
        self.volumes.insert(name.clone(), volume);
    }
    /// Caches a leaf that was read from the index; a stale one counts as empty (rule K6).
    pub fn learn_leaf(&mut self, volume: VolumeId, key: LeafKey, leaf: Leaf) {
        let counts = leaf.trim >= self.purges.trim_of(volume, key) || active(Bug::StaleLeafRead);
        self.leaves.insert((volume, key), if counts { leaf } else { Leaf::default() });
    }

    /// Applies one edit of a record in `batch`. `places`: places of those blocks of the record's payload that the
    /// record's earlier edits have not mapped; `birth`: the log epoch. An inode that the edit changes without replacing
    /// it is in memory: the evaluation that decided the edit has read it, and replay loads it first.
    pub fn apply(&mut self, volume: VolumeId, edit: &Edit, batch: u64, places: &mut Places<'_>, birth: u32) {
        match edit {
            Edit::Reserve { ino, first, count } => self.active.promise(volume, *ino, *first..first + count),
            Edit::Map { ino, first, crcs } => self.apply_map(volume, *ino, *first, crcs.as_slice(), places, birth),
            Edit::InodePut { ino, .. }
            | Edit::InodeTouch { ino, .. }
            | Edit::InodeParent { ino, .. }
            | Edit::InodeProject { ino, .. }
            | Edit::InodeExtend { ino, .. }
            | Edit::InodeCut { ino, .. }
            | Edit::Punch { ino, .. }
            | Edit::InodeDrop { ino } => self.apply_inode(volume, *ino, edit, batch),
            Edit::SessionPut { session, holder } => {
                self.sessions.entry(*session).or_default().holder = Some((**holder).clone());
                self.active.sessions.insert(*session, None);
            }
            Edit::SessionDrop { session } => {
                self.sessions.remove(session);
                self.active.apply(volume, edit);
            }
            Edit::Term { term, start } => self.begin_term(*term, *start),
            Edit::IntentPut(_) | Edit::IntentDrop { .. } | Edit::LockPut { .. } | Edit::LockDrop { .. } => {
                self.note_fresh(edit);
                if self.replica.is_some() {
                    self.across.apply((volume, self.born), edit, base::Index(batch));
                }
                self.active.apply(volume, edit);
            }
            _ => {
                self.count_names(volume, edit);
                match edit {
                    Edit::OrphanPut { ino } => self.known.name(volume, *ino, true),
                    Edit::OrphanDrop { ino } => self.known.name(volume, *ino, false),
                    _ => self.note_fresh(edit),
                }
                self.active.apply(volume, edit);
                if let Edit::VolumeDrop { id } = edit {
                    self.forget_volume(*id);
                }
            }
        }
    }

    fn apply_inode(&mut self, volume: VolumeId, ino: Ino, edit: &Edit, batch: u64) {
        let old = match (edit, self.inode(volume, ino)) {
            (Edit::InodePut { .. }, _) => None,
            (_, Seen::Known(old)) => old,
            _ => panic!("an edit changes inode {ino:?}, which was not loaded"),
        };
        let new = apply_inode(old, edit);
        let project = old.or(new).map_or(0, |inode| inode.project);
        let blocks = |inode: Option<Inode>| inode.map_or(0, |inode| blocks_of(inode.size));
        match edit {
            // An inode number that was never used before means a new inode; any other `InodePut` replaces attributes.
            Edit::InodePut { .. } if ino.sequence() >= self.born || self.across.is_unborn(ino) => {
                self.active.counts.entry((volume, project)).or_default().inodes += 1;
                self.born = self.born.max(ino.sequence() + 1);
                if !active(Bug::InoReused) {
                    self.row.next_ino = self.row.next_ino.max(self.born);
                }
            }
            Edit::InodeProject { project: new, .. } if old.is_some() => {
                self.active.set_project(volume, ino, (project, *new));
            }
            Edit::InodeCut { size, trim, .. } => {
                self.cut(Cut { volume, ino, project, blocks: blocks_of(*size)..END, trim: *trim }, blocks(old));
            }
            Edit::Punch { .. } if active(Bug::HoleKeepsBlocks) => {}
            Edit::Punch { first, count, trim, .. } => {
                self.cut(Cut { volume, ino, project, blocks: *first..first + count, trim: *trim }, blocks(old));
            }
            Edit::InodeDrop { .. } => {
                if let Some(old) = old {
                    self.active.counts.entry((volume, project)).or_default().inodes -= 1;
                    if old.kind == FileKind::Link {
                        self.active.count_names(volume, -(charge::target(old.size) as i64));
                    }
                }
                self.cut(Cut { volume, ino, project, blocks: 0..END, trim: DROPPED }, blocks(old));
                self.active.targets.insert((volume, ino), None);
                if old.is_some_and(|inode| inode.xattrs.are_stored()) {
                    self.active.xattrs.insert((volume, ino), None);
                }
            }
            _ => {}
        }
        if self.active.set_inode(volume, ino, new, batch) && !matches!(edit, Edit::InodePut { .. }) {
            self.active.loads += 1;
        }
    }

    /// Counts the bytes of the rows of names and targets. An entry whose cookie is not new replaces one of the same
    /// name, and adds no bytes.
    fn count_names(&mut self, volume: VolumeId, edit: &Edit) {
        match edit {
            Edit::EntryPut { name, cookie, .. } if *cookie >= self.named => {
                self.named = cookie + 1;
                self.active.count_names(volume, charge::name(name) as i64);
            }
            Edit::EntryDrop { name, .. } => self.active.count_names(volume, -(charge::name(name) as i64)),
            Edit::TargetPut { target, .. } => {
                self.active.count_names(volume, charge::target(target.len() as u64) as i64)
            }
            _ => {}
        }
    }
    /// Number of bytes by which an edit that is about to be ordered makes rows of the index grow; an estimate from what
    /// is in memory.
    pub fn growth(&mut self, volume: VolumeId, edit: &Edit) -> i64 {
        let xattr = |state: &mut State, ino: Ino, name: &Name| match state.xattrs(volume, ino) {
            Seen::Known(Some(all)) => all.get(name).map_or(0, |value| charge::xattr(name, value) as i64),
            _ => 0,
        };
        match edit {
            Edit::InodePut { ino, .. } if ino.sequence() >= self.born => charge::INODE as i64,
            Edit::InodeDrop { .. } => -(charge::INODE as i64),
            Edit::EntryPut { name, cookie, .. } if *cookie >= self.named => charge::name(name) as i64,
            Edit::EntryDrop { name, .. } => -(charge::name(name) as i64),
            Edit::TargetPut { target, .. } => charge::target(target.len() as u64) as i64,
            Edit::XattrPut { ino, name, value } => charge::xattr(name, value) as i64 - xattr(self, *ino, name),
            Edit::XattrDrop { ino, name } => -xattr(self, *ino, name),
            _ => 0,
        }
    }

    /// Sets an inode's access time after a read. That needs no record, so fsync has nothing to wait for.
    pub fn set_access(&mut self, volume: VolumeId, ino: Ino, inode: Inode) {
        let batch = self.inode_slot(volume, ino).map_or(0, |slot| slot.batch);
        self.active.set_inode(volume, ino, Some(inode), batch);
        self.active.accesses += 1;
    }

    fn apply_map(&mut self, volume: VolumeId, ino: Ino, first: u64, crcs: &[u32], places: &mut Places<'_>, birth: u32) {
        for (&crc, block) in crcs.iter().zip(first..) {
            let place = places.next().expect("every block of a payload has a place");
            self.pending.remove(&(volume, ino, block));
            self.active.map(volume, ino, block, Slot::Local { place, crc, birth }, None);
        }
    }

    /// Cuts blocks of a file whose size is `blocks` blocks, and drops their payloads from memory.
    fn cut(&mut self, cut: Cut, blocks: u64) {
        let Cut { volume, ino, .. } = cut;
        let gone = cut.blocks.clone();
        let cut_blocks = &mut self.active.cut_blocks;
        *cut_blocks = cut_blocks.saturating_add(blocks.min(gone.end).saturating_sub(gone.start));
        self.active.cut(cut);
        if !self.pending.is_empty() {
            self.pending.retain(|(of, file, block), _| *of != volume || *file != ino || !gone.contains(block));
        }
    }

    /// Notes the numbers that an edit uses, so that they are never given out again.
    fn note_fresh(&mut self, edit: &Edit) {
        let row = &mut self.row;
        match edit {
            Edit::EntryPut { cookie, .. } => row.next_cookie = row.next_cookie.max(cookie + 1),
            Edit::IntentPut(intent) => row.next_intent = row.next_intent.max(intent.id.number + 1),
            Edit::Numbers { .. } if active(Bug::InoReused) => {}
            Edit::Numbers { numbers } => row.reserved = row.reserved.max(*numbers),
            Edit::VolumePut(volume) => row.next_volume = row.next_volume.max(volume.id.0 + 1),
            _ => {}
        }
    }

    fn forget_volume(&mut self, id: VolumeId) {
        // The catalogue is keyed by name: find the volume's row, in the overlay or below it.
        let known = self.volumes.values().flatten();
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.volumes.values().flatten());
        let active = self.active.volumes.values().flatten();
        let names = known.chain(frozen).chain(active).filter(|volume| volume.id == id);
        let names: Vec<Name> = names.map(|volume| volume.name.clone()).collect();
        for name in names {
            // Names that the volume had before may be those of other volumes by now.
            if matches!(self.volume(&name), Seen::Known(Some(volume)) if volume.id == id) {
                self.active.volumes.insert(name, None);
            }
        }
        self.inodes.retain(|(volume, _), _| *volume != id);
        self.entries.retain(|key, _| key.volume != id);
        self.leaves.retain(|(volume, _), _| *volume != id);
        self.targets.retain(|(volume, _), _| *volume != id);
        self.xattrs.retain(|(volume, _), _| *volume != id);
        self.pending.retain(|(volume, ..), _| *volume != id);
        self.dropped.push(id);
    }

    /// Keeps a payload readable until its device write completes (rule K8).
    pub fn hold_payload(&mut self, volume: VolumeId, ino: Ino, first: u64, payload: &[Slice], batch: u64) {
        let mut block = first;
        let last = self.pending_order.back().map_or(0, |(batch, _)| *batch);
        assert!(last <= batch, "payloads of batch {batch} are let go after those of {last}");
        for slice in payload {
            assert!(slice.len().is_multiple_of(BLOCK_BYTES), "a payload has whole blocks");
            for at in (0..slice.len()).step_by(BLOCK_BYTES) {
                let key = (volume, ino, block);
                self.pending.insert(key, (batch, slice.slice(at..at + BLOCK_BYTES)));
                self.pending_order.push_back((batch, key));
                block += 1;
            }
        }
    }
    /// True if the block's payload is in memory.
    pub fn is_pending(&self, volume: VolumeId, ino: Ino, block: u64) -> bool {
        self.pending.contains_key(&(volume, ino, block))
    }
    /// Replaces the content of a block that waits to be written.
    pub fn replace_block(&mut self, volume: VolumeId, ino: Ino, block: u64, crc: u32, payload: Slice) {
        let slot = self.active.slot(volume, ino, block);
        let Some(Slot::Local { place, birth, .. }) = slot else { panic!("a block that waits is mapped: {slot:?}") };
        self.active.map(volume, ino, block, Slot::Local { place, crc, birth }, None);
        self.pending.get_mut(&(volume, ino, block)).expect("a block that waits is held").1 = payload;
    }
    /// Releases payloads whose batches have been written.
    pub fn release_payloads(&mut self, written: u64) {
        let written = if active(Bug::PayloadLetGo) { u64::MAX } else { written };
        while self.pending_order.front().is_some_and(|(batch, _)| *batch <= written) {
            let (batch, key) = self.pending_order.pop_front().expect("just seen");
            if self.pending.get(&key).is_some_and(|(held, _)| *held <= batch) {
                self.pending.remove(&key);
            }
        }
    }

    /// Begins this life of the group after the replay of the log: its numbers start behind all numbers that former
    /// lives may have given out, durable or not (rule L2).
    pub fn begin_life(&mut self, term: Term) {
        assert!(term >= self.row.term, "terms rise: {term:?} after {:?}", self.row.term);
        self.term = term;
        if !active(Bug::NumbersFromDurable) {
            self.row.pass_reserved();
        }
    }
    /// True if more numbers must be reserved before another one may be given out.
    pub fn is_out_of_numbers(&self) -> bool {
        !self.row.next().is_below(self.granted)
    }
    /// Refuses numbers that another life of the group may give out as well (rule L2).
    pub fn check_granted(&self) {
        let (next, granted) = (self.row.next(), self.granted);
        assert!(next.max(granted) == granted, "{next:?} come next, and {granted:?} are granted");
    }
    /// The numbers to reserve, `count` at a time, if fewer than `left` are left.
    pub fn short_of_numbers(&self, left: u64, count: u64) -> Option<Numbers> {
        let next = self.row.next();
        (!next.more(left).is_below(self.row.reserved)).then(|| next.more(count).max(self.row.reserved))
    }
    /// Notes that numbers up to these are durably reserved.
    pub fn grant(&mut self, numbers: Numbers) {
        let reserved = self.row.reserved.max(numbers);
        assert!(
            reserved == self.row.reserved || active(Bug::InoReused),
            "{numbers:?} are granted before they are reserved"
        );
        self.granted = self.granted.max(numbers);
    }

    /// Locks a range of blocks. None: it overlaps a locked range.
    pub fn hold_range(&mut self, range: Range) -> Option<RangeId> {
        assert!(range.first <= range.last, "a range has a block: {range:?}");
        if self.is_held(&range, None) {
            return None;
        }
        let id = self.next_range;
        self.next_range += 1;
        self.ranges.push((id, range));
        Some(id)
    }
    /// True if an overlapping range is locked, other than `mine`.
    pub fn is_held(&self, range: &Range, mine: Option<RangeId>) -> bool {
        !active(Bug::RangeFree)
            && self.ranges.iter().any(|(id, held)| {
                let same = held.volume == range.volume && held.ino == range.ino;
                same && held.first <= range.last && range.first <= held.last && Some(*id) != mine
            })
    }
    /// Unlocks a range.
    pub fn release_range(&mut self, id: RangeId) {
        let before = self.ranges.len();
        self.ranges.retain(|(held, _)| *held != id);
        assert!(self.ranges.len() + 1 == before, "range {id} is held until it is released");
    }

    /// First sequence number of inodes of which the index has nothing yet.
    pub fn young(&self) -> u64 {
        self.young
    }
    /// Freezes the active generation for a checkpoint; false if it is empty.
    pub fn freeze(&mut self) -> bool {
        assert!(self.frozen.is_none(), "one checkpoint at a time");
        if self.active.is_empty() {
            return false;
        }
        assert!(self.row.next_ino >= self.young, "what the index has nothing of comes last");
        self.counted_bytes = 0;
        let mut generation = std::mem::take(&mut self.active);
        generation.next_ino = self.row.next_ino;
        for (session, row) in &mut generation.sessions {
            *row = self.sessions.get(session).map(Session::row);
        }
        if let Some(terms) = &mut generation.terms {
            terms.clone_from(&self.terms);
        }
        self.frozen = Some(Arc::new(generation));
        true
    }
    /// Ends a durable checkpoint: the frozen generation's content moves to the caches. `left`: rows that remain to be
    /// freed, and reservations that remain. Returns the generation, to be dropped outside the lock.
    pub fn merged(&mut self, left: Left) -> Option<Arc<Generation>> {
        assert!(left.group == self.group, "group {} takes what is left of group {}", self.group, left.group);
        self.merges += 1;
        (self.purges, self.reserves) = (left.purges, left.reserves);
        let frozen = self.frozen.take();
        for (key, slot) in frozen.iter().flat_map(|frozen| &frozen.inodes) {
            self.inodes.insert(*key, slot.inode.map(|inode| (inode, blocks_of(inode.size))));
        }
        for (key, blocks) in left.blocks {
            self.inodes.change(&key, |indexed| indexed.iter_mut().for_each(|(_, mapped)| *mapped = blocks));
        }
        let frozen = frozen?;
        if !active(Bug::YoungForEver) {
            assert!(self.young <= frozen.next_ino, "the index learns of more inodes, never of fewer");
            self.young = frozen.next_ino;
        }
        for ((volume, dir), names) in &frozen.entries {
            for (name, entry) in names.iter() {
                self.entries.insert(NameKey::new(self.secret, *volume, *dir, name.clone()), entry);
            }
        }
        for (key, target) in &frozen.targets {
            self.targets.remove(key);
            if target.is_some() {
                self.targets.insert(*key, target.clone());
            }
        }
        frozen.xattrs.keys().for_each(|key| self.xattrs.remove(key));
        if !frozen.cuts.is_empty() {
            let gone = |volume: VolumeId, key: LeafKey| {
                let first = key.leaf * BLOCKS_PER_LEAF as u64;
                let cuts = frozen.cuts.get(&(volume, key.ino));
                cuts.is_some_and(|cuts| cuts.meet(&(first..first + BLOCKS_PER_LEAF as u64)))
            };
            self.leaves.retain(|(volume, key), _| !gone(*volume, *key));
        }
        for (key, patch) in &frozen.leaves {
            self.leaves.change(key, |leaf| leaf.lay(&patch.leaf));
        }
        self.volumes.extend(frozen.volumes.iter().map(|(name, volume)| (name.clone(), volume.clone())));
        Some(frozen)
    }
}
