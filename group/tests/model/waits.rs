//! The waits of requests, the requests that do not wait, and their times in the ledger. Ordering itself takes no time
//! here, so that each wait booked as ordering shows.

use crate::rig::{Rig, Shape, name, pattern};
use base::{At, Ino, Kind, Op, Reply, Room, SetAttr, Sync};
use runtime::sim::{FaultPlan, World};
use runtime::{Slabs, Stage, tasks::both};
use std::sync::Arc;

/// A file with `pattern(1, 50_000)` that lies on the device alone.
async fn file(rig: &Rig, text: &str) -> Ino {
    let file = rig.create(rig.volume.root, text).await.expect("a new file");
    rig.write(file, At::End, &pattern(1, 50_000), Sync::All).await.expect("a write");
    file
}

/// Writes a block, and returns what it took and what of that it says to have waited for the range.
async fn write_block(rig: &Rig, ino: Ino, block: u64) -> (u64, u64) {
    let (context, before_ns) = (rig.context(), rig.runtime.clock.now_ns());
    let op = Op::Write { ino, at: At::Offset(block * 4096), sync: Sync::Ordered, kill_privileges: false };
    rig.call_as(&context, op, Some(&pattern(2, 4096))).await.expect("a write");
    assert_eq!(rig.booked_ns(&context, Stage::Order), 0);
    (rig.runtime.clock.now_ns() - before_ns, rig.booked_ns(&context, Stage::Range))
}

/// Reads into a reader's own memory need no copy: of one run of blocks, and of several that are put together.
#[test]
fn what_the_device_gives_is_put_into_the_readers_memory() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = file(&rig, "one").await;
        rig.checkpoint().await;
        let read = async |offset, length, bytes| {
            let room = rig.runtime.buffer(bytes).expect("within the bound");
            let place = room.as_ptr();
            let op = Op::Read { ino: file, offset, length };
            let answer = rig.groups.call(&rig.context(), op, Some(room)).await.expect("it can be read");
            (answer.data.expect("there are bytes"), place)
        };
        let whole = pattern(1, 50_000);
        let (data, place) = read(0, 50_000, 1 << 20).await;
        assert!(data.as_ptr() == place && data[..] == whole);
        let (data, place) = read(10_000, 20_000, 1 << 20).await;
        assert!(data.as_ptr() as usize == place as usize + 10_000 % 4096 && data[..] == whole[10_000..30_000]);
        let (data, place) = read(0, 50_000, 4096).await;
        assert!(data.as_ptr() != place && data[..] == whole, "the memory is too small");
        rig.write(file, At::Offset(3 * 4096), &pattern(2, 4096), Sync::All).await.expect("a write");
        rig.checkpoint().await;
        let (data, place) = read(0, 50_000, 1 << 20).await;
        assert!(data.as_ptr() == place && data[..12_288] == whole[..12_288] && data[16_384..] == whole[16_384..]);
        rig.close().await;
    });
}

/// A write within a block reads it, and holds it for so long: whoever writes to this block waits and says so, whoever writes
/// beside it or to another file does not.
#[test]
fn only_writes_to_the_same_blocks_wait_for_each_other() {
    let mut world = World::new(1);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let (one, other) = (file(&rig, "one").await, file(&rig, "other").await);
        assert_eq!(one.group(), other.group(), "files of two groups have nothing in common");
        rig.checkpoint().await;
        disk.set_faults(FaultPlan { slowness: 1000, ..FaultPlan::default() });
        let holds = async {
            rig.write(one, At::Offset(5 * 4096 + 1), &[7], Sync::Ordered).await.expect("a write");
        };
        let beside = async {
            rig.runtime.clock.sleep(1_000_000).await;
            for (ino, block) in [(one, 4), (one, 6), (other, 4), (other, 5), (other, 6)] {
                assert_eq!(write_block(&rig, ino, block).await, (0, 0), "{ino:?} {block}");
            }
            let (took_ns, waited_ns) = write_block(&rig, one, 5).await;
            assert!(took_ns > 0 && waited_ns == took_ns, "{waited_ns} of {took_ns} ns");
        };
        both(holds, beside).await;
        disk.set_faults(FaultPlan::default());
        assert!(rig.read(one, 5 * 4096, 4096).await == Ok(pattern(2, 4096)), "the later write counts");
        rig.close().await;
    });
}

/// Clients that are faster than a slow device: the log has no segment ready, and whoever writes waits for one.
#[test]
fn writes_that_wait_for_a_segment_say_so() {
    let mut world = World::new(2);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = file(&rig, "file").await;
        disk.set_faults(FaultPlan { slowness: 100, ..FaultPlan::default() });
        let (mut admitted_ns, mut ordered_ns) = (0, 0);
        for number in 0..50 {
            let context = rig.context();
            let at = At::Offset(number * (100 << 10));
            let op = Op::Write { ino: file, at, sync: Sync::Ordered, kill_privileges: false };
            rig.call_as(&context, op, Some(&pattern(number, 100 << 10))).await.expect("a write");
            admitted_ns += rig.booked_ns(&context, Stage::Space);
            ordered_ns += rig.booked_ns(&context, Stage::Order);
        }
        disk.set_faults(FaultPlan::default());
        assert!(admitted_ns > 0 && ordered_ns == 0, "{admitted_ns} and {ordered_ns} ns");
        rig.close().await;
    });
}

/// A client of a volume of 4 MiB.
async fn small_volume(rig: &Rig) -> Rig {
    let op = Op::VolumeCreate { name: name("small"), size_bytes: Some((4 << 20) + 4096) };
    match rig.call(op, None).await.map(|answer| answer.reply) {
        Ok(Reply::Volume(volume)) => rig.client(9, volume),
        other => panic!("a volume is told: {other:?}"),
    }
}

/// Nothing is computed in this world's time, so what a request books on a stage in which it computes is a wait that no stage is
/// named after.
#[test]
pub fn every_wait_is_booked_on_a_stage_that_is_named_after_it() {
    let mut world = World::new(7);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let (ino, root) = (file(&rig, "file").await, rig.volume.root);
        rig.checkpoint().await;
        disk.set_faults(FaultPlan { slowness: 100, ..FaultPlan::default() });
        let within_a_block =
            |offset| Op::Write { ino, at: At::Offset(offset), sync: Sync::Data, kill_privileges: false };
        let operations = [
            Op::Lookup { parent: root, name: name("file") },
            Op::Read { ino, offset: 0, length: 50_000 },
            // The way of the first to the index would hide a wait before it.
            Op::Read { ino, offset: 0, length: 50_000 },
            within_a_block(4096 + 1),
            Op::Write { ino, at: At::End, sync: Sync::Ordered, kill_privileges: false },
            Op::Fsync { ino, sync: Sync::Data },
            Op::Create { parent: root, name: name("other"), mode: 0o644, exclusive: true },
            Op::ReadDir { ino: root, cookie: 0, count: 100, plus: true },
            Op::SetAttr { ino, set: Box::new(SetAttr { size: Some(10_000), ..SetAttr::default() }) },
            Op::Unlink { parent: root, name: name("other") },
            Op::SyncAll,
        ];
        let (mut waited_ns, computing) = (0, [Stage::Front, Stage::Layers, Stage::Order, Stage::Verify, Stage::Other]);
        for op in operations {
            let (context, before_ns, title) = (rig.context(), rig.runtime.clock.now_ns(), op.name());
            let data = matches!(op, Op::Write { .. }).then(|| pattern(3, 100));
            rig.call_as(&context, op, data.as_deref()).await.expect(title);
            let booked = computing.map(|stage| rig.booked_ns(&context, stage));
            assert_eq!(booked, [0; 5], "{title}: {computing:?}");
            waited_ns += rig.runtime.clock.now_ns() - before_ns;
        }
        disk.set_faults(FaultPlan::default());
        assert!(waited_ns > 0, "nothing has waited: the test shows nothing");
        rig.close().await;
    });
}

/// A volume has room again, and only a checkpoint can tell: a promise waits for that to be let in.
#[test]
fn promises_that_wait_for_a_checkpoint_say_so() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let client = small_volume(&rig).await;
        let volume = client.volume.clone();
        let (old, new) = (client.create(volume.root, "old").await, client.create(volume.root, "new").await);
        let (old, new) = (old.expect("a new file"), new.expect("a new file"));
        for number in 0..4 {
            client.write(old, At::End, &pattern(number, 1 << 20), Sync::Data).await.expect("there is room");
        }
        assert_eq!(client.write(new, At::End, &[1], Sync::Data).await, Err(Kind::Quota));
        client.done(Op::Unlink { parent: volume.root, name: name("old") }).await.expect("it is there");
        let (context, before_ns) = (client.context(), rig.runtime.clock.now_ns());
        let op = Op::Allocate { ino: new, offset: 0, length: 1 << 20, keep_size: true, room: Room::Promised };
        client.call_as(&context, op, None).await.expect("there is room again");
        let took_ns = rig.runtime.clock.now_ns() - before_ns;
        assert!(took_ns > 0, "it has not waited: the test shows nothing");
        let waits = [Stage::Quota, Stage::Space, Stage::Pool, Stage::Index, Stage::Core];
        let booked = waits.map(|stage| rig.booked_ns(&context, stage));
        assert!(booked[0] > 0, "the wait for the checkpoint is not in the ledger: {booked:?}");
        assert_eq!(booked.iter().sum::<u64>(), took_ns, "{booked:?}");
        drop(client);
        rig.close().await;
    });
}

/// Payloads are in memory until they are written. Changes that bring none let go of them too.
#[test]
fn changes_of_names_let_go_of_what_was_written() {
    let slabs = Arc::new(Slabs::new(2, 32 << 20));
    let mut world = World::with_slabs(4, slabs.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = file(&rig, "file").await;
        let room = || std::iter::from_fn(|| slabs.take_own(0, 100 << 10).ok()).collect::<Vec<_>>().len();
        let mut rooms = Vec::new();
        for round in 0..3 {
            for number in 0..40 {
                let bytes = pattern(number, 100 << 10);
                rig.write(file, At::Offset(number * (100 << 10)), &bytes, Sync::Ordered).await.expect("a write");
            }
            rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
            rig.create(rig.volume.root, &format!("other{round}")).await.expect("a new file");
            rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
            // A read lets go as well: it tells what there is.
            if round < 2 {
                rig.read(file, 0, 4096).await.expect("it is there");
            }
            // The log makes a segment ready meanwhile, with a buffer of its own.
            rig.runtime.clock.sleep(50_000_000).await;
            rooms.push(room());
        }
        assert_eq!(rooms[1], rooms[2], "{rooms:?}");
        rig.close().await;
    });
}

/// Reserved room is there in a full volume too, although no checkpoint has counted the reservation.
#[test]
fn what_was_promised_is_written_at_once() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let client = small_volume(&rig).await;
        let root = client.volume.root;
        let (old, new) = (client.create(root, "old").await, client.create(root, "new").await);
        let (old, ino) = (old.expect("a new file"), new.expect("a new file"));
        for number in 0..3 {
            client.write(old, At::End, &pattern(number, 1 << 20), Sync::Data).await.expect("there is room");
        }
        rig.checkpoint().await;
        let op = Op::Allocate { ino, offset: 0, length: 1 << 20, keep_size: true, room: Room::Promised };
        client.done(op).await.expect("that is the rest");
        let checkpoints = rig.groups.checkpoints();
        client.write(ino, At::Offset(0), &pattern(7, 1 << 20), Sync::Data).await.expect("it was promised");
        assert_eq!(rig.groups.checkpoints(), checkpoints, "it has waited for one");
        assert_eq!(client.write(old, At::End, &[1], Sync::Data).await, Err(Kind::Quota));
        drop(client);
        rig.close().await;
    });
}

/// Blocks cut of a file are room for any file: they do not become reserved for this one.
#[test]
fn a_cut_promises_nothing() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let client = small_volume(&rig).await;
        let root = client.volume.root;
        let (old, new) = (client.create(root, "old").await, client.create(root, "new").await);
        let (old, new) = (old.expect("a new file"), new.expect("a new file"));
        client.write(new, At::Offset(0), &pattern(1, 4096), Sync::Data).await.expect("there is room");
        for number in 0..4 {
            let length = if number == 0 { (1 << 20) - 4096 } else { 1 << 20 };
            client.write(old, At::End, &pattern(number, length), Sync::Data).await.expect("there is room");
        }
        rig.checkpoint().await;
        client.truncate(new, 0).await.expect("a file can be cut");
        assert_eq!(client.write(new, At::Offset(0), &pattern(2, 1 << 20), Sync::Data).await, Err(Kind::Quota));
        client.write(new, At::Offset(0), &pattern(3, 4096), Sync::Data).await.expect("so much was cut");
        drop(client);
        rig.close().await;
    });
}
