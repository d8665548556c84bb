//! Identifiers. None is ever reused (rule L2), except segment ids: a segment's life number tells its uses apart.

use crate::limits::{BLOCKS_PER_LEAF, GROUP_BITS};
use std::fmt;
use std::ops::Range;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", stringify!($name), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(/// A placement group; 20 bits are used.
    GroupId(u32));
id!(/// A volume; 0 is the brick's own catalogue of volumes.
    VolumeId(u32));
id!(/// A copy of a group on a brick; 1 on a single machine.
    ReplicaId(u64));
id!(/// A segment of the brick. Its life number tells which of its uses is meant.
    SegmentId(u32));
id!(/// Number of times that a segment has been taken into use.
    Life(u32));
id!(/// One client's identity.
    SessionId(u64));
id!(/// A request of a session; increases within the session.
    RequestId(u64));
id!(/// Raft term; 1 under `solo`.
    Term(u64));
id!(/// The position of a record within its group's order; the first record has index 1.
    Index(u64));

/// Inode number: 43 bits of sequence above 20 bits of group, the one that owns the inode (rule M1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u64);

impl Ino {
    /// End of the sequence numbers: all are below it.
    pub const SEQUENCE_END: u64 = 1 << 43;

    /// The inode number made of a group and a sequence number within it.
    pub fn new(sequence: u64, group: GroupId) -> Ino {
        assert!(sequence < Ino::SEQUENCE_END && group.0 < 1 << GROUP_BITS);
        Ino(sequence << GROUP_BITS | u64::from(group.0))
    }
    /// The group that owns the inode, its data and, if it is a directory, its entries.
    pub fn group(self) -> GroupId {
        GroupId((self.0 & ((1 << GROUP_BITS) - 1)) as u32)
    }
    /// The sequence number within the group.
    pub fn sequence(self) -> u64 {
        self.0 >> GROUP_BITS
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}.{}", self.group().0, self.sequence())
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The place of a 4 KiB block on the brick: a segment and the block's number within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The segment.
    pub segment: SegmentId,
    /// Block number within the segment (a segment has at most 65,536 blocks).
    pub block: u16,
}

impl Place {
    /// The place of a block that this brick lacks: others that have the group have it (`heal`).
    pub const MISSING: Place = Place { segment: SegmentId(u32::MAX), block: 0 };

    /// The place `count` blocks further on in the same segment.
    pub fn advance(self, count: u32) -> Place {
        let block = u32::from(self.block) + count;
        Place { segment: self.segment, block: u16::try_from(block).expect("a run of blocks stays within its segment") }
    }
}

/// The name of a leaf, which maps `BLOCKS_PER_LEAF` consecutive blocks of an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeafKey {
    /// The inode.
    pub ino: Ino,
    /// Number of the leaf within the inode: block number / `BLOCKS_PER_LEAF`.
    pub leaf: u64,
}

impl LeafKey {
    /// The leaf that maps `block` of `ino`, and the block's slot within it.
    pub fn of(ino: Ino, block: u64) -> (LeafKey, usize) {
        let leaf = block / BLOCKS_PER_LEAF as u64;
        (LeafKey { ino, leaf }, (block % BLOCKS_PER_LEAF as u64) as usize)
    }
    /// The part of a range of the inode's blocks that lies in this leaf, as slots of the leaf; empty if none does.
    pub fn part_of(self, blocks: &Range<u64>) -> Range<usize> {
        let first = self.leaf * BLOCKS_PER_LEAF as u64;
        let within = |block: u64| block.saturating_sub(first).min(BLOCKS_PER_LEAF as u64) as usize;
        within(blocks.start)..within(blocks.end)
    }
}
