//! What a bench prints: progress while it runs, a table or JSON at the end.

use super::engine::{BLOCK_BYTES, Measured};
use crate::table::{Align, Table, count, duration};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// One measurement, as JSON shows it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// What was done.
    pub mode: String,
    /// Threads that did it at the same time.
    pub threads: u32,
    /// Operations that were done.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Row {
    /// From a measurement.
    pub fn of(mode: &str, threads: u32, measured: &Measured) -> Row {
        let per_second = measured.per_second();
        Row {
            mode: mode.to_string(),
            threads,
            operations: measured.latency.count(),
            per_second,
            bytes_per_second: per_second * BLOCK_BYTES as f64,
            p50_ns: measured.latency.quantile_ns(0.5),
            p99_ns: measured.latency.quantile_ns(0.99),
            max_ns: measured.latency.max_ns(),
        }
    }
}

/// The rows with what they were measured on.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// Which bench.
    pub bench: &'static str,
    /// The directory.
    pub directory: String,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Past the page cache.
    pub direct: bool,
    /// Seconds per row.
    pub seconds: u64,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    /// For people. `threads` names the column of thread counts, `rate` that of operations per second.
    pub fn table(&self, threads: &'static str, rate: &'static str) -> String {
        let right = Align::Right;
        let mut table = Table::new(&[
            ("mode", Align::Left),
            (threads, right),
            (rate, right),
            ("MB/s", right),
            ("p50", right),
            ("p99", right),
            ("max", right),
        ]);
        for row in &self.rows {
            table.row(vec![
                row.mode.clone(),
                row.threads.to_string(),
                count(row.per_second.round() as u64),
                format!("{:.1}", row.bytes_per_second / 1e6),
                duration(row.p50_ns),
                duration(row.p99_ns),
                duration(row.max_ns),
            ]);
        }
        table.render()
    }
    /// For programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and finite numbers are JSON") + "\n"
    }
}

/// Says on standard error how far a bench is, once a second.
pub struct Progress {
    out: Box<dyn Write>,
    terminal: bool,
    what: String,
    said: u64,
}

impl Progress {
    /// To standard error.
    pub fn new() -> Progress {
        Progress::to(Box::new(std::io::stderr()), std::io::stderr().is_terminal())
    }
    /// To anything; a terminal's line is overwritten instead of repeated.
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
            self.say(&format!(": {} of {} s, {rate}/s", self.said.min(time.as_secs()), time.as_secs()));
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
