//! A brick whose file system others fill: what was written stays, deleting works, and once there is room again all is as
//! before (rule K5). They need root, loop devices, /dev/fuse and mkfs.ext4.

use crate::daemon::{Daemon, Home, Scratch, succeed, system, text};
use crate::patterns::{verify, write_synced};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The ballast of a brick of 4 GiB.
const BALLAST: u64 = 64 * MIB;
/// The daemon looks once in a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// A brick to be in a file system of 6 GiB of its own; None where there are no loop devices.
fn home(name: &str) -> Option<Home> {
    let scratch = Scratch::new(name);
    let (file, host) = (scratch.join("host.ext4"), scratch.directory("host"));
    File::create(&file).and_then(|made| made.set_len(6 * GIB)).expect("the scratch directory is writable");
    // None of its blocks is kept for root, who runs the daemon.
    system("mkfs.ext4", &["-q", "-m", "0", text(&file)]);
    let mounted = Command::new("mount").args(["-o", "loop"]).args([&file, &host]).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("skipped: needs root and loop devices");
        return None;
    }
    let (data, mount) = (host.join("brick"), scratch.directory("mount"));
    Some(Home { scratch, data, mount })
}

fn up(home: &Home) -> Daemon {
    let mut command = home.command();
    command.args(["--segment-size", "16M"]);
    Daemon::start(command)
}

fn filler(home: &Home) -> PathBuf {
    home.scratch.join("host/filler")
}

/// Somebody else takes all but so many bytes.
fn leave(home: &Home, bytes: u64) {
    let output = Command::new("df").args(["-B1", "--output=avail"]).arg(home.scratch.join("host")).output();
    let output = String::from_utf8(output.expect("df runs").stdout).expect("text");
    let free: u64 = output.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number");
    system("fallocate", &["-l", &(free - bytes).to_string(), text(&filler(home))]);
}

/// Waits until the daemon warns of what `part` is in, or of nothing such.
fn await_warning(home: &Home, part: &str, there: bool) {
    let started = Instant::now();
    loop {
        let status: serde_json::Value =
            serde_json::from_str(&succeed(&["status", "--json", text(&home.data)])).expect("JSON");
        assert!(status["read_only"].is_null(), "{status}");
        let warnings = status["warnings"].to_string();
        if warnings.contains(part) == there {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{part:?}, {there}: {warnings}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_full<T>(done: Result<T>) -> bool {
    done.is_err_and(|error| error.kind() == ErrorKind::StorageFull)
}

fn ballast(home: &Home) -> u64 {
    std::fs::metadata(home.data.join("ballast")).expect("the brick has a ballast").len()
}

/// Operations that work while the index has the ballast's room only, and operations that don't.
fn operate_when_short(home: &Home, kept: &Path) {
    let mount = &home.mount;
    assert!(is_full(write_synced(kept, 1, 1)), "data are refused");
    assert!(is_full(File::create(mount.join("new"))), "new names are refused");
    std::fs::rename(mount.join("gone"), mount.join("still")).expect("names can be changed");
    std::fs::rename(mount.join("still"), mount.join("gone")).expect("names can be changed");
    let cut = OpenOptions::new().write(true).open(mount.join("cut")).expect("it is there");
    cut.set_len(4096).and_then(|()| cut.sync_all()).expect("files can be cut");
}

#[test]
fn a_brick_outlives_a_full_file_system() {
    let Some(home) = home("host") else { return };
    let daemon = up(&home);
    let kept = home.mount.join("kept");
    write_synced(&home.mount.join("gone"), 2, 8).expect("there is room");
    write_synced(&home.mount.join("cut"), 3, 8).expect("there is room");
    // Refused writes will find it as it is: they open it anew, which cuts it, only where that is not asked of it.
    write_synced(&home.mount.join("safe"), 1, 64).expect("there is room");
    write_synced(&kept, 1, 1).expect("there is room");
    assert_eq!(ballast(&home), BALLAST);
    leave(&home, 16 * MIB);
    await_warning(&home, "nearly full", true);
    assert_eq!(ballast(&home), 0, "its room is the index's now");
    operate_when_short(&home, &kept);
    daemon.kill();
    // Everything that a start and a stop write fits too.
    let daemon = up(&home);
    await_warning(&home, "nearly full", true);
    operate_when_short(&home, &kept);
    std::fs::remove_file(home.mount.join("gone")).expect("files can be deleted");
    daemon.terminate();
    home.check();
    let daemon = up(&home);
    verify(&home.mount.join("safe"), 1, 64);
    assert!(!home.mount.join("gone").exists());
    std::fs::remove_file(filler(&home)).expect("it is there");
    await_warning(&home, "nearly full", false);
    assert_eq!(ballast(&home), BALLAST);
    write_synced(&kept, 1, 64).expect("there is room again");
    daemon.terminate();
    home.check();
}

#[test]
fn a_brick_makes_do_with_the_segments_that_its_file_system_has_room_for() {
    let Some(home) = home("thin") else { return };
    let daemon = up(&home);
    write_synced(&home.mount.join("0"), 0, 64).expect("there is room");
    // Not enough for a second file of 1 GiB.
    leave(&home, 700 * MIB);
    let mut written = 1;
    let refused = loop {
        match write_synced(&home.mount.join(written.to_string()), written, 64) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    std::fs::remove_file(home.mount.join(written.to_string())).expect("files can be deleted");
    // 64 segments of 16 MiB, 16 of them in reserve.
    assert!((9..=12).contains(&written), "{written} files of 64 MiB fit in one segment file");
    await_warning(&home, "can't be used", true);
    // The cleaner makes room within them for as long as one likes.
    for round in 0..30 {
        let number = round % written;
        write_synced(&home.mount.join(number.to_string()), number, 64).expect("overwriting takes no room");
    }
    (0..written).for_each(|number| verify(&home.mount.join(number.to_string()), number, 64));
    std::fs::remove_file(filler(&home)).expect("it is there");
    await_warning(&home, "can't be used", false);
    for number in written..2 * written {
        write_synced(&home.mount.join(number.to_string()), number, 64).expect("there is room again");
    }
    (0..2 * written).for_each(|number| verify(&home.mount.join(number.to_string()), number, 64));
    daemon.terminate();
    home.check();
}
