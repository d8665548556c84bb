//! Two recordings, compared by what `sinter record --json` tells of them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Quantiles may differ by so many percent.
const PERCENT_MAX: f64 = 20.0;
/// Fewer durations have no 99th percentile worth the name.
const COUNT_MIN: u64 = 1000;

/// One operation's figures.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Row {
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
}

/// A recording's figures.
#[derive(PartialEq, Debug)]
pub struct Mix {
    dropped: u64,
    rows: BTreeMap<String, Row>,
}

impl Mix {
    /// Reads them.
    pub fn read(said: &str) -> Result<Mix, String> {
        let wrong = || format!("sinter record told: {said}");
        let json: Value = serde_json::from_str(said).map_err(|error| format!("{}: {error}", wrong()))?;
        let mut rows = BTreeMap::new();
        for row in json["operations"].as_array().ok_or_else(wrong)? {
            let number = |name: &str| row[name].as_u64().ok_or_else(wrong);
            let name = row["name"].as_str().ok_or_else(wrong)?.to_string();
            rows.insert(name, Row { count: number("count")?, p50_ns: number("p50_ns")?, p99_ns: number("p99_ns")? });
        }
        Ok(Mix { dropped: json["dropped"].as_u64().ok_or_else(wrong)?, rows })
    }
}

/// The table of both, and what should not be.
pub fn compared(recorded: &Mix, replayed: &Mix) -> (String, Vec<String>) {
    let mut table = format!(
        "{:<14}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}\n",
        "operation", "recorded", "replayed", "p50 us", "p50 us", "", "p99 us", "p99 us", ""
    );
    let mut problems = Vec::new();
    for (name, mix) in [("first", recorded), ("second", replayed)] {
        if mix.dropped > 0 {
            problems.push(format!("the {name} recording dropped {} operations", mix.dropped));
        }
    }
    let mut names: Vec<&String> = recorded.rows.keys().chain(replayed.rows.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let [then, now] = [recorded, replayed].map(|mix| mix.rows.get(name).copied().unwrap_or_default());
        let percent = |then: u64, now: u64| 100.0 * (now as f64 / then.max(1) as f64 - 1.0);
        let changes = [percent(then.p50_ns, now.p50_ns), percent(then.p99_ns, now.p99_ns)];
        let [p50_then, p50_now, p99_then, p99_now] =
            [then.p50_ns, now.p50_ns, then.p99_ns, now.p99_ns].map(|ns| ns as f64 / 1000.0);
        writeln!(
            table,
            "{name:<14}{:>10}{:>10}{p50_then:>10.1}{p50_now:>10.1}{:>+7.0}%{p99_then:>10.1}{p99_now:>10.1}{:>+7.0}%",
            then.count, now.count, changes[0], changes[1]
        )
        .expect("text grows");
        if then.count != now.count {
            problems.push(format!("{name}: {} recorded, {} replayed", then.count, now.count));
        }
        for (quantile, change) in [("p50", changes[0]), ("p99", changes[1])] {
            if then.count.min(now.count) >= COUNT_MIN && change.abs() > PERCENT_MAX {
                problems.push(format!("{name}: {quantile} differs by {change:+.0}%"));
            }
        }
    }
    (table, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(dropped: u64, rows: &[(&str, u64, u64, u64)]) -> Mix {
        let row = |&(name, count, p50_ns, p99_ns): &(&str, _, _, _)| serde_json::json!({ "name": name, "count": count, "failed": 0, "p50_ns": p50_ns, "p99_ns": p99_ns });
        let all: Vec<Value> = rows.iter().map(row).collect();
        let said = serde_json::json!({ "seconds": 1.0, "dropped": dropped, "operations": all });
        Mix::read(&said.to_string()).expect("that is what `record` tells")
    }

    #[test]
    fn equal_recordings_have_no_problems() {
        let one = mix(0, &[("read", 5000, 10_000, 90_000), ("open", 3, 5, 6)]);
        let near = mix(0, &[("read", 5000, 11_900, 75_000), ("open", 3, 50, 60)]);
        let (table, problems) = compared(&one, &near);
        assert_eq!(problems, [""; 0], "rare operations have no quantiles");
        assert!(table.contains("read                5000      5000      10.0      11.9    +19%"), "{table}");
    }

    #[test]
    fn each_difference_is_a_problem() {
        let one = mix(0, &[("read", 5000, 10_000, 90_000), ("write", 1, 5, 6)]);
        let other = mix(7, &[("read", 4999, 13_000, 90_000), ("open", 3, 5, 6)]);
        let (_, problems) = compared(&one, &other);
        let expected = [
            "second recording dropped 7",
            "open: 0 recorded, 3",
            "read: 5000 recorded, 4999",
            "read: p50 differs by +30%",
            "write: 1 recorded, 0",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        assert!(problems.iter().zip(expected).all(|(problem, part)| problem.contains(part)), "{problems:?}");
        assert!(Mix::read("{}").is_err());
    }
}
