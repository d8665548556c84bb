//! The row `policies`: small files on a volume that may go down to the disk and on one that stays on flash, in turns; and a file on
//! the disk that is read until it is warm, beside one on flash.

use super::brick::{Brick, number};
use super::report::{Report, Wish};
use super::warm::{self, Pass};
use crate::flash::figures::median;
use crate::flash::ground::{Ground, text};
use crate::flash::undo::Undo;
use crate::verdicts::load::lay_out;
use serde_json::Value;
use std::path::Path;

const ROW: &str = "policies";
/// Rounds of all that is done in turns.
const ROUNDS: usize = 5;
/// Seconds of each cell, and of its reads again.
const SECONDS: &str = "1";
/// Rates of flash alone, in those of write-back, that are permitted.
const CELL_MOST: f64 = 1.3;
const WARM_MOST: f64 = 1.2;

/// Measures both.
pub fn run(ground: &Ground, brick: &Brick, report: &mut Report, undo: &Undo) -> Result<(), String> {
    let pinned = ground.root.join("pinned");
    brick.flash_only(&pinned, undo)?;
    eprintln!("small files, {ROUNDS} rounds");
    let work = ["smallfile", text(&pinned), "--beside", text(brick.mount()), "--time", SECONDS];
    let told = brick.bench(&[&work[..], &["--rounds", &ROUNDS.to_string()]].concat(), undo)?;
    cells(&told, report)?;
    warm_sets(brick, &pinned, report, undo)
}

/// Tells the rates of all cells.
fn cells(told: &Value, report: &mut Report) -> Result<(), String> {
    let lines = told["lines"].as_array().ok_or_else(|| format!("sinter bench smallfile: {told}"))?;
    for line in lines.iter().filter(|line| line["figure"] == "rate") {
        let (mode, threads, kib) = (&line["mode"], &line["threads"], number(line, "block_bytes")? / 1024.0);
        let cell = format!("{}, {threads} x {kib} KiB", mode.as_str().unwrap_or("?"));
        report.add(ROW, format!("{cell}: write-back"), number(line, "beside")?, "/s", Wish::None);
        let name = format!("{cell}: flash-only in that");
        report.add(ROW, name, number(line, "ratio")?, "", Wish::MostIfAlone(CELL_MOST));
    }
    Ok(())
}

fn warm_sets(brick: &Brick, pinned: &Path, report: &mut Report, undo: &Undo) -> Result<(), String> {
    let (below, above) = (warm::file(brick), pinned.join("set"));
    lay_out(&above, warm::BYTES, undo)?;
    warm::up(brick, &below, undo)?;
    let mut rounds: Vec<[Pass; 2]> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push([warm::pass(brick, &below, undo)?, warm::pass(brick, &above, undo)?]);
    }
    let of = |what: fn(&[Pass; 2]) -> f64| median(&rounds.iter().map(what).collect::<Vec<_>>());
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, format!("warm set: {name}"), value, unit, wish);
    add("part on the disk", of(|pair| pair[0].on_disk), "", Wish::Least(warm::ON_DISK_LEAST));
    add("part of that served by copies on flash", of(|pair| pair[0].hit_rate), "", Wish::None);
    add("write-back", of(|pair| pair[0].bytes_per_second / 1e6), "MB/s", Wish::None);
    let ratio = of(|pair| pair[1].bytes_per_second / pair[0].bytes_per_second);
    add("flash-only in that", ratio, "", Wish::MostIfAlone(WARM_MOST));
    std::fs::remove_file(&above).map_err(|error| format!("{}: {error}", above.display()))
}
