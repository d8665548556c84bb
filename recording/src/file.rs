//! A recording's file: a head, then frames. A frame is a head of its own with checksums, and entries as `postcard` has them,
//! compressed by `zstd`. Numbers are little-endian.

use crate::operation::{Inode, Operation};
use base::checksum::crc32c;
use base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The first bytes of a file.
const MAGIC: &[u8; 8] = b"SINTERRC";
/// The version that this code writes, and the newest that it reads.
const VERSION: u32 = 1;
/// Magic, version, checksum of both.
const HEAD_BYTES: usize = 16;
/// Compressed bytes, bytes, checksum of the compressed bytes, checksum of these three.
const FRAME_HEAD_BYTES: usize = 16;
/// Bytes of entries with which a frame is full, far more than an entry has.
const FRAME_BYTES_FULL: usize = 256 << 10;
/// Most bytes of a frame that is read, compressed or not.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Most bytes of an entry: an operation's numbers have at most 10 each.
const ENTRY_BYTES_MAX: usize = 256;
/// The fastest level that still halves what postcard writes: it runs beside the clients.
const LEVEL: i32 = 1;

/// An entry of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// The daemon's version: the first one.
    Version(String),
    /// A volume's number and root directory.
    Volume(u32, u64),
    /// An operation.
    Operation(Operation),
    /// An inode that was there before.
    Inode(Inode),
    /// The last one.
    End(End),
}

/// The circumstances of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Begin {
    /// The daemon's version.
    pub version: String,
    /// The volumes' numbers and root directories.
    pub volumes: Vec<(u32, u64)>,
}

/// The end of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Operations that were dropped because nobody took them in time.
    pub dropped: u64,
    /// Its length.
    pub duration_ns: u64,
}

/// A recording that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// Its circumstances.
    pub begin: Begin,
    /// Its operations, by their beginning.
    pub operations: Vec<Operation>,
    /// The inodes that were there before it met them.
    pub inodes: Vec<Inode>,
    /// Its end.
    pub end: End,
}

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// All of it.
    Whole(Recording),
    /// A file that was cut short: its recording up to the last whole frame, and the number of bytes behind that.
    Cut(Recording, u64),
}

impl Reading {
    /// The recording, whole or not.
    pub fn recording(self) -> Recording {
        match self {
            Reading::Whole(recording) | Reading::Cut(recording, _) => recording,
        }
    }
}

/// The encoder of a file, or of a part of it: parts in a row are a file.
#[derive(Default)]
pub struct Writer {
    /// Entries that are in no frame yet.
    plain: Vec<u8>,
    bytes: Vec<u8>,
}

impl Writer {
    /// The encoder of a file's beginning.
    pub fn begin(begin: Begin) -> Writer {
        let mut writer = Writer { plain: Vec::new(), bytes: head_bytes() };
        writer.add(&Entry::Version(begin.version));
        begin.volumes.into_iter().for_each(|(volume, root)| writer.add(&Entry::Volume(volume, root)));
        writer
    }
    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry) {
        put(&mut self.plain, entry);
        if self.plain.len() >= FRAME_BYTES_FULL {
            self.bytes.extend(framed(&self.plain));
            self.plain.clear();
        }
    }
    /// The bytes of all that was added, in whole frames.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.plain.is_empty() {
            self.bytes.extend(framed(&self.plain));
        }
        self.bytes
    }
}

fn put(bytes: &mut Vec<u8>, entry: &Entry) {
    let mut room = [0; ENTRY_BYTES_MAX];
    bytes.extend_from_slice(postcard::to_slice(entry, &mut room).expect("an entry is plain data, and short"));
}

/// An entry as a frame holds it.
pub fn encoded(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, entry);
    bytes
}

/// The head of a file.
pub fn head_bytes() -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// A frame of these bytes, whatever they are.
pub fn framed(plain: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(plain, LEVEL).expect("any bytes can be compressed into memory");
    let mut bytes = Vec::with_capacity(FRAME_HEAD_BYTES + packed.len());
    for number in [packed.len() as u32, plain.len() as u32, crc32c(&packed)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes.extend(packed);
    bytes
}

/// Reads a file. Errors: `Invalid` if it is no recording, `Newer`, and `Corrupt` with the place of the damage.
pub fn read(bytes: &[u8]) -> Result<Reading> {
    let mut frames = head(bytes)?;
    let mut recording = Recording::default();
    let mut has_ended = false;
    while let Some((entries, rest)) = frame(frames).map_err(|error| placed(error, bytes.len() - frames.len()))? {
        frames = rest;
        for entry in entries {
            has_ended |= matches!(entry, Entry::End(_));
            keep(&mut recording, entry);
        }
    }
    recording.operations.sort_by_key(|operation| (operation.start_ns, operation.end_ns()));
    if !has_ended {
        recording.end.duration_ns = recording.operations.iter().map(Operation::end_ns).max().unwrap_or(0);
    }
    let whole = has_ended && frames.is_empty();
    Ok(if whole { Reading::Whole(recording) } else { Reading::Cut(recording, frames.len() as u64) })
}

fn keep(recording: &mut Recording, entry: Entry) {
    match entry {
        Entry::Version(version) => recording.begin.version = version,
        Entry::Volume(volume, root) => recording.begin.volumes.push((volume, root)),
        Entry::Operation(operation) => recording.operations.push(operation),
        Entry::Inode(inode) => recording.inodes.push(inode),
        Entry::End(end) => recording.end = end,
    }
}

fn placed(error: Error, at: usize) -> Error {
    error.with(format!("at byte {at}"))
}

/// The bytes behind the file's head.
fn head(bytes: &[u8]) -> Result<&[u8]> {
    let foreign = || Error::new(Kind::Invalid, "it is no recording: make one with `sinter record`");
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(foreign)?;
    if !head.starts_with(MAGIC) {
        return Err(foreign());
    }
    let [version, checksum] = [number(head, 8), number(head, 12)];
    if crc32c(&head[..12]) != checksum {
        return Err(placed(Error::new(Kind::Corrupt, "the recording is damaged: copy or record it again"), 0));
    }
    if version > VERSION {
        let newer = Error::new(Kind::Newer, "the recording was made by a newer version");
        return Err(newer.with(format!("its format is {version}, this program reads up to {VERSION}")));
    }
    Ok(rest)
}

/// The entries of the first frame, and what is behind it. None: no whole frame is there.
fn frame(bytes: &[u8]) -> Result<Option<(Vec<Entry>, &[u8])>> {
    let damaged = || Error::new(Kind::Corrupt, "the recording is damaged: copy or record it again");
    let Some((head, rest)) = bytes.split_at_checked(FRAME_HEAD_BYTES) else { return Ok(None) };
    let [packed_bytes, plain_bytes] = [number(head, 0), number(head, 4)].map(|bytes| bytes as usize);
    if crc32c(&head[..12]) != number(head, 12) || packed_bytes > FRAME_BYTES_MAX || plain_bytes > FRAME_BYTES_MAX {
        return Err(damaged());
    }
    let Some((packed, rest)) = rest.split_at_checked(packed_bytes) else { return Ok(None) };
    if crc32c(packed) != number(head, 8) {
        return Err(damaged());
    }
    // Memory comes as bytes do: what a head claims is no reason to take any.
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|_| damaged())?;
    let mut plain = Vec::new();
    let read = decoder.take(plain_bytes as u64 + 1).read_to_end(&mut plain);
    if read.is_err() || plain.len() != plain_bytes {
        return Err(damaged());
    }
    let (mut entries, mut left) = (Vec::new(), &plain[..]);
    while !left.is_empty() {
        let (entry, behind) = postcard::take_from_bytes(left).map_err(|_| damaged())?;
        entries.push(entry);
        left = behind;
    }
    Ok(Some((entries, rest)))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Deed, FileShape};

    fn operation(number: u64) -> Operation {
        Operation { start_ns: 1000 * number, duration_ns: 500, offset: number << 12, ..Operation::new(Deed::Read, 7) }
    }

    /// Operations for several frames.
    const COUNT: u64 = 30_000;

    /// A file of several frames and an end.
    fn file() -> (Vec<u8>, Recording) {
        let begin = Begin { version: "1".to_string(), volumes: vec![(1, 2)] };
        let inode = Inode { volume: 1, ino: 7, shape: FileShape::File, size: 9 };
        let operations: Vec<Operation> = (0..COUNT).map(operation).collect();
        let mut writer = Writer::begin(begin.clone());
        writer.add(&Entry::Inode(inode));
        // Cores are emptied one after the other: what began first may come last.
        operations.iter().rev().for_each(|operation| writer.add(&Entry::Operation(*operation)));
        let mut last = Writer::default();
        let end = End { dropped: 3, duration_ns: 5_000_000_000 };
        last.add(&Entry::End(end));
        let bytes = [writer.finish(), last.finish()].concat();
        (bytes, Recording { begin, operations, inodes: vec![inode], end })
    }

    #[test]
    fn a_file_reads_back() {
        let (bytes, recording) = file();
        assert_eq!(read(&bytes), Ok(Reading::Whole(recording)));
        assert!(bytes.len() < 10 * COUNT as usize, "{} bytes", bytes.len());
    }

    #[test]
    fn a_file_that_was_cut_short_is_read_up_to_its_last_whole_frame() {
        let (bytes, recording) = file();
        let counts = (0..=bytes.len()).step_by(997).chain([bytes.len() - 1]).map(|cut| match read(&bytes[..cut]) {
            Ok(Reading::Cut(part, _)) => part.operations.len(),
            Err(error) => {
                assert!(cut < HEAD_BYTES && error.kind == Kind::Invalid, "{cut}: {error}");
                0
            }
            Ok(Reading::Whole(_)) => panic!("a file of {cut} bytes is not whole"),
        });
        let counts: Vec<usize> = counts.collect();
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!(counts.last(), Some(&recording.operations.len()), "only its end is missing");
        let between = counts.iter().filter(|&&count| count > 0 && count < COUNT as usize).count();
        assert!(between > 0, "some frames and not all: {counts:?}");
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let (bytes, _) = file();
        for at in (0..bytes.len()).step_by(1201) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let error = read(&damaged).expect_err("a changed byte is noticed");
            let expected = if at < MAGIC.len() { Kind::Invalid } else { Kind::Corrupt };
            assert_eq!(error.kind, expected, "{at}: {error}");
            assert!(at < MAGIC.len() || error.to_string().contains("at byte "), "{error}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let (mut bytes, _) = file();
        bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
        let checksum = crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        let error = read(&bytes).expect_err("newer");
        assert!(error.kind == Kind::Newer && error.to_string().contains("its format is 7"), "{error}");
    }
}
