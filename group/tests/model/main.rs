//! The groups of a brick as their clients see them, in a simulated world: against a plain model, side by side, twice
//! delivered, across groups, over many volumes, to the last byte of space.

mod check;
mod concurrent;
mod durable;
mod failure;
mod listing;
mod plain;
mod promises;
mod random;
mod restart;
mod rig;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod space;
mod sparse;
mod strangers;
mod twice;
mod volumes;
