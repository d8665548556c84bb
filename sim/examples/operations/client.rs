//! A brick with one volume, and the way of a request through it: parsed as the kernel sent it, through stack, group and
//! store, to the answer's bytes. Only the system calls of the front are left out, and what moves its tasks.

use crate::counted::counted;
use crate::kernel::{HEADER_BYTES, Message};
use base::{Ino, Name, Op, Reply, RequestId, SessionId, VolumeId};
use front::fuse::parse::{self, Ask};
use front::fuse::reply::{self, ALONE_VALID_S, Entries, Head, Origin, bypasses_cache};
use group::{Groups, Options};
use layer::{Answer, Call, Context, Stack};
use runtime::{Buf, Need, Runtime, Slice, Span, Stage, Stamp};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};

/// Memory of a brick: as much as an ordinary machine gives it.
const MEMORY_BYTES: u64 = 1 << 30;
/// Room of the read cache: for blocks that are read and not cached above.
const READ_CACHE_BYTES: u64 = 1 << 20;
/// Size of the brick: so large that no segment runs short.
const BRICK_BYTES: u64 = 8 << 30;

pub struct Client {
    runtime: Runtime,
    groups: Arc<Groups>,
    stack: Stack,
    volume: VolumeId,
    pub root: Ino,
    unique: Cell<u64>,
}

/// An answer, as the harness needs it to go on.
pub enum Told {
    Done,
    Wrote(u32),
    Ino(Ino),
    Bytes(Slice),
    /// The offset at which the next page of a directory begins; None behind the last.
    Next(Option<u64>),
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

impl Client {
    /// Formats the world's empty disk and serves a new volume.
    pub async fn new(runtime: Runtime) -> Client {
        let options = FormatOptions { size_bytes: Some(BRICK_BYTES), ..FormatOptions::default() };
        store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty disk can be formatted");
        let index = Arc::new(ModelIndex::new(store::format::leaf::merge));
        let opening = Opening::read(runtime.clone(), index, true).await.expect("just formatted");
        let options = Options { read_cache_bytes: READ_CACHE_BYTES, ..Options::for_memory(MEMORY_BYTES) };
        let (groups, _) = Groups::open(opening, options).await.expect("an empty log replays");
        let stack = Stack::new(groups.clone(), &[], &base::Limits::NONE);
        let (volume, root) = (VolumeId(0), Ino(0));
        let mut client = Client { runtime, groups, stack, volume, root, unique: Cell::new(0) };
        let create = Op::VolumeCreate { name: name("main"), size_bytes: None };
        let context = client.context(client.unique(), 0, Stamp(0));
        let Reply::Volume(volume) = client.call(&context, create, None).await.reply else { panic!("a volume is told") };
        (client.volume, client.root) = (volume.id, volume.root);
        client
    }
    /// Brings the index up to all that was done, so that what follows does not depend on it.
    pub async fn settle(&self) {
        self.groups.checkpoint().await.expect("a healthy brick has checkpoints");
    }
    /// A number for the next request. The kernel's are even.
    pub fn unique(&self) -> u64 {
        self.unique.set(self.unique.get() + 2);
        self.unique.get()
    }
    /// One request, with what lands beside it.
    pub async fn request(&self, message: &Message, payload: &[u8]) -> Told {
        counted(self.handle(message.bytes(), payload)).await
    }

    async fn handle(&self, message: &[u8], payload: &[u8]) -> Told {
        let start = self.runtime.stamp();
        let mut header = parse::header(message, message.len() + payload.len()).expect("the kernel sends headers");
        let body = &message[HEADER_BYTES..];
        header.umask = parse::umask(header.opcode, body);
        let ask = parse::ask(&header, body, payload.len(), self.root).expect("the kernel sends requests");
        let data = if payload.is_empty() { None } else { Some(self.landed(payload).await) };
        let mut context = self.context(header.unique, header.umask, start);
        context.unkept = matches!(ask, Ask::Read { flags, .. } if bypasses_cache(flags));
        context.span.mark(Stage::Front, self.runtime.stamp());
        let (row, told) = self.tell(&context, header.unique, ask, data).await;
        self.runtime.ledger.record(0, row, &context.span, runtime::Subject::default(), self.runtime.stamp());
        told
    }
    /// The payload in a buffer of its own.
    async fn landed(&self, payload: &[u8]) -> Buf {
        let mut data = self.runtime.client_buffer(payload.len(), Need::Starting, None).await.expect("within the bound");
        data.copy_from_slice(payload);
        data
    }
    fn context(&self, unique: u64, umask: u16, start: Stamp) -> Context {
        Context {
            volume: self.volume,
            session: SessionId(1),
            request: RequestId(unique << 2),
            done: Context::ONCE,
            uid: 0,
            gid: 0,
            umask,
            noatime: false,
            unkept: false,
            keeps: true,
            written_back: false,
            span: Span::start(start),
        }
    }
    async fn call(&self, context: &Context, op: Op, data: Option<Buf>) -> Answer {
        self.stack.call(context, Call { op, data }).await.expect("a healthy brick")
    }
    async fn tell(&self, context: &Context, unique: u64, ask: Ask, data: Option<Buf>) -> (usize, Told) {
        let (op, flags) = match ask {
            Ask::ReadDir { ino, offset, size, plus, .. } => {
                return self.page(context, unique, ino, offset, size, plus).await;
            }
            Ask::Forget { ino, times } => {
                self.call(context, Op::Forget { ino, times }, None).await;
                return (self.runtime.ledger.row("forget"), Told::Done);
            }
            Ask::Create { op, flags, .. } => (op, flags),
            Ask::Read { op, .. } | Ask::Write { op, .. } | Ask::Sync { op, .. } => (op, 0),
            Ask::Entry(op) | Ask::Attr(op) | Ask::Done(op) => (op, 0),
            Ask::Release { ino, .. } => (Op::Release { ino }, 0),
            other => panic!("not one of these operations: {other:?}"),
        };
        let opening = reply::Opening { flags, is_shared: false, passes_locks: false };
        let row = self.runtime.ledger.row(op.name());
        let (lookup, create) = (matches!(op, Op::Lookup { .. }), matches!(op, Op::Create { .. }));
        let answer = self.call(context, op, data).await;
        let (head, told) = match answer.reply {
            Reply::Attr(attr) if create => {
                (Head::create(unique, &attr, self.origin(), opening, (0, 0)), Told::Ino(attr.ino))
            }
            Reply::Attr(attr) if lookup => (Head::entry(unique, &attr, self.origin()), Told::Ino(attr.ino)),
            Reply::Attr(attr) => (Head::attr(unique, &attr, ALONE_VALID_S), Told::Ino(attr.ino)),
            Reply::Wrote { length, .. } => (Head::wrote(unique, length), Told::Wrote(length)),
            Reply::Data { length } => {
                let data = answer.data.expect("there are bytes");
                (Head::before(unique, length as usize), Told::Bytes(data))
            }
            Reply::Done => (Head::status(unique, 0), Told::Done),
            other => panic!("not an answer to one of these operations: {other:?}"),
        };
        black_box(head.as_bytes());
        (row, told)
    }
    fn origin(&self) -> Origin {
        Origin { root: self.root, brick: 1, valid_s: ALONE_VALID_S }
    }
    /// A page of a directory; "." and ".." are left out.
    async fn page(
        &self,
        context: &Context,
        unique: u64,
        ino: Ino,
        offset: u64,
        size: usize,
        plus: bool,
    ) -> (usize, Told) {
        let span = Some(&context.span);
        let mut buffer = self.runtime.client_buffer(size, Need::Starting, span).await.expect("within the bound");
        let mut page = Entries::new(&mut buffer, plus, self.origin());
        let count = parse::entries_for(page.room(), plus);
        let op = Op::ReadDir { ino, cookie: offset, count, plus };
        let row = self.runtime.ledger.row(op.name());
        let Reply::Entries { entries, .. } = self.call(context, op, None).await.reply else {
            panic!("entries are told")
        };
        let told = entries.iter().take_while(|entry| page.push(entry)).count();
        let next = told.checked_sub(1).map(|last| entries[last].cookie);
        for entry in &entries[told..] {
            self.call(context, Op::Forget { ino: entry.ino, times: 1 }, None).await;
        }
        let length = page.used();
        buffer.set_len(length);
        black_box((Head::before(unique, length).as_bytes(), &buffer[..]));
        (row, Told::Next(next))
    }
}
