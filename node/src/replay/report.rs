//! The report of a replay: the mix of operations, and how long they took beside how long they had taken.

use super::pace::Ran;
use crate::table::{Align, Table, count, duration};
use recording::plan::{Plan, Way};
use recording::quantiles::{Row, rows};
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a replay.
#[derive(Serialize)]
pub struct Report {
    /// Its length.
    pub seconds: f64,
    /// The recording's length, from its first operation to its last.
    pub recorded_seconds: f64,
    /// Operations that it dropped.
    pub dropped: u64,
    /// Bytes behind the last whole frame of a recording that was cut short.
    pub cut_bytes: Option<u64>,
    /// Operations that ended otherwise than recorded: with an error, or without.
    pub ended_otherwise: u64,
    /// Handles that were opened although the recording tells of no open.
    pub opened_beside: u64,
    /// The time by which the latest operation began too late.
    pub late_max_ns: u64,
    /// The operations.
    pub operations: Vec<Operation>,
}

/// One operation's figures.
#[derive(Serialize)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Number of those that were recorded.
    pub recorded: u64,
    /// Number of those that were done, by themselves or as a part of another call.
    pub done: u64,
    /// Half took no longer in the daemon, when they were recorded.
    pub recorded_p50_ns: u64,
    /// 99 of 100 took no longer.
    pub recorded_p99_ns: u64,
    /// Half of the calls took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
}

impl Report {
    /// The figures of a replay.
    pub fn of(plan: &Plan, ran: &Ran) -> Report {
        let all = || (0..).zip(&plan.steps);
        let recorded = rows(all().map(|(_, step)| {
            let operation = &step.operation;
            (operation.row(), operation.duration_ns, operation.errno != 0)
        }));
        let done = all().filter_map(|(at, step)| Some((step.operation.row(), ran.outcome(at)?)));
        let done: BTreeMap<String, Row> = rows(done.map(|(name, (took, same))| (name, took, !same)))
            .into_iter()
            .map(|row| (row.name.clone(), row))
            .collect();
        let mut implied: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, step) in all().filter(|(_, step)| step.way == Way::Implied) {
            *implied.entry(step.operation.row()).or_default() += 1;
        }
        let operations = recorded.into_iter().map(|row| {
            let calls = done.get(&row.name);
            Operation {
                done: calls.map_or(0, |calls| calls.count) + implied.get(&*row.name).copied().unwrap_or(0),
                p50_ns: calls.map_or(0, |calls| calls.p50_ns),
                p99_ns: calls.map_or(0, |calls| calls.p99_ns),
                recorded: row.count,
                recorded_p50_ns: row.p50_ns,
                recorded_p99_ns: row.p99_ns,
                name: row.name,
            }
        });
        let first_ns = plan.steps.first().map_or(0, |step| step.operation.start_ns);
        let last_ns = plan.steps.iter().map(|step| step.operation.end_ns()).max().unwrap_or(0);
        Report {
            seconds: ran.took.as_secs_f64(),
            recorded_seconds: (last_ns - first_ns) as f64 / 1e9,
            dropped: 0,
            cut_bytes: None,
            ended_otherwise: done.values().map(|row| row.failed).sum(),
            opened_beside: 0,
            late_max_ns: ran.late_max.as_nanos() as u64,
            operations: operations.collect(),
        }
    }
    /// The figures for people.
    pub fn table(&self) -> String {
        let right = Align::Right;
        let heads = ["recorded", "done", "p50 then", "p50 now", "p99 then", "p99 now"].map(|head| (head, right));
        let mut table = Table::new(&[&[("operation", Align::Left)], &heads[..]].concat());
        for operation in &self.operations {
            let mut cells = vec![operation.name.clone(), count(operation.recorded), count(operation.done)];
            let times = [operation.recorded_p50_ns, operation.p50_ns, operation.recorded_p99_ns, operation.p99_ns];
            cells.extend(times.map(duration));
            table.row(cells);
        }
        let mut text = table.render();
        text += "then: in the daemon; now: the whole call\n";
        text += &format!("{:.1} s, {:.1} s when it was recorded\n", self.seconds, self.recorded_seconds);
        let mut note = |number: u64, what: &str| {
            if number > 0 {
                text += &format!("{} {what}\n", count(number));
            }
        };
        note(self.dropped, "operations were dropped when it was recorded");
        note(self.ended_otherwise, "operations ended otherwise than recorded");
        note(self.opened_beside, "handles were opened that the recording does not tell of");
        text
    }
}
