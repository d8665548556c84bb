//! Tasks that work on a brick's groups unasked: checkpoints, cleaning, defragmentation, the end of forgotten inodes, removals of
//! disks, read-ahead, the count of an old brick's names. `open` starts each.

pub(crate) mod checkpoint;
pub mod clean;
mod cost;
pub(crate) mod defragment;
pub(crate) mod destage;
pub(crate) mod evacuate;
pub(crate) mod forget;
pub(crate) mod moves;
pub(crate) mod recount;
pub(crate) mod streams;
