//! Floor 2: what travels between the process of a client and that of a brick, and between bricks: an operation's context on the
//! way there, its answer on the way back, the frames and bodies that both become on a wire, and both ends of a connection.
//!
//! Promises: of the frames and bodies: bytes in, bytes out, without I/O, clocks or waiting; of the ends: see `client`, `server` and `peer`.
//! Absent by design: what an operation does.
#![forbid(unsafe_code)]

mod answer;
mod cache_lease;
pub mod client;
pub mod codec;
mod context;
mod credit;
pub mod frame;
pub mod lane;
pub mod locks;
mod pauses;
pub mod peer;
pub mod server;
pub mod share;
mod strangers;
pub mod tls;

pub use answer::{Answer, Position};
pub use client::Client;
pub use context::Context;
pub use frame::{FrameKind, Header};
pub use peer::Peers;
pub use server::Server;
pub use share::{Share, Sharer};
