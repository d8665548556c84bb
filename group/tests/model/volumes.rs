//! Volumes: made, listed, deleted with all that is in them, and apart from each other.

use crate::rig::{Rig, Shape, name, pattern, seeds};
use base::{At, Ino, Kind, Layer, Limit, Limits, Op, Operations, Reply, Sync, Volume};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Side, Survival, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Opening;
use store::format::superblock::{LAYERS, TREE_LIMITS, VOLUME_LIMITS};
use store::format::{keys, values};
use store::index::Index;

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
        assert_eq!(rig.groups.volume(&volume.name).await.as_ref(), Ok(volume));
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

async fn changed(rig: &Rig, op: Op) -> Result<Volume, Kind> {
    match rig.call(op, None).await.map(|answer| answer.reply) {
        Ok(Reply::Volume(volume)) => Ok(volume),
        Ok(other) => panic!("a volume: {other:?}"),
        Err(error) => Err(error.kind),
    }
}

async fn renamed(rig: &Rig, from: &str, to: &str) -> Result<Volume, Kind> {
    changed(rig, Op::VolumeRename { name: name(from), new_name: name(to) }).await
}

async fn resized(rig: &Rig, text: &str, size_bytes: Option<u64>) -> Result<Volume, Kind> {
    changed(rig, Op::VolumeResize { name: name(text), size_bytes }).await
}

async fn layered(rig: &Rig, text: &str, layers: &[Layer]) -> Result<Volume, Kind> {
    changed(rig, Op::VolumeLayers { name: name(text), layers: layers.into() }).await
}

/// Layers of all kinds.
fn layers() -> [Layer; 3] {
    let fault = Layer::Fault { operations: Operations::of(Some("read")).expect("its name"), kind: Kind::Io, every: 7 };
    [Layer::ReadOnly, Layer::Delay { operations: Operations::All, ns: 5_000_000 }, fault]
}

/// Names come and go, also those that others had, in any order with checkpoints and restarts; each volume keeps its files.
#[test]
fn volumes_change_their_names_beside_checkpoints_and_restarts() {
    for seed in seeds(1..11) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rng = SplitMix(seed);
            let mut rig = Rig::new(runtime, Shape::SMALL).await;
            let mut own: BTreeMap<String, (Volume, Vec<u64>)> = BTreeMap::new();
            for round in 0..150 {
                let [text, other] = [rng.below(4), rng.below(4)].map(|number| format!("v{number}"));
                match rng.below(14) {
                    0..4 => {
                        let told = renamed(&rig, &text, &other).await;
                        let expected = match (own.contains_key(&text), own.contains_key(&other)) {
                            (false, _) => Err(Kind::NotFound),
                            (true, true) => Err(Kind::Exists),
                            (true, false) => {
                                let (volume, files) = own.remove(&text).expect("just seen");
                                let volume = Volume { name: name(&other), ..volume };
                                own.insert(other, (volume.clone(), files));
                                Ok(volume)
                            }
                        };
                        assert_eq!(told, expected, "seed {seed}");
                    }
                    4..6 => {
                        let deleted = rig.done(Op::VolumeDelete { name: name(&text) }).await;
                        assert_eq!(deleted.is_ok(), own.remove(&text).is_some(), "seed {seed}");
                    }
                    6 => rig.checkpoint().await,
                    7 => rig.checkpoint_beside(),
                    8 => rig = rig.reopen().await,
                    9 => {
                        let count = rng.below(4) as usize;
                        let layers = &layers()[..count];
                        let told = layered(&rig, &text, layers).await;
                        let expected = own.get_mut(&text).map(|(volume, _)| {
                            volume.layers = layers.into();
                            volume.clone()
                        });
                        assert_eq!(told, expected.ok_or(Kind::NotFound), "seed {seed}");
                    }
                    _ if !own.contains_key(&text) => {
                        let volume = rig.new_volume(&text).await;
                        let client = rig.client(round + 2, volume.clone());
                        let dir = client.mkdir(volume.root, "d").await.expect("a new name");
                        let file = client.create(dir, "file").await.expect("a new file");
                        client.write(file, At::End, &pattern(round, 9000), Sync::Ordered).await.expect("a write");
                        own.insert(text, (volume, vec![round]));
                    }
                    _ => {}
                }
                if round % 10 == 9 {
                    compare(&rig, &own).await;
                }
            }
            let rig = rig.reopen().await;
            compare(&rig, &own).await;
        });
    }
}

/// Writes until the volume is full; how many bytes went in.
async fn fill(client: &Rig, text: &str) -> u64 {
    let file = client.create(client.volume.root, text).await.expect("a new file");
    let mut length = 0;
    loop {
        match client.write(file, At::End, &pattern(1, 64 << 10), Sync::Data).await {
            Ok(_) => length += 64 << 10,
            Err(kind) => {
                assert_eq!(kind, Kind::Quota);
                return length;
            }
        }
    }
}

/// A volume grows and shrinks while it is used, never below what it uses, and has its size also after a restart.
#[test]
fn a_volume_changes_its_size() {
    const SIZE: u64 = 2 << 20;
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        let volume = rig.new_volume("small").await;
        let client = rig.client(9, volume.clone());
        let before = client.create(volume.root, "before").await.expect("a new file");
        client.write(before, At::End, &pattern(3, 256 << 10), Sync::Data).await.expect("it has no bound");
        // From none to one: what is there counts.
        assert_eq!(resized(&rig, "absent", Some(SIZE)).await, Err(Kind::NotFound));
        assert_eq!(resized(&rig, "small", Some(SIZE)).await.map(|volume| volume.size_bytes), Ok(Some(SIZE)));
        let filled = fill(&client, "one").await;
        assert!((SIZE - (320 << 10)..SIZE).contains(&(filled + (256 << 10))), "{filled}");
        // Higher.
        resized(&rig, "small", Some(2 * SIZE)).await.expect("there is room");
        let more = fill(&client, "two").await;
        assert!((SIZE - (128 << 10)..=SIZE + (64 << 10)).contains(&more), "{more}");
        // Not below what it uses, and then as it was.
        assert_eq!(resized(&rig, "small", Some(SIZE)).await, Err(Kind::Invalid));
        assert_eq!(rig.groups.volume(&name("small")).await.map(|volume| volume.size_bytes), Ok(Some(2 * SIZE)));
        client.done(Op::Unlink { parent: volume.root, name: name("two") }).await.expect("it can be removed");
        resized(&rig, "small", Some(SIZE)).await.expect("it fits again");
        assert!(client.free_bytes().await < 128 << 10, "it is nearly full");
        drop(client);
        rig = rig.reopen().await;
        let client = rig.client(10, volume.clone());
        assert!(fill(&client, "three").await <= 64 << 10, "its size is what it was set to");
        // No bound of its own.
        resized(&rig, "small", None).await.expect("the brick has room");
        let file = client.create(volume.root, "four").await.expect("a new file");
        for _ in 0..64 {
            client.write(file, At::End, &pattern(1, 64 << 10), Sync::Data).await.expect("the brick has room");
        }
        drop(client);
        rig.reopen().await;
    });
}

/// Cut off at any step, a volume has its old name and size or the new ones, and what was told is so.
#[test]
fn a_change_of_a_volume_that_is_cut_off_is_there_as_a_whole_or_not_at_all() {
    const SIZES: [Option<u64>; 2] = [Some(1 << 20), Some(3 << 20)];
    for step in 1.. {
        let mut world = World::new(step);
        let runtime = world.runtime();
        let (rig, volume) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            rig.new_volume("old").await;
            let volume = resized(&rig, "old", SIZES[0]).await.expect("it is empty");
            (rig, volume)
        });
        let cut = world.steps() + step.div_ceil(2);
        world.crash_at_step(cut, if step % 2 == 0 { Side::Before } else { Side::After });
        let told = std::cell::Cell::new(0);
        let ran = world.run(async {
            renamed(&rig, "old", "new").await.expect("a free name");
            told.set(1);
            resized(&rig, "new", SIZES[1]).await.expect("it is empty");
            told.set(2);
            rig.checkpoint().await;
        });
        let survival = if step % 3 == 0 { Survival::Everything } else { Survival::Nothing };
        let mut after = World::from_image(1, world.crash_as(survival, &mut SplitMix(step)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            let volumes = rig.groups.volumes().await.expect("a healthy brick lists");
            let found: Vec<_> = volumes.iter().filter(|found| found.id == volume.id).collect();
            let [found] = found[..] else { panic!("step {step}: {volumes:?}") };
            let is = (found.name == name("new"), found.size_bytes);
            let states = [(false, SIZES[0]), (true, SIZES[0]), (true, SIZES[1])];
            let at = states.iter().position(|state| *state == is).unwrap_or_else(|| panic!("step {step}: {found:?}"));
            assert!(at >= told.get(), "step {step}: {at} is there, {} were told", told.get());
            let client = rig.client(5, found.clone());
            let room = client.free_bytes().await;
            assert!(
                room <= found.size_bytes.expect("it has one") && room > found.size_bytes.expect("it has one") - 8192
            );
            drop(client);
            rig.reopen().await;
        });
        if matches!(ran, Ran::Finished(())) {
            assert!(step > 3, "there was something to cut off: {step}");
            break;
        }
    }
}

/// True if a closed brick says that builds which do not know this feature must not read it.
async fn is_marked((runtime, index): (runtime::Runtime, store::index::model::ModelIndex), bit: u64) -> bool {
    let opening = Opening::read_wholly(runtime, Arc::new(index), false).await.expect("a closed brick opens");
    opening.superblock().features.incompatible & bit != 0
}

/// Cuts changes of a volume's property off at any step: the volume has the property of before or after each, and none other than
/// the first, which each volume begins with, without the mark.
fn whole_or_not_at_all<T: PartialEq>(
    states: &[T],
    set: impl AsyncFn(&Rig, &T),
    property: impl Fn(&Volume) -> T,
    bit: u64,
) {
    for step in 1.. {
        let mut world = World::new(step);
        let runtime = world.runtime();
        let rig = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            rig.new_volume("one").await;
            rig
        });
        let cut = world.steps() + step.div_ceil(2);
        world.crash_at_step(cut, if step % 2 == 0 { Side::Before } else { Side::After });
        let told = std::cell::Cell::new(0);
        let ran = world.run(async {
            for (number, state) in states.iter().enumerate().skip(1) {
                set(&rig, state).await;
                told.set(number);
            }
            rig.checkpoint().await;
        });
        let survival = if step % 3 == 0 { Survival::Everything } else { Survival::Nothing };
        let mut after = World::from_image(1, world.crash_as(survival, &mut SplitMix(step)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            let found = rig.groups.volume(&name("one")).await.expect("it is there");
            let at = states.iter().position(|state| *state == property(&found));
            let at = at.unwrap_or_else(|| panic!("step {step}: {found:?}"));
            assert!(at >= told.get(), "step {step}: {at} is there, {} were told", told.get());
            assert!(is_marked(rig.close().await, bit).await || at == 0, "step {step}");
        });
        if matches!(ran, Ran::Finished(())) {
            assert!(step > 6, "there was something to cut off: {step}");
            break;
        }
    }
}

/// Cut off at any step, a volume has its old layers or its new ones, and has none without the mark.
#[test]
pub fn layers_are_there_as_a_whole_or_not_at_all_and_never_unmarked() {
    let [read_only, delay, fault] = layers();
    let states: [Vec<Layer>; 3] = [[].into(), [read_only, delay].into(), [fault].into()];
    let set = async |rig: &Rig, layers: &Vec<Layer>| drop(layered(rig, "one", layers).await.expect("it is there"));
    whole_or_not_at_all(&states, set, |volume| volume.layers.to_vec(), LAYERS);
}

async fn limited(rig: &Rig, text: &str, some: &[(Limit, u64)]) -> Result<Volume, Kind> {
    changed(rig, Op::VolumeLimits { name: name(text), tree: None, changed: some.into() }).await
}

/// The same of limits. The last change takes away one of two.
#[test]
pub fn limits_are_there_as_a_whole_or_not_at_all_and_never_unmarked() {
    let both = [(Limit::Iops, 500), (Limit::WriteBandwidth, 1 << 20)];
    let some = |changed: &[(Limit, u64)]| Limits::NONE.with(changed).expect("within bounds");
    let states = [Limits::NONE, some(&both), some(&both[1..])];
    let set = async |rig: &Rig, limits: &Limits| {
        let value = |limit: Limit| limits.get(limit).unwrap_or(0);
        let changed = [Limit::Iops, Limit::WriteBandwidth].map(|limit| (limit, value(limit)));
        let volume = limited(rig, "one", &changed).await.expect("it is there");
        assert_eq!(volume.limits, *limits);
    };
    whole_or_not_at_all(&states, set, |volume| volume.limits.clone(), VOLUME_LIMITS);
}

/// The same of limits of directory trees, beside those of the volume.
#[test]
pub fn limits_of_trees_are_there_as_a_whole_or_not_at_all_and_never_unmarked() {
    let tree = |limits: Limits, project, changed: &[(Limit, u64)]| {
        limits.with_tree(project, Ino(40 + u64::from(project)), changed).expect("within bounds")
    };
    let one = tree(Limits::NONE, 1, &[(Limit::Iops, 500)]);
    let states = [Limits::NONE, one.clone(), tree(one, 2, &[(Limit::WriteBandwidth, 1 << 20), (Limit::Burst, 5)])];
    let set = async |rig: &Rig, limits: &Limits| {
        for (project, tree) in limits.trees() {
            let changed: Box<[(Limit, u64)]> = tree.limits.all().collect();
            let op = Op::VolumeLimits { name: name("one"), tree: Some((project, tree.top)), changed };
            changed_to(rig, op, limits).await;
        }
    };
    whole_or_not_at_all(&states, set, |volume| volume.limits.clone(), TREE_LIMITS);
}

/// Makes a change; at the last one the volume has these limits.
async fn changed_to(rig: &Rig, op: Op, limits: &Limits) {
    let volume = changed(rig, op).await.expect("it is there");
    assert!(volume.limits.trees().all(|(project, tree)| limits.trees().any(|other| other == (project, tree))));
}

/// The build of before reads a brick whose volumes never had limits, and refuses one that has had some.
#[test]
fn a_brick_that_never_had_limits_is_as_before_and_one_that_had_stays_marked() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        rig.new_volume("one").await;
        assert_eq!(limited(&rig, "one", &[(Limit::Iops, 0)]).await.map(|volume| volume.limits), Ok(Limits::NONE));
        assert_eq!(limited(&rig, "absent", &[(Limit::Iops, 5)]).await, Err(Kind::NotFound));
        assert_eq!(limited(&rig, "one", &[(Limit::Iops, 5), (Limit::Burst, u64::MAX)]).await, Err(Kind::Invalid));
        let (volume, shape) = (rig.volume.clone(), Shape::SMALL);
        let (runtime, index) = rig.close().await;
        let row = || index.get(&keys::volume(b"one")).expect("the model index reads").expect("a row");
        assert_eq!(row()[0], 1, "the version of a value that a limit would change");
        assert!(!is_marked((runtime.clone(), index.clone()), VOLUME_LIMITS).await);
        let rig = Rig::existing((runtime, index.clone()), shape, volume).await;
        let volume = limited(&rig, "one", &[(Limit::Iops, 5)]).await.expect("it is there");
        rig.checkpoint().await;
        assert_eq!((row()[0], values::decode_volume(&row())), (4, Ok(volume)));
        limited(&rig, "one", &[(Limit::Iops, 0)]).await.expect("it is there");
        let closed = rig.close().await;
        assert_eq!(row()[0], 1);
        assert!(is_marked(closed, VOLUME_LIMITS).await, "the log may still hold limits");
    });
}

/// The build of before reads a brick whose volumes never had layers: neither a mark nor a row is new to it.
#[test]
fn a_brick_that_never_had_layers_is_as_before_and_one_that_had_stays_marked() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        rig.new_volume("one").await;
        renamed(&rig, "one", "two").await.expect("a free name");
        assert_eq!(layered(&rig, "two", &[]).await.map(|volume| volume.layers.len()), Ok(0));
        assert_eq!(layered(&rig, "absent", &[Layer::ReadOnly]).await, Err(Kind::NotFound));
        assert_eq!(layered(&rig, "two", &[Layer::ReadOnly; 17]).await, Err(Kind::Invalid));
        let (volume, shape) = (rig.volume.clone(), Shape::SMALL);
        let (runtime, index) = rig.close().await;
        let row = || index.get(&keys::volume(b"two")).expect("the model index reads").expect("a row");
        assert_eq!(row()[0], 1, "the version of a value that a layer would change");
        assert!(!is_marked((runtime.clone(), index.clone()), LAYERS).await);
        let rig = Rig::existing((runtime, index.clone()), shape, volume).await;
        let layered_volume = layered(&rig, "two", &layers()).await.expect("it is there");
        rig.checkpoint().await;
        assert_eq!((row()[0], values::decode_volume(&row())), (2, Ok(layered_volume)));
        layered(&rig, "two", &[]).await.expect("it is there");
        let closed = rig.close().await;
        assert_eq!(row()[0], 1);
        assert!(is_marked(closed, LAYERS).await, "the log may still hold layers");
    });
}
