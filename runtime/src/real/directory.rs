//! A directory that is opened once, and the files in it. Promises that its holder can't be led elsewhere: it belongs to
//! root or to the caller, nobody else can change its names, and files opened in it are regular files or directories,
//! never the targets of links. The directories above it are their owners' responsibility.

use super::files::failed;
use base::{Error, Kind, Result};
use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;
/// The sticky bit: only its owner may remove or rename an entry.
const STICKY: u32 = libc::S_ISVTX;

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
        let opened = open_at(libc::AT_FDCWD, whole.as_os_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
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
        let opened = open_at(self.fd(), name.as_ref(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
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
        let opened = self.try_file(name, access, 0)?;
        opened.map_err(|error| failed("a file cannot be opened", &error).with(self.path.join(name).display()))
    }
    /// Opens a file with more flags of open(2). The inner result is that of open(2).
    pub(super) fn try_file(
        &self,
        name: impl AsRef<OsStr>,
        access: Access,
        flags: i32,
    ) -> Result<std::io::Result<File>> {
        let name = name.as_ref();
        let open = |more: i32| {
            // Not to be held up by a pipe.
            open_at(self.fd(), name, flags | more | libc::O_NONBLOCK | libc::O_NOCTTY, 0o600)
        };
        let opened = match access {
            Access::Read => open(libc::O_RDONLY),
            Access::Write => open(libc::O_RDWR),
            Access::Create => open(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL),
            Access::Append => open_or_make(|more| open(libc::O_WRONLY | libc::O_APPEND | more)),
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
    pub(super) fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Opens without following a link.
fn open_at(directory: i32, name: &OsStr, flags: i32, mode: u32) -> std::io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name is a terminated string that outlives the call; the directory is open, or the working directory.
    match unsafe { libc::openat(directory, name.as_ptr(), flags, mode) } {
        descriptor if descriptor >= 0 => {
            // SAFETY: a descriptor that was just made, and that nobody else knows.
            Ok(unsafe { File::from_raw_fd(descriptor) })
        }
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Clears O_NONBLOCK: the file was opened with it so that a pipe in its place can't block us, but requests of rings
/// must wait.
fn wait_for_it(file: &File) -> std::io::Result<()> {
    // SAFETY: system calls without pointers, on an open descriptor.
    let result = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) }
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// True if it belongs to root or to the user who runs this.
fn is_trusted(found: &Metadata) -> bool {
    // SAFETY: geteuid can't fail.
    found.uid() == 0 || found.uid() == unsafe { libc::geteuid() }
}

fn owner(found: &Metadata) -> String {
    format!("user {}", found.uid())
}

/// Opens an existing file, or creates it. Others who do the same at the same moment may be first, or remove it again;
/// the loser tries once more.
fn open_or_make(open: impl Fn(i32) -> std::io::Result<File>) -> std::io::Result<File> {
    // Nobody loses that often by chance.
    for _ in 0..100 {
        match open(0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match open(libc::O_CREAT | libc::O_EXCL) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    open(libc::O_CREAT | libc::O_EXCL)
}

#[cfg(test)]
mod tests;
