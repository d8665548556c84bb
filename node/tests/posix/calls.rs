//! System calls that the standard library does not have.

#![allow(dead_code)] // Each test program uses its own part.

use std::ffi::{CStr, CString};
use std::fs::{DirEntry, File};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL")
}

fn done(result: i32) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// O_TMPFILE in a directory.
pub fn nameless(directory: &Path, flags: i32) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | flags).open(directory)
}

/// Gives an open file a name.
pub fn link_open(file: &File, path: &Path) -> Result<()> {
    let open = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL");
    let (path, here) = (c_path(path), libc::AT_FDCWD);
    // SAFETY: a call with strings that outlive it.
    done(unsafe { libc::linkat(here, open.as_ptr(), here, path.as_ptr(), libc::AT_SYMLINK_FOLLOW) })
}

/// renameat2.
pub fn rename_with(from: &Path, to: &Path, flags: u32) -> Result<()> {
    let (from, to, here) = (c_path(from), c_path(to), libc::AT_FDCWD);
    // SAFETY: a call with strings that outlive it.
    done(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// utimensat: access and modification time.
pub fn set_times(path: &Path, access: (i64, i64), modification: (i64, i64)) -> Result<()> {
    let times = [access, modification].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    let path = c_path(path);
    // SAFETY: a call with a string and two times that outlive it.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) })
}

/// The access time.
pub fn accessed(path: &Path) -> (i64, i64) {
    let found = std::fs::symlink_metadata(path).expect("stat");
    (found.atime(), found.atime_nsec())
}

/// A record lock, or a lock of the open file description; `length` 0: to the end of all files.
pub fn lock(file: &File, command: i32, kind: i32, start: i64, length: i64) -> Result<()> {
    let range =
        libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: length, l_pid: 0 };
    // SAFETY: a call with a structure that outlives it.
    done(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const range) })
}

/// An entry's name as bytes.
pub fn name_of(entry: &DirEntry) -> Vec<u8> {
    entry.file_name().as_bytes().to_vec()
}

/// Mapped memory.
pub struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn map(descriptor: i32, length: usize, flags: i32) -> Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address; nothing lies there.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Mapping { start: start.cast(), length })
    }
    /// A file's first bytes.
    pub fn of(file: &File, length: usize, flags: i32) -> Result<Mapping> {
        Mapping::map(file.as_raw_fd(), length, flags)
    }
    /// Memory that lies as direct I/O wants it.
    pub fn anonymous(length: usize) -> Mapping {
        Mapping::map(-1, length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).expect("memory")
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until dropped; the test changes the file between its looks, not during them.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
    /// Writes it back.
    pub fn sync(&self) {
        // SAFETY: what is mapped here.
        done(unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) }).expect("msync");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// A directory's stream, with positions.
pub struct Directory(*mut libc::DIR);

impl Directory {
    /// Opens a directory, at its start.
    pub fn open(path: &Path) -> Directory {
        let path = c_path(path);
        // SAFETY: a call with a string that outlives it.
        let stream = unsafe { libc::opendir(path.as_ptr()) };
        assert!(!stream.is_null(), "opendir: {}", Error::last_os_error());
        Directory(stream)
    }
    /// The next entry, and the position behind it.
    pub fn step(&mut self) -> Option<(String, i64)> {
        // SAFETY: the stream is open, and nobody else reads it; the entry is copied before the next call.
        unsafe {
            let entry = libc::readdir(self.0);
            if entry.is_null() {
                return None;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_string_lossy().into_owned();
            Some((name, libc::telldir(self.0)))
        }
    }
    /// Goes on from a position; 0 is the start.
    pub fn seek(&mut self, place: i64) {
        // SAFETY: the stream is open.
        unsafe { libc::seekdir(self.0, place) };
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { libc::closedir(self.0) };
    }
}
