//! Limits of a volume, or of a directory tree of one.

use super::{per_request, time};
use crate::{Finding, Window};

/// Limits that hold requests back.
pub fn find(window: &Window) -> Option<Finding> {
    let (subject, held, held_ns) = window.limits.iter().max_by_key(|(_, _, held_ns)| *held_ns)?;
    let set = window.after.limits.iter().find(|limits| limits.subject() == *subject);
    let set: Vec<String> =
        set.iter().flat_map(|limits| &limits.set).map(|(name, value)| format!("{name} {value}")).collect();
    let evidence = vec![
        format!("a request waits {} for limits", per_request(window, &["limit"])),
        format!(
            "{subject} ({}): {held} requests held, {} each",
            set.join(", "),
            time(*held_ns as f64 / (*held).max(1) as f64)
        ),
    ];
    let next =
        "an operator has set the limits; `sinter volume set` and `sinter limit` change them, `none` takes one away";
    Some(Finding::new("limit", subject.clone(), window, window.stage_ns(&["limit"]), evidence, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{LimitFigures, Snapshot};

    #[test]
    fn the_tree_or_volume_that_held_most_is_named() {
        let at = |at_ns, [volume, tree]: [u64; 2]| Snapshot {
            at_ns,
            limits: [("", volume), ("/t", tree)]
                .into_iter()
                .map(|(tree, held)| LimitFigures {
                    volume: "v".into(),
                    tree: tree.into(),
                    set: [("iops-max".to_string(), 5)].into(),
                    held,
                    held_ns: held * 1_000_000,
                    waiting: 0,
                })
                .collect(),
            ..Snapshot::default()
        };
        let found = |after| {
            let window = Window::between(&at(1, [100, 7]), &at(2, after)).expect("of one daemon, in order");
            find(&window).map(|finding| finding.resource)
        };
        assert_eq!(found([101, 9]).as_deref(), Some("tree /t of volume v"));
        assert_eq!(found([109, 9]).as_deref(), Some("volume v"));
        assert_eq!(found([100, 7]), None);
    }
}
