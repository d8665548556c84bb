//! Inodes, names, targets and attributes take room like data, in bytes of their rows (rule K5).

use crate::rig::{Rig, Shape, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Kind, Op, Reply, SetHow, Sync, Volume};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use store::format::keys::{self, Row};
use store::format::{charge, values};
use store::index::{Index, IndexEdit};

const BLOCK: u64 = BLOCK_BYTES as u64;

async fn small(rig: &Rig, size_bytes: u64) -> Volume {
    let op = Op::VolumeCreate { name: name("small"), size_bytes: Some(size_bytes) };
    match rig.call(op, None).await.map(|answer| answer.reply) {
        Ok(Reply::Volume(volume)) => volume,
        other => panic!("a volume is told: {other:?}"),
    }
}

fn set(ino: Ino, text: &str, length: usize) -> Op {
    let value = vec![7; length].into();
    Op::SetXattr { ino, name: name(text), value, how: SetHow::Any, kill_setgid: false }
}

/// Sum of the bytes of the volume's rows, by reading each of them.
fn row_bytes(rig: &Rig, volume: &Volume) -> u64 {
    let (from, to) = keys::all();
    let rows = rig.index.scan(&from, &to, usize::MAX).expect("the model index reads");
    let bytes = |(key, value): &(Vec<u8>, Vec<u8>)| match keys::row(key) {
        Some((_, of, Row::Inode)) if of == volume.id => charge::INODE,
        Some((_, of, Row::Entry | Row::Cookie | Row::Target | Row::Xattrs)) if of == volume.id => {
            (key.len() + value.len()) as u64
        }
        _ => 0,
    };
    rows.iter().map(bytes).sum()
}

/// Does the same again and again, with a number, until the volume is full; how often it could.
async fn until_full(client: &Rig, make: impl Fn(u64) -> Op) -> u64 {
    let mut made = 0;
    loop {
        match client.call(make(made), None).await {
            Ok(_) => made += 1,
            Err(error) => {
                assert_eq!(error.kind, Kind::Quota);
                return made;
            }
        }
        assert!(made < 100_000, "no end");
    }
}

#[test]
pub fn names_and_attributes_fill_a_volume() {
    const SIZE: u64 = 1 << 20;
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        let volume = small(&rig, SIZE).await;
        let root = volume.root;
        let long = |number: u64| name(&format!("{number:0>200}"));
        for round in 0..2 {
            let client = rig.client(9 + round, volume.clone());
            let links = until_full(&client, |number| Op::SymLink {
                parent: root,
                name: long(number),
                target: vec![b'x'; 4000].into(),
            })
            .await;
            let link = charge::INODE + charge::name(&long(0)) + charge::target(4000);
            assert_eq!(links, (SIZE - charge::INODE) / link, "a link takes {link} bytes");
            assert!(client.free_bytes().await < link);
            // Longer names take room too, shorter ones don't; nothing is refused that takes none.
            let to = |text: &str| Op::Rename {
                parent: root,
                name: long(0),
                new_parent: root,
                new_name: name(text),
                no_replace: false,
                whiteout: false,
            };
            client.done(to("short")).await.expect("a shorter name");
            client.done(Op::Unlink { parent: root, name: name("short") }).await.expect("it can be removed");
            let file = client.create(root, "file").await.expect("there is room again");
            let values = until_full(&client, |number| set(file, &format!("user.{number}"), 100)).await;
            assert!(values > 20, "{values} attributes");
            client.done(set(file, "user.0", 50)).await.expect("a smaller value");
            rig.checkpoint().await;
            let used = rig.groups.used(volume.id);
            assert_eq!((used.bytes(), used.inodes), (row_bytes(&rig, &volume), links + 1));
            assert_eq!(client.space().await.free_bytes, SIZE - used.bytes());
            assert_eq!(client.space().await.inodes, links + 1);
            let written = client.write(file, At::Offset(0), &pattern(1, 64 << 10), Sync::Data).await;
            assert_eq!(written, Err(Kind::Quota), "names take the room of data");
            // What is left of it is the brick's.
            let other = rig.create(rig.volume.root, &format!("f{round}")).await.expect("the brick has room");
            rig.write(other, At::Offset(0), &pattern(1, 4096), Sync::Data).await.expect("the brick has room");
            drop(client);
            rig = rig.reopen().await;
            let client = rig.client(90 + round, volume.clone());
            assert_eq!(client.space().await.free_bytes, SIZE - used.bytes());
            for number in 1..links {
                client.done(Op::Unlink { parent: root, name: long(number) }).await.expect("it can be removed");
            }
            client.done(Op::Unlink { parent: root, name: name("file") }).await.expect("it can be removed");
            rig.settle().await;
            assert_eq!(client.space().await.free_bytes, SIZE - charge::INODE);
        }
        rig.close().await;
    });
}

/// Data fills the brick; then there is room for names no more, and all can be deleted.
#[test]
fn a_brick_full_of_names_is_full() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::TINY).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let mut blocks = 0;
        while rig.write(file, At::End, &pattern(blocks, 4096), Sync::Ordered).await.is_ok() {
            blocks += 1;
        }
        let mut names = 0;
        let refused = loop {
            match rig.create(rig.volume.root, &format!("n{names}")).await {
                Ok(_) => names += 1,
                Err(kind) => break kind,
            }
        };
        assert_eq!(refused, Kind::NoSpace);
        assert!(names < BLOCK / 100, "{names} names on a full brick");
        rig.done(Op::Unlink { parent: rig.volume.root, name: name("file") }).await.expect("it can be removed");
        rig.create(rig.volume.root, "after").await.expect("there is room again");
        rig.close().await;
    });
}

/// Makes rows those of the first revision, which did not count names, nor the blocks of files with holes.
fn age(index: &impl Index) {
    let (from, to) = keys::all();
    let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
    let edits = rows.into_iter().filter_map(|(key, value)| match keys::row(&key) {
        Some((.., Row::Usage)) => {
            let mut usage = values::decode_usage(&value).expect("a row of ours");
            usage.names = None;
            Some(IndexEdit::Put(key, values::encode_usage(&usage)))
        }
        Some((.., Row::Inode)) => {
            let inode = values::decode_inode(&value).expect("a row of ours");
            Some(IndexEdit::Put(key, values::encode_inode(&inode)))
        }
        _ => None,
    });
    index.write(edits.collect()).expect("the model index writes");
    index.persist().expect("the model index writes");
}

/// A brick of before counts its names beside its clients, also when it crashes again and again on the way.
#[test]
fn a_brick_of_before_counts_its_names_whenever_it_crashes() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut random = SplitMix(seed);
        let rig = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let mut parent = rig.volume.root;
            for number in 0..40 {
                parent = if number % 4 == 0 {
                    rig.mkdir(rig.volume.root, &format!("d{number}")).await.expect("there is room")
                } else {
                    parent
                };
                let file = rig.create(parent, &format!("f{number}")).await.expect("there is room");
                rig.done(set(file, "user.x", 10 * number)).await.expect("there is room");
                rig.write(file, At::Offset((number * number) as u64 * BLOCK), &[7], Sync::Ordered)
                    .await
                    .expect("there is room");
            }
            let (runtime, shape, volume) = (rig.runtime.clone(), Shape::SMALL, rig.volume.clone());
            let (_, index) = rig.close().await;
            age(&index);
            Rig::existing((runtime, index), shape, volume).await
        });
        let mut worlds = vec![world];
        let mut rig = rig;
        for life in 0..3 {
            let world = worlds.last_mut().expect("there is one");
            let pause = random.next() % 2_000_000;
            world.block_on(async {
                rig.create(rig.volume.root, &format!("l{life}")).await.expect("there is room");
                rig.runtime.clock.sleep(pause).await;
                rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
                rig.create(rig.volume.root, &format!("m{life}")).await.expect("there is room");
            });
            let kept = (random.next() % (rig.index.unpersisted() as u64 + 1)) as usize;
            let mut next = World::from_image(seed, world.crash_as(Survival::Random, &mut random));
            let runtime = next.runtime();
            rig = next.block_on(async { rig.after_crash(runtime, kept).await });
            worlds.push(next);
        }
        let world = worlds.last_mut().expect("there is one");
        world.block_on(async {
            rig.runtime.clock.sleep(10_000_000_000).await;
            rig.checkpoint().await;
            assert!(rig.groups.store().uncounted().is_empty());
            let used = rig.groups.used(rig.volume.id);
            assert_eq!(used.row_bytes(), row_bytes(&rig, &rig.volume));
            for entry in rig.list(rig.volume.root, 100).await.expect("a listing") {
                let parent = entry.ino;
                for entry in rig.list(parent, 100).await.unwrap_or_default() {
                    let blocks = rig.attr(Op::GetAttr { ino: entry.ino }).await.expect("it is there").blocks;
                    assert_eq!(blocks, base::Blocks { count: 1, exact: true });
                }
            }
            rig.close().await;
        });
    }
}
