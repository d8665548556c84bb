//! Names and attributes.

use crate::{Fixture, eventually, possible};
use front::fuse::Restriction;
use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn a_file_lives_from_create_to_unlink() {
    let Some(fixture) = Fixture::new() else { return };
    let (a, b) = (fixture.path("a"), fixture.path("b"));
    fs::write(&a, b"hello").expect("create and write");
    assert_eq!(fs::read(&a).expect("read"), b"hello");
    fs::rename(&a, &b).expect("rename");
    assert_eq!(fs::metadata(&a).expect_err("gone").raw_os_error(), Some(libc::ENOENT));
    assert_eq!(fs::metadata(&b).expect("there").len(), 5);
    fs::write(&b, b"by").expect("O_TRUNC");
    assert_eq!(fs::read(&b).expect("read"), b"by");
    fs::remove_file(&b).expect("unlink");
    assert!(!b.exists());
    eventually("every open is released", || fixture.memory.opens() == 0);
    assert_eq!(fixture.memory.tree.lock().expect("no panic").nodes.len(), 1, "only the root is left");
}

#[test]
fn an_unlinked_open_file_stays_readable() {
    use std::io::{Read, Seek, Write};
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).open(&path).expect("create");
    fs::remove_file(&path).expect("unlink");
    file.write_all(b"still here").expect("write");
    file.rewind().expect("seek");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "still here");
    drop(file);
    eventually("it is gone after the last close", || fixture.memory.tree.lock().expect("no panic").nodes.len() == 1);
}

#[test]
fn directories_and_links() {
    let Some(fixture) = Fixture::new() else { return };
    let (dir, inner, link) = (fixture.path("d"), fixture.path("d/inner"), fixture.path("link"));
    fs::create_dir(&dir).expect("mkdir");
    fs::write(&inner, b"x").expect("create");
    assert_eq!(fs::remove_dir(&dir).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));
    let target = "t".repeat(4095);
    symlink(&target, &link).expect("the longest target");
    assert_eq!(fs::read_link(&link).expect("readlink").as_os_str().as_bytes(), target.as_bytes());
    let long = fixture.path(&"n".repeat(255));
    symlink("../d/inner", &long).expect("the longest name");
    fs::rename(&inner, fixture.path(&"m".repeat(255))).expect("rename to the longest name");
    fs::remove_dir(&dir).expect("rmdir");
    fs::hard_link(&link, fixture.path("hard")).expect("one more name for a symbolic link");
    assert_eq!(fs::read_link(fixture.path("hard")).expect("readlink").as_os_str().as_bytes(), target.as_bytes());
    assert_eq!(
        fs::write(fixture.path(&"n".repeat(256)), b"").expect_err("too long").raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
}

#[test]
fn attributes_are_told_and_changed() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    fs::write(&path, vec![1; 5000]).expect("create");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    std::os::unix::fs::chown(&path, Some(12), Some(34)).expect("chown");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    let times = fs::FileTimes::new().set_accessed(UNIX_EPOCH + Duration::new(7, 8));
    file.set_times(times.set_modified(UNIX_EPOCH - Duration::new(1, 5))).expect("utimens");
    let found = fs::metadata(&path).expect("stat");
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o100_640, 12, 34));
    assert_eq!((found.atime(), found.atime_nsec()), (7, 8));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-2, 999_999_995));
    assert_eq!((found.size(), found.blocks(), found.blksize(), found.nlink()), (5000, 16, 4096, 1));
    file.set_len(100).expect("ftruncate");
    assert_eq!(fs::read(&path).expect("read"), [1; 100]);
    file.set_len(10_000).expect("extend");
    assert_eq!(fs::read(&path).expect("read")[100..], [0; 9900]);
    let root = fs::metadata(fixture.path("")).expect("stat");
    assert_eq!(root.ino(), crate::memory::root().0);
}

/// The daemon keeps access times, so it must know where nobody wants them: a mount's options, and O_NOATIME.
#[test]
fn reads_say_whether_access_times_follow() {
    if !possible() {
        return;
    }
    use std::os::unix::fs::OpenOptionsExt;
    for (options, file, directory) in
        [(&[][..], false, false), (&["noatime"], true, true), (&["nodiratime"], false, true), (&["ro"], true, true)]
    {
        let restrictions = options.iter().map(|name| Restriction::of(name).expect("an option of mounts")).collect();
        let fixture = Fixture::with(crate::directory(), 512 << 20, restrictions);
        {
            let mut tree = fixture.memory.tree.lock().expect("no panic");
            tree.file(b"f", b"bytes");
        }
        let quiet = || std::mem::take(&mut *fixture.memory.quiet.lock().expect("no panic"));
        assert_eq!(fs::read(fixture.path("f")).expect("read"), b"bytes");
        assert!(quiet().into_iter().all(|quiet| quiet == file), "{options:?}");
        assert_eq!(fs::read_dir(fixture.path("")).expect("opendir").count(), 1);
        let told = quiet();
        assert!(!told.is_empty() && told.into_iter().all(|quiet| quiet == directory), "{options:?}");
        let mut open = fs::OpenOptions::new();
        open.read(true).custom_flags(libc::O_NOATIME | libc::O_DIRECT);
        let opened = open.open(fixture.path("f")).expect("root may");
        std::os::unix::fs::FileExt::read_at(&opened, &mut [0; 5], 0).expect("read");
        assert_eq!(quiet(), [true], "{options:?}");
    }
}

#[test]
fn five_thousand_entries_are_listed_once_each() {
    let Some(fixture) = Fixture::new() else { return };
    let dir = fixture.path("many");
    fs::create_dir(&dir).expect("mkdir");
    let name = |number: u32| format!("{number}-{}", "x".repeat(number as usize % 200));
    for number in 0..5000 {
        fs::File::create(dir.join(name(number))).expect("create");
    }
    for _ in 0..2 {
        let entries: Vec<_> = fs::read_dir(&dir).expect("opendir").map(|entry| entry.expect("entry")).collect();
        assert_eq!(entries.len(), 5000);
        let names: HashSet<_> = entries.iter().map(|entry| entry.file_name().into_string().expect("ASCII")).collect();
        assert!((0..5000).all(|number| names.contains(&name(number))));
        for entry in entries.iter().step_by(97) {
            let found = entry.metadata().expect("stat");
            assert!(found.is_file() && entry.file_type().expect("d_type").is_file());
            assert_eq!(std::os::unix::fs::DirEntryExt::ino(entry), found.ino());
        }
    }
    // "." and ".." are not shown by the standard library, but by ls.
    let listed = std::process::Command::new("ls").arg("-f").arg(&dir).output().expect("ls runs");
    assert_eq!(listed.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count(), 5002);
    let listed = std::process::Command::new("ls").arg("-lai").arg(&dir).output().expect("ls runs");
    assert!(listed.status.success());
}

#[test]
fn special_requests_are_refused_or_left_to_the_kernel() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    fs::write(&path, b"0123456789").expect("create");
    let c_path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let errno = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: plain calls with strings that outlive them.
    unsafe {
        let fifo = std::ffi::CString::new(fixture.path("fifo").as_os_str().as_bytes()).expect("no NUL");
        assert_eq!(libc::mkfifo(fifo.as_ptr(), 0o600), 0);
        let found = fs::symlink_metadata(fixture.path("fifo")).expect("stat");
        assert_eq!(found.mode() & libc::S_IFMT, libc::S_IFIFO);
        let device = std::ffi::CString::new(fixture.path("device").as_os_str().as_bytes()).expect("no NUL");
        let number = libc::makedev(300, 70_000);
        assert_eq!(libc::mknod(device.as_ptr(), libc::S_IFCHR | 0o600, number), 0);
        assert_eq!(fs::metadata(fixture.path("device")).expect("stat").rdev(), number);
        let node = std::ffi::CString::new(fixture.path("node").as_os_str().as_bytes()).expect("no NUL");
        assert_eq!(libc::mknod(node.as_ptr(), libc::S_IFREG | 0o600, 0), 0);
        let flags = libc::RENAME_EXCHANGE;
        let exchange = libc::renameat2(libc::AT_FDCWD, node.as_ptr(), libc::AT_FDCWD, c_path.as_ptr(), flags);
        assert_eq!(exchange, 0);
        assert_eq!(libc::renameat2(libc::AT_FDCWD, node.as_ptr(), libc::AT_FDCWD, c_path.as_ptr(), flags), 0);
        let (flags, white) =
            (libc::RENAME_WHITEOUT, std::ffi::CString::new(fixture.path("white").as_os_str().as_bytes()));
        let white = white.expect("no NUL");
        assert_eq!(libc::renameat2(libc::AT_FDCWD, node.as_ptr(), libc::AT_FDCWD, white.as_ptr(), flags), 0);
        let left = fs::symlink_metadata(fixture.path("node")).expect("stat");
        assert_eq!((left.mode(), left.rdev()), (libc::S_IFCHR, 0));
        let flags = libc::RENAME_NOREPLACE;
        let keep = libc::renameat2(libc::AT_FDCWD, node.as_ptr(), libc::AT_FDCWD, c_path.as_ptr(), flags);
        assert_eq!((keep, errno()), (-1, Some(libc::EEXIST)));
        let (name, mut value) = (c"user.a".as_ptr(), [0u8; 64]);
        let mut get = |size| libc::getxattr(c_path.as_ptr(), name, value.as_mut_ptr().cast(), size);
        assert_eq!((get(64), errno()), (-1, Some(libc::ENODATA)));
        assert_eq!(libc::setxattr(c_path.as_ptr(), name, c"value".as_ptr().cast(), 5, 0), 0);
        assert_eq!((get(0), get(5), get(64)), (5, 5, 5));
        assert_eq!((get(4), errno()), (-1, Some(libc::ERANGE)));
        assert_eq!(&value[..6], b"value\0");
        assert_eq!(libc::setxattr(c_path.as_ptr(), c"trusted.b".as_ptr(), [].as_ptr(), 0, 0), 0);
        let mut list = |size| libc::listxattr(c_path.as_ptr(), value.as_mut_ptr().cast(), size);
        assert_eq!((list(0), list(17), list(64)), (17, 17, 17));
        assert_eq!((list(16), errno()), (-1, Some(libc::ERANGE)));
        assert_eq!(&value[..17], b"trusted.b\0user.a\0");
        assert_eq!((0..2).map(|_| libc::removexattr(c_path.as_ptr(), name)).collect::<Vec<_>>(), [0, -1]);
        assert_eq!(libc::access(c_path.as_ptr(), libc::R_OK), 0);
        let mut space: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(c_path.as_ptr(), &raw mut space), 0);
        assert_eq!((space.f_blocks * 4096, space.f_bavail * 4096), (1 << 40, 1 << 39));
    }
    fs::hard_link(&path, fixture.path("hard")).expect("link");
    assert_eq!(fs::metadata(&path).expect("stat").nlink(), 2);
    fs::remove_file(fixture.path("hard")).expect("unlink");
    assert_eq!(fs::metadata(&path).expect("stat").nlink(), 1);
    let copied = fs::copy(&path, fixture.path("copy")).expect("copy without copy_file_range");
    assert_eq!(copied, 10);
    eventually("the node's open is undone", || fixture.memory.opens() == 0);
}

/// Runs a shell command in the mount as nobody.
fn as_nobody(fixture: &Fixture, command: &str) -> bool {
    use std::os::unix::process::CommandExt;
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(command).uid(65_534).gid(65_534).current_dir(fixture.path(""));
    shell.status().expect("sh runs").success()
}

#[test]
fn other_users_get_their_own_files_and_no_more_than_their_rights() {
    let Some(fixture) = Fixture::new() else { return };
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o777)).expect("chmod");
    fs::write(fixture.path("secret"), b"x").expect("create");
    fs::set_permissions(fixture.path("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
    assert!(!as_nobody(&fixture, "cat secret 2>/dev/null"));
    assert!(as_nobody(&fixture, "umask 027; echo hi > theirs; mkdir dir; ln -s theirs link"));
    let found = fs::metadata(fixture.path("theirs")).expect("stat");
    assert_eq!((found.uid(), found.gid(), found.mode()), (65_534, 65_534, 0o100_640));
    assert_eq!(fs::metadata(fixture.path("dir")).expect("stat").mode(), 0o040_750);
    assert_eq!(fs::symlink_metadata(fixture.path("link")).expect("stat").uid(), 65_534);
}

#[test]
fn writing_by_others_takes_setuid_away() {
    let Some(fixture) = Fixture::new() else { return };
    for (number, command) in ["echo x >> suid", "echo x > suid", "truncate -s 1 suid"].into_iter().enumerate() {
        let path = fixture.path("suid");
        fs::write(&path, b"program").expect("create");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
        assert!(as_nobody(&fixture, command));
        assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o6000, 0, "case {number}");
        fs::remove_file(&path).expect("unlink");
    }
}
