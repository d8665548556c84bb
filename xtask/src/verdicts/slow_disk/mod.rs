//! The slow disk: a served disk whose answers come later by a set time, which a test changes while it is used.
//!
//! Promises: an answer comes no earlier than its delay after the backing file's own, and some microseconds later if a CPU is
//! free. Absent by design: what `served` leaves out, and any notion of where bytes lie.

mod delays;
mod late;

pub use delays::Delays;

use crate::served;
use late::Late;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The argument that makes this program the disk's server.
pub const ARGUMENT: &str = "--slow-disk";
/// Time between two looks at the file of delays.
const LOOK: Duration = Duration::from_millis(10);

/// Heeds the file of delays; what can't be read or understood changes nothing.
fn watch(knobs: &Path, late: &Late) {
    loop {
        if let Some(delays) = std::fs::read_to_string(knobs).ok().and_then(|text| Delays::read(&text).ok()) {
            late.set(delays);
        }
        std::thread::sleep(LOOK);
    }
}

/// Serves the disk until it is unmounted: `--slow-disk BACKING MOUNT KNOBS`. The file KNOBS says how late it answers, and is
/// read again and again.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [backing, mount, knobs] = arguments else {
        return Err(format!("{ARGUMENT} BACKING MOUNT KNOBS"));
    };
    let [backing, mount, knobs] = [backing, mount, knobs].map(PathBuf::from);
    let late = Arc::new(Late::start().map_err(|error| format!("no thread for late answers: {error}"))?);
    let threads = served::start(&backing, &mount, late.clone())?;
    let watching = std::thread::Builder::new().spawn(move || watch(&knobs, &late));
    watching.map_err(|error| format!("no thread for delays: {error}"))?;
    for thread in threads {
        thread.join().map_err(|_| "a thread of the slow disk panicked".to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
