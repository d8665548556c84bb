//! A cluster's entry in etcd: which clusters there are, where their nodes are, and which of them run, for whoever looks from outside, and so
//! that a node that has moved is found by the others.
//!
//! Promises: nothing of a cluster's data, membership or start depends on etcd, which may be away, wiped or wrong. Absent by design: tokens,
//! clients and keys, which the cluster replicates itself.

mod access;
mod child;
mod client;
mod keeper;
mod keys;

pub use access::Access;
pub use child::Etcd;
pub use keeper::{Announced, Keeper};
pub use keys::Alive;

use super::config::Cluster;
use crate::admin::protocol::to_hex;
use base::{Error, Kind, Result};
use client::{Client, Put};
use keys::Entry;

/// The number of changes of a key that does not exist.
const NONE: i64 = 0;

/// Refuses a name that another cluster has in etcd. Errors: `Exists`; those of a call.
pub fn check_name_is_free(access: &Access, name: &str) -> Result<()> {
    let mut client = Client::open(access)?;
    client.check_version()?;
    match client.get(&keys::name_key(name))? {
        None => Ok(()),
        Some(row) => Err(taken(name, &row.value)),
    }
}

/// Refuses an etcd that has no cluster of this name. Errors: `NotFound`; those of a call.
pub fn check_has_name(access: &Access, name: &str) -> Result<()> {
    let mut client = Client::open(access)?;
    client.check_version()?;
    match client.get(&keys::name_key(name))? {
        Some(_) => Ok(()),
        None => {
            let what = "this etcd has no cluster of that name: give the one that `cluster create` was given, or leave --etcd out";
            Err(Error::new(Kind::NotFound, what).with(name))
        }
    }
}

/// Has etcd know a cluster: its name and all its nodes; what is there already stays. The number of keys that were written. Errors: `Exists`,
/// if another cluster has the name; `Invalid`, if something else lies in its place; those of a call. After one it may be done again.
pub fn register(access: &Access, cluster: &Cluster) -> Result<usize> {
    let mut client = Client::open(access)?;
    client.check_version()?;
    let mut written = 0;
    if let Some(name) = &cluster.name {
        let (key, id) = (keys::name_key(name.as_str()), to_hex(&cluster.id).into_bytes());
        match client.get(&key)? {
            Some(row) if row.value == id => {}
            Some(row) => return Err(taken(name.as_str(), &row.value)),
            None => {
                let claim = Put { key: key.clone(), value: id, lease: None };
                if !client.put_if((&key, NONE), &[claim])? {
                    return Err(
                        Error::new(Kind::Exists, "another cluster took the name just now: give another").with(name)
                    );
                }
                written += 1;
            }
        }
    }
    let (meta, prefix) = (keys::meta_key(cluster), keys::prefix(cluster));
    let entry = match Entry::read(cluster, client.range(&prefix)?) {
        Err(error) if error.kind == Kind::NotFound => {
            written += usize::from(client.put_if((&meta, NONE), &[keys::meta(cluster)])?);
            Entry::read(cluster, client.range(&prefix)?)?
        }
        entry => entry?,
    };
    // What a node has said of itself is newer than what another one knows of it.
    let missing: Vec<_> = cluster.nodes.iter().filter(|node| !entry.knows(cluster, node)).collect();
    let puts: Vec<_> = missing.iter().map(|node| keys::member(cluster, node)).collect();
    if !puts.is_empty() {
        if !client.put_if((&meta, entry.revision), &puts)? {
            return Err(Error::new(Kind::Busy, "somebody else changes this cluster in etcd: do it again"));
        }
        written += puts.len();
    }
    Ok(written)
}

fn taken(name: &str, id: &[u8]) -> Error {
    let what = "another cluster has this name in etcd: give another name; if that cluster is gone for good, remove its keys \
                (etcdctl del /sinter/names/NAME)";
    Error::new(Kind::Exists, what).with(name).with(String::from_utf8_lossy(id))
}
