//! The effect of an edit on an inode, used by the overlay, by replay and by evaluate itself. It can't fail.

use base::seeded::{Bug, active};
use base::{Edit, Inode, Time};

/// The time in an `InodeTouch` that leaves the inode's time as it is. A touch sets the later of the two times, so this
/// is the earliest of all; zero would raise times before 1970.
pub const TIME_KEPT: Time = Time(i64::MIN);

/// The inode after `edit`, which must be an edit of this inode; other edits change nothing.
///
/// A missing inode stays missing under edits that change one: it was dropped after the change was decided. Counters
/// saturate: a wrong count is damage that a check will find, not a reason to stop replay.
pub fn apply_inode(old: Option<Inode>, edit: &Edit) -> Option<Inode> {
    match edit {
        Edit::InodePut { inode, .. } => return Some(*inode),
        Edit::InodeDrop { .. } => return None,
        _ => {}
    }
    let mut inode = old?;
    match edit {
        Edit::InodeTouch { links, entries, mtime, ctime, .. } => {
            inode.links = inode.links.saturating_add_signed(*links);
            inode.entries = inode.entries.saturating_add_signed(*entries);
            inode.mtime = inode.mtime.max(*mtime);
            inode.ctime = inode.ctime.max(*ctime);
        }
        Edit::InodeParent { parent, .. } => inode.parent = *parent,
        Edit::InodeProject { project, .. } => inode.project = *project,
        Edit::InodeExtend { size, time, kill_privileges, .. } => {
            inode.size = if active(Bug::SizeReplaced) { *size } else { inode.size.max(*size) };
            raise(&mut inode, *time);
            if *kill_privileges {
                inode.mode = mode_without_privileges(&inode);
            }
        }
        Edit::InodeCut { size, trim, time, .. } => {
            inode.size = *size;
            inode.trim = *trim;
            raise(&mut inode, *time);
        }
        Edit::Punch { trim, .. } => inode.trim = *trim,
        _ => {}
    }
    Some(inode)
}

fn raise(inode: &mut Inode, time: Time) {
    inode.mtime = inode.mtime.max(time);
    inode.ctime = inode.ctime.max(time);
}

/// Permission bits after a write, truncate or chown by an unprivileged caller: without setuid, and without setgid if
/// the group may execute (without that right, setgid grants nothing). Directories keep both bits: on a directory setgid
/// means inheritance.
pub(crate) fn mode_without_privileges(inode: &Inode) -> u16 {
    const SETUID: u16 = 0o4000;
    const SETGID: u16 = 0o2000;
    const GROUP_EXECUTE: u16 = 0o0010;
    if inode.is_directory() || active(Bug::PrivilegesKept) {
        return inode.mode;
    }
    let mode = inode.mode & !SETUID;
    if mode & GROUP_EXECUTE != 0 { mode & !SETGID } else { mode }
}
