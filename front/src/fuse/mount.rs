//! Mounting and unmounting, directly by mount(2): no helper program, hence root is needed.
//!
//! Promises: a mount point whose daemon died is taken over; a mount point in use is refused; unmounting twice is
//! harmless, and never takes away what someone else mounted there meanwhile.

use super::init::{self, Agreement, Choice};
use super::rings::Rings;
use super::{mountinfo, syscall};
use base::{Error, Kind, Result};
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

/// A live file system answers a probe at once, unless its machine is overloaded.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Dead mounts that may lie on top of each other at one mount point: more were not left by daemons that take over.
const STACKED_MAX: usize = 16;

/// An unmount that finds the mount busy is tried again this often, since scanners and shells leave soon ...
const UNMOUNT_ATTEMPTS: usize = 5;
/// ... at this distance.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// Unmounts what nobody serves: without ending the connection first, the kernel would wait for us to write back
/// mapped pages.
const ABANDON: libc::c_int = libc::MNT_FORCE | libc::MNT_DETACH;

/// How far the kernel reads ahead of a sequential reader: the largest request, so that such reads come in
/// requests of 1 MiB. Its default of 128 KiB would keep the device idle between them.
const READ_AHEAD_KIB: usize = 1024;

/// What to mount where.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An existing directory.
    pub path: PathBuf,
    /// What `df` and `mount` show as the source.
    pub source: String,
    /// What it must not allow.
    pub restrictions: Vec<Restriction>,
}

impl MountOptions {
    fn restrict(&self, flags: libc::c_ulong) -> bool {
        self.restrictions.iter().any(|restriction| restriction.flag & flags != 0)
    }
}

/// How a mount behaves otherwise than usual: what the kernel refuses or leaves out on it, what is durable at once, or whether
/// its bound copies may have ids mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restriction {
    flag: libc::c_ulong,
}

/// Bound copies of the mount may have ids mapped. Above all flags of the kernel's, which does not get it.
const MAPS_IDS: libc::c_ulong = 1 << 40;

/// What mount(2) is told of these.
fn flags_of(restrictions: &[Restriction]) -> libc::c_ulong {
    restrictions.iter().fold(0, |flags, restriction| flags | restriction.flag) & !MAPS_IDS
}

impl Restriction {
    /// By the name that mount(8) has for it.
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

/// Of what a mount leaves the access times alone. The kernel shows these flags and holds back nothing by them: what FUSE
/// reads is read without access times anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noatime {
    /// Of files and symbolic links.
    pub files: bool,
    /// Of directories.
    pub directories: bool,
}

/// What of a mount is durable when it is told, though nobody asks for that. Of writes the kernel sees to it by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// Changes of names.
    pub names: bool,
    /// Changes of attributes, and of the room of files.
    pub attributes: bool,
}

/// How an unmount went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// Nobody used it any more.
    Clean,
    /// It was in use: no longer reachable by its path, and gone when its last user has left.
    Detached,
    /// It was not mounted any more.
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
    rings: Option<Rings>,
}

/// Where a file system was mounted last.
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
    /// Whether what is mounted at the path is still ours. Numbers of mounts and of file systems are soon given to
    /// others; newer kernels have one that never is.
    fn is_on_top(&self, number: &str) -> Result<bool> {
        let Some(top) = mounted_at(&self.path)? else { return Ok(false) };
        let same = (self.id, number) == (top.id, top.device.as_str());
        Ok(same && self.unique_id == syscall::unique_mount_id(&c_path(&self.path)?))
    }
}

/// Mounts; the kernel's handshake is done when this returns. Requests come in `rings`, if they are given and the kernel
/// offers that; else by `/dev/fuse`. Blocks: not to be called on a core.
///
/// Errors: `Host` without `/dev/fuse` or with too old a kernel, `Permission` unless root, `NotFound` or
/// `NotDirectory` for the mount point, `Busy` when something live is mounted there.
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

/// Whether something can be mounted at a path now: for who has much to do before. Errors: as `mount`.
pub fn check(path: &Path) -> Result<()> {
    drop(open_device()?);
    let path = resolve(path)?;
    clear(&path)?;
    check_directory(&path)
}

/// Changes how the mount at a path behaves, from what it is to these restrictions alone. What is durable at once changes for
/// writes only: the daemon hears of names and attributes when it mounts.
/// Errors: `NotFound` if no volume is mounted there, `Busy` for read-only while files are open to be written.
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

/// The path as the kernel lists it, without links; also for a mount point that is dead.
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

/// Whether `errno` is what a mount answers whose daemon is gone. A request that reaches its rings while they end with the
/// daemon is cancelled.
pub fn is_dead(errno: i32) -> bool {
    matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECONNREFUSED | libc::ECANCELED)
}

fn mounted_at(path: &Path) -> Result<Option<mountinfo::Entry>> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Error::os("reading /proc/self/mountinfo", syscall::errno_of(&error)))?;
    Ok(mountinfo::top_at(&text, path.as_os_str().as_bytes()))
}

/// Takes our own dead mounts away from the mount point, and refuses anything live.
fn clear(path: &Path) -> Result<()> {
    for _ in 0..STACKED_MAX {
        let Some(top) = mounted_at(path)? else { return Ok(()) };
        let busy = |what| Err(Error::new(Kind::Busy, what).with(format!("{} ({})", path.display(), top.kind)));
        if !top.kind.starts_with("fuse") {
            return busy("another file system is mounted there: unmount it or choose another directory");
        }
        match probe(path)? {
            Some(errno) if is_dead(errno) && top.kind == KIND => {
                let detached = syscall::unmount(&c_path(path)?, libc::MNT_DETACH);
                detached.map_err(|errno| Error::os("unmounting what a dead daemon left", errno))?;
            }
            Some(errno) if is_dead(errno) => return busy("another program's dead mount is there: unmount it"),
            _ => return busy("a live mount is there: unmount it, or choose another directory"),
        }
    }
    Err(Error::new(Kind::Busy, "too many dead mounts on top of each other: unmount them").with(path.display()))
}

/// Asks the file system at `path` something; the errno it gave. In a thread of its own, because a live but stuck
/// daemon may never answer: that counts as live.
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
    let choice = Choice { rings: rings.is_some(), maps_ids: options.restrict(MAPS_IDS) };
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
    Ok(Mount { place, number: entry.device, device, agreement, noatime, durable, rings })
}

impl Mount {
    /// Where it was mounted last.
    pub fn path(&self) -> PathBuf {
        self.place().path.clone()
    }
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().expect("no panic while held")
    }
    /// The kernel's protocol version (minor) and the features in use.
    pub fn agreed(&self) -> (u32, u64) {
        (self.agreement.minor, self.agreement.flags)
    }
    /// What both sides agreed on.
    pub(super) fn agreement(&self) -> &Agreement {
        &self.agreement
    }
    /// Of what reading leaves the access times alone.
    pub fn noatime(&self) -> Noatime {
        self.noatime
    }
    /// What is durable when it is told.
    pub fn durable(&self) -> Durable {
        self.durable
    }
    /// Where it is mounted in this mount namespace, bound copies included. If nowhere, it may still be used by files that are
    /// open, and by copies in other namespaces.
    pub fn points(&self) -> Vec<PathBuf> {
        let table = std::fs::read("/proc/self/mountinfo");
        table.map_or(Vec::new(), |text| mountinfo::points_of(&text, &self.number))
    }
    /// Whether it is still mounted where it was mounted last.
    pub fn is_in_place(&self) -> bool {
        self.points().contains(&self.path())
    }
    /// Mounts the same file system anew, which is not in its place any more but still served: open files and copies elsewhere
    /// see what is done here, and the other way round. What reading does to access times, which changes of names are
    /// durable when they are told, and whether ids may be mapped, stays as it was. Errors: as `mount`; if the last user has just left, all is over.
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
    /// The memory of the queues in which requests will come, if they do.
    pub(super) fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }
    /// Another descriptor of the connection, for one core.
    pub(super) fn clone_device(&self) -> Result<File> {
        syscall::clone_device(&self.device).map_err(|errno| Error::os("cloning the FUSE descriptor", errno))
    }
    /// Unmounts. Blocks until open requests are answered, so they must go on being served: not to be called on a
    /// core. A mount that stays in use is detached.
    pub fn unmount(&self) -> Result<Unmounted> {
        self.unmount_within(UNMOUNT_ATTEMPTS)
    }
    /// As `unmount`, at once: nobody is served any more, so that nobody's leaving is worth waiting for.
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
        match syscall::unmount(path, libc::UMOUNT_NOFOLLOW) {
            Err(libc::EBUSY) if attempt < attempts => std::thread::sleep(UNMOUNT_PAUSE),
            Err(libc::EBUSY) => {}
            other => return other.map(|()| Unmounted::Clean),
        }
    }
    syscall::unmount(path, libc::MNT_DETACH).map(|()| Unmounted::Detached)
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
