//! The label of a block device: whose segments lie on it. All of it fits in one 512-byte sector, so that a crash leaves
//! the old one or the new one.

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use super::devices::{DeviceId, FIRST};
use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};

const MAGIC: &[u8; 8] = b"SINTERDV";
/// Version of this layout, of the first device of a brick.
const VERSION: u32 = 1;
/// Version of the label of a further device, which has a number.
const VERSION_2: u32 = 2;
/// Bytes that a device never tears.
const SECTOR_BYTES: usize = 512;
/// The segments begin here. So they lie as the drive's own pages and stripes do, and there is room to grow.
pub const SEGMENTS_AT: u64 = 1 << 20;
const _: () = assert!(SEGMENTS_AT.is_multiple_of(BLOCK_BYTES as u64) && BLOCK_BYTES.is_multiple_of(SECTOR_BYTES));

/// The label's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The brick.
    pub uuid: Uuid,
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Segments of the device, or more: a brick that grows writes its label first.
    pub segments: u32,
    /// The device's number in the brick.
    pub device: DeviceId,
}

impl Label {
    /// One block of bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        let version = if self.device == FIRST { VERSION } else { VERSION_2 };
        Writer(&mut out).bytes(MAGIC).u32(version).bytes(&self.uuid.0).u64(self.segment_bytes).u32(self.segments);
        if version == VERSION_2 {
            Writer(&mut out).u32(self.device.0);
        }
        assert!(out.len() <= SECTOR_BYTES - 4, "all fields lie in the sector that is never torn");
        out.resize(SECTOR_BYTES - 4, 0);
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(BLOCK_BYTES, 0);
        out
    }
    /// Checks and reads one copy. Errors: `Corrupt`, also for what is no label; `Newer`.
    pub fn decode(block: &[u8]) -> Result<Label> {
        let sector = block.get(..SECTOR_BYTES).ok_or_else(|| corrupt("a device's label is cut short"))?;
        let (body, crc) = sector.split_at(SECTOR_BYTES - 4);
        let mut reader = Reader::new(body);
        if reader.bytes(8)? != MAGIC {
            return Err(corrupt("no label of a brick"));
        }
        if Reader::new(crc).u32()? != crc32c(body) {
            return Err(corrupt("a device's label fails its checksum"));
        }
        let version = reader.u32()?;
        if version > VERSION_2 {
            return Err(Error::new(Kind::Newer, "a newer version wrote the device's label; upgrade this machine"));
        }
        let (uuid, segment_bytes, segments) = (reader.uuid()?, reader.u64()?, reader.u32()?);
        let device = if version == VERSION_2 { DeviceId(reader.u32()?) } else { FIRST };
        Ok(Label { uuid, segment_bytes, segments, device })
    }
}
