//! A node of a cluster, as its daemon tells of it.

use serde::{Deserialize, Serialize};

/// The state of a replica, as its node knows it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Replica {
    /// The identity of its cluster.
    pub cluster: String,
    /// The name of its node.
    pub node: String,
    /// True if it serves clients, and no other can.
    pub leads: bool,
    /// The node that leads, as far as this one knows.
    pub leader: Option<String>,
    /// Number of its groups.
    #[serde(default)]
    pub groups: u32,
    /// Groups of which it serves clients.
    #[serde(default)]
    pub leads_groups: u32,
    /// Groups of which it knows who leads them.
    #[serde(default)]
    pub led_groups: u32,
    /// The term of the group with the catalogue of volumes; what follows are sums over all groups.
    pub term: u64,
    /// The last record in its log.
    pub last: u64,
    /// The last one that it knows to be on a majority of the nodes.
    pub committed: u64,
    /// The last one that its state has.
    pub applied: u64,
    /// Times that it has built its state again, because a leader before had ordered what is void.
    pub rebuilt: u64,
    /// Times that another node was found to need what this one no longer keeps, or a message had to be dropped.
    pub needs_heal: u64,
    /// The node lacked what the others no longer keep, and is getting it.
    #[serde(default)]
    pub heal: Option<Heal>,
    /// The other nodes, as this one reaches them.
    #[serde(default)]
    pub peers: Vec<PeerState>,
    /// The etcd in which it announces itself, if there is one.
    #[serde(default)]
    pub etcd: Option<EtcdState>,
}

/// The etcd in which a node announces itself, as the node knows it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct EtcdState {
    /// The addresses of its members.
    pub endpoints: Vec<String>,
    /// Its version, while it answers.
    pub version: Option<String>,
    /// Seconds since it last had the cluster; None if it has it.
    pub away_s: Option<u64>,
    /// The reason why it does not.
    pub error: Option<String>,
    /// The nodes that run, as they have told it.
    pub nodes: Vec<String>,
}

/// A node that heals.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Heal {
    /// True while it gets the names and the lists of blocks: until then it takes part in nothing. False: it has them, and gets blocks.
    pub rows: bool,
    /// Bytes that it is known to lack.
    pub left_bytes: u64,
    /// Bytes that it has got since its process started.
    pub filled_bytes: u64,
    /// The time at which it began, in seconds since 1970.
    pub began: u64,
    /// The reason why the last try came to nothing, if it did.
    pub error: Option<String>,
}

/// Another node of a cluster.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct PeerState {
    /// Its name.
    pub node: String,
    /// True while both hear each other.
    pub connected: bool,
    /// The reason why not.
    pub error: Option<String>,
    /// Records that it lacks, where this node leads.
    #[serde(default)]
    pub lacks: Option<u64>,
    /// True if it asks this node, which leads, for what it lacks.
    #[serde(default)]
    pub heals: bool,
    /// Messages with records that it has acknowledged since this node's process leads.
    #[serde(default)]
    pub acknowledged: u64,
    /// Nanoseconds that it took for that, added up.
    #[serde(default)]
    pub acknowledged_ns: u64,
    /// Records that became durable by its acknowledgement: those for which it was the last node that was needed.
    #[serde(default)]
    pub needed: u64,
}
