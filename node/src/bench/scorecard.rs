//! `sinter bench scorecard`: 14 metrics that who buys storage asks for, on two directories in turns, and of each whether the first
//! one is ahead, at par or behind (mission S4).

use super::chart::{self, Dot};
use super::compare::{Comparison, Figure, Ratio, beside, confidence, dot, explained, shown};
use super::engine::Course;
use super::report::{json, noted};
use super::turns::Bench;
use super::{access, metadata, smallfile, sync};
use crate::cli::{Phase, SyncMode};
use crate::failure::Failure;
use crate::table::{Align, Table};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Ratios nearer to 1 than this are at par, however sure: nobody would notice.
const PAR: f64 = 0.05;

/// The plan of the measurement.
pub struct Plan {
    /// Bytes of each file of random, sequential and synchronous access; each bench has its own default.
    pub file_bytes: Option<u64>,
    /// Files of metadata; small files are as many at most.
    pub files: u64,
    /// Rounds of both.
    pub rounds: usize,
    /// Time per measurement.
    pub time: Duration,
}

/// A metric: its name, the row of a bench that has it, and which of its figures.
type Metric = (&'static str, &'static str, u32, Figure);

/// The standing of the first directory in one metric.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better.
    Ahead,
    /// The same, or nobody could tell.
    AtPar,
    /// Worse.
    Behind,
}

impl Verdict {
    /// The verdict for a ratio that is above 1 if the first is better.
    fn of(ratio: Ratio) -> Verdict {
        let is_sure = !(ratio.low..=ratio.high).contains(&1.0);
        match ratio.ratio {
            value if !is_sure || (value - 1.0).abs() <= PAR => Verdict::AtPar,
            value if value > 1.0 => Verdict::Ahead,
            _ => Verdict::Behind,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Verdict::Ahead => "ahead",
            Verdict::AtPar => "at par",
            Verdict::Behind => "behind",
        }
    }
}

/// One metric, measured.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Score {
    /// The measured metric.
    pub metric: &'static str,
    /// Its figure.
    pub figure: Figure,
    /// The directory's median.
    pub here: f64,
    /// The other's.
    pub beside: f64,
    /// The ratio by which the first is better: above 1 is better, also for times.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// The meaning of that.
    pub verdict: Verdict,
}

/// All metrics.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Scorecard {
    /// The bench's name.
    pub bench: &'static str,
    /// The directory.
    pub directory: String,
    /// The directory that it is compared with.
    pub beside: String,
    /// Rounds of both.
    pub rounds: usize,
    /// Seconds per measurement.
    pub seconds: u64,
    /// The chance that an interval of this many rounds holds the true median of the ratio.
    pub confidence: f64,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// The metrics.
    pub scores: Vec<Score>,
}

impl Plan {
    /// All benches, each with the metrics that it gives.
    fn parts(&self) -> Vec<(Box<dyn Bench>, Vec<Metric>)> {
        let (file_bytes, time) = (self.file_bytes, self.time);
        let random = |jobs, depth| access::Plan::random(jobs, depth, file_bytes, time);
        let order = access::Order::Sequential;
        let seq = access::Plan { order, block_bytes: 1 << 20, ..random(1, 4) };
        let sync = |writers, mode| sync::Plan { writers, modes: vec![mode], file_bytes, direct: false, time };
        let (files, phase) = (self.files, Phase::Both);
        let small = smallfile::Plan { threads: vec![4], sizes: vec![16 << 10], exponential: false, files, phase, time };
        let metadata = metadata::Plan { threads: vec![4], files, time };
        let (rate, mean) = (Figure::Rate, Figure::Mean);
        let dsync = "overwrite-dsync";
        vec![
            (
                Box::new(random(4, 8)),
                vec![
                    ("4 KiB random reads, 32 at once", "read", 32, rate),
                    ("4 KiB random writes, 32 at once", "write", 32, rate),
                ],
            ),
            (
                Box::new(random(1, 1)),
                vec![
                    ("4 KiB random read, one at a time", "read", 1, mean),
                    ("4 KiB random write, one at a time", "write", 1, mean),
                ],
            ),
            (
                Box::new(sync(vec![1, 16], SyncMode::OverwriteDsync)),
                vec![("4 KiB O_DSYNC, 1 writer", dsync, 1, rate), ("4 KiB O_DSYNC, 16 writers", dsync, 16, rate)],
            ),
            (
                Box::new(sync(vec![1], SyncMode::AppendFdatasync)),
                vec![("4 KiB append and fdatasync", "append-fdatasync", 1, rate)],
            ),
            (
                Box::new(seq),
                vec![("1 MiB sequential reads", "read", 4, rate), ("1 MiB sequential writes", "write", 4, rate)],
            ),
            (
                Box::new(small),
                vec![("16 KiB files created durably", "create", 4, rate), ("16 KiB files read cold", "read", 4, rate)],
            ),
            (
                Box::new(metadata),
                vec![
                    ("empty files created", "create", 4, rate),
                    ("files looked at cold", "stat", 4, rate),
                    ("files unlinked", "unlink", 4, rate),
                ],
            ),
        ]
    }
}

/// Measures all; an interruption leaves the metrics that were done.
pub fn measure(directories: [&Path; 2], plan: &Plan, course: &mut Course) -> Result<Scorecard, Failure> {
    let (mut scores, mut notes) = (Vec::new(), Vec::new());
    for (bench, metrics) in plan.parts() {
        if course.is_interrupted() {
            break;
        }
        let comparison = beside(bench.as_ref(), directories, plan.rounds, course)?;
        scores.extend(metrics.into_iter().filter_map(|metric| score(metric, &comparison)));
        notes.extend(comparison.notes);
    }
    notes.sort();
    notes.dedup();
    let [directory, beside] = directories.map(|directory| directory.display().to_string());
    let (rounds, seconds, confidence) = (plan.rounds, plan.time.as_secs(), confidence(plan.rounds));
    Ok(Scorecard { bench: "scorecard", directory, beside, rounds, seconds, confidence, notes, scores })
}

fn score((metric, mode, threads, figure): Metric, comparison: &Comparison) -> Option<Score> {
    let mut lines = comparison.lines.iter();
    let line = lines.find(|line| (line.mode.as_str(), line.threads, line.figure) == (mode, threads, figure))?;
    let ratio = if figure.is_better_if_less() { line.ratio.inverse() } else { line.ratio };
    Some(Score { metric, figure, here: line.here, beside: line.beside, ratio, verdict: Verdict::of(ratio) })
}

impl Scorecard {
    /// A table, for people.
    pub fn table(&self) -> String {
        let (left, right) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("metric", left),
            ("figure", left),
            ("here", right),
            ("beside", right),
            ("better by", right),
            ("interval", right),
            ("verdict", left),
        ]);
        for score in &self.scores {
            table.row(vec![
                score.metric.to_string(),
                score.figure.name("per second").to_string(),
                score.figure.show(score.here),
                score.figure.show(score.beside),
                shown(score.ratio.ratio),
                score.ratio.interval(),
                score.verdict.name().to_string(),
            ]);
        }
        let of = |verdict| self.scores.iter().filter(|score| score.verdict == verdict).count();
        let sum = format!(
            "{} ahead, {} at par (the interval holds 1, or within {:.0}%), {} behind; of times the ratio is beside/here\n",
            of(Verdict::Ahead),
            of(Verdict::AtPar),
            PAR * 100.0,
            of(Verdict::Behind)
        );
        table.render() + &sum + &explained(&self.directory, &self.beside, self.rounds) + &noted(&self.notes)
    }
    /// JSON, for programs.
    pub fn json(&self) -> String {
        json(self)
    }
    /// The ratios, as a picture.
    pub fn svg(&self) -> String {
        let dots = self.scores.iter().map(|score| Dot { label: score.metric.to_string(), ..dot(&score.ratio) });
        let title = format!("better than 1: {} is ahead of {}", self.directory, self.beside);
        chart::dots(&title, &dots.collect::<Vec<Dot>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare::Line;

    #[test]
    fn there_are_fourteen_metrics() {
        let plan = Plan { file_bytes: None, files: 1, rounds: 1, time: Duration::from_secs(1) };
        assert_eq!(plan.parts().iter().map(|(_, metrics)| metrics.len()).sum::<usize>(), 14);
    }

    #[test]
    fn verdicts_need_a_difference_that_is_sure_and_worth_telling() {
        let of = |ratio, low, high| Verdict::of(Ratio { ratio, low, high });
        assert_eq!(of(1.3, 1.1, 1.5), Verdict::Ahead);
        assert_eq!(of(1.3, 0.9, 1.5), Verdict::AtPar);
        assert_eq!(of(1.04, 1.02, 1.06), Verdict::AtPar);
        assert_eq!(of(0.96, 0.95, 0.97), Verdict::AtPar);
        assert_eq!(of(0.8, 0.7, 0.99), Verdict::Behind);
        assert_eq!(of(0.8, 0.7, 1.0), Verdict::AtPar);
    }

    #[test]
    fn half_the_time_is_ahead_and_half_the_rate_is_behind() {
        let plan =
            sync::Plan { writers: vec![1], modes: vec![], file_bytes: None, direct: false, time: Duration::ZERO };
        let ratio = Ratio { ratio: 0.5, low: 0.4, high: 0.6 };
        let line = |figure| Line {
            mode: "read".to_string(),
            threads: 1,
            block_bytes: 4096,
            figure,
            here: 1.0,
            beside: 2.0,
            ratio,
            here_rounds: vec![1.0; 6],
            beside_rounds: vec![2.0; 6],
        };
        let comparison = Comparison {
            form: plan.form(),
            directory: "/a".to_string(),
            beside: "/b".to_string(),
            rounds: 6,
            confidence: 0.97,
            notes: Vec::new(),
            lines: vec![line(Figure::Rate), line(Figure::Mean)],
        };
        let of = |figure| score(("metric", "read", 1, figure), &comparison).expect("its line is there");
        assert_eq!((of(Figure::Rate).verdict, of(Figure::Mean).verdict), (Verdict::Behind, Verdict::Ahead));
        assert_eq!(of(Figure::Mean).ratio.ratio, 2.0);
        assert_eq!(score(("metric", "write", 1, Figure::Rate), &comparison), None);
    }
}
