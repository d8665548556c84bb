//! The checkers. Each takes what the clients were told and what a crash left, or the running brick, and says what
//! contradicts a promise.

pub mod answers;
pub mod durable;
pub mod memory;
pub mod missing;
pub mod prefix;
pub mod readback;
pub mod space;
pub mod tree;
