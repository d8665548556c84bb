//! The blocks that leaves name, and their owners: a bit per block, and the owners of a segment's blocks in one digest,
//! so that memory does not grow with their number.

use crate::format::summary::SummaryEntry;
use base::{GroupId, Ino, VolumeId};
use runtime::random::SplitMix;

/// The owner of a block and the checksum of its content, as said by a leaf or by the summary of the block's segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Owner {
    /// The group.
    pub group: GroupId,
    /// The volume.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// The block's number within the inode.
    pub offset: u64,
    /// CRC-32C of the block.
    pub crc: u32,
}

impl Owner {
    /// The owner that a summary names.
    pub fn told(entry: &SummaryEntry) -> Owner {
        let SummaryEntry { group, volume, ino, offset, crc, .. } = *entry;
        Owner { group, volume, ino, offset, crc }
    }
    /// 64 bits that differ from those of any other owner or block but by a chance of 2^-64.
    fn mark(&self, block: u16) -> u64 {
        let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let words = [u64::from(block), word(self.group.0, self.volume.0), self.ino.0, self.offset, u64::from(self.crc)];
        words.into_iter().fold(0, |mark, word| SplitMix(mark ^ word).next())
    }
}

/// The blocks of one segment that leaves name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Named blocks.
    pub bits: Vec<u64>,
    /// Blocks that were named again.
    pub twice: Vec<u16>,
    digest: u64,
}

impl Claims {
    /// A leaf names a block.
    pub fn add(&mut self, block: u16, owner: &Owner) {
        let (word, bit) = at(block);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit != 0 {
            self.twice.push(block);
        }
        self.bits[word] |= bit;
        // A sum does not depend on the order in which leaves come.
        self.digest = self.digest.wrapping_add(owner.mark(block));
    }
    /// True if a leaf names the block.
    pub fn has(&self, block: u16) -> bool {
        is_set(&self.bits, block)
    }
    /// True if a summary says of all named blocks what leaves say.
    pub fn are_told(&self, entries: &[SummaryEntry]) -> bool {
        let named = entries.iter().filter(|entry| self.has(entry.block));
        let digest = named.fold(0u64, |sum, entry| sum.wrapping_add(Owner::told(entry).mark(entry.block)));
        digest == self.digest
    }
}

fn at(block: u16) -> (usize, u64) {
    (usize::from(block / 64), 1 << (block % 64))
}

/// True if the block's bit is set.
pub fn is_set(bits: &[u64], block: u16) -> bool {
    let (word, bit) = at(block);
    bits.get(word).is_some_and(|word| word & bit != 0)
}

/// Number of bits of `these` that are not set in `those`.
pub fn beyond(these: &[u64], those: &[u64]) -> u32 {
    let word = |(at, &bits): (usize, &u64)| (bits & !those.get(at).copied().unwrap_or(0)).count_ones();
    these.iter().enumerate().map(word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Index;

    #[test]
    fn a_summary_that_says_anything_else_is_noticed() {
        let (group, volume, ino, index) = (GroupId(1), VolumeId(2), Ino(3), Index(5));
        let one = SummaryEntry { block: 9, group, volume, ino, offset: 4, index, crc: 6 };
        let other = SummaryEntry { block: 70, offset: 5, crc: 7, ..one };
        let mut claims = Claims::default();
        [other, one].iter().for_each(|entry| claims.add(entry.block, &Owner::told(entry)));
        assert!(claims.are_told(&[one, other]));
        // Which record named it, and what no leaf names, is nothing that a leaf says.
        let index = Index(8);
        assert!(claims.are_told(&[SummaryEntry { index, ..one }, SummaryEntry { block: 10, ..one }, other]));
        for wrong in [
            SummaryEntry { block: 8, ..one },
            SummaryEntry { group: GroupId(0), ..one },
            SummaryEntry { volume: VolumeId(3), ..one },
            SummaryEntry { ino: Ino(2), ..one },
            SummaryEntry { offset: 5, ..one },
            SummaryEntry { crc: 7, ..one },
            SummaryEntry { block: one.block, ..other },
        ] {
            assert!(!claims.are_told(&[wrong, other]), "{wrong:?}");
        }
        assert!(!claims.are_told(&[one]));
        let swapped = [SummaryEntry { block: 9, ..other }, SummaryEntry { block: 70, ..one }];
        assert!(!claims.are_told(&swapped));
    }
}
