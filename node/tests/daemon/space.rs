//! A daemon's report of its space, and content that a test can check block by block.

#![allow(dead_code)] // Each test program uses its own part.

use crate::daemon::{Home, succeed, text};
use runtime::random::SplitMix;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// The space by `sinter status`, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that clients may fill.
    pub usable: u64,
    /// Bytes of these that are free.
    pub statfs_free: u64,
    /// All segments.
    pub physical: u64,
    /// Live data as of the last checkpoint.
    pub logical: u64,
    /// Free segments.
    pub free: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// Written by clients.
    pub client: u64,
    /// Written to the device.
    pub device: u64,
    /// Moved by the cleaner.
    pub moved: u64,
    /// Checkpoints so far.
    pub checkpoints: u64,
    /// Memory as the daemon knows it: I/O buffers, the index engine, the overlays.
    pub memory: [u64; 3],
    /// The state of the cleaner.
    pub cleaner: String,
}

/// Asks the daemon.
pub fn space(home: &Home) -> Space {
    let status: serde_json::Value =
        serde_json::from_str(&succeed(&["status", text(&home.data), "--json"])).expect("status prints JSON");
    assert!(status["read_only"].is_null(), "{status}");
    let top = |name: &str| status[name].as_u64().unwrap_or_else(|| panic!("no {name}: {status}"));
    let part = |name: &str| status["space"][name].as_u64().unwrap_or_else(|| panic!("no space.{name}: {status}"));
    let figure = |name: &str| {
        let figures = status["figures"].as_array().expect("figures");
        let found = figures.iter().find(|figure| figure["name"] == name);
        found.and_then(|figure| figure["value"].as_u64()).unwrap_or_else(|| panic!("no {name}: {status}"))
    };
    Space {
        usable: top("size_bytes"),
        statfs_free: top("free_bytes"),
        physical: part("physical_bytes"),
        logical: part("logical_bytes"),
        free: part("free_bytes"),
        segment: top("segment_bytes"),
        client: part("client_bytes"),
        device: part("device_bytes"),
        moved: part("moved_bytes"),
        checkpoints: figure("checkpoints"),
        memory: [top("buffer_bytes"), figure("index memory bytes"), figure("overlay bytes")],
        cleaner: status["cleaner"].as_str().expect("text").to_string(),
    }
}

/// Waits until the space figures tell exactly what is there: after three further checkpoints. The first may have begun
/// before this call; the second takes every change, but frees only 16 MiB of a file; the third frees what is left of it. Then
/// until the brick has rested and a checkpoint has counted the names below too, which takes longer on a busy machine.
/// Checkpoints come by changes, not by the clock: this makes symbolic links of the greatest length and deletes them, which
/// leaves no block.
pub fn settle(home: &Home) -> Space {
    const PATIENCE: Duration = Duration::from_secs(120);
    let (started, before) = (Instant::now(), space(home).checkpoints);
    let target = "x".repeat(4095);
    let change = |number| {
        let path = home.mount.join(format!("settling-{number}"));
        symlink(&target, &path).and_then(|()| std::fs::remove_file(&path)).expect("names can be changed");
    };
    let mut now = space(home);
    while now.checkpoints < before + 3 {
        assert!(started.elapsed() < PATIENCE, "no three checkpoints in {PATIENCE:?}: {now:?}");
        (0..200).for_each(change);
        now = space(home);
    }
    change(0);
    // The overlays are empty from a checkpoint's begin on; what it has counted is told from its end on.
    let (mut ended, mut now) = (now.checkpoints, space(home));
    while now.memory[2] > 0 || now.checkpoints == ended {
        assert!(started.elapsed() < PATIENCE, "no checkpoint of a brick at rest in {PATIENCE:?}: {now:?}");
        if now.memory[2] > 0 {
            ended = now.checkpoints;
        }
        std::thread::sleep(Duration::from_millis(100));
        now = space(home);
    }
    now
}

/// The content of a version of a file's block.
pub fn block(file: u64, number: u64, version: u64) -> [u8; BLOCK as usize] {
    let place = SplitMix(SplitMix(file).next() ^ number).next();
    let mut random = SplitMix(place ^ version);
    let mut bytes = [0; BLOCK as usize];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    bytes
}

/// Blocks of a file in one version, cut to `length` bytes.
pub fn content(file: u64, version: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..(length as u64).div_ceil(BLOCK)).flat_map(|number| block(file, number, version)).collect();
    bytes.truncate(length);
    bytes
}
