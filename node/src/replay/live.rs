//! The directories and handles of a replay.

use recording::plan::{Needed, NodeId, Place, Plan};
use recording::{FileShape, Flags};
use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise, openat};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The permission bits of what is made.
pub const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
/// The same for directories.
pub const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// The state of a replay.
pub struct Live<'a> {
    pub plan: &'a Plan,
    nodes: Vec<Node>,
    /// Number of handles that were opened although the recording tells of no open.
    beside: AtomicU64,
}

#[derive(Default)]
struct Node {
    /// The directory's place when it was made or found.
    entrance: OnceLock<Place>,
    /// The directory, by which its names are reached without looking it up.
    directory: OnceLock<OwnedFd>,
    /// The same, to list or fsync it.
    listing: OnceLock<OwnedFd>,
    /// Open handles, the oldest first.
    handles: Mutex<Vec<Handle>>,
}

struct Handle {
    file: Arc<OwnedFd>,
    flags: Flags,
}

impl<'a> Live<'a> {
    /// The state of a replay below `top`, before anything is there.
    pub fn new(plan: &'a Plan, top: OwnedFd) -> Live<'a> {
        let nodes: Vec<Node> = plan.nodes.iter().map(|_| Node::default()).collect();
        nodes[0].directory.set(top).expect("nobody else has it");
        Live { plan, nodes, beside: AtomicU64::new(0) }
    }
    /// The directory in which all is done.
    pub fn top(&self) -> BorrowedFd<'_> {
        self.directory(0).expect("it was given")
    }
    /// Number of handles that were opened without a recorded open.
    pub fn beside(&self) -> u64 {
        self.beside.load(Ordering::Relaxed)
    }
    /// A directory. It is opened when it is needed: on the way to it, the kernel asks for what it does not know of the directory
    /// above, as it did when the recorded program went that way. Errors: it is not there (yet).
    pub fn directory(&self, node: NodeId) -> Result<BorrowedFd<'_>> {
        if let (None, Some(place)) = (self.nodes[node].directory.get(), self.nodes[node].entrance.get()) {
            let (above, name) = self.at(Some(*place))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // Another thread may have been quicker.
            drop(self.nodes[node].directory.set(openat(above, &*name, flags, Mode::empty())?));
        }
        self.nodes[node].directory.get().map(AsFd::as_fd).ok_or(Errno::NOENT)
    }
    /// A name, with its directory. Errors: there is none.
    pub fn at(&self, place: Option<Place>) -> Result<(BorrowedFd<'_>, String)> {
        let place = place.ok_or(Errno::NOENT)?;
        Ok((self.directory(place.directory)?, place.label.to_string()))
    }
    /// A path of a node for calls that know no directories: through its directory or a handle, else its name's.
    pub fn path(&self, node: NodeId, place: Option<Place>) -> Result<String> {
        if self.plan.nodes[node].shape == FileShape::Directory {
            return Ok(format!("/proc/self/fd/{}/.", self.directory(node)?.as_raw_fd()));
        }
        let (directory, name) = self.at(place)?;
        Ok(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
    }
    /// A directory has been made or found.
    pub fn note(&self, node: NodeId, place: Option<Place>) {
        if let (FileShape::Directory, Some(place)) = (self.plan.nodes[node].shape, place) {
            // It may have been noted before.
            let _ = self.nodes[node].entrance.set(place);
        }
    }
    /// A directory's handle by which it is listed.
    pub fn listing(&self, node: NodeId) -> Result<BorrowedFd<'_>> {
        if self.nodes[node].listing.get().is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            drop(self.nodes[node].listing.set(openat(self.directory(node)?, ".", flags, Mode::empty())?));
        }
        self.nodes[node].listing.get().map(AsFd::as_fd).ok_or(Errno::NOENT)
    }
    fn handles(&self, node: NodeId) -> MutexGuard<'_, Vec<Handle>> {
        self.nodes[node].handles.lock().expect("no panic while held")
    }
    /// Opens a file by its name, with more flags, and keeps the handle.
    pub fn open(&self, node: NodeId, place: Option<Place>, flags: Flags, more: OFlags) -> Result<Arc<OwnedFd>> {
        let (directory, name) = self.at(place)?;
        let file = openat(directory, &*name, open_flags(flags) | more, FILE_MODE)?;
        Ok(self.keep(node, file, flags))
    }
    /// Keeps a handle.
    pub fn keep(&self, node: NodeId, file: OwnedFd, flags: Flags) -> Arc<OwnedFd> {
        // Each read asks for exactly its own pages: nothing is read ahead. Some file systems know no such advice.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let file = Arc::new(file);
        self.handles(node).push(Handle { file: file.clone(), flags });
        file
    }
    /// A handle of the file that does for an operation; opened if there is none.
    pub fn handle(&self, node: NodeId, place: Option<Place>, needed: Needed) -> Result<Arc<OwnedFd>> {
        let open = self.handles(node);
        let best = open.iter().find(|handle| needed.fits(handle.flags));
        if let Some(handle) = best {
            return Ok(handle.file.clone());
        }
        let any = open.iter().find(|handle| needed.may(handle.flags)).map(|handle| handle.file.clone());
        drop(open);
        match self.open(node, place, needed.opened(), OFlags::empty()) {
            Ok(file) => {
                self.beside.fetch_add(1, Ordering::Relaxed);
                Ok(file)
            }
            // It has no name any more, or may not be opened: better another handle than none.
            Err(error) => any.ok_or(error),
        }
    }
    /// Any handle that is open.
    pub fn any_handle(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        self.handles(node).first().map(|handle| handle.file.clone())
    }
    /// Takes the oldest handle out, to close it.
    pub fn take(&self, node: NodeId) -> Result<Arc<OwnedFd>> {
        let mut handles = self.handles(node);
        if handles.is_empty() { Err(Errno::BADF) } else { Ok(handles.remove(0).file) }
    }
    /// The flag by which calls are about a link itself.
    pub const NAME_ITSELF: AtFlags = AtFlags::SYMLINK_NOFOLLOW;
}

/// The flags of open(2).
pub fn open_flags(flags: Flags) -> OFlags {
    let access = match (flags.has(Flags::READ), flags.has(Flags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let pairs = [
        (Flags::APPEND, OFlags::APPEND),
        (Flags::DIRECT, OFlags::DIRECT),
        (Flags::DATA_SYNC, OFlags::DSYNC),
        (Flags::SYNC, OFlags::SYNC),
        (Flags::NO_ACCESS_TIME, OFlags::NOATIME),
    ];
    let chosen = pairs.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, flag)| flag);
    chosen.fold(access | OFlags::CLOEXEC | OFlags::NOFOLLOW, |all, flag| all | flag)
}
