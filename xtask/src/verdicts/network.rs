//! A server in a network of its own, which the rest of the machine reaches over a link whose rate can be bounded.

use super::brick::VOLUME;
use super::process::Running;
use crate::flash::ground::{make_directory, text, told};
use crate::flash::sides::in_own_session;
use crate::flash::undo::Undo;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The server's name for the client.
const NAME: &str = "verdicts";
/// Addresses that are for tests of networks (RFC 2544).
const ADDRESSES: [&str; 2] = ["198.18.77.1", "198.18.77.2"];
/// Time for a daemon to serve.
const READY_MAX: Duration = Duration::from_secs(60);
/// Bytes that may pass at once, whatever the rate: the largest packet of the link.
const BURST: &str = "64kb";

/// The link, and the server behind it.
pub struct Served {
    space: String,
    /// The ends of the link: the server's, and ours.
    ends: [String; 2],
    server: Option<Running>,
    /// The shell command that takes the network away.
    how: String,
    /// The directory with the client's membership.
    pub membership: PathBuf,
}

impl Served {
    /// Makes the network.
    pub fn make(root: &Path, undo: &Undo) -> Result<Served, String> {
        let number = std::process::id();
        let space = format!("sinter-{number}");
        let ends = [format!("svs{number}"), format!("svc{number}")];
        let membership = root.join("membership");
        make_directory(&membership)?;
        // Its end of the link goes with it, and ours with that.
        let how = format!("ip netns del {space}");
        told("ip", &["netns", "add", &space])?;
        undo.add(&how)?;
        let [theirs, ours] = [&ends[0], &ends[1]];
        told("ip", &["link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", &space])?;
        let prefixed = ADDRESSES.map(|address| format!("{address}/24"));
        told("ip", &["-n", &space, "address", "add", &prefixed[0], "dev", theirs])?;
        told("ip", &["address", "add", &prefixed[1], "dev", ours])?;
        told("ip", &["-n", &space, "link", "set", "lo", "up"])?;
        told("ip", &["-n", &space, "link", "set", theirs, "up"])?;
        told("ip", &["link", "set", ours, "up"])?;
        Ok(Served { space, ends, server: None, how, membership })
    }
    /// Starts the server.
    pub fn serve(
        &mut self,
        binary: &Path,
        data: &Path,
        environment: &[(&str, &str)],
        undo: &Undo,
    ) -> Result<(), String> {
        told(text(binary), &["volume", "create", text(data), VOLUME])?;
        let mut command = in_own_session();
        command.arg("nsenter").arg(format!("--net=/run/netns/{}", self.space)).arg(binary);
        command.args(["serve", text(data), "--listen", ADDRESSES[0]]).envs(environment.iter().copied());
        self.server = Some(Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()), undo)?);
        let began = Instant::now();
        while told(text(binary), &["status", text(data)]).is_err() {
            if began.elapsed() > READY_MAX || self.server.as_mut().is_some_and(Running::has_ended) {
                return Err(format!("{} serve does not serve", binary.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let token = told(text(binary), &["token", "create", text(data), "--volume", VOLUME, "--json"])?;
        let token: serde_json::Value = serde_json::from_str(&token).map_err(|error| format!("token: {error}"))?;
        let token = token["token"].as_str().ok_or("sinter token create told no token")?;
        let joins = ["client", "join", token, "--name", NAME, "--as", "client", "--directory", text(&self.membership)];
        told(text(binary), &joins).map(drop)
    }
    /// The volume as the client names it.
    pub fn place() -> PathBuf {
        PathBuf::from(format!("{NAME}/{VOLUME}"))
    }
    /// Bounds what the server sends, in megabits a second; 0: not any more.
    pub fn bound(&self, megabits: u64) -> Result<(), String> {
        let (end, rate) = (&self.ends[0], format!("{megabits}mbit"));
        let bucket = ["rate", &rate, "burst", BURST, "latency", "1s"];
        let on: &[&str] = if megabits > 0 { &["replace"] } else { &["del"] };
        let how = if megabits > 0 { &[&["root", "tbf"], &bucket[..]].concat()[..] } else { &["root"] };
        told("tc", &[&["-n", &self.space, "qdisc"], on, &["dev", end], how].concat()).map(drop)
    }
    /// Ends the server, and takes the network away.
    pub fn remove(self, undo: &Undo) -> Result<(), String> {
        if let Some(server) = self.server {
            server.stop(undo)?;
        }
        told("sh", &["-c", &self.how])?;
        undo.forget(&self.how)?;
        std::fs::remove_dir_all(&self.membership).map_err(|error| format!("{}: {error}", self.membership.display()))
    }
}
