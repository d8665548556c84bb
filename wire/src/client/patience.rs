//! Mounts that don't wait for ever (`soft`): once the server has been away for so long, what waits for it gets an error, and what is asked
//! from then on gets one at once, until the server is back. What was asked before may be done all the same then.
//!
//! Promises: that a kernel uses an inode no more reaches the server, however long that is away; requests that were given up keep the
//! window's bound. Absent by design: a mount that waits for ever, which is the usual one.

use super::session::Session;
use crate::{Answer, Context};
use base::{Error, Kind, Op, Reply, Result};
use std::sync::Arc;

/// The error of what was given up.
fn away() -> Error {
    Error::new(Kind::Io, "the server is away for longer than this mount waits (soft)")
}

impl Session {
    /// True if the server has been away for longer than the mount waits.
    fn has_lost_patience(&self) -> bool {
        let Some(soft_ns) = self.options.soft_ns else { return false };
        let away_since_ns = self.server.lock().reach.away_since_ns;
        away_since_ns.is_some_and(|since_ns| self.runtime.clock.now_ns().saturating_sub(since_ns) >= soft_ns)
    }
    /// Errors: the mount waits no longer.
    pub(super) fn check_patience(&self) -> Result<()> {
        if self.has_lost_patience() { Err(away()) } else { Ok(()) }
    }
    /// The answer to a request that is not even sent, if the mount waits no longer.
    pub(super) fn impatient_answer(self: &Arc<Session>, context: &Context, op: &Op) -> Option<Result<Answer>> {
        let error = self.check_patience().err()?;
        Some(match op {
            // The server hears of it when it is back.
            Op::Release { .. } | Op::Forget { .. } => {
                self.undo(vec![(context.copied(), op.clone())]);
                Ok(Answer { reply: Reply::Done, data: None, position: None })
            }
            _ => Err(error),
        })
    }
    /// Gives up what waits, if the server has been away for longer than the mount waits. Called from time to time.
    pub(super) fn lose_patience(&self) {
        if !self.has_lost_patience() {
            return;
        }
        self.give_up(|pending| pending.may_give_up, away);
        // Those that have no number yet.
        self.answered.notify();
    }
}
