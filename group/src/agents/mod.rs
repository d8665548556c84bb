//! Tasks that work on a brick's groups unasked: checkpoints, cleaning, defragmentation, the end of forgotten inodes, removals of
//! disks, read-ahead, the count of an old brick's names. `open` starts each.

pub(crate) mod checkpoint;
pub mod clean;
mod cost;
pub(crate) mod defragment;
pub(crate) mod destage;
pub(crate) mod evacuate;
pub(crate) mod forget;
mod moves;
pub(crate) mod recount;
pub(crate) mod streams;

use crate::Groups;
use runtime::budget::{Agent, Working};
use std::sync::atomic::Ordering;

/// Longest uninterrupted wait for a slice: closing the brick does not wait longer.
const WAIT_NS_MAX: u64 = 100_000_000;
/// Shortest one: about the overhead of a timer.
const WAIT_NS_MIN: u64 = 50_000;

/// Waits until the budget of background work allows an agent a slice; None if the groups close.
async fn begin_slice(groups: &Groups, agent: Agent) -> Option<Working<'_>> {
    while !groups.closing.load(Ordering::Acquire) {
        match groups.store().runtime.begin_slice(agent) {
            Ok(slice) => return Some(slice),
            Err(wait_ns) => groups.store().runtime.clock.sleep(wait_ns.clamp(WAIT_NS_MIN, WAIT_NS_MAX)).await,
        }
    }
    None
}
