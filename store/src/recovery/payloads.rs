//! Compares the payloads of batches that may be torn with the checksums of their records (rule L5).
//!
//! Promises: it reads what many batches say in large pieces, in the device's order and several at once, so that a log
//! of many small records costs little more than its bytes (rule X2). *Absent:* what follows from a bad batch.

use crate::format::record::Logged;
use crate::media::geometry::Geometry;
use crate::recovery::Replayed;
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Edit, Error, Kind, Place, Result};
use runtime::transfer::{Request, Start, Transfer};
use runtime::{Buf, Runtime};
use std::collections::VecDeque;

/// Number of pieces that the device reads at the same time: enough for the fastest devices; they take 8 MiB of memory.
const UNDER_WAY: usize = 8;
/// Most blocks in a row that are read along although nobody asks for them: headers lie between the payloads of batches,
/// and another request would cost more.
const GAP_BLOCKS: u32 = 16;
/// Blocks of one piece.
const PIECE_BLOCKS: u32 = (IO_BYTES_MAX / BLOCK_BYTES) as u32;

/// A block that a batch's record describes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    place: Place,
    crc: u32,
    /// The number of the batch.
    of: usize,
}

/// Blocks that are read at once.
struct Piece {
    first: Place,
    blocks: u32,
    wanted: std::ops::Range<usize>,
}

/// Payload blocks that a batch's records describe, wherever they lie.
pub fn blocks_of(records: &[Replayed]) -> u32 {
    records.iter().flat_map(|replayed| &replayed.runs).map(|run| u32::from(run.count)).sum()
}

/// The number of these batches, from the first on, that are whole: every block that their records describe has its
/// checksum. Errors: `Io`, `Corrupt` if a segment's file is missing.
pub async fn whole(runtime: &Runtime, geometry: &Geometry, batches: &[&[Replayed]]) -> Result<usize> {
    let mut wanted = Vec::new();
    let mut whole = batches.len();
    for (of, records) in batches.iter().enumerate() {
        if !records.iter().all(|replayed| describe(replayed, of, &mut wanted)) {
            whole = of;
            break;
        }
    }
    // Copies on a disk were flushed before a record could name them, and on a missing one nobody can look.
    wanted.retain(|block| !geometry.is_absent(block.place.segment));
    wanted.sort_unstable();
    let mut under_way: VecDeque<(Piece, Transfer)> = VecDeque::new();
    for piece in pieces(&wanted) {
        // What comes before the first bad batch decides; the rest need not be read.
        if wanted[piece.wanted.clone()].iter().all(|block| block.of >= whole) {
            continue;
        }
        let buffer = loop {
            match runtime.buffer(piece.blocks as usize * BLOCK_BYTES) {
                Ok(buffer) if under_way.len() < UNDER_WAY => break buffer,
                Err(error) if under_way.is_empty() => return Err(error),
                _ => whole = whole.min(finish(under_way.pop_front(), &wanted, whole).await?),
            }
        };
        under_way.push_back(begin(runtime, geometry, piece, buffer)?);
    }
    while !under_way.is_empty() {
        whole = whole.min(finish(under_way.pop_front(), &wanted, whole).await?);
    }
    Ok(whole)
}

/// The blocks of one record. False if it does not describe each block of its runs.
fn describe(replayed: &Replayed, of: usize, wanted: &mut Vec<Wanted>) -> bool {
    let mut crcs = crcs_of(&replayed.logged).into_iter();
    for run in &replayed.runs {
        for number in 0..u32::from(run.count) {
            let Some(crc) = crcs.next() else { return false };
            wanted.push(Wanted { place: run.place.advance(number), crc, of });
        }
    }
    true
}

fn crcs_of(logged: &Logged) -> Vec<u32> {
    match logged {
        Logged::Vote(_) => Vec::new(),
        Logged::Moves(moves) => moves.blocks.iter().map(|moved| moved.crc).collect(),
        Logged::Record(record) => {
            let map = |edit: &Edit| match edit {
                Edit::Map { crcs, .. } => Some(crcs.as_slice().to_vec()),
                _ => None,
            };
            record.edits.iter().filter_map(map).flatten().collect()
        }
    }
}

/// Blocks in the device's order, put together to few reads.
fn pieces(wanted: &[Wanted]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (number, block) in wanted.iter().enumerate() {
        let at = u32::from(block.place.block);
        if let Some(last) = pieces.last_mut()
            && last.first.segment == block.place.segment
            && at - u32::from(last.first.block) < PIECE_BLOCKS
            && at <= u32::from(last.first.block) + last.blocks + GAP_BLOCKS
        {
            last.blocks = last.blocks.max(at - u32::from(last.first.block) + 1);
            assert!(last.blocks <= PIECE_BLOCKS && last.wanted.end == number, "a piece is one transfer of neighbours");
            last.wanted.end = number + 1;
            continue;
        }
        pieces.push(Piece { first: block.place, blocks: 1, wanted: number..number + 1 });
    }
    pieces
}

fn begin(runtime: &Runtime, geometry: &Geometry, piece: Piece, buffer: Buf) -> Result<(Piece, Transfer)> {
    let spot = geometry.spot(piece.first);
    let spot = spot.ok_or_else(|| Error::new(Kind::Corrupt, "a segment's file is missing"))?;
    let request = Request::Read { file: spot.file, offset: spot.offset, buffer, start: Start::AtOnce };
    Ok((piece, runtime.disk.submit(request)))
}

/// The first batch that a piece shows to be bad; `whole` if there is none.
async fn finish(next: Option<(Piece, Transfer)>, wanted: &[Wanted], whole: usize) -> Result<usize> {
    let Some((piece, transfer)) = next else { return Ok(whole) };
    let done = transfer.await;
    done.result?;
    let buffer = done.buffer.expect("a read hands its buffer back");
    let is_bad = |block: &&Wanted| {
        let from = usize::from(block.place.block - piece.first.block) * BLOCK_BYTES;
        crc32c(&buffer[from..from + BLOCK_BYTES]) != block.crc
    };
    let bad = wanted[piece.wanted].iter().filter(|block| block.of < whole).filter(is_bad);
    Ok(bad.map(|block| block.of).min().unwrap_or(whole))
}
