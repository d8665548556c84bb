//! The batch header (rule L3): fixed fields, then records, padded to whole blocks; payload blocks follow it.

use super::Uuid;
use super::bytes::{Reader, corrupt};
use base::checksum::{crc32c, crc32c_append};
use base::limits::{BLOCK_BYTES, HEADER_BLOCKS_MAX};
use base::{Life, Result, SegmentId};

const MAGIC: u32 = u32::from_le_bytes(*b"SBAT");
/// Bytes before the first record.
pub const FIXED_BYTES: usize = 96;
const CRC_AT: usize = FIXED_BYTES - 4;
/// The first block alone tells the header's size.
const _: () = assert!(FIXED_BYTES <= BLOCK_BYTES && HEADER_BLOCKS_MAX <= u16::MAX as usize);

/// The fixed fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// The brick.
    pub uuid: Uuid,
    /// The log epoch.
    pub epoch: u64,
    /// The segment where it was written: a copy elsewhere is not this batch.
    pub segment: SegmentId,
    /// The number of this use of the segment.
    pub life: Life,
    /// Position of the segment in the commit stream.
    pub sequence: u64,
    /// Number of the batch; grows by one, across epochs too.
    pub number: u64,
    /// Checksum of the previous batch's header; 0 for the first batch of an epoch.
    pub previous_crc: u32,
    /// Every batch up to this one was durable when this one was formed.
    pub durable_through: u64,
    /// Blocks of the header.
    pub header_blocks: u16,
    /// Blocks of payload after it.
    pub payload_blocks: u32,
    /// Records in the header.
    pub records: u16,
    /// Bytes of these records.
    pub records_bytes: u32,
}

impl BatchHeader {
    /// Fills the fixed fields of `blocks` (whole header blocks, records in place) and returns the header's checksum.
    pub fn seal(&self, blocks: &mut [u8]) -> u32 {
        assert!(blocks.len() == usize::from(self.header_blocks) * BLOCK_BYTES);
        assert!(FIXED_BYTES + self.records_bytes as usize <= blocks.len());
        // `peek` refuses others.
        assert!((1..=HEADER_BLOCKS_MAX).contains(&usize::from(self.header_blocks)), "a header that can be read back");
        blocks[FIXED_BYTES + self.records_bytes as usize..].fill(0);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            blocks[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&self.previous_crc.to_le_bytes());
        put(&self.uuid.0);
        put(&self.epoch.to_le_bytes());
        put(&self.segment.0.to_le_bytes());
        put(&self.life.0.to_le_bytes());
        put(&self.sequence.to_le_bytes());
        put(&self.number.to_le_bytes());
        put(&self.durable_through.to_le_bytes());
        put(&self.header_blocks.to_le_bytes());
        put(&self.records.to_le_bytes());
        put(&self.payload_blocks.to_le_bytes());
        put(&self.records_bytes.to_le_bytes());
        put(&[0; CRC_AT - 76]);
        assert!(at == CRC_AT);
        let crc = header_crc(blocks);
        blocks[CRC_AT..FIXED_BYTES].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads the fixed fields without checking the checksum: enough to know how many blocks to read.
    pub fn peek(block: &[u8]) -> Result<BatchHeader> {
        let mut reader = Reader::new(block);
        if reader.u32()? != MAGIC {
            return Err(corrupt("not a batch"));
        }
        let previous_crc = reader.u32()?;
        let uuid = reader.uuid()?;
        let epoch = reader.u64()?;
        let (segment, life) = (SegmentId(reader.u32()?), Life(reader.u32()?));
        let (sequence, number, durable_through) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (header_blocks, records) = (reader.u16()?, reader.u16()?);
        let (payload_blocks, records_bytes) = (reader.u32()?, reader.u32()?);
        let fits = FIXED_BYTES + records_bytes as usize <= usize::from(header_blocks) * BLOCK_BYTES;
        if header_blocks == 0 || usize::from(header_blocks) > HEADER_BLOCKS_MAX || !fits {
            return Err(corrupt("a batch header's sizes contradict each other"));
        }
        Ok(BatchHeader {
            uuid,
            epoch,
            segment,
            life,
            sequence,
            number,
            previous_crc,
            durable_through,
            header_blocks,
            payload_blocks,
            records,
            records_bytes,
        })
    }

    /// Checks whole header blocks; returns the fields and the header's checksum.
    pub fn check(blocks: &[u8]) -> Result<(BatchHeader, u32)> {
        let header = BatchHeader::peek(blocks)?;
        let bytes = usize::from(header.header_blocks) * BLOCK_BYTES;
        let blocks = blocks.get(..bytes).ok_or_else(|| corrupt("a batch header is cut short"))?;
        let stored = Reader::new(&blocks[CRC_AT..]).u32()?;
        if stored != header_crc(blocks) {
            return Err(corrupt("a batch header fails its checksum"));
        }
        Ok((header, stored))
    }

    /// The records' bytes within checked header blocks.
    pub fn records<'a>(&self, blocks: &'a [u8]) -> &'a [u8] {
        &blocks[FIXED_BYTES..FIXED_BYTES + self.records_bytes as usize]
    }
}

fn header_crc(blocks: &[u8]) -> u32 {
    let crc = crc32c(&blocks[..CRC_AT]);
    crc32c_append(crc, &blocks[FIXED_BYTES..])
}
