//! Mounting, unmounting, and what comes between.

use crate::{Fixture, LONG, directory, eventually, options, possible};
use base::Kind;
use front::fuse::{self, Unmounted};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names the directory in which `a_daemon_that_never_ends` is to mount.
const DAEMON_DIRECTORY: &str = "SINTER_FRONT_TEST_DIRECTORY";

/// The process that other tests start in order to kill it; no test of its own.
#[test]
fn a_daemon_that_never_ends() {
    if let Some(directory) = std::env::var_os(DAEMON_DIRECTORY) {
        // It must not use its own mount once others may kill it: it would wait for its own answer and never end.
        let served = Path::new(&directory).join("served");
        let _fixture = Fixture::at(directory.into());
        fs::write(served, b"").expect("beside the mount");
        loop {
            std::thread::park();
        }
    }
}

/// Mounts in another process, and kills that.
fn leave_dead_mount(directory: &Path) {
    let mut daemon = Command::new(std::env::current_exe().expect("we run"));
    daemon.args(["--exact", "life::a_daemon_that_never_ends"]).env(DAEMON_DIRECTORY, directory);
    let mut daemon = daemon.stdout(Stdio::null()).spawn().expect("starts");
    let ready = directory.join("mount/ready");
    let served = directory.join("served");
    eventually("the daemon serves", || served.exists());
    fs::remove_file(&served).expect("it is there");
    fs::write(&ready, b"yes").expect("it works");
    daemon.kill().expect("it runs");
    daemon.wait().expect("it ends");
}

fn listing_error(directory: &Path) -> Option<i32> {
    fs::read_dir(directory.join("mount")).err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_dead_mount_is_taken_over() {
    if !possible() {
        return;
    }
    let directory = directory();
    leave_dead_mount(&directory);
    // The kernel closes the daemon's rings, and with them the connection, a moment after its end; what comes meanwhile
    // is told in other words.
    eventually("the connection is gone", || {
        let errno = listing_error(&directory).expect("nobody serves it");
        assert!(fuse::is_dead(errno), "{errno}");
        errno == libc::ENOTCONN
    });
    let fixture = Fixture::at(directory.clone());
    assert!(!fixture.path("ready").exists());
    fs::write(fixture.path("new"), b"x").expect("it works");
    drop(fixture);
    assert!(!directory.exists(), "nothing is mounted below it any more");
}

#[test]
fn a_mount_point_in_use_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let error = fuse::mount(&options(&fixture.path("")), None).err().expect("busy");
    assert_eq!(error.kind, Kind::Busy);
    assert!(error.to_string().contains("unmount it"), "{error}");
    fs::write(fixture.path("f"), b"x").expect("the first mount lives on");
    let error = fuse::mount(&options(Path::new("/proc")), None).err().expect("busy");
    assert_eq!(error.kind, Kind::Busy);
}

#[test]
fn wrong_mount_points_are_explained() {
    if !possible() {
        return;
    }
    let directory = directory();
    let kind = |path: &Path| fuse::mount(&options(path), None).err().map(|error| error.kind);
    assert_eq!(kind(&directory.join("absent")), Some(Kind::NotFound));
    fs::write(directory.join("file"), b"").expect("a file");
    assert_eq!(kind(&directory.join("file")), Some(Kind::NotDirectory));
    fs::remove_dir_all(directory).expect("nothing is mounted");
}

#[test]
fn a_mount_that_is_never_served_leaves_nothing_behind() {
    if !possible() {
        return;
    }
    let directory = directory();
    let mount = fuse::mount(&options(&directory.join("mount")), None).expect("mounts");
    assert!(mount.agreed().0 >= 28);
    drop(mount);
    fs::remove_dir_all(directory).expect("nothing is mounted");
}

#[test]
fn an_unmount_from_outside_ends_the_serving() {
    let Some(fixture) = Fixture::new() else { return };
    let path = CString::new(fixture.path("").as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a string that outlives the call.
    assert_eq!(unsafe { libc::umount2(path.as_ptr(), 0) }, 0);
    assert!(fixture.serving().wait(LONG), "the tasks have left");
    assert!(fixture.serving().has_ended());
    assert_eq!(fixture.serving().stop(LONG), Ok(Unmounted::Already));
}

#[test]
fn cores_may_end_before_the_mount() {
    let Some(mut fixture) = Fixture::new() else { return };
    fs::write(fixture.path("f"), b"x").expect("create");
    // What waits for requests does not keep them.
    drop(fixture.reactors.take());
    assert!(fixture.serving().has_ended());
}

#[test]
fn an_aborted_connection_leaves_no_dead_mount() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path("f"), b"x").expect("create");
    let held = fs::File::open(fixture.path("f")).expect("open");
    let path = CString::new(fixture.path("").as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a string that outlives the call.
    assert_eq!(unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE) }, -1, "it is busy, but aborted");
    assert!(fixture.serving().wait(LONG), "the tasks have left");
    let dead = fs::read_dir(fixture.path("")).expect_err("nobody serves it");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(fixture.serving().stop(LONG), Ok(Unmounted::Detached));
    assert!(fs::read_dir(fixture.path("")).is_ok());
    drop(held);
}

/// Lets those go on who wait for it, also if the test fails.
struct LetGo<'a> {
    ends: &'a AtomicBool,
    syncs_hang: &'a AtomicBool,
}

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.syncs_hang.store(false, Ordering::Relaxed);
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn earlier_requests_are_outlasted_however_many_later_ones_come() {
    let Some(fixture) = Fixture::new() else { return };
    let (memory, ends) = (&fixture.memory, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _let_go = LetGo { ends: &ends, syncs_hang: &memory.syncs_hang };
        for name in ["one", "other"] {
            let (path, ends) = (fixture.path(name), &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    fs::write(&path, b"again").expect("it is served");
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(fixture.serving().outlast(LONG), Ok(()));
        }
        let file = fs::File::create(fixture.path("held")).expect("create");
        memory.syncs_hang.store(true, Ordering::Relaxed);
        memory.take_syncs();
        let held = scope.spawn(move || file.sync_all());
        eventually("it has come", || {
            memory.syncs.lock().is_ok_and(|syncs| syncs.iter().any(|(name, _)| *name == "fsync"))
        });
        for _ in 0..2 {
            let late = fixture.serving().outlast(Duration::from_millis(20));
            assert_eq!(late.map_err(|error| error.kind), Err(Kind::Busy));
        }
        assert!(!held.is_finished());
        memory.syncs_hang.store(false, Ordering::Relaxed);
        assert_eq!(fixture.serving().outlast(LONG), Ok(()));
        held.join().expect("no panic").expect("it was only slow");
    });
}

#[test]
fn what_others_mount_afterwards_is_theirs() {
    let Some(fixture) = Fixture::new() else { return };
    let path = CString::new(fixture.path("").as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a string that outlives the call.
    assert_eq!(unsafe { libc::umount2(path.as_ptr(), 0) }, 0);
    assert!(fixture.serving().wait(LONG));
    // The kernel may well give it the numbers that ours had.
    let other = fuse::mount(&options(&fixture.path("")), None).expect("the path is free");
    assert_eq!(fixture.serving().stop(LONG), Ok(Unmounted::Already));
    assert_eq!(other.unmount(), Ok(Unmounted::Clean));
}

#[test]
fn stopping_twice_is_harmless() {
    let Some(fixture) = Fixture::new() else { return };
    assert_eq!(fixture.serving().stop(LONG), Ok(Unmounted::Clean));
    assert!(fixture.serving().has_ended());
    assert_eq!(fixture.serving().stop(LONG), Ok(Unmounted::Already));
}

#[test]
fn a_busy_mount_is_detached_and_served_to_the_last() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("f");
    fs::write(&path, b"held").expect("create");
    let held = fs::OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let stopped = fixture.serving().stop(std::time::Duration::from_millis(100));
    assert_eq!(stopped, Ok(Unmounted::Detached));
    assert!(!path.exists(), "the path is free");
    assert!(!fixture.serving().has_ended());
    std::os::unix::fs::FileExt::write_all_at(&held, b"more", 0).expect("the user is still served");
    held.sync_all().expect("fsync");
    drop(held);
    assert!(fixture.serving().wait(LONG), "the last user has left");
}
