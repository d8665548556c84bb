//! After a clean stop every live block of a sealed segment is told of by the segment's summary (rule L7), so that data
//! maps could be rebuilt from summaries alone.

use crate::index::CrashIndex;
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{Error, GroupId, Kind, Place, Result, SegmentId};
use runtime::{Runtime, disk};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Opening;
use store::format::keys;
use store::format::leaf::{Leaf, Slot};
use store::format::summary::{self, SummaryEntry};
use store::format::values::{self, SegmentState};
use store::index::Index as _;

type Summaries = BTreeMap<SegmentId, BTreeMap<u16, SummaryEntry>>;

/// Checks all sealed segments. Errors: what is missing, as `Corrupt`.
pub async fn check(runtime: &Runtime, opening: &Opening, index: &Arc<CrashIndex>) -> Result<()> {
    let mut summaries = Summaries::new();
    let sealed = opening.table().iter().filter(|(_, row)| {
        // One without live blocks may be in its next life already.
        row.state == SegmentState::Sealed && row.live.iter().any(|&word| word != 0)
    });
    for (segment, _) in sealed {
        let entries = read(runtime, opening, segment).await.map_err(|error| error.with(format!("{segment:?}")))?;
        summaries.insert(segment, entries.into_iter().map(|entry| (entry.block, entry)).collect());
    }
    let (from, to) = keys::volumes();
    for (_, value) in index.scan(&from, &to, usize::MAX)? {
        let volume = values::decode_volume(&value)?.id;
        for group in (0..opening.superblock().groups).map(GroupId) {
            let (from, to) = keys::leaves_in_group(group, volume);
            for (key, value) in index.scan(&from, &to, usize::MAX)? {
                let at = keys::leaf_of(&key);
                for (slot, value) in Leaf::decode(&value)?.iter() {
                    let Slot::Local { place, crc, .. } = value else { continue };
                    let offset = at.leaf * BLOCKS_PER_LEAF as u64 + slot as u64;
                    told(&summaries, place, |entry| {
                        (entry.group, entry.volume, entry.ino, entry.offset, entry.crc)
                            == (group, volume, at.ino, offset, crc)
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn told(summaries: &Summaries, place: Place, is_it: impl Fn(&SummaryEntry) -> bool) -> Result<()> {
    let Some(entries) = summaries.get(&place.segment) else { return Ok(()) };
    match entries.get(&place.block) {
        Some(entry) if is_it(entry) => Ok(()),
        found => Err(Error::new(Kind::Corrupt, "a summary lacks a live block").with(format!("{place:?}: {found:?}"))),
    }
}

/// A sealed segment's summary, from the device.
async fn read(runtime: &Runtime, opening: &Opening, segment: SegmentId) -> Result<Vec<SummaryEntry>> {
    let last = opening.geometry().blocks() - 1;
    let footer = summary::decode_footer(&blocks(runtime, opening, segment, last, 1).await?)?;
    let count = summary::summary_blocks(footer.entries as usize) as u32 - 1;
    let bytes = match count {
        0 => Vec::new(),
        _ => blocks(runtime, opening, segment, last - count, count).await?,
    };
    // 40 bytes each (see the format).
    let entries = bytes.get(..footer.entries as usize * 40).unwrap_or_default();
    if crc32c(entries) != footer.crc {
        return Err(Error::new(Kind::Corrupt, "a summary's entries fail their checksum"));
    }
    summary::decode_entries(entries)
}

async fn blocks(runtime: &Runtime, opening: &Opening, segment: SegmentId, first: u32, count: u32) -> Result<Vec<u8>> {
    let place = Place { segment, block: first as u16 };
    let spot = opening.geometry().spot(place).expect("a sealed segment has a file");
    let buffer = runtime.buffer(count as usize * BLOCK_BYTES)?;
    let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, buffer).await;
    result.map(|()| buffer.to_vec())
}
