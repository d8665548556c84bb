//! A log with a bad batch, of a brick that crashed: the repair keeps what is whole and does not build on what is lost, group by
//! group, and lists the rest. The check finds nothing afterwards, and nothing is served wrong.

use crate::batches::{DATA, batches};
use crate::rig::{Rig, Shape, checked, name, pattern};
use base::{At, FileKind, Ino, Op, Sync, Volume};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Survival, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::Opening;
use store::format::batch::BatchHeader;
use store::index::model::ModelIndex;
use store::repair::{Depth, Lost, repair};

const DIRS: usize = 6;
const OPS: usize = 42;
const BYTES: usize = 6000;
/// Most rounds: as many as the command tries.
const ROUNDS_MAX: usize = 6;

/// Every path of a volume and what is there: a file's bytes.
type Tree = BTreeMap<String, Vec<u8>>;

/// The effect of one synced operation.
struct Done {
    /// Its batches.
    batches: std::ops::RangeInclusive<u64>,
    /// The paths that it concerns.
    paths: Vec<String>,
}

/// A brick that crashed after synced operations, each in a batch of its own.
struct Crashed {
    image: DiskImage,
    index: ModelIndex,
    volume: Volume,
    done: Vec<Done>,
}

async fn one(rig: &Rig, dirs: &[Ino], number: usize) -> Vec<String> {
    let (dir, other) = (number % DIRS, (number + 1) % DIRS);
    let path = |dir: usize, text: &str| format!("/d{dir}/{text}");
    let (new, old) = (format!("new{number}"), format!("old{number}"));
    match number % 6 {
        0..3 => {
            let file = rig.create(dirs[dir], &new).await.expect("there is room");
            rig.write(file, At::Offset(0), &pattern(number as u64, BYTES), Sync::Ordered).await.expect("there is room");
            vec![path(dir, &new)]
        }
        3 => {
            let inner = rig.mkdir(dirs[dir], &new).await.expect("there is room");
            rig.create(inner, "in").await.expect("there is room");
            vec![path(dir, &new), format!("{}/in", path(dir, &new))]
        }
        4 => {
            let (parent, new_parent) = (dirs[dir], dirs[other]);
            let (name, new_name) = (name(&old), name(&new));
            let rename = Op::Rename { parent, name, new_parent, new_name, no_replace: true, whiteout: false };
            rig.done(rename).await.expect("it can be moved");
            vec![path(dir, &old), path(other, &new)]
        }
        _ => {
            rig.done(Op::Unlink { parent: dirs[dir], name: name(&old) }).await.expect("it is there");
            vec![path(dir, &old)]
        }
    }
}

fn crashed(shape: Shape) -> Crashed {
    let mut world = World::new(4);
    let runtime = world.runtime();
    let (rig, done) = world.block_on(async {
        let rig = Rig::new(runtime.clone(), shape).await;
        let mut dirs = Vec::new();
        for number in 0..DIRS {
            dirs.push(rig.mkdir(rig.volume.root, &format!("d{number}")).await.expect("there is room"));
        }
        for number in 0..OPS {
            let old = rig.create(dirs[number % DIRS], &format!("old{number}")).await.expect("there is room");
            rig.write(old, At::Offset(0), &pattern(900 + number as u64, BYTES), Sync::Ordered).await.expect("room");
        }
        rig.checkpoint().await;
        let mut done = Vec::new();
        for number in 0..OPS {
            let first = rig.groups.store().log.last_batch() + 1;
            let paths = one(&rig, &dirs, number).await;
            rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
            done.push(Done { batches: first..=rig.groups.store().log.last_batch(), paths });
        }
        runtime.clock.sleep(2_000_000_000).await;
        (rig, done)
    });
    let (index, volume) = (rig.index.crashed(0), rig.volume.clone());
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    drop(rig);
    Crashed { image, index, volume, done }
}

async fn tree_of(rig: &Rig) -> (Tree, BTreeMap<String, Ino>) {
    let (mut tree, mut inos) = (Tree::new(), BTreeMap::new());
    let mut dirs = vec![(String::new(), rig.volume.root)];
    while let Some((path, dir)) = dirs.pop() {
        for entry in rig.list(dir, 100).await.expect("it can be listed") {
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name.as_bytes()));
            inos.insert(path.clone(), entry.ino);
            match entry.kind {
                FileKind::Directory => {
                    tree.insert(path.clone(), Vec::new());
                    dirs.push((path, entry.ino));
                }
                _ => drop(tree.insert(path, rig.read(entry.ino, 0, 2 * BYTES).await.expect("it can be read"))),
            }
        }
    }
    (tree, inos)
}

/// Opens a brick as a daemon would, and closes it.
fn opened(brick: &Crashed, image: &DiskImage) -> (Tree, BTreeMap<String, Ino>) {
    let mut world = World::from_image(5, image.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::existing((runtime, brick.index.crashed(0)), Shape::SMALL, brick.volume.clone()).await;
        let told = tree_of(&rig).await;
        rig.close().await;
        told
    })
}

/// The content of a brick after a repair.
struct Mended {
    tree: Tree,
    inos: BTreeMap<String, Ino>,
    lost: Vec<Lost>,
    /// Files made after it.
    young: Vec<Ino>,
}

/// Repairs as the command does.
fn repaired(brick: &Crashed, image: &DiskImage) -> Mended {
    let mut world = World::from_image(6, image.clone());
    let runtime = world.runtime();
    let index = brick.index.crashed(0);
    world.block_on(async {
        let mut lost = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let report = checked(&runtime, &index.crashed(0)).await;
            if report.findings.is_empty() && report.records == 0 {
                break;
            }
            let settled = report.records == 0 && report.intents == 0 && !report.log_lost;
            let opening =
                Opening::read_wholly(runtime.clone(), Arc::new(index.clone()), true).await.expect("it can be read");
            let depth = if settled { Depth::All } else { Depth::Maps };
            lost.extend(repair(&opening, depth, &mut |_| ()).await.expect("a healthy device").lost);
            drop(opening);
            if !settled {
                let rig = Rig::existing((runtime.clone(), index.clone()), Shape::SMALL, brick.volume.clone()).await;
                rig.end().await;
            }
        }
        let report = checked(&runtime, &index.crashed(0)).await;
        assert_eq!(report.findings, Vec::<String>::new(), "nothing is found any more");
        let rig = Rig::existing((runtime.clone(), index), Shape::SMALL, brick.volume.clone()).await;
        let (tree, inos) = tree_of(&rig).await;
        // It can be used.
        let mut young = Vec::new();
        let dirs = tree.keys().filter(|path| path.matches('/').count() == 1).filter_map(|path| inos.get(path));
        for (number, dir) in dirs.cycle().take(2 * OPS).enumerate() {
            young.push(rig.create(*dir, &format!("young{number}")).await.expect("there is room"));
        }
        rig.write(young[0], At::Offset(0), &pattern(1, BYTES), Sync::Data).await.expect("there is room");
        rig.close().await;
        Mended { tree, inos, lost, young }
    })
}

/// Every byte of a batch's header is another one, and with it all its records.
fn lose(image: &mut DiskImage, at: u64, header: &BatchHeader) {
    let mut rng = SplitMix(at);
    for within in 0..u64::from(header.header_blocks) * 4096 {
        image.flip_bits(DATA, at + within, &mut rng);
    }
}

/// The batches of the operations, by number and header.
fn of_operations(brick: &Crashed) -> Vec<(u64, BatchHeader)> {
    let (first, last) = (brick.done[0].batches.start(), brick.done[OPS - 1].batches.end());
    batches(&brick.image).into_iter().filter(|(_, header)| (*first..=*last).contains(&header.number)).collect()
}

/// Every path that differs from what was is told as lost, or was changed by an operation of the bad batches. How many of the
/// operations behind the first bad one are there.
fn judge(brick: &Crashed, was: &(Tree, BTreeMap<String, Ino>), bad: &[u64], image: &DiskImage) -> usize {
    let Mended { tree, inos, lost, young } = repaired(brick, image);
    let again = was.1.iter().find(|(_, ino)| young.contains(ino));
    assert_eq!(again, None, "its number was given to another file, and so handles of it");
    let told: BTreeSet<Ino> = lost.iter().map(|lost| lost.ino).collect();
    let told_paths: BTreeSet<String> =
        lost.iter().filter_map(|lost| lost.path.as_ref()).map(|path| String::from_utf8_lossy(path).into()).collect();
    let hit = |path: &String| {
        brick
            .done
            .iter()
            .any(|done| done.paths.contains(path) && bad.iter().any(|number| done.batches.contains(number)))
    };
    let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_string()).unwrap_or_default();
    let all: BTreeSet<&String> = was.0.keys().chain(tree.keys()).collect();
    let differ: BTreeSet<&String> = all.into_iter().filter(|path| was.0.get(*path) != tree.get(*path)).collect();
    for path in &differ {
        let found = path.starts_with("/lost+found");
        let by_ino = [&was.1, &inos].iter().any(|inos| inos.get(*path).is_some_and(|ino| told.contains(ino)));
        let by_path = told_paths.contains(*path) || told_paths.contains(&parent(path));
        assert!(found || by_ino || by_path || hit(path), "{path} differs, and nobody says so: {lost:#?}");
    }
    let behind = brick.done.iter().filter(|done| bad.iter().all(|number| done.batches.start() > number));
    behind.filter(|done| done.paths.iter().all(|path| !differ.contains(path))).count()
}

#[test]
pub fn what_does_not_build_on_a_lost_record_is_kept() {
    let brick = crashed(Shape::SMALL);
    let was = opened(&brick, &brick.image);
    // Half of the operations make a file, a sixth two names, a sixth moves one and a sixth removes one.
    assert_eq!(was.0.len(), DIRS + OPS + OPS / 2 + 2 * OPS / 6 - OPS / 6);
    let all = of_operations(&brick);
    assert!(all.len() >= OPS);
    let (mut kept, mut behind) = (0, 0);
    for (at, header) in all.iter().step_by(5) {
        let mut bad = brick.image.clone();
        lose(&mut bad, *at, header);
        kept += judge(&brick, &was, &[header.number], &bad);
        behind += brick.done.iter().filter(|done| *done.batches.start() > header.number).count();
    }
    println!("{kept} of {behind} operations behind a batch that is gone were kept");
    assert!(kept * 3 > behind, "{kept} of {behind}");
}

#[test]
fn one_wrong_bit_costs_one_record_or_none() {
    let brick = crashed(Shape::SMALL);
    let was = opened(&brick, &brick.image);
    let mut rng = SplitMix(3);
    for (number, (at, header)) in of_operations(&brick).iter().enumerate().step_by(4) {
        let mut bad = brick.image.clone();
        let records = u64::from(header.records_bytes);
        let (within, in_records) = match number % 8 {
            0 => (40, false),
            _ => (96 + rng.below(records), true),
        };
        bad.flip_bits(DATA, at + within, &mut rng);
        let Mended { tree, lost, .. } = repaired(&brick, &bad);
        if !in_records {
            assert!(tree == was.0 && lost.is_empty(), "a header is not what records are: {lost:#?}");
        }
        judge(&brick, &was, &[header.number], &bad);
    }
}

/// The records that reserved the numbers of lost files are lost too.
#[test]
fn numbers_of_what_is_lost_are_never_given_again() {
    let brick = crashed(Shape { numbers_at_once: 4, ..Shape::SMALL });
    let was = opened(&brick, &brick.image);
    let all = of_operations(&brick);
    for step in [1, 2, 7] {
        let mut bad = brick.image.clone();
        all.iter().step_by(step).for_each(|(at, header)| lose(&mut bad, *at, header));
        let Mended { tree, young, .. } = repaired(&brick, &bad);
        assert!(tree.len() < was.0.len());
        let again = was.1.iter().find(|(_, ino)| young.contains(ino));
        assert_eq!(again, None, "its number was given to another file");
    }
}

#[test]
fn several_bad_batches_are_passed_too() {
    let brick = crashed(Shape::SMALL);
    let was = opened(&brick, &brick.image);
    let all = of_operations(&brick);
    let mut bad = brick.image.clone();
    let numbers = [5, 6, 20, 30].map(|number| {
        let (at, header) = &all[number];
        lose(&mut bad, *at, header);
        header.number
    });
    judge(&brick, &was, &numbers, &bad);
}
