//! Access times, by Linux's relatime rule (rule M6). They are kept in the overlay without a log record, and reach the
//! index with the next checkpoint, whatever its cause. A crash undoes updates made since the last checkpoint; an
//! orderly end does not.

use crate::Groups;
use crate::state::State;
use base::{Ino, Inode};
use std::sync::atomic::Ordering;
use wire::Context;

/// An access time of this age is updated by the next read, even if the inode has not changed: 24 hours, as in the
/// kernel's relatime.
const OLD_NS: i64 = 24 * 3600 * 1_000_000_000;

impl Groups {
    /// Updates an inode's access time on behalf of a read, as relatime does: only if it is no later than the last
    /// change of the data or the inode, or 24 hours old. Mounts and handles with noatime leave it alone. It is not
    /// updated either while the overlay holds twice its budget: a reader never waits for a checkpoint because of an
    /// access time.
    pub(crate) fn accessed(&self, context: &Context, state: &mut State, ino: Ino, inode: &Inode) {
        let seen = inode.atime > inode.mtime && inode.atime > inode.ctime;
        let old = self.wall_ns.load(Ordering::Relaxed).saturating_sub(inode.atime.0) >= OLD_NS;
        if context.noatime || (seen && !old) || self.overlay_bytes() >= 2 * self.options.overlay_bytes {
            return;
        }
        let atime = self.store().runtime.clock.wall();
        state.set_access(context.volume, ino, Inode { atime, ..*inode });
        self.note_overlay(state);
    }
}
