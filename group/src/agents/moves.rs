//! Moves of blocks: a copy lies in the cold stream, and the block's owner decides whether it counts (rule K2). The
//! cleaner moves what is left of a segment, `defragment` what is read in order.

use crate::Groups;
use crate::state::State;
use crate::state::load::Wanted;
use base::{GroupId, Kind, LeafKey, Life, Place, Result, SegmentId, VolumeId};
use runtime::Slice;
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;
use store::bulk::Ticket;
use store::format::record::{Moved, Moves, Run};
use store::format::summary::SummaryEntry;

/// Largest number of leaves loaded for one record of moves; a record that needs more is split. The smallest cache holds
/// twice as many, so none is dropped before the record is made.
const LEAVES_MAX: usize = 8;
/// Most moves of a record: it takes a block of the log, and holds the owner's lock for some microseconds.
const MOVES_MAX: usize = 64;

/// A block that is to be moved.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// The block and its old place.
    pub moved: Moved,
    /// The life of the segment that the old place lies in.
    pub life: Life,
}

/// A live block of a victim, as its summary tells it.
pub(super) fn source_of((segment, life): (SegmentId, Life), entry: &SummaryEntry) -> Source {
    let old = Place { segment, block: entry.block };
    Source { moved: Moved { ino: entry.ino, block: entry.offset, old, crc: entry.crc, index: entry.index }, life }
}

/// Pause between two tries to get a segment of the cold stream: one is prepared once it is asked for, which takes milliseconds.
const AGAIN_NS: u64 = 5_000_000;

/// Places blocks in the cold stream. `tries`: how often a segment is waited for, while `goes_on`. Errors: `Busy` after that; those of the device.
pub(crate) async fn place_cold(
    groups: &Groups,
    blocks: &Slice,
    mut tries: u32,
    goes_on: impl Fn() -> bool,
) -> Result<Ticket> {
    loop {
        match groups.store().cold.place(blocks.clone()).await {
            Err(error) if error.kind == Kind::Busy && tries > 0 && goes_on() => {
                tries -= 1;
                groups.store().runtime.clock.sleep(AGAIN_NS).await;
            }
            placed => return placed,
        }
    }
}

/// The places of `count` blocks in the cold stream, block by block.
pub(crate) fn places_of(ticket: &Ticket, count: usize) -> Vec<Place> {
    let places: Vec<Place> =
        ticket.runs().iter().flat_map(|run| (0..u32::from(run.count)).map(|n| run.place.advance(n))).collect();
    assert!(places.len() == count, "{count} copies have {} places", places.len());
    places
}

/// True if a block still is in the place from which it is to be moved; None if its leaf must be loaded first.
pub(super) fn is_there(groups: &Groups, state: &mut State, volume: VolumeId, source: &Source) -> Option<bool> {
    let indexed = groups.store().is_live_block(source.moved.old, source.life);
    state.is_at(volume, &source.moved, indexed)
}

/// The leaf that maps a block.
pub(super) fn leaf_of(source: &Source) -> Wanted {
    Wanted::Leaf(LeafKey::of(source.moved.ino, source.moved.block).0)
}

/// Has the owners of blocks take their copies: victims' blocks, and in the same order the copies' places. What one owner can't do
/// is no reason to leave out the others. Returns the number of copies that count; the last error if there was one.
pub(super) async fn order_all<'a>(
    groups: &Groups,
    blocks: impl Iterator<Item = ((SegmentId, Life), &'a SummaryEntry)>,
    places: impl IntoIterator<Item = Place>,
) -> Result<u64> {
    let mut owners: BTreeMap<(GroupId, VolumeId), Vec<(Source, Place)>> = BTreeMap::new();
    for ((victim, entry), place) in blocks.zip(places) {
        owners.entry((entry.group, entry.volume)).or_default().push((source_of(victim, entry), place));
    }
    let mut count = 0;
    let mut result = Ok(());
    for (owner, moves) in owners {
        match order(groups, owner, &moves).await {
            Ok(moved) => count += moved,
            Err(error) => result = Err(error),
        }
    }
    result.map(|()| count)
}

/// Orders a record of one owner's moves and applies it to the blocks that are still where they were copied from.
/// Returns their number. The copies' ticket stays open until then.
pub(crate) async fn order(groups: &Groups, owner: (GroupId, VolumeId), moves: &[(Source, Place)]) -> Result<u64> {
    let mut count = 0;
    for some in moves.chunks(MOVES_MAX) {
        count += order_record(groups, owner, some).await?;
    }
    Ok(count)
}

async fn order_record(groups: &Groups, (group, volume): (GroupId, VolumeId), moves: &[(Source, Place)]) -> Result<u64> {
    loop {
        let ticket = groups.store().log.segment_came.ticket();
        match try_record(groups, (group, volume), moves) {
            Ok(Tried::Ordered(count)) => return Ok(count),
            Ok(Tried::Load(leaves)) if leaves.len() <= LEAVES_MAX => groups.load(volume, leaves, None).await?,
            Ok(Tried::Load(_)) => {
                let (some, others) = moves.split_at(moves.len() / 2);
                let count = Box::pin(order_record(groups, (group, volume), some)).await?;
                return Ok(count + Box::pin(order_record(groups, (group, volume), others)).await?);
            }
            Err(error) if error.kind == Kind::Busy => groups.wait_for_segment(ticket).await?,
            Err(error) => return Err(error),
        }
    }
}

enum Tried {
    Ordered(u64),
    Load(Vec<Wanted>),
}

fn try_record(groups: &Groups, (group, volume): (GroupId, VolumeId), moves: &[(Source, Place)]) -> Result<Tried> {
    let mut state = groups.state(group).state.lock();
    // Rows that are being replaced are compared as they are; a copy more or less is nothing.
    if state.replica.as_ref().is_some_and(|replica| replica.takes_rows()) {
        return Ok(Tried::Ordered(0));
    }
    let mut kept = Vec::with_capacity(moves.len());
    let mut missing = Vec::new();
    for (source, place) in moves {
        match is_there(groups, &mut state, volume, source) {
            None => missing.push(leaf_of(source)),
            Some(is_there) if is_there || active(Bug::MoveUnconditional) => kept.push((source.moved, *place)),
            Some(_) => {}
        }
    }
    if !missing.is_empty() {
        return Ok(Tried::Load(missing));
    }
    if !kept.is_empty() {
        let blocks = kept.iter().map(|(moved, _)| *moved).collect();
        groups.store().log.append_moves(&Moves { group, volume, blocks }, &runs_of(&kept))?;
        kept.iter().for_each(|(moved, place)| state.move_block(volume, moved, *place));
        groups.note_overlay(&mut state);
        drop(state);
        groups.streams.moved(volume, &kept);
    }
    Ok(Tried::Ordered(kept.len() as u64))
}

/// Consecutive places as runs.
fn runs_of(moves: &[(Moved, Place)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (_, place) in moves {
        match runs.last_mut() {
            Some(run) if run.place.advance(u32::from(run.count)) == *place => run.count += 1,
            _ => runs.push(Run { place: *place, count: 1 }),
        }
    }
    runs
}
