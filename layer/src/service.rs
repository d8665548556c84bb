//! The groups of this process as a server serves them to clients on other machines. A volume's layers run at the client, its limits
//! here, and so are its rights (`rights`).

use crate::rights::{Entry, Gate, Recognised};
use crate::{Call, Stack};
use base::{Error, FileLock, GroupId, Holder, Ino, Kind, Name, Op, Result, SessionId, Volume};
use group::{Answer, CATALOGUE, Context, Groups, Kept, Position, Scope};
use runtime::net::ListenerId;
use runtime::{Buf, Runtime, tasks};
use std::sync::Arc;
use wire::codec::hello::{Caches, Caching, Hello, HelloOk, Join, Joined, Reason, Refused, SEVERAL_GROUPS, VERSIONS};
use wire::codec::lock::Freed;
use wire::codec::session::{Changed, Held};
use wire::server::{Admission, Admitted, LEASE_NS, Server, Service};
use wire::tls::Credentials;

/// Gives the stack of a volume.
type StackOf = Arc<dyn Fn(&base::Volume) -> Arc<Stack> + Send + Sync>;

/// Most opens of an inode, and most answers that named it, that a client may tell of: no kernel has as many.
const HELD_MAX: u64 = u32::MAX as u64;

/// Groups that are served: all that a brick has alone, or one of those that several bricks have.
#[derive(Clone)]
pub struct Served {
    groups: Arc<Groups>,
    scope: Scope,
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
        let scope = groups.scope_of(CATALOGUE);
        Served { groups, scope, who: who.into(), cluster, stack_of: Arc::new(stack_of), gate: None }
    }
    /// The same for clients of other machines, which come with certificates.
    pub fn behind(self, gate: Arc<dyn Gate>) -> Served {
        Served { gate: Some(gate), ..self }
    }
    /// The same for one of the groups that several bricks have.
    pub(crate) fn of(&self, group: GroupId) -> Served {
        Served { scope: self.groups.scope_of(group), ..self.clone() }
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
        let known = self.groups.network_sessions(self.scope);
        match known.iter().find(|known| known.session == session) {
            Some(known) if known.holder.client != *client => {
                Err(refused(Reason::Rights, "the session is another client's: mount the volume again"))
            }
            _ => Ok(()),
        }
    }
    /// The volume of a session: the one that it asks for, and afterwards the same, whatever its name is by then.
    async fn volume_of(&self, session: SessionId, name: &Name) -> Result<Volume> {
        let known = self.groups.network_sessions(self.scope).into_iter().find(|known| known.session == session);
        let Some(known) = known else { return self.groups.volume(name).await };
        let found = self.groups.volumes().await?.into_iter().find(|volume| volume.id == known.holder.volume);
        found.ok_or_else(|| Error::new(Kind::NotFound, "the volume was deleted: unmount it"))
    }
    /// True while nobody else can lead what is served here.
    fn leads(&self) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::One(group) => self.groups.leads(group),
        }
    }
    /// The refusal of a client for what is wrong with its volume. Who does not lead the catalogue learns of volumes a moment later: then its
    /// client comes again.
    fn no_volume(&self, error: &Error) -> Refused {
        let may_come = self.scope != self.groups.scope_of(CATALOGUE);
        told(if may_come { Reason::Busy } else { Reason::Volume }, error)
    }
    /// Number of the groups with which a client needs a session each.
    fn sessions_needed(&self) -> u32 {
        if self.groups.is_replicated() { self.groups.numbers().count() as u32 } else { 1 }
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
        let groups = self.sessions_needed();
        if groups > 1 && hello.features & SEVERAL_GROUPS == 0 {
            let text = "this volume has several servers, which the client is too old to know: upgrade the client";
            return Err(refused(Reason::Version, text));
        }
        let volume = self.volume_of(session, name).await;
        // Who leads no more may not know which volumes there are.
        if !self.leads() {
            return Err(refused(Reason::Busy, "another brick leads, or will"));
        }
        let volume = volume.map_err(|error| self.no_volume(&error))?;
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
        match self.groups.claim(self.scope, volume.id, session, false) {
            // It has just been mounted, or it is just being unmounted.
            None => return Err(refused(Reason::Busy, "a mount on the server itself does not share the volume yet")),
            Some(others) if others.is_empty() => {}
            Some(others) => return Ok(Admission::After(others)),
        }
        let holder = Holder { client, volume: volume.id, locks: false };
        let begun = self.groups.admit_session(self.scope, session, &holder).await;
        let begun = begun.map_err(|error| told(Reason::Busy, &error))?;
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
            groups,
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
        drop(self.groups.end_session(self.scope, session).await);
    }
    fn may_ask(&self, session: SessionId) -> bool {
        self.groups.may_ask(self.scope, session)
    }
    fn sleeps(&self, session: SessionId) {
        self.groups.sleeps(self.scope, session);
    }
    fn shares(&self, session: SessionId) {
        self.groups.shares(self.scope, session);
    }
    fn left_alone(&self) -> Vec<SessionId> {
        self.groups.left_alone(self.scope)
    }
    fn leave_alone(&self, session: SessionId) -> bool {
        self.groups.leave_alone(self.scope, session)
    }
    async fn freed(&self) -> Vec<(SessionId, Freed)> {
        self.groups.freed_locks(self.scope).await
    }
    fn wanted(&self) -> Vec<SessionId> {
        self.groups.wanted_sessions(self.scope).into_iter().collect()
    }
    fn reclaim_locks(&self, session: SessionId, locks: &[FileLock]) -> Vec<FileLock> {
        self.groups.reclaim_locks(self.scope, session, locks)
    }
    async fn call(&self, entry: &Entry, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        // What the client has in other groups is counted by their servers.
        if let Scope::One(group) = self.scope
            && op.home().is_some_and(|ino| ino.group() != group)
        {
            return Err(Error::new(Kind::Stale, "another server has the group of this inode"));
        }
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
        self.groups.reclaim(self.scope, session, &kept, (is_first, is_last)).await?;
        let is_lost = |changed: &&Changed| {
            let Changed { group, term, index, .. } = **changed;
            self.groups.is_lost(&Position { group, term, index, durable: false }, changed.start)
        };
        Ok(changed.iter().filter(is_lost).map(|changed| changed.ino).collect())
    }
    fn answered(&self, session: SessionId, done: u64) {
        self.groups.answered(self.scope, session, done);
    }
    async fn end(&self, session: SessionId) -> Result<()> {
        self.groups.end_session(self.scope, session).await
    }
}

fn refused(reason: Reason, text: &str) -> Refused {
    Refused { reason, text: text.into() }
}

fn told(reason: Reason, error: &Error) -> Refused {
    refused(reason, &error.to_string())
}
