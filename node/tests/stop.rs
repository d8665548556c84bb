//! An orderly end under load: what was acknowledged is there at the next start, which replays nothing, and nobody wrote
//! into the directory below the mount. The test build makes the daemon's patience with open files shorter.
#![cfg(feature = "seeded-bugs")]

#[path = "stop/writers.rs"]
mod writers;

use crate::daemon::{Daemon, Home, run, succeed, system, text};
use base::seeded::Bug;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use writers::{How, Told, Writer};

/// Time for which the daemon under test goes on serving files that stay open.
const PATIENCE: Duration = Duration::from_millis(1500);

const ALL: [How; 6] = [How::Append, How::Plain, How::Direct, How::Mapped, How::Create, How::Rename];

/// A process that other tests start; no test of its own.
#[test]
fn a_writer_through_a_mapping() {
    if let Some(path) = std::env::var_os(writers::MAPPED) {
        writers::write_mapped(Path::new(&path));
    }
}

fn patient(home: &Home, patience: Duration) -> Command {
    let mut command = home.command();
    command.env("SINTER_TEST_PATIENCE_MS", patience.as_millis().to_string());
    command
}

/// Writers of all kinds on a daemon, which then is ended.
fn under_load(home: &Home, bug: Option<Bug>, end: impl FnOnce(&Home, &Daemon, &AtomicBool)) -> Vec<Told> {
    let mut command = patient(home, PATIENCE);
    if let Some(bug) = bug {
        command.env("SINTER_TEST_BUG", format!("{bug:?}"));
    }
    let daemon = Daemon::start(command);
    let enough = Arc::new(AtomicBool::new(false));
    let writers = writers::start(&home.mount, &ALL, &enough);
    std::thread::sleep(Duration::from_millis(1500));
    end(home, &daemon, &enough);
    let (status, said) = daemon.wait();
    enough.store(true, Ordering::Relaxed);
    assert_eq!(status.code(), Some(0), "{said}");
    writers.into_iter().map(Writer::told).collect()
}

/// Nothing lies below the mount; the next start replays nothing and finds all that was told.
fn all_is_there(home: &Home, told: &[Told]) {
    let below: Vec<_> = std::fs::read_dir(&home.mount).expect("it is a directory").collect();
    assert!(below.is_empty(), "somebody wrote below the mount: {below:?}");
    let daemon = home.up();
    told.iter().for_each(Told::check);
    let said = daemon.terminate();
    assert!(!said.contains("replayed"), "the end was orderly: {said}");
    home.check();
}

fn ends_in_order(name: &str, end: impl FnOnce(&Home, &Daemon, &AtomicBool)) {
    let home = Home::new(name);
    let told = under_load(&home, None, end);
    all_is_there(&home, &told);
}

#[test]
fn a_signal_under_load_loses_nothing() {
    ends_in_order("stop-signal", |_, daemon, _| daemon.signal("TERM"));
}

#[test]
fn down_under_load_loses_nothing() {
    ends_in_order("stop-down", |home, _, _| drop(succeed(&["down", text(&home.data)])));
}

#[test]
fn an_unmount_right_after_the_last_write_loses_nothing() {
    ends_in_order("stop-umount", |home, _, enough| {
        enough.store(true, Ordering::Relaxed);
        // Busy until the last writer has noticed.
        let started = Instant::now();
        while !run(&["umount", text(&home.mount)]).status.success() {
            assert!(started.elapsed() < Duration::from_secs(30), "it stays busy");
        }
    });
}

#[test]
fn a_lazy_unmount_under_load_loses_nothing() {
    ends_in_order("stop-lazy", |home, _, enough| {
        system("umount", &["-l", text(&home.mount)]);
        std::thread::sleep(Duration::from_millis(200));
        enough.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_lands_below_the_mount_while_open_files_are_served() {
    let home = Home::new("stop-below");
    let daemon = Daemon::start(patient(&home, Duration::from_secs(60)));
    let mut open = std::fs::File::create(home.mount.join("open")).expect("the mount is writable");
    let path = home.mount.join("by-path");
    let by_path = || std::fs::OpenOptions::new().create(true).append(true).open(&path);
    by_path().and_then(|mut file| file.write_all(b"a line\n")).expect("the mount is writable");
    daemon.signal("TERM");
    // A program that opens by path is told an error, and its directory stays what it was.
    let started = Instant::now();
    while by_path().and_then(|mut file| file.write_all(b"a line\n")).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(30), "it goes on opening files");
    }
    for _ in 0..20 {
        assert_eq!(by_path().expect_err("the daemon is ending").raw_os_error(), Some(libc::ESHUTDOWN));
        open.write_all(b"a line\n").expect("an open file is served");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = succeed(&["status", text(&home.data)]);
    let whom = format!("for 1 open file (1 of process {} (", std::process::id());
    assert!(status.contains(&whom), "{status}");
    let down = run(&["down", text(&home.data), "--timeout", "1"]);
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(down.status.code() == Some(3) && said.contains(&whom), "{said}");
    drop(open);
    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains(&whom), "it says at once for whom it waits: {said}");
    assert!(!by_path_is_there(&path), "somebody wrote below the mount");
    let daemon = home.up();
    assert_eq!(std::fs::read(home.mount.join("open")).expect("it is there").len(), 20 * 7);
    assert!(!daemon.terminate().contains("replayed"), "the end was orderly");
}

fn by_path_is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

#[test]
fn an_end_waits_for_nobody_who_has_nothing_open() {
    let home = Home::new("stop-idle");
    let daemon = Daemon::start(patient(&home, Duration::from_secs(60)));
    std::fs::create_dir(home.mount.join("directory")).expect("the mount is writable");
    // A working directory in it, and another mount namespace with a copy of the mount.
    let mut inside =
        Command::new("sleep").arg("60").current_dir(home.mount.join("directory")).spawn().expect("it starts");
    let mut elsewhere = Command::new("unshare").args(["-m", "sleep", "60"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    let said = daemon.terminate();
    let took = started.elapsed();
    [&mut inside, &mut elsewhere].into_iter().for_each(|child| {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    });
    assert!(took < Duration::from_secs(10), "it waited for {took:?}: {said}");
    assert!(!said.contains("waiting"), "{said}");
    home.check();
}

#[test]
fn an_end_without_a_last_commit_is_noticed() {
    let home = Home::new("stop-uncommitted");
    let told = under_load(&home, Some(Bug::EndedUncommitted), |_, daemon, _| daemon.signal("TERM"));
    let noticed = std::panic::catch_unwind(|| all_is_there(&home, &told));
    assert!(noticed.is_err(), "an end that commits nothing went unnoticed");
}

#[test]
fn a_detached_volume_says_who_uses_it_and_can_be_ended_by_force() {
    let home = Home::new("stop-detached");
    let data = text(&home.data);
    succeed(&["format", data, "--size", "4G"]);
    succeed(&["volume", "create", data, "one"]);
    let mut serve = crate::daemon::sinter();
    serve.args(["serve", data]);
    let served = Daemon::start(serve);
    succeed(&["mount", data, "one", text(&home.mount)]);
    let mut open = std::fs::File::create(home.mount.join("open")).expect("the mount is writable");
    crate::daemon::fail(&["volume", "delete", data, "one", "--force"], 3, &["one at"]);
    succeed(&["umount", text(&home.mount), "--lazy"]);
    open.write_all(b"a line").expect("an open file is served");
    let whom = format!("detached, still used by 1 open file (1 of process {} (", std::process::id());
    let list = succeed(&["volume", "list", data]);
    assert!(list.contains(&whom), "{list}");
    crate::daemon::fail(&["volume", "delete", data, "one"], 3, &["--force", &whom]);
    succeed(&["volume", "delete", data, "one", "--force"]);
    assert_eq!(open.write_all(b"a line").expect_err("its session was ended").raw_os_error(), Some(libc::ESHUTDOWN));
    assert!(!succeed(&["volume", "list", data]).contains("one"));
    served.terminate();
    home.check();
}
