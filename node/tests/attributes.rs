//! Attributes beside those that every `stat` tells, on a real mount: the time of birth.

mod daemon;

use daemon::{Home, system, text};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// When it was made, by statx. Whatever else that tells is what the plain `stat` told before.
fn born(path: &Path) -> SystemTime {
    let found = fs::symlink_metadata(path).expect("statx");
    let plain = std::process::Command::new("stat").args(["-c", "%f %h %u %g %s %t %T %i"]).arg(path).output();
    let told = String::from_utf8(plain.expect("stat runs").stdout).expect("text");
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    let expected = format!(
        "{:x} {} {} {} {} {major:x} {minor:x} {}\n",
        found.mode(),
        found.nlink(),
        found.uid(),
        found.gid(),
        found.size(),
        found.ino()
    );
    assert_eq!(told, expected, "{}", path.display());
    found.created().expect("a time of birth")
}

/// Of each kind of object; nothing that is done to it moves that time, and a crash keeps it.
#[test]
fn the_time_of_birth_stays() {
    let home = Home::new("birth");
    let daemon = home.up();
    let begun = SystemTime::now();
    let made = |name: &str| home.mount.join(name);
    fs::write(made("file"), b"content").expect("create");
    fs::create_dir(made("dir")).expect("mkdir");
    std::os::unix::fs::symlink("file", made("link")).expect("symlink");
    system("mkfifo", &[text(&made("fifo"))]);
    system("mknod", &[text(&made("device")), "c", "300", "70000"]);
    let names = ["file", "dir", "link", "fifo", "device"];
    let births = names.map(|name| born(&made(name)));
    let slack = Duration::from_millis(100);
    assert!(births.iter().all(|time| *time + slack >= begun && *time <= SystemTime::now() + slack), "{births:?}");
    std::thread::sleep(Duration::from_millis(20));
    let mut file = File::options().append(true).open(made("file")).expect("open");
    file.write_all(b"more").expect("write");
    file.set_times(fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).expect("futimens");
    fs::set_permissions(made("file"), Permissions::from_mode(0o4711)).expect("chmod");
    fs::hard_link(made("file"), made("dir/second")).expect("link");
    for name in names.iter().filter(|name| **name != "dir") {
        fs::rename(made(name), made("dir").join(name)).expect("rename");
    }
    fs::rename(made("dir"), made("moved")).expect("rename");
    let places = ["moved/file", "moved", "moved/link", "moved/fifo", "moved/device"];
    let after = places.map(|place| born(&made(place)));
    assert_eq!(after, births);
    assert_eq!(born(&made("moved/second")), births[0]);
    for place in ["moved/file", "moved", "."] {
        File::open(made(place)).expect("open").sync_all().expect("fsync");
    }
    daemon.kill();
    let daemon = home.up();
    assert_eq!(places.map(|place| born(&made(place))), births, "after a crash");
    fs::write(made("late"), b"x").expect("create");
    fs::rename(made("late"), made("moved/file")).expect("it replaces");
    assert!(born(&made("moved/file")) > births[0], "another file");
    daemon.terminate();
    home.check();
}
