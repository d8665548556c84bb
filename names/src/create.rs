//! Creation of files, directories and other objects, and of further names for existing ones.

use crate::apply::TIME_KEPT;
use crate::attributes::MODE_BITS;
use crate::decision::{Decision, Draft};
use crate::guard;
use crate::tier;
use crate::view::{self, Caller, Stop, View, child, entry, inode, refuse};
use crate::xattr::{self, Legacy};
use base::limits::{LINKS_MAX, TARGET_BYTES_MAX};
use base::{Attr, Attributes, Edit, FileKind, Guard, Ino, Inode, Kind, Name, Outcome, Reply, Time};

/// The setgid bit of a directory: new objects in it inherit its group, and new directories this bit too.
const SETGID: u16 = 0o2000;
const _: () = assert!(SETGID & MODE_BITS == SETGID && LINKS_MAX < u32::MAX);

/// An object to be created.
struct Wish {
    kind: FileKind,
    mode: u16,
    rdev: u32,
    target: Option<Box<[u8]>>,
}

impl Wish {
    fn new(kind: FileKind, mode: u16) -> Wish {
        Wish { kind, mode, rdev: 0, target: None }
    }
}

/// The directory that takes a new name. Errors: `NotFound` if it was removed.
fn home(view: &mut dyn View, parent: Ino) -> Result<Inode, Stop> {
    let inode = view::directory(view, parent)?;
    if inode.dead {
        return refuse(Kind::NotFound, "the directory was removed");
    }
    Ok(inode)
}

/// Create. An object that already has the name is returned unless `exclusive`, even a symbolic link: the front resolves
/// it.
pub(crate) fn file(
    view: &mut dyn View,
    caller: &Caller,
    parent: Ino,
    name: &Name,
    mode: u16,
    exclusive: bool,
) -> Result<Decision, Stop> {
    let home = home(view, parent)?;
    match entry(view, parent, name)? {
        Some(_) if exclusive => refuse(Kind::Exists, "the name is taken"),
        Some(found) if found.kind == FileKind::Directory => refuse(Kind::IsDirectory, "the name is a directory's"),
        Some(found) => {
            let inode = child(view, found)?;
            Ok(Decision::unchanged(Reply::Attr(Attr::new(found.ino, inode)), Outcome::Inode(found.ino)))
        }
        None => {
            guard::takes_names(&home)?;
            born(view, caller, (parent, &home), name, Wish::new(FileKind::File, mode))
        }
    }
}

/// MakeDir.
pub(crate) fn directory(
    view: &mut dyn View,
    caller: &Caller,
    parent: Ino,
    name: &Name,
    mode: u16,
) -> Result<Decision, Stop> {
    let home = vacant(view, parent, name)?;
    if home.links >= LINKS_MAX {
        return refuse(Kind::TooManyLinks, "the directory has too many subdirectories");
    }
    born(view, caller, (parent, &home), name, Wish::new(FileKind::Directory, mode))
}

/// SymLink.
pub(crate) fn link(
    view: &mut dyn View,
    caller: &Caller,
    parent: Ino,
    name: &Name,
    target: &[u8],
) -> Result<Decision, Stop> {
    if target.is_empty() {
        return refuse(Kind::NotFound, "a symbolic link needs a target");
    }
    if target.len() > TARGET_BYTES_MAX {
        return refuse(Kind::NameTooLong, "a symbolic link's target has at most 4095 bytes");
    }
    let home = vacant(view, parent, name)?;
    let wish = Wish { target: Some(target.into()), ..Wish::new(FileKind::Link, 0o777) };
    born(view, caller, (parent, &home), name, wish)
}

/// MakeNode. A device's number is stored as it comes: only the client knows its meaning.
pub(crate) fn node(
    view: &mut dyn View,
    caller: &Caller,
    (parent, name): (Ino, &Name),
    kind: FileKind,
    mode: u16,
    rdev: u32,
) -> Result<Decision, Stop> {
    let rdev = match kind {
        FileKind::Character | FileKind::BlockDevice => rdev,
        FileKind::Fifo | FileKind::Socket => 0,
        _ => return refuse(Kind::Invalid, "files, directories and symbolic links are made in other ways"),
    };
    let home = vacant(view, parent, name)?;
    born(view, caller, (parent, &home), name, Wish { rdev, ..Wish::new(kind, mode) })
}

/// TempFile. The file begins as an orphan, kept alive by the open that is part of the operation. After a crash it is
/// freed like any other orphan.
pub(crate) fn nameless(view: &mut dyn View, caller: &Caller, parent: Ino, mode: u16) -> Result<Decision, Stop> {
    let home = home(view, parent)?;
    guard::takes_names(&home)?;
    let wish = Wish::new(FileKind::File, mode);
    let legacy = xattr::inherit(view, (parent, &home), mode, caller.umask, false)?;
    let ino = view.fresh_ino(parent.group())?;
    assert!(ino.group() == parent.group(), "a fresh number belongs to the group that gave it");
    let inode = Inode { links: 0, ..infant(caller, (parent, &home), ino, (&wish, &legacy), view.now()) };
    let mut draft = Draft::new(caller.volume, ino.group());
    draft.edit(ino, Edit::InodePut { ino, inode });
    draft.edit(ino, Edit::OrphanPut { ino });
    for (name, value) in legacy.lists {
        draft.edit(ino, Edit::XattrPut { ino, name, value });
    }
    draft.decide(view, Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino))
}

/// Link. The kernel decides which files without a name may get one: those created without, not those whose name was
/// removed. A file without a name that is not open counts as gone.
pub(crate) fn name(
    view: &mut dyn View,
    caller: &Caller,
    ino: Ino,
    (parent, name): (Ino, &Name),
) -> Result<Decision, Stop> {
    let old = inode(view, ino)?;
    if old.is_directory() {
        return refuse(Kind::Permission, "a directory has one name");
    }
    if old.links == 0 && view.opens(ino)? == 0 {
        return refuse(Kind::NotFound, "the file was removed");
    }
    if old.links >= LINKS_MAX {
        return refuse(Kind::TooManyLinks, "the file has too many names");
    }
    let home = vacant(view, parent, name)?;
    guard::untouched(&old)?;
    guard::is_of_project(&home, &old)?;
    let cookie = view.fresh_cookie(parent)?;
    let now = view.now();
    let (stamp, ctime) = (home.ctime.tick(now), old.ctime.tick(now));
    let mut draft = Draft::new(caller.volume, parent.group());
    draft.edit(parent, Edit::EntryPut { dir: parent, name: name.clone(), ino, kind: old.kind, cookie });
    draft.edit(parent, Edit::InodeTouch { ino: parent, links: 0, entries: 1, mtime: stamp, ctime: stamp });
    draft.edit(ino, Edit::InodeTouch { ino, links: 1, entries: 0, mtime: TIME_KEPT, ctime });
    if old.links == 0 {
        draft.edit(ino, Edit::OrphanDrop { ino });
    }
    let inode = Inode { links: old.links + 1, ctime: old.ctime.max(ctime), ..old };
    draft.decide(view, Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino))
}

/// The directory, if it can take new names and has no entry of this name.
fn vacant(view: &mut dyn View, parent: Ino, name: &Name) -> Result<Inode, Stop> {
    let home = home(view, parent)?;
    match entry(view, parent, name)? {
        Some(_) => refuse(Kind::Exists, "the name is taken"),
        None => guard::takes_names(&home).map(|()| home),
    }
}

/// Creates the inode once everything is checked: takes numbers and states the edits. The inode's number is taken first:
/// only its group may still have to be locked, and then evaluation starts again with no number wasted.
fn born(
    view: &mut dyn View,
    caller: &Caller,
    (parent, home): (Ino, &Inode),
    name: &Name,
    wish: Wish,
) -> Result<Decision, Stop> {
    let now = view.now();
    // A symbolic link has no permissions of its own.
    let legacy = match wish.kind {
        FileKind::Link => Legacy { mode: wish.mode, lists: Vec::new() },
        kind => xattr::inherit(view, (parent, home), wish.mode, caller.umask, kind == FileKind::Directory)?,
    };
    let group = if wish.kind == FileKind::Directory { view.spread(parent) } else { parent.group() };
    let ino = view.fresh_ino(group)?;
    let cookie = view.fresh_cookie(parent)?;
    assert!(ino.group() == group, "a fresh number belongs to the group that gave it");
    assert!(!home.dead, "a directory that was removed takes no names (rule M3)");
    let inode = infant(caller, (parent, home), ino, (&wish, &legacy), now);
    let stamp = home.ctime.tick(now);
    let links = i32::from(wish.kind == FileKind::Directory);
    let mut draft = Draft::new(caller.volume, parent.group());
    draft.edit(parent, Edit::EntryPut { dir: parent, name: name.clone(), ino, kind: wish.kind, cookie });
    draft.edit(parent, Edit::InodeTouch { ino: parent, links, entries: 1, mtime: stamp, ctime: stamp });
    draft.edit(ino, Edit::InodePut { ino, inode });
    if let Some(target) = wish.target {
        draft.edit(ino, Edit::TargetPut { ino, target });
    }
    for (name, value) in legacy.lists {
        draft.edit(ino, Edit::XattrPut { ino, name, value });
    }
    draft.decide(view, Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino))
}

/// The whiteout that a rename may leave at the old name: a character device 0:0 without permissions.
pub(crate) fn whiteout(
    view: &mut dyn View,
    caller: &Caller,
    (parent, home): (Ino, &Inode),
) -> Result<(Ino, Inode), Stop> {
    let ino = view.fresh_ino(parent.group())?;
    assert!(ino.group() == parent.group(), "a fresh number belongs to the group that gave it");
    let bare = Legacy { mode: 0, lists: Vec::new() };
    let wish = Wish::new(FileKind::Character, 0);
    Ok((ino, infant(caller, (parent, home), ino, (&wish, &bare), view.now())))
}

fn infant(
    caller: &Caller,
    (parent, home): (Ino, &Inode),
    ino: Ino,
    (wish, legacy): (&Wish, &Legacy),
    now: Time,
) -> Inode {
    assert!(ino != parent, "a fresh number is none that is in use");
    let inherits = home.mode & SETGID != 0;
    let directory = wish.kind == FileKind::Directory;
    Inode {
        kind: wish.kind,
        mode: (legacy.mode & MODE_BITS) | if inherits && directory { SETGID } else { 0 },
        uid: caller.uid,
        gid: if inherits { home.gid } else { caller.gid },
        links: if directory { 2 } else { 1 },
        rdev: wish.rdev,
        size: wish.target.as_ref().map_or(0, |target| target.len() as u64),
        project: if home.guard.hands_down_project { home.project } else { 0 },
        guard: Guard { hands_down_project: home.guard.hands_down_project && directory, ..Guard::default() },
        xattrs: Attributes::new(!legacy.lists.is_empty(), tier::inherit(home, wish.kind)),
        ..Inode::blank(wish.kind, ino, parent, now)
    }
}
