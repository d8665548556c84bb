//! A follower that was away has the records that it lacks soon, though clients go on writing.

use super::{agree, options, with_file};
use crate::rig::{BRICKS, CLIENTS, Client, Cluster, MS, cluster, until};
use base::{At, Ino, Op, Sync};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TASKS: usize = 8;
/// Blocks of a write that goes into the log, and is nearly too large for that.
const BLOCKS: usize = 31;
const AWAY_MS: u64 = 1_000;
/// Records that are under way to a follower which is not behind.
const LACKS_MAX: u64 = 3 * TASKS as u64;

/// Clients that write blocks of a file until they are told to stop.
struct Writers {
    stop: AtomicBool,
    count: AtomicU64,
    ended: AtomicU64,
}

fn start(cluster: &Arc<Cluster>, client: &Client, ino: Ino, blocks: usize) -> Arc<Writers> {
    let writers =
        Arc::new(Writers { stop: AtomicBool::new(false), count: AtomicU64::new(0), ended: AtomicU64::new(0) });
    for task in 0..TASKS {
        let (client, writers) = (client.clone(), writers.clone());
        cluster.hosts.runtime(CLIENTS).spawn(task % 2, move || async move {
            let mut number = task as u64;
            while !writers.stop.load(Ordering::Relaxed) {
                number += TASKS as u64;
                let at = At::Offset(number * 7 % 1_000 * 4096);
                let bytes = vec![number as u8; blocks * 4096];
                let op = Op::Write { ino, at, sync: Sync::Ordered, kill_privileges: false };
                client.call(op, Some(&bytes)).await.expect("it can be written");
                writers.count.fetch_add(1, Ordering::Relaxed);
            }
            writers.ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    writers
}

async fn stop(cluster: &Arc<Cluster>, writers: &Writers) {
    writers.stop.store(true, Ordering::Relaxed);
    until(&cluster.hosts, "clients stop", || writers.ended.load(Ordering::Relaxed) == TASKS as u64).await;
    agree(cluster).await;
}

/// Clients write as much as a brick has room for, and half as much again, over the same blocks. A checkpoint makes room, though a brick has
/// not heard by then that its last records are committed; and a follower on a slow way heals.
#[test]
fn a_log_that_is_full_goes_on() {
    for seed in 0..crate::rig::seeds(2) {
        // A few less than what is kept for all.
        let options = group::Options { kept_records: options().kept_records - 1, ..options() };
        let (mut fleet, cluster) = cluster(seed + 30, options);
        fleet.block_on(async {
            let (client, ino) = with_file(&cluster).await;
            let writers = start(&cluster, &client, ino, BLOCKS);
            let enough = || writers.count.load(Ordering::Relaxed) * BLOCKS as u64 * 4096 > 384 << 20;
            // Some ways carry 10 MB/s.
            for _ in 0..10 * 60 {
                if !enough() {
                    cluster.hosts.clock().sleep(1_000 * MS).await;
                }
            }
            assert!(enough(), "clients go on");
            stop(&cluster, &writers).await;
        });
    }
}

/// The records that it lacks come from the leader's device: reading them takes less time than clients took to write them.
#[test]
fn a_follower_that_was_away_is_soon_in_sync() {
    for seed in 0..crate::rig::seeds(2) {
        let (mut fleet, cluster) = cluster(seed + 20, options());
        fleet.block_on(async {
            cluster.join_by_lan();
            let (client, ino) = with_file(&cluster).await;
            let leader = cluster.leader().expect("somebody has answered");
            let away = (leader + 1) % BRICKS;
            (0..BRICKS).filter(|other| *other != away).for_each(|other| cluster.links().cut(away, other));
            let writers = start(&cluster, &client, ino, 1);
            let clock = cluster.hosts.clock();
            clock.sleep(AWAY_MS * MS).await;
            let missed = writers.count.load(Ordering::Relaxed);
            cluster.heal();
            let lacks = || cluster.lacks(leader, away);
            assert!(lacks().is_some_and(|lacks| lacks >= missed), "it was away");
            // Connecting anew takes what it takes.
            until(&cluster.hosts, "it gets some", || lacks().is_some_and(|lacks| lacks < missed)).await;
            let from = clock.now_ns();
            until(&cluster.hosts, "it is in sync", || lacks().is_some_and(|lacks| lacks <= LACKS_MAX)).await;
            let took_ms = (clock.now_ns() - from) / MS;
            assert!(missed > 2_000, "clients write at a high rate: {missed}");
            assert!(took_ms < AWAY_MS / 3, "{missed} records of {AWAY_MS} ms: in sync {took_ms} ms after the first");
            stop(&cluster, &writers).await;
        });
    }
}
