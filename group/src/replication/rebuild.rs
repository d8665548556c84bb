//! Building a group's state again, when records that its overlay has applied are void: the overlay is dropped, and what the index
//! says is followed by the records since the last checkpoint, as at a start.

use crate::state::State;
use crate::state::across::Across;
use crate::state::rows::Rows;
use crate::{Group, Groups};
use base::{Result, Sync};
use runtime::tasks::run_blocking;
use std::sync::atomic::Ordering;

impl Groups {
    /// Builds a group's state again. The applying task does it, which then applies the records.
    pub(super) async fn rebuild(&self, group: &Group) -> Result<()> {
        // No checkpoint is under way: the index has all that any checkpoint has taken, and the overlay the rest.
        let _still = self.checkpoint_token.take().await;
        self.drop_overlay(group).await?;
        let mut state = group.state.lock();
        state.replica().rebuilds = false;
        state.replica().rebuilt += 1;
        Ok(())
    }

    /// Takes a group's state back to what the index says. Called by the holder of the checkpoint token.
    pub(crate) async fn drop_overlay(&self, group: &Group) -> Result<()> {
        // Payloads in memory go with the overlay: the device has them from here on.
        self.store().log.wait(self.store().log.last_batch(), Sync::Written, None).await?;
        let (index, number) = (self.store().index.clone(), group.number);
        let read = move || -> Result<_> { Ok((Rows::read(&*index, number)?, Across::read(&*index, number)?)) };
        let (rows, across) = run_blocking(&*self.store().runtime.tasks, read).await?;
        let mut state = group.state.lock();
        let counted = state.counted_bytes as u64;
        let before = self.overlay_bytes.fetch_sub(counted, Ordering::Relaxed);
        assert!(before >= counted, "group {number} takes {counted} bytes out of {before}");
        assert!(state.replica().serves().is_err(), "a replica that serves has nothing void");
        let gone = state.begin_again(rows);
        state.across = across;
        drop(state);
        drop(gone);
        Ok(())
    }
}

impl State {
    /// Goes back to what the index has. Returns the overlay, to be dropped outside the lock.
    fn begin_again(&mut self, rows: Rows) -> crate::state::overlay::Generation {
        assert!(self.frozen.is_none(), "no checkpoint is under way");
        self.counted_bytes = 0;
        self.set_rows(rows);
        std::mem::take(&mut self.active)
    }
}
