//! The row `streams`: many readers of a constant bit rate, each of a file of its own on the disks, cold.

use super::asked::Asked;
use super::brick::{Brick, Devices, number, told_by_bench};
use super::report::{Report, Wish};
use crate::flash::ground::{Ground, text};
use crate::flash::undo::Undo;
use crate::verdicts::load::lay_out;
use runtime::sim::spindle::Counters;
use serde_json::Value;
use std::time::Duration;

const ROW: &str = "streams";
/// Streams of one disk, and for each of several, whose files never lie on them quite evenly.
const STREAMS: u64 = 300;
const STREAMS_EACH: u64 = 250;
/// Streams of 1 Mb/s for a minute, alone and again beside a reader at full speed. Each has more than it reads. They start over ten
/// seconds: a disk finds 60 to 190 places in a second, depending on what it reads at each, so no disk finds 300 within the second
/// that the first chunk of each lasts.
const WORK: [&str; 8] = ["--bit-rate", "1000000", "--time", "60", "--size", "16M", "--start-over", "10"];
/// Bytes that a stream asks for at once.
const CHUNK_BYTES: f64 = 131_072.0;
/// The part of what is played that must come from the disk. A little is read before the bench says that it begins.
const FROM_DISK_LEAST: f64 = 0.9;
const MIB: f64 = (1 << 20) as f64;
/// Time between looks at the memory.
const LOOK: Duration = Duration::from_secs(1);

/// The course of the bench.
#[derive(Default)]
struct Seen {
    /// Each disk's counters when each measurement began.
    began: Vec<Vec<Counters>>,
    /// The most bytes that were held ahead.
    held_most: f64,
}

/// Measures them.
pub fn run(
    asked: &Asked,
    ground: &Ground,
    (brick, devices): (&Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let films = brick.on_tier("films", "disk")?;
    // With half of the flash taken, the reader's file alone, which is the last, would fill it: the streams' have gone down.
    let pinned = brick.on_tier("pinned", "flash")?.join("file");
    lay_out(&pinned, asked.flash_bytes / 2, undo)?;
    let streams = if asked.disks == 1 { STREAMS } else { STREAMS_EACH * asked.disks }.to_string();
    eprintln!("writing the files of {streams} streams, and a reader's");
    let course = ground.root.join("course");
    let work = [&["streams", text(&films), "--streams", &streams], &WORK[..]].concat();
    // The words with which the bench begins to measure.
    let begins = [format!("{streams} streams of "), format!("{streams} streams beside ")];
    let mut bench = brick.start_bench(&work, &course, undo)?;
    let mut seen = Seen::default();
    while !bench.has_ended() {
        std::thread::sleep(LOOK);
        let said = std::fs::read_to_string(&course).map_err(|error| format!("{}: {error}", course.display()))?;
        if begins.get(seen.began.len()).is_some_and(|begins| said.contains(begins)) {
            seen.began.push(devices.counters()?);
        }
        seen.held_most = seen.held_most.max(number(&brick.tiers()?["ahead"], "held_bytes")?);
    }
    let all = told_by_bench(bench, undo)?;
    std::fs::remove_file(&pinned).map_err(|error| format!("{}: {error}", pinned.display()))?;
    told(&all, &seen, report)?;
    memory(brick, &seen, report)
}

fn told(all: &Value, seen: &Seen, report: &mut Report) -> Result<(), String> {
    let row = |mode: &str| {
        let found = all["rows"].as_array().into_iter().flatten().find(|row| row["mode"] == mode);
        found.ok_or_else(|| format!("sinter bench streams tells nothing of {mode}: {all}"))
    };
    let (alone, beside, reader) = (row("streams")?, row("streams beside")?, row("reader")?);
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    for (name, row, wish) in [("alone", alone, Wish::ZeroIfAlone), ("beside a reader", beside, Wish::None)] {
        add(&format!("{name}: chunks"), number(row, "operations")?, "", Wish::None);
        add(&format!("{name}: chunks that came late"), number(row, "missed")?, "", wish);
        add(&format!("{name}: p99"), number(row, "p99_ns")? / 1e6, "ms", Wish::None);
        add(&format!("{name}: longest"), number(row, "max_ns")? / 1e6, "ms", Wish::None);
    }
    add("the reader", number(reader, "bytes_per_second")? / 1e6, "MB/s", Wish::None);
    let [first, last] = &seen.began[..] else {
        return Err("sinter bench streams did not say when it began".to_string());
    };
    let counted = |count: fn(&Counters) -> u64| -> Vec<f64> {
        first.iter().zip(last).map(|(first, last)| (count(last) - count(first)) as f64).collect()
    };
    let read: f64 = counted(|disk| disk.read_bytes).iter().sum();
    let seeks: f64 = counted(|disk| disk.seeks).iter().sum();
    let chunks = number(alone, "operations")? * CHUNK_BYTES;
    add("alone: read from disks, of each byte", read / chunks, "", Wish::Least(FROM_DISK_LEAST));
    add("alone: seeks of disks per MiB", seeks / (read / MIB).max(1.0), "", Wish::None);
    for (number, busy) in counted(|disk| disk.busy_ns).into_iter().enumerate() {
        add(&format!("alone: disk {number} was busy"), busy / 60e9, "", Wish::None);
    }
    Ok(())
}

fn memory(brick: &Brick, seen: &Seen, report: &mut Report) -> Result<(), String> {
    let (status, ahead) = (brick.status()?, brick.tiers()?["ahead"].clone());
    let (most, bound) = (peak_bytes(&status)?, number(&status, "memory_max_bytes")?);
    let held_bound = number(&ahead, "held_bytes_max")?;
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    add("read ahead, most at a time", seen.held_most / MIB, "MiB", Wish::None);
    add("read ahead, in its bound", seen.held_most / held_bound, "", Wish::Most(1.0));
    add("memory of the daemon, most", most / MIB, "MiB", Wish::None);
    add("memory of the daemon, in its bound", most / bound, "", Wish::Most(1.0));
    Ok(())
}

/// The most memory that the daemon has had.
fn peak_bytes(status: &Value) -> Result<f64, String> {
    let path = format!("/proc/{}/status", status["pid"]);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    peak(&text).ok_or_else(|| format!("{path} has no VmHWM"))
}

fn peak(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        assert_eq!(peak("VmPeak:\t  9 kB\nVmHWM:\t  2048 kB\n"), Some(2_097_152.0));
        assert_eq!(peak("VmPeak:\t  9 kB\n"), None);
    }
}
