//! Puts together what large reads found scattered (`data::scattered`): a file that was overwritten at random lies in the
//! order of its writes, and is read in its own order at the device's rate of small reads. The next reader finds it in
//! one piece.
//!
//! The bytes are a copy of those that the client has just read, so nothing is read twice. Each block's owner decides whether the
//! copy counts, as for the cleaner's moves (rule K2), so a crash or a write in between costs the copy alone. It gives way: it rests
//! unless segments are free without cleaning (rule K4). It is bounded: from start to end it rewrites no more blocks
//! than the brick had when it started and clients have written since, so readers alone can't wear the device out.

use crate::Groups;
use crate::agents::moves::{Source, order, place_cold, places_of};
use crate::data::scattered::{Piece, Scattered};
use base::limits::BLOCK_BYTES;
use base::{Index, Place, Result};
use runtime::budget::Agent;
use std::sync::Arc;
use store::cleaner::State as Cleaner;
use store::format::record::Moved;

/// Tries to get a segment of the cold stream.
const TRIES: u32 = 20;

/// The task. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>) {
    let space = groups.store().space.statfs();
    let had_blocks = (space.size_bytes - space.free_bytes) / BLOCK_BYTES as u64;
    loop {
        let ticket = groups.scattered.came.ticket();
        if groups.is_closing() || groups.store().log.failed().is_some() {
            return groups.scattered.clear();
        }
        let Some(read) = groups.scattered.take() else {
            groups.scattered.came.after(ticket).await;
            continue;
        };
        let left = (had_blocks + groups.store().space.written_blocks()).saturating_sub(groups.scattered.moved());
        if !groups.may_defragment() || left < read.pieces.len() as u64 {
            continue;
        }
        let goes_on = || !groups.is_closing();
        let Some(turn) = groups.store().runtime.slice(Agent::Defragment, goes_on).await else { continue };
        let Some(step) = groups.begin_step() else { return };
        // An error here is nobody's: the blocks stay where they are, and what fails for good has stopped the log.
        let moved = put_together(&groups, &read).await.unwrap_or(0);
        groups.scattered.note_moved(moved);
        drop(step);
        drop(turn);
    }
}

impl Groups {
    /// True while segments are free without cleaning for them.
    pub(crate) fn may_defragment(&self) -> bool {
        matches!(self.cleaner().state, Some(Cleaner::Idle | Cleaner::Ahead))
    }
}

/// Copies the blocks to the cold stream in the file's order, and has their owner take the copies. Returns the number
/// that counts.
async fn put_together(groups: &Groups, read: &Scattered) -> Result<u64> {
    // They have lain in memory: the checksums are compared once more (rule K8).
    if store::verify(&read.blocks, read.pieces.iter().map(|piece| piece.crc)).is_err() {
        return Ok(0);
    }
    let ticket = place_cold(groups, &read.blocks, TRIES, || groups.may_defragment()).await?;
    let places = places_of(&ticket, read.pieces.len());
    let moves: Vec<(Source, Place)> = sources(read).zip(places).collect();
    let moved = order(groups, (read.ino.group(), read.volume), &moves).await;
    groups.store().cold.close(ticket);
    moved
}

/// The blocks where the read found them.
fn sources(read: &Scattered) -> impl Iterator<Item = Source> {
    read.pieces.iter().map(|Piece { at, place, crc, life }| {
        // The record that wrote it is known to the old segment's summary alone.
        let moved =
            Moved { ino: read.ino, block: read.first + u64::from(*at), old: *place, crc: *crc, index: Index(0) };
        Source { moved, life: *life }
    })
}
