//! The side of a client's process: one session of a volume, over a connection per core.
//!
//! Promises: a request takes effect once, whatever becomes of connections and of the server's process (rule P9); a failover is no
//! error: a request waits until the server is back. Absent by design: caches, and who decides how long to wait.

mod account;
mod changes;
mod holdings;
mod join;
mod patience;
mod search;
mod sharing;
mod window;

use crate::codec::hello::{Hello, HelloOk, Refused, VERSIONS};
use crate::codec::lock::Freed;
use crate::codec::reply::Told;
use crate::codec::session::{Pulse, PulseOk, RECLAIM_ITEMS_MAX, Recall, Reclaim, ReclaimDone, Refusal};
use crate::codec::{Body, Sums, op, reply};
use crate::credit::bytes_of;
use crate::lane::{Came, Cipher, Lane, Reader};
use crate::locks::Locks;
use crate::share::Share;
use crate::tls::{Credentials, Tls};
use crate::{Answer, Context, FrameKind, Header};
use account::{Account, Quality};
pub use account::{Trips, Ways};
use base::ablated::{Ablation, is_on};
use base::{Error, FileLock, Ino, Kind, Name, Op, RequestId, Result, SessionId, Volume, VolumeId};
use changes::{Changes, INODES_MAX};
pub use changes::{NUMBER_BITS, handle_since, number_of};
use holdings::Holdings;
pub use join::join;
use runtime::net::Address;
use runtime::tasks::{Local, either};
use runtime::{Buf, Event, Lock, Runtime, Slice, Span, Stage, Stamp};
use search::{CONNECT_NS, GREETING_NS, Search};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use window::Window;

/// Interval of pulses.
const PULSE_NS: u64 = 1_000_000_000;

/// The wishes of a client.
#[derive(Clone)]
pub struct Options {
    /// The addresses where the server listens, at least one. They are tried in turn.
    pub addresses: Vec<Address>,
    /// The volume.
    pub volume: Name,
    /// The client's name, for people.
    pub who: Box<str>,
    /// True if it wants to change nothing.
    pub read_only: bool,
    /// The client's credentials, and the name that the server's certificate must have; None on one machine.
    pub credentials: Option<(Credentials, Box<str>)>,
    /// Nanoseconds for which it waits for a server that is away before it answers with an error; None: for ever.
    pub soft_ns: Option<u64>,
}

/// A reply, the bytes beside it, and the number of the server's start that gave it; or why there is none.
type Outcome = Result<(Told, Option<Buf>, u64)>;

/// A request that is under way.
struct Pending {
    /// Its number for whoever asked.
    asked: u64,
    /// Header and body.
    frame: Vec<u8>,
    payload: Lock<Option<Slice>>,
    /// False if it waits for as long as the server is away, whatever the mount does.
    may_give_up: bool,
    state: Lock<State>,
    came: Event,
}

/// Progress of a request.
#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    /// The time at which it came.
    came: Stamp,
    /// The answer for who waits, once nobody wants to wait any more.
    given_up: Option<Error>,
    /// The request, once nobody waits for it.
    left: Option<Left>,
}

/// A request whose outcome has to be noted when it comes.
struct Left {
    number: u64,
    /// Number of changes when it began.
    changed: u64,
    context: Context,
    op: Op,
}

/// A core's connection, and the requests of that core, by number.
#[derive(Default)]
struct Wire {
    lane: Option<Arc<Lane>>,
    pending: BTreeMap<u64, Arc<Pending>>,
    quality: Quality,
    /// The time at which a pulse was answered over it, or the connection was made.
    heard_ns: u64,
}

/// The way to the server, as an operator wants to know it.
#[derive(Clone, Default, Debug)]
pub struct Reach {
    /// Connections that are up; one per core, if all is well.
    pub connections: usize,
    /// The time since which there is none; None while there is one, or before the first one.
    pub away_since_ns: Option<u64>,
    /// The reason why the last connection broke or was not made.
    pub error: Option<Error>,
    /// True if content goes in the clear over the connection that was made last: both ends were told so.
    pub is_clear: bool,
}

/// Progress with a start of the server.
#[derive(Default)]
struct Server {
    reach: Reach,
    /// Nanoseconds without a connection, in times that are over.
    away_ns: u64,
    /// Alarms of the server's cores, and the nanoseconds by which they were late.
    late: (u64, u64),
    welcome: Option<HelloOk>,
    /// The start to which this client has told what it has open.
    told_boot: Option<u64>,
    /// A connection tells it now.
    is_telling: bool,
    /// The reason why the client does not get in, or no longer.
    refused: Option<Refused>,
}

/// A session with a server; see the module.
pub struct Client {
    runtime: Runtime,
    options: Options,
    session: SessionId,
    boot: u64,
    window: Lock<Window>,
    answered: Event,
    wires: Vec<Lock<Wire>>,
    /// The times of requests, by core.
    accounts: Vec<Account>,
    holdings: Lock<Holdings>,
    changes: Lock<Changes>,
    share: Share,
    /// The locks that the session has.
    locks: Lock<Locks>,
    server: Lock<Server>,
    /// The addresses where the server is looked for.
    addresses: Lock<Vec<Address>>,
    /// The credentials of the next connection, and the name that the server's certificate must have.
    credentials: Lock<Option<(Credentials, Box<str>)>>,
    changed: Event,
    pulses: AtomicU64,
    /// True once the client was refused for good, or was closed.
    is_over: AtomicBool,
    /// True once the server has noted the end of the session.
    has_left: AtomicBool,
}

impl Client {
    /// Starts a session. It connects by itself; `volume` waits for it.
    pub fn start(runtime: &Runtime, options: Options) -> Arc<Client> {
        let cores = if is_on(Ablation::OneConnection) { 1 } else { runtime.tasks.cores() };
        let credentials = Lock::new("credentials", options.credentials.clone());
        let addresses = Lock::new("addresses", options.addresses.clone());
        let client = Arc::new(Client {
            runtime: runtime.clone(),
            options,
            session: SessionId(runtime.random.next_u64() | 1),
            boot: runtime.random.next_u64(),
            window: Lock::new("window", Window::default()),
            answered: Event::new(),
            wires: (0..cores).map(|_| Lock::new("wire", Wire::default())).collect(),
            accounts: (0..runtime.tasks.cores()).map(|_| Account::default()).collect(),
            holdings: Lock::new("holdings", Holdings::default()),
            changes: Lock::new("changes", Changes::default()),
            share: Share::default(),
            locks: Lock::new("locks of files", Locks::default()),
            server: Lock::new("server", Server::default()),
            addresses,
            credentials,
            changed: Event::new(),
            pulses: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        });
        for core in 0..cores {
            let there = client.clone();
            runtime.spawn(core, move || connect(there, core));
        }
        let there = client.clone();
        runtime.spawn(0, move || pulse(there));
        let there = client.clone();
        runtime.spawn(0, move || settle(there));
        client
    }
    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }
    /// The world that the client lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// The server's welcome, once it has let the client in. Errors: the reason why it does not.
    pub async fn welcome(&self) -> Result<HelloOk, Refused> {
        loop {
            let ticket = self.changed.ticket();
            {
                let server = self.server.lock();
                if let Some(refused) = &server.refused {
                    return Err(refused.clone());
                }
                if let Some(welcome) = &server.welcome {
                    return Ok(welcome.clone());
                }
            }
            self.changed.after(ticket).await;
        }
    }
    /// The volume as the server has told it last; None before its welcome.
    pub fn volume(&self) -> Option<Volume> {
        self.server.lock().welcome.as_ref().and_then(|welcome| welcome.volume.clone())
    }
    /// Shows other credentials from the next connection on: a renewed certificate.
    pub fn renew(&self, credentials: Credentials) {
        if let Some((present, _)) = &mut *self.credentials.lock() {
            *present = credentials;
        }
    }
    /// Looks for the server at other addresses, at least one, from the next connection on.
    pub fn move_to(&self, addresses: Vec<Address>) {
        assert!(!addresses.is_empty(), "a server has an address");
        *self.addresses.lock() = addresses;
    }
    /// The way to the server.
    pub fn reach(&self) -> Reach {
        self.server.lock().reach.clone()
    }
    /// The reason why the session is over, if the server has ended it.
    pub fn end_reason(&self) -> Option<Refused> {
        self.server.lock().refused.clone()
    }
    /// Performs an operation at the server. Waits while the server is away; with `soft_ns` for no longer than that.
    pub async fn call(self: &Arc<Client>, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        match self.impatient_answer(context, &op) {
            Some(answer) => answer,
            None => self.perform(context, op, data, self.options.soft_ns.is_some()).await,
        }
    }
    async fn perform(&self, context: &Context, op: Op, data: Option<Buf>, may_give_up: bool) -> Result<Answer> {
        let payload = match (&op, data) {
            (Op::Write { .. }, Some(data)) => Some(whole(data)),
            _ => None,
        };
        let sums = payload.as_ref().map_or_else(Sums::default, |payload| Sums::of_op(&op, payload));
        let payload_bytes = payload.as_ref().map_or(0, |payload| payload.len());
        let (number, done) = self.open(bytes_of(&op, payload_bytes), may_give_up).await?;
        let changed = self.changes.lock().number();
        let own = Context { session: self.session, request: RequestId(number), done, ..context.copied() };
        let mut bytes = Vec::with_capacity(256);
        op::frame(&mut bytes, Header::of(&own), (&own, &op), &sums, payload_bytes);
        let (payload, state) = (Lock::new("payload", payload), Lock::new("pending", State::default()));
        let (asked, came) = (context.request.0, Event::new());
        let pending = Arc::new(Pending { asked, frame: bytes, payload, may_give_up, state, came });
        let core = if is_on(Ablation::OneConnection) { 0 } else { self.runtime.tasks.core() };
        context.span.mark(Stage::Other, self.runtime.stamp());
        let under_way = {
            let mut wire = self.wires[core].lock();
            if let Some(lane) = &wire.lane {
                send(lane, &pending);
            }
            wire.pending.insert(number, pending.clone());
            wire.pending.len()
        };
        // It may have been refused before it was listed.
        self.fail_if_over();
        let left = |op| Left { number, changed, context: context.copied(), op };
        loop {
            let ticket = pending.came.ticket();
            let given_up = {
                let mut state = pending.state.lock();
                if let Some(outcome) = state.outcome.take() {
                    let (came, told) = (state.came, outcome.as_ref().ok().map(|(told, ..)| told));
                    drop(state);
                    self.book(&context.span, told, (&op, payload_bytes, under_way), came);
                    return self.note(&left(op), outcome);
                }
                state.given_up.clone()
            };
            if let Some(error) = given_up {
                context.span.mark(Stage::Wire, self.runtime.stamp());
                return self.leave(&pending, left(op), error).await;
            }
            pending.came.after(ticket).await;
        }
    }
    /// Goes away from a request: its outcome is noted when it comes. What it takes of its caller's memory is copied.
    async fn leave(&self, pending: &Pending, left: Left, error: Error) -> Result<Answer> {
        let lent = pending.payload.lock().clone();
        // Without memory it keeps what it was lent, and whoever lent that waits for it.
        if let Some(lent) = lent
            && let Ok(mut own) = self.runtime.own_buffer(lent.len()).await
        {
            own.copy_from_slice(&lent);
            *pending.payload.lock() = Some(whole(own));
        }
        let mut state = pending.state.lock();
        if let Some(outcome) = state.outcome.take() {
            drop(state);
            return self.note(&left, outcome);
        }
        state.left = Some(left);
        Err(error)
    }
    /// Ends the wait for requests that have these numbers for who asked, with an error. They are done all the same, if the server can.
    pub fn give_up_requests(&self, asked: RangeInclusive<u64>) {
        let error = || Error::new(Kind::Interrupted, "it was killed while it waited for the server");
        self.give_up(|pending| asked.contains(&pending.asked), error);
    }
    fn give_up(&self, is_meant: impl Fn(&Pending) -> bool, error: impl Fn() -> Error) {
        for wire in &self.wires {
            let wire = wire.lock();
            for pending in wire.pending.values().filter(|pending| is_meant(pending)) {
                pending.state.lock().given_up.get_or_insert_with(&error);
                pending.came.notify();
            }
        }
    }
    /// Notes an outcome; the answer.
    fn note(&self, Left { number, changed, context, op }: &Left, outcome: Outcome) -> Result<Answer> {
        if self.window.lock().answered(*number) {
            self.answered.notify();
        }
        let (told, data, start) = outcome?;
        let answer = told.answer(data.map(whole))?;
        self.note_lock(op, &answer.reply);
        let mut holdings = self.holdings.lock();
        holdings.note(context, op, &answer.reply);
        let mut changes = self.changes.lock();
        if let Op::Release { ino } = op
            && !holdings.has_open(*ino)
        {
            changes.closed(*ino);
        }
        drop(holdings);
        changes.note(op, &answer, start);
        match op {
            Op::Fsync { ino, .. } => changes.synced(Some(*ino), *changed),
            Op::SyncAll => changes.synced(None, *changed),
            _ => {}
        }
        Ok(answer)
    }
    /// Takes an outcome to who waits for it. If nobody does, it is noted, and what it has opened or made known is taken back.
    fn answer(&self, pending: &Pending, outcome: Outcome) -> Vec<(Context, Op)> {
        let left = {
            let mut state = pending.state.lock();
            match state.left.take() {
                Some(left) => left,
                None => {
                    (state.outcome, state.came) = (Some(outcome), self.runtime.stamp());
                    drop(state);
                    pending.came.notify();
                    return Vec::new();
                }
            }
        };
        let Ok(answer) = self.note(&left, outcome) else { return Vec::new() };
        let undone = holdings::undo(&left.context, &left.op, &answer.reply);
        undone.into_iter().map(|op| (left.context.copied(), op)).collect()
    }
    /// Number of losses so far, modulo 256, for a handle to keep that is opened now.
    pub fn losses(&self) -> u8 {
        self.changes.lock().losses()
    }
    /// True, once for each handle that was open then, if a restart of the server has lost a change of the inode: what an fsync through
    /// the handle has to say (rule P3). The handle's highest byte is `losses` at its open, of a file that was made with it those before.
    pub fn tell_loss_of(&self, ino: Ino, handle: u32) -> bool {
        self.changes.lock().tell_loss_of(ino, handle)
    }
    /// Number of inodes that have lost changes since the last call, for an operator, and one of them.
    pub fn news_of_loss(&self) -> Option<(u64, Ino)> {
        self.changes.lock().news_of_loss()
    }
    /// Ends the session, and all requests that are under way with an error. Returns once the server has noted that, or cannot be asked
    /// within so many nanoseconds: then it ends the session when it has not heard of it for long.
    pub async fn close(&self, patience_ns: u64) {
        let noted = async {
            let Some(lane) = self.lane() else { return };
            lane.bare(FrameKind::Bye, self.header(FrameKind::Bye));
            loop {
                let ticket = self.changed.ticket();
                if self.has_left.load(Ordering::Acquire) {
                    return;
                }
                self.changed.after(ticket).await;
            }
        };
        either(noted, self.runtime.clock.sleep(patience_ns)).await;
        self.end();
    }

    /// A connection that is up, if any.
    fn lane(&self) -> Option<Arc<Lane>> {
        self.wires.iter().find_map(|wire| wire.lock().lane.clone())
    }
    /// Sends a frame that is no request, if a connection is up.
    fn say<B: Body>(&self, body: &B) {
        if let Some(lane) = self.lane() {
            lane.outbox.push(None, |out| body.frame(out, self.header(B::KIND)));
        }
    }
    fn header(&self, kind: FrameKind) -> Header {
        Header { session: self.session, ..Header::new(kind) }
    }
    /// Has the server make everything durable.
    async fn sync_all(&self) {
        let volume = self.server.lock().welcome.as_ref().and_then(|welcome| welcome.volume.as_ref().map(|it| it.id));
        let context = Context::own(volume.unwrap_or(VolumeId(0)), Span::start(self.runtime.stamp()));
        drop(self.perform(&context, Op::SyncAll, None, false).await);
    }
    /// Takes back what nobody waited for.
    fn undo(self: &Arc<Client>, undo: Vec<(Context, Op)>) {
        for (context, op) in undo {
            let there = self.clone();
            let call =
                move || -> Local { Box::pin(async move { drop(there.perform(&context, op, None, false).await) }) };
            self.runtime.tasks.spawn(self.runtime.tasks.core(), Box::new(call));
        }
    }
    /// The number of the next request, and that below which all are answered.
    async fn open(&self, bytes: usize, may_give_up: bool) -> Result<(u64, u64)> {
        loop {
            let ticket = self.answered.ticket();
            if may_give_up {
                self.check_patience()?;
            }
            {
                let mut window = self.window.lock();
                if let Some(number) = window.open(bytes) {
                    return Ok((number, window.done()));
                }
            }
            self.answered.after(ticket).await;
        }
    }
    /// Answers all requests that are under way with an error, and asks nothing of the server any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.fail_if_over();
        self.changed.notify();
        self.share.end();
    }
    /// Answers everything that is under way.
    fn fail_all(&self, error: &Error) {
        for wire in &self.wires {
            let pending = std::mem::take(&mut wire.lock().pending);
            // An error has opened nothing.
            pending.values().for_each(|pending| drop(self.answer(pending, Err(error.clone()))));
        }
    }
    /// Answers everything that is under way with the reason, if the session is over.
    fn fail_if_over(&self) {
        if !self.is_over.load(Ordering::Acquire) {
            return;
        }
        let refused = self.server.lock().refused.clone();
        self.fail_all(&match refused {
            Some(refused) => {
                Error::new(Kind::Fenced, "the server does not serve this mount any more").with(refused.text)
            }
            None => Error::new(Kind::Interrupted, "the mount is ending"),
        });
    }
    fn arrived(&self, lane: &Lane) {
        let (mut server, now_ns) = (self.server.lock(), self.runtime.clock.now_ns());
        server.reach.connections += 1;
        server.reach.is_clear = lane.cipher.as_ref().is_some_and(Cipher::is_clear);
        if let Some(since_ns) = server.reach.away_since_ns.take() {
            server.away_ns += now_ns - since_ns;
        }
    }
    fn left(&self) {
        let reach = &mut self.server.lock().reach;
        reach.connections -= 1;
        if reach.connections == 0 {
            reach.away_since_ns = Some(self.runtime.clock.now_ns());
        }
    }
    fn refuse(&self, refused: Refused) {
        self.server.lock().refused = Some(refused);
        self.end();
    }
    /// Greets the server, tells what the session has open if the server does not know, and takes replies until the connection
    /// breaks. Errors: why it broke, or was not made.
    async fn converse(self: &Arc<Client>, core: usize, attempt: usize) -> Result<()> {
        let address = {
            let addresses = self.addresses.lock();
            addresses[attempt % addresses.len()].clone()
        };
        let connection = self.soon(CONNECT_NS, self.runtime.net.connect(&address)).await?;
        let credentials = self.credentials.lock().clone();
        let tls = credentials.map(|(credentials, name)| Tls::client(&credentials, &name)).transpose()?;
        let lane = Lane::start(&self.runtime, connection, tls);
        let mut reader = Reader::new(&self.runtime, &lane);
        let conversed = self.greet(&lane, &mut reader).await;
        let ended = match conversed {
            Ok(Some(boot)) => {
                self.install(core, &lane);
                self.arrived(&lane);
                self.hear_caches();
                let ended = self.take_replies(core, &mut reader, boot).await;
                let mut wire = self.wires[core].lock();
                wire.lane = None;
                wire.quality.ended();
                drop(wire);
                self.left();
                ended
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        lane.close(&self.runtime);
        ended
    }
    /// The number of the server's start; None if the client was refused.
    async fn greet(&self, lane: &Lane, reader: &mut Reader) -> Result<Option<u64>> {
        let Options { volume, who, read_only, .. } = &self.options;
        let hello = Hello {
            versions: VERSIONS,
            features: 0,
            cluster: None,
            who: who.clone(),
            boot: self.boot,
            volume: Some(volume.clone()),
            read_only: *read_only,
            begins: self.server.lock().welcome.is_none(),
        };
        let sent_ns = self.runtime.clock.now_ns();
        lane.outbox.push(None, |out| hello.frame(out, self.header(FrameKind::Hello)));
        let came = self.soon(GREETING_NS, reader.next()).await?.ok_or_else(gone)?;
        match came.header.kind {
            FrameKind::HelloOk => {}
            FrameKind::Refused => return self.refused(Refused::decode(reader.body())?).map(|()| None),
            _ => return Err(unexpected()),
        }
        let welcome = HelloOk::decode(reader.body())?;
        let boot = welcome.boot;
        self.share.lease.lock().is_welcomed(boot, welcome.caches, (sent_ns, u64::from(welcome.lease_ms) * 1_000_000));
        loop {
            let ticket = self.changed.ticket();
            let tells = {
                let mut server = self.server.lock();
                // The first server to let the session in knows all that there is.
                if server.welcome.is_none() {
                    server.told_boot = Some(boot);
                    let unsynced = self.changes.lock().ask(boot);
                    assert!(unsynced.is_empty(), "nothing was changed before");
                }
                server.welcome = Some(welcome.clone());
                let has_told = server.told_boot == Some(boot);
                if has_told || server.is_telling { has_told.then_some(false) } else { Some(true) }
            };
            match tells {
                Some(false) => break,
                Some(true) => {
                    self.server.lock().is_telling = true;
                    let volume = welcome.volume.as_ref().map_or(VolumeId(0), |volume| volume.id);
                    let told = self.tell(lane, reader, volume, boot).await;
                    let mut server = self.server.lock();
                    server.is_telling = false;
                    if matches!(told, Ok(true)) {
                        server.told_boot = Some(boot);
                    }
                    drop(server);
                    self.changed.notify();
                    if !told? {
                        return Ok(None);
                    }
                    self.share.places_are_lost();
                    break;
                }
                // Another connection tells.
                None => self.changed.after(ticket).await,
            }
        }
        self.changed.notify();
        Ok(Some(boot))
    }
    /// Tells what the session has open, and asks which of its changes are lost. False if the session is over.
    async fn tell(&self, lane: &Lane, reader: &mut Reader, volume: VolumeId, boot: u64) -> Result<bool> {
        let parts = self.holdings.lock().parts();
        let mut asked = self.changes.lock().ask(boot).into_iter();
        let locks = self.held_locks();
        let mut locks = locks.chunks(RECLAIM_ITEMS_MAX).map(<[FileLock]>::to_vec);
        let last = parts.len().max(asked.len()).max(locks.len()) - 1;
        let mut parts = parts.into_iter();
        for part in 0..=last {
            let (held, changed) = (parts.next().unwrap_or_default(), asked.next().unwrap_or_default());
            let locks = locks.next().unwrap_or_default();
            let reclaim = Reclaim { volume, held, locks, changed, more: part < last };
            lane.outbox.push(None, |out| reclaim.frame(out, self.header(FrameKind::Reclaim)));
            let came = self.soon(GREETING_NS, reader.next()).await?.ok_or_else(gone)?;
            match came.header.kind {
                FrameKind::ReclaimDone => {
                    let ReclaimDone { lost, undone, .. } = ReclaimDone::decode(reader.body())?;
                    self.changes.lock().lose(undone);
                    self.lose_locks(&lost);
                }
                FrameKind::Refused => return self.refused(Refused::decode(reader.body())?).map(|()| false),
                _ => return Err(unexpected()),
            }
        }
        Ok(true)
    }
    /// Gives up for good, unless the reason passes. Errors: it does.
    fn refused(&self, refused: Refused) -> Result<()> {
        if refused.reason.passes() {
            return Err(Error::new(Kind::Busy, "the server lets nobody in now").with(refused.text));
        }
        self.refuse(refused);
        Ok(())
    }
    /// Sends all requests of the core that have no answer, in their order, and those to come.
    fn install(&self, core: usize, lane: &Arc<Lane>) {
        let mut wire = self.wires[core].lock();
        wire.pending.values().for_each(|pending| send(lane, pending));
        (wire.lane, wire.heard_ns) = (Some(lane.clone()), self.runtime.clock.now_ns());
    }
    async fn take_replies(self: &Arc<Client>, core: usize, reader: &mut Reader, boot: u64) -> Result<()> {
        while let Some(Came { header, payload }) = reader.next().await? {
            match header.kind {
                FrameKind::Reply => {
                    let told = reply::decode(reader.body(), payload.as_deref().unwrap_or(&[]))?;
                    let pending = self.wires[core].lock().pending.remove(&header.request.0);
                    // An answer to what was sent twice comes twice.
                    if let Some(pending) = pending {
                        let is_data = matches!(told.result, Ok(base::Reply::Data { .. }));
                        let undo = self.answer(&pending, Ok((told, payload.filter(|_| is_data), boot)));
                        self.undo(undo);
                    }
                }
                FrameKind::PulseOk => {
                    let PulseOk { sequence, boot, lease_ms, caches, alarms, late_ns } = PulseOk::decode(reader.body())?;
                    self.pulse_is_answered(core);
                    self.server.lock().late = (alarms, late_ns);
                    self.share.lease.lock().pulse_is_heard(sequence, boot, caches, u64::from(lease_ms) * 1_000_000);
                    self.hear_caches();
                }
                FrameKind::Recall => {
                    let Recall { caches } = Recall::decode(reader.body())?;
                    self.share.lease.lock().hear(boot, caches, true);
                    self.hear_caches();
                }
                FrameKind::Freed => {
                    let Freed { ino, owner } = Freed::decode(reader.body())?;
                    self.share.lock_is_free(ino, owner);
                }
                FrameKind::Refusal => match Refusal::decode(reader.body())? {
                    Refusal::Fenced { .. } => {
                        let text = "the server has ended the session, since it had not heard from this machine".into();
                        self.refuse(Refused { reason: crate::codec::hello::Reason::Fenced, text });
                        return Ok(());
                    }
                    Refusal::Reclaim { .. } => {
                        self.server.lock().told_boot = None;
                        return Err(Error::new(Kind::Busy, "the server does not know what the session has open"));
                    }
                    // Connecting again tells the server what it lacks, and tries again.
                    _ => return Err(Error::new(Kind::Busy, "the server can't take requests now")),
                },
                FrameKind::Refused => return self.refused(Refused::decode(reader.body())?),
                FrameKind::ByeOk => {
                    self.has_left.store(true, Ordering::Release);
                    self.changed.notify();
                    return Ok(());
                }
                _ => return Err(unexpected()),
            }
        }
        Err(gone())
    }
}

/// Keeps a core's connection.
async fn connect(client: Arc<Client>, core: usize) {
    let clock = client.runtime.clock.clone();
    let mut search = Search::of(core);
    loop {
        let began_ns = clock.now_ns();
        if let Err(error) = client.converse(core, search.attempt).await {
            client.server.lock().reach.error = Some(error);
        }
        let ticket = client.changed.ticket();
        if client.is_over.load(Ordering::Acquire) {
            return;
        }
        let pause_ns = search.go_on(&client, clock.now_ns() - began_ns);
        either(clock.sleep(pause_ns), client.changed.after(ticket)).await;
    }
}

/// Tells the server each second that the client lives, and which answers it has.
async fn pulse(client: Arc<Client>) {
    while !client.is_over.load(Ordering::Acquire) {
        let clock = &client.runtime.clock;
        clock.sleep(PULSE_NS).await;
        let sequence = client.pulses.fetch_add(1, Ordering::Relaxed) + 1;
        client.share.lease.lock().sends_pulse(sequence, clock.now_ns());
        let pulse = Pulse { sequence, seen: 0, done: client.window.lock().done(), clock: clock.wall() };
        client.give_pulse(&pulse);
        client.lose_patience();
    }
}

/// Bounds what has to be known here of changes that may be lost. One request at a time: a server that is away is asked once.
async fn settle(client: Arc<Client>) {
    while !client.is_over.load(Ordering::Acquire) {
        client.runtime.clock.sleep(PULSE_NS).await;
        if client.changes.lock().inodes() > INODES_MAX {
            client.sync_all().await;
        }
    }
}

fn send(lane: &Lane, pending: &Pending) {
    lane.outbox.push(pending.payload.lock().clone(), |out| out.extend_from_slice(&pending.frame));
}

fn whole(buffer: Buf) -> Slice {
    let length = buffer.len();
    buffer.share().slice(0..length)
}

fn gone() -> Error {
    Error::new(Kind::Interrupted, "the server has ended the connection")
}

fn unexpected() -> Error {
    Error::new(Kind::Corrupt, "the server has sent a message that it does not send here")
}
