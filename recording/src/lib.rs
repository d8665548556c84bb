//! Recordings of the operations that reached a daemon, as bytes of a file: operations in, bytes out, and back. Everything here
//! is a pure function.
//!
//! Promises: a file holds no name and no data; each frame has a checksum, and what is cut off, damaged or of a newer version is
//! told by name (`Reading`); bytes of any kind are refused without a panic, and nothing of the size that they claim is allocated
//! before it is known to be there. Absent by design: taking operations (`runtime::ledger`, package `front`), doing them (package
//! `node`), clocks, files.

pub mod file;
pub mod names;
pub mod operation;
pub mod overlap;
pub mod plan;
pub mod quantiles;

pub use file::{Begin, End, Entry, Reading, Recording, Writer, read};
pub use names::{NameHasher, NameKey};
pub use operation::{Deed, FileShape, Flags, Inode, Operation};
pub use plan::Plan;
