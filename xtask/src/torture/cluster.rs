//! The cluster: the process of `sinter cluster dev`, and what it tells of its nodes.
//!
//! Promises: the process ends with the run. Absent by design: any opinion on what the nodes say.

use crate::flash::ground::{ended, text, unmounted};
use crate::flash::undo::Undo;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for an end in order, which writes back what the mount holds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster that runs.
pub struct Cluster<'a> {
    binary: &'a Path,
    directory: PathBuf,
    pub mount: PathBuf,
    process: Child,
    undo: &'a Undo,
    /// The commands that undo it.
    undone_by: [String; 2],
}

/// The nodes of a cluster at one moment.
#[derive(Default, Debug)]
pub struct Nodes {
    /// The process of the node that leads.
    pub leader: Option<u32>,
    /// The processes of the others that answer.
    pub others: Vec<u32>,
    /// True if all are there and one leads.
    pub are_whole: bool,
}

impl Nodes {
    /// All processes.
    pub fn all(&self) -> Vec<u32> {
        self.leader.into_iter().chain(self.others.iter().copied()).collect()
    }
    /// Reads what `sinter cluster status --json` told.
    fn of(status: &Value) -> Option<Nodes> {
        let mut found = Nodes { are_whole: status["healthy"].as_bool()?, ..Nodes::default() };
        for node in status["nodes"].as_array()? {
            let Some(pid) = node["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()) else { continue };
            match node["state"] == "leads" && found.leader.is_none() {
                true => found.leader = Some(pid),
                false => found.others.push(pid),
            }
        }
        Some(found)
    }
}

impl<'a> Cluster<'a> {
    /// Starts the cluster below a directory, and waits until its volume is mounted.
    pub fn start(binary: &'a Path, work: &Path, undo: &'a Undo) -> Result<Cluster<'a>, String> {
        let (directory, mount, log) = (work.join("cluster"), work.join("mount"), work.join("cluster.log"));
        let errors = File::options().create(true).append(true).open(&log);
        let errors = errors.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = Command::new(binary);
        command.args(["cluster", "dev", text(&directory), text(&mount), "--size", "4G"]);
        // Ctrl-C is for this program, which then ends the cluster.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?;
        let kill = format!("kill -9 {0} 2>/dev/null; {1}", process.id(), ended(process.id(), 20));
        let undone_by = [unmounted(&mount), kill];
        for how in &undone_by {
            undo.add(how)?;
        }
        let mut line = String::new();
        let told = BufReader::new(process.stdout.take().expect("it was asked for")).read_line(&mut line);
        let cluster = Cluster { binary, directory, mount, process, undo, undone_by };
        match told {
            Ok(_) if line.starts_with("ready: ") => Ok(cluster),
            _ => Err(format!("the cluster did not start: {}; see {}", line.trim(), log.display())),
        }
    }
    /// Asks for the nodes.
    pub fn nodes(&self) -> Result<Nodes, String> {
        let mut command = Command::new(self.binary);
        command.args(["cluster", "status", text(&self.directory), "--json"]);
        // It fails if a node is away, and tells all the same.
        let output = command.output().map_err(|error| format!("cluster status: {error}"))?;
        let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        status.as_ref().and_then(Nodes::of).ok_or_else(|| {
            let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            format!("cluster status: {}: {}{}", output.status, errors.trim(), said.trim())
        })
    }
    /// Waits for all nodes to be there; false if they are not in time.
    pub fn becomes_whole(&self, patience: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < patience {
            if self.nodes().is_ok_and(|nodes| nodes.are_whole) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        false
    }
    /// Tells how the process has ended, if it has.
    pub fn has_ended(&mut self) -> Option<String> {
        self.process.try_wait().ok().flatten().map(|status| format!("sinter cluster dev has ended: {status}"))
    }
    /// Kills the process, so that whoever waits for the mount gets an error.
    pub fn kill(&mut self) {
        // It may have ended.
        drop(self.process.kill());
    }
    /// Ends it in order.
    pub fn end(mut self) -> Result<(), String> {
        signal("TERM", self.process.id());
        let began = Instant::now();
        loop {
            let status = self.process.try_wait().map_err(|error| format!("sinter cluster dev: {error}"))?;
            match status {
                Some(status) if status.success() => break,
                Some(status) => return Err(format!("sinter cluster dev, asked to end: {status}")),
                None if began.elapsed() > PATIENCE => {
                    return Err(format!("sinter cluster dev goes on {PATIENCE:?} after SIGTERM"));
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        self.undone_by.iter().rev().try_for_each(|how| self.undo.forget(how))
    }
}

/// Sends a signal; false if the process has ended.
pub fn signal(name: &str, pid: u32) -> bool {
    let mut command = Command::new("kill");
    command.args([format!("-{name}"), pid.to_string()]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_what_the_status_tells() {
        let told = serde_json::json!({ "healthy": false, "leader": "n2", "nodes": [
            { "name": "n1", "state": "follows", "pid": 11 },
            { "name": "n2", "state": "leads", "pid": 12 },
            { "name": "n3", "state": "away", "pid": null },
        ]});
        let nodes = Nodes::of(&told).expect("it is complete");
        assert_eq!((nodes.leader, &nodes.others[..], nodes.are_whole), (Some(12), &[11][..], false));
        assert_eq!(nodes.all(), [12, 11]);
        assert!(Nodes::of(&serde_json::json!({})).is_none());
    }
}
