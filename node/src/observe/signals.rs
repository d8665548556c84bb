//! Snapshots of a running daemon.

use super::kernel::{Disks, FuseControl};
use super::{Learner, kernel};
use base::StatFs;
use base::limits::BLOCK_BYTES;
use explain::Times;
use explain::snapshot::{
    Acks, Agents, Core, InFlight, Io, LayerFigures, Led, LimitFigures, Lock, Log, Memory, Network, Operation, Peer,
    Pool, Snapshot, Space, Tenant, Tiers, Trips, Whole,
};
use front::fuse::Serving;
use group::Groups;
use runtime::Runtime;
use runtime::ledger::{Kept, OpProfile, Sampled};
use runtime::lock::LockSummary;
use runtime::real::{PoolSummary, Probe};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::format::devices::Tier;
use wire::Client;

/// Pause between two looks at the requests in flight, and at the sample of whole requests.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time for which one request to the daemon looks.
pub const LOOKING_MS_MAX: u64 = 1000;

/// The places from which a brick's snapshots come.
pub struct Gatherer {
    /// The world.
    pub runtime: Runtime,
    /// The cores' figures.
    pub probe: Probe,
    /// The brick's groups; none at a client.
    pub groups: Option<Arc<Groups>>,
    /// The client's session, with the server's name; none at a brick.
    pub client: Option<(String, Arc<Client>)>,
    /// The brick's directory.
    pub data: PathBuf,
    /// The brick's disks, once somebody has asked: they stay while it is served.
    pub disks: OnceLock<Option<Disks>>,
    /// Largest number of bytes of buffers.
    pub buffer_bytes_max: u64,
    /// The thread that learns what is usual.
    pub learner: Learner,
    /// The time at which the daemon started.
    pub started_ns: u64,
    /// True once the daemon ends: nobody looks any more.
    pub is_ending: AtomicBool,
}

impl Gatherer {
    /// Looks for `looking`, then tells everything. `mounts`: those of the daemon, beside the number of other machines' requests that it
    /// has. `of_volumes`: layers, limits and shares.
    pub fn snapshot(
        &self,
        looking: Duration,
        (mounts, of_others): (&[Arc<Serving>], &dyn Fn() -> usize),
        of_volumes: (Vec<LayerFigures>, Vec<LimitFigures>, Vec<Tenant>),
    ) -> Snapshot {
        let (layers, limits, tenants) = of_volumes;
        let (mut sampled, mut in_flight, began) = (Sampled::default(), InFlight::default(), Instant::now());
        // What came before is not of this time.
        drop(self.runtime.ledger.samples(&mut sampled));
        let mut sample = Vec::new();
        // Not kept: while it is held, the kernel may give the next mount another device number than otherwise, which is a
        // part of the file handles of NFS.
        let control = if looking.is_zero() { None } else { FuseControl::open() };
        while began.elapsed() < looking && !self.is_ending.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            in_flight.looks += 1;
            let others = of_others() as u64;
            in_flight.in_daemon += others + mounts.iter().map(|serving| serving.under_way() as u64).sum::<u64>();
            if let Some(waiting) = control.as_ref().and_then(|control| waiting(control, mounts)) {
                in_flight.kernel_looks += 1;
                // Those of other machines wait in no kernel of this one.
                in_flight.in_kernel += others + waiting;
            }
            sample.extend(self.runtime.ledger.samples(&mut sampled).iter().map(whole));
        }
        Snapshot {
            at_ns: self.runtime.clock.now_ns(),
            started_ns: self.started_ns,
            operations: self.runtime.ledger.profile().iter().map(operation).collect(),
            sample,
            cores: cores(&self.probe),
            pools: vec![pool("client", &self.probe.pool()), pool("background", &self.probe.background())],
            locks: self.locks(),
            io: io(&self.probe),
            disk: self.disks.get_or_init(|| Disks::of(&self.data)).and_then(Disks::figures),
            process: kernel::process(),
            in_flight,
            layers,
            limits,
            tenants,
            memory: Memory { bytes_max: self.buffer_bytes_max, bytes: self.runtime.slabs.bytes() },
            agents: self.groups.as_deref().map(|groups| self.agents(groups)).unwrap_or_default(),
            space: self.groups.as_deref().map(space).unwrap_or_default(),
            tiers: self.groups.as_deref().and_then(tiers),
            log: self.groups.as_deref().map(log).unwrap_or_default(),
            network: self.client.as_ref().map(|(server, client)| network(server, client)),
            peers: self.groups.as_deref().map(peers).unwrap_or_default(),
            led: self.groups.as_deref().map(led).unwrap_or_default(),
            baseline: self.learner.baseline(),
            connections: mounts.iter().filter_map(|serving| connection(serving.mount().number())).collect(),
            kernel: Vec::new(),
        }
    }

    /// The slowest requests of the last two minutes.
    pub fn slowest(&self) -> Vec<Whole> {
        self.runtime.ledger.slowest(self.runtime.clock.now_ns()).iter().map(whole).collect()
    }

    fn locks(&self) -> Vec<Lock> {
        let mut all = Vec::new();
        if let Some(groups) = &self.groups {
            all.extend(groups.lock_summaries());
            all.extend(groups.store().lock_summaries());
        }
        all.extend([self.probe.pool().lock, self.probe.background().lock]);
        let mut by_name: BTreeMap<&str, Lock> = BTreeMap::new();
        for LockSummary { name, acquired, contended, wait, hold } in &all {
            let lock = by_name.entry(name).or_default();
            lock.name = name.to_string();
            lock.acquired += acquired;
            lock.contended += contended;
            lock.wait.add(&Times::of(wait));
            lock.hold.add(&Times::of(hold));
        }
        by_name.into_values().collect()
    }

    fn agents(&self, groups: &Groups) -> Agents {
        let cleaner = groups.cleaner();
        Agents {
            checkpoints: groups.checkpoints(),
            cleaned_blocks: groups.moved_blocks(),
            delay_ns: cleaner.client_delay_ns,
            worked_ns: self.runtime.agents().iter().map(|one| (one.agent.name().into(), one.worked_ns)).collect(),
        }
    }
}

fn space(groups: &Groups) -> Space {
    let (store, segments) = (groups.store(), groups.store().segments());
    let StatFs { size_bytes, free_bytes, .. } = store.space.statfs();
    let missing = store.missing();
    Space {
        size_bytes,
        free_bytes,
        live_bytes: segments.live_bytes(),
        segments: segments.segments,
        free_segments: segments.free_segments,
        emptied_segments: segments.emptied_segments,
        is_read_only: store.log.failed().is_some(),
        missing_disks: missing.iter().map(|(disk, _)| disk.0).collect(),
        missing_bytes: missing.iter().map(|(_, blocks)| blocks * BLOCK_BYTES as u64).sum(),
    }
}

/// The tiers; none of a brick without disks.
fn tiers(groups: &Groups) -> Option<Tiers> {
    let store = groups.store();
    if store.destage().is_empty() {
        return None;
    }
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let tier = |tier: Tier| {
        let totals = store.segments_of(tier);
        explain::snapshot::Tier {
            size_bytes: totals.segments * store.segment_bytes(),
            free_bytes: totals.free_segments * store.segment_bytes(),
            live_bytes: totals.live_bytes(),
            moved_bytes: bytes(groups.cleaner_of(tier).moved_blocks),
        }
    };
    Some(Tiers {
        flash: tier(Tier::Flash),
        disks: tier(Tier::Disk),
        destaged_bytes: bytes(groups.destaged_blocks()),
        unpinned_bytes: bytes(groups.unpinned_blocks()),
        destage_ns: groups.destage_ns(),
        pinned_bytes: bytes(groups.cleaner().pinned_blocks),
    })
}

/// A client's way to its server.
pub fn network(server: &str, client: &Client) -> Network {
    let ways = client.ways();
    let trips = |trips: &wire::client::Trips| Trips {
        verb: trips.verb.to_string(),
        bytes_max: trips.bytes_max,
        depth: trips.depth,
        wire: Times::of(&trips.wire),
        server: Times::of(&trips.server),
    };
    Network {
        server: server.to_string(),
        connections: ways.connections as u64,
        round_trip_ns: ways.round_trip_ns,
        retransmits: ways.retransmits,
        away_ns: ways.away_ns,
        alarms: ways.late.0,
        late_ns: ways.late.1,
        trips: ways.trips.iter().map(trips).collect(),
    }
}

/// The other nodes of a cluster, each named by its brick; none unless this one leads a group.
pub fn peers(groups: &Groups) -> Vec<Peer> {
    let others = groups.others().into_iter();
    let told = others.filter_map(|(brick, follows, reach)| {
        let (follows, way) = (follows?, reach.way.unwrap_or_default());
        let acks = follows.acknowledged.iter().map(|acks| Acks {
            depth: acks.depth,
            count: acks.count,
            took_ns: acks.took_ns,
        });
        let brick = format!("{:032x}", brick.0);
        Some(Peer {
            node: brick.clone(),
            brick,
            connected: reach.is_connected,
            needed: follows.needed,
            round_trip_ns: way.round_trip_ns,
            retransmits: way.retransmits,
            acks: acks.collect(),
        })
    });
    told.collect()
}

/// The leaders of a cluster's groups, named by their bricks; none of a brick that is alone.
fn led(groups: &Groups) -> Vec<Led> {
    let told = |(group, led): (base::GroupId, group::Led)| {
        let group::Led { leader, changes, without_ns, is_without, .. } = led;
        let (leader, term) = leader.map(|(brick, term)| (format!("{:032x}", brick.0), term.0)).unwrap_or_default();
        Led { group: group.0, node: String::new(), leader, term, changes, without_ns, is_without }
    };
    groups.led().into_iter().map(told).collect()
}

fn log(groups: &Groups) -> Log {
    let log = groups.store().log.figures();
    let (batches, records, bytes, flushes) = (log.batches, log.records, log.bytes, log.flushes);
    Log { batches, records, bytes, flushes, backlog_bytes: groups.backlog_bytes() }
}

/// Number of requests of all mounts that the kernel has; none if it does not tell.
fn waiting(control: &FuseControl, mounts: &[Arc<Serving>]) -> Option<u64> {
    mounts.iter().map(|serving| control.waiting(serving.mount().number())).sum()
}

/// The kernel's number of a mount's connection: the minor of its device (`0:50`).
fn connection(number: &str) -> Option<u32> {
    number.split_once(':')?.1.parse().ok()
}

fn operation(profile: &OpProfile) -> Operation {
    let stage = |(stage, summary): &(runtime::Stage, _)| (stage.name().to_string(), Times::of(summary));
    Operation {
        name: profile.name.to_string(),
        total: Times::of(&profile.total),
        stages: profile.stages.iter().map(stage).collect(),
        hops: profile.hops,
        errors: profile.errors.iter().map(|(kind, count)| (kind.name().to_string(), *count)).collect(),
    }
}

/// A whole request of the ledger.
pub fn whole(kept: &Kept) -> Whole {
    Whole {
        name: kept.name.to_string(),
        end_ns: kept.end_ns,
        duration_ns: kept.total_ns,
        stages: kept.stages.iter().map(|&(stage, ns)| (stage.name().to_string(), ns)).collect(),
        ino: kept.subject.ino,
        uid: kept.subject.uid,
        thread: kept.subject.thread,
        request: kept.subject.request,
        way: None,
    }
}

/// The cores' figures.
pub fn cores(probe: &Probe) -> Vec<Core> {
    let core = |core: runtime::real::CoreSummary| Core {
        turns: core.turns,
        sleeps: core.sleeps,
        runs: core.runs,
        run: Times::of(&core.run),
    };
    probe.cores().into_iter().map(core).collect()
}

/// The figures of the device's I/O.
pub fn io(probe: &Probe) -> Vec<Io> {
    let io = |io: runtime::real::IoSummary| Io {
        purpose: io.purpose.name().to_string(),
        verb: io.verb.name().to_string(),
        bytes_max: io.bytes_max,
        depth: io.depth,
        took: Times::of(&io.took),
        bytes: io.bytes,
    };
    probe.io().into_iter().map(io).collect()
}

fn pool(name: &str, pool: &PoolSummary) -> Pool {
    Pool {
        name: name.to_string(),
        threads: pool.threads as u64,
        queued: pool.queued as u64,
        jobs: pool.jobs,
        wait: Times::of(&pool.wait),
    }
}
