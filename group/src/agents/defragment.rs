//! Puts together what large reads found scattered (`data::scattered`): a file that was overwritten at random lies in the
//! order of its writes, and is read in its own order at the device's rate of small reads. The next reader finds it in
//! one piece.
//!
//! The bytes are those that the client has just read, so nothing is read twice. Each block's owner decides whether the
//! copy counts, as for the cleaner's moves (rule K2), so a crash or a write in between costs the copy alone. It gives way: it rests
//! unless segments are free without cleaning (rule K4). It is bounded: from start to end it rewrites no more blocks
//! than the brick had when it started and clients have written since, so readers alone can't wear the device out.

use crate::Groups;
use crate::agents::begin_slice;
use crate::agents::moves::{Source, order, places_of};
use crate::data::scattered::{Piece, Scattered};
use base::limits::BLOCK_BYTES;
use base::{Index, Kind, Place, Result};
use runtime::Slice;
use runtime::budget::Agent;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::cleaner::State as Cleaner;
use store::format::record::Moved;

/// Tries to get a segment of the cold stream, and the pause between two: one is prepared once it is asked for, which takes
/// milliseconds.
const TRIES: u32 = 20;
const AGAIN_NS: u64 = 5_000_000;

/// The task. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>) {
    let space = groups.store().space.statfs();
    let had_blocks = (space.size_bytes - space.free_bytes) / BLOCK_BYTES as u64;
    loop {
        let ticket = groups.scattered.came.ticket();
        if groups.closing.load(Ordering::Acquire) || groups.store().log.failed().is_some() {
            return groups.scattered.clear();
        }
        let Some(read) = groups.scattered.take() else {
            groups.scattered.came.after(ticket).await;
            continue;
        };
        let left = (had_blocks + groups.store().space.written_blocks()).saturating_sub(groups.scattered.moved());
        if !has_room(&groups) || left < read.pieces.len() as u64 {
            continue;
        }
        let Some(turn) = begin_slice(&groups, Agent::Defragment).await else { return };
        let Some(step) = groups.begin_step() else { return };
        // An error here is nobody's: the blocks stay where they are, and what fails for good has stopped the log.
        let moved = put_together(&groups, &read).await.unwrap_or(0);
        groups.scattered.note_moved(moved);
        drop(step);
        drop(turn);
    }
}

/// True while segments are free without cleaning for them.
fn has_room(groups: &Groups) -> bool {
    matches!(groups.cleaner().state, Some(Cleaner::Idle | Cleaner::Ahead))
}

/// Copies the blocks to the cold stream in the file's order, and has their owner take the copies. Returns the number
/// that counts.
async fn put_together(groups: &Groups, read: &Scattered) -> Result<u64> {
    let (sources, copy) = copy(groups, read)?;
    if sources.is_empty() {
        return Ok(0);
    }
    let mut tries = 0;
    let ticket = loop {
        match groups.store().cold.place(copy.clone()).await {
            Err(error) if error.kind == Kind::Busy && tries < TRIES && has_room(groups) => {
                tries += 1;
                groups.store().runtime.clock.sleep(AGAIN_NS).await;
            }
            placed => break placed?,
        }
    };
    let places = places_of(&ticket, sources.len());
    let moves: Vec<(Source, Place)> = sources.into_iter().zip(places).collect();
    let moved = order(groups, (read.ino.group(), read.volume), &moves).await;
    groups.store().cold.close(ticket);
    moved
}

/// The blocks that still are what the read found, and a copy of them without the holes. A client's buffer passes through
/// other hands: the checksums are compared once more (rule K8).
fn copy(groups: &Groups, read: &Scattered) -> Result<(Vec<Source>, Slice)> {
    let store = groups.store();
    let mut copy = store.runtime.buffer(read.pieces.len() * BLOCK_BYTES)?;
    let mut sources = Vec::with_capacity(read.pieces.len());
    for Piece { at, place, crc, life } in &read.pieces {
        let from = *at as usize * BLOCK_BYTES;
        let block = &read.bytes[from..from + BLOCK_BYTES];
        if store::verify(block, std::iter::once(*crc)).is_err() {
            continue;
        }
        let to = sources.len() * BLOCK_BYTES;
        copy[to..to + BLOCK_BYTES].copy_from_slice(block);
        // The record that wrote it is known to the old segment's summary alone.
        let moved =
            Moved { ino: read.ino, block: read.first + u64::from(*at), old: *place, crc: *crc, index: Index(0) };
        sources.push(Source { moved, life: *life });
    }
    let bytes = sources.len() * BLOCK_BYTES;
    Ok((sources, copy.share().slice(0..bytes)))
}
