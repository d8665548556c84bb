//! Hashing for the overlay's maps. The keys are our own numbers, so the hasher is fast and need not resist hostile
//! keys; names, which clients choose, come as `NameKey`. The standard hasher would not do: in a simulation, maps must iterate in the same order in every run with the
//! same seed (decision D9).

use base::{Ino, VolumeId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

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

/// A directory's name as a key. Its hash depends on a number that no client knows, or a client could choose names of one hash, and whoever looks
/// up one of them would compare it with all others.
#[derive(Clone, PartialEq, Eq)]
pub struct NameKey {
    hash: u64,
    pub volume: VolumeId,
    dir: Ino,
    name: Box<[u8]>,
}

impl NameKey {
    /// The key under a secret.
    pub fn new(secret: u64, volume: VolumeId, dir: Ino, name: Box<[u8]>) -> NameKey {
        // SipHash, with the secret in the place of a key: the standard hasher takes none, and draws one where it could.
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(secret);
        hasher.write(&name);
        NameKey { hash: hasher.finish(), volume, dir, name }
    }
    /// The name's memory, for another key.
    pub fn into_name(self) -> Box<[u8]> {
        self.name
    }
}

impl Hash for NameKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.hash, self.volume, self.dir).hash(state);
    }
}

/// Names of 16 bytes that have one hash: what the first word changes, the second one takes back.
#[cfg(test)]
pub fn alike(count: u64) -> Vec<Vec<u8>> {
    let name = |number: u64| {
        let first = u64::from_le_bytes(*b"nameAAAA") + (number << 32);
        let mut mix = Mix::default();
        mix.write_u64(first);
        let second = mix.0.rotate_left(5);
        [first.to_le_bytes(), second.to_le_bytes()].concat()
    };
    (0..count).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::GroupId;
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    #[test]
    fn the_hash_of_a_name_depends_on_a_secret() {
        let build = BuildHasherDefault::<Mix>::default();
        let dir = Ino::new(3, GroupId(0));
        let hash = |secret, name: &[u8]| build.hash_one(NameKey::new(secret, VolumeId(1), dir, name.into()));
        let names = alike(1000);
        let without = |name: &Vec<u8>| {
            let mut mix = Mix::default();
            mix.write(name);
            mix.finish()
        };
        let plain: BTreeSet<_> = names.iter().map(without).collect();
        assert_eq!(plain.len(), 1, "they were chosen to have one hash without a secret");
        let under = |secret| names.iter().map(|name| hash(secret, name)).collect::<BTreeSet<_>>();
        assert_eq!((under(1).len(), under(2).len()), (1000, 1000));
        assert_eq!(under(1).intersection(&under(2)).count(), 0);
        assert_eq!(hash(1, &names[7]), hash(1, &names[7]));
    }

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
