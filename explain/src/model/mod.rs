//! Models of throughput over the number of requests in flight, by which the effect of a change is told before it is made.
//! Everything here is a pure function of measured figures.
//!
//! `closed` is a closed network of queues: what resources take of each request decides. `usl` is the universal scalability
//! law: how throughput bends tells what queues for something shared, whatever it is. `parts` makes a network of what was
//! measured at few requests in flight.

pub mod closed;
pub mod parts;
pub mod usl;

pub use closed::{Solved, Station, solve};
pub use parts::{Machine, Parts, Point};
pub use usl::Usl;
