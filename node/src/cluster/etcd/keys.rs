//! The keys of a cluster in etcd, and what a node makes of what it finds there.
//!
//! Keys: `/sinter/names/NAME` has the identity of the cluster of that name; below `/sinter/IDENTITY/` lie `meta` (name and number of nodes),
//! `members/BRICK` (a node's name and addresses) and `alive/BRICK` (what a node says of itself, with a lease).
//!
//! Promises: nothing here decides who belongs to a cluster or what a group does, since etcd may be wiped, restored from an old copy or
//! another one altogether; a node changes nothing in an etcd that does not have its cluster. Absent by design: calls, and time.

use super::super::config::{Cluster, Place, Spot};
use super::client::{Put, Row};
use crate::admin::protocol::to_hex;
use base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::format::Uuid;

/// The key of a cluster's identity, by its name.
pub fn name_key(name: &str) -> String {
    format!("/sinter/names/{name}")
}

/// The beginning of all keys of a cluster.
pub fn prefix(cluster: &Cluster) -> String {
    format!("/sinter/{}/", to_hex(&cluster.id))
}

/// The key of what is said of a cluster as a whole.
pub fn meta_key(cluster: &Cluster) -> String {
    prefix(cluster) + "meta"
}

/// The key of a node's addresses.
pub fn member_key(cluster: &Cluster, node: &Place) -> String {
    format!("{}members/{}", prefix(cluster), to_hex(&node.brick.0))
}

/// The key that is there while a node runs.
pub fn alive_key(cluster: &Cluster, node: &Place) -> String {
    format!("{}alive/{}", prefix(cluster), to_hex(&node.brick.0))
}

/// The value about a cluster as a whole.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Meta {
    /// The cluster's name; None of one on a single machine.
    name: Option<String>,
    /// Number of nodes that it is to have.
    nodes: usize,
}

/// A node's place. Fields that later builds add are ignored.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Member {
    name: String,
    replica: u64,
    clients: Spot,
    peers: Spot,
}

/// The value by which a node that runs tells of itself.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Alive {
    /// The node's name.
    pub node: String,
    /// Its build.
    pub version: String,
    /// Number of its process.
    pub pid: u32,
    /// The epoch of its brick: it rises with each start.
    pub epoch: u64,
}

impl Alive {
    /// The value for etcd.
    pub fn value(&self) -> Vec<u8> {
        json(self)
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data is JSON")
}

/// The rows that say of a cluster as a whole what there is to say.
pub fn meta(cluster: &Cluster) -> Put {
    let name = cluster.name.as_ref().map(ToString::to_string);
    Put { key: meta_key(cluster), value: json(&Meta { name, nodes: cluster.wanted }), lease: None }
}

/// The row of a node's addresses.
pub fn member(cluster: &Cluster, node: &Place) -> Put {
    let Place { name, replica, clients, peers, .. } = node.clone();
    Put { key: member_key(cluster, node), value: json(&Member { name, replica, clients, peers }), lease: None }
}

/// The rows that etcd has of a cluster.
#[derive(Debug)]
pub struct Entry {
    /// The revision in which it got the cluster.
    pub revision: i64,
    /// The values below `members`, by key.
    members: BTreeMap<String, Vec<u8>>,
    /// The nodes that run, as they say themselves.
    pub alive: Vec<Alive>,
}

impl Entry {
    /// Reads the rows below a cluster's prefix. Errors: `NotFound`, if there are none; `Invalid`, if they are of another cluster.
    pub fn read(cluster: &Cluster, rows: Vec<Row>) -> Result<Entry> {
        let prefix = prefix(cluster);
        let mut entry = Entry { revision: 0, members: BTreeMap::new(), alive: Vec::new() };
        let is_empty = rows.is_empty();
        let mut found = None;
        for Row { key, value, revision } in rows {
            match key.strip_prefix(&prefix).unwrap_or_default() {
                "meta" => (entry.revision, found) = (revision, Some(value)),
                rest if rest.starts_with("members/") => drop(entry.members.insert(key, value)),
                // One that can't be read is of a newer build.
                rest if rest.starts_with("alive/") => entry.alive.extend(serde_json::from_slice::<Alive>(&value)),
                _ => {}
            }
        }
        let Some(found) = found else {
            let what = match is_empty {
                true => {
                    "etcd has nothing of this cluster, as if it had been wiped or were another one: sinter cluster \
                     recover-directory DATA writes what a node knows"
                }
                false => {
                    "etcd has lost a part of what it had of this cluster: sinter cluster recover-directory DATA writes what a \
                     node knows"
                }
            };
            return Err(Error::new(Kind::NotFound, what));
        };
        if found != meta(cluster).value {
            let what =
                "etcd has something else in the place of this cluster: another one writes there, or a person has";
            return Err(Error::new(Kind::Invalid, what).with(String::from_utf8_lossy(&found)).with(meta_key(cluster)));
        }
        Ok(entry)
    }
    /// True if etcd has a node's addresses as its cluster has them.
    pub fn has(&self, cluster: &Cluster, node: &Place) -> bool {
        let row = member(cluster, node);
        self.members.get(&row.key) == Some(&row.value)
    }
    /// True if etcd has addresses of a brick.
    pub fn knows(&self, cluster: &Cluster, node: &Place) -> bool {
        self.members.contains_key(&member_key(cluster, node))
    }
    /// The places that other nodes of the cluster have announced and that differ from those which it has of them, by position. Who is of the
    /// cluster, under which name and as which replica, is not etcd's to say: rows that say otherwise are passed over.
    pub fn moved(&self, cluster: &Cluster, own: Uuid) -> Vec<(usize, Place)> {
        let others = cluster.nodes.iter().enumerate().filter(|(_, node)| node.brick != own);
        let moved = others.filter_map(|(at, node)| {
            let told: Member = serde_json::from_slice(self.members.get(&member_key(cluster, node))?).ok()?;
            let is_same = told.name == node.name && told.replica == node.replica;
            let place = Place { clients: told.clients, peers: told.peers, ..node.clone() };
            (is_same && place != *node).then_some((at, place))
        });
        moved.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::tests::of_machines;
    use super::*;

    fn rows(cluster: &Cluster) -> Vec<Row> {
        let puts = std::iter::once(meta(cluster)).chain(cluster.nodes.iter().map(|node| member(cluster, node)));
        puts.enumerate().map(|(at, put)| Row { key: put.key, value: put.value, revision: 5 + at as i64 }).collect()
    }

    #[test]
    fn what_nodes_announce_is_read() {
        let cluster = of_machines(3);
        let mut held = rows(&cluster);
        let alive = Alive { node: "n2".into(), version: "0.1.0".into(), pid: 7, epoch: 3 };
        let key = alive_key(&cluster, &cluster.nodes[1]);
        held.push(Row { key, value: alive.value(), revision: 11 });
        held.push(Row { key: prefix(&cluster) + "later/thing", value: b"?".to_vec(), revision: 12 });
        let entry = Entry::read(&cluster, held).expect("its own");
        assert_eq!((entry.revision, &entry.alive[..]), (5, &[alive][..]));
        assert!(cluster.nodes.iter().all(|node| entry.has(&cluster, node)));
        assert_eq!(entry.moved(&cluster, Uuid([1; 16])), []);
    }

    #[test]
    fn another_etcd_and_another_cluster_are_told_apart() {
        let cluster = of_machines(3);
        let kind = |rows| Entry::read(&cluster, rows).expect_err("not this cluster").kind;
        assert_eq!(kind(Vec::new()), Kind::NotFound, "wiped");
        assert_eq!(kind(rows(&cluster).split_off(1)), Kind::NotFound, "nothing of the whole");
        let other = Cluster { name: Some("test".parse().expect("a name")), ..cluster.clone() };
        assert_eq!(kind(rows(&other)), Kind::Invalid);
        let mut garbage = rows(&cluster);
        garbage[0].value = b"\xff".to_vec();
        assert_eq!(kind(garbage), Kind::Invalid);
    }

    #[test]
    fn etcd_says_where_a_node_is_and_never_who() {
        let cluster = of_machines(3);
        let (own, mut now) = (cluster.nodes[0].clone(), cluster.clone());
        now.nodes[2].clients = Spot::Remote("10.9.9.9:7400".parse().expect("one"));
        let entry = |cluster: &Cluster| Entry::read(cluster, rows(cluster)).expect("its own");
        assert_eq!(entry(&now).moved(&cluster, own.brick), [(2, now.nodes[2].clone())]);
        assert!(!entry(&now).has(&cluster, &cluster.nodes[2]) && entry(&now).knows(&cluster, &cluster.nodes[2]));
        assert_eq!(entry(&now).moved(&cluster, now.nodes[2].brick), [], "each node knows its own place best");
        for change in [|node: &mut Place| node.name = "other".into(), |node: &mut Place| node.replica = 9] {
            let mut strange = now.clone();
            change(&mut strange.nodes[2]);
            assert_eq!(entry(&strange).moved(&cluster, own.brick), []);
        }
        let mut rows = rows(&now);
        rows[3].value = b"garbage".to_vec();
        rows.push(Row { key: prefix(&now) + "members/" + &"09".repeat(16), ..rows[1].clone() });
        let entry = Entry::read(&cluster, rows).expect("its own");
        assert_eq!(entry.moved(&cluster, own.brick), [], "garbage, and a brick of no cluster");
    }
}
