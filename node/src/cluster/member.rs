//! A node's side of its cluster: a brick whose directory says which cluster it is of, and who the others are.

use super::config::{Cluster, FILE, Place};
use crate::admin::protocol::{Replica, to_hex};
use crate::assembly::{Brick, on_core};
use crate::failure::{Exit, Failure};
use base::{Error, GroupId, Kind, ReplicaId, Result, SessionId, VolumeId};
use group::{ReplicaStatus, Replicas};
use layer::{Leading, Served};
use order_raft::Member as Replicated;
use order_raft::support::{BrickId, Ended};
use runtime::net::Address;
use runtime::real::Directory;
use std::sync::Arc;
use store::format::Uuid;
use store::format::superblock::{REPLICAS, Superblock};

/// The only group of a brick that others replicate: so each change is one record of one order.
const GROUP: GroupId = GroupId(0);

/// A member of a cluster.
#[derive(Clone, Debug)]
pub struct Member {
    cluster: Cluster,
    /// Its position among the nodes.
    position: usize,
}

impl Member {
    /// The member that the brick in a directory is; None if it is nobody's but its own. Errors: as those of reading the file; `Invalid`, if
    /// it is a cluster's own.
    pub fn read(data: &Directory) -> Result<Option<Member>> {
        let Some((cluster, brick)) = Cluster::read(data)? else { return Ok(None) };
        let position = brick.and_then(|brick| cluster.position(brick)).ok_or_else(|| {
            let what = "this is the directory of a cluster, not of a brick: sinter cluster status DIR shows its bricks";
            Error::new(Kind::Invalid, what).with(data.path().display())
        })?;
        Ok(Some(Member { cluster, position }))
    }
    /// Refuses another brick than the one whose file this is.
    pub fn check(&self, brick: Uuid) -> Result<()> {
        match brick == self.place().brick {
            true => Ok(()),
            false => {
                let what = "the brick is another than its file of the cluster says: bring the file's own brick back";
                Err(Error::new(Kind::Invalid, what).with(FILE).with(brick))
            }
        }
    }
    /// The members of each group.
    pub fn replicas(&self) -> Replicas {
        let member = |node: &Place| Replicated { replica: ReplicaId(node.replica), brick: brick_id(node) };
        let members = self.cluster.nodes.iter().map(member).collect();
        // No process says yet, as the last thing that it does, that it supports nobody.
        Replicas { me: brick_id(self.place()), members, ended: Ended::Somehow }
    }
    fn place(&self) -> &Place {
        &self.cluster.nodes[self.position]
    }
}

fn brick_id(node: &Place) -> BrickId {
    BrickId(u128::from_be_bytes(node.brick.0))
}

/// Refuses to open a brick alone that is one of several: it would take changes that the others lack. `superblock`: its own, if that was
/// read.
pub fn refuse_alone(data: &Directory, superblock: Option<&Superblock>) -> std::result::Result<(), Failure> {
    let shown = data.path().display();
    let is_marked = superblock.is_some_and(|superblock| superblock.features.incompatible & REPLICAS != 0);
    match Member::read(data) {
        Ok(Some(member)) => {
            let name = &member.place().name;
            let text = format!("{shown} is the brick of node {name} of a cluster, and can't be used alone");
            let next = "ask the cluster, or mount its volumes: sinter cluster status DIR, sinter mount DIR VOLUME MOUNT, where DIR is \
                        the cluster's directory";
            Err(Failure::new(Exit::Failed, text).next(next))
        }
        Ok(None) if is_marked => {
            let text =
                format!("{shown} is one of several bricks that replicate each other, and its file {FILE} is gone");
            let next = "restore the file: without the others the brick may lack what they have, or have what is void";
            Err(Failure::new(Exit::Failed, text).next(next))
        }
        Ok(None) => Ok(()),
        Err(error) => Err(Failure::of(format!("can't open {shown}"), &error)),
    }
}

/// A node that runs: it is connected to the others, and serves clients while it leads.
pub struct Node {
    member: Member,
    leading: Arc<Leading>,
}

impl Node {
    /// Connects an open brick to the others.
    pub fn start(brick: &Brick, member: Member) -> Result<Node> {
        let Member { cluster, position } = &member;
        let own = member.place();
        let others = cluster.nodes.iter().enumerate().filter(|(at, _)| at != position);
        let others = others.map(|(_, node)| (brick_id(node), Address::Local(node.peers.clone()))).collect();
        let (groups, id) = (brick.groups(), cluster.id);
        groups.reach_others(id, &Address::Local(own.peers.clone()), others, None)?;
        let served = Served::new(groups.clone(), &own.name, id, brick.stack_of());
        let leading = served.serve_while_leading(brick.runtime(), Address::Local(own.clients.clone()), None);
        Ok(Node { member, leading })
    }
    /// Serves no client any more.
    pub fn stop(&self, brick: &Brick) -> Result<()> {
        let leading = self.leading.clone();
        on_core(&*brick.reactors()?, move || async move {
            leading.stop().await;
            Ok(())
        })
    }
    /// Hangs up on a volume's clients, which come again and learn what was changed of it.
    pub fn hang_up(&self, brick: &Brick, volume: VolumeId) {
        if let Some(server) = self.leading.server() {
            sessions_of(brick, volume).into_iter().for_each(|session| server.hang_up(session));
        }
    }
    /// Ends the sessions of a volume.
    pub fn expel_from(&self, brick: &Brick, volume: VolumeId) -> Result<()> {
        let Some(server) = self.leading.server() else { return Ok(()) };
        let sessions = sessions_of(brick, volume);
        on_core(&*brick.reactors()?, move || async move {
            for session in sessions {
                server.expel(session).await;
            }
            Ok(())
        })
    }
    /// Number of clients' requests that are under way.
    pub fn under_way(&self) -> usize {
        self.leading.server().map_or(0, |server| server.under_way())
    }
    /// The state of its replica.
    pub fn status(&self, brick: &Brick) -> Option<Replica> {
        let groups = brick.groups();
        let ReplicaStatus { term, leader, last, committed, applied, rebuilt, needs_heal, .. } =
            groups.replica_status(GROUP)?;
        let named = |replica: ReplicaId| self.member.cluster.of_replica(replica.0).map(|node| node.name.clone());
        Some(Replica {
            cluster: to_hex(&self.member.cluster.id),
            node: self.member.place().name.clone(),
            leads: groups.serves(GROUP),
            leader: leader.and_then(named),
            term: term.0,
            last: last.0,
            committed: committed.0,
            applied: applied.0,
            rebuilt,
            needs_heal,
        })
    }
}

fn sessions_of(brick: &Brick, volume: VolumeId) -> Vec<SessionId> {
    let known = brick.groups().network_sessions().into_iter();
    known.filter(|known| known.holder.volume == volume).map(|known| known.session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory;
    use crate::scratch::Scratch;

    fn cluster() -> Cluster {
        let node = |number: u8| Place {
            name: format!("n{number}"),
            brick: Uuid([number; 16]),
            replica: number.into(),
            clients: format!("/c/n{number}.clients").into(),
            peers: format!("/c/n{number}.peers").into(),
        };
        Cluster { id: [7; 16], nodes: (1..=3).map(node).collect() }
    }

    #[test]
    fn a_brick_knows_its_place_and_no_other() {
        let scratch = Scratch::new();
        let data = directory::existing(scratch.path()).expect("ours");
        assert!(Member::read(&data).expect("nothing is wrong").is_none());
        refuse_alone(&data, None).expect("a brick of its own");
        cluster().write(&data, Some(Uuid([2; 16]))).expect("writable");
        let member = Member::read(&data).expect("just written").expect("it is there");
        assert_eq!(member.place().name, "n2");
        member.check(Uuid([2; 16])).expect("its own");
        let error = member.check(Uuid([3; 16])).expect_err("another node's brick, or another cluster's");
        assert!(error.to_string().contains("another than its file"), "{error}");
        let refused = refuse_alone(&data, None).expect_err("one of several");
        assert!(refused.to_string().contains("node n2"), "{refused}");
        cluster().write(&data, None).expect("writable");
        let error = Member::read(&data).expect_err("a cluster's own file");
        assert!(error.to_string().contains("directory of a cluster"), "{error}");
        std::fs::write(scratch.path().join(FILE), "garbage").expect("writable");
        refuse_alone(&data, None).expect_err("nobody knows whose it is");
    }
}
