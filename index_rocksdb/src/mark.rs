//! The mark of how far the index was persisted, in a file of its own.
//!
//! RocksDB takes a manifest whose last record is cut short for one that a crash tore, and opens the state before it:
//! right for a record that was never synced, wrong for a synced one whose length lost a bit (`tests.rs` flips each).
//! The state would be an older checkpoint's, while segments that it needs may have been reused. Hence, after each
//! persist, the sequence number that it covered is synced into `PERSISTED`; an index that opens below it is corrupt.
//!
//! Bytes: two slots of 28, 4 KiB apart, written in turn, so that a torn write leaves the other: "SIXM", version 1
//! (u32), turn (u64), sequence number (u64), CRC-32C of these (u32); little-endian.

use base::checksum::crc32c;
use base::{Error, Kind, Result};
use runtime::real::{Access, Directory};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The file's name in the index's directory; RocksDB leaves names alone that it doesn't know.
const NAME: &str = "PERSISTED";
const MAGIC: u32 = u32::from_le_bytes(*b"SIXM");
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 28;
/// Slots lie in different device blocks: one torn block spoils one slot.
const SLOT_STRIDE_BYTES: u64 = 4096;
const SLOTS: u64 = 2;

/// The content of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    /// Grows by one with each mark; the higher slot is the present one.
    turn: u64,
    /// RocksDB's sequence number: edits so far.
    sequence: u64,
}

impl Slot {
    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.turn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = crc32c(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
    fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Slot> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let good = u32_at(0) == MAGIC && u32_at(4) == VERSION && u32_at(24) == crc32c(&bytes[..24]);
        good.then(|| Slot { turn: u64_at(8), sequence: u64_at(16) })
    }
}

/// The open file.
pub(crate) struct Mark {
    file: File,
    last: Slot,
}

impl Mark {
    /// Makes the file of a new index, durably; one that an attempt before left is overwritten.
    pub(crate) fn create(directory: &Directory) -> Result<Mark> {
        let file = match directory.file(NAME, Access::Create) {
            Err(error) if error.kind == Kind::Exists => directory.file(NAME, Access::Write),
            made => made,
        }?;
        let make = || {
            file.set_len(0)?;
            for turn in 0..SLOTS {
                file.write_all_at(&Slot { turn, sequence: 0 }.encode(), turn * SLOT_STRIDE_BYTES)?;
            }
            file.sync_all()?;
            directory.sync()
        };
        make().map_err(|error| failed("the index's mark can't be made: check its directory", error))?;
        Ok(Mark { file, last: Slot { turn: SLOTS - 1, sequence: 0 } })
    }

    /// Opens the file of an existing index. Errors: `Corrupt` when it is gone or neither slot is whole.
    pub(crate) fn open(directory: &Directory, read_only: bool) -> Result<Mark> {
        let lost = || Error::new(Kind::Corrupt, "the index has lost its file PERSISTED: rebuild or replace it");
        let file = match directory.file(NAME, if read_only { Access::Read } else { Access::Write }) {
            Err(error) if error.kind == Kind::NotFound => return Err(lost()),
            opened => opened?,
        };
        let mut bytes = [0; SLOT_BYTES];
        let slots = (0..SLOTS).filter_map(|slot| {
            file.read_exact_at(&mut bytes, slot * SLOT_STRIDE_BYTES).ok().and_then(|()| Slot::decode(&bytes))
        });
        let last = slots.max_by_key(|slot| slot.turn).ok_or_else(lost)?;
        Ok(Mark { file, last })
    }

    /// Checks that an index at `sequence` has all that was persisted. Errors: `Corrupt`.
    pub(crate) fn check(&self, sequence: u64) -> Result<()> {
        if sequence >= self.last.sequence {
            return Ok(());
        }
        let error = Error::new(Kind::Corrupt, "the index lacks what was persisted: rebuild or replace it");
        Err(error.with(format!("at {sequence} of {}", self.last.sequence)))
    }

    /// Marks, durably, that everything up to `sequence` is.
    pub(crate) fn advance(&mut self, sequence: u64) -> Result<()> {
        assert!(sequence >= self.last.sequence, "sequence numbers only grow");
        if sequence == self.last.sequence {
            return Ok(());
        }
        let next = Slot { turn: self.last.turn + 1, sequence };
        let at = next.turn % SLOTS * SLOT_STRIDE_BYTES;
        let written = self.file.write_all_at(&next.encode(), at).and_then(|()| self.file.sync_data());
        written.map_err(|error| failed("the index's mark can't be written: check its device, then restart", error))?;
        self.last = next;
        Ok(())
    }
}

fn failed(what: &'static str, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => Error::os(what, errno),
        None => Error::new(Kind::Io, what).with(error),
    }
}
