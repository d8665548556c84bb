//! Blocks that were read from disk once, lately: their names without their content ("ghosts"). What is read again while its
//! name is there proves to be hot; one pass over much only replaces names.

use super::map::Key;

/// Names of a set; with the position of the next one, a set fills a cache line.
const WAYS: usize = 15;
type Set = [u32; WAYS + 1];
const _: () = assert!(size_of::<Set>() == 64);

/// Groups of blocks, each with 16 bits that tell most groups of a set apart, and a bit for each block that was read. The
/// oldest of a set goes first.
pub(super) struct Ghost {
    sets: Vec<Set>,
}

impl Ghost {
    /// Room for about so many groups.
    pub fn new(groups: u32) -> Ghost {
        Ghost { sets: vec![[0; WAYS + 1]; sets(groups)] }
    }
    /// Bytes that the names of so many groups take.
    pub fn bytes_of(groups: u32) -> u64 {
        (sets(groups) * size_of::<Set>()) as u64
    }
    /// Bytes that it has taken.
    pub fn bytes(&self) -> u64 {
        (self.sets.capacity() * size_of::<Set>()) as u64
    }
    /// Notes that blocks of a group are read. Returns those that were before.
    pub fn note(&mut self, key: Key, blocks: u16) -> u16 {
        assert!(blocks != 0, "a read is of blocks");
        let hash = key.hash();
        let mark = (hash as u32) << 16;
        let number = (hash >> 32) as usize % self.sets.len();
        let set = &mut self.sets[number];
        let names = &mut set[1..];
        if let Some(name) = names.iter_mut().find(|name| **name & 0xffff_0000 == mark && **name & 0xffff != 0) {
            let before = *name as u16 & blocks;
            *name |= u32::from(blocks);
            return before;
        }
        let next = set[0] as usize % WAYS;
        set[1 + next] = mark | u32::from(blocks);
        set[0] = next as u32 + 1;
        0
    }
}

fn sets(groups: u32) -> usize {
    (groups as usize).div_ceil(WAYS)
}
