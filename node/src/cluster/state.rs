//! The state of a cluster on one machine, as its nodes tell it.
//!
//! Promises: a node that does not answer, or whose brick takes no changes, counts as away; what is said of the whole follows from what the
//! nodes say, and from nothing else.

use super::config::Cluster;
use super::dev::brick;
use super::member::Member;
use crate::admin::client::Client;
use crate::admin::protocol::{Answer, EtcdState, Heal, Replica, Request, Status};
use runtime::real::Directory;
use serde::Serialize;
use std::path::Path;

/// The state of a cluster.
#[derive(Serialize, Debug)]
pub struct ClusterState {
    /// True if all nodes are there and one leads.
    pub healthy: bool,
    /// The same in words.
    pub health: String,
    /// The node that leads.
    pub leader: Option<String>,
    /// The nodes.
    pub nodes: Vec<NodeState>,
    /// The etcd in which they announce themselves, as the first node knows it that tells of one.
    pub etcd: Option<EtcdState>,
}

impl ClusterState {
    /// The mean of the nanoseconds after which a node acknowledges a message of the node that leads, as far as that one has told.
    pub fn acknowledges_ns(&self, name: &str) -> Option<u64> {
        let leader = self.nodes.iter().find(|node| node.state == Part::Leads)?.replica.as_ref()?;
        let peer = leader.peers.iter().find(|peer| peer.node == name && peer.connected)?;
        peer.acknowledged_ns.checked_div(peer.acknowledged)
    }
}

/// The state of a node.
#[derive(Serialize, Clone, Debug)]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// The part that it has.
    pub state: Part,
    /// The process that serves its brick.
    pub pid: Option<u32>,
    /// The reason why the brick takes no changes, if it takes none.
    pub read_only: Option<String>,
    /// The reason why the node that was asked does not reach it, as far as it knows.
    pub error: Option<String>,
    /// The state of its replica.
    pub replica: Option<Box<Replica>>,
}

/// A node's part in its cluster.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It serves clients.
    Leads,
    /// It has what another one orders.
    Follows,
    /// It knows nobody who leads.
    Seeks,
    /// It follows, and lacks much that it is being told.
    Behind,
    /// It gets what the others no longer keep in their logs.
    Heals,
    /// It does not answer, or takes no changes.
    Away,
}

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Leads => "leads",
            Part::Follows => "follows",
            Part::Seeks => "seeks a leader",
            Part::Behind => "is behind",
            Part::Heals => "heals",
            Part::Away => "away",
        }
    }
}

/// Number of records by which a node may be behind: those who lead keep as many for it at least, beside what has come since their last
/// checkpoint. One that lags by more counts as one that is not there.
const BEHIND_MAX: u64 = 10_000;

/// Asks all nodes at once: one that hangs is waited for once.
pub fn ask(directory: &Directory, cluster: &Cluster) -> ClusterState {
    let nodes = std::thread::scope(|scope| {
        let ask = |node| {
            let path = brick(directory, node);
            (&node.name, scope.spawn(move || status(&path)))
        };
        let asked: Vec<_> = cluster.nodes.iter().map(ask).collect();
        let told = |(name, asked): (&String, std::thread::ScopedJoinHandle<'_, Option<Status>>)| {
            node(name.clone(), asked.join().expect("a thread that panics ends the process"), cluster)
        };
        asked.into_iter().map(told).collect()
    });
    whole(nodes, cluster.majority())
}

/// The state of a cluster as one of its nodes sees it, whose brick lies in a directory.
pub fn ask_node(data: &Path, member: &Member) -> ClusterState {
    let cluster = member.cluster();
    if !cluster.is_whole() {
        let named: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        let (there, wanted) = (named.len(), cluster.wanted);
        let health =
            format!("{there} of {wanted} nodes have joined: {}; volumes are there once all have", listed(&named));
        return ClusterState { healthy: false, health, leader: None, nodes: Vec::new(), etcd: None };
    }
    let own = &cluster.nodes[member.position()].name;
    let asked = node(own.clone(), status(data), cluster);
    if asked.pid.is_none() {
        let health = format!(
            "this node, {own}, does not run: start it with sinter serve {}, or ask another node",
            data.display()
        );
        return ClusterState { healthy: false, health, leader: None, nodes: vec![asked], etcd: None };
    }
    let replica = asked.replica.as_deref().cloned();
    let leader = replica.as_ref().and_then(|replica| replica.leader.clone());
    let peers = replica.map(|replica| replica.peers).unwrap_or_default();
    let seen = cluster.nodes.iter().map(|place| {
        let name = place.name.clone();
        let peer = peers.iter().find(|peer| peer.node == name);
        let error = peer.and_then(|peer| peer.error.clone());
        let state = match peer {
            _ if name == *own => return asked.clone(),
            Some(peer) if !peer.connected => Part::Away,
            None => Part::Away,
            Some(_) if leader.as_ref() == Some(&name) => Part::Leads,
            Some(peer) if peer.heals => Part::Heals,
            Some(peer) if peer.lacks.is_some_and(|lacks| lacks > BEHIND_MAX) => Part::Behind,
            Some(_) if leader.is_some() => Part::Follows,
            Some(_) => Part::Seeks,
        };
        NodeState { name, state, pid: None, read_only: None, error, replica: None }
    });
    whole(seen.collect(), cluster.majority())
}

fn status(brick: &Path) -> Option<Status> {
    match Client::connect(brick).ok()??.ask(&Request::Status).ok()? {
        Answer::Status(status) => Some(status),
        _ => None,
    }
}

fn node(name: String, status: Option<Status>, cluster: &Cluster) -> NodeState {
    let Some(Status { pid, read_only, replica, .. }) = status else {
        return NodeState { name, state: Part::Away, pid: None, read_only: None, error: None, replica: None };
    };
    // A brick that was put in the place of the node's is not the node.
    let own = replica.as_ref().filter(|replica| replica.cluster == crate::admin::protocol::to_hex(&cluster.id));
    let state = match own.map(|replica| &**replica) {
        None => Part::Away,
        Some(_) if read_only.is_some() => Part::Away,
        Some(Replica { leads: true, .. }) => Part::Leads,
        Some(Replica { heal: Some(_), .. }) => Part::Heals,
        Some(Replica { leader: Some(leader), .. }) if *leader != name => Part::Follows,
        Some(_) => Part::Seeks,
    };
    NodeState { name, state, pid: Some(pid), read_only, error: None, replica }
}

/// Says of the whole what follows from its nodes.
fn whole(mut nodes: Vec<NodeState>, majority: usize) -> ClusterState {
    let all = nodes.len();
    let last = |node: &NodeState| node.replica.as_ref().map_or(0, |replica| replica.last);
    let committed = nodes.iter().filter_map(|node| Some(node.replica.as_ref()?.committed)).max().unwrap_or_default();
    for node in nodes.iter_mut().filter(|node| node.state == Part::Follows && node.replica.is_some()) {
        if last(node).saturating_add(BEHIND_MAX) < committed {
            node.state = Part::Behind;
        }
    }
    let named =
        |part| nodes.iter().filter(|node| node.state == part).map(|node| node.name.as_str()).collect::<Vec<_>>();
    let (away, behind, heal) = (named(Part::Away), named(Part::Behind), named(Part::Heals));
    let there = all - away.len() - behind.len() - heal.len();
    let leader = named(Part::Leads).first().map(|name| name.to_string());
    let lacking = || {
        let told = [(&away, "away"), (&behind, "behind")].into_iter().filter(|(names, _)| !names.is_empty());
        let told =
            told.map(|(names, how)| format!("{} {} {how}", listed(names), if names.len() == 1 { "is" } else { "are" }));
        let heals = nodes.iter().filter(|node| node.state == Part::Heals);
        let healing = heals.map(|node| healing(&node.name, node.replica.as_ref().and_then(|one| one.heal.as_ref())));
        told.chain(healing).collect::<Vec<_>>().join(", ")
    };
    // Also the node that leads may lack some.
    let lacks_blocks = nodes.iter().find_map(|node| Some((&*node.name, node.replica.as_ref()?.heal.as_ref()?)));
    // As the node knows that knows most.
    let unled =
        nodes.iter().filter_map(|node| node.replica.as_ref()).map(|replica| replica.groups - replica.led_groups);
    let unled = unled.min().unwrap_or(0);
    let health = match &leader {
        Some(_) if unled > 0 && all - away.len() >= majority => {
            format!(
                "{unled} groups of files have no leader: the nodes are finding one, and who uses them waits; ask again in some seconds"
            )
        }
        _ if all - away.len() < majority => format!("no majority: {}; programs wait", lacking()),
        None => "no leader: the nodes are finding one, and programs wait; ask again in some seconds".to_string(),
        Some(leader) if there == all => match lacks_blocks {
            Some((node, heal)) => format!("all nodes are there, and {}; {leader} leads", healing(node, Some(heal))),
            None => format!("healthy: {all} of {all} bricks, {leader} leads"),
        },
        Some(leader) if there <= majority => {
            format!("no further failure tolerated: {}, {leader} leads", lacking())
        }
        Some(leader) => {
            format!("{there} of {all} bricks: {}, {leader} leads; {} more may fail", lacking(), there - majority)
        }
    };
    let healthy = there == all && leader.is_some() && unled == 0 && lacks_blocks.is_none();
    let etcd = nodes.iter().find_map(|node| node.replica.as_ref()?.etcd.clone());
    ClusterState { healthy, health, leader, nodes, etcd }
}

/// The sentence about etcd.
pub fn told_of_etcd(EtcdState { endpoints, version, away_s, error, nodes }: &EtcdState) -> String {
    let (named, away_s) = (endpoints.join(", "), away_s.unwrap_or_default());
    match error {
        Some(error) => format!(
            "etcd has not had the cluster for {}: data is served, nodes that move are not found: {error}",
            crate::table::duration(away_s.saturating_mul(1_000_000_000))
        ),
        None => {
            let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let verb = if names.len() == 1 { "runs" } else { "run" };
            format!("etcd: {} {verb} ({named}, version {})", listed(&names), version.as_deref().unwrap_or("unknown"))
        }
    }
}

/// The sentence about a node that heals.
fn healing(node: &str, heal: Option<&Heal>) -> String {
    match heal {
        None => format!("{node} heals"),
        Some(heal) if heal.rows => format!("{node} heals: it gets the names of everything"),
        Some(heal) => {
            let why = heal.error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
            format!("{node} heals: {} left{why}", crate::table::bytes(heal.left_bytes))
        }
    }
}

/// `n1`, `n1 and n2`, `n1, n2 and n3`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::protocol::PeerState;

    fn health(parts: &[Part]) -> (String, bool) {
        let node = |(at, state): (usize, &Part)| NodeState {
            name: format!("n{}", at + 1),
            state: *state,
            pid: None,
            read_only: None,
            error: None,
            replica: None,
        };
        let state = whole(parts.iter().enumerate().map(node).collect(), parts.len() / 2 + 1);
        (state.health, state.healthy)
    }

    #[test]
    fn what_is_said_of_the_whole_is_true() {
        use Part::{Away, Follows, Leads, Seeks};
        for (parts, expected, is_healthy) in [
            (&[Follows, Leads, Follows][..], "healthy: 3 of 3 bricks, n2 leads", true),
            (&[Follows, Leads, Away], "no further failure tolerated: n3 is away, n2 leads", false),
            (&[Away, Seeks, Away], "no majority: n1 and n3 are away; programs wait", false),
            (&[Away, Away, Away], "no majority: n1, n2 and n3 are away; programs wait", false),
            (&[Seeks, Follows, Follows], "no leader: the nodes are finding one", false),
            (&[Leads, Follows, Away, Follows, Follows], "4 of 5 bricks: n3 is away, n1 leads; 1 more may fail", false),
        ] {
            let (told, healthy) = health(parts);
            assert!(told.starts_with(expected), "{told}");
            assert_eq!(healthy, is_healthy, "{told}");
        }
    }

    #[test]
    fn a_group_that_nobody_leads_is_told() {
        let node = |name: &str, state, led_groups| {
            let replica = Some(Box::new(Replica { groups: 6, led_groups, ..Replica::default() }));
            NodeState { name: name.into(), state, pid: None, read_only: None, error: None, replica }
        };
        let with = |led| whole(vec![node("n1", Part::Leads, led), node("n2", Part::Follows, led - 1)], 2);
        assert!(with(6).healthy);
        let state = with(4);
        assert!(!state.healthy && state.health.starts_with("2 groups of files have no leader"), "{}", state.health);
    }

    #[test]
    fn who_leads_tells_how_soon_the_others_acknowledge() {
        let peer = |node: &str, acknowledged, acknowledged_ns| {
            let (node, connected, error, lacks, heals, needed) = (node.into(), node != "n4", None, None, false, 0);
            PeerState { node, connected, error, lacks, heals, acknowledged, acknowledged_ns, needed }
        };
        let node = |name: &str, state, peers| {
            let replica = Some(Box::new(Replica { peers, ..Replica::default() }));
            NodeState { name: name.into(), state, pid: None, read_only: None, error: None, replica }
        };
        let leads = node("n1", Part::Leads, vec![peer("n2", 4, 1_000), peer("n3", 0, 0), peer("n4", 1, 5)]);
        let state = whole(vec![leads, node("n2", Part::Follows, vec![peer("n1", 1, 5)])], 2);
        assert_eq!(["n1", "n2", "n3", "n4"].map(|name| state.acknowledges_ns(name)), [None, Some(250), None, None]);
    }

    #[test]
    fn a_node_that_lags_far_behind_counts_as_missing() {
        let node = |name: &str, state, last| {
            let replica = Some(Box::new(Replica { last, committed: last, ..Replica::default() }));
            NodeState { name: name.into(), state, pid: None, read_only: None, error: None, replica }
        };
        let with = |last| {
            let nodes = vec![
                node("n1", Part::Leads, 20_000),
                node("n2", Part::Follows, 20_000),
                node("n3", Part::Follows, last),
            ];
            whole(nodes, 2)
        };
        assert!(with(10_000).healthy);
        let state = with(9_999);
        assert_eq!(state.health, "no further failure tolerated: n3 is behind, n1 leads");
        assert!(!state.healthy && state.nodes[2].state == Part::Behind);
        let nodes = ["n2", "n3"].map(|name| node(name, Part::Follows, 1));
        let state = whole([node("n1", Part::Leads, 20_000)].into_iter().chain(nodes).collect(), 2);
        assert_eq!(state.health, "no further failure tolerated: n2 and n3 are behind, n1 leads");
    }

    #[test]
    fn a_node_that_heals_counts_as_missing_and_what_it_lacks_is_told() {
        let state = |heal| {
            let node = |name: &str, state, replica| {
                let (name, replica) = (name.into(), Some(Box::new(replica)));
                NodeState { name, state, pid: None, read_only: None, error: None, replica }
            };
            let others = Replica { last: 9, committed: 9, ..Replica::default() };
            let healing = Replica { heal, ..others.clone() };
            let nodes = vec![
                node("n1", Part::Leads, others.clone()),
                node("n2", Part::Follows, others),
                node("n3", Part::Heals, healing),
            ];
            whole(nodes, 2).health
        };
        let heal = |rows| Some(Heal { rows, left_bytes: 3 << 20, filled_bytes: 0, began: 0, error: None });
        assert_eq!(state(heal(false)), "no further failure tolerated: n3 heals: 3 MiB left, n1 leads");
        assert_eq!(
            state(heal(true)),
            "no further failure tolerated: n3 heals: it gets the names of everything, n1 leads"
        );
        assert_eq!(state(None), "no further failure tolerated: n3 heals, n1 leads", "another node knows no more");
    }

    #[test]
    fn a_node_that_can_do_nothing_is_away() {
        let cluster = Cluster { id: [7; 16], name: None, wanted: 0, groups: 1, nodes: Vec::new() };
        let replica = Replica { cluster: "07".repeat(16), leads: true, ..Replica::default() };
        let state = |status: Status| node("n1".into(), Some(status), &cluster).state;
        let good = Status { replica: Some(Box::new(replica.clone())), ..Status::default() };
        assert_eq!(state(good.clone()), Part::Leads);
        assert_eq!(state(Status { read_only: Some("a write failed".into()), ..good.clone() }), Part::Away);
        assert_eq!(state(Status { replica: None, ..good.clone() }), Part::Away);
        let other = Replica { cluster: "08".repeat(16), ..replica.clone() };
        assert_eq!(state(Status { replica: Some(other.into()), ..good.clone() }), Part::Away);
        let follows = Replica { leads: false, leader: Some("n2".into()), ..replica.clone() };
        assert_eq!(state(Status { replica: Some(follows.into()), ..good.clone() }), Part::Follows);
        // It leads, as far as it knows, but others may too.
        let without_lease = Replica { leads: false, leader: Some("n1".into()), ..replica };
        assert_eq!(state(Status { replica: Some(without_lease.into()), ..good }), Part::Seeks);
        assert_eq!(node("n1".into(), None, &cluster).state, Part::Away);
    }
}
