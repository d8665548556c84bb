//! The older designs that `cargo xtask ablate` measures serve a mount as ours does: each alone, and together.
#![cfg(feature = "ablations")]

use crate::daemon::{Daemon, Home, refused, sinter, system, text};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const SWITCH: &str = "SINTER_TEST_ABLATIONS";
const ALL: [&str; 8] =
    ["history", "queue", "dev-fuse", "buffers", "hand-down", "hand-back", "blocking-io", "sleepy-cpus"];
/// Those of messages.
const OF_NETWORK: [&str; 2] = ["one-connection", "write-per-message"];
const O_DIRECT: i32 = 0o40000;
const THREADS: u64 = 8;

/// Memory for direct I/O.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// Several threads write a file past the page cache and read it back, and what others do with files.
fn use_mount(mount: &Path) {
    let path = mount.join("blocks");
    File::create(&path).expect("create");
    let worked = |thread: u64| {
        let file = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&path).expect("open");
        let mut block = Block([0; 4096]);
        for round in 0..16 {
            let at = (round * THREADS + thread) * 4096;
            block.0.fill((thread * 16 + round) as u8);
            file.write_all_at(&block.0, at).expect("write");
            block.0.fill(0xff);
            file.read_exact_at(&mut block.0, at).expect("read");
            assert!(block.0.iter().all(|&byte| u64::from(byte) == thread * 16 + round), "{thread} {round}");
        }
        file.sync_all().expect("fsync");
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || worked(thread)))));
    let content: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let directory = mount.join("directory");
    fs::create_dir(&directory).expect("mkdir");
    for length in [0, 1, 70_000, 3_000_000] {
        let mut file = File::create_new(directory.join(format!("file-{length}"))).expect("create");
        file.write_all(&content[..length]).and_then(|()| file.sync_all()).expect("write and fsync");
    }
    system("sh", &["-c", "echo 2 > /proc/sys/vm/drop_caches"]);
    for length in [0, 1, 70_000, 3_000_000] {
        let path = directory.join(format!("file-{length}"));
        assert!(fs::read(&path).expect("read") == content[..length], "{length} bytes");
        fs::rename(&path, mount.join(format!("moved-{length}"))).expect("rename");
    }
    assert_eq!(fs::read_dir(&directory).expect("opendir").count(), 0);
    fs::remove_file(mount.join("moved-1")).expect("unlink");
}

fn up(home: &Home, on: &str) -> Daemon {
    let mut command = sinter();
    command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", "4G"]).env(SWITCH, on);
    Daemon::start(command)
}

#[test]
fn each_older_design_serves_and_what_was_synced_is_kept() {
    let all = ALL.join(",");
    let six = ALL[..6].join(",");
    let sets = ALL.into_iter().chain(["dev-fuse,hand-down", "dev-fuse,hand-back", &six, &all]);
    for on in sets {
        let home = Home::new("ablations");
        let daemon = up(&home, on);
        use_mount(&home.mount);
        let said = daemon.terminate();
        assert!(said.contains("older designs") && said.contains(on), "{on}: {said}");
        let over_device = said.contains("requests come over /dev/fuse");
        assert!(over_device || !on.contains("dev-fuse"), "{on}: {said}");
        // The daemon without older designs serves what the one with them wrote.
        let daemon = up(&home, "");
        let (mut file, mut last) = (File::open(home.mount.join("blocks")).expect("open"), [0]);
        file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).expect("the last byte");
        assert_eq!(last, [(THREADS * 16 - 1) as u8], "{on}");
        drop(file);
        daemon.terminate();
        home.check();
    }
}

#[test]
fn each_older_design_of_messages_serves_a_client() {
    for on in OF_NETWORK.into_iter().chain(["one-connection,write-per-message"]) {
        let home = Home::new("ablations-network");
        let server = home.serve(&[(SWITCH, on)]);
        let mut command = home.client();
        command.env(SWITCH, on);
        let client = Daemon::start(command);
        use_mount(&home.mount);
        for said in [client.terminate(), server.terminate()] {
            assert!(said.contains("older designs") && said.contains(on), "{on}: {said}");
        }
        home.check();
    }
}

#[test]
fn a_design_that_is_not_known_is_refused() {
    let home = Home::new("ablations-unknown");
    let mut command = sinter();
    command.args(["up", text(&home.data), text(&home.mount), "--size", "4G"]).env(SWITCH, "queue,warp");
    let output = command.output().expect("the binary runs");
    refused(&output, 2, &["there is no warp", "hand-down"], "warp");
}
