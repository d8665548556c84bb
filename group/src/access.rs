//! Access times (rule M6): relatime, kept in the overlay without a record, and brought to the index by the checkpoint that
//! comes anyway. A crash takes them back; a clean end does not.

use crate::Groups;
use crate::context::Context;
use crate::state::State;
use base::{Ino, Inode};
use std::sync::atomic::Ordering;

/// An access time as old as this follows the next read, whatever else happened: as the kernel's relatime has it.
const OLD_NS: i64 = 24 * 3600 * 1_000_000_000;

impl Groups {
    /// The inode is being read. Its access time follows if it tells less than it could: if the inode has changed since, or
    /// for a day. While the overlay has no room it stays behind: readers are not held back for it.
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
