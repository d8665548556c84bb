//! The servers of a cluster: how they join, and how they are known. Promises as `directory`, of
//! which this is the part for bricks: what was answered is durable, and who asks again gets that answer. Absent by design:
//! removing a server, which takes that its bricks hold nothing any more.

use crate::certificates::{self, Certificate, Hash, Identity, PublicKey};
use crate::directory::{Chain, Network, newest};
use crate::files::Files;
use crate::identity::{Bearer, ClientName, Uuid};
use crate::state::{SERVERS_MAX, Server, State};
use crate::tokens::{Address, Role, Secret};
use base::{Error, Kind, Result};
use std::collections::BTreeMap;

/// The statement of a server that joins about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerWish {
    /// Its brick.
    pub brick: Uuid,
    /// The name that it wants to have.
    pub name: ClientName,
    /// The address where it serves clients.
    pub clients: Address,
    /// The address where it listens for other bricks.
    pub peers: Address,
}

impl<F: Files> Network<F> {
    /// The servers that joined, by their bricks; the one that made the cluster joins like the others, before any other has a token.
    pub fn servers(&self) -> &BTreeMap<Uuid, Server> {
        &self.state.servers
    }
    /// Answers a server that joins. The token is used up durably before this returns; the same token, key and brick get the
    /// same certificate as long as the token lives, and may change name and addresses until then. A server that has joined
    /// already and comes with another token keeps its certificate. Errors: `NotFound`, `Permission` for a token that is
    /// unknown, revoked, expired, used or a client's; `Invalid` for a wrong request; `Exists` for a brick, name or address
    /// of another server; `NoSpace` for too many servers; those of writing.
    pub fn admit_server(&mut self, secret: &Secret, request: &[u8], wanted: &ServerWish, now_s: u64) -> Result<Chain> {
        // The secret first: strangers cost nothing but its hash.
        let at = self.state.find_token(secret, Role::Server, now_s)?;
        let public = certificates::read_request(request)?;
        let key = public.hash();
        self.state.refuse_revoked(&key, &wanted.name)?;
        let mut next = self.state.clone();
        let has_joined =
            next.servers.get(&wanted.brick).is_some_and(|server| newest(&server.certificates, &key).is_some());
        let asks_again = has_joined && next.tokens[at].used.iter().any(|it| it.key == key);
        if !asks_again {
            next.use_token(at, &wanted.name, key, now_s)?;
        }
        let certificate = next.join_server(wanted, &public, asks_again, now_s)?;
        if next != self.state {
            self.change(next)?;
        }
        Ok(self.chain(certificate))
    }
    /// The brick of a server, for who showed this identity in TLS. To be asked at each hello. Errors: `Permission` for a
    /// certificate of another cluster, outside of its time, of a client, or that this state does not know.
    pub fn check_server(&self, identity: &Identity, now_s: u64) -> Result<Uuid> {
        let refused = |what| Err(Error::new(Kind::Permission, what).with(&identity.subject));
        self.check_cluster(identity)?;
        identity.check_time(now_s)?;
        let Bearer::Brick(brick) = identity.subject.bearer else {
            return refused("this is the certificate of a client, not of a server: join with `sinter cluster join`");
        };
        let Some(server) = self.state.servers.get(&brick) else {
            return refused("the cluster does not know this server: join with `sinter cluster join` and a new token");
        };
        match server.certificates.iter().find(|it| it.serial == identity.serial) {
            Some(issued) if issued.revoked_s.is_none() => Ok(brick),
            Some(_) => refused("this server's certificate was revoked: join with another key and a new token"),
            None => {
                refused("the cluster does not know this certificate: join with `sinter cluster join` and a new token")
            }
        }
    }
}

impl State {
    /// Takes a server in, or what it says anew of itself; its certificate. One that asks again gets the one that it has.
    fn join_server(
        &mut self,
        wanted: &ServerWish,
        public: &PublicKey,
        asks_again: bool,
        now_s: u64,
    ) -> Result<Certificate> {
        let ServerWish { brick, name, clients, peers } = wanted.clone();
        let key = public.hash();
        self.check_brick(brick, &key)?;
        self.check_place(wanted)?;
        if !self.servers.contains_key(&brick) && self.servers.len() >= SERVERS_MAX {
            return Err(Error::new(Kind::NoSpace, "64 servers have joined: a cluster has no more"));
        }
        let before = self.servers.remove(&brick);
        let joined_s = before.as_ref().filter(|_| asks_again).map_or(now_s, |server| server.joined_s);
        let certificates = before.map_or(Vec::new(), |server| server.certificates);
        // Who asks again gets the answer that it had, also if that could be renewed by now.
        let had = newest(&certificates, &key).filter(|_| asks_again).map(|issued| issued.certificate.clone());
        self.servers.insert(brick, Server { name, clients, peers, joined_s, certificates });
        match had {
            Some(certificate) => Ok(certificate),
            None => self.certificate_for(&Bearer::Brick(brick), public, now_s),
        }
    }
    /// Refuses a brick that has another key, or a key that has another brick.
    fn check_brick(&self, brick: Uuid, key: &Hash) -> Result<()> {
        let refused = |what, other: Uuid| Err(Error::new(Kind::Exists, what).with(format_args!("brick {other}")));
        let has = |server: &Server| newest(&server.certificates, key).is_some();
        if let Some((&other, _)) = self.servers.iter().find(|(other, it)| **other != brick && has(it)) {
            let what = "this key has joined with another brick: join with that one, or remove the key's file to join with \
                        a new one";
            return refused(what, other);
        }
        if self.servers.get(&brick).is_some_and(|server| !has(server)) {
            let what = "a server with this brick has joined with another key: restore that server's key from a backup, or \
                        join with a new brick";
            return refused(what, brick);
        }
        Ok(())
    }
    /// Refuses a name or an address that another server has.
    fn check_place(&self, wanted: &ServerWish) -> Result<()> {
        for (_, other) in self.servers.iter().filter(|(brick, _)| **brick != wanted.brick) {
            let refused = |what, which: String| Err(Error::new(Kind::Exists, what).with(which));
            if other.name == wanted.name {
                return refused("another server has this name: choose another one", other.name.to_string());
            }
            let taken =
                [&wanted.clients, &wanted.peers].into_iter().find(|it| [&other.clients, &other.peers].contains(it));
            if let Some(taken) = taken {
                let what = "another server has this address: name one at which this machine listens itself";
                return refused(what, format!("{taken}, server {}", other.name));
            }
        }
        Ok(())
    }
}
