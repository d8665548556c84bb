//! Logical edits: the contents of a record (decision D5). Applying an edit needs no checks, clock, ids or randomness,
//! and can't fail. Edits hold no places (rule L1): the store joins payloads with places.

use crate::ids::{GroupId, Ino, SessionId, Term, VolumeId};
use crate::inode::{FileKind, Inode, Time};
use crate::name::Name;
use crate::op::Volume;
use std::sync::Arc;

/// The identity of a cross-group change: the group whose record decided it, and a number never reused in that group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IntentId {
    /// The group that holds the intent.
    pub group: GroupId,
    /// Number within the group.
    pub number: u64,
}

/// Edits that another group must still apply.
#[derive(Clone, PartialEq, Debug)]
pub struct Follow {
    /// The volume that the edits change.
    pub volume: VolumeId,
    /// The group that applies the edits.
    pub group: GroupId,
    /// The edits, in order.
    pub edits: Vec<Edit>,
}

/// A decided cross-group change (rule M3): redone at start-up until every follower has applied its part.
#[derive(Clone, PartialEq, Debug)]
pub struct Intent {
    /// The identity of the change.
    pub id: IntentId,
    /// The edits that remain to be applied in other groups.
    pub follow: Vec<Follow>,
}

/// Checksums of a payload's blocks, in order. Up to 32 lie inline: payloads of the commit stream have fewer blocks, so
/// writing them allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Crcs {
    inline: [u32; CRCS_INLINE],
    length: usize,
    spilled: Vec<u32>,
}

/// Number of blocks in 128 KiB. All payloads of the commit stream are smaller than that.
const CRCS_INLINE: usize = crate::limits::BULK_BYTES_MIN / crate::limits::BLOCK_BYTES;

impl Crcs {
    /// Adds the next block's checksum.
    pub fn push(&mut self, crc: u32) {
        if self.spilled.is_empty() && self.length < CRCS_INLINE {
            self.inline[self.length] = crc;
        } else {
            if self.spilled.is_empty() {
                self.spilled.extend_from_slice(&self.inline[..self.length]);
            }
            self.spilled.push(crc);
        }
        self.length += 1;
    }
    /// The checksums so far.
    pub fn as_slice(&self) -> &[u32] {
        if self.spilled.is_empty() { &self.inline[..self.length] } else { &self.spilled }
    }
    /// Number of checksums.
    pub fn len(&self) -> usize {
        self.length
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl FromIterator<u32> for Crcs {
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Crcs {
        let mut crcs = Crcs::default();
        iter.into_iter().for_each(|crc| crcs.push(crc));
        crcs
    }
}

impl PartialEq for Crcs {
    fn eq(&self, other: &Crcs) -> bool {
        self.as_slice() == other.as_slice()
    }
}

/// The client on another machine that has a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The client's name, from its certificate.
    pub client: Name,
    /// The volume that the session serves there.
    pub volume: VolumeId,
    /// True if the session may have locks, so that nobody else gets one until it has told which.
    pub locks: bool,
}

/// One logical change within one group and volume.
#[derive(Clone, PartialEq, Debug)]
pub enum Edit {
    /// Create an inode, or replace all its attributes.
    InodePut { ino: Ino, inode: Inode },
    /// Change counters and raise times, independent of other such edits (rule M2).
    InodeTouch { ino: Ino, links: i32, entries: i64, mtime: Time, ctime: Time },
    /// The inode moves to another project, which is charged for its blocks and its name from now on. Comes after an
    /// `InodePut` that still has the old project.
    InodeProject { ino: Ino, project: u32 },
    /// A directory moved: its new parent.
    InodeParent { ino: Ino, parent: Ino },
    /// Data was written: raise size and times; clear setuid/setgid if `kill_privileges`.
    InodeExtend { ino: Ino, size: u64, time: Time, kill_privileges: bool },
    /// Truncate: the size, the new trim number; blocks from the size up are gone (rule M4).
    InodeCut { ino: Ino, size: u64, trim: u64, time: Time },
    /// The inode and all its data are gone.
    InodeDrop { ino: Ino },
    /// The inode has no name but is open or known to a client. It is purged at the last release, or when the client
    /// forgets the inode, or at the next start.
    OrphanPut { ino: Ino },
    /// The inode is no longer an orphan.
    OrphanDrop { ino: Ino },
    /// Create or replace the entry `name` of directory `dir`; `cookie` is never reused in the group (rule M2).
    EntryPut { dir: Ino, name: Name, ino: Ino, kind: FileKind, cookie: u64 },
    /// Remove a name.
    EntryDrop { dir: Ino, name: Name, cookie: u64 },
    /// A symbolic link's target.
    TargetPut { ino: Ino, target: Box<[u8]> },
    /// Set an extended attribute. An `InodePut` in the same record sets `Inode::xattrs`.
    XattrPut { ino: Ino, name: Name, value: Arc<[u8]> },
    /// Remove an extended attribute.
    XattrDrop { ino: Ino, name: Name },
    /// Blocks `first .. first + crcs.len()` of `ino` hold the record's payload; one CRC-32C per block.
    Map { ino: Ino, first: u64, crcs: Crcs },
    /// Reserve space for blocks `first .. first + count` of the file, mapped or not (rule K5).
    Reserve { ino: Ino, first: u64, count: u64 },
    /// Punch a hole: blocks `first .. first + count` of the file are gone, and so is the space reserved for them; sets
    /// the new trim number (rule M4).
    Punch { ino: Ino, first: u64, count: u64, trim: u64 },
    /// A cross-group change was decided here.
    IntentPut(Intent),
    /// All followers have applied their parts of the intent.
    IntentDrop { id: IntentId },
    /// This group has applied its part of an intent of another group.
    FollowedPut { id: IntentId },
    /// The intent is gone, so the mark that this group has followed it may go.
    FollowedDrop { id: IntentId },
    /// These inodes of this group are held for a change that another group is about to decide: nobody else changes them or looks at
    /// them until it has. All that the change holds here, in place of what it held before.
    LockPut { id: IntentId, inos: Box<[Ino]> },
    /// The change was decided, and this group has its part; or it never will be.
    LockDrop { id: IntentId },
    /// A volume exists (group 0, volume 0).
    VolumePut(Volume),
    /// A volume is gone, with all that is in it in this group.
    VolumeDrop { id: VolumeId },
    /// The volume of this name has another name, size or other layers from now on; `volume` is its new row.
    VolumeChange { name: Name, volume: Volume },
    /// A session of a client on another machine has begun, or has its first lock: it outlives the process.
    SessionPut { session: SessionId, holder: Box<Holder> },
    /// The session is over, and its results are no longer needed.
    SessionDrop { session: SessionId },
    /// The term under which this record and those after it are ordered was begun by a process that drew this number at its
    /// start. Clients name both when they ask whether a change is still there (rule P3).
    Term { term: Term, start: u64 },
    /// Numbers of inodes, cookies and intents below these may be given out in this life of the group. No later life
    /// gives them out again, whether or not anything that uses them has become durable (rule L2).
    Numbers { numbers: Numbers },
}

/// A group's three counters: the next numbers to give out, or the ends of what may be given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Sequence number of an inode.
    pub ino: u64,
    /// Cookie of an entry.
    pub cookie: u64,
    /// Number of an intent.
    pub intent: u64,
}

impl Numbers {
    /// Raises each by `count`.
    pub fn more(self, count: u64) -> Numbers {
        Numbers { ino: self.ino + count, cookie: self.cookie + count, intent: self.intent + count }
    }
    /// Raises each by `count`, but keeps it below `end`.
    pub fn more_below(self, count: u64, end: Numbers) -> Numbers {
        let more = |number: u64, end: u64| number.saturating_add(count).min(end - 1);
        Numbers {
            ino: more(self.ino, end.ino),
            cookie: more(self.cookie, end.cookie),
            intent: more(self.intent, end.intent),
        }
    }
    /// The larger of the two, for each number by itself.
    pub fn max(self, other: Numbers) -> Numbers {
        Numbers {
            ino: self.ino.max(other.ino),
            cookie: self.cookie.max(other.cookie),
            intent: self.intent.max(other.intent),
        }
    }
    /// True if all three numbers are below those of `end`.
    pub fn is_below(self, end: Numbers) -> bool {
        self.ino < end.ino && self.cookie < end.cookie && self.intent < end.intent
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn numbers_end_below_their_end() {
        let end = Numbers { ino: 100, cookie: 200, intent: u64::MAX };
        let more = Numbers { ino: 90, cookie: 150, intent: u64::MAX - 20 }.more_below(15, end);
        assert_eq!(more, Numbers { ino: 99, cookie: 165, intent: u64::MAX - 5 });
        assert_eq!(more.more_below(u64::MAX, end), Numbers { ino: 99, cookie: 199, intent: u64::MAX - 1 });
    }
}
