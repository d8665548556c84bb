//! The commands about a cluster's entry in etcd, and about a node's address.

use super::{print, print_json};
use crate::admin::client::Client;
use crate::cli::{ClusterMove, EtcdOptions, RecoverDirectory};
use crate::cluster::etcd::{self, Access};
use crate::cluster::{Cluster, Member};
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use base::Error;
use runtime::real::Directory;

/// The way to etcd that the options say; None: they say none. Errors: they are wrong.
pub fn access(options: &EtcdOptions) -> Result<Option<Access>, Failure> {
    if options.etcd.is_empty() {
        return Ok(None);
    }
    let files = [&options.etcd_ca, &options.etcd_cert, &options.etcd_key].map(|path| path.as_deref());
    let access = Access::new(&options.etcd, files);
    access.map(Some).map_err(|error| Failure::of("can't use this etcd", &error).exit(Exit::Usage))
}

/// Has the first node of a new cluster use etcd, if it is to, and etcd know the cluster. The options for the others' command. An etcd that
/// fails now does not undo what was made: it is said, and how to go on.
pub fn announce(data: &Directory, access: Option<&Access>, options: &EtcdOptions) -> Result<String, Failure> {
    let Some(access) = access else { return Ok(String::new()) };
    let failed = |error: &Error| Failure::of("can't note how to reach etcd", error);
    access.write(data).map_err(|error| failed(&error))?;
    let member = Member::read(data).map_err(|error| failed(&error))?.expect("it was just made");
    if let Err(error) = etcd::register(access, member.cluster()) {
        let shown = data.path().display();
        say(&format!("etcd does not have the cluster yet: {error}. Later: sinter cluster recover-directory {shown}"));
    }
    let file = |name, is_there: bool| if is_there { format!(" --{name} FILE") } else { String::new() };
    let files = [("etcd-ca", &options.etcd_ca), ("etcd-cert", &options.etcd_cert), ("etcd-key", &options.etcd_key)];
    let files: String = files.map(|(name, path)| file(name, path.is_some())).concat();
    Ok(format!(" --etcd {}{files}", access.endpoints.join(",")))
}

/// The cluster of a node's brick. Errors: the directory has none.
fn member(data: &Directory) -> Result<Member, Failure> {
    let shown = data.path().display();
    let found = Member::read(data).map_err(|error| Failure::of(format!("can't look at {shown}"), &error))?;
    found.ok_or_else(|| {
        let failure = Failure::new(Exit::Usage, format!("{shown} is not the brick of a cluster's node"));
        failure.next("give the directory that `sinter cluster create` or `join` was given with --data")
    })
}

/// `sinter cluster recover-directory`.
pub fn recover(options: &RecoverDirectory) -> Result<Exit, Failure> {
    let data = directory::existing(&options.data)?;
    let member = member(&data)?;
    let shown = data.path().display();
    let failed = |error: Error| Failure::of(format!("can't write the cluster of {shown} into etcd"), &error);
    let wanted = access(&options.etcd)?;
    let is_new = wanted.is_some();
    let access = match wanted {
        Some(access) => access,
        None => Access::read(&data).map_err(failed)?.ok_or_else(|| {
            let failure = Failure::new(Exit::Usage, format!("the node of {shown} uses no etcd"));
            failure.next(format!("sinter cluster recover-directory {shown} --etcd http://HOST:2379"))
        })?,
    };
    let cluster = member.cluster();
    let keys = etcd::register(&access, cluster).map_err(failed)?;
    if is_new {
        access.write(&data).map_err(failed)?;
    }
    if options.json {
        print_json(&serde_json::json!({ "keys": keys, "nodes": cluster.nodes.len(), "endpoints": access.endpoints }))?;
        return Ok(Exit::Done);
    }
    let named = cluster.name.as_ref().map_or_else(|| "the cluster".to_string(), ToString::to_string);
    print(&match keys {
        0 => format!("etcd has {named} already: nothing was written\n"),
        keys => format!(
            "etcd has {named} with its {} nodes: {keys} keys were written; nodes that run announce themselves within seconds\n",
            cluster.nodes.len()
        ),
    })?;
    Ok(Exit::Done)
}

/// `sinter cluster move`.
pub fn move_node(options: &ClusterMove) -> Result<Exit, Failure> {
    let data = directory::existing(&options.data)?;
    let member = member(&data)?;
    let (shown, cluster) = (data.path().display(), member.cluster());
    if cluster.name.is_none() || !cluster.is_whole() {
        let text = match cluster.name {
            None => "the nodes of a cluster on one machine have no addresses",
            Some(_) => "the cluster does not have all its nodes yet: nobody moves before",
        };
        return Err(Failure::new(Exit::Usage, text).next(format!("sinter cluster status {shown}")));
    }
    if Client::connect(&options.data)?.is_some() {
        let failure = Failure::new(Exit::InUse, format!("a daemon serves {shown}, at the old address"));
        return Err(failure.next(format!("sinter down {shown}, and then this command again")));
    }
    let position = match &options.node {
        None => member.position(),
        Some(name) => cluster.nodes.iter().position(|node| node.name == *name).ok_or_else(|| {
            let names: Vec<_> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            Failure::new(Exit::Usage, format!("the cluster has no node {name}"))
                .next(format!("one of {}", names.join(", ")))
        })?,
    };
    let failed = |error: Error| Failure::of("can't note the address", &error);
    let (clients, peers) = super::cluster::addresses(Some(&options.address)).map_err(failed)?;
    let mut moved: Cluster = cluster.clone();
    let node = &mut moved.nodes[position];
    (node.clients, node.peers) = (clients.into(), peers.into());
    let name = node.name.clone();
    moved.check().map_err(|error| failed(error).exit(Exit::Usage))?;
    moved.write(&data, Some(member.brick())).map_err(failed)?;
    let told_by_etcd = Access::read(&data).map_err(failed)?.is_some() && position == member.position();
    if options.json {
        let told = serde_json::json!({ "node": name, "address": options.address, "told_by_etcd": told_by_etcd });
        print_json(&told)?;
        return Ok(Exit::Done);
    }
    let others = match told_by_etcd {
        true => "the others learn it from etcd, those that run and use it within seconds".to_string(),
        false => format!(
            "each other node has to be told, one after the other: sinter down DATA, sinter cluster move DATA {} --node {name}, sinter serve DATA",
            options.address
        ),
    };
    print(&format!("{name} is at {}: {others}. Start this node: sinter serve {shown}\n", options.address))?;
    Ok(Exit::Done)
}
