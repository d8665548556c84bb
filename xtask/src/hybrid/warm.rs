//! A file whose blocks lie on the disk, read at random until flash has copies of it.
//!
//! Absent by design: the kernel's cache, which is dropped before each pass, and the daemon's own, which reads through the kernel's don't use.

use super::brick::{Brick, number};
use crate::flash::fio;
use crate::flash::ground::drop_caches;
use crate::flash::undo::Undo;
use crate::verdicts::load::{Load, READ};
use crate::verdicts::process::Running;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
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

/// A pass over the whole file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pass {
    pub bytes_per_second: f64,
    /// The part of the blocks on disk that copies on flash served; 0: none lies there.
    pub hit_rate: f64,
}

/// Reads all of a file once, at random.
pub fn pass(brick: &Brick, file: &Path, undo: &Undo) -> Result<Pass, String> {
    drop_caches()?;
    let load = Load { pattern: "randread", block_bytes: READ_BYTES, jobs: READERS as u32, ..READ };
    let mut command = load.command(file, 3600);
    let part = BYTES / READERS;
    command.args(["--direct=0", "--time_based=0", "--invalidate=0", "--norandommap=0"]);
    command.args([format!("--size={part}"), format!("--offset_increment={part}")]).stdout(Stdio::piped());
    let before = brick.tiers()?;
    let said = fio::read(&Running::start(&mut command, undo)?.output(undo)?, "read")?;
    let pass = Pass { bytes_per_second: said.bytes_per_second, hit_rate: hit_rate(&before, &brick.tiers()?)? };
    eprintln!("a pass: {:.1} MB/s, {:.1}% from copies", pass.bytes_per_second / 1e6, pass.hit_rate * 100.0);
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

/// The part of reads that copies served between two answers of `sinter tiers`.
fn hit_rate(before: &Value, after: &Value) -> Result<f64, String> {
    let of = |tiers: &Value, name: &str| {
        let served = tiers["served"].as_array().into_iter().flatten().find(|tier| tier["tier"] == "copies on flash");
        number(served.ok_or("sinter tiers tells nothing of copies on flash")?, name)
    };
    let gained = |name| Ok::<_, String>(of(after, name)? - of(before, name)?);
    Ok(gained("found_blocks")? / gained("asked_blocks")?.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_hit_rate_is_that_of_the_time_between() {
        let tiers = |asked: u64, found: u64| {
            let served = |tier: &str| json!({ "tier": tier, "asked_blocks": asked, "found_blocks": found });
            json!({ "served": [served("copies on flash")] })
        };
        assert_eq!(hit_rate(&tiers(100, 100), &tiers(300, 150)), Ok(0.25));
        assert_eq!(hit_rate(&tiers(100, 100), &tiers(100, 100)), Ok(0.0));
        assert!(hit_rate(&json!({}), &tiers(1, 1)).is_err());
    }
}
