//! Floor 5: the fronts. Each parses one protocol into operations, and encodes replies for it.
//!
//! Promises: a malformed request is refused, never a panic; no state but handles; the protocol's words about durability
//! (O_DSYNC, O_SYNC, fsync) reach the stack as `base::Sync`. Absent by design: no knowledge of groups, records or
//! devices.

pub mod fuse;
