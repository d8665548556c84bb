//! The verdict: which cause, if it were gone, would gain most.

use crate::causes::{self, percent, time};
use crate::snapshot::InKernel;
use crate::waterfall::{Band, bands, has_ways};
use crate::{Snapshot, Window};
use runtime::Stage;
use serde::{Deserialize, Serialize};

/// Least predicted gain of a cause that is named.
const GAIN_MIN: f64 = 0.10;
/// Share of the requests that must have failed, if that is what is to be told first.
const FAILED_MIN: f64 = 0.01;
/// Mean number of requests under way from which on some wait.
const WAITING_MIN: f64 = 0.5;
/// Share of the time that nobody led, if that is to be told of requests that a node has under way.
const LEADERLESS_MIN: f64 = 0.5;
/// Share of their time that the cores sleep at least, if clients could offer more load.
const IDLE_MIN: f64 = 0.25;

/// A cause with its evidence.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Finding {
    /// The cause's name, for programs.
    pub cause: String,
    /// The thing that it is about.
    pub resource: String,
    /// The share of the requests' time that would go with it.
    pub share: f64,
    /// Predicted gain in requests per second of the same clients, as a part of 1.
    pub gain: f64,
    /// Figures that speak for it.
    pub evidence: Vec<String>,
    /// The next step for an operator.
    pub next: String,
}

impl Finding {
    /// A finding. `excess_ns`: the time of all requests of the window that would go with the cause.
    ///
    /// Clients that ask again once they are answered get as many answers more as the time of each is shorter, but no
    /// more than the cores can give (the bounds of operational analysis: Denning and Buzen, 1978). Where less than one request is
    /// in flight in the mean, clients think for the rest of the time (the interactive response time law), which nothing shortens.
    pub fn new(
        cause: &str,
        resource: String,
        window: &Window,
        excess_ns: f64,
        evidence: Vec<String>,
        next: &str,
    ) -> Finding {
        let all_ns = window.total_ns() + window.transport_ns();
        let share = (excess_ns / all_ns.max(1.0)).clamp(0.0, 0.99);
        let waited = (all_ns / window.ns as f64).min(1.0);
        let shorter = 1.0 / (1.0 - share * waited) - 1.0;
        let busy = 1.0 - window.asleep().1;
        let room = if cause.starts_with("core") || busy <= 0.0 { f64::INFINITY } else { 1.0 / busy - 1.0 };
        let (cause, next) = (cause.to_string(), next.to_string());
        Finding { cause, resource, share, gain: shorter.min(room), evidence, next }
    }
}

/// The verdict on a window.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// The cause; `clients` if there is no bottleneck, `none` if there is no single cause, `idle` without requests, `stuck` if
    /// none ended of those that wait.
    #[serde(flatten)]
    pub finding: Finding,
    /// One sentence for an operator.
    pub sentence: String,
}

/// An operation's part in a window.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Number of requests.
    pub count: u64,
    /// Requests per second.
    pub per_second: f64,
    /// The mean of all requests, from when the daemon had them to their answers.
    #[serde(default)]
    pub mean_ns: u64,
    /// The stages of their time.
    pub waterfall: Vec<Band>,
}

/// All that is said about a window.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Explanation {
    /// Length of the window.
    pub seconds: f64,
    /// Operations, those that took most time first.
    pub operations: Vec<Operation>,
    /// The verdict.
    pub verdict: Verdict,
    /// Other causes with some gain, the largest first.
    pub others: Vec<Finding>,
    /// Figures that are missing.
    pub missing: Vec<String>,
    /// Nanoseconds for which a request was in the kernel and not in the daemon, on its way there and back: the mean of all. None if the
    /// kernel was not asked.
    #[serde(default)]
    pub transport_ns: Option<u64>,
    /// True if that was measured of each request of the sample; else it is an estimate from the numbers in flight.
    #[serde(default)]
    pub transport_is_measured: bool,
    /// Requests by kind as the kernel counts them, those that took most time first.
    #[serde(default)]
    pub kernel: Vec<InKernel>,
    /// Rate times time over the mean number of requests in flight that was sampled; 1 if every request is accounted for.
    pub accounted: Option<f64>,
}

/// Explains what happened between two snapshots. None if they are not of one daemon in this order.
pub fn explain(before: &Snapshot, after: &Snapshot) -> Option<Explanation> {
    let window = Window::between(before, after)?;
    let causes = if window.network.is_some() { &causes::OF_CLIENTS[..] } else { &causes::OF_BRICKS };
    let mut findings: Vec<Finding> = causes.iter().filter_map(|cause| cause(&window)).collect();
    findings.retain(|finding| finding.gain > 0.01);
    findings.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    let verdict = verdict(&window, &findings);
    findings.retain(|finding| *finding != verdict.finding);
    Some(Explanation {
        seconds: window.seconds(),
        operations: operations(&window),
        verdict,
        others: findings,
        missing: missing(&window),
        transport_ns: transport_ns(&window),
        transport_is_measured: has_ways(window.sample.iter()),
        kernel: window.after.kernel.clone(),
        accounted: accounted(&window),
    })
}

fn verdict(window: &Window, findings: &[Finding]) -> Verdict {
    let none = |cause: &str, evidence: Vec<String>, sentence: &str| Verdict {
        finding: Finding { cause: cause.to_string(), evidence, ..Finding::default() },
        sentence: sentence.to_string(),
    };
    if let Some(verdict) = away(window) {
        return verdict;
    }
    if window.requests() == 0 {
        let told = leaderless(window).or_else(|| stuck(window));
        return told.unwrap_or_else(|| none("idle", Vec::new(), "No request came in this time."));
    }
    if let Some(verdict) = missing_disks(window) {
        return verdict;
    }
    if let Some(finding) = findings.first().filter(|finding| finding.gain >= GAIN_MIN) {
        let Finding { cause, resource, share, gain, .. } = finding;
        let sentence = format!(
            "{}: {resource}. It has {} of the requests' time; without it, about {} more requests.",
            title(cause),
            percent(*share),
            percent(*gain)
        );
        return Verdict { finding: finding.clone(), sentence };
    }
    let sleep = window.asleep().1;
    let evidence = vec![
        format!("{:.1} requests in flight in the mean", window.occupancy()),
        format!("the cores sleep {} of the time", percent(sleep)),
    ];
    match sleep >= IDLE_MIN {
        true => none("clients", evidence, "No bottleneck: clients offer no more load."),
        false => none("none", evidence, "No single cause has a tenth of the requests' time; the first two are below."),
    }
}

/// The verdict if requests fail because of disks that are missing. Nobody waits for what lies there, so it has no gain; causes of
/// slowness are among the others.
fn missing_disks(window: &Window) -> Option<Verdict> {
    let (space, failed) = (&window.after.space, window.failed("io"));
    if space.missing_disks.is_empty() || failed == 0 || (failed as f64) < FAILED_MIN * window.requests() as f64 {
        return None;
    }
    let disks = space.missing_disks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let evidence = vec![
        format!("{failed} of {} requests failed (EIO)", window.requests()),
        format!("{} MiB of files lie on disks that were not there at the start: {disks}", space.missing_bytes >> 20),
    ];
    let next =
        "bring the disk back and start the brick anew; `sinter brick affected` lists the files that have data on it";
    let (cause, resource, next) = ("disk-missing".to_string(), format!("disk {disks}"), next.to_string());
    let sentence = format!("{}: {resource}. What lies there fails at once.", title(&cause));
    Some(Verdict { finding: Finding { cause, resource, evidence, next, ..Finding::default() }, sentence })
}

/// The verdict if no request has ended, since nobody led: then they wait where they came from.
fn leaderless(window: &Window) -> Option<Verdict> {
    // Those that are under way here may wait for something else.
    let share_min = if waiting(window) < WAITING_MIN { GAIN_MIN } else { LEADERLESS_MIN };
    let finding = causes::without_requests(window).filter(|finding| finding.share >= share_min)?;
    let (title, resource) = (title(&finding.cause), &finding.resource);
    let sentence = format!("{title}: {resource}. Whoever asked for something meanwhile waited.");
    Some(Verdict { finding, sentence })
}

/// The verdict if requests are under way and none has ended. What they wait for is seen only once one has: the figures tell what it
/// may be.
fn stuck(window: &Window) -> Option<Verdict> {
    let waiting = waiting(window);
    if waiting < WAITING_MIN {
        return None;
    }
    let (space, agents) = (&window.after.space, &window.after.agents);
    let mut evidence = vec![
        format!("{waiting:.1} requests are under way in the mean, and none has ended"),
        format!(
            "{} of {} segments are free, {} more after a checkpoint; each block is written {} later because of the cleaner",
            space.free_segments,
            space.segments,
            space.emptied_segments,
            time(agents.delay_ns as f64)
        ),
    ];
    if space.is_read_only {
        evidence.push("the brick takes no changes, since a write or a flush failed".to_string());
    }
    let next = "look for longer (`--seconds`): what a request has waited for is known once it ends; `sinter status` tells of devices that \
                failed and of free space";
    let finding = Finding { cause: "stuck".to_string(), evidence, next: next.to_string(), ..Finding::default() };
    Some(Verdict {
        finding,
        sentence: format!("Requests wait, about {waiting:.0} of them, and none has ended in this time."),
    })
}

/// Mean number of requests under way.
fn waiting(window: &Window) -> f64 {
    window.in_flight.in_daemon as f64 / window.in_flight.looks.max(1) as f64
}

/// The verdict if requests wait for a server that is away. Some may have ended: before it went, or without it.
fn away(window: &Window) -> Option<Verdict> {
    let network = window.network.as_ref().filter(|network| network.connections == 0)?;
    let waiting = waiting(window);
    if waiting < WAITING_MIN {
        return None;
    }
    let server = &network.server;
    let evidence = vec![
        format!("{waiting:.1} requests are under way in the mean, and {} have ended", window.requests()),
        format!("there was no connection to {server} for {} of this time", time(network.away_ns as f64)),
    ];
    let next = "look whether the server runs and listens (`sinter status` there), and at the network: requests go on when it is back";
    let (cause, resource, next) = ("network".to_string(), format!("the way to {server}"), next.to_string());
    let sentence = format!("The server {server} is away: about {waiting:.0} requests wait for it.");
    Some(Verdict { finding: Finding { cause, resource, evidence, next, ..Finding::default() }, sentence })
}

/// A cause in words.
pub fn title(cause: &str) -> &str {
    match cause {
        "device-slower" => "The device is slower than it was",
        "device-limit" => "The device is at its limit",
        "device-shared" => "Others use the device",
        "device-throttled" => "I/O is throttled above the device",
        "flush" => "The device's flush is slow",
        "core-busy" => "The cores are busy with requests",
        "core-taken" => "Others take the cores' CPUs",
        "lock" => "Requests wait for a lock",
        "index-pool" => "Requests wait for a thread that reads the index",
        "index-engine" => "Requests read the index",
        "background" => "The program's own work is in the way",
        "memory" => "Requests wait for buffer memory",
        "disk" => "Requests read what lies on disks",
        "destage" => "Writers wait for blocks that go down to disks",
        "disk-missing" => "Requests fail because a disk is missing",
        "flash-full" => "Flash is full of what must stay there",
        "layer" => "A layer holds requests",
        "limit" => "A volume's limits hold requests back",
        "network" => "The network is slower than it was",
        "server" => "The server is slower than it was",
        "leader-change" => "The cluster's lead was interrupted",
        "peer" => "Other nodes of the cluster are slower than they were",
        other => other,
    }
}

fn operations(window: &Window) -> Vec<Operation> {
    let names = Stage::ALL.map(Stage::name);
    let mut all: Vec<_> = window.operations.iter().collect();
    all.sort_by_key(|operation| std::cmp::Reverse(operation.total.sum_ns));
    let told = |operation: &&crate::snapshot::Operation| Operation {
        name: operation.name.clone(),
        count: operation.total.count,
        per_second: window.per_second(operation.total.count as f64),
        mean_ns: operation.total.mean_ns(),
        waterfall: bands(&window.sample, &operation.name, &names),
    };
    all.iter().map(told).collect()
}

fn missing(window: &Window) -> Vec<String> {
    let mut missing = Vec::new();
    if window.after.baseline.classes.iter().all(|class| class.usual_ns().is_none()) {
        let what = match window.network {
            Some(_) => "how long requests usually take on their way and at the server",
            None => "what the device's service usually is",
        };
        missing.push(format!("{what}: some seconds of I/O teach it"));
    }
    if window.disk.is_none() && window.network.is_none() {
        missing.push("the kernel's figures of the disk".to_string());
    }
    if window.kernel_occupancy().is_none() {
        missing.push("the time that requests wait in the kernel".to_string());
    }
    missing
}

fn transport_ns(window: &Window) -> Option<u64> {
    if has_ways(window.sample.iter()) {
        let ways = window.sample.iter().filter_map(|whole| whole.way).map(|way| way.there_ns + way.back_ns);
        let (count, sum_ns) = ways.fold((0u64, 0), |(count, sum_ns), ns| (count + 1, sum_ns + ns));
        return sum_ns.checked_div(count);
    }
    window.kernel_occupancy()?;
    (window.requests() > 0).then(|| (window.transport_ns() / window.requests() as f64) as u64)
}

fn accounted(window: &Window) -> Option<f64> {
    let looks = window.in_flight.looks;
    let seen = window.in_flight.in_daemon as f64 / looks.max(1) as f64;
    (looks > 0 && seen > 0.0).then(|| window.occupancy() / seen)
}

#[cfg(test)]
mod tests {
    use super::explain;
    use crate::Times;
    use crate::snapshot::{InFlight, Operation, Snapshot, Space};

    #[test]
    fn a_brick_whose_requests_all_wait_is_not_idle() {
        let before = Snapshot { at_ns: 1, ..Snapshot::default() };
        let told = |in_daemon| {
            let in_flight = InFlight { looks: 10, in_daemon, ..InFlight::default() };
            let after = Snapshot { at_ns: 1_000_000_001, in_flight, ..Snapshot::default() };
            explain(&before, &after).expect("of one daemon").verdict
        };
        assert_eq!(told(0).finding.cause, "idle");
        let verdict = told(40);
        assert!(verdict.finding.cause == "stuck" && verdict.sentence.contains("about 4"), "{verdict:?}");
    }

    #[test]
    fn requests_that_fail_are_told_of_the_disk_that_is_missing() {
        let before = Snapshot { at_ns: 1, ..Snapshot::default() };
        let told = |failed: u64, missing_disks: &[u32]| {
            let total = Times { count: 1000, sum_ns: 1_000_000, ..Times::default() };
            let errors = [("io".to_string(), failed)].into();
            let operations = vec![Operation { name: "read".into(), total, errors, ..Operation::default() }];
            let space = Space { missing_disks: missing_disks.to_vec(), missing_bytes: 7 << 20, ..Space::default() };
            let after = Snapshot { at_ns: 1_000_000_001, operations, space, ..Snapshot::default() };
            explain(&before, &after).expect("of one daemon").verdict
        };
        let verdict = told(10, &[2]);
        assert!(verdict.finding.cause == "disk-missing" && verdict.sentence.contains("disk 2"), "{verdict:?}");
        assert!(verdict.finding.evidence[1].starts_with("7 MiB"), "{verdict:?}");
        assert!(told(9, &[2]).finding.cause != "disk-missing", "too few");
        assert!(told(10, &[]).finding.cause != "disk-missing", "for another reason");
    }
}
