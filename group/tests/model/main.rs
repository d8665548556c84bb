//! The groups of a brick as their clients see them, in a simulated world: against a plain model, side by side, twice
//! delivered, across groups, over many volumes, to the last byte of space.

mod access;
mod ahead;
#[path = "../../../store/tests/brick/batches.rs"]
mod batches;
mod charged;
mod check;
mod concurrent;
mod copies;
mod damaged_log;
mod defragment;
mod durable;
mod failure;
mod forgotten;
mod kept;
mod kinds;
mod leaving;
mod lines;
mod listing;
mod loops;
mod nameless;
mod plain;
mod projects;
mod promises;
mod random;
mod repair;
mod restart;
mod rig;
mod scrub;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod sessions;
mod space;
mod sparse;
mod strangers;
mod streams;
mod taken;
mod tiers;
mod told;
mod trips;
mod twice;
mod values;
mod volumes;
mod waits;
