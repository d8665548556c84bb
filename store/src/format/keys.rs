//! Index keys (rule X3): group, volume, kind, then what the kind needs, all big-endian, so that a group, or a volume
//! within a group, is one range. Keys of inodes, entries, targets, leaves and attributes end with a 32-bit branch, 0 now.

use base::{GroupId, Ino, IntentId, LeafKey, SegmentId, SessionId, VolumeId};
use std::ops::Range;

/// Rows that belong to the brick and not to a group.
pub const BRICK: GroupId = GroupId(u32::MAX);

mod kind {
    pub const GROUP: u8 = 0x01;
    pub const INODE: u8 = 0x10;
    pub const ENTRY: u8 = 0x11;
    pub const COOKIE: u8 = 0x12;
    pub const TARGET: u8 = 0x13;
    pub const LEAF: u8 = 0x14;
    pub const ORPHAN: u8 = 0x15;
    pub const INTENT: u8 = 0x16;
    pub const FOLLOWED: u8 = 0x17;
    pub const SESSION: u8 = 0x18;
    pub const VOLUME: u8 = 0x19;
    pub const PURGE: u8 = 0x1a;
    pub const PURGED_VOLUME: u8 = 0x1b;
    pub const USAGE: u8 = 0x1c;
    pub const RESERVE: u8 = 0x1d;
    pub const XATTRS: u8 = 0x1e;
    pub const TERMS: u8 = 0x1f;
    pub const PROMISE: u8 = 0x20;
    pub const HEAL: u8 = 0x21;
    pub const LOCK: u8 = 0x22;
    pub const SEGMENT: u8 = 0x30;
    pub const REPLAY: u8 = 0x31;
    pub const SUMMARY: u8 = 0x32;
    pub const SCRUB: u8 = 0x33;
}

/// The kind of a row of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// A group's counters.
    Group,
    /// An inode.
    Inode,
    /// An entry by its name.
    Entry,
    /// An entry by its cookie.
    Cookie,
    /// A symbolic link's target.
    Target,
    /// A leaf.
    Leaf,
    /// An orphan.
    Orphan,
    /// An intent.
    Intent,
    /// The mark that an intent was followed.
    Followed,
    /// Inodes that are held for a change of another group.
    Lock,
    /// A session: who has it, and its results.
    Session,
    /// A group's terms.
    Terms,
    /// The promise of a group's replica in the vote for a leader.
    Promise,
    /// The mark that a group's replica heals.
    Heal,
    /// A volume of the catalogue.
    Volume,
    /// Cuts of an inode that are left to free.
    Purge,
    /// A dropped volume that is left to free.
    PurgedVolume,
    /// The space that a project uses.
    Usage,
    /// Blocks reserved for a file.
    Reserve,
    /// An inode's extended attributes.
    Xattrs,
    /// A segment's state and live bits.
    Segment,
    /// The place where replay starts.
    Replay,
    /// A part of the summary of an open segment.
    Summary,
    /// The progress of the scrub.
    Scrub,
}

impl Row {
    /// True for what goes with its volume.
    pub fn is_of_volume(self) -> bool {
        use Row::{Cookie, Entry, Inode, Leaf, Orphan, Purge, Reserve, Target, Usage, Xattrs};
        matches!(self, Inode | Entry | Cookie | Target | Leaf | Orphan | Purge | Usage | Reserve | Xattrs)
    }
}

/// Group, volume and kind of a row, by its key; None if no such key is written here.
pub fn row(key: &[u8]) -> Option<(GroupId, VolumeId, Row)> {
    let group = GroupId(u32::from_be_bytes(key.get(..4)?.try_into().ok()?));
    let volume = VolumeId(u32::from_be_bytes(key.get(4..8)?.try_into().ok()?));
    let (kind, length) = (*key.get(8)?, key.len());
    let row = match (kind, length) {
        (kind::GROUP, 9) => Row::Group,
        (kind::INODE, 21) => Row::Inode,
        // Directory, a name of at least a byte, its end, branch.
        (kind::ENTRY, 23..) => Row::Entry,
        (kind::COOKIE, 29) => Row::Cookie,
        (kind::TARGET, 21) => Row::Target,
        (kind::LEAF, 29) => Row::Leaf,
        (kind::ORPHAN, 17) => Row::Orphan,
        (kind::INTENT, 17) => Row::Intent,
        (kind::FOLLOWED, 21) => Row::Followed,
        (kind::LOCK, 21) => Row::Lock,
        (kind::SESSION, 17) => Row::Session,
        (kind::TERMS, 9) => Row::Terms,
        (kind::PROMISE, 9) => Row::Promise,
        (kind::HEAL, 9) => Row::Heal,
        (kind::VOLUME, 10..) => Row::Volume,
        (kind::PURGE, 17) => Row::Purge,
        (kind::PURGED_VOLUME, 13) => Row::PurgedVolume,
        (kind::USAGE, 13) => Row::Usage,
        (kind::RESERVE, 17) => Row::Reserve,
        (kind::XATTRS, 21) => Row::Xattrs,
        (kind::SEGMENT, 13) => Row::Segment,
        (kind::REPLAY, 9) => Row::Replay,
        (kind::SUMMARY, 17) => Row::Summary,
        (kind::SCRUB, 9) => Row::Scrub,
        _ => return None,
    };
    let of_brick = matches!(row, Row::Segment | Row::Replay | Row::Summary | Row::Scrub);
    (of_brick == (group == BRICK)).then_some((group, volume, row))
}

/// A range of keys: from (included) to (excluded).
pub type Bounds = (Vec<u8>, Vec<u8>);

struct Key(Vec<u8>);

impl Key {
    fn new(group: GroupId, volume: VolumeId, kind: u8) -> Key {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(&group.0.to_be_bytes());
        bytes.extend_from_slice(&volume.0.to_be_bytes());
        bytes.push(kind);
        Key(bytes)
    }
    fn u64(mut self, value: u64) -> Key {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Key {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn branch(self) -> Vec<u8> {
        self.u32(0).0
    }
}

/// A group's counters and applied position.
pub fn group(group: GroupId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::GROUP).0
}
/// An inode; lives in the inode's own group.
pub fn inode(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::INODE).u64(ino.0).branch()
}
/// An entry; lives in the directory's group. The zero ends the name: names hold none.
pub fn entry(volume: VolumeId, dir: Ino, name: &[u8]) -> Vec<u8> {
    let mut key = Key::new(dir.group(), volume, kind::ENTRY).u64(dir.0);
    key.0.extend_from_slice(name);
    key.0.push(0);
    key.branch()
}
/// An entry by its cookie.
pub fn cookie(volume: VolumeId, dir: Ino, cookie: u64) -> Vec<u8> {
    Key::new(dir.group(), volume, kind::COOKIE).u64(dir.0).u64(cookie).branch()
}
/// A symbolic link's target.
pub fn target(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::TARGET).u64(ino.0).branch()
}
/// The extended attributes of an inode.
pub fn xattrs(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::XATTRS).u64(ino.0).branch()
}
/// A leaf.
pub fn leaf(volume: VolumeId, key: LeafKey) -> Vec<u8> {
    Key::new(key.ino.group(), volume, kind::LEAF).u64(key.ino.0).u64(key.leaf).branch()
}
/// The leaf number in a leaf's key.
pub fn leaf_number(key: &[u8]) -> u64 {
    let bytes = key.get(17..25).and_then(|bytes| bytes.try_into().ok());
    u64::from_be_bytes(bytes.expect("leaf keys have 29 bytes"))
}
/// The inode and the leaf number in a leaf's key.
pub fn leaf_of(key: &[u8]) -> LeafKey {
    let bytes = key.get(9..17).and_then(|bytes| bytes.try_into().ok());
    LeafKey { ino: Ino(u64::from_be_bytes(bytes.expect("leaf keys have 29 bytes"))), leaf: leaf_number(key) }
}
/// An orphan.
pub fn orphan(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::ORPHAN).u64(ino.0).0
}
/// The range of all keys of a kind.
fn all_of(group: GroupId, volume: VolumeId, kind: u8) -> Bounds {
    (Key::new(group, volume, kind).0, Key::new(group, volume, kind + 1).0)
}
/// The range of all orphans of a volume in a group.
pub fn orphans(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::ORPHAN)
}
/// The inode in an orphan's key.
pub fn orphan_ino(key: &[u8]) -> Ino {
    let bytes = key.get(9..17).and_then(|bytes| bytes.try_into().ok());
    Ino(u64::from_be_bytes(bytes.expect("orphan keys have 17 bytes")))
}
/// An intent, in the group that decided it.
pub fn intent(id: IntentId) -> Vec<u8> {
    Key::new(id.group, VolumeId(0), kind::INTENT).u64(id.number).0
}
/// The range of all intents of a group.
pub fn intents(group: GroupId) -> Bounds {
    all_of(group, VolumeId(0), kind::INTENT)
}
/// The mark that `group` has followed an intent.
pub fn followed(group: GroupId, id: IntentId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::FOLLOWED).u32(id.group.0).u64(id.number).0
}
/// The range of all such marks of a group.
pub fn followed_all(group: GroupId) -> Bounds {
    all_of(group, VolumeId(0), kind::FOLLOWED)
}
/// The inodes of `group` that are held for a change which another group is about to decide.
pub fn lock(group: GroupId, id: IntentId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::LOCK).u32(id.group.0).u64(id.number).0
}
/// The range of all such rows of a group.
pub fn locks(group: GroupId) -> Bounds {
    all_of(group, VolumeId(0), kind::LOCK)
}
/// The intent in a lock's key.
pub fn lock_id(key: &[u8]) -> IntentId {
    followed_id(key)
}
/// The intent in a followed mark's key.
pub fn followed_id(key: &[u8]) -> IntentId {
    let group = key.get(9..13).and_then(|bytes| bytes.try_into().ok());
    let number = key.get(13..21).and_then(|bytes| bytes.try_into().ok());
    IntentId {
        group: GroupId(u32::from_be_bytes(group.expect("followed keys have 21 bytes"))),
        number: u64::from_be_bytes(number.expect("followed keys have 21 bytes")),
    }
}
/// A group's terms.
pub fn terms(group: GroupId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::TERMS).0
}
/// The promise of a group's replica in the vote for a leader.
pub fn promise(group: GroupId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::PROMISE).0
}
/// The mark that a group's replica heals.
pub fn heal(group: GroupId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::HEAL).0
}
/// A session.
pub fn session(group: GroupId, session: SessionId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::SESSION).u64(session.0).0
}
/// The range of all sessions of a group.
pub fn sessions(group: GroupId) -> Bounds {
    all_of(group, VolumeId(0), kind::SESSION)
}
/// The session in a session's key.
pub fn session_id(key: &[u8]) -> SessionId {
    let bytes = key.get(9..17).and_then(|bytes| bytes.try_into().ok());
    SessionId(u64::from_be_bytes(bytes.expect("session keys have 17 bytes")))
}
/// A volume, in the catalogue of group 0.
pub fn volume(name: &[u8]) -> Vec<u8> {
    let mut key = Key::new(GroupId(0), VolumeId(0), kind::VOLUME);
    key.0.extend_from_slice(name);
    key.0
}
/// The range of all volumes.
pub fn volumes() -> Bounds {
    let group = GroupId(0);
    all_of(group, VolumeId(0), kind::VOLUME)
}
/// Everything of a volume in a group.
pub fn volume_in_group(group: GroupId, volume: VolumeId) -> Bounds {
    (Key::new(group, volume, 0).0, Key::new(group, VolumeId(volume.0 + 1), 0).0)
}
/// All inodes of a volume in a group.
pub fn inodes_in_group(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::INODE)
}
/// All cookies of a volume in a group.
pub fn cookies_in_group(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::COOKIE)
}
/// The name in an entry's key.
pub fn entry_name(key: &[u8]) -> &[u8] {
    // Before it the directory, behind it its end and the branch.
    &key[17..key.len() - 5]
}
/// The name in a volume's key.
pub fn volume_name(key: &[u8]) -> &[u8] {
    &key[9..]
}
/// The inode that the key of an inode, entry, cookie, target or attributes begins with.
pub fn first_ino(key: &[u8]) -> Ino {
    let bytes = key.get(9..17).and_then(|bytes| bytes.try_into().ok());
    Ino(u64::from_be_bytes(bytes.expect("keys of inodes and directories have an inode number")))
}
/// All leaves of a volume in a group.
pub fn leaves_in_group(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::LEAF)
}
/// The cuts left to free of an inode that was cut or dropped.
pub fn purge(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::PURGE).u64(ino.0).0
}
/// A volume that was deleted, and has leaves left in a group.
pub fn purged_volume(group: GroupId, volume: VolumeId) -> Vec<u8> {
    Key::new(group, VolumeId(0), kind::PURGED_VOLUME).u32(volume.0).0
}
/// All such volumes of a group.
pub fn purged_volumes(group: GroupId) -> Bounds {
    all_of(group, VolumeId(0), kind::PURGED_VOLUME)
}
/// The volume in a purged volume's key.
pub fn purged_volume_id(key: &[u8]) -> VolumeId {
    let bytes = key.get(9..13).and_then(|bytes| bytes.try_into().ok());
    VolumeId(u32::from_be_bytes(bytes.expect("keys of purged volumes have 13 bytes")))
}
/// The space that a project of a volume uses in a group.
pub fn usage(group: GroupId, volume: VolumeId, project: u32) -> Vec<u8> {
    Key::new(group, volume, kind::USAGE).u32(project).0
}
/// All usage rows of a volume in a group.
pub fn usages(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::USAGE)
}
/// The project in a usage row's key.
pub fn usage_project(key: &[u8]) -> u32 {
    let bytes = key.get(9..13).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.expect("keys of usage rows have 13 bytes"))
}
/// All purges of a volume's inodes in a group.
pub fn purges(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::PURGE)
}
/// The blocks reserved for a file.
pub fn reserve(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(ino.group(), volume, kind::RESERVE).u64(ino.0).0
}
/// All reserves of a volume's files in a group.
pub fn reserves(group: GroupId, volume: VolumeId) -> Bounds {
    all_of(group, volume, kind::RESERVE)
}
/// The rows of a volume in a group besides leaves: those before them, and those after them.
pub fn volume_but_leaves(group: GroupId, volume: VolumeId) -> [Bounds; 2] {
    let (leaves, after) = leaves_in_group(group, volume);
    let (from, to) = volume_in_group(group, volume);
    [(from, leaves), (after, to)]
}
/// Every row of a group.
pub fn in_group(group: GroupId) -> Bounds {
    let after = GroupId(group.0 + 1);
    (Key::new(group, VolumeId(0), 0).0, Key::new(after, VolumeId(0), 0).0)
}
/// A row of the segment table.
pub fn segment(segment: SegmentId) -> Vec<u8> {
    Key::new(BRICK, VolumeId(0), kind::SEGMENT).u32(segment.0).0
}
/// Every row that there is.
pub fn all() -> Bounds {
    // Kinds are below 0xff.
    (Vec::new(), Key::new(BRICK, VolumeId(u32::MAX), u8::MAX).0)
}
/// The whole segment table.
pub fn segments() -> Bounds {
    all_of(BRICK, VolumeId(0), kind::SEGMENT)
}
/// The segment in the key of its row, or of a part of its summary.
pub fn segment_id(key: &[u8]) -> SegmentId {
    let bytes = key.get(9..13).and_then(|bytes| bytes.try_into().ok());
    SegmentId(u32::from_be_bytes(bytes.expect("segment keys have 13 bytes or more")))
}
/// The place where replay starts.
pub fn replay() -> Vec<u8> {
    Key::new(BRICK, VolumeId(0), kind::REPLAY).0
}
/// The progress of the scrub.
pub fn scrub() -> Vec<u8> {
    Key::new(BRICK, VolumeId(0), kind::SCRUB).0
}
/// A part of the summary of a segment that is still open: entries from block `first` on.
pub fn summary(segment: SegmentId, first: u16) -> Vec<u8> {
    Key::new(BRICK, VolumeId(0), kind::SUMMARY).u32(segment.0).u32(u32::from(first)).0
}
/// All parts of all summaries.
pub fn summaries() -> Bounds {
    all_of(BRICK, VolumeId(0), kind::SUMMARY)
}
/// All parts of a segment's summary.
pub fn summary_of(segment: SegmentId) -> Bounds {
    let after = SegmentId(segment.0 + 1);
    (summary(segment, 0), summary(after, 0))
}
/// The first key after one, whatever it is a key of: where a scan goes on.
pub fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
/// The cookies of a directory after one.
pub fn cookies_after(volume: VolumeId, dir: Ino, after: u64) -> Bounds {
    let end = Key::new(dir.group(), volume, kind::COOKIE).u64(dir.0 + 1).0;
    (cookie(volume, dir, after.saturating_add(1)), end)
}
/// The cookie in a cookie's key.
pub fn cookie_number(key: &[u8]) -> u64 {
    let bytes = key.get(17..25).and_then(|bytes| bytes.try_into().ok());
    u64::from_be_bytes(bytes.expect("cookie keys have 29 bytes"))
}
/// The leaves of an inode in a range.
pub fn leaves_within(volume: VolumeId, ino: Ino, range: &Range<u64>) -> Bounds {
    (leaf(volume, LeafKey { ino, leaf: range.start }), leaf(volume, LeafKey { ino, leaf: range.end }))
}
/// The leaves of an inode from one on.
pub fn leaves_from(volume: VolumeId, ino: Ino, first: u64) -> Bounds {
    let end = Key::new(ino.group(), volume, kind::LEAF).u64(ino.0 + 1).0;
    (leaf(volume, LeafKey { ino, leaf: first }), end)
}
