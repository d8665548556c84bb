//! The transport of requests: over io_uring where that can be had and nothing else is asked for, else by /dev/fuse. The
//! kernel offers io_uring if /sys/module/fuse/parameters/enable_uring says Y. All other tests on mounts run over either
//! with `SINTER_TRANSPORT=dev` or `uring`.

use crate::daemon::{Daemon, Home, Scratch, mounts_below, sinter, succeed, system, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const OVER_RINGS: &str = "requests come over io_uring";
const OVER_DEVICE: &str = "requests come over /dev/fuse";
/// Longer than the end of a mount takes.
const LONG: Duration = Duration::from_secs(30);

fn is_offered() -> bool {
    fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|said| said.trim() == "Y")
}

fn up(home: &Home, transport: &str) -> Daemon {
    let mut command = sinter();
    command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", "4G", "--transport", transport]);
    Daemon::start(command)
}

/// Names, small and large writes, and reads of what the kernel has forgotten.
fn use_mount(mount: &Path) {
    let content: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let directory = mount.join("directory");
    fs::create_dir_all(&directory).expect("mkdir");
    for length in [0, 1, 4096, 70_000, 3_000_000] {
        let path = directory.join(format!("file-{length}"));
        fs::write(&path, &content[..length]).expect("write");
        fs::File::open(&path).and_then(|file| file.sync_all()).expect("fsync");
    }
    system("sh", &["-c", "echo 2 > /proc/sys/vm/drop_caches"]);
    assert_eq!(fs::read_dir(&directory).expect("opendir").count(), 5);
    for length in [0, 1, 4096, 70_000, 3_000_000] {
        let path = directory.join(format!("file-{length}"));
        assert!(fs::read(&path).expect("read") == content[..length], "{length} bytes");
        fs::rename(&path, mount.join(format!("moved-{length}"))).expect("rename");
    }
    assert!(fs::metadata(directory.join("absent")).is_err());
}

#[test]
fn a_mount_says_how_its_requests_come_and_works_either_way() {
    let best = if is_offered() { OVER_RINGS } else { OVER_DEVICE };
    for (transport, expected) in [("auto", best), ("dev", OVER_DEVICE), ("uring", best)] {
        let home = Home::new("transport");
        let daemon = up(&home, transport);
        use_mount(&home.mount);
        let said = daemon.terminate();
        assert!(said.contains(expected), "{transport}: {said}");
        let explains = said.contains("io_uring can't be had");
        assert_eq!(explains, transport != "dev" && !is_offered(), "{transport}: {said}");
        home.check();
    }
}

/// The number of background requests that the kernel hands over of a mount.
fn background(mount: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let control = Scratch::new("transport-control");
    system("mount", &["-t", "fusectl", "none", text(control.path())]);
    let connection = libc::minor(fs::metadata(mount).expect("it is mounted").dev()).to_string();
    let said = fs::read_to_string(control.join(&connection).join("max_background"));
    system("umount", &[text(control.path())]);
    said.expect("each connection has it").trim().parse().expect("a number")
}

#[test]
fn a_quarter_of_a_mounts_room_is_left_to_requests_that_a_process_waits_for() {
    let cpus = std::thread::available_parallelism().expect("it is known").get();
    for (transport, room) in [("uring", 32), ("dev", 64)] {
        if transport == "uring" && !is_offered() {
            continue;
        }
        let home = Home::new("transport-background");
        let daemon = up(&home, transport);
        assert_eq!(background(&home.mount), cpus * room * 3 / 4, "{transport}");
        daemon.terminate();
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_that_the_next_would_stumble_over() {
    let home = Home::new("transport-kill");
    let mut transports = ["uring", "dev", "uring", "uring"].iter();
    let mut daemon = up(&home, transports.next().expect("several"));
    for (round, transport) in transports.enumerate() {
        let path = home.mount.join(format!("round-{round}"));
        fs::write(&path, "kept").and_then(|()| fs::File::open(&path)?.sync_all()).expect("the mount is writable");
        let held = fs::File::open(&path).expect("open");
        daemon.kill();
        daemon = up(&home, transport);
        drop(held);
        assert_eq!(fs::read(&path).expect("it is there"), b"kept");
    }
    succeed(&["umount", text(&home.mount)]);
    assert_eq!(daemon.wait().0.code(), Some(0));
    home.check();
}

/// Memory for an entry per CPU, or the least that a daemon takes: two mounts' don't fit. An eighth of the buffers, which have
/// half of all, is entries of a MiB each.
fn memory_for_one() -> String {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").expect("always there");
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u64>().ok());
    let cpus = last.expect("a list of CPUs ends with a number") + 1;
    format!("{}M", 16 * cpus.max(16))
}

/// A brick that is served with memory for the entries of one mount; and where to mount.
fn little_memory() -> (Scratch, PathBuf, [PathBuf; 2], Daemon) {
    let scratch = Scratch::new("transport-memory");
    let data = scratch.join("data");
    succeed(&["format", text(&data), "--size", "4G"]);
    let points = ["one", "two"].map(|name| {
        succeed(&["volume", "create", text(&data), name]);
        scratch.directory(name)
    });
    let mut serve = sinter();
    serve.arg("serve").arg(&data).args(["--memory-max", &memory_for_one(), "--transport", "uring"]);
    let daemon = Daemon::start(serve);
    (scratch, data, points, daemon)
}

#[test]
fn a_mount_without_room_for_entries_reads_the_device_and_room_comes_back() {
    if !is_offered() {
        return eprintln!("skipped: the kernel does not offer FUSE over io_uring");
    }
    let (_scratch, data, [one, two], daemon) = little_memory();
    for (volume, path) in [("one", &one), ("two", &two)] {
        succeed(&["mount", text(&data), volume, text(path)]);
        use_mount(path);
    }
    for path in [&one, &two] {
        succeed(&["umount", text(path)]);
        let start = Instant::now();
        while !mounts_below(path).is_empty() {
            assert!(start.elapsed() < LONG, "{path:?} stays mounted");
        }
    }
    // Deleting a volume waits until its mount has ended.
    succeed(&["volume", "delete", text(&data), "one"]);
    succeed(&["mount", text(&data), "two", text(&two)]);
    use_mount(&two);
    let said = daemon.terminate();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("requests come over")).collect();
    let expected = [(&one, OVER_RINGS), (&two, OVER_DEVICE), (&two, OVER_RINGS)];
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, (path, transport)) in lines.iter().zip(expected) {
        assert!(line.contains(text(path)) && line.contains(transport), "{said}");
    }
    assert!(said.contains("memory_max leaves no room for io_uring's entries"), "{said}");
}
