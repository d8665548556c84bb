//! A brick that lacks what the others no longer keep gets the group anew: its rows at once, the blocks that it lacks one after the other.

use super::{agree, append, options, with_file, write_block};
use crate::faults::{Told, check, start_tasks};
use crate::rig::{self, BRICKS, Client, Cluster, MS, begin, cluster, seeds, until};
use base::{At, Ino, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{FaultPlan, Survival};
use runtime::{FileId, OpenMode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The file of a brick's data.
const DATA: &str = "segments-00000";

/// Replicas that keep next to nothing for followers.
fn forgetful() -> group::Options {
    group::Options { kept_records: 5, replay_records: 20, ..options() }
}

/// Cuts a follower off. Returns it.
fn send_away(cluster: &Arc<Cluster>) -> usize {
    let leader = cluster.leader().expect("somebody has answered");
    let away = (leader + 1) % BRICKS;
    (0..BRICKS).filter(|other| *other != away).for_each(|other| cluster.links().cut(away, other));
    away
}

/// Orders so many changes, with checkpoints in between, that nobody keeps the first of them.
async fn go_on_without(client: &Client, ino: Ino, rounds: usize) {
    for round in 0..rounds {
        for _ in 0..25 {
            append(client, ino, &[round as u8; 700]).await;
        }
        client.cluster.hosts.clock().sleep(1_500 * MS).await;
    }
}

fn lacks(cluster: &Cluster, number: usize) -> bool {
    cluster.status(number).is_none_or(|status| status.heal.is_some())
}

async fn healed(cluster: &Arc<Cluster>, number: usize) {
    until(&cluster.hosts, "it has healed", || cluster.status(number).is_some_and(|status| status.heal.is_none())).await;
}

/// A file of so many blocks, each with its own bytes.
async fn large(client: &Client, text: &str, blocks: usize) -> (Ino, Vec<u8>) {
    let ino = client.create(text).await.expect("a new file");
    let bytes: Vec<u8> = (0..blocks * 4096).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    append(client, ino, &bytes).await;
    (ino, bytes)
}

async fn read(client: &Client, ino: Ino, length: usize) -> Vec<u8> {
    let op = Op::Read { ino, offset: 0, length: length as u32 };
    client.call(op, None).await.expect("it can be read").data.map_or(Vec::new(), |data| data.to_vec())
}

/// All kinds of changes that a brick may have missed.
async fn change_all(client: &Client, (linked, changed, removed): (Ino, Ino, &str)) {
    let write = Op::Write { ino: changed, at: At::Offset(5 * 4096), sync: Sync::Ordered, kill_privileges: false };
    client.call(write, Some(&[9; 3 * 4096])).await.expect("it can be written");
    let punch = base::SetAttr { size: Some(20 * 4096), ..base::SetAttr::default() };
    client.call(Op::SetAttr { ino: changed, set: Box::new(punch) }, None).await.expect("it can be cut");
    let unlink = Op::Unlink { parent: client.root, name: rig::name(removed) };
    client.call(unlink, None).await.expect("it can be removed");
    let link = Op::Link { ino: linked, new_parent: client.root, new_name: rig::name("second name") };
    client.call(link, None).await.expect("it can be linked");
    let made = Op::MakeDir { parent: client.root, name: rig::name("directory"), mode: 0o755 };
    client.call(made, None).await.expect("a new directory");
}

#[test]
pub fn a_follower_that_lacks_what_is_no_longer_kept_heals() {
    let (mut fleet, cluster) = cluster(6, forgetful());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        large(&client, "kept", 200).await;
        let (linked, _) = large(&client, "linked", 60).await;
        let (changed, bytes) = large(&client, "changed", 100).await;
        large(&client, "removed", 50).await;
        agree(&cluster).await;
        cluster.hosts.clock().sleep(2_000 * MS).await;
        let away = send_away(&cluster);
        change_all(&client, (linked, changed, "removed")).await;
        go_on_without(&client, ino, 6).await;
        cluster.heal();
        until(&cluster.hosts, "it begins to heal", || lacks(&cluster, away)).await;
        healed(&cluster, away).await;
        agree(&cluster).await;
        let filled = cluster.status(away).map(|_| cluster.groups(away).expect("it runs").blocks_filled());
        // The file that has not changed keeps its blocks, and one of which anything has changed does not.
        assert!(filled.is_some_and(|filled| (140..200).contains(&filled)), "{filled:?} blocks were fetched");
        // It leads, and serves what it was given.
        for other in (0..BRICKS).filter(|other| *other != away) {
            let image = cluster.stop(other, None);
            cluster.hosts.clock().sleep(100 * MS).await;
            cluster.start_again(other, image);
        }
        while cluster.leader() != Some(away) {
            if let Some(leader) = cluster.leader().filter(|leader| *leader != away) {
                let image = cluster.stop(leader, None);
                cluster.hosts.clock().sleep(4_000 * MS).await;
                cluster.start_again(leader, image);
            }
            cluster.hosts.clock().sleep(4_000 * MS).await;
        }
        let mut wanted = bytes[..20 * 4096].to_vec();
        wanted[5 * 4096..8 * 4096].fill(9);
        assert!(read(&client, changed, 100 * 4096).await == wanted, "the file has its bytes");
    });
}

/// Blocks that lie anywhere are read many at a time: one after the other they would take 370 ms instead of 75.
#[test]
fn blocks_come_many_at_a_time() {
    const BLOCKS: usize = 4_000;
    let (mut fleet, cluster) = cluster(16, forgetful());
    fleet.block_on(async {
        cluster.join_by_lan();
        let (client, ino) = with_file(&cluster).await;
        let away = send_away(&cluster);
        for number in 0..BLOCKS {
            write_block(&client, ino, number * 1_237 % BLOCKS, number as u8).await;
        }
        go_on_without(&client, ino, 6).await;
        cluster.heal();
        let filled = || cluster.groups(away).map_or(0, |groups| groups.blocks_filled());
        until(&cluster.hosts, "blocks come", || filled() > 0).await;
        let from = cluster.hosts.clock().now_ns();
        until(&cluster.hosts, "they are there", || filled() > BLOCKS as u64 * 9 / 10).await;
        let took_ms = (cluster.hosts.clock().now_ns() - from) / MS;
        assert!(took_ms < 150, "{took_ms} ms for {BLOCKS} blocks");
        healed(&cluster, away).await;
        agree(&cluster).await;
    });
}

/// The place of a block in the data file of a brick, if it is there.
fn place_of(cluster: &Cluster, number: usize, block: &[u8]) -> Option<(FileId, u64)> {
    let file = cluster.hosts.runtime(number).disk.open(DATA, OpenMode::Existing).expect("the brick has made it");
    let image = cluster.hosts.disk(number).crash_image(Survival::Everything, &mut SplitMix(1));
    let blocks = image.length(DATA).expect("it was made") / 4096;
    (0..blocks)
        .map(|at| at * 4096)
        .find(|at| image.read(DATA, *at, 4096).as_deref() == Some(block))
        .map(|at| (file, at))
}

/// Each of the two others has a block that can't be read, among many that one transfer takes: a block comes from the one that can read it, and so do
/// those beside it.
#[test]
pub fn blocks_that_one_brick_can_not_read_come_from_another() {
    const BLOCKS: usize = 60;
    let (mut fleet, cluster) = cluster(3, forgetful());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        agree(&cluster).await;
        let away = send_away(&cluster);
        let (_, bytes) = large(&client, "changed", BLOCKS).await;
        go_on_without(&client, ino, 6).await;
        let block = |number: usize| &bytes[number * 4096..(number + 1) * 4096];
        for (number, of) in (0..BRICKS).filter(|number| *number != away).zip([30, 31]) {
            let unreadable = place_of(&cluster, number, block(of));
            assert!(unreadable.is_some(), "block {of} is on the device of brick {number}");
            cluster.hosts.disk(number).set_faults(FaultPlan { unreadable, ..FaultPlan::default() });
        }
        cluster.heal();
        until(&cluster.hosts, "it begins to heal", || lacks(&cluster, away)).await;
        healed(&cluster, away).await;
        agree(&cluster).await;
        let met = |number: usize| cluster.hosts.disk(number).faults_met() > 0;
        assert!((0..BRICKS).any(met), "somebody was asked for what it can't read");
        for number in 0..BLOCKS {
            assert!(place_of(&cluster, away, block(number)).is_some(), "block {number} is there");
        }
    });
}

/// The brick that heals is killed, or its machine goes off, again and again; so are the others.
#[test]
pub fn a_heal_goes_on_after_any_end() {
    for seed in 0..seeds(6) {
        let (mut fleet, cluster) = cluster(seed, forgetful());
        let mut rng = SplitMix(seed);
        fleet.block_on(async {
            let (client, ino) = with_file(&cluster).await;
            let (linked, _) = large(&client, "linked", 40).await;
            let (changed, _) = large(&client, "changed", 200).await;
            large(&client, "removed", 50).await;
            agree(&cluster).await;
            let away = send_away(&cluster);
            change_all(&client, (linked, changed, "removed")).await;
            go_on_without(&client, ino, 5).await;
            cluster.heal();
            for _ in 0..6 {
                cluster.hosts.clock().sleep(rng.below(1_500) * MS).await;
                let number = if rng.one_in(2) { away } else { rng.below(BRICKS as u64) as usize };
                let survival = [None, Some(Survival::Nothing), Some(Survival::Random)][rng.below(3) as usize];
                let image = cluster.stop(number, survival);
                cluster.hosts.clock().sleep(rng.below(300) * MS).await;
                cluster.start_again(number, image);
            }
            append(&client, ino, &[1; 10]).await;
            until(&cluster.hosts, "all run", || (0..BRICKS).all(|number| cluster.status(number).is_some())).await;
            agree(&cluster).await;
            for number in 0..BRICKS {
                healed(&cluster, number).await;
            }
            agree(&cluster).await;
        });
    }
}

/// A brick with missing blocks leads, since nobody else can: who reads them waits for the one that has them.
#[test]
pub fn reads_of_missing_blocks_wait_for_them() {
    let (mut fleet, cluster) = cluster(7, forgetful());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        agree(&cluster).await;
        let away = send_away(&cluster);
        let (changed, bytes) = large(&client, "changed", 100).await;
        go_on_without(&client, ino, 5).await;
        let leader = cluster.leader().expect("somebody has answered");
        let other = (0..BRICKS).find(|number| *number != away && *number != leader).expect("there are three");
        // Only the leader can give it anything.
        cluster.heal();
        cluster.links().cut(away, other);
        let rows_are_here = || {
            cluster
                .status(away)
                .is_some_and(|status| status.heal.is_some_and(|heal| !heal.rows) || status.applied.0 > 130)
        };
        until(&cluster.hosts, "it has the rows", rows_are_here).await;
        append(&client, ino, &[5; 10]).await;
        cluster.heal();
        let image = cluster.stop(leader, Some(Survival::Nothing));
        assert!(read(&client, changed, 100 * 4096).await == bytes, "the file has its bytes");
        cluster.start_again(leader, image);
        agree(&cluster).await;
    });
}

/// Faults of all kinds, while replicas keep so little that followers heal all the time.
#[test]
pub fn changes_survive_everything_while_bricks_heal() {
    // With the last one a follower was never told of the last commit.
    for seed in (0..seeds(6)).chain([55]) {
        let (mut fleet, cluster) = cluster(seed, group::Options { overlay_bytes: 20_000, ..forgetful() });
        let mut rng = SplitMix(seed);
        fleet.block_on(async {
            let client = begin(&cluster).await;
            let log = client.create("log").await.expect("a new file");
            let told = Told::default();
            start_tasks(&cluster, &client, log, &told);
            while told.ended.load(Ordering::Relaxed) < crate::faults::TASKS {
                crate::faults::some_fault(&cluster, &mut rng).await;
            }
            cluster.heal();
            until(&cluster.hosts, "somebody serves", || cluster.leader().is_some()).await;
            check(&client, log, &told).await;
            agree(&cluster).await;
        });
    }
}
