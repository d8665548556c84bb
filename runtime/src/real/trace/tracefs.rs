//! The file system in which the kernel describes its tracepoints, tracefs. One that is mounted already is used; else one is
//! made that is mounted nowhere, so nobody sees it, and it goes with its descriptor. Nothing is ever written to it.
//!
//! The mounted one comes first because there is one tracefs per machine: making another mount of it, visible or not, resets
//! the options that the first one shows.

use base::{Error, Kind, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

/// The places where distributions mount it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Longest description that is read: the longest of Linux 6.18 has 14 KiB.
const DESCRIPTION_BYTES_MAX: u64 = 256 << 10;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory of all tracepoints.
pub(super) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Finds it. Errors: `Host` if the kernel has none, or gives it to others only.
    pub fn open() -> Result<Tracefs> {
        Tracefs::open_at(&PLACES)
    }
    fn open_at(places: &[&str]) -> Result<Tracefs> {
        let mounted = places.iter().find_map(|place| events(openat(CWD, *place, DIRECTORY, Mode::empty()).ok()?).ok());
        let found = mounted.map_or_else(detached, Ok);
        found.map(Tracefs).map_err(refused)
    }
    /// The description of a tracepoint; None if this kernel has no such one.
    pub fn description(&self, subsystem: &str, name: &str) -> Result<Option<String>> {
        let path = format!("{subsystem}/{name}/format");
        let file = match openat(&self.0, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => File::from(opened.map_err(refused)?),
        };
        let mut text = String::new();
        let read = file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text);
        let unreadable = "the kernel's description of a tracepoint can't be read";
        read.map_err(|error| Error::new(Kind::Host, unreadable).with(path).with(error))?;
        Ok(Some(text))
    }
}

fn events(root: impl AsFd) -> rustix::io::Result<OwnedFd> {
    openat(root, "events", DIRECTORY, Mode::empty())
}

/// A tracefs that is mounted nowhere.
fn detached() -> rustix::io::Result<OwnedFd> {
    let made = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&made)?;
    let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    events(fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, read_only)?)
}

fn refused(errno: Errno) -> Error {
    let what = match errno {
        Errno::PERM | Errno::ACCESS => {
            "the kernel's tracepoints are refused to this process: it must run as root of the host (CAP_SYS_ADMIN), with no \
             lockdown and no seccomp filter against it"
        }
        Errno::NODEV | Errno::NOENT | Errno::NOSYS => {
            "the kernel has no tracepoints: one with CONFIG_TRACING is needed"
        }
        _ => "the kernel's tracepoints can't be found: look at the kernel's log",
    };
    Error::new(Kind::Host, what).with(std::io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::trace::tests::powerless;

    #[test]
    fn tracepoints_are_found_without_a_mount() {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        let before = mounts();
        let tracefs = Tracefs::open_at(&[]).expect("the tests run as root, on a kernel with tracepoints");
        let text = tracefs.description("block", "block_rq_issue").expect("readable").expect("known");
        assert!(text.contains("name: block_rq_issue") && text.contains("print fmt:"), "{text}");
        assert_eq!(tracefs.description("block", "block_rq_fly").expect("looked up"), None);
        assert_eq!(mounts(), before);
    }

    #[test]
    fn a_place_without_tracefs_is_passed_over() {
        Tracefs::open_at(&["/proc/self/no-such-place", "/proc", "/dev/null"]).expect("a detached one is made");
    }

    #[test]
    fn without_the_right_it_says_what_is_needed() {
        let refused = powerless(|| Tracefs::open_at(&[]).map(drop)).expect_err("no capabilities");
        assert!(refused.kind == Kind::Host && refused.to_string().contains("CAP_SYS_ADMIN"), "{refused}");
    }
}
