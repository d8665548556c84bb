//! The index: waiting for a thread that reads it, and reading it.

use super::{per_request, time};
use crate::{Finding, Window};

/// The pool whose threads read the index.
pub fn find_pool(window: &Window) -> Option<Finding> {
    let pool = window.after.pools.iter().find(|pool| pool.name == "client");
    let mut evidence = vec![format!("a request waits {} for a thread of the pool", per_request(window, &["pool"]))];
    evidence.extend(pool.map(|pool| format!("{} threads, {} jobs wait now", pool.threads, pool.queued)));
    let next = "more names or blocks are asked for than the index has in memory: raise memory_max, or see what runs beside the pool";
    Some(Finding::new("index-pool", "the index's pool".into(), window, window.stage_ns(&["pool"]), evidence, next))
}

/// The engine of the index.
pub fn find_engine(window: &Window) -> Option<Finding> {
    let evidence = vec![format!(
        "a request spends {} reading the index; of all requests, {}",
        per_request(window, &["index"]),
        time(window.stage_ns(&["index"]))
    )];
    let next = "more names or blocks are asked for than the index has in memory: raise memory_max";
    Some(Finding::new("index-engine", "the index".into(), window, window.stage_ns(&["index"]), evidence, next))
}
