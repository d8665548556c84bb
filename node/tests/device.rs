//! Bricks on real block devices, and bricks that grow: loop devices over files. They need root and /dev/fuse.

use crate::daemon::{Daemon, Home, fail, run, sinter, succeed, system, text};
use crate::fsx_runs;
use crate::patterns::{pattern, verify, write_synced};
use runtime::random::SplitMix;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// A loop device over a sparse file of its own.
pub struct Loop {
    file: PathBuf,
    device: PathBuf,
}

impl Loop {
    /// None where there are no loop devices.
    fn new(home: &Home, name: &str, bytes: u64) -> Option<Loop> {
        let file = home.scratch.join(name);
        File::create(&file).and_then(|made| made.set_len(bytes)).expect("the scratch directory is writable");
        let found = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let found = found.ok().filter(|found| found.status.success());
        let device = found.map(|found| String::from_utf8_lossy(&found.stdout).trim().into());
        if device.is_none() {
            eprintln!("skipped: needs root and loop devices");
        }
        device.map(|device| Loop { file, device })
    }
    /// Its path.
    pub fn path(&self) -> &str {
        text(&self.device)
    }
    /// Makes the device larger beneath whoever has it open.
    fn grow(&self, bytes: u64) {
        File::options().write(true).open(&self.file).and_then(|file| file.set_len(bytes)).expect("it is there");
        system("losetup", &["--set-capacity", self.path()]);
    }
    /// Bytes that the file below really takes.
    fn used_bytes(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&self.file).expect("it is there")) * 512
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.device).status());
        // It is gone when the last who had it open is: the kernel takes a moment for a process that has ended.
        let name = self.device.file_name().expect("a device has a name").to_os_string();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        for _ in 0..200 {
            if !backing.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Starts a brick's daemon.
pub fn up(home: &Home, more: &[&str]) -> Daemon {
    let mut command = sinter();
    command.arg("up").arg(&home.data).arg(&home.mount).args(more);
    Daemon::start(command)
}

/// A figure of `sinter status`.
pub fn figure(home: &Home, name: &str) -> u64 {
    let status = succeed(&["status", "--json", text(&home.data)]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let figures = status["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name).expect("the figure is there");
    found["value"].as_u64().expect("a number")
}

/// Rounds of 64 MiB after which a checkpoint has begun.
const ROUNDS: u64 = 24;

#[test]
fn a_brick_on_a_device_survives_a_kill_and_discards_what_it_freed() {
    let home = Home::new("device");
    let Some(device) = Loop::new(&home, "flash", 5 * GIB) else { return };
    let formatted = succeed(&["format", text(&home.data), "--device", device.path(), "--segment-size", "8M"]);
    assert!(formatted.contains("formatted"), "{formatted}");
    let daemon = up(&home, &[]);
    write_synced(&home.mount.join("kept"), 1, 64).expect("there is room");
    // Held while it is served.
    fail(&["format", text(&home.scratch.join("other")), "--device", device.path(), "--force"], 3, &["in use"]);
    daemon.kill();
    let daemon = up(&home, &[]);
    verify(&home.mount.join("kept"), 1, 64);
    write_synced(&home.mount.join("gone"), 2, 600).expect("there is room");
    let full = device.used_bytes();
    std::fs::remove_file(home.mount.join("gone")).expect("it is there");
    let discarded = || figure(&home, "bytes discarded");
    let mut round = 0;
    while discarded() == 0 && round < ROUNDS {
        // Through the log, until a gigabyte of it makes a checkpoint begin: what is gone is counted then.
        let mut file = File::create(home.mount.join("small")).expect("there is room");
        (0..1024).for_each(|_| file.write_all(&[7; 64 << 10]).expect("there is room"));
        round += 1;
    }
    // Discards give way to all else, and leave the device alone for most of the time: how fast that goes is their own affair.
    let patience = Instant::now() + Duration::from_secs(60);
    while discarded() < 300 << 20 {
        assert!(Instant::now() < patience, "{} of 600 MiB were discarded", discarded() >> 20);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Every round has written at least its own bytes, and no segment was taken twice.
    let (used, written) = (device.used_bytes(), full + round * (64 << 20));
    assert!(used + (150 << 20) < written, "{used} bytes are used, of {written} written");
    verify(&home.mount.join("kept"), 1, 64);
    daemon.terminate();
    home.check();
    let segments = std::fs::read_dir(&home.data).expect("it is there");
    let segments = segments.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(segments.filter(|name| name.starts_with("segments-")).count() == 0, "they lie on the device");
}

/// Formats a brick with a disk behind a flash device of a little more than the least that a brick takes. The disk is small, so
/// that it fills soon.
pub fn hybrid(home: &Home) -> Option<(Loop, Loop)> {
    let (flash, disk) = (Loop::new(home, "flash", 4200 << 20)?, Loop::new(home, "disk", GIB)?);
    let format = ["format", text(&home.data), "--flash", flash.path(), "--disk", disk.path(), "--segment-size", "8M"];
    succeed(&format);
    Some((flash, disk))
}

/// Writes pieces of 16 KiB of it once more, at random, past the page cache's gathering; the file stays the same.
pub fn rewrite(path: &Path, seed: u64, mib: u64, pieces: u64, random: &mut SplitMix) {
    const PIECES: u64 = (1 << 20) / PIECE as u64;
    const PIECE: usize = 16 << 10;
    let file = File::options().write(true).open(path).expect("the file is there");
    for _ in 0..pieces {
        let (number, piece) = (random.below(mib), random.below(PIECES) as usize);
        let bytes = pattern(seed << 32 | number << 1, 1 << 20);
        let at = (number << 20) + (piece * PIECE) as u64;
        file.write_all_at(&bytes[piece * PIECE..][..PIECE], at).expect("there is room");
    }
    file.sync_all().expect("it is durable");
}

/// The brick's devices as `sinter brick devices` tells.
pub fn devices(home: &Home) -> Vec<serde_json::Value> {
    let told = succeed(&["brick", "devices", "--json", text(&home.data)]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    told["devices"].as_array().expect("devices").clone()
}

#[test]
fn what_went_down_to_a_disk_survives_a_kill() {
    let home = Home::new("hybrid");
    let Some(hybrid) = hybrid(&home) else { return };
    let daemon = up(&home, &[]);
    let files = [("one", 1, 1800), ("other", 2, 1800)];
    for (name, seed, mib) in files {
        write_synced(&home.mount.join(name), seed, mib).expect("there is room");
    }
    // Until the disk is full of what has died there since: its own cleaner must have made room.
    let (mut random, patience) = (SplitMix(1), Instant::now() + Duration::from_secs(150));
    while figure(&home, "blocks moved on disks") < 5000 {
        assert!(Instant::now() < patience, "the disk stays as it is: {}", succeed(&["status", text(&home.data)]));
        for (name, seed, mib) in files {
            rewrite(&home.mount.join(name), seed, mib, 4000, &mut random);
        }
    }
    assert!(figure(&home, "blocks destaged") > 5000);
    let at_kill = devices(&home);
    assert!(at_kill[1]["tier"] == "disk" && at_kill[1]["state"] == "in use", "{at_kill:?}");
    daemon.kill();
    let daemon = up(&home, &[]);
    for (name, seed, mib) in files {
        verify(&home.mount.join(name), seed, mib);
    }
    read_in_order_from_the_disk(&home);
    let (daemon, _other) = first_disk_leaves(&home, daemon, &hybrid.1, &mut random);
    for (name, seed, mib) in files {
        verify(&home.mount.join(name), seed, mib);
    }
    daemon.terminate();
    home.check();
}

/// The files that have just been read in order were read ahead where they lay on the disk, in its order, and are not copied.
fn read_in_order_from_the_disk(home: &Home) {
    let told = succeed(&["tiers", "--json", text(&home.data)]);
    let tiers: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let number = |name: &str| tiers["ahead"][name].as_u64().expect("a number");
    let (read, taken) = (number("read_bytes"), number("taken_bytes"));
    assert!(read > 50 << 20 && taken <= read && taken > read / 2, "{told}");
    assert!(number("runs") < read >> 14, "fewer seeks than pieces of 16 KiB: {told}");
    assert!(number("held_bytes") <= number("held_bytes_max"), "{told}");
    assert!(tiers["served"].as_array().is_some_and(|tiers| tiers.len() == 3) && tiers["copied_bytes"] == 0, "{told}");
}

/// The disk leaves for another one, while the file `one` is written to and, at last, fsx works on another; the daemon is killed in
/// between.
fn first_disk_leaves(home: &Home, daemon: Daemon, disk: &Loop, random: &mut SplitMix) -> (Daemon, Loop) {
    let brick = text(&home.data);
    let remove = ["brick", "remove-device", brick, "2"];
    fail(&["brick", "remove-device", brick, "1"], 1, &["formatted with", "flash"]);
    fail(&["brick", "remove-device", brick, "7"], 1, &["no device of this number"]);
    let other = Loop::new(home, "other-disk", 2 * GIB).expect("there was one before");
    succeed(&["brick", "add-device", brick, other.path(), "--tier", "disk"]);
    let begun = succeed(&remove);
    assert!(begun.contains("leaving"), "{begun}");
    rewrite(&home.mount.join("one"), 1, 1800, 200, random);
    assert_eq!(devices(home)[1]["state"], "leaving", "half a gigabyte takes longer");
    daemon.kill();
    fail(&remove, 1, &["needs a running daemon"]);
    let daemon = up(home, &[]);
    assert_eq!(devices(home)[1]["state"], "leaving", "a start goes on with it");
    rewrite(&home.mount.join("one"), 1, 1800, 200, random);
    let left = under_fsx(home, 11, || succeed(&[&remove[..], &["--wait"]].concat()));
    assert!(!left.contains(disk.path()) && left.contains(other.path()), "{left}");
    let numbers: Vec<_> = devices(home).iter().map(|device| device["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(3)]);
    // It is free for another brick, without force.
    let second = home.scratch.join("second");
    let flash = Loop::new(home, "second-flash", 4200 << 20).expect("there was one before");
    let format = ["format", text(&second), "--flash", flash.path(), "--disk", disk.path(), "--segment-size", "8M"];
    succeed(&format);
    (daemon, other)
}

/// Bytes of files on a device, as of a checkpoint that is made for it.
fn live_bytes(home: &Home, number: u32) -> u64 {
    succeed(&["brick", "affected", text(&home.data), &number.to_string()]);
    let listed = devices(home);
    let device = listed.iter().find(|device| device["number"] == number).expect("it is there");
    device["live_bytes"].as_u64().expect("a number")
}

/// Operations of a round of fsx: less than a second of them.
const FSX_OPERATIONS: u64 = 1000;

/// Has fsx work on a file of the mount until `meanwhile` has ended, and once more. Returns what that returned.
fn under_fsx<T>(home: &Home, seed: u64, meanwhile: impl FnOnce() -> T) -> T {
    let mode = fsx_runs::MODES[2];
    let (rounds, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // One that begins after all is done reads and writes what has moved.
            let mut is_last = false;
            while !is_last {
                is_last = done.load(Ordering::Acquire);
                fsx_runs::run(home, mode, FSX_OPERATIONS, seed + 7919 * rounds.load(Ordering::Acquire));
                rounds.fetch_add(1, Ordering::AcqRel);
            }
        });
        while !home.mount.join(mode.0).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let result = meanwhile();
        println!("{} rounds of fsx have ended meanwhile", rounds.load(Ordering::Acquire));
        done.store(true, Ordering::Release);
        result
    })
}

/// The log and all else goes on on the first device; a start goes on with a removal that a kill has interrupted.
#[test]
fn flash_leaves_under_load_and_after_a_kill() {
    let home = Home::new("leave-flash");
    let Some(_hybrid) = hybrid(&home) else { return };
    // Larger than the first device: so all is written there first.
    let larger = |name| Loop::new(&home, name, 6 * GIB).expect("there was one before");
    let (second, third) = (larger("second-flash"), larger("third-flash"));
    let (daemon, brick) = (up(&home, &[]), text(&home.data));
    succeed(&["brick", "add-device", brick, second.path(), "--tier", "flash"]);
    let (kept, other) = (home.mount.join("kept"), home.mount.join("other"));
    write_synced(&kept, 1, 400).expect("there is room");
    assert!(live_bytes(&home, 3) > 300 << 20, "{:?}", devices(&home));
    let left = under_fsx(&home, 33, || succeed(&["brick", "remove-device", brick, "3", "--wait"]));
    assert!(!left.contains(second.path()), "{left}");
    verify(&kept, 1, 400);
    succeed(&["brick", "add-device", brick, third.path(), "--tier", "flash"]);
    write_synced(&other, 2, 400).expect("there is room");
    let begun = succeed(&["brick", "remove-device", brick, "4"]);
    assert!(begun.contains("leaving"), "{begun}");
    daemon.kill();
    let daemon = up(&home, &[]);
    assert_eq!(devices(&home)[2]["state"], "leaving", "a start goes on with it");
    rewrite(&kept, 1, 400, 200, &mut SplitMix(4));
    succeed(&["brick", "remove-device", brick, "4", "--wait"]);
    let numbers: Vec<_> = devices(&home).iter().map(|device| device["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    [(&kept, 1), (&other, 2)].into_iter().for_each(|(path, seed)| verify(path, seed, 400));
    daemon.terminate();
    home.check();
}

#[test]
fn a_brick_that_is_served_gets_a_disk_and_keeps_it() {
    let home = Home::new("added");
    let Some(disk) = Loop::new(&home, "disk", 3 * GIB) else { return };
    let Some(small) = Loop::new(&home, "small", 64 << 20) else { return };
    let Some(foreign) = Loop::new(&home, "foreign", 3 * GIB) else { return };
    system("mkfs.ext4", &["-q", foreign.path()]);
    let daemon = up(&home, &["--size", "4G", "--segment-size", "8M"]);
    write_synced(&home.mount.join("kept"), 1, 64).expect("there is room");
    let brick = text(&home.data);
    let add = |device: &Loop| ["brick", "add-device", brick, device.path(), "--tier", "disk"].map(str::to_string);
    let refused = |device: &Loop, code: i32, parts: &[&str]| {
        let line = add(device);
        fail(&line.each_ref().map(String::as_str), code, parts);
        assert!(!home.data.join("device-2").is_symlink(), "nothing is left of it");
    };
    refused(&small, 1, &["too small", "larger one"]);
    refused(&foreign, 1, &["holds data", "--force"]);
    assert_eq!(devices(&home).len(), 1);
    succeed(&add(&disk).each_ref().map(String::as_str));
    let listed = devices(&home);
    assert!(listed.len() == 2 && listed[1]["path"] == disk.path(), "{listed:?}");
    fail(&add(&disk).each_ref().map(String::as_str), 3, &["in use"]);
    daemon.kill();
    let daemon = up(&home, &[]);
    verify(&home.mount.join("kept"), 1, 64);
    assert_eq!(devices(&home).len(), 2);
    daemon.terminate();
    home.check();
    // Without its disk, on which nothing lies, it serves all that it has.
    std::fs::rename(home.data.join("device-2"), home.data.join("away")).expect("it is a link");
    let daemon = up(&home, &[]);
    assert_eq!(devices(&home)[1]["state"], "missing");
    verify(&home.mount.join("kept"), 1, 64);
    daemon.terminate();
    std::fs::rename(home.data.join("away"), home.data.join("device-2")).expect("it is a link");
    up(&home, &[]).terminate();
}

#[test]
fn a_device_that_is_too_small_needs_a_larger_one() {
    let home = Home::new("small-device");
    let Some(device) = Loop::new(&home, "flash", 100 << 20) else { return };
    let format = ["format", text(&home.data), "--device", device.path()];
    fail(&format, 1, &["too small for a brick", "give a larger one"]);
    fail(&[&format[..], &["--size", "4G"]].concat(), 1, &["smaller than that", "give a larger one"]);
}

#[test]
fn what_a_device_holds_is_not_destroyed_by_mistake() {
    let home = Home::new("foreign");
    let Some(device) = Loop::new(&home, "flash", 5 * GIB) else { return };
    system("mkfs.ext4", &["-q", device.path()]);
    let format = |data: &Path, more: &[&str]| {
        let line = [&["format", text(data), "--device", device.path()], more].concat();
        run(&line)
    };
    let told = |output: std::process::Output, code: i32, part: &str| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && errors.contains(part), "{:?}: {errors}", output.status);
    };
    told(format(&home.data, &[]), 1, "--force");
    let mounted = home.scratch.directory("ext4");
    system("mount", &[device.path(), text(&mounted)]);
    std::fs::write(mounted.join("file"), "precious").expect("it is mounted");
    told(format(&home.data, &["--force"]), 3, "mounted or in use");
    assert_eq!(std::fs::read(mounted.join("file")).expect("it is there"), b"precious");
    system("umount", &[text(&mounted)]);
    told(format(&home.data, &["--force"]), 0, "");
    let second = home.scratch.join("second");
    told(format(&second, &[]), 1, "another brick");
    // The first brick has lost its device then, and says so.
    told(format(&second, &["--force"]), 0, "");
    fail(&["serve", text(&home.data)], 1, &["another brick", "--device"]);
}

#[test]
fn a_device_with_another_name_is_found_when_told() {
    let home = Home::new("renamed");
    let Some(device) = Loop::new(&home, "flash", 5 * GIB) else { return };
    let daemon = up(&home, &["--device", device.path()]);
    write_synced(&home.mount.join("file"), 1, 4).expect("there is room");
    daemon.terminate();
    let (other, file) = (Loop::new(&home, "blank", 5 * GIB).expect("another one"), device.file.clone());
    drop(device);
    fail(&["serve", text(&home.data)], 1, &["--device"]);
    fail(&["serve", text(&home.data), "--device", other.path()], 1, &["no label"]);
    let found = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().expect("losetup runs");
    let again = Loop { file, device: String::from_utf8_lossy(&found.stdout).trim().into() };
    up(&home, &["--device", again.path()]).terminate();
    let daemon = up(&home, &[]);
    verify(&home.mount.join("file"), 1, 4);
    daemon.terminate();
    home.check();
    let plain = Home::new("plain");
    plain.up().terminate();
    fail(&["serve", text(&plain.data), "--device", again.path()], 1, &["leave --device out"]);
}

/// Writes files until the brick is full; how many are whole.
fn fill(home: &Home, from: u64) -> u64 {
    for number in from.. {
        let path = home.mount.join(format!("file-{number}"));
        if let Err(error) = write_synced(&path, number, 64) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
            std::fs::remove_file(path).expect("deleting works on a full brick");
            return number;
        }
    }
    unreachable!("no brick holds so much")
}

/// `least`: more whole files fit before it grows.
fn grown_while_served(home: &Home, daemon: Daemon, (least, line): (u64, &[&str]), again: &[&str]) {
    let full = fill(home, 0);
    assert!(full > least, "{full} files of 64 MiB");
    let said = succeed(line);
    assert!(said.contains("grown from"), "{said}");
    // Refused: less than it has.
    fail(&["grow", text(&home.data), "--size", "4G"], 1, &["can't shrink"]);
    for number in full..full + 6 {
        write_synced(&home.mount.join(format!("file-{number}")), number, 64).expect("it has grown");
    }
    daemon.kill();
    let daemon = up(home, again);
    (0..full + 6).for_each(|number| verify(&home.mount.join(format!("file-{number}")), number, 64));
    daemon.terminate();
    home.check();
}

#[test]
fn a_full_brick_in_a_directory_grows_while_it_is_served() {
    let home = Home::new("grow");
    let daemon = home.up();
    // What is promised makes it full as well; on a device below each byte is written.
    system("fallocate", &["--length", "2G", text(&home.mount.join("promised"))]);
    let data = text(&home.data).to_string();
    grown_while_served(&home, daemon, (10, &["grow", &data, "--size", "5G"]), &[]);
    // And while it is not.
    let said = succeed(&["grow", &data, "--size", "6G"]);
    assert!(said.contains("6 GiB"), "{said}");
    home.check();
}

#[test]
fn a_full_brick_on_a_device_grows_with_it() {
    let home = Home::new("grow-device");
    let Some(device) = Loop::new(&home, "flash", 4 * GIB + (1 << 20)) else { return };
    let daemon = up(&home, &["--device", device.path(), "--segment-size", "16M"]);
    let data = text(&home.data).to_string();
    let said = succeed(&["grow", &data]);
    assert!(said.contains("nothing to add"), "{said}");
    fail(&["grow", &data, "--size", "5G"], 1, &["too little space"]);
    device.grow(5 * GIB);
    grown_while_served(&home, daemon, (20, &["grow", &data]), &[]);
}
