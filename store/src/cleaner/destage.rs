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
    /// The cold stream of the victim's own tier.
    Stay,
    /// The tier below: destage.
    Down,
}

/// The state of a hybrid brick's tiers that destinations depend on.
#[derive(Clone, Copy, Debug)]
pub struct Tiering {
    /// Age, in segments opened since, below which a victim is young; 0: none is.
    young: u64,
    /// False if nothing goes down.
    destages: bool,
}

/// The age of an old victim, as a share of the flash's segments: half of the flash was written since.
const YOUNG_PARTS: u64 = 2;
/// The same while the flash is short, or clients rest: a segment gained counts for more than a second time on flash.
const YOUNG_PARTS_PRESSED: u64 = 8;
/// Share of the flash's blocks that may live before anything is destaged, in 1/16. With five eighths alive, cleaning within the
/// flash writes about half a block per block written, and less than that would leave flash unused that reads want.
const LIVE_PARTS: u64 = 10;

impl Tiering {
    /// The state of flash of so many segments and blocks, of which `live` live, by the last decisions of both tiers'
    /// controllers.
    pub fn new(segments: u32, (live, blocks): (u64, u64), flash: State, disk: State) -> Tiering {
        assert!(live <= blocks, "no more blocks live than there are");
        let parts = match flash {
            State::Slowing | State::Full | State::Ahead => YOUNG_PARTS_PRESSED,
            State::Idle | State::Cleaning => YOUNG_PARTS,
        };
        let destages = disk != State::Full && live * 16 >= blocks * LIVE_PARTS;
        Tiering { young: u64::from(segments) / parts, destages }
    }
    /// The destination of the blocks that live in a victim. A volume's policy may keep some of them on flash all the same.
    pub fn destination(&self, victim: &Candidate) -> Destination {
        let again = victim.stream == Stream::Cold;
        if self.destages && (again || victim.age >= self.young) { Destination::Down } else { Destination::Stay }
    }
}
