//! The time in which nobody led a cluster. Requests don't reach a node then, but wait at the clients, which no stage of theirs tells.

use super::{per_request, percent, time};
use crate::snapshot::Led;
use crate::{Finding, Window};
use runtime::Stage;

/// Groups that lost the same leader: the one that was without a leader for longest, and those that were so for at least half as long. Of each: what was
/// known at the beginning, and at the end.
struct Interrupted<'a> {
    /// The groups, at least one, in the order of their numbers.
    groups: Vec<&'a (Led, Led)>,
    /// Number of all groups.
    all: usize,
    longest_ns: u64,
}

impl Interrupted<'_> {
    fn of(window: &Window) -> Option<Interrupted<'_>> {
        let (first, longest) = window.led.iter().rev().max_by_key(|(_, after)| after.without_ns)?;
        let is_meant = |(before, after): &&(Led, Led)| {
            before.leader == first.leader && after.without_ns > 0 && 2 * after.without_ns >= longest.without_ns
        };
        let groups: Vec<_> = window.led.iter().filter(is_meant).collect();
        (!groups.is_empty()).then_some(Interrupted { groups, all: window.led.len(), longest_ns: longest.without_ns })
    }
    /// The finding, whose share is that of the time, and whose gain is open.
    fn finding(&self, window: &Window) -> Finding {
        let share = window.share(self.longest_ns).min(0.99);
        let (without, count, all) = (time(self.longest_ns as f64), self.groups.len(), self.all);
        let led = if all > 1 { format!("nobody led {count} of {all} groups") } else { "nobody led".to_string() };
        let mut evidence: Vec<String> = self.terms().collect();
        evidence.push(format!("{led} for {without} of this time ({}), as {} saw it", percent(share), self.node()));
        let (_, after) = self.groups[0];
        if !after.is_without && after.leader != after.node {
            evidence.push(format!("{} leads: what clients ask for now is counted there", after.leader));
        }
        let (cause, resource) = ("leader-change".to_string(), self.resource());
        Finding { cause, resource, share, gain: 0.0, evidence, next: self.next() }
    }
    /// Their part of all groups.
    fn part(&self) -> f64 {
        self.groups.len() as f64 / self.all as f64
    }
    /// The node that led before; empty if there was none.
    fn first(&self) -> &str {
        &self.groups[0].0.leader
    }
    /// The node that tells.
    fn node(&self) -> &str {
        &self.groups[0].1.node
    }
    fn is_without(&self) -> bool {
        self.groups.iter().any(|(_, after)| after.is_without)
    }
    /// The node that led before, and those that lead now.
    fn resource(&self) -> String {
        let first = if self.first().is_empty() { "nobody" } else { self.first() };
        let mut last = Vec::new();
        for (_, after) in &self.groups {
            let now = match after.is_without {
                true => "nobody".to_string(),
                false if after.leader == first => format!("{first} again"),
                false => after.leader.clone(),
            };
            if !last.contains(&now) {
                last.push(now);
            }
        }
        format!("{first}, then {}", last.join(" and "))
    }
    /// A line for each group.
    fn terms(&self) -> impl Iterator<Item = String> {
        self.groups.iter().map(|(before, after)| {
            let first = match before.leader.is_empty() {
                true => "nobody led before".to_string(),
                false => format!("{} led before, in term {}", before.leader, before.term),
            };
            let last = match after.is_without {
                true => "nobody leads now".to_string(),
                false => format!("{} leads now, in term {}", after.leader, after.term),
            };
            let group = if self.all > 1 { format!(" (group {})", after.group) } else { String::new() };
            format!("{first}; {last}; changes of leader: {}{group}", after.changes)
        })
    }
    fn next(&self) -> String {
        let costs = "a process that ended, a write that took longer than a second, or a network that was cut costs a node the lead";
        match self.first() {
            _ if self.is_without() => {
                "`sinter cluster status` on each node says which others it reaches: a majority must reach each other"
                    .to_string()
            }
            "" => "`sinter cluster status` tells of all nodes".to_string(),
            first if first == self.node() => {
                format!(
                    "look at this node, which led before: its log, its disk, and the network to the others; {costs}"
                )
            }
            first => {
                format!("look at {first}, which led before: `sinter cluster status`, its log and its disk; {costs}")
            }
        }
    }
}

/// The time without a leader, if clients wanted something meanwhile.
///
/// Whoever wants something of a group that nobody leads waits for all of that time. If requests are for all groups alike, it is the same part of their
/// time as of all groups' time, and they would have had as many more answers as there is more time with a leader. If less than one request
/// came in as long a time otherwise, nobody need have noticed.
pub fn find(window: &Window) -> Option<Finding> {
    let interrupted = Interrupted::of(window)?;
    let mut finding = interrupted.finding(window);
    finding.share *= interrupted.part();
    finding.gain = finding.share / (1.0 - finding.share);
    let missed = window.requests() as f64 * finding.gain;
    if missed < 1.0 {
        return None;
    }
    finding.evidence.push(format!("at the rate of the rest of the time, {missed:.0} requests more would have ended"));
    let elsewhere = window.failed("elsewhere");
    if elsewhere > 0 {
        finding.evidence.push(format!("{elsewhere} requests were told to ask another node"));
    }
    if window.stage_ns(&[Stage::Peer.name()]) > 0.0 {
        let waits = per_request(window, &[Stage::Peer.name()]);
        finding.evidence.push(format!("those that ended waited {waits} each until enough nodes had their changes"));
    }
    Some(finding)
}

/// The time without a leader, whether or not requests came.
pub fn without_requests(window: &Window) -> Option<Finding> {
    Some(Interrupted::of(window)?.finding(window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{InFlight, Operation, Process, Snapshot, Thread};
    use crate::{Baseline, Explanation, Times, explain};

    const SECOND: u64 = 1_000_000_000;

    /// The leader and its term as `n2` sees it, after so many changes and so many milliseconds without one.
    fn seen(leader: &str, term: u64, changes: u64, without_ms: u64) -> Led {
        let without_ns = without_ms * 1_000_000;
        Led { group: 0, node: "n2".into(), leader: leader.into(), term, changes, without_ns, is_without: false }
    }

    /// Five seconds at `n2`, with so many writes that wait for other nodes for so long.
    fn told(before: Led, after: Led, load: (u64, u64)) -> Explanation {
        told_of(vec![before], vec![after], load)
    }

    fn told_of(before: Vec<Led>, after: Vec<Led>, load: (u64, u64)) -> Explanation {
        let [before, after] = snapshots(before, after, load);
        explain(&before, &after).expect("of one daemon")
    }

    fn snapshots(before: Vec<Led>, after: Vec<Led>, (count, peer_us): (u64, u64)) -> [Snapshot; 2] {
        let times = |us: u64| Times { count, sum_ns: count * us * 1000, ..Times::default() };
        let stages = [("peer".to_string(), times(peer_us)), ("order".to_string(), times(10))].into();
        let errors = [("elsewhere".to_string(), count.min(7))].into();
        let total = times(peer_us + 10);
        let operations = vec![Operation { name: "write".into(), total, stages, errors, ..Operation::default() }];
        // The core sleeps nearly all the time, and n1 and n3 usually acknowledge after 300 us.
        let thread = Thread { name: "sinter-core-0".into(), id: 1, ..Thread::default() };
        let process = Process { threads: vec![thread], ..Process::default() };
        let mut baseline = Baseline::default();
        (0..10).for_each(|second| baseline.learn((&super::super::class_name("b3"), 0, 4), 1000, 300_000, second));
        let acks = vec![crate::snapshot::Acks { depth: 4, count, took_ns: count * peer_us * 1000 }];
        let peer = crate::snapshot::Peer {
            brick: "b3".into(),
            node: "n3".into(),
            connected: true,
            acks,
            ..Default::default()
        };
        let peers = vec![crate::snapshot::Peer { needed: count, ..peer }];
        let before = Snapshot { at_ns: SECOND, process: process.clone(), led: before, ..Snapshot::default() };
        let after = Snapshot { at_ns: 6 * SECOND, operations, process, peers, baseline, led: after, ..before.clone() };
        [before, after]
    }

    fn other(told: &Explanation) -> Option<&Finding> {
        told.others.iter().find(|finding| finding.cause == "leader-change")
    }

    #[test]
    fn a_stall_without_a_leader_is_told_with_who_led_before_and_after() {
        let told = told(seen("n1", 3, 1, 400), seen("n2", 5, 2, 1_900), (7_000, 290));
        let finding = &told.verdict.finding;
        assert_eq!((&*finding.cause, &*finding.resource), ("leader-change", "n1, then n2"), "{:?}", told.verdict);
        assert!((0.29..0.31).contains(&finding.share) && (0.42..0.44).contains(&finding.gain), "{finding:?}");
        for part in [
            "n1 led before, in term 3; n2 leads now, in term 5; changes of leader: 1",
            "1.5 s of this time (30%), as n2 saw it",
            "3000 requests more",
            "7 requests were told to ask another node",
            "waited 290.0 us each",
        ] {
            assert!(finding.evidence.iter().any(|line| line.contains(part)), "{part}: {finding:?}");
        }
        assert!(finding.next.starts_with("look at n1"), "{}", finding.next);
        assert!(
            told.verdict.sentence.starts_with("The cluster's lead was interrupted: n1, then n2. It has 30%"),
            "{}",
            told.verdict.sentence
        );
    }

    #[test]
    fn groups_of_one_node_that_others_took_are_told_together() {
        let of = |group: u32, led: Led| Led { group, ..led };
        let ends = [("n2", 1_500), ("n2", 1), ("n3", 0), ("n3", 1_400), ("n2", 0), ("n3", 2)];
        let first = |group: u32| if group.is_multiple_of(3) { "n1" } else { "n2" };
        let before = (0..6).map(|group| of(group, seen(first(group), 3, 1, 400))).collect();
        let after = (0u32..).zip(ends).map(|(group, (leader, ms))| of(group, seen(leader, 5, 2, 400 + ms))).collect();
        let told = told_of(before, after, (7_000, 290));
        let finding = &told.verdict.finding;
        assert_eq!(
            (&*finding.cause, &*finding.resource),
            ("leader-change", "n1, then n2 and n3"),
            "{:?}",
            told.verdict
        );
        assert!((0.09..0.11).contains(&finding.share), "a third of 30%: {finding:?}");
        for part in ["nobody led 2 of 6 groups for 1.5 s", "n3 leads now, in term 5; changes of leader: 1 (group 3)"] {
            assert!(finding.evidence.iter().any(|line| line.contains(part)), "{part}: {finding:?}");
        }
    }

    #[test]
    fn snapshots_of_daemons_before_are_read() {
        let led = |json: &str| serde_json::from_str::<Snapshot>(json).expect("a snapshot").led;
        assert!(led("{}").is_empty() && led(r#"{"led": null}"#).is_empty());
        let one = led(r#"{"led": {"node": "n2", "leader": "n1", "term": 3}}"#);
        assert_eq!(one, [Led { changes: 0, ..seen("n1", 3, 0, 0) }]);
        assert_eq!(
            led(r#"{"led": [{"group": 1}, {"group": 4}]}"#).iter().map(|led| led.group).collect::<Vec<_>>(),
            [1, 4]
        );
    }

    #[test]
    fn a_change_that_took_a_moment_does_not_explain_slow_nodes() {
        // Each write waits 30 times as long as usual for n3, and 100 ms of the time were without a leader.
        let told = told(seen("n1", 3, 1, 400), seen("n2", 5, 2, 500), (500, 9_000));
        assert_eq!(
            (&*told.verdict.finding.cause, &*told.verdict.finding.resource),
            ("peer", "n3"),
            "{:?}",
            told.verdict
        );
        let finding = other(&told).expect("it is named");
        assert!((0.019..0.021).contains(&finding.share), "{finding:?}");
    }

    #[test]
    fn nobody_noticed_if_hardly_anybody_asked() {
        let told = told(seen("n1", 3, 1, 0), seen("n2", 5, 2, 1_000), (3, 290));
        assert_eq!((&*told.verdict.finding.cause, other(&told)), ("clients", None), "{:?}", told.verdict);
    }

    #[test]
    fn a_cluster_whose_leader_stays_is_not_told_of_changes_before() {
        let led = seen("n2", 5, 2, 1_900);
        let told = told(led.clone(), led, (7_000, 290));
        assert_eq!((&*told.verdict.finding.cause, other(&told)), ("clients", None), "{:?}", told.verdict);
    }

    #[test]
    fn a_node_without_requests_tells_of_a_time_without_a_leader() {
        let verdict = |before, after| told(before, after, (0, 0)).verdict;
        let lost = verdict(seen("n1", 3, 0, 0), Led { is_without: true, ..seen("n1", 3, 0, 4_000) });
        assert_eq!((&*lost.finding.cause, &*lost.finding.resource), ("leader-change", "n1, then nobody"), "{lost:?}");
        assert!(lost.finding.next.contains("majority") && lost.sentence.contains("waited"), "{lost:?}");
        let follows = verdict(seen("n1", 3, 0, 0), seen("n3", 4, 1, 1_000));
        assert!(follows.finding.evidence.iter().any(|line| line.starts_with("n3 leads")), "{follows:?}");
        assert_eq!(verdict(seen("n1", 3, 0, 0), seen("n3", 4, 1, 400)).finding.cause, "idle");
    }

    #[test]
    fn requests_that_a_node_has_itself_wait_for_a_leader_only_if_there_was_none_for_long() {
        let cause = |without_ms| {
            let [before, mut after] = snapshots(vec![seen("n1", 3, 0, 0)], vec![seen("n2", 4, 1, without_ms)], (0, 0));
            after.in_flight = InFlight { looks: 10, in_daemon: 40, ..InFlight::default() };
            explain(&before, &after).expect("of one daemon").verdict.finding.cause
        };
        assert_eq!((&*cause(1_000), &*cause(3_000)), ("stuck", "leader-change"));
    }

    #[test]
    fn a_node_that_lost_its_lease_is_told_to_look_at_itself() {
        let finding = told(seen("n2", 3, 0, 0), seen("n2", 3, 0, 2_000), (7_000, 290)).verdict.finding;
        assert_eq!((&*finding.cause, &*finding.resource), ("leader-change", "n2, then n2 again"), "{finding:?}");
        assert!(finding.next.starts_with("look at this node"), "{finding:?}");
    }
}
