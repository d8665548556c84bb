//! Layers of a volume.

use super::{per_request, time};
use crate::{Finding, Window};

/// Layers that hold requests.
pub fn find(window: &Window) -> Option<Finding> {
    let (name, calls, held_ns) = window.layers.iter().max_by_key(|(_, _, held_ns)| *held_ns)?;
    let evidence = vec![
        format!("a request spends {} in layers", per_request(window, &["layers"])),
        format!("{name}: {calls} calls, held {} each", time(*held_ns as f64 / (*calls).max(1) as f64)),
    ];
    let next = "`sinter layer list` shows the layers of a volume, `sinter layer remove` takes one out";
    Some(Finding::new("layer", name.clone(), window, window.stage_ns(&["layers"]), evidence, next))
}
