//! Reading the log of a brick that is in use: a stretch of its commit stream of which every batch is written.
//!
//! Promises: each record of the stretch, in the order of the log, with the bytes that its replicas share; a batch that is not as it was
//! written is an error, never the end. Absent by design: the choice of the stretch, and whoever keeps its segments from being written
//! again (`Store::read_log`).

use super::bounds::Bounds;
use super::{CHUNK_RECORDS, Chain, Log, Replayed, Window, next_batch};
use crate::media::geometry::Geometry;
use base::{Error, Kind, Result};
use runtime::Runtime;

/// Bytes of replicated parts after which records are handed over, whatever their number: about what one message carries.
const CHUNK_BYTES: usize = 1 << 20;

/// A record as the log holds it, with its bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// The record, its places and its batch.
    pub replayed: Replayed,
    /// The replicated part, encoded as whoever ordered it did: the same on every replica. Of a vote or moves the local bytes.
    pub replicated: Box<[u8]>,
}

/// Walks the log up to batch `through`, itself included, and hands its records, in order, to `sink`, about a mebibyte at a time and never of
/// two segments. All these batches are written. Errors: `Corrupt` if one of them can't be read, `Io`, `Host` if there is no memory to read, and what `sink`
/// returns.
pub async fn walk_through(
    runtime: &Runtime,
    geometry: &Geometry,
    (log, through): (Log<'_>, u64),
    mut sink: impl AsyncFnMut(Vec<Stored>) -> Result<()>,
) -> Result<()> {
    let Log { superblock, replay, segments, damaged, over, .. } = log;
    assert!(segments.is_sorted_by_key(|header| header.sequence) && over.is_empty(), "the log is whole, and in order");
    let mut chain = Chain::at((superblock, Bounds::of(superblock, geometry)), replay, damaged, over);
    chain.keeps_bytes = true;
    let (mut ready, mut bytes) = (Vec::new(), 0);
    for header in &segments {
        let mut window = Window { runtime, geometry, segment: header.segment, first: 0, buffer: None };
        let mut block = chain.start(replay, header);
        while chain.expected <= through
            && let Some(found) = next_batch(&mut window, header, &mut chain, block).await?
        {
            assert!(found.records.len() == found.replicated.len(), "each record has its bytes");
            block = found.end.1;
            bytes += found.replicated.iter().map(|replicated| replicated.len()).sum::<usize>();
            let stored = found.records.into_iter().zip(found.replicated);
            ready.extend(stored.map(|(replayed, replicated)| Stored { replayed, replicated }));
            if ready.len() >= CHUNK_RECORDS || bytes >= CHUNK_BYTES {
                bytes = 0;
                sink(std::mem::take(&mut ready)).await?;
            }
        }
        if !ready.is_empty() {
            bytes = 0;
            sink(std::mem::take(&mut ready)).await?;
        }
    }
    if chain.expected <= through {
        let what = "a batch of the log that was written can't be read: stop the brick, then `sinter check`";
        return Err(Error::new(Kind::Corrupt, what).with(format!("batch {} of {through}", chain.expected)));
    }
    Ok(())
}
