//! Features that a brick gets while it is served. Promises that the superblock says so durably, in both copies, before the first
//! byte that the feature guards is written: whoever calls this writes only afterwards.

use crate::Store;
use crate::format::superblock::Superblock;
use crate::media::superblock_file;
use base::Result;
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// Marks the brick as one that only builds with this incompatible feature may read. The bit stays, whether or not what it guards
/// is still there: the log may hold it. Errors: `Busy` while somebody else changes the superblock; `Io`.
pub async fn require(store: &Arc<Store>, bit: u64) -> Result<()> {
    if store.superblock.lock().features.incompatible & bit != 0 || active(Bug::FeatureUnmarked) {
        return Ok(());
    }
    let _changing = store.begin_change()?;
    let mut new: Superblock = store.superblock.lock().clone();
    new.features.incompatible |= bit;
    new.sequence += 1;
    let updated = superblock_file::update(&store.runtime, store.superblock_file, &new).await;
    match &updated {
        Ok(()) => *store.superblock.lock() = new,
        // Nobody knows which copies a start would find: the brick takes no more changes (rule U4).
        Err(error) => store.log.fail(error.clone().with("marking a feature of the brick")),
    }
    updated
}
