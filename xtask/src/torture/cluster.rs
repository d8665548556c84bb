//! The cluster: a process for each node and one for each mount, on a site, so that each can be ended and started again at any moment.
//!
//! Promises: the processes end with the run; a node that ends unasked is told. Absent by design: any opinion on what the nodes say.

use super::cuts::{Leader, Outcome, Plan, UnderWay};
use super::disks;
use super::machine::NODES;
use super::nodes::{Node, Told};
use super::run::Run;
use super::site::{Mount, Site};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Pause between two looks at nodes that come back.
const LOOK: Duration = Duration::from_millis(200);

/// Records that a node which is there may lack: some seconds of them. One that stays behind does not count for a majority.
const LAG_MAX: u64 = 2000;

/// A cluster that runs.
pub struct Cluster<'a> {
    site: &'a Site<'a>,
    pub nodes: Vec<Node<'a>>,
    mounts: Vec<Mount<'a>>,
    cut: Option<UnderWay>,
    harmed: Option<disks::UnderWay>,
}

/// The state of the nodes at one moment, by their positions.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Seats {
    /// The node that leads, and its term.
    pub leader: Option<usize>,
    pub term: u64,
    /// The others that answer.
    pub others: Vec<usize>,
    /// The last record that the state of each that answers has.
    pub applied: Vec<u64>,
    /// True if all are there and one leads.
    pub are_whole: bool,
}

impl Seats {
    /// Reads the answer of `sinter cluster status --json` for a cluster on this machine, which asks all nodes.
    pub fn of(status: &Value) -> Option<Seats> {
        let mut found = Seats { are_whole: status["healthy"].as_bool()?, ..Seats::default() };
        status["nodes"].as_array()?.iter().enumerate().for_each(|(at, node)| found.take(at, node));
        Some(found)
    }
    /// Reads the answers of nodes, by position, each of which is that node's own view: it is asked for itself alone.
    pub fn of_all(answers: &[(usize, Value)]) -> Seats {
        let mut found = Seats::default();
        for (at, status) in answers {
            found.take(*at, &status["nodes"][*at]);
        }
        let is_healthy = |leader: usize| {
            answers.iter().any(|(at, status)| *at == leader && status["healthy"].as_bool() == Some(true))
        };
        let follows = |at: &usize| {
            answers
                .iter()
                .any(|(known, status)| known == at && status["nodes"][*at]["state"].as_str() == Some("follows"))
        };
        found.are_whole =
            found.others.len() + 1 == NODES && found.leader.is_some_and(is_healthy) && found.others.iter().all(follows);
        found
    }
    fn take(&mut self, at: usize, node: &Value) {
        self.applied.extend(node["replica"]["applied"].as_u64());
        match node["state"].as_str() {
            Some("leads") if self.leader.is_none() => {
                self.leader = Some(at);
                self.term = node["replica"]["term"].as_u64().unwrap_or_default();
            }
            None | Some("away") => {}
            Some(_) => self.others.push(at),
        }
    }
    /// The number of all that answer.
    pub fn all(&self) -> usize {
        self.others.len() + usize::from(self.leader.is_some())
    }
    /// True if all nodes are there and have the same records.
    fn rest(&self) -> bool {
        self.are_whole && self.applied.len() == NODES && self.lag() == 0
    }
    /// The records that the state of one has, and that of another one has not.
    fn lag(&self) -> u64 {
        let (least, most) = (self.applied.iter().min(), self.applied.iter().max());
        most.zip(least).map_or(0, |(most, least)| most - least)
    }
    fn leads(&self) -> Leader {
        self.leader.map(|leader| (leader, self.term))
    }
}

impl<'a> Cluster<'a> {
    /// Starts the nodes of a site, and mounts its volume.
    pub fn start(site: &'a Site<'a>) -> Result<Cluster<'a>, String> {
        let mut nodes =
            (0..NODES).map(|number| Node::start(site, number)).collect::<Result<Vec<Node<'_>>, String>>()?;
        nodes.iter_mut().try_for_each(Node::becomes_ready)?;
        Ok(Cluster { site, nodes, mounts: site.mounts()?, cut: None, harmed: None })
    }
    /// The paths of its mounts.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.path.clone()).collect()
    }
    /// Starts and continues the nodes whose time it is. Errors: a process has ended unasked.
    pub fn tend(&mut self) -> Result<(), String> {
        self.mounts.iter_mut().try_for_each(Mount::tend)?;
        self.nodes.iter_mut().try_for_each(Node::tend)
    }
    /// Asks for the nodes.
    pub fn seats(&self) -> Result<Seats, String> {
        self.site.seats(&std::array::from_fn(|at| self.nodes[at].told() == Told::Runs))
    }
    /// The state of the nodes in words.
    pub fn in_words(&self) -> String {
        self.site.in_words()
    }
    /// The nodes, if all are there, none is far behind, nothing is cut, and all disks work.
    pub fn whole(&self) -> Option<Seats> {
        let run = self.nodes.iter().all(|node| node.told() == Told::Runs);
        let seats = if run && !self.is_harmed() { self.seats().ok() } else { None };
        seats.filter(|seats| seats.are_whole && seats.lag() <= LAG_MAX)
    }
    /// True while a cut has no outcome yet, or a fault of disks is not over.
    pub fn is_harmed(&self) -> bool {
        self.cut.is_some() || self.harmed.is_some()
    }
    /// Begins a cut.
    pub fn begin_cut(&mut self, plan: Plan, seats: &Seats) -> Result<(), String> {
        let network = self.site.network.as_ref().ok_or("a cut needs --networks")?;
        self.cut = Some(UnderWay::begin(plan, seats.leads(), network)?);
        Ok(())
    }
    /// Goes on with a cut; its outcome when it is over.
    pub fn tend_cut(&mut self) -> Result<Option<Outcome>, String> {
        let (Some(network), Some(mut cut)) = (&self.site.network, self.cut.take()) else { return Ok(None) };
        let leader = || self.seats().unwrap_or_default().leads();
        let outcome = cut.tend(network, |node| self.site.leads(node), leader)?;
        if outcome.is_none() {
            self.cut = Some(cut);
        }
        Ok(outcome)
    }
    /// Begins a fault of disks.
    pub fn begin_disks(&mut self, plan: disks::Plan, run: &Run) -> Result<(), String> {
        let disks = self.site.disks.as_ref().ok_or("a fault of disks needs --disks")?;
        self.harmed = Some(disks::UnderWay::begin(plan, disks, run)?);
        Ok(())
    }
    /// Goes on with a fault of disks.
    pub fn tend_disks(&mut self, run: &Run) -> Result<(), String> {
        let (Some(disks), Some(mut harmed)) = (&self.site.disks, self.harmed.take()) else { return Ok(()) };
        if !harmed.tend(disks, run, &mut self.nodes)? {
            self.harmed = Some(harmed);
        }
        Ok(())
    }
    /// Lifts a cut that is left, and has disks go on.
    pub fn lift(&mut self, run: &Run) -> Result<(), String> {
        if let (Some(disks), Some(harmed)) = (&self.site.disks, self.harmed.take()) {
            harmed.end(disks, run, None)?;
        }
        match (&self.site.network, self.cut.take()) {
            (Some(network), Some(mut cut)) => cut.lift(network),
            _ => Ok(()),
        }
    }
    /// Waits for all nodes to be there. Errors: they are not in time.
    pub fn becomes_whole(&mut self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < patience {
            self.tend()?;
            if self.whole().is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("not all nodes are there after {patience:?}: {}", self.in_words()))
    }
    /// Waits until all nodes have the same records; nobody changes anything. Errors: they have not in time.
    pub fn comes_to_rest(&self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < patience {
            if self.seats()?.rest() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("the nodes lack records of each other {patience:?} after the last change: {}", self.in_words()))
    }
    /// Kills the processes of the mounts, so that whoever waits for them gets an error.
    pub fn kill(&self) {
        self.mounts.iter().for_each(Mount::kill);
    }
    /// Ends it in order, and has each brick looked through.
    pub fn end_and_check(self) -> Result<(), String> {
        let site = self.site;
        self.end()?;
        (0..NODES).try_for_each(|node| site.check(node))
    }
    /// Ends it in order: the mounts, whose contents are written back, then the nodes.
    pub fn end(mut self) -> Result<(), String> {
        self.mounts.into_iter().try_for_each(|mount| mount.end(self.site.undo))?;
        self.nodes.iter().for_each(Node::ask_to_end);
        self.nodes.iter_mut().try_for_each(Node::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_are_read_from_the_status() {
        let told = json!({ "healthy": false, "leader": "n2", "nodes": [
            { "name": "n1", "state": "follows", "pid": 11 },
            { "name": "n2", "state": "leads", "pid": 12, "replica": { "term": 7 } },
            { "name": "n3", "state": "away", "pid": null },
        ]});
        let seats = Seats::of(&told).expect("it is complete");
        assert_eq!(seats, Seats { leader: Some(1), term: 7, others: vec![0], ..Seats::default() });
        assert_eq!((seats.all(), seats.leads()), (2, Some((1, 7))));
        assert!(Seats::of(&json!({})).is_none());
    }

    #[test]
    fn each_node_is_believed_about_itself() {
        let view = |own: usize, state: &str, healthy: bool| {
            let mut nodes = vec![json!({ "state": "leads" }); 3];
            nodes[own] = json!({ "state": state, "replica": { "term": 4, "applied": 9 } });
            (own, json!({ "healthy": healthy, "nodes": nodes }))
        };
        let all = [view(0, "follows", true), view(1, "follows", false), view(2, "leads", true)];
        let applied = vec![9; 3];
        let whole = Seats { leader: Some(2), term: 4, others: vec![0, 1], applied, are_whole: true };
        assert_eq!(Seats::of_all(&all), whole);
        assert!(whole.rest() && !Seats { applied: vec![9, 9, 8], ..whole }.rest());
        assert!(!Seats::of_all(&all[1..]).are_whole);
        let all = [view(0, "seeks", true), view(1, "follows", true), view(2, "leads", true)];
        assert!(!Seats::of_all(&all).are_whole);
        let all = [view(0, "follows", true), view(1, "follows", true), view(2, "leads", false)];
        assert!(!Seats::of_all(&all).are_whole && Seats::of_all(&[]) == Seats::default());
    }
}
