//! The keeper of certificates and rights of a brick that listens: `control::Network`, as connections ask it. A brick that is alone has
//! them in its directory; one of a cluster has what the cluster replicates (`replicated`), while it leads.

use super::desk::expel;
use super::replicated::{Replica, Replicated};
use crate::cluster::Badge;
use base::{Error, GroupId, Holder, Ino, Kind, Name, Result, SessionId};
use control::{Bearer, Certificate, Chain, FILE, Files, Grant, Held, Identity, Network, Secret};
use group::{CATALOGUE, Groups};
use layer::{Gate, Recognised, Right, Served, Tenures};
use runtime::Runtime;
use runtime::real::Reactors;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};
use wire::codec::TEXT_BYTES_MAX;
use wire::codec::hello::{Join, Joined, Reason, Refused};
use wire::server::Server;
use wire::tls::{Credentials, Encryption, Identity as Bearing, Strangers};

/// The network side, wherever its file lies.
type Kept = Network<Box<dyn Files + Send>>;

/// The keeper; see the module.
pub struct Keeper {
    /// None while another brick of the cluster leads. Held while a change becomes durable.
    network: Mutex<Option<Kept>>,
    /// The same as it is durable, for all who only read: nobody of them waits for a change.
    known: Mutex<Option<Arc<Network<()>>>>,
    runtime: Runtime,
    groups: Arc<Groups>,
    /// The servers of the groups that are served, by group; that of a brick that is alone under 0.
    servers: Mutex<BTreeMap<GroupId, Weak<Server<Served>>>>,
    /// The state that was followed last, where another brick leads the group with the network side.
    followed: Mutex<Followed>,
    encryption: Encryption,
    /// The brick's own certificate in its cluster; None of a brick that is alone.
    badge: Option<Arc<Badge>>,
}

/// The sessions of clients of other machines whose holder `is_meant` picks, as the group with the catalogue knows them.
pub fn sessions_of(groups: &Groups, is_meant: impl Fn(&Holder) -> bool) -> Vec<SessionId> {
    sessions_in(groups, CATALOGUE, is_meant)
}

/// The same, as a group knows them.
pub fn sessions_in(groups: &Groups, group: GroupId, is_meant: impl Fn(&Holder) -> bool) -> Vec<SessionId> {
    let known = groups.network_sessions(groups.scope_of(group));
    known.into_iter().filter(|known| is_meant(&known.holder)).map(|known| known.session).collect()
}

/// Interval at which a brick looks whether the network side was changed by whoever leads that group.
const FOLLOW: Duration = Duration::from_secs(1);

/// The state that a brick has followed.
#[derive(Default)]
struct Followed {
    /// A thread looks now.
    looks: bool,
    /// The time of its last look.
    looked: Option<Instant>,
    /// The inode of the file that was read last: each change makes another one.
    ino: Option<Ino>,
    /// The state whose rights the sessions of all groups here have. What is known may be newer, read for somebody who came.
    heeded: Option<Arc<Network<()>>>,
}

/// The time in seconds since 1970.
pub fn now_s(runtime: &Runtime) -> u64 {
    u64::try_from(runtime.clock.wall().parts().0).unwrap_or_default()
}

impl Keeper {
    /// The keeper of an identity, whose certificate is renewed if it is time. Errors: those of renewing.
    pub fn alone(
        network: Network<Held>,
        runtime: &Runtime,
        groups: &Arc<Groups>,
        encryption: Encryption,
    ) -> Result<Keeper> {
        let mut network = network.boxed();
        network.renew_server(now_s(runtime))?;
        let (runtime, groups, servers) = (runtime.clone(), groups.clone(), Mutex::default());
        let (known, followed) = (Mutex::new(Some(Arc::new(network.known()))), Mutex::default());
        let network = Mutex::new(Some(network));
        Ok(Keeper { network, known, runtime, groups, servers, followed, encryption, badge: None })
    }
    /// The keeper of a brick of a cluster, which knows nothing until it leads.
    pub fn of_cluster(runtime: &Runtime, groups: &Arc<Groups>, badge: &Arc<Badge>) -> Keeper {
        let (runtime, groups, badge) = (runtime.clone(), groups.clone(), Some(badge.clone()));
        let (network, known, servers) = (Mutex::default(), Mutex::default(), Mutex::default());
        let followed = Mutex::default();
        Keeper { network, known, runtime, groups, servers, followed, encryption: Encryption::On, badge }
    }
    /// The wish for what goes over the network.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }
    /// The credentials of the server's connections.
    pub fn credentials(&self) -> Result<Credentials> {
        if let Some(badge) = &self.badge {
            return badge.credentials(Strangers::Heard, &self.runtime);
        }
        let (bearing, ca) = self.read(|network| {
            let (pair, ca) = (network.server(), &network.ca().0);
            // Who joins finds there what the token pins.
            let chain = vec![pair.certificate.0.clone().into(), ca.clone().into()];
            (Bearing { chain, key: pair.key.0.clone().into() }, ca.clone())
        })?;
        let credentials = Credentials::of_server(&bearing, &ca, Strangers::Heard, self.runtime.clock.clone())?;
        Ok(credentials.with(self.encryption))
    }
    /// Other credentials, if the certificate was due for renewal.
    pub fn renew(&self) -> Result<Option<Credentials>> {
        match self.change(|network, now_s| network.renew_server(now_s))? {
            true => self.credentials().map(Some),
            false => Ok(None),
        }
    }
    /// Reads what is kept. Errors: `Elsewhere`, if another brick of the cluster leads.
    pub fn read<T>(&self, read: impl FnOnce(&Network<()>) -> T) -> Result<T> {
        let known = self.known.lock().expect("no panic while held").clone();
        known.as_deref().map(read).ok_or_else(elsewhere)
    }
    /// Keeps other values, or forgets those that there were.
    fn keep(&self, kept: &mut Option<Kept>, network: Option<Kept>) {
        *self.known.lock().expect("no panic while held") = network.as_ref().map(|network| Arc::new(network.known()));
        *kept = network;
    }
    /// Changes what is kept, durably. Blocks. Errors: those of the change; `Elsewhere`.
    pub fn change<T>(&self, change: impl FnOnce(&mut Kept, u64) -> Result<T>) -> Result<T> {
        let mut network = self.network.lock().expect("no panic while held");
        let kept = network.as_mut().ok_or_else(elsewhere)?;
        let changed = change(kept, now_s(&self.runtime));
        *self.known.lock().expect("no panic while held") = Some(Arc::new(kept.known()));
        changed
    }
    /// Admits who has a token, or renews; true if rights have changed.
    fn chain(&self, join: &Join, peer: Option<&Identity>) -> Result<(Chain, bool)> {
        let refused = |what| Err(Error::new(Kind::Permission, what));
        if !join.server.is_empty() && !join.secret.is_empty() {
            return refused("the cluster has all its nodes: a further one can't join it yet");
        }
        self.change(|network, now_s| {
            let before = network.epoch();
            let chain = match (join.secret.as_array(), peer) {
                (Some(secret), _) => network.admit(&Secret(*secret), &join.request, &join.name, now_s)?,
                (None, Some(identity)) if join.secret.is_empty() => network.renew(identity, &join.request, now_s)?,
                _ => return refused("a machine joins with a token: make one with `sinter token create` on the server"),
            };
            Ok((chain, network.epoch() != before))
        })
    }
    /// The servers of the groups that are served.
    fn servers(&self) -> Vec<(GroupId, Arc<Server<Served>>)> {
        let servers = self.servers.lock().expect("no panic while held");
        servers.iter().filter_map(|(group, server)| Some((*group, server.upgrade()?))).collect()
    }
    /// Ends the connections of a client, which comes again and gets its new rights.
    fn hang_up(&self, client: &[u8]) {
        for (group, server) in self.servers() {
            let sessions = sessions_in(&self.groups, group, |holder| holder.client.as_bytes() == client);
            sessions.into_iter().for_each(|session| server.hang_up(session));
        }
    }
    /// Looks from time to time whether the network side has changed, here or at the brick that leads its group: who lost rights or was
    /// revoked is not served any more, in any group, within seconds. The look is a thread's of its own: the caller waits for no device.
    pub fn follow(self: &Arc<Keeper>, reactors: &Arc<Reactors>) {
        let is_due = {
            let mut followed = self.followed.lock().expect("no panic while held");
            let is_due = !followed.looks && followed.looked.is_none_or(|looked| looked.elapsed() >= FOLLOW);
            followed.looks |= is_due;
            is_due
        };
        if !is_due {
            return;
        }
        let (keeper, reactors) = (self.clone(), reactors.clone());
        let look = move || {
            keeper.look(&reactors);
            let mut followed = keeper.followed.lock().expect("no panic while held");
            (followed.looks, followed.looked) = (false, Some(Instant::now()));
        };
        if Builder::new().name("network side".into()).spawn(look).is_err() {
            self.followed.lock().expect("no panic while held").looks = false;
        }
    }
    fn look(&self, reactors: &Reactors) {
        if self.servers().is_empty() {
            return;
        }
        let known = || self.known.lock().expect("no panic while held").clone();
        let first = known();
        self.read_followed();
        let Some(known) = known() else { return };
        let before = heed(&mut self.followed.lock().expect("no panic while held").heeded, first, &known);
        let Some(before) = before else { return };
        for (name, client) in before.clients() {
            let now = known.clients().get(name);
            if now == Some(client) {
                continue;
            }
            let is_meant = |holder: &Holder| holder.client.as_bytes() == name.as_str().as_bytes();
            if now.is_some_and(|now| now.revoked_s.is_none()) {
                self.hang_up(name.as_str().as_bytes());
                continue;
            }
            for (group, server) in self.servers() {
                // What can't be ended now is refused when it comes again.
                drop(expel(reactors, sessions_in(&self.groups, group, is_meant), &server));
            }
        }
    }
    /// Takes what this brick's own replica has of the network side, if another brick leads it. True if that is news.
    fn read_followed(&self) -> bool {
        let Some(badge) = &self.badge else { return false };
        // Under the lock of changes: who begins to lead reads for itself. That may take for as long as there is no majority.
        let Ok(_kept) = self.network.try_lock() else { return false };
        if self.groups.leads(CATALOGUE) {
            return false;
        }
        let files = Replica::new(&self.groups);
        let Ok(Some(ino)) = files.ino(FILE) else { return false };
        let is_same = self.followed.lock().expect("no panic while held").ino == Some(ino);
        if is_same && self.known.lock().expect("no panic while held").is_some() {
            return false;
        }
        let Ok(Some(network)) = Network::open_of_cluster(files, badge.cluster()) else { return false };
        self.followed.lock().expect("no panic while held").ino = Some(ino);
        *self.known.lock().expect("no panic while held") = Some(Arc::new(network.known()));
        true
    }
    /// True if what this brick knows may be older than what another one that leads has told a client.
    fn may_be_behind(&self) -> bool {
        self.badge.is_some() && !self.groups.leads(CATALOGUE)
    }
}

impl Gate for Keeper {
    fn recognise(&self, certificate: &[u8]) -> std::result::Result<Recognised, Refused> {
        let identity = Certificate(certificate.to_vec()).identity().map_err(|error| told(Reason::Stranger, &error))?;
        let now_s = now_s(&self.runtime);
        let rights = || {
            self.read(|network| {
                let is_ours = identity.subject.cluster == network.cluster();
                let reason = match is_ours {
                    // Whoever leads the network side has the last word.
                    true if self.may_be_behind() => Reason::Busy,
                    true => Reason::Revoked,
                    false => Reason::Cluster,
                };
                network.rights_of(&identity, now_s).cloned().map_err(|error| told(reason, &error))
            })
        };
        let mut found = rights();
        if !matches!(found, Ok(Ok(_))) && self.read_followed() {
            found = rights();
        }
        let rights = found.map_err(|error| told(Reason::Busy, &error))??;
        let Bearer::Client(name) = &identity.subject.bearer else {
            return Err(Refused { reason: Reason::Stranger, text: "this is no client's certificate".into() });
        };
        let name = Name::new(name.as_str().as_bytes()).map_err(|error| told(Reason::Stranger, &error))?;
        let right =
            |grant: &Grant| Right { volume: grant.volume, read_only: grant.read_only, squash_root: grant.root_squash };
        Ok(Recognised { name, rights: Some(rights.grants().iter().map(right).collect()) })
    }
    fn join(&self, join: &Join, peer: Option<&[u8]>) -> std::result::Result<Joined, Refused> {
        let of_peer = |certificate: &[u8]| Certificate(certificate.to_vec()).identity();
        let peer = peer.map(of_peer).transpose().map_err(|error| told(Reason::Stranger, &error))?;
        let (chain, changed) = self.chain(join, peer.as_ref()).map_err(|error| told(Reason::Token, &error))?;
        if changed {
            self.hang_up(join.name.as_bytes());
        }
        let is_brick = peer.is_some_and(|peer| matches!(peer.subject.bearer, Bearer::Brick(_)));
        let about = match (&self.badge, is_brick) {
            // It may not have heard that the cluster has all its nodes.
            (Some(badge), true) => badge.about().map_err(|error| told(Reason::Busy, &error))?,
            _ => Box::default(),
        };
        Ok(Joined { chain: vec![chain.certificate.0.into(), chain.ca.0.into()], about })
    }
}

impl Tenures for Keeper {
    fn begin(&self, group: GroupId) -> Result<Credentials> {
        if group != CATALOGUE {
            self.read_followed();
            return self.credentials();
        }
        let badge = self.badge.as_ref().expect("a brick that is alone has no tenures");
        let mut kept = self.network.lock().expect("no panic while held");
        // Nobody is served yet who could use what was known before.
        self.keep(&mut kept, None);
        let files = || Ok::<Box<dyn Files + Send>, Error>(Box::new(Replicated::open(&self.groups)?));
        let network = match Network::open_of_cluster(files()?, badge.cluster())? {
            Some(network) => network,
            None => Network::install(files()?, &badge.first_state()?, badge.cluster())?,
        };
        self.keep(&mut kept, Some(network));
        drop(kept);
        self.credentials()
    }
    fn serves(&self, group: GroupId, server: &Arc<Server<Served>>) {
        self.servers.lock().expect("no panic while held").insert(group, Arc::downgrade(server));
    }
}

/// Heeds the state that is known now. What was heeded before; None if that is the same. `first`: what was known when the look began, for the first one.
fn heed<T>(heeded: &mut Option<Arc<T>>, first: Option<Arc<T>>, known: &Arc<T>) -> Option<Arc<T>> {
    heeded.replace(known.clone()).or(first).filter(|before| !Arc::ptr_eq(before, known))
}

fn elsewhere() -> Error {
    let what = "another node of the cluster leads, or will: ask that one (sinter cluster status DATA names it)";
    Error::new(Kind::Elsewhere, what)
}

/// An error as a client is told of it.
fn told(reason: Reason, error: &Error) -> Refused {
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    Refused { reason, text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change may be read first for somebody who comes to the brick: the sessions of others are looked at all the same.
    #[test]
    fn a_change_is_heeded_whoever_read_it_first() {
        let (first, second, third) = (Arc::new(1), Arc::new(2), Arc::new(3));
        let mut heeded = None;
        assert_eq!(
            heed(&mut heeded, Some(first.clone()), &first),
            None,
            "nothing has changed since it was first known"
        );
        assert_eq!(heed(&mut heeded, Some(first.clone()), &second), Some(first), "the look has read it");
        assert_eq!(heed(&mut heeded, Some(third.clone()), &third), Some(second), "it was read before the look");
        assert_eq!(heed(&mut heeded, Some(third.clone()), &third), None);
    }
}
