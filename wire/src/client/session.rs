//! A session of a volume with one server, over a connection per core: with the only one, or with whoever leads one of the volume's groups.

use super::account::{Account, Quality};
use super::changes::{Changes, INODES_MAX};
use super::holdings::{self, Holdings};
use super::search::{CONNECT_NS, GREETING_NS, Search};
use super::window::Window;
use super::{Options, Reach, gone, unexpected};
use crate::cache_lease::CacheLease;
use crate::codec::hello::{Hello, HelloOk, Refused, SEVERAL_GROUPS, VERSIONS};
use crate::codec::lock::Freed;
use crate::codec::reply::Told;
use crate::codec::session::{Pulse, PulseOk, RECLAIM_ITEMS_MAX, Recall, RecallDone, Reclaim, ReclaimDone, Refusal};
use crate::codec::{Body, Sums, op, reply};
use crate::credit::bytes_of;
use crate::lane::{Came, Cipher, Lane, Reader};
use crate::locks::Locks;
use crate::share::Share;
use crate::tls::{Credentials, Tls};
use crate::{Answer, Context, FrameKind, Header};
use base::ablated::{Ablation, is_on};
use base::{Error, FileLock, GroupId, Ino, Kind, Op, RequestId, Result, SessionId, VolumeId};
use runtime::net::Address;
use runtime::tasks::{Local, either};
use runtime::{Buf, Event, Lock, Runtime, Slice, Span, Stage, Stamp};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Interval of pulses.
const PULSE_NS: u64 = 1_000_000_000;

/// A reply, the bytes beside it, and the number of the server's start that gave it; or why there is none.
type Outcome = Result<(Told, Option<Buf>, u64)>;

/// A request that is under way.
pub(super) struct Pending {
    /// Its number for whoever asked.
    asked: u64,
    /// Header and body.
    frame: Vec<u8>,
    payload: Lock<Option<Slice>>,
    /// False if it waits for as long as the server is away, whatever the mount does.
    pub may_give_up: bool,
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
pub(super) struct Wire {
    pub lane: Option<Arc<Lane>>,
    pending: BTreeMap<u64, Arc<Pending>>,
    pub quality: Quality,
    /// The time at which a pulse was answered over it, or the connection was made.
    pub heard_ns: u64,
}

/// Progress with a start of the server.
#[derive(Default)]
pub(super) struct Server {
    pub reach: Reach,
    /// Nanoseconds without a connection, in times that are over.
    pub away_ns: u64,
    /// Alarms of the server's cores, and the nanoseconds by which they were late.
    pub late: (u64, u64),
    pub welcome: Option<HelloOk>,
    /// The start to which this client has told what it has open.
    told_boot: Option<u64>,
    /// A connection tells it now.
    is_telling: bool,
    /// The reason why the client does not get in, or no longer.
    refused: Option<Refused>,
}

/// The part of a client that a session is.
#[derive(Clone)]
pub(super) struct Part {
    /// The client's number, which is that of all its sessions.
    pub session: SessionId,
    /// The number of the start of the client's process.
    pub boot: u64,
    /// The group whose leader it is with; 0 with a server that has all groups.
    pub group: GroupId,
    /// The caches that the kernel may have, as all servers tell.
    pub share: Arc<Share>,
    /// The times of requests, by core.
    pub accounts: Arc<[Account]>,
}

/// A session with a server; see the module.
pub struct Session {
    pub(super) runtime: Runtime,
    pub(super) options: Options,
    part: Part,
    window: Lock<Window>,
    pub(super) answered: Event,
    pub(super) wires: Vec<Lock<Wire>>,
    pub(super) holdings: Lock<Holdings>,
    changes: Lock<Changes>,
    /// The locks that the session has.
    pub(super) locks: Lock<Locks>,
    pub(super) server: Lock<Server>,
    /// The addresses where the server is looked for.
    pub(super) addresses: Lock<Vec<Address>>,
    /// The credentials of the next connection, and the name that the server's certificate must have.
    credentials: Lock<Option<(Credentials, Box<str>)>>,
    changed: Event,
    pulses: AtomicU64,
    /// True once the client was refused for good, or was closed.
    is_over: AtomicBool,
    /// True once the server has noted the end of the session.
    has_left: AtomicBool,
}

impl Session {
    /// Starts a session. It connects by itself; `welcome` waits for it.
    pub(super) fn start(runtime: &Runtime, options: Options, part: Part) -> Arc<Session> {
        let cores = if is_on(Ablation::OneConnection) { 1 } else { runtime.tasks.cores() };
        let credentials = Lock::new("credentials", options.credentials.clone());
        let addresses = Lock::new("addresses", options.addresses.clone());
        let client = Arc::new(Session {
            runtime: runtime.clone(),
            options,
            part,
            window: Lock::new("window", Window::default()),
            answered: Event::new(),
            wires: (0..cores).map(|_| Lock::new("wire", Wire::default())).collect(),
            holdings: Lock::new("holdings", Holdings::default()),
            changes: Lock::new("changes", Changes::default()),
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
    /// The number of the session.
    pub(super) fn id(&self) -> SessionId {
        self.part.session
    }
    pub(super) fn share(&self) -> &Share {
        &self.part.share
    }
    pub(super) fn accounts(&self) -> &[Account] {
        &self.part.accounts
    }
    /// Lets go for a mount without a kernel, which caches nothing, if the server awaits that.
    pub(super) fn confirm_unfollowed(&self) {
        if let Some(number) = self.part.share.confirmed_unfollowed(self.part.group.0 as usize) {
            self.say(&RecallDone { number });
        }
    }
    /// Takes what the server tells of caches.
    pub(super) fn told(&self, take: impl FnOnce(&mut CacheLease)) {
        self.part.share.told_by(self.part.group.0 as usize, take);
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
    pub async fn call(self: &Arc<Session>, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
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
        let own = Context { session: self.id(), request: RequestId(number), done, ..context.copied() };
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
    pub(super) fn give_up(&self, is_meant: impl Fn(&Pending) -> bool, error: impl Fn() -> Error) {
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
        let only = self.holdings.lock().only;
        let undone = holdings::undo(only, &left.context, &left.op, &answer.reply);
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
    /// Tells the server that the session ends. False if there is no way to it.
    pub fn say_bye(&self) -> bool {
        let Some(lane) = self.lane() else { return false };
        lane.bare(FrameKind::Bye, self.header(FrameKind::Bye));
        true
    }
    /// Waits until the server has noted that the session ends.
    pub async fn bye_is_noted(&self) {
        loop {
            let ticket = self.changed.ticket();
            if self.has_left.load(Ordering::Acquire) {
                return;
            }
            self.changed.after(ticket).await;
        }
    }
    /// Waits for the end of the session. The reason, if the server has ended it.
    pub async fn ended(&self) -> Option<Refused> {
        loop {
            let ticket = self.changed.ticket();
            if self.is_over.load(Ordering::Acquire) {
                return self.end_reason();
            }
            self.changed.after(ticket).await;
        }
    }
    /// Ends the session for a reason that another server gave, unless it has one of its own.
    pub fn end_for(&self, refused: &Refused) {
        self.server.lock().refused.get_or_insert_with(|| refused.clone());
        self.end();
    }

    /// A connection that is up, if any.
    fn lane(&self) -> Option<Arc<Lane>> {
        self.wires.iter().find_map(|wire| wire.lock().lane.clone())
    }
    /// Sends a frame that is no request, if a connection is up.
    pub(super) fn say<B: Body>(&self, body: &B) {
        if let Some(lane) = self.lane() {
            lane.outbox.push(None, |out| body.frame(out, self.header(B::KIND)));
        }
    }
    pub(super) fn header(&self, kind: FrameKind) -> Header {
        Header { session: self.id(), group: self.part.group, ..Header::new(kind) }
    }
    /// Has the server make everything durable.
    async fn sync_all(&self) {
        let volume = self.server.lock().welcome.as_ref().and_then(|welcome| welcome.volume.as_ref().map(|it| it.id));
        let context = Context::own(volume.unwrap_or(VolumeId(0)), Span::start(self.runtime.stamp()));
        drop(self.perform(&context, Op::SyncAll, None, false).await);
    }
    /// Takes back what nobody waited for.
    pub(super) fn undo(self: &Arc<Session>, undo: Vec<(Context, Op)>) {
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
        self.share().end();
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
    async fn converse(self: &Arc<Session>, core: usize, search: &mut Search) -> Result<()> {
        let address = {
            let addresses = self.addresses.lock();
            addresses[search.attempt % addresses.len()].clone()
        };
        let connection = self.soon(CONNECT_NS, self.runtime.net.connect(&address)).await?;
        let credentials = self.credentials.lock().clone();
        let tls = credentials.map(|(credentials, name)| Tls::client(&credentials, &name)).transpose()?;
        let lane = Lane::start(&self.runtime, connection, tls);
        let mut reader = Reader::new(&self.runtime, &lane);
        let conversed = self.greet(&lane, &mut reader, search.patience_ns()).await;
        let ended = match conversed {
            Ok(Some(boot)) => {
                search.is_let_in();
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
    /// The number of the server's start; None if the client was refused. `patience_ns`: for the first answer, if another server may serve.
    async fn greet(&self, lane: &Lane, reader: &mut Reader, patience_ns: u64) -> Result<Option<u64>> {
        let Options { volume, who, read_only, .. } = &self.options;
        let hello = Hello {
            versions: VERSIONS,
            features: SEVERAL_GROUPS,
            cluster: None,
            who: who.clone(),
            boot: self.part.boot,
            volume: Some(volume.clone()),
            read_only: *read_only,
            begins: self.server.lock().welcome.is_none(),
        };
        let sent_ns = self.runtime.clock.now_ns();
        lane.outbox.push(None, |out| hello.frame(out, self.header(FrameKind::Hello)));
        let came = self.soon(patience_ns, reader.next()).await?.ok_or_else(gone)?;
        match came.header.kind {
            FrameKind::HelloOk => {}
            FrameKind::Refused => return self.refused(Refused::decode(reader.body())?).map(|()| None),
            _ => return Err(unexpected()),
        }
        let welcome = HelloOk::decode(reader.body())?;
        let boot = welcome.boot;
        if welcome.groups > 1 {
            // The leaders of the others know of the rest.
            self.holdings.lock().only = Some(self.part.group);
        }
        let lease_ns = u64::from(welcome.lease_ms) * 1_000_000;
        self.told(|lease| lease.is_welcomed(boot, welcome.caches, (sent_ns, lease_ns)));
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
                    self.share().places_are_lost();
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
    async fn take_replies(self: &Arc<Session>, core: usize, reader: &mut Reader, boot: u64) -> Result<()> {
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
                    let lease_ns = u64::from(lease_ms) * 1_000_000;
                    self.told(|lease| lease.pulse_is_heard(sequence, boot, caches, lease_ns));
                    self.hear_caches();
                }
                FrameKind::Recall => {
                    let Recall { caches } = Recall::decode(reader.body())?;
                    self.told(|lease| lease.hear(boot, caches, true));
                    self.hear_caches();
                }
                FrameKind::Freed => {
                    let Freed { ino, owner } = Freed::decode(reader.body())?;
                    self.share().lock_is_free(ino, owner);
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
async fn connect(client: Arc<Session>, core: usize) {
    let clock = client.runtime.clock.clone();
    let mut search = Search::of(core);
    loop {
        let began_ns = clock.now_ns();
        if let Err(error) = client.converse(core, &mut search).await {
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
async fn pulse(client: Arc<Session>) {
    while !client.is_over.load(Ordering::Acquire) {
        let clock = &client.runtime.clock;
        clock.sleep(PULSE_NS).await;
        let sequence = client.pulses.fetch_add(1, Ordering::Relaxed) + 1;
        client.told(|lease| lease.sends_pulse(sequence, clock.now_ns()));
        let pulse = Pulse { sequence, seen: 0, done: client.window.lock().done(), clock: clock.wall() };
        client.give_pulse(&pulse);
        client.lose_patience();
    }
}

/// Bounds what has to be known here of changes that may be lost. One request at a time: a server that is away is asked once.
async fn settle(client: Arc<Session>) {
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
