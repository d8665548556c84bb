//! The log that bricks keep for followers is bounded, and no more of it is kept than these may lack.

use super::{agree, append, options, with_file, write_block};
use crate::rig::{BRICKS, Client, Cluster, MS, cluster, cluster_of, cluster_sized, seeds};
use base::Ino;
use base::limits::SEGMENT_BYTES_MIN;
use std::sync::Arc;

/// Bytes of a write.
const BYTES: usize = 31 * 4096;
/// Segments of the log that a brick has begun, or has ahead, and of which a checkpoint needs none.
const OWN_SEGMENTS: u64 = 3;
/// Largest number of segments that followers may hold back on these bricks.
const PINNED_SEGMENTS: u64 = 16;
/// Segments of the log that a round of ten mebibytes fills: their data lies elsewhere.
const ROUND_SEGMENTS: u64 = 4;

async fn write(client: &Client, ino: Ino, mib: usize) {
    for round in 0..(mib << 20) / BYTES {
        append(client, ino, &vec![round as u8; BYTES]).await;
    }
}

/// Segments of log that a replay would read after a checkpoint, on the bricks that run.
async fn replayed(cluster: &Arc<Cluster>) -> Vec<u64> {
    let mut all = Vec::new();
    for number in (0..BRICKS).filter(|number| cluster.groups(*number).is_some()) {
        cluster.checksum(number, base::GroupId(0)).await;
        let groups = cluster.groups(number).expect("it runs");
        all.push(groups.store().replay_bytes() / SEGMENT_BYTES_MIN);
    }
    all
}

/// A group without new records keeps no log, while records of other groups come, and also if a brick was away when its last record came.
#[test]
fn idle_groups_keep_no_log() {
    for seed in 0..seeds(3) {
        let (mut fleet, cluster) = cluster_of(seed + 60, options(), 4);
        fleet.block_on(async {
            let (client, ino) = with_file(&cluster).await;
            write(&client, ino, 8).await;
            agree(&cluster).await;
            cluster.hosts.clock().sleep(1_000 * MS).await;
            let all = replayed(&cluster).await;
            assert!(all.iter().all(|segments| *segments <= OWN_SEGMENTS), "seed {seed}: {all:?} segments");
            // One of them was away when the others had their last record.
            let old = cluster.leader().expect("it has answered");
            let image = cluster.stop(old, None);
            cluster.hosts.clock().sleep(4_000 * MS).await;
            client.ask_another();
            write(&client, ino, 2).await;
            cluster.start_again(old, image);
            agree(&cluster).await;
            write(&client, ino, 6).await;
            agree(&cluster).await;
            cluster.hosts.clock().sleep(1_000 * MS).await;
            let all = replayed(&cluster).await;
            assert!(all.iter().all(|segments| *segments <= OWN_SEGMENTS), "seed {seed}: {all:?} segments");
        });
    }
}

/// Makes a file, and ends a follower after that. Returns the file's client, the file and the follower.
async fn without_one(cluster: &Arc<Cluster>) -> (Client, Ino, usize) {
    let (client, ino) = with_file(cluster).await;
    append(&client, ino, &[1; 100]).await;
    let away = (cluster.leader().expect("it has answered") + 1) % BRICKS;
    drop(cluster.stop(away, None));
    (client, ino, away)
}

/// Each process of a brick counts what those before it have kept for a follower that is away.
#[test]
fn a_follower_that_is_away_holds_back_no_more_log_than_it_may_however_often_the_others_start() {
    let (mut fleet, cluster) = cluster(70, options());
    fleet.block_on(async {
        let (client, ino, _) = without_one(&cluster).await;
        let mut most = 0;
        for round in 0..11 {
            write(&client, ino, 10).await;
            let all = replayed(&cluster).await;
            most = all.iter().copied().fold(most, u64::max);
            let bound = PINNED_SEGMENTS + ROUND_SEGMENTS + OWN_SEGMENTS;
            assert!(all.iter().all(|segments| *segments <= bound), "round {round}: {all:?} segments");
            let old = cluster.leader().expect("it has answered");
            let image = cluster.stop(old, None);
            cluster.hosts.clock().sleep(100 * MS).await;
            cluster.start_again(old, image);
            client.ask_another();
            append(&client, ino, &[2; 100]).await;
        }
        assert!(most >= PINNED_SEGMENTS / 2, "something is kept: {most} segments");
    });
}

/// Segments of a small brick, and those that followers may hold back on it.
const SMALL: u64 = 128;
const SMALL_PINNED: u64 = SMALL / 16;

/// Writes single blocks over the first hundred of a file: their data lies in the log.
async fn overwrite(client: &Client, ino: Ino, mib: usize) {
    for number in 0..(mib << 20) / 4096 {
        write_block(client, ino, number % 100, number as u8).await;
    }
}

/// A small brick keeps less for a follower that is away, and one that is short of free segments nothing.
#[test]
fn a_follower_that_is_away_does_not_fill_a_small_brick() {
    let (mut fleet, cluster) = cluster_sized(71, options(), (1, SMALL));
    fleet.block_on(async {
        let (client, ino, away) = without_one(&cluster).await;
        let mut most = 0;
        for round in 0..8 {
            overwrite(&client, ino, 2).await;
            let all = replayed(&cluster).await;
            most = all.iter().copied().fold(most, u64::max);
            let bound = SMALL_PINNED + OWN_SEGMENTS + 2;
            assert!(all.iter().all(|segments| *segments <= bound), "round {round}: {all:?} segments");
        }
        assert!(most > SMALL_PINNED / 2, "something is kept: {most} segments");
        // Files fill it until free segments are short.
        let large = client.create("large").await.expect("a new file");
        let free = |cluster: &Arc<Cluster>| {
            let groups = cluster.groups((away + 1) % BRICKS).expect("it runs");
            groups.store().segments().free_segments
        };
        for _ in 0..SMALL {
            if free(&cluster) > 8 {
                write(&client, large, 1).await;
            }
        }
        overwrite(&client, ino, 2).await;
        let (all, left) = (replayed(&cluster).await, free(&cluster));
        assert!(all.iter().all(|segments| *segments <= OWN_SEGMENTS), "{all:?} segments, {left} are free");
    });
}
