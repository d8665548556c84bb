//! Space: writers are slowed down while the cleaner is behind, or wait for a checkpoint.

use super::tiers::{Shortage, shortage};
use super::{per_request, time};
use crate::{Finding, Window};

/// Writers that wait for space.
pub fn find(window: &Window) -> Option<Finding> {
    let (space_ns, quota_ns) = (window.stage_ns(&["space"]), window.stage_ns(&["quota"]));
    // The tiers' part of it is told as such.
    let space_ns = if shortage(window) == Shortage::Cleaner { space_ns } else { 0.0 };
    let agents = &window.after.agents;
    let evidence = vec![
        format!(
            "a request waits {} for space, {} for its volume's",
            per_request(window, &["space"]),
            per_request(window, &["quota"])
        ),
        format!(
            "each block is written {} later because of the cleaner; {} blocks moved and {} checkpoints since start",
            time(agents.delay_ns as f64),
            agents.cleaned_blocks,
            agents.checkpoints
        ),
    ];
    let next =
        "the brick is nearly full for what is overwritten in it: delete something, or grow it (`sinter brick grow`)";
    Some(Finding::new("background", "the cleaner".into(), window, space_ns + quota_ns, evidence, next))
}
