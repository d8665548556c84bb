//! The interface (`View`) through which `evaluate` reads the state. The group implements it while holding its locks.

use base::{Error, FileKind, GroupId, Ino, Inode, IntentId, Kind, Name, Time, Volume, VolumeId, Xattrs};
use std::sync::Arc;

/// An entry: the inode that a name points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// The inode's kind.
    pub kind: FileKind,
    /// Position of the entry in its directory (rule M2).
    pub cookie: u64,
}

/// An answer of the view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen<T> {
    /// The value, or None if it does not exist: overlay and index leave no doubt.
    Known(Option<T>),
    /// The value's group is locked, but the index must be read first.
    Missing,
    /// The value belongs to this group, which is not locked.
    Elsewhere(GroupId),
}

/// The state that evaluate lacks: the caller fetches it and evaluates again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Need {
    /// The inode.
    Inode(Ino),
    /// The name's entry in the directory.
    Entry(Ino, Name),
    /// The symbolic link's target.
    Target(Ino),
    /// The inode's extended attributes.
    Xattrs(Ino),
    /// The volume of this name.
    Volume(Name),
    /// The group, locked.
    Group(GroupId),
    /// More numbers that the group may give out.
    Numbers,
}

/// Applied state plus everything ordered, within the caller's volume.
///
/// Contract: while one `evaluate` runs, answers don't change. A group that has answered `Known` or `Missing` stays
/// locked for the rest of that run: its `fresh_*` functions then succeed, or ask for `Need::Numbers`.
pub trait View {
    /// An inode with all ordered edits; `Known(None)` = it does not exist.
    fn inode(&mut self, ino: Ino) -> Seen<Inode>;
    /// The entry of a name in a directory.
    fn entry(&mut self, dir: Ino, name: &Name) -> Seen<Entry>;
    /// A symbolic link's target.
    fn target(&mut self, ino: Ino) -> Seen<Box<[u8]>>;
    /// An inode's extended attributes; asked only of inodes that have some.
    fn xattrs(&mut self, ino: Ino) -> Seen<Arc<Xattrs>>;
    /// A volume, by name; it belongs to group 0.
    fn volume(&mut self, name: &Name) -> Seen<Volume>;
    /// An inode number never used before in `group`; `Need::Group` if the group is not locked.
    fn fresh_ino(&mut self, group: GroupId) -> Result<Ino, Need>;
    /// A cookie never used before in the directory's group.
    fn fresh_cookie(&mut self, dir: Ino) -> Result<u64, Need>;
    /// The name of a new intent of `group`.
    fn fresh_intent(&mut self, group: GroupId) -> Result<IntentId, Need>;
    /// A volume id never used before; group 0 gives them out.
    fn fresh_volume(&mut self) -> Result<VolumeId, Need>;
    /// The number of opens of an inode, plus one while a client knows the inode. Unless it is zero, the inode lives on
    /// without a name.
    fn opens(&mut self, ino: Ino) -> Result<u64, Need>;
    /// The group in which a new directory below `parent` is created (new directories spread over groups, rule M1). The
    /// answer is the same when the same operation is evaluated again.
    fn spread(&mut self, parent: Ino) -> GroupId;
    /// The wall clock.
    fn now(&self) -> Time;
}

/// The client on whose behalf an operation is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The volume that the operation's inode numbers and names belong to.
    pub volume: VolumeId,
    /// The user, who will own what is created.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
    /// The umask: permission bits withheld from what is created, unless the directory has a default list.
    pub umask: u16,
}

/// The reason why `evaluate` returns no decision.
#[derive(Clone, PartialEq, Debug)]
pub enum Stop {
    /// The operation is refused, with this error for the client.
    Error(Error),
    /// Fetch this and evaluate again.
    Need(Need),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

impl From<Need> for Stop {
    fn from(need: Need) -> Stop {
        Stop::Need(need)
    }
}

/// Refuses the operation with this error.
pub(crate) fn refuse<T>(kind: Kind, what: &'static str) -> Result<T, Stop> {
    Err(Stop::Error(Error::new(kind, what)))
}

/// The value that the view knows (None: it does not exist), or else what must be fetched first.
pub(crate) fn known<T>(seen: Seen<T>, need: impl FnOnce() -> Need) -> Result<Option<T>, Stop> {
    match seen {
        Seen::Known(value) => Ok(value),
        Seen::Missing => Err(Stop::Need(need())),
        Seen::Elsewhere(group) => Err(Stop::Need(Need::Group(group))),
    }
}

/// The inode of this number; `Stale` if it is gone.
pub(crate) fn inode(view: &mut dyn View, ino: Ino) -> Result<Inode, Stop> {
    match known(view.inode(ino), || Need::Inode(ino))? {
        Some(inode) => Ok(inode),
        None => refuse(Kind::Stale, "the inode is gone"),
    }
}

/// The directory of this number. Errors: as `inode`; `NotDirectory`.
pub(crate) fn directory(view: &mut dyn View, ino: Ino) -> Result<Inode, Stop> {
    let inode = inode(view, ino)?;
    if !inode.is_directory() {
        return refuse(Kind::NotDirectory, "names are found only in directories");
    }
    Ok(inode)
}

/// The entry of a name, if there is one.
pub(crate) fn entry(view: &mut dyn View, dir: Ino, name: &Name) -> Result<Option<Entry>, Stop> {
    known(view.entry(dir, name), || Need::Entry(dir, name.clone()))
}

/// The inode that an entry points to. Entry and inode always change together, so an entry without inode is damage.
pub(crate) fn child(view: &mut dyn View, entry: Entry) -> Result<Inode, Stop> {
    match known(view.inode(entry.ino), || Need::Inode(entry.ino))? {
        Some(inode) if inode.kind == entry.kind => Ok(inode),
        Some(_) => Err(Error::new(Kind::Corrupt, "entry and inode differ in kind").with(entry.ino).into()),
        None => Err(Error::new(Kind::Corrupt, "an entry points to no inode").with(entry.ino).into()),
    }
}
