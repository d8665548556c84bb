//! Mounts that come and go: of a whole brick at once, and of a volume whose last mount is still used.

use crate::daemon::{Daemon, Home, fail, mounts_below, run, succeed, text};
use std::fs::{File, read, read_to_string, write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon that ends with its last mount, for a brick with these volumes.
fn served(home: &Home, volumes: &[&str]) -> Daemon {
    succeed(&["format", text(&home.data), "--size", "4G"]);
    volumes.iter().for_each(|name| drop(succeed(&["volume", "create", text(&home.data), name])));
    let mut command = crate::daemon::sinter();
    command.args(["serve", text(&home.data), "--until-unmounted"]);
    Daemon::start(command)
}

/// A process with copies of all mounts in a mount namespace of its own.
struct Elsewhere(Child);

impl Elsewhere {
    fn new() -> Elsewhere {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", "echo there; exec sleep 600"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut line).expect("it says so");
        Elsewhere(child)
    }
    /// A path as it sees it.
    fn path(&self, path: &std::path::Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.0.id(), text(path)))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Mounts as mount(8) would, with options.
fn mount_with(home: &Home, point: &std::path::Path, options: &str) -> std::process::Output {
    let mut command = crate::daemon::sinter();
    std::os::unix::process::CommandExt::arg0(&mut command, "mount.sinter");
    command.args([text(&home.data), text(point), "-o", options]).output().expect("the binary runs")
}

#[test]
fn a_volume_is_mounted_again_while_another_namespace_has_a_copy_of_its_mount() {
    let home = Home::new("mounts-copy");
    let (data, again) = (text(&home.data), home.scratch.directory("again"));
    let daemon = served(&home, &["one"]);
    succeed(&["mount", data, "one", text(&home.mount)]);
    write(home.mount.join("file"), "first").expect("the mount is writable");
    let elsewhere = Elsewhere::new();
    succeed(&["umount", text(&home.mount)]);
    let there = elsewhere.path(&home.mount);
    assert_eq!(read(there.join("file")).expect("the copy is served"), b"first");
    assert!(succeed(&["volume", "list", data]).contains("detached"));
    // The same file system: what one side does the other one sees at once.
    let started = Instant::now();
    succeed(&["mount", data, "one", text(&again)]);
    assert!(started.elapsed() < Duration::from_secs(2), "nobody is waited for: {:?}", started.elapsed());
    assert_eq!(read(again.join("file")).expect("it is there"), b"first");
    write(again.join("file"), "second").expect("the mount is writable");
    assert_eq!(read(there.join("file")).expect("the copy is served"), b"second");
    write(there.join("other"), "third").expect("the copy is writable");
    assert_eq!(read(again.join("other")).expect("it is there"), b"third");
    let list = succeed(&["volume", "list", data]);
    assert!(list.contains(text(&again)) && !list.contains("detached"), "{list}");
    fail(&["mount", data, "one", text(&home.mount)], 3, &[text(&again)]);
    succeed(&["umount", text(&again)]);
    // Read-only is this place's affair alone.
    let output = mount_with(&home, &home.mount, "volume=one,ro");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let refused = write(home.mount.join("file"), "never").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    write(there.join("file"), "fourth").expect("the copy is writable");
    assert_eq!(read(home.mount.join("file")).expect("it is there"), b"fourth");
    succeed(&["umount", text(&home.mount)]);
    drop(elsewhere);
    let (status, said) = daemon.wait();
    assert!(status.success() && said.contains("was unmounted: ending"), "{said}");
    home.check();
}

#[test]
fn a_volume_whose_files_are_still_open_is_mounted_again_and_nobody_is_disturbed() {
    let home = Home::new("mounts-open");
    let (data, again) = (text(&home.data), home.scratch.directory("again"));
    let daemon = home.up();
    let mut open = File::create(home.mount.join("file")).expect("the mount is writable");
    succeed(&["umount", text(&home.mount), "--lazy"]);
    assert!(succeed(&["status", data]).contains("(detached, still used)"));
    succeed(&["mount", data, "default", text(&again)]);
    std::io::Write::write_all(&mut open, b"a line").expect("an open file is served");
    assert_eq!(read(again.join("file")).expect("it is there"), b"a line");
    drop(open);
    // `up` ends with its mount, wherever that is by now.
    succeed(&["umount", text(&again)]);
    let (status, said) = daemon.wait();
    assert!(status.success() && said.contains(&format!("{} was unmounted", text(&again))), "{said}");
    home.check();
}

#[test]
fn a_mount_that_was_read_only_comes_back_writable() {
    let home = Home::new("mounts-ro");
    let daemon = served(&home, &["one"]);
    assert!(mount_with(&home, &home.mount, "volume=one,ro").status.success());
    let elsewhere = Elsewhere::new();
    succeed(&["umount", text(&home.mount)]);
    assert!(mount_with(&home, &home.mount, "volume=one,nosuid").status.success());
    write(home.mount.join("file"), "here").expect("the mount is writable");
    let table = read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let line = table.lines().find(|line| line.contains(text(&home.mount))).expect("it is mounted");
    assert!(line.contains(" rw,nosuid"), "{line}");
    drop(elsewhere);
    succeed(&["umount", text(&home.mount)]);
    assert!(daemon.wait().0.success());
}

#[test]
fn all_mounts_of_a_brick_end_at_once() {
    let home = Home::new("mounts-all");
    let data = text(&home.data);
    let points = ["a", "b", "c"].map(|name| home.scratch.directory(name));
    let daemon = served(&home, &["a", "b", "c"]);
    for (name, point) in ["a", "b", "c"].iter().zip(&points) {
        succeed(&["mount", data, name, text(point)]);
        write(point.join("file"), name).expect("the mount is writable");
    }
    let bound = home.scratch.directory("bound");
    crate::daemon::system("mount", &["--bind", text(&points[0]), text(&bound)]);
    // Of one volume, wherever it is mounted.
    let said = succeed(&["umount", data, "a"]);
    assert!(said.contains(text(&points[0])) && said.contains(text(&bound)), "{said}");
    assert_eq!(mounts_below(home.scratch.path()).len(), 2);
    fail(&["umount", data, "absent"], 1, &["no volume of this name"]);
    // Who has files open is waited for, and named.
    let open = File::create(points[1].join("open")).expect("the mount is writable");
    let whom = format!("1 open file (1 of process {} (", std::process::id());
    fail(&["umount", data, "--timeout", "1"], 3, &[&whom, text(&points[1])]);
    assert_eq!(mounts_below(home.scratch.path()), [text(&points[1])], "the others are gone");
    let json = std::thread::scope(|scope| {
        let umount = scope.spawn(|| run(&["umount", data, "--json"]));
        std::thread::sleep(Duration::from_millis(1200));
        drop(open);
        umount.join().expect("no panic")
    });
    assert!(String::from_utf8_lossy(&json.stderr).contains(&format!("waiting at most 60 s for {whom}")));
    let told: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&told["unmounted"][0], &told["ended"]), (&text(&points[1]).into(), &true.into()), "{told}");
    // It had ended when the command returned, with nothing to replay.
    home.check();
    assert!(daemon.wait().0.success());
    assert!(succeed(&["umount", data]).contains("nothing of"), "what was asked for is so");
    fail(&["umount", text(&home.scratch.join("a"))], 1, &["nothing is mounted"]);
}

#[test]
fn all_mounts_of_a_brick_can_be_detached() {
    let home = Home::new("mounts-lazy");
    let daemon = served(&home, &["a"]);
    succeed(&["mount", text(&home.data), "a", text(&home.mount)]);
    let open = File::create(home.mount.join("open")).expect("the mount is writable");
    let said = succeed(&["umount", text(&home.data), "--lazy"]);
    assert!(said.contains("a, detached, still used by 1 open file"), "{said}");
    assert!(mounts_below(home.scratch.path()).is_empty());
    // Without --lazy it waits for the end of what was detached before, too.
    fail(&["umount", text(&home.data), "--timeout", "1"], 3, &["still used by 1 open file"]);
    drop(open);
    succeed(&["umount", text(&home.data)]);
    assert!(daemon.wait().0.success());
    home.check();
}

fn told(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeed(&[arguments, &["--json"]].concat())).expect("JSON")
}

#[test]
fn a_volume_gets_another_name_and_size_mounted_or_not() {
    let home = Home::new("mounts-volume");
    let data = text(&home.data);
    succeed(&["format", data, "--size", "4G"]);
    // Nobody serves it.
    succeed(&["volume", "create", data, "one", "--size", "64M"]);
    succeed(&["volume", "create", data, "other"]);
    assert_eq!(told(&["volume", "rename", data, "one", "two"])["name"], "two");
    assert_eq!(told(&["volume", "set", data, "two", "--size", "16 MiB"])["size_bytes"], 16 << 20);
    fail(&["volume", "rename", data, "one", "three"], 1, &["no volume has this name"]);
    fail(&["volume", "rename", data, "two", "other"], 1, &["a volume has this name"]);
    fail(&["volume", "set", data, "absent", "--size", "1M"], 1, &["no such volume"]);
    // Mounted by a line as /etc/fstab has it.
    let log = home.scratch.join("log");
    let options = |volume: &str| format!("volume={volume},log={}", text(&log));
    assert!(mount_with(&home, &home.mount, &options("two")).status.success());
    let file = File::create(home.mount.join("file")).expect("the mount is writable");
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8 << 20], 0).expect("there is room");
    let refused = fail(&["volume", "set", data, "two", "--size", "4M"], 1, &["uses more than that", "4194304 wanted"]);
    assert!(refused.contains("bytes used"), "{refused}");
    assert_eq!(told(&["volume", "set", data, "two", "--size", "10M"])["size_bytes"], 10 << 20);
    let full = std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8 << 20], 8 << 20).expect_err("10 MiB are full");
    assert_eq!(full.raw_os_error(), Some(libc::EDQUOT));
    assert!(told(&["volume", "set", data, "two", "--size", "none"])["size_bytes"].is_null());
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8 << 20], 8 << 20).expect("the brick has room");
    // The list, the status and lines of /etc/fstab have the new name; whoever uses it goes on.
    let renamed = told(&["volume", "rename", data, "two", "three"]);
    assert_eq!((&renamed["name"], &renamed["mounts"][0]), (&"three".into(), &text(&home.mount).into()));
    assert_eq!(told(&["status", data])["mounts"][0]["volume"], "three");
    std::os::unix::fs::FileExt::write_all_at(&file, b"more", 16 << 20).expect("an open file is served");
    drop(file);
    fail(&["volume", "delete", data, "three"], 3, &["three at"]);
    succeed(&["umount", data, "three"]);
    // The daemon that was started for nothing ends, and takes no mount any more that it would take away with it.
    for _ in 0..4 {
        let gone = mount_with(&home, &home.mount, &options("two"));
        assert_eq!(gone.status.code(), Some(32));
        assert!(String::from_utf8_lossy(&gone.stderr).contains("no volume of this name"));
        assert!(mount_with(&home, &home.mount, &options("three")).status.success());
        assert_eq!(std::fs::metadata(home.mount.join("file")).expect("it is there").len(), (16 << 20) + 4);
        succeed(&["umount", data]);
    }
    assert_eq!(told(&["volume", "set", data, "three", "--size", "1T"])["size_bytes"], 1u64 << 40);
    home.check();
}
