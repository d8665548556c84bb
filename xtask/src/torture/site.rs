//! The site of a cluster: where its bricks and mounts lie, and on which machines its processes run. Either all on this one, over sockets of the
//! file system, or each on a machine of its own, over TLS.
//!
//! Promises: a site is made once, and its cluster can be ended and started again on it.

use super::cluster::Seats;
use super::disks::Disks;
use super::machine::{CLIENTS, Machine, NAMES, NODES, Network, address, product};
use super::process::{PATIENCE, Process};
use crate::flash::ground::{make_directory, text, told, unmounted};
use crate::flash::undo::Undo;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The size of a brick.
const BRICK: &str = "4G";
/// Memory of each process.
pub const MEMORY: &str = "512M";
/// The volume, and the cluster's name where it has one.
const VOLUME: &str = "default";
const CLUSTER: &str = "torture";
/// Time for three machines to become a cluster.
const FORMING: Duration = Duration::from_secs(60);

/// The properties of a site.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Each node and client on a machine of its own.
    pub networks: bool,
    /// Each node's brick on a disk of its own; needs machines.
    pub disks: bool,
    /// Nodes keep what they have not flushed in their own memory, as drives do in theirs.
    pub is_volatile: bool,
}

/// A site.
pub struct Site<'a> {
    binary: &'a Path,
    work: &'a Path,
    /// None if all processes run on this machine.
    pub network: Option<Network>,
    /// None if all bricks lie on the disk of the run's directory.
    pub disks: Option<Disks<'a>>,
    pub is_volatile: bool,
    pub undo: &'a Undo,
}

/// A mount: the process that serves it, and the path at which this program finds it.
pub struct Mount<'a> {
    process: Process<'a>,
    pub path: PathBuf,
    undone_by: Option<String>,
}

impl<'a> Site<'a> {
    /// Makes the machines and disks, if there are to be some, and the cluster's bricks.
    pub fn new(binary: &'a Path, work: &'a Path, wanted: Wanted, undo: &'a Undo) -> Result<Site<'a>, String> {
        // A machine has what is mounted when it is made.
        let disks = if wanted.disks { Some(Disks::new(work, undo)?) } else { None };
        let network = if wanted.networks { Some(Network::new(undo)?) } else { None };
        let site = Site { binary, work, network, disks, is_volatile: wanted.is_volatile, undo };
        match &site.network {
            Some(network) => site.join(network)?,
            None => site.make()?,
        }
        Ok(site)
    }
    /// Makes a cluster of this machine, and ends it.
    fn make(&self) -> Result<(), String> {
        let mount = self.work.join("mount");
        make_directory(&mount)?;
        let mut command = Command::new(self.binary);
        command.args(["cluster", "dev", text(&self.home()), text(&mount), "--size", BRICK]);
        self.undo.add(&unmounted(&mount))?;
        let mut making = Process::start(command, &self.work.join("making.log"), self.undo)?;
        making.becomes_ready(PATIENCE)?;
        making.end()?;
        self.undo.forget(&unmounted(&mount))
    }
    /// Makes a cluster of machines, with a volume and a client on each of the others, and ends its daemons.
    fn join(&self, network: &Network) -> Result<(), String> {
        let on = |at: usize, arguments: &[&str]| product(network.machine(at), self.binary, arguments);
        let mut invited = None;
        for node in 0..NODES {
            let (brick, own) = (self.brick(node), address(node));
            let place = ["--data", text(&brick), "--size", BRICK, "--memory-max", MEMORY, "--address", &own];
            let (what, name) = (if node == 0 { "create" } else { "join" }, invited.as_deref().unwrap_or(CLUSTER));
            let printed = on(node, &[&["cluster", what, name][..], &place].concat())?;
            invited = Some(invited.map_or_else(|| token(&printed), Ok)?);
        }
        self.led(network, &|data| vec!["volume", "create", data, VOLUME])?;
        for (client, name) in NAMES.iter().enumerate().skip(NODES) {
            let invited = token(&self.led(network, &|data| vec!["token", "create", data, "--volume", VOLUME])?)?;
            on(client, &["client", "join", &invited])?;
            make_directory(&self.work.join(name))?;
        }
        (0..NODES).try_for_each(|node| on(node, &["down", text(&self.brick(node))]).map(drop))
    }
    /// Has the node that leads do something, once all are there; what it printed. On a machine that does other things beside, another one may
    /// lead by then: it is tried again.
    fn led(&self, network: &Network, words: &dyn Fn(&str) -> Vec<&str>) -> Result<String, String> {
        let began = Instant::now();
        let mut refused = format!("not all nodes are there after {FORMING:?}");
        while began.elapsed() < FORMING {
            let seats = self.seats(&[true; NODES])?;
            if let Some(leader) = seats.leader.filter(|_| seats.are_whole) {
                let data = self.brick(leader);
                match product(network.machine(leader), self.binary, &words(text(&data))) {
                    Ok(printed) => return Ok(printed),
                    Err(error) => refused = error,
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("{refused}; {}", self.in_words()))
    }
    /// The directory of a cluster on this machine.
    fn home(&self) -> PathBuf {
        self.work.join("cluster")
    }
    /// A node's brick.
    pub fn brick(&self, node: usize) -> PathBuf {
        if self.network.is_some() { self.work.join(NAMES[node]) } else { self.home().join(NAMES[node]) }
    }
    /// The log of a process.
    pub fn log(&self, name: &str) -> PathBuf {
        self.work.join(format!("{name}.log"))
    }
    /// The product, on a machine.
    pub fn command(&self, machine: usize) -> Command {
        match &self.network {
            Some(network) => network.machine(machine).program(self.binary),
            None => Command::new(self.binary),
        }
    }
    /// Mounts the volume: on each machine of a client, or here.
    pub fn mounts(&self) -> Result<Vec<Mount<'a>>, String> {
        let machine = |at: usize| self.network.as_ref().map(|network| network.machine(at));
        match self.network {
            Some(_) => (NODES..NODES + CLIENTS).map(|at| self.mount(NAMES[at], at, machine(at))).collect(),
            None => Ok(vec![self.mount("mount", 0, None)?]),
        }
    }
    fn mount(&self, name: &str, at: usize, machine: Option<&Machine>) -> Result<Mount<'a>, String> {
        let (directory, mut command) = (self.work.join(name), self.command(at));
        command.args(["mount", "--foreground"]);
        match machine {
            Some(_) => command.arg(format!("{CLUSTER}/{VOLUME}")),
            None => command.args([text(&self.home()), VOLUME]),
        };
        command.args([text(&directory), "--memory-max", MEMORY]);
        // A machine's mounts end with it.
        let undone_by = machine.is_none().then(|| unmounted(&directory));
        undone_by.iter().try_for_each(|command| self.undo.add(command))?;
        let mut process = Process::start(command, &self.log(name), self.undo)?;
        process.becomes_ready(PATIENCE)?;
        let path = machine.map_or(directory.clone(), |machine| machine.path(&directory));
        Ok(Mount { process, path, undone_by })
    }
    /// Asks for the state of the nodes. `runs`: those that can be asked.
    pub fn seats(&self, runs: &[bool; NODES]) -> Result<Seats, String> {
        if self.network.is_none() {
            let told = output(self.asking(0, &["--json"]))?;
            let status: Option<Value> = serde_json::from_str(&told).ok();
            return status.as_ref().and_then(Seats::of).ok_or_else(|| format!("cluster status: {told}"));
        }
        // All at once: each takes a process.
        let asked = (0..NODES).map(|at| (at, runs[at].then(|| self.asking(at, &["--json"]).spawn())));
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|(at, asked)| {
            let output = asked?.and_then(|process| process.wait_with_output()).ok()?;
            let status: Value = serde_json::from_slice(&output.stdout).ok()?;
            (!status["nodes"].as_array()?.is_empty()).then_some((at, status))
        });
        let answers: Vec<Option<(usize, Value)>> = answers.collect();
        Ok(Seats::of_all(&answers.into_iter().flatten().collect::<Vec<_>>()))
    }
    /// True if a node says of itself that it leads.
    pub fn leads(&self, node: usize) -> bool {
        let mut runs = [false; NODES];
        runs[node] = true;
        self.seats(&runs).is_ok_and(|seats| seats.leader == Some(node))
    }
    /// Has the product look through a node's brick that nobody serves, with all its data. Errors: it has findings.
    pub fn check(&self, node: usize) -> Result<(), String> {
        let brick = self.brick(node);
        told(text(self.binary), &["check", "--data", text(&brick)]).map(drop)
    }
    /// The state of the cluster in words: of a site of machines, as each node sees it.
    pub fn in_words(&self) -> String {
        let count = if self.network.is_some() { NODES } else { 1 };
        let told = |at: usize| output(self.asking(at, &[])).unwrap_or_else(|error| error);
        (0..count).map(told).collect::<Vec<_>>().join("\n")
    }
    /// Asks a node, or all at once where one directory has them all.
    fn asking(&self, node: usize, more: &[&str]) -> Command {
        let directory = if self.network.is_some() { self.brick(node) } else { self.home() };
        let mut command = self.command(node);
        command.args(["cluster", "status", text(&directory)]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Mount<'_> {
    /// Looks at it. Errors: its process has ended.
    pub fn tend(&mut self) -> Result<(), String> {
        match self.process.has_ended() {
            Some(status) => Err(format!("the process of the mount {} has ended: {status}", self.path.display())),
            None => Ok(()),
        }
    }
    /// Kills its process, so that whoever waits for it gets an error.
    pub fn kill(&self) {
        self.process.signal("KILL");
    }
    /// Ends it in order: its contents are written back.
    pub fn end(mut self, undo: &Undo) -> Result<(), String> {
        self.process.end()?;
        self.undone_by.iter().try_for_each(|command| undo.forget(command))
    }
}

/// The words of a command that fails if a node is away, and tells all the same.
fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cluster status: {error}"))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The token in what a command printed.
fn token(told: &str) -> Result<String, String> {
    let found = told.split_whitespace().find(|word| word.starts_with("sinter1."));
    found.map(str::to_string).ok_or_else(|| format!("no token was printed: {told}"))
}
