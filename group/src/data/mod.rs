//! The content of files: reads, writes, holes, and prefetching. Payloads of writes are prepared here (whole blocks,
//! checksums); `order` orders them.

mod access;
pub(crate) mod ahead;
pub(crate) mod commits;
mod copies;
pub(crate) mod near;
mod punch;
mod read;
pub(crate) mod scattered;
mod seek;
pub(crate) mod streams;
pub(crate) mod tier;
mod write;
