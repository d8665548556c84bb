//! Another device for a brick, while it is served. Promises that a crash at any point leaves the brick without the device
//! or with it: the device bears the brick's label durably, and the device table lists it, before the superblock counts its
//! segments; and that nobody is given one of them before the superblock is durable.

use crate::Store;
use crate::brick::{listing, open_new, refuse_little_for_index};
use crate::device::{Device, Foreign};
use crate::format::devices::{DeviceId, DeviceRow, DeviceTable, Tier};
use crate::format::superblock::Superblock;
use crate::media::geometry::Medium;
use crate::media::{device_table, superblock_file};
use crate::segments::bulk::Bulk;
use crate::segments::prepare;
use crate::segments::usable_blocks;
use base::{Error, Kind, Result};
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// The number that the next device gets: its name for the runtime has it.
pub fn next_device(store: &Store) -> DeviceId {
    store.devices.lock().next
}

/// Adds the device that the runtime opens under the name of the number `id`. Errors: `Busy` while somebody else changes the
/// superblock, or if the number was given meanwhile; as formatting says; `Io`.
pub async fn add_device(store: &Arc<Store>, id: DeviceId, tier: Tier, foreign: Foreign) -> Result<DeviceRow> {
    let _changing = store.begin_change()?;
    add_alone(store, id, tier, foreign).await
}

/// Has the superblock name a version of the device table, one copy of which is durable.
pub(super) async fn count(store: &Store, devices: DeviceTable, what: &'static str) -> Result<()> {
    let old = store.superblock.lock().clone();
    let mut new = listing(&old, &devices);
    new.sequence += 1;
    // From here on nobody knows which devices a start would find, if this fails: then the brick takes no more changes.
    let updated = superblock_file::update(&store.runtime, store.superblock_file, &new).await;
    let settled = match updated {
        Ok(()) => device_table::settle(&store.runtime, &devices).await,
        Err(error) => Err(error),
    };
    if let Err(error) = settled {
        store.log.fail(error.clone().with(what));
        return Err(error);
    }
    *store.superblock.lock() = new;
    *store.devices.lock() = devices;
    Ok(())
}

/// All that must be durable before the superblock counts the device: its label, and the table that lists it.
async fn make_ready(
    store: &Store,
    (device, segments): (&Device<'_>, u32),
    (old, devices): (&Superblock, &DeviceTable),
) -> Result<()> {
    refuse_little_for_index(store.runtime.disk.free_bytes()?, u64::from(segments) * old.segment_bytes)?;
    device.claim(old, segments).await?;
    device_table::prepare(&store.runtime, devices).await
}

async fn add_alone(store: &Arc<Store>, id: DeviceId, tier: Tier, foreign: Foreign) -> Result<DeviceRow> {
    let old = store.superblock.lock().clone();
    let mut devices = store.devices.lock().clone();
    if devices.next != id {
        return Err(Error::new(Kind::Busy, "another device was added meanwhile; ask again"));
    }
    // A device that an interrupted addition has labelled is not listed: it may be taken.
    let (device, segments) =
        open_new(&store.runtime, &mut devices, (tier, foreign), (old.segment_bytes, Some(old.uuid))).await?;
    devices.sequence += 1;
    let row = *devices.rows.last().expect("it has just been added");
    if active(Bug::DeviceCountedEarly) {
        let mut new = listing(&old, &devices);
        new.sequence += 1;
        superblock_file::update(&store.runtime, store.superblock_file, &new).await?;
    }
    if let Err(error) = make_ready(store, (&device, segments), (&old, &devices)).await {
        // Nothing counts it. The next attempt may name another device.
        store.runtime.disk.close(device.file);
        return Err(error);
    }
    count(store, devices, "adding a device").await?;
    store.geometry.add(&row, Medium::There(device.file));
    let slot = {
        let mut table = store.table.lock();
        table.add_device(row);
        store.space.resize(table.sizes());
        table.devices().count() - 1
    };
    if tier == Tier::Disk {
        let stream = Bulk::of_disk(slot, &store.runtime, &store.log, usable_blocks(store.geometry.blocks()));
        let stream = Arc::new(stream);
        store.destage.lock().push(stream.clone());
        prepare::start_disk(store, stream, Vec::new());
    }
    store.offer_segments();
    Ok(row)
}
