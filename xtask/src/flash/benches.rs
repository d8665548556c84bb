//! Loads that `sinter bench` makes, on any side: what small commits, streams and a filled brick bear beside others.

use crate::flash::figures::Figure;
use crate::flash::ground::{drop_caches, text};
use crate::flash::measure::{Setting, run};
use crate::flash::sides::Side;
use serde_json::Value;
use std::process::Command;

/// Streams of which each asks for a chunk of 128 KiB a little more often than once a second.
const STREAMS: u64 = 4000;
const CHUNK_KIB: u64 = 128;
/// Fill of a brick, in hundredths of what clients may use.
const FILL_PERCENT: &str = "80";
/// Bytes of one write of `sinter bench steady`.
const BLOCK_BYTES: f64 = 4096.0;

/// Small writers alone, then beside a massive commit.
pub fn commit_mix(side: &Side, setting: &Setting) -> Result<Vec<Figure>, String> {
    let told = bench(side, setting, "commit-mix", &[])?;
    let (alone, beside) = (found(&told, "small alone")?, found(&told, "small beside")?);
    let times = number(beside, "p99_times_alone")?;
    let massive = number(found(&told, "massive")?, "bytes_per_second")? / 1e6;
    Ok(vec![plain(times), rate(alone)?, rate(beside)?, plain(massive)])
}

/// Streams alone, then beside a reader at full speed. No chunk is read twice: it would come from memory.
pub fn streams(side: &Side, setting: &Setting) -> Result<Vec<Figure>, String> {
    let size = format!("{}K", (setting.seconds + 1) * CHUNK_KIB);
    let told = bench(side, setting, "streams", &["--streams", &STREAMS.to_string(), "--size", &size])?;
    let missed = |mode| number(found(&told, mode)?, "missed").map(plain);
    let reader = number(found(&told, "reader")?, "bytes_per_second")? / 1e6;
    Ok(vec![missed("streams")?, missed("streams beside")?, plain(reader)])
}

/// Bytes of all that streams and the reader beside them read in so many seconds.
pub fn streams_bytes(seconds: u64) -> u64 {
    let all = STREAMS * (seconds + 1) * (CHUNK_KIB << 10);
    // The reader has as much as all of them, at most this.
    all + all.min(2 << 30)
}

/// Random overwrites of a brick that is filled.
pub fn steady(side: &Side, setting: &Setting) -> Result<Vec<Figure>, String> {
    let brick = side.brick().ok_or("only a brick is measured")?;
    let before = (setting.device_written)()?;
    let told = bench(side, setting, "steady", &["--brick", text(brick), "--fill", FILL_PERCENT])?;
    let device = ((setting.device_written)()? - before) as f64;
    steady_figures(&told, device)
}

fn steady_figures(told: &Value, device_bytes: f64) -> Result<Vec<Figure>, String> {
    let (mean, first) = (number(told, "mean")?, number(told, "first_mean")?);
    let seconds = told["windows"].as_array().map_or(0, Vec::len) as f64;
    let filled = number(told, "file_bytes")?;
    let all = device_bytes / (filled + mean * seconds * BLOCK_BYTES);
    let whole = timed(told, mean)?;
    let least = 100.0 * number(told, "least")? / mean.max(1.0);
    let (device, amplification) = (number(told, "device_bytes")? / 1e9, number(told, "amplification")?);
    let rest = [mean / first.max(1.0), least, number(told, "zero")?, device, amplification, all];
    Ok([whole, plain(first)].into_iter().chain(rest.map(plain)).collect())
}

fn plain(value: f64) -> Figure {
    Figure { value, ..Figure::default() }
}

fn rate(row: &Value) -> Result<Figure, String> {
    timed(row, number(row, "per_second")?)
}

/// A value with the latencies that are told beside it.
fn timed(told: &Value, value: f64) -> Result<Figure, String> {
    let latency = |name| number(told, name).map(|ns| Some(ns / 1000.0));
    Ok(Figure { value, p50_us: latency("p50_ns")?, p99_us: latency("p99_ns")?, ..Figure::default() })
}

/// Runs a bench in a side's directory; what it tells.
fn bench(side: &Side, setting: &Setting, name: &str, more: &[&str]) -> Result<Value, String> {
    drop_caches()?;
    let mut command = Command::new(setting.sinter);
    command.args(["bench", name, text(&side.directory), "--json", "--time", &setting.seconds.to_string()]).args(more);
    let said = run(command, setting.undo)?;
    serde_json::from_str(&said).map_err(|error| format!("sinter bench {name}: {error}: {said}"))
}

/// The row of a mode.
fn found<'a>(told: &'a Value, mode: &str) -> Result<&'a Value, String> {
    let mut rows = told["rows"].as_array().into_iter().flatten();
    rows.find(|row| row["mode"] == mode).ok_or_else(|| format!("sinter bench tells nothing of {mode}: {told}"))
}

fn number(value: &Value, name: &str) -> Result<f64, String> {
    value[name].as_f64().ok_or_else(|| format!("sinter bench tells no {name}: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::rows;
    use serde_json::json;

    #[test]
    fn a_filled_brick_is_told_by_what_its_bench_says() {
        let told = json!({
            "file_bytes": 1_000_000, "mean": 100, "first_mean": 200, "least": 40, "zero": 1, "windows": [160, 40, 100],
            "p50_ns": 2000, "p99_ns": 9000, "device_bytes": 3_000_000_000u64, "amplification": 2.5,
        });
        let figures = steady_figures(&told, 2.0 * (1_000_000.0 + 300.0 * 4096.0)).expect("all is told");
        let values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [100.0, 200.0, 0.5, 40.0, 1.0, 3.0, 2.5, 2.0]);
        assert_eq!((figures[0].p50_us, figures[0].p99_us), (Some(2.0), Some(9.0)));
        assert_eq!(figures.len(), rows::steady()[0].rows.len());
        assert!(steady_figures(&json!({ "mean": 1 }), 0.0).is_err_and(|error| error.contains("first_mean")));
    }

    #[test]
    fn rows_are_found_by_what_was_done() {
        let told = json!({ "rows": [{ "mode": "small alone", "per_second": 5 }] });
        assert_eq!(found(&told, "small alone").and_then(|row| number(row, "per_second")), Ok(5.0));
        assert!(found(&told, "small beside").is_err_and(|error| error.contains("nothing of small beside")));
    }
}
