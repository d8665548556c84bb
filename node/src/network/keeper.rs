//! The keeper of certificates and rights of a brick that listens: `control::Network`, as connections ask it.

use base::{Error, Holder, Kind, Name, Result, SessionId};
use control::{Bearer, Certificate, Chain, Grant, Held, Identity, Network, Secret};
use group::Groups;
use layer::{Gate, Recognised, Right, Served};
use runtime::Runtime;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use wire::codec::TEXT_BYTES_MAX;
use wire::codec::hello::{Join, Joined, Reason, Refused};
use wire::server::Server;
use wire::tls::{Credentials, Encryption, Identity as Bearing, Strangers};

/// The keeper; see the module.
pub struct Keeper {
    network: Mutex<Network<Held>>,
    runtime: Runtime,
    groups: Arc<Groups>,
    server: OnceLock<Weak<Server<Served>>>,
    encryption: Encryption,
}

/// The sessions of clients of other machines whose holder `is_meant` picks.
pub fn sessions_of(groups: &Groups, is_meant: impl Fn(&Holder) -> bool) -> Vec<SessionId> {
    let meant = groups.network_sessions().into_iter().filter(|known| is_meant(&known.holder));
    meant.map(|known| known.session).collect()
}

/// The time in seconds since 1970.
pub fn now_s(runtime: &Runtime) -> u64 {
    u64::try_from(runtime.clock.wall().parts().0).unwrap_or_default()
}

impl Keeper {
    /// The keeper of an identity, whose certificate is renewed if it is time. Errors: those of renewing.
    pub fn new(
        mut network: Network<Held>,
        runtime: &Runtime,
        groups: &Arc<Groups>,
        encryption: Encryption,
    ) -> Result<Keeper> {
        network.renew_server(now_s(runtime))?;
        let (runtime, groups) = (runtime.clone(), groups.clone());
        Ok(Keeper { network: Mutex::new(network), runtime, groups, server: OnceLock::new(), encryption })
    }
    /// The wish for what goes over the network.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }
    /// Knows the server, to hang up when rights change.
    pub fn serve(&self, server: &Arc<Server<Served>>) {
        let was_new = self.server.set(Arc::downgrade(server)).is_ok();
        assert!(was_new, "a keeper has one server");
    }
    /// The credentials of the server's connections.
    pub fn credentials(&self) -> Result<Credentials> {
        let (bearing, ca) = self.read(|network| {
            let (pair, ca) = (network.server(), &network.ca().0);
            // Who joins finds there what the token pins.
            let chain = vec![pair.certificate.0.clone().into(), ca.clone().into()];
            (Bearing { chain, key: pair.key.0.clone().into() }, ca.clone())
        });
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
    /// Reads what is kept.
    pub fn read<T>(&self, read: impl FnOnce(&Network<Held>) -> T) -> T {
        read(&self.network.lock().expect("no panic while held"))
    }
    /// Changes what is kept, durably. Blocks.
    pub fn change<T>(&self, change: impl FnOnce(&mut Network<Held>, u64) -> Result<T>) -> Result<T> {
        change(&mut self.network.lock().expect("no panic while held"), now_s(&self.runtime))
    }
    /// Admits who has a token, or renews; true if rights have changed.
    fn chain(&self, join: &Join, peer: Option<&Identity>) -> Result<(Chain, bool)> {
        let refused = |what| Err(Error::new(Kind::Permission, what));
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
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return };
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
        })?;
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
        Ok(Joined { chain: vec![chain.certificate.0.into(), chain.ca.0.into()], about: [].into() })
    }
}

/// An error as a client is told of it.
fn told(reason: Reason, error: &Error) -> Refused {
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    Refused { reason, text: text.into() }
}
