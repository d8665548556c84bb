//! The way of a client to its server, and the server as the client sees it.

use super::compared::{Compared, SLOWER};
use super::{per_request, percent, time};
use crate::snapshot::{Network, Trips};
use crate::{Finding, Times, Window};
use runtime::Stage;

/// Number of the server's stages that are told.
const STAGES_TOLD: usize = 3;

/// The parts of a request's time at a client that have something usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The way to the server and back.
    Wire,
    /// The server.
    Server,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 2] = [Part::Wire, Part::Server];
    /// The name under which the baseline has the part of requests of a verb.
    pub fn class_name(self, verb: &str) -> String {
        match self {
            Part::Wire => format!("wire {verb}"),
            Part::Server => format!("server {verb}"),
        }
    }
    /// Its times as they were measured.
    pub fn times(self, trips: &Trips) -> &Times {
        match self {
            Part::Wire => &trips.wire,
            Part::Server => &trips.server,
        }
    }
    /// Nanoseconds of each time that belong elsewhere: until this machine looked at the answer, and until the server looked at the
    /// request, which was measured as the way and is the server's.
    pub fn less_ns(self, window: &Window) -> f64 {
        match self {
            Part::Wire => window.look_ns() + window.server_late_ns(),
            Part::Server => -window.server_late_ns(),
        }
    }
}

fn compared(part: Part, window: &Window, network: &Network) -> Compared {
    let (mut all, less_ns) = (Compared::default(), part.less_ns(window));
    for trips in &network.trips {
        let times = part.times(trips);
        let count = times.count as f64;
        let took_ns = (times.sum_ns as f64 - less_ns * count).max(0.0);
        all.add(window, count, took_ns, (&part.class_name(&trips.verb), trips.bytes_max, trips.depth));
    }
    all
}

/// The way to the server, if requests take longer on it than they usually do.
pub fn find(window: &Window) -> Option<Finding> {
    let network = window.network.as_ref()?;
    let part = compared(Part::Wire, window, network);
    if part.slower() < SLOWER {
        return None;
    }
    let mut evidence = vec![part.word("a request is on its way there and back for", "requests")];
    evidence.push(format!(
        "the round-trip time is {} now; this machine has sent {} segments again",
        time(network.round_trip_ns as f64),
        network.retransmits
    ));
    if network.away_ns > 0 {
        evidence.push(format!("there was no connection for {} of this time", time(network.away_ns as f64)));
    }
    evidence.push(format!(
        "the server itself had a request for {}, and looked at it {} after it had come",
        per_request(window, &names()),
        time(window.server_late_ns())
    ));
    let next = "look at the network (ping, `ethtool -S`, switches; `ss -ti` shows each connection)";
    let resource = format!("the way to {}", network.server);
    Some(Finding::new("network", resource, window, part.excess_ns(), evidence, next))
}

/// The server, if it has requests for longer than it usually does, or holds them back by a limit.
pub fn find_server(window: &Window) -> Option<Finding> {
    let network = window.network.as_ref()?;
    let limit_ns = window.stage_ns(&[Stage::Limit.name()]);
    let part = compared(Part::Server, window, network);
    let slower_ns = if part.slower() < SLOWER { 0.0 } else { part.excess_ns() };
    if limit_ns > 0.0 && limit_ns >= slower_ns {
        let evidence = vec![format!("a request waits {} for limits", per_request(window, &[Stage::Limit.name()]))];
        let next = "an operator has set limits at the server: `sinter volume list` there shows them, `sinter volume set` and \
                    `sinter limit` change them";
        let resource = format!("limits at {}", network.server);
        return Some(Finding::new("limit", resource, window, limit_ns, evidence, next));
    }
    if slower_ns == 0.0 {
        return None;
    }
    let late = format!("its cores look at a request {} after it has come", time(window.server_late_ns()));
    let evidence = vec![part.word("the server has a request for", "requests"), stages(window), late];
    let next = "`sinter explain` on the server names the cause";
    Some(Finding::new("server", network.server.clone(), window, slower_ns, evidence, next))
}

/// The names of the stages that a client's requests have at the server.
fn names() -> Vec<&'static str> {
    let is_at_server = |stage: &Stage| !stage.is_of_both_ends() && *stage != Stage::Wire;
    Stage::ALL.into_iter().filter(is_at_server).map(Stage::name).collect()
}

/// The stages in which the server has spent most time, for a sentence.
fn stages(window: &Window) -> String {
    let mut stages: Vec<_> = names().into_iter().map(|name| (name, window.stage_ns(&[name]))).collect();
    let all_ns = stages.iter().map(|(_, ns)| ns).sum::<f64>().max(1.0);
    stages.sort_by(|one, other| other.1.total_cmp(&one.1));
    let told = stages.iter().take(STAGES_TOLD).filter(|(_, ns)| *ns > 0.0);
    let told: Vec<_> = told.map(|(name, ns)| format!("{name} {}", percent(ns / all_ns))).collect();
    format!("of its time are {}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Process, Snapshot, Thread};
    use crate::{Baseline, explain};

    /// A window in which reads took so many microseconds on their way and at the server, where 40 and 60 are usual.
    fn told(wire_us: u64, server_us: u64, knows: bool) -> crate::Explanation {
        told_late(wire_us, server_us, 0, knows)
    }

    /// The same, with a server that looks at a request so much later than it comes.
    fn told_late(wire_us: u64, server_us: u64, late_us: u64, knows: bool) -> crate::Explanation {
        const COUNT: u64 = 10_000;
        let times = |us: u64| Times { count: COUNT, sum_ns: COUNT * us * 1000, ..Times::default() };
        let mut baseline = Baseline::default();
        for second in 0..if knows { 10 } else { 0 } {
            baseline.learn(("wire read", 4096, 2), 1000, 40_000, second);
            baseline.learn(("server read", 4096, 2), 1000, 60_000, second);
        }
        let trips = Trips {
            verb: "read".into(),
            bytes_max: 4096,
            // Usual times of the nearest depth count.
            depth: 2,
            wire: times(wire_us),
            server: times(server_us),
        };
        let (alarms, late_ns) = (50, 50 * late_us * 1000);
        let server = "one".into();
        let network = Network { server, connections: 2, alarms, late_ns, trips: vec![trips], ..Network::default() };
        let stages = [("wire".to_string(), times(wire_us)), ("read".to_string(), times(server_us))].into();
        let total = times(wire_us + server_us);
        let operations = vec![crate::snapshot::Operation { name: "read".into(), total, stages, ..Default::default() }];
        // The core sleeps nearly all the time.
        let thread = Thread { name: "sinter-core-0".into(), id: 1, ..Thread::default() };
        let process = Process { threads: vec![thread], ..Process::default() };
        let before = Snapshot { at_ns: 1, process: process.clone(), ..Snapshot::default() };
        let at_ns = 1 + COUNT * (wire_us + server_us) * 1000;
        let after = Snapshot { at_ns, operations, baseline, process, network: Some(network), ..Snapshot::default() };
        explain(&before, &after).expect("of one daemon")
    }

    #[test]
    fn the_part_that_takes_longer_than_usual_is_the_verdict() {
        assert_eq!(told(40, 60, true).verdict.finding.cause, "clients");
        let network = told(140, 60, true).verdict;
        assert_eq!(network.finding.cause, "network", "{network:?}");
        assert!((0.95..1.05).contains(&network.finding.gain), "{network:?}");
        assert!(network.sentence.contains("the way to one"), "{network:?}");
        let server = told(40, 160, true).verdict;
        assert_eq!(server.finding.cause, "server", "{server:?}");
        assert!(server.finding.evidence[1].contains("read 100%"), "{server:?}");
    }

    #[test]
    fn a_server_that_looks_late_is_no_slow_way() {
        let late = told_late(440, 60, 400, true).verdict;
        assert_eq!(late.finding.cause, "server", "{late:?}");
        assert!(late.finding.evidence[2].contains("400.0 us after it has come"), "{late:?}");
        assert_eq!(told_late(440, 60, 20, true).verdict.finding.cause, "network");
    }

    #[test]
    fn a_server_that_is_away_is_told_first() {
        let told = |in_daemon, connections| {
            let operation = crate::snapshot::Operation {
                total: Times { count: 1, sum_ns: 5, ..Times::default() },
                ..Default::default()
            };
            let network = Network { server: "one".into(), connections, ..Network::default() };
            let in_flight = crate::snapshot::InFlight { looks: 10, in_daemon, ..Default::default() };
            let before = Snapshot { at_ns: 1, ..Snapshot::default() };
            let operations = vec![operation];
            let after = Snapshot { at_ns: 9, operations, in_flight, network: Some(network), ..Snapshot::default() };
            explain(&before, &after).expect("of one daemon").verdict
        };
        let verdict = told(40, 0);
        assert!(verdict.finding.cause == "network" && verdict.sentence.contains("one is away"), "{verdict:?}");
        assert!(told(40, 1).finding.cause != "network" && told(0, 0).finding.cause != "network");
    }

    #[test]
    fn a_way_that_was_never_seen_otherwise_is_no_cause() {
        let told = told(140, 60, false);
        assert_eq!(told.verdict.finding.cause, "clients");
        assert!(told.missing.iter().any(|missing| missing.contains("the server")), "{told:?}");
    }
}
