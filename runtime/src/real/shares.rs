//! Shares of a core's time: whose tasks run next, as a pure core (mission T3; docs/decisions/0069).
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996) of core time: a flow's turn gets a start tag, the greater of the virtual time
//! and the end of the flow's turn before; the least start tag goes first and is the virtual time from then on; a turn's end is its
//! start and the time it took, by the flow's weight. So a flow that uses less than its share goes first whenever it has something to
//! do, and one that wants all shares what is left. How long a turn takes is known only when it has ended, which this order does not
//! need. Absent by design: queues of tasks (the executor's), clocks, and what belongs to no flow.

use base::limits::WEIGHT;
use base::seeded::{Bug, active};

/// Turns of the core for which a flow counts as one of those that share it after it last had something to do: some milliseconds of a
/// busy core, so that a client that thinks between two requests shares it.
const RECENT_TURNS: u64 = 1024;
/// Longest time for which a flow should keep the core while others share it, in nanoseconds: about two small requests. A large
/// request's bytes are copied in one piece and may take longer.
const TURN_NS: u64 = 50_000;
/// Weight of the newest turn in the mean time of a flow's tasks: an eighth, so that one large request among small ones is soon
/// forgotten.
const NEWEST: u64 = 8;

/// A flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// True if a task of it is ready.
    ready: bool,
    /// The core's turn in which one was ready last; 0: never.
    last_turn: u64,
    /// Virtual times in nanoseconds: the tag of its next turn, and the end of the one before.
    start: u64,
    end: u64,
    /// Mean time of its tasks in the last turns, in nanoseconds.
    task_ns: u64,
}

/// The flows of a core.
#[derive(Default)]
pub(super) struct Shares {
    flows: Vec<Flow>,
    virtual_ns: u64,
    turn: u64,
}

impl Shares {
    /// Adds a flow, or takes the place of one that is gone.
    pub fn add(&mut self, flow: usize) {
        if flow == self.flows.len() {
            self.flows.push(Flow::default());
        }
        // A flow of which nothing is known gets a task at a time.
        let (start, end) = (self.virtual_ns, self.virtual_ns);
        self.flows[flow] = Flow { start, end, task_ns: TURN_NS, ..Flow::default() };
    }
    /// Notes that a flow which had no ready task has one.
    #[inline]
    pub fn ready(&mut self, flow: usize) {
        let virtual_ns = self.virtual_ns;
        let flow = &mut self.flows[flow];
        flow.ready = true;
        flow.start = flow.end.max(virtual_ns);
    }
    /// Notes that no task of a flow is ready any more.
    #[inline]
    pub fn done(&mut self, flow: usize) {
        self.flows[flow].ready = false;
    }
    /// Begins a turn of the core. Calls `recent` with each flow that shares it, and returns their number.
    pub fn begin(&mut self, mut recent: impl FnMut(usize)) -> usize {
        self.turn += 1;
        let turn = self.turn;
        let mut count = 0;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            if flow.ready {
                flow.last_turn = turn;
            }
            if flow.last_turn > 0 && turn - flow.last_turn < RECENT_TURNS {
                recent(number);
                count += 1;
            }
        }
        count
    }
    /// The flow that comes first, and the number of its tasks that may run, of `most`; None if no flow has a ready task.
    pub fn first(&mut self, most: usize) -> Option<(usize, usize)> {
        let ready = (0..self.flows.len()).filter(|flow| self.flows[*flow].ready);
        let first = ready.min_by_key(|flow| self.flows[*flow].start)?;
        let Flow { start, task_ns, .. } = self.flows[first];
        self.virtual_ns = self.virtual_ns.max(start);
        Some((first, TURN_NS.checked_div(task_ns).map_or(most, |tasks| (tasks as usize).clamp(1, most))))
    }
    /// Charges a flow with a turn that it had while others shared the core. `tasks`: of it that ran.
    pub fn charge(&mut self, flow: usize, weight: u64, tasks: usize, took_ns: u64) {
        if active(Bug::TurnsUncharged) {
            return;
        }
        let flow = &mut self.flows[flow];
        flow.end = flow.start.saturating_add(took_ns.saturating_mul(WEIGHT) / weight.max(1));
        flow.start = flow.end;
        let task_ns = took_ns / tasks.max(1) as u64;
        flow.task_ns = flow.task_ns - flow.task_ns / NEWEST + task_ns / NEWEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A number below `bound`, by a linear congruential generator (Knuth's MMIX).
    fn below(random: &Cell<u64>, bound: u64) -> u64 {
        random.set(random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (random.get() >> 33) % bound
    }

    /// A core whose flows have tasks that take so long, in nanoseconds; a flow thinks so long after each task, or always has one ready.
    struct Model {
        shares: Shares,
        flows: Vec<(u64, Option<u64>, u64)>,
        wakes_ns: Vec<u64>,
        now_ns: u64,
        ran_ns: Vec<u64>,
        tasks: Vec<u64>,
        waited_ns: Vec<u64>,
    }

    impl Model {
        fn new(flows: &[(u64, Option<u64>, u64)]) -> Model {
            let mut shares = Shares::default();
            (0..flows.len()).for_each(|flow| shares.add(flow));
            let none = vec![0; flows.len()];
            let (flows, wakes_ns, waited_ns) = (flows.to_vec(), none.clone(), none.clone());
            Model { shares, flows, wakes_ns, now_ns: 0, ran_ns: none.clone(), tasks: none, waited_ns }
        }
        fn run(&mut self, until_ns: u64) {
            let random = Cell::new(1);
            let mut is_ready = vec![false; self.flows.len()];
            while self.now_ns < until_ns {
                for (flow, ready) in is_ready.iter_mut().enumerate() {
                    if !*ready && self.wakes_ns[flow] <= self.now_ns {
                        *ready = true;
                        self.shares.ready(flow);
                    }
                }
                self.shares.begin(|_| ());
                let Some((flow, most)) = self.shares.first(4) else {
                    self.now_ns = self.wakes_ns.iter().copied().min().expect("there are flows");
                    continue;
                };
                let (task_ns, think_ns, weight) = self.flows[flow];
                let tasks = if think_ns.is_some() { 1 } else { most };
                let took_ns = (0..tasks).map(|_| task_ns / 2 + below(&random, task_ns + 1)).sum::<u64>();
                self.waited_ns[flow] = self.waited_ns[flow].max(self.now_ns - self.wakes_ns[flow]);
                self.now_ns += took_ns;
                self.ran_ns[flow] += took_ns;
                self.tasks[flow] += tasks as u64;
                if let Some(think_ns) = think_ns {
                    is_ready[flow] = false;
                    self.shares.done(flow);
                    self.wakes_ns[flow] = self.now_ns + think_ns;
                } else {
                    self.wakes_ns[flow] = self.now_ns;
                }
                self.shares.charge(flow, weight, tasks, took_ns);
            }
        }
        fn share(&self, flow: usize) -> f64 {
            self.ran_ns[flow] as f64 / self.ran_ns.iter().sum::<u64>() as f64
        }
    }

    #[test]
    fn flows_that_want_all_share_by_weight_whatever_their_tasks_take() {
        for tasks_ns in [[10_000, 10_000], [10_000, 300_000], [300_000, 5_000]] {
            for (weights, expected) in [([100, 100], 0.5), ([300, 100], 0.75), ([1, 999], 0.001)] {
                let flows = [(tasks_ns[0], None, weights[0]), (tasks_ns[1], None, weights[1])];
                let mut model = Model::new(&flows);
                model.run(5_000_000_000);
                assert!((model.share(0) - expected).abs() < 0.01, "{flows:?}: {}", model.share(0));
            }
        }
    }

    /// A client with one request in flight waits for one turn of the others at most, though these keep the core busy.
    #[test]
    fn who_uses_less_than_its_share_waits_for_one_turn() {
        let mut model = Model::new(&[(300_000, None, 100), (20_000, Some(60_000), 100), (10_000, None, 100)]);
        model.run(5_000_000_000);
        assert!(model.waited_ns[1] <= 500_000, "{:?}", model.waited_ns);
        let rate = model.tasks[1] as f64 / 5.0;
        assert!(rate > 3000.0, "{rate} a second: it could do 12,500 alone, and every second turn takes 300 us");
    }

    #[test]
    fn no_flow_starves_and_eight_equal_ones_are_equal() {
        let flows: Vec<_> = (0..8).map(|flow| (10_000 << (flow % 4), None, 100)).collect();
        let mut model = Model::new(&flows);
        model.run(5_000_000_000);
        let (sum, squares) = model
            .ran_ns
            .iter()
            .fold((0.0, 0.0), |(sum, squares), ran| (sum + *ran as f64, squares + (*ran as f64).powi(2)));
        assert!(sum * sum / (8.0 * squares) > 0.99, "Jain's index: {:?}", model.ran_ns);
        assert!(model.waited_ns.iter().all(|waited| *waited < 10_000_000), "{:?}", model.waited_ns);
    }

    /// A flow that was idle for long has saved nothing, and one that was alone owes nothing.
    #[test]
    fn idle_time_is_neither_saved_nor_owed() {
        let mut model = Model::new(&[(10_000, None, 100), (10_000, Some(1_000_000_000), 100)]);
        model.run(3_000_000_000);
        model.flows[1].1 = None;
        model.wakes_ns[1] = model.now_ns;
        let before = model.ran_ns.clone();
        let until_ns = model.now_ns + 100_000_000;
        model.run(until_ns);
        let ran: Vec<_> = model.ran_ns.iter().zip(before).map(|(ran, before)| ran - before).collect();
        assert!(ran[0].abs_diff(ran[1]) < 1_000_000, "{ran:?}");
    }

    #[test]
    fn one_flow_shares_with_nobody_and_a_second_one_only_for_a_while() {
        let mut shares = Shares::default();
        shares.add(0);
        shares.add(1);
        shares.ready(0);
        let begin = |shares: &mut Shares| {
            let mut seen = Vec::new();
            let count = shares.begin(|flow| seen.push(flow));
            assert_eq!(seen.len(), count);
            seen
        };
        assert_eq!(begin(&mut shares), [0]);
        shares.ready(1);
        assert_eq!(begin(&mut shares), [0, 1]);
        shares.done(1);
        assert!((0..RECENT_TURNS - 1).all(|_| begin(&mut shares) == [0, 1]));
        assert_eq!(begin(&mut shares), [0]);
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn each_bug_is_noticed_by_its_test() {
        let test = flows_that_want_all_share_by_weight_whatever_their_tasks_take;
        assert!(base::seeded::fails(test, Bug::TurnsUncharged));
    }
}
