//! A brick's devices, as a start finds them. Promises that a device which is not the one of its number is refused,
//! that a brick whose flash is not all there is refused with what would be lost, and that a brick starts without a disk that is
//! not there: what lies on it can't be read, nothing is taken from it or given to it, and the index keeps what it says of
//! it, so that all of it is right again once a start finds the disk. Absent by design: a mark that a disk was missing, for it may be
//! back at the next start; a disk that comes back while the brick is served.

use crate::device::Device;
use crate::format::devices::{DeviceRow, DeviceTable, FIRST, State, Tier};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{keys, values};
use crate::index::{self, Index};
use crate::media::geometry::{Geometry, Medium};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Place, Result, SegmentId};
use runtime::{FileId, Runtime, disk};
use std::ops::Range;

/// The brick's devices, opened.
pub(super) struct Opened {
    /// The places of segments.
    pub geometry: Geometry,
    /// The devices that an operator should know to be missing.
    pub warnings: Vec<String>,
}

/// Opens them. Errors: `NotFound` for flash that is not there and for a device that is another one, `Busy`, `Corrupt`, `Io`.
pub(super) async fn open(
    (runtime, index): (&Runtime, &dyn Index),
    (superblock, devices): (&Superblock, &DeviceTable),
    writable: bool,
) -> Result<Opened> {
    let (first, further) = devices.rows.split_first().expect("a brick has a device");
    let geometry = open_first(runtime, superblock, first.segments, writable).await;
    let geometry = geometry.map_err(|error| match error.kind {
        Kind::NotFound => needed(error, index, first),
        _ => error,
    })?;
    let mut warnings = Vec::new();
    for row in further {
        if row.state == State::Gone {
            geometry.add(row, Medium::Left);
            continue;
        }
        let medium = match find(runtime, row, superblock, writable).await? {
            Ok(device) => Medium::There(device.file),
            Err(error) if row.tier == Tier::Flash => return Err(needed(error, index, row)),
            Err(error) => {
                warnings.push(warning(row, &error));
                Medium::Missing
            }
        };
        geometry.add(row, medium);
    }
    Ok(Opened { geometry, warnings })
}

fn warning(row: &DeviceRow, error: &Error) -> String {
    let id = row.id;
    format!(
        "disk {id} is missing ({error}): reads of what lies on it fail with EIO, all else is served; `sinter brick affected` \
         lists the files; nothing of it is lost: stop the brick, bring the disk back, and start it again"
    )
}

/// The device of a row, or why it is missing: there is none at its path, or none that tells what it is.
async fn find<'a>(
    runtime: &'a Runtime,
    row: &DeviceRow,
    superblock: &Superblock,
    writable: bool,
) -> Result<std::result::Result<Device<'a>, Error>> {
    let is_absent = |error: &Error| matches!(error.kind, Kind::NotFound | Kind::Io);
    let device = match Device::open(runtime, (row.id, row.tier), writable) {
        Ok(device) => device,
        Err(error) if is_absent(&error) => return Ok(Err(error)),
        Err(error) => return Err(error),
    };
    let absent = match device.verify(superblock, row.segments).await {
        // As a drive without a medium: nothing is there that could be another brick's.
        _ if device.bytes == 0 => Error::new(Kind::NotFound, "the device has no medium"),
        Ok(_) => return Ok(Ok(device)),
        Err(error) if error.kind == Kind::Io => error,
        // It is another device: to go on without the right one would hide a mistake.
        Err(error) => return Err(error),
    };
    runtime.disk.close(device.file);
    Ok(Err(absent))
}

/// The error of a start without a device of flash: it has what nobody else has.
fn needed(error: Error, index: &dyn Index, row: &DeviceRow) -> Error {
    let what = match live_bytes(index, row) {
        Ok(bytes) => format!("{bytes} bytes of files by the last checkpoint"),
        Err(_) => "data of files".to_string(),
    };
    let (id, log) = (row.id, "of all changes since then at least a part");
    error.with(format!("device {id} is flash, and no brick starts without: with it would be lost {what}, and {log}"))
}

/// Bytes of files that lie on a device, by the last checkpoint.
fn live_bytes(index: &dyn Index, row: &DeviceRow) -> Result<u64> {
    let mut blocks = 0;
    index::each(index, keys::segments(), |key, value| {
        if (row.first..row.end()).contains(&keys::segment_id(key).0) {
            let live = values::decode_segment(value)?.live;
            blocks += live.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        Ok(())
    })?;
    Ok(blocks * BLOCK_BYTES as u64)
}

/// `segments`: those of the first device.
async fn open_first(runtime: &Runtime, superblock: &Superblock, segments: u32, writable: bool) -> Result<Geometry> {
    let (disk, segment_bytes) = (runtime.disk.clone(), superblock.segment_bytes);
    if !superblock.on_device() {
        if let Ok(device) = Device::open(runtime, (FIRST, Tier::Flash), false)
            && device.verify(superblock, segments).await.is_ok()
        {
            let what =
                "the superblock says that the segments are files, but they are on its device: restore it from a backup";
            return Err(Error::new(Kind::Corrupt, what));
        }
        let geometry = Geometry::open(disk, segment_bytes, segments, writable)?;
        let others = segments..geometry.segments_that_files_hold();
        refuse_more_segments(runtime, superblock, &geometry, others).await?;
        for (file, first) in geometry.short_files() {
            refuse_short_file(runtime, superblock, (file, first)).await?;
        }
        return Ok(geometry);
    }
    let device = Device::open(runtime, (FIRST, Tier::Flash), writable)?;
    let labelled = device.verify(superblock, segments).await?.segments;
    let geometry = Geometry::on_device(disk, segment_bytes, device.file);
    refuse_more_segments(runtime, superblock, &geometry, segments..labelled).await?;
    Ok(geometry)
}

/// A file that is too short counts as never made: then nothing was ever written to it.
async fn refuse_short_file(runtime: &Runtime, superblock: &Superblock, (file, first): (FileId, u32)) -> Result<()> {
    let whole = runtime.disk.length(file)? / superblock.segment_bytes;
    for number in 0..whole {
        let offset = number * superblock.segment_bytes;
        let (buffer, result) = disk::read(&*runtime.disk, file, offset, runtime.buffer(BLOCK_BYTES)?).await;
        result?;
        if SegmentHeader::decode(&buffer).is_ok_and(|header| header.uuid == superblock.uuid) {
            let what = "a file of segments in use is shorter than the superblock says: restore both from a backup";
            return Err(Error::new(Kind::Corrupt, what).with(format!("segment {}", u64::from(first) + number)));
        }
    }
    Ok(())
}

/// A superblock that counts fewer segments than are in use: what lies in the others would be lost without a word. A brick that
/// was about to grow has room for more, and nothing in it.
async fn refuse_more_segments(
    runtime: &Runtime,
    superblock: &Superblock,
    geometry: &Geometry,
    others: Range<u32>,
) -> Result<()> {
    for segment in others.map(SegmentId) {
        let Some(spot) = geometry.spot(Place { segment, block: 0 }) else { return Ok(()) };
        if spot.offset + BLOCK_BYTES as u64 > runtime.disk.length(spot.file)? {
            return Ok(());
        }
        let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, runtime.buffer(BLOCK_BYTES)?).await;
        result?;
        let header = SegmentHeader::decode(&buffer);
        if header.is_ok_and(|header| (header.uuid, header.segment) == (superblock.uuid, segment)) {
            let what = "the superblock counts fewer segments than are in use: restore it from a backup";
            return Err(Error::new(Kind::Corrupt, what).with(format!("segment {segment} of {}", superblock.segments)));
        }
    }
    Ok(())
}
