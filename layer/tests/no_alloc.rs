//! A warm request allocates nothing on its core (mission S2): counted through the stack down to the device, and where
//! it is not so, the call sites are named.

use base::limits::{LIMIT_BANDWIDTH_MAX, LIMIT_IOPS_MAX};
use base::{At, Layer, Limit, Limits, Name, Op, Operations, Reply, RequestId, SessionId, Sync, VolumeId};
use layer::{Call, Context, Stack};
use runtime::{Event, Runtime, Span, real};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};

/// Call sites and how often they allocated.
type Sites = BTreeMap<String, u64>;

thread_local! {
    /// True while this thread's allocations are counted.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static SITES: RefCell<Sites> = const { RefCell::new(BTreeMap::new()) };
    /// State that the writers' tasks share with the measuring one, on the one core.
    static WRITERS_TO_START: RefCell<Option<(Rc<Client>, Rc<Gate>)>> = const { RefCell::new(None) };
}

/// Work of the brick that no request causes: its timers (some ticks per second), and a fresh segment that is prepared.
const BESIDE_REQUESTS: [&str; 2] = ["clock::Sleeping", "store/src/segments/prepare.rs"];

struct Counting;

fn count() {
    // A thread that is ending has no flag any more. Noting allocates too: not counted.
    if COUNTS.try_with(|counts| counts.replace(false)) == Ok(true) {
        note_site();
        COUNTS.set(true);
    }
}

/// Notes the innermost functions of ours that the allocation was made for.
fn note_site() {
    let text = Backtrace::force_capture().to_string();
    let ours = ["group::", "store::", "layer::", "names::", "runtime::", "base::"];
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let frames = lines.windows(2).filter(|pair| ours.iter().any(|room| pair[0].contains(room)));
    let frames: Vec<_> = frames.map(|pair| format!("{} {}", pair[0], pair[1])).collect();
    if !BESIDE_REQUESTS.iter().any(|site| text.contains(site)) {
        let innermost = frames[..frames.len().min(4)].join("\n        ");
        SITES.with_borrow_mut(|sites| *sites.entry(innermost).or_default() += 1);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Blocks of the file that requests go to.
const BLOCKS: u64 = 64;
/// Requests per kind and round.
const REQUESTS: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    WriteOrdered,
    WriteDirect,
    WriteDurable,
    /// 16 durable writes at a time: batches, flushes and waiters.
    Writers,
    Read,
    GetAttr,
    Lookup,
}

const KINDS: [Kind; 7] =
    [Kind::WriteOrdered, Kind::WriteDirect, Kind::WriteDurable, Kind::Writers, Kind::Read, Kind::GetAttr, Kind::Lookup];
/// Requests at a time of `Kind::Writers`.
const WRITERS: u64 = 16;

struct Client {
    runtime: Runtime,
    stack: Stack,
    volume: VolumeId,
    root: base::Ino,
    file: base::Ino,
    request: Cell<u64>,
}

impl Client {
    fn context(&self) -> Context {
        self.request.set(self.request.get() + 1);
        Context {
            volume: self.volume,
            session: SessionId(1),
            request: RequestId(self.request.get()),
            done: 0,
            uid: 0,
            gid: 0,
            umask: 0,
            noatime: false,
            unkept: true,
            keeps: false,
            written_back: false,
            span: Span::start(self.runtime.stamp()),
        }
    }
    async fn call(&self, op: Op, data: Option<runtime::Buf>) -> Reply {
        let answer = self.stack.call(&self.context(), Call { op, data }).await;
        answer.expect("a healthy brick answers").reply
    }
    async fn one(&self, kind: Kind, number: u64) {
        let block = number.wrapping_mul(17) % BLOCKS;
        let sync = match kind {
            Kind::WriteOrdered => Sync::Ordered,
            Kind::WriteDirect => Sync::Written,
            _ => Sync::Data,
        };
        match kind {
            Kind::WriteOrdered | Kind::WriteDirect | Kind::WriteDurable | Kind::Writers => {
                let mut data = self.runtime.buffer(4096).expect("within the bound");
                data.fill(number as u8);
                let at = At::Offset(block * 4096);
                let op = Op::Write { ino: self.file, at, sync, kill_privileges: false };
                self.call(op, Some(data)).await;
            }
            Kind::Read => {
                let op = Op::Read { ino: self.file, offset: block * 4096, length: 4096 };
                assert_eq!(self.call(op, None).await, Reply::Data { length: 4096 });
            }
            Kind::GetAttr => drop(self.call(Op::GetAttr { ino: self.file }, None).await),
            Kind::Lookup => {
                let name = Name::new(b"file").expect("a name");
                self.call(Op::Lookup { parent: self.root, name }, None).await;
            }
        }
    }
    /// A round of one kind, and whatever it leaves to the brick's own tasks.
    async fn round(self: &Rc<Self>, kind: Kind, gate: &Rc<Gate>) {
        if kind == Kind::Writers {
            let ticket = gate.ended.ticket();
            gate.left.set(WRITERS);
            gate.begun.notify();
            gate.ended.after(ticket).await;
        } else {
            for number in 0..REQUESTS {
                self.one(kind, number).await;
            }
        }
        self.call(Op::SyncAll, None).await;
    }
}

async fn client(runtime: Runtime, layers: &[Layer], limits: &Limits) -> Client {
    let options = FormatOptions { size_bytes: Some(1 << 30), size_bytes_min: 0, groups: 4, ..FormatOptions::default() };
    store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty directory can be formatted");
    let index = Arc::new(ModelIndex::new(store::format::leaf::merge));
    let opening = Opening::read(runtime.clone(), index, true).await.expect("just formatted");
    // Half of what is read finds its room, so that reads are of either kind.
    let read_cache_bytes = BLOCKS * 4096 / 2;
    let options = group::Options { read_cache_bytes, ..group::Options::for_memory(256 << 20) };
    let groups = group::Groups::open(opening, options).await.expect("an empty log replays").0;
    let stack = Stack::new(groups.clone(), layers, limits);
    let (volume, none) = (VolumeId(0), base::Ino(0));
    let mut client = Client { runtime, stack, volume, root: none, file: none, request: Cell::new(0) };
    let name = Name::new(b"volume").expect("a name");
    let Reply::Volume(volume) = client.call(Op::VolumeCreate { name, size_bytes: None }, None).await else {
        panic!("a volume is told")
    };
    (client.volume, client.root) = (volume.id, volume.root);
    let create =
        Op::Create { parent: client.root, name: Name::new(b"file").expect("a name"), mode: 0o644, exclusive: true };
    let Reply::Attr(file) = client.call(create, None).await else { panic!("a file is told") };
    client.file = file.ino;
    client
}

/// Starts the writers' rounds and waits for their ends.
#[derive(Default)]
struct Gate {
    begun: Event,
    ended: Event,
    left: Cell<u64>,
}

/// One of the writers: long-lived, as a front's tasks are.
async fn writer(client: Rc<Client>, gate: Rc<Gate>, mine: u64) {
    loop {
        let ticket = gate.begun.ticket();
        if gate.left.get() == 0 {
            gate.begun.after(ticket).await;
        }
        for number in 0..REQUESTS / WRITERS {
            client.one(Kind::Writers, number * WRITERS + mine).await;
        }
        let next = gate.begun.ticket();
        gate.left.set(gate.left.get() - 1);
        if gate.left.get() == 0 {
            gate.ended.notify();
        }
        gate.begun.after(next).await;
    }
}

async fn counted_round(client: &Rc<Client>, kind: Kind, gate: &Rc<Gate>) -> Sites {
    COUNTS.set(true);
    client.round(kind, gate).await;
    COUNTS.set(false);
    SITES.take()
}

async fn measure(runtime: Runtime, layers: &[Layer], limits: &Limits) -> Vec<(Kind, Sites)> {
    let client = Rc::new(client(runtime, layers, limits).await);
    let gate = Rc::new(Gate::default());
    WRITERS_TO_START.set(Some((client.clone(), gate.clone())));
    for mine in 0..WRITERS {
        let make = move || -> runtime::tasks::Local {
            let (client, gate) = WRITERS_TO_START.with_borrow(|both| both.clone()).expect("set on this core");
            Box::pin(writer(client, gate, mine))
        };
        client.runtime.tasks.spawn(0, Box::new(make));
    }
    let mut results = Vec::new();
    for kind in KINDS {
        client.round(kind, &gate).await;
        client.round(kind, &gate).await;
        let mut sites = counted_round(&client, kind, &gate).await;
        // A pool grows once where more comes together than ever before, as it may on a busy machine; what a request allocates, it
        // allocates in every round.
        for _ in 0..3 {
            if of_requests(&sites) {
                sites = counted_round(&client, kind, &gate).await;
            }
        }
        results.push((kind, sites));
    }
    WRITERS_TO_START.set(None);
    results
}

/// Call sites of tasks that run by the clock and not by requests: their timers, the one-slice lists with which segments
/// are prepared ahead, and the look at the host's room once in a second. How often they are met depends on how long the test
/// takes.
fn is_background(site: &str) -> bool {
    ["new<runtime::real::clock::Sleeping>", "new_uninit<[runtime::buffer::Slice; 1]>", "agents::checkpoint::run::"]
        .iter()
        .any(|background| site.contains(background))
}

fn of_requests(sites: &Sites) -> bool {
    sites.keys().any(|site| !is_background(site))
}

#[test]
fn a_warm_request_allocates_nothing() {
    let operations = Operations::of(Some("statfs")).expect("its name");
    let delay = Layer::Delay { operations, ns: 1_000 };
    let fault = Layer::Fault { operations, kind: base::Kind::Io, every: 1 };
    let wide = Limits::NONE.with(&[(Limit::Iops, LIMIT_IOPS_MAX), (Limit::WriteBandwidth, LIMIT_BANDWIDTH_MAX)]);
    allocates_nothing_through(Vec::new(), Limits::NONE);
    allocates_nothing_through(vec![delay, fault, delay], wide.expect("within bounds"));
}

/// Measures each kind of request through layers and limits that let it pass.
fn allocates_nothing_through(layers: Vec<Layer>, limits: Limits) {
    let directory = std::env::temp_dir().join(format!("sinter-no-alloc-stack-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let options = real::Options {
        cores: Some(1),
        ..real::Options::new(real::Directory::open(&directory).expect("ours"), 256 << 20, &[])
    };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    let results =
        reactors.run(0, move || async move { measure(runtime, &layers, &limits).await }).expect("the core runs");
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("the test made it");
    for (kind, sites) in &results {
        println!("{kind:?}: {} allocations in {REQUESTS} requests", sites.values().sum::<u64>());
        for (site, times) in sites {
            println!("  {times:>6} {site}");
        }
    }
    let dirty: Vec<_> = results.iter().filter(|(_, sites)| of_requests(sites)).map(|(kind, _)| *kind).collect();
    assert_eq!(dirty, [], "these kinds allocate; see the call sites above");
}
