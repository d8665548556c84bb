//! Removal of names, and the fate of the inodes that they named.

use crate::apply::TIME_KEPT;
use crate::decision::{Decision, Draft};
use crate::guard;
use crate::view::{self, Caller, Entry, Stop, View, child, entry, refuse};
use base::{Edit, FileKind, Ino, Inode, Kind, Name, Outcome, Reply, Time};

/// Unlink.
pub(crate) fn file(view: &mut dyn View, caller: &Caller, parent: Ino, name: &Name) -> Result<Decision, Stop> {
    let (home, found) = named(view, parent, name)?;
    if found.kind == FileKind::Directory {
        return refuse(Kind::IsDirectory, "a directory is removed by rmdir");
    }
    let inode = child(view, found)?;
    guard::loses_name(&home, &inode)?;
    remove(view, caller, (parent, &home), name, (found, &inode))
}

/// RemoveDir.
pub(crate) fn directory(view: &mut dyn View, caller: &Caller, parent: Ino, name: &Name) -> Result<Decision, Stop> {
    let (home, found) = named(view, parent, name)?;
    if found.kind != FileKind::Directory {
        return refuse(Kind::NotDirectory, "rmdir removes only directories");
    }
    let inode = child(view, found)?;
    guard::loses_name(&home, &inode)?;
    if inode.entries > 0 {
        return refuse(Kind::NotEmpty, "the directory has entries");
    }
    remove(view, caller, (parent, &home), name, (found, &inode))
}

fn named(view: &mut dyn View, parent: Ino, name: &Name) -> Result<(Inode, Entry), Stop> {
    let home = view::directory(view, parent)?;
    match entry(view, parent, name)? {
        Some(found) => Ok((home, found)),
        None => refuse(Kind::NotFound, "no such name in the directory"),
    }
}

fn remove(
    view: &mut dyn View,
    caller: &Caller,
    (parent, home): (Ino, &Inode),
    name: &Name,
    (found, inode): (Entry, &Inode),
) -> Result<Decision, Stop> {
    let now = view.now();
    let fate = unnamed(view, found.ino, inode, now)?;
    let stamp = home.ctime.tick(now);
    let links = -i32::from(found.kind == FileKind::Directory);
    let mut draft = Draft::new(caller.volume, parent.group());
    draft.edit(parent, Edit::EntryDrop { dir: parent, name: name.clone(), cookie: found.cookie });
    draft.edit(parent, Edit::InodeTouch { ino: parent, links, entries: -1, mtime: stamp, ctime: stamp });
    fate.into_iter().for_each(|edit| draft.edit(found.ino, edit));
    draft.decide(view, Reply::Done, Outcome::Done)
}

/// The edits of an inode that loses a name, and with it a link. When the last link goes, the inode is freed, or becomes
/// an orphan if it is open or known to a client. A directory that becomes an orphan is dead: it takes no entries any
/// more.
pub(crate) fn unnamed(view: &mut dyn View, ino: Ino, inode: &Inode, now: Time) -> Result<Vec<Edit>, Stop> {
    assert!(!inode.is_directory() || inode.entries == 0, "directory {ino:?} keeps its name as long as it has entries");
    let ctime = inode.ctime.tick(now);
    let less = Edit::InodeTouch { ino, links: -1, entries: 0, mtime: TIME_KEPT, ctime };
    if !inode.is_directory() && inode.links > 1 {
        return Ok(vec![less]);
    }
    if view.opens(ino)? == 0 {
        return Ok(vec![Edit::InodeDrop { ino }]);
    }
    let last = match inode.kind {
        FileKind::Directory => Edit::InodePut { ino, inode: Inode { links: 0, dead: true, ctime, ..*inode } },
        _ => less,
    };
    Ok(vec![last, Edit::OrphanPut { ino }])
}
