//! The file of a cluster: who its members are and where they listen. It lies in the cluster's directory, and in the directory of each of its
//! bricks, where it says which of the members the brick is.
//!
//! Promises: what is written reads back the same; a file that says anything impossible is refused with what is wrong; a crash leaves the
//! old file or the new one.

use crate::admin::protocol::{of_hex, to_hex};
use crate::directory;
use base::{Error, Kind, Result};
use control::ClientName;
use runtime::net::Address;
use runtime::real::Directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use store::format::Uuid;
use wire::codec::hello::SERVED_GROUPS_MAX;

/// The file's name.
pub const FILE: &str = "cluster.json";
/// The form of the file of a cluster on one machine.
const VERSION_LOCAL: u32 = 1;
/// The form of the file of a cluster that has a name, and addresses of several machines.
const VERSION: u32 = 2;
/// The same of one whose bricks have several groups: a build that knows of one alone would serve that one.
const VERSION_GROUPS: u32 = 3;
/// Longest file: that of a thousand nodes is shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest path of a Unix socket; the kernel has room for 108 bytes with the one behind the last.
pub const SOCKET_BYTES_MAX: usize = 107;
/// Longest name of a node.
const NAME_BYTES_MAX: usize = 64;
/// Number of groups of a new cluster's bricks, each of which another node may lead: two for each of three nodes, so that all lead as many, and
/// two nodes as many as two can while the third one is away. Each costs a client a session, and a connection per core.
pub const GROUPS: u32 = 6;
/// Most nodes.
const NODES_MAX: usize = 64;

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// Its identity.
    pub id: [u8; 16],
    /// Its name; None for one on this machine alone, whose nodes need no certificates.
    pub name: Option<ClientName>,
    /// Number of nodes that it is to have: its groups start once there are as many.
    pub wanted: usize,
    /// Number of groups of each brick.
    pub groups: u32,
    /// Its nodes, at least one.
    pub nodes: Vec<Place>,
}

/// The place where a node listens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Spot {
    /// A Unix socket of this machine.
    Local(PathBuf),
    /// An address that other machines reach.
    Remote(control::Address),
}

/// A node, as the cluster's file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its brick.
    pub brick: Uuid,
    /// The number of its replicas, at least 1.
    pub replica: u64,
    /// The socket where it serves clients.
    pub clients: Spot,
    /// The socket where it listens for other nodes.
    pub peers: Spot,
}

/// The file's text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    cluster: String,
    /// The uuid of the brick in whose directory the file lies; None in the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    brick: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<ClientName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<usize>,
    /// None of a cluster that a build made which knew of one group alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<u32>,
    nodes: Vec<FileNode>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: String,
    brick: String,
    replica: u64,
    clients: Spot,
    peers: Spot,
}

impl fmt::Display for Spot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Local(path) => path.display().fmt(out),
            Spot::Remote(address) => address.fmt(out),
        }
    }
}
impl From<Spot> for String {
    fn from(spot: Spot) -> String {
        spot.to_string()
    }
}
impl From<control::Address> for Spot {
    fn from(address: control::Address) -> Spot {
        Spot::Remote(address)
    }
}
impl TryFrom<String> for Spot {
    type Error = Error;
    fn try_from(text: String) -> Result<Spot> {
        match text.starts_with('/') {
            true => Ok(Spot::Local(text.into())),
            false => text.parse().map(Spot::Remote),
        }
    }
}
impl Spot {
    /// The address for the network. A name is looked up, which blocks. Errors: `Host`, if it is not known.
    pub fn resolve(&self) -> Result<Address> {
        let place = match self {
            Spot::Local(path) => return Ok(Address::Local(path.clone())),
            Spot::Remote(place) => place.to_string(),
        };
        let unknown = || Error::new(Kind::Host, "a node's name is not known: look at DNS and /etc/hosts").with(&place);
        let mut found = place.to_socket_addrs().map_err(|error| unknown().with(error))?;
        found.next().map(Address::Tcp).ok_or_else(unknown)
    }
    /// The Unix socket's path, if it is one.
    fn path(&self) -> Option<&Path> {
        match self {
            Spot::Local(path) => Some(path),
            Spot::Remote(_) => None,
        }
    }
}

impl Cluster {
    /// The position of the node with this brick.
    pub fn position(&self, brick: Uuid) -> Option<usize> {
        self.nodes.iter().position(|node| node.brick == brick)
    }
    /// The node with this replica.
    pub fn of_replica(&self, replica: u64) -> Option<&Place> {
        self.nodes.iter().find(|node| node.replica == replica)
    }
    /// The addresses where clients find whoever leads. Errors: those of `Spot::resolve`.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        self.nodes.iter().map(|node| node.clients.resolve()).collect()
    }
    /// True once it has all its nodes.
    pub fn is_whole(&self) -> bool {
        self.nodes.len() == self.wanted
    }
    /// Refuses a cluster that can't be one. Errors: `Invalid`.
    pub fn check(&self) -> Result<()> {
        check(self).map_err(|what| Error::new(Kind::Invalid, "no cluster can be so: correct its addresses").with(what))
    }
    /// Number of nodes that are a majority.
    pub fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Reads the file in a directory, and the brick that it says it is of. None: there is none. Errors: `Invalid`, if it is not one that
    /// Sinter writes; those of opening.
    pub fn read(directory: &Directory) -> Result<Option<(Cluster, Option<Uuid>)>> {
        let Some(bytes) = directory::read(directory, FILE, FILE_BYTES_MAX)? else { return Ok(None) };
        parse(&bytes).map(Some).map_err(|error| error.with(directory.path().join(FILE).display()))
    }
    /// The cluster of a file's text. Errors: `Invalid`, `Newer`.
    pub(super) fn of_text(text: &[u8]) -> Result<Cluster> {
        parse(text).map(|(cluster, _)| cluster)
    }
    /// Writes the file durably in a cluster's directory, or, as that of this brick of it, in a brick's.
    pub fn write(&self, directory: &Directory, brick: Option<Uuid>) -> Result<()> {
        directory::replace(directory, FILE, self.text(brick).as_bytes())
    }
    /// The file's text, in the directory of this brick or in the cluster's own.
    pub(super) fn text(&self, brick: Option<Uuid>) -> String {
        let node = |node: &Place| FileNode {
            name: node.name.clone(),
            brick: to_hex(&node.brick.0),
            replica: node.replica,
            clients: node.clients.clone(),
            peers: node.peers.clone(),
        };
        let file = File {
            version: match &self.name {
                _ if self.groups > 1 => VERSION_GROUPS,
                Some(_) => VERSION,
                None => VERSION_LOCAL,
            },
            cluster: to_hex(&self.id),
            brick: brick.map(|brick| to_hex(&brick.0)),
            name: self.name.clone(),
            wanted: self.name.as_ref().map(|_| self.wanted),
            groups: (self.groups > 1).then_some(self.groups),
            nodes: self.nodes.iter().map(node).collect(),
        };
        serde_json::to_string_pretty(&file).expect("plain data is JSON") + "\n"
    }
}

/// True for a cluster's own directory.
pub fn is_cluster(path: &Path) -> bool {
    // Whatever is wrong with it is said by who opens it.
    Directory::open(path).is_ok_and(|directory| matches!(Cluster::read(&directory), Ok(Some((_, None)))))
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, "the file of a cluster is not as Sinter writes it: restore it from a backup").with(what)
}

fn parse(bytes: &[u8]) -> Result<(Cluster, Option<Uuid>)> {
    // The version comes first: another one may have other fields.
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    if value["version"].as_u64().is_some_and(|version| version > VERSION_GROUPS.into()) {
        let what = "the file of a cluster was written by a newer version; upgrade this machine";
        return Err(Error::new(Kind::Newer, what));
    }
    let file: File = serde_json::from_value(value).map_err(wrong)?;
    let uuid = |text: &str| {
        let bytes = of_hex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        bytes.ok_or_else(|| wrong(format_args!("{text:?} is no identity of 32 hexadecimal digits")))
    };
    let node = |node: FileNode| -> Result<Place> {
        let FileNode { name, brick, replica, clients, peers } = node;
        Ok(Place { name, brick: Uuid(uuid(&brick)?), replica, clients, peers })
    };
    let nodes: Vec<_> = file.nodes.into_iter().map(node).collect::<Result<_>>()?;
    let wanted = file.wanted.unwrap_or(nodes.len());
    let groups = file.groups.unwrap_or(1);
    let cluster = Cluster { id: uuid(&file.cluster)?, name: file.name, wanted, groups, nodes };
    check(&cluster).map_err(wrong)?;
    let brick = file.brick.map(|brick| uuid(&brick).map(Uuid)).transpose()?;
    match brick {
        Some(brick) if cluster.position(brick).is_none() => Err(wrong("its own brick is none of the members")),
        _ => Ok((cluster, brick)),
    }
}

/// Refuses a cluster that can't be one.
fn check(cluster: &Cluster) -> Result<(), String> {
    let (nodes, wanted) = (cluster.nodes.len(), cluster.wanted);
    if !(1..=NODES_MAX).contains(&wanted) || !(1..=wanted).contains(&nodes) {
        return Err(format!("it has {nodes} nodes and is to have {wanted}"));
    }
    if !(1..=SERVED_GROUPS_MAX).contains(&cluster.groups) {
        return Err(format!("its bricks have {} groups", cluster.groups));
    }
    let (mut names, mut bricks, mut replicas, mut places) =
        <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
    for node in &cluster.nodes {
        let name = &node.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) && !name.starts_with('.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(format!("{name:?} is no name of a node"));
        }
        if node.replica == 0 {
            return Err(format!("{name} has replica 0, and they begin with 1"));
        }
        for place in [&node.clients, &node.peers] {
            if place.path().is_some() != cluster.name.is_none() {
                return Err(format!("{place} of {name} is no address of such a cluster"));
            }
            if place.path().is_some_and(|path| path.as_os_str().len() > SOCKET_BYTES_MAX) {
                return Err(format!("{place} of {name} is no path of at most {SOCKET_BYTES_MAX} bytes"));
            }
            if !places.insert(place.clone()) {
                return Err(format!("two have the address {place}"));
            }
        }
        let is_new = [names.insert(name.clone()), bricks.insert(node.brick.0), replicas.insert(node.replica)];
        if is_new.contains(&false) {
            return Err(format!("{name} has the name, brick or replica of another node"));
        }
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn cluster() -> Cluster {
        let node = |number: u8| Place {
            name: format!("n{number}"),
            brick: Uuid([number; 16]),
            replica: number.into(),
            clients: Spot::Local(format!("/srv/c/n{number}.clients").into()),
            peers: Spot::Local(format!("/srv/c/n{number}.peers").into()),
        };
        Cluster { id: [0xab; 16], name: None, wanted: 3, groups: 1, nodes: (1..=3).map(node).collect() }
    }
    /// A cluster of three machines, of which so many have joined.
    pub fn of_machines(nodes: u8) -> Cluster {
        let address = |number: u8, port: u16| Spot::Remote(format!("10.0.0.{number}:{port}").parse().expect("one"));
        let node = |number: u8| Place {
            name: format!("store-{number}.lan"),
            brick: Uuid([number; 16]),
            replica: number.into(),
            clients: address(number, 7400),
            peers: address(number, 7401),
        };
        let name = Some("prod".parse().expect("a name"));
        Cluster { id: [0xab; 16], name, wanted: 3, groups: 6, nodes: (1..=nodes).map(node).collect() }
    }
    fn refusal(text: &str) -> String {
        let error = parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.kind, Kind::Invalid, "{error}");
        error.to_string()
    }

    #[test]
    fn what_is_written_reads_back() {
        let scratch = Scratch::new();
        let here = directory::existing(scratch.path()).expect("ours");
        assert_eq!(Cluster::read(&here).expect("nothing is wrong"), None, "a file that is missing");
        for brick in [None, Some(Uuid([2; 16]))] {
            cluster().write(&here, brick).expect("writable");
            assert_eq!(Cluster::read(&here).expect("just written"), Some((cluster(), brick)));
        }
        for (nodes, is_whole) in [(1, false), (2, false), (3, true)] {
            let brick = Some(Uuid([1; 16]));
            of_machines(nodes).write(&here, brick).expect("writable");
            let (read, of) = Cluster::read(&here).expect("just written").expect("it is there");
            assert_eq!((&read, of, read.is_whole()), (&of_machines(nodes), brick, is_whole));
        }
    }

    #[test]
    fn what_no_cluster_has_is_refused() {
        for garbage in
            ["", "{", "[]", "7", "\0\0", "{\"version\": 1}", "{\"version\": 1, \"cluster\": \"ab\", \"nodes\": []}"]
        {
            refusal(garbage);
        }
        let good = cluster().text(Some(Uuid([1; 16])));
        assert!(parse(good.as_bytes()).is_ok());
        let changed = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            refusal(&good.replace(from, to))
        };
        assert!(changed("n2.clients", "n1.clients").contains("two have the address"));
        assert!(changed("n2.peers", "n2.clients").contains("two have the address"));
        assert!(changed("\"n2\"", "\"n1\"").contains("of another node"));
        assert!(changed("\"n2\"", "\"../n2\"").contains("no name of a node"));
        assert!(changed("\"replica\": 2", "\"replica\": 1").contains("of another node"));
        assert!(changed("\"replica\": 2", "\"replica\": 0").contains("replica 0"));
        assert!(changed(&"02".repeat(16), &"01".repeat(16)).contains("of another node"));
        assert!(changed(&"02".repeat(16), "02").contains("no identity"));
        assert!(changed("/srv/c/n3.peers", "n3.peers").contains("HOST:PORT"));
        assert!(changed("/srv/c/n3.peers", "10.0.0.3:7400").contains("no address of such a cluster"));
        assert!(changed("/srv/c/n3.peers", &format!("/{}", "x".repeat(107))).contains("at most 107 bytes"));
        let machines = of_machines(3).text(None);
        assert!(refusal(&machines.replace("\"wanted\": 3", "\"wanted\": 2")).contains("is to have 2"));
        assert!(refusal(&machines.replace("\"groups\": 6", "\"groups\": 65")).contains("65 groups"));
        assert!(refusal(&machines.replace("10.0.0.3:7401", "/srv/c/n3")).contains("no address of such a cluster"));
        assert!(changed("\"version\"", "\"colour\": 3, \"version\"").contains("colour"));
        let stranger = cluster().text(Some(Uuid([9; 16])));
        assert!(refusal(&stranger).contains("none of the members"));
        let newer = parse(good.replace("\"version\": 1", "\"version\": 4").as_bytes()).expect_err("newer");
        assert_eq!(newer.kind, Kind::Newer);
    }
}
