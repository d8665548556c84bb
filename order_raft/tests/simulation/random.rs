//! Numbers from a seed.

use runtime::random::SplitMix;
use std::ops::Range;

pub struct Random(SplitMix);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(SplitMix(seed));
        random.next();
        random
    }
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.0.below(range.end - range.start)
    }
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..count as u64)).expect("below a usize")
    }
    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.within(0..1000) < per_mille
    }
}
