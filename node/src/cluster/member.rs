//! A node's side of its cluster: a brick whose directory says which cluster it is of, and who the others are.

use super::badge::Badge;
use super::config::{Cluster, FILE, Place};
use super::etcd;
use crate::admin::protocol::{Answer, Heal, NetworkRequest, PeerState, Replica, to_hex};
use crate::assembly::{Brick, on_core};
use crate::failure::{Exit, Failure};
use crate::join;
use crate::network::{Desk, Keeper, expel, not_listening, now_s, sessions_in};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, ReplicaId, Result, VolumeId};
use group::{CATALOGUE, ReplicaStatus, Replicas};
use layer::{Leading, Served, Tenures};
use order_raft::Member as Replicated;
use order_raft::support::{BrickId, Ended};
use runtime::Runtime;
use runtime::net::Address;
use runtime::real::Directory;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};
use store::format::Uuid;
use store::format::superblock::{REPLICAS, Superblock};
use wire::peer::{Me, PeerId};
use wire::server::Server;
use wire::tls::Strangers;

/// Pause before a certificate that could not be renewed is tried again: nobody may lead for some seconds.
const AGAIN: Duration = Duration::from_secs(10);

/// The longest time for which a command waits for a node that begins to lead, and the pause between looks. It takes milliseconds.
const BEGINS: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A member of a cluster.
#[derive(Clone, Debug)]
pub struct Member {
    data: Directory,
    cluster: Cluster,
    /// Its position among the nodes.
    position: usize,
    /// The addresses where nodes listen for nodes, by position, as far as they have been looked up.
    found: Arc<[OnceLock<Address>]>,
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
        Ok(Some(Member::new(data, cluster, position)))
    }
    fn new(data: &Directory, cluster: Cluster, position: usize) -> Member {
        let found = cluster.nodes.iter().map(|_| OnceLock::new()).collect();
        Member { data: data.clone(), cluster, position, found }
    }
    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
    /// Its position among the nodes.
    pub fn position(&self) -> usize {
        self.position
    }
    /// Its brick.
    pub fn brick(&self) -> Uuid {
        self.place().brick
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
    /// Refuses a brick that has another number of groups than the cluster's others. Errors: `Invalid`.
    pub fn check_groups(&self, groups: u32) -> Result<()> {
        let wanted = self.cluster.groups;
        let what =
            "the brick has another number of groups than its file of the cluster says: bring the file's own brick back";
        match groups == wanted {
            true => Ok(()),
            false => Err(Error::new(Kind::Invalid, what).with(FILE).with(format_args!("{groups} instead of {wanted}"))),
        }
    }
    /// The members of each group.
    pub fn replicas(&self) -> Replicas {
        let member = |node: &Place| Replicated { replica: ReplicaId(node.replica), brick: brick_id(node) };
        let members = self.cluster.nodes.iter().map(member).collect();
        // No process says yet, as the last thing that it does, that it supports nobody.
        Replicas { me: brick_id(self.place()), members, ended: Ended::Somehow }
    }
    /// Tells the other nodes that a process of this one begins. Waits for nothing: each name is looked up in a thread of its own, since a
    /// resolver that does not answer takes half a minute, and a name that is not known keeps the news from that node alone. `epoch`: the one
    /// that it is about to have. Errors: those of the node's certificate.
    pub fn announce(&self, runtime: &Runtime, epoch: u64) -> Result<()> {
        let trust = self.badge()?.map(|badge| badge.trust(runtime)).transpose()?;
        let me = Me { id: PeerId(brick_id(self.place()).0), cluster: self.cluster.id, epoch };
        for (position, node) in self.others() {
            let (member, there, trust, brick) = (self.clone(), runtime.clone(), trust.clone(), brick_id(node));
            let tell = move || {
                if let Ok(address) = member.address(position) {
                    group::announce(&there, me, vec![(brick, address)], trust);
                }
            };
            // Who can't be told finds out later.
            drop(Builder::new().name("lookup".into()).spawn(tell));
        }
        Ok(())
    }
    /// The other nodes, each with its position.
    fn others(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.cluster.nodes.iter().enumerate().filter(|(position, _)| *position != self.position)
    }
    /// The other nodes' bricks, and where they are. Errors: those of `address`.
    fn addresses(&self) -> Result<Vec<(BrickId, Address)>> {
        self.others().map(|(position, node)| Ok((brick_id(node), self.address(position)?))).collect()
    }
    /// The address where a node listens for other nodes. Its name is looked up, which blocks, unless that was done before. Errors: those of
    /// `Spot::resolve`.
    fn address(&self, position: usize) -> Result<Address> {
        let found = &self.found[position];
        if let Some(address) = found.get() {
            return Ok(address.clone());
        }
        let address = self.cluster.nodes[position].peers.resolve()?;
        Ok(found.get_or_init(|| address).clone())
    }
    /// Announces the node in etcd while it runs, if its brick has the file that says how etcd is reached. Errors: the system has no thread.
    fn announced_in_etcd(&self, brick: &Brick) -> Result<etcd::Keeper> {
        let (data, cluster, own) = (self.data.clone(), self.cluster.clone(), self.brick());
        let (version, pid) = (env!("CARGO_PKG_VERSION").to_string(), std::process::id());
        let alive = etcd::Alive { node: self.place().name.clone(), version, pid, epoch: brick.groups().store().epoch };
        let (there, groups) = (data.clone(), Arc::downgrade(brick.groups()));
        let moved = move |cluster: &Cluster, positions: &[usize]| {
            let addresses =
                positions.iter().map(|at| Ok((brick_id(&cluster.nodes[*at]), cluster.nodes[*at].peers.resolve()?)));
            let addresses = addresses.collect::<Result<Vec<_>>>()?;
            cluster.write(&there, Some(own))?;
            if let Some(groups) = groups.upgrade() {
                addresses.into_iter().for_each(|(brick, address)| groups.move_to(brick, address));
            }
            Ok(())
        };
        etcd::Keeper::start(etcd::Announced { data, cluster, brick: own, alive }, moved)
    }
    /// The cluster as its file has it now: nodes may have moved since the start. Errors: as `read`.
    fn now(&self) -> Result<Cluster> {
        Ok(Cluster::read(&self.data)?.map_or_else(|| self.cluster.clone(), |(cluster, _)| cluster))
    }
    /// The node's certificate and keys; None if all nodes are of this machine.
    fn badge(&self) -> Result<Option<Badge>> {
        self.cluster.name.is_some().then(|| Badge::read(&self.data, &self.cluster)).transpose()
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
            let next = match member.cluster.name.as_ref() {
                Some(cluster) => format!(
                    "serve it as the node that it is: sinter serve {shown}; clients mount its volumes: sinter mount {cluster}/VOLUME MOUNT"
                ),
                None => "ask the cluster, or mount its volumes: sinter cluster status DIR, sinter mount DIR VOLUME MOUNT, where DIR is \
                         the cluster's directory"
                    .to_string(),
            };
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
    /// None, if all clients are of this machine.
    far: Option<Far>,
    etcd: etcd::Keeper,
}

/// All that a node needs for other machines.
struct Far {
    badge: Arc<Badge>,
    desk: Desk,
    /// The last attempt to renew the certificate: its time, and what went wrong.
    tried: Mutex<Option<(Instant, Error)>>,
}

impl Node {
    /// Connects an open brick to the others.
    pub fn start(brick: &Brick, member: Member) -> Result<Node> {
        let own = member.place();
        let others = member.addresses()?;
        let (runtime, groups, id) = (brick.runtime(), brick.groups(), member.cluster.id);
        let badge = member.badge()?.map(Arc::new);
        let trust = badge.as_ref().map(|badge| badge.trust(runtime)).transpose()?;
        groups.reach_others(id, &own.peers.resolve()?, others, trust)?;
        let served = Served::new(groups.clone(), &own.name, id, brick.stack_of());
        let far = badge.map(|badge| {
            let keeper = Arc::new(Keeper::of_cluster(runtime, groups, &badge));
            Far { desk: Desk { name: badge.name(), keeper }, badge, tried: Mutex::default() }
        });
        let address = own.clients.resolve()?;
        let leading = match &far {
            None => served.serve_while_leading(runtime, address, None),
            Some(Far { desk: Desk { keeper, .. }, .. }) => {
                let tenures: Arc<dyn Tenures> = keeper.clone();
                served.behind(keeper.clone()).serve_while_leading(runtime, address, Some(tenures))
            }
        };
        let etcd = member.announced_in_etcd(brick)?;
        Ok(Node { member, leading, far, etcd })
    }
    /// Renews the brick's certificate if it is time, through whoever leads. The outcome, for an operator; what went wrong is tried again.
    pub fn look(&self, brick: &Brick) -> Option<String> {
        let Far { badge, tried, desk } = self.far.as_ref()?;
        desk.keeper.follow(&brick.reactors().ok()?);
        let mut tried = tried.lock().expect("no panic while held");
        let is_soon = tried.as_ref().is_some_and(|(at, _)| at.elapsed() < AGAIN);
        if is_soon || !badge.is_due(now_s(brick.runtime())) {
            return None;
        }
        let before = tried.take().map(|(_, error)| error);
        let Err(error) = self.renew(brick, badge) else {
            return Some("this node's certificate was renewed".to_string());
        };
        let is_news = before.as_ref() != Some(&error);
        let told = format!("this node's certificate can't be renewed, which is tried again: {error}");
        *tried = Some((Instant::now(), error));
        is_news.then_some(told)
    }
    fn renew(&self, brick: &Brick, badge: &Badge) -> Result<()> {
        let runtime = brick.runtime();
        let addresses = self.member.now()?.addresses()?;
        let world = (&*brick.reactors()?, runtime);
        badge.renew(join::renewed(world, addresses, &badge.as_client(runtime)?, badge.request()?)?)?;
        brick.groups().renew_credentials(badge.credentials(Strangers::Refused, runtime)?);
        if let Some((_, server)) = self.leading.servers().first() {
            // All come in by one door.
            server.renew(badge.credentials(Strangers::Heard, runtime)?);
        }
        Ok(())
    }
    /// Answers a request about tokens and clients of other machines. Errors: `Unsupported`, if there are none; `Elsewhere`, if another
    /// node leads.
    pub fn answer(&self, brick: &Brick, ask: &NetworkRequest) -> Result<Answer> {
        let desk = &self.far.as_ref().ok_or_else(not_listening)?.desk;
        let server = self.server(brick)?;
        let clients = || {
            let text = |node: &Place| node.clients.to_string().parse();
            self.member.now()?.nodes.iter().map(text).take(control::tokens::ADDRESSES_MAX).collect()
        };
        desk.answer(brick, &server, &clients, ask)
    }
    /// The server, if this node leads. One that was elected a moment ago is waited for: it reads the cluster's own state first.
    fn server(&self, brick: &Brick) -> Result<Arc<Server<Served>>> {
        let (began, own) = (Instant::now(), self.member.place().name.as_str());
        let leader = || self.status(brick).and_then(|status| status.leader);
        while self.leading.server().is_none() && leader().as_deref() == Some(own) && began.elapsed() < BEGINS {
            std::thread::sleep(LOOK);
        }
        self.leading.server().ok_or_else(|| match leader() {
            Some(leader) if leader == own => {
                Error::new(Kind::Elsewhere, "this node begins to lead the cluster: ask again in some seconds")
            }
            Some(leader) => Error::new(Kind::Elsewhere, "another node of the cluster leads: ask that one").with(leader),
            None => Error::new(Kind::Elsewhere, "no node of the cluster leads yet: ask again in some seconds"),
        })
    }
    /// Serves no client any more.
    pub fn stop(&self, brick: &Brick) -> Result<()> {
        self.etcd.stop();
        let leading = self.leading.clone();
        on_core(&*brick.reactors()?, move || async move {
            leading.stop().await;
            Ok(())
        })
    }
    /// Hangs up on a volume's clients, which come again and learn what was changed of it.
    pub fn hang_up(&self, brick: &Brick, volume: VolumeId) {
        for (group, server) in self.leading.servers() {
            let sessions = sessions_in(brick.groups(), group, |holder| holder.volume == volume);
            sessions.into_iter().for_each(|session| server.hang_up(session));
        }
    }
    /// Ends the sessions of a volume.
    pub fn expel_from(&self, brick: &Brick, volume: VolumeId) -> Result<()> {
        for (group, server) in self.leading.servers() {
            let sessions = sessions_in(brick.groups(), group, |holder| holder.volume == volume);
            expel(&*brick.reactors()?, sessions, &server)?;
        }
        Ok(())
    }
    /// Number of clients' requests that are under way.
    pub fn under_way(&self) -> usize {
        self.leading.servers().iter().map(|(_, server)| server.under_way()).sum()
    }
    /// The state of its replicas: records of all groups are added up, and who leads is said of the group with the catalogue.
    pub fn status(&self, brick: &Brick) -> Option<Replica> {
        let groups = brick.groups();
        let ReplicaStatus { term, leader, .. } = groups.replica_status(CATALOGUE)?;
        let named = |replica: ReplicaId| self.member.cluster.of_replica(replica.0).map(|node| node.name.clone());
        let all: Vec<_> = groups.numbers().filter_map(|group| groups.replica_status(group)).collect();
        let sum = |of: &dyn Fn(&ReplicaStatus) -> u64| all.iter().map(of).sum::<u64>();
        let heals: Vec<_> = all.iter().filter_map(|status| status.heal).collect();
        let began_ns = heals.iter().map(|heal| heal.began_ns).min();
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        Some(Replica {
            cluster: to_hex(&self.member.cluster.id),
            node: self.name().to_string(),
            leads: groups.serves(CATALOGUE) && self.leading.server().is_some(),
            leader: leader.and_then(named),
            groups: all.len() as u32,
            leads_groups: self.leading.servers().len() as u32,
            led_groups: all.iter().filter(|status| status.leader.is_some()).count() as u32,
            term: term.0,
            last: sum(&|status| status.last.0),
            committed: sum(&|status| status.committed.0),
            applied: sum(&|status| status.applied.0),
            rebuilt: sum(&|status| status.rebuilt),
            needs_heal: sum(&|status| status.needs_heal),
            heal: began_ns.map(|began_ns| Heal {
                rows: heals.iter().any(|heal| heal.rows),
                left_bytes: bytes(heals.iter().map(|heal| heal.blocks_left).sum()),
                filled_bytes: bytes(heals.iter().map(|heal| heal.blocks_filled).max().unwrap_or_default()),
                began: began_ns / 1_000_000_000,
                error: groups.heal_error().map(|error| error.to_string()),
            }),
            peers: self.peers(brick),
            etcd: self.etcd.state(),
        })
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.member.place().name
    }
    /// The name of the node that has a brick.
    pub fn name_of(&self, brick: u128) -> Option<&str> {
        let node = self.member.cluster.nodes.iter().find(|node| brick_id(node).0 == brick)?;
        Some(&node.name)
    }
    /// The other nodes, as this one reaches them.
    fn peers(&self, brick: &Brick) -> Vec<PeerState> {
        let told = self.member.others().map(|(_, node)| {
            let reach = brick.groups().reach(brick_id(node)).unwrap_or_default();
            let error = (!reach.is_connected).then_some(reach.error).flatten();
            let follows = brick.groups().follower(brick_id(node));
            let acks = follows.iter().flat_map(|follows| &follows.acknowledged);
            let (acknowledged, acknowledged_ns) =
                acks.fold((0, 0), |(count, took_ns), acks| (count + acks.count, took_ns + acks.took_ns));
            PeerState {
                node: node.name.clone(),
                connected: reach.is_connected,
                error: error.map(|error| error.to_string()),
                lacks: follows.as_ref().map(|follows| follows.lacks),
                heals: follows.as_ref().is_some_and(|follows| follows.heals),
                acknowledged,
                acknowledged_ns,
                needed: follows.as_ref().map_or(0, |follows| follows.needed),
            }
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Spot;
    use super::*;
    use crate::assembly;
    use crate::directory;
    use crate::scratch::Scratch;
    use runtime::tasks::either;

    fn cluster() -> Cluster {
        let node = |number: u8| Place {
            name: format!("n{number}"),
            brick: Uuid([number; 16]),
            replica: number.into(),
            clients: Spot::Local(format!("/c/n{number}.clients").into()),
            peers: Spot::Local(format!("/c/n{number}.peers").into()),
        };
        Cluster { id: [7; 16], name: None, wanted: 3, groups: 1, nodes: (1..=3).map(node).collect() }
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

    #[test]
    fn a_name_that_nobody_knows_keeps_the_news_from_that_node_alone() {
        const WITHIN_NS: u64 = 60_000_000_000;
        let scratch = Scratch::new();
        let data = directory::existing(scratch.path()).expect("ours");
        let (runtime, reactors) = assembly::start(&data, (None, Vec::new()), 256 << 20, false).expect("cores");
        let listener = runtime.net.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).expect("a port is free");
        let Ok(Address::Tcp(port)) = runtime.net.address(listener) else { unreachable!("it listens at a port") };
        let mut cluster = cluster();
        let spot = |text: String| Spot::Remote(text.parse().expect("an address"));
        cluster.nodes[1].peers = spot("nobody.invalid:7401".into());
        cluster.nodes[2].peers = spot(port.to_string());
        let member = Member::new(&data, cluster, 0);
        member.announce(&runtime, 5).expect("it has no certificate");
        let there = runtime.clone();
        let accept = move || async move {
            let mut came = false;
            let wait = async { came = there.net.accept(listener).await.is_ok() };
            either(wait, there.clock.sleep(WITHIN_NS)).await;
            came
        };
        assert!(reactors.run(0, accept).expect("the cores run"), "the third node is told");
        assert_eq!(member.address(2).ok(), Some(Address::Tcp(port)));
        reactors.stop();
    }
}
