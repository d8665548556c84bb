//! A group that three bricks have, on simulated hosts.

mod behind;
mod disks;
mod ends;
mod exact;
mod faults;
mod heals;
mod pins;
mod rests;
mod rig;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod several;

use base::{At, Ino, Op, Reply, Sync};
use rig::{BRICKS, Client, begin, cluster, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn options() -> group::Options {
    group::Options::for_memory(256 << 20)
}

/// A client of new bricks, and a file.
async fn with_file(cluster: &Arc<rig::Cluster>) -> (Client, Ino) {
    let client = begin(cluster).await;
    let ino = client.create("file").await.expect("a new file");
    (client, ino)
}

/// Appends to a file. Returns where.
async fn append(client: &Client, ino: Ino, bytes: &[u8]) -> u64 {
    let op = Op::Write { ino, at: At::End, sync: Sync::Ordered, kill_privileges: false };
    match client.call(op, Some(bytes)).await.map(|answer| answer.reply) {
        Ok(Reply::Wrote { offset, .. }) => offset,
        other => panic!("appended: {other:?}"),
    }
}

/// Writes a block of a file, all of whose bytes are the same.
async fn write_block(client: &Client, ino: Ino, block: usize, byte: u8) {
    let op = Op::Write { ino, at: At::Offset(block as u64 * 4096), sync: Sync::Ordered, kill_privileges: false };
    client.call(op, Some(&[byte; 4096])).await.expect("it can be written");
}

#[test]
fn a_change_is_on_all_replicas() {
    let (mut fleet, cluster) = cluster(1, options());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        assert_eq!(append(&client, ino, &[7; 10_000]).await, 0);
        assert_eq!(append(&client, ino, &[8; 300_000]).await, 10_000);
        let read = client.call(Op::Read { ino, offset: 9_999, length: 2 }, None).await.expect("it can be read");
        assert_eq!(read.data.as_deref(), Some(&[7, 8][..]));
        agree(&cluster).await;
    });
}

/// A leader that nobody hears orders changes that never are committed: it answers none of them, nor a read that saw them, and drops
/// them once it hears of the next leader.
#[test]
fn a_deposed_leader_drops_what_was_not_committed() {
    let (mut fleet, cluster) = cluster(2, options());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        append(&client, ino, &[1; 100]).await;
        let old = cluster.leader().expect("somebody has answered");
        for other in (0..BRICKS).filter(|other| *other != old) {
            cluster.links().cut(old, other);
        }
        let op = || Op::Write { ino, at: At::End, sync: Sync::Ordered, kill_privileges: false };
        assert!(client.ask_only(old, op(), Some(&[2; 5000])).await.is_none(), "nobody else has it");
        let stat = client.ask_only(old, Op::GetAttr { ino }, None).await;
        assert!(stat.is_none_or(|stat| stat.is_err()), "what is not committed is not told");
        let create = Op::Create { parent: client.root, name: rig::name("void"), mode: 0o644, exclusive: true };
        assert!(client.ask_only(old, create, None).await.is_none_or(|answer| answer.is_err()));
        // A checkpoint waits for a second, and then takes nothing.
        cluster.checksum(old, base::GroupId(0)).await;
        until(&cluster.hosts, "another one leads", || cluster.leader().is_some_and(|leader| leader != old)).await;
        client.ask_another();
        assert_eq!(append(&client, ino, &[3; 50]).await, 100, "only what was committed is there");
        let rebuilt = |cluster: &rig::Cluster| cluster.status(old).map(|status| status.rebuilt);
        assert_eq!(rebuilt(&cluster), Some(0));
        cluster.heal();
        until(&cluster.hosts, "the old leader has heard", || rebuilt(&cluster) == Some(1)).await;
        agree(&cluster).await;
        // It leads again, and has what was committed.
        while cluster.leader() != Some(old) {
            let leader = cluster.leader().unwrap_or(old);
            if leader != old {
                let image = cluster.stop(leader, None);
                cluster.hosts.clock().sleep(4_000 * rig::MS).await;
                cluster.start_again(leader, image);
            }
            cluster.hosts.clock().sleep(4_000 * rig::MS).await;
        }
        let read = client.call(Op::Read { ino, offset: 0, length: 1000 }, None).await.expect("it can be read");
        assert_eq!(read.data.as_deref(), Some(&[&[1; 100][..], &[3; 50]].concat()[..]));
        let found = client.call(Op::Lookup { parent: client.root, name: rig::name("void") }, None).await;
        assert_eq!(found.map_err(|error| error.kind).err(), Some(base::Kind::NotFound));
    });
}

/// A leader that nobody hears answers no read once another one may lead, though all that it has is committed.
#[test]
fn a_leader_without_its_lease_answers_no_read() {
    let (mut fleet, cluster) = cluster(3, options());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        append(&client, ino, &[1; 100]).await;
        let old = cluster.leader().expect("somebody has answered");
        let read = || Op::Read { ino, offset: 0, length: 1000 };
        let answer = client.ask_only(old, read(), None).await.expect("it answers").expect("it can be read");
        assert_eq!(answer.data.map(|data| data.len()), Some(100));
        (0..BRICKS).filter(|other| *other != old).for_each(|other| cluster.links().cut(old, other));
        until(&cluster.hosts, "another one leads", || cluster.leader().is_some_and(|leader| leader != old)).await;
        client.ask_another();
        append(&client, ino, &[2; 100]).await;
        let answer = client.ask_only(old, read(), None).await;
        assert!(answer.is_none_or(|answer| answer.is_err()), "the old leader does not know what was appended");
    });
}

/// The milliseconds from the end of a leader that is started again at once, and takes so long to replay its log, until somebody serves.
fn back_at_once(seed: u64, replay_ms: u64) -> u64 {
    let (mut fleet, cluster) = cluster(seed, options());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        append(&client, ino, &[1; 100]).await;
        let clock = cluster.hosts.clock();
        // All have been there for longer than a promise of their former processes could stand.
        clock.sleep(3000 * rig::MS + seed % 400 * rig::MS).await;
        let old = cluster.leader().expect("somebody leads");
        let ended_ns = clock.now_ns();
        let image = cluster.stop(old, None);
        cluster.replay_ns.store(replay_ms * rig::MS, Ordering::Relaxed);
        cluster.start_again(old, image);
        until(&cluster.hosts, "somebody serves", || cluster.leader().is_some()).await;
        (clock.now_ns() - ended_ns) / rig::MS
    })
}

/// The others hear at once that the leader's process is a new one, and that promises to the former one are void, before it has replayed its log.
#[test]
fn a_leader_that_is_back_at_once_is_missed_for_half_a_second_at_most() {
    for replay_ms in [0, 1_500] {
        let mut times: Vec<u64> = (0..rig::seeds(30)).map(|seed| back_at_once(seed, replay_ms)).collect();
        times.sort_unstable();
        println!("milliseconds, with a replay of {replay_ms}: {times:?}");
        assert!(times.iter().all(|ms| *ms <= 500), "{times:?}");
    }
}

/// A follower is away from a moment on at which all had all and a checkpoint came. The others go on, make more checkpoints, and are
/// started again: they still have what it lacks.
#[test]
fn a_follower_gets_all_since_it_left_although_the_others_were_started_again() {
    let often = group::Options { replay_records: 20, ..options() };
    let (mut fleet, cluster) = cluster(4, often);
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        append(&client, ino, &[1; 100]).await;
        agree(&cluster).await;
        // Longer than a brick waits for more changes before it makes a checkpoint.
        cluster.hosts.clock().sleep(2_000 * rig::MS).await;
        let leader = cluster.leader().expect("somebody has answered");
        let away = (leader + 1) % BRICKS;
        (0..BRICKS).filter(|other| *other != away).for_each(|other| cluster.links().cut(away, other));
        for round in 0..3 {
            for _ in 0..25 {
                append(&client, ino, &[round; 100]).await;
            }
            cluster.hosts.clock().sleep(2_000 * rig::MS).await;
        }
        for number in (0..BRICKS).filter(|number| *number != away) {
            let image = cluster.stop(number, None);
            cluster.hosts.clock().sleep(100 * rig::MS).await;
            cluster.start_again(number, image);
            cluster.hosts.clock().sleep(6_000 * rig::MS).await;
        }
        cluster.heal();
        agree(&cluster).await;
    });
}

/// A follower is away while clients write more than may wait for a brick (32 MiB): it gets all of it nevertheless.
#[test]
fn a_follower_gets_more_than_may_wait_for_it() {
    let (mut fleet, cluster) = cluster(5, options());
    fleet.block_on(async {
        let (client, ino) = with_file(&cluster).await;
        let leader = cluster.leader().expect("somebody has answered");
        let away = (leader + 1) % BRICKS;
        (0..BRICKS).filter(|other| *other != away).for_each(|other| cluster.links().cut(away, other));
        // The small ones between make more than one append names.
        for round in 0..380 {
            let length = if (40..340).contains(&round) { 100 } else { 1 << 20 };
            append(&client, ino, &vec![round as u8; length]).await;
        }
        cluster.heal();
        agree(&cluster).await;
    });
}

/// Waits until all bricks have applied the same records, and compares what they say of the file system.
async fn agree(cluster: &Arc<rig::Cluster>) {
    let agree = || {
        let applied = |number, group| cluster.status_of(number, group).map(|status| status.applied);
        let all = |number| cluster.group_numbers().map(move |group| applied(number, group)).collect::<Vec<_>>();
        let first = all(0);
        first[0].is_some() && (1..BRICKS).all(|number| all(number) == first)
    };
    for _ in 0..6000 {
        if agree() {
            let heal = |number: usize| cluster.status(number).map_or(0, |status| status.needs_heal);
            let keeps_all = cluster.options.kept_records >= options().kept_records;
            assert!(
                !keeps_all || (0..BRICKS).all(|number| heal(number) == 0),
                "no replica lacks what is no longer kept"
            );
            let mut is_still = true;
            for group in cluster.group_numbers() {
                let mut sums = Vec::new();
                for number in 0..BRICKS {
                    sums.push(cluster.checksum(number, group).await);
                }
                // A record may have come in between.
                is_still &= sums.iter().all(|(applied, _)| *applied == sums[0].0);
                assert!(!is_still || sums.iter().all(|sum| *sum == sums[0]), "replicas say the same: {sums:x?}");
            }
            if is_still {
                return;
            }
        }
        cluster.hosts.clock().sleep(10 * rig::MS).await;
    }
    let all: Vec<_> = (0..BRICKS).map(|number| cluster.status(number)).collect();
    let errors: Vec<_> =
        (0..BRICKS).map(|number| cluster.groups(number).and_then(|groups| groups.heal_error())).collect();
    panic!("the replicas differ for a minute: {all:#?}, {errors:?}");
}
