//! A file whose blocks lie on the disk, read at random until flash has copies of it.
//!
//! Absent by design: the kernel's cache, which is dropped before each pass, and the daemon's own, which reads through the kernel's don't use.

use super::brick::{Brick, number};
use super::load::read_once;
use crate::flash::ground::drop_caches;
use crate::flash::undo::Undo;
use crate::verdicts::load::{self, Load, READ};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the file.
pub const BYTES: u64 = 128 << 20;
/// Passes after which flash has what it will have.
const PASSES_MAX: usize = 6;
/// Part of the reads that copies serve of a file that is warm.
const WARM: f64 = 0.95;
/// Time for copies that wait to be written.
const PAUSE: Duration = Duration::from_secs(2);
/// Readers, each of a part of its own.
const READERS: u64 = 4;
const READ_BYTES: u32 = 64 << 10;
/// Bytes of what `sinter tiers` counts.
const BLOCK_BYTES: f64 = 4096.0;
/// The part of a file on disk that must lie there.
pub const ON_DISK_LEAST: f64 = 0.95;

/// A pass over the whole file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pass {
    pub bytes_per_second: f64,
    /// The part of the file that lies on the disk.
    pub on_disk: f64,
    /// The part of that which copies on flash served.
    pub hit_rate: f64,
}

/// The file.
pub fn file(brick: &Brick) -> PathBuf {
    brick.file("warm").join("set")
}

/// Writes it. What fills the brick afterwards has it go down.
pub fn lay_out(brick: &Brick, undo: &Undo) -> Result<(), String> {
    brick.on_tier("warm", "disk")?;
    load::lay_out(&file(brick), BYTES, undo)
}

/// Reads all of a file once, at random.
pub fn pass(brick: &Brick, file: &Path, undo: &Undo) -> Result<Pass, String> {
    drop_caches()?;
    let load = Load { pattern: "randread", block_bytes: READ_BYTES, jobs: READERS as u32, ..READ };
    let part = BYTES / READERS;
    let places = ["--norandommap=0".into(), format!("--size={part}"), format!("--offset_increment={part}")];
    let before = brick.tiers()?;
    let said = read_once(&load, file, 3600, &places, undo)?;
    let (asked, found) = served(&before, &brick.tiers()?)?;
    let on_disk = asked * BLOCK_BYTES / BYTES as f64;
    let pass = Pass { bytes_per_second: said.bytes_per_second, on_disk, hit_rate: found / asked.max(1.0) };
    eprintln!("{pass:.3?}");
    Ok(pass)
}

/// Reads it until it is warm; the last pass.
pub fn up(brick: &Brick, file: &Path, undo: &Undo) -> Result<Pass, String> {
    let mut last = pass(brick, file, undo)?;
    for _ in 1..PASSES_MAX {
        if last.hit_rate >= WARM {
            break;
        }
        std::thread::sleep(PAUSE);
        last = pass(brick, file, undo)?;
    }
    Ok(last)
}

/// The blocks on disk that were asked for between two answers of `sinter tiers`, and those that copies on flash served.
fn served(before: &Value, after: &Value) -> Result<(f64, f64), String> {
    let of = |tiers: &Value, name: &str| {
        let served = tiers["served"].as_array().into_iter().flatten().find(|tier| tier["tier"] == "copies on flash");
        number(served.ok_or("sinter tiers tells nothing of copies on flash")?, name)
    };
    let gained = |name| Ok::<_, String>(of(after, name)? - of(before, name)?);
    Ok((gained("asked_blocks")?, gained("found_blocks")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_served_before_does_not_count() {
        let tiers = |asked: u64, found: u64| {
            let served = |tier: &str| json!({ "tier": tier, "asked_blocks": asked, "found_blocks": found });
            json!({ "served": [json!({ "tier": "memory" }), served("copies on flash")] })
        };
        assert_eq!(served(&tiers(100, 100), &tiers(300, 150)), Ok((200.0, 50.0)));
        assert!(served(&json!({}), &tiers(1, 1)).is_err());
    }
}
