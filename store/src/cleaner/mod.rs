//! The cleaner's decisions: which segments are cleaned, where their live blocks go, how fast, and how much clients are
//! throttled (rules K1, K4).
//!
//! Promises: the same measurements give the same decisions; the clients' delay grows smoothly as free segments run
//! short, and never stops clients for good; cleaning runs in bounded slices. Absent by design: I/O, waiting, clocks.
//! The drive (`group`'s cleaner task), which carries the decisions out, owns the controller, one per tier. Memory: the
//! controller is of fixed size; a choice copies the candidates; a batch is bounded by what it was given.
//!
//! A hybrid brick. The flash has two kinds of victims, and they are emptied at the same time. Those of `Choice::staying` one by
//! one in slices, as on a brick without tiers. Those of `Choice::destaged` join the `Batch`, each as soon as that wants it, and
//! its runs are written to the disk's stream, each `run_ns` after the one before. A segment of the batch is emptied when
//! the moves of its last run count: that is after a flush of the disk and in the order of the log, some runs together. For
//! the disk, `Choice::new` and `Controller::of_disk` work as on a brick without tiers whose clients are the destage:
//! `Sight::client_blocks` are blocks destaged (and whatever else was written there), and `Pace::client_delay_ns` is the
//! destage's.

mod batch;
mod choice;
mod core;
mod destage;
mod pins;
#[cfg(test)]
mod tests;

pub use self::batch::{BATCH_BYTES_MAX, Batch, RUN_BLOCKS, Survivor};
pub use self::choice::{Candidate, Choice};
pub use self::core::{Controller, Destaged, Mean, Pace, Sight, State, Thresholds};
pub use self::destage::{Destination, Held, Tiering, run_ns};
pub use self::pins::Pins;
