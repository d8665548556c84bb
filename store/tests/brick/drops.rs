//! A deleted volume leaves nothing in the index (rule K6).

use crate::rig::{Brick, GROUP, VOLUME, file, format, payload};
use base::{Index, Sync};
use runtime::sim::World;
use runtime::tasks;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::format::charge;
use store::format::keys;
use store::format::values::GroupRow;
use store::index::Index as _;
use store::purge::Purges;
use store::reserve::Reserves;
use store::{Change, Count, FreeLimits, GroupPart};

/// The work that checkpoints leave in the group for the next one.
#[derive(Default)]
struct Left {
    purges: Arc<Purges>,
    reserves: Arc<Reserves>,
}

async fn checkpoint(brick: &Brick, left: &mut Left, changes: Vec<Change>) {
    let (replay, last) = brick.store.cut();
    brick.store.log.wait(last, Sync::All, None).await.expect("a healthy brick writes");
    let row = GroupRow { applied: Index(1), ..GroupRow::default() };
    let Left { purges, reserves } = std::mem::take(left);
    let (store, part) = (
        brick.store.clone(),
        GroupPart { group: GROUP, row, young: u64::MAX, changes, purges, reserves, replica: None },
    );
    let write = move || store::checkpoint::write(&store, replay, vec![part], FreeLimits::default());
    let written = tasks::run_blocking(&*brick.runtime.tasks, write).await.expect("a healthy brick checkpoints");
    let [of_group] = <[_; 1]>::try_from(written).ok().expect("one group");
    *left = Left { purges: of_group.purges, reserves: of_group.reserves };
}

fn inodes(more: i64) -> Count {
    Count { inodes: more, names: 100 }
}

#[test]
fn a_deleted_volume_leaves_no_row_and_takes_no_room() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let free_bytes = || brick.store.space.statfs().free_bytes;
        let empty_bytes = free_bytes();
        brick.write(file(1), 0, &payload(1, 70), Sync::Data).await.expect("there is room");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let mut left = Left::default();
        let promise = Change::Reserve(VOLUME, file(2), 7, 0..100);
        checkpoint(&brick, &mut left, vec![promise, Change::Count(VOLUME, 7, inodes(2))]).await;
        let rows = 2 * charge::INODE + 100;
        assert_eq!(free_bytes(), empty_bytes - 170 * 4096 - rows, "70 blocks are there, 100 are promised");
        // Somebody makes one more file before the volume goes.
        checkpoint(&brick, &mut left, vec![Change::Count(VOLUME, 7, inodes(1)), Change::VolumeDrop(VOLUME)]).await;
        let (from, to) = keys::all();
        let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
        let of_volume = rows.iter().filter_map(|(key, _)| keys::row(key).filter(|(_, volume, _)| *volume == VOLUME));
        assert_eq!(of_volume.collect::<Vec<_>>(), [], "rows of a volume that is gone");
        let (from, to) = keys::purged_volumes(GROUP);
        assert_eq!(index.scan(&from, &to, 1), Ok(Vec::new()), "all of it has been freed");
        assert_eq!((free_bytes(), brick.store.usage(VOLUME)), (empty_bytes, BTreeMap::new()));
    });
}
