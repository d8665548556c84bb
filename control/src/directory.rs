//! The server's side: who may come, kept in one file of a directory of the brick. Promises that a change is durable before
//! its answer; that a token is used up before what it was used for is handed out; that who asks again because an answer
//! got lost gets that answer; that a file which can't be read is never replaced by a new one. Absent by design: time,
//! random numbers and sockets, which the caller has; names of volumes, which change.

use crate::certificates::{self, Certificate, Hash, Identity, Pair, PublicKey, Serial};
use crate::files::{Files, read_secret, replace};
use crate::identity::{Bearer, ClientName, Subject, Uuid};
use crate::state::{CLIENTS_MAX, TOKENS_MAX, USES_MAX};
use crate::state::{Client, FILE_BYTES_MAX, Invitation, Issued, Rights, State, Use};
use crate::tokens::{ADDRESSES_MAX, Address, Role, Secret, Token};
use base::{Error, Kind, Result};
use std::collections::BTreeMap;

/// The file's name.
pub const FILE: &str = "state";
/// Life of a client's token if nothing else was said, in seconds.
pub const TOKEN_LIFE_S: u64 = 24 * 60 * 60;
/// Longest life of a token: who sets up machines for longer makes another one.
pub const TOKEN_LIFE_S_MAX: u64 = 30 * 24 * 60 * 60;
/// Time for which a token that has expired is still listed.
const LISTED_S: u64 = 7 * 24 * 60 * 60;
/// Most certificates of a client or server that are kept. More than two take revocations; one that is forgotten is refused.
const CERTIFICATES_MAX: usize = 16;

/// The answer to who joins or renews: its certificate, and the CA that signed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The bearer's certificate.
    pub certificate: Certificate,
    /// The cluster's CA.
    pub ca: Certificate,
}

/// The properties of a token that is to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The part that its bearer may join as.
    pub role: Role,
    /// The rights that it gives.
    pub rights: Rights,
    /// Number of keys that may join with it: 1 to 1,024, 1 unless somebody said more.
    pub uses: u32,
    /// Its life in seconds, at most 30 days.
    pub life_s: u64,
}

/// The network side of a brick, open. Changes write the file before they return; one that fails has changed nothing that
/// was answered, and may be tried again.
pub struct Network<F> {
    pub(crate) files: F,
    pub(crate) state: State,
}

/// All that is known, which needs no files.
impl<F> Network<F> {
    /// The cluster's uuid.
    pub fn cluster(&self) -> Uuid {
        self.state.cluster
    }
    /// The brick's uuid.
    pub fn brick(&self) -> Uuid {
        self.state.brick
    }
    /// The CA's certificate. A server sends it after its own, so that who joins can find what the token pins.
    pub fn ca(&self) -> &Certificate {
        &self.state.ca.certificate
    }
    /// The server's certificate and key.
    pub fn server(&self) -> &Pair {
        &self.state.server
    }
    /// The tokens that are not forgotten, oldest first.
    pub fn tokens(&self) -> &[Invitation] {
        &self.state.tokens
    }
    /// The clients by name, also revoked ones.
    pub fn clients(&self) -> &BTreeMap<ClientName, Client> {
        &self.state.clients
    }
    /// A number that rises with each change that takes rights away or replaces them: who has asked for rights asks again
    /// once it differs.
    pub fn epoch(&self) -> u64 {
        self.state.epoch
    }
    /// The rights of a client. To be asked at each hello, and again when the epoch differs. Only certificates that this
    /// server knows count: one that its file has forgotten is refused like a revoked one. Errors: `Permission`.
    pub fn rights_of(&self, identity: &Identity, now_s: u64) -> Result<&Rights> {
        let refused = |what| Err(Error::new(Kind::Permission, what).with(&identity.subject));
        self.check_cluster(identity)?;
        identity.check_time(now_s)?;
        let (_, client) = self.state.client_of(identity)?;
        match client.certificates.iter().find(|it| it.serial == identity.serial) {
            Some(issued) if issued.revoked_s.is_none() => Ok(&client.rights),
            Some(_) => refused(
                "this client was revoked: if it is to come back, remove its key's file and join with a new token",
            ),
            None => refused("the server does not know this certificate: join again, with a new token"),
        }
    }
    /// Refuses a certificate of another cluster.
    pub(crate) fn check_cluster(&self, identity: &Identity) -> Result<()> {
        if identity.subject.cluster != self.state.cluster {
            let what = "this certificate is of another cluster: join this one, with a token of its own";
            return Err(Error::new(Kind::Permission, what).with(&identity.subject));
        }
        Ok(())
    }
    /// The same without its files: what is known at this time.
    pub fn known(&self) -> Network<()> {
        Network { files: (), state: self.state.clone() }
    }
}

impl<F: Files> Network<F> {
    /// Makes CA, server's certificate and file. Errors: `Exists` if there is one already, of whatever content; those of
    /// writing.
    pub fn create(files: F, cluster: Uuid, brick: Uuid, now_s: u64) -> Result<Network<F>> {
        if files.read(FILE, FILE_BYTES_MAX)?.is_some() {
            let what = "the brick has an identity for the network already: open it";
            return Err(Error::new(Kind::Exists, what).with(files.shown(FILE)));
        }
        let ca = certificates::make_ca(cluster, now_s)?;
        let key = certificates::Key::generate()?;
        let (public, subject) = (key.public()?, Subject { cluster, bearer: Bearer::Brick(brick) });
        let certificate = certificates::sign(&ca, &Serial::new(1, &public), &subject, &public, now_s)?;
        let server = Pair { certificate, key };
        let state = State {
            cluster,
            brick,
            epoch: 1,
            made: 1,
            ca,
            server,
            tokens: Vec::new(),
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
        };
        replace(&files, FILE, &state.encode())?;
        Ok(Network { files, state })
    }
    /// Opens the network side that `create` made for this brick. Errors: `NotFound`; `Permission` if others may read it;
    /// `Corrupt`, also for the file of another brick, and `Newer`, with the file's name and the next step.
    pub fn open(files: F, brick: Uuid) -> Result<Network<F>> {
        let foreign = |state: &State| {
            let what = "the file is of another brick";
            (state.brick != brick).then(|| Error::new(Kind::Corrupt, what).with(state.brick))
        };
        let Some(state) = read_state(&files, foreign)? else {
            let what = "the brick's identity for the network is missing: restore the file from a backup, or remove its \
                        directory to make a new one, which clients have to join again";
            return Err(Error::new(Kind::NotFound, what).with(files.shown(FILE)));
        };
        Ok(Network { files, state })
    }
    /// Opens the network side of a cluster, which another of its bricks may have made; None if there is no file. Errors: as
    /// `open`, and `Corrupt` for the file of another cluster.
    pub fn open_of_cluster(files: F, cluster: Uuid) -> Result<Option<Network<F>>> {
        let state = read_state(&files, |state| of_another(state, cluster))?;
        Ok(state.map(|state| Network { files, state }))
    }
    /// Takes what `encoded` gave on another server of this cluster: checks it, makes it the file, durably and over one that
    /// there is, and opens it. Errors: `Corrupt`, also for another cluster's; `Newer`; `Permission` for certificates that
    /// the CA in it did not sign; those of writing. After those of checking nothing was written.
    pub fn install(files: F, bytes: &[u8], cluster: Uuid) -> Result<Network<F>> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Error::new(Kind::Corrupt, "the cluster's keys and clients are more than a file may hold"));
        }
        let state = checked(bytes, |state| of_another(state, cluster))
            .map_err(|error| error.with("keys and clients of the cluster, from another of its servers"))?;
        replace(&files, FILE, bytes)?;
        Ok(Network { files, state })
    }
    /// The bytes of the file, for `install` on another server of the cluster. They hold the CA's key.
    pub fn encoded(&self) -> Vec<u8> {
        self.state.encode()
    }
    /// The same, whatever its files are.
    pub fn boxed(self) -> Network<Box<dyn Files + Send>>
    where
        F: Send + 'static,
    {
        Network { files: Box::new(self.files), state: self.state }
    }
    /// Renews the server's certificate if it is due, with the same key. True if there is another one now.
    pub fn renew_server(&mut self, now_s: u64) -> Result<bool> {
        let present = self.state.server.certificate.identity()?;
        if now_s < present.renewal_at_s() {
            return Ok(false);
        }
        let mut next = self.state.clone();
        let (subject, public) = (next.subject(), next.server.key.public()?);
        (_, next.server.certificate) = next.sign(&subject, &public, now_s)?;
        self.change(next).map(|()| true)
    }
    /// Makes a token of a server of this name and these addresses. `secret` is 128 bits of the kernel's random numbers. Errors:
    /// `Invalid` for a wish out of bounds, with rights for a server or without for a client; `NoSpace` if there are 1,024
    /// already; those of writing.
    pub fn create_token(
        &mut self,
        wish: Wish,
        secret: Secret,
        (name, addresses): (ClientName, Vec<Address>),
        now_s: u64,
    ) -> Result<Token> {
        let refused = |what| Err(Error::new(Kind::Invalid, what));
        if !(1..=USES_MAX).contains(&wish.uses) {
            return refused("a token has 1 to 1024 uses");
        }
        if !(1..=TOKEN_LIFE_S_MAX).contains(&wish.life_s) {
            return refused("a token lives for at most 30 days");
        }
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return refused("a token names 1 to 8 addresses of servers");
        }
        match (wish.role, wish.rights == Rights::none()) {
            (Role::Client, true) => return refused("a client's token names the volumes that it may mount: name them"),
            (Role::Server, false) => return refused("a server's token gives no right to a volume: leave volumes out"),
            (Role::Client, false) | (Role::Server, true) => {}
        }
        let mut next = self.state.clone();
        next.tokens.retain(|token| now_s < token.expires_s.saturating_add(LISTED_S));
        if next.tokens.len() >= TOKENS_MAX {
            let what = "there are 1024 tokens: make one with several uses; expired ones are forgotten after a week";
            return Err(Error::new(Kind::NoSpace, what));
        }
        let made = Invitation {
            secret: secret.hash(),
            role: wish.role,
            made_s: now_s,
            expires_s: now_s.saturating_add(wish.life_s),
            uses: wish.uses,
            revoked_s: None,
            rights: wish.rights,
            used: Vec::new(),
        };
        assert!(next.tokens.iter().all(|token| token.secret != made.secret), "random secrets differ");
        next.tokens.push(made);
        self.change(next)?;
        Ok(Token { cluster: self.cluster(), ca: self.ca().hash(), role: wish.role, secret, addresses, name })
    }
    /// Revokes a token by its id. Who joined with it stays. Errors: `NotFound`.
    pub fn revoke_token(&mut self, id: &str, now_s: u64) -> Result<()> {
        let mut next = self.state.clone();
        let Some(token) = next.tokens.iter_mut().find(|token| token.id() == id) else {
            let what = "there is no such token: `sinter token list` has those that there are";
            return Err(Error::new(Kind::NotFound, what).with(id.escape_debug()));
        };
        token.revoked_s = token.revoked_s.or(Some(now_s));
        self.change(next)
    }
    /// Answers who joins. The token is used up durably before this returns; the same token, key and name get the same
    /// answer as long as the token lives. Who has joined already and comes with another token keeps certificate and
    /// name, and gets that token's rights too. Errors: `NotFound`, `Permission` for a token that is unknown, revoked,
    /// expired, used or a server's; `Invalid` for a request or name that is wrong; `Exists` for a name of another machine;
    /// `NoSpace` for too many clients; those of writing.
    pub fn admit(&mut self, secret: &Secret, request: &[u8], name: &str, now_s: u64) -> Result<Chain> {
        // The secret first: strangers cost nothing but its hash.
        let at = self.state.find_token(secret, Role::Client, now_s)?;
        let public = certificates::read_request(request)?;
        let (name, key): (ClientName, Hash) = (name.parse()?, public.hash());
        self.state.refuse_revoked(&key, &name)?;
        if self.state.tokens[at].used.iter().any(|it| it.key == key)
            && let Some(issued) = self.state.clients.get(&name).and_then(|client| client.newest(&key))
        {
            return Ok(self.chain(issued.certificate.clone()));
        }
        let mut next = self.state.clone();
        next.use_token(at, &name, key, now_s)?;
        let rights = next.tokens[at].rights.clone();
        let certificate = next.join(&name, &public, rights, now_s)?;
        self.change(next)?;
        Ok(self.chain(certificate))
    }
    /// Renews the certificate of a client or of a server that joined, for who showed this identity in TLS. Before the present
    /// one is 60 days old, it is the answer. Errors: as `rights_of` and `check_server`; `Permission` for another key; those
    /// of writing.
    pub fn renew(&mut self, identity: &Identity, request: &[u8], now_s: u64) -> Result<Chain> {
        let public = certificates::read_request(request)?;
        let bearer = &identity.subject.bearer;
        match bearer {
            Bearer::Client(_) => self.rights_of(identity, now_s).map(drop)?,
            Bearer::Brick(_) => self.check_server(identity, now_s).map(drop)?,
        }
        let Some(issued) = self.state.certificates_of(bearer) else {
            let what = "nobody of this name has a certificate: join with a token";
            return Err(Error::new(Kind::Permission, what).with(&identity.subject));
        };
        if !issued.iter().any(|it| it.serial == identity.serial && it.key == public.hash()) {
            let what = "a certificate is renewed with the key that it has: for another key, join with a new token";
            return Err(Error::new(Kind::Permission, what).with(&identity.subject));
        }
        let mut next = self.state.clone();
        let certificate = next.certificate_for(bearer, &public, now_s)?;
        if next != self.state {
            self.change(next)?;
        }
        Ok(self.chain(certificate))
    }
    /// Revokes a client with all its certificates; the epoch rises. A machine with another key may take the name. Errors:
    /// `NotFound`.
    pub fn revoke_client(&mut self, name: &str, now_s: u64) -> Result<()> {
        let mut next = self.state.clone();
        let known = name.parse::<ClientName>().ok();
        let Some(client) = known.and_then(|name| next.clients.get_mut(&name)) else {
            let what = "there is no such client: `sinter client list` has those that there are";
            return Err(Error::new(Kind::NotFound, what).with(name.escape_debug()));
        };
        client.revoked_s = client.revoked_s.or(Some(now_s));
        for issued in &mut client.certificates {
            issued.revoked_s = issued.revoked_s.or(Some(now_s));
        }
        next.epoch += 1;
        self.change(next)
    }
    pub(crate) fn chain(&self, certificate: Certificate) -> Chain {
        Chain { certificate, ca: self.ca().clone() }
    }
    pub(crate) fn change(&mut self, next: State) -> Result<()> {
        assert!(next.epoch >= self.state.epoch && next.made >= self.state.made, "numbers rise");
        let bytes = next.encode();
        if bytes.len() > FILE_BYTES_MAX {
            let what = "there are more tokens, uses and grants than a file may hold: revoke clients that are gone, and make tokens \
                        for fewer volumes";
            return Err(Error::new(Kind::NoSpace, what).with(format_args!("{} bytes", bytes.len())));
        }
        replace(&self.files, FILE, &bytes)?;
        self.state = next;
        Ok(())
    }
}

impl Client {
    /// The last certificate of a key, unless it was revoked.
    fn newest(&self, key: &Hash) -> Option<&Issued> {
        newest(&self.certificates, key)
    }
}

/// The last certificate of a key, unless it was revoked.
pub(crate) fn newest<'a>(issued: &'a [Issued], key: &Hash) -> Option<&'a Issued> {
    issued.iter().rev().find(|it| it.key == *key && it.revoked_s.is_none())
}

/// The values of the file, which `foreign` finds nothing wrong with; None if there is none. Errors with the file's name and
/// the next step.
fn read_state(files: &dyn Files, foreign: impl Fn(&State) -> Option<Error>) -> Result<Option<State>> {
    let Some(bytes) = read_secret(files, FILE, FILE_BYTES_MAX)? else { return Ok(None) };
    let state = checked(&bytes, foreign).map_err(|error| match error.kind {
        Kind::Newer => error.with(files.shown(FILE)),
        _ => {
            let next =
                "restore it from a backup, or remove its directory to make a new one, which clients have to join again";
            error.with(files.shown(FILE)).with(next)
        }
    })?;
    Ok(Some(state))
}

fn checked(bytes: &[u8], foreign: impl Fn(&State) -> Option<Error>) -> Result<State> {
    let state = State::decode(bytes)?;
    foreign(&state).map_or(Ok(state), Err)
}

fn of_another(state: &State, cluster: Uuid) -> Option<Error> {
    let what = "the keys and clients are of another cluster";
    (state.cluster != cluster).then(|| Error::new(Kind::Corrupt, what).with(state.cluster))
}

/// Changes of the values, which `Network` makes durable.
impl State {
    /// The place of a token that may be used for this part, by its secret. Errors: as `Network::admit`.
    pub(crate) fn find_token(&self, secret: &Secret, role: Role, now_s: u64) -> Result<usize> {
        let hash = secret.hash();
        let Some(at) = self.tokens.iter().position(|token| token.secret == hash) else {
            let what = "the server does not know this token: it is another server's, or expired long ago; make a new one with \
                        `sinter token create` on this server";
            return Err(Error::new(Kind::NotFound, what));
        };
        let token = &self.tokens[at];
        let refused = |what| Err(Error::new(Kind::Permission, what).with(format_args!("token {}", token.id())));
        if token.role != role {
            return match token.role {
                Role::Client => refused("this token is for a client: use it with `sinter client join`"),
                Role::Server => refused("this token is for a server: use it with `sinter cluster join`"),
            };
        }
        if token.revoked_s.is_some() {
            return refused("this token was revoked: make a new one with `sinter token create` on the server");
        }
        if now_s >= token.expires_s {
            return refused("this token has expired: make a new one with `sinter token create` on the server");
        }
        Ok(at)
    }
    /// Refuses a key of which a certificate was revoked: it never comes back, under no name.
    pub(crate) fn refuse_revoked(&self, key: &Hash, name: &ClientName) -> Result<()> {
        let of_clients = self.clients.values().flat_map(|client| &client.certificates);
        let mut issued = of_clients.chain(self.servers.values().flat_map(|server| &server.certificates));
        if issued.any(|it| it.key == *key && it.revoked_s.is_some()) {
            let what =
                "this key was revoked: remove its file on the machine that joins, and join again with a new token";
            return Err(Error::new(Kind::Permission, what).with(name));
        }
        Ok(())
    }
    pub(crate) fn use_token(&mut self, at: usize, name: &ClientName, key: Hash, now_s: u64) -> Result<()> {
        let token = &mut self.tokens[at];
        if token.used.len() >= token.uses as usize {
            let what = "this token was used already: make a new one with `sinter token create` on the server; if you have not \
                        used it, revoke who did with `sinter client revoke`";
            let users: Vec<String> = token.used.iter().take(3).map(|it| it.name.to_string()).collect();
            let id = token.id();
            return Err(Error::new(Kind::Permission, what).with(format!("token {id}, used by {}", users.join(", "))));
        }
        token.used.push(Use { name: name.clone(), key, at_s: now_s });
        Ok(())
    }
    /// Takes a client in, or gives one that is known by its key more rights; its certificate.
    fn join(&mut self, name: &ClientName, public: &PublicKey, rights: Rights, now_s: u64) -> Result<Certificate> {
        let key = public.hash();
        if let Some((other, _)) = self.clients.iter().find(|(other, it)| *other != name && it.newest(&key).is_some()) {
            let what = "this machine has joined under another name: use that one";
            return Err(Error::new(Kind::Exists, what).with(other));
        }
        if !self.clients.contains_key(name) {
            self.clients
                .retain(|_, it| it.revoked_s.is_none() || it.certificates.iter().any(|it| now_s <= it.not_after_s));
            if self.clients.len() >= CLIENTS_MAX {
                return Err(Error::new(Kind::NoSpace, "there are 4096 clients: revoke those that are gone for good"));
            }
        }
        let fresh = || Client { joined_s: now_s, revoked_s: None, rights: rights.clone(), certificates: Vec::new() };
        let client = self.clients.entry(name.clone()).or_insert_with(fresh);
        if client.revoked_s.is_some() {
            // The name begins anew; what the old key was given is refused for ever.
            *client = Client { certificates: std::mem::take(&mut client.certificates), ..fresh() };
        } else if client.newest(&key).is_some() {
            let both = client.rights.and(&rights)?;
            if both != client.rights {
                (client.rights, self.epoch) = (both, self.epoch + 1);
            }
        } else if !client.certificates.is_empty() {
            let what = "another machine has this name: choose another one, or if that machine is gone or has lost its key, \
                        revoke it with `sinter client revoke` on the server";
            return Err(Error::new(Kind::Exists, what).with(name));
        }
        client.joined_s = now_s;
        self.certificate_for(&Bearer::Client(name.clone()), public, now_s)
    }
    /// The certificates that were given to a client or to a server that joined; None if it is not known.
    fn certificates_of(&self, bearer: &Bearer) -> Option<&Vec<Issued>> {
        match bearer {
            Bearer::Client(name) => self.clients.get(name).map(|client| &client.certificates),
            Bearer::Brick(brick) => self.servers.get(brick).map(|server| &server.certificates),
        }
    }
    fn certificates_of_mut(&mut self, bearer: &Bearer) -> Option<&mut Vec<Issued>> {
        match bearer {
            Bearer::Client(name) => self.clients.get_mut(name).map(|client| &mut client.certificates),
            Bearer::Brick(brick) => self.servers.get_mut(brick).map(|server| &mut server.certificates),
        }
    }
    /// The present certificate of a bearer's key, or a new one if there is none or it is due for renewal.
    pub(crate) fn certificate_for(&mut self, bearer: &Bearer, public: &PublicKey, now_s: u64) -> Result<Certificate> {
        let key = public.hash();
        if let Some(issued) = self.certificates_of(bearer).and_then(|issued| newest(issued, &key))
            && now_s < issued.certificate.identity()?.renewal_at_s()
        {
            return Ok(issued.certificate.clone());
        }
        let subject = Subject { cluster: self.cluster, bearer: bearer.clone() };
        let (identity, certificate) = self.sign(&subject, public, now_s)?;
        let Identity { serial, not_after_s, .. } = identity;
        let issued = self.certificates_of_mut(bearer).expect("the caller has put it there");
        issued.retain(|it| now_s <= it.not_after_s);
        if issued.len() >= CERTIFICATES_MAX {
            issued.remove(0);
        }
        issued.push(Issued { serial, key, not_after_s, revoked_s: None, certificate: certificate.clone() });
        Ok(certificate)
    }
    fn sign(&mut self, subject: &Subject, public: &PublicKey, now_s: u64) -> Result<(Identity, Certificate)> {
        self.made += 1;
        let certificate = certificates::sign(&self.ca, &Serial::new(self.made, public), subject, public, now_s)?;
        // What is handed out is what will be read back at each hello.
        let identity = certificate.identity()?;
        assert!(
            identity.subject == *subject && identity.not_after_s > now_s,
            "a certificate says what it was made for"
        );
        Ok((identity, certificate))
    }
    /// The record of a client's identity.
    fn client_of(&self, identity: &Identity) -> Result<(&ClientName, &Client)> {
        let refused = |what| Error::new(Kind::Permission, what).with(&identity.subject);
        let Bearer::Client(name) = &identity.subject.bearer else {
            return Err(refused("this is the certificate of a brick, not of a client: join as a client, with a token"));
        };
        self.clients
            .get_key_value(name)
            .ok_or_else(|| refused("the server does not know this client: join again, with a new token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Found;
    use crate::state::Grant;
    use base::ids::VolumeId;

    /// A directory that takes everything and has nothing.
    struct Nowhere;
    impl Files for Nowhere {
        fn read(&self, _: &str, _: usize) -> Result<Option<Found>> {
            Ok(None)
        }
        fn write(&self, _: &str, bytes: &[u8]) -> Result<()> {
            assert!(bytes.len() <= FILE_BYTES_MAX, "it could not be read again");
            Ok(())
        }
        fn flush(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn rename(&self, _: &str, _: &str) -> Result<()> {
            Ok(())
        }
        fn sync_names(&self) -> Result<()> {
            Ok(())
        }
        fn shown(&self, name: &str) -> String {
            name.to_string()
        }
    }

    const NOW_S: u64 = 1_800_000_000;

    fn network() -> Network<Nowhere> {
        Network::create(Nowhere, Uuid([1; 16]), Uuid([2; 16]), NOW_S).expect("nothing there")
    }

    #[test]
    fn no_file_is_written_that_could_not_be_read() {
        let mut network = network();
        let grant = |volume| Grant { volume: VolumeId(volume), read_only: false, root_squash: false };
        let rights = Rights::new((0..256).map(grant)).expect("256 are allowed");
        let wish = Wish { role: Role::Client, rights, uses: 1024, life_s: TOKEN_LIFE_S };
        let place = ("store".parse().expect("a name"), vec!["a:1".parse().expect("an address")]);
        let make = |network: &mut Network<Nowhere>, byte| {
            network.create_token(wish.clone(), Secret([byte; 16]), place.clone(), NOW_S).map(drop)
        };
        make(&mut network, 1).expect("room");
        let used = Use { name: "c1".parse().expect("a name"), key: Hash([0; 32]), at_s: NOW_S };
        network.state.tokens[0].used = vec![used; 1024];
        let full = network.state.tokens[0].clone();
        network.state.tokens.extend((0..400).map(|_| full.clone()));
        let error = make(&mut network, 2).expect_err("too large");
        assert_eq!((error.kind, network.tokens().len()), (Kind::NoSpace, 401));
    }

    #[test]
    fn all_clients_fit() {
        let mut network = network();
        let key = certificates::Key::generate().expect("random numbers");
        let grant = Grant { volume: VolumeId(1), read_only: false, root_squash: false };
        let rights = Rights::new([grant]).expect("one");
        let (name, public): (ClientName, _) = ("c".repeat(64).parse().expect("a name"), key.public().expect("whole"));
        network.state.join(&name, &public, rights, NOW_S).expect("room");
        let client = network.state.clients[&name].clone();
        for number in 1..CLIENTS_MAX {
            network.state.clients.insert(format!("c{number}").parse().expect("a name"), client.clone());
        }
        let bytes = network.state.encode().len();
        assert!((4 << 20..8 << 20).contains(&bytes), "docs tell {bytes}");
        network.change(network.state.clone()).expect("room");
        let key = certificates::Key::generate().expect("random numbers").public().expect("whole");
        let more = network.state.join(&"more".parse().expect("a name"), &key, client.rights, NOW_S);
        assert_eq!(more.expect_err("one too many").kind, Kind::NoSpace);
    }
}
