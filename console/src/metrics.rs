//! The page for scrapers: a snapshot as OpenMetrics text. Promises names that follow the format's conventions (base units, and
//! the unit at the end), counters that only grow while the daemon runs, and no metric that nothing feeds.
//!
//! Bounds of histograms are coarser than the daemon's own eighths of a power of two: each label set costs a scraper a series
//! per bound. A value is counted below the first bound that the end of its bucket does not exceed, hence up to an eighth of
//! the bound too high.

use explain::snapshot::{Lock, Operation, Pool, Snapshot};
use explain::times::Times;
use explain::window::core_threads;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

/// The media type of a page.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The names of all metrics begin so.
const PREFIX: &str = "sinter";
/// Bounds of histograms in nanoseconds: 1, 2 and 5 of each power of ten, from less than the quickest request takes to longer
/// than programs wait.
const BOUNDS_NS: [u64; 22] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The page of a snapshot.
pub fn page(snapshot: Snapshot, version: String) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Page { snapshot, version }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes any text");
    text
}

struct Page {
    snapshot: Snapshot,
    version: String,
}

impl Debug for Page {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut put = Put(encoder);
        daemon(&mut put, self)?;
        requests(&mut put, &self.snapshot.operations)?;
        device(&mut put, &self.snapshot)?;
        locks(&mut put, &self.snapshot.locks)?;
        pools(&mut put, &self.snapshot.pools)?;
        cores(&mut put, &self.snapshot)?;
        space(&mut put, &self.snapshot)?;
        log(&mut put, &self.snapshot)?;
        layers(&mut put, &self.snapshot)?;
        limits(&mut put, &self.snapshot)?;
        shares(&mut put, &self.snapshot)
    }
}

/// A metric that is to be written.
struct Name<'a>(&'a str, &'a str, Option<Unit>);

/// The writer of metrics.
struct Put<'a>(DescriptorEncoder<'a>);

impl Put<'_> {
    fn counters<L: EncodeLabelSet>(&mut self, name: Name, rows: impl IntoIterator<Item = (L, f64)>) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name.0, name.1, name.2.as_ref(), MetricType::Counter)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
        Ok(())
    }
    fn counter(&mut self, name: Name, value: f64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name.0, name.1, name.2.as_ref(), MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }
    fn gauges<L: EncodeLabelSet>(&mut self, name: Name, rows: impl IntoIterator<Item = (L, f64)>) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name.0, name.1, name.2.as_ref(), MetricType::Gauge)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
    fn gauge(&mut self, name: Name, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name.0, name.1, name.2.as_ref(), MetricType::Gauge)?.encode_gauge(&value)
    }
    fn histograms<L: EncodeLabelSet>(&mut self, name: Name, rows: impl IntoIterator<Item = (L, Times)>) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name.0, name.1, name.2.as_ref(), MetricType::Histogram)?;
        for (labels, times) in rows {
            let buckets = coarse(&times);
            // Both from one look at the buckets, which grow beside it.
            let count = buckets.iter().map(|(_, count)| count).sum();
            let mut row = metric.encode_family(&labels)?;
            row.encode_histogram::<NoLabelSet>(seconds(times.sum_ns), count, &buckets, None)?;
        }
        Ok(())
    }
}

/// The counts of each bound, and of what is above all of them.
fn coarse(times: &Times) -> Vec<(f64, u64)> {
    let mut counts = [0; BOUNDS_NS.len() + 1];
    for (end_ns, count) in times.ends() {
        counts[BOUNDS_NS.partition_point(|bound| *bound < end_ns)] += count;
    }
    let bounds = BOUNDS_NS.map(seconds).into_iter().chain([f64::INFINITY]);
    bounds.zip(counts).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn daemon(put: &mut Put, page: &Page) -> fmt::Result {
    let Snapshot { at_ns, started_ns, process, memory, .. } = &page.snapshot;
    let mut build = put.0.encode_descriptor("build", "The daemon's version", None, MetricType::Info)?;
    build.encode_info(&[("version", page.version.as_str())])?;
    let name = Name("uptime", "Time since the daemon's start", Some(Unit::Seconds));
    put.gauge(name, seconds(at_ns.saturating_sub(*started_ns)))?;
    let name = Name("buffer", "Memory of I/O buffers", Some(Unit::Bytes));
    put.gauge(name, memory.bytes as f64)?;
    let name = Name("buffer_limit", "Bound of the memory of I/O buffers", Some(Unit::Bytes));
    put.gauge(name, memory.bytes_max as f64)?;
    let name =
        Name("process_io", "Data that the process read from and wrote to devices, its index too", Some(Unit::Bytes));
    let directions = ["read", "write"].map(|verb| [("verb", verb)]);
    put.counters(name, directions.into_iter().zip(process.io_bytes.map(|bytes| bytes as f64)))
}

fn requests(put: &mut Put, operations: &[Operation]) -> fmt::Result {
    let of = |one: &Operation| [("operation", one.name.clone())];
    let name = Name("request_duration", "Durations of requests in the daemon", Some(Unit::Seconds));
    put.histograms(name, operations.iter().map(|one| (of(one), one.total.clone())))?;
    let stages = operations.iter().flat_map(|one| {
        let stage = |(stage, times): (&String, &Times)| {
            ([("operation", one.name.clone()), ("stage", stage.clone())], seconds(times.sum_ns))
        };
        one.stages.iter().map(stage)
    });
    put.counters(Name("request_stage", "Time that requests spent in a stage", Some(Unit::Seconds)), stages)?;
    let errors = operations.iter().flat_map(|one| {
        let error =
            |(kind, count): (&String, &u64)| ([("operation", one.name.clone()), ("kind", kind.clone())], *count as f64);
        one.errors.iter().map(error)
    });
    put.counters(Name("request_errors", "Requests answered with an error", None), errors)?;
    let hops = operations.iter().map(|one| (of(one), one.hops as f64));
    put.counters(Name("request_hops", "Changes of thread on the way of requests", None), hops)
}

fn device(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let mut classes: BTreeMap<[(&str, String); 2], (Times, u64)> = BTreeMap::new();
    for io in &snapshot.io {
        let labels = [("purpose", io.purpose.clone()), ("verb", io.verb.clone())];
        let (took, bytes) = classes.entry(labels).or_default();
        took.add(&io.took);
        *bytes += io.bytes;
    }
    let name = Name("device_io_duration", "Durations of the daemon's own I/O, by its purpose", Some(Unit::Seconds));
    put.histograms(name, classes.iter().map(|(labels, (took, _))| (labels.clone(), took.clone())))?;
    let moved = classes.iter().filter(|(labels, _)| labels[1].1 != "flush");
    let moved = moved.map(|(labels, (_, bytes))| (labels.clone(), *bytes as f64));
    put.counters(Name("device_io", "Data of the daemon's own I/O, by its purpose", Some(Unit::Bytes)), moved)?;
    let of = |verb: &'static str| {
        snapshot.disk.iter().map(move |disk| (disk, [("disk", disk.name.clone()), ("verb", verb.to_string())]))
    };
    let verbs = || ["read", "write", "flush"].into_iter().enumerate();
    let requests =
        verbs().flat_map(|(at, verb)| of(verb).map(move |(disk, labels)| (labels, disk.requests[at] as f64)));
    put.counters(Name("disk_requests", "Requests that the kernel completed on the brick's device", None), requests)?;
    let took =
        verbs().flat_map(|(at, verb)| of(verb).map(move |(disk, labels)| (labels, disk.took_ms[at] as f64 / 1e3)));
    put.counters(Name("disk_request", "Time that these requests took", Some(Unit::Seconds)), took)?;
    let bytes = verbs().take(2);
    let bytes = bytes.flat_map(|(at, verb)| of(verb).map(move |(disk, labels)| (labels, disk.bytes[at] as f64)));
    put.counters(
        Name("disk", "Data that the kernel read from and wrote to the brick's device", Some(Unit::Bytes)),
        bytes,
    )
}

fn locks(put: &mut Put, locks: &[Lock]) -> fmt::Result {
    let rows = |value: fn(&Lock) -> f64| locks.iter().map(move |lock| ([("lock", lock.name.clone())], value(lock)));
    let acquired = rows(|lock| lock.acquired as f64);
    put.counters(Name("lock_acquisitions", "Acquisitions of locks", None), acquired)?;
    let contended = rows(|lock| lock.contended as f64);
    put.counters(Name("lock_contentions", "Acquisitions that had to wait", None), contended)?;
    let wait = rows(|lock| seconds(lock.wait.sum_ns));
    put.counters(Name("lock_wait", "Time for which threads waited for locks", Some(Unit::Seconds)), wait)
}

fn pools(put: &mut Put, pools: &[Pool]) -> fmt::Result {
    let rows = |value: fn(&Pool) -> f64| pools.iter().map(move |pool| ([("pool", pool.name.clone())], value(pool)));
    put.gauges(Name("pool_threads", "Threads for what blocks", None), rows(|pool| pool.threads as f64))?;
    put.gauges(Name("pool_queued_jobs", "Jobs that wait for a thread", None), rows(|pool| pool.queued as f64))?;
    put.counters(Name("pool_jobs", "Jobs that were started", None), rows(|pool| pool.jobs as f64))?;
    let wait = rows(|pool| seconds(pool.wait.sum_ns));
    put.counters(Name("pool_wait", "Time for which started jobs had waited", Some(Unit::Seconds)), wait)
}

fn cores(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let threads = core_threads(snapshot);
    let label = |number: usize| [("core", number.to_string())];
    let run = threads.iter().map(|(number, thread)| (label(*number), seconds(thread.run_ns)));
    put.counters(Name("core_run", "Time for which a core's thread ran", Some(Unit::Seconds)), run)?;
    let wait = threads.iter().map(|(number, thread)| (label(*number), seconds(thread.wait_ns)));
    let name =
        Name("core_wait", "Time for which a core's thread could have run, while others did", Some(Unit::Seconds));
    put.counters(name, wait)?;
    let turns = snapshot.cores.iter().enumerate().map(|(number, core)| (label(number), core.turns as f64));
    put.counters(Name("core_turns", "Turns of a core's reactor", None), turns)?;
    let sleeps = snapshot.cores.iter().enumerate().map(|(number, core)| (label(number), core.sleeps as f64));
    put.counters(Name("core_sleeps", "Turns at whose end a core slept", None), sleeps)?;
    let name = Name("cpu_steal", "Time that a hypervisor took from all CPUs", Some(Unit::Seconds));
    put.counter(name, seconds(snapshot.process.steal_ns))
}

fn space(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let Snapshot { space, agents, .. } = snapshot;
    put.gauge(Name("space_size", "Space for clients", Some(Unit::Bytes)), space.size_bytes as f64)?;
    put.gauge(Name("space_free", "Space for clients that is free", Some(Unit::Bytes)), space.free_bytes as f64)?;
    let name = Name("space_live", "Data that files have, as of the last checkpoint", Some(Unit::Bytes));
    put.gauge(name, space.live_bytes as f64)?;
    let used = space.segments.saturating_sub(space.free_segments + space.emptied_segments);
    let states = [("free", space.free_segments), ("emptied", space.emptied_segments), ("used", used)];
    let states = states.map(|(state, count)| ([("state", state)], count as f64));
    put.gauges(Name("segments", "Segments; emptied ones will be free soon", None), states)?;
    let name = Name("read_only", "1 if the brick takes no changes, since a write or a flush failed", None);
    put.gauge(name, f64::from(u8::from(space.is_read_only)))?;
    put.counter(
        Name("cleaner_moved_blocks", "Live blocks that the cleaner moved", None),
        agents.cleaned_blocks as f64,
    )?;
    let name =
        Name("client_delay", "Delay of a client's write of one block while the cleaner is behind", Some(Unit::Seconds));
    put.gauge(name, seconds(agents.delay_ns))
}

fn log(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let Snapshot { log, agents, .. } = snapshot;
    put.counter(Name("log_batches", "Batches that the log wrote", None), log.batches as f64)?;
    put.counter(Name("log_records", "Records in them", None), log.records as f64)?;
    put.counter(Name("log", "Data of them", Some(Unit::Bytes)), log.bytes as f64)?;
    put.counter(Name("log_flushes", "Flushes of the log", None), log.flushes as f64)?;
    let name = Name("log_backlog", "Log that a start after a crash would replay now", Some(Unit::Bytes));
    put.gauge(name, log.backlog_bytes as f64)?;
    put.counter(Name("checkpoints", "Checkpoints", None), agents.checkpoints as f64)
}

fn layers(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let of = |value: fn(&explain::snapshot::LayerFigures) -> f64| {
        let row = move |layer: &explain::snapshot::LayerFigures| {
            ([("volume", layer.volume.clone()), ("layer", layer.layer.clone())], value(layer))
        };
        snapshot.layers.iter().map(row)
    };
    put.counters(Name("layer_calls", "Operations that reached a layer", None), of(|layer| layer.calls as f64))?;
    let held = of(|layer| seconds(layer.held_ns));
    put.counters(Name("layer_held", "Time for which a layer held operations", Some(Unit::Seconds)), held)
}

fn limits(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let of = |value: fn(&explain::snapshot::LimitFigures) -> f64| {
        snapshot.limits.iter().map(move |limits| {
            let labels = [("volume", limits.volume.clone()), ("tree", limits.tree.clone())];
            (labels, value(limits))
        })
    };
    let held = Name("limit_held_operations", "Operations that had to wait for limits", None);
    put.counters(held, of(|limits| limits.held as f64))?;
    let waited = Name("limit_held", "Time for which they waited", Some(Unit::Seconds));
    put.counters(waited, of(|limits| seconds(limits.held_ns)))?;
    let name = Name("limit_waiting_operations", "Operations that wait for limits now", None);
    put.gauges(name, of(|limits| limits.waiting as f64))
}

fn shares(put: &mut Put, snapshot: &Snapshot) -> fmt::Result {
    let text = "Cores' time that a volume has had while others wanted some too";
    let tenants = snapshot.tenants.iter();
    let served = tenants.map(|tenant| ([("volume", tenant.volume.clone())], seconds(tenant.served_ns)));
    put.counters(Name("shared_core", text, Some(Unit::Seconds)), served)?;
    let text = "Time for which an agent that the budget of background work bounds has worked";
    let worked = snapshot.agents.worked_ns.iter();
    let worked = worked.map(|(agent, worked_ns)| ([("agent", agent.clone())], seconds(*worked_ns)));
    put.counters(Name("background", text, Some(Unit::Seconds)), worked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::snapshot::{Agents, Core, Disk, Io, LayerFigures, LimitFigures, Process, Tenant, Thread, Whole};
    use std::collections::BTreeSet;

    const DASHBOARD: &str = include_str!("../../node/packaging/grafana.json");

    /// Three events: one took half a microsecond, one the whole, in a bucket that ends above it, and one longer than any bound.
    fn times() -> Times {
        let buckets = [(72, 1), (79, 1), (280, 1)].into();
        Times { count: 3, sum_ns: 41_000_000_000, max_ns: 40_000_000_000, unit_ns: 1.0, buckets }
    }

    /// A daemon that has counted something of everything.
    fn full() -> Snapshot {
        let io = |verb: &str, depth| Io {
            purpose: "log".into(),
            verb: verb.into(),
            depth,
            took: times(),
            bytes: 4096,
            ..Io::default()
        };
        Snapshot {
            at_ns: 3_500_000_000,
            started_ns: 1_000_000_000,
            operations: vec![Operation {
                name: "write".into(),
                total: times(),
                stages: [("order".to_string(), times())].into(),
                hops: 2,
                errors: [("no-space".to_string(), 5)].into(),
            }],
            sample: vec![Whole::default()],
            cores: vec![Core { turns: 7, sleeps: 3, ..Core::default() }],
            pools: vec![Pool { name: "client".into(), threads: 2, queued: 1, jobs: 9, wait: times() }],
            locks: vec![Lock { name: "group".into(), acquired: 9, contended: 1, wait: times(), hold: times() }],
            io: vec![io("write", 1), io("write", 4), io("flush", 1)],
            disk: Some(Disk { name: "vda".into(), requests: [1, 2, 3], took_ms: [1500, 0, 0], ..Disk::default() }),
            process: Process {
                threads: vec![Thread { name: "sinter-core-0".into(), id: 7, run_ns: 250_000_000, wait_ns: 1 }],
                ..Process::default()
            },
            layers: vec![LayerFigures { volume: "v".into(), layer: "layer 1 (delay)".into(), calls: 1, held_ns: 5 }],
            tenants: vec![Tenant { volume: "v".into(), served_ns: 2_500_000_000 }],
            agents: Agents { worked_ns: [("scrub".to_string(), 500_000_000)].into(), ..Agents::default() },
            limits: vec![LimitFigures { volume: "v".into(), held: 3, held_ns: 1_500_000_000, ..Default::default() }],
            ..Snapshot::default()
        }
    }

    fn text() -> String {
        page(full(), "1.2 (debug)".to_string())
    }

    #[test]
    fn the_page_is_as_scrapers_know_it() {
        let page = text();
        for line in [
            "sinter_build_info{version=\"1.2 (debug)\"} 1",
            "sinter_uptime_seconds 2.5",
            "# TYPE sinter_request_duration_seconds histogram",
            "# UNIT sinter_request_duration_seconds seconds",
            "sinter_request_duration_seconds_count{operation=\"write\"} 3",
            "sinter_request_duration_seconds_sum{operation=\"write\"} 41.0",
            "sinter_request_stage_seconds_total{operation=\"write\",stage=\"order\"} 41.0",
            "sinter_request_errors_total{operation=\"write\",kind=\"no-space\"} 5.0",
            "sinter_device_io_bytes_total{purpose=\"log\",verb=\"write\"} 8192.0",
            "sinter_disk_request_seconds_total{disk=\"vda\",verb=\"read\"} 1.5",
            "sinter_core_run_seconds_total{core=\"0\"} 0.25",
            "sinter_segments{state=\"used\"} 0.0",
            "sinter_layer_calls_total{volume=\"v\",layer=\"layer 1 (delay)\"} 1.0",
            "sinter_limit_held_operations_total{volume=\"v\",tree=\"\"} 3.0",
            "sinter_limit_held_seconds_total{volume=\"v\",tree=\"\"} 1.5",
            "sinter_limit_waiting_operations{volume=\"v\",tree=\"\"} 0.0",
            "sinter_shared_core_seconds_total{volume=\"v\"} 2.5",
            "sinter_background_seconds_total{agent=\"scrub\"} 0.5",
        ] {
            assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }

    #[test]
    fn buckets_are_cumulative_and_no_event_is_below_its_bound() {
        let page = text();
        let of = |bound: &str| {
            let start = format!("sinter_request_duration_seconds_bucket{{le=\"{bound}\",operation=\"write\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{start} in\n{page}"))
        };
        assert_eq!(["0.000001", "0.000002", "0.000005", "10.0", "+Inf"].map(of), ["1", "2", "2", "2", "3"]);
    }

    /// The metrics that a dashboard's expressions name.
    fn used() -> BTreeSet<String> {
        let words = DASHBOARD.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let metrics = words.filter(|word| word.starts_with("sinter_"));
        let suffixes = ["_total", "_bucket", "_count", "_sum", "_info"];
        let family =
            |word: &str| suffixes.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word).to_string();
        metrics.map(family).collect()
    }

    #[test]
    fn the_dashboard_uses_what_there_is_and_all_of_it() {
        let page = text();
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let there: BTreeSet<String> = types.map(str::to_string).collect();
        assert_eq!(used(), there);
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("a list");
        assert!(panels.iter().all(|panel| panel["description"].as_str().is_some_and(|text| text.ends_with('.'))));
    }

    #[test]
    fn each_metric_has_samples_help_and_a_name_of_its_own() {
        let page = text();
        let mut names = BTreeSet::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a name and a type");
            assert!(names.insert(name.to_string()), "{name} twice");
            let sample = match kind {
                "counter" => format!("{name}_total"),
                "histogram" => format!("{name}_bucket"),
                "info" => format!("{name}_info"),
                _ => name.to_string(),
            };
            assert!(page.lines().any(|line| line.split(['{', ' ']).next() == Some(&sample)), "{sample} has none");
            assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help");
        }
    }
}
