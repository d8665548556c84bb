//! System calls that the standard library does not offer; errors are positive errnos.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/fuse";
/// Device number of `/dev/fuse`: the major number of misc devices, and its own minor.
pub const DEVICE_NUMBER: u64 = libc::makedev(10, 229);
/// `FUSE_DEV_IOC_CLONE`: _IOR(229, 0, u32).
const DEVICE_CLONE: libc::c_ulong = 0x8004_e500;

fn errno() -> i32 {
    errno_of(&io::Error::last_os_error())
}

/// The errno behind an error of the standard library; EIO if there is none.
pub fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Opens the device, not blocking.
pub fn open_device() -> Result<File, i32> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    options.open(DEVICE).map_err(|error| errno_of(&error))
}

/// Another descriptor of the connection of `first`, with its own list of requests in progress.
pub fn clone_device(first: &File) -> Result<File, i32> {
    let other = open_device()?;
    let source = first.as_raw_fd() as u32;
    // SAFETY: both descriptors are open, and the call reads the u32 that the pointer leads to.
    match unsafe { libc::ioctl(other.as_raw_fd(), DEVICE_CLONE, &raw const source) } {
        0 => Ok(other),
        _ => Err(errno()),
    }
}

/// mount(2).
pub fn mount(source: &CStr, path: &CStr, kind: &CStr, options: &CStr, flags: libc::c_ulong) -> Result<(), i32> {
    // SAFETY: all four are strings with their terminator that outlive the call.
    let result = unsafe { libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// umount2(2).
pub fn unmount(path: &CStr, flags: libc::c_int) -> Result<(), i32> {
    // SAFETY: the path is a string with its terminator that outlives the call.
    let result = unsafe { libc::umount2(path.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// Asks the file system at `path` for its space: a request that the kernel never answers from a cache.
pub fn probe(path: &CStr) -> Result<(), i32> {
    // SAFETY: all-zero bytes are a valid value of this plain structure of integers.
    let mut space: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a string with its terminator, the structure is writable, both outlive the call.
    let result = unsafe { libc::statfs(path.as_ptr(), &raw mut space) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// A number, never reused, of the mount at `path`; None before Linux 6.8. The file system itself is not asked.
pub fn unique_mount_id(path: &CStr) -> Option<u64> {
    // SAFETY: all-zero bytes are a valid value of this plain structure of integers.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path is a string with its terminator, the structure is writable, both outlive the call.
    let result =
        unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_MNT_ID_UNIQUE, &raw mut found) };
    (result == 0 && found.stx_mask & libc::STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id)
}

/// Blocks until the descriptor is readable (or broken); false when the time is over.
pub fn wait_readable(file: &File, timeout_ms: i32) -> Result<bool, i32> {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer leads to the one entry that is announced.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        -1 => Err(errno()),
        count => Ok(count > 0),
    }
}

/// The effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: these calls take nothing and can't fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}
