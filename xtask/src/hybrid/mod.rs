//! `cargo xtask hybrid`: a brick with flash in front of a disk of the model, filled and overwritten at random: how even the rate is,
//! what is left of the file's order, and what a disk that stands still does to clients.
//!
//! Promises: the disk alone is measured in the same run; all is taken back whatever happens. Absent by design: any opinion on why
//! a second was slow.

pub mod asked;
mod beside;
pub mod brick;
mod checkpoints;
mod hot;
mod in_order;
pub mod load;
mod objects;
mod overwrite;
mod policies;
pub mod report;
pub mod seconds;
mod stopped;
mod streams;
mod warm;
mod watch;

use crate::flash::ground::{self, Ground};
use crate::flash::undo::Undo;
use asked::{Asked, Row};
use brick::{Brick, Devices};
use report::Report;
use std::path::PathBuf;

/// Log, index, fio's logs, and a little.
const BESIDE_BYTES: u64 = 3 << 30;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{}", asked::HELP);
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    let binary = binary(&asked)?;
    ground::need_root()?;
    ground::install(&[("fio", "fio"), ("util-linux", "losetup"), ("attr", "setfattr")])?;
    let mut report = Report::default();
    let done = Undo::during(|undo| all(&asked, &binary, &mut report, undo));
    // What was measured before something went wrong is worth its time.
    let printed = report.print(asked.form, asked.strictness);
    done.and(printed)
}

fn binary(asked: &Asked) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let own = asked.sinter.as_os_str().is_empty();
    let binary = if own { program.with_file_name("sinter") } else { asked.sinter.clone() };
    match binary.is_file() {
        true => Ok(binary),
        false => Err(format!("no {}: cargo build --release -p node, or --sinter BINARY", binary.display())),
    }
}

fn all(asked: &Asked, binary: &std::path::Path, report: &mut Report, undo: &Undo) -> Result<(), String> {
    ground::allow_uring(undo)?;
    let ground = Ground::new(asked.work.clone(), room_bytes(asked), undo)?;
    let devices = Devices::make(asked, &ground, undo)?;
    if asked.wants(Row::Bare) || asked.wants(Row::Overwrite) || asked.wants(Row::InOrder) {
        overwrite::bare(&devices, report, undo)?;
    }
    if asked.rows == [Row::Bare] {
        return Ok(());
    }
    let mut brick = Brick::make(asked, binary, &ground, &devices, undo)?;
    if asked.wants(Row::Streams) {
        streams::run(asked, &ground, (&brick, &devices), report, undo)?;
    }
    if asked.wants(Row::Policies) || asked.wants(Row::Hot) {
        warm::lay_out(&brick, undo)?;
    }
    if asked.fills() {
        brick.fill(undo)?;
    }
    if asked.wants(Row::Overwrite) || asked.wants(Row::InOrder) {
        overwrite::run(asked, &ground, (&brick, &devices), report, undo)?;
    }
    if asked.wants(Row::InOrder) {
        in_order::run(asked, (&mut brick, &devices), report, undo)?;
    }
    if asked.wants(Row::Stopped) {
        stopped::run(asked, &ground, (&brick, &devices), report, undo)?;
    }
    if asked.wants(Row::Policies) {
        policies::run(&ground, &brick, report, undo)?;
    }
    if asked.wants(Row::Beside) {
        beside::run(asked, binary, (&ground, &brick), report, undo)?;
    }
    if asked.wants(Row::Hot) {
        hot::run(asked, (&brick, &devices), report, undo)?;
    }
    if asked.wants(Row::Checkpoints) {
        checkpoints::run(&ground, (&brick, &devices), report, undo)?;
    }
    if asked.wants(Row::Objects) {
        objects::run(asked, binary, &ground, (&mut brick, &devices), report, undo)?;
    }
    Ok(())
}

/// Bytes that a run needs. A disk's file is sparse: it gets what the brick is filled with, and the dead blocks between.
fn room_bytes(asked: &Asked) -> u64 {
    let is_whole = asked.fills() || asked.wants(Row::Streams);
    let disk = if is_whole { asked.disk_bytes() } else { asked.disk_bytes().min(2 * asked.object_bytes) };
    let objects = if asked.wants(Row::Objects) { objects::flash_bytes(asked) } else { 0 };
    let beside = if asked.wants(Row::Beside) { asked.flash_bytes } else { 0 };
    asked.flash_bytes + asked.disks * disk + objects + beside + BESIDE_BYTES
}
