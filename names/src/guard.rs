//! Refusals due to an inode's guard (immutable, append-only, project inheritance). As in other file systems, root is
//! refused too. The kernel does not know the guards of our inodes, so every operation checks them, even one through a
//! handle that was opened before the guard was set.

use crate::view::{Stop, refuse};
use base::limits::TREE_PROJECT_MIN;
use base::{Guard, Inode, Kind, SetAttr, SetTime};

/// Refuses a new name in a directory that is immutable.
pub(crate) fn takes_names(home: &Inode) -> Result<(), Stop> {
    if home.guard.immutable { refuse(Kind::Permission, "the directory is immutable") } else { Ok(()) }
}

/// Refuses to remove or replace a name if its directory or its inode is immutable or append-only.
pub(crate) fn loses_name(home: &Inode, inode: &Inode) -> Result<(), Stop> {
    untouched(home)?;
    untouched(inode)
}

/// Refuses changes of attributes and of names of an inode that is immutable or append-only.
pub(crate) fn untouched(inode: &Inode) -> Result<(), Stop> {
    if inode.guard.any() { refuse(Kind::Permission, "it is immutable or only appended to") } else { Ok(()) }
}

/// Refuses to change the project, or the inheritance of projects, of an inode that is immutable and stays immutable.
pub(crate) fn lets_project(inode: &Inode, guard: Guard, project: Option<u32>) -> Result<(), Stop> {
    let same = inode.guard.hands_down_project == guard.hands_down_project;
    match inode.guard.immutable && guard.immutable && !(same && project.is_none_or(|project| project == inode.project))
    {
        true => untouched(inode),
        false => Ok(()),
    }
}

/// True if a change moves an inode into a tree with limits, or out of one: root alone may, whatever guards it, as limits hold for all.
pub(crate) fn moves_tree(inode: &Inode, uid: u32, set: &SetAttr) -> Result<bool, Stop> {
    let project = set.project.unwrap_or(inode.project);
    let same = set.guard.is_none_or(|guard| guard.hands_down_project == inode.guard.hands_down_project);
    if project.max(inode.project) < TREE_PROJECT_MIN || same && project == inode.project {
        return Ok(false);
    }
    if uid == 0 { Ok(true) } else { refuse(Kind::Permission, "the project is one of a tree with limits") }
}

/// Refuses a name for an inode of another project in a directory that hands its project down.
pub(crate) fn is_of_project(home: &Inode, inode: &Inode) -> Result<(), Stop> {
    if home.guard.hands_down_project && home.project != inode.project {
        return refuse(Kind::OtherProject, "the directory takes what is of its own project alone");
    }
    Ok(())
}

/// Refuses a change of attributes that the guard forbids. An append-only inode may have its times set to the present,
/// and loses setuid with a write.
pub(crate) fn takes(inode: &Inode, set: &SetAttr) -> Result<(), Stop> {
    let moves = set.mode.is_some()
        || set.uid.is_some()
        || set.gid.is_some()
        || set.size.is_some()
        || set.ctime.is_some()
        || set.project.is_some();
    let times = [set.atime, set.mtime];
    let touches = [[None; 2], [Some(SetTime::Now); 2]].contains(&times);
    if inode.guard.immutable || moves || !touches { untouched(inode) } else { Ok(()) }
}
