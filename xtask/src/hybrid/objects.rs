//! The row `objects`: what an object server does (`sinter bench object`), on the brick and on one that is all flash, in turns.
//!
//! Promises that both have the same bound of memory, half of what is stored. Absent by design: wishes but that nothing fails.

use super::asked::Asked;
use super::brick::{Brick, Devices, SMALL_FLASH_BYTES, number};
use super::report::{Report, Wish};
use crate::flash::ground::{Ground, text};
use crate::flash::undo::Undo;
use crate::verdicts::load::FILE;
use runtime::sim::spindle::Counters;
use serde_json::Value;
use std::path::Path;

const ROW: &str = "objects";
/// Number of times that each brick gets all objects.
const ROUNDS: usize = 2;
/// The passes, as the bench names them.
const MODES: [&str; 6] = ["put", "get cold", "get cold again", "get cached", "get with little memory", "delete"];
/// The passes are done by phases, so that the devices can be looked at between.
const PHASES: [&str; 3] = ["create", "read", "remove"];
/// A brick takes its time to slow clients down: it is not filled further than this.
const FILLED_PERCENT: u64 = 75;
const MIB: u64 = 1 << 20;
/// Steps of the flash's size.
const FLASH_BYTES_STEP: u64 = 1 << 28;

/// One pass of one round.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Pass {
    per_second: f64,
    bytes_per_second: f64,
    p50_ns: f64,
    p99_ns: f64,
    max_ns: f64,
    errors: f64,
    stolen_percent: f64,
}

/// All passes of one round on one brick.
type Round = [Pass; MODES.len()];

/// A brick, and what was measured on it.
struct Side<'a> {
    name: &'static str,
    brick: &'a Brick,
    /// Devices with a disk, if it has one.
    devices: Option<&'a Devices>,
    rounds: Vec<Round>,
    /// Bytes that lay on disks after the last put.
    on_disk: u64,
}

/// The size of the flash of a brick that has no disk.
pub fn flash_bytes(asked: &Asked) -> u64 {
    (asked.object_bytes * 100 / FILLED_PERCENT).next_multiple_of(FLASH_BYTES_STEP).max(SMALL_FLASH_BYTES)
}

/// The bound of a daemon's memory, in MiB.
fn memory_mib(asked: &Asked) -> u64 {
    asked.object_bytes / 2 / MIB
}

/// Measures both.
pub fn run(
    asked: &Asked,
    binary: &Path,
    ground: &Ground,
    (brick, devices): (&mut Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let file = brick.file(FILE);
    if file.is_file() {
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let memory = format!("{}M", memory_mib(asked));
    let options = ["--memory-max", &memory];
    brick.restart_with(&options, undo)?;
    let all_flash =
        Brick::all_flash(asked, binary, (&ground.root.join("all-flash"), flash_bytes(asked)), &options, undo)?;
    let side = |name, brick, devices| Side { name, brick, devices, rounds: Vec::new(), on_disk: 0 };
    let mut sides = [side("hybrid", brick, Some(devices)), side("all flash", &all_flash, None)];
    for round in 1..=ROUNDS {
        for side in &mut sides {
            eprintln!("round {round} of {ROUNDS}, {}", side.name);
            side.measure(asked, undo)?;
        }
    }
    told(&sides, report);
    Ok(())
}

impl Side<'_> {
    fn measure(&mut self, asked: &Asked, undo: &Undo) -> Result<(), String> {
        let mut rows = Vec::new();
        for phase in PHASES {
            let before = self.counters()?;
            rows.extend(bench(asked, self.brick, phase, undo)?);
            if let Some((before, after)) = before.zip(self.counters()?) {
                let (read, written) =
                    (after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes);
                eprintln!("{phase}: the disk read {} MiB and wrote {} MiB", read / MIB, written / MIB);
            }
            if phase == "create" {
                self.on_disk = on_disk(&self.brick.devices()?);
            }
        }
        self.rounds.push(round(&rows)?);
        Ok(())
    }
    fn counters(&self) -> Result<Option<Counters>, String> {
        self.devices.map(|devices| devices.spindle.counters()).transpose()
    }
}

/// Does one phase; its rows. Errors: it ended without any.
fn bench(asked: &Asked, brick: &Brick, phase: &str, undo: &Undo) -> Result<Vec<Value>, String> {
    let (bytes, seconds) = (asked.object_bytes.to_string(), asked.object_seconds.to_string());
    let work = ["object", text(brick.mount()), "--phase", phase, "--bytes", &bytes, "--time", &seconds];
    let told = brick.bench(&work, undo)?;
    told["rows"].as_array().cloned().ok_or_else(|| format!("sinter bench object: {told}"))
}

/// Bytes that live on disks.
fn on_disk(devices: &Value) -> u64 {
    let all = devices["devices"].as_array().into_iter().flatten();
    all.filter(|device| device["tier"] == "disk").filter_map(|device| device["live_bytes"].as_u64()).sum()
}

/// The passes among the rows of a bench. Errors: one is missing.
fn round(rows: &[Value]) -> Result<Round, String> {
    let mut round = Round::default();
    for (mode, pass) in MODES.iter().zip(&mut round) {
        let row = rows.iter().find(|row| row["mode"] == *mode);
        let row = row.ok_or_else(|| format!("sinter bench object tells nothing of {mode}"))?;
        let number = |name| number(row, name);
        *pass = Pass {
            per_second: number("per_second")?,
            bytes_per_second: number("bytes_per_second")?,
            p50_ns: number("p50_ns")?,
            p99_ns: number("p99_ns")?,
            max_ns: number("max_ns")?,
            errors: number("errors")?,
            stolen_percent: number("stolen_percent")?,
        };
    }
    Ok(round)
}

/// The same of all rounds: means, but the longest of all, and all errors.
fn together(rounds: &[Round], at: usize) -> Pass {
    let mean =
        |of: fn(&Pass) -> f64| rounds.iter().map(|round| of(&round[at])).sum::<f64>() / rounds.len().max(1) as f64;
    Pass {
        per_second: mean(|pass| pass.per_second),
        bytes_per_second: mean(|pass| pass.bytes_per_second),
        p50_ns: mean(|pass| pass.p50_ns),
        p99_ns: mean(|pass| pass.p99_ns),
        max_ns: rounds.iter().map(|round| round[at].max_ns).fold(0.0, f64::max),
        errors: rounds.iter().map(|round| round[at].errors).sum(),
        stolen_percent: mean(|pass| pass.stolen_percent),
    }
}

fn told(sides: &[Side<'_>; 2], report: &mut Report) {
    let mut add = |name: String, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    for (at, mode) in MODES.iter().enumerate() {
        let passes = [0, 1].map(|side: usize| together(&sides[side].rounds, at));
        for (side, pass) in sides.iter().zip(passes) {
            let named = |what: &str| format!("{mode}, {}: {what}", side.name);
            add(named("objects"), pass.per_second, "/s", Wish::None);
            if pass.bytes_per_second > 0.0 {
                add(named("bytes"), pass.bytes_per_second / 1e6, "MB/s", Wish::None);
            }
            add(named("p50"), pass.p50_ns / 1e6, "ms", Wish::None);
            add(named("p99"), pass.p99_ns / 1e6, "ms", Wish::None);
            add(named("longest"), pass.max_ns / 1e6, "ms", Wish::None);
            add(named("errors"), pass.errors, "", Wish::Zero);
            add(named("the host took"), pass.stolen_percent, "%", Wish::None);
        }
        let ratio = passes[0].per_second / passes[1].per_second.max(f64::EPSILON);
        add(format!("{mode}: rate in that of all flash"), ratio, "", Wish::None);
    }
    let on_disk = (sides[0].on_disk / MIB) as f64;
    add("live on the disk after the last put".to_string(), on_disk, "MiB", Wish::None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(mode: &str, per_second: f64, errors: u64) -> Value {
        json!({ "mode": mode, "per_second": per_second, "bytes_per_second": 2e6, "p50_ns": 1_000_000, "p99_ns": 3_000_000,
                "max_ns": per_second * 1e6, "errors": errors, "stolen_percent": 4 })
    }

    #[test]
    fn rounds_are_told_together() {
        let rows = |per_second, errors| MODES.map(|mode| row(mode, per_second, errors));
        let rounds = [round(&rows(100.0, 0)).expect("all there"), round(&rows(300.0, 2)).expect("all there")];
        let pass = together(&rounds, 3);
        assert_eq!((pass.per_second, pass.max_ns, pass.errors, pass.stolen_percent), (200.0, 300e6, 2.0, 4.0));
        let missing = round(&rows(1.0, 0)[..5]).expect_err("one is missing");
        assert!(missing.contains("nothing of delete"), "{missing}");
        let wrong = round(&MODES.map(|mode| json!({ "mode": mode }))).expect_err("no figures");
        assert!(wrong.contains("no per_second"), "{wrong}");
    }

    #[test]
    fn disks_are_told_from_flash() {
        let device = |tier: &str, live: u64| json!({ "tier": tier, "live_bytes": live });
        let devices = json!({ "devices": [device("flash", 7), device("disk", 5), device("disk", 1)] });
        assert_eq!(on_disk(&devices), 6);
    }
}
