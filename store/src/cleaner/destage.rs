//! The choice between flash and disk for what survives in a segment of flash (`Tiering`): pure, integers only.
//!
//! A block that was written again and again dies in the log, before its segment is cleaned. So a victim that is old is full of
//! blocks that nobody has written for as long as it takes to fill the flash: they go to the disk at once. What survives in a
//! young victim may be warm: it gets a second time on flash, in the cold stream, and what survives there is cold.

use super::choice::Candidate;
use super::core::State;
use crate::format::segment::Stream;

/// The destination of the blocks that live in a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The cold stream of flash.
    Stay,
    /// The tier below: destage.
    Down,
}

/// The state of a hybrid brick's tiers that destinations depend on.
#[derive(Clone, Copy, Debug)]
pub struct Tiering {
    /// Age, in segments opened since, from which on a victim is old; None if nothing goes down.
    old: Option<u64>,
    /// Largest share of a victim that stays, in `ONE`s.
    stays_max: u64,
}

/// Number one in the shares below.
const ONE: u64 = 256;
/// Share of the flash's blocks that may live before anything is destaged: five eighths. Cleaning within the flash then
/// writes about half a block per block written, and with less the flash would hold less than it can of what is read.
const LIVE_MIN: u64 = ONE * 5 / 8;
/// Largest share to calculate with: of a flash that full, all victims are old that are older than a third of its segments.
const LIVE_MAX: u64 = ONE * 7 / 8;
/// Share at which a victim is old once half of the flash was written since. From `LIVE_MIN` on the age falls smoothly, so that as
/// much goes down as comes: with a single limit, all that is cold would go down at once when it is passed, and
/// clients would wait for the disk, then for nothing, in turns.
const LIVE_HALF: u64 = ONE * 3 / 4;
/// Largest share of a victim that is moved within flash, unless the disk is full: three blocks for each one gained.
/// Moving fuller ones makes room only for as long as it takes to write it; in the long run, as much must go to the disk.
const STAYS_MAX: u64 = ONE * 3 / 4;
/// Part of that age from which on a victim of the cold stream is old: its blocks had their second time on flash.
const COLD_PARTS: u64 = 4;
const _: () = assert!(LIVE_MIN < LIVE_HALF && LIVE_HALF < LIVE_MAX && LIVE_MAX < ONE);

impl Tiering {
    /// The state of flash of so many segments and blocks, of which `live` live. The disk's state is its controller's last.
    pub fn new(segments: u32, (live, blocks): (u64, u64), disk: State) -> Tiering {
        assert!(live <= blocks, "no more blocks live than there are");
        let share = (live * ONE).checked_div(blocks).unwrap_or(0).min(LIVE_MAX);
        if disk == State::Full {
            return Tiering { old: None, stays_max: ONE };
        }
        let old = u64::from(segments) * (LIVE_HALF - LIVE_MIN) / 2;
        Tiering { old: old.checked_div(share.saturating_sub(LIVE_MIN)), stays_max: STAYS_MAX }
    }
    /// The destination of the blocks that live in a victim; None if it should wait until it is old, or more of it is dead. A
    /// volume's policy may keep some of them on flash all the same.
    pub fn destination(&self, victim: &Candidate) -> Option<Destination> {
        let parts = if victim.stream == Stream::Cold { COLD_PARTS } else { 1 };
        if self.old.is_some_and(|old| victim.age >= old / parts) {
            return Some(Destination::Down);
        }
        let stays = u64::from(victim.live) * ONE <= u64::from(victim.blocks) * self.stays_max;
        stays.then_some(Destination::Stay)
    }
}

/// Nanoseconds from the beginning of runs of so many blocks to that of the next ones, by the flash's `Pace::destage_rate` and
/// the disk's `Pace::client_delay_ns`; None while the destage rests. It is to be asked again while one waits: runs that began
/// when there was no hurry must not hold up the next ones when there is.
pub fn run_ns(blocks: u64, rate: u64, delay_ns: u64) -> Option<u64> {
    let paced_ns = (u128::from(blocks) * 1_000_000_000).checked_div(rate.into())?;
    Some((paced_ns as u64).max(blocks.saturating_mul(delay_ns)))
}
