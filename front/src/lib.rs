//! Floor 5: the fronts. Each parses one protocol into operations and turns replies back into it.
//!
//! Promises: a malformed request is refused, never a panic; no state but handles; what the protocol says about
//! durability (O_DSYNC, O_SYNC, fsync) reaches the stack as `base::Sync`.
//! Absent by design: no knowledge of groups, records or devices.

pub mod fuse;
