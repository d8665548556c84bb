//! Floor 3: group.
#![forbid(unsafe_code)]
pub mod context;
pub use context::{Class, Context};
