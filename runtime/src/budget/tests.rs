//! The budget against clients of several kinds, and against each other.

use super::Agent;
use super::core::{CLASSES, Clients, Core, TURN_NS};
use crate::histogram::Histogram;
use crate::random::SplitMix;
use std::cell::RefCell;

const MS: u64 = 1_000_000;

/// Clients that send a request every `every_ns` (0: none), which takes `alone_ns`, and so many percent more while any agent works.
/// Some take ten times as long.
struct Plant {
    every_ns: u64,
    alone_ns: u64,
    more_percent: u64,
    /// Percent of the requests that are slow, and by which these take longer than the others do.
    slow_percent: u64,
    tail_percent: u64,
    rng: SplitMix,
    told: Histogram,
}

impl Plant {
    fn new(every_ns: u64, more_percent: u64) -> Plant {
        let (rng, told) = (SplitMix(7), Histogram::default());
        Plant { every_ns, alone_ns: 500_000, more_percent, slow_percent: 1, tail_percent: 0, rng, told }
    }
    fn request(&mut self, is_beside: bool) {
        let is_slow = self.rng.below(100) < self.slow_percent;
        let base_ns = if is_slow { 10 * self.alone_ns } else { self.alone_ns };
        let percent = match (is_beside, is_slow) {
            (false, _) => 0,
            (true, false) => self.more_percent,
            (true, true) => self.more_percent + self.tail_percent,
        };
        let chance_ns = base_ns * self.rng.below(60) / 1000;
        self.told.record(base_ns + base_ns * percent / 100 + chance_ns);
    }
    fn clients(&self) -> Clients {
        let mut clients = Clients::default();
        clients.0[0] = self.told.summary();
        clients
    }
}

/// The course of a run.
struct Seen {
    /// Nanoseconds of work by second and agent.
    worked_ns: Vec<[u64; Agent::ALL.len()]>,
}

impl Seen {
    /// The share of the last seconds in which an agent worked.
    fn share(&self, agent: Agent, seconds: usize) -> f64 {
        let last = &self.worked_ns[self.worked_ns.len() - seconds..];
        last.iter().map(|second| second[agent as usize]).sum::<u64>() as f64 / (seconds as f64 * 1e9)
    }
}

/// Runs agents, each with slices of so many nanoseconds, in steps of 50 us.
fn run(plant: Plant, agents: &[(Agent, u64)], seconds: u64) -> Seen {
    const STEP_NS: u64 = 50_000;
    let (mut core, plant) = (Core::new(0), RefCell::new(plant));
    let mut seen = Seen { worked_ns: Vec::new() };
    let mut ends_ns = vec![None; agents.len()];
    let mut asks_ns = vec![0; agents.len()];
    let mut now_ns = 0;
    for _ in 0..seconds {
        let mut worked_ns = [0; Agent::ALL.len()];
        for _ in 0..1_000_000_000 / STEP_NS {
            for (number, (agent, slice_ns)) in agents.iter().enumerate() {
                if ends_ns[number].is_some_and(|end_ns| now_ns >= end_ns) {
                    core.ended(now_ns, *agent, || plant.borrow().clients());
                    ends_ns[number] = None;
                }
                if ends_ns[number].is_none() && now_ns >= asks_ns[number] {
                    match core.ask(now_ns, *agent, || plant.borrow().clients()) {
                        0 => ends_ns[number] = Some(now_ns + slice_ns),
                        // As the drives do: a controller looks again soon.
                        wait_ns => asks_ns[number] = now_ns + wait_ns.min(20 * MS),
                    }
                }
                if ends_ns[number].is_some() {
                    worked_ns[*agent as usize] += STEP_NS;
                }
            }
            let is_beside = ends_ns.iter().any(Option::is_some);
            let every_ns = plant.borrow().every_ns;
            let come = |until_ns: u64| until_ns.checked_div(every_ns).unwrap_or(0);
            let come = come(now_ns + STEP_NS) - come(now_ns);
            (0..come).for_each(|_| plant.borrow_mut().request(is_beside));
            now_ns += STEP_NS;
        }
        seen.worked_ns.push(worked_ns);
    }
    seen
}

const SCRUB: (Agent, u64) = (Agent::Scrub, 200_000);

#[test]
fn without_clients_an_agent_soon_works_all_the_time() {
    let seen = run(Plant::new(0, 0), &[SCRUB], 3);
    // A step of the model passes between two slices.
    assert!(seen.share(Agent::Scrub, 1) > 0.7, "{:?}", seen.worked_ns);
}

#[test]
fn clients_that_are_not_harmed_leave_half_of_the_time() {
    let seen = run(Plant::new(50_000, 0), &[SCRUB], 20);
    assert!((0.35..=0.5).contains(&seen.share(Agent::Scrub, 10)), "{:?}", seen.worked_ns);
}

#[test]
fn clients_that_are_harmed_come_first_and_every_agent_gets_on() {
    for agents in [&[SCRUB][..], &[SCRUB, (Agent::Free, 250 * MS)], &Agent::ALL.map(|agent| (agent, MS))] {
        let seen = run(Plant::new(50_000, 300), agents, 60);
        for (agent, _) in agents {
            let share = seen.share(*agent, 50);
            // With the rests, a floor is half of itself; a long slice makes the rest before it longer instead.
            let most = agent.floor() as f64 / 1000.0 + 0.035;
            assert!(share <= most && share >= 0.001, "{agent:?} of {agents:?}: {share}");
        }
    }
}

/// Requests are as fast as ever, but for the slowest hundredth.
#[test]
fn a_longer_tail_is_harm_too() {
    let seen = run(Plant { slow_percent: 4, tail_percent: 300, ..Plant::new(50_000, 0) }, &[SCRUB], 60);
    let harmless = run(Plant::new(50_000, 0), &[SCRUB], 60);
    let shares = [seen.share(Agent::Scrub, 50), harmless.share(Agent::Scrub, 50)];
    assert!(shares[0] < 0.75 * shares[1], "{shares:?}");
}

#[test]
fn few_requests_get_half_of_the_turns() {
    let seen = run(Plant::new(30 * MS, 300), &[SCRUB], 10);
    let share = seen.share(Agent::Scrub, 5);
    assert!((0.1..=0.27).contains(&share), "half of a half: {share}");
}

#[test]
fn agents_divide_the_time_by_weight_and_one_alone_has_all() {
    let both = [(Agent::Scrub, MS), (Agent::Free, MS)];
    let seen = run(Plant::new(50_000, 0), &both, 20);
    let [scrub, free] = [Agent::Scrub, Agent::Free].map(|agent| seen.share(agent, 10));
    assert!((1.7..=2.3).contains(&(free / scrub)), "{free} to {scrub}");
    let alone = run(Plant::new(50_000, 0), &both[..1], 20).share(Agent::Scrub, 10);
    assert!((0.9..=1.1).contains(&(alone / (scrub + free))), "{alone} alone, {scrub} and {free}");
}

/// A slice that goes on hides what requests take without it.
#[test]
fn a_rest_begins_when_the_last_slice_has_ended() {
    let none = || Clients(std::array::from_fn(|_| Histogram::default().summary()));
    let some = || {
        let told = Histogram::default();
        (0..100).for_each(|_| told.record(1000));
        Clients(std::array::from_fn(|_| told.summary()))
    };
    assert_eq!(none().0.len(), CLASSES);
    let mut core = Core::new(0);
    assert_eq!(core.ask(TURN_NS - 1, Agent::Scrub, none), 1);
    assert_eq!(core.ask(TURN_NS, Agent::Scrub, none), 0);
    assert!(core.ask(2 * TURN_NS, Agent::Free, some) > 0, "a turn of work is over, and clients were there");
    core.ended(10 * TURN_NS, Agent::Scrub, some);
    assert_eq!(core.ask(10 * TURN_NS + 1, Agent::Free, some), TURN_NS - 1);
    assert_eq!(core.ask(11 * TURN_NS, Agent::Free, some), 0);
    core.ended(11 * TURN_NS + MS, Agent::Free, some);
}

/// A disk that stands still keeps its own agent, and nobody else.
#[test]
fn a_slice_that_does_not_end_keeps_no_other_agent_from_work() {
    let told = Histogram::default();
    let mut core = Core::new(0);
    let mut slices = 0;
    assert_eq!(core.ask(TURN_NS, Agent::Destage, Clients::default), 0);
    for now_ns in (TURN_NS..200 * TURN_NS).step_by(10 * MS as usize) {
        told.record(1000);
        let clients = || Clients(std::array::from_fn(|_| told.summary()));
        if core.ask(now_ns, Agent::Free, clients) == 0 {
            slices += 1;
            core.ended(now_ns + MS, Agent::Free, clients);
        }
    }
    assert!(slices > 20, "in twenty seconds: {slices}");
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn each_bug_is_noticed_by_its_test() {
    let test = clients_that_are_harmed_come_first_and_every_agent_gets_on;
    assert!(base::seeded::fails(test, base::seeded::Bug::BudgetIgnored));
}
