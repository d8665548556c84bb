//! What a guard keeps from being done to an inode and in a directory, root included, as other file systems have it: the
//! kernel knows of no guard here, so each operation asks, also one through what was opened before.

use crate::view::{Stop, refuse};
use base::{Guard, Inode, Kind, SetAttr, SetTime};

/// A directory takes a new name.
pub(crate) fn takes_names(home: &Inode) -> Result<(), Stop> {
    if home.guard.immutable { refuse(Kind::Permission, "the directory is immutable") } else { Ok(()) }
}

/// A directory loses a name, or the name gets another inode.
pub(crate) fn loses_name(home: &Inode, inode: &Inode) -> Result<(), Stop> {
    untouched(home)?;
    untouched(inode)
}

/// What neither an immutable inode suffers nor one that is only appended to: a name more or less, attributes of any kind.
pub(crate) fn untouched(inode: &Inode) -> Result<(), Stop> {
    if inode.guard.any() { refuse(Kind::Permission, "it is immutable or only appended to") } else { Ok(()) }
}

/// An inode that is immutable and stays so does not get into another project, nor does what it hands down change.
pub(crate) fn lets_project(inode: &Inode, guard: Guard, project: Option<u32>) -> Result<(), Stop> {
    let same = inode.guard.hands_down_project == guard.hands_down_project;
    match inode.guard.immutable && guard.immutable && !(same && project.is_none_or(|project| project == inode.project))
    {
        true => untouched(inode),
        false => Ok(()),
    }
}

/// What gets a name in a directory is of the directory's project, if that hands it down.
pub(crate) fn is_of_project(home: &Inode, inode: &Inode) -> Result<(), Stop> {
    if home.guard.hands_down_project && home.project != inode.project {
        return refuse(Kind::OtherProject, "the directory takes what is of its own project alone");
    }
    Ok(())
}

/// Attributes change. What is only appended to may have its times set to the present, and loses setuid with a write.
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
