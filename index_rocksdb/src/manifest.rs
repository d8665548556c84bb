//! The manifest's framing, checked before RocksDB reads it: one flipped bit in a record's type makes RocksDB 11.8 read
//! the same record for ever (`tests.rs` flips every third bit). The framing is LevelDB's log: blocks of 32 KiB with
//! records of checksum (4), length (2), type (1), payload; a record never crosses a block.

use base::checksum::{crc32c, crc32c_append};
use base::{Error, Kind, Result};
use runtime::real::{Access, Directory};
use std::io::Read;

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
/// Whole record, or its first, middle or last part. Others belong to RocksDB's write-ahead logs.
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;

/// Checks the manifest that `CURRENT` names, up to a tail that a crash may have torn. Errors: `Corrupt`, `Io`.
pub(crate) fn check(directory: &Directory) -> Result<()> {
    let current = read(directory, "CURRENT")?;
    let name = std::str::from_utf8(&current).ok().and_then(manifest_name);
    let name = name.ok_or_else(|| corrupt("the index's file CURRENT names no manifest: rebuild or replace it"))?;
    let bytes = read(directory, name)?;
    match bytes.chunks(BLOCK_BYTES).try_for_each(check_block) {
        Ok(()) => Ok(()),
        Err(Broken) => Err(corrupt("the index's manifest contradicts its checksums: rebuild or replace it").with(name)),
    }
}

fn manifest_name(current: &str) -> Option<&str> {
    let name = current.strip_suffix('\n')?;
    let number = name.strip_prefix("MANIFEST-")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// A record that no crash leaves behind.
struct Broken;

fn check_block(block: &[u8]) -> Result<(), Broken> {
    let mut rest = block;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let (length, kind) = (usize::from(u16::from_le_bytes([header[4], header[5]])), header[6]);
        if rest.iter().all(|&byte| byte == 0) {
            // Space that was set aside and not written yet.
            return Ok(());
        }
        if !TYPES.contains(&kind) || block.len() - rest.len() + HEADER_BYTES + length > BLOCK_BYTES {
            return Err(Broken);
        }
        let Some((payload, next)) = after.split_at_checked(length) else {
            // Cut short by the end of the file: torn, or a spoiled length. The mark tells whether it was persisted.
            return Ok(());
        };
        if masked(crc32c_append(crc32c(&[kind]), payload)) != crc {
            return Err(Broken);
        }
        rest = next;
    }
    Ok(())
}

/// The masked form in which LevelDB stores checksums, so that checksums of data which holds checksums stay good.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn read(directory: &Directory, name: &str) -> Result<Vec<u8>> {
    let mut file = directory.file(name, Access::Read).map_err(|error| match error.kind {
        // The directory was seen to hold an index.
        Kind::NotFound => {
            let path = directory.path().join(name);
            corrupt("the index has lost its manifest: rebuild or replace it").with(path.display())
        }
        _ => error,
    })?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| {
        let what = "the index's manifest can't be read: check its device and mode";
        let error = error.raw_os_error().map_or_else(|| Error::new(Kind::Io, what), |errno| Error::os(what, errno));
        error.with(directory.path().join(name).display())
    })?;
    Ok(bytes)
}

fn corrupt(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, what)
}
