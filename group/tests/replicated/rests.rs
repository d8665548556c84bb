//! Groups that rest: nobody looks at them all the time, and yet they are led by others as soon as any group would be.

use super::options;
use crate::rig::{BRICKS, MS, cluster_of, until};
use runtime::sim::Survival;

const GROUPS: u32 = 300;

#[test]
fn many_groups_that_rest_are_led_by_others_once_their_leader_has_ended() {
    let (mut fleet, cluster) = cluster_of(2, options(), GROUPS);
    fleet.block_on(async {
        (0..BRICKS).for_each(|number| cluster.start(number, true));
        let are_led = || cluster.group_numbers().all(|group| cluster.leader_of(group).is_some());
        until(&cluster.hosts, "all groups are led", are_led).await;
        let clock = cluster.hosts.clock();
        clock.sleep(30_000 * MS).await;
        let led = cluster.group_numbers().filter(|group| cluster.leader_of(*group) == Some(0)).count();
        assert!(led >= GROUPS as usize / 4, "the brick leads its share: {led}");
        cluster.stop(0, Some(Survival::Nothing));
        let began_ns = clock.now_ns();
        until(&cluster.hosts, "all groups are led", are_led).await;
        let took_ms = (clock.now_ns() - began_ns) / MS;
        println!("{led} groups are led again after {took_ms} ms");
        assert!(took_ms <= 3_500, "{took_ms} ms");
    });
}
