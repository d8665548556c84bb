//! The cuts of networks: which directions each kind cuts, how long it lasts, and what became of the leader meanwhile.
//!
//! Promises: what was cut is lifted when its time is over. Absent by design: the choice of the kind and of the node.

use super::kinds::Kind;
use super::machine::{CLIENTS, Cut, NODES, Network};
use std::time::{Duration, Instant};

/// Time from the lift of a cut to the look at who leads: a node that comes back would campaign at once.
const SETTLES: Duration = Duration::from_secs(2);
/// Pause between two questions to a leader that is cut off.
const ASK: Duration = Duration::from_millis(200);

/// A cut as it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub kind: Kind,
    /// The node to which it is done.
    pub node: usize,
    /// The node or client that is on the other side, or on the same, where one is chosen.
    pub chosen: usize,
    /// True if clients are cut off too where the kind leaves that open.
    pub with_clients: bool,
    pub time: Duration,
}

/// The state of the leader during a cut and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Time until a leader that was parted from the majority said that it leads no more, or until the lift.
    pub led_on: Option<Duration>,
    /// True if the same node leads in the same term as before.
    pub is_kept: bool,
}

/// A node that leads, and its term.
pub type Leader = Option<(usize, u64)>;

/// A cut under way.
pub struct UnderWay {
    plan: Plan,
    before: Leader,
    began: Instant,
    is_out: bool,
    lifted: Option<Instant>,
    asked: Instant,
    /// True while a leader that is parted from the majority has not said yet that it leads no more.
    is_parted: bool,
    led_on: Option<Duration>,
}

impl Plan {
    /// The directions that it cuts.
    fn cut(&self) -> Cut {
        let all = 0..NODES + CLIENTS;
        let (node, chosen) = (self.node, self.chosen);
        let both = |ones: &[usize], others: &[usize]| {
            ones.iter().flat_map(|one| others.iter().flat_map(|other| [(*one, *other), (*other, *one)])).collect()
        };
        let beside = |least: &dyn Fn(usize) -> bool| -> Vec<usize> { all.clone().filter(|at| least(*at)).collect() };
        let others = beside(&|at| at != node);
        let heard = beside(&|at| at != node && (at < NODES || self.with_clients));
        match self.kind {
            Kind::Cut => both(&[node], &others),
            Kind::Alone => both(&[node], &beside(&|at| at != node && at < NODES)),
            Kind::Split => both(&[node, chosen], &beside(&|at| at != node && at != chosen)),
            Kind::Deaf => heard.iter().map(|other| (*other, node)).collect(),
            Kind::Mute => heard.iter().map(|other| (node, *other)).collect(),
            Kind::Pair | Kind::Client => both(&[node], &[chosen]),
            _ => Vec::new(),
        }
    }
    /// The plan in words.
    pub fn told(&self, names: &[&str]) -> String {
        let (name, chosen, time) = (names[self.node], names[self.chosen], self.time);
        let whom = if self.with_clients { "nodes and clients" } else { "nodes" };
        match self.kind {
            Kind::Cut => format!("{name} cut off from all for {time:?}"),
            Kind::Alone => format!("{name} cut off from the other nodes for {time:?}"),
            Kind::Split => format!("{name} and {chosen} cut off from the others for {time:?}"),
            Kind::Deaf => format!("{name} does not hear {whom} for {time:?}"),
            Kind::Mute => format!("{name} is not heard by {whom} for {time:?}"),
            Kind::Pair | Kind::Client => format!("{name} and {chosen} cut off from each other for {time:?}"),
            _ => format!("{name}'s cable goes out and in for {time:?}"),
        }
    }
}

impl UnderWay {
    /// Begins it. `before`: who leads.
    pub fn begin(plan: Plan, before: Leader, network: &Network) -> Result<UnderWay, String> {
        network.set(&plan.cut(), true)?;
        let began = Instant::now();
        let is_parted = plan.kind.parts_from_majority() && before.is_some_and(|(leader, _)| leader == plan.node);
        Ok(UnderWay { plan, before, began, is_out: false, lifted: None, asked: began, is_parted, led_on: None })
    }
    /// Lifts it at once.
    pub fn lift(&mut self, network: &Network) -> Result<(), String> {
        if self.lifted.is_none() {
            self.lifted = Some(Instant::now());
            if std::mem::take(&mut self.is_parted) {
                self.led_on = Some(self.began.elapsed());
            }
            network.set(&self.plan.cut(), false)?;
            self.plug(true, network)?;
        }
        Ok(())
    }
    /// Goes on with it; its outcome when it is over. `leads`: asks a node whether it leads; `leader`: asks all.
    pub fn tend(
        &mut self,
        network: &Network,
        leads: impl Fn(usize) -> bool,
        leader: impl Fn() -> Leader,
    ) -> Result<Option<Outcome>, String> {
        if let Some(lifted) = self.lifted {
            let is_over = lifted.elapsed() >= SETTLES;
            let outcome = || Outcome { led_on: self.led_on, is_kept: self.before.is_some() && leader() == self.before };
            return Ok(is_over.then(outcome));
        }
        let lasts = self.began.elapsed();
        if lasts >= self.plan.time {
            self.lift(network)?;
        } else if self.plan.kind == Kind::Flap {
            self.plug(!is_out(lasts), network)?;
        } else if self.is_parted && self.asked.elapsed() >= ASK {
            self.asked = Instant::now();
            self.is_parted = leads(self.plan.node);
            // Its answer may wait for the end of its lease, so the moment of the question tells less.
            self.led_on = (!self.is_parted).then(|| self.began.elapsed());
        }
        Ok(None)
    }
    fn plug(&mut self, is_in: bool, network: &Network) -> Result<(), String> {
        if self.is_out == is_in {
            self.is_out = !is_in;
            network.plug(self.plan.node, is_in)?;
        }
        Ok(())
    }
}

/// True if the cable is out so long after the begin: for 0.1, 0.2 up to 0.9 s, and in for as long after each.
fn is_out(lasts: Duration) -> bool {
    let (mut at, ms) = (0, lasts.as_millis());
    for tenth in 1.. {
        let end = at + 2 * 100 * tenth;
        if ms < end {
            return ms < at + 100 * tenth;
        }
        at = end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: Kind, chosen: usize, with_clients: bool) -> Plan {
        Plan { kind, node: 1, chosen, with_clients, time: Duration::from_secs(3) }
    }

    #[test]
    fn each_kind_cuts_its_directions() {
        let cut = |kind, chosen, with_clients| {
            let mut cut = plan(kind, chosen, with_clients).cut();
            cut.sort_unstable();
            cut
        };
        assert_eq!(cut(Kind::Pair, 2, true), [(1, 2), (2, 1)]);
        assert_eq!(cut(Kind::Client, 4, true), [(1, 4), (4, 1)]);
        assert_eq!(cut(Kind::Mute, 0, false), [(1, 0), (1, 2)]);
        assert_eq!(cut(Kind::Deaf, 0, true), [(0, 1), (2, 1), (3, 1), (4, 1)]);
        assert_eq!(cut(Kind::Alone, 0, true), [(0, 1), (1, 0), (1, 2), (2, 1)]);
        assert_eq!(cut(Kind::Cut, 0, false).len(), 8);
        // The leader and desk1 on one side.
        let split = cut(Kind::Split, 3, false);
        assert_eq!(split.len(), 2 * 2 * 3);
        assert!(!split.contains(&(1, 3)) && split.contains(&(3, 4)) && split.contains(&(2, 3)));
        assert!(cut(Kind::Flap, 0, true).is_empty());
    }

    #[test]
    fn a_cable_is_out_for_longer_each_time() {
        let out = |ms| is_out(Duration::from_millis(ms));
        assert_eq!([0, 99, 100, 199, 200, 399, 400].map(out), [true, true, false, false, true, true, false]);
        assert!(plan(Kind::Mute, 0, false).told(&["n1", "n2", "n3"]).contains("n2 is not heard by nodes for 3s"));
    }
}
