//! `sinter brick`: the devices of a brick, and the files on them.

use super::{ask, print, print_json};
use crate::admin::client::Client;
use crate::admin::client::unexpected;
use crate::admin::protocol::{Affected, Answer, Device, FileOf, Request};
use crate::assembly::{self, Brick};
use crate::cli::{AddDevice, AffectedBy, BrickCommand, RemoveDevice, Shown};
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::memory;
use crate::progress::Progress;
use crate::table::{Align, Table, bytes, count};
use std::time::Duration;
use store::progress::Step;

/// Interval at which a daemon is asked for the progress of a removal.
const LOOK: Duration = Duration::from_millis(500);

/// `sinter brick ...`.
pub fn run(command: &BrickCommand) -> Result<Exit, Failure> {
    match command {
        BrickCommand::Devices(options) => list(options),
        BrickCommand::Affected(options) => affected(options),
        BrickCommand::AddDevice(options) => add(options),
        BrickCommand::RemoveDevice(options) => remove(options),
    }
}

fn remove(options: &RemoveDevice) -> Result<Exit, Failure> {
    let answer = ask(&options.data, Request::RemoveDevice { number: options.device })?;
    show(if options.wait { waited(options, answer)? } else { answer }, options.json)
}

/// Waits until a device has left.
fn waited(options: &RemoveDevice, begun: Answer) -> Result<Answer, Failure> {
    let progress = Progress::new("removing the device", None);
    let mut answer = begun;
    let mut most_bytes = 0;
    loop {
        let Answer::Devices(devices) = &answer else { return Err(unexpected()) };
        let Some(device) = devices.iter().find(|device| device.number == options.device) else { return Ok(answer) };
        if let Some(error) = &device.error {
            let failure = Failure::new(Exit::Failed, format!("the disk has failed: {error}"));
            return Err(failure.next("copy what can still be read: what is on the disk stays there"));
        }
        most_bytes = device.live_bytes.max(most_bytes);
        progress.step(Step { what: "blocks moved away", done: most_bytes - device.live_bytes, of: most_bytes });
        std::thread::sleep(LOOK);
        answer = ask(&options.data, Request::Devices)?;
    }
}

fn affected(options: &AffectedBy) -> Result<Exit, Failure> {
    let number = options.device;
    let files = match Client::connect(&options.data)? {
        Some(mut daemon) => all_affected(|after| daemon.ask(&Request::Affected { number, after }))?,
        None => {
            let data = directory::existing(&options.data)?;
            let all = |brick: &Brick| Ok(all_affected(|after| brick.affected(number, after).map_err(refused)));
            assembly::on_opened(&data, memory::default_max_bytes(), all)??
        }
    };
    let bytes = files.iter().map(|file| file.bytes).sum::<u64>();
    match options.json {
        true => print_json(&serde_json::json!({ "device": number, "bytes": bytes, "files": files }))?,
        false => print(&affected_table(&files, bytes))?,
    }
    Ok(Exit::Done)
}

fn refused(error: base::Error) -> Failure {
    Failure::of("can't list the files", &error)
}

/// Asks for all parts of the list.
fn all_affected(mut ask: impl FnMut(Option<FileOf>) -> Result<Answer, Failure>) -> Result<Vec<Affected>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Answer::Affected { files, next } = ask(after)? else { return Err(unexpected()) };
        all.extend(files);
        match next {
            Some(_) => after = next,
            None => return Ok(all),
        }
    }
}

fn affected_table(files: &[Affected], sum: u64) -> String {
    let columns =
        [("volume", Align::Left), ("inode", Align::Right), ("bytes on it", Align::Right), ("path", Align::Left)];
    let mut table = Table::new(&columns);
    for Affected { volume, inode, path, bytes } in files {
        let path = path.clone().unwrap_or_else(|| "(unlinked)".to_string());
        table.row(vec![volume.clone(), inode.to_string(), bytes.to_string(), path]);
    }
    format!("{}{} files, {}\n", table.render(), count(files.len() as u64), bytes(sum))
}

fn list(options: &Shown) -> Result<Exit, Failure> {
    show(ask(&options.data, Request::Devices)?, options.json)
}

fn add(options: &AddDevice) -> Result<Exit, Failure> {
    let path = std::path::absolute(&options.path).map_err(|error| Failure::io(options.path.display(), &error))?;
    let (path, tier) = (path.display().to_string(), options.tier.tier().name().to_string());
    show(ask(&options.data, Request::AddDevice { path, tier, force: options.force })?, options.json)
}

fn show(answer: Answer, json: bool) -> Result<Exit, Failure> {
    let Answer::Devices(devices) = answer else { return Err(unexpected()) };
    match json {
        true => print_json(&serde_json::json!({ "devices": devices }))?,
        false => print(&table(&devices))?,
    }
    Ok(Exit::Done)
}

fn table(devices: &[Device]) -> String {
    let right = Align::Right;
    let heads = [("device", right), ("tier", Align::Left), ("state", Align::Left), ("size", right), ("free", right)];
    let mut table = Table::new(&[&heads[..], &[("live", right), ("path", Align::Left)]].concat());
    for device in devices {
        let path = device.path.as_deref().unwrap_or("(the brick's directory)");
        let state = device.error.as_ref().map_or_else(|| device.state.clone(), |error| format!("failed: {error}"));
        let sizes = [device.size_bytes, device.free_bytes, device.live_bytes].map(bytes);
        let [size, free, live] = sizes;
        table.row(vec![device.number.to_string(), device.tier.clone(), state, size, free, live, path.to_string()]);
    }
    table.render()
}
