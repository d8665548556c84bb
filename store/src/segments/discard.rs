//! TRIM for block devices, best effort: tells the device that it need not keep the content of free segments (rules K3,
//! K7). One background task discards the segments freed since start, one at a time and each once per freeing, while
//! more segments are free than the cleaner's target. A segment that is taken into use before its turn is not discarded.
//! Nothing about discards is durable: after a restart, segments that are free already are not discarded until they have
//! been used and freed again. After the first error of the device nothing more is discarded until the next start.
//! Absent by design: segments in files, whose blocks stay allocated for their next use (no holes are punched).

use crate::Store;
use crate::segments::Staged;
use base::limits::DISCARD_BYTES_PER_SECOND;
use base::{Kind, Place, Result, SegmentId};
use runtime::tasks;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pause after each discard, in multiples of its duration: so clients keep nine tenths of a drive that discards slowly.
const REST_TIMES: u64 = 9;

/// The task. Ends when the log stops or fails, or at the first discard that fails.
pub async fn run(store: Arc<Store>) {
    loop {
        let ticket = store.space.came.ticket();
        if store.log.stopping() || store.log.failed().is_some() {
            return;
        }
        // One more than the target: the segment that is being discarded is not free, which must not make the cleaner
        // work.
        let begun = store.table.lock().begin_discard(store.space.target() + 1);
        let Some(segment) = begun else {
            store.space.came.after(ticket).await;
            continue;
        };
        let start_ns = store.runtime.clock.now_ns();
        let there = store.clone();
        let done = tasks::run_background(&*store.runtime.tasks, move || discard(&there, segment)).await;
        store.table.lock().end_discard();
        // Wakes tasks that have found no free segment meanwhile.
        store.log.segment_wanted.notify();
        store.space.came.notify();
        match done {
            // Nothing depends on discards, so the task just ends.
            Err(_) => return,
            Ok(()) => drop(store.discarded_bytes.fetch_add(store.segment_bytes(), Ordering::Relaxed)),
        }
        let taken_ns = store.runtime.clock.now_ns() - start_ns;
        let share_ns = store.segment_bytes() * 1_000_000_000 / DISCARD_BYTES_PER_SECOND;
        store.runtime.clock.sleep(share_ns.max(taken_ns * REST_TIMES)).await;
    }
}

fn discard(store: &Store, segment: SegmentId) -> Result<()> {
    let spot = store.geometry.spot(Place { segment, block: 0 }).expect("a device has all segments");
    store.runtime.disk.discard(spot.file, spot.offset, store.segment_bytes())
}

/// Seeded bug `DiscardedBeforeCheckpoint` only: discards the segments that a checkpoint leaves empty before it is
/// durable.
pub fn too_early(store: &Store, staged: &Staged, replay_sequence: u64) -> Result<()> {
    let dying = store.table.lock().about_to_die(staged, replay_sequence);
    let discarded = dying.into_iter().try_for_each(|segment| discard(store, segment));
    discarded.or_else(|error| if error.kind == Kind::Unsupported { Ok(()) } else { Err(error) })
}
