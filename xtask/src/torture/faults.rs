//! The faults: which are drawn, and how they are done to the nodes' processes.
//!
//! Promises: a process that was stopped goes on again. Absent by design: any expectation of what follows.

use super::asked::Ends;
use super::cluster::{Cluster, Nodes, signal};
use super::run::Run;
use runtime::random::SplitMix;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Kill,
    /// SIGTERM, of one.
    Term,
    Pause,
    /// Two or three ended at once.
    Several,
    /// Any fault of one while another one was away.
    Beside,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Kill, Kind::Term, Kind::Pause, Kind::Several, Kind::Beside];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "one killed",
            Kind::Term => "one ended by SIGTERM",
            Kind::Pause => "one stopped for 1 to 6 s",
            Kind::Several => "two or three at once",
            Kind::Beside => "one while another was away",
        }
    }
}

/// A fault that was done.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub at: Duration,
    /// The fault in words.
    pub told: String,
}

/// A fault as it is drawn, before it is known which processes there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drawn {
    End { nodes: usize, signal: &'static str },
    Pause(Duration),
}

fn drawn(draw: &mut SplitMix, ends: Ends) -> Drawn {
    // Drawn always, so that the same seed draws the same faults with --planned.
    let (fault, half, pause) = (draw.below(100), draw.below(2), 1000 + draw.below(5001));
    let signal = if ends == Ends::KillsAndTerms && half == 0 { "TERM" } else { "KILL" };
    match fault {
        0..55 => Drawn::End { nodes: 1, signal },
        55..65 => Drawn::End { nodes: 2, signal },
        65..75 => Drawn::End { nodes: 3, signal },
        _ => Drawn::Pause(Duration::from_millis(pause)),
    }
}

/// Picks processes: one is that which leads in 60 of 100 cases.
fn picked(draw: &mut SplitMix, nodes: &Nodes, count: usize) -> Vec<u32> {
    let (leads, turn) = (draw.below(100) < 60, draw.next() as usize);
    let mut others = nodes.others.clone();
    others.sort_unstable();
    if !others.is_empty() {
        let turn = turn % others.len();
        others.rotate_left(turn);
    }
    let leader = nodes.leader.into_iter();
    let ordered: Vec<u32> =
        if leads { leader.chain(others).collect() } else { others.into_iter().chain(leader).collect() };
    ordered.into_iter().take(count).collect()
}

/// Does a fault. Nothing, if no process answers: the next one's turn comes.
pub fn next(run: &Run, cluster: &Cluster<'_>, draw: &mut SplitMix, ends: Ends) -> Option<Fault> {
    let drawn = drawn(draw, ends);
    let nodes = cluster.nodes().unwrap_or_default();
    let count = if let Drawn::End { nodes, .. } = drawn { nodes } else { 1 };
    let pids = picked(draw, &nodes, count);
    if pids.is_empty() {
        return None;
    }
    let part = if pids.first() == nodes.leader.as_ref() { "the node that leads" } else { "a node that follows" };
    let at = run.now();
    let (kind, told) = match drawn {
        Drawn::End { signal: name, .. } => {
            for pid in &pids {
                signal(name, *pid);
            }
            let kind = match (pids.len(), name) {
                (1, "KILL") => Kind::Kill,
                (1, _) => Kind::Term,
                _ => Kind::Several,
            };
            (kind, format!("SIG{name} to {} of {} processes, first {part}", pids.len(), nodes.all().len()))
        }
        Drawn::Pause(time) => {
            signal("STOP", pids[0]);
            std::thread::sleep(time);
            signal("CONT", pids[0]);
            (Kind::Pause, format!("SIGSTOP to {part} for {} ms", time.as_millis()))
        }
    };
    let kind = if kind != Kind::Several && !nodes.are_whole { Kind::Beside } else { kind };
    Some(Fault { kind, at, told })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_drawn_as_often_as_is_told() {
        let mut draw = SplitMix(1);
        let all: Vec<Drawn> = (0..10_000).map(|_| drawn(&mut draw, Ends::KillsAndTerms)).collect();
        let share = |wanted: fn(&Drawn) -> bool| all.iter().filter(|drawn| wanted(drawn)).count() / 100;
        assert!((53..57).contains(&share(|drawn| matches!(drawn, Drawn::End { nodes: 1, .. }))));
        assert!((9..12).contains(&share(|drawn| matches!(drawn, Drawn::End { nodes: 3, .. }))));
        assert!((35..40).contains(&share(|drawn| matches!(drawn, Drawn::End { signal: "TERM", .. }))));
        let mut draw = SplitMix(1);
        assert!((0..10_000).all(|_| !matches!(drawn(&mut draw, Ends::Kills), Drawn::End { signal: "TERM", .. })));
    }

    #[test]
    fn the_node_that_leads_is_picked_in_60_of_100_cases() {
        let (mut draw, nodes) = (SplitMix(1), Nodes { leader: Some(1), others: vec![3, 2], are_whole: true });
        let mut times = [0; 4];
        (0..10_000).for_each(|_| times[picked(&mut draw, &nodes, 1)[0] as usize] += 1);
        assert!((5800..6200).contains(&times[1]) && times[2..].iter().all(|times| (1800..2200).contains(times)));
        assert_eq!(picked(&mut draw, &nodes, 3).len(), 3);
        assert!(picked(&mut draw, &Nodes::default(), 2).is_empty());
    }
}
