//! Many clients at the same time: nothing is lost, nothing is torn, nothing waits for ever (rules M5, M2, M3).

use crate::rig::{Rig, Shape, name, pattern, seeds, together};
use base::{At, Ino, Kind, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::World;
use runtime::tasks::Local;
use std::sync::{Arc, Mutex};

/// Runs `clients` clients of one brick beside each other, with a checkpoint now and then, and hands the rig back.
async fn beside<F>(rig: Rig, clients: u64, client: impl Fn(Arc<Rig>, u64) -> F + Copy + Send + 'static) -> Rig
where
    F: Future<Output = ()> + 'static,
{
    let all = (1..=clients).map(|number| Arc::new(rig.client(number + 1, rig.volume.clone())));
    let tasks = all.zip(1..).map(|(own, number)| move || -> Local { Box::pin(client(own, number)) });
    let groups = rig.groups.clone();
    let checkpoints = move || -> Local {
        Box::pin(async move {
            for _ in 0..5 {
                groups.store().runtime.clock.sleep(3_000_000).await;
                groups.checkpoint().await.expect("a healthy brick checkpoints");
            }
        })
    };
    rig.runtime.tasks.spawn(0, Box::new(checkpoints));
    together(&rig.runtime, tasks).await;
    rig
}

fn in_world(seed: u64, test: impl AsyncFnOnce(Rig)) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    world.block_on(async { test(Rig::new(runtime, Shape::SMALL).await).await });
}

/// A length: small, whole blocks, or large enough for the bulk stream.
fn length(rng: &mut SplitMix) -> usize {
    match rng.below(12) {
        0 => 128 << 10,
        1 => 100_000 + rng.below(60_000) as usize,
        2..6 => 4096 * (1 + rng.below(3) as usize),
        _ => 1 + rng.below(9000) as usize,
    }
}

#[test]
fn appends_of_many_never_overlap_nor_get_lost() {
    for seed in seeds(1..4) {
        in_world(seed, async |rig| {
            let file = rig.create(rig.volume.root, "log").await.expect("a new file");
            let done = Arc::new(Mutex::new(Vec::new()));
            let shared = SHARED.replace(Some(done.clone()));
            assert!(shared.is_none());
            let rig = beside(rig, 8, move |own: Arc<Rig>, number| async move {
                let mut rng = SplitMix(seed * 100 + number);
                for round in 0..12 {
                    let tag = number * 1000 + round;
                    let bytes = pattern(tag, length(&mut rng));
                    let sync = if rng.one_in(3) { Sync::Data } else { Sync::Ordered };
                    let offset = own.write(file, At::End, &bytes, sync).await.expect("an append");
                    note(offset, tag, bytes.len());
                }
            })
            .await;
            SHARED.replace(None);
            let mut done = done.lock().expect("no panic while held").clone();
            done.sort();
            let mut end = 0;
            for &(offset, tag, length) in &done {
                assert_eq!(offset, end, "seed {seed}: appends follow each other without gap or overlap");
                end += length as u64;
                let mut told = Vec::new();
                while told.len() < length {
                    told.extend(rig.read(file, offset + told.len() as u64, length - told.len()).await.expect("a file"));
                }
                assert!(told == pattern(tag, length), "seed {seed}: append {tag} at {offset}");
            }
            assert_eq!(rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size, end);
            rig.reopen().await;
        });
    }
}

type Done = Arc<Mutex<Vec<(u64, u64, usize)>>>;
thread_local! {
    /// The notes of the running world's clients: tasks are made from functions that capture little.
    static SHARED: std::cell::RefCell<Option<Done>> = const { std::cell::RefCell::new(None) };
}

fn note(offset: u64, tag: u64, length: usize) {
    SHARED.with_borrow(|shared| {
        let shared = shared.as_ref().expect("set by the test");
        shared.lock().expect("no panic while held").push((offset, tag, length));
    });
}

#[test]
pub fn neighbours_within_a_block_keep_their_bytes() {
    // Not a divisor of 4096: pieces share blocks, and some cross from one into the next.
    const PIECE: u64 = 700;
    for seed in seeds(1..4) {
        in_world(seed, async |rig| {
            let file = rig.create(rig.volume.root, "shared").await.expect("a new file");
            let rig = beside(rig, 10, move |own: Arc<Rig>, number| async move {
                let mut rng = SplitMix(seed * 100 + number);
                for round in 0..15 {
                    let at = (round * 10 + number - 1) * PIECE;
                    let bytes = pattern(number * 1000 + round, PIECE as usize);
                    let sync = if rng.one_in(3) { Sync::Data } else { Sync::Ordered };
                    own.write(file, At::Offset(at), &bytes, sync).await.expect("a write");
                }
            })
            .await;
            let told = rig.read(file, 0, 200_000).await.expect("a file");
            assert_eq!(told.len() as u64, 150 * PIECE);
            for (piece, bytes) in (0..).zip(told.chunks(PIECE as usize)) {
                let (round, number) = (piece / 10, piece % 10 + 1);
                assert!(bytes == pattern(number * 1000 + round, PIECE as usize), "seed {seed}: piece {piece}");
            }
            rig.reopen().await;
        });
    }
}

/// Blocks that were written one by one lie in the order of their writes. A read of all of them has the device look for
/// many at a time.
#[test]
fn blocks_that_lie_apart_are_read_at_the_same_time() {
    const BLOCKS: u64 = 200;
    in_world(1, async |rig| {
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        for block in (0..BLOCKS).rev() {
            rig.write(file, At::Offset(block * 4096), &pattern(block, 4096), Sync::Data).await.expect("a write");
        }
        let timed = async |offset, length| {
            let began = rig.runtime.clock.now_ns();
            let bytes = rig.read(file, offset, length).await.expect("a file");
            (bytes, rig.runtime.clock.now_ns() - began)
        };
        let mut alone_ns = 0;
        for block in 0..BLOCKS {
            alone_ns += timed(block * 4096, 4096).await.1;
        }
        // Neither its beginning nor its end is a block's.
        let (bytes, together_ns) = timed(1000, (BLOCKS * 4096 - 2000) as usize).await;
        let all: Vec<u8> = (0..BLOCKS).flat_map(|block| pattern(block, 4096)).collect();
        assert!(bytes == all[1000..all.len() - 1000]);
        assert!(together_ns * 4 < alone_ns, "{together_ns} ns, one after the other {alone_ns} ns");
        rig.reopen().await;
    });
}

#[test]
pub fn overlapping_writes_and_reads_are_never_torn() {
    for seed in seeds(1..4) {
        for (offset, length) in [(100, 9000), (0, 8192), (4096, 128 << 10), (50, 300_000)] {
            in_world(seed, async move |rig| {
                let file = rig.create(rig.volume.root, "fought over").await.expect("a new file");
                rig.write(file, At::Offset(offset), &vec![255; length], Sync::Ordered).await.expect("a write");
                let rig = beside(rig, 8, move |own: Arc<Rig>, number| async move {
                    for round in 0..8 {
                        if number <= 4 {
                            let bytes = vec![(number * 10 + round) as u8; length];
                            own.write(file, At::Offset(offset), &bytes, Sync::Ordered).await.expect("a write");
                        } else {
                            let told = own.read(file, offset, length).await.expect("a file");
                            assert_eq!(told.len(), length);
                            assert!(told.iter().all(|byte| *byte == told[0]), "seed {seed}: a torn read");
                        }
                    }
                })
                .await;
                let told = rig.read(file, offset, length).await.expect("a file");
                assert!(told.iter().all(|byte| *byte == told[0]), "seed {seed}: a torn write");
                rig.reopen().await;
            });
        }
    }
}

#[test]
fn appends_and_truncations_leave_whole_records() {
    const RECORD: usize = 96;
    for seed in seeds(1..5) {
        in_world(seed, async |rig| {
            let file = rig.create(rig.volume.root, "log").await.expect("a new file");
            let rig = beside(rig, 7, move |own: Arc<Rig>, number| async move {
                for round in 0..25 {
                    if number == 7 {
                        own.truncate(file, 0).await.expect("a truncation");
                        own.runtime.clock.sleep(400_000).await;
                    } else {
                        let bytes = vec![(number * 30 + round) as u8; RECORD];
                        own.write(file, At::End, &bytes, Sync::Ordered).await.expect("an append");
                    }
                }
            })
            .await;
            let told = rig.read(file, 0, 1 << 20).await.expect("a file");
            assert_eq!(told.len() % RECORD, 0, "seed {seed}");
            let whole = |record: &[u8]| record.iter().all(|byte| *byte == record[0] && *byte != 0);
            assert!(told.chunks(RECORD).all(whole), "seed {seed}: a hole or a torn record");
            rig.reopen().await;
        });
    }
}

#[test]
fn what_a_truncation_cut_off_stays_zero() {
    for seed in seeds(1..30) {
        in_world(seed, async |rig| {
            for (size, length) in [(5000, 8192), (5000, 9000), (5000, 150_000), (4097, 8192)] {
                let file = rig.create(rig.volume.root, &format!("file {size} {length}")).await.expect("a new file");
                rig.write(file, At::Offset(0), &[1; 100], Sync::Ordered).await.expect("a write");
                let mut rng = SplitMix(seed);
                let pauses = [rng.below(20_000), rng.below(20_000)];
                let clients = (0..2).map(|number| {
                    let own = rig.client(file.0 * 2 + number, rig.volume.clone());
                    move || -> Local {
                        Box::pin(async move {
                            own.runtime.clock.sleep(pauses[number as usize]).await;
                            if number == 0 {
                                own.truncate(file, size).await.expect("a file can be cut");
                            } else {
                                own.write(file, At::Offset(0), &vec![7; length], Sync::Ordered).await.expect("a write");
                            }
                        })
                    }
                });
                together(&rig.runtime, clients).await;
                // Either came last.
                let now = rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size;
                assert!(now == size || now == length as u64, "seed {seed}: {now}");
                rig.truncate(file, 200_000).await.expect("a file can grow");
                let told = rig.read(file, 0, 200_000).await.expect("a file");
                let beyond = &told[now as usize..];
                assert!(beyond.iter().all(|byte| *byte == 0), "seed {seed}: bytes beyond {now} of {length} came back");
            }
        });
    }
}

#[test]
fn creates_in_one_directory_all_count_and_a_name_is_won_once() {
    for seed in seeds(1..4) {
        in_world(seed, async |rig| {
            let dir = rig.mkdir(rig.volume.root, "crowd").await.expect("a new directory");
            let done = Arc::new(Mutex::new(Vec::new()));
            SHARED.replace(Some(done.clone()));
            let rig = beside(rig, 16, move |own: Arc<Rig>, number| async move {
                for round in 0..10 {
                    own.create(dir, &format!("{number}-{round}")).await.expect("a name of one's own");
                    match own.create(dir, &format!("prize {round}")).await {
                        Ok(ino) => note(round, ino.0, 0),
                        Err(kind) => assert_eq!(kind, Kind::Exists),
                    }
                }
            })
            .await;
            SHARED.replace(None);
            let mut prizes = done.lock().expect("no panic while held").clone();
            prizes.sort();
            let rounds: Vec<_> = prizes.iter().map(|(round, ..)| *round).collect();
            assert_eq!(rounds, (0..10).collect::<Vec<_>>(), "seed {seed}: each prize has one winner");
            for (round, ino, _) in prizes {
                assert_eq!(rig.lookup(dir, &format!("prize {round}")).await, Ok(Ino(ino)));
            }
            assert_eq!(rig.attr(Op::GetAttr { ino: dir }).await.expect("a directory").inode.entries, 170);
            let listed = rig.list(dir, 13).await.expect("a directory");
            assert_eq!(listed.len(), 170);
            rig.reopen().await;
        });
    }
}

#[test]
fn renames_across_directories_keep_the_tree_a_tree() {
    for seed in seeds(1..6) {
        in_world(seed, async |rig| {
            let mut dirs = vec![rig.volume.root];
            for number in 0..6 {
                dirs.push(rig.mkdir(rig.volume.root, &format!("d{number}")).await.expect("a new directory"));
            }
            let dirs: [Ino; 7] = dirs.try_into().expect("seven");
            let rig = beside(rig, 8, move |own: Arc<Rig>, number| async move {
                let mut rng = SplitMix(seed * 100 + number);
                for _ in 0..30 {
                    let mut any = || dirs[rng.below(7) as usize];
                    let (parent, new_parent) = (any(), any());
                    // Six names, so that clients meet: also directories below each other.
                    let mut any = || name(&format!("d{}", rng.below(6)));
                    let (one, other) = (any(), any());
                    let op = match rng.below(6) {
                        0 => Op::MakeDir { parent, name: one, mode: 0o755 },
                        1 => Op::RemoveDir { parent, name: one },
                        2 => Op::Create { parent, name: one, mode: 0o644, exclusive: true },
                        3 => Op::Unlink { parent, name: one },
                        _ => Op::Rename {
                            parent,
                            name: one,
                            new_parent,
                            new_name: other,
                            no_replace: rng.one_in(3),
                            whiteout: false,
                        },
                    };
                    let created = matches!(op, Op::Create { .. });
                    match own.call(op.clone(), None).await.map(|answer| answer.reply) {
                        Ok(base::Reply::Attr(attr)) if created => {
                            own.done(Op::Release { ino: attr.ino }).await.expect("it is open");
                        }
                        Ok(_) => {}
                        Err(error) => {
                            assert_eq!(error.kind.remedy(), base::error::Remedy::RefuseClient, "{op:?}: {error:?}")
                        }
                    }
                }
            })
            .await;
            // The check within counts every link and entry, and looks for what has no name.
            rig.reopen().await;
        });
    }
}

/// Five directories, each below the one before: the first and the last.
async fn chain(rig: &Rig, side: usize) -> (Ino, Ino) {
    let make = async |parent: Ino, depth: u32| rig.mkdir(parent, &format!("{side}-{depth}")).await.expect("a new one");
    let top = make(rig.volume.root, 0).await;
    let mut end = top;
    for depth in 1..5 {
        end = make(end, depth).await;
    }
    (top, end)
}

/// Two directories that are moved below each other at the same time: each walk up the parents alone finds no loop.
#[test]
pub fn directories_moved_below_each_other_make_no_loop() {
    for seed in seeds(1..6) {
        in_world(seed, async |rig| {
            let root = rig.volume.root;
            let chains = [chain(&rig, 0).await, chain(&rig, 1).await];
            let moved = |side: usize, new_parent: Ino| Op::Rename {
                parent: root,
                name: name(&format!("{side}-0")),
                new_parent,
                new_name: name("moved"),
                no_replace: false,
                whiteout: false,
            };
            assert_eq!(rig.done(moved(0, chains[0].1)).await, Err(Kind::Invalid));
            rig.create(chains[0].1, "file").await.expect("a new file");
            let (top, below) = ((root, name("0-0")), (chains[0].1, name("file")));
            for ((parent, name), (new_parent, new_name)) in [(top.clone(), below.clone()), (below, top)] {
                let exchange = Op::Exchange { parent, name, new_parent, new_name };
                assert_eq!(rig.done(exchange).await, Err(Kind::Invalid), "a directory does not get below itself");
            }
            // The walks read the index, and meet there.
            let rig = rig.reopen().await;
            let told = Arc::new(Mutex::new(Vec::new()));
            let clients = (0..2).map(|side| {
                let (own, told) = (rig.client(10 + side as u64, rig.volume.clone()), told.clone());
                let op = moved(side, chains[1 - side].1);
                move || -> Local {
                    Box::pin(async move {
                        let done = own.done(op).await;
                        told.lock().expect("no panic while held").push((side, done));
                    })
                }
            });
            together(&rig.runtime, clients).await;
            let mut told = told.lock().expect("no panic while held").clone();
            told.sort_by_key(|(_, done)| done.is_err());
            let [(first, Ok(())), (_, Err(Kind::Invalid))] = told[..] else { panic!("seed {seed}: {told:?}") };
            assert_eq!(rig.lookup(chains[1 - first].1, "moved").await, Ok(chains[first].0));
            assert_eq!(rig.lookup(root, &format!("{}-0", 1 - first)).await, Ok(chains[1 - first].0));
            rig.reopen().await;
        });
    }
}
