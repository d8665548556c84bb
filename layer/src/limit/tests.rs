//! The core's promises against made-up arrivals, and a volume's limits in a simulated world.

use super::core::{Asked, Core, Line, Ticket, Turn};
use super::*;
use crate::tests::{context_on, groups, volume};
use crate::{Call, Stack};
use base::limits::LIMIT_BURST_MS;
use base::{Ino, Limit, Sync, VolumeId};
use runtime::random::SplitMix;
use runtime::sim::World;
use runtime::tasks::Local;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;
const READ: Asked = Asked { line: Line::Reads, bytes: 0 };
const CHANGE: Asked = Asked { line: Line::Changes, bytes: 0 };

fn limits(values: &[(Limit, u64)]) -> Limits {
    Limits::NONE.with(values).expect("within bounds")
}

/// Clients of a core. Time is a number.
struct Crowd {
    core: Core,
    now_ns: u64,
    waiting: Vec<(Ticket, Asked)>,
    /// Operations that have passed, and when.
    passed: Vec<(u64, Asked)>,
}

impl Crowd {
    fn new(values: &[(Limit, u64)]) -> Crowd {
        Crowd { core: Core::new(&limits(values), 0), now_ns: 0, waiting: Vec::new(), passed: Vec::new() }
    }
    fn arrive(&mut self, asked: Asked) {
        match self.core.arrive(asked, self.now_ns) {
            Some(ticket) => self.waiting.push((ticket, asked)),
            None => self.passed.push((self.now_ns, asked)),
        }
    }
    /// Everybody asks until nobody may pass any more. The earliest time at which somebody may.
    fn serve(&mut self) -> Option<u64> {
        loop {
            let before = self.waiting.len();
            let mut next = None;
            let (core, passed, now_ns) = (&mut self.core, &mut self.passed, self.now_ns);
            self.waiting.retain(|(ticket, asked)| match core.turn(asked.line, *ticket, now_ns) {
                Turn::Pass => {
                    passed.push((now_ns, *asked));
                    false
                }
                Turn::At(at_ns) => {
                    assert!(at_ns > now_ns);
                    next = Some(next.map_or(at_ns, |other: u64| other.min(at_ns)));
                    true
                }
                Turn::Behind => true,
            });
            if self.waiting.len() == before {
                assert!(before == 0 || next.is_some(), "somebody waits, and nobody knows for what");
                return next;
            }
        }
    }
    /// Lets time pass, with `depth` operations of each of these waiting at all times; each turn comes up to `late_ns` late.
    fn run(&mut self, kinds: &[Asked], depth: usize, until_ns: u64, late_ns: u64) {
        let mut random = SplitMix(7);
        while self.now_ns < until_ns {
            for kind in kinds {
                while self.waiting.iter().filter(|(_, asked)| asked == kind).count() < depth {
                    self.arrive(*kind);
                }
            }
            match self.serve() {
                Some(next) => self.now_ns = next + if late_ns == 0 { 0 } else { random.below(late_ns) },
                None => self.now_ns += 1000,
            }
        }
    }
    fn count(&self, asked: Asked) -> u64 {
        self.passed.iter().filter(|(_, other)| *other == asked).count() as u64
    }
}

#[test]
fn rates_are_kept_to_a_hundredth_however_late_turns_come() {
    for rate in [1, 7, 1000, 33_333] {
        for late_ns in [0, 2_000_000] {
            let seconds = if rate < 100 { 100 } else { 10 };
            let mut crowd = Crowd::new(&[(Limit::Iops, rate)]);
            crowd.run(&[READ], 4, seconds * SECOND, late_ns);
            let (passed, allowed) = (crowd.count(READ) as f64, (rate * seconds) as f64);
            let burst = 1.0 + rate as f64 * LIMIT_BURST_MS as f64 / 1e3;
            assert!(passed <= allowed + burst, "{passed} of {allowed}");
            assert!(passed >= allowed * 0.99, "{passed} of {allowed}, {late_ns} ns late");
        }
    }
}

#[test]
fn no_time_sees_more_than_rate_and_burst() {
    let mut random = SplitMix(3);
    for _ in 0..200 {
        let (rate, burst) = (1 + random.below(5000), 1 + random.below(200));
        let bandwidth = (64 << 10) + random.below(64 << 20);
        let mut crowd =
            Crowd::new(&[(Limit::WriteIops, rate), (Limit::WriteBandwidth, bandwidth), (Limit::Burst, burst)]);
        for _ in 0..300 {
            crowd.now_ns += random.below(3_000_000);
            for _ in 0..random.below(4) {
                crowd.arrive(Asked { line: Line::Changes, bytes: random.below(1 << 20) });
            }
            crowd.serve();
        }
        let passed = &crowd.passed;
        for from in 0..passed.len() {
            let (mut operations, mut bytes) = (0, 0);
            for (at_ns, asked) in &passed[from..] {
                // The last one may be begun before it is paid for.
                let ns = at_ns - passed[from].0 + burst * 1_000_000;
                assert!(operations as f64 <= rate as f64 * ns as f64 / 1e9 + 1.0);
                assert!(bytes as f64 <= bandwidth as f64 * ns as f64 / 1e9 + f64::from(1 << 20));
                operations += 1;
                bytes += asked.bytes;
            }
        }
    }
}

#[test]
fn lines_pass_in_order_and_neither_waits_for_the_others_limit() {
    let mut crowd = Crowd::new(&[(Limit::WriteIops, 1), (Limit::Burst, 1)]);
    (1..20).for_each(|bytes| crowd.arrive(Asked { bytes, ..CHANGE }));
    (0..50).for_each(|_| crowd.arrive(READ));
    assert_eq!(crowd.count(READ), 50, "only changes have a limit");
    while let Some(next) = crowd.serve() {
        crowd.now_ns = next;
    }
    let order: Vec<u64> =
        crowd.passed.iter().filter(|(_, asked)| asked.line == Line::Changes).map(|(_, asked)| asked.bytes).collect();
    assert_eq!(order, (1..20).collect::<Vec<_>>());
    assert!(crowd.now_ns.abs_diff(18 * SECOND) <= 2_000_000, "one each second: {}", crowd.now_ns);
}

#[test]
fn what_reads_and_writes_nothing_waits_for_no_bandwidth() {
    let mut crowd = Crowd::new(&[(Limit::Bandwidth, 64 << 10)]);
    (0..3).for_each(|_| crowd.arrive(Asked { bytes: 1 << 20, ..READ }));
    assert_eq!((crowd.passed.len(), crowd.waiting.len()), (1, 2));
    (0..10).for_each(|_| crowd.arrive(CHANGE));
    assert_eq!(crowd.count(CHANGE), 10);
}

#[test]
fn a_limit_of_both_is_shared_by_both() {
    let mut crowd = Crowd::new(&[(Limit::Iops, 1000)]);
    crowd.run(&[READ, CHANGE], 8, 10 * SECOND, 300_000);
    let (reads, changes) = (crowd.count(READ), crowd.count(CHANGE));
    assert!(reads.abs_diff(changes) <= reads / 10, "{reads} and {changes}");
    assert!((reads + changes).abs_diff(10_000) <= 110, "{reads} and {changes}");
}

/// Five hundred clients that are killed take nothing from who comes after them.
#[test]
fn who_leaves_has_taken_nothing() {
    let mut crowd = Crowd::new(&[(Limit::Iops, 10), (Limit::Burst, 1)]);
    (0..500).for_each(|_| crowd.arrive(READ));
    let waiting = std::mem::take(&mut crowd.waiting);
    assert_eq!(waiting.len(), 499);
    assert!(waiting.iter().all(|(ticket, asked)| crowd.core.leave(asked.line, *ticket)));
    assert!(!crowd.core.leave(Line::Reads, waiting[0].0), "it has left before");
    assert_eq!(crowd.core.waiting(), 0);
    crowd.arrive(READ);
    crowd.now_ns = 100_000_000;
    assert!(crowd.serve().is_none());
    assert_eq!(crowd.count(READ), 2);
}

#[test]
fn a_change_holds_at_once_and_gives_no_burst_twice() {
    let mut crowd = Crowd::new(&[(Limit::Iops, 100), (Limit::Burst, 100)]);
    (0..1000).for_each(|_| crowd.arrive(READ));
    assert_eq!(crowd.count(READ), 11, "a burst of a tenth of a second, and one");
    for _ in 0..10 {
        crowd.core.change(&limits(&[(Limit::Iops, 100), (Limit::Burst, 100)]), crowd.now_ns);
        crowd.serve();
    }
    assert_eq!(crowd.count(READ), 11, "they are the same limits");
    crowd.now_ns = SECOND;
    crowd.core.change(&limits(&[(Limit::Iops, 1000), (Limit::Burst, 1)]), crowd.now_ns);
    crowd.serve();
    crowd.run(&[], 0, SECOND + SECOND / 10, 0);
    assert!(crowd.count(READ).abs_diff(11 + 100) <= 3, "{}", crowd.count(READ));
    crowd.core.change(&Limits::NONE, crowd.now_ns);
    crowd.serve();
    assert_eq!(crowd.count(READ), 1000, "nothing is held any more");
}

#[test]
fn a_clock_that_jumps_gives_a_burst_and_no_more() {
    let mut crowd = Crowd::new(&[(Limit::Iops, 100), (Limit::Burst, 50)]);
    (0..100).for_each(|_| crowd.arrive(READ));
    let before = crowd.count(READ);
    crowd.now_ns = 1 << 62;
    crowd.serve();
    assert_eq!(crowd.count(READ) - before, 6);
}

fn look(ino: Ino) -> Call {
    Call { op: Op::GetAttr { ino }, data: None }
}

/// Has so many clients ask one after the other until a time. The number of answers, which grows meanwhile.
fn crowd(
    runtime: &Runtime,
    stack: &Arc<Stack>,
    (volume, ino): (VolumeId, Ino),
    clients: u64,
    until_ns: u64,
) -> Arc<AtomicU64> {
    let answers = Arc::new(AtomicU64::new(0));
    for client in 1..=clients {
        let (own, stack, answers) = (runtime.clone(), stack.clone(), answers.clone());
        let make = move || -> Local {
            Box::pin(async move {
                let mut request = client << 20;
                while own.clock.now_ns() < until_ns {
                    request += 1;
                    stack.call(&context_on(volume, request), look(ino)).await.expect("it is there");
                    answers.fetch_add(1, Ordering::Relaxed);
                    // What is in memory takes no time in this world.
                    own.clock.sleep(1_000_000).await;
                }
            })
        };
        runtime.tasks.spawn(client as usize % runtime.tasks.cores(), Box::new(make));
    }
    answers
}

fn in_world(seed: u64, test: impl AsyncFnOnce(Runtime, Arc<Stack>, VolumeId, Ino)) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let (bare, id, ino) = volume(&runtime, &groups, &[]).await;
        drop(bare);
        let slow = limits(&[(Limit::Iops, 200), (Limit::Burst, 10)]);
        let stack = Arc::new(Stack::new(groups.clone(), &[], &slow));
        test(runtime, stack, id, ino).await;
        groups.close().await.expect("a healthy brick closes");
    });
}

#[test]
fn clients_of_all_cores_share_a_limit() {
    in_world(1, async |runtime, stack, volume, ino| {
        let start_ns = runtime.clock.now_ns();
        let answers = crowd(&runtime, &stack, (volume, ino), 40, start_ns + 3 * SECOND);
        let told = || answers.load(Ordering::Relaxed);
        runtime.clock.sleep(SECOND).await;
        assert!(told().abs_diff(200) <= 6, "{}", told());
        stack.limit(&limits(&[(Limit::Iops, 1000)]));
        runtime.clock.sleep(SECOND).await;
        assert!(told().abs_diff(1200) <= 30, "{}", told());
        assert!(stack.held().waiting >= 35, "they wait for their turns: {:?}", stack.held());
        stack.limit(&Limits::NONE);
        runtime.clock.sleep(10_000_000).await;
        assert!(told() > 1200 + 40, "nothing waits: {}", told());
        assert_eq!(stack.held().waiting, 0);
        runtime.clock.sleep(SECOND).await;
        assert!(stack.held().held >= 1000 && stack.held().held_ns > 60 * SECOND, "{:?}", stack.held());
    });
}

#[test]
fn what_frees_space_or_makes_durable_is_never_held() {
    in_world(2, async |runtime, stack, volume, ino| {
        let answers = crowd(&runtime, &stack, (volume, ino), 40, runtime.clock.now_ns() + SECOND);
        runtime.clock.sleep(SECOND / 10).await;
        let before_ns = runtime.clock.now_ns();
        let set = Box::new(base::SetAttr { size: Some(0), ..base::SetAttr::default() });
        let punch = Op::Allocate { ino, offset: 0, length: 4096, keep_size: true, room: Room::Hole };
        let free = [Op::Fsync { ino, sync: Sync::All }, Op::SyncAll, punch, Op::SetAttr { ino, set }];
        for (op, request) in free.into_iter().zip(50..) {
            stack.call(&context_on(volume, request), Call { op, data: None }).await.expect("it is there");
        }
        assert!(runtime.clock.now_ns() - before_ns < SECOND / 10, "40 others wait for a fifth of a second");
        // Another look waits behind them.
        let before_ns = runtime.clock.now_ns();
        stack.call(&context_on(volume, 90), look(ino)).await.expect("it is there");
        let took_ns = runtime.clock.now_ns() - before_ns;
        assert!((SECOND / 10..SECOND / 2).contains(&took_ns), "{took_ns}");
        runtime.clock.sleep(2 * SECOND).await;
        assert!(answers.load(Ordering::Relaxed) > 150);
    });
}

/// A tree's limits hold requests of its own project alone.
#[test]
fn a_tree_has_limits_of_its_own() {
    in_world(4, async |runtime, stack, volume, ino| {
        let set = base::SetAttr { guard: Some(base::Guard::default()), project: Some(7), ..base::SetAttr::default() };
        let join = Call { op: Op::SetAttr { ino, set: Box::new(set) }, data: None };
        stack.call(&context_on(volume, 60), join).await.expect("it is there");
        let slow = [(Limit::Iops, 100), (Limit::Burst, 1)];
        let told = async |limits: &Limits| {
            stack.limit(limits);
            let answers = crowd(&runtime, &stack, (volume, ino), 20, runtime.clock.now_ns() + SECOND);
            runtime.clock.sleep(2 * SECOND).await;
            answers.load(Ordering::Relaxed)
        };
        let tree = |project| Limits::NONE.with_tree(project, ino, &slow).expect("within bounds");
        let held = told(&tree(7)).await;
        assert!((95..=125).contains(&held), "a hundred, and who waits when the others end: {held}");
        let summaries = stack.held_in_trees();
        assert!(summaries.len() == 1 && summaries[0].0 == 7 && summaries[0].1.held > 50, "{summaries:?}");
        assert!(told(&tree(8)).await > 10_000 && told(&Limits::NONE).await > 10_000);
        assert!(stack.held_in_trees().is_empty());
    });
}

/// A request that is given up in the middle of its wait takes no turn, and those behind it move up.
#[test]
fn a_request_that_is_given_up_takes_no_turn() {
    in_world(3, async |runtime, stack, volume, ino| {
        stack.limit(&limits(&[(Limit::Iops, 20), (Limit::Burst, 1)]));
        let (start_ns, mut passed, mut given_up) = (runtime.clock.now_ns(), 0u64, 0u64);
        for request in 1..=100 {
            let context = context_on(volume, request);
            let call = async { drop(stack.call(&context, look(ino)).await) };
            match either(call, runtime.clock.sleep(30_000_000)).await {
                true => passed += 1,
                false => given_up += 1,
            }
        }
        let allowed = (runtime.clock.now_ns() - start_ns) / 50_000_000;
        assert!(passed.abs_diff(allowed) <= 2 && given_up > 20, "{passed} of {allowed}, {given_up} given up");
        assert_eq!(stack.held().waiting, 0);
    });
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn each_bug_is_noticed_by_its_test() {
    use runtime::seeded::{Bug, fails};
    const NOTICED: [(Bug, fn()); 2] =
        [(Bug::LimitForgotten, clients_of_all_cores_share_a_limit), (Bug::PlaceKept, who_leaves_has_taken_nothing)];
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
