//! The faults: which are drawn, and how they are done to the nodes.
//!
//! Promises: the same seed draws the same. Absent by design: any expectation of what follows.

use super::cluster::{Cluster, Seats};
use super::cuts::{Outcome, Plan};
use super::disks;
use super::kinds::Kind;
use super::machine::{CLIENTS, NAMES, NODES};
use super::nodes::Told;
use super::run::Run;
use runtime::random::SplitMix;
use std::time::Duration;

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
    /// The outcome of a cut that is over.
    pub outcome: Option<Outcome>,
}

/// A fault as it is drawn, before it is known which nodes there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drawn {
    kind: Kind,
    /// Time until a node is started again or continued, or a cut is lifted.
    time: Duration,
    is_leader: bool,
    turn: usize,
    with_clients: bool,
}

/// Draws one of these kinds, each with its share, and all else that is open.
fn drawn(draw: &mut SplitMix, shares: &[(Kind, u64)]) -> Drawn {
    let mut left = draw.below(shares.iter().map(|(_, share)| share).sum());
    let is_it = |(_, share): &&(Kind, u64)| {
        let is_it = left < *share;
        left = left.saturating_sub(*share);
        is_it
    };
    let (kind, _) = *shares.iter().find(is_it).expect("it is below the sum of all");
    let mut ms = |least: u64, most: u64| least + draw.below(most - least + 1);
    let ms = match kind {
        Kind::Kill0 => 0,
        Kind::Kill02 => 200,
        Kind::Kill5 => 5000,
        Kind::Kill1 | Kind::Down | Kind::Two | Kind::Three | Kind::Beside => 1000,
        Kind::Stop => ms(1000, 6000),
        // Long enough to tell clients that go on from such that wait for the lift.
        Kind::Cut | Kind::Alone | Kind::Deaf | Kind::Mute => ms(2000, 14_000),
        Kind::Pair => ms(3000, 10_000),
        // Here some client waits for the lift.
        Kind::Split | Kind::Client => ms(1000, 8000),
        Kind::Flap => 6000,
        Kind::Hang => ms(2000, 8000),
        Kind::HangBoth => ms(500, 4000),
        // Half of it without any fault, to compare with.
        Kind::Slow => 10_000,
    };
    let (leads, turn) = (draw.below(100) < 60, draw.next() as usize);
    let is_leader = (leads || kind.needs_leader()) && !matches!(kind, Kind::HangBoth | Kind::Slow);
    Drawn { kind, time: Duration::from_millis(ms), is_leader, turn, with_clients: draw.below(2) == 0 }
}

/// Picks nodes, the leader first or last.
fn picked(drawn: Drawn, seats: &Seats, count: usize) -> Vec<usize> {
    let mut others = seats.others.clone();
    others.sort_unstable();
    if !others.is_empty() {
        let turn = drawn.turn % others.len();
        others.rotate_left(turn);
    }
    let leader = seats.leader.into_iter();
    let ordered: Vec<usize> =
        if drawn.is_leader { leader.chain(others).collect() } else { others.into_iter().chain(leader).collect() };
    ordered.into_iter().take(count).collect()
}

/// Does a fault of one of these kinds to the nodes that there are. Nothing, if there is no node to which it can be done: the next one's turn comes. Errors: the product
/// refused.
pub fn next(
    run: &Run,
    cluster: &mut Cluster<'_>,
    draw: &mut SplitMix,
    (shares, mut seats): (&[(Kind, u64)], Seats),
) -> Result<Option<Fault>, String> {
    let drawn = drawn(draw, shares);
    // A node may still answer to which something is being done.
    seats.others.retain(|at| cluster.nodes[*at].told() == Told::Runs);
    seats.leader = seats.leader.filter(|at| cluster.nodes[*at].told() == Told::Runs);
    let count = match drawn.kind {
        Kind::Two | Kind::HangBoth => 2,
        Kind::Three => 3,
        _ => 1,
    };
    let picked = picked(drawn, &seats, count);
    let Some(&first) = picked.first() else { return Ok(None) };
    let part = if seats.leader == Some(first) { Part::Leads } else { Part::Follows };
    if drawn.kind.needs_leader() && (part != Part::Leads || seats.others.is_empty()) {
        return Ok(None);
    }
    let at = run.now();
    let told = done((run, cluster), drawn, &picked, &seats)?;
    // Back at once is at once.
    cluster.tend()?;
    let kind = if count == 1 && !seats.are_whole { Kind::Beside } else { drawn.kind };
    let told = match part {
        Part::Leads => format!("{told}; it leads, and {} of 3 answered", seats.all()),
        Part::Follows => format!("{told}; it follows, and {} of 3 answered", seats.all()),
    };
    Ok(Some(Fault { kind, part, at, told, outcome: None }))
}

/// Does it to the nodes that were picked; the fault in words.
fn done(
    (run, cluster): (&Run, &mut Cluster<'_>),
    drawn: Drawn,
    picked: &[usize],
    seats: &Seats,
) -> Result<String, String> {
    let Drawn { kind, time, turn, with_clients, .. } = drawn;
    let node = picked[0];
    if kind.is_of_disks() {
        let plan = disks::Plan { kind, nodes: picked.to_vec(), time };
        let told = plan.told(&NAMES);
        cluster.begin_disks(plan, run)?;
        return Ok(told);
    }
    if kind.is_of_networks() {
        let chosen = match kind {
            Kind::Split | Kind::Client => NODES + turn % CLIENTS,
            Kind::Pair => seats.others[turn % seats.others.len()],
            _ => node,
        };
        let plan = Plan { kind, node, chosen, with_clients, time };
        let told = plan.told(&NAMES);
        cluster.begin_cut(plan, seats)?;
        return Ok(told);
    }
    let names: Vec<&str> = picked.iter().map(|at| NAMES[*at]).collect();
    let names = names.join(", ");
    Ok(match kind {
        Kind::Down => {
            cluster.nodes[node].take_down()?;
            format!("{names} taken down")
        }
        Kind::Stop => {
            cluster.nodes[node].stop(time);
            format!("{names} stopped for {time:?}")
        }
        _ => {
            // None of several sees the end of another one.
            picked.iter().for_each(|at| cluster.nodes[*at].strike());
            picked.iter().for_each(|at| cluster.nodes[*at].kill(time));
            format!("{names} killed, back after {time:?}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_drawn_as_often_as_is_told() {
        let mut draw = SplitMix(1);
        let all: Vec<Drawn> = (0..10_000).map(|_| drawn(&mut draw, &Kind::shares(false, false))).collect();
        let share = |wanted: fn(&Drawn) -> bool| all.iter().filter(|drawn| wanted(drawn)).count() / 100;
        assert!((58..62).contains(&share(|drawn| drawn.kind.is_kill())));
        assert!((4..7).contains(&share(|drawn| drawn.kind == Kind::Three)));
        assert!((18..22).contains(&share(|drawn| drawn.kind == Kind::Down)));
        assert!((8..12).contains(&share(|drawn| drawn.kind == Kind::Stop)));
        assert!(all.iter().all(|drawn| !drawn.kind.is_of_networks()));
        let only = [(Kind::Deaf, 1), (Kind::Kill02, 1)];
        let all: Vec<Drawn> = (0..1000).map(|_| drawn(&mut draw, &only)).collect();
        let of = |kind| all.iter().filter(|drawn| drawn.kind == kind).count();
        assert!((450..550).contains(&of(Kind::Deaf)) && of(Kind::Deaf) + of(Kind::Kill02) == 1000);
        assert!(all.iter().all(|drawn| drawn.kind == Kind::Deaf || drawn.time == Duration::from_millis(200)));
    }

    #[test]
    fn the_node_that_leads_is_picked_in_60_of_100_cases() {
        let (mut draw, seats) = (SplitMix(1), Seats { leader: Some(0), others: vec![2, 1], ..Seats::default() });
        let mut times = [0; 3];
        (0..10_000).for_each(|_| times[picked(drawn(&mut draw, &[(Kind::Kill1, 1)]), &seats, 1)[0]] += 1);
        assert!((5800..6200).contains(&times[0]) && times[1..].iter().all(|times| (1800..2200).contains(times)));
        let pair = drawn(&mut draw, &[(Kind::Pair, 1)]);
        assert_eq!((picked(pair, &seats, 1), picked(pair, &seats, 3).len()), (vec![0], 3));
        assert!(picked(pair, &Seats::default(), 2).is_empty());
    }
}
