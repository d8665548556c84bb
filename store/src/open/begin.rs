//! The tasks of an open brick, and the streams of its disks.

use crate::Store;
use crate::format::devices::{DeviceTable, State, Tier};
use crate::log::{Log, drive};
use crate::promote;
use crate::segments::bulk::Bulk;
use crate::segments::{discard, prepare};
use base::SegmentId;
use runtime::Runtime;
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Starts the tasks. `left_open`: what the process before left open.
pub fn tasks(store: &Arc<Store>, left_open: Vec<SegmentId>) {
    drive::start(&store.log);
    let mut by_disk: BTreeMap<Option<usize>, Vec<SegmentId>> = BTreeMap::new();
    let slot = |segment: SegmentId| store.table.lock().disk_slot(segment);
    left_open.into_iter().for_each(|segment| by_disk.entry(slot(segment)).or_default().push(segment));
    for stream in store.destage() {
        let left_open = by_disk.remove(&stream.disk()).unwrap_or_default();
        prepare::start_disk(store, stream, left_open);
    }
    let (there, left_open) = (store.clone(), by_disk.remove(&None).unwrap_or_default());
    store.runtime.tasks.spawn(0, Box::new(move || Box::pin(housekeep(there, left_open))));
    if store.discards() || active(Bug::FilesDiscarded) {
        let there = store.clone();
        store.runtime.tasks.spawn(0, Box::new(move || Box::pin(discard::run(there))));
    }
    promote::drive::start(store);
}

/// The streams of what goes to disks.
pub fn disks(devices: &DeviceTable, runtime: &Runtime, log: &Arc<Log>, usable: u32) -> Vec<Arc<Bulk>> {
    let slots = (0..devices.rows.len()).filter(|&slot| devices.rows[slot].tier == Tier::Disk);
    let stream = |slot: usize| {
        let stream = Bulk::of_disk(slot, runtime, log, usable);
        if devices.rows[slot].state != State::InUse {
            stream.retire();
        }
        Arc::new(stream)
    };
    slots.map(stream).collect()
}

/// Seals what the process before left open, then keeps segments ready.
async fn housekeep(store: Arc<Store>, left_open: Vec<SegmentId>) {
    for segment in left_open {
        if !store.log.is_reused(segment)
            && let Err(error) = prepare::seal(&store, segment).await
        {
            return store.log.fail(error.with("sealing a segment after recovery"));
        }
    }
    prepare::run(store).await;
}
