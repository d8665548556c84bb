//! Memory: what the brick holds for changes that are on their way is within its bounds, whatever clients do.

use crate::world::Served;
use base::Op;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};

/// Bytes that a change takes in the overlay besides its content: inodes, entries with long names, cuts.
const CHANGE_BYTES: u64 = 8 << 10;
/// Bytes that it takes per block, in leaves that it shares with nobody.
const PER_BLOCK_BYTES: u64 = 150;
/// Bytes that the cleaner's moves take, which nobody holds back: 16 victims of the smallest segments between two
/// checkpoints.
const MOVES_BYTES: u64 = 16 * 256 * PER_BLOCK_BYTES;

/// Most bytes that an operation adds to the overlay.
pub fn cost(op: &Op, length: u32) -> u64 {
    let brings = match op {
        Op::SetXattr { value, .. } => value.len() as u64,
        Op::SymLink { target, .. } => target.len() as u64,
        _ => u64::from(length).div_ceil(BLOCK_BYTES as u64) * PER_BLOCK_BYTES,
    };
    CHANGE_BYTES + brings
}

/// Checks a brick at any moment. `deliveries`: requests that may be under way at once; `largest`: what one of them costs
/// at most. A change that is let in below the bound may end above it, hence one for each.
pub fn check(served: &Served, deliveries: u64, largest: u64) -> Result<(), String> {
    let overlay = served.groups.overlay_bytes();
    let overlay_max = 2 * served.options.overlay_bytes + deliveries * largest + MOVES_BYTES;
    if overlay > overlay_max {
        return Err(format!("the overlay takes {overlay} bytes of at most {overlay_max}"));
    }
    let (pending, pending_max) = served.groups.store().log.pending_bytes();
    let pending_max = pending_max + deliveries * IO_BYTES_MAX as u64;
    if pending > pending_max {
        return Err(format!("records and payloads of {pending} bytes wait to be written, at most {pending_max} may"));
    }
    Ok(())
}
