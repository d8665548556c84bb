//! The row `hot`: a hot set on flash, before and after four times the flash was read in order, once.

use super::asked::Asked;
use super::brick::{Brick, Devices};
use super::load::read_once;
use super::report::{Report, Wish};
use super::warm;
use crate::flash::undo::Undo;
use crate::verdicts::load::{FILE, Load, READ};

const ROW: &str = "hot";
/// The flash's sizes that are read.
const TIMES: f64 = 4.0;
/// Part of the hit rate that may be lost.
const LOST_MOST: f64 = 0.05;

/// Measures it.
pub fn run(
    asked: &Asked,
    (brick, devices): (&Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let hot = warm::file(brick);
    warm::up(brick, &hot, undo)?;
    // Copies that were made during the last pass count.
    let before = warm::pass(brick, &hot, undo)?;
    eprintln!("reading the file that fills the brick in order");
    let load = Load { pattern: "read", block_bytes: 1 << 20, ..READ };
    let disk = devices.spindle.counters()?.read_bytes;
    let read = read_once(&load, &brick.file(FILE), 3600, &[], undo)?;
    let disk = devices.spindle.counters()?.read_bytes - disk;
    let after = warm::pass(brick, &hot, undo)?;
    let flash = asked.flash_bytes as f64;
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    add(
        "read in order, in sizes of the flash",
        read.operations as f64 * f64::from(1 << 20) / flash,
        "",
        Wish::Least(TIMES),
    );
    add("of it from the disk, in sizes of the flash", disk as f64 / flash, "", Wish::None);
    add("rate of that", read.bytes_per_second / 1e6, "MB/s", Wish::None);
    add("part of the hot set that lies on the disk", before.on_disk, "", Wish::Least(warm::ON_DISK_LEAST));
    add("hit rate of the hot set before", before.hit_rate, "", Wish::Least(0.5));
    add("hit rate of the hot set afterwards", after.hit_rate, "", Wish::None);
    let lost = 1.0 - after.hit_rate / before.hit_rate.max(f64::EPSILON);
    add("part of the hit rate that was lost", lost, "", Wish::Most(LOST_MOST));
    add("hot set before", before.bytes_per_second / 1e6, "MB/s", Wish::None);
    add("hot set afterwards", after.bytes_per_second / 1e6, "MB/s", Wish::None);
    Ok(())
}
