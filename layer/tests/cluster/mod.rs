//! The same with three bricks that have the volume: requests take effect once, whatever becomes of any one of them, and no change is lost,
//! synced or not.

mod bricks;
mod groups;

use super::{CLIENT, Deeds, Progress, ROUNDS, TASKS, check_log, nameless, seen, start_client};
use crate::rig::{MS, Mount, name, seeds, until};
use base::lock::{Family, FileLock, LockWish, Mode};
use base::{Op, Reply, Sync};
use bricks::{BRICKS, Bricks, fleet};
use runtime::random::SplitMix;
use runtime::sim::{LinkPlan, Survival};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The kinds of faults of a run.
#[derive(Clone, Copy)]
enum Faults {
    Ends,
    Cuts,
    Everything,
}

#[test]
fn no_change_is_lost_when_bricks_end() {
    (0..seeds()).for_each(|seed| through(seed, Faults::Ends));
}

#[test]
fn no_change_is_lost_when_ways_break() {
    (0..seeds()).for_each(|seed| through(seed, Faults::Cuts));
}

#[test]
fn no_change_is_lost_whatever_happens() {
    (0..seeds()).for_each(|seed| through(seed, Faults::Everything));
}

fn through(seed: u64, faults: Faults) {
    let (mut fleet, bricks) = fleet(seed, 1);
    let mut rng = SplitMix(seed);
    let hosts = bricks.hosts.clone();
    fleet.block_on(async {
        bricks.begin().await;
        let progress = Progress::default();
        start_client(&hosts, bricks.addresses(), &progress, Sync::Ordered, true);
        until(&hosts, || progress.mount.lock().expect("no panic").is_some()).await;
        let nameless = nameless(&hosts, &progress).await;
        while progress.ended.load(Ordering::Relaxed) < TASKS {
            some_fault(&bricks, faults, &mut rng).await;
        }
        // A file that is open without a name is there under each of its leaders.
        let before = *nameless.lock().expect("no panic");
        until(&hosts, || *nameless.lock().expect("no panic") > before + 1).await;
        let (log, names) = seen(&hosts, &progress).await;
        check_log(&log, &progress.told.lock().expect("no panic"));
        let odd = (0..TASKS).flat_map(|task| (1..ROUNDS).step_by(2).map(move |round| format!("moved-{task}-{round}")));
        assert_eq!(names, odd.chain(["log".to_string()]).collect::<BTreeSet<_>>(), "seed {seed}");
        bricks.agree().await;
    });
}

async fn some_fault(bricks: &Arc<Bricks>, faults: Faults, rng: &mut SplitMix) {
    bricks.hosts.clock().sleep((100 + rng.below(3_000)) * MS).await;
    match (faults, rng.below(4)) {
        (Faults::Ends, _) | (Faults::Everything, 0 | 1) => end_one(bricks, rng).await,
        (Faults::Everything, 2) => end_all(bricks, rng).await,
        _ => break_ways(bricks, rng).await,
    }
}

/// A brick that leads one of the groups, or any one.
fn some_brick(bricks: &Bricks, rng: &mut SplitMix) -> usize {
    let group = base::GroupId(rng.below(u64::from(bricks.groups)) as u32);
    bricks.leader_of(group).filter(|_| rng.one_in(2)).unwrap_or(rng.below(BRICKS as u64) as usize)
}

async fn end_one(bricks: &Arc<Bricks>, rng: &mut SplitMix) {
    let number = some_brick(bricks, rng);
    if rng.one_in(4) {
        bricks.close(number).await;
        return bricks.start_again(number);
    }
    bricks.stop(number, [None, Some(Survival::Nothing), Some(Survival::Random)][rng.below(3) as usize]);
    bricks.hosts.clock().sleep(rng.below(4_000) * MS).await;
    bricks.start_again(number);
}

async fn end_all(bricks: &Arc<Bricks>, rng: &mut SplitMix) {
    (0..BRICKS).for_each(|number| bricks.stop(number, Some(Survival::Random)));
    for number in 0..BRICKS {
        bricks.hosts.clock().sleep(rng.below(1_000) * MS).await;
        bricks.start_again(number);
    }
}

/// Cuts one brick off from the others, the client, or both.
async fn break_ways(bricks: &Arc<Bricks>, rng: &mut SplitMix) {
    let one = some_brick(bricks, rng);
    let (links, one) = (bricks.hosts.links(), bricks::host(one));
    let others: Vec<_> = (0..BRICKS).map(bricks::host).chain([CLIENT]).filter(|other| *other != one).collect();
    let is_alone = rng.one_in(4);
    for other in others {
        match rng.below(7) {
            _ if is_alone => links.cut(one, other),
            0 => links.cut(one, other),
            1 => links.cut_one_way(one, other),
            2 => links.cut_one_way(other, one),
            3 => links.reset_after(one, other, rng.below(50_000)),
            4 => links.set_plan(one, other, LinkPlan::draw(rng)),
            _ => {}
        }
    }
    bricks.hosts.clock().sleep(rng.below(8_000) * MS).await;
    links.heal_all();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_new_leader_that_waits_for_no_session() {
    let caught = || (0..seeds().max(8)).for_each(|seed| through(seed, Faults::Ends));
    assert!(runtime::seeded::fails(caught, runtime::seeded::Bug::OrphansNotAwaited));
}

/// A client's calls go on soon after its leader has ended, without an error, and its locks are still its own.
#[test]
fn another_brick_goes_on_within_seconds() {
    for (end, most_ms) in [(End::Machine, 3_500), (End::Process, 1_000), (End::Planned, 200)] {
        let stalls: Vec<_> = (0..seeds()).map(|seed| stall_of_an_end(seed, end)).collect();
        println!("stalls in ms: {stalls:?}");
        let longest = stalls.iter().max().expect("there are seeds");
        assert!(*longest <= most_ms, "stalls in ms: {stalls:?}");
    }
}

/// The end of a leader.
#[derive(Clone, Copy)]
enum End {
    /// Its machine goes off.
    Machine,
    /// Its process is killed, and started again a moment later.
    Process,
    /// An operator ends it.
    Planned,
}

/// The longest time without an answer around the end of the leader, in milliseconds.
fn stall_of_an_end(seed: u64, end: End) -> u64 {
    let (mut fleet, bricks) = fleet(seed, 1);
    let hosts = bricks.hosts.clone();
    let stalled = Arc::new(Mutex::new(None));
    fleet.block_on(async {
        bricks.begin().await;
        let (runtime, addresses, there) = (hosts.runtime(CLIENT), bricks.addresses(), stalled.clone());
        let (own, is_ready) = (runtime.clone(), Arc::new(Mutex::new(false)));
        let ready = is_ready.clone();
        runtime.spawn(0, move || async move {
            let mount = Mount::at(own.clone(), addresses.clone()).await;
            let other = Mount::at(own.clone(), addresses).await;
            let ino = mount.create("file").await;
            assert!(has_lock(&mount, ino).await && !has_lock(&other, ino).await);
            *ready.lock().expect("no panic") = true;
            let (mut longest, began_ns) = (0, own.clock.now_ns());
            while own.clock.now_ns() - began_ns < 15_000 * MS {
                let asked_ns = own.clock.now_ns();
                mount.append(ino, &[7; 100], Sync::Ordered).await;
                longest = longest.max(own.clock.now_ns() - asked_ns);
                own.clock.sleep(5 * MS).await;
            }
            assert!(!has_lock(&other, ino).await, "who had the lock has it");
            *there.lock().expect("no panic") = Some(longest / MS);
        });
        until(&hosts, || *is_ready.lock().expect("no panic")).await;
        hosts.clock().sleep(500 * MS).await;
        let leader = bricks.leader().expect("somebody has answered");
        match end {
            End::Machine => bricks.stop(leader, Some(Survival::Nothing)),
            End::Process => {
                bricks.stop(leader, None);
                hosts.clock().sleep(200 * MS).await;
                bricks.start_again(leader);
            }
            End::Planned => bricks.close(leader).await,
        }
        until(&hosts, || stalled.lock().expect("no panic").is_some()).await;
    });
    let stalled = stalled.lock().expect("no panic").take();
    stalled.expect("it was measured")
}

/// True if a mount could take a lock of a whole file.
async fn has_lock(mount: &Mount, ino: base::Ino) -> bool {
    let owner = mount.session.0;
    let lock = FileLock { ino, family: Family::Range, mode: Mode::Exclusive, owner, pid: 1, first: 0, last: u64::MAX };
    let answer = mount.call(Op::Lock { lock: Box::new(lock), wish: LockWish::Take }, None).await;
    match answer.map(|answer| answer.reply) {
        Ok(Reply::InTheWay(obstacle)) => obstacle.is_none(),
        other => panic!("a lock, or who has it: {other:?}"),
    }
}

/// A name that only a brick without a majority has made is never told, and the volume's names are the same afterwards.
#[test]
fn a_cut_off_leader_answers_nothing() {
    let (mut fleet, bricks) = fleet(3, 1);
    let hosts = bricks.hosts.clone();
    fleet.block_on(async {
        bricks.begin().await;
        let old = bricks.leader().expect("somebody leads");
        let (runtime, told) = (hosts.runtime(CLIENT), Arc::new(Mutex::new(Vec::new())));
        let (there, addresses, only) = (told.clone(), bricks.addresses(), vec![bricks.address(old)]);
        let own = runtime.clone();
        runtime.spawn(0, move || async move {
            let stuck = Mount::at(own.clone(), only).await;
            let free = Mount::at(own.clone(), addresses).await;
            there.lock().expect("no panic").push("mounted");
            own.clock.sleep(1_000 * MS).await;
            let (late, theirs) = (there.clone(), stuck.clone());
            own.spawn(0, move || async move {
                let parent = theirs.root;
                let create = Op::Create { parent, name: name("stuck"), mode: 0o644, exclusive: true };
                drop(theirs.call(create, None).await);
                late.lock().expect("no panic").push("stuck");
            });
            free.create("free").await;
            assert_eq!(free.names().await, ["free".to_string()].into());
            there.lock().expect("no panic").push("free");
        });
        let said = |what: &str| told.lock().expect("no panic").contains(&what);
        until(&hosts, || said("mounted")).await;
        let others = (0..BRICKS).filter(|other| *other != old);
        others.for_each(|other| hosts.links().cut(bricks::host(old), bricks::host(other)));
        until(&hosts, || said("free")).await;
        hosts.clock().sleep(5_000 * MS).await;
        assert!(!said("stuck"), "nobody but the cut-off brick has it");
    });
}
