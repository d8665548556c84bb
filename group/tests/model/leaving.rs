//! Flash that leaves a hybrid brick while it is written to. The rest of the flash has less room than what lives on flash: cold
//! blocks must go down to the disk meanwhile.

use crate::rig::{Rig, SEGMENT_BYTES, Shape};
use crate::tiers::{self, DISK, MIB, assert_content, churn, interleaved, made};
use store::format::devices::{DeviceId, Tier};

/// The device that leaves has as many segments as the first.
const SHAPE: Shape = Shape { further: &[DISK, (Tier::Flash, tiers::SHAPE.segments)], ..tiers::SHAPE };
const LEAVES: DeviceId = DeviceId(3);
/// Bytes of each of three files. With what is overwritten all the time they are more than files may take of one device of flash.
const BYTES: usize = 9 * MIB;
const HOT_BYTES: usize = 8 * MIB;

#[test]
fn flash_leaves_under_load_although_the_rest_of_it_is_full() {
    let mut world = SHAPE.world(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let mut files = Vec::new();
        for number in 0..3 {
            files.push(made(&rig, &format!("file{number}")).await);
        }
        let hot = made(&rig, "hot").await;
        let all = interleaved(&rig, &files, BYTES).await;
        churn(&rig, hot, HOT_BYTES, 1000).await;
        let live_bytes = rig.groups.store().segments_of(Tier::Flash).live_bytes();
        assert!(live_bytes > SHAPE.segments * SEGMENT_BYTES / 2, "{live_bytes} bytes live on flash");
        rig.groups.remove_device(LEAVES).await.expect("the disk has room");
        let mut rounds = 0;
        while rig.groups.store().devices().len() > 2 {
            assert!(rounds < 40, "{:?}", rig.groups.store().devices());
            churn(&rig, hot, HOT_BYTES, 200).await;
            rounds += 1;
        }
        assert_eq!(rig.groups.store().segments_of(Tier::Flash).segments, SHAPE.segments);
        assert_content(&rig, &files, &all).await;
        churn(&rig, hot, HOT_BYTES, 500).await;
        let rig = rig.reopen().await;
        assert_content(&rig, &files, &all).await;
        rig.close().await;
    });
}
