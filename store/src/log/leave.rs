//! A device on which the log lies leaves the brick. Promises that the log goes on elsewhere, whether anybody writes or not, and that
//! flushes cover the device until nobody needs what lies there, and then never again. Absent by design: which device leaves, and when
//! nobody needs it (`grow::removal`).

use super::{Log, Prepared, State};
use base::{Result, SegmentId, Sync};
use runtime::FileId;
use std::collections::VecDeque;

/// Takes those segments out of what a stream has ready that leave the brick: they count as full, with their header alone.
pub fn take_leaving(
    prepared: &mut VecDeque<Prepared>,
    full: &mut Vec<(SegmentId, u32)>,
    leaves: impl Fn(SegmentId) -> bool,
) {
    full.extend(prepared.iter().filter(|one| leaves(one.segment)).map(|one| (one.segment, 1)));
    prepared.retain(|one| !leaves(one.segment));
}

impl Log {
    /// Has the log go on elsewhere: what it has open or prepared of segments that leave the brick counts as full, and is sealed. At the
    /// next checkpoint replay begins behind these.
    pub fn leave(&self, leaves: impl Fn(SegmentId) -> bool) {
        let mut state = self.state.lock();
        let State { segment, prepared, full, moves_on, .. } = &mut *state;
        let before = full.len();
        take_leaving(prepared, full, &leaves);
        // One that was made ready comes before the next segment: replay passes both, or none.
        *moves_on |= full.len() > before || segment.is_some_and(|open| leaves(open.segment));
        state.move_on(self);
        drop(state);
        self.kick(false);
    }
    /// Has no flush cover a file any more, and waits for one that does: nothing lies there that anybody needs. Errors: `Io` after a
    /// failure.
    pub async fn forget(&self, file: FileId) -> Result<()> {
        let under_way = self.state.lock().commit.forget(file);
        match under_way {
            Some(batch) => self.wait(batch, Sync::Data, None).await,
            None => Ok(()),
        }
    }
}

impl State {
    /// Goes on in the next segment, if the log is to and has one.
    pub(super) fn move_on(&mut self, log: &Log) {
        if self.moves_on && !self.prepared.is_empty() && self.failed.is_none() {
            self.next_segment(log);
            self.moves_on = false;
            assert!(self.building.is_none() && self.segment.is_some(), "the next batch begins in the next segment");
        }
    }
}
