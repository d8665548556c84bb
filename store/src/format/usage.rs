//! The use of one project of a volume in one group, as its row in the index says it (rule M6).

use super::charge;
use base::limits::BLOCK_BYTES;

/// The space in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Mapped blocks, those included that are yet to be freed.
    pub blocks: u64,
    /// Inodes of any kind.
    pub inodes: u64,
    /// Blocks that files were promised and have not mapped yet.
    pub reserved: u64,
    /// Bytes of the rows of names, symbolic links' targets and extended attributes; None: nobody has counted them yet.
    pub names: Option<u64>,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage { blocks: 0, inodes: 0, reserved: 0, names: Some(0) }
    }
}

impl Usage {
    /// Bytes of what is no data: rows of inodes, names, targets and attributes.
    pub fn row_bytes(&self) -> u64 {
        self.inodes * charge::INODE + self.names.unwrap_or(0)
    }
    /// All bytes that count against a bound.
    pub fn bytes(&self) -> u64 {
        (self.blocks + self.reserved) * BLOCK_BYTES as u64 + self.row_bytes()
    }
    /// Adds what another one uses.
    pub fn add(&mut self, other: &Usage) {
        self.blocks += other.blocks;
        self.inodes += other.inodes;
        self.reserved += other.reserved;
        self.names = self.names.zip(other.names).map(|(one, other)| one + other);
    }
}
