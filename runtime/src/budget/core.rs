//! The budget of background work, as a pure core (decision D7): when an agent may work, so that clients lose a bounded time to all of
//! them together.
//!
//! Work and rest take turns of equal length, for all agents at once, and what clients' requests take in both is compared, class by
//! class. If they took longer beside the work, agents work for a smaller share of the time, and otherwise for a larger one. Agents
//! that want to work at the same time divide the share by their weights. Each has a floor, so that it comes to an end beside any
//! clients. Absent by design: what an agent does; the work on which space depends, which asks nobody (rule K4).

use super::Agent;
use crate::histogram::{Summary, bucket_end};
use base::seeded::{Bug, active};

/// A turn of work or of rest: long enough for many requests, short for a person.
pub const TURN_NS: u64 = 100_000_000;
/// Fewer requests in a turn say nothing about what requests take.
const REQUESTS_MIN: u64 = 8;
/// Requests may take so much longer on average, as a share and in nanoseconds, before agents work less.
const MEAN_SHARE: f64 = 0.1;
const MEAN_NS: f64 = 20_000.0;
/// Means differ by chance too: by so many times their standard error in one turn of a thousand.
const MEAN_ERRORS: f64 = 3.0;
/// Share of a turn that requests lose together, from which on they lose it by no chance: few programs interrupt them for so long.
const LOST_SHARE: f64 = 0.3;
/// The 99th percentile of a class may be so much longer, in percent and in nanoseconds. Clients are promised 25 percent and 0.2 ms.
const TAIL_PERCENT: u64 = 20;
const TAIL_NS: u64 = 150_000;
/// Turns of work after which all of them are compared with all rests, their tails too.
const TAIL_TURNS: u32 = 8;
/// The fewest requests of a class whose tails are compared: of four hundred, four are in the slowest hundredth.
const TAIL_REQUESTS_MIN: u64 = 400;
/// Bounds of the share of a turn in which agents work, in thousandths.
const SHARE_MIN: u64 = 5;
const SHARE_MAX: u64 = 1000;
/// The share while requests are too few to be compared: half of the time.
const SHARE_FEW: u64 = 500;
/// Increase of the share after a turn that did not hurt, and the share to begin with.
const SHARE_STEP: u64 = 50;
/// Time after a turn that hurt in which the share stays halved. Looking for more hurts again: only so seldom that it stays outside of the
/// slowest hundredth. Afterwards the share is this part of the one that hurt, and grows by a smaller step up to that one.
const HOLD_NS: u64 = 20_000_000_000;
const AGAIN_EIGHTHS: u64 = 6;
const SHARE_SMALL_STEP: u64 = 10;
/// Time without work after which what was learned of other work says nothing.
const FORGET_NS: u64 = 10_000_000_000;
/// Longest time for which a rest waits for slices under way: a device that stands still must not keep the others from work.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Turns that an agent counts as one of those that divide the share after it last wanted to work.
const WANTS_TURNS: u64 = 3;
const _: () = assert!(0 < SHARE_MIN && SHARE_MIN < SHARE_FEW && SHARE_FEW < SHARE_MAX && SHARE_STEP < SHARE_FEW);

/// Classes of clients' requests: reads, writes, durable ones, and those of metadata.
pub const CLASSES: usize = 4;

/// Clients' requests of each class so far, or in some time.
#[derive(Clone, Default)]
pub struct Clients(pub [Summary; CLASSES]);

impl Clients {
    /// The requests since `before`.
    fn since(&self, before: &Clients) -> Clients {
        Clients(std::array::from_fn(|class| self.0[class].since(&before.0[class])))
    }
    fn add(&mut self, more: &Clients) {
        self.0.iter_mut().zip(&more.0).for_each(|(sum, more)| sum.add(more));
    }
    fn count(&self) -> u64 {
        self.0.iter().map(Summary::count).sum()
    }
    /// True if requests took longer on average than without the work, by more than chance does to means. Each class is compared with
    /// itself: the mix may differ. A few requests that take very long are no chance if they lose a part of `turn_ns`.
    fn mean_is_longer(&self, without: &Clients, turn_ns: u64) -> bool {
        let both = self.0.iter().zip(&without.0).filter(|(with, without)| with.count() > 0 && without.count() > 0);
        let (mut count, mut expected_ns, mut more_ns, mut variance) = (0.0, 0.0, 0.0, 0.0);
        for (with, without) in both {
            let [(number, mean_ns, spread), (others, usual_ns, others_spread)] = [with, without].map(moments);
            count += number;
            expected_ns += number * usual_ns;
            more_ns += number * (mean_ns - usual_ns);
            variance += number * spread + number * number * others_spread / others;
        }
        let chance_ns = (MEAN_ERRORS * variance.sqrt()).min(turn_ns as f64 * LOST_SHARE);
        more_ns > expected_ns * MEAN_SHARE + count * MEAN_NS && more_ns > chance_ns
    }
    /// True if twice as many requests of a class as without the work took longer than its slowest hundredth does. Twice: as many as that
    /// come by chance; and agents rest for half of the time.
    fn tail_is_longer(&self, without: &Clients) -> bool {
        let is_longer = |(with, without): (&Summary, &Summary)| {
            let (with_ns, without_ns) = (with.quantile_ns(0.98), without.quantile_ns(0.99));
            with.count().min(without.count()) >= TAIL_REQUESTS_MIN
                && with_ns > without_ns + without_ns / 100 * TAIL_PERCENT + TAIL_NS
        };
        self.0.iter().zip(&without.0).any(is_longer)
    }
}

/// Number, mean and variance of durations, in nanoseconds.
fn moments(all: &Summary) -> (f64, f64, f64) {
    let (count, unit_ns) = (all.count() as f64, all.unit_ns());
    let squares = all.buckets().map(|(bucket, number)| number as f64 * (bucket_end(bucket) as f64 * unit_ns).powi(2));
    let mean_ns = all.mean_ns() as f64;
    (count, mean_ns, (squares.sum::<f64>() / count.max(1.0) - mean_ns * mean_ns).max(0.0))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Work,
    Rest,
}

/// An agent's state.
#[derive(Clone, Copy, Default)]
struct State {
    /// Time at which it last asked; 0: never.
    asked_ns: u64,
    /// Its last slice: beginning, end, and duration.
    began_ns: u64,
    ended_ns: u64,
    took_ns: u64,
    /// Time for which it has worked since start.
    worked_ns: u64,
}

/// The figures of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The agent.
    pub agent: Agent,
    /// The share of the turns of work in which it may work, in thousandths; None: it does not want to.
    pub share: Option<u64>,
    /// Nanoseconds for which it has worked since start.
    pub worked_ns: u64,
}

/// The budget's state.
pub struct Core {
    /// Thousandths of a turn of work, for all agents together.
    share: u64,
    /// The share that hurt last, and the time until which it is kept away from; None: none did since it was last exceeded.
    hurt: Option<(u64, u64)>,
    turn: Turn,
    /// Beginning of the turn. None: agents are to rest, and a slice is still under way.
    began_ns: Option<u64>,
    /// End of the turn before.
    ended_ns: u64,
    /// Clients' requests up to then, and those of the last turn of rest.
    before: Clients,
    rested: Option<Clients>,
    /// Requests beside the work and without it since tails were compared last, and the number of turns of work since then.
    with: Clients,
    without: Clients,
    turns: u32,
    /// Slices under way, and nanoseconds of work of those that have ended in this turn.
    working: u32,
    worked_ns: u64,
    agents: [State; Agent::ALL.len()],
}

impl Core {
    /// Begins slowly.
    pub fn new(now_ns: u64) -> Core {
        Core {
            share: SHARE_STEP,
            hurt: None,
            turn: Turn::Rest,
            began_ns: Some(now_ns),
            ended_ns: now_ns,
            before: Clients::default(),
            rested: None,
            with: Clients::default(),
            without: Clients::default(),
            turns: 0,
            working: 0,
            worked_ns: 0,
            agents: [State::default(); Agent::ALL.len()],
        }
    }
    /// Has a slice of an agent begin; returns 0, or for how long to wait before it asks again.
    pub fn ask(&mut self, now_ns: u64, agent: Agent, clients: impl Fn() -> Clients) -> u64 {
        self.forget(now_ns, &clients);
        self.agents[agent as usize].asked_ns = now_ns.max(1);
        self.turn(now_ns, clients);
        let wait_ns = match self.turn {
            _ if active(Bug::BudgetIgnored) => 0,
            // A slice that is still under way ends when it ends.
            Turn::Rest => self.began_ns.map_or(TURN_NS / 10, |began_ns| TURN_NS - (now_ns - began_ns).min(TURN_NS - 1)),
            Turn::Work => self.pause_ns(now_ns, agent),
        };
        assert!(wait_ns <= TURN_NS.max(self.agents[agent as usize].took_ns * SHARE_MAX), "it gets on");
        if wait_ns == 0 {
            self.working += 1;
            self.agents[agent as usize].began_ns = now_ns;
        }
        wait_ns
    }
    /// Notes that an agent's slice has ended.
    pub fn ended(&mut self, now_ns: u64, agent: Agent, clients: impl Fn() -> Clients) {
        let state = &mut self.agents[agent as usize];
        assert!(self.working > 0 && now_ns >= state.began_ns, "it has begun");
        (state.ended_ns, state.took_ns) = (now_ns, now_ns - state.began_ns);
        assert!(state.ended_ns >= state.asked_ns || state.took_ns > 0, "it has asked");
        state.worked_ns += state.took_ns;
        self.worked_ns += state.took_ns;
        self.working -= 1;
        if self.began_ns.is_none() && self.working == 0 {
            self.begin(now_ns, clients());
        }
    }
    /// The agents' figures.
    pub fn figures(&self, now_ns: u64) -> Vec<Figures> {
        let of = |agent: Agent| Figures {
            agent,
            share: self.wants(now_ns, agent).then(|| self.share_of(now_ns, agent)),
            worked_ns: self.agents[agent as usize].worked_ns,
        };
        Agent::ALL.into_iter().map(of).collect()
    }
    fn wants(&self, now_ns: u64, agent: Agent) -> bool {
        let State { asked_ns, began_ns, ended_ns, .. } = self.agents[agent as usize];
        // A slice may take longer than all turns.
        let last_ns = if began_ns > ended_ns { now_ns } else { asked_ns.max(ended_ns) };
        asked_ns > 0 && now_ns.saturating_sub(last_ns) < WANTS_TURNS * TURN_NS
    }
    /// The share of an agent, in thousandths.
    fn share_of(&self, now_ns: u64, agent: Agent) -> u64 {
        let others = Agent::ALL.into_iter().filter(|other| *other != agent && self.wants(now_ns, *other));
        let weights: u64 = agent.weight() + others.map(Agent::weight).sum::<u64>();
        assert!(agent.weight() > 0 && agent.weight() <= weights, "it is among those that divide the share");
        (self.share * agent.weight() / weights).max(agent.floor())
    }
    /// Time until an agent has rested enough since its last slice.
    fn pause_ns(&self, now_ns: u64, agent: Agent) -> u64 {
        let State { ended_ns, took_ns, .. } = self.agents[agent as usize];
        let share = self.share_of(now_ns, agent);
        assert!((1..=SHARE_MAX).contains(&share));
        assert!(ended_ns <= now_ns, "its last slice has ended");
        let rest_ns = took_ns.saturating_mul(SHARE_MAX - share) / share;
        ended_ns.saturating_add(rest_ns).saturating_sub(now_ns)
    }
    /// Begins anew if nobody has worked for long.
    fn forget(&mut self, now_ns: u64, clients: &impl Fn() -> Clients) {
        let last_ns = self.agents.iter().map(|state| state.asked_ns.max(state.ended_ns)).max().unwrap_or(0);
        if self.working == 0 && now_ns.saturating_sub(last_ns) > FORGET_NS {
            (self.share, self.hurt, self.turn, self.rested) = (SHARE_STEP, None, Turn::Rest, None);
            self.begin(now_ns, clients());
            self.compare_anew();
        }
    }
    fn begin(&mut self, now_ns: u64, clients: Clients) {
        assert!(self.began_ns.is_none_or(|began_ns| began_ns <= now_ns), "the clock does not go back");
        (self.began_ns, self.before, self.worked_ns) = (Some(now_ns), clients, 0);
    }
    fn compare_anew(&mut self) {
        (self.with, self.without, self.turns) = (Clients::default(), Clients::default(), 0);
    }
    /// Ends the turn if it is over.
    fn turn(&mut self, now_ns: u64, clients: impl Fn() -> Clients) {
        assert!(
            self.began_ns.is_some() || self.working > 0 && self.turn == Turn::Rest,
            "a rest waits for slices alone"
        );
        let Some(began_ns) = self.began_ns else {
            if now_ns.saturating_sub(self.ended_ns) >= PATIENCE_NS {
                self.begin(now_ns, clients());
            }
            return;
        };
        assert!(now_ns >= began_ns, "the clock does not go back");
        if now_ns - began_ns < TURN_NS {
            return;
        }
        let all = clients();
        let seen = all.since(&self.before);
        match self.turn {
            Turn::Rest => {
                self.without.add(&seen);
                self.rested = Some(seen);
                self.turn = Turn::Work;
                self.begin(now_ns, all);
            }
            Turn::Work => {
                // A turn in which nobody worked, or that nobody has ended in time, says nothing about the work.
                let in_time = now_ns - began_ns < 2 * TURN_NS || self.worked_ns >= (now_ns - began_ns) / 2;
                if in_time && (self.worked_ns > 0 || self.working > 0) {
                    // Where agents did less than they might, nothing shows that they may do more.
                    let used = self.working > 0 || self.worked_ns >= (now_ns - began_ns) * self.share / SHARE_MAX / 2;
                    self.judge(now_ns, now_ns - began_ns, &seen, used);
                }
                // Without clients there is nothing to learn from a rest.
                if seen.count() > 0 || self.rested.as_ref().is_some_and(|rested| rested.count() > 0) {
                    self.turn = Turn::Rest;
                }
                self.begin(now_ns, all);
                if self.turn == Turn::Rest && self.working > 0 {
                    (self.began_ns, self.ended_ns) = (None, now_ns);
                }
            }
        }
    }
    /// Learns from a turn of work. `used`: agents worked for most of their share.
    fn judge(&mut self, now_ns: u64, turn_ns: u64, seen: &Clients, used: bool) {
        assert!(turn_ns >= TURN_NS && self.turn == Turn::Work, "a whole turn of work has ended");
        self.with.add(seen);
        self.turns += 1;
        assert!(self.turns <= TAIL_TURNS, "they are compared then");
        let count = seen.count();
        let rested = self.rested.as_ref().filter(|rested| rested.count() >= REQUESTS_MIN);
        let compares = self.turns == TAIL_TURNS;
        let hurts = match rested {
            Some(rested) if count >= REQUESTS_MIN => {
                let turns_ns = turn_ns * u64::from(TAIL_TURNS);
                let all =
                    || self.with.mean_is_longer(&self.without, turns_ns) || self.with.tail_is_longer(&self.without);
                seen.mean_is_longer(rested, turn_ns) || compares && all()
            }
            // It has silenced clients, or some have just come, and nobody knows.
            rested => rested.is_some() || count >= REQUESTS_MIN,
        };
        let most = if rested.is_none() && count > 0 { SHARE_FEW } else { SHARE_MAX };
        if hurts {
            self.hurt = Some((self.share, now_ns + HOLD_NS));
            self.share = (self.share / 2).max(SHARE_MIN);
            assert!(self.hurt.is_some_and(|(hurt, _)| hurt >= self.share), "it has become less");
        } else if used {
            self.share = self.more(now_ns, count == 0).min(most.max(self.share));
        }
        assert!((SHARE_MIN..=SHARE_MAX).contains(&self.share), "every agent gets on, and none has more than all");
        if hurts || compares {
            self.compare_anew();
        }
    }
    /// The share after a turn of work that did no harm.
    fn more(&mut self, now_ns: u64, alone: bool) -> u64 {
        match self.hurt {
            _ if alone => {
                self.hurt = None;
                self.share * 2
            }
            Some((_, until_ns)) if now_ns < until_ns => self.share,
            Some((hurt, _)) if self.share < hurt * AGAIN_EIGHTHS / 8 => hurt * AGAIN_EIGHTHS / 8,
            Some((hurt, _)) if self.share <= hurt => self.share + SHARE_SMALL_STEP,
            _ => {
                self.hurt = None;
                self.share + SHARE_STEP
            }
        }
        .min(SHARE_MAX)
    }
}
