//! The cluster: made by `sinter cluster dev`, then run as a process for each node and one for the mount, so that each can be ended and
//! started again at any moment.
//!
//! Promises: the processes end with the run; a node that ends unasked is told. Absent by design: any opinion on what the nodes say.

use super::nodes::{Node, Told};
use super::process::{PATIENCE, Process};
use crate::flash::ground::{text, unmounted};
use crate::flash::undo::Undo;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The size of a brick.
const BRICK: &str = "4G";
/// The volume that `sinter cluster dev` makes.
const VOLUME: &str = "default";
/// Memory of the process of the mount.
const MEMORY: &str = "512M";
/// Pause between two looks at a process that ends or begins.
const LOOK: Duration = Duration::from_millis(20);

/// A cluster that runs.
pub struct Cluster<'a> {
    binary: &'a Path,
    directory: PathBuf,
    pub mount: PathBuf,
    pub nodes: Vec<Node<'a>>,
    mounting: Process<'a>,
    undo: &'a Undo,
}

/// The state of the nodes at one moment, by their positions.
#[derive(Default, Debug)]
pub struct Seats {
    /// The node that leads.
    pub leader: Option<usize>,
    /// The others that answer.
    pub others: Vec<usize>,
    /// True if all are there and one leads.
    pub are_whole: bool,
}

impl Seats {
    /// Reads the answer of `sinter cluster status --json`.
    fn of(status: &Value) -> Option<Seats> {
        let mut found = Seats { are_whole: status["healthy"].as_bool()?, ..Seats::default() };
        for (at, node) in status["nodes"].as_array()?.iter().enumerate() {
            match node["state"].as_str()? {
                "leads" if found.leader.is_none() => found.leader = Some(at),
                "away" => {}
                _ => found.others.push(at),
            }
        }
        Some(found)
    }
    /// All that answer.
    pub fn all(&self) -> usize {
        self.others.len() + usize::from(self.leader.is_some())
    }
}

impl<'a> Cluster<'a> {
    /// Starts the cluster below a directory, which is made if it is not there, and mounts its volume.
    pub fn start(binary: &'a Path, work: &Path, undo: &'a Undo) -> Result<Cluster<'a>, String> {
        let (directory, mount) = (work.join("cluster"), work.join("mount"));
        if !directory.exists() {
            let made = ["cluster", "dev", text(&directory), text(&mount), "--size", BRICK];
            undo.add(&unmounted(&mount))?;
            let mut making = Process::start(binary, &made, &work.join("making.log"), undo)?;
            making.becomes_ready(PATIENCE)?;
            making.end()?;
            undo.forget(&unmounted(&mount))?;
        }
        let node = |number: usize| {
            let name = format!("n{number}");
            Node::start(binary, directory.join(&name), work.join(format!("{name}.log")), undo)
        };
        let mut nodes = (1..=3).map(node).collect::<Result<Vec<Node<'_>>, String>>()?;
        nodes.iter_mut().try_for_each(Node::becomes_ready)?;
        undo.add(&unmounted(&mount))?;
        let mounted = ["mount", "--foreground", text(&directory), VOLUME, text(&mount), "--memory-max", MEMORY];
        let mut mounting = Process::start(binary, &mounted, &work.join("mount.log"), undo)?;
        mounting.becomes_ready(PATIENCE)?;
        Ok(Cluster { binary, directory, mount, nodes, mounting, undo })
    }
    /// Starts and continues the nodes whose time it is. Errors: a process has ended unasked.
    pub fn tend(&mut self) -> Result<(), String> {
        if let Some(status) = self.mounting.has_ended() {
            return Err(format!("the process of the mount has ended: {status}"));
        }
        self.nodes.iter_mut().try_for_each(Node::tend)
    }
    /// Asks for the nodes.
    pub fn seats(&self) -> Result<Seats, String> {
        let told = self.told(&["--json"])?;
        let status: Option<Value> = serde_json::from_str(&told).ok();
        status.as_ref().and_then(Seats::of).ok_or_else(|| format!("cluster status: {told}"))
    }
    /// The answer of `sinter cluster status`, in words.
    pub fn in_words(&self) -> String {
        self.told(&[]).unwrap_or_else(|error| error)
    }
    fn told(&self, more: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.binary);
        command.args(["cluster", "status", text(&self.directory)]).args(more);
        // It fails if a node is away, and tells all the same.
        let output = command.output().map_err(|error| format!("cluster status: {error}"))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
    /// Waits for all nodes to be there. Errors: they are not in time.
    pub fn becomes_whole(&mut self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < patience {
            self.tend()?;
            if self.nodes.iter().all(|node| node.told() == Told::Runs)
                && self.seats().is_ok_and(|seats| seats.are_whole)
            {
                return Ok(());
            }
            std::thread::sleep(10 * LOOK);
        }
        Err(format!("not all nodes are there after {patience:?}: {}", self.in_words()))
    }
    /// Kills the process of the mount, so that whoever waits for it gets an error.
    pub fn kill(&self) {
        self.mounting.signal("KILL");
    }
    /// Ends it in order: the mount, whose contents are written back, then the nodes.
    pub fn end(mut self) -> Result<(), String> {
        self.mounting.end()?;
        self.undo.forget(&unmounted(&self.mount))?;
        self.nodes.iter().for_each(Node::ask_to_end);
        self.nodes.iter_mut().try_for_each(Node::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_the_status() {
        let told = serde_json::json!({ "healthy": false, "leader": "n2", "nodes": [
            { "name": "n1", "state": "follows", "pid": 11 },
            { "name": "n2", "state": "leads", "pid": 12 },
            { "name": "n3", "state": "away", "pid": null },
        ]});
        let seats = Seats::of(&told).expect("it is complete");
        assert_eq!((seats.leader, &seats.others[..], seats.are_whole, seats.all()), (Some(1), &[0][..], false, 2));
        assert!(Seats::of(&serde_json::json!({})).is_none());
    }
}
