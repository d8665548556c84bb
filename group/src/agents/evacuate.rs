//! The removal of a device: moves what lies on it elsewhere, and then ends its removal. From a disk blocks go to the other disks, or
//! to flash if there are none; from flash to other flash, as long as that has room that the log and the cleaner do without. A
//! block's owner decides whether a copy counts (rule K2), as in cleaning. A start goes on with it. Absent by design: blocks that
//! can't be read; they stay, and the removal does not end before their files are gone.

use crate::Groups;
use crate::agents::clean::move_blocks;
use crate::data::near::RUN_BLOCKS_MAX;
use base::{Error, Kind, Life, Place, Result, SegmentId};
use runtime::budget::Agent;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::format::devices::{DeviceId, Tier};
use store::grow::removal;

/// Pause while there is nothing to move: a checkpoint must free what was moved.
const REST_NS: u64 = 200_000_000;
/// Pause before another attempt to get a segment for copies.
const AGAIN_NS: u64 = 20_000_000;

/// Pause between two segments: others get their turn, whatever the device.
const PAUSE_NS: u64 = 1_000_000;

/// Moves between two rests.
type Moved = BTreeMap<(SegmentId, Life), u64>;

impl Groups {
    /// Begins to remove a device, durably, and goes on until nothing lies on it. Errors: those of `store::grow::removal::begin`.
    pub async fn remove_device(self: &Arc<Self>, id: DeviceId) -> Result<()> {
        let leaves = || removal::leaving(self.store()).contains(&id);
        let left_before = leaves();
        removal::begin(self.store(), id).await?;
        if !left_before && leaves() {
            start(self, id);
        }
        Ok(())
    }
}

/// Goes on with the removals that have begun.
pub(crate) fn go_on(groups: &Arc<Groups>) {
    removal::leaving(groups.store()).into_iter().for_each(|id| start(groups, id));
}

fn start(groups: &Arc<Groups>, id: DeviceId) {
    let (there, tasks) = (groups.clone(), &groups.store().runtime.tasks);
    tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(run(there, id))));
}

/// The task of a device that leaves. Ends when it has left, the groups close, or the log fails.
async fn run(groups: Arc<Groups>, id: DeviceId) {
    let mut moved = Moved::new();
    while !groups.is_closing() && groups.store().log.failed().is_none() {
        let Some(step) = groups.begin_step() else { return };
        let clock = groups.store().runtime.clock.clone();
        let ended = groups.checkpoints();
        // What was moved is dead by the second checkpoint to end since; what is not then is tried again.
        moved.retain(|_, at| ended < *at + 2);
        let next = removal::movable(groups.store(), id).into_iter().find(|segment| !moved.contains_key(segment));
        let pause_ns = match next {
            Some(segment) => match empty(&groups, segment).await {
                Ok(()) => {
                    moved.insert(segment, groups.checkpoints());
                    PAUSE_NS
                }
                Err(error) if error.kind == Kind::Busy => AGAIN_NS,
                // Blocks that can't be read, or no memory for the moment: the others first.
                Err(_) => {
                    moved.insert(segment, groups.checkpoints());
                    AGAIN_NS
                }
            },
            None => {
                groups.checkpoint_wanted.store(true, Ordering::Release);
                match removal::end(groups.store(), id).await {
                    Ok(()) => return,
                    Err(_) => REST_NS,
                }
            }
        };
        drop(step);
        clock.sleep(pause_ns).await;
    }
}

/// Moves what lives in a segment, a run in each slice. Errors: `Busy` while there is no room; `Interrupted`; those of the move.
async fn empty(groups: &Groups, victim: (SegmentId, Life)) -> Result<()> {
    let (entries, _bitmap) = {
        let _pin = groups.store().pin();
        let (mut entries, bitmap) = groups.store().hold_live_of(victim).await?;
        entries.sort_by_key(|entry| entry.block);
        (entries, bitmap)
    };
    for some in entries.chunks(usize::from(RUN_BLOCKS_MAX)) {
        let goes_on = || !groups.is_closing();
        let _turn = groups.store().runtime.slice(Agent::Evacuate, goes_on).await.ok_or_else(crate::closing)?;
        let store = groups.store();
        let is_on_disk = store.is_on_disk(Place { segment: victim.0, block: 0 });
        let tier = if is_on_disk && store.roomiest_disk().is_some() { Tier::Disk } else { Tier::Flash };
        if tier == Tier::Flash && store.free_segments() <= store.space.floor_for_data() {
            // The cleaner frees more, and needs what is left for that.
            return Err(Error::new(Kind::Busy, "flash is short"));
        }
        move_blocks((groups, tier), victim, some).await?;
    }
    Ok(())
}
