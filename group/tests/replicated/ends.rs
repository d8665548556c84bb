//! A brick that ends as planned hands its lead over: clients hardly notice.

use super::{append, options, with_file};
use crate::rig::{BRICKS, MS, cluster, seeds, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest time without a leader.
const PAUSE_NS: u64 = 200 * MS;

/// A process that has just begun neither votes nor takes a lead (rule P17), and the brick that ends knows that.
#[test]
fn a_lead_is_handed_over_at_once_though_another_brick_has_just_begun() {
    for seed in 0..seeds(8) {
        let (mut fleet, cluster) = cluster(seed, options());
        fleet.block_on(async {
            let (client, ino) = with_file(&cluster).await;
            append(&client, ino, &[1; 100]).await;
            let (clock, old) = (cluster.hosts.clock(), cluster.leader().expect("it has answered"));
            // All have begun long ago, but for one.
            clock.sleep(5_000 * MS).await;
            let new = (old + 1 + seed as usize % 2) % BRICKS;
            let image = cluster.stop(new, None);
            clock.sleep(300 * MS).await;
            append(&client, ino, &[2; 100]).await;
            cluster.start_again(new, image);
            until(&cluster.hosts, "it has all", || cluster.groups(new).is_some() && cluster.lacks(old, new) == Some(0))
                .await;
            clock.sleep(seed * 100 * MS).await;

            // Its vote for the next leader takes longer to be durable than it takes to hear of it.
            cluster.hang(old, 20 * MS);
            let (groups, has_ended) = (cluster.groups(old).expect("it runs"), Arc::new(AtomicBool::new(false)));
            let ended = has_ended.clone();
            cluster.hosts.runtime(old).spawn(0, move || async move {
                groups.hand_over().await;
                ended.store(true, Ordering::Release);
            });
            let (mut served_ns, mut longest_ns, mut runs) = (clock.now_ns(), 0, true);
            while runs || cluster.leader().is_none() {
                clock.sleep(MS).await;
                if runs && has_ended.load(Ordering::Acquire) {
                    runs = false;
                    drop(cluster.stop(old, None));
                }
                if cluster.leader().is_some() {
                    longest_ns = longest_ns.max(clock.now_ns() - served_ns);
                    served_ns = clock.now_ns();
                }
            }
            longest_ns = longest_ns.max(clock.now_ns() - served_ns);
            assert!(longest_ns < PAUSE_NS, "seed {seed}: nobody led for {longest_ns} ns");
            assert_eq!(cluster.leader(), (0..BRICKS).find(|number| ![old, new].contains(number)), "seed {seed}");
            client.ask_another();
            append(&client, ino, &[3; 100]).await;
        });
    }
}
