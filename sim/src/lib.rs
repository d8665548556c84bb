//! Workshop: whole bricks on simulated machines, with clients, faults, crashes and checkers, decided by one seed.
//!
//! Promises: the same seed and the same code do the same, bit by bit; a failure names the seed that replays it.
//! Absent by design: threads, real time, real devices (those are tested on real mounts).
#![forbid(unsafe_code)]

pub mod campaign;
pub mod check;
pub mod history;
pub mod index;
pub mod model;
pub mod scenario;
pub mod small;
pub mod workload;
pub mod world;
