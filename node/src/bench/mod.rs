//! Measures any directory, ours or another: what synchronous writers, random and sequential access, small files,
//! objects, names and streams get there. Promises
//! figures that compare between file systems (same calls, same bytes), and that no file is left behind unless asked.

pub mod access;
pub mod chart;
pub mod commit_mix;
pub mod compare;
mod contents;
pub mod engine;
mod kept;
pub mod metadata;
pub mod object;
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
