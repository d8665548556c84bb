//! `sinter status`: how a brick's daemon is.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Agent, Answer, Replica, Request, Space, Status};
use crate::cli::Shown;
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes, count};

/// Asks the daemon and shows its answer.
pub fn run(options: &Shown) -> Result<Exit, Failure> {
    let Answer::Status(status) = Client::need(&options.data)?.ask(&Request::Status)? else {
        return Err(unexpected());
    };
    if options.json {
        print_json(&status)?
    } else {
        print(&table(&status))?
    }
    Ok(Exit::Done)
}

fn table(status: &Status) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| table.row(vec![name.to_string(), value]);
    row("version", status.version.clone());
    row("process", status.pid.to_string());
    row("up", format!("{} s", count(status.uptime_seconds)));
    let is_client = status.server.is_some();
    row(if is_client { "volume" } else { "brick" }, status.brick.clone());
    if let Some(server) = &status.server {
        row("server", server.clone());
    }
    if let Some(shared) = status.shared {
        row("shared", if shared { "yes: others have it mounted too" } else { "no: mounted here alone" }.to_string());
    }
    row("state", status.read_only.as_ref().map_or("ready".to_string(), |why| format!("read-only: {why}")));
    if let Some(what) = &status.ending {
        row("ending", what.clone());
    }
    if let Some(Replica { node, leads, leader, term, committed, applied, .. }) = status.replica.as_deref() {
        let role = match (leads, leader) {
            (true, _) => "leads".to_string(),
            (false, Some(leader)) if leader != node => format!("follows {leader}"),
            _ => "knows no leader".to_string(),
        };
        let (term, committed, applied) = (count(*term), count(*committed), count(*applied));
        row("node", format!("{node} {role}, term {term}, committed {committed}, applied {applied}"));
    }
    for warning in &status.warnings {
        row("warning", warning.clone());
    }
    if !is_client {
        of_brick(status, &mut row);
    }
    row("cores", status.cores.to_string());
    row("buffers", format!("{} of at most {}", bytes(status.buffer_bytes), bytes(status.memory_max_bytes)));
    for mounted in &status.mounts {
        let detached = if mounted.detached { " (detached, still used)" } else { "" };
        row("mount", format!("{} at {}{detached}", mounted.volume, mounted.path));
    }
    if let Some(address) = &status.listening {
        row("listening", address.clone());
    }
    for users in &status.users {
        row("clients", users.told());
    }
    for figure in &status.figures {
        row(&figure.name, count(figure.value));
    }
    // The columns have no names: the first line is empty.
    table.render().trim_start().to_string()
}

/// The rows of a brick's own state.
fn of_brick(status: &Status, row: &mut impl FnMut(&str, String)) {
    row("size", bytes(status.size_bytes));
    row("free", bytes(status.free_bytes));
    let Space { physical_bytes, logical_bytes, reclaimable_bytes, client_bytes, device_bytes, .. } = status.space;
    row("physical", bytes(physical_bytes));
    row("data", bytes(logical_bytes));
    row("reclaimable", bytes(reclaimable_bytes));
    if let Some(hundredths) = (device_bytes * 100).checked_div(client_bytes) {
        row(
            "written",
            format!("{}, {}.{:02} times what clients wrote", bytes(device_bytes), hundredths / 100, hundredths % 100),
        );
    }
    row("cleaner", status.cleaner.clone());
    row("scrub", super::scrub::summary(&status.scrub));
    if let Some(working) = background(&status.agents) {
        row("background", working);
    }
    row("segments", format!("{} of {}", count(status.segments), bytes(status.segment_bytes)));
    row("groups", count(status.groups));
}

/// The agents that have something to do; None if none has.
fn background(agents: &[Agent]) -> Option<String> {
    let of = |agent: &Agent| {
        let Agent { name, share, .. } = agent;
        share.map(|share| format!("{name} up to {}.{}% of the time", share / 10, share % 10))
    };
    let working: Vec<String> = agents.iter().filter_map(of).collect();
    (!working.is_empty()).then(|| working.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::protocol::{Figure, Mounted, Users};

    #[test]
    fn a_status_reads_well() {
        let status = Status {
            version: "0.1.0".into(),
            pid: 7,
            size_bytes: 4 << 30,
            segment_bytes: 64 << 20,
            segments: 64,
            read_only: Some("a write failed: EIO".into()),
            mounts: vec![Mounted { volume: "default".into(), path: "/mnt".into(), detached: false }],
            space: Space { client_bytes: 1 << 30, device_bytes: 3 << 29, ..Space::default() },
            warnings: vec!["3% is free".into()],
            agents: vec![
                Agent { name: "scrub".into(), share: Some(25), worked_ns: 7 },
                Agent { name: "freeing".into(), share: None, worked_ns: 0 },
                Agent { name: "cleaner".into(), share: Some(500), worked_ns: 0 },
            ],
            figures: vec![Figure { name: "checkpoints".into(), value: 1234 }],
            users: vec![Users { volume: "default".into(), clients: vec!["desk".into()], ..Users::default() }],
            shared: Some(false),
            ..Status::default()
        };
        let text = table(&status);
        for line in [
            "version      0.1.0",
            "state        read-only: a write failed: EIO",
            "size         4 GiB",
            "segments     64 of 64 MiB",
            "mount        default at /mnt",
            "clients      default: desk alone",
            "shared       no: mounted here alone",
            "warning      3% is free",
            "written      1.5 GiB, 1.50 times what clients wrote",
            "background   scrub up to 2.5% of the time, cleaner up to 50.0% of the time",
            "checkpoints  1,234",
        ] {
            assert!(text.lines().any(|own| own == line), "{line:?} is missing in\n{text}");
        }
    }
}
