//! `sinter brick`: the devices of a brick.

use super::{ask, print, print_json};
use crate::admin::client::unexpected;
use crate::admin::protocol::{Answer, Device, Request};
use crate::cli::{AddDevice, BrickCommand, Shown};
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes};

/// `sinter brick ...`.
pub fn run(command: &BrickCommand) -> Result<Exit, Failure> {
    match command {
        BrickCommand::Devices(options) => list(options),
        BrickCommand::AddDevice(options) => add(options),
    }
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
