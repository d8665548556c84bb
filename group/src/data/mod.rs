//! The content of files: reads, writes, holes, and reading ahead. Writes are made ready here; `order` orders them.

mod access;
pub(crate) mod ahead;
pub(crate) mod commits;
mod punch;
mod read;
mod seek;
mod write;
