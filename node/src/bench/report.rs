//! The output of a bench: progress while it runs, a table or JSON at the end.

use super::chart::{self, Bar};
use super::engine::Measured;
use crate::table::{Align, Table, count, duration, exact_bytes};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The identity of a bench in its report.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct Form {
    /// The bench's name.
    pub bench: &'static str,
    /// Bytes of each file, if all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Past the page cache.
    pub direct: bool,
    /// Seconds per row, at most, if they end by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The objects, if it has some.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub objects: Option<Objects>,
    /// Heading of the column of thread counts.
    #[serde(skip)]
    pub threads: &'static str,
    /// Heading of the column of operations per second.
    #[serde(skip)]
    pub rate: &'static str,
}

/// The identity of objects: they can be made again by it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Objects {
    /// Bytes of all.
    pub bytes: u64,
    /// Their seed.
    pub seed: u32,
}

/// One measurement, as JSON shows it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// The operation.
    pub mode: String,
    /// Threads that did it at the same time.
    pub threads: u32,
    /// Bytes of one operation; of the mean one, if they differ.
    pub block_bytes: u64,
    /// Operations that were done.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean duration of one.
    pub mean_ns: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Number of those that came too late, if there is a time when they must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// Number of those that failed, if it goes on then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Percentage of the processors' time that the host of this virtual machine took meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen_percent: Option<u64>,
    /// The p50 as a multiple of what it was without company, if it has company now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_times_alone: Option<f64>,
    /// The p99 likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_times_alone: Option<f64>,
}

impl Row {
    /// The row of a measurement.
    pub fn of(mode: &str, threads: u32, block_bytes: u64, measured: &Measured) -> Row {
        Row {
            mode: mode.to_string(),
            threads,
            block_bytes,
            operations: measured.latency.count(),
            per_second: measured.per_second(),
            bytes_per_second: measured.bytes_per_second(),
            mean_ns: measured.latency.mean_ns(),
            p50_ns: measured.latency.quantile_ns(0.5),
            p99_ns: measured.latency.quantile_ns(0.99),
            max_ns: measured.latency.max_ns(),
            missed: None,
            errors: None,
            stolen_percent: None,
            p50_times_alone: None,
            p99_times_alone: None,
        }
    }
}

/// The rows with what they were measured on.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// The measurements.
    #[serde(flatten)]
    pub form: Form,
    /// The directory.
    pub directory: String,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A column: its name, and its cell of a row.
type Column = (&'static str, Align, fn(&Row) -> String);

impl Report {
    /// A table, for people. Columns in which no row has anything to say are left out.
    pub fn table(&self) -> String {
        let right = Align::Right;
        let mut columns: Vec<Column> = vec![
            ("mode", Align::Left, |row| row.mode.clone()),
            (self.form.threads, right, |row| row.threads.to_string()),
        ];
        if self.rows.iter().any(|row| row.block_bytes != self.rows[0].block_bytes) {
            columns.push(("size", right, |row| exact_bytes(row.block_bytes)));
        }
        columns.push((self.form.rate, right, |row| count(row.per_second.round() as u64)));
        if self.rows.iter().any(|row| row.bytes_per_second > 0.0) {
            columns.push(("MB/s", right, |row| format!("{:.1}", row.bytes_per_second / 1e6)));
        }
        columns.push(("p50", right, |row| duration(row.p50_ns)));
        columns.push(("p99", right, |row| duration(row.p99_ns)));
        columns.push(("max", right, |row| duration(row.max_ns)));
        if self.rows.iter().any(|row| row.missed.is_some()) {
            columns.push(("missed", right, |row| row.missed.map_or(String::new(), count)));
        }
        if self.rows.iter().any(|row| row.errors.is_some()) {
            columns.push(("errors", right, |row| row.errors.map_or(String::new(), count)));
        }
        if self.rows.iter().any(|row| row.stolen_percent > Some(0)) {
            columns
                .push(("host took", right, |row| row.stolen_percent.map_or(String::new(), |part| format!("{part}%"))));
        }
        if self.rows.iter().any(|row| row.p99_times_alone.is_some()) {
            columns.push(("p50 x alone", right, |row| times(row.p50_times_alone)));
            columns.push(("p99 x alone", right, |row| times(row.p99_times_alone)));
        }
        let header: Vec<(&'static str, Align)> = columns.iter().map(|&(name, align, _)| (name, align)).collect();
        let mut table = Table::new(&header);
        for row in &self.rows {
            table.row(columns.iter().map(|(_, _, cell)| cell(row)).collect());
        }
        table.render() + &noted(&self.notes)
    }
    /// Number of operations that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().filter_map(|row| row.errors).sum()
    }
    /// JSON, for programs.
    pub fn json(&self) -> String {
        json(self)
    }
    /// The rates, as a picture.
    pub fn svg(&self) -> String {
        let bar = |row: &Row| Bar {
            label: label(&row.mode, row.threads, self.form.threads, row.block_bytes),
            kind: row.mode.clone(),
            value: row.per_second,
            text: count(row.per_second.round() as u64),
        };
        let bars: Vec<Bar> = self.rows.iter().map(bar).collect();
        chart::bars(&format!("{}, {}, {}", self.form.bench, self.form.rate, self.directory), &bars)
    }
}

fn times(times: Option<f64>) -> String {
    times.map_or(String::new(), |times| format!("{times:.2}"))
}

/// A line that says what was done, by how many, in pieces of which size.
pub fn label(mode: &str, threads: u32, name: &str, block_bytes: u64) -> String {
    let size = if block_bytes > 0 { format!(", {}", exact_bytes(block_bytes)) } else { String::new() };
    format!("{mode}, {threads} {name}{size}")
}

/// Notes below a table, a line each.
pub fn noted(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

/// Any report for programs.
pub fn json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("strings and finite numbers are JSON") + "\n"
}

/// Says on standard error how far a bench is, once a second.
pub struct Progress {
    out: Box<dyn Write>,
    terminal: bool,
    what: String,
    said: u64,
}

impl Progress {
    /// Progress to standard error.
    pub fn new() -> Progress {
        Progress::to(Box::new(std::io::stderr()), std::io::stderr().is_terminal())
    }
    /// Progress to `out`; a terminal's line is overwritten instead of repeated.
    pub fn to(out: Box<dyn Write>, terminal: bool) -> Progress {
        Progress { out, terminal, what: String::new(), said: 0 }
    }
    /// A new measurement, or a preparation, begins.
    pub fn begin(&mut self, what: String) {
        self.what = what;
        self.said = 0;
        self.say("");
    }
    /// Called often; speaks once a second.
    pub fn tick(&mut self, elapsed: Duration, time: Duration, done: u64) {
        if elapsed.as_secs() > self.said {
            self.said = elapsed.as_secs();
            let rate = count((done as f64 / elapsed.as_secs_f64()) as u64);
            // What ends by itself has no time to end at.
            let of = if time == Duration::MAX { String::new() } else { format!(" of {}", time.as_secs()) };
            self.say(&format!(": {}{of} s, {rate}/s", self.said.min(time.as_secs())));
        }
    }
    /// Nothing more will be said.
    pub fn end(&mut self) {
        if self.terminal {
            drop(write!(self.out, "\r\x1b[K"));
        }
    }
    fn say(&mut self, rest: &str) {
        // Progress that can't be shown must not end a bench.
        drop(match self.terminal {
            true => write!(self.out, "\r\x1b[K{}{rest}", self.what).and_then(|()| self.out.flush()),
            false => writeln!(self.out, "{}{rest}", self.what),
        });
    }
}
