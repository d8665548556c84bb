//! Counting of names on a brick of the format's first revision, which did not count them (rule K5): once, while clients
//! are served, group by group and volume by volume. A count becomes part of the next checkpoint; a start after a crash
//! continues with the volumes that have no count yet.

use crate::Groups;
use base::Result;
use runtime::tasks::run_background;
use std::sync::Arc;

/// Interval at which counts are made durable: a crash costs no more than that.
const KEPT_NS: u64 = 5_000_000_000;

/// The task: ends when all is counted.
pub(crate) async fn run(groups: Arc<Groups>) {
    if let Err(error) = count(&groups).await {
        groups.store().log.fail(error.with("counting names"));
    }
}

async fn count(groups: &Arc<Groups>) -> Result<()> {
    let clock = groups.store().runtime.clock.clone();
    let mut kept_ns = clock.now_ns();
    for (group, volume) in groups.store().uncounted() {
        if groups.is_closing() || groups.store().log.failed().is_some() {
            return Ok(());
        }
        {
            // The index does not change while the checkpoint token is held; later changes are added to the count.
            let _one = groups.checkpoint_token.take().await;
            let store = groups.store().clone();
            run_background(&*groups.store().runtime.tasks, move || store.count_names(group, volume)).await?;
        }
        if clock.now_ns() - kept_ns >= KEPT_NS {
            groups.checkpoint().await?;
            kept_ns = clock.now_ns();
        }
    }
    groups.checkpoint().await
}
