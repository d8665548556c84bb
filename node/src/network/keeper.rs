//! The keeper of certificates and rights of a brick that listens: `control::Network`, as connections ask it. A brick that is alone has
//! them in its directory; one of a cluster has what the cluster replicates (`replicated`), while it leads.

use super::replicated::Replicated;
use crate::cluster::Badge;
use base::{Error, Holder, Kind, Name, Result, SessionId};
use control::{Bearer, Certificate, Chain, Files, Grant, Held, Identity, Network, Secret};
use group::{Groups, Scope};
use layer::{Gate, Recognised, Right, Served, Tenures};
use runtime::Runtime;
use std::sync::{Arc, Mutex, Weak};
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
    server: Mutex<Weak<Server<Served>>>,
    encryption: Encryption,
    /// The brick's own certificate in its cluster; None of a brick that is alone.
    badge: Option<Arc<Badge>>,
}

/// The sessions of clients of other machines whose holder `is_meant` picks.
pub fn sessions_of(groups: &Groups, is_meant: impl Fn(&Holder) -> bool) -> Vec<SessionId> {
    let meant = groups.network_sessions(Scope::All).into_iter().filter(|known| is_meant(&known.holder));
    meant.map(|known| known.session).collect()
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
        let (runtime, groups, server) = (runtime.clone(), groups.clone(), Mutex::default());
        let known = Mutex::new(Some(Arc::new(network.known())));
        Ok(Keeper { network: Mutex::new(Some(network)), known, runtime, groups, server, encryption, badge: None })
    }
    /// The keeper of a brick of a cluster, which knows nothing until it leads.
    pub fn of_cluster(runtime: &Runtime, groups: &Arc<Groups>, badge: &Arc<Badge>) -> Keeper {
        let (runtime, groups, badge) = (runtime.clone(), groups.clone(), Some(badge.clone()));
        let (network, known, server) = (Mutex::default(), Mutex::default(), Mutex::default());
        Keeper { network, known, runtime, groups, server, encryption: Encryption::On, badge }
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
    /// Ends the connections of a client, which comes again and gets its new rights.
    fn hang_up(&self, client: &[u8]) {
        let Some(server) = self.server.lock().expect("no panic while held").upgrade() else { return };
        let sessions = sessions_of(&self.groups, |holder| holder.client.as_bytes() == client);
        sessions.into_iter().for_each(|session| server.hang_up(session));
    }
}

impl Gate for Keeper {
    fn recognise(&self, certificate: &[u8]) -> std::result::Result<Recognised, Refused> {
        let identity = Certificate(certificate.to_vec()).identity().map_err(|error| told(Reason::Stranger, &error))?;
        let now_s = now_s(&self.runtime);
        let rights = self.read(|network| {
            let is_ours = identity.subject.cluster == network.cluster();
            let reason = if is_ours { Reason::Revoked } else { Reason::Cluster };
            network.rights_of(&identity, now_s).cloned().map_err(|error| told(reason, &error))
        });
        let rights = rights.map_err(|error| told(Reason::Busy, &error))??;
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
    fn begin(&self) -> Result<Credentials> {
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
    fn serves(&self, server: &Arc<Server<Served>>) {
        *self.server.lock().expect("no panic while held") = Arc::downgrade(server);
    }
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
