//! The superblock's file: two copies, written one after the other, the newer valid one wins.

use crate::format::Uuid;
use crate::format::superblock::{State, Superblock};
use crate::media::geometry::FILE_PREFIX;
use crate::media::write_flushed;
use base::limits::{BLOCK_BYTES, GROUPS_MAX, SEGMENTS_MAX};
use base::{Error, Kind, Result};
use runtime::seeded::{Bug, active};
use runtime::{FileId, OpenMode, Runtime, disk};

/// The file's name.
pub const FILE: &str = "superblock";

/// The superblock that was found.
pub struct Found {
    /// The newer valid copy.
    pub superblock: Superblock,
    /// The reason why the other copy was not used, if it is damaged.
    pub damaged: Option<Error>,
    /// The open file.
    pub file: FileId,
}

/// Makes the file with two equal copies, or rewrites both.
pub async fn create(runtime: &Runtime, superblock: &Superblock) -> Result<FileId> {
    let exists = runtime.disk.list()?.iter().any(|name| name == FILE);
    let mode = if exists { OpenMode::Existing } else { OpenMode::Create };
    let file = runtime.disk.open(FILE, mode)?;
    runtime.disk.allocate(file, 2 * BLOCK_BYTES as u64)?;
    for copy in 0..2 {
        write_copy(runtime, file, superblock, copy).await?;
    }
    runtime.disk.sync_names()?;
    Ok(file)
}

/// Writes a new version over both copies, durably, one after the other: a crash leaves one whole, and a copy that rots
/// later is no loss, for an older one would not know the last epoch.
pub async fn update(runtime: &Runtime, file: FileId, superblock: &Superblock) -> Result<()> {
    let first = superblock.sequence % 2;
    write_copy(runtime, file, superblock, first).await?;
    write_copy(runtime, file, superblock, 1 - first).await
}

async fn write_copy(runtime: &Runtime, file: FileId, superblock: &Superblock, copy: u64) -> Result<()> {
    // The next start refuses others.
    let Superblock { segments, groups, epoch, ends, .. } = superblock;
    assert!((1..=SEGMENTS_MAX).contains(segments), "a brick of {segments} segments");
    assert!((1..=GROUPS_MAX).contains(groups), "a brick of {groups} groups");
    let ended = ends.iter().all(|end| end.epoch < *epoch);
    assert!(ended || active(Bug::EpochKept), "only epochs before {epoch} have ended (rule L4): {ends:?}");
    write_flushed(runtime, file, copy * BLOCK_BYTES as u64, &superblock.encode()).await
}

/// True if the brick has a superblock file.
pub fn exists(runtime: &Runtime) -> Result<bool> {
    Ok(runtime.disk.list()?.iter().any(|name| name == FILE))
}

/// The parts of a superblock that never change.
fn fixed(superblock: &Superblock) -> (Uuid, u64, u32, bool) {
    (superblock.uuid, superblock.segment_bytes, superblock.groups, superblock.on_device())
}

/// A brick is written to only after its format has ended.
fn was_used(runtime: &Runtime, superblock: &Superblock) -> Result<bool> {
    Ok(superblock.epoch > 0 || runtime.disk.list()?.iter().any(|name| name.starts_with(FILE_PREFIX)))
}

/// Reads both copies. Errors: `NotFound` without a superblock file, `Corrupt` if both copies are damaged, `Io` if
/// they can't be read, `Newer`.
pub async fn load(runtime: &Runtime, writable: bool) -> Result<Found> {
    if !exists(runtime)? {
        return Err(Error::new(Kind::NotFound, "not a brick: there is no superblock; `sinter format` makes one"));
    }
    let file = runtime.disk.open(FILE, if writable { OpenMode::Existing } else { OpenMode::ReadOnly })?;
    let mut copies = Vec::new();
    for copy in 0..2u64 {
        let buffer = runtime.buffer(BLOCK_BYTES)?;
        let (buffer, result) = disk::read(&*runtime.disk, file, copy * BLOCK_BYTES as u64, buffer).await;
        copies.push(result.and_then(|()| Superblock::decode(&buffer)));
    }
    let newer = copies.iter().filter_map(|copy| copy.as_ref().err()).find(|error| error.kind == Kind::Newer);
    if let Some(error) = newer {
        return Err(error.clone());
    }
    if let [Ok(one), Ok(other)] = &copies[..]
        && (one.state, other.state) == (State::Ready, State::Ready)
        && fixed(one) != fixed(other)
    {
        let what = "the copies of the superblock are of two bricks; restore the right one from a backup";
        return Err(Error::new(Kind::Corrupt, what).with(format!("{:?} and {:?}", fixed(one), fixed(other))));
    }
    let errors = || copies.iter().filter_map(|copy| copy.as_ref().err());
    let damaged = errors().find(|error| error.kind == Kind::Io).or_else(|| errors().next()).cloned();
    let best = copies.into_iter().flatten().max_by_key(|superblock| superblock.sequence);
    match best {
        Some(superblock) if writable && superblock.features.read_only != 0 && !active(Bug::FeaturesIgnored) => {
            let error =
                Error::new(Kind::Newer, "a newer version wrote the brick: it may only be read; upgrade this machine");
            Err(error.with(format!("read-only feature bits {:#x}", superblock.features.read_only)))
        }
        Some(superblock) if superblock.state == State::Formatting && was_used(runtime, &superblock)? => {
            let what = "the superblock says that its format never ended, but the brick has been in use; restore it from a \
                        backup";
            Err(Error::new(Kind::Corrupt, what))
        }
        Some(superblock) => Ok(Found { superblock, damaged, file }),
        // A device that fails may have them all the same.
        None if damaged.as_ref().is_some_and(|error| error.kind == Kind::Io) => {
            let error =
                Error::new(Kind::Io, "the superblock can't be read; see the system log for the device's errors");
            Err(error.with(damaged.map_or(String::new(), |error| error.to_string())))
        }
        None => {
            let error = Error::new(Kind::Corrupt, "both copies of the superblock are damaged; restore from a backup");
            Err(error.with(damaged.map_or(String::new(), |error| error.to_string())))
        }
    }
}
