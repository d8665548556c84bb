//! File handles on a real mount, as NFS servers and `open_by_handle_at` use them: one of a file that exists opens it,
//! whatever the kernel has forgotten and however often the daemon was started; one of a file that is gone opens nothing.
//! Needs root and /dev/fuse. `SINTER_HANDLES` sets the number of files (10,000 if not set).

use crate::daemon::{Home, setting};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest handle that the kernel makes.
const HANDLE_BYTES: usize = 128;

/// `struct file_handle`, with room for any.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES],
}

/// The handle of what lies at a path.
fn handle(path: &Path) -> Handle {
    let mut handle = Handle { bytes: HANDLE_BYTES as u32, kind: 0, data: [0; HANDLE_BYTES] };
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let mut mount = 0;
    let pointer = (&raw mut handle).cast();
    // SAFETY: the path ends with NUL; the handle has as much room as it says.
    let done = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), pointer, &mut mount, 0) };
    assert_eq!(done, 0, "{path:?}: {}", io::Error::last_os_error());
    handle
}

/// Opens what a handle names, on the file system of `mount`.
fn open(mount: &File, mut handle: Handle, flags: i32) -> io::Result<File> {
    // SAFETY: the handle is as the kernel made it; a descriptor that comes back is ours.
    let opened = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    match opened {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: just opened, and nobody else has it.
        opened => Ok(unsafe { File::from_raw_fd(opened) }),
    }
}

/// Checks that the file opened by a handle has this content, or none if a crash may have taken it. False if the handle
/// is stale.
fn opens(mount: &File, handle: Handle, content: &str, crashed: bool) -> bool {
    match open(mount, handle, libc::O_RDONLY) {
        Ok(mut file) => {
            let mut read = String::new();
            file.read_to_string(&mut read).expect("a good file");
            let right = read == content || crashed && read.is_empty();
            assert!(right, "the handle of {content:?} has opened {read:?}");
            true
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
            false
        }
    }
}

/// Files with a content of their own each.
struct Made {
    files: Vec<(PathBuf, Handle, String)>,
    /// True if the content is perhaps not there, since nobody had synced it.
    crashed: bool,
}

impl Made {
    fn new(dir: &Path, tag: &str, count: u64) -> Made {
        let make = |number| {
            let (path, content) = (dir.join(format!("{tag}-{number}")), format!("{tag} {number}"));
            fs::write(&path, &content).expect("there is room");
            (path.clone(), handle(&path), content)
        };
        Made { files: (0..count).map(make).collect(), crashed: false }
    }
    fn sync(&self) {
        for (path, ..) in &self.files {
            File::open(path).and_then(|file| file.sync_all()).expect("a healthy brick syncs");
        }
    }
    fn remove(&self) {
        self.files.iter().for_each(|(path, ..)| fs::remove_file(path).expect("it is there"));
    }
    /// Number of handles that open their file. The others are stale.
    fn alive(&self, mount: &Path) -> usize {
        let mount = File::open(mount).expect("it is mounted");
        self.files.iter().filter(|(_, handle, content)| opens(&mount, *handle, content, self.crashed)).count()
    }
}

/// The kernel forgets every inode that nobody uses.
fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
}

#[test]
fn handles_outlive_caches_and_daemons_and_never_open_another_file() {
    let count = setting("SINTER_HANDLES", 10_000);
    let home = Home::new("handles");
    let mut daemon = home.up();
    let (kept, gone) = (Made::new(&home.mount, "kept", count), Made::new(&home.mount, "gone", count / 2));
    let all = |when: &str| assert_eq!(kept.alive(&home.mount), kept.files.len(), "{when}");
    all("at once");
    drop_caches();
    all("after drop_caches");
    daemon.terminate();
    daemon = home.up();
    all("after an orderly restart");
    kept.sync();
    daemon.kill();
    daemon = home.up();
    all("after kill -9");
    gone.remove();
    assert_eq!(gone.alive(&home.mount), 0, "removed");
    drop_caches();
    assert_eq!(gone.alive(&home.mount), 0, "removed and forgotten");
    drop(Made::new(&home.mount, "young", count));
    drop_caches();
    assert_eq!(gone.alive(&home.mount), 0, "younger files have come");
    daemon.terminate();
    daemon = home.up();
    assert_eq!(gone.alive(&home.mount), 0, "after a restart");
    all("at the end");
    daemon.terminate();
    home.check();
}

#[test]
fn a_handle_of_a_file_that_a_crash_took_back_opens_no_other() {
    let home = Home::new("handles-lost");
    let mut daemon = home.up();
    let mut lost = Made::new(&home.mount, "lost", 1000);
    daemon.kill();
    lost.crashed = true;
    daemon = home.up();
    let there = fs::read_dir(&home.mount).expect("a directory").count();
    assert!(there < 1000, "all were durable: nothing was tried");
    let others = Made::new(&home.mount, "other", 1000);
    assert_eq!(lost.alive(&home.mount), there, "what is lost is stale");
    drop_caches();
    assert_eq!(lost.alive(&home.mount), there, "what is lost is stale");
    assert_eq!(others.alive(&home.mount), 1000);
    daemon.terminate();
}

#[test]
fn a_handle_of_another_brick_is_stale() {
    let (one, other) = (Home::new("handles-one"), Home::new("handles-other"));
    let daemons = [one.up(), other.up()];
    let (mine, theirs) = (Made::new(&one.mount, "f", 100), Made::new(&other.mount, "f", 100));
    let inos = |made: &Made| -> Vec<u64> {
        let ino = |path: &PathBuf| fs::metadata(path).expect("it is there").ino();
        made.files.iter().map(|(path, ..)| ino(path)).collect()
    };
    assert_eq!(inos(&mine), inos(&theirs), "both began at the same number, which is the danger");
    assert_eq!((mine.alive(&one.mount), mine.alive(&other.mount)), (100, 0));
    drop_caches();
    assert_eq!((theirs.alive(&other.mount), theirs.alive(&one.mount)), (100, 0));
    daemons.into_iter().for_each(|daemon| drop(daemon.terminate()));
}

/// The kernel asks for ".." of a directory that it has only a handle of, and lists those above for its name.
#[test]
fn handles_of_directories_find_their_way_to_the_root() {
    let home = Home::new("handles-directories");
    let mut daemon = home.up();
    let mut path = home.mount.clone();
    for depth in 0..20 {
        path.push(format!("directory {depth}"));
    }
    fs::create_dir_all(&path).expect("there is room");
    fs::write(path.join("file"), "deep").expect("there is room");
    let (deep, file) = (handle(&path), handle(&path.join("file")));
    let look = |when: &str| {
        let mount = File::open(&home.mount).expect("it is mounted");
        let dir = open(&mount, deep, libc::O_RDONLY | libc::O_DIRECTORY).expect(when);
        let found = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).expect("it has a path");
        assert_eq!(found, path, "{when}");
        let above = fs::metadata(format!("/proc/self/fd/{}/..", dir.as_raw_fd())).expect("there is one above");
        assert_eq!(above.ino(), fs::metadata(path.parent().expect("deep")).expect("it is there").ino());
        assert!(opens(&mount, file, "deep", false), "{when}");
    };
    look("at once");
    drop_caches();
    look("after drop_caches");
    daemon.terminate();
    daemon = home.up();
    look("after a restart");
    let empty = home.mount.join("empty");
    fs::create_dir(&empty).expect("there is room");
    let removed = handle(&empty);
    fs::remove_dir(&empty).expect("it is empty");
    let mount = File::open(&home.mount).expect("it is mounted");
    let error = open(&mount, removed, libc::O_RDONLY).expect_err("it is gone");
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    drop(mount);
    daemon.terminate();
}

/// The file opened by a handle is the file itself: data written through it is read by its name.
#[test]
fn what_a_handle_opened_can_be_written() {
    let home = Home::new("handles-written");
    let mut daemon = home.up();
    let made = Made::new(&home.mount, "f", 1);
    daemon.terminate();
    daemon = home.up();
    let mount = File::open(&home.mount).expect("it is mounted");
    let mut file = open(&mount, made.files[0].1, libc::O_RDWR).expect("it exists");
    file.write_all(b"anew").and_then(|()| file.rewind()).expect("there is room");
    assert_eq!(fs::read_to_string(&made.files[0].0).expect("it is there"), "anew");
    drop((mount, file));
    daemon.terminate();
}
