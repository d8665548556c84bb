//! Admission of client data (rules K4, K5): by logical bytes, so that a full brick says so; then at the pace that the
//! cleaner keeps up with. Deletions and changes of names pass where data waits.

use crate::Groups;
use crate::context::Context;
use base::{Error, Kind, Result};
use runtime::Stage;
use std::sync::atomic::Ordering;

fn full() -> Error {
    Error::new(Kind::NoSpace, "the brick is full; delete something, or add space")
}

impl Groups {
    /// Lets `blocks` blocks of client data in. Errors: `NoSpace` if the brick's live data leaves no room for them.
    pub(crate) async fn admit_data(&self, context: &Context, blocks: u64) -> Result<()> {
        let space = &self.store().space;
        while !space.admit(blocks) {
            // Overwrites have been counted as new blocks so far, and what was deleted as if it were there: checkpoints
            // tell.
            let arrived = self.checkpoints();
            if self.is_measured() {
                // One may have ended in between.
                if space.admit(blocks) {
                    break;
                }
                return Err(full());
            }
            self.checkpoint_after(arrived).await?;
        }
        self.wait_for_room(self.store().space.floor_for_data()).await?;
        if let Some(turn_ns) = self.store().space.turn(self.now_ns(), blocks) {
            self.store().runtime.clock.sleep(turn_ns.saturating_sub(self.now_ns())).await;
        }
        context.span.mark(Stage::Admit, self.now_ns());
        Ok(())
    }

    /// Lets a change of names in: it stops only above what the cleaner itself needs.
    pub(crate) async fn admit_change(&self) -> Result<()> {
        match self.store().space.reclaims() {
            true => self.wait_for_room(self.store().space.floor_for_names()).await,
            false => Ok(()),
        }
    }

    /// Waits until more than `reserve` segments are free. Errors: `NoSpace` if none will be.
    async fn wait_for_room(&self, reserve: usize) -> Result<()> {
        loop {
            let ticket = self.store().space.came.ticket();
            if self.store().free_segments() > reserve {
                return Ok(());
            }
            if let Some(error) = self.store().log.failed() {
                return Err(error);
            }
            if self.store().log.stopping() {
                return Err(crate::closing());
            }
            if !self.store().space.reclaims() {
                return Err(full());
            }
            self.store().space.came.after(ticket).await;
        }
    }

    /// True if nothing has been ordered since the last checkpoint, which had nothing left to free: it has counted every
    /// live block and no other.
    fn is_measured(&self) -> bool {
        let base = self.checkpoint_base.lock();
        let settled = self.checkpoints() > 0 && !self.is_freeing();
        settled && self.store().log.figures().records == base.records
    }

    /// One checkpoint that began after now, by whoever runs it.
    async fn checkpoint_after(&self, arrived: u64) -> Result<()> {
        let _one = self.checkpoint_token.take().await;
        // Two have ended since: the second began after this call.
        if self.checkpoints.load(Ordering::Relaxed) >= arrived + 2 { Ok(()) } else { self.checkpoint_now().await }
    }
}
