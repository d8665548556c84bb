//! Tables and figures for people: columns aligned, units spelled out. JSON is for programs and is not made here.

use std::fmt::Write;

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Rows under a header.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let columns = columns.iter().map(|(name, align)| (name.to_string(), *align)).collect();
        Table { columns, rows: Vec::new() }
    }
    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }
    /// The text, each line ended, no spaces at the ends of lines.
    pub fn render(&self) -> String {
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].chars().count());
            cells.chain([self.columns[at].0.chars().count()]).max().expect("the header is there")
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for row in [&header].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), &width) in row.iter().zip(&self.columns).zip(&widths) {
                let padding = " ".repeat(width - cell.chars().count());
                match align {
                    Align::Left => line.extend([cell.as_str(), &padding, "  "]),
                    Align::Right => line.extend([padding.as_str(), cell, "  "]),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration with three digits and its unit.
pub fn duration(ns: u64) -> String {
    let in_units = |unit_ns: u64, unit: &str| {
        let value = ns as f64 / unit_ns as f64;
        let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.decimals$} {unit}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => in_units(1_000, "us"),
        1_000_000..1_000_000_000 => in_units(1_000_000, "ms"),
        _ => in_units(1_000_000_000, "s"),
    }
}

const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// A number of bytes, rounded to one decimal.
pub fn bytes(number: u64) -> String {
    match UNITS.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => {
            let mut text = format!("{:.1}", number as f64 / *size as f64);
            if text.ends_with(".0") {
                text.truncate(text.len() - 2);
            }
            write!(text, " {unit}").expect("writing to a string works");
            text
        }
        None => format!("{number} bytes"),
    }
}

/// A number of bytes as the command line accepts it, without rounding.
pub fn exact_bytes(number: u64) -> String {
    let whole = UNITS.iter().find(|(size, _)| number.is_multiple_of(*size) && number > 0);
    whole.map_or(number.to_string(), |(size, unit)| format!("{}{}", number / size, &unit[..1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("writes/s", Align::Right), ("note", Align::Left)]);
        table.row(vec!["a".into(), count(1_234_567), "é".into()]);
        table.row(vec!["longer".into(), count(12), String::new()]);
        assert_eq!(table.render(), "name     writes/s  note\na       1,234,567  é\nlonger         12\n");
    }

    #[test]
    fn figures_read_well() {
        assert_eq!([0, 999, 1_000, 999_999].map(count), ["0", "999", "1,000", "999,999"]);
        let durations = [0, 999, 1_500, 83_000, 999_000, 1_040_000, 2_000_000_000].map(duration);
        assert_eq!(durations, ["0 ns", "999 ns", "1.50 us", "83.0 us", "999 us", "1.04 ms", "2.00 s"]);
        assert_eq!([100, 4096, 1536, 5 << 30].map(bytes), ["100 bytes", "4 KiB", "1.5 KiB", "5 GiB"]);
        assert_eq!([0, 1000, 4 << 30, 65 << 10].map(exact_bytes), ["0", "1000", "4G", "65K"]);
    }
}
