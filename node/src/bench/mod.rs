//! Measures any directory, ours or another: what synchronous writers and random access get there. Promises figures
//! that compare between file systems (same calls, same bytes), and that no file is left behind.

mod engine;
pub mod random;
pub mod report;
pub mod steady;
mod stolen;
pub mod sync;

#[cfg(test)]
mod tests;
