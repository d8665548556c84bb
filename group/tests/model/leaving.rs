//! Flash that leaves a hybrid brick while it is written to. The rest of the flash has less room than what lives on flash: cold
//! blocks must go down to the disk meanwhile.

use crate::rig::{Rig, SEGMENT_BYTES};
use crate::tiers::{MIB, SHAPE, assert_content, churn, interleaved, made};
use runtime::sim::{Setup, World};
use store::FormatOptions;
use store::device::Foreign;
use store::format::devices::{DeviceId, Tier};

const DISK: u64 = 120;
/// Segments of the device that leaves: those of the first once more.
const SECOND: u64 = SHAPE.segments;
const LEAVES: DeviceId = DeviceId(3);
/// Bytes of each of three files. With what is overwritten all the time they are more than files may take of one device of flash.
const BYTES: usize = 9 * MIB;
const HOT_BYTES: usize = 8 * MIB;

async fn brick(runtime: runtime::Runtime) -> Rig {
    let options = FormatOptions {
        size_bytes: Some(SHAPE.segments * SEGMENT_BYTES),
        segment_bytes: SEGMENT_BYTES,
        groups: SHAPE.groups,
        size_bytes_min: 0,
        device: None,
        further: vec![(Tier::Disk, Foreign::Keep), (Tier::Flash, Foreign::Keep)],
    };
    store::format_brick(&runtime, options, async || Ok(())).await.expect("blank devices");
    let mut rig = Rig::found(runtime, SHAPE).await;
    rig.volume = rig.new_volume("main").await;
    rig
}

#[test]
fn flash_leaves_under_load_although_the_rest_of_it_is_full() {
    let further_bytes = [DISK, SECOND].map(|segments| MIB as u64 + segments * SEGMENT_BYTES).to_vec();
    let mut world = World::with(Setup { further_bytes, ..Setup::new(1) });
    let runtime = world.runtime();
    world.block_on(async {
        let rig = brick(runtime).await;
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
