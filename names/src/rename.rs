//! Rename: moves a name, and replaces the inode that had the new name. It touches up to five inodes, which may live in
//! different groups: both directories, the moved inode, the replaced one and a whiteout. The new directory's group
//! decides.

use crate::apply::TIME_KEPT;
use crate::create;
use crate::decision::{Decision, Draft};
use crate::guard;
use crate::remove::unnamed;
use crate::view::{Caller, Entry, Stop, View, child, directory, entry, refuse};
use base::limits::LINKS_MAX;
use base::{Edit, FileKind, Ino, Inode, Kind, Name, Outcome, Reply, Time};

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a Name,
}

/// The inodes and entries that the checks found.
struct Found {
    old_home: Inode,
    new_home: Inode,
    source: Entry,
    moved: Inode,
    target: Option<(Entry, Inode)>,
}

/// Rename. If both names are of one inode, nothing happens (POSIX).
pub(crate) fn rename(
    view: &mut dyn View,
    caller: &Caller,
    from: Spot,
    to: Spot,
    no_replace: bool,
    whiteout: bool,
) -> Result<Decision, Stop> {
    let old_home = directory(view, from.dir)?;
    let new_home = if to.dir == from.dir { old_home } else { directory(view, to.dir)? };
    let Some(source) = entry(view, from.dir, from.name)? else {
        return refuse(Kind::NotFound, "no such name in the directory");
    };
    let replaced = entry(view, to.dir, to.name)?;
    if no_replace && replaced.is_some() {
        return refuse(Kind::Exists, "the new name is taken");
    }
    if replaced.is_some_and(|replaced| replaced.ino == source.ino) {
        return Ok(Decision::unchanged(Reply::Done, Outcome::Done));
    }
    if new_home.dead {
        return refuse(Kind::NotFound, "the new directory was removed");
    }
    let target = replaceable(view, source, to, replaced)?;
    let moved = child(view, source)?;
    guard::loses_name(&old_home, &moved)?;
    guard::is_of_project(&new_home, &moved)?;
    match &target {
        Some((_, replaced)) => guard::loses_name(&new_home, replaced)?,
        None => guard::takes_names(&new_home)?,
    }
    let found = Found { old_home, new_home, source, moved, target };
    if found.new_links(from, to) > 0 && found.new_home.links >= LINKS_MAX {
        return refuse(Kind::TooManyLinks, "the new directory has too many subdirectories");
    }
    decide(view, caller, from, to, &found, whiteout)
}

/// Checks that the source can take the new name. Returns the entry and inode that it replaces, if any.
fn replaceable(
    view: &mut dyn View,
    source: Entry,
    to: Spot,
    replaced: Option<Entry>,
) -> Result<Option<(Entry, Inode)>, Stop> {
    let is_directory = source.kind == FileKind::Directory;
    if is_directory && to.dir == source.ino {
        return refuse(Kind::Invalid, "a directory can't move into itself");
    }
    let Some(replaced) = replaced else { return Ok(None) };
    match (is_directory, replaced.kind == FileKind::Directory) {
        (true, false) => return refuse(Kind::NotDirectory, "a directory replaces only a directory"),
        (false, true) => return refuse(Kind::IsDirectory, "only a directory replaces a directory"),
        _ => {}
    }
    let inode = child(view, replaced)?;
    if is_directory && inode.entries > 0 {
        return refuse(Kind::NotEmpty, "the directory to replace has entries");
    }
    Ok(Some((replaced, inode)))
}

impl Found {
    fn is_directory(&self) -> bool {
        self.source.kind == FileKind::Directory
    }
    /// Change of the old directory's link count: minus one for a directory that leaves.
    fn old_links(&self, from: Spot, to: Spot) -> i32 {
        -i32::from(self.is_directory() && from.dir != to.dir)
    }
    /// Change of the new directory's link count: plus one for a directory that comes in, minus one for a directory that
    /// is replaced.
    fn new_links(&self, from: Spot, to: Spot) -> i32 {
        let comes = i32::from(self.is_directory() && from.dir != to.dir);
        comes - i32::from(self.is_directory() && self.target.is_some())
    }
}

fn decide(
    view: &mut dyn View,
    caller: &Caller,
    from: Spot,
    to: Spot,
    found: &Found,
    whiteout: bool,
) -> Result<Decision, Stop> {
    assert!(found.source.ino != to.dir, "a directory does not move into itself");
    let replaces_itself = found.target.is_some_and(|(entry, _)| entry.ino == found.source.ino);
    assert!(!replaces_itself, "two names of an inode stay as they are");
    let now = view.now();
    let fate = match &found.target {
        Some((entry, inode)) => unnamed(view, entry.ino, inode, now)?,
        None => Vec::new(),
    };
    // A replaced entry keeps its place, so that a listing in progress shows the name once.
    let cookie = match &found.target {
        Some((entry, _)) => entry.cookie,
        None => view.fresh_cookie(to.dir)?,
    };
    let Entry { ino, kind, cookie: old_cookie } = found.source;
    let mut draft = Draft::new(caller.volume, to.dir.group());
    if whiteout {
        let (ino, inode) = create::whiteout(view, caller, (from.dir, &found.old_home))?;
        let (name, kind, cookie) = (from.name.clone(), inode.kind, old_cookie);
        draft.edit(from.dir, Edit::EntryPut { dir: from.dir, name, ino, kind, cookie });
        draft.edit(ino, Edit::InodePut { ino, inode });
    } else {
        draft.edit(from.dir, Edit::EntryDrop { dir: from.dir, name: from.name.clone(), cookie: old_cookie });
    }
    draft.edit(to.dir, Edit::EntryPut { dir: to.dir, name: to.name.clone(), ino, kind, cookie });
    touch_homes(&mut draft, from, to, found, i64::from(!whiteout), now);
    let ctime = found.moved.ctime.tick(now);
    draft.edit(ino, Edit::InodeTouch { ino, links: 0, entries: 0, mtime: TIME_KEPT, ctime });
    if found.is_directory() && from.dir != to.dir {
        draft.edit(ino, Edit::InodeParent { ino, parent: to.dir });
    }
    if let Some((entry, _)) = &found.target {
        fate.into_iter().for_each(|edit| draft.edit(entry.ino, edit));
    }
    draft.decide(view, Reply::Done, Outcome::Done)
}

/// Updates counts and times of the old and the new directory, by one touch each. `went`: number of entries that the old
/// directory loses.
fn touch_homes(draft: &mut Draft, from: Spot, to: Spot, found: &Found, went: i64, now: Time) {
    let came = 1 - i64::from(found.target.is_some());
    let (old_links, new_links) = (found.old_links(from, to), found.new_links(from, to));
    let mut touch = |ino, home: &Inode, links, entries| {
        let stamp = home.ctime.tick(now);
        draft.edit(ino, Edit::InodeTouch { ino, links, entries, mtime: stamp, ctime: stamp });
    };
    if from.dir == to.dir {
        touch(to.dir, &found.new_home, old_links + new_links, came - went);
    } else {
        touch(from.dir, &found.old_home, old_links, -went);
        touch(to.dir, &found.new_home, new_links, came);
    }
}

/// Exchange. The caller has checked for loops if a directory moves to another parent, as in a rename.
pub(crate) fn exchange(view: &mut dyn View, caller: &Caller, one: Spot, other: Spot) -> Result<Decision, Stop> {
    let homes = [directory(view, one.dir)?, directory(view, other.dir)?];
    let mut sides = Vec::with_capacity(2);
    for spot in [one, other] {
        let Some(entry) = entry(view, spot.dir, spot.name)? else {
            return refuse(Kind::NotFound, "no such name in the directory");
        };
        sides.push((spot, entry, child(view, entry)?));
    }
    let [(_, first, _), (_, second, _)] = sides[..] else { unreachable!("two sides") };
    if first.ino == second.ino {
        return Ok(Decision::unchanged(Reply::Done, Outcome::Done));
    }
    for (home, (_, _, inode)) in homes.iter().zip(&sides) {
        guard::loses_name(home, inode)?;
    }
    guard::is_of_project(&homes[0], &sides[1].2)?;
    guard::is_of_project(&homes[1], &sides[0].2)?;
    if first.ino == other.dir || second.ino == one.dir {
        return refuse(Kind::Invalid, "a directory can't move into itself");
    }
    let directories = |entry: Entry| i32::from(entry.kind == FileKind::Directory);
    let across = one.dir != other.dir;
    // The other directory loses the links that the first one gains.
    let gain = if across { directories(second) - directories(first) } else { 0 };
    assert!((-1..=1).contains(&gain), "each side has one inode");
    let full = |home: &Inode, gain: i32| gain > 0 && home.links >= LINKS_MAX;
    if full(&homes[0], gain) || full(&homes[1], -gain) {
        return refuse(Kind::TooManyLinks, "a directory has too many subdirectories");
    }
    let now = view.now();
    let mut draft = Draft::new(caller.volume, other.dir.group());
    for ((spot, place, _), (_, comes, inode)) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let Entry { ino, kind, .. } = *comes;
        draft
            .edit(spot.dir, Edit::EntryPut { dir: spot.dir, name: spot.name.clone(), ino, kind, cookie: place.cookie });
        let ctime = inode.ctime.tick(now);
        draft.edit(ino, Edit::InodeTouch { ino, links: 0, entries: 0, mtime: TIME_KEPT, ctime });
        if across && kind == FileKind::Directory {
            draft.edit(ino, Edit::InodeParent { ino, parent: spot.dir });
        }
    }
    for (ino, home, links) in
        [(one.dir, &homes[0], gain), (other.dir, &homes[1], -gain)].into_iter().take(1 + usize::from(across))
    {
        let stamp = home.ctime.tick(now);
        draft.edit(ino, Edit::InodeTouch { ino, links, entries: 0, mtime: stamp, ctime: stamp });
    }
    draft.decide(view, Reply::Done, Outcome::Done)
}
