//! Several clients of one volume over a simulated network. Each has a cache that is as a kernel's: it keeps what it was told for as long as
//! that is valid, and lets go when its session is to share. What they write and read is linearizable all the same, and locks exclude.

mod histories;
mod rig;

use base::lock::{Family, FileLock, LockWish, Mode};
use base::{At, Ino, Op, Reply, SessionId, Sync};
use group::{Groups, Scope};
use histories::{Call, is_linearizable};
use layer::{Caches, Caching, Served, Sharer, Stack};
#[cfg(feature = "seeded-bugs")]
use rig::SEEDS;
use rig::{MS, Mount, PORT, SERVER, name, seeds, start_server, start_server_and, until};
use runtime::Clock;
use runtime::random::SplitMix;
#[cfg(feature = "seeded-bugs")]
use runtime::seeded::fails;
use runtime::seeded::{Bug, active};
use runtime::sim::{Fleet, Hosts, LinkPlan, Setup};
use runtime::tasks::either;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use store::index::model::ModelIndex;
use wire::server::Server;

/// Seeds that found a fault: a client that was ended while it was let in got in under its old session.
const KEPT: [u64; 1] = [6956];
/// Most clients; a seed has two at least.
const CLIENTS_MAX: usize = 4;
/// Tasks of a client, and what each does in one of the client's lives.
const TASKS: usize = 2;
const ROUNDS: u64 = 12;
const LIVES: usize = 2;
/// Registers, of a block each.
const KEYS: u64 = 3;
const BLOCK: u64 = 4096;

/// The state that all clients and the test share; no client learns of another through it.
#[derive(Clone)]
struct World {
    /// One clock for all: those of the hosts begin with each boot.
    clock: Arc<dyn Clock>,
    calls: Arc<Mutex<Vec<Call>>>,
    values: Arc<AtomicU64>,
    /// Times that the counter was counted up for certain, and perhaps.
    counted: Arc<AtomicU64>,
    perhaps: Arc<AtomicU64>,
    mounted: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl World {
    fn new(hosts: &Hosts) -> World {
        World {
            clock: hosts.clock(),
            calls: Arc::default(),
            values: Arc::default(),
            counted: Arc::default(),
            perhaps: Arc::default(),
            mounted: Arc::default(),
            ended: Arc::default(),
        }
    }
    /// Notes a call; its place among the calls.
    fn note(&self, call: Call) -> usize {
        let mut calls = self.calls.lock().expect("no panic");
        calls.push(call);
        calls.len() - 1
    }
}

/// A mount of the server itself, once it has the volume, as the daemon makes one.
async fn local_mount(groups: &Arc<Groups>, server: &Server<Served>) -> Mount {
    let runtime = groups.store().runtime.clone();
    let volume = groups.volume(&name("main")).await.expect("it was made");
    let session = SessionId(runtime.random.next_u64() | 1);
    let claim = async || Ok::<_, base::Error>(groups.claim_locally(volume.id, session));
    while server.make_room(claim).await.expect("a claim has no errors").is_none() {}
    groups.begin_session(volume.id, session).await.expect("a healthy brick");
    let stack = Arc::new(Stack::new(groups.clone(), &[], &volume.limits));
    let requests = Arc::default();
    Mount { runtime, stack, client: None, root: volume.root, volume: volume.id, session, requests }
}

/// A mount with its cache.
struct Kernel {
    mount: Mount,
    sharer: Arc<dyn Sharer>,
    registers: Ino,
    counter: Ino,
    /// Values by register, each with the time up to which it is valid.
    cached: Mutex<BTreeMap<u64, (u64, u64)>>,
    /// Number of its own writes: what was read meanwhile is not cached, as a kernel does.
    writes: AtomicU64,
    pause_ns: u64,
}

impl Kernel {
    fn now_ns(&self) -> u64 {
        self.mount.runtime.clock.now_ns()
    }
    /// Seconds for which an answer may be cached.
    fn valid_s(&self, changes: u64) -> u64 {
        self.sharer.share().valid_s(changes, self.now_ns()).min(1_000_000)
    }
    /// A durable value of a file at an offset. None: the session is over.
    async fn look(&self, ino: Ino, offset: u64) -> Option<u64> {
        loop {
            let begun = start(&self.mount).await?;
            let read = self.mount.call(Op::Read { ino, offset, length: 8 }, None).await.ok()?;
            let value = read.data.filter(|data| data.len() == 8);
            // What a server shows that is killed before it is durable, nobody has seen.
            self.mount.call(Op::Fsync { ino, sync: Sync::All }, None).await.ok()?;
            if start(&self.mount).await? == begun {
                return Some(value.map_or(0, |data| u64::from_le_bytes(data[..].try_into().expect("eight bytes"))));
            }
        }
    }
    async fn put(&self, ino: Ino, offset: u64, value: u64) -> Option<()> {
        let op = Op::Write { ino, at: At::Offset(offset), sync: Sync::All, kill_privileges: false };
        self.mount.call(op, Some(&value.to_le_bytes())).await.ok().map(drop)
    }
    async fn read(&self, key: u64) -> Option<u64> {
        let cached = self.cached.lock().expect("no panic").get(&key).copied();
        if let Some((value, _)) = cached.filter(|(_, until_ns)| self.now_ns() < *until_ns) {
            return Some(value);
        }
        let (changes, writes) = (self.sharer.share().changes(), self.writes.load(Ordering::Relaxed));
        let value = self.look(self.registers, key * BLOCK).await?;
        let until_ns = self.now_ns() + self.valid_s(changes) * 1_000 * MS;
        if self.writes.load(Ordering::Relaxed) == writes {
            self.cached.lock().expect("no panic").insert(key, (value, until_ns));
        }
        Some(value)
    }
    async fn write(&self, key: u64, value: u64) -> Option<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let written = self.put(self.registers, key * BLOCK, value).await;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.cached.lock().expect("no panic").remove(&key);
        written
    }
    /// Follows the caches that the session may have, as a mount does.
    async fn follow(self: Arc<Kernel>) {
        self.sharer.share().follow();
        let mut applied = None;
        while let Some(caches) = self.sharer.share().next_caches(applied).await {
            let is_other = applied.map(|applied: Caches| applied.caching) != Some(caches.caching);
            if is_other && !active(Bug::RecallUnheeded) {
                self.mount.runtime.clock.sleep(self.pause_ns).await;
                self.cached.lock().expect("no panic").clear();
            }
            applied = Some(caches);
            self.sharer.let_go(caches);
        }
        self.sharer.unfollow();
    }
    /// Counts the counter up under a lock. None: the session is over.
    async fn count(&self, owner: u64, rng: &mut SplitMix, world: &World) -> Option<()> {
        let lock = FileLock {
            ino: self.counter,
            family: if rng.one_in(2) { Family::Range } else { Family::Whole },
            mode: Mode::Exclusive,
            owner,
            pid: 1,
            first: 0,
            last: u64::MAX,
        };
        // Both families, so that either alone excludes nobody.
        for family in [Family::Range, Family::Whole] {
            self.lock(FileLock { family, ..lock }).await?;
        }
        let count = self.look(self.counter, 0).await?;
        let pause_ms = if rng.one_in(3) { rng.below(3_000) } else { rng.below(30) };
        self.mount.runtime.clock.sleep(pause_ms * MS).await;
        // The server itself may be killed before it hears of the outcome.
        world.perhaps.fetch_add(1, Ordering::Relaxed);
        if self.put(self.counter, 0, count + 1).await.is_some() {
            world.counted.fetch_add(1, Ordering::Relaxed);
            world.perhaps.fetch_sub(1, Ordering::Relaxed);
        }
        for family in [lock.family, if lock.family == Family::Range { Family::Whole } else { Family::Range }] {
            let lock = Box::new(FileLock { family, ..lock });
            self.mount.call(Op::Lock { lock, wish: LockWish::Release }, None).await.ok()?;
        }
        Some(())
    }
    async fn lock(&self, lock: FileLock) -> Option<()> {
        let wait = self.sharer.share().lock_wait(lock.ino, lock.owner);
        loop {
            let ticket = wait.event.ticket();
            let op = Op::Lock { lock: Box::new(lock), wish: LockWish::Queue };
            match self.mount.call(op, None).await.ok()?.reply {
                Reply::InTheWay(None) => return Some(()),
                Reply::InTheWay(Some(_)) => {}
                other => panic!("an answer about a lock: {other:?}"),
            }
            either(wait.event.after(ticket), self.mount.runtime.clock.sleep(1_000 * MS)).await;
        }
    }
    async fn task(&self, number: u64, mut rng: SplitMix, world: &World) {
        for _ in 0..ROUNDS {
            // Now and then for longer than a lease.
            let pause_ms = if rng.one_in(12) { rng.below(16_000) } else { rng.below(60) };
            self.mount.runtime.clock.sleep(pause_ms * MS).await;
            let (register, began_ns) = (rng.below(KEYS), world.clock.now_ns());
            let is_write = rng.one_in(3);
            if rng.one_in(4) {
                if self.count(number, &mut rng, world).await.is_none() {
                    return;
                }
                continue;
            }
            if !is_write {
                let Some(value) = self.read(register).await else { return };
                world.note(Call { register, is_write, value, began_ns, ended_ns: world.clock.now_ns() });
                continue;
            }
            let value = world.values.fetch_add(1, Ordering::Relaxed) + 1;
            let noted = world.note(Call { register, is_write, value, began_ns, ended_ns: u64::MAX });
            if self.write(register, value).await.is_none() {
                return;
            }
            world.calls.lock().expect("no panic")[noted].ended_ns = world.clock.now_ns();
        }
    }
    /// Does the rounds of all tasks; returns when all have ended.
    async fn live(self: &Arc<Kernel>, rng: &mut SplitMix, world: &World) {
        let runtime = &self.mount.runtime;
        let follower = self.clone();
        runtime.spawn(0, move || follower.follow());
        let ended = Arc::new(AtomicUsize::new(0));
        for task in 0..TASKS {
            let (kernel, world, ended) = (self.clone(), world.clone(), ended.clone());
            let rng = SplitMix(rng.next());
            runtime.spawn(task % 2, move || async move {
                kernel.task(task as u64, rng, &world).await;
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while ended.load(Ordering::Relaxed) < TASKS {
            runtime.clock.sleep(10 * MS).await;
        }
    }
    async fn new(mount: Mount, pause_ns: u64) -> Arc<Kernel> {
        let (registers, counter) = (file(&mount, "registers").await, file(&mount, "counter").await);
        let (cached, writes) = (Mutex::default(), AtomicU64::new(0));
        let sharer = mount.stack.sharer(mount.session).expect("it has a session");
        Arc::new(Kernel { mount, sharer, registers, counter, cached, writes, pause_ns })
    }
}

/// The number of the server's start. None: the session is over.
async fn start(mount: &Mount) -> Option<u64> {
    match &mount.client {
        Some(client) => client.welcome().await.ok().map(|welcome| welcome.boot),
        // It ends with the server.
        None => Some(0),
    }
}

/// A file, made by whoever comes first; durable.
async fn file(mount: &Mount, text: &str) -> Ino {
    loop {
        let begun = start(mount).await;
        let op = Op::Create { parent: mount.root, name: name(text), mode: 0o600, exclusive: false };
        let made = mount.call(op, None).await.expect("a new or an old file");
        mount.call(Op::SyncAll, None).await.expect("durable");
        let Reply::Attr(attr) = made.reply else { panic!("a file: {:?}", made.reply) };
        // A server that was killed meanwhile may have lost it.
        if start(mount).await == begun {
            return attr.ino;
        }
    }
}

/// The lives of a client: it mounts, does its rounds, unmounts, and comes again.
fn start_client(hosts: &Hosts, client: usize, mut rng: SplitMix, world: &World) {
    let (runtime, world) = (hosts.runtime(client), world.clone());
    let address = hosts.links().address(SERVER, PORT);
    runtime.clone().spawn(0, move || async move {
        for _ in 0..LIVES {
            let pause_ms = if rng.one_in(2) { rng.below(25_000) } else { rng.below(3_000) };
            runtime.clock.sleep(pause_ms * MS).await;
            let mount = Mount::new(runtime.clone(), address.clone()).await;
            world.mounted.fetch_add(1, Ordering::Relaxed);
            let kernel = Kernel::new(mount, rng.below(100) * MS).await;
            kernel.live(&mut rng, &world).await;
            kernel.mount.client().close(20_000 * MS).await;
        }
        world.ended.fetch_add(1, Ordering::Relaxed);
    });
}

/// The server, with mounts of its own, one after the other.
fn start_sharing_server(hosts: &Hosts, index: &ModelIndex, is_new: bool, mut rng: SplitMix, world: &World) {
    let world = world.clone();
    start_server_and(hosts, index, is_new, move |groups, server| {
        let runtime = groups.store().runtime.clone();
        runtime.clone().spawn(1, move || async move {
            for _ in 0..rng.below(LIVES as u64 + 1) {
                runtime.clock.sleep(rng.below(20_000) * MS).await;
                let kernel = Kernel::new(local_mount(&groups, &server).await, rng.below(100) * MS).await;
                kernel.live(&mut rng, &world).await;
                groups.end_session(Scope::All, kernel.mount.session).await.expect("a healthy brick");
            }
        });
    });
}

/// Breaks connections and ways, and kills the server if it may, until all clients are through.
async fn disturb(hosts: &Hosts, index: ModelIndex, rng: &mut SplitMix, clients: usize, world: &World) {
    let kills = rng.one_in(2);
    let mut index = index;
    until(hosts, || world.mounted.load(Ordering::Relaxed) > 0).await;
    while world.ended.load(Ordering::Relaxed) < clients {
        hosts.clock().sleep(rng.below(2_000) * MS).await;
        let client = 1 + rng.below(clients as u64) as usize;
        match rng.below(8) {
            0 => hosts.links().reset(SERVER, client),
            1 => hosts.links().reset_after(client, SERVER, rng.below(5_000)),
            2 | 3 => {
                hosts.links().cut(SERVER, client);
                hosts.clock().sleep(rng.below(25_000) * MS).await;
                hosts.links().heal(SERVER, client);
            }
            4 => hosts.links().set_plan(SERVER, client, LinkPlan::draw(rng)),
            5 if kills => {
                let image = hosts.kill(SERVER);
                hosts.clock().sleep(rng.below(4_000) * MS).await;
                index = index.crashed(0);
                hosts.boot(SERVER, Setup { image: Some(image), ..Setup::new(rng.next()) });
                start_sharing_server(hosts, &index, false, SplitMix(rng.next()), world);
            }
            _ => {}
        }
    }
    hosts.links().heal_all();
}

#[test]
fn what_clients_share_is_as_if_there_were_one() {
    let first = std::env::var("SINTER_SEED").map_or(0, |seed| seed.parse().expect("a seed"));
    KEPT.into_iter().chain(first..first + seeds()).for_each(shared);
}

fn shared(seed: u64) {
    let mut rng = SplitMix(seed);
    let clients = 2 + rng.below(CLIENTS_MAX as u64 - 1) as usize;
    let mut fleet = Fleet::with_patience(seed, 3600 * 1000 * MS);
    (0..=clients).for_each(|host| drop(fleet.hosts().boot(host, Setup::new(seed))));
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        let index = ModelIndex::new(store::format::leaf::merge);
        let world = World::new(&hosts);
        start_sharing_server(&hosts, &index, true, SplitMix(rng.next()), &world);
        (1..=clients).for_each(|client| start_client(&hosts, client, SplitMix(rng.next()), &world));
        disturb(&hosts, index, &mut rng, clients, &world).await;
        let calls = world.calls.lock().expect("no panic").clone();
        for register in 0..KEYS {
            let of_it: Vec<_> = calls.iter().filter(|call| call.register == register).copied().collect();
            assert!(is_linearizable(of_it.clone()), "seed {seed}, register {register}: {of_it:#?}");
        }
        // The server's own mount may go on.
        let least = world.counted.load(Ordering::Relaxed);
        let count = last_count(&hosts).await;
        let most = world.counted.load(Ordering::Relaxed) + world.perhaps.load(Ordering::Relaxed);
        assert!((least..=most).contains(&count), "seed {seed}: {count}, not {least} to {most}");
    });
}

/// The counter, as a client sees it that comes last.
async fn last_count(hosts: &Hosts) -> u64 {
    let (runtime, seen) = (hosts.runtime(1), Arc::new(Mutex::new(None)));
    let (address, there) = (hosts.links().address(SERVER, PORT), seen.clone());
    runtime.clone().spawn(0, move || async move {
        let kernel = Kernel::new(Mount::new(runtime, address).await, 0).await;
        *there.lock().expect("no panic") = kernel.look(kernel.counter, 0).await;
    });
    until(hosts, || seen.lock().expect("no panic").is_some()).await;
    seen.lock().expect("no panic").expect("just seen")
}

/// A client that is alone caches; one that has company does not, and does again when that has gone, or is silent.
#[test]
fn a_client_that_is_left_alone_caches_again() {
    let mut fleet = Fleet::with_patience(1, 3600 * 1000 * MS);
    (0..=2).for_each(|host| drop(fleet.hosts().boot(host, Setup::new(1))));
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        start_server(&hosts, &ModelIndex::new(store::format::leaf::merge), true);
        let mounts: [Arc<Mutex<Option<Mount>>>; 2] = Default::default();
        let come = |client: usize| {
            let (runtime, there) = (hosts.runtime(client), mounts[client - 1].clone());
            let address = hosts.links().address(SERVER, PORT);
            runtime.clone().spawn(0, move || async move {
                *there.lock().expect("no panic") = Some(Mount::new(runtime, address).await);
            });
        };
        let caching = |client: usize| {
            let mount = mounts[client - 1].lock().expect("no panic");
            mount.as_ref().map(|mount| mount.client().share().caches().caching)
        };
        let alone = |client: usize| caching(client) == Some(Caching::Alone);
        come(1);
        until(&hosts, || alone(1)).await;
        come(2);
        until(&hosts, || caching(2).is_some()).await;
        assert_eq!([1, 2].map(caching), [Some(Caching::Shared); 2]);
        hosts.links().cut(SERVER, 1);
        until(&hosts, || alone(2)).await;
        hosts.links().heal(SERVER, 1);
        until(&hosts, || !alone(2)).await;
        let first = mounts[0].lock().expect("no panic").clone().expect("it is there");
        hosts.runtime(1).spawn(0, move || async move { first.client().close(1_000 * MS).await });
        until(&hosts, || alone(2)).await;
    });
}

/// Each bug has the property fail for a seed.
#[cfg(feature = "seeded-bugs")]
#[test]
fn each_bug_is_noticed() {
    let bugs =
        [Bug::SharedUnasked, Bug::RecallUnheeded, Bug::LeaseIgnored, Bug::LocksNotReclaimed, Bug::OthersNotAwaited];
    for bug in bugs {
        assert!((0..20 * SEEDS).any(|seed| fails(move || shared(seed), bug)), "went unnoticed: {bug:?}");
    }
}
