//! The choice between flash and disk for what survives in a segment of flash (`Tiering`): pure, integers only.
//!
//! A block that was written again and again dies in the log, before its segment is cleaned. So a victim that is old is full of
//! blocks that nobody has written for as long as it takes to fill the flash: they go to the disk at once. What survives in a
//! young victim may be warm: it gets a second time on flash, in the cold stream, and what survives there is cold.

use super::choice::Candidate;
use super::core::{State, Thresholds};
use crate::format::segment::Stream;

/// The destination of the blocks that live in a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The cold stream of flash.
    Stay,
    /// The tier below: destage.
    Down,
}

/// The segments of a tier, their blocks, and how many of these live.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Number of segments.
    pub segments: u32,
    /// Number of live blocks as of the last checkpoint.
    pub live: u64,
    /// Number of all blocks.
    pub blocks: u64,
}

impl Held {
    /// Number of blocks that the tier holds while so many of its segments hold nothing.
    fn without(&self, segments: u32) -> u64 {
        assert!(self.live <= self.blocks, "no more blocks live than there are");
        let left = self.segments.saturating_sub(segments).max(1);
        (u128::from(self.blocks) * u128::from(left) / u128::from(self.segments.max(1))) as u64
    }
}

/// The state of a hybrid brick's tiers that destinations depend on.
#[derive(Clone, Copy, Debug)]
pub struct Tiering {
    /// Age, in segments opened since, from which on a victim is old; None if nothing goes down.
    old: Option<u64>,
    /// Largest share of a victim that stays, in `ONE`s.
    stays_max: u64,
    /// True while pinned blocks stay on flash.
    pins_hold: bool,
}

/// Segments' worth of room in those that are open: of the commit, bulk and cold streams.
const OPEN_SEGMENTS: u32 = 2;
/// Number one in the shares below.
const ONE: u64 = 256;
/// Share of what the flash can hold that may live before anything is destaged: five eighths. Cleaning within the flash then
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
/// The same share while pins hold all else: seven blocks are moved for each one gained. With more, a brick whose pins are let go is
/// faster.
const FULLER_MAX: u64 = ONE * 7 / 8;
/// Part of that age from which on a victim of the cold stream is old: its blocks had their second time on flash.
const COLD_PARTS: u64 = 4;
const _: () = assert!(LIVE_MIN < LIVE_HALF && LIVE_HALF < LIVE_MAX && LIVE_MAX < ONE);
const _: () = assert!(STAYS_MAX < FULLER_MAX && FULLER_MAX < ONE);

impl Tiering {
    /// The state of both tiers; the disk's with its controller's last.
    pub fn new(flash: Held, disk: Held, state: State) -> Tiering {
        // A disk that holds all it may (rule K5) takes nothing, however it gets on.
        let usable = disk.without(Thresholds::new(disk.segments).reserve);
        if state == State::Full || disk.live >= usable {
            return Tiering { old: None, stays_max: ONE, pins_hold: true };
        }
        // Small flash keeps much free.
        let full = flash.without(Thresholds::tiered(flash.segments).target + OPEN_SEGMENTS);
        let share = (flash.live * ONE).checked_div(full).unwrap_or(0).min(LIVE_MAX);
        let span = 2 * (LIVE_HALF - LIVE_MIN);
        let old =
            share.checked_sub(LIVE_MIN).map(|over| u64::from(flash.segments) * (span - over.min(span * 3 / 4)) / span);
        Tiering { old, stays_max: STAYS_MAX, pins_hold: true }
    }
    /// The same while room is short and no victim has a destination: all may go down, however young, unless the disk is full.
    pub fn pressed(&self) -> Tiering {
        Tiering { old: (self.stays_max < ONE).then_some(0), ..*self }
    }
    /// The same while room is short and pins hold all else: fuller victims stay, as on a brick without disks.
    pub fn fuller(&self) -> Tiering {
        Tiering { stays_max: self.stays_max.max(FULLER_MAX), ..*self }
    }
    /// The same as a last resort, when flash is full of what is pinned: pins hold no longer. Nobody is refused a write while the disk
    /// has room.
    pub fn unpinned(&self) -> Tiering {
        Tiering { pins_hold: false, ..*self }
    }
    /// True while pinned blocks stay on flash.
    pub fn pins_hold(&self) -> bool {
        self.pins_hold
    }
    /// True if blocks may go down: the disk is not full.
    pub fn goes_down(&self) -> bool {
        self.stays_max < ONE
    }
    /// True if so much of a victim is pinned that its other blocks should not be destaged: the pinned ones would take as
    /// much of flash again as was gained, or nearly so.
    pub fn is_held(&self, blocks: u32, pinned: u32) -> bool {
        self.pins_hold && u64::from(pinned) * ONE > u64::from(blocks) * STAYS_MAX
    }
    /// The destination of the blocks that live in a victim; None if it should wait until it is old, or more of it is dead. Those that
    /// are pinned stay in any case.
    pub fn destination(&self, victim: &Candidate) -> Option<Destination> {
        let parts = if victim.stream == Stream::Cold { COLD_PARTS } else { 1 };
        let is_held = self.is_held(victim.blocks, victim.pinned);
        // What is left of a victim that was destaged is pinned.
        let is_kept = self.pins_hold && victim.pinned > 0 && (is_held || victim.pinned == victim.live);
        if self.old.is_some_and(|old| victim.age >= old / parts) && !is_kept {
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
