//! Hashing for the overlay's maps: the keys are our own numbers, so speed counts and hostile keys don't; and the same
//! seed must iterate in the same order in every run (decision D9), which the standard hasher does not.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiply and rotate (after Firefox's FxHash): good enough for sequence numbers.
#[derive(Default, Clone, Copy)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
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
