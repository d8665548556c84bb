//! The order of a group's changes. Bytes are admitted, the groups concerned are locked, numbers are given out, and the
//! record enters the log's queue and the overlay under the same locks (decision D5, rule Q1).
//!
//! A client's write is ordered in `write`, everything else in `record`. Neither waits for anything.

pub(crate) mod admit;
pub(crate) mod fetched;
pub(crate) mod held;
mod numbers;
pub(crate) mod receipt;
pub(crate) mod record;
mod replace;
pub(crate) mod token;
pub(crate) mod write;
