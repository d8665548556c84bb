//! The cleaner: which segments are cleaned, how fast, and what clients are slowed by (rules K1, K4).
//!
//! It promises that the same sights give the same answers, that the clients' delay grows smoothly as free segments run
//! short and never stops them for good, and that cleaning runs in bounded slices. It does not read, write, wait or
//! look at a clock: the drive that performs its answers owns the controller, one per brick. Memory: the controller is
//! of fixed size; `choose` copies the candidates it is given.

mod choice;
mod core;
#[cfg(test)]
mod tests;

pub use self::choice::{Candidate, Choice};
pub use self::core::{Controller, Pace, Sight, State, Thresholds};
