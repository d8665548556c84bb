//! The row `streams`: many readers of a constant bit rate, each of a file of its own on the one disk, cold.

use super::brick::{Brick, Devices, number, told_by_bench};
use super::report::{Report, Wish};
use crate::flash::ground::text;
use crate::flash::undo::Undo;
use serde_json::Value;
use std::time::Duration;

const ROW: &str = "streams";
/// 300 streams of 1 Mb/s for a minute, alone and again beside a reader at full speed. Each has more than it reads.
const WORK: [&str; 8] = ["--streams", "300", "--bit-rate", "1000000", "--time", "60", "--size", "16M"];
/// Bytes that a stream asks for at once.
const CHUNK_BYTES: f64 = 131_072.0;
/// Time between looks at the memory.
const LOOK: Duration = Duration::from_secs(1);

/// Measures them.
pub fn run((brick, devices): (&Brick, &Devices), report: &mut Report, undo: &Undo) -> Result<(), String> {
    let films = brick.on_disk("films")?;
    eprintln!("300 streams, their files and a reader's");
    let before = devices.spindle.counters()?;
    let mut bench = brick.start_bench(&[&["streams", text(&films)], &WORK[..]].concat(), undo)?;
    let mut held: f64 = 0.0;
    while !bench.has_ended() {
        std::thread::sleep(LOOK);
        held = held.max(number(&brick.tiers()?["ahead"], "held_bytes")?);
    }
    let told = told_by_bench(bench, undo)?;
    let after = devices.spindle.counters()?;
    let row = |mode: &str| {
        let found = told["rows"].as_array().into_iter().flatten().find(|row| row["mode"] == mode);
        found.ok_or_else(|| format!("sinter bench streams tells nothing of {mode}: {told}"))
    };
    let (alone, beside, reader) = (row("streams")?, row("streams beside")?, row("reader")?);
    let chunks = number(alone, "operations")? + number(beside, "operations")?;
    let asked = chunks * CHUNK_BYTES + number(reader, "operations")? * f64::from(1 << 20);
    let ahead = brick.tiers()?["ahead"].clone();
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    let mib = f64::from(1 << 20);
    for (name, row) in [("alone", alone), ("beside a reader", beside)] {
        let wish = if name == "alone" { Wish::ZeroIfAlone } else { Wish::None };
        add(&format!("{name}: chunks"), number(row, "operations")?, "", Wish::None);
        add(&format!("{name}: chunks that came late"), number(row, "missed")?, "", wish);
        add(&format!("{name}: p99"), number(row, "p99_ns")? / 1e6, "ms", Wish::None);
        add(&format!("{name}: longest"), number(row, "max_ns")? / 1e6, "ms", Wish::None);
    }
    add("the reader", number(reader, "bytes_per_second")? / 1e6, "MB/s", Wish::None);
    let read = (after.read_bytes - before.read_bytes) as f64;
    add("read from the disk, of each byte", read / asked, "", Wish::Least(0.9));
    add(
        "seeks per MiB of it",
        number(&ahead, "runs")? / (number(&ahead, "read_bytes")? / mib).max(1.0),
        "",
        Wish::None,
    );
    add("most that was held ahead", held / mib, "MiB", Wish::None);
    add("of its bound", held / number(&ahead, "held_bytes_max")?, "", Wish::Most(1.0));
    let status = brick.status()?;
    let (most, bound) = (peak_bytes(&status)?, number(&status, "memory_max_bytes")?);
    add("most memory of the daemon", most / mib, "MiB", Wish::None);
    add("of its bound", most / bound, "", Wish::Most(1.0));
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
