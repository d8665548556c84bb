//! Keeps segments ready ahead of the streams and seals the full ones: one background task per brick (rule K7). A
//! commit segment's blocks that were never written are first filled with zeros, so that a commit touches no file system
//! metadata.

use crate::Store;
use crate::cleaner::Thresholds;
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::summary;
use crate::format::values::SegmentState;
use crate::log::Prepared;
use crate::segments::bulk::Bulk;
use crate::segments::{Origin, Taken};
use crate::space::BULK_RESERVE_SEGMENTS;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Kind, Life, Place, Result, SegmentId};
use runtime::seeded::{Bug, active};
use runtime::{Purpose, Request, Slice, disk, tasks};
use std::sync::Arc;

/// Number of commit segments kept ready: one to switch to at once, and one more while the next is being filled with
/// zeros.
const COMMIT_AHEAD: usize = 2;
/// The same number while few segments are free: a second one might be the last that the cleaner needs to free others.
const COMMIT_AHEAD_SHORT: usize = 1;
const _: () = assert!(COMMIT_AHEAD_SHORT > 0 && COMMIT_AHEAD_SHORT < COMMIT_AHEAD);

/// The task. Ends when the log stops or fails.
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

/// Number of commit segments to keep ready now.
fn commit_ahead(store: &Store) -> usize {
    if store.table.lock().free() > BULK_RESERVE_SEGMENTS { COMMIT_AHEAD } else { COMMIT_AHEAD_SHORT }
}

/// Has the streams of flash go on elsewhere that lie on a device that leaves the brick.
fn leave(store: &Store) {
    let Some(leaves) = store.table.lock().on_leaving_flash() else { return };
    store.log.leave(&leaves);
    [&store.cold, &store.bulk].into_iter().for_each(|stream| stream.leave(&leaves));
}

async fn step(store: &Arc<Store>) -> Result<()> {
    leave(store);
    while store.log.prepared() < commit_ahead(store) && !store.log.stopping() {
        match prepare(store, (Stream::Commit, Origin::Flash)).await {
            Ok(Some(prepared)) => store.log.give(prepared),
            Ok(None) if store.space.reclaims() => break,
            // The brick is full of live data, or its host has no space.
            Ok(None) => {
                store.log.set_out_of_space();
                break;
            }
            Err(error) if error.kind == Kind::NoSpace => {
                store.log.set_out_of_space();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    for stream in [&store.cold, &store.bulk] {
        if stream.wants_segment() {
            match prepare(store, (stream.stream, stream.from)).await {
                Ok(Some(prepared)) => stream.give(prepared),
                Ok(None) if store.space.reclaims() => {}
                Ok(None) => stream.set_out_of_space(),
                Err(error) if error.kind == Kind::NoSpace => stream.set_out_of_space(),
                Err(error) => return Err(error),
            }
        }
    }
    seal_full(store).await
}

/// Seals every full segment that nothing writes to any more.
pub async fn seal_full(store: &Arc<Store>) -> Result<()> {
    let mut full = store.log.take_full();
    full.extend(store.bulk.take_full());
    full.extend(store.cold.take_full());
    for (segment, used) in full {
        store.table.lock().set_state(segment, SegmentState::Closed, used);
        seal(store, segment).await?;
    }
    Ok(())
}

/// Starts the task that keeps a disk's segments.
pub fn start_disk(store: &Arc<Store>, stream: Arc<Bulk>, left_open: Vec<SegmentId>) {
    let there = store.clone();
    store.runtime.tasks.spawn(0, Box::new(move || Box::pin(run_disk(there, stream, left_open))));
}

/// The task of a disk: seals what the process before left open on it, then keeps a segment ready for what goes to it and seals
/// full ones. The log must never wait for a disk, so the task for its segments (`run`) does nothing of this. Ends when the log
/// stops or fails, or the disk does: segments that are not sealed then keep their summaries in the index, and the next start seals them.
pub async fn run_disk(store: Arc<Store>, stream: Arc<Bulk>, left_open: Vec<SegmentId>) {
    let mut to_seal = left_open;
    loop {
        let ticket = store.log.segment_wanted.ticket();
        if store.log.stopping() || store.log.failed().is_some() || stream.failed().is_some() {
            return;
        }
        if let Err(error) = step_disk(&store, &stream, &mut to_seal).await {
            return stream.fail(error);
        }
        store.log.segment_wanted.after(ticket).await;
    }
}

async fn step_disk(store: &Arc<Store>, stream: &Bulk, to_seal: &mut Vec<SegmentId>) -> Result<()> {
    if stream.wants_segment()
        && let Some(prepared) = prepare(store, (stream.stream, stream.from)).await?
    {
        stream.give(prepared);
    }
    for (segment, used) in stream.take_full() {
        store.table.lock().set_state(segment, SegmentState::Closed, used);
        to_seal.push(segment);
    }
    for segment in to_seal.drain(..) {
        seal(store, segment).await?;
    }
    Ok(())
}

/// Takes a free segment that has a file; None if the stream may not have one now. Errors: `Io`.
///
/// A new file is made before the free segments of the existing files fall below the reserve that a brick of that size
/// would keep (rule K5). So if the host has no space for another file, the cleaner can still work within the existing
/// ones.
async fn take(store: &Arc<Store>, (stream, from): (Stream, Origin)) -> Result<Option<Taken>> {
    loop {
        let unmade = {
            let mut table = store.table.lock();
            if from != Origin::Flash {
                return Ok(table.take(stream, from));
            }
            if stream == Stream::Bulk && table.free() <= BULK_RESERVE_SEGMENTS {
                return Ok(None);
            }
            if stream == Stream::Copies && table.free() <= store.space.spare() {
                return Ok(None);
            }
            let made = store.geometry.made_segments();
            let Some(unmade) = table.next_unmade(made, Thresholds::new(made).reserve as usize) else {
                return Ok(table.take(stream, from));
            };
            unmade
        };
        let there = store.clone();
        let make = move || there.geometry.make(unmade, there.host.spare_bytes());
        match tasks::run_background(&*store.runtime.tasks, make).await {
            Err(error) if error.kind == Kind::NoSpace => store.hide_unmade(),
            made => made?,
        }
    }
}

/// Takes a free segment and makes it ready; None if the stream may not have one now. Errors: `NoSpace` if the host has
/// no space for it after all, `Io`.
pub(crate) async fn prepare(store: &Arc<Store>, to: (Stream, Origin)) -> Result<Option<Prepared>> {
    let Some(taken) = take(store, to).await? else { return Ok(None) };
    let ready = make_ready(store, to.0, &taken).await;
    if ready.as_ref().is_err_and(|error| error.kind == Kind::NoSpace) {
        // No stream has got the segment yet. If its header was written all the same, the next life has a higher number.
        store.table.lock().give_back(taken.segment);
    }
    ready.map(Some)
}

/// Makes a segment ready for its stream: writes its header durably, after filling it with zeros if needed. Errors: as
/// `prepare`.
async fn make_ready(store: &Arc<Store>, stream: Stream, taken: &Taken) -> Result<Prepared> {
    let (segment, life, sequence) = (taken.segment, taken.life, taken.sequence);
    store.read_cache.forget(segment);
    store.promotion.begin_life(segment);
    let place = Place { segment, block: 0 };
    let spot = store.geometry.spot(place).expect("the segment's file has just been made");
    // A block device has no file system metadata that a first write would change, and replay never trusts blocks that
    // were not written in this life: so its segments are not filled, whether new or discarded.
    let mut at = u64::from(taken.written) * BLOCK_BYTES as u64;
    let fill = stream == Stream::Commit && at < store.geometry.segment_bytes && !store.geometry.is_on_device(segment);
    if fill && !active(Bug::ZerosSkipped) {
        let zeros = zeros(store).await?;
        while at < store.geometry.segment_bytes {
            let length = (store.geometry.segment_bytes - at).min(zeros.len() as u64);
            let slices = vec![zeros.slice(0..length as usize)];
            let (_, result) = disk::write_for(
                Purpose::Checkpoint,
                &*store.runtime.disk,
                Request::Write { file: spot.file, offset: spot.offset + at, slices, durable: false },
            )
            .await;
            result?;
            at += length;
        }
    }
    assert!(life > Life(0) && sequence < store.table.lock().next_in(stream), "a header tells of a segment taken");
    let header = SegmentHeader { uuid: store.uuid, segment, life, stream, sequence, epoch: store.epoch };
    let mut block = store.runtime.own_buffer(BLOCK_BYTES).await?;
    block.copy_from_slice(&header.encode());
    let slices = vec![block.share().slice(0..BLOCK_BYTES)];
    let (_, result) = disk::write_for(
        Purpose::Checkpoint,
        &*store.runtime.disk,
        Request::Write { file: spot.file, offset: spot.offset, slices, durable: false },
    )
    .await;
    result?;
    disk::flush_for(Purpose::Checkpoint, &*store.runtime.disk, spot.file).await?;
    store.table.lock().note_ready(segment);
    Ok(Prepared { segment, life, sequence, file: spot.file, offset: spot.offset })
}

async fn zeros(store: &Store) -> Result<Slice> {
    let mut buffer = store.runtime.own_buffer(IO_BYTES_MAX).await?;
    buffer.fill(0);
    let length = buffer.len();
    Ok(buffer.share().slice(0..length))
}

/// Writes a closed segment's summary at its end, durably (rule L7). After a crash before a checkpoint has written
/// "sealed", recovery writes the summary again.
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
        let mut buffer = store.runtime.own_buffer(part.len()).await?;
        buffer.copy_from_slice(part);
        let length = buffer.len();
        let block = (first + number * (IO_BYTES_MAX / BLOCK_BYTES)) as u16;
        let spot = store.geometry.spot(Place { segment, block }).expect("a closed segment has a file");
        let slices = vec![buffer.share().slice(0..length)];
        let (_, result) = disk::write_for(
            Purpose::Checkpoint,
            &*store.runtime.disk,
            Request::Write { file: spot.file, offset: spot.offset, slices, durable: false },
        )
        .await;
        result?;
        disk::flush_for(Purpose::Checkpoint, &*store.runtime.disk, spot.file).await?;
    }
    // Both under the table's lock, so that a checkpoint sees either both or none: if it dropped the entries while the
    // segment is not sealed, the segment would get an empty summary after a crash.
    let mut table = store.table.lock();
    table.set_state(segment, SegmentState::Sealed, 0);
    store.log.drop_summary(segment);
    Ok(())
}
