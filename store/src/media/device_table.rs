//! The file of the device table: two copies, of which the superblock says which version counts. A change writes the older
//! copy, then the superblock, then the other copy. So a crash leaves the old table or the new one, together with what
//! else the superblock says, and afterwards both copies are the same: one that rots is no loss.

use crate::format::devices::{DeviceTable, TABLE_BYTES};
use crate::format::superblock::Superblock;
use crate::media::write_flushed;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};
use runtime::{FileId, OpenMode, Runtime, disk};

/// The file's name.
pub const FILE: &str = "devices";

/// Writes a new version, durably, into the copy that the superblock does not count. Nothing has changed until the
/// superblock names it.
pub async fn prepare(runtime: &Runtime, table: &DeviceTable) -> Result<()> {
    let exists = runtime.disk.list()?.iter().any(|name| name == FILE);
    let file = runtime.disk.open(FILE, if exists { OpenMode::Existing } else { OpenMode::Create })?;
    runtime.disk.allocate(file, 2 * TABLE_BYTES as u64)?;
    write_copy(runtime, file, table, table.sequence % 2).await?;
    runtime.disk.sync_names()
}

/// Writes the other copy, once the superblock names the version.
pub async fn settle(runtime: &Runtime, table: &DeviceTable) -> Result<()> {
    mend(runtime, table, 1 - table.sequence % 2).await
}

/// Writes a copy that is not as the other one.
pub async fn mend(runtime: &Runtime, table: &DeviceTable, copy: u64) -> Result<()> {
    let file = runtime.disk.open(FILE, OpenMode::Existing)?;
    write_copy(runtime, file, table, copy).await
}

async fn write_copy(runtime: &Runtime, file: FileId, table: &DeviceTable, copy: u64) -> Result<()> {
    write_flushed(runtime, file, copy * TABLE_BYTES as u64, &table.encode()).await
}

/// The table that the superblock names, and which copy is not the same and why: it is damaged, or a change was cut short.
/// A brick that has one device only has no file. Errors: `Corrupt`, `Newer`, `Io`.
pub async fn load(runtime: &Runtime, superblock: &Superblock) -> Result<(DeviceTable, Option<(u64, Error)>)> {
    if !superblock.has_several_devices() {
        return Ok((DeviceTable::of_one(superblock.uuid, superblock.segments), None));
    }
    let file = runtime.disk.open(FILE, OpenMode::ReadOnly).map_err(|error| match error.kind {
        Kind::NotFound => lost("the file `devices` is not there"),
        _ => error,
    })?;
    let mut found = None;
    let mut other = None;
    for copy in 0..2 {
        match read_copy(runtime, file, copy).await {
            Ok(table) if table.uuid != superblock.uuid => other = Some((copy, lost("a copy is of another brick"))),
            Ok(table) if table.sequence == superblock.devices => found = Some(table),
            Ok(table) => other = Some((copy, lost(&format!("a copy has version {}", table.sequence)))),
            Err(error) => other = Some((copy, error)),
        }
    }
    let Some(table) = found else {
        return Err(match other {
            Some((_, error)) if error.kind != Kind::Corrupt => error,
            other => lost(&other.map_or(String::new(), |(_, error)| error.to_string())),
        });
    };
    if table.segments() != superblock.segments {
        let what = "the device table and the superblock count segments differently: restore both from a backup";
        let counts = format!("{} and {}", table.segments(), superblock.segments);
        return Err(Error::new(Kind::Corrupt, what).with(counts));
    }
    Ok((table, other))
}

fn lost(why: &str) -> Error {
    Error::new(Kind::Corrupt, "the brick's device table is lost: restore the file `devices` from a backup").with(why)
}

async fn read_copy(runtime: &Runtime, file: FileId, copy: u64) -> Result<DeviceTable> {
    let buffer = runtime.buffer(TABLE_BYTES)?;
    let (buffer, result) = disk::read(&*runtime.disk, file, copy * TABLE_BYTES as u64, buffer).await;
    result?;
    DeviceTable::decode(&buffer)
}

const _: () = assert!(TABLE_BYTES.is_multiple_of(BLOCK_BYTES));
