//! Bodies of frames. `docs/wire.md` gives every byte.
//!
//! Promises: what is decoded is encoded to the same bytes again; a decoder takes no more memory than the bytes that it was given
//! justify, and refuses every tag, code and bit that it does not know, and bytes behind the end.

mod bytes;
pub mod op;
pub mod reply;
mod sums;
mod values;

pub use sums::Sums;
