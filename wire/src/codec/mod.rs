//! Bodies of frames. `docs/wire.md` gives every byte.
//!
//! Promises: what is decoded is encoded to the same bytes again; a decoder takes no more memory than the bytes that it was given
//! justify, and refuses every tag, code and bit that it does not know, and bytes behind the end.

mod bytes;
pub mod hello;
pub mod lock;
pub mod op;
pub mod peer;
pub mod reply;
pub mod session;
mod sums;
mod values;

use crate::{FrameKind, Header, frame};
use base::Result;

pub use sums::Sums;

/// Longest text of a body: for people, who do not read more.
pub const TEXT_BYTES_MAX: usize = 1 << 10;

/// A body of a kind of frame that has neither context nor payload.
pub trait Body: Sized {
    /// The kind of the frame.
    const KIND: FrameKind;

    /// Appends the body.
    fn encode(&self, out: &mut Vec<u8>);
    /// The body of these bytes. Errors: `Corrupt`.
    fn decode(body: &[u8]) -> Result<Self>;

    /// Appends the frame, with what else `header` says.
    fn frame(&self, out: &mut Vec<u8>, header: Header) {
        frame::put(out, Header { kind: Self::KIND, ..header }, 0, |out| self.encode(out));
    }
}
