//! Serves a mount: on every core, tasks that each read one request, handle it and answer it. If requests come in
//! entries of the core's ring, there is also a task per entry; FORGET and INTERRUPT never come there and are still
//! read, as are all requests if the kernel refuses the entries.
//!
//! Promises: a request is answered exactly once. A task handles one request at a time, on the core that read it, unless
//! it is one of several large ones (docs/decisions/0023). Between reading and answering there is no queue of ours
//! (decision D4).

use super::abi::UNTOLD_ID;
use super::channel::{Back, Landing, Message, Received};
use super::ends::Ends;
use super::gate::{Gate, Opener};
use super::handle::{Handler, numbers_of};
use super::mount::{Mount, Unmounted};
use super::notices::Notices;
use super::parse::Header;
use super::reader_token::ReaderToken;
use super::recent::Recent;
use super::reply::Head;
use super::rings::{Taken, Transport};
use super::sharing::Sharing;
use base::ablated::{Ablation, Turns, is_on, workers};
use base::limits::BULK_BYTES_MIN;
use base::{Error, Ino, Kind, Result, SessionId, VolumeId};
use layer::{Answer, Call, Context, Sharer, Stack};
use runtime::ledger::Rows;
use runtime::real::RingEntry;
use runtime::tasks::{Flow, Local, enter, yield_now};
use runtime::{Arrival, Buf, Need, Runtime};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Largest number of requests in progress per core. A device reaches its full speed at a depth of 32 to 64; further
/// requests wait in the kernel, where they can still be merged or given up.
const TASKS_PER_CORE: usize = 64;

/// Largest number of requests in progress that a mount without rings has.
pub(super) fn tasks() -> usize {
    TASKS_PER_CORE * std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Largest number of requests that a task answers without waiting before it lets the others run: bounded work per turn
/// (decision D4; the prototype was measured with 4).
const TURN_REQUESTS_MAX: usize = 4;

/// The receiver of operations: the stack, or a test's stand-in.
pub trait Target: Send + Sync + 'static {
    /// Passes an operation to whatever answers it.
    fn call(&self, context: &Context, call: Call) -> impl Future<Output = Result<Answer>>;
    /// The flow that its operations belong to; None: they share no core with others.
    fn flow(&self) -> Option<&Arc<Flow>> {
        None
    }
    /// The flow of a user's operations; None: they share no core with others.
    fn flow_of(&self, uid: u32) -> Option<Arc<Flow>> {
        let _ = uid;
        None
    }
    /// The session of a mount of this number, whose volume other mounts may have too. None if nobody tells of them.
    fn sharer(&self, session: SessionId) -> Option<Arc<dyn Sharer>> {
        let _ = session;
        None
    }
    /// Ends the wait of the operations of a request of the kernel's with an error, if they wait for another machine.
    fn give_up(&self, unique: u64) {
        let _ = unique;
    }
    /// Number of times, modulo 256, that changes were lost which the target had told and which were not durable (rule P3). A target
    /// that ends with this process loses none.
    fn losses(&self) -> u8 {
        0
    }
    /// True, once for each handle, if a change of the inode was lost while the handle was open. Its highest byte is `losses` at its
    /// open, of a file that was made with it those before.
    fn tell_loss_of(&self, ino: Ino, handle: u32) -> bool {
        let _ = (ino, handle);
        false
    }
}

impl Target for Stack {
    fn sharer(&self, session: SessionId) -> Option<Arc<dyn Sharer>> {
        Stack::sharer(self, session)
    }
    fn give_up(&self, unique: u64) {
        if let Some(client) = Stack::remote(self) {
            client.give_up_requests(numbers_of(unique));
        }
    }
    fn losses(&self) -> u8 {
        Stack::remote(self).map_or(0, |client| client.losses())
    }
    fn tell_loss_of(&self, ino: Ino, handle: u32) -> bool {
        Stack::remote(self).is_some_and(|client| client.tell_loss_of(ino, handle))
    }
    fn call(&self, context: &Context, call: Call) -> impl Future<Output = Result<Answer>> {
        Stack::call(self, context, call)
    }
    fn flow(&self) -> Option<&Arc<Flow>> {
        Some(Stack::flow(self))
    }
    fn flow_of(&self, uid: u32) -> Option<Arc<Flow>> {
        Some(Stack::flow_of(self, uid))
    }
}

/// The identity under which a mount's requests reach the stack.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The volume.
    pub volume: VolumeId,
    /// The volume's root directory.
    pub root: Ino,
    /// The mount's session: a new one for each mount, because the kernel numbers requests from the start again.
    pub session: SessionId,
    /// A number made from the brick's uuid: file handles of another brick are stale.
    pub brick: u32,
}

impl Identity {}

/// A mount that is being served.
pub struct Serving {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    mount: Mount,
    gate: Arc<Gate>,
    runtime: Runtime,
    /// Number of tasks that still run; at zero the serving has ended.
    pub(super) tasks: AtomicUsize,
    ended: Mutex<bool>,
    bell: Condvar,
    /// True once a request has come in an entry.
    by_entry: AtomicBool,
    pub(super) turns: Turns,
    session: SessionId,
    sharing: Option<Arc<Sharing>>,
    _taken: Option<Taken>,
}

/// Time for which FORGETs are collected. Otherwise each would be a request of its own and wake both cores.
const GATHER_NS: u64 = 2_000_000;

/// Pause between two checks whether an entry's memory is back, if it is still in use when a write is answered; it
/// should never be.
const LENT_PAUSE_NS: u64 = 1_000_000;

/// Pause between two checks whether requests under way at an orderly end have ended.
const QUIET_PAUSE_NS: u64 = 1_000_000;

/// Time within which a core has handed over to the kernel what it answered before: more than any turn takes.
pub(super) const TURN_NS: u64 = 2_000_000;

/// State that the tasks of one core share.
pub(super) struct Core<T> {
    pub(super) handler: Handler<T>,
    /// The core's own descriptor: requests read from it are answered through it.
    pub(super) device: Arc<File>,
    landing: Mutex<Landing>,
    reader_token: ReaderToken,
    /// Number of large requests under way that came in entries from the core's own CPU.
    bulk: AtomicUsize,
    pub(super) shared: Arc<Shared>,
}

/// Starts the tasks of all cores. The file system answers from now on.
///
/// Not generic: what handles requests is compiled with this package, once, and not again with each program that serves a mount.
#[inline(never)]
pub fn serve(runtime: &Runtime, mount: Mount, stack: Arc<Stack>, identity: Identity) -> Result<Serving> {
    serve_target(runtime, mount, stack, identity)
}

/// The same for any target.
pub fn serve_target<T: Target>(
    runtime: &Runtime,
    mut mount: Mount,
    target: Arc<T>,
    identity: Identity,
) -> Result<Serving> {
    let count = runtime.tasks.cores();
    let readers = if is_on(Ablation::Queue) { 1 } else { count - workers() };
    let devices = (0..count).map(|_| mount.clone_device().map(Arc::new)).collect::<Result<Vec<Arc<File>>>>()?;
    let landings = (0..count).map(|core| Landing::new(runtime, core)).collect::<Result<Vec<Landing>>>()?;
    let (noatime, durable, has_guards) = (mount.noatime(), mount.durable(), mount.agreement().looks_after_flags());
    let rings = mount.take_rings();
    let requests = rings.as_ref().map_or(TASKS_PER_CORE, |rings| rings.depth().min(TASKS_PER_CORE));
    let recent = Recent::new(count, !mount.agreement().forgets_before_writes(), runtime.clock.now_ns());
    let notices = Arc::new(Notices::new(runtime, devices[0].clone(), identity.root, requests, recent));
    let (entries, taken) = rings.map(|rings| rings.into_entries(runtime, &devices)).unzip();
    let entries: Vec<(usize, RingEntry)> = entries.unwrap_or_default();
    let (gate, ends) = (Arc::new(Gate::new(count)), Arc::new(Ends::new(count)));
    let sharer = if mount.shares() { target.sharer(identity.session) } else { None };
    let sharing = sharer.map(|session| Sharing::start(runtime, session, &notices));
    let shared = Arc::new(Shared {
        mount,
        gate: gate.clone(),
        runtime: runtime.clone(),
        tasks: AtomicUsize::new(readers * TASKS_PER_CORE + entries.len()),
        ended: Mutex::new(false),
        bell: Condvar::new(),
        by_entry: AtomicBool::new(false),
        turns: Turns::default(),
        session: identity.session,
        sharing: sharing.clone(),
        _taken: taken,
    });
    let mut cores = Vec::with_capacity(count);
    for (number, (device, landing)) in devices.into_iter().zip(landings).enumerate() {
        let handler = Handler {
            runtime: runtime.clone(),
            target: target.clone(),
            identity,
            noatime,
            durable,
            core: number,
            gate: gate.clone(),
            rows: Rows::of(&runtime.ledger),
            notices: notices.clone(),
            ends: ends.clone(),
            sharing: sharing.clone(),
            has_guards,
        };
        cores.push(Arc::new(Core {
            handler,
            device,
            landing: Mutex::new(landing),
            reader_token: ReaderToken::new(TASKS_PER_CORE),
            bulk: AtomicUsize::new(0),
            shared: shared.clone(),
        }));
    }
    let cores: Arc<[Arc<Core<T>>]> = cores.into();
    // Made here: a core may be stopped before it has begun with all of its tasks.
    let served = |home| Served { cores: cores.clone(), home, user: None, _leave: Leave(shared.clone()) };
    for (reader, task) in (0..readers).flat_map(|reader| (0..TASKS_PER_CORE).map(move |task| (reader, task))) {
        served(reader).spawn(reader, move |served| run(served, task));
    }
    for (home, entry) in entries {
        served(home).spawn(home, move |served| run_entry(served, entry));
    }
    Ok(Serving { shared })
}

/// The life of a task.
async fn run<T: Target>(mut served: Served<T>, task: usize) {
    let core = &served.home().clone();
    let mut turn = 0;
    while let Some((message, payload, mut arrival)) = core.receive(task).await {
        if served.changes(&message.header) {
            // Else the tasks that wait for the token would wait for this user's turn, too.
            core.reader_token.wake_next();
            arrival = served.enter(message.header.uid, arrival).await;
        }
        let mut waited = false;
        if is_on(Ablation::HandDown) {
            served.hand_down(message, payload, arrival);
        } else {
            let mut back = served.way_back(core, None);
            let mut handling = pin!(core.handler.handle(message, payload, arrival, &mut back));
            poll_fn(|context| {
                let poll = handling.as_mut().poll(context);
                if poll.is_pending() && !waited {
                    waited = true;
                    core.reader_token.wake_next();
                }
                poll
            })
            .await;
        }
        turn = if waited { 0 } else { turn + 1 };
        if turn == TURN_REQUESTS_MAX {
            turn = 0;
            core.reader_token.wake_next();
            yield_now().await;
        }
    }
}

/// State that a task needs, on whichever core it runs.
pub(super) struct Served<T> {
    pub(super) cores: Arc<[Arc<Core<T>>]>,
    /// The core that reads, or whose ring has the entry.
    pub(super) home: usize,
    /// The user whose request it handled last, and the flow of that user's requests.
    pub(super) user: Option<(u32, Arc<Flow>)>,
    pub(super) _leave: Leave,
}

impl<T: Target> Served<T> {
    pub(super) fn home(&self) -> &Arc<Core<T>> {
        &self.cores[self.home]
    }
    /// Starts its next task, on a core.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(
        self,
        core: usize,
        task: impl FnOnce(Served<T>) -> F + Send + 'static,
    ) {
        let handler = &self.home().handler;
        let (tasks, target) = (handler.runtime.tasks.clone(), handler.target.clone());
        let flow = self.user.as_ref().map(|(_, flow)| flow.clone());
        let make = Box::new(move || -> Local { Box::pin(task(self)) });
        match flow.as_ref().or(target.flow()) {
            Some(flow) => tasks.spawn_in(core, flow, make),
            None => tasks.spawn(core, make),
        }
    }
    /// True if a request is another user's than the one before. The kernel's own requests, such as writeback, never are: the task
    /// handles them in the flow that it has.
    fn changes(&self, header: &Header) -> bool {
        let is_kernels = header.uid == UNTOLD_ID || (header.uid, header.pid) == (0, 0);
        !is_kernels && self.user.as_ref().is_none_or(|(uid, _)| *uid != header.uid)
    }
    /// Makes the task one of a user's flow, and waits for that flow's turn: a wait for the core, from the request's arrival on.
    async fn enter(&mut self, uid: u32, arrival: Arrival) -> Arrival {
        let Handler { runtime, target, .. } = &self.cores[self.home].handler;
        let Some(flow) = target.flow_of(uid) else { return arrival };
        enter(&*runtime.tasks, &flow).await;
        self.user = Some((uid, flow));
        arrival.taken(runtime.stamp())
    }
    /// The core that handles a large request instead of the home core, if any. The kernel copies the request's bytes on
    /// the core that has the entry, which runs on the client's CPU. So of several large requests, all but one go to the
    /// next core, unless that has large requests of its own clients. Where a client waits for one request at a time,
    /// its own CPU is the nearest.
    fn helper(&self, under_way: usize) -> Option<usize> {
        let next = (self.home + 1) % (self.cores.len() - workers());
        let is_free = under_way > 0 && self.cores[next].bulk.load(Ordering::Relaxed) == 0;
        (is_free && next != self.home).then_some(next)
    }
}

/// The life of an entry: it goes to the kernel with each answer, and comes back with the next request.
pub(super) async fn run_entry<T: Target>(mut served: Served<T>, mut entry: RingEntry) {
    let home = served.home().clone();
    loop {
        // If this fails, the connection has ended, or the kernel takes no entries and its requests are read from the
        // device.
        let Ok(fetched) = entry.fetch().await else { return };
        entry = fetched;
        let mut arrival = Arrival::at(entry.came()).taken(home.handler.runtime.stamp());
        if !home.shared.by_entry.load(Ordering::Relaxed) {
            home.shared.by_entry.store(true, Ordering::Relaxed);
        }
        let message = home.landing().parse_entry(&entry, home.handler.identity.root);
        if served.changes(&message.header) {
            arrival = served.enter(message.header.uid, arrival).await;
        }
        if message.bytes() < BULK_BYTES_MIN {
            let payload = match message.payload_bytes {
                0 => None,
                length => Some(home.copy(&entry, length).await),
            };
            if is_on(Ablation::HandDown) {
                return served.hand_entry_down(entry, message, payload, arrival);
            }
            entry = home.answer(entry, message, payload, arrival).await;
            continue;
        }
        let (lent, payload) = entry.lend();
        entry = lent;
        let under_way = home.bulk.fetch_add(1, Ordering::Relaxed);
        if let Some(helper) = served.helper(under_way) {
            let arrival = arrival.hopped();
            return served.spawn(helper, move |served| help(served, helper, entry, message, payload, arrival));
        }
        entry = home.answer(entry, message, Some(Ok(payload)), arrival).await;
        home.bulk.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Handles a large request on another core, and sends the entry back to its own.
async fn help<T: Target>(
    served: Served<T>,
    helper: usize,
    entry: RingEntry,
    message: Message,
    payload: Buf,
    arrival: Arrival,
) {
    let arrival = arrival.taken(served.home().handler.runtime.stamp());
    let entry = served.cores[helper].answer(entry, message, Some(Ok(payload)), arrival).await;
    served.home().bulk.fetch_sub(1, Ordering::Relaxed);
    let home = served.home;
    served.spawn(home, move |served| run_entry(served, entry));
}

/// Tells the serving that a task has ended, also when the cores are stopped and drop their tasks.
pub(super) struct Leave(pub(super) Arc<Shared>);

impl Drop for Leave {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.sharing.iter().for_each(|sharing| sharing.end());
            *self.0.ended.lock().expect("no panic while held") = true;
            self.0.bell.notify_all();
        }
    }
}

impl<T: Target> Core<T> {
    /// Reads the next request, with a write's payload and the time at which reading began. Takes the token for that and
    /// gives it up afterwards, without waking the next. None: no request will come any more.
    async fn receive(&self, task: usize) -> Option<(Message, Option<Result<Buf>>, Arrival)> {
        if !self.reader_token.take(task).await {
            return None;
        }
        let runtime = &self.handler.runtime;
        loop {
            self.gather().await;
            let arrival = Arrival::at(runtime.stamp());
            let received = self.landing().receive(&self.device);
            let total = match received {
                Received::Request(total) => total,
                Received::Nothing => match runtime::real::readable(self.device.as_raw_fd()).await {
                    Ok(()) => continue,
                    Err(_) => break,
                },
                Received::Ended => break,
            };
            let parsed = self.landing().parse(total, self.handler.identity.root);
            let Some(message) = parsed else { continue };
            let payload = match message.payload_bytes {
                0 => None,
                length => Some(self.payload(length).await),
            };
            self.reader_token.release();
            return Some((message, payload, arrival));
        }
        self.reader_token.end();
        None
    }
    /// Waits for FORGETs to collect, if requests come in entries: then only FORGETs are worth reading here, and nobody
    /// waits for them. Those that the kernel queues within `GATHER_NS` come as one request.
    async fn gather(&self) {
        if self.shared.by_entry.load(Ordering::Relaxed) {
            // The read tells what is wrong.
            let _ = runtime::real::readable(self.device.as_raw_fd()).await;
            self.handler.runtime.clock.sleep(GATHER_NS).await;
        }
    }
    fn landing(&self) -> MutexGuard<'_, Landing> {
        self.landing.lock().expect("no panic while held")
    }
    /// The payload that has landed. Nothing else is read on this core while there is no buffer for it: full memory
    /// slows writers down before it refuses them (back-pressure).
    async fn payload(&self, length: usize) -> Result<Buf> {
        let fresh = self.handler.runtime.client_buffer(Landing::fresh_bytes(length), Need::Starting, None).await?;
        Ok(self.landing().payload(fresh, length))
    }
    /// Copies a small write's payload out of its entry: the entry is given away with the answer, while the log may
    /// still read the payload (rule F3). A large payload may stay there, since it is on the device before its write is
    /// answered (rule U2).
    async fn copy(&self, entry: &RingEntry, length: usize) -> Result<Buf> {
        let mut fresh = self.handler.runtime.client_buffer(length, Need::Starting, None).await?;
        fresh.copy_from_slice(&entry.payload()[..length]);
        Ok(fresh)
    }
    /// Handles an entry's request. The entry comes back with the answer, and with all of its memory.
    pub(super) async fn answer(
        &self,
        mut entry: RingEntry,
        message: Message,
        payload: Option<Result<Buf>>,
        arrival: Arrival,
    ) -> RingEntry {
        // The kernel waits for an answer in any case.
        entry.answer(Head::status(message.header.unique, libc::EIO).as_bytes(), [&[], &[]]);
        // Pinned where it is made: awaiting it would copy all of it, some kilobytes per request, twice.
        pin!(self.handler.handle(message, payload, arrival, &mut Back::Entry(&mut entry))).await;
        loop {
            let (settled, is_back) = entry.settle();
            if is_back {
                return settled;
            }
            entry = settled;
            self.handler.runtime.clock.sleep(LENT_PAUSE_NS).await;
        }
    }
}

/// Waits until a core is through with requests of earlier generations. False if it is not by then. Runs on the core.
async fn through_by(gate: &Gate, core: usize, runtime: &Runtime, deadline_ns: u64) -> bool {
    while !gate.is_through(core) {
        if runtime.clock.now_ns() >= deadline_ns {
            return false;
        }
        runtime.clock.sleep(QUIET_PAUSE_NS).await;
    }
    true
}

impl Serving {
    /// The session of its requests.
    pub fn session(&self) -> SessionId {
        self.shared.session
    }
    /// The mount that is served.
    pub fn mount(&self) -> &Mount {
        &self.shared.mount
    }
    /// The way in which requests come; known once one has been answered.
    pub fn transport(&self) -> Transport {
        if self.shared.by_entry.load(Ordering::Relaxed) { Transport::Rings } else { Transport::Device }
    }
    /// True once nothing is served any more: unmounted, by us or by someone else.
    pub fn has_ended(&self) -> bool {
        *self.shared.ended.lock().expect("no panic while held")
    }
    /// Blocks until nothing is served any more. False if the time is over before that.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ended = self.shared.ended.lock().expect("no panic while held");
        let (ended, _) =
            self.shared.bell.wait_timeout_while(ended, timeout, |ended| !*ended).expect("no panic while held");
        *ended
    }
    /// Number of requests that the daemon has at this moment.
    pub fn under_way(&self) -> usize {
        self.shared.gate.under_way()
    }
    /// Processes with open handles.
    pub fn openers(&self) -> Vec<Opener> {
        self.shared.gate.openers()
    }
    /// Number of open handles: of files, also while they are mapped, and of directories that are read.
    pub fn open_handles(&self) -> usize {
        self.shared.gate.open_handles()
    }
    /// Refuses to open anything from now on, and serves what is open. Step 1 of an orderly end.
    pub fn refuse_opens(&self) {
        self.shared.gate.refuse_opens();
    }
    /// Waits until nothing is open, at most for `patience`. True if nothing is. Blocks: not to be called on a core.
    pub fn wait_closed(&self, patience: Duration) -> bool {
        self.has_ended() || self.shared.gate.wait_closed(patience)
    }
    /// Answers each request with an error from now on. When this returns, earlier requests have been answered, and what
    /// they were told is true. Step 2 of an orderly end. Blocks: not to be called on a core. Errors: `Interrupted` if
    /// the cores have been stopped.
    pub fn refuse_all(&self) -> Result<()> {
        let Shared { gate, runtime, .. } = &*self.shared;
        gate.refuse_all();
        let cores = runtime.tasks.cores();
        let (sender, quiet) = sync_channel(cores);
        for core in 0..cores {
            let (gate, clock, sender) = (gate.clone(), runtime.clock.clone(), sender.clone());
            let wait = async move {
                while !gate.is_quiet(core) {
                    clock.sleep(QUIET_PAUSE_NS).await;
                }
                // The last answers are the kernel's: else it takes them with the connection, and says ECONNABORTED.
                clock.sleep(TURN_NS).await;
                // Who waits for it is there until all have come.
                let _ = sender.send(());
            };
            runtime.tasks.spawn(core, Box::new(move || Box::pin(wait)));
        }
        drop(sender);
        let stopped = |_| Error::new(Kind::Interrupted, "the cores stop while requests are under way");
        (0..cores).try_for_each(|_| quiet.recv().map_err(stopped))
    }
    /// Waits until every request that is under way now has ended, at most for `patience`; later ones are not waited for. Blocks:
    /// not to be called on a core. Errors: `Busy` if the time is over before; `Interrupted` if the cores have been stopped.
    pub fn outlast(&self, patience: Duration) -> Result<()> {
        let Shared { gate, runtime, .. } = &*self.shared;
        let deadline_ns = runtime.clock.now_ns() + patience.as_nanos() as u64;
        let cores = runtime.tasks.cores();
        let (sender, through) = sync_channel(cores);
        for core in 0..cores {
            let (gate, runtime, sender) = (gate.clone(), runtime.clone(), sender.clone());
            let wait = async move {
                let mut is_through = through_by(&gate, core, &runtime, deadline_ns).await;
                if is_through {
                    gate.next_generation(core);
                    is_through = through_by(&gate, core, &runtime, deadline_ns).await;
                }
                // Who waits for it is there until all have come.
                let _ = sender.send(is_through);
            };
            self.shared.runtime.tasks.spawn(core, Box::new(move || Box::pin(wait)));
        }
        drop(sender);
        let stopped = |_| Error::new(Kind::Interrupted, "the cores stop while requests are under way");
        let all = (0..cores).map(|_| through.recv().map_err(stopped)).collect::<Result<Vec<_>>>()?;
        let late = || Error::new(Kind::Busy, "requests that began earlier are still under way");
        all.into_iter().all(|is_through| is_through).then_some(()).ok_or_else(late)
    }
    /// Unmounts, or detaches a mount that is still in use: its users go on being answered. Step 5 of an orderly end.
    pub fn detach(&self) -> Result<Unmounted> {
        self.shared.mount.detach()
    }
    /// Unmounts and waits until every request is answered. Blocks: not to be called on a core. A mount that is
    /// still in use is detached and goes on being served until its last user leaves or `timeout` is over.
    pub fn stop(&self, timeout: Duration) -> Result<Unmounted> {
        let deadline = Instant::now() + timeout;
        let unmounted = self.shared.mount.unmount()?;
        self.wait(deadline.saturating_duration_since(Instant::now()));
        Ok(unmounted)
    }
}
