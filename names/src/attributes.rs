//! Changes of an inode's attributes, truncation included.

use crate::apply::{apply_inode, mode_without_privileges};
use crate::decision::{Decision, Draft};
use crate::guard;
use crate::view::{Caller, Stop, View, inode, refuse};
use crate::xattr;
use base::limits::FILE_BYTES_MAX;
use base::seeded::{Bug, active};
use base::{Attr, Edit, FileKind, Ino, Inode, Kind, Outcome, Reply, SetAttr, SetTime, Time};

/// Permission bits with setuid, setgid and sticky.
pub(crate) const MODE_BITS: u16 = 0o7777;

/// SetAttr. A change of size becomes an `InodeCut`. The other changes replace the inode after the cut, so that times
/// given by the client win over those of the cut.
pub(crate) fn set(view: &mut dyn View, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Decision, Stop> {
    let old = inode(view, ino)?;
    let moves_tree = guard::moves_tree(&old, caller.uid, set)?;
    match set.guard {
        Some(_) if old.kind != FileKind::File && !old.is_directory() => {
            return refuse(Kind::Unsupported, "only files and directories are guarded");
        }
        Some(guard) => {
            let alone = SetAttr { guard: None, project: None, ..*set } == SetAttr::default();
            assert!(alone, "a guard is set alone, or with a project");
            if !moves_tree {
                guard::lets_project(&old, guard, set.project)?;
            }
        }
        None if moves_tree => {}
        None => guard::takes(&old, set)?,
    }
    let now = view.now();
    let mut draft = Draft::new(caller.volume, ino.group());
    let mut after_cut = old;
    if let Some(cut) = resize(ino, &old, set.size, now)? {
        after_cut = apply_inode(Some(old), &cut).expect("a cut keeps the inode");
        draft.edit(ino, cut);
    }
    assert!(set.size.is_none_or(|size| size == after_cut.size), "a cut gives the size that is asked for");
    let mut new = changed(&old, after_cut, set, now);
    let moves = set.size.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_privileges;
    if let Some(all) = xattr::of(view, ino, &old)? {
        let edits = xattr::follow(&all, ino, &mut new, set.mode.is_some(), moves)?;
        edits.into_iter().for_each(|edit| draft.edit(ino, edit));
    }
    if new != after_cut {
        draft.edit(ino, Edit::InodePut { ino, inode: new });
    }
    if let Some(project) = set.project.filter(|project| *project != old.project) {
        draft.edit(ino, Edit::InodeProject { ino, project });
        new.project = project;
    }
    draft.decide(view, Reply::Attr(Attr::new(ino, new)), Outcome::Inode(ino))
}

/// The `InodeCut` edit that sets a file's size, smaller or larger. None if no size is asked for or the size is already
/// right. Only files have a size to set.
fn resize(ino: Ino, old: &Inode, size: Option<u64>, now: Time) -> Result<Option<Edit>, Stop> {
    let Some(size) = size else { return Ok(None) };
    match old.kind {
        FileKind::File => {}
        FileKind::Directory => return refuse(Kind::IsDirectory, "a directory has no size to set"),
        _ => return refuse(Kind::Invalid, "only files have a size to set"),
    }
    if size > FILE_BYTES_MAX {
        return refuse(Kind::TooLarge, "a file has at most 16 TiB");
    }
    Ok((size != old.size).then(|| cut(ino, old, size, now)))
}

fn cut(ino: Ino, old: &Inode, size: u64, now: Time) -> Edit {
    let trim = old.trim + u64::from(!active(Bug::TrimKept));
    Edit::InodeCut { ino, size, trim, time: old.ctime.tick(now) }
}

/// The inode after the cut, with the other attributes set. Access and modification time are set to the clock's time if
/// the client asks for the present time, even if they were later before; only the change time never goes back (rule
/// M6).
fn changed(old: &Inode, after_cut: Inode, set: &SetAttr, now: Time) -> Inode {
    let time = |wish: Option<SetTime>, kept: Time| match wish {
        None => kept,
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
    };
    let mut new = after_cut;
    new.mode = set.mode.map_or(new.mode, |mode| mode & MODE_BITS);
    new.guard = set.guard.unwrap_or(new.guard);
    // Only a directory can hand its project down.
    new.guard.hands_down_project &= new.is_directory();
    new.uid = set.uid.unwrap_or(new.uid);
    new.gid = set.gid.unwrap_or(new.gid);
    new.atime = time(set.atime, new.atime);
    new.mtime = time(set.mtime, new.mtime);
    new.ctime = match set.ctime {
        Some(given) if given > old.ctime => given,
        _ => old.ctime.tick(now),
    };
    if set.kill_privileges {
        new.mode = mode_without_privileges(&new);
    }
    assert!(new.ctime >= old.ctime, "times of change don't go back (rule M6)");
    assert!(new.kind == old.kind && new.mode & !MODE_BITS == 0, "only permissions and the like are set");
    new
}

/// Open. The group counts the open; only its O_TRUNC is decided here, which has no effect on objects that are not
/// files.
pub(crate) fn open(view: &mut dyn View, caller: &Caller, ino: Ino, truncate: bool) -> Result<Decision, Stop> {
    let old = inode(view, ino)?;
    if truncate && old.is_directory() {
        return refuse(Kind::IsDirectory, "a directory can't be truncated");
    }
    if truncate && old.kind == FileKind::File {
        guard::untouched(&old)?;
    }
    if !truncate || old.kind != FileKind::File || old.size == 0 {
        return Ok(Decision::unchanged(Reply::Attr(Attr::new(ino, old)), Outcome::Inode(ino)));
    }
    let cut = cut(ino, &old, 0, view.now());
    let mut inode = apply_inode(Some(old), &cut).expect("a cut keeps the inode");
    assert!(inode.size == 0, "O_TRUNC leaves nothing");
    let mut draft = Draft::new(caller.volume, ino.group());
    draft.edit(ino, cut);
    if let Some(all) = xattr::of(view, ino, &old)? {
        for edit in xattr::follow(&all, ino, &mut inode, false, true)? {
            draft.edit(ino, edit);
            draft.edit(ino, Edit::InodePut { ino, inode });
        }
    }
    draft.decide(view, Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino))
}
