//! The groups of this process as a server serves them to clients on other machines. A volume's layers run at the client, its limits
//! here, and so are its rights (`rights`).

use crate::rights::{Entry, Gate, Recognised};
use crate::{Call, Stack};
use base::{Error, FileLock, Holder, Ino, Kind, Name, Op, Result, SessionId, Volume};
use group::{Answer, Context, Groups, Kept, Position};
use runtime::net::ListenerId;
use runtime::{Buf, Runtime, tasks};
use std::sync::Arc;
use wire::codec::hello::{Caches, Caching, Hello, HelloOk, Join, Joined, Reason, Refused, VERSIONS};
use wire::codec::lock::Freed;
use wire::codec::session::{Changed, Held};
use wire::server::{Admission, Admitted, LEASE_NS, Server, Service};
use wire::tls::Credentials;

/// Gives the stack of a volume.
type StackOf = Box<dyn Fn(&base::Volume) -> Arc<Stack> + Send + Sync>;

/// Most opens of an inode, and most answers that named it, that a client may tell of: no kernel has as many.
const HELD_MAX: u64 = u32::MAX as u64;

/// Groups that are served.
pub struct Served {
    groups: Arc<Groups>,
    who: Box<str>,
    cluster: [u8; 16],
    stack_of: StackOf,
    /// None: all clients are of this machine.
    gate: Option<Arc<dyn Gate>>,
}

impl Served {
    /// The groups of a server of this name. `stack_of` gives a volume's stack, for its limits and its flow.
    pub fn new(
        groups: Arc<Groups>,
        who: &str,
        cluster: [u8; 16],
        stack_of: impl Fn(&base::Volume) -> Arc<Stack> + Send + Sync + 'static,
    ) -> Served {
        Served { groups, who: who.into(), cluster, stack_of: Box::new(stack_of), gate: None }
    }
    /// The same for clients of other machines, which come with certificates.
    pub fn behind(self, gate: Arc<dyn Gate>) -> Served {
        Served { gate: Some(gate), ..self }
    }
    /// Serves whoever connects. `known`: sessions from before the start, which have not told what they have open.
    ///
    /// Not generic: the server is compiled with this package, once, and not again with each program that has one.
    #[inline(never)]
    pub fn start(
        self,
        runtime: &Runtime,
        listener: ListenerId,
        credentials: Option<Credentials>,
        known: &[SessionId],
    ) -> Arc<Server<Served>> {
        Server::start(runtime, listener, credentials, Arc::new(self), known)
    }
    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }
    /// Refuses a session of another client.
    fn check_holder(&self, session: SessionId, client: &Name) -> Result<(), Refused> {
        let known = self.groups.network_sessions();
        match known.iter().find(|known| known.session == session) {
            Some(known) if known.holder.client != *client => {
                Err(refused(Reason::Rights, "the session is another client's: mount the volume again"))
            }
            _ => Ok(()),
        }
    }
    /// The volume of a session: the one that it asks for, and afterwards the same, whatever its name is by then.
    async fn volume_of(&self, session: SessionId, name: &Name) -> Result<Volume> {
        let known = self.groups.network_sessions().into_iter().find(|known| known.session == session);
        let Some(known) = known else { return self.groups.volume(name).await };
        let found = self.groups.volumes().await?.into_iter().find(|volume| volume.id == known.holder.volume);
        found.ok_or_else(|| Error::new(Kind::NotFound, "the volume was deleted: unmount it"))
    }
}

impl Service for Served {
    type Volume = Entry;
    type Client = Recognised;

    async fn recognise(&self, peer: Option<&[u8]>, hello: &Hello) -> Result<Recognised, Refused> {
        match (&self.gate, peer) {
            (None, _) => {
                let name = Name::new(hello.who.as_bytes()).map_err(|error| told(Reason::Protocol, &error))?;
                Ok(Recognised { name, rights: None })
            }
            (Some(gate), Some(peer)) => {
                let (gate, peer) = (gate.clone(), Box::<[u8]>::from(peer));
                let tasks = &self.groups.store().runtime.tasks;
                let client = tasks::run_blocking(&**tasks, move || gate.recognise(&peer)).await?;
                assert!(client.rights.is_some(), "a certificate has rights, not all of them");
                Ok(client)
            }
            (Some(_), None) => Err(refused(Reason::Stranger, "a client of another machine comes with a certificate")),
        }
    }
    async fn join(&self, join: &Join, peer: Option<&[u8]>) -> Result<Joined, Refused> {
        let Some(gate) = self.gate.clone() else {
            return Err(refused(Reason::Protocol, "a client of this machine needs no certificate"));
        };
        let (join, peer) = (join.clone(), peer.map(Box::<[u8]>::from));
        let tasks = &self.groups.store().runtime.tasks;
        tasks::run_blocking(&**tasks, move || gate.join(&join, peer.as_deref())).await
    }
    async fn admit(
        &self,
        session: SessionId,
        hello: &Hello,
        Recognised { name: client, rights }: Recognised,
    ) -> Result<Admission<Entry>, Refused> {
        let version = VERSIONS.common(hello.versions)?;
        let is_other = |cluster: &[u8; 16]| *cluster != self.cluster;
        if hello.cluster.as_ref().is_some_and(is_other) {
            return Err(refused(Reason::Cluster, "the client has joined another cluster than this server's"));
        }
        let Some(name) = &hello.volume else { return Err(refused(Reason::Volume, "a client asks for a volume")) };
        let volume = self.volume_of(session, name).await;
        // Who leads no more may not know which volumes there are.
        if !self.groups.leads() {
            return Err(refused(Reason::Busy, "another brick leads, or will"));
        }
        let volume = volume.map_err(|error| told(Reason::Volume, &error))?;
        let (read_only, squash_root) = match &rights {
            None => (hello.read_only, false),
            Some(rights) => {
                let right = rights.iter().find(|right| right.volume == volume.id).ok_or_else(|| {
                    let text = "this client may not mount this volume: a token for it, used on the same machine, gives it that right";
                    refused(Reason::Rights, text)
                })?;
                (hello.read_only || right.read_only, right.squash_root)
            }
        };
        self.check_holder(session, &client)?;
        match self.groups.claim(volume.id, session, false) {
            // It has just been mounted, or it is just being unmounted.
            None => return Err(refused(Reason::Busy, "a mount on the server itself does not share the volume yet")),
            Some(others) if others.is_empty() => {}
            Some(others) => return Ok(Admission::After(others)),
        }
        let holder = Holder { client, volume: volume.id, locks: false };
        let begun = self.groups.admit_session(session, &holder).await.map_err(|error| told(Reason::Busy, &error))?;
        let stack = (self.stack_of)(&volume);
        let welcome = HelloOk {
            version,
            features: 0,
            cluster: self.cluster,
            who: self.who.clone(),
            boot: begun.start,
            epoch: begun.term.0,
            lease_ms: (LEASE_NS / 1_000_000) as u32,
            volume: Some(volume),
            read_only,
            squash_root,
            caches: Caches { caching: Caching::Alone, number: 0 },
        };
        let flow = Some(Arc::new(stack.flow().sibling()));
        Ok(Admission::In(Admitted { welcome, flow, volume: Entry { stack, read_only, squash_root } }))
    }
    async fn is_current(&self, welcome: &HelloOk) -> bool {
        let Some(told) = &welcome.volume else { return true };
        let is_so = |volume: &Volume| volume.id != told.id || volume.layers == told.layers;
        // Without the catalogue nobody knows: requests will tell.
        self.groups.volumes().await.map_or(true, |volumes| volumes.iter().all(is_so))
    }
    async fn turn_away(&self, session: SessionId) {
        // What is not noted now is noted when the session has been silent for long.
        drop(self.groups.end_session(session).await);
    }
    fn may_ask(&self, session: SessionId) -> bool {
        self.groups.may_ask(session)
    }
    fn sleeps(&self, session: SessionId) {
        self.groups.sleeps(session);
    }
    fn shares(&self, session: SessionId) {
        self.groups.shares(session);
    }
    fn left_alone(&self) -> Vec<SessionId> {
        self.groups.left_alone()
    }
    fn leave_alone(&self, session: SessionId) -> bool {
        self.groups.leave_alone(session)
    }
    async fn freed(&self) -> Vec<(SessionId, Freed)> {
        self.groups.freed_locks().await
    }
    fn wanted(&self) -> Vec<SessionId> {
        self.groups.wanted_sessions().into_iter().collect()
    }
    fn reclaim_locks(&self, session: SessionId, locks: &[FileLock]) -> Vec<FileLock> {
        self.groups.reclaim_locks(session, locks)
    }
    async fn call(&self, entry: &Entry, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        entry.call(context, Call { op, data }).await
    }
    async fn reclaim(
        &self,
        session: SessionId,
        (held, changed): (&[Held], &[Changed]),
        is_first: bool,
        is_last: bool,
    ) -> Result<Vec<Ino>> {
        if held.iter().any(|held| held.opens > HELD_MAX || held.known > HELD_MAX) {
            return Err(Error::new(Kind::Invalid, "a client holds more than any kernel does"));
        }
        let kept = |held: &Held| Kept { ino: held.ino, opens: held.opens, told: held.known };
        let kept: Vec<_> = held.iter().map(kept).collect();
        self.groups.reclaim(session, &kept, is_first, is_last).await?;
        let is_lost = |changed: &&Changed| {
            let Changed { group, term, index, .. } = **changed;
            self.groups.is_lost(&Position { group, term, index, durable: false }, changed.start)
        };
        Ok(changed.iter().filter(is_lost).map(|changed| changed.ino).collect())
    }
    fn answered(&self, session: SessionId, done: u64) {
        self.groups.answered(session, done);
    }
    async fn end(&self, session: SessionId) -> Result<()> {
        self.groups.end_session(session).await
    }
}

fn refused(reason: Reason, text: &str) -> Refused {
    Refused { reason, text: text.into() }
}

fn told(reason: Reason, error: &Error) -> Refused {
    refused(reason, &error.to_string())
}
