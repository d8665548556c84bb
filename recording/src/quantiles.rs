//! The mix of a recording's operations, and how long they took.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One operation's figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub name: String,
    /// Number of them.
    pub count: u64,
    /// Number of those that ended with an error.
    pub failed: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
}

/// A row per name. Each operation: name, duration, whether it failed.
pub fn rows(operations: impl IntoIterator<Item = (&'static str, u64, bool)>) -> Vec<Row> {
    let mut by_name: BTreeMap<&str, (Vec<u64>, u64)> = BTreeMap::new();
    for (name, duration_ns, failed) in operations {
        let (durations, failures) = by_name.entry(name).or_default();
        durations.push(duration_ns);
        *failures += u64::from(failed);
    }
    let row = |(name, (mut durations, failed)): (&str, (Vec<u64>, u64))| {
        durations.sort_unstable();
        let quantile = |percent: usize| durations[(durations.len() * percent).div_ceil(100) - 1];
        let (p50_ns, p99_ns) = (quantile(50), quantile(99));
        Row { name: name.to_string(), count: durations.len() as u64, failed, p50_ns, p99_ns }
    };
    by_name.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact() {
        let reads = (1..=200).map(|ns| ("read", ns, ns == 7));
        let row =
            |name: &str, count, failed, p50_ns, p99_ns| Row { name: name.to_string(), count, failed, p50_ns, p99_ns };
        let expected = [row("open", 1, 0, 5, 5), row("read", 200, 1, 100, 198)];
        assert_eq!(rows(reads.chain([("open", 5, false)])), expected);
        assert_eq!(rows([]), []);
    }
}
