//! Copies of a mount that have ids mapped (mount_setattr), as containers get them: what the option `idmap` of a mount is for.

use crate::calls::{link_open, nameless, rename_with};
use crate::daemon::{Home, sinter, succeed, system, text};
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{Error, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Users and groups from 0 on are those from here on in the copy.
const FIRST: u32 = 100_000;
const COUNT: u32 = 65_536;

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().expect("of the system"))
}

fn done(result: libc::c_long) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result as i32) }
}

/// A user namespace with such ids, as long as its process lives.
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let mut command = Command::new("unshare");
        command.args(["--user", "sh", "-c", "echo; exec sleep 600"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("unshare runs");
        let mut said = [0];
        let stdout = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(stdout, &mut said).expect("it is in its namespace");
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", child.id());
            fs::write(path, format!("0 {FIRST} {COUNT}\n")).expect("root may map ids");
        }
        Namespace(child)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Binds a copy of a mount, with ids mapped. Errors: the kernel's.
fn bind(source: &Path, target: &Path, namespace: &Namespace) -> Result<()> {
    let path = |path: &Path| CString::new(text(path)).expect("no NUL");
    let users = File::open(format!("/proc/{}/ns/user", namespace.0.id()))?;
    let (source, target) = (path(source), path(target));
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_raw_fd() as u64,
    };
    // SAFETY: calls with strings and a structure that outlive them, and descriptors that are open.
    unsafe {
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        let tree = done(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags))?;
        let tree = OwnedFd::from_raw_fd(tree);
        let (from, empty) = (tree.as_raw_fd(), c"".as_ptr());
        let length = size_of::<libc::mount_attr>();
        let what = &raw const attributes;
        done(libc::syscall(libc::SYS_mount_setattr, from, empty, libc::AT_EMPTY_PATH, what, length))?;
        let here = libc::AT_FDCWD;
        done(libc::syscall(libc::SYS_move_mount, from, empty, here, target.as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH))?;
    }
    Ok(())
}

/// Does something as a user and a group of the same number.
fn by<T: Send>(id: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            // SAFETY: the calls take numbers, and change this thread alone.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, id, id, id), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, id, id, id), 0);
            }
            what()
        });
        user.join().expect("no panic")
    })
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).expect("stat");
    (found.uid(), found.gid())
}

/// mount(8)'s helper, for a daemon that runs.
fn mounted(home: &Home, volume: &str, at: &Path, options: &str) {
    succeed(&["volume", "create", text(&home.data), volume]);
    let mut command = Command::new(sinter().get_program());
    command.arg0("mount.sinter").args([text(&home.data), text(at), "-o", &format!("volume={volume},{options}")]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn listed(path: &Path) -> String {
    let output = Command::new("getfattr").args(["-m", "-", text(path)]).output().expect("getfattr runs");
    String::from_utf8(output.stdout).expect("text")
}

/// Each way to make something, changes of owners, lists of access, bits that end with a write.
#[test]
fn ids_are_mapped_in_a_copy_of_a_mount() {
    let home = Home::new("idmapped");
    let daemon = home.up();
    let namespace = Namespace::new();
    let (plain, copy) = (home.scratch.directory("plain"), home.scratch.directory("copy"));
    assert_eq!(errno(bind(&home.mount, &copy, &namespace)), libc::EINVAL, "the limit: not without the option");
    mounted(&home, "mapped", &plain, "idmap");
    bind(&plain, &copy, &namespace).expect("with the option");
    made_by_root(&plain, &copy);
    made_by_users(&plain, &copy);
    owners_and_lists(&plain, &copy);
    bits_end_with_writes(&plain, &copy);
    system("umount", &[text(&copy)]);
    daemon.terminate();
    home.check();
}

fn made_by_root(plain: &Path, copy: &Path) {
    fs::write(plain.join("root"), b"x").expect("create");
    assert_eq!(owner(&plain.join("root")), (0, 0));
    assert_eq!(owner(&copy.join("root")), (FIRST, FIRST));
    assert_eq!(owner(copy), (FIRST, FIRST));
    // Root of the machine has no number there.
    assert_eq!(errno(File::create_new(copy.join("none"))), libc::EOVERFLOW);
    assert_eq!(errno(fs::create_dir(copy.join("none"))), libc::EOVERFLOW);
    assert_eq!(errno(fs::metadata(plain.join("none"))), libc::ENOENT);
    // It reads and writes what is there, and sees all names of attributes.
    fs::write(copy.join("root"), b"more").expect("write");
    system("setfattr", &["-n", "trusted.sinter", "-v", "1", text(&plain.join("root"))]);
    for place in [plain, copy] {
        assert!(listed(&place.join("root")).contains("trusted.sinter"));
    }
}

fn made_by_users(plain: &Path, copy: &Path) {
    fs::set_permissions(plain, Permissions::from_mode(0o1777)).expect("chmod");
    for id in [0, 7, COUNT - 1] {
        let at = |name: &str| copy.join(format!("{name}{id}"));
        by(FIRST + id, || {
            fs::write(at("file"), b"content").expect("create");
            fs::create_dir(at("dir")).expect("mkdir");
            symlink("x", at("link")).expect("symlink");
            let fifo = CString::new(text(&at("fifo"))).expect("no NUL");
            // SAFETY: a call with a string that outlives it.
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0, "{}", Error::last_os_error());
            let file = nameless(copy, 0).expect("O_TMPFILE");
            link_open(&file, &at("nameless")).expect("linkat");
            fs::hard_link(at("file"), at("second")).expect("link");
            fs::rename(at("second"), at("dir").join("moved")).expect("rename");
            fs::write(at("old"), b"").expect("create");
            rename_with(&at("old"), &at("new"), libc::RENAME_WHITEOUT).expect("whiteout");
            fs::set_permissions(at("file"), Permissions::from_mode(0o640)).expect("chmod of one's own");
        });
        for name in ["file", "dir", "link", "fifo", "nameless", "old", "new"] {
            let name = format!("{name}{id}");
            assert_eq!(owner(&plain.join(&name)), (id, id), "{name}");
            assert_eq!(owner(&copy.join(&name)), (FIRST + id, FIRST + id), "{name}");
        }
        assert_eq!(fs::read(plain.join(format!("dir{id}/moved"))).expect("read"), b"content");
        by(FIRST + 99, || {
            assert_eq!(errno(fs::read(at("file"))), libc::EACCES);
            assert_eq!(errno(fs::set_permissions(at("file"), Permissions::from_mode(0o666))), libc::EPERM);
            assert_eq!(errno(fs::remove_file(at("file"))), libc::EPERM, "it lies in a directory with the sticky bit");
        });
    }
    by(7, || assert_eq!(errno(fs::read(copy.join("file7"))), libc::EACCES, "7 is somebody else in the copy"));
    by(7, || assert_eq!(fs::read(plain.join("file7")).expect("its own"), b"content"));
}

fn owners_and_lists(plain: &Path, copy: &Path) {
    let name = "file7";
    chown(copy.join(name), Some(FIRST + 8), Some(FIRST + 9)).expect("chown");
    assert_eq!(owner(&plain.join(name)), (8, 9));
    assert_eq!(errno(chown(copy.join(name), Some(5), None)), libc::EOVERFLOW, "nobody in the copy");
    assert_eq!(owner(&plain.join(name)), (8, 9));
    system("setfacl", &["-m", &format!("u:{}:rw", FIRST + 11), text(&copy.join(name))]);
    for (place, id) in [(plain, 11), (copy, FIRST + 11)] {
        let said = Command::new("getfacl").args(["-n", "-p", text(&place.join(name))]).output().expect("getfacl runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(&format!("user:{id}:rw-")), "{said}");
    }
    by(FIRST + 11, || fs::write(copy.join(name), b"by the list").expect("it may"));
    by(FIRST + 12, || assert_eq!(errno(fs::write(copy.join(name), b"x")), libc::EACCES));
}

fn bits_end_with_writes(plain: &Path, copy: &Path) {
    let path = plain.join("program");
    let mode = |mode| {
        fs::write(&path, b"content").expect("create");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
    };
    let is = || fs::metadata(&path).expect("stat").mode() & 0o7777;
    let append = || File::options().append(true).open(copy.join("program")).and_then(|mut file| file.write_all(b"x"));
    mode(0o6777);
    by(FIRST + 7, || append().expect("write"));
    assert_eq!(is(), 0o777);
    mode(0o6777);
    append().expect("root writes");
    assert_eq!(is(), 0o6777);
    let room = || {
        let file = File::options().write(true).open(copy.join("program")).expect("open");
        // SAFETY: the call takes numbers.
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 8192) }, 0, "{}", Error::last_os_error());
    };
    by(FIRST + 7, room);
    assert_eq!(is(), 0o777);
    mode(0o6777);
    room();
    assert_eq!(is(), 0o777, "the limit: nobody says that it is root who asks");
}
