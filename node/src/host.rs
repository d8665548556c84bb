//! The daemon's use of the operating system beside the data path: signals, unmounting, the mount table, process
//! settings. The only file of this package that calls the kernel by hand.

use base::{Error, Kind};
use runtime::real::{Access, Directory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, lstat, sync};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use rustix::process::{
    configure_io_flusher_behavior, geteuid, getpid, getppid, getrlimit, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setrlimit, setsid, umask,
};
use rustix::stdio::dup2_stderr;
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::thread::{capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The signals that a daemon acts on, readable from a descriptor.
pub struct Signals(File);

impl Signals {
    /// Blocks SIGINT, SIGTERM and SIGHUP for this thread and all that it starts, so that they are only read here. A SIGHUP that
    /// whoever started this ignores (`nohup`) stays ignored if it would end the daemon: on a terminal. To be called before any
    /// thread is started.
    pub fn block() -> io::Result<Signals> {
        // SAFETY: sigset_t is plain data that sigemptyset initialises; every pointer is to a live local.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            let mut hangup: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut hangup);
            if hangup.sa_sigaction != libc::SIG_IGN || !io::stderr().is_terminal() {
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
    /// Waits until a signal has come, not longer than `patience`; whether one has. It is left for `wait`.
    pub fn comes_within(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).ok();
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], patience.as_ref())? > 0)
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
    dispose(libc::SIGPIPE, libc::SIG_DFL);
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail with EFBIG, instead of ending the process.
pub fn let_large_files_fail() {
    dispose(libc::SIGXFSZ, libc::SIG_IGN);
}

/// Has the kernel deal with a signal: `SIG_DFL` or `SIG_IGN`.
fn dispose(signal: libc::c_int, disposition: libc::sighandler_t) {
    assert!(matches!(disposition, libc::SIG_DFL | libc::SIG_IGN), "nothing of ours handles signals");
    // SAFETY: no code of this process runs on the signal.
    unsafe {
        libc::signal(signal, disposition);
    }
}

/// Refuses a limit of the address space (`ulimit -v`) in which a daemon's memory has no room: it would end at some
/// allocation.
pub fn check_address_space(memory_max: u64) -> base::Result<()> {
    /// Stacks, the program itself, and what allocators set aside.
    const BESIDE_BYTES: u64 = 1 << 30;
    let needed = memory_max.saturating_add(BESIDE_BYTES);
    match getrlimit(Resource::As).current {
        Some(is) if is < needed => {
            let what =
                "the limit of the address space is too low: raise it (ulimit -v unlimited), or lower --memory-max";
            Err(Error::new(Kind::Host, what).with(format_args!("{is} bytes, {needed} are needed")))
        }
        _ => Ok(()),
    }
}

/// Allows this process as many open files as it may have at most. Where that fails, it has as many as before.
pub fn open_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Refuses a limit of a file's size (`ulimit -f`) below what a brick's files have, where it can't be raised: a brick that meets
/// it takes no more changes.
pub fn check_file_size() -> base::Result<()> {
    // Of the largest file, which keeps room for the index; those of segments have a GiB.
    const NEEDED: u64 = base::limits::BALLAST_BYTES_MAX;
    let low = |limit: Option<u64>| limit.filter(|&bytes| bytes < NEEDED);
    let limit = getrlimit(Resource::Fsize);
    if low(limit.current).is_none() {
        return Ok(());
    }
    let raised = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
    if raised.is_ok() && low(limit.maximum).is_none() {
        return Ok(());
    }
    let what = "the limit of a file's size is too low: raise it (ulimit -f unlimited)";
    let is = limit.maximum.unwrap_or(u64::MAX);
    Err(Error::new(Kind::Host, what).with(format_args!("{is} bytes, {NEEDED} are needed")))
}

/// Refuses a process that may not mount.
pub fn check_may_mount() -> base::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    match effective {
        Some(mask) if !CapabilitySet::from_bits_retain(mask).contains(CapabilitySet::SYS_ADMIN) => {
            let what = "mounting needs root (CAP_SYS_ADMIN): run it as root, or as the service sinter@NAME";
            Err(Error::new(Kind::Permission, what))
        }
        _ => Ok(()),
    }
}

/// True if a directory holds anything. A directory that can't be listed is checked by whoever uses it.
pub fn is_not_empty(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

/// True if a path is an empty regular file, by lstat(2). The standard library asks for the birth time too, which costs
/// a mount by FUSE one more request.
pub fn is_empty_file(path: &Path) -> io::Result<bool> {
    let found = lstat(path)?;
    Ok(FileType::from_raw_mode(found.st_mode).is_file() && found.st_size == 0)
}

/// Files that this process makes are for its user only.
pub fn make_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Tells the kernel that writing back dirty pages may depend on this process, so that its own allocations never wait
/// for such writes (rule F5). Best effort: needs CAP_SYS_RESOURCE.
pub fn become_io_flusher() -> bool {
    configure_io_flusher_behavior(true).is_ok()
}

/// Capabilities of root that a daemon keeps, each with its reason.
const KEPT: CapabilitySet = CapabilitySet::empty()
    // To reach bricks, devices and mount points that lie in other users' directories;
    .union(CapabilitySet::DAC_OVERRIDE)
    // to mount and unmount, for as long as it runs: volumes come and go by the admin socket;
    .union(CapabilitySet::SYS_ADMIN)
    // to have its cores run before others on their CPUs, for clients wait for them;
    .union(CapabilitySet::SYS_NICE)
    // to use what the host's file system keeps for root, where an index that must go on would fail with ENOSPC.
    .union(CapabilitySet::SYS_RESOURCE);

/// Drops all capabilities but those that a daemon needs, and the ways to get some again. To be called before any
/// thread is started: capabilities belong to threads. A user who has none loses none.
pub fn drop_privileges() -> io::Result<()> {
    // Without CAP_SETPCAP, and for numbers that this kernel does not know, it fails and is not needed: what has no
    // new privileges gets nothing from the bounding set. A kernel may know more than have a name here.
    let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in all.filter(|&capability| !KEPT.contains(capability)) {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let has = capabilities(None)?;
    let (effective, permitted) = (has.effective & KEPT, has.permitted & KEPT);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(set_no_new_privs(true)?)
}

/// True if the process at the other end of a socket may tell this process what to do: its own user, and root.
pub fn is_trusted(peer: &UnixStream) -> io::Result<bool> {
    let user = user_of(peer)?;
    Ok(user == 0 || user == geteuid().as_raw())
}

/// The user of the process at the other end of a socket. Not by rustix, for which no process has the number 0: one of another
/// container has it here.
fn user_of(peer: &UnixStream) -> io::Result<u32> {
    let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a ucred; it and its length are live locals.
    let result = unsafe {
        libc::getsockopt(
            peer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(found.uid) } else { Err(io::Error::last_os_error()) }
}

/// Connects to a socket, and waits for no longer than `patience` for whoever listens on it: who was stopped takes in no
/// connections, and their queue may be full.
pub fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    // It bounds the connecting too.
    stream.set_write_timeout(Some(patience))?;
    connect(&stream, &SocketAddrUnix::new(path)?)?;
    Ok(stream)
}

/// Has standard error lead to a file from now on.
pub fn replace_standard_error(file: &File) -> io::Result<()> {
    Ok(dup2_stderr(file)?)
}

/// Has a command start in a session of its own: no terminal's end or Ctrl-C reaches it.
pub fn in_own_session(command: &mut Command) {
    before_exec(command, || setsid().map(drop));
}

/// Has a command start in a session of its own, and be asked to end (SIGTERM) when the thread that starts it ends: who is killed leaves
/// nobody behind.
pub fn ending_with_its_starter(command: &mut Command) {
    in_own_session(command);
    let starter = getpid();
    before_exec(command, move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It may have ended before that.
        if getppid() == Some(starter) { Ok(()) } else { Err(Errno::SRCH) }
    });
}

/// Has the child of a command do something before the program is executed, which may call the kernel and nothing else.
fn before_exec(command: &mut Command, mut act: impl FnMut() -> rustix::io::Result<()> + Send + Sync + 'static) {
    // SAFETY: between fork and exec only calls of the kernel are made, by those who call this, which is allowed there.
    unsafe {
        command.pre_exec(move || Ok(act()?));
    }
}

/// Refuses a directory in which others than its owner may add or change names.
pub fn check_only_owner_writes(directory: &Directory) -> base::Result<()> {
    /// Mode bits that let others write.
    const OTHERS_WRITE: u32 = 0o022;
    let found = std::fs::metadata(directory.at(""));
    let found = found.map_err(|error| Error::os("can't look at it", error.raw_os_error().unwrap_or(libc::EIO)))?;
    if found.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let what = "others may write in the directory: take that from them (chmod go-w)";
    Err(Error::new(Kind::Permission, what).with(format_args!("mode {:04o}", found.mode() & 0o7777)))
}

/// Bytes that are free for users in the file system of a directory.
pub fn free_bytes(directory: &Directory) -> io::Result<u64> {
    let figures = rustix::fs::statvfs(directory.at(""))?;
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}

/// The process that holds a brick's lock, which is free only when its last I/O has ended; `None` if nobody does.
pub fn lock_holder(data: &Directory) -> io::Result<Option<u32>> {
    let file = match data.file("lock", Access::Read) {
        Err(error) if error.kind == Kind::NotFound => return Ok(None),
        file => file.map_err(io::Error::other)?,
    };
    match file.try_lock_shared() {
        // The lock goes with the descriptor.
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut text = String::new();
    file.take(32).read_to_string(&mut text)?;
    // Whoever takes it writes its number a moment later.
    text.trim().parse().map(Some).map_err(|_| io::Error::from_raw_os_error(libc::EAGAIN))
}

/// True if it is this process that holds a brick's lock, as the kernel tells it: the number in the lock's file may be
/// of another container.
pub fn holds_lock(data: &Directory, pid: u32) -> io::Result<bool> {
    let inode = data.file("lock", Access::Read).map_err(io::Error::other)?.metadata()?.ino();
    let table = std::fs::read_to_string("/proc/locks")?;
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:567 0 EOF`: the inode behind the device.
    Ok(table.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let of = |at: usize| fields.get(at).copied().unwrap_or_default();
        let file = of(5).rsplit(':').next().and_then(|text| text.parse().ok());
        of(1) == "FLOCK" && of(3) == "WRITE" && of(4).parse() == Ok(pid) && file == Some(inode)
    }))
}

/// A process of somebody's, held so that its number can't come to mean another one.
pub struct Process(OwnedFd);

impl Process {
    /// The process of this number; `None` if there is none.
    pub fn of(pid: u32) -> io::Result<Option<Process>> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(Process(descriptor))),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
    /// Asks it to end, by SIGTERM.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::TERM)?)
    }
    /// Ends it at once, by SIGKILL.
    pub fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::KILL)?)
    }
    /// Waits for its end, not longer than `patience`; whether it has ended.
    pub fn ends_within(&self, patience: Duration) -> io::Result<bool> {
        // More seconds than the kernel counts are for ever.
        let patience = Timespec::try_from(patience).ok();
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], patience.as_ref())? > 0)
    }
}

/// Writes everything back and has the kernel forget what it holds of files and names, so that what is read next comes from
/// below it. Needs root.
pub fn drop_caches() -> io::Result<()> {
    sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Unmounts what is mounted at `point`; `lazy`: also when it is in use.
pub fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let how = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | how)?)
}

/// One line of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// The mount point.
    pub point: PathBuf,
    /// File system type, such as `fuse.sinter`.
    pub kind: String,
    /// The mounted source, as its server named it.
    pub source: String,
    /// Major and minor number of its device, as `8:1`.
    pub device: String,
    /// Its options, those of the mount point and those of the file system, with commas between.
    pub options: String,
}

/// The mount table of this process.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse_mounts(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mounts of a table in the form of /proc/self/mountinfo; lines of another form are left out.
pub fn parse_mounts(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

/// The mount at exactly `point`, an absolute path: the topmost, if there are several.
pub fn mounted_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|entry| entry.point == point))
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw`: the optional fields before the dash vary.
fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|&field| field == b"-")?;
    let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?));
    Some(MountEntry {
        point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: String::from_utf8_lossy(&unescape(fields.get(dash + 2)?)).into_owned(),
        device: text(2)?.into_owned(),
        options: format!("{},{}", text(5)?, text(dash + 3).unwrap_or_default()),
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
        let entry = MountEntry {
            point: "/mnt/a b\\c".into(),
            kind: "fuse.sinter".into(),
            source: "default".into(),
            device: "98:0".into(),
            options: "rw,noatime,rw,user_id=0".into(),
        };
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
