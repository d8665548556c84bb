//! The segment header: the first block of every segment in use says what it is.

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{Life, Result, SegmentId};

const MAGIC: &[u8; 8] = b"SINTSEG1";
const HEADER_BYTES: usize = 68;
const _: () = assert!(HEADER_BYTES <= BLOCK_BYTES);

/// The purpose of a sequence of segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stream {
    /// Batches: records and small payloads.
    Commit,
    /// Large payloads, placed before they are ordered (decision D2).
    Bulk,
    /// Blocks moved by the cleaner.
    Cold,
    /// Copies on flash of blocks whose home is on disk: of no use after a restart, and no record names them.
    Copies,
}

impl Stream {
    /// Its byte in formats.
    pub fn code(self) -> u8 {
        match self {
            Stream::Commit => 1,
            Stream::Bulk => 2,
            Stream::Cold => 3,
            Stream::Copies => 4,
        }
    }
    /// The stream of this code.
    pub fn from_code(code: u8) -> Result<Stream> {
        match code {
            1 => Ok(Stream::Commit),
            2 => Ok(Stream::Bulk),
            3 => Ok(Stream::Cold),
            4 => Ok(Stream::Copies),
            _ => Err(corrupt("no such stream")),
        }
    }
}

/// The header's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The brick.
    pub uuid: Uuid,
    /// The segment's own number.
    pub segment: SegmentId,
    /// The number of this use of the segment.
    pub life: Life,
    /// The stream that it belongs to.
    pub stream: Stream,
    /// Position of the segment in its stream; never reused.
    pub sequence: u64,
    /// The log epoch in which it was opened.
    pub epoch: u64,
}

impl SegmentHeader {
    /// One block of bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        let mut writer = Writer(&mut out);
        writer.bytes(MAGIC).bytes(&self.uuid.0).u32(self.segment.0).u32(self.life.0);
        writer.u8(self.stream.code()).bytes(&[0; 7]).u64(self.sequence).u64(self.epoch).u64(0);
        let crc = crc32c(&out);
        Writer(&mut out).u32(crc);
        assert!(out.len() == HEADER_BYTES);
        out.resize(BLOCK_BYTES, 0);
        out
    }
    /// Checks and reads it. Errors: `Corrupt` (also for a block that never was a header).
    pub fn decode(block: &[u8]) -> Result<SegmentHeader> {
        let mut reader = Reader::new(block);
        if reader.bytes(8)? != MAGIC {
            return Err(corrupt("not a segment header"));
        }
        let body = Reader::new(block).bytes(HEADER_BYTES - 4)?;
        let uuid = reader.uuid()?;
        let (segment, life) = (SegmentId(reader.u32()?), Life(reader.u32()?));
        let stream = reader.u8()?;
        reader.bytes(7)?;
        let (sequence, epoch, _) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if reader.u32()? != crc32c(body) {
            return Err(corrupt("a segment header fails its checksum"));
        }
        Ok(SegmentHeader { uuid, segment, life, stream: Stream::from_code(stream)?, sequence, epoch })
    }
}
