//! Huge pages: buffers ask for them, so that a large transfer is a few pieces of memory instead of hundreds.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "huge pages";

/// Checks that they may be asked for.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(line) = facts.huge_pages.as_deref() else {
        return vec![Finding::unknown(NAME, "the kernel does not tell")];
    };
    vec![match line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(used, _)| used) {
        Some(used @ ("always" | "madvise")) => Finding::ok(NAME, format!("for who asks ({used})")),
        Some("never") => Finding::advice(
            NAME,
            "for nobody (never)",
            "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
            "less CPU time per large transfer: without them the kernel pins 256 pages per MiB. One of two changes that took \
             1 MiB reads at depth 8 from 960 to 1,917 MB/s (docs/performance.md)",
        ),
        _ => Finding::unknown(NAME, "the kernel says something unknown"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn who_asks_must_get_them() {
        let of = |line: &str| check(&Facts { huge_pages: Some(line.into()), ..Facts::default() })[0].state;
        assert_eq!(of("always [madvise] never"), State::Ok);
        assert_eq!(of("[always] madvise never"), State::Ok);
        assert_eq!(of("always madvise [never]"), State::Advice);
        assert_eq!([of(""), of("[]"), of("]["), of("[x]")], [State::Unknown; 4]);
    }
}
