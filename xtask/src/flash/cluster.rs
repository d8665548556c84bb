//! A side that is a cluster: three nodes of a build, made as on three machines, each with an address of the loopback device, and one
//! client with its mount. All speak TLS.
//!
//! Absent by design: `sinter cluster dev`, whose nodes speak over Unix sockets.

use crate::flash::asked::COPIES;
use crate::flash::ground::{make_directory, text, told, with_argument};
use crate::flash::network::{self, Seat};
use crate::flash::sides::{LITTLE_MEMORY, READY_MAX, Started, in_own_session};
use crate::flash::undo::{Undo, quoted};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Volumes are made at the node that leads.
const VOLUME: &str = "default";
/// Directory in which daemons in the background keep their logs.
const LOGS: &str = "/var/log/sinter";
/// Pause between two looks at how far a cluster is.
const PAUSE: Duration = Duration::from_millis(200);

/// A cluster that is served, and its client.
pub struct Cluster {
    binary: PathBuf,
    /// Its name and the volume.
    place: String,
    nodes: Vec<Node>,
    membership: PathBuf,
    mount: PathBuf,
    log: PathBuf,
    client: Option<Started>,
}

/// A node, in the background.
struct Node {
    name: String,
    data: PathBuf,
    process: u32,
}

/// The places of a cluster that is to be made.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub binary: &'a Path,
    /// The build's name.
    pub name: &'a str,
    /// The build's number, from 0: clusters of one run need other addresses.
    pub number: usize,
    /// The directory of the bricks; made if it is not there.
    pub bricks: &'a Path,
    /// A directory for the client's membership and its log; made if it is not there.
    pub directory: &'a Path,
    pub mount: &'a Path,
}

impl Cluster {
    /// Makes a cluster of bricks of so many GiB with a volume, and mounts that as a client.
    pub fn make(places: Places<'_>, gib: u64, undo: &Undo) -> Result<Cluster, String> {
        let Places { binary, name, bricks, directory, mount, .. } = places;
        make_directory(bricks)?;
        make_directory(directory)?;
        if !Path::new(LOGS).exists() {
            undo.add(&format!("rmdir {LOGS}"))?;
        }
        let cluster = format!("flash-{name}");
        let nodes = nodes(places, &cluster, gib, undo)?;
        let leader = leader(binary, &nodes)?;
        told(text(binary), &["volume", "create", text(&leader.data), VOLUME])?;
        let membership = directory.join("membership");
        network::join(binary, (&leader.data, VOLUME), &membership, &cluster)?;
        let (binary, mount, log) = (binary.to_path_buf(), mount.to_path_buf(), directory.join("client.log"));
        let place = format!("{cluster}/{VOLUME}");
        let mut cluster = Cluster { binary, place, nodes, membership, mount, log, client: None };
        cluster.up(&[], undo)?;
        Ok(cluster)
    }
    fn up(&mut self, more: &[&str], undo: &Undo) -> Result<(), String> {
        let Cluster { binary, place, membership, mount, log, .. } = self;
        let mut command = in_own_session();
        command.arg(&*binary);
        let seat = Seat { binary, membership, place, mount, log };
        self.client = Some(network::mounted(command, seat, more, undo)?);
        Ok(())
    }
    /// Mounts the volume anew, by a client with these options.
    pub fn remount(&mut self, more: &[&str], undo: &Undo) -> Result<(), String> {
        if let Some(client) = self.client.take() {
            network::down(&self.binary, &self.place, client, undo)?;
        }
        self.up(more, undo)
    }
    /// The daemons of all nodes and of the client.
    pub fn daemons(&self) -> Vec<u32> {
        let client = self.client.iter().map(|(daemon, _)| daemon.id());
        self.nodes.iter().map(|node| node.process).chain(client).collect()
    }
}

/// Makes the nodes: the first one, and then the others with its token.
fn nodes(places: Places<'_>, cluster: &str, gib: u64, undo: &Undo) -> Result<Vec<Node>, String> {
    let Places { binary, number: build, bricks, .. } = places;
    let (size, count) = (format!("{gib}G"), COPIES.to_string());
    let (mut token, mut nodes) = (String::new(), Vec::new());
    for number in 1..=COPIES as usize {
        let (name, address) = (format!("n{number}"), address(build, number));
        let data = bricks.join(&name);
        let mut words = match number {
            1 => vec!["cluster", "create", cluster, "--nodes", &count],
            _ => vec!["cluster", "join", &token],
        };
        words.extend(["--data", text(&data), "--address", &address, "--name", &name]);
        words.extend(["--size", &size, "--memory-max", LITTLE_MEMORY, "--json"]);
        // Told before it starts: its daemon leaves this process at once.
        undo.add(&ending(binary, &data))?;
        let said = told(text(binary), &words)?;
        if number == 1 {
            token = network::token(&said)?;
        }
        nodes.push(Node { process: process(&data)?, name, data });
    }
    Ok(nodes)
}

/// The address of a build's node.
fn address(build: usize, number: usize) -> String {
    format!("127.0.0.{}", 10 * (build + 1) + number)
}

/// The shell's way to end a node, which may not have come far, and to remove its log. `sinter down` does not find one that waits for
/// others: it is ended by a signal.
fn ending(binary: &Path, data: &Path) -> String {
    let log = text(data).trim_matches('/').replace('/', "-");
    let log = Path::new(LOGS).join(format!("{log}.log"));
    let (binary, data, log) = (quoted(binary), quoted(data), quoted(&log));
    // The path comes by a pipe: else whoever looks for it had it among its own arguments.
    let served = format!("printf '%s\\n' {data} | grep -lsxzF -f - /proc/[0-9]*/cmdline | cut -d/ -f3");
    let wait = "for n in $(seq 600); do [ -n \"$(served)\" ] || break; sleep 0.1; done";
    format!(
        "served() {{ {served}; }}; [ ! -e {data} ] || {binary} down --timeout 60 {data}; p=$(served); \
         [ -z \"$p\" ] || kill $p; {wait}; p=$(served); [ -z \"$p\" ] || {{ kill -9 $p; sleep 1; }}; \
         rm -f {log}; [ -z \"$(served)\" ]"
    )
}

/// The process that serves a brick. `sinter status` knows it only once the cluster is whole.
fn process(data: &Path) -> Result<u32, String> {
    match with_argument(&[text(data)])?[..] {
        [process] => Ok(process),
        ref found => Err(format!("{}: not one process serves it but {found:?}", data.display())),
    }
}

/// Waits until a cluster is whole and healthy; the node that leads.
fn leader<'a>(binary: &Path, nodes: &'a [Node]) -> Result<&'a Node, String> {
    let began = Instant::now();
    loop {
        // One that is not healthy says so by its exit code, too.
        let words = ["cluster", "status", text(&nodes[0].data), "--json"];
        let output = Command::new(binary).args(words).output();
        let output = output.map_err(|error| format!("{}: {error}", binary.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(leader) = json(&said).ok().and_then(|state| healthy(&state, nodes)) {
            return Ok(leader);
        }
        if began.elapsed() > READY_MAX {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the cluster is not healthy: {said}{errors}; what its nodes say is in {LOGS}"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The node that leads, if nothing is amiss.
fn healthy<'a>(state: &Value, nodes: &'a [Node]) -> Option<&'a Node> {
    nodes.iter().find(|node| state["healthy"] == true && state["leader"] == node.name.as_str())
}

fn json(said: &str) -> Result<Value, String> {
    serde_json::from_str(said).map_err(|error| format!("{error}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::process::Stdio;

    #[test]
    fn two_clusters_have_addresses_of_their_own() {
        let all = [(0, 1), (0, 2), (0, 3), (1, 1)].map(|(build, number)| address(build, number));
        assert_eq!(all, ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.21"]);
    }

    #[test]
    fn a_node_leads_once_all_are_there() {
        let node = |name: &str| Node { name: name.to_string(), data: PathBuf::new(), process: 1 };
        let nodes = ["n1", "n2"].map(node);
        let found = |state: Value| healthy(&state, &nodes).map(|node| node.name.as_str());
        assert_eq!(found(json!({ "healthy": true, "leader": "n2" })), Some("n2"));
        assert_eq!(found(json!({ "healthy": false, "leader": "n2" })), None);
        assert_eq!(found(json!({ "healthy": false, "leader": null })), None);
    }

    #[test]
    fn a_node_is_ended_whether_or_not_it_was_made() {
        let word = std::env::temp_dir().join(format!("flash it's {}", std::process::id()));
        let how = ending(Path::new("/bin/false"), &word);
        told("sh", &["-c", &how]).expect("nothing is to be done");
        // A shell that waits for a line itself: one that starts a program is two processes of these arguments for a moment.
        let mut node = Command::new("sh");
        let node = node.args(["-c", "read line", text(&word)]).stdin(Stdio::piped());
        let mut node = node.spawn().expect("there is a shell");
        // Its arguments are there a little after it has started.
        let began = Instant::now();
        while process(&word).is_err() && began.elapsed() < READY_MAX {
            std::thread::sleep(PAUSE);
        }
        assert_eq!(process(&word), Ok(node.id()));
        told("sh", &["-c", &how]).expect("it ends by a signal");
        assert!(process(&word).is_err_and(|error| error.contains("not one process")));
        node.wait().expect("it can be waited for");
    }
}
