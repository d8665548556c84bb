//! Locks of the program, and ranges of files that several clients write.

use super::{per_request, time};
use crate::snapshot::Lock;
use crate::{Finding, Window};

/// The lock for which requests waited most, or the ranges.
pub fn find(window: &Window) -> Option<Finding> {
    let (lock_ns, range_ns) = (window.stage_ns(&["lock"]), window.stage_ns(&["range"]));
    if range_ns > lock_ns {
        let evidence = vec![format!(
            "a request waits {} for others that write the same part of a file",
            per_request(window, &["range"])
        )];
        let next = "clients write the same blocks at the same time: `sinter slow` names the inodes";
        return Some(Finding::new("lock", "ranges of files".into(), window, range_ns, evidence, next));
    }
    let worst = window.locks.iter().max_by_key(|lock| lock.wait.sum_ns)?;
    let Lock { name, acquired, contended, wait, hold } = worst;
    let evidence = vec![
        format!("requests wait {} for locks", per_request(window, &["lock"])),
        format!(
            "lock {name}: {contended} of {acquired} had to wait, {} in the mean; it is held for {} in the mean",
            time(wait.mean_ns() as f64),
            time(hold.mean_ns() as f64)
        ),
    ];
    let next = "this is the program's to mend: report it with `sinter explain --save`";
    Some(Finding::new("lock", format!("lock {name}"), window, lock_ns, evidence, next))
}
