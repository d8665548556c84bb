//! A brick in a simulated world with one volume, and clients of it.

use base::limits::IO_BYTES_MAX;
use base::{
    At, Attr, DirEntry, Ino, Kind, Name, Op, Reply, RequestId, Result, SessionId, SetAttr, StatFs, Sync, Volume,
};
use group::{Answer, Context, Groups, Options};
use runtime::ledger::OpProfile;
use runtime::sim::{Setup, World};
use runtime::{Event, Ledger, Runtime, Span, Stage, tasks::Local};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::device::Foreign;
use store::format::devices::Tier;
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};
use store::{FormatOptions, FreeLimits, Opening, check};

/// The smallest segment: many of them are filled in a short test.
pub const SEGMENT_BYTES: u64 = base::limits::SEGMENT_BYTES_MIN;
/// Bytes of a device before its segments.
const DEVICE_BYTES: u64 = 1 << 20;

/// The properties of the brick.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Segments of `SEGMENT_BYTES`.
    pub segments: u64,
    /// Groups.
    pub groups: u32,
    /// The field of `Options`.
    pub overlay_bytes: u64,
    /// The field of `Options`.
    pub cache_bytes: u64,
    /// The devices beside the first, which is flash, each with its segments.
    pub further: &'static [(Tier, u64)],
    /// The field of `Options`.
    pub free: FreeLimits,
    /// The field of `Options`.
    pub quiet_ns: u64,
    /// The field of `Options`.
    pub numbers_at_once: u64,
}

/// Limits so low that most cuts leave something to later checkpoints.
pub const FREE: FreeLimits = FreeLimits { at_once: 1, slots_at_once: 64, slots_later: 256 };

impl Shape {
    /// 256 MiB, eight groups, checkpoints only when asked for, caches of the least size.
    pub const SMALL: Shape = Shape {
        segments: 256,
        groups: 8,
        overlay_bytes: 64 << 20,
        cache_bytes: 1,
        further: &[],
        free: FREE,
        quiet_ns: u64::MAX,
        numbers_at_once: 1 << 20,
    };
    /// 32 MiB, half of it for the cleaner.
    pub const TINY: Shape = Shape { segments: 32, groups: 4, overlay_bytes: 8 << 20, ..Shape::SMALL };

    /// A world with blank devices for such a brick.
    pub fn world(&self, seed: u64) -> World {
        let bytes = |&(_, segments): &(Tier, u64)| DEVICE_BYTES + segments * SEGMENT_BYTES;
        World::with(Setup { further_bytes: self.further.iter().map(bytes).collect(), ..Setup::new(seed) })
    }
    fn options(&self) -> Options {
        let Shape { overlay_bytes, cache_bytes, free, quiet_ns, .. } = *self;
        let (replay_bytes, replay_records, read_cache_bytes) = (u64::MAX, u64::MAX, 4 << 20);
        Options {
            overlay_bytes,
            replay_bytes,
            replay_records,
            quiet_ns,
            cache_bytes,
            read_cache_bytes,
            promotion_bytes: 1 << 20,
            free,
            numbers_at_once: self.numbers_at_once,
            kept_records: 100,
        }
    }
}

/// The brick; see the module.
pub struct Rig {
    pub runtime: Runtime,
    pub index: ModelIndex,
    pub groups: Arc<Groups>,
    pub volume: Volume,
    shape: Shape,
    pub session: SessionId,
    request: Arc<AtomicU64>,
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

async fn open(runtime: &Runtime, index: &ModelIndex, shape: &Shape) -> Arc<Groups> {
    let opening = Opening::read(runtime.clone(), Arc::new(index.clone()), true).await.expect("a healthy brick opens");
    Groups::open(opening, shape.options()).await.expect("a healthy brick replays").0
}

/// Formats the world's blank devices.
pub async fn format(runtime: &Runtime, shape: Shape) {
    let options = FormatOptions {
        size_bytes: Some(shape.segments * SEGMENT_BYTES),
        segment_bytes: SEGMENT_BYTES,
        groups: shape.groups,
        size_bytes_min: 0,
        device: None,
        further: shape.further.iter().map(|&(tier, _)| (tier, Foreign::Keep)).collect(),
    };
    store::format_brick(runtime, options, async || Ok(())).await.expect("blank devices can be formatted");
}

/// The offline check's report on a closed brick.
pub async fn checked(runtime: &Runtime, index: &ModelIndex) -> check::Report {
    let index = Arc::new(index.clone());
    let opening = Opening::read_wholly(runtime.clone(), index, false).await.expect("a closed brick opens");
    check::check(&opening, &mut |_| ()).await.expect("a closed brick can be checked")
}

impl Rig {
    /// A fresh brick with the volume "main".
    pub async fn new(runtime: Runtime, shape: Shape) -> Rig {
        format(&runtime, shape).await;
        let mut rig = Rig::found(runtime, shape).await;
        rig.volume = rig.new_volume("main").await;
        rig
    }
    /// A brick that was formatted and never opened.
    pub async fn found(runtime: Runtime, shape: Shape) -> Rig {
        let index = ModelIndex::new(store::format::leaf::merge);
        let groups = open(&runtime, &index, &shape).await;
        let none = Volume {
            id: base::VolumeId(0),
            name: name("none"),
            root: Ino(0),
            created: base::Time(0),
            size_bytes: None,
            layers: Box::default(),
            policy: base::TierPolicy::default(),
            limits: base::Limits::NONE,
        };
        let (session, request) = (SessionId(1), Arc::new(AtomicU64::new(1)));
        Rig { runtime, index, groups, volume: none, shape, session, request }
    }
    /// A brick that lies on the disk, and a volume of it.
    pub async fn existing((runtime, index): (Runtime, ModelIndex), shape: Shape, volume: Volume) -> Rig {
        let groups = open(&runtime, &index, &shape).await;
        let (session, request) = (SessionId(77), Arc::new(AtomicU64::new(1)));
        Rig { runtime, index, groups, volume, shape, session, request }
    }
    /// Puts bytes into a row of the index that are none of ours.
    pub fn spoil(&self, key: Vec<u8>) {
        assert!(self.index.get(&key).is_ok_and(|value| value.is_some()), "the row is there");
        self.index.write(vec![IndexEdit::Put(key, vec![77; 40])]).expect("the model index writes");
    }
    /// Another volume.
    pub async fn new_volume(&self, text: &str) -> Volume {
        match self.call(Op::VolumeCreate { name: name(text), size_bytes: None }, None).await.map(|answer| answer.reply)
        {
            Ok(Reply::Volume(volume)) => volume,
            other => panic!("a new volume: {other:?}"),
        }
    }
    /// The same brick for another client, and perhaps another volume.
    pub fn client(&self, session: u64, volume: Volume) -> Rig {
        let (runtime, index, groups) = (self.runtime.clone(), self.index.clone(), self.groups.clone());
        let (session, request) = (SessionId(session), Arc::new(AtomicU64::new(1)));
        Rig { runtime, index, groups, volume, shape: self.shape, session, request }
    }
    /// Closes the brick and checks all that lies on it.
    pub async fn close(self) -> (Runtime, ModelIndex) {
        let (runtime, index) = self.end().await;
        let report = checked(&runtime, &index).await;
        assert_eq!(report.findings, Vec::<String>::new());
        assert_eq!(report.intents, 0, "every change between groups has ended");
        (runtime, index)
    }
    /// Closes the brick.
    pub async fn end(self) -> (Runtime, ModelIndex) {
        let Rig { runtime, index, groups, .. } = self;
        groups.close().await.expect("a healthy brick closes");
        let store = groups.store().clone();
        drop(groups);
        // A process would end here. This world goes on: its tasks must have ended before a successor begins.
        while Arc::strong_count(&store) > 1 {
            runtime.clock.sleep(1_000_000).await;
        }
        drop(store);
        (runtime, index)
    }
    /// Closes the brick, checks it, and opens it again.
    pub async fn reopen(self) -> Rig {
        let (volume, shape, session, request) = (self.volume.clone(), self.shape, self.session, self.request.clone());
        let (runtime, index) = self.close().await;
        let groups = open(&runtime, &index, &shape).await;
        Rig { runtime, index, groups, volume, shape, session, request }
    }
    /// The brick as another world finds it after a crash of this one; `kept`: checkpoints that the index engine had
    /// made durable beyond those that it had to.
    pub async fn after_crash(&self, runtime: Runtime, kept: usize) -> Rig {
        let (index, shape) = (self.index.crashed(kept), self.shape);
        let groups = open(&runtime, &index, &shape).await;
        let (session, request) = (SessionId(self.session.0 + 1000), Arc::new(AtomicU64::new(1)));
        Rig { runtime, index, groups, volume: self.volume.clone(), shape, session, request }
    }
    /// A checkpoint now.
    pub async fn checkpoint(&self) {
        self.groups.checkpoint().await.expect("a healthy brick checkpoints");
    }
    /// Checkpoints until all that was cut is freed.
    pub async fn settle(&self) {
        self.checkpoint().await;
        while self.groups.is_freeing() {
            self.checkpoint().await;
        }
    }
    /// Starts a checkpoint that runs beside what follows.
    pub fn checkpoint_beside(&self) {
        let groups = self.groups.clone();
        let task = move || -> Local {
            Box::pin(async move { groups.checkpoint().await.expect("a healthy brick checkpoints") })
        };
        self.runtime.tasks.spawn(1, Box::new(task));
    }
    /// The context of this client's next request.
    pub fn context(&self) -> Context {
        self.context_of(self.request.fetch_add(1, Ordering::Relaxed))
    }
    /// The context of a request of this client.
    pub fn context_of(&self, request: u64) -> Context {
        Context {
            volume: self.volume.id,
            session: self.session,
            request: RequestId(request),
            done: 0,
            uid: 7,
            gid: 8,
            umask: 0,
            noatime: false,
            unkept: false,
            keeps: false,
            written_back: false,
            span: Span::start(self.runtime.stamp()),
        }
    }
    fn profile(&self, context: &Context) -> OpProfile {
        let ledger = Ledger::new(1, &["any"]);
        ledger.record(0, 0, &context.span, runtime::Subject::default(), self.runtime.stamp());
        ledger.profile().remove(0)
    }
    /// The time that a request has booked on a stage.
    pub fn booked_ns(&self, context: &Context, stage: Stage) -> u64 {
        let stages = self.profile(context).stages;
        stages.iter().find(|(of, _)| *of == stage).map_or(0, |(_, took)| took.sum_ns())
    }
    /// Number of times that another thread did something for a request.
    pub fn hops(&self, context: &Context) -> u64 {
        self.profile(context).hops
    }
    /// Performs an operation.
    pub async fn call(&self, op: Op, data: Option<&[u8]>) -> Result<Answer> {
        self.call_as(&self.context(), op, data).await
    }
    /// Performs an operation as a given request.
    pub async fn call_as(&self, context: &Context, op: Op, data: Option<&[u8]>) -> Result<Answer> {
        let data = match (&op, data) {
            // Every third reader gives memory, of which every second is too small for most.
            (Op::Read { .. }, None) if context.request.0.is_multiple_of(3) => {
                let bytes = if context.request.0.is_multiple_of(2) { IO_BYTES_MAX } else { 4096 };
                self.runtime.buffer(bytes).ok()
            }
            (_, data) => data.map(|bytes| {
                let mut buffer = self.runtime.buffer(bytes.len()).expect("within the bound");
                buffer.copy_from_slice(bytes);
                buffer
            }),
        };
        self.groups.call(context, op, data).await
    }

    // What tests want most, with errors as kinds.

    /// The attributes that an operation tells.
    pub async fn attr(&self, op: Op) -> Result<Attr, Kind> {
        match self.call(op, None).await.map(|answer| answer.reply) {
            Ok(Reply::Attr(attr)) => Ok(attr),
            Ok(other) => panic!("attributes: {other:?}"),
            Err(error) => Err(error.kind),
        }
    }
    /// An operation that has nothing to tell.
    pub async fn done(&self, op: Op) -> Result<(), Kind> {
        match self.call(op, None).await.map(|answer| answer.reply) {
            Ok(Reply::Done) => Ok(()),
            Ok(other) => panic!("nothing: {other:?}"),
            Err(error) => Err(error.kind),
        }
    }
    /// Creates a file; it is not left open.
    pub async fn create(&self, parent: Ino, text: &str) -> Result<Ino, Kind> {
        let op = Op::Create { parent, name: name(text), mode: 0o644, exclusive: true };
        let ino = self.attr(op).await?.ino;
        self.done(Op::Release { ino }).await.map(|()| ino)
    }
    /// A file with `pattern(1, 50_000)` that is open and has no name any more.
    pub async fn unlinked(&self) -> Ino {
        let (parent, name) = (self.volume.root, name("open"));
        let op = Op::Create { parent, name: name.clone(), mode: 0o600, exclusive: true };
        let ino = self.attr(op).await.expect("a new file").ino;
        self.write(ino, At::End, &pattern(1, 50_000), Sync::Ordered).await.expect("a write");
        self.done(Op::Unlink { parent, name }).await.expect("it is there");
        ino
    }
    /// Creates a directory.
    pub async fn mkdir(&self, parent: Ino, text: &str) -> Result<Ino, Kind> {
        Ok(self.attr(Op::MakeDir { parent, name: name(text), mode: 0o755 }).await?.ino)
    }
    /// The inode of a name.
    pub async fn lookup(&self, parent: Ino, text: &str) -> Result<Ino, Kind> {
        Ok(self.attr(Op::Lookup { parent, name: name(text) }).await?.ino)
    }
    /// Writes; returns the offset.
    pub async fn write(&self, ino: Ino, at: At, bytes: &[u8], sync: Sync) -> Result<u64, Kind> {
        let op = Op::Write { ino, at, sync, kill_privileges: false };
        match self.call(op, Some(bytes)).await.map(|answer| answer.reply) {
            Ok(Reply::Wrote { offset, length }) if length as usize == bytes.len() => Ok(offset),
            Ok(other) => panic!("a write: {other:?}"),
            Err(error) => Err(error.kind),
        }
    }
    /// Reads.
    pub async fn read(&self, ino: Ino, offset: u64, length: usize) -> Result<Vec<u8>, Kind> {
        match self.call(Op::Read { ino, offset, length: length as u32 }, None).await {
            Ok(Answer { reply: Reply::Data { length }, data, .. }) => {
                let bytes = data.map_or(Vec::new(), |data| data.to_vec());
                assert_eq!(bytes.len(), length as usize, "the reply says how many bytes it brings");
                Ok(bytes)
            }
            Ok(other) => panic!("a read: {:?}", other.reply),
            Err(error) => Err(error.kind),
        }
    }
    /// Sets a size.
    pub async fn truncate(&self, ino: Ino, size: u64) -> Result<Attr, Kind> {
        self.attr(Op::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() }.into() }).await
    }
    /// A page of a directory.
    pub async fn page(&self, ino: Ino, cookie: u64, count: u32) -> Result<Vec<DirEntry>, Kind> {
        match self.call(Op::ReadDir { ino, cookie, count, plus: true }, None).await.map(|answer| answer.reply) {
            Ok(Reply::Entries { entries, .. }) => Ok(entries),
            Ok(other) => panic!("a listing: {other:?}"),
            Err(error) => Err(error.kind),
        }
    }
    /// The cookie that what gets its place in the directory from now on has, or less than it has.
    pub async fn next_cookie(&self, ino: Ino) -> u64 {
        let op = Op::ReadDir { ino, cookie: 0, count: 1, plus: false };
        match self.call(op, None).await.map(|answer| answer.reply) {
            Ok(Reply::Entries { next_cookie, .. }) => next_cookie,
            other => panic!("a listing: {other:?}"),
        }
    }
    /// A whole directory, in pages.
    pub async fn list(&self, ino: Ino, count: u32) -> Result<Vec<DirEntry>, Kind> {
        let mut all = Vec::new();
        loop {
            let cookie = all.last().map_or(0, |entry: &DirEntry| entry.cookie);
            let page = self.page(ino, cookie, count).await?;
            assert!(page.len() <= count as usize, "a page has at most as many entries as were asked for");
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
    /// Free bytes as told to clients.
    pub async fn free_bytes(&self) -> u64 {
        self.space().await.free_bytes
    }
    /// Free bytes as of the last checkpoint, if names took none.
    pub async fn data_room(&self) -> u64 {
        self.free_bytes().await + self.groups.used(self.volume.id).row_bytes()
    }
    /// Space as told to clients.
    pub async fn space(&self) -> StatFs {
        match self.call(Op::StatFs, None).await.map(|answer| answer.reply) {
            Ok(Reply::StatFs(space)) => space,
            other => panic!("space: {other:?}"),
        }
    }
}

/// Runs tasks spread over the cores and waits for all.
pub async fn together<F>(runtime: &Runtime, make: impl Iterator<Item = F>)
where
    F: FnOnce() -> Local + Send + 'static,
{
    let left = Arc::new((AtomicU64::new(0), Event::new()));
    for (number, make) in make.enumerate() {
        left.0.fetch_add(1, Ordering::Relaxed);
        let left = left.clone();
        let task = move || -> Local {
            let task = make();
            Box::pin(async move {
                task.await;
                left.0.fetch_sub(1, Ordering::Relaxed);
                left.1.notify();
            })
        };
        runtime.tasks.spawn(number % runtime.tasks.cores(), Box::new(task));
    }
    loop {
        let ticket = left.1.ticket();
        if left.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        left.1.after(ticket).await;
    }
}

/// Bytes that tell where they were written: each write of a test has its own tag.
pub fn pattern(tag: u64, length: usize) -> Vec<u8> {
    let state = Cell::new(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let next = || {
        state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (state.get() >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The seeds of a test: few by default, others by hand (`SEEDS=1000..2000`).
pub fn seeds(few: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("SEEDS") else { return few };
    let bound = |text: &str| text.parse().expect("SEEDS=from..to, numbers");
    let (from, to) = asked.split_once("..").expect("SEEDS=from..to");
    bound(from)..bound(to)
}
