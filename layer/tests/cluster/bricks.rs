//! Three bricks on simulated hosts that have some groups, and serve clients while they lead.

use super::super::CLIENT;
use crate::rig::{MS, name, until};
use base::limits::SEGMENT_BYTES_MIN;
use base::{GroupId, Op, ReplicaId, VolumeId};
use group::{BrickId, Context, Ended, Groups, Member, Options, Replicas};
use layer::{Leading, Served, Stack};
use runtime::Span;
use runtime::net::Address;
use runtime::random::SplitMix;
use runtime::sim::{BootClock, DiskImage, Fleet, Hosts, Setup, Survival};
use std::sync::{Arc, Mutex};
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};

pub const BRICKS: usize = 3;
/// Ports for clients and for the other bricks.
const CLIENTS_PORT: u16 = 7400;
const PEERS_PORT: u16 = 7401;

/// A brick's process.
struct Process {
    groups: Arc<Groups>,
    leading: Arc<Leading>,
}

/// The bricks.
pub struct Bricks {
    pub hosts: Arc<Hosts>,
    pub groups: u32,
    seed: u64,
    indexes: Mutex<Vec<ModelIndex>>,
    images: Mutex<Vec<Option<DiskImage>>>,
    processes: Mutex<Vec<Option<Process>>>,
    rng: Mutex<SplitMix>,
}

/// The host of a brick.
pub fn host(number: usize) -> usize {
    CLIENT + 1 + number
}

fn brick(number: usize) -> BrickId {
    BrickId(number as u128 + 100)
}

pub fn fleet(seed: u64, groups: u32) -> (Fleet, Arc<Bricks>) {
    let fleet = Fleet::with_patience(seed, 3600 * 1000 * MS);
    let hosts = fleet.hosts().clone();
    let mut rng = SplitMix(seed ^ 0xc10c);
    hosts.boot(CLIENT, Setup::new(seed));
    for number in 0..BRICKS {
        hosts.boot(host(number), Setup { clock: BootClock::draw(&mut rng), ..Setup::new(seed) });
    }
    let index = |_| ModelIndex::new(store::format::leaf::merge);
    let bricks = Bricks {
        hosts,
        groups,
        seed,
        indexes: Mutex::new((0..BRICKS).map(index).collect()),
        images: Mutex::new((0..BRICKS).map(|_| None).collect()),
        processes: Mutex::new((0..BRICKS).map(|_| None).collect()),
        rng: Mutex::new(rng),
    };
    (fleet, Arc::new(bricks))
}

impl Bricks {
    /// The address where a brick's process listens for clients while it leads.
    pub fn address(&self, number: usize) -> Address {
        self.hosts.links().address(host(number), CLIENTS_PORT)
    }
    pub fn addresses(&self) -> Vec<Address> {
        (0..BRICKS).map(|number| self.address(number)).collect()
    }
    /// Formats and starts the bricks, and makes the volume "main".
    pub async fn begin(self: &Arc<Bricks>) {
        (0..BRICKS).for_each(|number| self.start(number, true));
        until(&self.hosts, || self.numbers().all(|group| self.leader_of(group).is_some())).await;
        let made = Arc::new(Mutex::new(false));
        let (there, bricks) = (made.clone(), self.clone());
        let leader = self.leader().expect("it was just there");
        self.hosts.runtime(host(leader)).spawn(0, move || async move {
            let groups = bricks.groups(leader).expect("it runs");
            let context = Context::own(VolumeId(0), Span::start(groups.store().runtime.stamp()));
            let create = Op::VolumeCreate { name: name("main"), size_bytes: None };
            groups.call_replicated(&context, create, None).await.expect("a new volume");
            *there.lock().expect("no panic") = true;
        });
        until(&self.hosts, || *made.lock().expect("no panic")).await;
    }
    fn start(self: &Arc<Bricks>, number: usize, is_new: bool) {
        let (bricks, runtime) = (self.clone(), self.hosts.runtime(host(number)));
        let index = self.indexes.lock().expect("no panic")[number].clone();
        runtime.clone().spawn(0, move || async move {
            if is_new {
                let options = FormatOptions {
                    size_bytes: Some(256 * SEGMENT_BYTES_MIN),
                    segment_bytes: SEGMENT_BYTES_MIN,
                    groups: bricks.groups,
                    size_bytes_min: 0,
                    ..FormatOptions::default()
                };
                store::format_brick(&runtime, options, async || Ok(())).await.expect("a blank disk can be formatted");
            }
            let opening = Opening::read(runtime.clone(), Arc::new(index), true).await.expect("a healthy brick opens");
            let member = |at| Member { replica: ReplicaId(at as u64 + 1), brick: brick(at) };
            let members = (0..BRICKS).map(member).collect();
            let replicas = Replicas { me: brick(number), members, ended: Ended::Somehow };
            let opened = Groups::open_replicated(opening, Options::for_memory(256 << 20), replicas).await;
            let (groups, _) = opened.expect("a healthy brick replays");
            let peers = |at| bricks.hosts.links().address(host(at), PEERS_PORT);
            let others = (0..BRICKS).filter(|other| *other != number).map(|other| (brick(other), peers(other)));
            groups.reach_others([7; 16], &peers(number), others.collect(), None).expect("nobody listens there");
            let stacks = groups.clone();
            let stack_of = move |volume: &base::Volume| Arc::new(Stack::new(stacks.clone(), &[], &volume.limits));
            let served = Served::new(groups.clone(), "cluster", [7; 16], stack_of);
            let leading = served.serve_while_leading(&runtime, bricks.address(number), None);
            bricks.processes.lock().expect("no panic")[number] = Some(Process { groups, leading });
        });
    }
    fn groups(&self, number: usize) -> Option<Arc<Groups>> {
        self.processes.lock().expect("no panic")[number].as_ref().map(|process| process.groups.clone())
    }
    /// Ends a brick's process, by a kill or with its machine.
    pub fn stop(&self, number: usize, survival: Option<Survival>) {
        self.processes.lock().expect("no panic")[number] = None;
        let image = match survival {
            // The brick's lock keeps the last writes to these from the next process; a simulated brick has none.
            None => {
                let is_in_a_segment =
                    |file: &str, at: u64| file != "superblock" && !at.is_multiple_of(SEGMENT_BYTES_MIN);
                self.hosts.kill(host(number)).keep_late(is_in_a_segment)
            }
            Some(survival) => self.hosts.crash(host(number), survival),
        };
        let mut indexes = self.indexes.lock().expect("no panic");
        indexes[number] = indexes[number].crashed(0);
        self.images.lock().expect("no panic")[number] = Some(image);
    }
    /// Ends a brick in which a checkpoint has taken all, and checks what is on its disk.
    pub async fn check(self: &Arc<Bricks>, number: usize) -> store::check::Report {
        self.stop(number, None);
        let image = self.images.lock().expect("no panic")[number].take();
        self.hosts.boot(host(number), Setup { image, ..Setup::new(self.seed) });
        let (runtime, index) =
            (self.hosts.runtime(host(number)), self.indexes.lock().expect("no panic")[number].clone());
        let found = Arc::new(Mutex::new(None));
        let there = found.clone();
        runtime.clone().spawn(0, move || async move {
            let opening = Opening::read_wholly(runtime, Arc::new(index), false).await.expect("a closed brick opens");
            let report = store::check::check(&opening, &mut |_| ()).await.expect("it can be checked");
            *there.lock().expect("no panic") = Some(report);
        });
        until(&self.hosts, || found.lock().expect("no panic").is_some()).await;
        let found = found.lock().expect("no panic").take();
        found.expect("it was just there")
    }
    /// Ends a brick's process in order, as an operator does before an upgrade.
    pub async fn close(self: &Arc<Bricks>, number: usize) {
        let Some(process) = self.processes.lock().expect("no panic")[number].take() else { return };
        let closed = Arc::new(Mutex::new(false));
        let done = closed.clone();
        self.hosts.runtime(host(number)).spawn(0, move || async move {
            process.leading.stop().await;
            process.groups.close().await.expect("a healthy brick closes");
            *done.lock().expect("no panic") = true;
        });
        until(&self.hosts, || *closed.lock().expect("no panic")).await;
        self.stop(number, None);
    }
    /// Starts a brick again with what its disk has.
    pub fn start_again(self: &Arc<Bricks>, number: usize) {
        let image = self.images.lock().expect("no panic")[number].take();
        let clock = BootClock::draw(&mut self.rng.lock().expect("no panic"));
        self.hosts.boot(host(number), Setup { image, clock, ..Setup::new(self.seed) });
        self.start(number, false);
    }
    /// The brick that leads the first group, if one is known to.
    pub fn leader(&self) -> Option<usize> {
        self.leader_of(GroupId(0))
    }
    /// The brick that leads a group, if one is known to.
    pub fn leader_of(&self, group: GroupId) -> Option<usize> {
        (0..BRICKS).find(|number| self.groups(*number).is_some_and(|groups| groups.leads(group)))
    }
    /// The brick that is to lead a group.
    pub fn home(&self, group: GroupId) -> usize {
        let groups = (0..BRICKS).find_map(|number| self.groups(number)).expect("one runs");
        let home = groups.home(group).brick;
        (0..BRICKS).find(|number| brick(*number) == home).expect("one of them")
    }
    pub fn numbers(&self) -> impl Iterator<Item = GroupId> {
        (0..self.groups).map(GroupId)
    }
    /// Waits until all bricks have applied the same records, and compares what they say.
    pub async fn agree(self: &Arc<Bricks>) {
        for group in self.numbers() {
            self.agree_on(group).await;
        }
    }
    async fn agree_on(self: &Arc<Bricks>, group: GroupId) {
        let applied = |number| Some(self.groups(number)?.replica_status(group)?.applied);
        let agree = || applied(0).is_some() && (1..BRICKS).all(|number| applied(number) == applied(0));
        let until_ns = self.hosts.clock().now_ns() + 60_000 * MS;
        loop {
            assert!(self.hosts.clock().now_ns() < until_ns, "the replicas differ for a minute");
            self.hosts.clock().sleep(10 * MS).await;
            if !agree() {
                continue;
            }
            let mut sums = Vec::new();
            for number in 0..BRICKS {
                sums.push(self.checksum(number, group).await);
            }
            // A record may have come in between.
            if sums.iter().all(|(applied, _)| *applied == sums[0].0) {
                assert!(sums[0].1 != 0 && sums.iter().all(|sum| *sum == sums[0]), "replicas say the same: {sums:x?}");
                return;
            }
        }
    }
    async fn checksum(&self, number: usize, group: GroupId) -> (base::Index, u32) {
        let groups = self.groups(number).expect("it runs");
        let found = Arc::new(Mutex::new(None));
        let there = found.clone();
        self.hosts.runtime(host(number)).spawn(0, move || async move {
            let sum = groups.checksum(group).await.expect("a healthy brick");
            *there.lock().expect("no panic") = Some(sum);
        });
        until(&self.hosts, || found.lock().expect("no panic").is_some()).await;
        let found = found.lock().expect("no panic").take();
        found.expect("it was just there")
    }
}
