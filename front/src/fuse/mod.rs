//! The FUSE front: a volume as a mounted file system, over `/dev/fuse` or io_uring (rules F1 to F5).
//!
//! Promises: one long-lived set of tasks per core reads, handles and answers requests on that core's own clone of the
//! device, or in entries of that core's ring, without an allocation or a hand-over per warm request (decision D4);
//! payloads land aligned; the flags of every write decide when it is acknowledged (rule F1); handles need no state, and
//! a node id is an inode number (rule F5); the kernel's caches are up to date when a change is answered (decision
//! 0042).
//!
//! Absent by design: no libfuse, no fusermount; no caching of its own (the kernel caches, and no more than its session may); no
//! locks (they stay in the kernel of a mount that shares its volume with nobody, and are the server's else), no writeback cache (rule F2).

mod abi;
mod ablated;
mod channel;
mod dying;
mod ends;
mod file_locks;
mod gate;
mod handle;
mod init;
mod mount;
mod mountinfo;
mod notices;
pub mod parse;
mod reader_token;
mod recent;
pub mod reply;
mod rings;
mod serve;
mod sharing;
mod syscall;
mod taped;

pub use base::OP_NAMES;
pub use gate::Opener;
pub use mount::{Durable, Mount, MountOptions, Noatime, Restriction, Unmounted, check, is_dead, mount, remount};
pub use rings::{Entries, Rings, Transport, rings_are_on};
pub use serve::{Identity, Serving, Target, serve, serve_target};
