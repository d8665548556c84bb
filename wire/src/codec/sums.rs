//! Checksums of a payload, from end to end: whoever makes the payload computes them, and whoever receives it checks them. Those
//! of whole blocks are the ones that the brick keeps.

use super::bytes::{Put, Take, corrupt};
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::seeded::{Bug, active};
use base::{At, Crcs, Op, Result};
use std::ops::Range;

/// The largest number of pieces: those of the largest payload, if it begins within a block.
const PIECES_MAX: usize = IO_BYTES_MAX / BLOCK_BYTES + 1;

/// The CRC-32C of each piece of a payload. Its bytes belong to blocks of a file, and the pieces are cut where these meet: whole
/// blocks, and at the ends what there is of one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sums {
    /// The place of the first byte within its block.
    phase: u16,
    crcs: Crcs,
}

impl Sums {
    /// Those of a payload whose first byte belongs to the byte `offset` of a file.
    pub fn of(offset: u64, payload: &[u8]) -> Sums {
        let phase = (offset % BLOCK_BYTES as u64) as u16;
        let crcs = pieces(phase, payload.len()).map(|piece| crc32c(&payload[piece])).collect();
        Sums { phase, crcs }
    }
    /// Those of the payload of an operation, or of its answer. The offset of what is appended is not known before it is ordered,
    /// and counts as 0.
    pub fn of_op(op: &Op, payload: &[u8]) -> Sums {
        let offset = match op {
            Op::Write { at: At::Offset(offset), .. } | Op::Read { offset, .. } => *offset,
            _ => 0,
        };
        Sums::of(offset, payload)
    }
    /// Those of a payload of whole blocks, which lies in these parts. Each part has whole blocks.
    pub fn of_blocks<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Sums {
        let blocks = parts.flat_map(|part| part.as_chunks::<BLOCK_BYTES>().0);
        Sums::known(0, blocks.map(|block| crc32c(block)).collect())
    }
    /// Those of pieces that were computed elsewhere: of the whole blocks and ends of a payload that begins at `offset`.
    pub fn known(offset: u64, crcs: Crcs) -> Sums {
        assert!(crcs.len() <= PIECES_MAX, "a payload has at most {PIECES_MAX} pieces");
        Sums { phase: (offset % BLOCK_BYTES as u64) as u16, crcs }
    }
    /// True if the payload begins where a block does.
    pub fn begins_with_a_block(&self) -> bool {
        self.phase == 0
    }
    /// The checksums, in order.
    pub fn crcs(&self) -> &[u32] {
        self.crcs.as_slice()
    }
    /// Those of whole blocks of a payload of this length, and the number of bytes before the first of them.
    pub fn whole(&self, length: usize) -> (usize, &[u32]) {
        let lacking = pieces(self.phase, length).take_while(|piece| piece.len() < BLOCK_BYTES).take(1);
        let before = lacking.map(|piece| piece.len()).sum();
        let from = usize::from(before > 0);
        (before, &self.crcs()[from..from + length.saturating_sub(before) / BLOCK_BYTES])
    }
    /// Compares them with a payload. Errors: `Corrupt`.
    pub fn check(&self, payload: &[u8]) -> Result<()> {
        let mut given = self.crcs().iter();
        for piece in pieces(self.phase, payload.len()) {
            let crc = given.next().ok_or_else(|| corrupt("a payload has fewer checksums than blocks"))?;
            let is_right = crc32c(&payload[piece]) == *crc || active(Bug::PayloadCrcUnchecked);
            if !is_right {
                return Err(corrupt("a payload fails its checksum: it was changed on its way"));
            }
        }
        let is_whole = given.next().is_none() && !(self.crcs.is_empty() && self.phase > 0);
        if is_whole { Ok(()) } else { Err(corrupt("a payload has more checksums than blocks")) }
    }
    pub(super) fn put(&self, put: &mut Put<'_>) {
        put.u16(self.phase).u16(u16::try_from(self.crcs.len()).expect("a payload has few pieces"));
        self.crcs().iter().for_each(|crc| _ = put.u32(*crc));
    }
    pub(super) fn take(take: &mut Take<'_>) -> Result<Sums> {
        let (phase, count) = (take.u16()?, usize::from(take.u16()?));
        if usize::from(phase) >= BLOCK_BYTES || count > PIECES_MAX {
            return Err(corrupt("a message has checksums of a payload that none can be"));
        }
        let (fields, _) = take.bytes(4 * count)?.as_chunks();
        Ok(Sums { phase, crcs: fields.iter().map(|crc| u32::from_le_bytes(*crc)).collect() })
    }
}

/// The pieces of a payload of so many bytes.
fn pieces(phase: u16, length: usize) -> impl Iterator<Item = Range<usize>> {
    let first = BLOCK_BYTES - usize::from(phase);
    let ends = (0..).map(move |piece| first + piece * BLOCK_BYTES);
    let mut start = 0;
    ends.map(move |end| std::mem::replace(&mut start, end)..end.min(length))
        .take_while(move |piece| piece.start < length)
}
