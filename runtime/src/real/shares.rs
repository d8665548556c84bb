//! Shares of a core's time: whose tasks run next, as a pure core (mission T3; docs/decisions/0069).
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996) of core time: a flow's turn gets a start tag, the greater of the virtual time
//! and the end of the flow's turn before; the least start tag goes first and is the virtual time from then on; a turn's end is its
//! start and the time it took, by the flow's weight. So a flow that uses less than its share goes first whenever it has something to
//! do, and one that wants all shares what is left. How long a turn takes is known only when it has ended, which this order does not
//! need.
//!
//! Shares are of the brick, not of each core: each millisecond a core learns what its flows have had on the others (`correct`), and
//! those that have had more than the flow with the least wait for as long, up to a bound. So a flow that is busy on one core goes first
//! there before one that is busy on all.
//!
//! A flow may have a part of the time reserved. Flows then divide the time as mClock does (Gulati, Merchant, Varman, 2010): one whose part
//! by weight is less than its reservation is charged by a greater weight, with which it has just that; all others divide the rest by
//! weight. What a flow doesn't use, the others get. Flows of one tenant that share the core divide its weight and its reservation.
//!
//! Absent by design: queues of tasks (the executor's), clocks, and what belongs to no flow.

use crate::tasks::Claim;
use base::limits::{RESERVE_MAX, WEIGHT};
use base::seeded::{Bug, active};

/// Turns of the core for which a flow counts as one of those that share it after it last had something to do: some milliseconds of a
/// busy core, so that a client that thinks between two requests shares it.
const RECENT_TURNS: u64 = 1024;
/// Longest time for which a flow should keep the core while others share it, in nanoseconds: about two small requests. A large
/// request's bytes are copied in one piece and may take longer.
const TURN_NS: u64 = 50_000;
/// Time between two corrections, in nanoseconds: a hundred small requests, so that what cores tell each other costs none of them anything.
pub(super) const CORRECTION_NS: u64 = 1_000_000;
/// The most by which a flow may be behind the others for what it has had elsewhere, in nanoseconds of a flow of the usual weight: as long
/// as a client that comes back may find the core taken, and no longer.
const BEHIND_NS_MAX: u64 = 10_000_000;
/// Weight of the newest turn in the mean time of a flow's tasks: an eighth, so that one large request among small ones is soon
/// forgotten.
const NEWEST: u64 = 8;
/// Units of a weight by which time is charged: a reservation may come to less than a weight of 1.
pub(super) const WEIGHT_UNITS: u64 = 1000;
/// The units of a percent in which parts of the time are reckoned, so that those scaled down are not rounded away.
const PERCENT_UNITS: u64 = 100;

/// A flow.
#[derive(Clone, Copy)]
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
    /// Time that it has had here and that the other cores were not told of, and its time on all cores as of the last correction.
    untold_ns: u64,
    known_ns: u64,
    /// Time that it has had on other cores between the last two corrections, by its weight.
    elsewhere_ns: u64,
    tenant: usize,
    claim: Claim,
    /// Number of its tenant's flows among those that share the core, at least 1.
    siblings: u64,
    /// Weight by which it is charged, in `WEIGHT_UNITS`.
    charged_by: u64,
    /// True if that is greater than its own, for the sake of its reservation.
    raised: bool,
}

impl Default for Flow {
    /// A flow that never had anything to do, of which nothing is known: it gets a task at a time.
    fn default() -> Flow {
        Flow {
            ready: false,
            last_turn: 0,
            start: 0,
            end: 0,
            task_ns: TURN_NS,
            untold_ns: 0,
            known_ns: 0,
            elsewhere_ns: 0,
            tenant: 0,
            claim: Claim { weight: WEIGHT, reserve: 0 },
            siblings: 1,
            charged_by: WEIGHT * WEIGHT_UNITS,
            raised: false,
        }
    }
}

impl Flow {
    /// True if in this turn of the core it is one of those that share it.
    fn shares_in(&self, turn: u64) -> bool {
        self.last_turn > 0 && turn - self.last_turn < RECENT_TURNS
    }
    /// Its own part of its tenant's weight, in `WEIGHT_UNITS`.
    fn own_weight(&self) -> u64 {
        self.claim.weight * WEIGHT_UNITS / self.siblings
    }
    /// A time, as it counts for a flow of this weight.
    fn charged_ns(&self, ns: u64) -> u64 {
        ns.saturating_mul(WEIGHT * WEIGHT_UNITS) / self.charged_by
    }
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
        let (start, end) = (self.virtual_ns, self.virtual_ns);
        self.flows[flow] = Flow { start, end, ..Flow::default() };
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
            if flow.shares_in(turn) {
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
    pub fn charge(&mut self, flow: usize, tasks: usize, took_ns: u64) {
        if active(Bug::TurnsUncharged) {
            return;
        }
        let flow = &mut self.flows[flow];
        flow.end = flow.start.saturating_add(flow.charged_ns(took_ns));
        flow.start = flow.end;
        flow.untold_ns += took_ns;
        let task_ns = took_ns / tasks.max(1) as u64;
        flow.task_ns = flow.task_ns - flow.task_ns / NEWEST + task_ns / NEWEST;
    }
    /// Charges a flow with a turn in which nobody else wanted the core: the other cores learn of it.
    pub fn charge_elsewhere(&mut self, flow: usize, took_ns: u64) {
        self.flows[flow].untold_ns += took_ns;
    }
    /// Takes over what flows' tenants claim, and returns the weights by which flows are charged from now on, in `WEIGHT_UNITS`, in the
    /// order of their numbers. `claim`: a flow's tenant, and its claim.
    pub fn weigh(&mut self, claim: impl Fn(usize) -> (usize, Claim)) -> impl Iterator<Item = u64> {
        let turn = self.turn;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            ((flow.tenant, flow.claim), flow.raised) = (claim(number), false);
        }
        for number in 0..self.flows.len() {
            let tenant = self.flows[number].tenant;
            let siblings = self.flows.iter().filter(|flow| flow.tenant == tenant && flow.shares_in(turn)).count();
            self.flows[number].siblings = siblings.max(1) as u64;
        }
        let sharing = self.flows.iter().filter(|flow| flow.shares_in(turn));
        let reserved: u64 = sharing.map(|flow| flow.claim.reserve * PERCENT_UNITS / flow.siblings).sum();
        let most = RESERVE_MAX * PERCENT_UNITS;
        let part = |flow: &Flow| flow.claim.reserve * PERCENT_UNITS * most / reserved.max(most) / flow.siblings;
        // A flow that is raised leaves less to the others, so that more of them may have to be. One at least never has to: reservations
        // are less than all of the time.
        let (mut rest, mut weights) = (100 * PERCENT_UNITS, 0);
        let mut changes = !active(Bug::ReserveForgotten);
        while changes {
            (rest, weights, changes) = (100 * PERCENT_UNITS, 0, false);
            for flow in self.flows.iter().filter(|flow| flow.shares_in(turn)) {
                match flow.raised {
                    true => rest -= part(flow),
                    false => weights += flow.own_weight(),
                }
            }
            for flow in self.flows.iter_mut().filter(|flow| flow.shares_in(turn) && !flow.raised) {
                flow.raised = flow.own_weight() * rest < part(flow) * weights;
                changes |= flow.raised;
            }
        }
        for flow in &mut self.flows {
            let weight = match flow.raised {
                true => part(flow) * weights / rest,
                false => flow.own_weight(),
            };
            flow.charged_by = weight.max(1);
        }
        self.flows.iter().map(|flow| flow.charged_by)
    }
    /// Tells of what each flow has had here since the last correction, and charges each with what it has had on other cores. `tell`: adds
    /// to a flow's time and returns all of it.
    pub fn correct(&mut self, mut tell: impl FnMut(usize, u64) -> u64) {
        let mut least = u64::MAX;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let own_ns = std::mem::take(&mut flow.untold_ns);
            let all_ns = tell(number, own_ns);
            // What it had before the core knew it is nobody's business here.
            let had_ns =
                if flow.known_ns == 0 { 0 } else { all_ns.saturating_sub(flow.known_ns).saturating_sub(own_ns) };
            flow.known_ns = all_ns;
            flow.elsewhere_ns = flow.charged_ns(had_ns);
            if flow.shares_in(self.turn) {
                least = least.min(flow.elsewhere_ns);
            }
        }
        if active(Bug::TagsNeverCorrected) || least == u64::MAX {
            return;
        }
        let bound = self.virtual_ns.saturating_add(BEHIND_NS_MAX);
        for flow in &mut self.flows {
            let more = flow.elsewhere_ns.saturating_sub(least).min(bound.saturating_sub(flow.end));
            (flow.end, flow.start) = (flow.end + more, flow.start + more);
        }
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

    fn of_weight(weight: u64) -> Claim {
        Claim { weight, reserve: 0 }
    }

    /// A core whose flows have tasks that take so long, in nanoseconds; a flow thinks so long after each task, or always has one ready.
    /// The third is its weight.
    struct Model {
        shares: Shares,
        flows: Vec<(u64, Option<u64>, u64)>,
        /// Reservations by flow, in percent.
        reserves: Vec<u64>,
        /// Tenants by flow; each flow is its own where none is named.
        tenants: Vec<usize>,
        weighed_ns: u64,
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
            let reserves = none.clone();
            let weighed_ns = 0;
            let (ran_ns, tasks) = (none.clone(), none);
            Model {
                shares,
                flows,
                reserves,
                tenants: Vec::new(),
                weighed_ns,
                wakes_ns,
                now_ns: 0,
                ran_ns,
                tasks,
                waited_ns,
            }
        }
        fn with_reserves(mut self, reserves: &[u64]) -> Model {
            self.reserves = reserves.to_vec();
            self
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
                if self.now_ns >= self.weighed_ns {
                    self.weighed_ns = self.now_ns + CORRECTION_NS;
                    let claim = |flow: usize| {
                        let (weight, reserve) = (self.flows[flow].2, self.reserves[flow]);
                        (self.tenants.get(flow).copied().unwrap_or(flow), Claim { weight, reserve })
                    };
                    let _ = self.shares.weigh(claim);
                }
                let (task_ns, think_ns, _) = self.flows[flow];
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
                self.shares.charge(flow, tasks, took_ns);
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

    /// Cores with flows that always have work on some of them; what each flow gets of all cores in a second, with corrections.
    fn on_cores(cores: usize, flows: &[(&[usize], u64)]) -> Vec<u64> {
        let mut shares: Vec<Shares> = (0..cores).map(|_| Shares::default()).collect();
        for (core, shares) in shares.iter_mut().enumerate() {
            (0..flows.len()).for_each(|flow| shares.add(flow));
            let there = flows.iter().enumerate().filter(|(_, (cores, _))| cores.contains(&core));
            there.for_each(|(flow, _)| shares.ready(flow));
        }
        let (random, mut served_ns) = (Cell::new(3), vec![0u64; flows.len()]);
        let mut nows_ns = vec![0u64; cores];
        let mut corrected_ns = vec![0u64; cores];
        // The core whose clock is behind goes on.
        while let Some(core) =
            (0..cores).min_by_key(|core| nows_ns[*core]).filter(|core| nows_ns[*core] < 1_000_000_000)
        {
            let shares = &mut shares[core];
            let count = shares.begin(|_| ());
            let Some((flow, _)) = shares.first(1) else {
                nows_ns[core] = u64::MAX;
                continue;
            };
            let took_ns = 10_000 + below(&random, 10_000);
            nows_ns[core] += took_ns;
            match count {
                1 => shares.charge_elsewhere(flow, took_ns),
                _ => shares.charge(flow, 1, took_ns),
            }
            if nows_ns[core] - corrected_ns[core] >= CORRECTION_NS {
                corrected_ns[core] = nows_ns[core];
                let _ = shares.weigh(|flow| (flow, of_weight(flows[flow].1)));
                shares.correct(|flow, ns| {
                    served_ns[flow] += ns;
                    served_ns[flow]
                });
            }
        }
        served_ns
    }

    #[test]
    fn a_flow_that_is_busy_on_one_core_gets_its_share_of_all() {
        let near = |got: u64, wanted: f64| (got as f64 / 1e9 - wanted).abs() < 0.05;
        // The second one has a core of its own.
        let served = on_cores(2, &[(&[0], 100), (&[0, 1], 100)]);
        assert!(near(served[0], 1.0) && near(served[1], 1.0), "{served:?}");
        let served = on_cores(2, &[(&[0], 100), (&[0, 1], 300)]);
        assert!(near(served[0], 0.5) && near(served[1], 1.5), "{served:?}");
        // On all cores each has what the core alone would give it.
        for cores in [2, 4, 16] {
            let all: Vec<usize> = (0..cores).collect();
            let served = on_cores(cores, &[(&all[..], 100); 8]);
            assert!(served.iter().all(|got| near(*got, cores as f64 / 8.0)), "{cores} cores: {served:?}");
        }
        // Nobody can have more than a core where it is.
        let served = on_cores(4, &[(&[0], 100), (&[0, 1, 2, 3], 100), (&[1, 2, 3], 100)]);
        assert!(near(served[0], 1.0) && served[2].abs_diff(served[1]) < 100_000_000, "{served:?}");
    }

    #[test]
    fn a_reservation_holds_beside_flows_that_want_all() {
        let busy = |count: usize, weight| vec![(20_000, None, weight); count];
        let shares = |flows: &[_], reserves: &[u64]| {
            let mut model = Model::new(flows).with_reserves(reserves);
            model.run(5_000_000_000);
            (0..flows.len()).map(|flow| model.share(flow)).collect::<Vec<_>>()
        };
        let near = |got: &[f64], wanted: &[f64]| {
            let all_near = got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 0.02);
            assert!(all_near && got.len() == wanted.len(), "{got:?} of {wanted:?}");
        };
        // Beside four: half, a fifth that its weight gives it anyway, and less than that.
        near(&shares(&busy(5, 100), &[50, 0, 0, 0, 0]), &[0.5, 0.125, 0.125, 0.125, 0.125]);
        near(&shares(&busy(5, 100), &[20, 0, 0, 0, 0]), &[0.2; 5]);
        near(&shares(&busy(5, 100), &[5, 0, 0, 0, 0]), &[0.2; 5]);
        // The one that is raised first leaves the second one too little.
        near(&shares(&busy(4, 100), &[60, 20, 0, 0]), &[0.6, 0.2, 0.1, 0.1]);
        // More than there is: scaled, and nobody starves, whatever the weights.
        near(&shares(&busy(3, 100), &[90, 90, 0]), &[0.45, 0.45, 0.1]);
        near(&shares(&busy(2, 1000), &[90, 0]), &[0.9, 0.1]);
        near(&shares(&[(20_000, None, 1), (20_000, None, 1000)], &[30, 0]), &[0.3, 0.7]);
        near(&shares(&busy(2, 1), &[RESERVE_MAX, RESERVE_MAX]), &[0.5, 0.5]);
    }

    /// Users of a volume divide what it has, however many they are, and an idle one's part is the other users'.
    #[test]
    fn flows_of_a_tenant_divide_its_share() {
        let busy = (20_000, None, 100);
        let idles = (20_000, Some(1_000_000_000), 100);
        let shares = |flows: &[_], tenants: &[usize], reserves: &[u64]| {
            let mut model = Model::new(flows).with_reserves(reserves);
            model.tenants = tenants.to_vec();
            model.run(5_000_000_000);
            (0..flows.len()).map(|flow| model.share(flow)).collect::<Vec<_>>()
        };
        let near = |got: &[f64], wanted: &[f64]| {
            assert!(got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 0.02), "{got:?} of {wanted:?}");
        };
        near(&shares(&[busy; 4], &[1, 1, 1, 2], &[0; 4]), &[1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 0.5]);
        near(&shares(&[busy, busy, idles, busy], &[1, 1, 1, 2], &[0; 4]), &[0.25, 0.25, 0.0, 0.5]);
        near(&shares(&[busy; 3], &[1, 1, 2], &[80, 80, 0]), &[0.4, 0.4, 0.2]);
    }

    /// A reservation that is not used is divided among the others by weight.
    #[test]
    fn a_reservation_that_is_not_used_costs_nobody_anything() {
        let idles = (20_000, Some(1_000_000_000), 100);
        let mut model = Model::new(&[idles, (20_000, None, 300), (20_000, None, 100)]).with_reserves(&[90, 0, 0]);
        model.run(5_000_000_000);
        assert!(model.share(0) < 0.001 && (model.share(1) - 0.75).abs() < 0.02, "{:?}", model.ran_ns);
        let (sum, until) = (model.ran_ns.iter().sum::<u64>(), model.now_ns);
        assert_eq!(sum, until, "the core is never idle");
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn each_bug_is_noticed_by_its_test() {
        let test = flows_that_want_all_share_by_weight_whatever_their_tasks_take;
        assert!(base::seeded::fails(test, Bug::TurnsUncharged));
        let test = a_flow_that_is_busy_on_one_core_gets_its_share_of_all;
        assert!(base::seeded::fails(test, Bug::TagsNeverCorrected));
        assert!(base::seeded::fails(a_reservation_holds_beside_flows_that_want_all, Bug::ReserveForgotten));
    }
}
