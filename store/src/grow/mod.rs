//! More segments for a brick, while it is served. Promises that a crash at any point leaves the old size or the new one:
//! the room is there durably, and the device's label tells of it, before the superblock does; and that nobody is given a
//! segment before the superblock is durable.

pub mod device;
pub mod removal;

use crate::Store;
use crate::brick::{refuse_little_for_index, segments_in};
use crate::device::Device;
use crate::format::devices::{FIRST, Tier};
use crate::format::superblock::Superblock;
use crate::media::host::room_for_segments;
use crate::media::superblock_file;
use base::{Error, Kind, Result};
use runtime::seeded::{Bug, active};
use runtime::{disk, tasks};
use std::sync::Arc;

/// The result of growing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grown {
    /// Bytes of the brick's segments before.
    pub before_bytes: u64,
    /// Size now; the same if there was nothing to add.
    pub bytes: u64,
}

/// Grows the brick to `size_bytes`, or by default to the whole device, or to its files and 80% of what is free beside
/// them. Never shrinks. Errors: `Invalid` for less than it has; `NoSpace`; `Busy` if somebody else grows it; `Io`.
pub async fn grow(store: &Arc<Store>, size_bytes: Option<u64>) -> Result<Grown> {
    let _changing = store.begin_change()?;
    grow_alone(store, size_bytes).await
}

async fn grow_alone(store: &Arc<Store>, size_bytes: Option<u64>) -> Result<Grown> {
    let old = store.superblock.lock().clone();
    if old.has_several_devices() {
        let what = "a brick of several devices grows by another one: `sinter brick add-device`";
        return Err(Error::new(Kind::Unsupported, what));
    }
    let (segment_bytes, before_bytes) = (old.segment_bytes, u64::from(old.segments) * old.segment_bytes);
    let (default_bytes, room_bytes) = room(store)?;
    let wanted_bytes = size_bytes.unwrap_or(default_bytes.max(before_bytes));
    if wanted_bytes < before_bytes {
        let error = Error::new(Kind::Invalid, "a brick can't shrink: make a smaller one, and copy the files");
        return Err(error.with(format!("{wanted_bytes} bytes wanted, it has {before_bytes}")));
    }
    let segments = segments_in(wanted_bytes, segment_bytes)?;
    if segments == old.segments {
        return Ok(Grown { before_bytes, bytes: before_bytes });
    }
    if wanted_bytes > room_bytes {
        let what = "the file system or device has too little space: enlarge it first, or give a smaller size";
        return Err(Error::new(Kind::NoSpace, what).with(format!("{wanted_bytes} bytes wanted, {room_bytes} possible")));
    }
    if store.geometry.device().is_some() {
        refuse_little_for_index(store.runtime.disk.free_bytes()?, wanted_bytes - before_bytes)?;
    }
    assert!(segments > old.segments, "bricks don't shrink");
    let new = Superblock { segments, sequence: old.sequence + 1, ..old.clone() };
    if active(Bug::GrownBeforeRoom) {
        superblock_file::update(&store.runtime, store.superblock_file, &new).await?;
    }
    if let Err(error) = make_room(store, &new).await {
        store.geometry.give_up_extending(old.segments);
        return Err(error);
    }
    // From here on nobody knows which size a start would find, if this fails: then the brick takes no more changes.
    if let Err(error) = superblock_file::update(&store.runtime, store.superblock_file, &new).await {
        store.log.fail(error.clone().with("growing the brick"));
        return Err(error);
    }
    *store.superblock.lock() = new;
    {
        let mut table = store.table.lock();
        table.grow(segments);
        store.space.resize(table.sizes());
    }
    store.offer_segments();
    Ok(Grown { before_bytes, bytes: u64::from(segments) * segment_bytes })
}

/// The size by default, and the largest.
fn room(store: &Store) -> Result<(u64, u64)> {
    if store.geometry.device().is_some() {
        let room_bytes = Device::open(&store.runtime, (FIRST, Tier::Flash), true)?.room_bytes();
        return Ok((room_bytes, room_bytes));
    }
    let (default_bytes, most_bytes) = room_for_segments(store.runtime.disk.free_bytes()?);
    let made_bytes = store.geometry.made_bytes();
    Ok((made_bytes + default_bytes, made_bytes + most_bytes))
}

/// Room for the segments, durably.
async fn make_room(store: &Arc<Store>, new: &Superblock) -> Result<()> {
    if store.geometry.device().is_some() {
        return Device::open(&store.runtime, (FIRST, Tier::Flash), true)?.write_label(new, new.segments).await;
    }
    let (geometry, segments) = (store.geometry.clone(), new.segments);
    let longer = tasks::run_background(&*store.runtime.tasks, move || geometry.extend(segments)).await?;
    match longer {
        Some(file) => disk::flush(&*store.runtime.disk, file).await,
        None => Ok(()),
    }
}
