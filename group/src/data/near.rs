//! Blocks that lie near each other on a device: those that one transfer reads, with what lies between them.

use base::Place;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};

/// Most blocks of one transfer, those between included: the largest transfer.
pub(crate) const RUN_BLOCKS_MAX: u16 = (IO_BYTES_MAX / BLOCK_BYTES) as u16;

/// Splits blocks whose places rise where more than `gap` others lie between two, or the segment ends.
pub(crate) fn together<T>(blocks: &[T], place: impl Fn(&T) -> Place, gap: u16) -> impl Iterator<Item = &[T]> {
    blocks.chunk_by(move |one, next| {
        let (one, next) = (place(one), place(next));
        one.segment == next.segment && next.block - one.block <= gap + 1
    })
}

/// Splits blocks that lie near each other into runs that one transfer reads each.
pub(crate) fn transfers<T>(together: &[T], place: impl Fn(&T) -> Place) -> impl Iterator<Item = &[T]> {
    let first = together.first().map_or(0, |block| place(block).block);
    // Blocks rise: equal quotients lie within one transfer.
    let part = move |block: &T| (place(block).block - first) / RUN_BLOCKS_MAX;
    together.chunk_by(move |one, next| part(one) == part(next))
}
