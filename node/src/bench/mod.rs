//! Measures any directory, ours or another: what synchronous writers, random access and small files get there. Promises
//! figures that compare between file systems (same calls, same bytes), and that no file is left behind unless asked.

pub mod access;
pub mod engine;
pub mod report;
pub mod smallfile;
pub mod steady;
mod stolen;
pub mod sync;
pub mod turns;

#[cfg(test)]
mod tests;
