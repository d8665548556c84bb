//! Measures any directory, ours or another: what synchronous writers, random and sequential access, small files,
//! names and streams get there. Promises
//! figures that compare between file systems (same calls, same bytes), and that no file is left behind unless asked.

pub mod access;
pub mod chart;
pub mod commit_mix;
pub mod compare;
pub mod engine;
pub mod metadata;
pub mod report;
pub mod scorecard;
pub mod smallfile;
pub mod steady;
mod stolen;
pub mod streams;
pub mod sync;
pub mod turns;

#[cfg(test)]
mod tests;
