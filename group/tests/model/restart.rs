//! What a restart must know of the life before: numbers that were given out, orphans, and how far the index is (rules
//! L2, K6, X2).

use crate::rig::{Rig, Shape, name, pattern};
use base::{Kind, Op};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::collections::BTreeSet;
use store::format::keys;

/// The same brick after a power cut that leaves nothing but what is durable.
fn crashed(world: &World, rig: &Rig, test: impl AsyncFnOnce(Rig)) {
    let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = after.runtime();
    after.block_on(async { test(rig.after_crash(runtime, 0).await).await });
}

#[test]
pub fn numbers_given_out_before_a_crash_are_not_given_out_again() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let (rig, made) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let mut made = BTreeSet::new();
        for number in 0..10 {
            made.insert(rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file"));
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        (rig, made)
    });
    crashed(&world, &rig, async |rig| {
        for number in 10..20 {
            let ino = rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
            assert!(!made.contains(&ino), "{ino:?} is a file of the life before");
        }
        assert_eq!(rig.list(rig.volume.root, 7).await.expect("a directory").len(), 20);
        rig.reopen().await;
    });
}

#[test]
pub fn what_was_open_without_a_name_is_purged_after_a_crash() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let (rig, open) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let open = rig.unlinked().await;
        assert!(rig.read(open, 0, 50_000).await == Ok(pattern(1, 50_000)), "it lives as long as it is open");
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        (rig, open)
    });
    crashed(&world, &rig, async |rig| {
        assert_eq!(rig.attr(Op::GetAttr { ino: open }).await.err(), Some(Kind::Stale));
        rig.settle().await;
        assert_eq!(rig.groups.store().segments().live_blocks, 0);
        rig.reopen().await;
    });
}

#[test]
pub fn checkpoints_come_by_themselves_and_keep_replay_short() {
    const OVERLAY_BYTES: u64 = 64 << 10;
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape { overlay_bytes: OVERLAY_BYTES, ..Shape::SMALL }).await;
        let mut most = 0;
        for number in 0..1000 {
            rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
            most = most.max(rig.groups.overlay_bytes());
            assert!(most < 3 * OVERLAY_BYTES, "after {number} files");
        }
        assert!(most > OVERLAY_BYTES * 9 / 8, "clients go on while one is made: {most}");
        rig.runtime.clock.sleep(1_000_000_000).await;
        assert!(rig.groups.checkpoints() > 0 && rig.groups.overlay_bytes() < OVERLAY_BYTES);
        rig.reopen().await;
    });
}

#[test]
fn a_start_makes_no_checkpoint_unless_it_has_something_to_free() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let rig = rig.reopen().await;
        rig.runtime.clock.sleep(3_000_000_000).await;
        assert_eq!(rig.groups.checkpoints(), 0, "nothing has changed");
        rig.close().await;
    });
}

/// Caches of the least size hold few link targets: what was read is soon read again.
#[test]
fn targets_of_links_are_forgotten_in_time() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let mut links = Vec::new();
        for number in 0..100 {
            let (parent, name) = (rig.volume.root, name(&format!("link-{number}")));
            links.push(rig.attr(Op::SymLink { parent, name, target: [b'x'; 100].into() }).await.expect("a link").ino);
        }
        rig.checkpoint().await;
        let read = async |ino| rig.call(Op::ReadLink { ino }, None).await.map(drop).map_err(|error| error.kind);
        for &ino in &links {
            read(ino).await.expect("it is there");
        }
        rig.spoil(keys::target(rig.volume.id, links[0]));
        assert_eq!(read(links[99]).await, Ok(()));
        assert_eq!(read(links[0]).await, Err(Kind::Corrupt), "it was read anew");
    });
}
