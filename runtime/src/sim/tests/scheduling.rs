//! Time, tasks, jobs, determinism, and the world's end.

use super::*;
use crate::tasks::{run_blocking, yield_now};
use crate::{Event, Tasks};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A busy little world: tasks on both cores that write, flush, sleep and use the pool. Gives the order of their
/// steps and the fingerprint.
fn busy(seed: u64) -> (Vec<(u64, u64)>, u64) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicU64::new(0));
    let event = Arc::new(Event::new());
    world.block_on(async {
        let file = create(&runtime, "a").await;
        for task in 0..4 {
            let (there, steps, done, event) = (runtime.clone(), steps.clone(), done.clone(), event.clone());
            let make = move || -> crate::tasks::Local {
                Box::pin(async move {
                    for round in 0..5 {
                        write(&there, file, task, round as u8, there.random.next_u64() % 2 == 0).await;
                        steps.lock().expect("one thread").push((task, round));
                        there.clock.sleep(10_000 * task).await;
                        flush(&there, file).await.expect("no fault");
                        run_blocking(&*there.tasks, move || round + 1).await;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    event.notify();
                })
            };
            runtime.tasks.spawn(task as usize % 2, Box::new(make));
        }
        loop {
            let ticket = event.ticket();
            if done.load(Ordering::Relaxed) == 4 {
                break;
            }
            event.after(ticket).await;
        }
    });
    let steps = steps.lock().expect("one thread").clone();
    (steps, world.fingerprint())
}

#[test]
fn a_seed_replays_exactly_and_others_differ() {
    let runs: Vec<_> = (0..50).map(busy).collect();
    assert_eq!(runs, (0..50).map(busy).collect::<Vec<_>>());
    let mut prints: Vec<_> = runs.iter().map(|(_, print)| *print).collect();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), 50);
    let mut orders: Vec<_> = runs.into_iter().map(|(order, _)| order).collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 40, "{} orders", orders.len());
}

#[test]
fn the_fingerprint_sees_the_bytes_written() {
    let print = |byte| {
        let mut world = World::new(1);
        let runtime = world.runtime();
        world.block_on(async { write(&runtime, create(&runtime, "a").await, 0, byte, false).await });
        world.fingerprint()
    };
    assert_eq!(print(1), print(1));
    assert_ne!(print(1), print(2));
}

#[test]
fn independent_transfers_end_in_any_order() {
    let mut firsts = [0; 3];
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let file = create(&runtime, "a").await;
            let mut all: Vec<_> = (0..3).map(|page| Box::pin(submit(&runtime, file, page, 1, false))).collect();
            let first = std::future::poll_fn(|context| {
                let ready = all.iter_mut().position(|one| one.as_mut().poll(context).is_ready());
                ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
            });
            firsts[first.await] += 1;
        });
    }
    assert!(firsts.iter().all(|&count| count > SEEDS / 10), "{firsts:?}");
}

#[test]
fn sleeps_take_no_real_time_and_dropped_ones_none_at_all() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let start = runtime.clock.now_ns();
        let wall = runtime.clock.wall();
        // Half an hour.
        runtime.clock.sleep(1_800_000_000_000).await;
        let slept = runtime.clock.now_ns() - start;
        assert!((1_800_000_000_000..1_800_000_010_000).contains(&slept));
        assert_eq!(runtime.clock.wall().0 - wall.0, slept as i64);
        let mut long = runtime.clock.sleep(1_000_000_000);
        let mut short = runtime.clock.sleep(1_000);
        std::future::poll_fn(|context| {
            assert!(long.as_mut().poll(context).is_pending());
            short.as_mut().poll(context)
        })
        .await;
        drop(long);
    });
    world.keep_trace(10);
    assert_eq!(world.run_for(2_000_000_000), Ran::Finished(()));
    assert_eq!(world.trace(), []);
}

#[test]
fn tasks_of_a_moment_run_in_any_order() {
    let mut orders = std::collections::BTreeMap::new();
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let order = Arc::new(Mutex::new(Vec::new()));
        for task in 0..3 {
            let order = order.clone();
            spawn(&runtime, async move { order.lock().expect("one thread").push(task) });
        }
        assert_eq!(world.run_until_idle(), Ran::Finished(()));
        *orders.entry(order.lock().expect("one thread").clone()).or_insert(0) += 1;
    }
    assert!(orders.len() == 6 && orders.values().all(|&count| count > SEEDS / 20), "{orders:?}");
}

#[test]
fn events_of_a_nanosecond_come_in_any_order() {
    let first = |seed| {
        let schedule = schedule::Schedule::new(SplitMix(seed));
        let _ = [0; 3].map(|delay_ns| schedule.add_transfer(schedule::Boot(1), delay_ns));
        schedule.take_due()
    };
    let transfers = [0, 1, 2].map(|id| schedule::Due::Transfer(schedule::Boot(1), id));
    assert!(transfers.iter().all(|&due| (0..SEEDS).any(|seed| first(seed) == Some(due))));
}

#[test]
fn the_wall_clock_alone_jumps() {
    let mut world = World::new(1);
    let clock = world.runtime().clock;
    let (now, wall) = (clock.now_ns(), clock.wall());
    world.jump_wall(-5);
    assert_eq!((clock.now_ns(), clock.wall().0), (now, wall.0 - 5));
}

#[test]
fn tasks_know_their_core_and_jobs_run_outside() {
    let mut world = World::with(Setup { cores: 3, ..Setup::new(1) });
    let runtime = world.runtime();
    assert_eq!(runtime.tasks.cores(), 3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for core in 0..3 {
        let (runtime, seen, tasks) = (runtime.clone(), seen.clone(), runtime.tasks.clone());
        let make = move || -> crate::tasks::Local {
            assert_eq!(runtime.tasks.core(), core, "made where it runs");
            Box::pin(async move {
                for _ in 0..10 {
                    yield_now().await;
                    assert_eq!(runtime.tasks.core(), core);
                    let pool = runtime.tasks.clone();
                    assert_eq!(run_blocking(&*runtime.tasks, move || pool.core()).await, 0);
                    assert_eq!(runtime.tasks.core(), core);
                }
                seen.lock().expect("one thread").push(core);
            })
        };
        tasks.spawn(core, Box::new(make));
    }
    assert_eq!(world.run_until_idle(), Ran::Finished(()));
    seen.lock().expect("one thread").sort_unstable();
    assert_eq!(*seen.lock().expect("one thread"), [0, 1, 2]);
}

/// A task on core 0.
fn spawn(runtime: &Runtime, future: impl std::future::Future<Output = ()> + Send + 'static) {
    runtime.tasks.spawn(0, Box::new(move || Box::pin(future)));
}

#[test]
fn run_for_stops_in_time() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let ticks = Arc::new(AtomicU64::new(0));
    let (there, counted) = (runtime.clone(), ticks.clone());
    spawn(&runtime, async move {
        loop {
            there.clock.sleep(1_000_000).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let start = runtime.clock.now_ns();
    assert_eq!(world.run_for(100_500_000), Ran::Finished(()));
    assert!((99..=100).contains(&ticks.load(Ordering::Relaxed)));
    let ran = runtime.clock.now_ns() - start;
    assert!((100_500_000..100_510_000).contains(&ran));
    // A timer alone is no reason to go on.
    assert_eq!(world.run_until_idle(), Ran::Finished(()));
    assert!(runtime.clock.now_ns() < start + 101_000_000);
}

#[test]
#[should_panic(expected = "seed 42: deadlock")]
fn a_deadlock_is_found() {
    let mut world = World::new(42);
    let event = Event::new();
    world.block_on(event.after(event.ticket()));
}

#[test]
#[should_panic(expected = "seed 42: not finished")]
fn a_wait_beside_a_ticking_agent_is_given_up() {
    let mut world = World::with(Setup { patience_ns: 1_000_000_000, ..Setup::new(42) });
    let runtime = world.runtime();
    let there = runtime.clone();
    spawn(&runtime, async move {
        loop {
            there.clock.sleep(1_000_000).await;
        }
    });
    let event = Event::new();
    world.block_on(event.after(event.ticket()));
}

#[test]
#[should_panic(expected = "seed 42: tasks spin")]
fn spinning_is_found() {
    let mut world = World::new(42);
    world.block_on(async {
        loop {
            yield_now().await;
        }
    });
}

#[test]
fn a_world_that_ends_frees_all_it_held() {
    struct Held(Arc<()>, Runtime);
    impl Drop for Held {
        fn drop(&mut self) {
            // Destructors may still ask for things; nothing comes of it.
            let kept = (self.0.clone(), self.1.clone());
            self.1.tasks.spawn(0, Box::new(move || Box::pin(async move { drop(kept) })));
            let kept = (self.0.clone(), self.1.clone());
            self.1.tasks.blocking(Box::new(move || drop(kept)));
        }
    }
    let mark = Arc::new(());
    let held = |runtime: &Runtime| Held(mark.clone(), runtime.clone());
    let mut world = World::new(1);
    let runtime = world.runtime();
    let disk: Weak<SimDisk> = Arc::downgrade(world.disk());
    let tasks: Weak<dyn Tasks> = Arc::downgrade(&runtime.tasks);
    let stuck = Arc::new(Event::new());
    let file = world.block_on(create(&runtime, "a"));
    let (kept, event) = (held(&runtime), stuck.clone());
    spawn(&runtime, async move {
        let writing = submit(&kept.1, file, 0, 1, false);
        event.after(event.ticket()).await;
        drop((writing, kept));
    });
    let kept = held(&runtime);
    spawn(&runtime, async move { kept.1.clock.sleep(1_000_000_000).await });
    assert_eq!(world.run_for(1_000), Ran::Finished(()));
    let kept = held(&runtime);
    runtime.tasks.blocking(Box::new(move || drop(kept)));
    let kept = held(&runtime);
    spawn(&runtime, async move { drop(kept) });
    drop(submit(&runtime, file, 1, 1, false));
    assert!(Arc::strong_count(&mark) >= 5);
    drop(runtime);
    drop(world);
    assert_eq!(Arc::strong_count(&mark), 1);
    assert!(disk.upgrade().is_none() && tasks.upgrade().is_none());
    // The event still holds a waker: it kept nothing alive, and waking is harmless.
    stuck.notify();
}

#[test]
fn slabs_pass_from_world_to_world_whole() {
    let mut slabs = World::new(0).runtime().slabs;
    let mut runtimes = Vec::new();
    for seed in 0..SEEDS {
        let mut world = World::with_slabs(seed, slabs);
        let runtime = world.runtime();
        world.block_on(async {
            let file = create(&runtime, "a").await;
            (0..64).for_each(|page| drop(submit(&runtime, file, page % PAGES, 1, false)));
        });
        slabs = runtime.slabs.clone();
        // Even if someone still holds the runtime of a world that is gone.
        runtimes.push(runtime);
    }
    // One chunk was enough throughout: transfers in flight at a world's end gave their buffers back.
    assert_eq!(slabs.bytes(), 2 << 20);
}

#[test]
fn the_trace_keeps_the_last_events() {
    let mut world = World::new(1);
    world.keep_trace(3);
    let runtime = world.runtime();
    world.block_on(async { write(&runtime, create(&runtime, "a").await, 1, 1, false).await });
    let trace = world.trace();
    assert_eq!(
        trace.iter().map(|event| event.kind).collect::<Vec<_>>(),
        [TraceKind::Transfer, TraceKind::End, TraceKind::Poll]
    );
    assert!(trace[1].to_string().contains("End"));
}
