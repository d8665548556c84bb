//! The cleaner's decisions: which segments are cleaned, how fast, and how much clients are throttled (rules K1, K4).
//!
//! Promises: the same measurements give the same decisions; the clients' delay grows smoothly as free segments run
//! short, and never stops clients for good; cleaning runs in bounded slices. Absent by design: I/O, waiting, clocks.
//! The drive (`group`'s cleaner task), which carries the decisions out, owns the controller, one per brick. Memory: the
//! controller is of fixed size; `choose` copies the candidates.

mod choice;
mod core;
#[cfg(test)]
mod tests;

pub use self::choice::{Candidate, Choice};
pub use self::core::{Controller, Pace, Sight, State, Thresholds};
