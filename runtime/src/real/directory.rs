//! A directory that is opened once, and the files in it. Promises that its holder can't be led elsewhere: it belongs to
//! root or to the caller, nobody else can change its names, and files opened in it are regular files or directories,
//! never the targets of links. The directories above it are their owners' responsibility.

use super::files::failed;
use base::{Error, Kind, Result};
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;
/// The sticky bit: only its owner may remove or rename an entry.
const STICKY: u32 = Mode::SVTX.bits();
/// Flags to make a file that does not exist yet.
const CREATE_NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL);

/// Longest time that a killed process may take to release a directory: it closes its files one after the other, and the
/// brick's lock may be among the first.
const HELD_MAX: Duration = Duration::from_secs(1);

/// The mode of opening a file of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The file exists, and is only read.
    Read,
    /// The file exists, and may be written.
    Write,
    /// The file does not exist yet; it is created and may be written.
    Create,
    /// The file is created if it does not exist; writes go to its end.
    Append,
}

/// The rights of other users in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// They may add entries, but not touch existing ones (the sticky bit).
    MayAdd,
    /// They may change nothing.
    MayNot,
}

/// An open directory; see the module. Clones are the same open directory.
#[derive(Clone, Debug)]
pub struct Directory {
    file: Arc<File>,
    path: Arc<Path>,
}

impl Directory {
    /// Opens a directory. Errors: `NotFound`, `NotDirectory` (also for a symbolic link to one), `Permission` if it
    /// belongs to somebody else, or if others may change its entries.
    pub fn open(path: &Path) -> Result<Directory> {
        let at = |error: &std::io::Error| failed("the directory cannot be opened", error).with(path.display());
        // Links above it are followed once, here; the last name is not.
        let whole = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                parent.canonicalize().map_err(|error| at(&error))?.join(name)
            }
            _ => path.canonicalize().map_err(|error| at(&error))?,
        };
        let opened = open_at(CWD, whole.as_os_str(), OFlags::RDONLY | OFlags::DIRECTORY);
        let file = opened.map_err(|error| match std::fs::read_link(&whole) {
            Ok(target) => {
                let what = "a symbolic link is not followed to a directory: name the directory itself";
                Error::new(Kind::NotDirectory, what).with(path.display()).with(target.display())
            }
            Err(_) => at(&error),
        })?;
        Directory::vetted(file, &whole, Others::MayAdd)
    }
    /// The directory that holds a file, and the file's name. Errors: as `open`; `Invalid` for a path that names no
    /// file.
    pub fn of_file(path: &Path) -> Result<(Directory, &OsStr)> {
        let nothing = || Error::new(Kind::Invalid, "the path names no file").with(path.display());
        let name = path.file_name().ok_or_else(nothing)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Directory::open(parent.unwrap_or(Path::new(".")))?, name))
    }
    /// Opens a directory in it in which others may change nothing, so that its files can safely be opened by path.
    /// Errors: as `open`.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Directory> {
        let path = self.path.join(name.as_ref());
        let opened = open_at(self.fd(), name.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY);
        let file = opened.map_err(|error| failed("a directory cannot be opened", &error).with(path.display()))?;
        Directory::vetted(file, &path, Others::MayNot)
    }
    fn vetted(file: File, path: &Path, others: Others) -> Result<Directory> {
        let found = file.metadata().map_err(|error| failed("a directory tells nothing of itself", &error))?;
        if !is_trusted(&found) {
            let what = "the directory belongs to another user, who could put links into it: give it to root or to who \
                        runs this (chown), or use another one";
            return Err(Error::new(Kind::Permission, what).with(path.display()).with(owner(&found)));
        }
        let may_add = others == Others::MayAdd && found.mode() & STICKY != 0;
        if found.mode() & OTHERS_WRITE != 0 && !may_add {
            let what =
                "others may write in the directory, and could put links into it: take that from them (chmod go-w)";
            let mode = format_args!("mode {:04o}", found.mode() & 0o7777).to_string();
            return Err(Error::new(Kind::Permission, what).with(path.display()).with(mode));
        }
        Ok(Directory { file: Arc::new(file), path: path.into() })
    }
    /// Its path when it was opened, without links: for messages, and to compare.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// A path for calls that take no descriptor. It leads through this open directory, wherever its own path leads by
    /// now, and is valid as long as the directory is open.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string()).join(name)
    }
    /// Opens a file. Errors: those of opening; `Permission` if it is no regular file, belongs to somebody else or, for
    /// writing, has other names.
    pub fn file(&self, name: impl AsRef<OsStr>, access: Access) -> Result<File> {
        let name = name.as_ref();
        let opened = self.try_file(name, access, OFlags::empty())?;
        opened.map_err(|error| failed("a file cannot be opened", &error).with(self.path.join(name).display()))
    }
    /// Opens a file with more flags of open(2). The inner result is that of open(2).
    pub(super) fn try_file(
        &self,
        name: impl AsRef<OsStr>,
        access: Access,
        flags: OFlags,
    ) -> Result<std::io::Result<File>> {
        let name = name.as_ref();
        let open = |more: OFlags| {
            // Not to be held up by a pipe.
            open_at(self.fd(), name, flags | more | OFlags::NONBLOCK | OFlags::NOCTTY)
        };
        let opened = match access {
            Access::Read => open(OFlags::RDONLY),
            Access::Write => open(OFlags::RDWR),
            Access::Create => open(OFlags::RDWR | CREATE_NEW),
            Access::Append => open_or_make(|more| open(OFlags::WRONLY | OFlags::APPEND | more)),
        };
        let looked = match opened {
            // A link; a pipe that nobody reads, or a socket; a directory.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO | libc::EISDIR)) => {
                return Err(self.no_file(name));
            }
            Err(error) => return Ok(Err(error)),
            Ok(file) => file.metadata().and_then(|found| wait_for_it(&file).map(|()| (file, found))),
        };
        match looked {
            Ok((file, found)) => self.check_file(name, &found, access).map(|()| Ok(file)),
            Err(error) => Ok(Err(error)),
        }
    }
    fn no_file(&self, name: &OsStr) -> Error {
        let what = "a link, a pipe or something else that is no regular file has the name of a file: remove it";
        Error::new(Kind::Permission, what).with(self.path.join(name).display())
    }
    fn check_file(&self, name: &OsStr, found: &Metadata, access: Access) -> Result<()> {
        let refused = |what| Err(Error::new(Kind::Permission, what).with(self.path.join(name).display()));
        if !found.is_file() {
            return Err(self.no_file(name));
        }
        if !is_trusted(found) {
            let what = "a file belongs to another user: remove it, or give it to root or to who runs this (chown)";
            return refused(what).map_err(|error| error.with(owner(found)));
        }
        // Whatever the other name is of would be overwritten.
        if access != Access::Read && found.nlink() > 1 {
            return refused("a file that is to be written has another name too (a hard link): put a copy in its place");
        }
        Ok(())
    }
    /// True if an entry of this name exists and belongs to root or the caller. Of a link, the link itself counts; it is
    /// not followed.
    pub fn owns(&self, name: impl AsRef<Path>) -> std::io::Result<bool> {
        self.at(name).symlink_metadata().map(|found| is_trusted(&found))
    }
    /// Refuses a directory with an entry that is no regular file. For libraries that open its files by path.
    pub fn check_regular(&self) -> Result<()> {
        let at = |error: &std::io::Error| failed("a directory cannot be read", error).with(self.path.display());
        for entry in std::fs::read_dir(self.at("")).map_err(|error| at(&error))? {
            let entry = entry.map_err(|error| at(&error))?;
            // What goes away meanwhile needs no look.
            if let Ok(found) = entry.metadata() {
                self.check_file(&entry.file_name(), &found, Access::Read)?;
            }
        }
        Ok(())
    }
    /// Locks the directory against others that call this, until all its clones are dropped. True if nobody else had it.
    /// Waits a moment for a killed process that is still releasing what it held.
    pub fn hold(&self) -> Result<bool> {
        let start = Instant::now();
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(true),
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() > HELD_MAX => return Ok(false),
                Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(failed("a directory cannot be locked", &error).with(self.path.display()));
                }
            }
        }
    }
    /// Makes its names durable.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }
    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens without following a link. A file that this makes is its owner's only.
fn open_at(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> std::io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Clears O_NONBLOCK: the file was opened with it so that a pipe in its place can't block us, but requests of rings
/// must wait.
fn wait_for_it(file: &File) -> std::io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)?.difference(OFlags::NONBLOCK))?)
}

/// True if it belongs to root or to the user who runs this.
fn is_trusted(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == geteuid().as_raw()
}

fn owner(found: &Metadata) -> String {
    format!("user {}", found.uid())
}

/// Opens an existing file, or creates it. Others who do the same at the same moment may be first, or remove it again;
/// the loser tries once more.
fn open_or_make(open: impl Fn(OFlags) -> std::io::Result<File>) -> std::io::Result<File> {
    // Nobody loses that often by chance.
    for _ in 0..100 {
        match open(OFlags::empty()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match open(CREATE_NEW) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    open(CREATE_NEW)
}

#[cfg(test)]
mod tests;
