//! The space that each project uses is counted exactly, whatever moves to another project, and when.

use crate::rig::{Rig, Shape, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Guard, Ino, Kind, Op, Room, SetAttr, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Side, Survival, World};
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FILES: usize = 4;

fn of_project(ino: Ino, project: u32, hands_down_project: bool) -> Op {
    let guard = Some(Guard { hands_down_project, ..Guard::default() });
    Op::SetAttr { ino, set: SetAttr { guard, project: Some(project), ..SetAttr::default() }.into() }
}

/// Blocks and inodes of each project that has any, as the store counts them.
fn told(rig: &Rig) -> BTreeMap<u32, (u64, u64)> {
    let used = rig.groups.store().usage(rig.volume.id);
    let used = used.iter().map(|(project, usage)| (*project, (usage.blocks + usage.reserved, usage.inodes)));
    used.filter(|(_, used)| *used != (0, 0)).collect()
}

/// A file, as it should be.
struct Plain {
    ino: Ino,
    project: u32,
    taken: BTreeSet<u64>,
}

fn expected(files: &[Option<Plain>]) -> BTreeMap<u32, (u64, u64)> {
    // The root directory.
    let mut used = BTreeMap::from([(0, (0, 1))]);
    for file in files.iter().flatten() {
        let (blocks, inodes) = used.entry(file.project).or_default();
        *blocks += file.taken.len() as u64;
        *inodes += 1;
    }
    used
}

async fn change(rig: &Rig, random: &mut SplitMix, files: &mut [Option<Plain>]) {
    let slot = random.next() as usize % FILES;
    let text = format!("file{slot}");
    let Some(file) = &mut files[slot] else {
        let ino = rig.create(rig.volume.root, &text).await.expect("a new file");
        files[slot] = Some(Plain { ino, project: 0, taken: BTreeSet::new() });
        return;
    };
    let (block, count) = (random.next() % 300, 1 + random.next() % 40);
    let blocks = block..block + count;
    let allocate =
        |room| Op::Allocate { ino: file.ino, offset: block * BLOCK, length: count * BLOCK, keep_size: true, room };
    match random.next() % 16 {
        0..=4 => {
            let bytes = pattern(block, count as usize * BLOCK_BYTES);
            rig.write(file.ino, At::Offset(block * BLOCK), &bytes, Sync::Ordered).await.expect("there is room");
            file.taken.extend(blocks);
        }
        5 | 6 => {
            rig.done(allocate(Room::Hole)).await.expect("a hole");
            file.taken.retain(|taken| !blocks.contains(taken));
        }
        7 | 8 => {
            rig.done(allocate(Room::Promised)).await.expect("there is room");
            file.taken.extend(blocks);
        }
        9 => {
            rig.truncate(file.ino, block * BLOCK).await.expect("a file can be cut");
            file.taken.retain(|taken| *taken < block);
        }
        10 => {
            rig.done(Op::Unlink { parent: rig.volume.root, name: name(&text) }).await.expect("it is there");
            rig.done(Op::Release { ino: file.ino }).await.expect("it was open");
            files[slot] = None;
        }
        11..=14 => {
            file.project = (random.next() % 3) as u32;
            rig.attr(of_project(file.ino, file.project, false)).await.expect("any project");
        }
        _ => rig.checkpoint().await,
    }
}

#[test]
fn what_gets_another_project_counts_there() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, Shape::SMALL).await;
            let mut random = SplitMix(seed);
            let mut files: Vec<Option<Plain>> = (0..FILES).map(|_| None).collect();
            for step in 0..150 {
                change(&rig, &mut random, &mut files).await;
                if random.next().is_multiple_of(12) {
                    rig.settle().await;
                    if random.next().is_multiple_of(3) {
                        rig = rig.reopen().await;
                    }
                    assert_eq!(told(&rig), expected(&files), "seed {seed}, step {step}");
                }
            }
            rig.settle().await;
            assert_eq!(told(&rig), expected(&files), "seed {seed}");
            rig.close().await;
        });
    }
}

/// The counts equal what is found, and durable changes are found, also if a crash comes at any moment between or within
/// checkpoints.
#[test]
fn a_crash_leaves_each_project_what_it_has() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let rig = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let mut random = SplitMix(seed);
            let mut files: Vec<Option<Plain>> = (0..FILES).map(|_| None).collect();
            for _ in 0..60 + seed {
                change(&rig, &mut random, &mut files).await;
            }
            let ino = rig.create(rig.volume.root, "last").await.expect("a new file");
            let bytes = pattern(7, 9 * BLOCK_BYTES);
            rig.write(ino, At::Offset(0), &bytes, Sync::Ordered).await.expect("there is room");
            rig.checkpoint().await;
            rig.attr(of_project(ino, 9, false)).await.expect("any project");
            rig.done(Op::Fsync { ino, sync: Sync::All }).await.expect("it becomes durable");
            for _ in 0..seed % 5 {
                change(&rig, &mut random, &mut files).await;
            }
            rig
        });
        // In the middle of a checkpoint, for some.
        if seed % 4 != 0 {
            let cut = world.steps() + 1 + seed / 2;
            world.crash_at_step(cut, if seed % 2 == 0 { Side::Before } else { Side::After });
            let _ = world.run(async { rig.checkpoint().await });
        }
        let survival = if seed % 3 == 0 { Survival::Everything } else { Survival::Nothing };
        let mut after = World::from_image(1, world.crash_as(survival, &mut SplitMix(seed)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            rig.settle().await;
            assert_eq!(told(&rig).get(&9), Some(&(9, 1)), "seed {seed}");
            rig.close().await;
        });
    }
}

#[test]
fn a_directory_hands_its_project_down_and_takes_no_other() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let (home, plain) =
            (rig.mkdir(root, "home").await.expect("mkdir"), rig.mkdir(root, "plain").await.expect("mkdir"));
        rig.attr(of_project(home, 7, true)).await.expect("a directory");
        rig.attr(of_project(plain, 8, false)).await.expect("a directory");
        let project = async |ino| rig.attr(Op::GetAttr { ino }).await.expect("it is there").inode;
        let inside = rig.mkdir(home, "inside").await.expect("mkdir");
        let file = rig.create(inside, "file").await.expect("a new file");
        assert_eq!((project(inside).await.project, project(file).await.project), (7, 7));
        assert!(project(inside).await.guard.hands_down_project && !project(file).await.guard.hands_down_project);
        let other = rig.create(plain, "other").await.expect("a new file");
        assert_eq!(project(other).await.project, 0, "what hands nothing down");
        let moves = |parent, text: &str, new_parent, to: &str| Op::Rename {
            parent,
            name: name(text),
            new_parent,
            new_name: name(to),
            no_replace: false,
            whiteout: false,
        };
        assert_eq!(rig.done(moves(plain, "other", home, "came")).await, Err(Kind::OtherProject));
        let link = Op::Link { ino: other, new_parent: home, new_name: name("linked") };
        assert_eq!(rig.done(link).await, Err(Kind::OtherProject));
        let exchange = Op::Exchange { parent: plain, name: name("other"), new_parent: inside, new_name: name("file") };
        assert_eq!(rig.done(exchange).await, Err(Kind::OtherProject));
        rig.done(moves(inside, "file", plain, "went")).await.expect("out of it anything goes");
        assert_eq!(project(file).await.project, 7);
        rig.done(moves(plain, "went", home, "back")).await.expect("it is of that project");
        rig.attr(of_project(file, 0, true)).await.expect("any project");
        assert!(!project(file).await.guard.hands_down_project, "a file hands nothing down");
        rig.settle().await;
        assert_eq!(told(&rig), BTreeMap::from([(0, (0, 3)), (7, (0, 2)), (8, (0, 1))]));
        rig.close().await;
    });
}
