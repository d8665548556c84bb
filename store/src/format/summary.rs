//! The summary (rule L7): at seal, a segment gets a list of what its blocks hold, so that data maps can be rebuilt
//! from segments alone. Entries first, then a footer in the segment's last block.

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{GroupId, Index, Ino, Life, Result, SegmentId, VolumeId};

const MAGIC: &[u8; 8] = b"SINTSUM1";
pub const ENTRY_BYTES: usize = 40;
/// Bytes of the footer before its own checksum.
const FOOTER_BYTES: usize = 40;
const _: () = assert!(FOOTER_BYTES + 4 <= BLOCK_BYTES);

/// The origin of one block of a segment: the file's block as which it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryEntry {
    /// The block within the segment.
    pub block: u16,
    /// The owning group.
    pub group: GroupId,
    /// The volume.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// The block's number within the inode.
    pub offset: u64,
    /// The record that named it.
    pub index: Index,
    /// CRC-32C of the block.
    pub crc: u32,
}

/// The footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryFooter {
    /// The brick.
    pub uuid: Uuid,
    /// The segment.
    pub segment: SegmentId,
    /// The number of this use of the segment.
    pub life: Life,
    /// Entries before the footer.
    pub entries: u32,
    /// CRC-32C of the entries' bytes.
    pub crc: u32,
}

/// Blocks that a summary of this many entries takes, footer included.
pub const fn summary_blocks(entries: usize) -> usize {
    (entries * ENTRY_BYTES).div_ceil(BLOCK_BYTES) + 1
}

/// Bytes of entries, also used for the parts kept in the index while a segment is open.
pub fn encode_entries(entries: &[SummaryEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        let mut writer = Writer(&mut out);
        writer.u16(entry.block).u16(0).u32(entry.group.0).u32(entry.volume.0).u32(entry.crc);
        writer.u64(entry.ino.0).u64(entry.offset).u64(entry.index.0);
    }
    assert!(out.len() == entries.len() * ENTRY_BYTES, "entries take as much as `summary_blocks` says");
    out
}

/// Reads entries.
pub fn decode_entries(bytes: &[u8]) -> Result<Vec<SummaryEntry>> {
    if !bytes.len().is_multiple_of(ENTRY_BYTES) {
        return Err(corrupt("a summary's entries are cut short"));
    }
    let entry = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let (block, _) = (reader.u16()?, reader.u16()?);
        let (group, volume, crc) = (GroupId(reader.u32()?), VolumeId(reader.u32()?), reader.u32()?);
        let (ino, offset, index) = (Ino(reader.u64()?), reader.u64()?, Index(reader.u64()?));
        Ok(SummaryEntry { block, group, volume, ino, offset, index, crc })
    };
    bytes.chunks(ENTRY_BYTES).map(entry).collect()
}

/// The whole summary, to be written so that it ends at the segment's end.
pub fn encode(uuid: Uuid, segment: SegmentId, life: Life, entries: &[SummaryEntry]) -> Vec<u8> {
    let mut out = encode_entries(entries);
    let crc = crc32c(&out);
    let blocks = summary_blocks(entries.len());
    out.resize((blocks - 1) * BLOCK_BYTES, 0);
    let start = out.len();
    let mut writer = Writer(&mut out);
    writer.bytes(MAGIC).bytes(&uuid.0).u32(segment.0).u32(life.0).u32(entries.len() as u32).u32(crc);
    assert!(out.len() - start == FOOTER_BYTES && start + BLOCK_BYTES == blocks * BLOCK_BYTES);
    let footer_crc = crc32c(&out[start..]);
    Writer(&mut out).u32(footer_crc);
    out.resize(blocks * BLOCK_BYTES, 0);
    out
}

/// Reads the footer from the segment's last block.
pub fn decode_footer(block: &[u8]) -> Result<SummaryFooter> {
    let mut reader = Reader::new(block);
    if reader.bytes(8)? != MAGIC {
        return Err(corrupt("not a summary's footer"));
    }
    let footer = SummaryFooter {
        uuid: reader.uuid()?,
        segment: SegmentId(reader.u32()?),
        life: Life(reader.u32()?),
        entries: reader.u32()?,
        crc: reader.u32()?,
    };
    if reader.u32()? != crc32c(&block[..FOOTER_BYTES]) {
        return Err(corrupt("a summary's footer fails its checksum"));
    }
    Ok(footer)
}
