//! The confusion matrix: what was brought about against what was named.

use super::cause::Cause;
use super::explained::NONE;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Width of the table's first column: that of the longest name. Others are as wide as theirs.
const FIRST: usize = 16;

/// The counts.
#[derive(Default, Debug)]
pub struct Matrix {
    rows: BTreeMap<Cause, BTreeMap<String, u64>>,
}

/// The sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    pub right: u64,
    pub wrong: u64,
    /// No single cause: neither right nor wrong.
    pub none: u64,
}

impl Sums {
    /// The share, in percent, of all.
    fn percent(self, count: u64) -> f64 {
        100.0 * count as f64 / (self.right + self.wrong + self.none).max(1) as f64
    }
}

impl Matrix {
    /// Counts a verdict.
    pub fn add(&mut self, expected: Cause, got: &str) {
        *self.rows.entry(expected).or_default().entry(got.to_string()).or_default() += 1;
    }
    /// The sums over all causes.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for (expected, row) in &self.rows {
            for (got, count) in row {
                match got.as_str() {
                    NONE => sums.none += count,
                    got if got == expected.verdict() => sums.right += count,
                    _ => sums.wrong += count,
                }
            }
        }
        sums
    }
    /// The names that were given, in the causes' order; what is no cause's name comes last.
    fn names(&self) -> Vec<String> {
        let given: BTreeSet<&String> = self.rows.values().flat_map(BTreeMap::keys).collect();
        let known = Cause::ALL.into_iter().map(Cause::id).filter(|id| given.contains(&id.to_string()));
        let other = given.iter().filter(|name| Cause::named(name).is_none());
        known.map(str::to_string).chain(other.map(|name| name.to_string())).collect()
    }
    /// The matrix as a table of Markdown: a row for what was brought about, a column for what was named.
    pub fn table(&self) -> String {
        let names = self.names();
        let mut text = String::new();
        let mut line = |first: &str, cells: Vec<String>| {
            let wide = |(cell, name): (&String, &String)| format!(" {cell:>width$} |", width = name.len().max(4));
            let cells: String = cells.iter().zip(&names).map(wide).collect();
            writeln!(text, "| {first:<FIRST$} |{cells}").expect("a string takes all");
        };
        line("", names.clone());
        line("---", names.iter().map(|_| "---:".to_string()).collect());
        for (expected, row) in &self.rows {
            let cell = |name: &String| row.get(name).map_or_else(String::new, u64::to_string);
            line(expected.id(), names.iter().map(cell).collect());
        }
        let sums = self.sums();
        let Sums { right, wrong, none } = sums;
        let [r, w, n] = [right, wrong, none].map(|count| sums.percent(count));
        writeln!(text, "\nright {right} ({r:.1}%), wrong {wrong} ({w:.1}%), no single cause {none} ({n:.1}%)")
            .expect("a string takes all");
        text
    }
    /// The matrix as JSON.
    pub fn json(&self) -> Value {
        let Sums { right, wrong, none } = self.sums();
        let rows: BTreeMap<&str, &BTreeMap<String, u64>> =
            self.rows.iter().map(|(expected, row)| (expected.id(), row)).collect();
        json!({ "rows": rows, "right": right, "wrong": wrong, "none": none })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let mut matrix = Matrix::default();
        let said = [
            (Cause::Flush, "flush"),
            (Cause::Flush, "flush"),
            (Cause::Flush, "device-slower"),
            (Cause::DeviceSlower, "none"),
            (Cause::DeviceSlower, "device-slower"),
            (Cause::Lock, "ghosts"),
        ];
        said.into_iter().for_each(|(expected, got)| matrix.add(expected, got));
        matrix
    }

    #[test]
    fn no_single_cause_is_neither_right_nor_wrong() {
        assert_eq!(matrix().sums(), Sums { right: 3, wrong: 2, none: 1 });
        assert_eq!(Matrix::default().sums(), Sums::default());
    }

    #[test]
    fn the_table_has_all_counts() {
        let table = matrix().table();
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "| | device-slower | flush | ghosts | none |");
        assert_eq!(lines[2], "| device-slower | 1 | | | 1 |");
        assert_eq!(lines[3], "| flush | 1 | 2 | | |");
        assert_eq!(lines[4], "| lock | | | 1 | |");
        assert_eq!(lines[6], "right 3 (50.0%), wrong 2 (33.3%), no single cause 1 (16.7%)");
    }

    #[test]
    fn json_has_what_the_table_has() {
        let json = matrix().json();
        assert_eq!(json["rows"]["flush"]["device-slower"], 1);
        assert_eq!((&json["right"], &json["wrong"], &json["none"]), (&json!(3), &json!(2), &json!(1)));
    }
}
