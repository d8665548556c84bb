//! The brick's directory: its lock, its open files, and the calls that change names and lengths (all blocking).

use super::block_device;
use super::directory::{Access, Directory};
use crate::disk::{FileId, OpenMode, is_device};
use base::{Error, Kind, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fstatvfs};
use rustix::io::{DupFlags, Errno, dup3, retry_on_intr};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit, test_kill_process};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The lock file's name; it is not one of the brick's files.
const LOCK: &str = "lock";
/// Longest time that the kernel may take to end the I/O of a killed process, whose rings hold the lock until then (rule
/// L4).
const GHOST_MAX: Duration = Duration::from_secs(10);

pub(super) struct Files {
    directory: Directory,
    /// Paths of block devices that somebody gave; links lead to the others.
    told: BTreeMap<String, PathBuf>,
    read_only: bool,
    lock: Mutex<Option<File>>,
    table: Mutex<Vec<OpenFile>>,
}

struct OpenFile {
    name: String,
    file: OwnedFd,
    writable: bool,
    /// See `Disk::mark_disk`.
    is_disk: bool,
}

/// The facts about a file that an I/O needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle {
    pub fd: RawFd,
    pub writable: bool,
    pub is_disk: bool,
}

pub(super) fn failed(what: &'static str, error: &std::io::Error) -> Error {
    Error::os(what, error.raw_os_error().unwrap_or(libc::EIO))
}

impl Files {
    /// Takes the directory's lock. Errors: `Busy` when another process or instance has it.
    pub fn of_directory(directory: Directory, told: BTreeMap<String, PathBuf>, read_only: bool) -> Result<Files> {
        let lock = Mutex::new(lock(&directory, read_only)?);
        Ok(Files { directory, told, read_only, lock, table: Mutex::default() })
    }
    /// The lock's descriptor, for rings to hold.
    pub fn lock_fd(&self) -> Option<RawFd> {
        self.lock.lock().expect("no panic while held").as_ref().map(File::as_raw_fd)
    }
    /// Releases the brick's lock; to be called when no I/O can come any more.
    pub fn unlock(&self) {
        self.lock.lock().expect("no panic while held").take();
    }
    /// See `Disk::open`.
    pub fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        check_name(name)?;
        if self.read_only && mode == OpenMode::Create {
            return Err(Error::new(Kind::ReadOnly, "the brick is open for reading only").with(name));
        }
        let mut table = self.table.lock().expect("no panic while held");
        let known = table.iter().position(|open| open.name == name);
        if is_device(name) {
            return self.open_device(&mut table, (name, known), mode);
        }
        let at = |error: &std::io::Error| failed("a file of the brick cannot be opened", error).with(name);
        if mode == OpenMode::Create {
            // Made without O_DIRECT first: a file system that refuses the flag does so after it made the file.
            self.directory.file(name, Access::Create)?;
            assert!(known.is_none(), "a file that was open has vanished: {name}");
        }
        let writable = mode != OpenMode::ReadOnly && !self.read_only;
        match known {
            Some(known) if table[known].writable || !writable => return Ok(FileId(known as u32)),
            _ => {}
        }
        let file = open_direct(&self.directory, name, writable)?;
        match known {
            Some(known) => {
                replace(&mut table[known].file, &file).map_err(|error| at(&error))?;
                table[known].writable = true;
                Ok(FileId(known as u32))
            }
            None => {
                table.push(OpenFile { name: name.to_string(), file: file.into(), writable, is_disk: false });
                Ok(FileId(table.len() as u32 - 1))
            }
        }
    }
    fn open_device(
        &self,
        table: &mut Vec<OpenFile>,
        (name, known): (&str, Option<usize>),
        mode: OpenMode,
    ) -> Result<FileId> {
        assert!(mode != OpenMode::Create, "a device is there or not");
        if let Some(known) = known {
            return Ok(FileId(known as u32));
        }
        let writable = mode != OpenMode::ReadOnly && !self.read_only;
        let path = self.told.get(name).cloned().map_or_else(|| self.linked_device(name), Ok)?;
        let file = block_device::open(&path, writable)?;
        table.push(OpenFile { name: name.to_string(), file: file.into(), writable, is_disk: false });
        Ok(FileId(table.len() as u32 - 1))
    }
    /// See `Disk::mark_disk`.
    pub fn mark_disk(&self, file: FileId) {
        let mut table = self.table.lock().expect("no panic while held");
        table.get_mut(file.0 as usize).expect("a file id comes from open").is_disk = true;
    }
    /// See `Disk::close`.
    pub fn close(&self, file: FileId) {
        let mut table = self.table.lock().expect("no panic while held");
        let open = table.get_mut(file.0 as usize).expect("a file id comes from open");
        assert!(is_device(&open.name), "the brick's own files stay open");
        // Its number stays taken, and leads to nothing that could be harmed.
        if let Ok(instead) = self.directory.fd().try_clone_to_owned() {
            (open.file, open.writable) = (instead, false);
        }
        open.name.clear();
    }
    /// The path in the directory's link to a device. Links of devices are the only ones that are followed, and their
    /// owner is checked.
    fn linked_device(&self, name: &str) -> Result<PathBuf> {
        let named = self.directory.path().join(name);
        let not_found = |error: std::io::Error| block_device::not_found(&named, &error);
        if !self.directory.owns(name).map_err(not_found)? {
            let what = "the link to the brick's block device belongs to another user: remove it, and give --device";
            return Err(Error::new(Kind::Permission, what).with(named.display()));
        }
        std::fs::canonicalize(self.directory.at(name)).map_err(not_found)
    }
    /// Descriptor and mode of an open file.
    pub fn handle(&self, file: FileId) -> Handle {
        let table = self.table.lock().expect("no panic while held");
        let open = table.get(file.0 as usize).expect("a file id comes from open");
        Handle { fd: open.file.as_raw_fd(), writable: open.writable, is_disk: open.is_disk }
    }
    /// The name of an open file, for messages.
    pub fn name(&self, file: FileId) -> String {
        let table = self.table.lock().expect("no panic while held");
        table.get(file.0 as usize).expect("a file id comes from open").name.clone()
    }
    /// Names of the brick's files, see `Disk::list`. The lock and directories (the index lives in one) are not among
    /// them.
    pub fn list(&self) -> Result<Vec<String>> {
        let at = |error: &std::io::Error| failed("the brick's directory cannot be read", error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.directory.at("")).map_err(|error| at(&error))? {
            let entry = entry.map_err(|error| at(&error))?;
            let is_file = entry.file_type().map_err(|error| at(&error))?.is_file();
            if let Ok(name) = entry.file_name().into_string()
                && is_file
                && name != LOCK
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
    /// Another descriptor of an open file.
    pub fn copy(&self, file: FileId) -> Result<File> {
        let table = self.table.lock().expect("no panic while held");
        let open = table.get(file.0 as usize).expect("a file id comes from open");
        let copy = open.file.try_clone().map(File::from);
        copy.map_err(|error| failed("no descriptor left", &error).with(&open.name))
    }
    /// See `Disk::length`.
    pub fn length(&self, file: FileId) -> Result<u64> {
        let mut copy = self.copy(file)?;
        // A device's metadata knows no length. Nothing else uses the position.
        let length =
            if self.is_device(file) { copy.seek(SeekFrom::End(0)) } else { copy.metadata().map(|data| data.len()) };
        length.map_err(|error| failed("no length", &error).with(self.name(file)))
    }
    fn is_device(&self, file: FileId) -> bool {
        is_device(&self.name(file))
    }
    /// See `Disk::discard`.
    pub fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        if !self.is_device(file) {
            return Err(Error::new(Kind::Unsupported, "only devices are told what nobody needs").with(self.name(file)));
        }
        block_device::discard(&self.copy(file)?, offset, bytes)
    }
    /// See `Disk::allocate`.
    pub fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        if !self.handle(file).writable {
            return Err(Error::new(Kind::ReadOnly, "the file is open for reading only").with(self.name(file)));
        }
        if self.is_device(file) {
            return Err(Error::new(Kind::Unsupported, "a device has the length that it has"));
        }
        let copy = self.copy(file)?;
        if i64::try_from(bytes).is_err() {
            return Err(Error::new(Kind::TooLarge, "no file has this many bytes"));
        }
        retry_on_intr(|| fallocate(&copy, FallocateFlags::empty(), 0, bytes)).map_err(|error| {
            let what = match error {
                Errno::OPNOTSUPP => "this file system cannot reserve space (fallocate): use XFS or ext4",
                _ => "space cannot be reserved",
            };
            failed(what, &error.into()).with(self.name(file)).with(format_args!("{bytes} bytes"))
        })
    }
    /// See `Disk::release`.
    pub fn release(&self, file: FileId) -> Result<()> {
        assert!(!self.is_device(file), "a device has the length that it has");
        let emptied = self.copy(file)?.set_len(0);
        emptied.map_err(|error| failed("its space cannot be given back", &error).with(self.name(file)))
    }
    /// See `Disk::sync_names`.
    pub fn sync_names(&self) -> Result<()> {
        self.directory.sync().map_err(|error| failed("the brick's directory cannot be synced", &error))
    }
    /// See `Disk::free_bytes`.
    pub fn free_bytes(&self) -> Result<u64> {
        let figures = fstatvfs(self.directory.fd())
            .map_err(|error| failed("free space of the brick's file system is unknown", &error.into()))?;
        Ok(figures.f_bavail * figures.f_frsize)
    }
}

fn check_name(name: &str) -> Result<()> {
    let bad = name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | ".." | LOCK);
    if bad { Err(Error::new(Kind::Invalid, "not a name of a file of the brick").with(name)) } else { Ok(()) }
}

/// Opens a file, bypassing the page cache if the file system can do that. Durable writes and flushes mean the same
/// either way.
fn open_direct(directory: &Directory, name: &str, writable: bool) -> Result<File> {
    let access = if writable { Access::Write } else { Access::Read };
    match directory.try_file(name, access, OFlags::DIRECT)? {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => directory.file(name, access),
        opened => opened.map_err(|error| failed("a file of the brick cannot be opened", &error).with(name)),
    }
}

/// Makes the old descriptor's number lead to the new file: cores have that number in their caches.
fn replace(old: &mut OwnedFd, new: &File) -> std::io::Result<()> {
    Ok(dup3(new, old, DupFlags::CLOEXEC)?)
}

/// Takes the brick's lock: exclusive to change it, shared to read it. A reader needs none if there is no lock file.
fn lock(directory: &Directory, read_only: bool) -> Result<Option<File>> {
    let path = directory.path().join(LOCK);
    let opened = match directory.file(LOCK, if read_only { Access::Read } else { Access::Write }) {
        Err(error) if read_only && error.kind == Kind::NotFound => return Ok(None),
        // Two that make it at once find one file.
        Err(error) if error.kind == Kind::NotFound => match directory.file(LOCK, Access::Create) {
            Err(error) if error.kind == Kind::Exists => directory.file(LOCK, Access::Write),
            made => made,
        },
        opened => opened,
    };
    let mut file = opened?;
    let start = Instant::now();
    loop {
        let tried = if read_only { file.try_lock_shared() } else { file.try_lock() };
        match tried {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(error)) => {
                return Err(failed("the brick's lock cannot be taken", &error).with(path.display()));
            }
        }
        let holder = holder(&mut file);
        let gone = holder.is_some_and(is_gone);
        if gone && start.elapsed() < GHOST_MAX {
            // The process was killed, and its I/O is still being ended.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let busy = Error::new(Kind::Busy, "brick is in use by another daemon").with(directory.path().display());
        return Err(match holder {
            Some(pid) if !gone => busy.with(format_args!("process {pid}")),
            _ => busy,
        });
    }
    if !read_only {
        sign(&mut file).map_err(|error| failed("the brick's lock cannot be written", &error).with(path.display()))?;
    }
    Ok(Some(file))
}

/// The process that wrote the lock file last.
fn holder(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|&pid| pid > 0)
}

fn is_gone(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Writes this process's number into the lock file. For messages only, hence not synced.
fn sign(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Raises this process's limit of open files as far as permitted: a brick has a file per GiB.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If it is refused, the limit stays, and opening too many files says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
