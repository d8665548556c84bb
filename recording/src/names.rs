//! Names as keyed hashes: equal names of a recording have equal hashes, and without the key, which no file holds, nobody can tell
//! of a guessed name whether it is one of them (SipHash-2-4; Aumasson, Bernstein, 2012).

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// The key of a recording: random, and forgotten at its end.
pub type NameKey = [u64; 2];

/// The hasher of a recording's names.
#[derive(Clone, Copy)]
pub struct NameHasher(NameKey);

impl NameHasher {
    /// The hasher with this key.
    pub fn new(key: NameKey) -> NameHasher {
        NameHasher(key)
    }
    /// The name's hash; never 0, which stands for no name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write(name);
        hasher.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_hash_per_key() {
        let [one, other] = [[1, 2], [1, 3]].map(NameHasher::new);
        assert_eq!(one.hash(b"name"), one.hash(b"name"));
        assert_ne!(one.hash(b"name"), one.hash(b"names"));
        assert_ne!(one.hash(b"name"), other.hash(b"name"));
    }
}
