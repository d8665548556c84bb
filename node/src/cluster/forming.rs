//! A cluster before it has all its nodes: the first one takes in those that come with a token, and tells all once they are there; the
//! others wait to be told.
//!
//! Promises: the list of nodes is durable at the first one before anybody is told that it is whole, and never changes afterwards; a brick that has
//! not been told serves nobody; whoever was interrupted goes on. Absent by design: anything of groups, which start once the cluster is whole.

use super::badge::{Badge, News, files, first_files};
use super::config::{Cluster, GROUPS, Place, Spot};
use crate::daemon::say;
use crate::failure::Failure;
use crate::host::Signals;
use crate::join::{self, World};
use crate::network::{self, now_s};
use base::{Error, Ino, Kind, Op, Result, SessionId};
use control::{
    Bearer, Certificate, ClientName, Files, Held, Identity, Network, Rights, Role, Secret, ServerWish, Token, Wish,
    client,
};
use group::{Answer, Context};
use runtime::real::{Access, Directory};
use runtime::{Buf, Runtime, tasks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::format::Uuid;
use wire::codec::hello::{Hello, Join, Joined, Reason, Refused};
use wire::codec::session::{Changed, Held as Having};
use wire::server::{Admission, Server, Service};
use wire::tls::Strangers;

/// Life of the token with which the other nodes join, in seconds.
pub const TOKEN_LIFE_S: u64 = 3600;
/// Pause between two looks at how far it is.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for the other nodes to ask, once the cluster is whole: they ask each second. One that has not asked by then asks whoever leads.
const TELLING: Duration = Duration::from_secs(10);
/// A file in the directory of the first node's brick, as long as others may not know that the cluster is whole.
const TELLS: &str = "forming";

/// A brick that wants to join, as it says itself.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
struct Wanted {
    brick: control::Uuid,
    name: ClientName,
    clients: control::Address,
    peers: control::Address,
    /// The number of its groups. Builds that know of one alone say nothing of it.
    #[serde(default = "one")]
    groups: u32,
}

fn one() -> u32 {
    1
}

/// A new cluster's name, and the first node's place.
pub struct First<'a> {
    /// The cluster's name.
    pub cluster: &'a ClientName,
    /// The node's name.
    pub node: &'a ClientName,
    /// Its brick.
    pub brick: Uuid,
    /// The addresses where it serves clients, and where it listens for bricks.
    pub addresses: (control::Address, control::Address),
    /// Number of nodes that the cluster is to have.
    pub wanted: usize,
}

/// Makes a cluster of the brick in a directory, alone so far. The token with which the others join.
pub fn create(data: &Directory, first: &First<'_>, now_s: u64) -> std::result::Result<Token, Failure> {
    let failed = |error: Error| Failure::of(format!("can't make the cluster {}", first.cluster), &error);
    let secret = || Ok::<_, Failure>(Secret(network::secret()?));
    let (id, brick) = (control::Uuid(network::secret()?), control::Uuid(first.brick.0));
    let mut network = network::open(data, brick, id, now_s).map_err(failed)?;
    let (clients, peers) = first.addresses.clone();
    let name = first.cluster.clone();
    let mut token = |uses, secret| {
        let wish = Wish { role: Role::Server, rights: Rights::none(), uses, life_s: TOKEN_LIFE_S };
        network.create_token(wish, secret, (name.clone(), vec![clients.clone()]), now_s).map_err(failed)
    };
    let (own, others) = (token(1, secret()?)?, token((first.wanted - 1) as u32, secret()?)?);
    let held = files(data).map_err(failed)?;
    let joining = client::begin(&held, first.cluster, own).map_err(failed)?;
    let wanted = ServerWish { brick, name: first.node.clone(), clients: clients.clone(), peers };
    let chain = network.admit_server(&joining.token().secret, &joining.request, &wanted, now_s).map_err(failed)?;
    joining.finish(chain).map_err(failed)?;
    let mut cluster = Cluster {
        id: network.cluster().0,
        name: Some(first.cluster.clone()),
        wanted: first.wanted,
        groups: GROUPS,
        nodes: Vec::new(),
    };
    take_in(&mut cluster, &network);
    match data.file(TELLS, Access::Create) {
        Err(error) if error.kind != Kind::Exists => return Err(failed(error)),
        _ => {}
    }
    // With this file the brick is one of the cluster.
    cluster.write(data, Some(first.brick)).map_err(failed)?;
    Ok(others)
}

/// Joins the brick in a directory to the cluster of a token. The cluster as far as it goes.
pub fn join(
    data: &Directory,
    token: Token,
    (node, brick): (&ClientName, Uuid),
    (clients, peers): (control::Address, control::Address),
) -> std::result::Result<Cluster, Failure> {
    let failed = |error: Error| Failure::of("can't join the cluster", &error);
    let name = token.name.clone();
    let held = files(data).map_err(failed)?;
    let joining = client::begin(&held, &name, token).map_err(failed)?;
    let wanted = Wanted { brick: control::Uuid(brick.0), name: node.clone(), clients, peers, groups: GROUPS };
    let join = Join {
        secret: joining.token().secret.0.into(),
        name: node.as_str().into(),
        request: joining.request.clone().into(),
        server: serde_json::to_vec(&wanted).expect("plain data is JSON").into(),
    };
    let joined = join::ask(joining.token(), &join).map_err(failed)?;
    let news = News::take(&joined.about).map_err(failed)?;
    joining.finish(join::chain(joined).map_err(failed)?).map_err(failed)?;
    take_news(data, brick, &news).map_err(failed)?;
    Ok(news.cluster)
}

/// Notes durably what a brick was told of its cluster.
fn take_news(data: &Directory, brick: Uuid, news: &News) -> Result<()> {
    if let Some(state) = &news.state {
        Network::install(first_files(data)?, state, control::Uuid(news.cluster.id))?;
    }
    news.cluster.write(data, Some(brick))
}

/// Adds the servers that a network side knows to a cluster's nodes, in the order in which they joined; true if there are new ones or others.
fn take_in<F: Files>(cluster: &mut Cluster, network: &Network<F>) -> bool {
    let before = cluster.clone();
    let mut servers: Vec<_> = network.servers().iter().collect();
    servers.sort_by_key(|(brick, server)| (server.joined_s, **brick));
    for (brick, server) in servers {
        let brick = Uuid(brick.0);
        let name = server.name.to_string();
        let (clients, peers) = (Spot::Remote(server.clients.clone()), Spot::Remote(server.peers.clone()));
        match cluster.position(brick) {
            // What others were told to be whole stays as it is.
            _ if cluster.is_whole() => {}
            Some(at) => cluster.nodes[at] = Place { name, clients, peers, ..cluster.nodes[at].clone() },
            None => {
                let replica = cluster.nodes.len() as u64 + 1;
                cluster.nodes.push(Place { name, brick, replica, clients, peers });
            }
        }
    }
    *cluster != before
}

/// Refuses a brick that says other things of itself than the others were told when the cluster was whole.
fn check_place(cluster: &Cluster, wish: &ServerWish) -> Result<()> {
    if !cluster.is_whole() {
        return Ok(());
    }
    let told = cluster.position(Uuid(wish.brick.0)).map(|at| &cluster.nodes[at]);
    let is_same =
        |place: &&Place| place.name == wish.name.to_string() && place.clients == Spot::Remote(wish.clients.clone());
    match told {
        Some(place) if is_same(&place) => Ok(()),
        Some(place) => {
            let what = "the other nodes know this brick by another name or address: join again with those";
            Err(Error::new(Kind::Exists, what).with(format_args!("--name {} --address {}", place.name, place.clients)))
        }
        None => Err(Error::new(Kind::Exists, "the cluster has all its nodes: a further one can't join it yet")),
    }
}

/// True if a brick's cluster lacks nodes, or has others that may not know that it does not.
pub fn is_under_way(data: &Directory, cluster: &Cluster) -> bool {
    !cluster.is_whole() || data.file(TELLS, Access::Read).is_ok()
}

/// Waits until the cluster of the brick in a directory has all its nodes; false, if somebody asked for the end before. `ready` is called
/// once the others can join.
pub fn wait(
    data: &Directory,
    (cluster, brick): (Cluster, Uuid),
    signals: &Signals,
    ready: impl FnOnce(&str),
) -> std::result::Result<bool, Failure> {
    let name = cluster.name.clone().expect("a cluster of several machines has a name");
    let failed = |error: Error| Failure::of(format!("can't form the cluster {name}"), &error);
    let world = World::start().map_err(failed)?;
    let badge = Badge::read(data, &cluster).map_err(failed)?;
    let network =
        first_files(data).and_then(|files| Network::open_of_cluster(files, badge.cluster())).map_err(failed)?;
    let mut way = match network {
        Some(network) if network.brick().0 == brick.0 => {
            Way::Founder(Founder::start(&world, data, &badge, (network, cluster)).map_err(failed)?)
        }
        _ => Way::Other(Other { cluster, refused: None }),
    };
    ready(&format!("ready: cluster {name} waits for all its nodes"));
    loop {
        let whole = match &mut way {
            Way::Founder(founder) => founder.is_done(),
            Way::Other(other) => other.look(&world, &badge, data, brick).map_err(failed)?,
        };
        if whole {
            say(&format!("cluster {name} has all its nodes"));
        }
        let comes = signals.comes_within(if whole { Duration::ZERO } else { PAUSE });
        let comes = comes.map_err(|error| Failure::io("can't watch for signals", &error))?;
        if whole || comes {
            if let Way::Founder(founder) = way {
                founder.stop(&world);
                if whole {
                    let told = match std::fs::remove_file(data.at(TELLS)) {
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                        removed => removed.and_then(|()| data.sync()),
                    };
                    told.map_err(|error| {
                        Failure::io(format!("can't remove {TELLS} from {}", data.path().display()), &error)
                    })?;
                }
            }
            return Ok(whole && !comes);
        }
    }
}

/// The part of a brick in the forming of its cluster.
enum Way {
    Founder(Founder),
    Other(Other),
}

/// A node that has joined and waits.
struct Other {
    cluster: Cluster,
    /// The last refusal that was told.
    refused: Option<String>,
}

impl Other {
    /// Asks the nodes that it knows; true once it was told that the cluster is whole.
    fn look(&mut self, world: &World, badge: &Badge, data: &Directory, brick: Uuid) -> Result<bool> {
        let join = Join::renewal(badge.request()?);
        let others: Vec<_> = self.cluster.nodes.iter().filter(|node| node.brick != brick).cloned().collect();
        for node in others {
            let asked = node.clients.resolve().and_then(|address| {
                let joined = world.ask(address, badge.as_client(&world.runtime)?, join.clone())?;
                News::take(&joined.about)
            });
            match asked {
                Ok(news) if news.cluster.id != self.cluster.id || news.cluster.position(brick).is_none() => {
                    return Err(Error::new(Kind::Invalid, "the other nodes know nothing of this brick").with(node.name));
                }
                Ok(news) => {
                    let is_whole = news.state.is_some();
                    if news.cluster != self.cluster || is_whole {
                        take_news(data, brick, &news)?;
                        self.cluster = news.cluster;
                    }
                    return Ok(is_whole);
                }
                Err(error) => self.tell(format!("node {}: {error}", node.name)),
            }
        }
        Ok(false)
    }
    fn tell(&mut self, refused: String) {
        if self.refused.as_ref() != Some(&refused) {
            say(&refused);
            self.refused = Some(refused);
        }
    }
}

/// The node that made the cluster, which takes the others in.
struct Founder {
    taking: Arc<Taking>,
    server: Arc<Server<Host>>,
}

/// The service of bricks that join.
struct Host(Arc<Taking>);

/// The list of nodes, and who has it.
struct Taking {
    runtime: Runtime,
    data: Directory,
    brick: Uuid,
    forming: Mutex<Forming>,
}

struct Forming {
    network: Network<Held>,
    cluster: Cluster,
    /// The bricks that were told that the cluster is whole.
    told: BTreeSet<control::Uuid>,
    /// The time since which it is.
    whole_since: Option<Instant>,
}

impl Founder {
    fn start(
        world: &World,
        data: &Directory,
        badge: &Badge,
        (network, mut cluster): (Network<Held>, Cluster),
    ) -> Result<Founder> {
        let brick = Uuid(network.brick().0);
        // A crash may have come between the two files.
        if take_in(&mut cluster, &network) {
            cluster.write(data, Some(brick))?;
        }
        let own = cluster.position(brick).expect("the file was checked");
        let address = cluster.nodes[own].clients.resolve()?;
        let listener = world.runtime.net.listen(&address)?;
        let credentials = badge.credentials(Strangers::Heard, &world.runtime)?;
        let whole_since = cluster.is_whole().then(Instant::now);
        let forming = Mutex::new(Forming { network, cluster, told: BTreeSet::new(), whole_since });
        let taking = Arc::new(Taking { runtime: world.runtime.clone(), data: data.clone(), brick, forming });
        let host = Arc::new(Host(taking.clone()));
        let server = Server::start(&world.runtime, listener, Some(credentials), host, &[]);
        Ok(Founder { taking, server })
    }
    /// True once all others know that the cluster is whole, or have had their time to ask.
    fn is_done(&self) -> bool {
        let forming = self.taking.forming.lock().expect("no panic while held");
        let mut others = forming.cluster.nodes.iter().filter(|node| node.brick != self.taking.brick);
        let all_know = others.all(|node| forming.told.contains(&control::Uuid(node.brick.0)));
        forming.whole_since.is_some_and(|since| all_know || since.elapsed() > TELLING)
    }
    fn stop(self, world: &World) {
        let server = self.server;
        // Cores that have stopped serve nobody.
        drop(world.reactors().run(0, move || async move { server.stop().await }));
    }
}

impl Taking {
    /// Takes a brick in, or tells one how far the cluster is.
    fn take(&self, join: &Join, peer: Option<&Identity>) -> Result<Joined> {
        let now_s = now_s(&self.runtime);
        let mut forming = self.forming.lock().expect("no panic while held");
        let Forming { network, cluster, told, whole_since } = &mut *forming;
        let (chain, brick) = match (join.secret.as_array(), peer) {
            (Some(_), _) if join.server.is_empty() => {
                let what =
                    "the cluster does not have all its nodes yet: join once it serves (sinter cluster status DATA)";
                return Err(Error::new(Kind::Busy, what));
            }
            (Some(secret), _) => {
                let Wanted { brick, name, clients, peers, groups } = serde_json::from_slice(&join.server)
                    .map_err(|error| Error::new(Kind::Invalid, "a brick says nothing of itself").with(error))?;
                if groups != cluster.groups {
                    let what = "the bricks of a cluster have as many groups each: format the brick anew, by the build that the other nodes have";
                    return Err(
                        Error::new(Kind::Unsupported, what).with(format_args!("{groups}, not {}", cluster.groups))
                    );
                }
                let wish = ServerWish { brick, name, clients, peers };
                check_place(cluster, &wish)?;
                let chain = network.admit_server(&Secret(*secret), &join.request, &wish, now_s)?;
                if take_in(cluster, network) {
                    cluster.write(&self.data, Some(self.brick))?;
                }
                let (nodes, wanted) = (cluster.nodes.len(), cluster.wanted);
                say(&format!("node {} has joined from {}: {nodes} of {wanted} nodes", wish.name, wish.clients));
                (chain, brick)
            }
            (None, Some(identity)) if join.secret.is_empty() => {
                let brick = network.check_server(identity, now_s)?;
                (network.renew(identity, &join.request, now_s)?, brick)
            }
            _ => return Err(Error::new(Kind::Permission, "a brick joins with a token: sinter cluster join TOKEN")),
        };
        let is_whole = cluster.is_whole();
        if is_whole {
            whole_since.get_or_insert_with(Instant::now);
            told.insert(brick);
        }
        let about = News::put(cluster, is_whole.then(|| network.encoded()).as_deref());
        Ok(Joined { chain: vec![chain.certificate.0.into(), chain.ca.0.into()], about })
    }
}

/// The refusal of everybody but bricks.
fn refused() -> Refused {
    let text = "the cluster does not have all its nodes yet: it serves once they are there";
    Refused { reason: Reason::Busy, text: text.into() }
}

impl Service for Host {
    type Volume = ();
    type Client = ();

    async fn recognise(&self, _: Option<&[u8]>, _: &Hello) -> std::result::Result<(), Refused> {
        Err(refused())
    }
    async fn admit(&self, _: SessionId, _: &Hello, (): ()) -> std::result::Result<Admission<()>, Refused> {
        Err(refused())
    }
    async fn join(&self, join: &Join, peer: Option<&[u8]>) -> std::result::Result<Joined, Refused> {
        let told = |error: &Error| Refused { reason: Reason::Token, text: error.to_string().into() };
        let peer = peer.map(|certificate| Certificate(certificate.to_vec()).identity()).transpose();
        let (join, peer) = (join.clone(), peer.map_err(|error| told(&error))?);
        if peer.as_ref().is_some_and(|peer| !matches!(peer.subject.bearer, Bearer::Brick(_))) {
            return Err(refused());
        }
        let taking = self.0.clone();
        let taken = tasks::run_blocking(&*self.0.runtime.tasks, move || taking.take(&join, peer.as_ref())).await;
        taken.map_err(|error| told(&error))
    }
    async fn call(&self, (): &(), _: &Context, _: Op, _: Option<Buf>) -> Result<Answer> {
        unreachable!("nobody is let in")
    }
    async fn reclaim(&self, _: SessionId, _: (&[Having], &[Changed]), _: bool, _: bool) -> Result<Vec<Ino>> {
        unreachable!("nobody is let in")
    }
    fn answered(&self, _: SessionId, _: u64) {}
    async fn end(&self, _: SessionId) -> Result<()> {
        Ok(())
    }
}
