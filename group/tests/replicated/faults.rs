//! Bricks end, machines go off, and ways break, while clients write: what was answered is there once, on all replicas.

use super::{agree, append, options};
use crate::rig::{BRICKS, CLIENTS, Client, Cluster, MS, begin, cluster, seeds, until};
use base::{At, Ino, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{LinkPlan, Survival};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub const TASKS: usize = 3;
pub const ROUNDS: usize = 40;

/// A record of a task; some are large writes.
fn record(task: usize, round: usize) -> Vec<u8> {
    let length = if round % 5 == 4 { 150_000 + task } else { 300 + 17 * task + round };
    (0..length).map(|at| (at * 31 + task * 7 + round * 13) as u8).collect()
}

/// The records that were answered, by their offsets.
#[derive(Clone, Default)]
pub struct Told {
    pub offsets: Arc<Mutex<BTreeMap<u64, (usize, usize)>>>,
    pub ended: Arc<AtomicUsize>,
}

pub fn start_tasks(cluster: &Arc<Cluster>, client: &Client, log: Ino, told: &Told) {
    for task in 0..TASKS {
        let (client, told) = (client.clone(), told.clone());
        cluster.hosts.runtime(CLIENTS).spawn(task % 2, move || async move {
            for round in 0..ROUNDS {
                let offset = append(&client, log, &record(task, round)).await;
                told.offsets.lock().expect("no panic").insert(offset, (task, round));
                let made = client.create(&format!("made-{task}-{round}")).await;
                assert!(made.is_ok(), "a name is made once: {made:?}");
                client.runtime.clock.sleep(100 * MS).await;
            }
            told.ended.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// Reads the log of records through whoever serves.
pub async fn check(client: &Client, log: Ino, told: &Told) {
    let mut bytes = Vec::new();
    loop {
        let op = Op::Read { ino: log, offset: bytes.len() as u64, length: 1 << 20 };
        let answer = client.call(op, None).await.expect("it can be read");
        match answer.data.filter(|data| !data.is_empty()) {
            Some(data) => bytes.extend_from_slice(&data),
            None => break,
        }
    }
    let mut end = 0;
    for (&offset, &(task, round)) in told.offsets.lock().expect("no panic").iter() {
        assert_eq!(offset, end, "no gap and nothing twice before the record of task {task} in round {round}");
        let wanted = record(task, round);
        assert!(bytes[offset as usize..][..wanted.len()] == wanted[..], "the record of task {task} in round {round}");
        end += wanted.len() as u64;
    }
    assert_eq!(end, bytes.len() as u64, "nothing behind the last record");
}

#[test]
fn changes_survive_the_end_of_any_one_brick() {
    for seed in 0..seeds(6) {
        through_faults(seed, options(), Faults { ends: true, cuts: false, all: false });
    }
}

#[test]
fn changes_survive_ways_that_break() {
    let faults = Faults { ends: false, cuts: true, all: false };
    let rebuilt: u64 = (0..seeds(10)).map(|seed| through_faults(seed, options(), faults)).sum();
    assert!(rebuilt > 0, "no leader that was deposed had ordered anything void");
}

/// Small checkpoints come often, between all else.
#[test]
pub fn changes_survive_everything_at_once() {
    let often = group::Options { overlay_bytes: 20_000, replay_records: 20, ..options() };
    let faults = Faults { ends: true, cuts: true, all: true };
    for seed in 0..seeds(10) {
        through_faults(seed, often, faults);
    }
}

/// The kinds of faults of a run.
#[derive(Clone, Copy)]
struct Faults {
    /// Bricks end, one at a time.
    ends: bool,
    /// Ways between bricks break, and are slow.
    cuts: bool,
    /// All bricks end at once.
    all: bool,
}

/// Returns how often a group was built again.
fn through_faults(seed: u64, options: group::Options, faults: Faults) -> u64 {
    let (mut fleet, cluster) = cluster(seed, options);
    let (hosts, mut rng) = (cluster.hosts.clone(), SplitMix(seed));
    let mut rebuilt = 0;
    fleet.block_on(async {
        let client = begin(&cluster).await;
        let log = client.create("log").await.expect("a new file");
        let told = Told::default();
        start_tasks(&cluster, &client, log, &told);
        while told.ended.load(Ordering::Relaxed) < TASKS {
            hosts.clock().sleep((100 + rng.below(1500)) * MS).await;
            rebuilt += cluster.rebuilt();
            match rng.below(4) {
                0 | 1 if faults.ends => end_one(&cluster, &mut rng).await,
                2 if faults.all => end_all(&cluster, &mut rng).await,
                _ if faults.cuts => break_ways(&cluster, &mut rng).await,
                _ => {}
            }
        }
        cluster.heal();
        until(&hosts, "somebody serves", || cluster.leader().is_some()).await;
        check(&client, log, &told).await;
        agree(&cluster).await;
    });
    rebuilt
}

/// A fault of any kind, after a while.
pub async fn some_fault(cluster: &Arc<Cluster>, rng: &mut SplitMix) {
    cluster.hosts.clock().sleep((100 + rng.below(1500)) * MS).await;
    match rng.below(4) {
        0 | 1 => end_one(cluster, rng).await,
        2 => end_all(cluster, rng).await,
        _ => break_ways(cluster, rng).await,
    }
}

fn survival(rng: &mut SplitMix) -> Option<Survival> {
    [None, Some(Survival::Nothing), Some(Survival::Random)][rng.below(3) as usize]
}

async fn end_one(cluster: &Arc<Cluster>, rng: &mut SplitMix) {
    let number = match cluster.leader() {
        Some(leader) if rng.one_in(2) => leader,
        _ => rng.below(BRICKS as u64) as usize,
    };
    let image = cluster.stop(number, survival(rng));
    // Some are back before the others have missed them.
    if !rng.one_in(3) {
        cluster.hosts.clock().sleep(rng.below(4_000) * MS).await;
    }
    cluster.start_again(number, image);
}

async fn end_all(cluster: &Arc<Cluster>, rng: &mut SplitMix) {
    let images: Vec<_> = (0..BRICKS).map(|number| cluster.stop(number, survival(rng))).collect();
    for (number, image) in images.into_iter().enumerate() {
        cluster.hosts.clock().sleep(rng.below(1_000) * MS).await;
        cluster.start_again(number, image);
    }
}

async fn break_ways(cluster: &Arc<Cluster>, rng: &mut SplitMix) {
    let one = rng.below(BRICKS as u64) as usize;
    let one = cluster.leader().filter(|_| rng.one_in(2)).unwrap_or(one);
    let is_alone = rng.one_in(3);
    for other in (0..BRICKS).filter(|other| *other != one) {
        match rng.below(6) {
            _ if is_alone => cluster.links().cut(one, other),
            0 => cluster.links().cut(one, other),
            1 => cluster.links().cut_one_way(one, other),
            2 => cluster.links().cut_one_way(other, one),
            3 => cluster.links().reset_after(one, other, rng.below(50_000)),
            4 => cluster.links().set_plan(one, other, LinkPlan::draw(rng)),
            _ => {}
        }
    }
    cluster.hosts.clock().sleep(rng.below(8_000) * MS).await;
    cluster.heal();
}

/// A writer counts up in a file; readers, who ask any brick, never see it count down, nor less than what was answered before they asked.
#[test]
pub fn reads_are_never_old() {
    (0..seeds(6)).for_each(through_reads);
}

/// The numbers that readers compare with.
#[derive(Default)]
struct Counted {
    /// The last number that was answered, and the last one that was tried.
    answered: AtomicUsize,
    tried: AtomicUsize,
    /// The highest that anybody has read.
    read: AtomicUsize,
    reads: AtomicUsize,
    ends: AtomicUsize,
}

fn through_reads(seed: u64) {
    let (mut fleet, cluster) = cluster(seed, options());
    let (hosts, mut rng) = (cluster.hosts.clone(), SplitMix(seed));
    fleet.block_on(async {
        let client = begin(&cluster).await;
        let ino = client.create("counter").await.expect("a new file");
        let counted = Arc::new(Counted::default());
        write_number(&client, ino, 0).await;
        let (own, there) = (client.clone(), counted.clone());
        hosts.runtime(CLIENTS).spawn(0, move || async move {
            for number in 1.. {
                there.tried.store(number, Ordering::Relaxed);
                write_number(&own, ino, number).await;
                there.answered.store(number, Ordering::Relaxed);
                if there.ends.load(Ordering::Relaxed) > 0 {
                    return;
                }
                own.runtime.clock.sleep(20 * MS).await;
            }
        });
        for reader in 0..2 {
            let (own, there) = (client.of_session(10 + reader), counted.clone());
            hosts.runtime(CLIENTS).spawn(1, move || async move { read_numbers(&own, ino, &there).await });
        }
        for _ in 0..6 {
            hosts.clock().sleep((100 + rng.below(1000)) * MS).await;
            match rng.below(3) {
                0 => end_one(&cluster, &mut rng).await,
                _ => break_ways(&cluster, &mut rng).await,
            }
        }
        counted.ends.store(1, Ordering::Relaxed);
        let (reads, answered) = (counted.reads.load(Ordering::Relaxed), counted.answered.load(Ordering::Relaxed));
        assert!(reads > 20 && answered > 20, "seed {seed}: {reads} reads, {answered} writes");
    });
}

async fn write_number(client: &Client, ino: Ino, number: usize) {
    let mut block = vec![0; 4096];
    block[..8].copy_from_slice(&(number as u64).to_le_bytes());
    let op = Op::Write { ino, at: At::Offset(0), sync: Sync::Written, kill_privileges: false };
    client.call(op, Some(&block)).await.expect("it can be written");
}

async fn read_numbers(client: &Client, ino: Ino, counted: &Counted) {
    while counted.ends.load(Ordering::Relaxed) == 0 {
        let least = counted.answered.load(Ordering::Relaxed).max(counted.read.load(Ordering::Relaxed));
        client.ask_another();
        let answer = client.call(Op::Read { ino, offset: 0, length: 4096 }, None).await.expect("it can be read");
        let data = answer.data.expect("it has bytes");
        let number = u64::from_le_bytes(data[..8].try_into().expect("eight bytes")) as usize;
        assert!(number >= least, "{number} was read after {least} was known");
        assert!(number <= counted.tried.load(Ordering::Relaxed), "nobody has written {number}");
        counted.read.fetch_max(number, Ordering::Relaxed);
        counted.reads.fetch_add(1, Ordering::Relaxed);
        client.runtime.clock.sleep(7 * MS).await;
    }
}
