//! Floor 2: the brick.
#![forbid(unsafe_code)]
pub mod format;
pub mod index;
