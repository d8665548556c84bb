//! Numbers from a seed (SplitMix64).

use std::ops::Range;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed);
        random.next();
        random
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..count as u64)).expect("below a usize")
    }
    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.within(0..1000) < per_mille
    }
}
