//! The difference of two snapshots: what happened between them.

use crate::snapshot::{
    Acks, InFlight, Io, LayerFigures, Led, LimitFigures, Lock, Network, Operation, Peer, Pool, Snapshot, Tenant,
    Thread, Tier, Tiers, Trips, Whole,
};
use crate::times::Times;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Names of the threads that serve requests: this, and the core's number.
const CORE_THREAD: &str = "sinter-core-";

/// The difference of two snapshots.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Length in nanoseconds.
    pub ns: u64,
    /// Requests by operation; only those with any.
    pub operations: Vec<Operation>,
    /// Whole requests, a sample.
    pub sample: Vec<Whole>,
    /// I/O by class; only those with any.
    pub io: Vec<Io>,
    /// Locks.
    pub locks: Vec<Lock>,
    /// Pools, with their threads and waiting jobs at the end.
    pub pools: Vec<Pool>,
    /// The cores.
    pub cores: Vec<CoreWindow>,
    /// Nanoseconds taken by a hypervisor.
    pub steal_ns: u64,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// Layers: volume and name, calls, nanoseconds held.
    pub layers: Vec<(String, u64, u64)>,
    /// Limits: volume, operations held, nanoseconds.
    pub limits: Vec<(String, u64, u64)>,
    /// Volumes that shared the cores, and nanoseconds that each had meanwhile, the greatest first.
    pub tenants: Vec<(String, u64)>,
    /// The later snapshot, for what is no counter, and its disk's difference.
    pub after: Snapshot,
    /// The device as the kernel counts: requests, bytes, nanoseconds; by verb.
    pub disk: Option<DiskWindow>,
    /// The tiers of a hybrid brick: what they hold at the end, and what was counted meanwhile.
    pub tiers: Option<Tiers>,
    /// A client's way to its server: what it is at the end, and what was counted meanwhile.
    pub network: Option<Network>,
    /// The other nodes of a cluster, at the one that leads: what they are at the end, and what was counted meanwhile.
    pub peers: Vec<Peer>,
    /// The leaders of the cluster's groups, at one of its nodes: what was known at the beginning, and what is known at the end, with what was
    /// counted meanwhile.
    pub led: Vec<(Led, Led)>,
}

/// A core's difference.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreWindow {
    /// Nanoseconds for which its thread ran.
    pub run_ns: u64,
    /// Nanoseconds for which it could have run, while others did.
    pub wait_ns: u64,
    /// Number of turns of its reactor.
    pub turns: u64,
}

impl CoreWindow {
    /// Nanoseconds for which it did not sleep.
    fn awake_ns(&self) -> u64 {
        self.run_ns + self.wait_ns
    }
}

/// A disk's difference.
#[derive(Clone, Debug, Default)]
pub struct DiskWindow {
    /// The device's name.
    pub name: String,
    /// The disk at the bottom.
    pub bottom: String,
    /// Completed requests: reads, writes, flushes.
    pub requests: [u64; 3],
    /// Milliseconds that they took.
    pub took_ms: [u64; 3],
    /// Bytes read and written at the bottom, by anybody.
    pub bottom_bytes: u64,
    /// Bytes of this process.
    pub own_bytes: u64,
}

impl Window {
    /// The difference. None if the snapshots are not of one daemon, or not in this order.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Window> {
        if before.started_ns != after.started_ns || after.at_ns <= before.at_ns {
            return None;
        }
        Some(Window {
            ns: after.at_ns - before.at_ns,
            operations: operations(before, after),
            sample: after.sample.iter().filter(|whole| whole.end_ns >= before.at_ns).cloned().collect(),
            io: io(before, after),
            locks: locks(before, after),
            pools: pools(before, after),
            cores: cores(before, after),
            steal_ns: after.process.steal_ns.saturating_sub(before.process.steal_ns),
            in_flight: after.in_flight.clone(),
            layers: layers(before, after),
            limits: limits(before, after),
            tenants: tenants(before, after),
            disk: disk(before, after),
            tiers: tiers(before, after),
            network: network(before, after),
            peers: peers(before, after),
            led: led(before, after),
            after: after.clone(),
        })
    }
    /// All that came since the daemon's start.
    pub fn since_start(after: &Snapshot) -> Option<Window> {
        let mut before = Snapshot { at_ns: after.started_ns, started_ns: after.started_ns, ..Snapshot::default() };
        before.process.threads = after.process.threads.clone();
        for thread in &mut before.process.threads {
            (thread.run_ns, thread.wait_ns) = (0, 0);
        }
        Window::between(&before, after)
    }
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }
    /// A number of events of it per second.
    pub fn per_second(&self, count: f64) -> f64 {
        count * 1e9 / self.ns as f64
    }
    /// The part of its length that this many nanoseconds of one thread are, at most 1.
    pub fn share(&self, ns: u64) -> f64 {
        (ns as f64 / self.ns as f64).min(1.0)
    }
    /// Locks that were acquired, those that were waited for most first, each with the part that its waits are of all requests' time.
    pub fn locks_by_wait(&self) -> Vec<(&Lock, f64)> {
        let mut locks: Vec<&Lock> = self.locks.iter().filter(|lock| lock.acquired > 0).collect();
        locks.sort_by_key(|lock| Reverse((lock.wait.sum_ns, lock.acquired)));
        let all_ns = self.total_ns().max(1.0);
        locks.into_iter().map(|lock| (lock, lock.wait.sum_ns as f64 / all_ns)).collect()
    }
    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|operation| operation.total.count).sum()
    }
    /// Number of requests that were answered with an error of this kind.
    pub fn failed(&self, kind: &str) -> u64 {
        self.operations.iter().filter_map(|operation| operation.errors.get(kind)).sum()
    }
    /// Nanoseconds of all requests together.
    pub fn total_ns(&self) -> f64 {
        self.operations.iter().map(|operation| operation.total.sum_ns as f64).sum()
    }
    /// Nanoseconds that all requests spent in stages of these names.
    pub fn stage_ns(&self, names: &[&str]) -> f64 {
        let of = |operation: &Operation| -> f64 {
            names.iter().filter_map(|name| operation.stages.get(*name)).map(|times| times.sum_ns as f64).sum()
        };
        // The sum of nothing is -0.0, which would be shown.
        self.operations.iter().map(of).sum::<f64>().max(0.0)
    }
    /// Mean number of requests that the daemon had: rate times time (Little's law).
    pub fn occupancy(&self) -> f64 {
        self.total_ns() / self.ns as f64
    }
    /// Mean number of requests in the kernel, from the samples; none if the kernel was not asked.
    pub fn kernel_occupancy(&self) -> Option<f64> {
        let InFlight { kernel_looks, in_kernel, .. } = self.in_flight;
        (kernel_looks > 0).then(|| in_kernel as f64 / kernel_looks as f64)
    }
    /// Nanoseconds that requests waited in the kernel before the daemon had them, and on their way back: an estimate.
    pub fn transport_ns(&self) -> f64 {
        let kernel_ns = self.kernel_occupancy().unwrap_or(0.0) * self.ns as f64;
        (kernel_ns - self.total_ns()).max(0.0)
    }
    /// Share of their time that the cores slept: the least of all cores, and the mean.
    pub fn asleep(&self) -> (f64, f64) {
        let shares = self.cores.iter().map(|core| 1.0 - self.share(core.awake_ns()));
        let (least, sum) = shares.fold((1.0, 0.0), |(least, sum), share| (f64::min(least, share), sum + share));
        (least, sum / self.cores.len().max(1) as f64)
    }
    /// Nanoseconds for which a completion waits in the mean until a core looks: half a turn of the reactor. A core that waits
    /// for a lock does not look either, though the kernel counts it as asleep.
    pub fn look_ns(&self) -> f64 {
        let awake_ns: u64 = self.cores.iter().map(CoreWindow::awake_ns).sum();
        let locked_ns: u64 = self.locks.iter().map(|lock| lock.wait.sum_ns).sum();
        let turns: u64 = self.cores.iter().map(|core| core.turns).sum();
        (awake_ns + locked_ns) as f64 / turns.max(1) as f64 / 2.0
    }
    /// Nanoseconds for which a client's request waits in the mean until its server looks at it: they belong to the server, which does not
    /// know of it yet.
    pub fn server_late_ns(&self) -> f64 {
        self.network.as_ref().map_or(0.0, |network| network.late_ns as f64 / network.alarms.max(1) as f64)
    }
    /// Nanoseconds for which the cores' threads ran, and for which they could have run while others did.
    pub fn scheduled(&self) -> (u64, u64) {
        self.cores.iter().fold((0, 0), |sum, core| (sum.0 + core.run_ns, sum.1 + core.wait_ns))
    }
    /// I/O of one verb.
    pub fn verb(&self, verb: &str) -> impl Iterator<Item = &Io> {
        self.io.iter().filter(move |io| io.verb == verb)
    }
    /// The name of the device, for sentences.
    pub fn device(&self) -> String {
        self.disk.as_ref().map_or_else(|| "the device".to_string(), |disk| disk.name.clone())
    }
}

/// The entries of the later snapshot, each beside that of the same key in the earlier one, if there was one.
fn pairs<'a, T, K: Ord>(
    before: &'a [T],
    after: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> impl Iterator<Item = (Option<&'a T>, &'a T)> {
    let earlier: BTreeMap<K, &T> = before.iter().map(|one| (key(one), one)).collect();
    after.iter().map(move |one| (earlier.get(&key(one)).copied(), one))
}

fn operations(before: &Snapshot, after: &Snapshot) -> Vec<Operation> {
    let (nothing, none) = (Operation::default(), Times::default());
    let since = |(earlier, one): (Option<&Operation>, &Operation)| {
        let earlier = earlier.unwrap_or(&nothing);
        let stage = |(name, times): (&String, &Times)| {
            let times = times.since(earlier.stages.get(name).unwrap_or(&none));
            (times.count > 0).then(|| (name.clone(), times))
        };
        let fewer = |kind: &str, count: u64| count.saturating_sub(earlier.errors.get(kind).copied().unwrap_or(0));
        Operation {
            name: one.name.clone(),
            total: one.total.since(&earlier.total),
            stages: one.stages.iter().filter_map(stage).collect(),
            hops: one.hops.saturating_sub(earlier.hops),
            errors: one.errors.iter().map(|(kind, &count)| (kind.clone(), fewer(kind, count))).collect(),
        }
    };
    let all = pairs(&before.operations, &after.operations, |one| &*one.name).map(since);
    all.filter(|one| one.total.count > 0).collect()
}

fn io(before: &Snapshot, after: &Snapshot) -> Vec<Io> {
    let nothing = Io::default();
    let since = |(earlier, io): (Option<&Io>, &Io)| {
        let earlier = earlier.unwrap_or(&nothing);
        Io { took: io.took.since(&earlier.took), bytes: io.bytes.saturating_sub(earlier.bytes), ..io.clone() }
    };
    let all = pairs(&before.io, &after.io, |io| (&*io.purpose, &*io.verb, io.bytes_max, io.depth)).map(since);
    all.filter(|io| io.took.count > 0).collect()
}

fn locks(before: &Snapshot, after: &Snapshot) -> Vec<Lock> {
    let nothing = Lock::default();
    let since = |(earlier, lock): (Option<&Lock>, &Lock)| {
        let earlier = earlier.unwrap_or(&nothing);
        Lock {
            name: lock.name.clone(),
            acquired: lock.acquired.saturating_sub(earlier.acquired),
            contended: lock.contended.saturating_sub(earlier.contended),
            wait: lock.wait.since(&earlier.wait),
            hold: lock.hold.since(&earlier.hold),
        }
    };
    pairs(&before.locks, &after.locks, |lock| &*lock.name).map(since).collect()
}

fn pools(before: &Snapshot, after: &Snapshot) -> Vec<Pool> {
    let nothing = Pool::default();
    let since = |(earlier, pool): (Option<&Pool>, &Pool)| {
        let earlier = earlier.unwrap_or(&nothing);
        Pool { jobs: pool.jobs.saturating_sub(earlier.jobs), wait: pool.wait.since(&earlier.wait), ..pool.clone() }
    };
    pairs(&before.pools, &after.pools, |pool| &*pool.name).map(since).collect()
}

/// The threads of the cores, by their numbers. Threads that a core's thread has started may have its name (those of the index
/// engine do): the core's is the oldest.
pub fn core_threads(snapshot: &Snapshot) -> BTreeMap<usize, &Thread> {
    let mut oldest: BTreeMap<usize, &Thread> = BTreeMap::new();
    for thread in &snapshot.process.threads {
        let number = thread.name.strip_prefix(CORE_THREAD).and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        let known = oldest.entry(number).or_insert(thread);
        if thread.id < known.id {
            *known = thread;
        }
    }
    oldest
}

/// The cores whose threads the kernel tells of in both snapshots.
fn cores(before: &Snapshot, after: &Snapshot) -> Vec<CoreWindow> {
    let earlier = core_threads(before);
    let window = |(number, thread): (usize, &Thread)| {
        let earlier = earlier.get(&number).filter(|earlier| earlier.id == thread.id)?;
        let [then, now] = [before, after].map(|snapshot| snapshot.cores.get(number).map_or(0, |core| core.turns));
        Some(CoreWindow {
            run_ns: thread.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: thread.wait_ns.saturating_sub(earlier.wait_ns),
            turns: now.saturating_sub(then),
        })
    };
    core_threads(after).into_iter().filter_map(window).collect()
}

fn layers(before: &Snapshot, after: &Snapshot) -> Vec<(String, u64, u64)> {
    let nothing = LayerFigures::default();
    let since = |(earlier, layer): (Option<&LayerFigures>, &LayerFigures)| {
        let earlier = earlier.unwrap_or(&nothing);
        let name = format!("{} of volume {}", layer.layer, layer.volume);
        (name, layer.calls.saturating_sub(earlier.calls), layer.held_ns.saturating_sub(earlier.held_ns))
    };
    let all = pairs(&before.layers, &after.layers, |layer| (&*layer.volume, &*layer.layer)).map(since);
    all.filter(|(_, calls, _)| *calls > 0).collect()
}

fn limits(before: &Snapshot, after: &Snapshot) -> Vec<(String, u64, u64)> {
    let nothing = LimitFigures::default();
    let since = |(earlier, limits): (Option<&LimitFigures>, &LimitFigures)| {
        let earlier = earlier.unwrap_or(&nothing);
        let [held, held_ns] = less([limits.held, limits.held_ns], [earlier.held, earlier.held_ns]);
        (limits.subject(), held, held_ns)
    };
    let all = pairs(&before.limits, &after.limits, |limits| (&*limits.volume, &*limits.tree)).map(since);
    all.filter(|(_, held, _)| *held > 0).collect()
}

fn tenants(before: &Snapshot, after: &Snapshot) -> Vec<(String, u64)> {
    let since = |(earlier, tenant): (Option<&Tenant>, &Tenant)| {
        let served_ns = tenant.served_ns.saturating_sub(earlier.map_or(0, |earlier| earlier.served_ns));
        (tenant.volume.clone(), served_ns)
    };
    let all = pairs(&before.tenants, &after.tenants, |tenant| &*tenant.volume).map(since);
    let mut all: Vec<_> = all.filter(|(_, served_ns)| *served_ns > 0).collect();
    all.sort_by_key(|(_, served_ns)| Reverse(*served_ns));
    // With nobody to share with it has taken nothing from anybody.
    if all.len() > 1 { all } else { Vec::new() }
}

/// Counters less earlier ones.
fn less<const N: usize>(later: [u64; N], earlier: [u64; N]) -> [u64; N] {
    std::array::from_fn(|at| later[at].saturating_sub(earlier[at]))
}

fn tiers(before: &Snapshot, after: &Snapshot) -> Option<Tiers> {
    let later = after.tiers.clone()?;
    let earlier = before.tiers.clone().unwrap_or_default();
    let tier = |later: Tier, earlier: &Tier| Tier {
        moved_bytes: later.moved_bytes.saturating_sub(earlier.moved_bytes),
        ..later
    };
    Some(Tiers {
        flash: tier(later.flash, &earlier.flash),
        disks: tier(later.disks, &earlier.disks),
        destaged_bytes: later.destaged_bytes.saturating_sub(earlier.destaged_bytes),
        unpinned_bytes: later.unpinned_bytes.saturating_sub(earlier.unpinned_bytes),
        destage_ns: later.destage_ns.saturating_sub(earlier.destage_ns),
        pinned_bytes: later.pinned_bytes,
    })
}

fn network(before: &Snapshot, after: &Snapshot) -> Option<Network> {
    let (nothing, none) = (Network::default(), Trips::default());
    let (earlier, later) = (before.network.as_ref().unwrap_or(&nothing), after.network.as_ref()?);
    let since = |(earlier, trips): (Option<&Trips>, &Trips)| {
        let earlier = earlier.unwrap_or(&none);
        let (wire, server) = (trips.wire.since(&earlier.wire), trips.server.since(&earlier.server));
        Trips { wire, server, ..trips.clone() }
    };
    // A server that was started anew counts anew.
    let before = if later.alarms < earlier.alarms { &nothing } else { earlier };
    let all = pairs(&earlier.trips, &later.trips, |trips| (&*trips.verb, trips.bytes_max, trips.depth)).map(since);
    Some(Network {
        retransmits: later.retransmits.saturating_sub(earlier.retransmits),
        away_ns: later.away_ns.saturating_sub(earlier.away_ns),
        alarms: later.alarms - before.alarms,
        late_ns: later.late_ns.saturating_sub(before.late_ns),
        trips: all.filter(|trips| trips.wire.count > 0).collect(),
        ..later.clone()
    })
}

fn peers(before: &Snapshot, after: &Snapshot) -> Vec<Peer> {
    let nothing = Peer::default();
    let since = |(earlier, later): (Option<&Peer>, &Peer)| {
        let earlier = earlier.unwrap_or(&nothing);
        let acks = pairs(&earlier.acks, &later.acks, |acks| acks.depth).map(|(earlier, acks)| Acks {
            depth: acks.depth,
            count: acks.count.saturating_sub(earlier.map_or(0, |earlier| earlier.count)),
            took_ns: acks.took_ns.saturating_sub(earlier.map_or(0, |earlier| earlier.took_ns)),
        });
        Peer {
            needed: later.needed.saturating_sub(earlier.needed),
            retransmits: later.retransmits.saturating_sub(earlier.retransmits),
            acks: acks.filter(|acks| acks.count > 0).collect(),
            ..later.clone()
        }
    };
    pairs(&before.peers, &after.peers, |peer| &*peer.brick).map(since).collect()
}

fn led(before: &Snapshot, after: &Snapshot) -> Vec<(Led, Led)> {
    let since = |(earlier, later): (Option<&Led>, &Led)| {
        let earlier = earlier?.clone();
        // A silence is counted once it is noticed, and may have begun before.
        let without_ns = later.without_ns.saturating_sub(earlier.without_ns).min(after.at_ns - before.at_ns);
        let changes = later.changes.saturating_sub(earlier.changes);
        Some((earlier, Led { without_ns, changes, ..later.clone() }))
    };
    pairs(&before.led, &after.led, |led| led.group).filter_map(since).collect()
}

fn disk(before: &Snapshot, after: &Snapshot) -> Option<DiskWindow> {
    let (earlier, later) = (before.disk.as_ref()?, after.disk.as_ref()?);
    Some(DiskWindow {
        name: later.name.clone(),
        bottom: later.bottom.clone(),
        requests: less(later.requests, earlier.requests),
        took_ms: less(later.took_ms, earlier.took_ms),
        bottom_bytes: less(later.bottom_bytes, earlier.bottom_bytes).iter().sum(),
        own_bytes: less(after.process.io_bytes, before.process.io_bytes).iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Core, Process};

    #[test]
    fn a_cores_thread_is_the_oldest_of_its_name() {
        let at = |ns: u64, turns: u64, threads: [(u64, &str, u64, u64); 4]| Snapshot {
            at_ns: ns,
            cores: vec![Core { turns, ..Core::default() }, Core { turns: 2 * turns, ..Core::default() }],
            process: Process {
                threads: threads
                    .map(|(id, name, run_ns, wait_ns)| Thread { name: name.into(), id, run_ns, wait_ns })
                    .to_vec(),
                ..Process::default()
            },
            ..Snapshot::default()
        };
        // The engine's threads have the name of the core that has started them, or none that counts.
        let (zero, one) = ("sinter-core-0", "sinter-core-1");
        let before = at(0, 10, [(9, zero, 500, 500), (7, zero, 100, 10), (8, one, 0, 0), (6, "sinter-back-1", 0, 0)]);
        let after =
            at(1000, 110, [(9, zero, 999, 999), (7, zero, 300, 60), (8, one, 500, 0), (5, "sinter-core-x", 9, 9)]);
        let window = Window::between(&before, &after).expect("in order");
        assert_eq!(window.scheduled(), (200 + 500, 50));
        assert_eq!(window.asleep(), (0.5, (0.75 + 0.5) / 2.0));
        assert_eq!(window.look_ns(), 750.0 / 300.0 / 2.0);
        // Where the kernel tells of no threads, nothing is known of the cores.
        let silent = Window::between(&Snapshot { process: Process::default(), ..before }, &after).expect("in order");
        assert!(silent.cores.is_empty() && silent.scheduled() == (0, 0));
    }
}
