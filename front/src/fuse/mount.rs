//! Mounting and unmounting, directly by mount(2): no helper program, hence root is needed.
//!
//! Promises: a mount point whose daemon died is taken over; a mount point in use is refused; unmounting twice is
//! harmless, and never takes away a file system that someone else mounted there meanwhile.

use super::init::{self, Agreement, Choice};
use super::rings::Rings;
use super::{mountinfo, syscall};
use base::{Error, Kind, Result};
use rustix::mount::UnmountFlags;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Type of our mounts in `/proc/mounts`: the kernel's FUSE, with our name.
const KIND: &str = "fuse.sinter";

/// Longest wait for the answer to a probe. A live file system answers at once, unless its machine is overloaded.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest number of dead mounts that may lie on top of each other at one mount point: daemons that take over a mount
/// point leave no more.
const STACKED_MAX: usize = 16;

/// Number of attempts to unmount a busy mount: scanners and shells leave soon.
const UNMOUNT_ATTEMPTS: usize = 5;
/// Pause between two attempts to unmount.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// Flags for unmounting a file system that nobody serves. Without ending the connection first, the kernel would wait
/// for us to write mapped pages back.
const ABANDON: UnmountFlags = UnmountFlags::FORCE.union(UnmountFlags::DETACH);

/// The kernel's read-ahead for a sequential reader: the largest request, so that such reads come in requests of 1 MiB.
/// The kernel's default of 128 KiB would keep the device idle between them.
const READ_AHEAD_KIB: usize = 1024;

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mount point: an existing directory.
    pub path: PathBuf,
    /// The source that `df` and `mount` show.
    pub source: String,
    /// The deviations from the usual behaviour.
    pub restrictions: Vec<Restriction>,
    /// True if other mounts may have the volume too.
    pub shares: bool,
}

impl MountOptions {
    fn restrict(&self, flags: libc::c_ulong) -> bool {
        self.restrictions.iter().any(|restriction| restriction.flag & flags != 0)
    }
}

/// One deviation of a mount from the usual behaviour: something that the kernel refuses or leaves out, something that
/// is durable at once, or that bound copies may map ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restriction {
    flag: libc::c_ulong,
}

/// Flag: bound copies of the mount may map ids. It lies above all flags of the kernel, which never gets it.
const MAPS_IDS: libc::c_ulong = 1 << 40;

/// The flags for mount(2) that stand for these restrictions.
fn flags_of(restrictions: &[Restriction]) -> libc::c_ulong {
    restrictions.iter().fold(0, |flags, restriction| flags | restriction.flag) & !MAPS_IDS
}

impl Restriction {
    /// The restriction of this name in mount(8).
    pub fn of(name: &str) -> Option<Restriction> {
        let flag = match name {
            "ro" => libc::MS_RDONLY,
            "nosuid" => libc::MS_NOSUID,
            "nodev" => libc::MS_NODEV,
            "noexec" => libc::MS_NOEXEC,
            "noatime" => libc::MS_NOATIME,
            "nodiratime" => libc::MS_NODIRATIME,
            "strictatime" => libc::MS_STRICTATIME,
            "lazytime" => libc::MS_LAZYTIME,
            "sync" => libc::MS_SYNCHRONOUS,
            "dirsync" => libc::MS_DIRSYNC,
            "idmap" => MAPS_IDS,
            _ => return None,
        };
        Some(Restriction { flag })
    }
}

/// The kinds of inodes whose access times this mount leaves alone. The kernel shows these flags but does not act on
/// them: for FUSE it never updates access times itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noatime {
    /// Files and symbolic links.
    pub files: bool,
    /// Directories.
    pub directories: bool,
}

/// The changes that are durable when they are answered, on a mount with sync or dirsync. The kernel takes care of
/// writes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// Changes of names.
    pub names: bool,
    /// Changes of attributes, and of the blocks of files (fallocate).
    pub attributes: bool,
}

/// The result of an unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// Unmounted: it was not in use any more.
    Clean,
    /// Detached: in use, no longer reachable by its path, and gone when its last user has left.
    Detached,
    /// Nothing to do: it was not mounted any more.
    Already,
}

/// A mounted file system whose kernel side is ready; requests wait until they are served.
pub struct Mount {
    place: Mutex<Place>,
    /// Device number of the file system, wherever it is mounted.
    number: String,
    device: File,
    agreement: Agreement,
    noatime: Noatime,
    durable: Durable,
    shares: bool,
    rings: Option<Rings>,
}

/// The place where a file system was mounted last.
struct Place {
    path: PathBuf,
    id: u64,
    unique_id: Option<u64>,
    unmounted: bool,
}

impl Place {
    fn of(path: PathBuf, entry: &mountinfo::Entry) -> Result<Place> {
        let unique_id = syscall::unique_mount_id(&c_path(&path)?);
        Ok(Place { path, id: entry.id, unique_id, unmounted: false })
    }
    /// True if the file system mounted at the path is still ours. Numbers of mounts and of file systems are soon given
    /// to others; newer kernels have a number that is never reused.
    fn is_on_top(&self, number: &str) -> Result<bool> {
        let Some(top) = mounted_at(&self.path)? else { return Ok(false) };
        let same = (self.id, number) == (top.id, top.device.as_str());
        Ok(same && self.unique_id == syscall::unique_mount_id(&c_path(&self.path)?))
    }
}

/// Mounts; the handshake with the kernel is done when this returns. Requests come in `rings`, if they are given and the
/// kernel offers that; else by `/dev/fuse`. Blocks: not to be called on a core.
///
/// Errors: `Host` without `/dev/fuse` or with too old a kernel, `Permission` unless root, `NotFound` or `NotDirectory`
/// for the mount point, `Busy` when something live is mounted there.
pub fn mount(options: &MountOptions, rings: Option<Rings>) -> Result<Mount> {
    let device = open_device()?;
    let path = resolve(&options.path)?;
    clear(&path)?;
    check_directory(&path)?;
    mount_at(&path, options, &device)?;
    let ready = ready(path.clone(), device, options, rings);
    if ready.is_err() {
        // Leaves nothing behind; if this fails too, the first error is the one to tell.
        let _ = syscall::unmount(&c_path(&path)?, ABANDON);
    }
    ready
}

/// Checks that a file system can be mounted at a path now, for callers with much to do before they mount. Errors: as
/// `mount`.
pub fn check(path: &Path) -> Result<()> {
    drop(open_device()?);
    let path = resolve(path)?;
    clear(&path)?;
    check_directory(&path)
}

/// Changes the restrictions of the mount at a path to exactly these. Durability at once changes for writes only: the
/// daemon learns of names and attributes when it mounts. Errors: `NotFound` if no volume is mounted there, `Busy` for
/// read-only while files are open for writing.
pub fn remount(path: &Path, restrictions: &[Restriction]) -> Result<()> {
    let path = resolve(path)?;
    let none = || Error::new(Kind::NotFound, "no volume is mounted there").with(path.display());
    let top = mounted_at(&path)?.filter(|top| top.kind == KIND).ok_or_else(none)?;
    let flags = libc::MS_REMOUNT | flags_of(restrictions);
    // Without data: the kernel keeps all that is FUSE's own.
    syscall::mount(&c_string(&top.source)?, &c_path(&path)?, &c_string(KIND)?, c"", flags)
        .map_err(|errno| Error::os("changing the mount", errno).with(path.display()))
}

fn open_device() -> Result<File> {
    let opened = syscall::open_device().and_then(|device| {
        let found = device.metadata().map_err(|error| syscall::errno_of(&error))?;
        Ok((device, found.file_type().is_char_device() && found.rdev() == syscall::DEVICE_NUMBER))
    });
    let opened = opened.and_then(|(device, is_fuse)| if is_fuse { Ok(device) } else { Err(libc::ENOTTY) });
    opened.map_err(|errno| match errno {
        libc::ENOTTY => {
            Error::new(Kind::Host, "what is at /dev/fuse is not the kernel's: make it again (mknod /dev/fuse c 10 229)")
        }
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            Error::new(Kind::Host, "no /dev/fuse: load the kernel's module (modprobe fuse)")
        }
        libc::EACCES | libc::EPERM => {
            Error::new(Kind::Host, "/dev/fuse may not be opened: run as root; in a container, pass the device in")
        }
        errno => Error::os("opening /dev/fuse", errno),
    })
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::new(Kind::Invalid, "a path with a NUL in it"))
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Kind::Invalid, "a mount source with a NUL in it"))
}

/// The path as the kernel lists it, with links resolved; also for a mount point that is dead.
fn resolve(path: &Path) -> Result<PathBuf> {
    let wrong = |error: std::io::Error| {
        let errno = syscall::errno_of(&error);
        Error::os("the mount point can't be used (create it with mkdir -p)", errno).with(path.display())
    };
    match std::fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(error) if is_dead(syscall::errno_of(&error)) => {
            let absolute = std::path::absolute(path).map_err(wrong)?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(wrong(error));
            };
            Ok(std::fs::canonicalize(parent).map_err(wrong)?.join(name))
        }
        Err(error) => Err(wrong(error)),
    }
}

/// True if `errno` is the answer of a mount whose daemon is gone. A request that reaches the daemon's rings while they
/// end with it is cancelled.
pub fn is_dead(errno: i32) -> bool {
    matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECONNREFUSED | libc::ECANCELED)
}

fn mounted_at(path: &Path) -> Result<Option<mountinfo::Entry>> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Error::os("reading /proc/self/mountinfo", syscall::errno_of(&error)))?;
    Ok(mountinfo::top_at(&text, path.as_os_str().as_bytes()))
}

/// Unmounts our own dead mounts at the mount point, and refuses anything live.
fn clear(path: &Path) -> Result<()> {
    for _ in 0..STACKED_MAX {
        let Some(top) = mounted_at(path)? else { return Ok(()) };
        let busy = |what| Err(Error::new(Kind::Busy, what).with(format!("{} ({})", path.display(), top.kind)));
        if !top.kind.starts_with("fuse") {
            return busy("another file system is mounted there: unmount it or choose another directory");
        }
        match probe(path)? {
            Some(errno) if is_dead(errno) && top.kind == KIND => {
                let detached = syscall::unmount(&c_path(path)?, UnmountFlags::DETACH);
                detached.map_err(|errno| Error::os("unmounting what a dead daemon left", errno))?;
            }
            Some(errno) if is_dead(errno) => return busy("another program's dead mount is there: unmount it"),
            _ => return busy("a live mount is there: unmount it, or choose another directory"),
        }
    }
    Err(Error::new(Kind::Busy, "too many dead mounts on top of each other: unmount them").with(path.display()))
}

/// Probes the file system at `path`; returns the errno that it gave. Runs in a thread of its own, because a live but
/// stuck daemon may never answer: that counts as live.
fn probe(path: &Path) -> Result<Option<i32>> {
    let path = c_path(path)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || sender.send(syscall::probe(&path).err()));
    Ok(receiver.recv_timeout(PROBE_TIMEOUT).unwrap_or(None))
}

fn check_directory(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::new(Kind::NotDirectory, "the mount point is not a directory").with(path.display())),
        Err(error) => Err(Error::os("the mount point can't be used", syscall::errno_of(&error)).with(path.display())),
    }
}

fn mount_at(path: &Path, options: &MountOptions, device: &File) -> Result<()> {
    use std::os::fd::AsRawFd;
    let (uid, gid) = syscall::effective_ids();
    let details = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other,default_permissions",
        device.as_raw_fd()
    );
    let flags = flags_of(&options.restrictions);
    let (source, kind, details) = (c_string(&options.source)?, c_string(KIND)?, c_string(&details)?);
    syscall::mount(&source, &c_path(path)?, &kind, &details, flags).map_err(|errno| match errno {
        libc::EPERM => Error::new(Kind::Permission, "mounting needs root (CAP_SYS_ADMIN)"),
        libc::ENODEV => Error::new(Kind::Host, "the kernel has no FUSE: load its module (modprobe fuse)"),
        errno => Error::os("mounting", errno).with(path.display()),
    })
}

fn ready(path: PathBuf, device: File, options: &MountOptions, rings: Option<Rings>) -> Result<Mount> {
    let gone = || Error::new(Kind::Busy, "the mount was taken away while it was being made");
    let entry = mounted_at(&path)?.filter(|entry| entry.kind == KIND).ok_or_else(gone)?;
    let at_once = rings.as_ref().map_or_else(super::serve::tasks, Rings::entries);
    let (rings_wanted, shares) = (rings.is_some(), options.shares);
    let choice = Choice { rings: rings_wanted, at_once, shares, maps_ids: options.restrict(MAPS_IDS) };
    let agreement = init::handshake(&device, choice)?;
    let rings = rings.filter(|_| agreement.has_rings());
    // Not possible where /sys is read-only: sequential reads are slower then, nothing else.
    let _ = std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", entry.device), READ_AHEAD_KIB.to_string());
    let restricted = |flags| options.restrict(flags);
    let files = restricted(libc::MS_NOATIME | libc::MS_RDONLY);
    let noatime = Noatime { files, directories: files || restricted(libc::MS_NODIRATIME) };
    let attributes = restricted(libc::MS_SYNCHRONOUS);
    let durable = Durable { names: attributes || restricted(libc::MS_DIRSYNC), attributes };
    let place = Mutex::new(Place::of(path, &entry)?);
    Ok(Mount { place, number: entry.device, device, agreement, noatime, durable, shares, rings })
}

impl Mount {
    /// True if other mounts may have the volume too.
    pub fn shares(&self) -> bool {
        self.shares
    }
    /// The path where it was mounted last.
    pub fn path(&self) -> PathBuf {
        self.place().path.clone()
    }
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().expect("no panic while held")
    }
    /// The number of the mount's device, as `mountinfo` writes it: `0:50`. The second part is the connection's number.
    pub fn number(&self) -> &str {
        &self.number
    }
    /// The kernel's protocol version (minor) and the features in use.
    pub fn agreed(&self) -> (u32, u64) {
        (self.agreement.minor, self.agreement.flags)
    }
    /// The features that both sides agreed on.
    pub(super) fn agreement(&self) -> &Agreement {
        &self.agreement
    }
    /// The kinds of inodes whose access times are left alone.
    pub fn noatime(&self) -> Noatime {
        self.noatime
    }
    /// The changes that are durable when they are answered.
    pub fn durable(&self) -> Durable {
        self.durable
    }
    /// The paths at which it is mounted in this mount namespace, bound copies included. If there are none, open files
    /// and copies in other namespaces may still use it.
    pub fn points(&self) -> Vec<PathBuf> {
        let table = std::fs::read("/proc/self/mountinfo");
        table.map_or(Vec::new(), |text| mountinfo::points_of(&text, &self.number))
    }
    /// True if it is still mounted where it was mounted last.
    pub fn is_in_place(&self) -> bool {
        self.points().contains(&self.path())
    }
    /// Mounts the same file system again, which is no longer in its place but still served: open files and copies
    /// elsewhere see changes made here, and the other way round. The effect of reading on access times, the changes
    /// that are durable when answered, and whether ids may be mapped stay as they were. Errors: as `mount`; if the last
    /// user has just left, the file system has ended.
    pub fn attach(&self, options: &MountOptions) -> Result<PathBuf> {
        let mut place = self.place();
        let path = resolve(&options.path)?;
        clear(&path)?;
        check_directory(&path)?;
        // The kernel finds the file system by the descriptor of its connection.
        mount_at(&path, options, &self.device)?;
        let entry = mounted_at(&path)?.filter(|entry| entry.device == self.number);
        let entry = entry.ok_or_else(|| Error::new(Kind::Busy, "the mount was taken away while it was being made"))?;
        *place = Place::of(path.clone(), &entry)?;
        if !options.restrict(libc::MS_RDONLY) {
            // It may have been read-only itself; a place that is says so for itself alone.
            remount(&path, &options.restrictions)?;
        }
        Ok(path)
    }
    /// The memory of the queues in which requests will come, if they come by rings.
    pub(super) fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }
    /// Another descriptor of the connection, for one core.
    pub(super) fn clone_device(&self) -> Result<File> {
        syscall::clone_device(&self.device).map_err(|errno| Error::os("cloning the FUSE descriptor", errno))
    }
    /// Unmounts. Blocks until open requests are answered, so they must go on being served: not to be called on a core.
    /// A mount that stays in use is detached.
    pub fn unmount(&self) -> Result<Unmounted> {
        self.unmount_within(UNMOUNT_ATTEMPTS)
    }
    /// Unmounts at once, without the attempts of `unmount`: no request is served any more, so waiting for users to
    /// leave would be of no use.
    pub(super) fn detach(&self) -> Result<Unmounted> {
        self.unmount_within(1)
    }
    fn unmount_within(&self, attempts: usize) -> Result<Unmounted> {
        let mut place = self.place();
        if place.unmounted || !place.is_on_top(&self.number)? {
            return Ok(Unmounted::Already);
        }
        let done = unmount_patiently(&c_path(&place.path)?, attempts);
        place.unmounted = done.is_ok();
        done.map_err(|errno| Error::os("unmounting", errno).with(place.path.display()))
    }
}

fn unmount_patiently(path: &CStr, attempts: usize) -> Result<Unmounted, i32> {
    for attempt in 1..=attempts {
        match syscall::unmount(path, UnmountFlags::NOFOLLOW) {
            Err(libc::EBUSY) if attempt < attempts => std::thread::sleep(UNMOUNT_PAUSE),
            Err(libc::EBUSY) => {}
            other => return other.map(|()| Unmounted::Clean),
        }
    }
    syscall::unmount(path, UnmountFlags::DETACH).map(|()| Unmounted::Detached)
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Closing the last descriptor would leave a dead mount behind. Nobody serves it any more.
        let place = self.place();
        if let (false, Ok(true), Ok(path)) = (place.unmounted, place.is_on_top(&self.number), c_path(&place.path)) {
            let _ = syscall::unmount(&path, ABANDON);
        }
    }
}
