//! Disks that answer nothing for a while. Who has such a disk does not lead for long, and nothing that was answered is lost.

use super::faults::{TASKS, Told, check, start_tasks};
use super::{agree, append, options, with_file};
use crate::rig::{BRICKS, Client, Cluster, MS, cluster, seeds, until};
use base::Ino;
use runtime::random::SplitMix;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The time for which disks hang.
const HANGS_NS: u64 = 10_000 * MS;
/// The time within which another brick leads.
const LEADS_NS: u64 = 6_000 * MS;

/// Clients of new bricks who write; disks hang somewhere within their work.
async fn begin(cluster: &Arc<Cluster>, seed: u64) -> (Client, Ino, Told) {
    let (client, ino) = with_file(cluster).await;
    let told = Told::default();
    start_tasks(cluster, &client, ino, &told);
    cluster.hosts.clock().sleep((100 + SplitMix(seed).below(1500)) * MS).await;
    (client, ino, told)
}

/// Waits until all clients have ended and all bricks have all, and compares it with what was answered.
async fn end(cluster: &Arc<Cluster>, client: &Client, ino: Ino, told: &Told) {
    (0..BRICKS).for_each(|number| cluster.hang_no_longer(number));
    until(&cluster.hosts, "the clients end", || told.ended.load(Ordering::Relaxed) == TASKS).await;
    until(&cluster.hosts, "somebody serves", || cluster.leader().is_some()).await;
    check(client, ino, told).await;
    agree(cluster).await;
}

#[test]
pub fn a_brick_whose_disk_hangs_leads_no_longer() {
    for seed in 0..seeds(6) {
        let (mut fleet, cluster) = cluster(seed, options());
        fleet.block_on(async {
            let (client, ino, told) = begin(&cluster, seed).await;
            let (clock, old) = (cluster.hosts.clock(), cluster.leader().expect("clients are answered"));
            let until_ns = clock.now_ns() + LEADS_NS;
            cluster.hang(old, HANGS_NS);
            while cluster.leader().is_none_or(|leader| leader == old) {
                assert!(clock.now_ns() < until_ns, "seed {seed}: who hangs still leads, or nobody");
                clock.sleep(10 * MS).await;
            }
            client.create("afterwards").await.expect("a new file");
            assert!(clock.now_ns() < until_ns, "seed {seed}: the next leader serves");
            clock.sleep(until_ns - LEADS_NS + HANGS_NS - clock.now_ns()).await;
            end(&cluster, &client, ino, &told).await;
        });
    }
}

#[test]
fn nothing_is_answered_while_both_followers_disks_hang() {
    for seed in 0..seeds(6) {
        let (mut fleet, cluster) = cluster(seed, options());
        fleet.block_on(async {
            let (client, ino, told) = begin(&cluster, seed).await;
            let (clock, leader) = (cluster.hosts.clock(), cluster.leader().expect("clients are answered"));
            (0..BRICKS).filter(|other| *other != leader).for_each(|other| cluster.hang(other, HANGS_NS));
            // What was under way may still be answered.
            clock.sleep(500 * MS).await;
            let count = || told.offsets.lock().expect("no panic").len();
            let before = count();
            clock.sleep(HANGS_NS - 1_000 * MS).await;
            assert_eq!(count(), before, "seed {seed}: only the leader has it");
            end(&cluster, &client, ino, &told).await;
            assert!(count() > before, "seed {seed}: the clients went on");
        });
    }
}

/// Votes could not be kept while no disk answers: nobody asks for any, and all go on when the disks do.
#[test]
fn nobody_campaigns_while_its_disk_hangs() {
    for seed in 0..seeds(6) {
        let (mut fleet, cluster) = cluster(seed, options());
        fleet.block_on(async {
            let (client, ino, told) = begin(&cluster, seed).await;
            let terms = || (0..BRICKS).map(|number| cluster.status(number).map(|status| status.term));
            let before: Vec<_> = terms().collect();
            (0..BRICKS).for_each(|number| cluster.hang(number, HANGS_NS));
            cluster.hosts.clock().sleep(HANGS_NS - 1_000 * MS).await;
            assert!(cluster.leader().is_none(), "seed {seed}: nobody has its lease any more");
            assert_eq!(terms().collect::<Vec<_>>(), before, "seed {seed}: nobody asks for votes");
            end(&cluster, &client, ino, &told).await;
            append(&client, ino, &[1]).await;
        });
    }
}
