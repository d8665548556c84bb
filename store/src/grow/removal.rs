//! A device that leaves a brick while it is served. Promises that no more segments of it are taken once its removal has begun,
//! durably, and that it counts until nothing lies on it, no replay would read it and nobody does: a crash in between goes on where it
//! was. Streams that have a segment open on it go on elsewhere at once (`prepare`, for the log and flash), and copies on it are
//! dropped (`promote::drive`). Absent by design: who moves its blocks away (`group`), and the removal of the first device: the device
//! table begins with it, and so each brick has flash.

use super::device::count;
use crate::Store;
use crate::device::Device;
use crate::format::devices::{DeviceId, DeviceRow, DeviceTable, FIRST, State, Tier};
use crate::media::device_table;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Life, Place, Result, SegmentId};
use runtime::seeded::{Bug, active};

/// Begins to remove a device: from now on it gets nothing more. One that leaves already goes on to; a disk that is missing has
/// left then. Errors: `NotFound`, `Unsupported` for one that is missing if files have data on it,
/// `Unsupported` for the first, `NoSpace` if the other devices have no room for what the brick holds, `Busy` while somebody else
/// changes the superblock, `Io`.
pub async fn begin(store: &Store, id: DeviceId) -> Result<()> {
    change(store, id, State::Leaving).await
}

/// Ends the removal of a device on which nothing lies: it is the brick's no more. Errors: `Busy` while something does, or somebody
/// reads it, or changes the superblock; `Io`.
pub async fn end(store: &Store, id: DeviceId) -> Result<()> {
    change(store, id, State::Gone).await
}

/// The devices whose removal has begun, and can go on: without those that are missing.
pub fn leaving(store: &Store) -> Vec<DeviceId> {
    let devices = store.devices.lock();
    let goes_on = |row: &&DeviceRow| row.state == State::Leaving && !store.is_missing(SegmentId(row.first));
    devices.rows.iter().filter(goes_on).map(|row| row.id).collect()
}

/// Segments of a device that leaves, whose blocks can be moved now. Looks at each of them.
pub fn movable(store: &Store, id: DeviceId) -> Vec<(SegmentId, Life)> {
    let replay = store.replay.lock().sequence;
    let Some(slot) = slot_of(&store.devices.lock(), id) else { return Vec::new() };
    store.table.lock().movable_on(slot, replay).collect()
}

fn slot_of(devices: &DeviceTable, id: DeviceId) -> Option<usize> {
    devices.rows.iter().position(|row| row.id == id && row.state != State::Gone)
}

async fn change(store: &Store, id: DeviceId, to: State) -> Result<()> {
    let _changing = store.begin_change()?;
    let mut devices = store.devices.lock().clone();
    let slot =
        slot_of(&devices, id).ok_or_else(|| Error::new(Kind::NotFound, "the brick has no device of this number"))?;
    let row = devices.rows[slot];
    let is_missing = store.is_missing(SegmentId(row.first));
    if row.state == to && !is_missing {
        return Ok(());
    }
    // With one that is missing there is nothing to wait for.
    let to = if is_missing { State::Gone } else { to };
    match to {
        _ if is_missing => refuse_to_forget(store, &row)?,
        State::Gone if !active(Bug::RemovedInUse) && !store.table.lock().is_unused(slot) => {
            return Err(Error::new(Kind::Busy, "something still lies on the device"));
        }
        State::Gone => {}
        _ => refuse_to_leave(store, &row)?,
    }
    if to == State::Leaving
        && active(Bug::LeavingUnflushed)
        && let Some(spot) = store.geometry.spot(Place { segment: SegmentId(row.first), block: 0 })
    {
        store.log.forget(spot.file).await?;
    }
    devices.rows[slot].state = to;
    devices.sequence += 1;
    device_table::prepare(&store.runtime, &devices).await?;
    count(store, devices, "removing a device").await?;
    {
        let mut table = store.table.lock();
        table.set_device_state(slot, to);
        store.space.resize(table.sizes());
    }
    match store.destage_to(slot) {
        Some(stream) => stream.retire(),
        // The log and the other streams of flash hear of it.
        None => store.log.segment_wanted.notify(),
    }
    if to == State::Gone {
        forget(store, &row).await;
    }
    Ok(())
}

/// Nobody can move what lies on a disk that is missing.
fn refuse_to_forget(store: &Store, row: &DeviceRow) -> Result<()> {
    match store.table.lock().live_on(row) {
        0 => Ok(()),
        blocks => {
            let what = "the disk is missing, and what lies on it can't be moved: bring it back and start the brick again, or delete \
                        the files that `sinter brick affected` lists";
            Err(Error::new(Kind::Unsupported, what).with(format!("{} bytes of files", blocks * BLOCK_BYTES as u64)))
        }
    }
}

fn refuse_to_leave(store: &Store, row: &DeviceRow) -> Result<()> {
    if row.id == FIRST {
        let what = "the device that a brick was formatted with can't leave it: the brick always has this flash";
        return Err(Error::new(Kind::Unsupported, what));
    }
    let (sizes, live) = {
        let table = store.table.lock();
        (table.sizes(), Tier::ALL.map(|tier| table.totals(tier).live_bytes()))
    };
    let mut after = sizes;
    after[row.tier as usize] -= row.segments;
    let mut lacking_bytes = store.space.loss_bytes(sizes, after).saturating_sub(store.space.statfs().free_bytes);
    if store.roomiest_disk().is_none() {
        // Nothing goes down: flash keeps what lies there.
        let flash_bytes = store.space.usable_bytes_of([after[0], 0]);
        lacking_bytes = lacking_bytes.max(live[0].saturating_sub(flash_bytes));
    }
    match lacking_bytes {
        0 => Ok(()),
        bytes => {
            let what =
                "the other devices have no room for what the brick holds: delete something, or add a device first";
            Err(Error::new(Kind::NoSpace, what).with(format!("{bytes} more bytes are needed")))
        }
    }
}

/// The device no longer says that it is the brick's, so that it can be used for something else without force. If that fails, it
/// says so still, and is one that must be forced.
async fn forget(store: &Store, row: &DeviceRow) {
    let Some(file) = store.geometry.remove(row) else { return };
    if store.log.forget(file).await.is_err() {
        // A flush of it may be under way for as long as the daemon runs; the next start does not open it.
        return;
    }
    if let Ok(device) = Device::at(&store.runtime, row.id, file) {
        drop(device.clear().await);
    }
    store.runtime.disk.close(file);
}
