//! The end of a checkpoint: its rows, those of segments and the place where replay starts go to the index in one write, and memory follows.

use super::{Work, bitmaps, summaries};
use crate::Store;
use crate::format::keys;
use crate::format::values::{self, ReplayRow};
use crate::index::IndexEdit;
use crate::space::usage;
use base::{Error, Kind, Place, Result};
use runtime::seeded::{Bug, active};
use std::sync::atomic::Ordering;

/// The time from which a write must survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durable {
    /// The write's end.
    Now,
    /// The end of the next checkpoint, which frees what this one made dead.
    Later,
}

/// Writes rows as a checkpoint does that brings no group any further. `dead`: blocks that they don't name any more. No checkpoint runs meanwhile.
/// Errors: `Busy` until the first checkpoint after a repair of the log, whose row knows the ways over bad batches; `Io`, `Corrupt`.
pub(crate) fn write_rows(store: &Store, edits: Vec<IndexEdit>, dead: Vec<Place>, durable: Durable) -> Result<()> {
    if store.mended.load(Ordering::Acquire) {
        return Err(Error::new(Kind::Busy, "the log was repaired, and no checkpoint has been written since"));
    }
    assert!(!dead.contains(&Place::MISSING), "a block that the brick lacks has no place that could be freed");
    let mut work = Work { edits, dead, ..Work::default() };
    work.finish_leaves(store)?;
    work.commit(store, store.replay_start(), durable)
}

impl Work {
    /// Writes what the checkpoint has come to.
    pub(super) fn commit(self, store: &Store, replay: ReplayRow, durable: Durable) -> Result<()> {
        let Work { mut edits, mut staged, mut usage, dropped, .. } = self;
        // The rows of dropped volumes are gone.
        usage.retain(|(group, volume, _), _| !dropped.contains(&(*group, *volume)));
        let used = store.usages.lock().changed(&usage);
        edits.extend(used.iter().map(|(user, usage)| usage::row(*user, usage)).chain(store.scrub.row()));
        let mut summaries = summaries::rows(store, &mut edits);
        let replay = bitmaps::rows(store, &mut staged, (&mut summaries, &mut edits), replay)?;
        edits.push(IndexEdit::Put(keys::replay(), values::encode_replay(&replay)));
        store.index.write(edits)?;
        if active(Bug::DiscardedBeforeCheckpoint) {
            crate::segments::discard::too_early(store, &staged, replay.sequence)?;
        }
        // With the seeded bug that frees early, a checkpoint becomes durable only when the next one comes.
        let drops = active(Bug::CheckpointDropped) || active(Bug::FreedBeforeCheckpoint);
        if durable == Durable::Now && !drops {
            store.index.persist()?;
        }
        let unmapped_bytes = {
            let mut usages = store.usages.lock();
            usages.commit(used, &dropped);
            usages.unmapped_bytes()
        };
        {
            let mut table = store.table.lock();
            table.commit(staged);
            // Comes before segments are freed, under the same lock: whoever reads the log finds all that it needs, or the new start.
            let before = std::mem::replace(&mut *store.replay.lock(), replay);
            let rises = before.number <= replay.number && before.epoch <= replay.epoch;
            assert!(rises, "replay begins no earlier than before");
            let stays = before.number == replay.number;
            assert!(durable == Durable::Now || stays, "replay needs its records until the index has them durably");
            store.mended.store(false, Ordering::Release);
            if durable == Durable::Now {
                table.free_dead((replay.sequence, replay.number));
            }
            store.space.measured(table.all_totals().live_bytes() + unmapped_bytes);
        }
        store.free_unread();
        *store.summarised.lock() = summaries;
        Ok(())
    }
}
