//! Space, held against a recount once nobody changes anything: live blocks are those that the maps name, clients may write
//! exactly what these, the promises and the rows of names leave, and a segment in which nothing lives comes back (rules K1, K3, K5).

use crate::index::CrashIndex;
use crate::world::Served;
use base::limits::BLOCK_BYTES;
use base::{Place, SegmentId};
use runtime::Runtime;
use std::collections::BTreeSet;
use store::cleaner::State;
use store::format::charge;
use store::format::devices::Tier;
use store::format::keys::{self, Row};
use store::format::leaf::Leaf;
use store::format::values;
use store::grow::removal;

/// Time after which no late write of the former process can hit the segments that it left open: these come back too
/// (rule L4).
const LATE_NS: u64 = 31_000_000_000;
/// Pause between two checks: the cleaner releases freed segments as often.
const LOOK_NS: u64 = 200_000_000;
/// Looks until nothing is left to free or to clean: a small brick's take a dozen.
const LOOKS_MAX: u64 = 200;
/// Segments that streams hold ready though nothing lives in them: of the log the open one and two ahead, of the others
/// the open one and one ahead.
const HELD_MAX: u64 = 3 + 2 + 2;

/// Waits until the brick has nothing left to do.
async fn settle(runtime: &Runtime, served: &Served) -> Result<(), String> {
    let groups = &served.groups;
    runtime.clock.sleep(LATE_NS).await;
    let mut quiet = 0;
    for _ in 0..LOOKS_MAX {
        let moved = || groups.cleaner().moved_blocks + groups.cleaner_of(Tier::Disk).moved_blocks;
        let before = moved() + groups.destaged_blocks();
        groups.checkpoint().await.map_err(|error| format!("a brick at rest can't checkpoint: {error:?}"))?;
        runtime.clock.sleep(LOOK_NS).await;
        let cleaner = groups.cleaner();
        let works = |state| matches!(state, Some(State::Ahead | State::Cleaning | State::Slowing));
        let works = works(cleaner.state) || works(groups.cleaner_of(Tier::Disk).state);
        let moves = works && moved() + groups.destaged_blocks() > before;
        let emptied = groups.store().segments().emptied_segments;
        // A removal that has begun ends: the others have room.
        let leaves = !removal::leaving(groups.store()).is_empty();
        quiet = if moves || emptied > 0 || groups.is_freeing() || leaves { 0 } else { quiet + 1 };
        // What the last look has freed is known to the next one.
        if quiet == 3 {
            return Ok(());
        }
    }
    let store = groups.store();
    let leaving = removal::leaving(store);
    Err(format!("a brick at rest does not come to rest: {:?}, {:?}, {leaving:?}", store.segments(), groups.cleaner()))
}

/// Checks a brick that serves nobody; its disk is healthy.
pub async fn check(runtime: &Runtime, index: &CrashIndex, served: &Served) -> Result<(), String> {
    settle(runtime, served).await?;
    let (mut live, mut promised, mut rows, mut in_use) = (0u64, 0u64, 0u64, BTreeSet::<SegmentId>::new());
    for (key, value) in index.rows() {
        let damaged = |error| format!("a row of the index can't be read: {error:?}");
        match keys::row(&key) {
            Some((.., Row::Leaf)) => {
                let leaf = Leaf::decode(&value).map_err(damaged)?;
                live += leaf.places().count() as u64;
                in_use.extend(leaf.places().map(|Place { segment, .. }| segment));
            }
            Some((.., Row::Reserve)) => promised += values::decode_reserve(&value).map_err(damaged)?.left(),
            Some((.., Row::Inode)) => rows += charge::INODE,
            Some((.., Row::Entry | Row::Cookie | Row::Target | Row::Xattrs)) => {
                rows += (key.len() + value.len()) as u64
            }
            _ => {}
        }
    }
    let store = served.groups.store();
    let (space, told) = (store.segments(), store.space.statfs());
    if space.live_blocks != live {
        return Err(format!("the maps name {live} blocks, the brick counts {space:?} (rule K1)"));
    }
    let used = (live + promised) * BLOCK_BYTES as u64 + rows;
    if told.free_bytes != told.size_bytes.saturating_sub(used) {
        let used = format!("{live} blocks live, {promised} are promised, names take {rows} bytes");
        return Err(format!("{used}, but {told:?} is told (rule K5)"));
    }
    let taken = space.segments - space.free_segments;
    let disks = store.destage().len() as u64;
    if taken > in_use.len() as u64 + HELD_MAX + 2 * disks {
        let live_in = in_use.len();
        return Err(format!("{taken} segments are taken, blocks live in {live_in} (rule K3): {space:?}"));
    }
    Ok(())
}
