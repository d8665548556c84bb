//! Limits of a volume.

use super::{per_request, time};
use crate::{Finding, Window};

/// Limits that hold requests back.
pub fn find(window: &Window) -> Option<Finding> {
    let (volume, held, held_ns) = window.limits.iter().max_by_key(|(_, _, held_ns)| *held_ns)?;
    let set = window.after.limits.iter().find(|limits| limits.volume == *volume);
    let set: Vec<String> =
        set.iter().flat_map(|limits| &limits.set).map(|(name, value)| format!("{name} {value}")).collect();
    let evidence = vec![
        format!("a request waits {} for limits", per_request(window, &["limit"])),
        format!(
            "volume {volume} ({}): {held} requests held, {} each",
            set.join(", "),
            time(*held_ns as f64 / (*held).max(1) as f64)
        ),
    ];
    let next = "an operator has set the limits; `sinter volume set` changes them, `none` takes one away";
    Some(Finding::new("limit", format!("volume {volume}"), window, window.stage_ns(&["limit"]), evidence, next))
}
