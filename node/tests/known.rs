//! Inodes live as long as the kernel refers to them, on a real mount, beside the file system that the tests lie on: names that
//! are replaced, directories that are removed while somebody is in them, and what is left once the kernel has forgotten.

use crate::daemon::{Home, Scratch, setting, succeed, text};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Two processes replace a name, others use it in every way: it names the old file or the new one, and is never an error.
#[test]
fn a_name_that_is_replaced_again_and_again_is_never_an_error() {
    let home = Home::new("replaced");
    let daemon = home.up();
    let seconds = setting("SINTER_REPLACE_SECONDS", 3);
    let (name, over) = (home.mount.join("name"), AtomicBool::new(false));
    fs::write(&name, b"first").expect("a new file");
    let used = thread::scope(|scope| {
        for number in 0..2 {
            let (name, over, from) = (&name, &over, home.mount.join(format!("next{number}")));
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    fs::write(&from, b"another").expect("a new file");
                    fs::rename(&from, name).expect("it replaces");
                }
            });
        }
        let users: Vec<_> = (0..3)
            .map(|number| {
                scope.spawn({
                    let (name, over) = (&name, &over);
                    move || use_name(name, number, over)
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(seconds));
        over.store(true, Ordering::Relaxed);
        users.into_iter().map(|user| user.join().expect("no error")).sum::<u64>()
    });
    assert!(used > 100, "{used} uses");
    daemon.terminate();
    home.check();
}

fn use_name(name: &Path, number: u32, over: &AtomicBool) -> u64 {
    let mut times = 0;
    while !over.load(Ordering::Relaxed) {
        let content = fs::read(name).expect("open and read");
        assert!([&b"first"[..], b"another", b"", b"\0\0\0"].iter().any(|one| content.starts_with(one)), "{content:?}");
        let file = File::options().write(true).open(name).expect("open");
        file.set_times(fs::FileTimes::new().set_modified(SystemTime::now())).expect("futimens");
        fs::set_permissions(name, Permissions::from_mode(0o600 | number)).expect("chmod");
        let path = std::ffi::CString::new(text(name)).expect("no NUL");
        // SAFETY: calls with strings and bytes that outlive them.
        let results = unsafe {
            let value = number.to_le_bytes();
            [
                libc::truncate(path.as_ptr(), 3),
                libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0),
                libc::setxattr(path.as_ptr(), c"user.number".as_ptr(), value.as_ptr().cast(), value.len(), 0),
                libc::chown(path.as_ptr(), 0, 0),
            ]
        };
        assert_eq!(results, [0; 4], "{}", std::io::Error::last_os_error());
        times += 1;
    }
    times
}

/// The attributes of a directory as seen by a process that is in it, and by one that has it open.
fn told_of_removed(place: &Path, replaced: bool) -> Vec<String> {
    let (dir, other) = (place.join("dir"), place.join("other"));
    fs::create_dir(&dir).expect("mkdir");
    fs::write(dir.join("lost"), b"x").expect("a new file");
    fs::remove_file(dir.join("lost")).expect("unlink");
    let open = File::open(&dir).expect("opendir");
    let gone = if replaced {
        fs::create_dir(&other).expect("mkdir");
        "python3 -c 'import os; os.rename(\"other\", \"dir\")'"
    } else {
        "rmdir dir"
    };
    let script = format!(
        "cd dir && (cd .. && {gone}) && stat -c %h,%F . && ls -a . ; ls ; touch . ; echo $? ; chmod 700 . ; \
         stat -c %a . ; touch file 2>/dev/null ; echo $? ; cd .. && pwd -P | sed 's:.*/::' "
    );
    let output = Command::new("sh").arg("-c").arg(script).current_dir(place).output().expect("a shell");
    let mut told = vec![String::from_utf8_lossy(&output.stdout).into(), String::from_utf8_lossy(&output.stderr).into()];
    let attributes = open.metadata().expect("fstat");
    told.push(format!("{} links, mode {:o}", attributes.nlink(), attributes.mode()));
    open.set_permissions(Permissions::from_mode(0o750)).expect("fchmod");
    open.set_times(fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).expect("futimens");
    let attributes = open.metadata().expect("fstat");
    told.push(format!("mode {:o}, time {}", attributes.mode(), attributes.mtime()));
    for below in [c".", c".."] {
        // SAFETY: a call with a string that outlives it.
        let found = unsafe { libc::openat(open.as_raw_fd(), below.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY) };
        told.push(format!("{below:?} opened: {}", found >= 0));
        if found >= 0 {
            // SAFETY: it was just opened, and nobody else has it.
            drop(unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(found) });
        }
    }
    let through = format!("/proc/self/fd/{}", open.as_raw_fd());
    told.push(match fs::read_dir(through) {
        Ok(entries) => format!("{} entries", entries.count()),
        Err(error) => format!("{error}"),
    });
    told
}

#[test]
fn a_removed_directory_answers_who_is_in_it_as_the_file_system_below_does() {
    let (home, below) = (Home::new("removed"), Scratch::new("removed-below"));
    let daemon = home.up();
    // The last name of a place shows in what is told.
    let places = [home.mount.join("place"), below.join("place")];
    for replaced in [false, true] {
        let told = places.each_ref().map(|place| {
            fs::create_dir(place).expect("mkdir");
            let told = told_of_removed(place, replaced);
            fs::remove_dir_all(place).expect("rm -r");
            told
        });
        assert_eq!(told[0], told[1], "replaced: {replaced}");
        assert!(told[0][2].starts_with("0 links") && told[0][0].starts_with("0,directory"), "{told:?}");
    }
    daemon.terminate();
    home.check();
}

fn known(home: &Home) -> u64 {
    let status = succeed(&["status", "--json", text(&home.data)]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let figures = status["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == "inodes known to the kernel").expect("the figure");
    found["value"].as_u64().expect("a number")
}

/// The inodes known to the kernel, in whatever way it came to know them, are all forgotten once it has dropped its
/// caches.
#[test]
fn nothing_is_known_once_the_kernel_has_dropped_its_caches() {
    let home = Home::new("forgotten");
    let daemon = home.up();
    let dir = home.mount.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    for number in 0..500 {
        fs::write(dir.join(format!("f{number}")), b"content").expect("a new file");
    }
    fs::hard_link(dir.join("f0"), dir.join("link")).expect("link");
    std::os::unix::fs::symlink("f0", dir.join("symlink")).expect("symlink");
    assert!(known(&home) >= 500);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for entry in fs::read_dir(&dir).expect("opendir") {
                    let path = entry.expect("readdir").path();
                    match fs::symlink_metadata(path.with_extension("none")) {
                        Err(error) if error.kind() == ErrorKind::NotFound => fs::metadata(&path).expect("stat"),
                        other => panic!("a name that is not there: {other:?}"),
                    };
                }
            });
        }
        scope.spawn(|| (0..5).for_each(|_| fs::write("/proc/sys/vm/drop_caches", "2").expect("root may")));
    });
    for number in 0..250 {
        fs::remove_file(dir.join(format!("f{number}"))).expect("unlink");
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while known(&home) > 0 {
        assert!(Instant::now() < deadline, "{} inodes are still known", known(&home));
        fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(fs::read_dir(&dir).expect("opendir").count(), 252);
    daemon.terminate();
    home.check();
}
