//! The difference of two snapshots: what happened between them.

use crate::snapshot::{InFlight, Io, Lock, Operation, Snapshot, Whole};
use crate::times::Times;
use std::collections::BTreeMap;

/// Names of the threads that serve requests begin so.
const CORE_THREAD: &str = "sinter-core";

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
    /// Nanoseconds that each core was awake, and the number of its turns.
    pub cores: Vec<(u64, u64)>,
    /// Nanoseconds for which the cores' threads ran, and for which they could have run while others did.
    pub scheduled: (u64, u64),
    /// Nanoseconds taken by a hypervisor.
    pub steal_ns: u64,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// Layers: volume and name, calls, nanoseconds held.
    pub layers: Vec<(String, u64, u64)>,
    /// The later snapshot, for what is no counter, and its disk's difference.
    pub after: Snapshot,
    /// The device as the kernel counts: requests, bytes, nanoseconds; by verb.
    pub disk: Option<DiskWindow>,
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
    /// Bytes read and written at the bottom, by anybody and by this process.
    pub bottom_bytes: u64,
    /// Requests at the bottom, by anybody.
    pub bottom_requests: u64,
    /// Bytes of this process.
    pub own_bytes: u64,
}

impl Window {
    /// The difference. None if the snapshots are not of one daemon, or not in this order.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Window> {
        if before.started_ns != after.started_ns || after.at_ns <= before.at_ns {
            return None;
        }
        let (thread_run, thread_wait) = scheduled(before, after);
        Some(Window {
            ns: after.at_ns - before.at_ns,
            operations: operations(before, after),
            sample: after.sample.iter().filter(|whole| whole.end_ns >= before.at_ns).cloned().collect(),
            io: io(before, after),
            locks: locks(before, after),
            cores: cores(before, after),
            scheduled: (thread_run, thread_wait),
            steal_ns: after.process.steal_ns.saturating_sub(before.process.steal_ns),
            in_flight: after.in_flight.clone(),
            layers: layers(before, after),
            disk: disk(before, after),
            after: after.clone(),
        })
    }
    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|operation| operation.total.count).sum()
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
        let shares = self.cores.iter().map(|&(awake_ns, _)| 1.0 - (awake_ns as f64 / self.ns as f64).min(1.0));
        let (least, sum) = shares.fold((1.0, 0.0), |(least, sum), share| (f64::min(least, share), sum + share));
        (least, sum / self.cores.len().max(1) as f64)
    }
    /// Nanoseconds for which a completion waits in the mean until a core looks: half a turn of the reactor.
    pub fn look_ns(&self) -> f64 {
        let (awake_ns, turns) = self.cores.iter().fold((0, 0), |sum, core| (sum.0 + core.0, sum.1 + core.1));
        awake_ns as f64 / turns.max(1) as f64 / 2.0
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

fn operations(before: &Snapshot, after: &Snapshot) -> Vec<Operation> {
    let earlier: BTreeMap<_, _> = before.operations.iter().map(|one| (&*one.name, one)).collect();
    let nothing = Operation::default();
    let since = |one: &Operation| {
        let earlier = earlier.get(&*one.name).copied().unwrap_or(&nothing);
        let none = Times::default();
        let stage = |(name, times): (&String, &Times)| {
            let times = times.since(earlier.stages.get(name).unwrap_or(&none));
            (times.count > 0).then(|| (name.clone(), times))
        };
        Operation {
            name: one.name.clone(),
            total: one.total.since(&earlier.total),
            stages: one.stages.iter().filter_map(stage).collect(),
            hops: one.hops.saturating_sub(earlier.hops),
        }
    };
    after.operations.iter().map(since).filter(|one| one.total.count > 0).collect()
}

fn io(before: &Snapshot, after: &Snapshot) -> Vec<Io> {
    let key = |io: &Io| (io.purpose.clone(), io.verb.clone(), io.bytes_max, io.depth);
    let earlier: BTreeMap<_, _> = before.io.iter().map(|io| (key(io), io)).collect();
    let since = |io: &Io| match earlier.get(&key(io)) {
        Some(earlier) => {
            Io { took: io.took.since(&earlier.took), bytes: io.bytes.saturating_sub(earlier.bytes), ..io.clone() }
        }
        None => io.clone(),
    };
    after.io.iter().map(since).filter(|io| io.took.count > 0).collect()
}

fn locks(before: &Snapshot, after: &Snapshot) -> Vec<Lock> {
    let earlier: BTreeMap<_, _> = before.locks.iter().map(|lock| (&*lock.name, lock)).collect();
    let since = |lock: &Lock| match earlier.get(&*lock.name) {
        Some(earlier) => Lock {
            name: lock.name.clone(),
            acquired: lock.acquired.saturating_sub(earlier.acquired),
            contended: lock.contended.saturating_sub(earlier.contended),
            wait: lock.wait.since(&earlier.wait),
            hold: lock.hold.since(&earlier.hold),
        },
        None => lock.clone(),
    };
    after.locks.iter().map(since).collect()
}

fn cores(before: &Snapshot, after: &Snapshot) -> Vec<(u64, u64)> {
    let ns = after.at_ns - before.at_ns;
    let pairs = before.cores.iter().zip(&after.cores);
    let awake = pairs.map(|(before, after)| {
        let turns = after.turns.saturating_sub(before.turns);
        // A core that has not turned has slept all the time, and says so only when it wakes.
        let asleep_ns = if turns <= 1 { ns } else { after.asleep_ns.saturating_sub(before.asleep_ns) };
        (ns.saturating_sub(asleep_ns), turns)
    });
    awake.collect()
}

fn scheduled(before: &Snapshot, after: &Snapshot) -> (u64, u64) {
    let earlier: BTreeMap<_, _> = before.process.threads.iter().map(|thread| (thread.id, thread)).collect();
    let mut sum = (0, 0);
    for thread in after.process.threads.iter().filter(|thread| thread.name.starts_with(CORE_THREAD)) {
        let Some(earlier) = earlier.get(&thread.id) else { continue };
        sum.0 += thread.run_ns.saturating_sub(earlier.run_ns);
        sum.1 += thread.wait_ns.saturating_sub(earlier.wait_ns);
    }
    sum
}

fn layers(before: &Snapshot, after: &Snapshot) -> Vec<(String, u64, u64)> {
    let name = |layer: &crate::snapshot::LayerFigures| format!("{} of volume {}", layer.layer, layer.volume);
    let earlier: BTreeMap<_, _> = before.layers.iter().map(|layer| (name(layer), layer)).collect();
    let since = |layer: &crate::snapshot::LayerFigures| {
        let (calls, held_ns) = earlier.get(&name(layer)).map_or((0, 0), |earlier| (earlier.calls, earlier.held_ns));
        (name(layer), layer.calls.saturating_sub(calls), layer.held_ns.saturating_sub(held_ns))
    };
    after.layers.iter().map(since).filter(|(_, calls, _)| *calls > 0).collect()
}

fn disk(before: &Snapshot, after: &Snapshot) -> Option<DiskWindow> {
    let (earlier, later) = (before.disk.as_ref()?, after.disk.as_ref()?);
    let less = |later: &[u64], earlier: &[u64]| -> u64 {
        later.iter().zip(earlier).map(|(later, earlier)| later.saturating_sub(*earlier)).sum()
    };
    let each = |later: [u64; 3], earlier: [u64; 3]| {
        let mut differences = later;
        differences.iter_mut().zip(earlier).for_each(|(later, earlier)| *later = later.saturating_sub(earlier));
        differences
    };
    Some(DiskWindow {
        name: later.name.clone(),
        bottom: later.bottom.clone(),
        requests: each(later.requests, earlier.requests),
        took_ms: each(later.took_ms, earlier.took_ms),
        bottom_bytes: less(&later.bottom_bytes, &earlier.bottom_bytes),
        bottom_requests: less(&later.bottom_requests, &earlier.bottom_requests),
        own_bytes: less(&after.process.io_bytes, &before.process.io_bytes),
    })
}
