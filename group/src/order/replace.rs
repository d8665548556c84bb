//! Small writes one after the other to the same block: while the block waits in the log's batch, its content is
//! replaced there, and the later write's record says no more than the file's new size and time (rule M5).
//!
//! Absent by design: replacing a block whose mapping a checkpoint may already have taken. After a crash, replay would
//! apply only the later record, which does not name the block, so the index would keep the earlier checksum.

use crate::Groups;
use crate::order::write::{Blocks, Write};
use crate::state::State;
use base::limits::BLOCK_BYTES;
use base::{Edit, Ino, Place, Result, Sync, VolumeId};
use names::write::WritePlan;
use store::format::leaf::Slot;
use store::format::record::{Head, Places, Run, encode_replicated};
use store::log::{Described, Entry, Ordered, Payload, Replacement};

impl Groups {
    /// Logs a write of at most two blocks whose first block waits in the log to be written, by replacing the content
    /// there. Returns the batch; None if no such block waits, and then nothing has changed. Errors: as `Log::append`.
    pub(crate) fn try_replace(
        &self,
        state: &mut State,
        write: &Write,
        plan: &WritePlan,
        blocks: &Blocks,
        head: &Head,
    ) -> Result<Option<u64>> {
        let [Some(slice), None] = &blocks.slices else { return Ok(None) };
        let Some(place) = state.waiting_block(head.volume, write.ino, plan.first_block) else { return Ok(None) };
        let crcs = blocks.crcs.as_slice();
        assert!(crcs.len() <= 2 && slice.len() == crcs.len() * BLOCK_BYTES, "the edits map one block at most");
        let (first, rest) = (slice.slice(0..BLOCK_BYTES), slice.slice(BLOCK_BYTES..slice.len()));
        let with = Replacement { place, crc: crcs[0], payload: first.clone() };
        let map = Edit::Map { ino: write.ino, first: plan.first_block + 1, crcs: crcs[1..].iter().copied().collect() };
        let edits = [map, plan.extend.clone()];
        let edits = &edits[usize::from(rest.is_empty())..];
        let mut encoded = std::mem::take(&mut state.encoded);
        encoded.clear();
        encode_replicated(&mut encoded, head, edits);
        let described = [Described { ino: write.ino, first: plan.first_block + 1, crcs: &crcs[1..] }];
        let payload = if rest.is_empty() { Payload::None } else { Payload::Inline(std::slice::from_ref(&rest)) };
        let described = &described[..usize::from(!rest.is_empty())];
        let owner = (head.group, head.volume, head.index);
        let entry = Entry { owner, replicated: &encoded, payload, described };
        let appended = self.store().log.append_replacing(&entry, with, write.sync);
        state.encoded = encoded;
        let Some(Ordered { batch, place }) = appended? else { return Ok(None) };
        let runs = place.map(|place| Run { place, count: 1 });
        let mut places = Places::of(runs.as_slice());
        for edit in edits {
            state.apply(head.volume, edit, batch, &mut places, self.store().epoch as u32);
        }
        assert!(places.next().is_none(), "each block of the payload is mapped");
        // The write was admitted as a new block, but takes the space of the block that it replaces.
        self.store().space.admission.take_back(BLOCK_BYTES as u64);
        if let Some(quota) = self.quota(head.volume) {
            quota.take_back(BLOCK_BYTES as u64);
        }
        state.replace_block(head.volume, write.ino, plan.first_block, crcs[0], first);
        if !rest.is_empty() {
            state.hold_payload(head.volume, write.ino, plan.first_block + 1, &[rest], batch);
        }
        Ok(Some(batch))
    }
}

/// True for a write of at most two blocks that may find its first block waiting in the log. A program that waits for
/// the device after each write never does, unless it writes parts of blocks.
pub(crate) fn may_follow(write: &Write, planned: Option<&WritePlan>, blocks: &Blocks) -> bool {
    blocks.crcs.len() <= 2 && (planned.is_some() || write.sync == Sync::Ordered)
}

impl State {
    /// The place of a block that was written since the last checkpoint began and still waits in the log.
    fn waiting_block(&self, volume: VolumeId, ino: Ino, block: u64) -> Option<Place> {
        if !self.is_pending(volume, ino, block) {
            return None;
        }
        match self.active.slot(volume, ino, block)? {
            Slot::Local { place, .. } => Some(place),
            Slot::Hole => None,
        }
    }
}
