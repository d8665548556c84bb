//! The other nodes of a cluster, as the one that leads sees them: a change is answered once enough of them have it.

use super::compared::{Compared, SLOWER};
use super::{per_request, time};
use crate::snapshot::Peer;
use crate::{Finding, Window};
use runtime::Stage;

/// Share of an acknowledgement's time from which on it is the network's.
const WAY_MIN: f64 = 0.5;

/// The name under which the baseline has the acknowledgements of a brick.
pub fn class_name(brick: &str) -> String {
    format!("peer {brick}")
}

fn compared(peer: &Peer, window: &Window) -> Compared {
    let (mut all, class) = (Compared::default(), class_name(&peer.brick));
    for acks in &peer.acks {
        all.add(window, acks.count as f64, acks.took_ns as f64, (&class, 0, acks.depth));
    }
    all
}

fn word(peer: &Peer, compared: &Compared) -> String {
    compared.word(&format!("{} acknowledges a message after", peer.node), "messages")
}

/// The node on which most changes wait, if it acknowledges them later than it usually does.
pub fn find(window: &Window) -> Option<Finding> {
    let waits_ns = window.stage_ns(&[Stage::Peer.name()]);
    let peer = window.peers.iter().filter(|peer| peer.needed > 0).max_by_key(|peer| peer.needed)?;
    let acks = compared(peer, window);
    if acks.slower() < SLOWER || waits_ns == 0.0 {
        return None;
    }
    let all: u64 = window.peers.iter().map(|peer| peer.needed).sum();
    let mut evidence = vec![
        format!("a request waits {} until enough nodes have its change", per_request(window, &[Stage::Peer.name()])),
        format!("for {} of {all} changes {} was the last one that was needed", peer.needed, peer.node),
        word(peer, &acks),
    ];
    for other in window.peers.iter().filter(|other| other.brick != peer.brick) {
        evidence.push(match other.connected {
            true => word(other, &compared(other, window)),
            false => format!("{} is not connected, so no change can do without {}", other.node, peer.node),
        });
    }
    let is_far = peer.round_trip_ns as f64 > acks.mean_ns() * WAY_MIN;
    if peer.round_trip_ns > 0 {
        let (round_trip, again) = (time(peer.round_trip_ns as f64), peer.retransmits);
        evidence.push(format!(
            "the round-trip time of the connection to {} is {round_trip}; {again} segments were sent again",
            peer.node
        ));
    }
    let next = match is_far {
        true => format!("look at the network between this node and {} (ping, `ss -ti`)", peer.node),
        false => format!("`sinter explain` on {} names the cause there", peer.node),
    };
    let excess_ns = waits_ns * acks.excess();
    Some(Finding::new("peer", peer.node.clone(), window, excess_ns, evidence, &next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Acks, Operation, Process, Snapshot, Thread};
    use crate::{Baseline, Explanation, Times, explain};

    /// A window in which writes wait for other nodes: n2 acknowledges after so many microseconds where 300 are usual, and n3 is away or not.
    fn told(ack_us: u64, round_trip_us: u64, away: bool) -> Explanation {
        const COUNT: u64 = 10_000;
        let times = |us: u64| Times { count: COUNT, sum_ns: COUNT * us * 1000, ..Times::default() };
        let mut baseline = Baseline::default();
        for brick in ["b2", "b3"] {
            (0..10).for_each(|second| baseline.learn((&class_name(brick), 0, 4), 1000, 300_000, second));
        }
        let peer = |number: u64, needed: u64, us: u64| Peer {
            brick: format!("b{number}"),
            node: format!("n{number}"),
            connected: number == 2 || !away,
            needed,
            round_trip_ns: round_trip_us * 1000,
            retransmits: 0,
            acks: vec![Acks { depth: 4, count: COUNT, took_ns: COUNT * us * 1000 }],
        };
        let stages = [("peer".to_string(), times(ack_us)), ("order".to_string(), times(10))].into();
        let operations =
            vec![Operation { name: "write".into(), total: times(ack_us + 10), stages, ..Default::default() }];
        // The core sleeps nearly all the time.
        let thread = Thread { name: "sinter-core-0".into(), id: 1, ..Thread::default() };
        let process = Process { threads: vec![thread], ..Process::default() };
        let before = Snapshot { at_ns: 1, process: process.clone(), ..Snapshot::default() };
        let peers = vec![peer(2, 9_000, ack_us), peer(3, 1_000, 2 * ack_us)];
        let at_ns = 1 + COUNT * (ack_us + 10) * 1000;
        let after = Snapshot { at_ns, operations, process, peers, baseline, ..Snapshot::default() };
        explain(&before, &after).expect("of one daemon")
    }

    #[test]
    fn a_node_that_acknowledges_later_than_usual_is_named() {
        let told_of = told(9_000, 50, false);
        assert_eq!(
            (&*told_of.verdict.finding.cause, &*told_of.verdict.finding.resource),
            ("peer", "n2"),
            "{:?}",
            told_of.verdict
        );
        assert!(told_of.verdict.finding.next.contains("explain` on n2"), "{}", told_of.verdict.finding.next);
        assert!(told_of.verdict.finding.evidence.iter().any(|line| line.starts_with("n3 acknowledges")));
    }

    #[test]
    fn a_long_way_and_a_node_that_is_away_are_told() {
        let told_of = told(9_000, 8_000, true);
        assert!(told_of.verdict.finding.next.contains("network"), "{}", told_of.verdict.finding.next);
        assert!(told_of.verdict.finding.evidence.iter().any(|line| line.contains("n3 is not connected")));
    }

    #[test]
    fn nodes_that_are_as_quick_as_usual_are_not_blamed() {
        assert_ne!(told(300, 50, false).verdict.finding.cause, "peer");
    }
}
