//! Knowledge that a restart must have of the life before: numbers that were given out, orphans, and how far the index
//! is (rules L2, K6, X2).

use crate::rig::{Rig, Shape, name, pattern};
use base::{At, GroupId, Kind, Name, Op, SetHow, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::collections::BTreeSet;
use store::format::{keys, values};
use store::index::Index;

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

/// Numbers of files that nobody synced are not given out again either, crash after crash: a client may have a handle of
/// them.
#[test]
pub fn numbers_that_a_crash_took_back_are_not_given_out_again() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let mut made = BTreeSet::new();
    let mut rig = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        create_unsynced(&rig, 0, &mut made).await;
        rig
    });
    for life in 1..4 {
        let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
        let runtime = after.runtime();
        rig = after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            assert!(rig.list(rig.volume.root, 7).await.expect("a directory").is_empty(), "none was durable");
            create_unsynced(&rig, life, &mut made).await;
            rig
        });
        world = after;
    }
}

/// Files and directories whose numbers nobody has seen before.
async fn create_unsynced(rig: &Rig, life: u32, made: &mut BTreeSet<base::Ino>) {
    for number in 0..20 {
        let ino = rig.create(rig.volume.root, &format!("f{life}-{number}")).await.expect("a new file");
        assert!(made.insert(ino), "{ino:?} was given out before");
        let ino = rig.mkdir(rig.volume.root, &format!("d{life}-{number}")).await.expect("a new directory");
        assert!(made.insert(ino), "{ino:?} was given out before");
    }
}

/// More are reserved before those that are run out, durably: what is made then survives no better, and its numbers are
/// used up all the same.
#[test]
fn numbers_that_run_out_are_reserved_anew() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let mut made = BTreeSet::new();
    let mut rig = world.block_on(async {
        let rig = Rig::new(runtime, Shape { numbers_at_once: 8, ..Shape::SMALL }).await;
        create_unsynced(&rig, 0, &mut made).await;
        rig
    });
    for life in 1..11 {
        let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
        let runtime = after.runtime();
        rig = after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            create_unsynced(&rig, life, &mut made).await;
            rig
        });
        world = after;
    }
}

/// The same of intents, whose numbers clients never see: the rows of the groups have them.
#[test]
fn a_crash_forgets_no_number_of_an_intent() {
    let next = |rig: &Rig| -> Vec<u64> {
        let row = |group| rig.index.get(&keys::group(GroupId(group))).expect("the model index reads");
        let rows = (0..8).filter_map(row).map(|row| values::decode_group(&row).expect("a good row"));
        rows.map(|row| row.next_intent).collect()
    };
    let mut world = World::new(1);
    let runtime = world.runtime();
    let rig = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        for number in 0..10 {
            // Most of them lie in another group than their parent.
            rig.mkdir(rig.volume.root, &format!("d{number}")).await.expect("a new directory");
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        rig
    });
    let mut after = Vec::new();
    crashed(&world, &rig, async |rig| {
        rig.checkpoint().await;
        after = next(&rig);
        rig.close().await;
    });
    world.block_on(rig.checkpoint());
    let before = next(&rig);
    assert!(before.iter().any(|&next| next > 5), "{before:?}");
    assert!(after.len() == before.len() && after.iter().zip(&before).all(|(after, before)| after > before));
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

/// Records that a start has replayed and no checkpoint has taken are replayed once more by the next start (rule X2).
#[test]
fn what_was_replayed_counts_for_the_next_replay() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let (rig, before) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        rig.checkpoint().await;
        assert_eq!(rig.groups.replay_ns(), 0, "the index has all");
        for number in 0..100 {
            rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        let before = rig.groups.replay_ns();
        assert!(before >= 100 * 5_000, "{before}");
        (rig, before)
    });
    crashed(&world, &rig, async |rig| {
        assert!(rig.groups.replay_ns() >= before, "{} of {before}", rig.groups.replay_ns());
        rig.checkpoint().await;
        assert_eq!(rig.groups.replay_ns(), 0, "the index has all");
        rig.close().await;
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

/// Extended attributes are cached like targets of links, with some room: those just read are kept beside those read
/// next, and dropped in time.
#[test]
fn attributes_are_kept_while_there_is_room_for_them() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape { cache_bytes: 1 << 20, ..Shape::SMALL }).await;
        let attribute = Name::of_attribute(b"user.one").expect("a name");
        let mut files = Vec::new();
        for number in 0..100 {
            let ino = rig.create(rig.volume.root, &format!("file-{number}")).await.expect("a new file");
            let (value, how) = ([b'x'; 100][..].into(), SetHow::Any);
            rig.done(Op::SetXattr { ino, name: attribute.clone(), value, how, kill_setgid: false })
                .await
                .expect("it is set");
            files.push(ino);
        }
        rig.checkpoint().await;
        let read = async |ino| {
            let got = rig.call(Op::GetXattr { ino, name: attribute.clone() }, None).await;
            got.map(drop).map_err(|error| error.kind)
        };
        for &ino in &files[..3] {
            read(ino).await.expect("it is there");
        }
        rig.spoil(keys::xattrs(rig.volume.id, files[0]));
        assert_eq!(read(files[0]).await, Ok(()), "three have room");
        for &ino in &files[3..] {
            read(ino).await.expect("it is there");
        }
        assert_eq!(read(files[0]).await, Err(Kind::Corrupt), "a hundred have none");
    });
}

/// The same of leaves. All are of one group, which uses the room that the others leave.
#[test]
fn leaves_are_kept_while_there_is_room_for_them() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape { cache_bytes: 1 << 20, ..Shape::SMALL }).await;
        let mut files = Vec::new();
        for number in 0..400 {
            let ino = rig.create(rig.volume.root, &format!("file-{number}")).await.expect("a new file");
            rig.write(ino, At::End, &pattern(number, 4096), Sync::Ordered).await.expect("a write");
            files.push(ino);
        }
        rig.checkpoint().await;
        for &ino in &files[..100] {
            rig.read(ino, 0, 4096).await.expect("it is there");
        }
        rig.spoil(keys::leaf(rig.volume.id, base::LeafKey { ino: files[0], leaf: 0 }));
        assert!(rig.read(files[0], 0, 4096).await == Ok(pattern(0, 4096)), "a hundred have room");
        for &ino in &files[100..] {
            rig.read(ino, 0, 4096).await.expect("it is there");
        }
        assert_eq!(rig.read(files[0], 0, 4096).await, Err(Kind::Corrupt), "four hundred have none");
    });
}
