//! Keeps segments ready ahead of the streams and seals the full ones: one background task per brick (rule K7). A
//! commit segment that was never written is first filled with zeros, so that a commit touches no file system metadata.

use crate::Store;
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::summary;
use crate::format::values::SegmentState;
use crate::log::Prepared;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, Kind, Place, Result, SegmentId};
use runtime::{Slice, disk, tasks};
use std::sync::Arc;

/// Commit segments ready ahead: one to switch to at once, one more while the next is being filled with zeros.
const COMMIT_AHEAD: usize = 2;
/// Free segments that client data may not take: the log of deletions, attributes and checkpoints needs room (K5).
pub const DATA_RESERVE_SEGMENTS: usize = 4;

/// Runs until the log stops.
pub async fn run(store: Arc<Store>) {
    loop {
        let ticket = store.log.segment_wanted.ticket();
        if store.log.stopping() || store.log.failed().is_some() {
            return;
        }
        if let Err(error) = step(&store).await {
            return store.log.fail(error.with("preparing a segment"));
        }
        store.log.segment_wanted.after(ticket).await;
    }
}

async fn step(store: &Arc<Store>) -> Result<()> {
    while store.log.prepared() < COMMIT_AHEAD {
        match prepare(store, Stream::Commit).await {
            Err(error) if error.kind == Kind::NoSpace => {
                store.log.set_out_of_space();
                break;
            }
            prepared => store.log.give(prepared?),
        }
    }
    if store.bulk.wants_segment() {
        match prepare(store, Stream::Bulk).await {
            Err(error) if error.kind == Kind::NoSpace => store.bulk.set_out_of_space(),
            prepared => store.bulk.give(prepared?),
        }
    }
    seal_full(store).await
}

/// Seals every full segment that nothing writes to any more.
pub async fn seal_full(store: &Arc<Store>) -> Result<()> {
    let mut full = store.log.take_full();
    full.extend(store.bulk.take_full());
    for (segment, used) in full {
        store.table.lock().set_state(segment, SegmentState::Closed, used);
        seal(store, segment).await?;
    }
    Ok(())
}

async fn prepare(store: &Arc<Store>, stream: Stream) -> Result<Prepared> {
    let taken = {
        let mut table = store.table.lock();
        if stream == Stream::Bulk && table.free() <= DATA_RESERVE_SEGMENTS {
            return Err(Error::new(Kind::NoSpace, "no free segment for data"));
        }
        table.take(stream)
    };
    let taken = taken.ok_or_else(|| Error::new(Kind::NoSpace, "no free segment"))?;
    let (segment, life, sequence) = (taken.segment, taken.life, taken.sequence);
    let place = Place { segment, block: 0 };
    let geometry = store.geometry.clone();
    let made = tasks::run_blocking(&*store.runtime.tasks, move || geometry.make(segment)).await;
    if let Err(error) = made {
        store.table.lock().give_back(segment);
        return Err(error);
    }
    let spot = store.geometry.spot(place).expect("the segment's file has just been made");
    if taken.unwritten && stream == Stream::Commit {
        let zeros = zeros(store)?;
        let mut at = 0;
        while at < store.geometry.segment_bytes {
            let (_, result) =
                disk::write(&*store.runtime.disk, spot.file, spot.offset + at, vec![zeros.clone()], false).await;
            result?;
            at += zeros.len() as u64;
        }
    }
    let header = SegmentHeader { uuid: store.uuid, segment, life, stream, sequence, epoch: store.epoch };
    let mut block = store.runtime.buffer(BLOCK_BYTES)?;
    block.copy_from_slice(&header.encode());
    let slices = vec![block.share().slice(0..BLOCK_BYTES)];
    let (_, result) = disk::write(&*store.runtime.disk, spot.file, spot.offset, slices, false).await;
    result?;
    disk::flush(&*store.runtime.disk, spot.file).await?;
    store.table.lock().note_ready(segment);
    Ok(Prepared { segment, life, sequence, file: spot.file, offset: spot.offset })
}

fn zeros(store: &Store) -> Result<Slice> {
    let mut buffer = store.runtime.buffer(IO_BYTES_MAX)?;
    buffer.fill(0);
    let length = buffer.len();
    Ok(buffer.share().slice(0..length))
}

/// Writes a closed segment's summary at its end, durably (rule L7). Until a checkpoint says "sealed", recovery writes
/// it again.
pub async fn seal(store: &Arc<Store>, segment: SegmentId) -> Result<()> {
    let life = store.table.lock().row(segment).map(|row| row.life).expect("closed segments have a row");
    let mut entries = store.log.summary_from(segment, 0);
    entries.sort_by_key(|entry| entry.block);
    let bytes = summary::encode(store.uuid, segment, life, &entries);
    let blocks = store.geometry.blocks() as usize;
    let first = blocks - bytes.len() / BLOCK_BYTES;
    assert!(
        entries.last().is_none_or(|last| usize::from(last.block) < first),
        "a summary lies behind what it tells of"
    );
    for (number, part) in bytes.chunks(IO_BYTES_MAX).enumerate() {
        let mut buffer = store.runtime.buffer(part.len())?;
        buffer.copy_from_slice(part);
        let length = buffer.len();
        let block = (first + number * (IO_BYTES_MAX / BLOCK_BYTES)) as u16;
        let spot = store.geometry.spot(Place { segment, block }).expect("a closed segment has a file");
        let slices = vec![buffer.share().slice(0..length)];
        let (_, result) = disk::write(&*store.runtime.disk, spot.file, spot.offset, slices, false).await;
        result?;
        disk::flush(&*store.runtime.disk, spot.file).await?;
    }
    store.log.drop_summary(segment);
    store.table.lock().set_state(segment, SegmentState::Sealed, 0);
    Ok(())
}
