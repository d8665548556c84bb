//! Batches being built. Records go into header blocks, payloads behind them. Places are known as soon as a record is
//! added, because the number of header blocks is fixed when the batch is opened.

use crate::format::Uuid;
use crate::format::batch::{BatchHeader, FIXED_BYTES};
use base::limits::{BLOCK_BYTES, BULK_BYTES_MIN};
use base::{Life, Place, SegmentId};
use runtime::{Buf, FileId, Slice};

/// Largest number of payload blocks of a batch: 1 MiB keeps each device write short, so that small synchronous ones do
/// not wait long behind it.
pub const PAYLOAD_BLOCKS_MAX: u32 = 256;
const _: () = assert!(PAYLOAD_BLOCKS_MAX as usize * BLOCK_BYTES >= BULK_BYTES_MIN);

/// The commit segment that batches go to.
#[derive(Clone, Copy, Debug)]
pub struct OpenSegment {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's life.
    pub life: Life,
    /// The segment's position in the commit stream.
    pub sequence: u64,
    /// The file that the segment lies in.
    pub file: FileId,
    /// Byte offset of the segment's first block in the file.
    pub offset: u64,
    /// The next free block.
    pub next_block: u32,
    /// Number of payload blocks so far, which will be entries of the summary.
    pub payload_blocks: u32,
}

/// A batch that still takes records.
pub struct Building {
    /// The batch's first block in the segment.
    pub block: u32,
    header: Buf,
    used: usize,
    records: u16,
    payload_blocks: u32,
    slices: Vec<Slice>,
    /// True if a request waits for the batch to be written.
    pub wants_write: bool,
    /// True if a request waits for the batch to be durable.
    pub wants_durable: bool,
    /// Time at which the batch was begun.
    pub since_ns: u64,
}

/// A finished batch, ready to be written.
pub struct Batch {
    /// The batch's number.
    pub number: u64,
    /// The file to write.
    pub file: FileId,
    /// Byte offset in the file.
    pub offset: u64,
    /// Header and payload.
    pub slices: Vec<Slice>,
    /// Number of bytes of header and payload.
    pub bytes: u64,
    /// True if a request waits for the batch to be durable.
    pub wants_durable: bool,
    /// Time at which the batch was begun.
    pub since_ns: u64,
}

/// The fields of a batch header that come from outside the batch.
pub struct HeaderFields {
    /// The brick's identity.
    pub uuid: Uuid,
    /// The log's epoch.
    pub epoch: u64,
    /// The batch's number.
    pub number: u64,
    /// Checksum of the header of the batch before.
    pub previous_crc: u32,
    /// The last batch that is durable now.
    pub durable_through: u64,
}

impl Building {
    /// An empty batch at `block`, with `header` (whole blocks) for its records.
    pub fn new(block: u32, header: Buf, slices: Vec<Slice>, since_ns: u64) -> Building {
        assert!(header.len().is_multiple_of(BLOCK_BYTES) && slices.is_empty());
        assert!(header.len() > FIXED_BYTES && block > 0, "a batch begins behind its segment's header");
        let (wants_write, wants_durable) = (false, false);
        Building {
            block,
            header,
            used: FIXED_BYTES,
            records: 0,
            payload_blocks: 0,
            slices,
            wants_write,
            wants_durable,
            since_ns,
        }
    }
    /// Number of blocks so far.
    pub fn blocks(&self) -> u32 {
        self.header_blocks() as u32 + self.payload_blocks
    }
    /// True if the batch holds no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }
    /// Number of payload blocks so far.
    pub fn payload_blocks(&self) -> u32 {
        self.payload_blocks
    }
    /// True if a record of `bytes` bytes with this many payload blocks fits.
    pub fn fits(&self, bytes: usize, payload_blocks: u32) -> bool {
        let room = self.payload_blocks + payload_blocks <= PAYLOAD_BLOCKS_MAX || self.payload_blocks == 0;
        !self.is_header_full(bytes) && room && self.records < u16::MAX
    }
    /// The place of the next payload.
    pub fn next_place(&self, segment: SegmentId) -> Place {
        Place { segment, block: (self.block + self.blocks()) as u16 }
    }
    /// Adds a record and its payload (whole blocks).
    pub fn add(&mut self, record: &[u8], payload: &[Slice]) {
        assert!(!self.is_header_full(record.len()), "a record is added where it fits");
        self.header[self.used..self.used + record.len()].copy_from_slice(record);
        self.used += record.len();
        self.records += 1;
        for slice in payload {
            assert!(slice.len().is_multiple_of(BLOCK_BYTES));
            self.payload_blocks += (slice.len() / BLOCK_BYTES) as u32;
            self.slices.push(slice.clone());
        }
    }
    /// Number of header blocks.
    pub fn header_blocks(&self) -> usize {
        self.header.len() / BLOCK_BYTES
    }
    /// True if the header has no space left for a record of this many bytes.
    pub fn is_header_full(&self, bytes: usize) -> bool {
        self.used + bytes > self.header.len()
    }
    /// Position in the header at which the next record will begin.
    pub fn used(&self) -> usize {
        self.used
    }
    /// The bytes of the header from the record at position `at` on.
    pub fn record_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.header[at..self.used]
    }
    /// Replaces block number `block` of the payload. Returns the bytes of memory that the slices concerned kept in use
    /// before, and those that they keep now.
    pub fn replace(&mut self, block: u32, payload: Slice) -> (u64, u64) {
        assert!(payload.len() == BLOCK_BYTES && block < self.payload_blocks);
        let mut first = self.payload_blocks;
        // The block to be replaced has mostly been added last.
        let index = self.slices.iter().rposition(|slice| {
            first -= (slice.len() / BLOCK_BYTES) as u32;
            first <= block
        });
        let index = index.expect("the payload has the block");
        let old = self.slices[index].clone();
        let at = (block - first) as usize * BLOCK_BYTES;
        let before = (at > 0).then(|| old.slice(0..at));
        let after = (at + BLOCK_BYTES < old.len()).then(|| old.slice(at + BLOCK_BYTES..old.len()));
        let held = |slice: &Slice| slice.held_bytes() as u64;
        let parts = [before, Some(payload), after];
        let now = parts.iter().flatten().map(held).sum();
        self.slices.splice(index..=index, parts.into_iter().flatten());
        (held(&old), now)
    }
    /// Ends the batch. Returns the batch and the checksum of its header.
    pub fn finish(mut self, segment: &OpenSegment, fields: &HeaderFields) -> (Batch, u32) {
        assert!(fields.durable_through < fields.number, "a batch is not durable before it is formed (rule L5)");
        assert!(self.records > 0 || self.payload_blocks == 0, "a payload belongs to a record");
        let header = BatchHeader {
            uuid: fields.uuid,
            epoch: fields.epoch,
            segment: segment.segment,
            life: segment.life,
            sequence: segment.sequence,
            number: fields.number,
            previous_crc: fields.previous_crc,
            durable_through: fields.durable_through,
            header_blocks: self.header_blocks() as u16,
            payload_blocks: self.payload_blocks,
            records: self.records,
            records_bytes: (self.used - FIXED_BYTES) as u32,
        };
        let crc = header.seal(&mut self.header);
        let bytes = u64::from(self.blocks()) * BLOCK_BYTES as u64;
        let length = self.header.len();
        self.slices.insert(0, self.header.share().slice(0..length));
        let lengths: u64 = self.slices.iter().map(|slice| slice.len() as u64).sum();
        assert!(lengths == bytes, "the header counts {bytes} bytes, the slices have {lengths}");
        let batch = Batch {
            number: fields.number,
            file: segment.file,
            offset: segment.offset + u64::from(self.block) * BLOCK_BYTES as u64,
            slices: self.slices,
            bytes,
            wants_durable: self.wants_durable,
            since_ns: self.since_ns,
        };
        (batch, crc)
    }
}
