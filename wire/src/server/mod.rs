//! The side of a brick's process: takes connections (`door`), and answers the requests of sessions.
//!
//! Promises: a request has one effect, however often it is delivered and over whichever connection (with the results that the brick
//! keeps, rule R1); a peer that speaks nonsense, says nothing, or never reads its replies costs bounded memory and nobody else's
//! time. Absent by design: what an operation does, and who has which rights (`Service` says both).

mod door;
mod lateness;
mod sessions;

pub use door::Door;

use crate::codec::Body;
use crate::codec::hello::{Caches, Caching, Hello, HelloOk, Join, Joined, Reason, Refused};
use crate::codec::lock::Freed;
use crate::codec::reply::{Stages, Told};
use crate::codec::session::{Changed, Held, Pulse, PulseOk, Recall, RecallDone, Reclaim, ReclaimDone, Refusal};
use crate::codec::{op, reply};
use crate::credit::{Credit, bytes_of};
use crate::lane::{Came, Cipher, Lane, Reader};
use crate::tls::Credentials;
use crate::{Answer, Context, FrameKind, Header};
use base::limits::SESSION_OPEN_MAX;
use base::{FileLock, GroupId, Ino, Kind, Op, Result, SessionId, Term, VolumeId};
use runtime::ledger::Rows;
use runtime::net::ListenerId;
use runtime::seeded::{Bug, active};
use runtime::tasks::{Flow, Local, either};
use runtime::{Buf, Event, Runtime, Slice, Span, Stage, Subject};
use sessions::{Begin, Session, Sessions};
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Time without a sign of life after which a session may be ended if somebody wants what it has. Clients give a pulse each second.
pub const LEASE_NS: u64 = 10_000_000_000;
/// The server's clock and a client's may differ in speed by less than this part of a lease.
const LEASE_OVER_NS: u64 = LEASE_NS / 10 * 11;
/// Time after which a session that nobody has heard of ends in any case.
const COURTESY_NS: u64 = 600_000_000_000;
/// Interval at which a session is asked again to let go of its caches.
const RECALL_NS: u64 = 100_000_000;
/// Interval at which sessions are looked at.
const LOOK_NS: u64 = 1_000_000_000;
/// Longest time for which the end of a server waits for requests that are under way.
const LAST_REQUESTS_NS: u64 = 10_000_000_000;

/// A client that was let in.
pub struct Admitted<V> {
    /// The welcome.
    pub welcome: HelloOk,
    /// The flow of its requests.
    pub flow: Option<Arc<Flow>>,
    /// The target of its operations.
    pub volume: V,
}

/// The answer to a session that wants a volume.
pub enum Admission<V> {
    /// It has it.
    In(Admitted<V>),
    /// It has it once these sessions have told what they have, and their kernels have let go of what they may not cache beside it.
    After(Vec<SessionId>),
}

/// The brick behind a server.
pub trait Service: Send + Sync + 'static {
    /// The target of a session's operations.
    type Volume: Clone + Send + 'static;
    /// A client, as its certificate tells of it.
    type Client: Clone;

    /// Knows a client by its certificate in DER, or says why it may not come; None on one machine, where there are none.
    fn recognise(&self, peer: Option<&[u8]>, hello: &Hello) -> impl Future<Output = Result<Self::Client, Refused>>;
    /// Lets a client's session in, or says why not. A session that is let in again is the same one.
    fn admit(
        &self,
        session: SessionId,
        hello: &Hello,
        client: Self::Client,
    ) -> impl Future<Output = Result<Admission<Self::Volume>, Refused>>;
    /// True if a welcome tells the volume as it still is. By default volumes don't change.
    fn is_current(&self, _welcome: &HelloOk) -> impl Future<Output = bool> {
        ready(true)
    }
    /// Gives a certificate to a machine that has a token, or, without a token, to a client whose certificate in DER is `peer`.
    fn join(&self, join: &Join, peer: Option<&[u8]>) -> impl Future<Output = Result<Joined, Refused>>;
    /// Performs an operation of a session's volume.
    fn call(
        &self,
        volume: &Self::Volume,
        context: &Context,
        op: Op,
        data: Option<Buf>,
    ) -> impl Future<Output = Result<Answer>>;
    /// Takes in a part of what a session from before the start has open and knows, and of the changes that it was told of. The inodes
    /// whose change is lost.
    fn reclaim(
        &self,
        session: SessionId,
        told: (&[Held], &[Changed]),
        is_first: bool,
        is_last: bool,
    ) -> impl Future<Output = Result<Vec<Ino>>>;
    /// Lets go of results of a session's requests below `done`.
    fn answered(&self, session: SessionId, done: u64);
    /// Ends a session, none of whose requests is under way.
    fn end(&self, session: SessionId) -> impl Future<Output = Result<()>>;
    /// Forgets a session that was not let in. This and what follows is by default that of a brick whose sessions share nothing.
    fn turn_away(&self, _session: SessionId) -> impl Future<Output = ()> {
        ready(())
    }
    /// True if no other session's kernel may still cache what this one changes, as those of before a start may for a lease.
    fn may_ask(&self, _session: SessionId) -> bool {
        true
    }
    /// Notes that the session's client is silent, and comes back by `admit`: until then others need not share with it.
    fn sleeps(&self, _session: SessionId) {}
    /// Notes that the session's kernel caches nothing that another session may change.
    fn shares(&self, _session: SessionId) {}
    /// The sessions that share a volume with nobody any more.
    fn left_alone(&self) -> Vec<SessionId> {
        Vec::new()
    }
    /// Notes that a session may cache all. False, and nothing is noted, if it shares its volume with others that are awake.
    fn leave_alone(&self, _session: SessionId) -> bool {
        true
    }
    /// Waits for locks that can be had: each with the session that waits for it.
    fn freed(&self) -> impl Future<Output = Vec<(SessionId, Freed)>> {
        pending()
    }
    /// The sessions whose locks were wanted since the last call.
    fn wanted(&self) -> Vec<SessionId> {
        Vec::new()
    }
    /// Gives a session back the locks that it had before the start. Those that somebody else has by now.
    fn reclaim_locks(&self, _session: SessionId, _locks: &[FileLock]) -> Vec<FileLock> {
        Vec::new()
    }
}

/// A server: of all groups, or of one, by which its clients ask for it.
pub struct Server<S> {
    runtime: Runtime,
    service: Arc<S>,
    /// The place where its clients come in.
    door: Arc<Door<S>>,
    group: GroupId,
    /// True if the door has no other server.
    has_door: bool,
    sessions: Sessions,
    /// The rows of the ledger, if it distinguishes operations.
    rows: Option<Rows>,
    is_stopping: AtomicBool,
    stopped: Event,
    /// Number of tasks that use the service beside requests, and when one of them has ended.
    busy: AtomicUsize,
    rested: Event,
    /// Notified when a session has let go of its caches.
    let_go: Event,
}

/// A task that uses the service, other than a request.
struct Busy<S: Service>(Arc<Server<S>>);

impl<S: Service> Busy<S> {
    fn new(server: &Arc<Server<S>>) -> Busy<S> {
        server.busy.fetch_add(1, Ordering::AcqRel);
        Busy(server.clone())
    }
}

impl<S: Service> Drop for Busy<S> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
        self.0.rested.notify();
    }
}

impl<S: Service> Server<S> {
    /// Serves whoever connects, as the only server behind a door of its own. `known`: sessions from before the start, which have not told what
    /// they have open.
    pub fn start(
        runtime: &Runtime,
        listener: ListenerId,
        credentials: Option<Credentials>,
        service: Arc<S>,
        known: &[SessionId],
    ) -> Arc<Server<S>> {
        let door = Door::open(runtime, listener, credentials);
        let server = Server::new(&door, GroupId(0), service, known, true);
        door.let_in(&server);
        server
    }
    /// Serves those who come through a door and ask for a group. `known`: as for `start`.
    pub fn behind(door: &Arc<Door<S>>, group: GroupId, service: Arc<S>, known: &[SessionId]) -> Arc<Server<S>> {
        let server = Server::new(door, group, service, known, false);
        door.let_in(&server);
        server
    }
    fn new(
        door: &Arc<Door<S>>,
        group: GroupId,
        service: Arc<S>,
        known: &[SessionId],
        has_door: bool,
    ) -> Arc<Server<S>> {
        let runtime = door.runtime();
        let server = Arc::new(Server {
            runtime: runtime.clone(),
            service,
            door: door.clone(),
            group,
            has_door,
            sessions: Sessions::known(known, runtime.clock.now_ns()),
            rows: Rows::known(&runtime.ledger),
            is_stopping: AtomicBool::new(false),
            stopped: Event::new(),
            busy: AtomicUsize::new(0),
            rested: Event::new(),
            let_go: Event::new(),
        });
        let there = Busy::new(&server);
        runtime.spawn(0, move || look(there));
        let there = Busy::new(&server);
        runtime.spawn(0, move || tell_freed(there));
        server
    }
    /// Lets nobody in any more.
    pub fn leave(&self) {
        self.door.turn_away(self.group);
    }
    /// Serves nobody any more; returns once nothing uses the service, or after ten seconds. Sessions go on at the next start.
    pub async fn stop(&self) {
        self.leave();
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stopped.notify();
        if self.has_door {
            self.door.close();
        }
        self.sessions.all().iter().for_each(|session| session.hang_up(&self.runtime));
        let rest = async {
            for session in self.sessions.all() {
                session.stop().await;
            }
            loop {
                let ticket = self.rested.ticket();
                if self.busy.load(Ordering::Acquire) == 0 {
                    return;
                }
                self.rested.after(ticket).await;
            }
        };
        either(rest, self.runtime.clock.sleep(LAST_REQUESTS_NS)).await;
    }
    /// Has new connections use other credentials.
    pub fn renew(&self, credentials: Credentials) {
        self.door.renew(credentials);
    }
    /// Ends the connections of a session. Its client comes again, and gets the rights that it has by then.
    pub fn hang_up(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(session) {
            session.hang_up(&self.runtime);
        }
    }
    /// Ends a session with all its connections.
    pub async fn expel(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(session) {
            session.hang_up(&self.runtime);
            self.end(&session).await;
        }
    }
    /// True for a session that has a connection.
    pub fn is_connected(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| session.is_connected())
    }
    /// Number of requests that are under way.
    pub fn under_way(&self) -> usize {
        self.sessions.all().iter().map(|session| session.under_way()).sum()
    }
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
    fn now_ns(&self) -> u64 {
        self.runtime.clock.now_ns()
    }
    /// True for a session that nobody has heard of for a lease: whatever its kernel caches is over (rule P12).
    fn is_silent(&self, session: &Session) -> bool {
        self.now_ns().saturating_sub(session.heard_ns()) > LEASE_OVER_NS
    }
    /// Lets a session in, once those that have the volume too have let go of what they may not cache beside it.
    async fn admit(
        &self,
        session: SessionId,
        hello: &Hello,
        client: S::Client,
    ) -> Result<Admitted<S::Volume>, Refused> {
        let attempt = async || {
            Ok(match self.service.admit(session, hello, client.clone()).await? {
                Admission::In(admitted) => Ok(admitted),
                Admission::After(others) => Err(others),
            })
        };
        self.make_room(attempt).await?.ok_or_else(|| {
            let text = "the volume's other clients have not let go of what they cache";
            Refused { reason: Reason::Busy, text: text.into() }
        })
    }
    /// Attempts something until no session is in its way, and asks those that are to share their volume: each attempt gives what was
    /// wanted, or who is in the way. None if they have not let go in time, or the server stops. Errors: those of the attempts.
    pub async fn make_room<T, E>(
        &self,
        attempt: impl AsyncFn() -> Result<Result<T, Vec<SessionId>>, E>,
    ) -> Result<Option<T>, E> {
        let began_ns = self.now_ns();
        loop {
            let ticket = self.let_go.ticket();
            let others = match attempt().await? {
                Ok(wanted) => return Ok(Some(wanted)),
                Err(others) => others,
            };
            let is_late = self.now_ns().saturating_sub(began_ns) > 2 * LEASE_OVER_NS;
            if is_late || self.is_stopping() {
                return Ok(None);
            }
            for other in others.into_iter().filter_map(|other| self.sessions.get(other)) {
                self.recall(&other);
            }
            either(self.let_go.after(ticket), self.runtime.clock.sleep(RECALL_NS)).await;
        }
    }
    /// Lets a client in: its session, awake. One that was ended is refused: what it had under way must not be done again as a new one's.
    async fn let_in(
        &self,
        id: SessionId,
        hello: &Hello,
        client: S::Client,
    ) -> Result<(Arc<Session>, Admitted<S::Volume>), Refused> {
        let text = "what an earlier attempt has left is still being cleared away";
        let coming = self.sessions.come(id).ok_or_else(|| Refused { reason: Reason::Busy, text: text.into() })?;
        let known = self.sessions.get(id);
        let is_over = known.as_ref().map_or(!hello.begins, |session| session.is_over());
        if is_over && !active(Bug::EndedNotFenced) {
            return Err(over());
        }
        let refused = match self.admit(id, hello, client).await {
            Ok(admitted) => {
                let session = known.unwrap_or_else(|| self.sessions.get_or_begin(id, self.now_ns()));
                if !session.is_over() || active(Bug::EndedNotFenced) {
                    session.wake();
                    return Ok((session, admitted));
                }
                // It was ended while it was let in, and the brick took it for a new one.
                over()
            }
            Err(refused) => refused,
        };
        if coming.is_last() {
            match self.sessions.get(id) {
                Some(known) if known.is_over() => self.service.turn_away(id).await,
                Some(known) if known.is_asleep() => self.service.sleeps(id),
                Some(_) => {}
                None => self.service.turn_away(id).await,
            }
        }
        Err(refused)
    }
    /// Has a session cache nothing that another one may change. One that is silent need not be asked.
    fn recall(&self, session: &Session) {
        session.share(true);
        if self.is_silent(session) && session.has_told() {
            return self.service.shares(session.id);
        }
        self.tell_caches(session);
    }
    /// The caches that a session is welcomed to. What the brick knows of it agrees with that, whoever has come or gone meanwhile.
    fn caches_for(&self, session: &Session) -> Caches {
        let caches = session.caches();
        if !self.service.leave_alone(session.id) {
            session.share(false);
        } else if caches.caching == Caching::Shared {
            session.leave_alone(caches);
        }
        session.caches()
    }
    fn tell_caches(&self, session: &Session) {
        session.tell(&Recall { caches: session.caches() });
    }
    /// Lets the sessions that are alone with their volumes cache again.
    fn leave_alone(&self) {
        for session in self.service.left_alone().into_iter().filter_map(|id| self.sessions.get(id)) {
            let caches = session.caches();
            // Whoever comes from then on asks it to let go, under a number of its own.
            if self.service.leave_alone(session.id) && session.leave_alone(caches) {
                self.tell_caches(&session);
            }
        }
    }
    /// Ends a session for good.
    async fn end(&self, session: &Session) {
        if session.stop().await {
            // If the brick can't note it now, it does at the next start, when nobody reclaims the session.
            drop(self.service.end(session.id).await);
            self.sessions.remove(session.id);
        }
    }
}

/// Ends the sessions that nobody has heard of.
async fn look<S: Service>(busy: Busy<S>) {
    let server = &busy.0;
    loop {
        let ticket = server.stopped.ticket();
        if server.is_stopping() {
            return;
        }
        either(server.stopped.after(ticket), server.runtime.clock.sleep(LOOK_NS)).await;
        let now_ns = server.now_ns();
        for session in server.sessions.all() {
            let patience_ns = if session.has_told() { COURTESY_NS } else { LEASE_OVER_NS };
            if now_ns.saturating_sub(session.heard_ns()) > patience_ns {
                server.end(&session).await;
            } else if server.is_silent(&session) && session.has_told() && !session.is_asleep() && session.sleep() {
                session.hang_up(&server.runtime);
                server.service.sleeps(session.id);
            }
        }
        // Who is silent and has locks that others want gives them up.
        for session in server.service.wanted().into_iter().filter_map(|id| server.sessions.get(id)) {
            if server.is_silent(&session) {
                server.end(&session).await;
            }
        }
        server.leave_alone();
    }
}

/// Tells clients of locks that they can have.
async fn tell_freed<S: Service>(busy: Busy<S>) {
    let server = &busy.0;
    loop {
        let ticket = server.stopped.ticket();
        if server.is_stopping() {
            return;
        }
        let news = async {
            for (session, freed) in server.service.freed().await {
                if let Some(session) = server.sessions.get(session) {
                    // One that has no connection asks again by itself.
                    session.tell(&freed);
                }
            }
        };
        either(news, server.stopped.after(ticket)).await;
    }
}

/// Serves a connection whose first frame has come, until it ends.
async fn serve<S: Service>(server: &Arc<Server<S>>, lane: &Arc<Lane>, reader: &mut Reader, came: Came) {
    if let Err(refused) = converse(server, (lane, reader), came).await {
        lane.outbox.push(None, |out| refused.frame(out, Header::new(FrameKind::Refused)));
        server.linger().await;
    }
}

impl<S: Service> Server<S> {
    /// Time for the last frame of a connection to get there.
    async fn linger(&self) {
        let ticket = self.stopped.ticket();
        if !self.is_stopping() {
            either(self.stopped.after(ticket), self.runtime.clock.sleep(LOOK_NS)).await;
        }
    }
    /// Gives a certificate to who asks for one, and ends the connection.
    async fn join(&self, lane: &Lane, body: &[u8], peer: Option<&[u8]>) -> Result<(), Refused> {
        if lane.cipher.as_ref().is_none_or(Cipher::is_clear) {
            return Err(Refused::protocol("nobody joins over a connection that is not encrypted"));
        }
        let joined = self.service.join(&Join::decode(body).map_err(Refused::nonsense)?, peer).await?;
        lane.outbox.push(None, |out| joined.frame(out, Header::new(FrameKind::Joined)));
        self.linger().await;
        Ok(())
    }
}

/// The hello that a connection begins with. `is_known`: the client has shown a certificate, or needs none.
fn hello_of(came: &Came, body: &[u8], is_known: bool) -> Result<Hello, Refused> {
    if came.header.kind != FrameKind::Hello || came.header.session == SessionId(0) {
        return Err(Refused::protocol("the first message says who the client is"));
    }
    if !is_known {
        let text = "this machine has no certificate: join with a token (sinter client join TOKEN)";
        return Err(Refused { reason: Reason::Stranger, text: text.into() });
    }
    Hello::decode(body).map_err(Refused::nonsense)
}

/// The conversation with a client, from its hello to its end. Errors: the reason to tell it.
async fn converse<S: Service>(
    server: &Arc<Server<S>>,
    (lane, reader): (&Arc<Lane>, &mut Reader),
    came: Came,
) -> Result<(), Refused> {
    let peer = lane.cipher.as_ref().and_then(Cipher::peer);
    if came.header.kind == FrameKind::Join {
        return server.join(lane, reader.body(), peer.as_deref()).await;
    }
    let hello = hello_of(&came, reader.body(), lane.cipher.is_none() || peer.is_some())?;
    let id = came.header.session;
    let client = server.service.recognise(peer.as_deref(), &hello).await?;
    let (session, admitted) = server.let_in(id, &hello, client).await?;
    let Admitted { mut welcome, flow, volume } = admitted;
    let _connected = session.connect(lane);
    // Who stops the server, or ends the session, sees the connection, or is seen here.
    if server.is_stopping() {
        return Err(Refused { reason: Reason::Ending, text: "the server stops".into() });
    }
    if session.is_over() {
        return Err(over());
    }
    // The same for who changes the volume, and then hangs up.
    if !server.service.is_current(&welcome).await {
        let text = "the volume has just been changed";
        return Err(Refused { reason: Reason::Busy, text: text.into() });
    }
    session.hear(server.now_ns());
    welcome.caches = server.caches_for(&session);
    let header = Header { session: id, ..Header::new(FrameKind::HelloOk) };
    lane.outbox.push(None, |out| welcome.frame(out, header));
    let numbers = (welcome.volume.map(|volume| volume.id), welcome.boot);
    let credit = Arc::default();
    let talk =
        Talk { server: server.clone(), lane: lane.clone(), session: session.clone(), credit, flow, volume, numbers };
    let mut has_begun_to_tell = false;
    loop {
        // A client that reads no replies gets no further requests in.
        lane.outbox.room().await;
        talk.credit.room().await;
        let came = match reader.next().await {
            Ok(Some(came)) => came,
            Ok(None) => return Ok(()),
            Err(error) if error.kind == Kind::Interrupted => return Ok(()),
            Err(error) => return Err(Refused::nonsense(error)),
        };
        // Others may cache all of the volume by now: it is let in again, by another connection.
        if talk.session.is_asleep() {
            return Ok(());
        }
        talk.session.hear(server.now_ns());
        match came.header.kind {
            FrameKind::Op => talk.request(came, reader.body())?,
            FrameKind::Pulse => talk.pulse(&came.header, reader.body())?,
            FrameKind::Reclaim => talk.reclaim(&came.header, reader.body(), &mut has_begun_to_tell).await?,
            FrameKind::Bye => {
                server.end(&talk.session).await;
                lane.bare(FrameKind::ByeOk, came.header);
            }
            FrameKind::RecallDone => talk.has_let_go(reader.body())?,
            FrameKind::Cancel => {}
            _ => return Err(Refused::protocol("a server takes no such message")),
        }
    }
}

/// A client's conversation.
struct Talk<S: Service> {
    server: Arc<Server<S>>,
    lane: Arc<Lane>,
    session: Arc<Session>,
    /// The requests of the connection that are under way.
    credit: Arc<Credit>,
    flow: Option<Arc<Flow>>,
    volume: S::Volume,
    /// The number of the volume, and that of the server's start.
    numbers: (Option<VolumeId>, u64),
}

impl<S: Service> Clone for Talk<S> {
    fn clone(&self) -> Talk<S> {
        let (server, lane, session) = (self.server.clone(), self.lane.clone(), self.session.clone());
        let (credit, flow, volume) = (self.credit.clone(), self.flow.clone(), self.volume.clone());
        Talk { server, lane, session, credit, flow, volume, numbers: self.numbers }
    }
}

impl<S: Service> Talk<S> {
    fn refuse(&self, header: &Header, refusal: Refusal) {
        self.lane.outbox.push(None, |out| refusal.frame(out, *header));
    }
    fn pulse(&self, header: &Header, body: &[u8]) -> Result<(), Refused> {
        let pulse = Pulse::decode(body).map_err(Refused::nonsense)?;
        self.server.service.answered(self.session.id, pulse.done);
        let (sequence, boot, lease_ms) = (pulse.sequence, self.numbers.1, (LEASE_NS / 1_000_000) as u32);
        let (alarms, late_ns) = self.server.door.lateness.sums();
        let answer = PulseOk { sequence, boot, lease_ms, caches: self.session.caches(), alarms, late_ns };
        self.lane.outbox.push(None, |out| answer.frame(out, *header));
        Ok(())
    }
    fn has_let_go(&self, body: &[u8]) -> Result<(), Refused> {
        let RecallDone { number } = RecallDone::decode(body).map_err(Refused::nonsense)?;
        if self.session.confirm(number) {
            self.server.service.shares(self.session.id);
            self.server.let_go.notify();
        }
        Ok(())
    }
    async fn reclaim(&self, header: &Header, body: &[u8], has_begun: &mut bool) -> Result<(), Refused> {
        let Reclaim { held, locks, changed, more, .. } = Reclaim::decode(body).map_err(Refused::nonsense)?;
        let is_first = !std::mem::replace(has_begun, more);
        // Before all is told: nobody is given a lock until then.
        let lost = if self.session.has_told() {
            Vec::new()
        } else {
            self.server.service.reclaim_locks(self.session.id, &locks)
        };
        match self.server.service.reclaim(self.session.id, (&held, &changed), is_first, !more).await {
            Ok(undone) => {
                if !more {
                    self.session.told();
                }
                let done = ReclaimDone { gone: Vec::new(), lost, undone };
                self.lane.outbox.push(None, |out| done.frame(out, *header));
            }
            Err(error) if error.kind == Kind::Fenced => {
                return Err(Refused { reason: Reason::Fenced, text: error.to_string().into() });
            }
            Err(_) => self.refuse(header, Refusal::Busy),
        }
        Ok(())
    }
    /// Starts a request.
    fn request(&self, Came { header, payload }: Came, body: &[u8]) -> Result<(), Refused> {
        if header.session != self.session.id {
            return Err(Refused::protocol("a request is of another session than its connection"));
        }
        if self.session.under_way() > SESSION_OPEN_MAX as usize {
            return Err(Refused::protocol("the client has more requests under way than a session may have"));
        }
        if !self.session.has_told() {
            self.refuse(&header, Refusal::Reclaim { group: GroupId(0), term: Term(0) });
            return Ok(());
        }
        let runtime = &self.server.runtime;
        self.server.door.lateness.asked(runtime.tasks.core());
        let span = Span::start(runtime.stamp());
        let bytes: &[u8] = payload.as_deref().unwrap_or(&[]);
        let asked = op::decode(&header, body, bytes, span).map_err(Refused::nonsense)?;
        asked.context.span.mark(Stage::Front, runtime.stamp());
        // Rights go by the session, not by what a request says.
        let context = Context { volume: self.numbers.0.unwrap_or(asked.context.volume), ..asked.context };
        let (talk, op) = (self.clone(), asked.op);
        let bytes = bytes_of(&op, payload.as_ref().map_or(0, |payload| payload.len()));
        self.credit.take(bytes);
        let perform = move || -> Local {
            Box::pin(async move {
                let credit = talk.credit.clone();
                talk.perform(header, context, op, payload).await;
                credit.give(bytes);
            })
        };
        match &self.flow {
            Some(flow) => runtime.tasks.spawn_in(runtime.tasks.core(), flow, Box::new(perform)),
            None => runtime.tasks.spawn(runtime.tasks.core(), Box::new(perform)),
        }
        Ok(())
    }
    /// Performs a request and replies.
    async fn perform(self, header: Header, context: Context, op: Op, data: Option<Buf>) {
        let (request, runtime) = (header.request.0, &self.server.runtime);
        context.span.mark(Stage::Core, runtime.stamp());
        self.wait_for_others().await;
        loop {
            match self.session.begin(request) {
                Begin::Begun => break,
                Begin::UnderWay(event, ticket) => event.after(ticket).await,
                // Connecting again has it let in again.
                Begin::Asleep => return self.refuse(&header, Refusal::Busy),
                Begin::Over => return self.refuse(&header, Refusal::Fenced { session: self.session.id }),
            }
        }
        let asked = op.clone();
        let answer = self.server.service.call(&self.volume, &context, op, data).await;
        context.span.mark(Stage::Other, runtime.stamp());
        self.session.finish(request);
        let failed = answer.as_ref().err().map(|error| error.kind);
        if failed == Some(Kind::Elsewhere) {
            // Nobody can be served here any more: the client looks for who leads, and asks there again.
            return self.lane.close(runtime);
        }
        self.reply(&header, &context, &asked, answer).await;
        self.record(&context, &asked, failed);
    }
    /// Adds a request that was answered to the ledger.
    fn record(&self, context: &Context, op: &Op, failed: Option<Kind>) {
        let runtime = &self.server.runtime;
        let (Some(rows), core) = (&self.server.rows, runtime.tasks.core()) else { return };
        if let Some(kind) = failed {
            runtime.ledger.failed(core, rows.row(op), kind);
        }
        // The caller's thread is one of another machine.
        let subject = Subject { ino: op.home().map_or(0, |ino| ino.0), uid: context.uid, thread: 0, request: 0 };
        runtime.ledger.record(core, rows.row(op), &context.span, subject, runtime.stamp());
    }
    /// Waits, after a start, until the other sessions of before have let go of what they cache, or are over.
    async fn wait_for_others(&self) {
        while !self.session.may_ask() && !active(Bug::OthersNotAwaited) {
            let ticket = self.server.let_go.ticket();
            if self.server.service.may_ask(self.session.id) {
                return self.session.set_may_ask();
            }
            either(self.server.let_go.after(ticket), self.server.runtime.clock.sleep(RECALL_NS)).await;
        }
    }
    async fn reply(&self, header: &Header, context: &Context, op: &Op, answer: Result<Answer>) {
        let runtime = &self.server.runtime;
        let mut told = Told::of(op, &answer, Stages::default());
        context.span.mark(Stage::Reply, runtime.stamp());
        told.stages = Stages::of(&runtime.ledger, &context.span);
        let payload = answer.ok().and_then(|answer| answer.data);
        let mut bytes = Vec::with_capacity(256);
        let payload = match reply::frame(&mut bytes, *header, &told, payload.as_ref().map_or(0, |data| data.len())) {
            None => payload,
            Some(long) => match self.held(&long).await {
                Ok(long) => Some(long),
                Err(error) => {
                    bytes.clear();
                    let told = Told::of(op, &Err(error), told.stages);
                    let long = reply::frame(&mut bytes, *header, &told, 0);
                    assert!(long.is_none(), "an error is short");
                    None
                }
            },
        };
        self.lane.outbox.push(payload, |out| out.extend_from_slice(&bytes));
    }
    /// The bytes in a buffer.
    async fn held(&self, bytes: &[u8]) -> Result<Slice> {
        let mut buffer = self.server.runtime.own_buffer(bytes.len()).await?;
        buffer.copy_from_slice(bytes);
        Ok(buffer.share().slice(0..bytes.len()))
    }
}

fn over() -> Refused {
    Refused { reason: Reason::Fenced, text: "the session is over: mount the volume again".into() }
}
