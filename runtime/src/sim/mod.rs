//! The simulated world (decision D9): hosts, each with clocks, cores, a blocking pool, randomness, and a disk that loses all
//! that it may; and a network between them. One thread runs everything, and one seed decides everything. A `World` is a `Fleet` of one host.
//!
//! Promises: the same seed and the same code give the same run, bit by bit (`World::fingerprint`); whatever the
//! durability model in `disk` and the promises of `links` allow can happen, and nothing that they forbid; a world that is dropped frees all that it
//! held. Absent by design: threads, real time, the operating system. Jobs of the pool run inline, so a job that waits
//! for a task would wait for ever.

mod content;
mod disk;
mod ends;
mod fault;
mod fleet;
mod host;
mod image;
mod links;
mod net;
mod pages;
mod schedule;
pub mod spindle;
mod trace;
mod world;

#[cfg(test)]
mod tests;

pub use disk::{FileFigures, Side, SimDisk};
pub use fault::{Fail, FaultPlan};
pub use fleet::{Fleet, Hosts};
pub use host::BootClock;
pub use image::{DiskImage, Survival};
pub use links::{LinkPlan, Links};
pub use trace::{TraceEvent, TraceKind};
pub use world::{Ran, Setup, World};
