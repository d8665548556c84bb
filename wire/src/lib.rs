//! Floor 2: what travels between the process of a client and that of a brick, and between machines: an operation's context on the
//! way there, its answer on the way back, and the frames and bodies that both become on a wire.
//!
//! Promises: bytes in, bytes out. Absent by design: I/O, clocks, waiting.
#![forbid(unsafe_code)]

mod answer;
pub mod codec;
mod context;
pub mod frame;
pub mod tls;

pub use answer::{Answer, Position};
pub use context::Context;
pub use frame::{FrameKind, Header};
