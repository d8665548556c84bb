//! The row `in-order`: the file that was overwritten at random, read in order.

use super::asked::Asked;
use super::brick::{Brick, Devices};
use super::load::read_once;
use super::overwrite::sequential;
use super::report::{Report, Wish};
use crate::flash::ground::drop_caches;
use crate::flash::undo::Undo;
use crate::verdicts::load::{FILE, Load, READ};
use std::time::Duration;

const ROW: &str = "in-order";
/// Parts of the disk's sequential rate that are wanted: at once, and after an idle pass.
const LEAST: f64 = 0.3;
const LEAST_RESTED: f64 = 0.6;
const MIB: f64 = (1 << 20) as f64;

/// Reads the file twice, with an idle pass between.
pub fn run(
    asked: &Asked,
    (brick, devices): (&mut Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    read(asked, (brick, devices), ("cold", 0, LEAST), report, undo)?;
    eprintln!("an idle pass of {} s", asked.idle_seconds);
    std::thread::sleep(Duration::from_secs(asked.idle_seconds));
    // From its middle on: what was read before is gathered by that.
    read(asked, (brick, devices), ("after an idle pass", 50, LEAST_RESTED), report, undo)
}

/// Reads it as a program does that knows nothing of direct I/O, from so many hundredths of it on.
fn read(
    asked: &Asked,
    (brick, devices): (&mut Brick, &Devices),
    (when, percent, least): (&str, u64, f64),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    // Neither the daemon nor the kernel has anything of it.
    brick.restart(undo)?;
    drop_caches()?;
    eprintln!("reading in order, {when}, for {} s at most", asked.read_seconds);
    let load = Load { pattern: "read", block_bytes: 1 << 20, ..READ };
    let before = devices.spindle.counters()?;
    let from = [format!("--offset={percent}%")];
    let said = read_once(&load, &brick.file(FILE), asked.read_seconds, &from, undo)?;
    let after = devices.spindle.counters()?;
    let (bytes, read_mib) = (after.read_bytes - before.read_bytes, said.operations as f64);
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, format!("{when}: {name}"), value, unit, wish);
    add("rate", said.bytes_per_second / 1e6, "MB/s", Wish::None);
    add("read from the disk, of each byte", bytes as f64 / (read_mib * MIB), "", Wish::None);
    add("requests of the disk per MiB", (after.reads - before.reads) as f64 / read_mib, "", Wish::None);
    add("seeks of the disk per MiB", (after.seeks - before.seeks) as f64 / read_mib, "", Wish::None);
    if let Some(alone) = sequential(report) {
        report.add(
            ROW,
            format!("{when}: rate in the disk's own"),
            said.bytes_per_second / 1e6 / alone,
            "",
            Wish::LeastIfAlone(least),
        );
    }
    Ok(())
}
