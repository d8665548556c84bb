//! What the daemon asks of the operating system beside the data path: signals, unmounting, the mount table, process
//! settings. The only file of this package that calls libc.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The signals that end a daemon, readable from a descriptor.
pub struct Signals(File);

impl Signals {
    /// Blocks SIGINT, SIGTERM and SIGHUP (unless `nohup` ignores it) for this thread and all that it starts, so
    /// that they are only read here. To be called before any thread is started.
    pub fn block() -> io::Result<Signals> {
        // SAFETY: sigset_t is plain data that sigemptyset initialises; every pointer is to a live local.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            let mut hangup: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut hangup);
            if hangup.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut set, libc::SIGHUP);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let descriptor = libc::signalfd(-1, &set, libc::SFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals(File::from_raw_fd(descriptor)))
        }
    }
    /// Waits for the next signal; returns its name.
    pub fn wait(&mut self) -> io::Result<&'static str> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        self.0.read_exact(&mut info)?;
        // The number is the structure's first field.
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32;
        Ok(match number {
            libc::SIGINT => "SIGINT",
            libc::SIGTERM => "SIGTERM",
            _ => "SIGHUP",
        })
    }
}

/// Ends this process by SIGPIPE when whoever reads its output goes away, as other commands do (`| head`). For
/// commands, not for daemons.
pub fn end_on_broken_pipe() {
    // SAFETY: sets a disposition; no handler of ours is involved.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Files that this process makes are for its user only.
pub fn make_files_private() {
    // SAFETY: umask takes and returns plain numbers and can't fail.
    unsafe {
        libc::umask(0o077);
    }
}

/// Tells the kernel that writing back dirty pages may depend on this process, so that its own allocations never wait
/// for such writes (rule F5). Best effort: needs CAP_SYS_RESOURCE.
pub fn become_io_flusher() -> bool {
    /// Number of the request in Linux's <sys/prctl.h>; the libc crate has no name for it.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: prctl with plain numbers.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0 }
}

/// Unmounts what is mounted at `point`; `lazy`: also when it is in use.
pub fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let path = CString::new(point.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a terminated string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// One line of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// Where.
    pub point: PathBuf,
    /// File system type, such as `fuse.sinter`.
    pub kind: String,
    /// What is mounted, as its server named it.
    pub source: String,
}

/// The mount table of this process.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse_mount).collect())
}

/// What is mounted at exactly `point`, an absolute path: the topmost, if several are.
pub fn mounted_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|entry| entry.point == point))
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw`: the optional fields before the dash vary.
fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|&field| field == b"-")?;
    Some(MountEntry {
        point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: String::from_utf8_lossy(&unescape(fields.get(dash + 2)?)).into_owned(),
    })
}

/// The kernel writes space, tab, line end and backslash as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value = octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value {
            Some(value) => {
                bytes.push(value as u8);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_understood() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134c rw,noatime shared:1 master:2 - fuse.sinter default rw,user_id=0";
        let entry = MountEntry { point: "/mnt/a b\\c".into(), kind: "fuse.sinter".into(), source: "default".into() };
        assert_eq!(parse_mount(line), Some(entry));
        assert_eq!(parse_mount(b"36 35 98:0 / /x rw"), None);
        assert_eq!(parse_mount(b""), None);
        assert_eq!(unescape(b"a\\04"), b"a\\04");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounted_at(Path::new("/")).expect("/proc is mounted").is_some());
        assert_eq!(mounted_at(Path::new("/proc/self")).expect("/proc is mounted"), None);
    }

    #[test]
    fn unmounting_nothing_is_an_error() {
        let error = unmount(Path::new("/proc/self"), false).expect_err("no mount point");
        assert!(error.raw_os_error().is_some());
        assert!(unmount(Path::new("/a\0b"), false).is_err());
    }
}
