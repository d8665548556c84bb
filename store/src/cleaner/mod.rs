//! The cleaner's decisions: which segments are cleaned, where their live blocks go, how fast, and how much clients are
//! throttled (rules K1, K4).
//!
//! Promises: the same measurements give the same decisions; the clients' delay grows smoothly as free segments run
//! short, and never stops clients for good; cleaning runs in bounded slices. Absent by design: I/O, waiting, clocks.
//! The drive (`group`'s cleaner task), which carries the decisions out, owns the controller, one per tier. Memory: the
//! controller is of fixed size; a choice copies the candidates; a batch is bounded by what it was given.
//!
//! A hybrid brick. For the flash, the drive takes victims of one `Choice::tiered` in order. It empties those that stay one by
//! one, in slices; those that go down join the `Batch` as soon as that wants them, and `Pace::destage_rate` says how fast the
//! batch's runs are written to the disk's stream. Whoever comes next waits for its turn, so that the mix is that of the choice
//! and its mean is what it costs. A segment of the batch is emptied when the moves of its last run count: that is after a
//! flush of the disk and in the order of the log, some runs together. For the disk, `Choice::new` and `Controller::of_disk`
//! work as on a brick without tiers, whose clients are the destage: `Sight::client_blocks` are blocks destaged (and whatever
//! else was written there), and a run of n blocks waits n times `Pace::client_delay_ns` for the run before.

mod batch;
mod choice;
mod core;
mod destage;
#[cfg(test)]
mod tests;

pub use self::batch::{BATCH_BYTES_MAX, Batch, RUN_BLOCKS, Survivor};
pub use self::choice::{Candidate, Choice, Victim};
pub use self::core::{Controller, Destaged, Mean, Pace, Sight, State, Thresholds};
pub use self::destage::{Destination, Tiering};
