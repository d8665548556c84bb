//! Votes: whatever crashes, what a replica has promised is never forgotten, in the log or in the index (rule L6).

use crate::rig::{Brick, GROUP, boot, file, payload, superblock_of, try_format};
use base::{Kind, ReplicaId, Result, Sync, Term};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Side, Survival, World};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use store::format::keys;
use store::format::record::Vote;
use store::format::superblock::{REPLICAS, Superblock};
use store::format::values::{self, Promise};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};
use store::repair::{Depth, repair};
use store::{Opening, check, feature};

/// The votes of a replica, in their order.
const VOTES: [(u64, Option<ReplicaId>); 7] = [
    (1, None),
    (1, Some(ReplicaId(2))),
    (2, Some(ReplicaId(1))),
    (5, None),
    (6, None),
    (6, Some(ReplicaId(3))),
    (7, Some(ReplicaId(2))),
];

fn promise(number: usize) -> Promise {
    let (term, voted_for) = VOTES[number];
    Promise { term: Term(term), voted_for }
}

/// Votes on a fresh brick, with writes and checkpoints between them. `told`: the number of those that were durable.
async fn vote(world: &runtime::Runtime, index: &RefCell<Option<ModelIndex>>, told: &Cell<usize>) -> Result<()> {
    let formatted = try_format(world, 16).await?;
    *index.borrow_mut() = Some(formatted.clone());
    let brick = Brick::open(world, formatted).await?;
    feature::require(&brick.store, REPLICAS).await?;
    for (number, (term, voted_for)) in VOTES.into_iter().enumerate() {
        brick.vote(term, voted_for).await?;
        told.set(number + 1);
        brick.write(file(1), number as u64, &payload(number as u64, 1), Sync::Ordered).await?;
        if number % 2 == 1 {
            brick.checkpoint().await?;
        }
    }
    Ok(())
}

/// Opens a brick after a crash; what it has promised. The check finds nothing wrong with it.
async fn promised(runtime: &runtime::Runtime, index: &ModelIndex) -> (Brick, Option<Promise>) {
    let opening = Opening::read_wholly(runtime.clone(), Arc::new(index.clone()), false).await.expect("it opens");
    let report = check::check(&opening, &mut |_| ()).await.expect("it can be read");
    // Blocks are of a volume that nobody has made.
    let is_known = |finding: &String| finding.contains("of volume 1, which does not exist");
    assert!(!report.log_lost && report.findings.iter().all(is_known), "{:?}", report.findings);
    drop(opening);
    let brick = Brick::open(runtime, index.clone()).await.expect("a crash leaves a brick that opens");
    let promise = *brick.promise.lock().expect("no panic while held");
    (brick, promise)
}

#[test]
pub fn what_was_promised_is_never_forgotten() {
    for step in 1.. {
        let mut world = World::new(step);
        let runtime = world.runtime();
        let (index, told) = (RefCell::new(None), Cell::new(0));
        world.crash_at_step(step, if step % 2 == 0 { Side::Before } else { Side::After });
        let ran = world.run(vote(&runtime, &index, &told));
        let ended = matches!(ran, Ran::Finished(Ok(())));
        let survival = if step % 3 == 0 { Survival::Everything } else { Survival::Nothing };
        let image = world.crash_as(survival, &mut SplitMix(step));
        let Some(index) = index.take().filter(|_| told.get() > 0) else { continue };
        let mut index = index.crashed((step % 2) as usize);
        let marked = |superblock: &Superblock| superblock.features.incompatible & REPLICAS != 0;
        assert!(marked(&superblock_of(&image)), "step {step}: votes without a mark");
        let mut after = boot(step, &image);
        let runtime = after.runtime();
        let found = after.block_on(async {
            let (brick, found) = promised(&runtime, &index).await;
            let at = (0..VOTES.len()).find(|&number| Some(promise(number)) == found);
            let at = at.unwrap_or_else(|| panic!("step {step}: {found:?} is no vote of its"));
            assert!(at + 1 >= told.get(), "step {step}: {found:?}, and {} votes were told", told.get());
            // Nothing is left of the votes but what the checkpoint says.
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            found
        });
        index = index.crashed(0);
        let mut again = boot(step + 1, &after.crash_as(Survival::Nothing, &mut SplitMix(step)));
        let runtime = again.runtime();
        again.block_on(async {
            assert_eq!(promised(&runtime, &index).await.1, found, "step {step}, after a checkpoint");
        });
        if ended {
            assert!(step > 20, "there was something to cut off: {step}");
            break;
        }
    }
}

#[test]
fn the_promise_that_binds_more_counts() {
    for (number, vote) in VOTES.iter().enumerate() {
        for other in 0..VOTES.len() {
            let vote = Vote { group: GROUP, term: Term(vote.0), voted_for: vote.1 };
            let both = promise(other).and(Promise::of(&vote));
            assert_eq!(both, promise(number.max(other)), "{number} after {other}");
        }
    }
}

/// Nobody drops such a row: without it the replica could vote twice in a term.
#[test]
fn a_promise_that_can_not_be_read_is_told_and_kept() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = try_format(&runtime, 16).await.expect("an empty disk can be formatted");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        feature::require(&brick.store, REPLICAS).await.expect("a healthy brick");
        brick.vote(3, Some(ReplicaId(2))).await.expect("a healthy brick votes");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.stop().await;
        index
    });
    let key = keys::promise(GROUP);
    let row = index.get(&key).expect("the model index reads").expect("there is a promise");
    assert_eq!(values::decode_replica(&row).expect("just written").promise.voted_for, Some(ReplicaId(2)));
    index.write(vec![IndexEdit::Put(key.clone(), row[..9].to_vec())]).expect("the model index writes");
    world.block_on(async {
        assert!(Brick::open(&runtime, index.clone()).await.is_err_and(|error| error.kind == Kind::Corrupt));
        let opening = Opening::read_wholly(runtime.clone(), Arc::new(index.clone()), true).await.expect("it opens");
        repair(&opening, Depth::All, &mut |_| ()).await.expect("it can be read");
        let report = check::check(&opening, &mut |_| ()).await.expect("it can be read");
        assert!(report.findings.iter().any(|finding| finding.contains("promise")), "{:?}", report.findings);
        assert_eq!(index.get(&key), Ok(Some(row[..9].to_vec())));
    });
}
