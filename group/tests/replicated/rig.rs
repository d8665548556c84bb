//! Three bricks with replicas of one group, on simulated hosts, and clients that ask whoever answers.

use base::limits::SEGMENT_BYTES_MIN;
use base::{Ino, Kind, Name, Op, ReplicaId, Reply, RequestId, Result, SessionId, VolumeId};
use group::{Answer, Context, Groups, Options, ReplicaStatus, Replicas};
use order_raft::Member;
use order_raft::support::{BrickId, Ended};
use runtime::random::SplitMix;
use runtime::sim::{BootClock, DiskImage, Fail, FaultPlan, Fleet, Hosts, LinkPlan, Links, Setup, Survival};
use runtime::{Event, Runtime, Span};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};
use wire::peer::{Me, PeerId};

pub const BRICKS: usize = 3;
/// The host of the clients.
pub const CLIENTS: usize = BRICKS;
const PORT: u16 = 7401;
/// Segments of a brick, unless a test wants others.
const SEGMENTS: u64 = 256;
/// The network of a rack, of 10 Gbit/s: faster than clients write.
const LAN: LinkPlan = LinkPlan { delay_ns: 20_000, jitter_ns: 20_000, bandwidth: 1_250_000_000, trickles: false };
const CLUSTER: [u8; 16] = [7; 16];
pub const MS: u64 = 1_000_000;

/// Number of seeds; `SINTER_SEEDS` asks for more.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("SINTER_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number of seeds"))
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub fn brick(number: usize) -> BrickId {
    BrickId(number as u128 + 100)
}

fn members() -> Vec<Member> {
    (0..BRICKS).map(|at| Member { replica: ReplicaId(at as u64 + 1), brick: brick(at) }).collect()
}

/// A request for a brick, and where its answer goes.
struct Asked {
    context: Context,
    op: Op,
    data: Option<Vec<u8>>,
    answer: Arc<(Mutex<Option<Result<Answer>>>, Event)>,
}

/// The bricks and what is between them.
pub struct Cluster {
    pub hosts: Arc<Hosts>,
    seed: u64,
    indexes: Mutex<Vec<ModelIndex>>,
    groups: Mutex<Vec<Option<Arc<Groups>>>>,
    mailboxes: Vec<(Mutex<VecDeque<Asked>>, Event)>,
    /// The requests that bricks are about to answer: as a server, a brick does nothing for a second delivery meanwhile.
    under_way: Mutex<BTreeSet<(usize, SessionId, RequestId)>>,
    rng: Mutex<SplitMix>,
    /// The time that a brick's start takes besides.
    pub replay_ns: AtomicU64,
    pub options: Options,
    /// Number of groups.
    pub count: u32,
    /// Segments of each brick.
    segments: u64,
}

/// A file system of one group with three bricks, and the fleet that they run on.
pub fn cluster(seed: u64, options: Options) -> (Fleet, Arc<Cluster>) {
    cluster_of(seed, options, 1)
}

/// The same with so many groups.
pub fn cluster_of(seed: u64, options: Options, count: u32) -> (Fleet, Arc<Cluster>) {
    cluster_sized(seed, options, (count, SEGMENTS))
}

/// The same with so many groups, on bricks of so many segments.
pub fn cluster_sized(seed: u64, options: Options, (count, segments): (u32, u64)) -> (Fleet, Arc<Cluster>) {
    let fleet = Fleet::with_patience(seed, 3600 * 1000 * MS);
    let hosts = fleet.hosts().clone();
    let mut clocks = SplitMix(seed ^ 0xc10c);
    for number in 0..=BRICKS {
        hosts.boot(number, Setup { clock: BootClock::draw(&mut clocks), ..Setup::new(seed) });
    }
    let index = || ModelIndex::new(store::format::leaf::merge);
    let cluster = Arc::new(Cluster {
        hosts,
        seed,
        indexes: Mutex::new((0..BRICKS).map(|_| index()).collect()),
        groups: Mutex::new(vec![None; BRICKS]),
        mailboxes: (0..BRICKS).map(|_| (Mutex::new(VecDeque::new()), Event::new())).collect(),
        under_way: Mutex::default(),
        rng: Mutex::new(SplitMix(seed ^ 0x5eed)),
        replay_ns: AtomicU64::new(0),
        options,
        count,
        segments,
    });
    (fleet, cluster)
}

impl Cluster {
    pub fn groups(&self, number: usize) -> Option<Arc<Groups>> {
        self.groups.lock().expect("no panic")[number].clone()
    }
    /// Gives all ways the speed of a rack's network.
    pub fn join_by_lan(&self) {
        for (one, other) in (0..=CLIENTS).flat_map(|one| (0..=CLIENTS).map(move |other| (one, other))) {
            self.links().set_plan(one, other, LAN);
        }
    }
    /// Starts the process of a brick.
    pub fn start(self: &Arc<Cluster>, number: usize, is_new: bool) {
        let cluster = self.clone();
        let runtime = self.hosts.runtime(number);
        let index = self.indexes.lock().expect("no panic")[number].clone();
        runtime.clone().spawn(0, move || async move {
            if is_new {
                let options = FormatOptions {
                    size_bytes: Some(cluster.segments * SEGMENT_BYTES_MIN),
                    segment_bytes: SEGMENT_BYTES_MIN,
                    groups: cluster.count,
                    size_bytes_min: 0,
                    ..FormatOptions::default()
                };
                store::format_brick(&runtime, options, async || Ok(())).await.expect("a blank disk can be formatted");
            }
            let opening = Opening::read(runtime.clone(), Arc::new(index), true).await.expect("a healthy brick opens");
            let address = |number| cluster.hosts.links().address(number, PORT);
            let others = (0..BRICKS).filter(|other| *other != number).map(|other| (brick(other), address(other)));
            let others: Vec<_> = others.collect();
            let me = Me { id: PeerId(brick(number).0), cluster: CLUSTER, epoch: opening.superblock().epoch + 1 };
            group::announce(&runtime, me, others.clone(), None);
            runtime.clock.sleep(cluster.replay_ns.load(Ordering::Relaxed)).await;
            let replicas = Replicas { me: brick(number), members: members(), ended: Ended::Somehow };
            let opened = Groups::open_replicated(opening, cluster.options, replicas).await;
            let (groups, _) = opened.expect("a healthy brick replays");
            groups.reach_others(CLUSTER, &address(number), others, None).expect("nobody listens there");
            cluster.groups.lock().expect("no panic")[number] = Some(groups.clone());
            let (serving, there) = (runtime.clone(), cluster.clone());
            runtime.spawn(1, move || async move { there.serve(number, &groups, &serving).await });
        });
    }
    /// All bricks reach each other again, without delay.
    pub fn heal(&self) {
        self.hosts.links().heal_all();
    }
    pub fn links(&self) -> &Arc<Links> {
        self.hosts.links()
    }
    /// Has a brick's disk answer nothing for a while: what begins within it takes as long.
    pub fn hang(&self, number: usize, ns: u64) {
        let plan = FaultPlan { stalls: Fail::From(1), stall_ns: ns, ..FaultPlan::default() };
        self.hosts.disk(number).set_faults(plan);
    }
    /// A brick's disk is as quick as before, but for what is under way.
    pub fn hang_no_longer(&self, number: usize) {
        self.hosts.disk(number).set_faults(FaultPlan::default());
    }
    /// Ends a brick's process, by a kill or with the machine.
    pub fn stop(&self, number: usize, survival: Option<Survival>) -> DiskImage {
        self.groups.lock().expect("no panic")[number] = None;
        let image = match survival {
            // Nothing but the brick's lock, which outlives I/O under way, keeps the last writes to the superblock and to segments that are
            // being made ready from the next process, and a simulated brick has no lock.
            None => self
                .hosts
                .kill(number)
                .keep_late(|file, at| file != "superblock" && !at.is_multiple_of(SEGMENT_BYTES_MIN)),
            Some(survival) => self.hosts.crash(number, survival),
        };
        self.mailboxes[number].0.lock().expect("no panic").clear();
        self.under_way.lock().expect("no panic").retain(|(of, ..)| *of != number);
        let mut indexes = self.indexes.lock().expect("no panic");
        indexes[number] = indexes[number].crashed(0);
        image
    }
    /// Starts a brick again with what its disk has.
    pub fn start_again(self: &Arc<Cluster>, number: usize, image: DiskImage) {
        let clock = BootClock::draw(&mut self.rng.lock().expect("no panic"));
        self.hosts.boot(number, Setup { image: Some(image), clock, ..Setup::new(self.seed) });
        self.start(number, false);
    }
    /// The last record of a group that a brick has, and the checksum of what it says.
    pub async fn checksum(&self, number: usize, group: base::GroupId) -> (base::Index, u32) {
        let groups = self.groups(number).expect("it runs");
        let found = Arc::new(Mutex::new(None));
        let there = found.clone();
        self.hosts.runtime(number).spawn(0, move || async move {
            let sum = groups.checksum(group).await.expect("a healthy brick");
            *there.lock().expect("no panic") = Some(sum);
        });
        until(&self.hosts, "its checksum", || found.lock().expect("no panic").is_some()).await;
        let found = found.lock().expect("no panic").take();
        found.expect("it was just there")
    }
    /// Ends a brick in which a checkpoint has taken all, and checks what is on its disk.
    pub async fn check(self: &Arc<Cluster>, number: usize) -> store::check::Report {
        let image = self.stop(number, None);
        self.hosts.boot(number, Setup { image: Some(image), ..Setup::new(self.seed) });
        let (runtime, index) = (self.hosts.runtime(number), self.indexes.lock().expect("no panic")[number].clone());
        let found = Arc::new(Mutex::new(None));
        let there = found.clone();
        runtime.clone().spawn(0, move || async move {
            let opening = Opening::read_wholly(runtime, Arc::new(index), false).await.expect("a closed brick opens");
            let report = store::check::check(&opening, &mut |_| ()).await.expect("it can be checked");
            *there.lock().expect("no panic") = Some(report);
        });
        until(&self.hosts, "a report", || found.lock().expect("no panic").is_some()).await;
        let found = found.lock().expect("no panic").take();
        found.expect("it was just there")
    }
    /// Does what clients ask of a brick.
    async fn serve(self: &Arc<Cluster>, number: usize, groups: &Arc<Groups>, runtime: &Runtime) {
        let (mailbox, came) = &self.mailboxes[number];
        loop {
            let ticket = came.ticket();
            let Some(asked) = mailbox.lock().expect("no panic").pop_front() else {
                came.after(ticket).await;
                continue;
            };
            let request = (number, asked.context.session, asked.context.request);
            if !self.under_way.lock().expect("no panic").insert(request) {
                continue;
            }
            let (groups, own, there) = (groups.clone(), runtime.clone(), self.clone());
            runtime.spawn(0, move || async move {
                let Asked { context, op, data, answer } = asked;
                let data = data.map(|bytes| {
                    let mut buffer = own.buffer(bytes.len()).expect("within the bound");
                    buffer.copy_from_slice(&bytes);
                    buffer
                });
                let context = Context { span: Span::start(own.stamp()), ..context };
                let done = groups.call_replicated(&context, op, data).await;
                there.under_way.lock().expect("no panic").remove(&request);
                *answer.0.lock().expect("no panic") = Some(done);
                answer.1.notify();
            });
        }
    }
    /// Times that the bricks that run have built their groups again.
    pub fn rebuilt(&self) -> u64 {
        let of = |number| self.status(number).map_or(0, |status| status.rebuilt);
        (0..BRICKS).map(of).sum()
    }
    /// The state of a brick's replica of the first group.
    pub fn status(&self, number: usize) -> Option<ReplicaStatus> {
        self.status_of(number, base::GroupId(0))
    }
    pub fn status_of(&self, number: usize, group: base::GroupId) -> Option<ReplicaStatus> {
        self.groups(number)?.replica_status(group)
    }
    pub fn group_numbers(&self) -> impl Iterator<Item = base::GroupId> + use<> {
        (0..self.count).map(base::GroupId)
    }
    /// The number of records that a follower lacks, as its leader knows it.
    pub fn lacks(&self, leader: usize, follower: usize) -> Option<u64> {
        self.groups(leader).and_then(|groups| groups.follower(brick(follower))).map(|known| known.lacks)
    }
    /// The brick that serves the first group, if one is known to.
    pub fn leader(&self) -> Option<usize> {
        self.leader_of(base::GroupId(0))
    }
    pub fn leader_of(&self, group: base::GroupId) -> Option<usize> {
        (0..BRICKS).find(|number| self.groups(*number).is_some_and(|groups| groups.serves(group)))
    }
}

/// A client with a session.
#[derive(Clone)]
pub struct Client {
    pub cluster: Arc<Cluster>,
    pub runtime: Runtime,
    session: SessionId,
    requests: Arc<AtomicU64>,
    /// The brick that is asked next, by group.
    asks: Arc<Vec<AtomicU64>>,
    pub volume: VolumeId,
    pub root: Ino,
}

/// The time after which a client asks another brick.
const PATIENCE_NS: u64 = 700 * MS;

impl Client {
    pub fn new(cluster: &Arc<Cluster>, session: u64) -> Client {
        let (runtime, session) = (cluster.hosts.runtime(CLIENTS), SessionId(session));
        let asks = Arc::new(cluster.group_numbers().map(|_| AtomicU64::new(0)).collect());
        let requests = Arc::default();
        Client { cluster: cluster.clone(), runtime, session, requests, asks, volume: VolumeId(0), root: Ino(0) }
    }
    /// Asks one brick after the other until one answers.
    pub async fn call(&self, op: Op, data: Option<&[u8]>) -> Result<Answer> {
        let request = RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1);
        let asks = &self.asks[op.home().map_or(0, |home| home.group().0 as usize)];
        loop {
            let at = asks.load(Ordering::Relaxed);
            match self.ask((at % BRICKS as u64) as usize, request, &op, data).await {
                Some(Err(error)) if error.kind == Kind::Elsewhere || error.kind == Kind::Io => {}
                Some(answer) => return answer,
                None => {}
            }
            let _ = asks.compare_exchange(at, at + 1, Ordering::Relaxed, Ordering::Relaxed);
            self.runtime.clock.sleep(20 * MS).await;
        }
    }
    /// Asks a brick once, under a number that nobody uses again.
    pub async fn ask_only(&self, number: usize, op: Op, data: Option<&[u8]>) -> Option<Result<Answer>> {
        let request = RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1);
        self.ask(number, request, &op, data).await
    }
    /// Asks a brick. None: it does not answer.
    async fn ask(&self, number: usize, request: RequestId, op: &Op, data: Option<&[u8]>) -> Option<Result<Answer>> {
        self.cluster.groups(number)?;
        let own = Context::own(self.volume, Span::start(self.runtime.stamp()));
        let context = Context { keeps: true, session: self.session, request, done: 0, ..own };
        let answer = Arc::new((Mutex::new(None), Event::new()));
        let asked = Asked { context, op: op.clone(), data: data.map(<[u8]>::to_vec), answer: answer.clone() };
        let (mailbox, came) = &self.cluster.mailboxes[number];
        mailbox.lock().expect("no panic").push_back(asked);
        came.notify();
        let until = self.runtime.clock.now_ns() + PATIENCE_NS;
        while self.runtime.clock.now_ns() < until {
            if let Some(done) = answer.0.lock().expect("no panic").take() {
                return Some(done);
            }
            self.runtime.clock.sleep(MS / 4).await;
        }
        None
    }
    /// A client that sees the same volume, with another session.
    pub fn of_session(&self, session: u64) -> Client {
        Client { volume: self.volume, root: self.root, ..Client::new(&self.cluster, session) }
    }
    /// Asks another brick first from now on.
    pub fn ask_another(&self) {
        for asks in self.asks.iter() {
            asks.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub async fn create(&self, text: &str) -> Result<Ino> {
        let op = Op::Create { parent: self.root, name: name(text), mode: 0o644, exclusive: true };
        match self.call(op, None).await?.reply {
            Reply::Attr(attr) => Ok(attr.ino),
            other => panic!("a new file: {other:?}"),
        }
    }
}

/// Formats and starts the bricks, and makes a volume.
pub async fn begin(cluster: &Arc<Cluster>) -> Client {
    (0..BRICKS).for_each(|number| cluster.start(number, true));
    let mut client = Client::new(cluster, 1);
    let created = client.call(Op::VolumeCreate { name: name("main"), size_bytes: None }, None).await;
    match created.map(|answer| answer.reply) {
        Ok(Reply::Volume(volume)) => (client.volume, client.root) = (volume.id, volume.root),
        other => panic!("a new volume: {other:?}"),
    }
    client
}

/// Waits for something, in simulated time.
pub async fn until(hosts: &Hosts, what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = hosts.clock();
    let end = clock.now_ns() + 60_000 * MS;
    while !is_so() {
        assert!(clock.now_ns() < end, "within a minute: {what}");
        clock.sleep(MS).await;
    }
}
