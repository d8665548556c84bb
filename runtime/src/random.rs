//! The interface for random numbers, so that a simulation controls them by a seed.

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): small, and good enough
/// for simulation and jitter; not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// 64 random bits. (Not an iterator: it never ends, and callers want the number, not an option.)
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform in `0..bound`; `bound` > 0. (The bias of the modulus is below 2^-32 for bounds below 2^32.)
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    /// True once in `n` on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
