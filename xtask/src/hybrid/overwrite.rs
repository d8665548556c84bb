//! The rows `bare` and `overwrite`: the disk alone, and 4 KiB written at random through the brick until the disk took several times
//! the flash.

use super::asked::{Asked, Row};
use super::brick::{Brick, Devices};
use super::load::{Clients, Done};
use super::report::{Report, Wish};
use super::seconds::evenness;
use super::watch::{Second, Watch};
use crate::flash::ground::Ground;
use crate::flash::undo::Undo;
use crate::verdicts::load::{FILE, Load, READ};
use serde_json::Value;
use std::ops::Range;
use std::path::Path;

const BARE: &str = "bare";
const OVERWRITE: &str = "overwrite";
const SEQUENTIAL: &str = "1 MiB read in sequence";
const RANDOM: &str = "4 KiB written at random, depth 32";
/// Seconds of each figure of the disk alone.
const BARE_SECONDS: u64 = 5;
/// Rate of overwrites, in that of the disk alone, that is wanted at least.
const GAIN_LEAST: f64 = 15.0;
/// Seconds after which a disk that got nothing more is not going to.
const PATIENCE_SECONDS: usize = 60;

/// Writers at random places of the file.
pub const WRITERS: Load = Load { pattern: "randwrite", jobs: 32, ..READ };

/// Measures the disk alone.
pub fn bare(devices: &Devices, report: &mut Report, undo: &Undo) -> Result<(), String> {
    let (disk, seconds) = (Path::new(&devices.disk), BARE_SECONDS);
    let random = Load { depth: 32, jobs: 1, ..WRITERS }.measure(disk, seconds, undo)?;
    report.add(BARE, RANDOM, random.per_second, "/s", Wish::None);
    let onward = Load { pattern: "read", block_bytes: 1 << 20, ..READ }.measure(disk, seconds, undo)?;
    report.add(BARE, SEQUENTIAL, onward.per_second * f64::from(1 << 20) / 1e6, "MB/s", Wish::None);
    Ok(())
}

/// The disk's own rate in sequence, in MB/s, if it was measured.
pub fn sequential(report: &Report) -> Option<f64> {
    report.value(BARE, SEQUENTIAL)
}

/// Overwrites the file.
pub fn run(
    asked: &Asked,
    ground: &Ground,
    (brick, devices): (&Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let wanted = (asked.flash_bytes as f64 * asked.times) as u64;
    let mut clients = Clients::start(&WRITERS, &brick.file(FILE), &ground.root, OVERWRITE, undo)?;
    let (mut watch, mut explained) = (Watch::default(), None);
    let began = devices.spindle.counters()?.written_bytes;
    loop {
        let taken = watch.look(&devices.spindle)?.written_bytes - began;
        let seconds = watch.seconds.len();
        if seconds.is_multiple_of(15) {
            tell(brick, seconds, taken, wanted)?;
        }
        if explained.is_none() && taken > wanted / 2 {
            explained = Some(brick.explained(5)?);
        }
        if taken >= wanted || seconds as u64 >= asked.seconds_max || is_stuck(&watch) || clients.have_ended() {
            break;
        }
    }
    let taken = devices.spindle.counters()?.written_bytes - began;
    let done = clients.end(undo)?;
    if asked.wants(Row::Overwrite) {
        told(asked, (&done, &watch), taken, report)?;
        explained.iter().for_each(|explained| report.note(OVERWRITE, cause(explained)));
    }
    Ok(())
}

/// True if the disk got nothing for a long time.
fn is_stuck(watch: &Watch) -> bool {
    let Some(at) = watch.seconds.len().checked_sub(PATIENCE_SECONDS) else { return false };
    watch.seconds.last().is_some_and(|last| last.disk_bytes == watch.seconds[at].disk_bytes)
}

fn tell(brick: &Brick, seconds: usize, taken: u64, wanted: u64) -> Result<(), String> {
    let devices = brick.devices()?;
    let mib = |device: &Value, name: &str| device[name].as_u64().unwrap_or(0) >> 20;
    let free = devices["devices"].as_array().into_iter().flatten().map(|device| {
        let (tier, free, live) = (device["tier"].as_str(), mib(device, "free_bytes"), mib(device, "live_bytes"));
        format!("{} {free} MiB free, {live} live", tier.unwrap_or("?"))
    });
    let (free, status) = (free.collect::<Vec<_>>().join("; "), brick.status()?);
    let written = status["space"]["client_bytes"].as_u64().unwrap_or(0) >> 20;
    let (taken, wanted, cleaner) = (taken >> 20, wanted >> 20, &status["cleaner"]);
    eprintln!("{seconds} s: the disk took {taken} of {wanted} MiB; written {written} MiB; {free}; {cleaner}");
    Ok(())
}

/// The cause that `sinter explain` names.
fn cause(explained: &Value) -> String {
    let verdict = &explained["verdict"];
    format!("half way, sinter explain names {} ({}): {}", verdict["cause"], verdict["resource"], verdict["evidence"])
}

fn told(asked: &Asked, (done, watch): (&Done, &Watch), taken: u64, report: &mut Report) -> Result<(), String> {
    let taken = taken as f64 / asked.flash_bytes as f64;
    report.add(OVERWRITE, "failed writes", done.errors as f64, "", Wish::Zero);
    report.add(OVERWRITE, "the disk took, in sizes of the flash", taken, "", Wish::Least(asked.times));
    report.add(OVERWRITE, "longest write", done.ended.longest_ns as f64 / 1e6, "ms", Wish::None);
    let whole = watch.range();
    // As long as the disk has segments that were never used, nothing must be cleaned there.
    let later = whole.start.midpoint(whole.end)..whole.end;
    for (part, range) in [("", whole), ("second half: ", later)] {
        even(part, (done, watch, range), report)?;
    }
    asked.seconds.as_ref().map_or(Ok(()), |path| keep(path, done, watch))
}

/// Tells how even a part of the overwrites was.
fn even(part: &str, (done, watch, range): (&Done, &Watch, Range<u64>), report: &mut Report) -> Result<(), String> {
    let even = evenness(&done.ended, range, |second| watch.stolen(second));
    let even = even.ok_or("the overwrites took no whole second")?;
    let bare = report.value(BARE, RANDOM);
    let mut add =
        |name: &str, value: f64, unit, wish| report.add(OVERWRITE, format!("{part}{name}"), value, unit, wish);
    add("seconds", even.seconds as f64, "s", Wish::None);
    add("mean", even.mean, "/s", Wish::None);
    add("lowest second", even.lowest as f64, "/s", Wish::None);
    add("lowest second in the mean", even.lowest as f64 / even.mean, "", Wish::LeastIfAlone(0.5));
    add("seconds below half of the mean", even.below_half as f64, "s", Wish::ZeroIfAlone);
    add("seconds without any write", even.idle as f64, "s", Wish::Zero);
    add("such seconds in which the host took the CPU", even.excused as f64, "s", Wish::None);
    if let Some(bare) = bare {
        add("mean in the disk's own rate", even.mean / bare, "", Wish::LeastIfAlone(GAIN_LEAST));
    }
    Ok(())
}

/// Keeps each second in a file.
fn keep(path: &Path, done: &Done, watch: &Watch) -> Result<(), String> {
    let line = |seen: &Second| {
        let (second, count) = (seen.second, done.ended.at(seen.second));
        format!("{second},{count},{:.3},{}\n", seen.stolen, seen.disk_bytes)
    };
    let lines: String = watch.seconds.iter().map(line).collect();
    let text = format!("second,writes,stolen,disk_bytes\n{lines}");
    std::fs::write(path, text).map_err(|error| format!("--seconds {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_gets_nothing_for_a_minute_is_stuck() {
        let second = |second: usize, disk_bytes| Second { second: second as u64, stolen: 0.0, disk_bytes };
        let mut watch = Watch { seconds: (0..PATIENCE_SECONDS - 1).map(|at| second(at, 5)).collect() };
        assert!(!is_stuck(&watch), "it is too early to tell");
        watch.seconds.push(second(PATIENCE_SECONDS, 5));
        assert!(is_stuck(&watch));
        watch.seconds.push(second(PATIENCE_SECONDS + 1, 6));
        assert!(!is_stuck(&watch));
    }
}
