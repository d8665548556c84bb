//! The pure part of a data write: its position, its effect on the inode, and which blocks need their old data.

use crate::decision::{Decision, Draft};
use crate::guard;
use crate::view::{Caller, Stop, View, inode, refuse};
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX, IO_BYTES_MAX};
use base::{At, Edit, Error, FileKind, Ino, Inode, Kind, Outcome, Reply, Result, Room, Time};
use std::ops::Range;

/// Blocks of a write at most, less one: where it is not aligned, it has one more than it has bytes for.
const BLOCKS_MAX: u64 = (IO_BYTES_MAX / BLOCK_BYTES) as u64;

/// The source of those bytes of a write's first or last block that the write does not give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// None: the write covers the block.
    Full,
    /// Zeros: the rest of the block lies at or beyond the end of the file, so nothing is read.
    Zeros,
    /// The old block, which must be read: the write leaves some of the file's bytes in it as they are (rule M5).
    Merge,
}

impl Edge {
    /// True if the write does not cover the block.
    pub fn is_partial(self) -> bool {
        self != Edge::Full
    }
}

/// The plan of a write. If it lies within one block, `head` and `tail` are about that block and are equal.
#[derive(Clone, PartialEq, Debug)]
pub struct WritePlan {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// The file's size afterwards, if the write extends it.
    pub new_size: Option<u64>,
    /// The first block's edge.
    pub head: Edge,
    /// The last block's edge.
    pub tail: Edge,
    /// Number of the first block.
    pub first_block: u64,
    /// Number of the last block.
    pub last_block: u64,
    /// The edit of the inode.
    pub extend: Edit,
}

/// Plans a write of `length` bytes to an inode with all ordered edits. Errors: `IsDirectory`, `Invalid` (not a file, or
/// no or too many bytes), `TooLarge`, `Permission` (guarded).
pub fn evaluate_write(
    ino: Ino,
    inode: &Inode,
    at: At,
    length: u32,
    kill_privileges: bool,
    now: Time,
) -> Result<WritePlan> {
    match inode.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::new(Kind::IsDirectory, "a directory can't be written")),
        _ => return Err(Error::new(Kind::Invalid, "only files can be written")),
    }
    if length == 0 || length as usize > IO_BYTES_MAX {
        return Err(Error::new(Kind::Invalid, "a write has 1 byte to 1 MiB"));
    }
    let offset = match at {
        At::Offset(offset) => offset,
        At::End => inode.size,
    };
    if inode.guard.immutable || inode.guard.append_only && offset < inode.size {
        return Err(Error::new(Kind::Permission, "the file is immutable or only appended to"));
    }
    let end = match offset.checked_add(u64::from(length)) {
        Some(end) if end <= FILE_BYTES_MAX => end,
        _ => return Err(Error::new(Kind::TooLarge, "a file has at most 16 TiB")),
    };
    let (first_block, last_block) = (offset / BLOCK_BYTES as u64, (end - 1) / BLOCK_BYTES as u64);
    assert!(last_block - first_block <= BLOCKS_MAX, "a write has blocks {first_block} to {last_block}");
    let time = inode.ctime.tick(now);
    Ok(WritePlan {
        offset,
        length,
        new_size: (end > inode.size).then_some(end),
        head: edge(first_block, offset, end, inode.size),
        tail: edge(last_block, offset, end, inode.size),
        first_block,
        last_block,
        extend: Edit::InodeExtend { ino, size: end, time, kill_privileges },
    })
}

/// The blocks that lie in a range of bytes as a whole.
pub fn whole_blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start.div_ceil(BLOCK_BYTES as u64)..bytes.end / BLOCK_BYTES as u64
}

/// Reserves space for a range of bytes of a file, or clears the range. The caller checks that there is space, and
/// clears the bytes of the range that lie in blocks which it covers only in part.
pub(crate) fn allocate(
    view: &mut dyn View,
    caller: &Caller,
    ino: Ino,
    bytes: Range<u64>,
    keep_size: bool,
    room: Room,
) -> Result<Decision, Stop> {
    let old = inode(view, ino)?;
    match old.kind {
        FileKind::File => {}
        FileKind::Directory => return refuse(Kind::IsDirectory, "a directory has no blocks to promise"),
        _ => return refuse(Kind::Invalid, "only files have blocks to promise"),
    }
    if old.guard.immutable || room != Room::Promised {
        guard::untouched(&old)?;
    }
    if bytes.is_empty() {
        return refuse(Kind::Invalid, "no bytes to promise room for");
    }
    if bytes.end > FILE_BYTES_MAX {
        return refuse(Kind::TooLarge, "a file has at most 16 TiB");
    }
    let mut draft = Draft::new(caller.volume, ino.group());
    let whole = whole_blocks(&bytes);
    if room != Room::Promised && !whole.is_empty() {
        assert!(bytes.start <= whole.start * BLOCK_BYTES as u64 && whole.end * BLOCK_BYTES as u64 <= bytes.end);
        let count = whole.end - whole.start;
        draft.edit(ino, Edit::Punch { ino, first: whole.start, count, trim: old.trim + 1 });
    }
    if room != Room::Hole {
        let first = bytes.start / BLOCK_BYTES as u64;
        draft.edit(ino, Edit::Reserve { ino, first, count: bytes.end.div_ceil(BLOCK_BYTES as u64) - first });
    }
    let size = if keep_size || room == Room::Hole { 0 } else { bytes.end };
    // The kernel leaves it to the file system to clear setuid and setgid here, and does not say whether the caller may
    // keep them. So only root keeps them; where ids may be mapped nobody does, since the kernel does not name the
    // caller.
    let kill_privileges = caller.uid != 0;
    draft.edit(ino, Edit::InodeExtend { ino, size, time: old.ctime.tick(view.now()), kill_privileges });
    draft.decide(view, Reply::Done, Outcome::Done)
}

fn edge(block: u64, offset: u64, end: u64, size: u64) -> Edge {
    let from = block * BLOCK_BYTES as u64;
    let to = from + BLOCK_BYTES as u64;
    assert!(from < end && to > offset, "an edge block holds bytes of the write");
    let (before, after) = (from < offset, end < to);
    match before || after {
        false => Edge::Full,
        true if (before && from < size) || (after && end < size) => Edge::Merge,
        true => Edge::Zeros,
    }
}
