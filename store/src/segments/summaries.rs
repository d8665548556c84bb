//! Reads the summary of a sealed segment (rule L7): for the cleaner, which moves blocks that it lists, and for the
//! offline check, which compares leaves with it.

use crate::format::Uuid;
use crate::format::summary::{self, SummaryEntry};
use crate::media::geometry::Geometry;
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, Kind, Life, Place, Result, SegmentId};
use runtime::{Buf, Runtime, disk};

/// The entries of a sealed segment's summary, including those of dead blocks. Errors: `Corrupt` if it is no summary of
/// this brick, segment and life, `Io`.
pub async fn read(runtime: &Runtime, geometry: &Geometry, of: (Uuid, SegmentId, Life)) -> Result<Vec<SummaryEntry>> {
    let (_, segment, _) = of;
    let corrupt = |what| Error::new(Kind::Corrupt, what).with(format!("segment {segment}"));
    let last = geometry.blocks() - 1;
    let footer = summary::decode_footer(&blocks(runtime, geometry, (segment, last, 1)).await?)?;
    if (footer.uuid, footer.segment, footer.life) != of {
        return Err(corrupt("a summary is of another life"));
    }
    let bytes = footer.entries as usize * summary::ENTRY_BYTES;
    let first = geometry.blocks().checked_sub(summary::summary_blocks(footer.entries as usize) as u32);
    let mut block = first.ok_or_else(|| corrupt("a summary is larger than its segment"))?;
    let mut entries = Vec::with_capacity(bytes + BLOCK_BYTES);
    while entries.len() < bytes {
        let count = (bytes - entries.len()).min(IO_BYTES_MAX).div_ceil(BLOCK_BYTES) as u32;
        entries.extend_from_slice(&blocks(runtime, geometry, (segment, block, count)).await?);
        block += count;
    }
    entries.truncate(bytes);
    if crc32c(&entries) != footer.crc {
        return Err(corrupt("a summary fails its checksum"));
    }
    summary::decode_entries(&entries)
}

async fn blocks(runtime: &Runtime, geometry: &Geometry, of: (SegmentId, u32, u32)) -> Result<Buf> {
    let (segment, first, count) = of;
    let spot = geometry.spot(Place { segment, block: first as u16 });
    let spot = spot.ok_or_else(|| Error::new(Kind::Corrupt, "a sealed segment was never made"))?;
    let buffer = runtime.buffer(count as usize * BLOCK_BYTES)?;
    let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, buffer).await;
    result.map(|()| buffer)
}
