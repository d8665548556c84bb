//! Handling of one request, from its parsed form to its answer.

use super::abi::{UNTOLD_ID, opcode};
use super::channel::{Back, Message};
use super::dying;
use super::ends::Ends;
use super::file_locks::{self, LockAsk};
use super::gate::{Gate, REFUSED};
use super::mount::{Durable, Noatime};
use super::notices::{Notices, Why};
use super::parse::{self, Ask, Header, Way};
use super::recent::Passed;
use super::reply::{self, ALONE_VALID_S, DirCaching, Entries, Head, Opening, Origin, PRIVILEGES};
use super::serve::{Identity, Target};
use super::sharing::Sharing;
use super::taped;
use base::limits::{BLOCK_BYTES, LISTED_HANDLES_MAX};
use base::lock::Family;
use base::{At, Attr, DirEntry, Error, Ino, Inode, Kind, LockWish, Op, Reply, RequestId, Result, SetAttr};
use layer::{Answer, Call, Context, NUMBER_BITS, handle_since, number_of};
use recording::{NameKey, Operation};
use runtime::ledger::{OpRow, Rows};
use runtime::seeded::{Bug, active};
use runtime::tasks::{Local, yield_now};
use runtime::{Arrival, Buf, Need, Runtime, Slice, Span, Stage, Subject};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The state that handling requests needs; one per core.
pub struct Handler<T> {
    pub runtime: Runtime,
    pub target: Arc<T>,
    pub identity: Identity,
    pub noatime: Noatime,
    pub durable: Durable,
    pub core: usize,
    pub gate: Arc<Gate>,
    pub rows: Rows,
    pub notices: Arc<Notices>,
    pub ends: Arc<Ends>,
    /// None: no other mount may have the volume.
    pub sharing: Option<Arc<Sharing>>,
    /// True if inodes may be given guards: the kernel checks who may.
    pub has_guards: bool,
}

/// Bits for the number of an operation within its request, below the kernel's own request number: one request may need
/// several operations, and each has a request number of its own in the stack.
const STEP_BITS: u32 = 2;

/// The numbers of a request's operations.
pub fn numbers_of(unique: u64) -> RangeInclusive<u64> {
    let first = unique << STEP_BITS;
    first..=first + (1 << STEP_BITS) - 1
}

/// An answer: its head and the bytes behind it.
enum Response {
    Head(Head),
    Bytes(Head, Slice),
    Small(Head, Box<[u8]>),
    Value(Head, Arc<[u8]>),
    Buffer(Head, Buf),
    /// A head that leaves the inode open. The open is undone if the kernel does not take the head.
    Opened(Head, Ino),
    /// A head that makes an inode known to the kernel until it forgets it. The inode is forgotten here if the kernel
    /// does not take the head.
    Entry(Head, Ino),
    /// A head that does both.
    Created(Head, Ino),
    /// Entries of a directory, with attributes of these inodes.
    Listed(Head, Buf, Vec<DirEntry>),
    /// No answer, and the kernel expects none.
    Nothing,
}

/// The answer to who wants something to be durable that was told, and is gone.
fn lost() -> Result<Response> {
    Err(Error::new(Kind::Io, "the server was started anew and has lost changes that were not durable"))
}

const _: () = assert!(LISTED_HANDLES_MAX < 1 << NUMBER_BITS, "a directory's handle has room for the losses");

impl<T: Target> Handler<T> {
    /// Handles one request and answers it. `payload`: that of a write, or memory for a read's answer.
    pub async fn handle(&self, message: Message, payload: Option<Result<Buf>>, arrival: Arrival, back: &mut Back<'_>) {
        let Header { unique, opcode, pid, .. } = message.header;
        let _under_way = self.gate.enter(self.core);
        if matches!(opcode, opcode::RELEASE | opcode::RELEASEDIR) {
            self.gate.closed(pid);
        }
        match message.ask {
            // Nobody waits for its answer; what it would free is freed at the next start.
            Ok(Ask::Forget { .. } | Ask::ForgetAll(_)) if self.gate.is_shut() => (),
            Ok(ask) if self.gate.refuses(&ask) => drop(send(back, unique, &Head::status(unique, REFUSED), &[])),
            Ok(Ask::Silent) => (),
            Ok(Ask::Interrupt(of)) => self.interrupt(unique, of, back),
            Ok(Ask::Answer(errno)) => drop(send(back, unique, &Head::status(unique, errno), &[])),
            Ok(Ask::Lock(_) | Ask::Flush { .. }) if self.sharing.is_none() => {
                let _ = send(back, unique, &Head::status(unique, libc::ENOSYS), &[]);
            }
            Ok(Ask::Guard(..) | Ask::SetGuard(_)) if !self.has_guards => {
                let _ = send(back, unique, &Head::status(unique, libc::ENOTTY), &[]);
            }
            Ok(Ask::OpenDir { ino }) => {
                let (number, fills) = self.ends.open(self.core, ino);
                let handle = handle_since(self.target.losses(), number);
                let caching = match self.is_shared() {
                    true => DirCaching::None,
                    false if fills => DirCaching::Fills,
                    false => DirCaching::Keeps,
                };
                if !self.hand_out(pid, &Head::open_dir(unique, (handle, pid), caching), back) {
                    self.ends.close(number, ino);
                }
            }
            Ok(Ask::CloseDir { ino, handle }) => {
                self.ends.close(number_of(handle), ino);
                let _ = send(back, unique, &Head::status(unique, 0), &[]);
            }
            Ok(ask) => match &self.sharing {
                None => self.ask(&message.header, ask, payload, arrival, back).await,
                Some(sharing) => {
                    let _listed = sharing.list(unique, pid);
                    self.ask(&message.header, ask, payload, arrival, back).await;
                }
            },
            Err(error) => drop(send(back, unique, &Head::status(unique, reply::errno(&error)), &[])),
        }
    }
    /// A signal came for the thread of a request.
    fn interrupt(&self, unique: u64, of: u64, back: &mut Back<'_>) {
        let Some(sharing) = &self.sharing else {
            // It ends by itself, soon: the kernel need not tell any more.
            let _ = send(back, unique, &Head::status(unique, libc::ENOSYS), &[]);
            return;
        };
        sharing.waiting.interrupt(of);
        let (runtime, waiting, target) = (self.runtime.clone(), sharing.waiting.clone(), self.target.clone());
        let watch = move || -> Local { Box::pin(dying::watch(runtime, waiting, target, of)) };
        self.runtime.tasks.spawn(self.core, Box::new(watch));
    }
    /// Passes the request to the stack, answers it, and leaves its times in the ledger.
    async fn ask(
        &self,
        header: &Header,
        ask: Ask,
        payload: Option<Result<Buf>>,
        arrival: Arrival,
        back: &mut Back<'_>,
    ) {
        let row = self.row(&ask);
        let mut context = self.context(header, &ask, arrival);
        context.span.mark(Stage::Front, self.runtime.stamp());
        // Of a change that is to be durable: the losses so far.
        let losses = self.is_durable(&ask).then(|| self.target.losses());
        let mut taped = self.runtime.ledger.tape_key().and_then(|key| self.taped(&ask, payload.as_ref(), key));
        let mut response = self.respond(&mut context, header, ask, payload).await;
        if let Some(losses) = losses
            && response.is_ok()
        {
            let synced = self.call(&context, Op::SyncAll).await;
            let is_lost = self.target.losses() != losses;
            response = if is_lost { lost() } else { synced.and(response) };
        }
        context.span.mark(Stage::Other, self.runtime.stamp());
        if let Some(operation) = &mut taped {
            note(operation, &response);
        }
        match response {
            Ok(Response::Nothing) => (),
            Ok(response) => self.answer(&mut context, header, response, back).await,
            Err(error) => {
                self.runtime.ledger.failed(self.core, row, error.kind);
                let _ = send(back, header.unique, &Head::status(header.unique, reply::errno(&error)), &[]);
            }
        }
        let subject = Subject { ino: header.nodeid, uid: header.uid, thread: header.pid, request: header.unique };
        self.runtime.ledger.record(self.core, row, &context.span, subject, self.runtime.stamp());
        if let Some(operation) = taped {
            self.runtime.ledger.tape(self.core, &context.span, &operation.words());
        }
    }
    /// The form in which a request is recorded.
    #[cold]
    fn taped(&self, ask: &Ask, payload: Option<&Result<Buf>>, key: NameKey) -> Option<Operation> {
        let payload_bytes = payload.and_then(|payload| payload.as_ref().ok()).map_or(0, |payload| payload.len());
        let operation = taped::operation(ask, payload_bytes, key)?;
        Some(Operation { volume: self.identity.volume.0, ..operation })
    }
    fn row(&self, ask: &Ask) -> OpRow {
        match ask {
            Ask::Entry(op) | Ask::Node(op) | Ask::Attr(op) | Ask::Birth(op) | Ask::Done(op) | Ask::Sync { op, .. } => {
                self.rows.row(op)
            }
            Ask::Guard(op, _) | Ask::SetGuard(op) => self.rows.row(op),
            Ask::Target(op) | Ask::Xattrs(op, _) | Ask::Seek(op) => self.rows.row(op),
            Ask::Read { op, .. } | Ask::Write { op, .. } | Ask::Create { op, .. } => self.rows.row(op),
            Ask::Open { ino, .. } => self.rows.row(&Op::Open { ino: *ino, truncate: false }),
            Ask::Release { ino, .. } => self.rows.row(&Op::Release { ino: *ino }),
            Ask::Lock(_) | Ask::Flush { .. } => self.rows.lock(),
            Ask::ReadDir { ino, .. } => self.rows.row(&Op::ReadDir { ino: *ino, cookie: 0, count: 0, plus: false }),
            Ask::StatFs => self.rows.row(&Op::StatFs),
            Ask::Above(ino) => self.rows.row(&Op::Recall { ino: *ino }),
            Ask::Forget { .. } | Ask::ForgetAll(_) => self.rows.row(&Op::Forget { ino: Ino(0), times: 0 }),
            Ask::Silent | Ask::Answer(_) | Ask::Interrupt(_) | Ask::OpenDir { .. } | Ask::CloseDir { .. } => {
                unreachable!("answered without the stack")
            }
        }
    }
    /// True if the request's changes must be durable when it is answered, because the volume is mounted so (sync,
    /// dirsync).
    fn is_durable(&self, ask: &Ask) -> bool {
        match ask {
            _ if !self.durable.names => false,
            Ask::Entry(op) => !matches!(op, Op::Lookup { .. }),
            Ask::Node(_) | Ask::Create { .. } => true,
            Ask::Attr(op) | Ask::SetGuard(op) => self.durable.attributes && matches!(op, Op::SetAttr { .. }),
            Ask::Done(Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::Allocate { .. }) => self.durable.attributes,
            Ask::Done(_) => true,
            _ => false,
        }
    }
    fn context(&self, header: &Header, ask: &Ask, arrival: Arrival) -> Context {
        Context {
            volume: self.identity.volume,
            session: self.identity.session,
            request: RequestId(header.unique << STEP_BITS),
            done: Context::ONCE,
            uid: header.uid,
            gid: header.gid,
            umask: header.umask,
            noatime: self.leaves_access_time(ask),
            unkept: matches!(ask, Ask::Read { flags, .. } if reply::bypasses_cache(*flags)),
            keeps: true,
            written_back: matches!(ask, Ask::Write { way: Way::Back, .. }),
            span: Span::of(arrival),
        }
    }
    fn leaves_access_time(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Read { noatime, .. } => *noatime || self.noatime.files,
            Ask::ReadDir { noatime, .. } => *noatime || self.noatime.directories,
            _ => self.noatime.files,
        }
    }
    async fn respond(
        &self,
        context: &mut Context,
        header: &Header,
        ask: Ask,
        payload: Option<Result<Buf>>,
    ) -> Result<Response> {
        let unique = header.unique;
        match ask {
            Ask::Read { op, way, .. } => self.read(context, unique, op, way, payload.transpose()?).await,
            Ask::Write { op, way } => self.write(context, unique, op, way, payload).await,
            Ask::Entry(op) => self.entry(context, unique, op).await,
            Ask::Above(ino) => self.above(context, unique, ino).await,
            Ask::Attr(op) => match self.grow(context, op).await? {
                Reply::Attr(attr) => {
                    self.looks_at(&attr).await;
                    Ok(Response::Head(Head::attr(unique, &attr, self.valid_s(unique))))
                }
                other => contradiction(&other),
            },
            Ask::Birth(op) => {
                let attr = self.attr(context, op).await?;
                self.looks_at(&attr).await;
                let told = reply::statx(&attr, self.valid_s(unique));
                Ok(Response::Small(Head::before(unique, told.len()), told))
            }
            Ask::Guard(op, bytes) => {
                let Inode { guard, project, .. } = self.attr(context, op).await?.inode;
                Ok(Response::Head(Head::control(unique, reply::guard_flags(guard, bytes), project, bytes)))
            }
            Ask::SetGuard(op) => self.guard(context, unique, op).await,
            Ask::Sync { op, handle } => self.sync(context, unique, op, handle).await,
            Ask::Done(op) => self.grow(context, op).await.map(|_| Response::Head(Head::status(unique, 0))),
            Ask::Node(op) => {
                let attr = self.attr(context, op).await?;
                self.release(context, attr.ino).await;
                Ok(Response::Entry(Head::entry(unique, &attr, self.origin(unique)), attr.ino))
            }
            Ask::Open { ino, flags, kill_privileges } => self.open(context, header, ino, flags, kill_privileges).await,
            Ask::Create { op, flags, kill_privileges } => {
                // A file that a lost start has made is one that its handle was open at.
                let losses = self.target.losses();
                let attr = self.create(context, op, flags, kill_privileges).await?;
                let handle = (handle_since(losses, self.gate.number()), header.pid);
                Ok(Response::Created(
                    Head::create(unique, &attr, self.origin(unique), self.opening(flags), handle),
                    attr.ino,
                ))
            }
            Ask::Forget { ino, times } => {
                self.forget(context, ino, times).await;
                Ok(Response::Nothing)
            }
            Ask::ForgetAll(all) => {
                self.forget_all(context, &all).await;
                Ok(Response::Nothing)
            }
            Ask::ReadDir { .. } => self.read_dir(context, unique, ask).await,
            ask => self.respond_more(context, unique, ask).await,
        }
    }
    /// Performs what `respond` leaves.
    async fn respond_more(&self, context: &Context, unique: u64, ask: Ask) -> Result<Response> {
        match ask {
            Ask::Target(op) => match self.call(context, op).await? {
                Reply::Target(target) => Ok(Response::Small(Head::before(unique, target.len()), target)),
                other => contradiction(&other),
            },
            Ask::Seek(op) => match self.call(context, op).await? {
                Reply::Found(Some(offset)) => Ok(Response::Head(Head::found(unique, offset))),
                Reply::Found(None) => Ok(Response::Head(Head::status(unique, libc::ENXIO))),
                other => contradiction(&other),
            },
            Ask::Xattrs(op, size) => self.xattrs(context, unique, op, size).await,
            Ask::Release { ino, handle } => {
                self.give_locks_back(context, ino, handle).await;
                self.call(context, Op::Release { ino }).await.map(|_| Response::Head(Head::status(unique, 0)))
            }
            Ask::Lock(ask) => self.lock(context, unique, ask).await,
            Ask::Flush { ino, owner } => self.flush(context, unique, ino, owner).await,
            Ask::StatFs => match self.call(context, Op::StatFs).await? {
                Reply::StatFs(space) => Ok(Response::Head(Head::statfs(unique, &space))),
                other => contradiction(&other),
            },
            other => unreachable!("answered before: {other:?}"),
        }
    }
    /// Seconds for which the kernel may cache what a request is told now.
    fn valid_s(&self, unique: u64) -> u64 {
        match &self.sharing {
            // Before such an answer is given, what it tells is made durable, which takes its time.
            Some(_) if self.durable.names => 0,
            Some(sharing) => sharing.valid_s(unique),
            None => ALONE_VALID_S,
        }
    }
    fn origin(&self, unique: u64) -> Origin {
        Origin { root: self.identity.root, brick: self.identity.brick, valid_s: self.valid_s(unique) }
    }
    fn is_shared(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_shared())
    }
    fn opening(&self, flags: u32) -> Opening {
        Opening { flags, is_shared: self.is_shared(), passes_locks: self.sharing.is_some() }
    }
    async fn looks_at(&self, attr: &Attr) {
        if let Some(sharing) = &self.sharing {
            sharing.looks_at(attr.ino, attr.inode.ctime).await;
        }
    }
    /// Performs the kernel's wish for a lock.
    async fn lock(&self, context: &Context, unique: u64, ask: LockAsk) -> Result<Response> {
        let Some(sharing) = &self.sharing else { unreachable!("asked before") };
        let LockAsk { handle, lock, wish } = ask;
        if matches!(wish, LockWish::Take | LockWish::Queue) {
            sharing.owners.note(handle, &lock).await;
        }
        if wish == LockWish::Queue {
            let ask = async |op| self.call(context, op).await;
            file_locks::wait(sharing, unique, lock, ask).await?;
            return Ok(Response::Head(Head::status(unique, 0)));
        }
        match (self.call(context, Op::Lock { lock: Box::new(lock), wish }).await?, wish) {
            (Reply::InTheWay(found), LockWish::Test) => {
                let found = reply::file_lock(found.as_deref());
                Ok(Response::Small(Head::before(unique, found.len()), found))
            }
            (Reply::InTheWay(Some(_)), LockWish::Take) => Ok(Response::Head(Head::status(unique, libc::EAGAIN))),
            (Reply::InTheWay(_), _) => Ok(Response::Head(Head::status(unique, 0))),
            (other, _) => contradiction(&other),
        }
    }
    /// Gives back what a process has locked of a file: it closes a descriptor of it.
    async fn flush(&self, context: &Context, unique: u64, ino: Ino, owner: u64) -> Result<Response> {
        if self.sharing.as_ref().is_some_and(|sharing| sharing.owners.flushed(ino, owner)) {
            self.call(context, file_locks::all_of(ino, (Family::Range, owner))).await?;
        }
        Ok(Response::Head(Head::status(unique, 0)))
    }
    /// Gives back what was locked through a handle that ends. Nobody can be told of an error: the session's end gives all back.
    async fn give_locks_back(&self, context: &Context, ino: Ino, handle: u64) {
        let Some(sharing) = &self.sharing else { return };
        let leaving = sharing.owners.released(ino, handle);
        for owner in leaving.owners() {
            let _ = self.call(context, file_locks::all_of(ino, owner)).await;
        }
    }
    async fn forget_all(&self, context: &mut Context, all: &[(Ino, u64)]) {
        for (number, &(ino, times)) in all.iter().enumerate() {
            self.forget(context, ino, times).await;
            if number % FORGOTTEN_PER_TURN == FORGOTTEN_PER_TURN - 1 {
                yield_now().await;
            }
        }
    }
    async fn call(&self, context: &Context, op: Op) -> Result<Reply> {
        Ok(self.target.call(context, Call { op, data: None }).await?.reply)
    }
    async fn attr(&self, context: &Context, op: Op) -> Result<Attr> {
        match self.call(context, op).await? {
            Reply::Attr(attr) => Ok(attr),
            other => contradiction(&other),
        }
    }
    async fn entry(&self, context: &Context, unique: u64, op: Op) -> Result<Response> {
        let lookup = matches!(op, Op::Lookup { .. });
        match self.attr(context, op).await {
            Ok(attr) => Ok(Response::Entry(Head::entry(unique, &attr, self.origin(unique)), attr.ino)),
            Err(error) if lookup && error.kind == Kind::NotFound => {
                Ok(Response::Head(Head::absent(unique, self.valid_s(unique))))
            }
            Err(error) => Err(error),
        }
    }
    async fn above(&self, context: &Context, unique: u64, ino: Ino) -> Result<Response> {
        let root = self.identity.root;
        let parent = match self.attr(context, Op::GetAttr { ino }).await?.inode {
            _ if ino == root => root,
            inode if inode.is_directory() => inode.parent,
            _ => return Err(Error::new(Kind::NotDirectory, "a file may lie in several directories")),
        };
        self.entry(context, unique, Op::Recall { ino: parent }).await
    }
    /// Answers with an attribute's value or the names of all attributes, if the client's buffer takes them. Names in
    /// `trusted.` are for root alone: the kernel refuses their values to others, but passes a list of names on as it
    /// is. Where ids may be mapped, the caller is not known and gets these names: better that a stranger sees a name
    /// than that root copies a file without it.
    async fn xattrs(&self, context: &Context, unique: u64, op: Op, size: usize) -> Result<Response> {
        let response = match self.call(context, op).await? {
            Reply::Value(value) => Response::Value(Head::before(unique, value.len()), value),
            Reply::Names(names) if [0, UNTOLD_ID].contains(&context.uid) => {
                Response::Small(Head::before(unique, names.len()), names)
            }
            Reply::Names(names) => {
                let seen = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
                let names: Box<[u8]> = seen.flatten().copied().collect();
                Response::Small(Head::before(unique, names.len()), names)
            }
            other => contradiction(&other),
        };
        let length = match &response {
            Response::Value(_, bytes) => bytes.len(),
            Response::Small(_, bytes) => bytes.len(),
            _ => unreachable!("just made"),
        };
        Ok(match size {
            0 => Response::Head(Head::xattr_size(unique, length)),
            _ if size < length => Response::Head(Head::status(unique, libc::ERANGE)),
            _ => response,
        })
    }
    async fn read(&self, context: &Context, unique: u64, op: Op, way: Way, room: Option<Buf>) -> Result<Response> {
        if let (Way::Cached, &Op::Read { ino, offset, length }) = (way, &op) {
            // Before it is read: who writes past the cache afterwards has to know of it.
            let end = offset.saturating_add(u64::from(length));
            self.notices.recent.read(self.core, Passed { ino, first: offset, end, unique });
        }
        let Answer { reply, data, .. } = self.target.call(context, Call { op, data: room }).await?;
        match (reply, data) {
            (Reply::Data { length: 0 }, _) => Ok(Response::Head(Head::before(unique, 0))),
            (Reply::Data { length }, Some(data)) => {
                assert_eq!(data.len(), length as usize, "the stack tells how many bytes it gives");
                Ok(Response::Bytes(Head::before(unique, data.len()), data))
            }
            (other, _) => contradiction(&other),
        }
    }
    async fn write(
        &self,
        context: &Context,
        unique: u64,
        op: Op,
        way: Way,
        payload: Option<Result<Buf>>,
    ) -> Result<Response> {
        let Some(data) = payload.transpose()? else { return Ok(Response::Head(Head::wrote(unique, 0))) };
        let Op::Write { ino, at, .. } = op else { unreachable!("what a write asks") };
        if way != Way::Direct {
            let (first, end) = match at {
                At::Offset(offset) => (offset, offset.saturating_add(data.len() as u64)),
                At::End => (0, u64::MAX),
            };
            self.notices.recent.cached(self.core, Passed { ino, first, end, unique });
        }
        match self.target.call(context, Call { op, data: Some(data) }).await?.reply {
            Reply::Wrote { offset, length } => {
                if way == Way::Direct && !active(Bug::PagesKept) {
                    let end = offset + u64::from(length);
                    self.notices.written_past(Passed { ino, first: offset, end, unique }).await;
                }
                Ok(Response::Head(Head::wrote(unique, length)))
            }
            other => contradiction(&other),
        }
    }
    /// Performs an operation that may make a file grow. Bytes that a mapping stored behind the end of the file belong
    /// to nobody, and must read as zeros once the file has grown over them. The kernel clears them when it gives up the
    /// page, so it is made to do that after the change, but before the answer tells it of the new end.
    async fn grow(&self, context: &Context, op: Op) -> Result<Reply> {
        let (ino, end, why) = match op {
            Op::SetAttr { ino, ref set } if let Some(size) = set.size => (ino, size, Why::Held),
            Op::Allocate { ino, offset, length, keep_size: false, .. } => {
                (ino, offset.saturating_add(length), Why::Stale)
            }
            _ => return self.call(context, op).await,
        };
        if !self.notices.recent.may_be_mapped(ino) {
            return self.call(context, op).await;
        }
        let old_end = self.attr(context, Op::GetAttr { ino }).await?.inode.size;
        let reply = self.call(context, op).await?;
        if end > old_end && !old_end.is_multiple_of(BLOCK_BYTES as u64) {
            self.notices.forget_pages(ino, old_end, old_end + 1, why).await;
        }
        Ok(reply)
    }
    /// Gives an inode another guard. Changes that the kernel has not written back yet were made before, so they are
    /// written first. Afterwards the kernel forgets the file's pages and attributes, so that nobody takes for stored
    /// what is now refused.
    async fn guard(&self, context: &Context, unique: u64, op: Op) -> Result<Response> {
        let Op::SetAttr { ino, .. } = op else { unreachable!("what sets a guard") };
        self.notices.forget_pages(ino, 0, u64::MAX, Why::Stale).await;
        self.attr(context, op).await?;
        self.notices.forget_pages(ino, 0, u64::MAX, Why::Stale).await;
        Ok(Response::Head(Head::control(unique, 0, 0, 0)))
    }
    /// Makes an inode or the volume durable, and tells what is lost of what it was told to have.
    async fn sync(&self, context: &Context, unique: u64, op: Op, handle: Option<u32>) -> Result<Response> {
        let ino = op.home();
        self.call(context, op).await?;
        if ino.zip(handle).is_some_and(|(ino, handle)| self.target.tell_loss_of(ino, handle)) {
            lost()
        } else {
            Ok(Response::Head(Head::status(unique, 0)))
        }
    }
    async fn open(&self, context: &mut Context, header: &Header, ino: Ino, flags: u32, kill: bool) -> Result<Response> {
        let truncate = truncates(flags);
        let attr = self.attr(context, Op::Open { ino, truncate }).await?;
        if reply::is_guarded(attr.inode.guard, flags) {
            self.release(context, ino).await;
            return Err(Error::new(Kind::Permission, "the file is immutable or only appended to"));
        }
        if truncate && kill && attr.inode.mode & PRIVILEGES != 0 {
            self.change_opened(context, ino, SetAttr { kill_privileges: true, ..SetAttr::default() }).await?;
        }
        let handle = handle_since(self.target.losses(), self.gate.number());
        Ok(Response::Opened(Head::open(header.unique, self.opening(flags), (handle, header.pid)), ino))
    }
    async fn create(&self, context: &mut Context, op: Op, flags: u32, kill_privileges: bool) -> Result<Attr> {
        let attr = self.attr(context, op).await?;
        if reply::is_guarded(attr.inode.guard, flags) || attr.inode.guard.any() && truncates(flags) {
            self.release(context, attr.ino).await;
            self.forget(context, attr.ino, 1).await;
            return Err(Error::new(Kind::Permission, "the file is immutable or only appended to"));
        }
        if !truncates(flags) || attr.inode.size == 0 {
            return Ok(attr);
        }
        // It existed already.
        let set = SetAttr { size: Some(0), kill_privileges, ..SetAttr::default() };
        let changed = self.change_opened(context, attr.ino, set).await;
        if changed.is_err() {
            self.forget(context, attr.ino, 1).await;
        }
        changed
    }
    /// Changes an inode that this request has opened; undoes the open if that fails.
    async fn change_opened(&self, context: &mut Context, ino: Ino, set: SetAttr) -> Result<Attr> {
        next_step(context);
        let changed = self.attr(context, Op::SetAttr { ino, set: set.into() }).await;
        if changed.is_err() {
            self.release(context, ino).await;
        }
        changed
    }
    /// Undoes an open that the client does not know of. Nobody can be told of an error.
    async fn release(&self, context: &mut Context, ino: Ino) {
        next_step(context);
        let _ = self.call(context, Op::Release { ino }).await;
    }
    /// Takes back that the kernel knows an inode. Nobody can be told of an error.
    async fn forget(&self, context: &Context, ino: Ino, times: u64) {
        let _ = self.call(context, Op::Forget { ino, times }).await;
    }
    async fn read_dir(&self, context: &Context, unique: u64, ask: Ask) -> Result<Response> {
        let Ask::ReadDir { ino, handle, offset, size, plus, .. } = ask else { unreachable!("what a listing asks") };
        let root = self.identity.root;
        let mut buffer = self.runtime.client_buffer(size, Need::Starting, Some(&context.span)).await?;
        let mut page = Entries::new(&mut buffer, plus, self.origin(unique));
        if offset < COOKIE_PARENT {
            let parent = if ino == root { root } else { self.attr(context, Op::GetAttr { ino }).await?.inode.parent };
            let fits =
                (offset == COOKIE_SELF || page.dot(b".", ino, COOKIE_SELF)) && page.dot(b"..", parent, COOKIE_PARENT);
            assert!(fits, "the smallest buffer that is accepted holds both");
        }
        let cookie = if offset <= COOKIE_PARENT { 0 } else { offset };
        let count = parse::entries_for(page.room(), plus);
        let (mut entries, next_cookie) = match self.call(context, Op::ReadDir { ino, cookie, count, plus }).await? {
            Reply::Entries { entries, next_cookie } => (entries, next_cookie),
            other => contradiction(&other),
        };
        let end = self.ends.read(number_of(handle), offset, next_cookie);
        let fitting = entries.iter().take_while(|entry| entry.cookie < end && page.push(entry)).count();
        let last = entries[..fitting].last().map_or(offset.max(COOKIE_PARENT), |entry| entry.cookie);
        self.ends.note_page(number_of(handle), offset, last);
        let length = page.used();
        buffer.set_len(length);
        let head = Head::before(unique, length);
        if !plus {
            return Ok(Response::Buffer(head, buffer));
        }
        for entry in entries.drain(fitting..).filter(|entry| entry.attr.is_some()) {
            self.forget(context, entry.ino, 1).await;
        }
        Ok(Response::Listed(head, buffer, entries))
    }
    async fn answer(&self, context: &mut Context, header: &Header, response: Response, back: &mut Back<'_>) {
        let unique = header.unique;
        match response {
            Response::Nothing => (),
            Response::Head(head) => drop(send(back, unique, &head, &[])),
            Response::Bytes(head, bytes) => {
                #[cfg(feature = "ablations")]
                back.keep(&bytes);
                let _ = send(back, unique, &head, &bytes);
            }
            Response::Small(head, bytes) => drop(send(back, unique, &head, &bytes)),
            Response::Value(head, bytes) => drop(send(back, unique, &head, &bytes)),
            Response::Buffer(head, buffer) => drop(send(back, unique, &head, &buffer)),
            Response::Opened(head, ino) => {
                if !self.hand_out(header.pid, &head, back) {
                    self.release(context, ino).await;
                }
            }
            Response::Entry(head, ino) => {
                if send(back, unique, &head, &[]).is_err() {
                    self.forget(context, ino, 1).await;
                }
            }
            Response::Created(head, ino) => {
                if !self.hand_out(header.pid, &head, back) {
                    self.release(context, ino).await;
                    self.forget(context, ino, 1).await;
                }
            }
            Response::Listed(head, buffer, entries) => {
                if send(back, unique, &head, &buffer).is_err() {
                    for entry in entries.iter().filter(|entry| entry.attr.is_some()) {
                        self.forget(context, entry.ino, 1).await;
                    }
                }
            }
        }
    }
    /// Hands a handle out; false if the kernel does not take it. It is counted before, since it may be given back on
    /// another core at once.
    fn hand_out(&self, pid: u32, head: &Head, back: &mut Back<'_>) -> bool {
        self.gate.opened(pid);
        let taken = back.send(head.as_bytes(), &[]).is_ok();
        if !taken {
            self.gate.closed(pid);
        }
        taken
    }
}

/// Notes a request's outcome in the form in which it is recorded.
#[cold]
fn note(operation: &mut Operation, response: &Result<Response>) {
    match response {
        Err(error) => operation.errno = reply::errno(error) as u16,
        Ok(Response::Entry(_, ino) | Response::Opened(_, ino) | Response::Created(_, ino)) => operation.made = ino.0,
        Ok(Response::Bytes(_, bytes)) => operation.bytes = bytes.len() as u32,
        Ok(Response::Buffer(_, bytes) | Response::Listed(_, bytes, _)) => operation.bytes = bytes.len() as u32,
        Ok(Response::Small(_, bytes)) => operation.bytes = bytes.len() as u32,
        Ok(Response::Value(_, bytes)) => operation.bytes = bytes.len() as u32,
        Ok(Response::Head(_) | Response::Nothing) => (),
    }
}

/// Sends an answer. A client that has gone, or an ended connection, needs none. If the kernel does not take the bytes
/// (no memory), the client gets an error instead of waiting for ever. Errors: nobody has got the answer.
fn send(back: &mut Back<'_>, unique: u64, head: &Head, tail: &[u8]) -> Result<(), i32> {
    let sent = back.send(head.as_bytes(), tail);
    match sent {
        Ok(()) | Err(libc::ENOENT | libc::ENODEV) => (),
        Err(_) => drop(back.send(Head::status(unique, libc::EIO).as_bytes(), &[])),
    }
    sent
}

/// Largest number of inodes that are forgotten before other requests get a turn.
const FORGOTTEN_PER_TURN: usize = 256;

/// Position behind ".", and one more behind ".."; the group's own cookies start above.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

fn truncates(flags: u32) -> bool {
    flags & libc::O_TRUNC as u32 != 0
}

/// Gives the request's next operation a number of its own (rule R1).
fn next_step(context: &mut Context) {
    context.request.0 += 1;
    assert!(context.request.0 & ((1 << STEP_BITS) - 1) != 0, "a request has at most four operations");
}

fn contradiction(reply: &Reply) -> ! {
    panic!("the stack gave an answer of another operation: {reply:?}")
}
