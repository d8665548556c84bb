//! `world` is a store of plain maps behind the view; `naive` is another file system, by paths. `random` compares
//! them; `scripts` shows the edits of single cases; `cases` holds what needs neither.

mod cases;
mod naive;
mod random;
mod scripts;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod tiers;
mod world;
mod writes;

/// SplitMix64: a seed gives the same run everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
