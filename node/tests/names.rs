//! Names on a real mount that are more than a file's only one: hard links across directories (which lie in different
//! groups), exchanges, pipes and devices; all of it after a kill as before.

mod daemon;

use daemon::{Home, system, text};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Directories: each is born in a group of its own.
const DIRECTORIES: u64 = 12;
const FILES: u64 = 40;

fn exchange(one: &Path, other: &Path) -> std::io::Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let (one, other) = (path(one), path(other));
    let flags = libc::RENAME_EXCHANGE;
    // SAFETY: a call with strings that outlive it.
    match unsafe { libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Every file has a name in each directory; in every third directory that of its neighbour.
fn verify(mount: &Path) {
    for file in 0..FILES {
        for directory in 0..DIRECTORIES {
            let path = mount.join(format!("d{directory}/f{file}"));
            let wanted = if directory % 3 == 0 { file ^ 1 } else { file };
            assert_eq!(fs::read_to_string(&path).expect("it is there"), wanted.to_string(), "{}", path.display());
            assert_eq!(fs::metadata(&path).expect("stat").nlink(), DIRECTORIES);
        }
    }
    assert!(fs::symlink_metadata(mount.join("pipe")).expect("stat").file_type().is_fifo());
    let null = fs::metadata(mount.join("null")).expect("stat");
    assert!(null.file_type().is_char_device() && null.rdev() == libc::makedev(1, 3));
}

#[test]
fn names_of_every_kind_survive_a_kill() {
    let home = Home::new("names");
    let daemon = home.up();
    let mount = &home.mount;
    (0..DIRECTORIES).for_each(|directory| fs::create_dir(mount.join(format!("d{directory}"))).expect("mkdir"));
    for file in 0..FILES {
        let first = mount.join(format!("d0/f{file}"));
        fs::write(&first, file.to_string()).expect("create");
        for directory in 1..DIRECTORIES {
            fs::hard_link(&first, mount.join(format!("d{directory}/f{file}"))).expect("link");
        }
    }
    for directory in (0..DIRECTORIES).step_by(3) {
        for file in (0..FILES).step_by(2) {
            let path = |file| mount.join(format!("d{directory}/f{file}"));
            exchange(&path(file), &path(file + 1)).expect("exchange");
        }
    }
    system("mkfifo", &[text(&mount.join("pipe"))]);
    system("mknod", &[text(&mount.join("null")), "c", "1", "3"]);
    fs::hard_link(mount.join("d0"), mount.join("d1/loop")).expect_err("a directory has one name");
    fs::create_dir(mount.join("d2/below")).expect("mkdir");
    exchange(&mount.join("d2"), &mount.join("d2/below")).expect_err("no directory lies in itself");
    fs::remove_dir(mount.join("d2/below")).expect("rmdir");
    verify(mount);
    File::open(mount).and_then(|directory| directory.sync_all()).expect("sync");
    system("sync", &["-f", text(mount)]);
    daemon.kill();
    let daemon = home.up();
    verify(mount);
    for directory in 1..DIRECTORIES {
        fs::remove_dir_all(mount.join(format!("d{directory}"))).expect("rm");
    }
    for file in 0..FILES {
        let path = mount.join(format!("d0/f{file}"));
        assert_eq!(fs::metadata(&path).expect("stat").nlink(), 1);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), (file ^ 1).to_string());
    }
    daemon.terminate();
    home.check();
}
