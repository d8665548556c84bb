//! Features that a brick gets while it is served. Promises that the superblock says so durably, in both copies, before the first
//! byte that the feature guards is written: whoever calls this writes only afterwards.

use super::superblock_file;
use crate::Store;
use crate::format::superblock::{Features, Superblock};
use base::Result;
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// Marks the brick as one that only builds with this incompatible feature may read. The bit stays, whether or not what it guards
/// is still there: the log may hold it. Errors: `Busy` while somebody else changes the superblock; `Io`.
pub async fn require(store: &Arc<Store>, bit: u64) -> Result<()> {
    mark(store, bit, |features| &mut features.incompatible).await
}

/// Marks the brick as one that may have what this compatible feature stands for: builds that do not know it ignore the bit. Errors:
/// as for `require`.
pub async fn announce(store: &Arc<Store>, bit: u64) -> Result<()> {
    mark(store, bit, |features| &mut features.compatible).await
}

/// True if the brick was marked by `announce`.
pub fn is_announced(store: &Store, bit: u64) -> bool {
    store.superblock.lock().features.compatible & bit != 0
}

async fn mark(store: &Arc<Store>, bit: u64, mask: fn(&mut Features) -> &mut u64) -> Result<()> {
    let mut new: Superblock = store.superblock.lock().clone();
    if *mask(&mut new.features) & bit != 0 || active(Bug::FeatureUnmarked) {
        return Ok(());
    }
    let _changing = store.begin_change()?;
    // Somebody may have changed it since.
    new = store.superblock.lock().clone();
    *mask(&mut new.features) |= bit;
    new.sequence += 1;
    let updated = superblock_file::update(&store.runtime, store.superblock_file, &new).await;
    match &updated {
        Ok(()) => *store.superblock.lock() = new,
        // Nobody knows which copies a start would find: the brick takes no more changes (rule U4).
        Err(error) => store.log.fail(error.clone().with("marking a feature of the brick")),
    }
    updated
}
