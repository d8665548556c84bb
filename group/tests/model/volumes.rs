//! Volumes: made, listed, deleted with all that is in them, and apart from each other.

use crate::rig::{Rig, Shape, name, pattern, seeds};
use base::{At, Kind, Op, Sync, Volume};
use runtime::random::SplitMix;
use runtime::sim::World;
use std::collections::BTreeMap;

async fn names(rig: &Rig) -> Vec<String> {
    let volumes = rig.groups.volumes().await.expect("a healthy brick lists");
    volumes.iter().map(|volume| String::from_utf8_lossy(volume.name.as_bytes()).into_owned()).collect()
}

#[test]
pub fn a_volume_goes_with_all_that_is_in_it() {
    for restart in [false, true] {
        let mut world = World::new(1);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, Shape::SMALL).await;
            let twice = rig.call(Op::VolumeCreate { name: name("main"), size_bytes: None }, None).await;
            assert_eq!(twice.err().map(|error| error.kind), Some(Kind::Exists));
            let long = "n".repeat(64);
            let refused = rig.call(Op::VolumeCreate { name: name(&long), size_bytes: None }, None).await;
            assert_eq!(refused.err().map(|error| error.kind), Some(Kind::NameTooLong));
            let other = rig.new_volume("other").await;
            let client = rig.client(9, other.clone());
            let (kept, doomed) = (rig.volume.root, other.root);
            let mut inos = Vec::new();
            for number in 0..10 {
                let dir = client.mkdir(doomed, &format!("d{number}")).await.expect("a new directory");
                let file = client.create(dir, "file").await.expect("a new file");
                client.write(file, At::End, &pattern(number, 70_000), Sync::Ordered).await.expect("a write");
                inos.extend([dir, file]);
                let file = rig.create(kept, &format!("f{number}")).await.expect("a new file");
                rig.write(file, At::End, &pattern(100 + number, 50_000), Sync::Ordered).await.expect("a write");
                if number == 5 {
                    rig.checkpoint().await;
                }
            }
            // The other volume's numbers mean nothing here.
            for &ino in &inos {
                assert_eq!(rig.attr(Op::GetAttr { ino }).await.err(), Some(Kind::Stale));
                assert_eq!(rig.read(ino, 0, 10).await.err(), Some(Kind::Stale));
            }
            drop(client);
            if restart {
                rig = rig.reopen().await;
            }
            assert_eq!(names(&rig).await, ["main", "other"]);
            rig.done(Op::VolumeDelete { name: name("other") }).await.expect("it is there");
            assert_eq!(rig.done(Op::VolumeDelete { name: name("other") }).await, Err(Kind::NotFound));
            for round in 0..3 {
                assert_eq!(names(&rig).await, ["main"], "round {round}");
                let client = rig.client(10 + round, other.clone());
                for &ino in inos.iter().chain([&other.root]) {
                    assert_eq!(client.attr(Op::GetAttr { ino }).await.err(), Some(Kind::Stale), "round {round}");
                }
                assert_eq!(client.create(other.root, "late").await, Err(Kind::Stale));
                drop(client);
                for number in 0..10 {
                    let file = rig.lookup(kept, &format!("f{number}")).await.expect("the other volume's");
                    assert!(rig.read(file, 0, 60_000).await == Ok(pattern(100 + number, 50_000)));
                }
                rig = rig.reopen().await;
            }
            let again = rig.new_volume("other").await;
            assert!(again.id > other.id && again.root != other.root, "ids are never used again");
            assert_eq!(rig.client(20, again.clone()).list(again.root, 10).await, Ok(Vec::new()));
        });
    }
}

#[test]
fn many_volumes_come_and_go_beside_checkpoints_and_restarts() {
    for seed in seeds(1..4) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rng = SplitMix(seed);
            let mut rig = Rig::new(runtime, Shape::SMALL).await;
            // Each volume's files: their contents' tags.
            let mut own: BTreeMap<String, (Volume, Vec<u64>)> = BTreeMap::new();
            for round in 0..120 {
                let text = format!("v{}", rng.below(5));
                match rng.below(10) {
                    0..2 => {
                        let deleted = rig.done(Op::VolumeDelete { name: name(&text) }).await;
                        assert_eq!(deleted.is_ok(), own.remove(&text).is_some(), "seed {seed}");
                    }
                    2 => rig.checkpoint().await,
                    3 => rig.checkpoint_beside(),
                    4 if rng.one_in(4) => rig = rig.reopen().await,
                    _ => {
                        if !own.contains_key(&text) {
                            own.insert(text.clone(), (rig.new_volume(&text).await, Vec::new()));
                        }
                        let (volume, files) = own.get_mut(&text).expect("just made sure");
                        let client = rig.client(round + 2, volume.clone());
                        let dir = client.mkdir(volume.root, &format!("d{}", files.len())).await.expect("a new name");
                        let file = client.create(dir, "file").await.expect("a new file");
                        client.write(file, At::End, &pattern(round, 9000), Sync::Ordered).await.expect("a write");
                        files.push(round);
                    }
                }
                if round % 20 == 19 {
                    compare(&rig, &own).await;
                }
            }
        });
    }
}

async fn compare(rig: &Rig, own: &BTreeMap<String, (Volume, Vec<u64>)>) {
    let expected: Vec<_> = own.keys().map(String::as_str).collect();
    let listed = names(rig).await;
    assert_eq!(listed.iter().filter(|name| *name != "main").collect::<Vec<_>>(), expected);
    for (volume, files) in own.values() {
        let client = rig.client(1000, volume.clone());
        let listed = client.list(volume.root, 3).await.expect("a root directory");
        assert_eq!(listed.len(), files.len());
        for (entry, &tag) in listed.iter().zip(files) {
            let file = client.lookup(entry.ino, "file").await.expect("it was made");
            assert!(client.read(file, 0, 10_000).await == Ok(pattern(tag, 9000)));
        }
    }
}

#[test]
fn a_brick_of_many_groups_deletes_a_volume() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        // The most that a format takes, with the smallest segments.
        let rig = Rig::new(runtime, Shape { groups: 1024, segments: 64, ..Shape::SMALL }).await;
        let other = rig.new_volume("other").await;
        let client = rig.client(9, other.clone());
        for number in 0..20 {
            client.mkdir(other.root, &format!("d{number}")).await.expect("a new directory");
        }
        rig.done(Op::VolumeDelete { name: name("other") }).await.expect("it is there");
        assert_eq!(client.attr(Op::GetAttr { ino: other.root }).await.err(), Some(Kind::Stale));
        // What is gone is not durable: its deletion may be lost yet.
        let synced = client.call(Op::Fsync { ino: other.root, sync: Sync::All }, None).await;
        assert_eq!(synced.map(|_| ()).map_err(|error| error.kind), Err(Kind::Stale));
        drop(client);
        assert_eq!(names(&rig.reopen().await).await, ["main"]);
    });
}
