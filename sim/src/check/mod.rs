//! The checkers. Each takes what the clients were told and what a crash left, and says what contradicts a promise.

pub mod answers;
pub mod durable;
pub mod prefix;
pub mod readback;
pub mod tree;
