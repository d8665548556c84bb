//! Floor 2: what travels with an operation between the process of a client and that of a brick: the operation's context on the
//! way there, its answer on the way back.
#![forbid(unsafe_code)]

mod answer;
mod context;

pub use answer::{Answer, Position};
pub use context::Context;
