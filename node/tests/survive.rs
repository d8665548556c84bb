//! Stored data survives: the daemon's orderly end, its kill, and a remount, on a real mount. `SINTER_FILES` sets the
//! number of files (2,000 if not set).

use crate::daemon::{Daemon, Home, Scratch, mounts_below, succeed, system, text};
use crate::tree;
use base::seeded::Bug;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const O_DSYNC: i32 = 0o10000;

fn files() -> u64 {
    crate::daemon::setting("SINTER_FILES", 2000)
}

/// A tree outside of the mount, and its copy in it.
fn copied(home: &Home, files: u64, seed: u64) -> Scratch {
    let source = Scratch::new("source");
    tree::make(source.path(), files, seed);
    system("cp", &["-a", &format!("{}/.", text(source.path())), text(&home.mount)]);
    source
}

fn is_mounted(path: &Path) -> bool {
    !mounts_below(path).is_empty()
}

#[test]
fn a_tree_survives_an_orderly_restart() {
    let home = Home::new("restart");
    let daemon = home.up();
    assert!(daemon.ready.starts_with("ready: volume default at "), "{}", daemon.ready);
    let source = copied(&home, files(), 1);
    let count = tree::compare(source.path(), &home.mount);
    assert!(count as u64 > files());
    daemon.terminate();
    assert!(!is_mounted(&home.mount), "SIGTERM leaves nothing behind");
    assert!(!home.data.join("admin.sock").exists(), "SIGTERM leaves nothing behind");
    home.check();
    let daemon = home.up();
    tree::compare(source.path(), &home.mount);
    daemon.terminate();
    home.check();
}

fn survive_kill(home: &Home, start: impl Fn() -> Daemon) {
    let daemon = start();
    let source = copied(home, files(), 2);
    system("sync", &[]);
    // The kernel does not always hand `sync` to a FUSE file system; after a second all is durable by itself (rule U3).
    std::thread::sleep(Duration::from_secs(2));
    daemon.kill();
    // The dead mount is taken over.
    let daemon = start();
    tree::compare(source.path(), &home.mount);
    daemon.terminate();
    home.check();
}

#[test]
fn a_tree_survives_a_kill() {
    let home = Home::new("kill");
    survive_kill(&home, || home.up());
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_tree_survives_a_kill_that_takes_unflushed_writes() {
    let home = Home::new("volatile");
    survive_kill(&home, || {
        let mut command = home.command();
        command.env("SINTER_TEST_VOLATILE_CACHE", "1");
        Daemon::start(command)
    });
}

/// Writers each overwrite and append with O_DSYNC until the daemon is killed; what was acknowledged must be there.
fn survive_kill_while_writing(home: &Home, start: impl Fn() -> Daemon) {
    let daemon = start();
    let writers: Vec<_> = (0..4u64)
        .map(|writer| {
            let path = home.mount.join(format!("log-{writer}"));
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(false).custom_flags(O_DSYNC);
            let file = options.open(&path).expect("the mount is writable");
            std::thread::spawn(move || {
                let mut acknowledged = 0u64;
                loop {
                    let block = [acknowledged.to_le_bytes(), writer.to_le_bytes()].concat().repeat(256);
                    if file.write_all_at(&block, acknowledged * 4096).is_err() {
                        return acknowledged;
                    }
                    acknowledged += 1;
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(3));
    daemon.kill();
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
    let daemon = start();
    for (writer, &count) in acknowledged.iter().enumerate() {
        assert!(count > 0, "writer {writer} got nothing acknowledged");
        let content = std::fs::read(home.mount.join(format!("log-{writer}"))).expect("the file is there");
        assert!(content.len() as u64 >= count * 4096, "writer {writer}: {} bytes of {count} blocks", content.len());
        for (number, block) in content.chunks(4096).take(count as usize).enumerate() {
            let expected = [(number as u64).to_le_bytes(), (writer as u64).to_le_bytes()].concat().repeat(256);
            assert!(block == expected, "writer {writer}: block {number} of {count} acknowledged ones differs");
        }
    }
    daemon.terminate();
    home.check();
}

#[test]
fn acknowledged_synchronous_writes_survive_a_kill() {
    let home = Home::new("dsync");
    survive_kill_while_writing(&home, || home.up());
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn acknowledged_synchronous_writes_survive_a_kill_that_takes_unflushed_writes() {
    let home = Home::new("dsync-volatile");
    survive_kill_while_writing(&home, || {
        let mut command = home.command();
        command.env("SINTER_TEST_VOLATILE_CACHE", "1");
        Daemon::start(command)
    });
}

#[test]
fn unmounting_ends_the_daemon_and_keeps_everything() {
    let home = Home::new("umount");
    let daemon = home.up();
    let source = copied(&home, 50, 3);
    succeed(&["umount", text(&home.mount)]);
    let (status, errors) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{errors}");
    let daemon = home.up();
    tree::compare(source.path(), &home.mount);
    daemon.signal("INT");
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn a_daemon_ends_although_its_mount_is_in_use() {
    let home = Home::new("in-use");
    let daemon = home.up();
    let open = std::fs::File::create(home.mount.join("open")).expect("the mount is writable");
    open.write_all_at(b"kept", 0).expect("the mount is writable");
    daemon.terminate();
    assert!(!is_mounted(&home.mount));
    drop(open);
    let daemon = home.up();
    assert_eq!(std::fs::read(home.mount.join("open")).expect("it is there"), b"kept");
    daemon.terminate();
}

/// Serves a brick with a volume that is mounted, and mounts it elsewhere too.
fn mount_twice(home: &Home, bug: Option<Bug>) -> (Daemon, PathBuf, Output) {
    let mut up = home.command();
    if let Some(bug) = bug {
        up.env("SINTER_TEST_BUG", format!("{bug:?}"));
    }
    let daemon = Daemon::start(up);
    let elsewhere = home.scratch.directory("elsewhere");
    std::fs::write(home.mount.join("file"), "1").expect("the mount is writable");
    let mounted = crate::daemon::sinter().args(["mount", text(&home.data), "default", text(&elsewhere)]).output();
    (daemon, elsewhere, mounted.expect("the binary runs"))
}

#[test]
fn a_volume_has_one_mount_that_may_cache_all_of_it() {
    let home = Home::new("one-mount");
    let (daemon, elsewhere, mounted) = mount_twice(&home, None);
    let said = String::from_utf8_lossy(&mounted.stderr);
    assert_eq!(mounted.status.code(), Some(3), "{said}");
    assert!(said.contains("--bind") && said.contains(text(&home.mount)), "{said}");
    assert!(!is_mounted(&elsewhere));
    assert_eq!(std::fs::read_to_string(home.mount.join("file")).expect("it is there"), "1");
    daemon.terminate();
    // Where it was makes no difference once it is not mounted any more.
    let mut serve = crate::daemon::sinter();
    serve.args(["serve", text(&home.data)]);
    let daemon = Daemon::start(serve);
    for path in [&home.mount, &elsewhere, &home.mount] {
        succeed(&["mount", text(&home.data), "default", text(path)]);
        assert_eq!(std::fs::read_to_string(path.join("file")).expect("it is there"), "1");
        succeed(&["umount", text(path)]);
    }
    daemon.terminate();
    home.check();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_second_mount_of_a_volume_reads_what_is_gone() {
    let home = Home::new("two-mounts");
    let (daemon, elsewhere, mounted) = mount_twice(&home, Some(Bug::MountedTwice));
    assert!(mounted.status.success(), "{mounted:?}");
    let size = |path: &Path| std::fs::metadata(path.join("file")).expect("it is there").len();
    assert_eq!(size(&elsewhere), 1);
    std::fs::write(home.mount.join("file"), "four").expect("the mount is writable");
    assert_eq!((size(&home.mount), size(&elsewhere)), (4, 1), "caches know of each other, and one mount is not needed");
    succeed(&["umount", text(&elsewhere)]);
    daemon.terminate();
}

#[test]
fn a_served_brick_mounts_many_volumes() {
    let home = Home::new("serve");
    let data = text(&home.data);
    let formatted = succeed(&["format", data, "--size", "4G"]);
    assert!(formatted.contains("4 GiB, 64 groups"), "{formatted}");
    // Without a daemon the brick is opened for the moment.
    succeed(&["volume", "create", data, "one"]);
    let mut serve = crate::daemon::sinter();
    serve.args(["serve", data]);
    let served = Daemon::start(serve);
    succeed(&["volume", "create", data, "two"]);
    let list = succeed(&["volume", "list", data]);
    assert!(list.contains("one") && list.contains("two"), "{list}");
    let other = home.scratch.directory("other");
    succeed(&["mount", data, "one", text(&home.mount)]);
    succeed(&["mount", data, "two", text(&other)]);
    std::fs::write(home.mount.join("file"), "first").expect("the mount is writable");
    std::fs::write(other.join("file"), "second").expect("the mount is writable");
    assert_eq!(std::fs::read_to_string(home.mount.join("file")).expect("it is there"), "first");
    let status: serde_json::Value =
        serde_json::from_str(&succeed(&["status", data, "--json"])).expect("status is JSON");
    assert_eq!(status["mounts"].as_array().map(Vec::len), Some(2));
    let profile: serde_json::Value =
        serde_json::from_str(&succeed(&["profile", data, "--json"])).expect("a profile is JSON");
    let writes = profile["operations"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == "write"))
        .expect("two writes");
    assert_eq!(writes["total"]["count"], 2);
    assert!(succeed(&["profile", data, "--history"]).contains("write"));
    crate::daemon::fail(&["volume", "delete", data, "one"], 3, &["is mounted", "one"]);
    crate::daemon::fail(&["volume", "create", data, "one"], 1, &["volume"]);
    crate::daemon::fail(&["mount", data, "three", text(&home.mount)], 1, &["three"]);
    succeed(&["umount", text(&other)]);
    succeed(&["volume", "delete", data, "two"]);
    served.terminate();
    assert!(!is_mounted(&home.mount));
    crate::daemon::fail(&["volume", "info", data, "two"], 1, &["two"]);
    assert!(succeed(&["volume", "info", data, "one", "--json"]).contains("\"one\""));
    home.check();
}
