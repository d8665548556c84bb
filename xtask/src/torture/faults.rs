//! The faults: which are drawn, and how they are done to the nodes.
//!
//! Promises: the same seed draws the same. Absent by design: any expectation of what follows, but for the goals that figures are held against.

use super::cluster::{Cluster, Seats};
use super::nodes::Told;
use super::run::Run;
use runtime::random::SplitMix;
use std::time::Duration;

/// Time after which a killed node is started again, of several that are killed at once.
const BACK: Duration = Duration::from_secs(1);

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One killed and started again after so many seconds.
    Kill0,
    Kill1,
    Kill5,
    /// One taken down by `sinter down`.
    Down,
    /// One stopped by SIGSTOP.
    Stop,
    /// Two or three killed at once.
    Several,
    /// Any fault of one while another one was away.
    Beside,
}

/// The stalls that are aimed at: in 99 of 100 cases, and always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    pub most: Duration,
    pub always: Duration,
}

/// The goal for a node that is killed, whichever, every 10 s.
pub const KILLED: Goal = Goal { most: Duration::from_millis(3500), always: Duration::from_secs(6) };

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Kill0, Kind::Kill1, Kind::Kill5, Kind::Down, Kind::Stop, Kind::Several, Kind::Beside];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill0 => "killed, back at once",
            Kind::Kill1 => "killed, back after 1 s",
            Kind::Kill5 => "killed, back after 5 s",
            Kind::Down => "down, back after 1 s",
            Kind::Stop => "stopped for 1 to 6 s",
            Kind::Several => "two or three killed at once",
            Kind::Beside => "one while another was away",
        }
    }
    /// True if one node is killed.
    pub fn is_kill(self) -> bool {
        matches!(self, Kind::Kill0 | Kind::Kill1 | Kind::Kill5)
    }
    /// The goal for it, if there is one.
    pub fn goal(self) -> Option<Goal> {
        let within = |ms| Some(Goal { most: Duration::from_millis(ms), always: Duration::from_millis(ms) });
        match self {
            Kind::Kill0 => within(1000),
            Kind::Kill1 | Kind::Kill5 => Some(KILLED),
            Kind::Down => within(200),
            Kind::Stop | Kind::Several | Kind::Beside => None,
        }
    }
}

/// The part of the first node that a fault concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Leads,
    Follows,
}

/// A fault that was done.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub part: Part,
    pub at: Duration,
    /// The fault in words.
    pub told: String,
}

/// A fault as it is drawn, before it is known which nodes there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drawn {
    Kill { nodes: usize, back: Duration },
    Down,
    Stop(Duration),
}

fn drawn(draw: &mut SplitMix) -> Drawn {
    let (fault, stop) = (draw.below(100), 1000 + draw.below(5001));
    let one = |seconds| Drawn::Kill { nodes: 1, back: Duration::from_secs(seconds) };
    match fault {
        0..20 => one(0),
        20..42 => one(1),
        42..60 => one(5),
        60..80 => Drawn::Down,
        80..90 => Drawn::Stop(Duration::from_millis(stop)),
        90..95 => Drawn::Kill { nodes: 2, back: BACK },
        _ => Drawn::Kill { nodes: 3, back: BACK },
    }
}

/// Picks nodes: one is that which leads in 60 of 100 cases.
fn picked(draw: &mut SplitMix, seats: &Seats, count: usize) -> Vec<usize> {
    let (leads, turn) = (draw.below(100) < 60, draw.next() as usize);
    let mut others = seats.others.clone();
    others.sort_unstable();
    if !others.is_empty() {
        let turn = turn % others.len();
        others.rotate_left(turn);
    }
    let leader = seats.leader.into_iter();
    let ordered: Vec<usize> =
        if leads { leader.chain(others).collect() } else { others.into_iter().chain(leader).collect() };
    ordered.into_iter().take(count).collect()
}

/// Does a fault. Nothing, if no node answers: the next one's turn comes. Errors: the product refused.
pub fn next(run: &Run, cluster: &mut Cluster<'_>, draw: &mut SplitMix) -> Result<Option<Fault>, String> {
    let drawn = drawn(draw);
    let mut seats = cluster.seats().unwrap_or_default();
    let nodes = &mut cluster.nodes;
    // A node may still answer to which something is being done.
    seats.others.retain(|at| nodes[*at].told() == Told::Runs);
    seats.leader = seats.leader.filter(|at| nodes[*at].told() == Told::Runs);
    let count = if let Drawn::Kill { nodes, .. } = drawn { nodes } else { 1 };
    let picked = picked(draw, &seats, count);
    let Some(&first) = picked.first() else { return Ok(None) };
    let part = if seats.leader == Some(first) { Part::Leads } else { Part::Follows };
    let names: Vec<String> = picked.iter().map(|at| format!("n{}", at + 1)).collect();
    let names = names.join(", ");
    let at = run.now();
    let (kind, told) = match drawn {
        Drawn::Kill { back, .. } => {
            picked.iter().for_each(|at| nodes[*at].kill(back));
            let kind = match (picked.len(), back.as_secs()) {
                (1, 0) => Kind::Kill0,
                (1, 1) => Kind::Kill1,
                (1, _) => Kind::Kill5,
                _ => Kind::Several,
            };
            (kind, format!("{names} killed, back after {back:?}"))
        }
        Drawn::Down => {
            nodes[first].take_down()?;
            (Kind::Down, format!("{names} taken down"))
        }
        Drawn::Stop(time) => {
            nodes[first].stop(time);
            (Kind::Stop, format!("{names} stopped for {time:?}"))
        }
    };
    // Back at once is at once.
    cluster.tend()?;
    let kind = if kind != Kind::Several && !seats.are_whole { Kind::Beside } else { kind };
    let told = match part {
        Part::Leads => format!("{told}; it leads, and {} of 3 answered", seats.all()),
        Part::Follows => format!("{told}; it follows, and {} of 3 answered", seats.all()),
    };
    Ok(Some(Fault { kind, part, at, told }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_drawn_as_often_as_is_told() {
        let mut draw = SplitMix(1);
        let all: Vec<Drawn> = (0..10_000).map(|_| drawn(&mut draw)).collect();
        let share = |wanted: fn(&Drawn) -> bool| all.iter().filter(|drawn| wanted(drawn)).count() / 100;
        assert!((58..62).contains(&share(|drawn| matches!(drawn, Drawn::Kill { nodes: 1, .. }))));
        assert!((4..7).contains(&share(|drawn| matches!(drawn, Drawn::Kill { nodes: 3, .. }))));
        assert!((18..22).contains(&share(|drawn| matches!(drawn, Drawn::Down))));
        assert!((8..12).contains(&share(|drawn| matches!(drawn, Drawn::Stop(_)))));
    }

    #[test]
    fn the_node_that_leads_is_picked_in_60_of_100_cases() {
        let (mut draw, seats) = (SplitMix(1), Seats { leader: Some(0), others: vec![2, 1], are_whole: true });
        let mut times = [0; 3];
        (0..10_000).for_each(|_| times[picked(&mut draw, &seats, 1)[0]] += 1);
        assert!((5800..6200).contains(&times[0]) && times[1..].iter().all(|times| (1800..2200).contains(times)));
        assert_eq!(picked(&mut draw, &seats, 3).len(), 3);
        assert!(picked(&mut draw, &Seats::default(), 2).is_empty());
    }
}
