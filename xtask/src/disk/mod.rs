//! `cargo xtask disk`: hard disks for tests. A server of this program answers a sparse file at the times that the model
//! `runtime::sim::spindle` says, and a loop device on it is a disk for everyone.
//!
//! Promises: a disk stays until it is dropped; what a killed command or server left is taken back by the next `make` or by `drop`.
//! Absent by design: errors of a disk, and what becomes durable when; a power cut of the real machine is not tested with it.

mod asked;
mod counted;
mod measure;
mod patterns;
mod place;
mod queue;
mod simulated;
mod turning;

#[cfg(test)]
mod tests;

use crate::flash::ground;
use crate::served;
use asked::{Asked, Form, Work};
pub use place::{Disks, Place};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use turning::Turning;

/// The argument that makes this program a disk's server.
const SERVE: &str = "--serve";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let [first, backing, mount, lock] = arguments
        && first == SERVE
    {
        return serve(Path::new(backing), Path::new(mount), Path::new(lock));
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{}", asked::HELP);
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    ground::need_root()?;
    let disks = Disks::below(&asked.dir)?;
    match &asked.work {
        Work::Make { name, bytes } => {
            let device = disks.make(name, *bytes)?;
            let all = json!({ "name": name, "device": device, "bytes": bytes });
            print_one(asked.form, &[device], &all);
        }
        Work::Drop { names } => disks.drop(names)?,
        Work::DropAll => disks.drop(&disks.names()?)?,
        Work::List => list(&disks, asked.form)?,
        Work::Counters { name } => {
            let counters = disks.place(name).counters()?;
            print_one(asked.form, &counted::lines(&counters), &counted::json(&counters));
        }
        Work::Slow { name, slowness } => disks.place(name).set_slowness(*slowness)?,
        Work::Measure { seconds } => {
            ground::install(&[("fio", "fio")])?;
            return measure::run(&disks, *seconds, asked.form);
        }
    }
    Ok(())
}

fn print_one(form: Form, lines: &[String], json: &Value) {
    match form {
        Form::Table => lines.iter().for_each(|line| println!("{line}")),
        Form::Json => println!("{json}"),
    }
}

fn list(disks: &Disks, form: Form) -> Result<(), String> {
    let row = |name: &String| {
        let place = disks.place(name);
        let device = place.whole().unwrap_or_default();
        (name.clone(), device, place.bytes())
    };
    let rows: Vec<(String, String, u64)> = disks.names()?.iter().map(row).collect();
    let mut lines = vec![format!("{:<20} {:<12} {:>10}", "name", "device", "MiB")];
    lines.extend(rows.iter().map(|(name, device, bytes)| {
        let device = if device.is_empty() { "left over" } else { device };
        format!("{name:<20} {device:<12} {:>10}", bytes >> 20)
    }));
    let json = rows.iter().map(|(name, device, bytes)| {
        let device = Some(device).filter(|device| !device.is_empty());
        json!({ "name": name, "device": device, "bytes": bytes })
    });
    print_one(form, &lines, &Value::from_iter(json));
    Ok(())
}

/// Serves a disk until it is unmounted. The file `lock`, which its standard input holds, gets its number.
fn serve(backing: &Path, mount: &Path, lock: &Path) -> Result<(), String> {
    std::fs::write(lock, std::process::id().to_string()).map_err(|error| served::failed(lock, error))?;
    let bytes = std::fs::metadata(backing).map_err(|error| served::failed(backing, error))?.len();
    let turning = Turning::start(bytes).map_err(|error| format!("no thread for the spindle: {error}"))?;
    for thread in served::start(backing, mount, Arc::new(turning))? {
        thread.join().map_err(|_| "a thread of the disk's server panicked".to_string())?;
    }
    Ok(())
}
