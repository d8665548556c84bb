//! Listings are stable while the directory changes between their pages: whoever was there all the time is listed once
//! (rule M2).

use crate::rig::{Rig, Shape, name, seeds};
use base::{DirEntry, Ino, Kind, Name, Op};
use runtime::random::SplitMix;
use runtime::sim::World;
use std::collections::BTreeSet;

fn in_world(seed: u64, test: impl AsyncFnOnce(Rig)) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    world.block_on(async { test(Rig::new(runtime, Shape::SMALL).await).await });
}

async fn filled(rig: &Rig, count: u64) -> Ino {
    let dir = rig.mkdir(rig.volume.root, "dir").await.expect("a new directory");
    for number in 0..count {
        rig.create(dir, &format!("n{number}")).await.expect("a new file");
    }
    dir
}

async fn unlink(rig: &Rig, parent: Ino, name: Name) {
    rig.done(Op::Unlink { parent, name }).await.expect("it is there");
}

fn texts(entries: &[DirEntry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()).collect()
}

#[test]
pub fn who_stays_is_listed_once_whoever_comes_and_goes() {
    for seed in seeds(1..12) {
        in_world(seed, async |rig| {
            let mut rng = SplitMix(seed);
            let dir = filled(&rig, 60).await;
            if rng.one_in(2) {
                rig.checkpoint().await;
            }
            let mut stayed: BTreeSet<Name> = (0..60).map(|number| name(&format!("n{number}"))).collect();
            let (mut listed, mut come) = (Vec::new(), 0);
            loop {
                let cookie = listed.last().map_or(0, |entry: &DirEntry| entry.cookie);
                let page = rig.page(dir, cookie, 1 + rng.below(8) as u32).await.expect("a directory");
                if page.is_empty() {
                    break;
                }
                listed.extend(page);
                for _ in 0..rng.below(5) {
                    match rng.below(4) {
                        0 if come < 40 => {
                            come += 1;
                            rig.create(dir, &format!("late{come}")).await.expect("a new file");
                        }
                        1 => rig.checkpoint().await,
                        2 => {
                            // A name replaced by a rename keeps its place.
                            let staying =
                                stayed.iter().nth(rng.below(stayed.len() as u64) as usize).expect("some stay").clone();
                            rig.create(rig.volume.root, "x").await.expect("a new file");
                            let (parent, new_parent) = (rig.volume.root, dir);
                            let (name, new_name) = (name("x"), staying);
                            rig.done(Op::Rename {
                                parent,
                                name,
                                new_parent,
                                new_name,
                                no_replace: false,
                                whiteout: false,
                            })
                            .await
                            .expect("a file replaces a file");
                        }
                        _ if stayed.len() > 10 => {
                            let gone =
                                stayed.iter().nth(rng.below(stayed.len() as u64) as usize).expect("some stay").clone();
                            stayed.remove(&gone);
                            unlink(&rig, dir, gone).await;
                        }
                        _ => {}
                    }
                }
            }
            let names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
            let once: BTreeSet<_> = names.iter().cloned().collect();
            assert_eq!(once.len(), names.len(), "seed {seed}: a name is listed twice");
            assert!(stayed.is_subset(&once), "seed {seed}: {:?} missing", stayed.difference(&once));
            assert!(listed.is_sorted_by(|one, next| one.cookie < next.cookie));
        });
    }
}

/// A client that keeps the next cookie of the time when it began to list knows which entries existed then.
#[test]
fn what_gets_a_name_later_has_the_next_cookie_or_more() {
    for seed in seeds(1..6) {
        in_world(seed, async |mut rig| {
            let mut rng = SplitMix(seed);
            let dir = filled(&rig, 20).await;
            for round in 0..40 {
                match rng.below(4) {
                    0 => rig.checkpoint().await,
                    1 => rig = rig.reopen().await,
                    _ => {}
                }
                let before = rig.list(dir, 1024).await.expect("a directory");
                let end = rig.next_cookie(dir).await;
                assert!(before.iter().all(|entry| entry.cookie < end), "seed {seed}: {end} was given already");
                let moved = &before[rng.below(before.len() as u64) as usize];
                let (parent, new_parent) = (dir, dir);
                let (old, new_name) = (moved.name.clone(), name(&format!("moved{round}")));
                let (no_replace, whiteout) = (false, rng.one_in(4));
                rig.done(Op::Rename { parent, name: old, new_parent, new_name, no_replace, whiteout })
                    .await
                    .expect("it is there");
                rig.create(dir, &format!("new{round}")).await.expect("a new file");
                let after = rig.list(dir, 1024).await.expect("a directory");
                let late: BTreeSet<_> =
                    after.iter().filter(|entry| entry.cookie >= end).map(|e| e.name.clone()).collect();
                let expected = [format!("moved{round}"), format!("new{round}")];
                assert_eq!(late, expected.iter().map(|text| name(text)).collect(), "seed {seed}");
            }
        });
    }
}

#[test]
fn pages_that_are_just_full_and_pages_that_are_gone() {
    in_world(1, async |rig| {
        let dir = filled(&rig, 30).await;
        for checkpointed in [false, true] {
            if checkpointed {
                rig.checkpoint().await;
            }
            for count in [1, 2, 3, 10, 15, 29, 30, 31, 1024] {
                let listed = rig.list(dir, count).await.expect("a directory");
                assert_eq!(listed.len(), 30, "pages of {count}");
            }
        }
        // In the index thirty, by the overlay the first twenty-five are gone: every page of ten is gone or half gone.
        let page = rig.page(dir, 0, 5).await.expect("a directory");
        for number in 0..25 {
            unlink(&rig, dir, name(&format!("n{number}"))).await;
        }
        for count in [1, 5, 10, 25, 30, 100] {
            let listed = rig.list(dir, count).await.expect("a directory");
            assert_eq!(texts(&listed), ["n25", "n26", "n27", "n28", "n29"], "pages of {count}");
        }
        // A listing that stands on a removed entry goes on behind it.
        let rest = rig.page(dir, page.last().expect("five").cookie, 100).await.expect("a directory");
        assert_eq!(texts(&rest), ["n25", "n26", "n27", "n28", "n29"]);
        for number in 25..30 {
            unlink(&rig, dir, name(&format!("n{number}"))).await;
        }
        for checkpointed in [false, true] {
            if checkpointed {
                rig.checkpoint().await;
            }
            for count in [1, 10, 30, 100] {
                assert_eq!(rig.list(dir, count).await, Ok(Vec::new()), "pages of {count}");
            }
        }
        assert_eq!(rig.page(dir, u64::MAX, 10).await, Ok(Vec::new()), "a cookie of nobody's");
        rig.create(dir, "new").await.expect("a new file");
        assert_eq!(texts(&rig.list(dir, 10).await.expect("a directory")), ["new"]);
        let rig = rig.reopen().await;
        assert_eq!(texts(&rig.list(dir, 10).await.expect("a directory")), ["new"]);
        rig.done(Op::Unlink { parent: dir, name: name("new") }).await.expect("it is there");
        rig.done(Op::RemoveDir { parent: rig.volume.root, name: name("dir") }).await.expect("it is empty");
        assert_eq!(rig.list(dir, 10).await, Err(Kind::Stale));
    });
}

#[test]
fn names_of_full_length() {
    in_world(2, async |rig| {
        let root = rig.volume.root;
        let (one, other) = ("n".repeat(255), format!("{}m", "n".repeat(254)));
        let ino = rig.create(root, &one).await.expect("255 bytes are a name");
        assert_eq!(rig.lookup(root, &other).await, Err(Kind::NotFound));
        assert_eq!(rig.lookup(root, &"n".repeat(254)).await, Err(Kind::NotFound));
        let dir = rig.mkdir(root, &other).await.expect("255 bytes are a name");
        rig.checkpoint().await;
        assert_eq!(rig.lookup(root, &one).await, Ok(ino));
        let (name, new_name) = (name(&one), name(&other));
        rig.done(Op::Rename { parent: root, name, new_parent: dir, new_name, no_replace: true, whiteout: false })
            .await
            .expect("free");
        let rig = rig.reopen().await;
        assert_eq!(rig.lookup(dir, &other).await, Ok(ino));
        assert_eq!(texts(&rig.list(root, 10).await.expect("a directory")), [other]);
        assert!(Name::new("n".repeat(256).as_bytes()).is_err_and(|error| error.kind == Kind::NameTooLong));
    });
}
