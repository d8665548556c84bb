//! Hashing for the overlay's maps. The keys are our own numbers, so the hasher is fast and need not resist hostile
//! keys. The standard hasher would not do: in a simulation, maps must iterate in the same order in every run with the
//! same seed (decision D9).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiply and rotate (after Firefox's FxHash): good enough for sequence numbers.
#[derive(Default, Clone, Copy)]
pub struct Mix(u64);

/// Number of low bits into which all of the key is mixed: enough to choose among 2^26 buckets. The map takes the tag of
/// an entry from the top seven bits instead.
const FINISH_BITS: u32 = 26;

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The low bits of a product depend only on the low bits of its factors: for an inode number that is the group,
        // which all keys of a map share. Buckets are chosen by low bits, so the high bits are moved there.
        self.0.rotate_left(FINISH_BITS)
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A hash map with the hasher above.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The entries of a map that was taken apart.
pub type MapEntries<K, V> = std::collections::hash_map::IntoIter<K, V>;

#[cfg(test)]
mod tests {
    use super::*;
    use base::{GroupId, Ino, VolumeId};
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    /// 4096 inodes of a group, as they are numbered one after the other, fill buckets as chance would: 1 - 1/e of them.
    #[test]
    fn inodes_of_one_group_spread_over_the_buckets() {
        let build = BuildHasherDefault::<Mix>::default();
        let hash = |sequence| build.hash_one((VolumeId(1), Ino::new(sequence, GroupId(3))));
        let buckets: BTreeSet<_> = (1..=4096).map(|sequence| hash(sequence) % 4096).collect();
        let tags: BTreeSet<_> = (1..=4096).map(|sequence| hash(sequence) >> 57).collect();
        assert!(buckets.len() > 2000, "{} of 4096 buckets", buckets.len());
        assert_eq!(tags.len(), 128);
    }
}
