//! All that a daemon counts and measures, at one moment. Counters count since the daemon's start: nothing is ever reset,
//! and any two snapshots of one daemon subtract.

use crate::Times;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A snapshot. Fields that a daemon of another version or another machine does not have are empty.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Snapshot {
    /// The monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// The time at which the daemon started, on the same clock; another daemon's snapshots don't subtract.
    pub started_ns: u64,
    /// Requests by operation.
    pub operations: Vec<Operation>,
    /// Whole requests: a sample of those since the snapshot before.
    pub sample: Vec<Whole>,
    /// The daemon's cores.
    pub cores: Vec<Core>,
    /// The pools for blocking jobs.
    pub pools: Vec<Pool>,
    /// Locks, those of one name together.
    pub locks: Vec<Lock>,
    /// I/O by class.
    pub io: Vec<Io>,
    /// The device as the kernel counts.
    pub disk: Option<Disk>,
    /// The process as the kernel counts.
    pub process: Process,
    /// Requests in flight, sampled since the snapshot before.
    pub in_flight: InFlight,
    /// Layers of volumes.
    pub layers: Vec<LayerFigures>,
    /// Limits of volumes that have had any.
    pub limits: Vec<LimitFigures>,
    /// The volumes that share the cores.
    pub tenants: Vec<Tenant>,
    /// Buffers of the daemon.
    pub memory: Memory,
    /// The work of the program itself.
    pub agents: Agents,
    /// The brick's space.
    pub space: Space,
    /// The tiers of a hybrid brick.
    pub tiers: Option<Tiers>,
    /// The brick's log.
    pub log: Log,
    /// The way to the server, at a client of one.
    pub network: Option<Network>,
    /// The other nodes of a cluster, at the one that leads.
    pub peers: Vec<Peer>,
    /// The leaders of a cluster's groups, at one of its nodes, by group.
    #[serde(deserialize_with = "one_or_many")]
    pub led: Vec<Led>,
    /// The usual service of the device, as learned so far.
    pub baseline: crate::Baseline,
    /// The kernel's numbers of the connections of the daemon's mounts.
    pub connections: Vec<u32>,
    /// The requests of these connections since the looking began as the kernel counts them, as far as it still knows them.
    pub kernel: Vec<InKernel>,
}

/// Another node of a cluster, as the one that leads knows it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Peer {
    /// The number of its brick, in hexadecimal digits.
    pub brick: String,
    /// Its name; that of its brick if the daemon does not know it.
    pub node: String,
    /// True while both hear each other.
    pub connected: bool,
    /// Number of records that became durable by its acknowledgement: for these it was the last node that was needed.
    pub needed: u64,
    /// Smoothed round-trip time of the connection to it, in nanoseconds; 0 on one machine.
    pub round_trip_ns: u64,
    /// Segments that were sent again over that connection.
    pub retransmits: u64,
    /// Its acknowledgements.
    pub acks: Vec<Acks>,
}

/// Daemons of builds before told of one group alone, or of none.
fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Led>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Told {
        Many(Vec<Led>),
        One(Led),
    }
    Ok(match Option::deserialize(from)? {
        None => Vec::new(),
        Some(Told::Many(many)) => many,
        Some(Told::One(one)) => vec![one],
    })
}

/// The node that leads a group of a cluster, and what came before, as one of the nodes has seen it since its daemon's start.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Led {
    /// The group's number.
    pub group: u32,
    /// The name of the node that tells.
    pub node: String,
    /// The name of the node that leads, or led last; the number of its brick, in hexadecimal digits, if the daemon does not know it. Empty if there
    /// was none.
    pub leader: String,
    /// Its term.
    pub term: u64,
    /// Times that somebody led after somebody else, or after itself in an earlier term.
    pub changes: u64,
    /// Nanoseconds in which nobody served clients.
    pub without_ns: u64,
    /// True if nobody does now.
    pub is_without: bool,
}

/// Acknowledgements of a node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Acks {
    /// Least number of messages that were under way.
    pub depth: u64,
    /// Their number.
    pub count: u64,
    /// Nanoseconds from sending to acknowledgement, added up.
    pub took_ns: u64,
}

/// An operation's requests.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Durations of whole requests.
    pub total: Times,
    /// Durations of stages that took any time.
    pub stages: BTreeMap<String, Times>,
    /// Number of changes of thread.
    pub hops: u64,
    /// Numbers of requests that were answered with an error, by its kind.
    pub errors: BTreeMap<String, u64>,
}

/// A whole request.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Whole {
    /// The operation.
    pub name: String,
    /// Its end, on the monotonic clock.
    pub end_ns: u64,
    /// Its duration.
    pub duration_ns: u64,
    /// The nanoseconds of its stages, in the order in which requests meet them.
    pub stages: Vec<(String, u64)>,
    /// The inode; 0 if the request is about none.
    pub ino: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's thread, as the daemon sees it; 0 if it does not.
    pub thread: u32,
    /// The number that the kernel gave the request; 0 if it did not come through this machine's kernel.
    #[serde(default)]
    pub request: u64,
    /// Its way to the daemon and back, if the kernel was asked.
    #[serde(default)]
    pub way: Option<Way>,
}

impl Whole {
    /// Notes when the kernel sent the request and when it had the answer, in nanoseconds of the monotonic clock. The daemon's last stage is
    /// shortened by what the kernel had the answer before it ended.
    pub fn note_way(&mut self, sent_ns: u64, ended_ns: u64) {
        let before_ns = self.end_ns.saturating_sub(ended_ns).min(self.duration_ns);
        let last = self.stages.last_mut().map_or(0, |(_, ns)| {
            let cut_ns = before_ns.min(*ns);
            *ns -= cut_ns;
            cut_ns
        });
        (self.duration_ns, self.end_ns) = (self.duration_ns - last, self.end_ns - last);
        let began_ns = self.end_ns.saturating_sub(self.duration_ns);
        let (there_ns, back_ns) = (began_ns.saturating_sub(sent_ns), ended_ns.saturating_sub(self.end_ns));
        self.way = Some(Way { there_ns, back_ns });
    }
    /// Its duration with its way, as far as that is known.
    pub fn whole_ns(&self) -> u64 {
        self.duration_ns + self.way.map_or(0, |way| way.there_ns + way.back_ns)
    }
}

/// The way of a request through the kernel, to the daemon and back.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Way {
    /// Nanoseconds from the kernel's sending it until the daemon had it.
    pub there_ns: u64,
    /// Nanoseconds from the daemon's answer until the kernel had it.
    pub back_ns: u64,
}

/// The requests of one kind, as the kernel counts: from sending them until it had the answer.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct InKernel {
    /// The kind, as FUSE calls it.
    pub kind: String,
    /// Number of requests.
    pub requests: u64,
    /// Their mean time in nanoseconds.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

impl InKernel {
    /// The figures of these times in nanoseconds, of which there is one at least.
    pub fn of(kind: &str, mut times: Vec<u64>) -> InKernel {
        times.sort_unstable();
        let place = |share: f64| times[(share * (times.len() - 1) as f64).round() as usize];
        let requests = times.len() as u64;
        let mean_ns = times.iter().sum::<u64>() / requests;
        InKernel { kind: kind.to_string(), requests, mean_ns, p50_ns: place(0.5), p99_ns: place(0.99) }
    }
}

/// A core.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Core {
    /// Number of turns of its reactor.
    pub turns: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Number of runs of tasks.
    pub runs: u64,
    /// Durations of runs (a sample).
    pub run: Times,
}

/// A pool for blocking jobs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Number of threads now.
    pub threads: u64,
    /// Number of jobs that wait now.
    pub queued: u64,
    /// Number of jobs started.
    pub jobs: u64,
    /// Waits of started jobs.
    pub wait: Times,
}

/// The locks of one name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Lock {
    /// The name.
    pub name: String,
    /// Number of acquisitions.
    pub acquired: u64,
    /// Number of acquisitions that had to wait.
    pub contended: u64,
    /// Durations of those waits.
    pub wait: Times,
    /// Durations of holds (a sample).
    pub hold: Times,
}

/// A class of I/O.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Io {
    /// The work that the transfers were a part of.
    pub purpose: String,
    /// `read`, `write` or `flush`.
    pub verb: String,
    /// Largest size of the class, in bytes.
    pub bytes_max: u64,
    /// Least number of transfers of one core that were under way.
    pub depth: u64,
    /// Durations from the hand-over to the kernel until the core learnt of the end.
    pub took: Times,
    /// Bytes transferred.
    pub bytes: u64,
}

/// A disk as the kernel counts (`/proc/diskstats`).
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Disk {
    /// Name of the device that the brick lies on.
    pub name: String,
    /// Completed requests: reads, writes, flushes.
    pub requests: [u64; 3],
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Milliseconds that the requests took, added up.
    pub took_ms: [u64; 3],
    /// Name of the disk at the bottom, below partitions and loop devices.
    pub bottom: String,
    /// Bytes that the bottom has read and written for anybody.
    pub bottom_bytes: [u64; 2],
    /// Requests of the bottom, reads and writes, of anybody.
    pub bottom_requests: [u64; 2],
}

/// The daemon's process as the kernel counts.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Process {
    /// Bytes read from and written to devices (`/proc/self/io`).
    pub io_bytes: [u64; 2],
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Nanoseconds that a hypervisor took from all CPUs.
    pub steal_ns: u64,
    /// Number of CPUs that the daemon may use.
    pub cpus: u64,
}

/// A thread (`schedstat`).
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u64,
    /// Nanoseconds on a CPU.
    pub run_ns: u64,
    /// Nanoseconds in which it could have run, while others did.
    pub wait_ns: u64,
}

/// Numbers of requests in flight, from several looks.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct InFlight {
    /// Number of looks since the snapshot before.
    pub looks: u64,
    /// Sum of the numbers of requests that the daemon had.
    pub in_daemon: u64,
    /// Number of looks at the kernel's own count of requests, and the sum: those that wait for the daemon, and those it has.
    pub kernel_looks: u64,
    /// See `kernel_looks`.
    pub in_kernel: u64,
}

/// A layer of a volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct LayerFigures {
    /// The volume.
    pub volume: String,
    /// The layer.
    pub layer: String,
    /// Number of calls.
    pub calls: u64,
    /// Nanoseconds that the layer held them.
    pub held_ns: u64,
}

/// The limits of a volume, or of a directory tree of it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct LimitFigures {
    /// The volume.
    pub volume: String,
    /// The tree: its path as of the last checkpoint, or its directory's inode number; empty: the volume itself.
    pub tree: String,
    /// Its limits: name and value per second, or milliseconds of burst.
    pub set: BTreeMap<String, u64>,
    /// Number of operations that had to wait.
    pub held: u64,
    /// Nanoseconds for which they waited.
    pub held_ns: u64,
    /// Operations that wait now.
    pub waiting: u64,
}

impl LimitFigures {
    /// The volume or the tree that has the limits, for a person.
    pub fn subject(&self) -> String {
        match &*self.tree {
            "" => format!("volume {}", self.volume),
            tree => format!("tree {tree} of volume {}", self.volume),
        }
    }
}

/// A volume that shares the cores with others.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Tenant {
    /// The volume.
    pub volume: String,
    /// Nanoseconds of all cores' time that it has had while others wanted some too.
    pub served_ns: u64,
}

/// Buffers.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Memory {
    /// Largest number of bytes of all buffers.
    pub bytes_max: u64,
    /// Bytes of buffers that were taken from the system.
    pub bytes: u64,
}

/// The program's own work.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Agents {
    /// Checkpoints so far.
    pub checkpoints: u64,
    /// Blocks that the cleaner has moved.
    pub cleaned_blocks: u64,
    /// Nanoseconds by which a write of one block is slowed down now (rule K4).
    pub delay_ns: u64,
    /// Nanoseconds for which each agent that the budget of background work bounds has worked.
    pub worked_ns: BTreeMap<String, u64>,
}

/// A brick's space.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Space {
    /// Bytes that clients may use in all.
    pub size_bytes: u64,
    /// Bytes of these that are free.
    pub free_bytes: u64,
    /// Bytes of data that files have, as of the last checkpoint.
    pub live_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of segments that are free.
    pub free_segments: u64,
    /// Number of segments without live blocks that will be free soon.
    pub emptied_segments: u64,
    /// True if the brick takes no changes, since a write or a flush failed.
    pub is_read_only: bool,
    /// Numbers of the disks that were not there at the start.
    pub missing_disks: Vec<u32>,
    /// Bytes of files that lie on them.
    pub missing_bytes: u64,
}

/// The tiers of a hybrid brick.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Tiers {
    /// All flash devices.
    pub flash: Tier,
    /// All disks.
    pub disks: Tier,
    /// Bytes that went down from flash to disks.
    pub destaged_bytes: u64,
    /// Bytes of these that belong on flash: it was full of such.
    pub unpinned_bytes: u64,
    /// Nanoseconds in which blocks were on their way down, or held back by the disks' cleaner.
    pub destage_ns: u64,
    /// Bytes on flash of which the cleaner knows that they must stay there, by a hint or a policy.
    pub pinned_bytes: u64,
}

/// A tier.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Tier {
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// Bytes of segments that are free.
    pub free_bytes: u64,
    /// Bytes of data that files have there, as of the last checkpoint.
    pub live_bytes: u64,
    /// Bytes that its own cleaner has moved within it.
    pub moved_bytes: u64,
}

/// A brick's log.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Log {
    /// Batches written.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes that a start after a crash would have to replay now.
    pub backlog_bytes: u64,
}

/// A client's way to its server.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Network {
    /// The server's name.
    pub server: String,
    /// Connections that are up.
    pub connections: u64,
    /// Round-trip time as the kernel measures it, the mean of the connections; 0 without one.
    pub round_trip_ns: u64,
    /// Segments that this machine has sent again.
    pub retransmits: u64,
    /// Nanoseconds without any connection.
    pub away_ns: u64,
    /// Alarms of the server's cores since its start: each is as late as a request that comes at that moment.
    pub alarms: u64,
    /// The sum of the nanoseconds by which they were late.
    pub late_ns: u64,
    /// Requests by class.
    pub trips: Vec<Trips>,
}

/// A client's requests of one class.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Trips {
    /// `read`, `write`, `sync` or `other`.
    pub verb: String,
    /// Largest number of bytes that the class has beside request and answer.
    pub bytes_max: u64,
    /// Least number of requests of one core that were under way.
    pub depth: u64,
    /// Times on the way there and back.
    pub wire: Times,
    /// Times that the server has booked.
    pub server: Times,
}

impl Snapshot {
    /// Takes over what an earlier snapshot has sampled, as a part of the same window.
    pub fn take_over(&mut self, earlier: Snapshot) {
        self.take_over_sampled(earlier.sample, &earlier.in_flight);
    }
    /// The last of these snapshots, which are in order, as the end of a window that begins with the first: with what those between them
    /// have sampled. None if there is none.
    pub fn end_of<'a>(snapshots: impl DoubleEndedIterator<Item = &'a Snapshot>) -> Option<Snapshot> {
        let mut snapshots = snapshots.rev();
        let mut last = snapshots.next()?.clone();
        let mut earlier: Vec<&Snapshot> = snapshots.collect();
        // The first one's sample came before the window.
        earlier.pop();
        earlier.into_iter().for_each(|one| last.take_over_sampled(one.sample.clone(), &one.in_flight));
        Some(last)
    }
    fn take_over_sampled(&mut self, sample: Vec<Whole>, in_flight: &InFlight) {
        let InFlight { looks, in_daemon, kernel_looks, in_kernel } = in_flight;
        // The earlier sample comes first. It is the longer one where seconds are added up, so it is kept and the later one moved.
        let own = std::mem::replace(&mut self.sample, sample);
        self.sample.extend(own);
        self.in_flight.looks += looks;
        self.in_flight.in_daemon += in_daemon;
        self.in_flight.kernel_looks += kernel_looks;
        self.in_flight.in_kernel += in_kernel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_its_way_is_what_the_kernel_counts() {
        let whole = |end_ns| Whole {
            end_ns,
            duration_ns: 60,
            stages: vec![("read".into(), 50), ("reply".into(), 10)],
            ..Whole::default()
        };
        // Sent at 20, with the daemon from 40 to 100, answered at 130.
        let mut late = whole(100);
        late.note_way(20, 130);
        assert_eq!((late.way, late.whole_ns()), (Some(Way { there_ns: 20, back_ns: 30 }), 110));
        // The kernel had the answer while the daemon was still about it.
        let mut early = whole(100);
        early.note_way(20, 93);
        assert_eq!((early.way, early.whole_ns(), early.stages[1].1), (Some(Way { there_ns: 20, back_ns: 0 }), 73, 3));
        let times = InKernel::of("read", (1..=100).rev().collect());
        assert_eq!((times.requests, times.mean_ns, times.p50_ns, times.p99_ns), (100, 50, 51, 99));
    }

    #[test]
    fn the_end_of_a_window_has_what_was_sampled_within_it() {
        let at = |number: u64| Snapshot {
            at_ns: number,
            sample: vec![Whole { end_ns: number, ..Whole::default() }],
            in_flight: InFlight { looks: 1, in_daemon: number, kernel_looks: 1, in_kernel: 10 * number },
            ..Snapshot::default()
        };
        let all = [1, 2, 3, 4].map(at);
        let end = Snapshot::end_of(all.iter()).expect("there are some");
        assert_eq!(end.sample.iter().map(|whole| whole.end_ns).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(end.in_flight, InFlight { looks: 3, in_daemon: 9, kernel_looks: 3, in_kernel: 90 });
        assert_eq!((end.at_ns, Snapshot::end_of(all[..1].iter())), (4, Some(at(1))));
        assert_eq!(Snapshot::end_of([].iter()), None);
    }
}
