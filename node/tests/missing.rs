//! A hybrid brick on loop devices that starts without its disk. Needs root and /dev/fuse.

use crate::daemon::{Daemon, Home, fail, run, succeed, text};
use crate::device::{Loop, devices, figure, hybrid, rewrite, up};
use crate::patterns::{pattern, verify, write_synced};
use runtime::random::SplitMix;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Bytes that are read at once, and block by block if that fails.
const PIECE: usize = 64 << 10;

/// The files that have gone down in part: name, seed, MiB.
const FILES: [(&str, u64, u64); 2] = [("one", 1, 1750), ("other", 2, 1750)];

/// A kilobyte-aligned buffer: reads past the page cache want one.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![0; PIECE + BLOCK])
    }
    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(BLOCK);
        &mut self.0[skip..skip + length]
    }
}

/// Reads a file past the page cache. Returns the bytes that could not be read; all others are right.
fn unreadable(path: &Path, seed: u64, mib: u64) -> u64 {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).expect("names are on flash");
    let (mut buffer, mut lost) = (Aligned::new(), 0);
    for number in 0..mib {
        let expected = pattern(seed << 32 | number << 1, 1 << 20);
        for piece in (0..1 << 20).step_by(PIECE) {
            let at = (number << 20) + piece as u64;
            let whole = file.read_exact_at(buffer.bytes(PIECE), at);
            if whole.is_ok() {
                assert!(*buffer.bytes(PIECE) == expected[piece..piece + PIECE], "{} at {at}", path.display());
                continue;
            }
            for block in (0..PIECE).step_by(BLOCK) {
                match file.read_exact_at(buffer.bytes(BLOCK), at + block as u64) {
                    Ok(()) => {
                        let expected = &expected[piece + block..][..BLOCK];
                        assert!(buffer.bytes(BLOCK) == expected, "{} at {at} + {block}", path.display());
                    }
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                        lost += BLOCK as u64;
                    }
                }
            }
        }
    }
    lost
}

/// Bytes on the disk by path, as the list says.
pub fn affected(home: &Home) -> BTreeMap<String, u64> {
    let told = succeed(&["brick", "affected", "--json", text(&home.data), "2"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let files = told["files"].as_array().expect("files");
    let file = |file: &serde_json::Value| {
        let path = file["path"].as_str().expect("each has a name").trim_start_matches('/').to_string();
        (path, file["bytes"].as_u64().expect("a number"))
    };
    let files: BTreeMap<_, _> = files.iter().map(file).collect();
    assert_eq!(told["bytes"].as_u64(), Some(files.values().sum()));
    files
}

fn state(home: &Home) -> String {
    devices(home)[1]["state"].as_str().expect("a word").to_string()
}

/// Writes until blocks have gone down to the disk, and ends the daemon as a crash does.
fn filled_and_killed(home: &Home, daemon: Daemon) {
    for (name, seed, mib) in FILES {
        write_synced(&home.mount.join(name), seed, mib).expect("there is room");
    }
    let (mut random, patience) = (SplitMix(3), Instant::now() + Duration::from_secs(150));
    while figure(home, "blocks destaged") < 20_000 {
        assert!(Instant::now() < patience, "nothing goes down: {}", succeed(&["status", text(&home.data)]));
        for (name, seed, mib) in FILES {
            rewrite(&home.mount.join(name), seed, mib, 2000, &mut random);
        }
    }
    write_synced(&home.mount.join("hot"), 5, 8).expect("there is room");
    daemon.kill();
}

#[test]
fn without_its_disk_a_brick_serves_the_rest_and_lists_exactly_what_can_not_be_read() {
    let home = Home::new("missing");
    let Some((flash, _disk)) = hybrid(&home) else { return };
    filled_and_killed(&home, up(&home, &[]));
    let (link, away) = (home.data.join("device-2"), home.data.join("away"));
    std::fs::rename(&link, &away).expect("it is a link");
    let daemon = up(&home, &[]);
    assert_eq!(state(&home), "missing");
    let status = succeed(&["status", text(&home.data)]);
    assert!(status.contains("disk 2 is missing") && status.contains("sinter brick affected"), "{status}");
    verify(&home.mount.join("hot"), 5, 8);
    let listed = affected(&home);
    let lost = FILES.map(|(name, seed, mib)| (name.to_string(), unreadable(&home.mount.join(name), seed, mib)));
    let lost: BTreeMap<_, _> = lost.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    assert_eq!(listed, lost);
    explained(&home);
    // The destage goes through all files in their order, and this one comes first.
    let (name, seed, mib) = FILES[0];
    assert!(listed[name] > 4 << 20, "{listed:?}");
    let scrub = succeed(&["scrub", "status", text(&home.data)]);
    assert_eq!(scrub, "scrub: never started\n", "what is missing is no damage");
    fail(&["brick", "remove-device", text(&home.data), "2"], 1, &["missing", "bring it back"]);
    // What is written anew can be read again, and what is new is on flash.
    rewrite(&home.mount.join(name), seed, mib, 4000, &mut SplitMix(4));
    write_synced(&home.mount.join("new"), 7, 64).expect("there is room");
    verify(&home.mount.join("new"), 7, 64);
    let fewer = affected(&home);
    assert!(fewer[name] < listed[name] && fewer.len() == listed.len(), "{fewer:?} of {listed:?}");
    let said = daemon.terminate();
    assert!(said.contains("disk 2 is missing"), "{said}");
    assert_eq!(affected(&home), fewer, "nobody serves it");
    check_without(&home);
    flash_is_needed(&home, &flash);
    std::fs::rename(&away, &link).expect("it is a link");
    let daemon = up(&home, &[]);
    assert_eq!(state(&home), "in use");
    for (name, seed, mib) in FILES {
        verify(&home.mount.join(name), seed, mib);
    }
    verify(&home.mount.join("hot"), 5, 8);
    verify(&home.mount.join("new"), 7, 64);
    daemon.terminate();
    home.check();
}

/// `explain` names the disk while reads fail.
fn explained(home: &Home) {
    let (name, seed, mib) = FILES[0];
    let told = std::thread::scope(|scope| {
        scope.spawn(|| unreadable(&home.mount.join(name), seed, mib));
        succeed(&["explain", text(&home.data), "--seconds", "1", "--json"])
    });
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["verdict"]["cause"], &told["verdict"]["resource"]), (&"disk-missing".into(), &"disk 2".into()));
}

/// The check says that the disk is missing and nothing else, and nothing is repaired.
fn check_without(home: &Home) {
    let output = run(&["check", "--json", text(&home.data)]);
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = checked["findings"].as_array().expect("findings");
    assert!(output.status.code() == Some(1) && findings.len() == 1, "{findings:?}");
    assert!(findings[0].as_str().expect("text").contains("disk 2 is missing"), "{findings:?}");
    fail(&["check", "--repair", text(&home.data)], 2, &["missing", "bring it back"]);
}

/// The brick does not start without flash, and says what would be lost.
fn flash_is_needed(home: &Home, flash: &Loop) {
    let (link, away) = (home.data.join("device"), home.data.join("away-too"));
    std::fs::rename(&link, &away).expect("it is a link");
    let said = fail(&["serve", text(&home.data)], 1, &["device 1 is flash", "would be lost", "bytes of files"]);
    assert!(!said.contains(flash.path()), "{said}");
    std::fs::rename(&away, &link).expect("it is a link");
}
