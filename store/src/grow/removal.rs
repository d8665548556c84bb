//! A disk that leaves a brick while it is served. Promises that it gets nothing more once its removal has begun, durably, and that
//! it counts until nothing lies on it and nobody reads from it: a crash in between goes on where it was. Absent by design: who
//! moves its blocks away (`group`), and a device of flash, where the log may lie.

use super::device::count;
use crate::Store;
use crate::device::Device;
use crate::format::devices::{DeviceId, DeviceRow, DeviceTable, State, Tier};
use crate::media::device_table;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Life, Result, SegmentId};
use runtime::seeded::{Bug, active};

/// Begins to remove a disk: from now on it gets nothing more. One that leaves already goes on to; one that is missing has
/// left then. Errors: `NotFound`, `Unsupported` for one that is missing if files have data on it,
/// `Unsupported` for flash, `NoSpace` if the other devices have no room for what the brick holds, `Busy` while somebody else
/// changes the superblock, `Io`.
pub async fn begin(store: &Store, id: DeviceId) -> Result<()> {
    change(store, id, State::Leaving).await
}

/// Ends the removal of a disk on which nothing lies: it is the brick's no more. Errors: `Busy` while something does, or somebody
/// reads it, or changes the superblock; `Io`.
pub async fn end(store: &Store, id: DeviceId) -> Result<()> {
    change(store, id, State::Gone).await
}

/// The disks whose removal has begun, and can go on: without those that are missing.
pub fn leaving(store: &Store) -> Vec<DeviceId> {
    let devices = store.devices.lock();
    let goes_on = |row: &&DeviceRow| row.state == State::Leaving && !store.is_missing(SegmentId(row.first));
    devices.rows.iter().filter(goes_on).map(|row| row.id).collect()
}

/// Segments of a disk that leaves, whose blocks can be moved now. Looks at each of them.
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
    devices.rows[slot].state = to;
    devices.sequence += 1;
    device_table::prepare(&store.runtime, &devices).await?;
    count(store, devices, "removing a device").await?;
    let stream = store.destage_to(slot).expect("each disk has a stream");
    {
        let mut table = store.table.lock();
        table.set_device_state(slot, to);
        store.space.resize(table.sizes());
    }
    stream.retire();
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
    if row.tier == Tier::Flash {
        let what = "a device of flash can't be removed: the log may lie on it";
        return Err(Error::new(Kind::Unsupported, what));
    }
    let sizes = store.table.lock().sizes();
    let room_bytes = store.space.statfs().free_bytes;
    let less_bytes = store.space.loss_bytes(sizes, [sizes[0], sizes[1] - row.segments]);
    if less_bytes > room_bytes {
        let what = "the other devices have no room for what the brick holds: delete something, or add a device first";
        return Err(Error::new(Kind::NoSpace, what).with(format!("{} more bytes are needed", less_bytes - room_bytes)));
    }
    Ok(())
}

/// The device no longer says that it is the brick's, so that it can be used for something else without force. If that fails, it
/// says so still, and is one that must be forced.
async fn forget(store: &Store, row: &DeviceRow) {
    let Some(file) = store.geometry.remove(row) else { return };
    if let Ok(device) = Device::at(&store.runtime, row.id, file) {
        drop(device.clear().await);
    }
    store.runtime.disk.close(file);
}
