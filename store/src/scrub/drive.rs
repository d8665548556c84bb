//! Reads segment after segment, a slice at a time, when the budget of background work allows.

use super::{Bad, FINDINGS_MAX, NEWS_MAX, Position, REMEMBER_NS, Speed, State, Why};
use crate::Store;
use crate::format::summary::SummaryEntry;
use crate::format::values::{SegmentState, is_live};
use crate::segments::Row;
use crate::verify;
use base::limits::BLOCK_BYTES;
use base::{Kind, Life, Place, SegmentId};
use runtime::budget::Agent;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks of a slice, dead ones between them included: their checksums take a core some 25 us.
const SLICE_BLOCKS: u16 = 64;
/// Shortest pause: about what a timer takes.
const PAUSE_NS_MIN: u64 = 50_000;
/// Memory for a buffer is short: others need it more.
const SHORT_NS: u64 = 1_000_000_000;

/// The task: runs until the pass has ended or was stopped.
pub(super) async fn run(store: Arc<Store>) {
    let now_ns = store.runtime.clock.now_ns();
    let blocks = store.scrub.position.lock().blocks;
    *store.scrub.speed.lock() = Speed { since_ns: now_ns, blocks, saved_ns: now_ns };
    loop {
        while let Some((segment, life)) = next(&store) {
            if segment_is_through(&store, (segment, life)).await {
                through(&store, segment);
            }
        }
        store.scrub.working.store(false, Ordering::Release);
        // Started again since it saw that it was stopped, by somebody who saw it working.
        if !goes_on(&store) || store.scrub.working.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

fn goes_on(store: &Store) -> bool {
    !store.log.stopping() && store.scrub.is_running()
}

/// The next sealed segment with a live block; None if the pass has ended or was stopped.
fn next(store: &Store) -> Option<(SegmentId, Life)> {
    if !goes_on(store) {
        return None;
    }
    let from = store.scrub.position.lock().next;
    let table = store.table.lock();
    let has = |(segment, row): &(SegmentId, &Row)| {
        row.state == SegmentState::Sealed && table.is_live(*segment) && !table.is_missing(*segment)
    };
    let found = table.iter().skip(from.0 as usize).find(has).map(|(segment, row)| (segment, row.life));
    drop(table);
    match found {
        Some((segment, _)) => store.scrub.position.lock().next = segment,
        None => end(store),
    }
    found
}

fn end(store: &Store) {
    let ended = store.runtime.clock.wall();
    let mut position = store.scrub.position.lock();
    if position.state == State::Running {
        (position.state, position.ended) = (State::Done, ended);
        drop(position);
        store.scrub.note(true);
    }
}

fn through(store: &Store, segment: SegmentId) {
    store.scrub.position.lock().next = SegmentId(segment.0 + 1);
    let now_ns = store.runtime.clock.now_ns();
    let mut speed = store.scrub.speed.lock();
    let due = now_ns - speed.saved_ns >= REMEMBER_NS;
    if due {
        speed.saved_ns = now_ns;
    }
    drop(speed);
    store.scrub.note(due);
}

/// Reads a segment's live blocks. False if it was stopped before it was through.
async fn segment_is_through(store: &Store, (segment, life): (SegmentId, Life)) -> bool {
    let entries = loop {
        let read = {
            let _pin = store.pin();
            store.live_of((segment, life)).await
        };
        match read {
            Ok(entries) => break entries,
            Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io) => {
                // One that was freed meanwhile had none to be read.
                note(store, untold(store, segment, life));
                return true;
            }
            Err(_) if !goes_on(store) => return false,
            Err(_) => store.runtime.clock.sleep(SHORT_NS).await,
        }
    };
    for slice in slices(&entries) {
        let Some(turn) = store.runtime.slice(Agent::Scrub, || goes_on(store)).await else { return false };
        let there = {
            // Let go before the pause: freed segments wait for readers (rule K8).
            let _pin = store.pin();
            store.life(segment) == life && look(store, (segment, life), slice).await
        };
        if !there {
            return true;
        }
        store.scrub.position.lock().blocks += slice.len() as u64;
        drop(turn);
        store.runtime.clock.sleep(PAUSE_NS_MIN).await;
    }
    true
}

/// Entries that are read together.
pub(super) fn slices(entries: &[SummaryEntry]) -> impl Iterator<Item = &[SummaryEntry]> {
    entries.chunk_by(|one, next| one.block / SLICE_BLOCKS == next.block / SLICE_BLOCKS)
}

/// Compares a slice's blocks with their checksums. False if the segment was freed meanwhile.
pub(super) async fn look(store: &Store, (segment, life): (SegmentId, Life), entries: &[SummaryEntry]) -> bool {
    let (first, last) = (entries[0].block, entries[entries.len() - 1].block);
    let count = u32::from(last - first) + 1;
    let suspects: Vec<SummaryEntry> = match read(store, Place { segment, block: first }, count).await {
        Some(bytes) => {
            let bad = |entry: &&SummaryEntry| {
                let from = usize::from(entry.block - first) * BLOCK_BYTES;
                verify(&bytes[from..from + BLOCK_BYTES], std::iter::once(entry.crc)).is_err()
            };
            entries.iter().filter(bad).copied().collect()
        }
        None => entries.to_vec(),
    };
    for entry in suspects {
        // Once more, alone: of a transfer that failed most blocks are good.
        let place = Place { segment, block: entry.block };
        let why = match read(store, place, 1).await {
            None => Why::Unreadable,
            Some(bytes) if verify(&bytes, std::iter::once(entry.crc)).is_err() => Why::Differs,
            Some(_) => continue,
        };
        // Nobody has it any more: it may hold anything. What the index can't tell counts as live.
        let live = store.bitmap_of((segment, life)).await;
        if !live.is_ok_and(|live| live.is_none_or(|live| !is_live(&live, entry.block))) {
            let SummaryEntry { volume, ino, offset, .. } = entry;
            note(store, Some(Bad { place, life, blocks: 1, volume, ino, offset, why }));
        }
    }
    store.life(segment) == life
}

/// Blocks as the device has them; None if it can't read them.
pub(super) async fn read(store: &Store, place: Place, count: u32) -> Option<runtime::Buf> {
    let buffer = loop {
        match store.runtime.buffer(count as usize * BLOCK_BYTES) {
            Ok(buffer) => break buffer,
            Err(_) => store.runtime.clock.sleep(SHORT_NS).await,
        }
    };
    let (buffer, result) = store.read(runtime::Purpose::Scrub, place, buffer).await;
    result.is_ok().then_some(buffer)
}

/// The finding that a segment's blocks can't be told; None if it was freed.
fn untold(store: &Store, segment: SegmentId, life: Life) -> Option<Bad> {
    let table = store.table.lock();
    table.row(segment).filter(|row| row.life == life && row.state == SegmentState::Sealed)?;
    let blocks = table.live(segment);
    let (volume, ino) = (base::VolumeId(0), base::Ino(0));
    let place = Place { segment, block: 0 };
    (blocks > 0).then_some(Bad { place, life, blocks, volume, ino, offset: 0, why: Why::Untold })
}

pub(super) fn note(store: &Store, bad: Option<Bad>) {
    let Some(bad) = bad else { return };
    let mut position = store.scrub.position.lock();
    let Position { bad: all, unlisted, .. } = &mut *position;
    // A segment may be looked at again after a restart.
    if all.iter().any(|known| known.covers(&bad)) {
        return;
    }
    let listed = all.len();
    match all.last_mut() {
        Some(last) if last.goes_on_with(&bad) => last.blocks += bad.blocks,
        _ if listed < FINDINGS_MAX => all.push(bad),
        _ => *unlisted += 1,
    }
    drop(position);
    let mut news = store.scrub.news.lock();
    let waiting = news.len();
    match news.last_mut() {
        Some(last) if last.goes_on_with(&bad) => last.blocks += bad.blocks,
        _ if waiting < NEWS_MAX => news.push(bad),
        _ => {}
    }
    drop(news);
    store.scrub.note(false);
}
