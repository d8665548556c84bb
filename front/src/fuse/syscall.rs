//! System calls that the standard library does not offer; errors are positive errnos.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getegid, geteuid};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

const DEVICE: &str = "/dev/fuse";
/// Device number of `/dev/fuse`: the major number of misc devices, and its own minor.
pub const DEVICE_NUMBER: u64 = libc::makedev(10, 229);
/// `FUSE_DEV_IOC_CLONE`.
const DEVICE_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

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
    // SAFETY: this call reads a u32, a descriptor's number, and changes nothing of this process's memory.
    let cloned = unsafe { ioctl::ioctl(&other, ioctl::Setter::<DEVICE_CLONE, u32>::new(source)) };
    cloned.map(|()| other).map_err(Errno::raw_os_error)
}

/// mount(2). The flags have 32 bits.
pub fn mount(source: &CStr, path: &CStr, kind: &CStr, options: &CStr, flags: libc::c_ulong) -> Result<(), i32> {
    let flags = MountFlags::from_bits_retain(u32::try_from(flags).expect("flags of mount(2) only"));
    rustix::mount::mount(source, path, kind, flags, options).map_err(Errno::raw_os_error)
}

/// umount2(2).
pub fn unmount(path: &CStr, flags: UnmountFlags) -> Result<(), i32> {
    rustix::mount::unmount(path, flags).map_err(Errno::raw_os_error)
}

/// Asks the file system at `path` for its space: a request that the kernel never answers from a cache.
pub fn probe(path: &CStr) -> Result<(), i32> {
    rustix::fs::statfs(path).map(|_| ()).map_err(Errno::raw_os_error)
}

/// A number, never reused, of the mount at `path`; None before Linux 6.8. The file system itself is not asked.
pub fn unique_mount_id(path: &CStr) -> Option<u64> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::from_bits_retain(libc::STATX_MNT_ID_UNIQUE);
    let found = rustix::fs::statx(CWD, path, flags, wanted).ok()?;
    (found.stx_mask & wanted.bits() != 0).then_some(found.stx_mnt_id)
}

/// Blocks until the descriptor is readable (or broken); false when the time is over.
pub fn wait_readable(file: &File, patience: Duration) -> Result<bool, i32> {
    let patience = Timespec::try_from(patience).expect("no more seconds than the kernel counts");
    let ready = poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&patience));
    ready.map(|count| count > 0).map_err(Errno::raw_os_error)
}

/// The effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}
