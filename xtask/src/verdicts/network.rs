//! A network of its own for a server, which the rest of the machine reaches over a link whose rate can be bounded.

use crate::flash::ground::told;
use crate::flash::network::{Behind, Network, Places};
use crate::flash::undo::Undo;

/// Addresses that are for tests of networks (RFC 2544): the server's, and ours.
const ADDRESSES: [&str; 2] = ["198.18.77.1", "198.18.77.2"];
/// Bytes that may pass at once, whatever the rate: the largest packet of the link.
const BURST: &str = "64kb";

/// The link, and the server behind it.
pub struct Link {
    space: String,
    /// The server's end.
    end: String,
    daemons: Option<Network>,
    /// The shell command that takes the network away.
    how: String,
}

impl Link {
    /// Makes the network.
    pub fn make(undo: &Undo) -> Result<Link, String> {
        let number = std::process::id();
        let (space, end, ours) = (format!("sinter-{number}"), format!("svs{number}"), format!("svc{number}"));
        // The server's end of the link goes with it, and ours with that.
        let how = format!("ip netns del {space}");
        told("ip", &["netns", "add", &space])?;
        undo.add(&how)?;
        told("ip", &["link", "add", &ours, "type", "veth", "peer", "name", &end, "netns", &space])?;
        let prefixed = ADDRESSES.map(|address| format!("{address}/24"));
        told("ip", &["-n", &space, "address", "add", &prefixed[0], "dev", &end])?;
        told("ip", &["address", "add", &prefixed[1], "dev", &ours])?;
        for end in ["lo", &end] {
            told("ip", &["-n", &space, "link", "set", end, "up"])?;
        }
        told("ip", &["link", "set", &ours, "up"])?;
        Ok(Link { space, end, daemons: None, how })
    }
    /// Serves a brick behind the link, and mounts it as a client.
    pub fn up(&mut self, places: Places<'_>, environment: &[(String, String)], undo: &Undo) -> Result<(), String> {
        let space = format!("--net=/run/netns/{}", self.space);
        let behind = Some(Behind { through: &["nsenter", &space], address: ADDRESSES[0] });
        self.daemons = Some(Network::up(Places { behind, ..places }, environment, &[], undo)?);
        Ok(())
    }
    /// Bounds what the server sends, in megabits a second; 0: not any more.
    pub fn bound(&self, megabits: u64) -> Result<(), String> {
        let rate = format!("{megabits}mbit");
        let (verb, bucket) = match megabits {
            0 => ("del", &["root"][..]),
            _ => ("replace", &["root", "tbf", "rate", &rate, "burst", BURST, "latency", "1s"][..]),
        };
        told("tc", &[&["-n", &self.space, "qdisc", verb, "dev", &self.end], bucket].concat()).map(drop)
    }
    /// The client's daemon.
    pub fn client(&self) -> Option<u32> {
        self.daemons.as_ref().map(|daemons| daemons.daemons()[1])
    }
    /// Ends both daemons.
    pub fn down(&mut self, undo: &Undo) -> Result<(), String> {
        self.daemons.take().map_or(Ok(()), |daemons| daemons.down(undo))
    }
    /// Takes the network away.
    pub fn remove(self, undo: &Undo) -> Result<(), String> {
        told("sh", &["-c", &self.how])?;
        undo.forget(&self.how)
    }
}
