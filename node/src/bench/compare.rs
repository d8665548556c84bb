//! Two directories in turns: for each row the medians of both, their ratio, and how sure it is.
//!
//! A machine's speed drifts between minutes, so the two take turns cell by cell, and only what followed each other is compared:
//! each round gives a ratio, and the median of all rounds' ratios is told. Its interval is that of the sign test (W. R. Thompson,
//! "On confidence ranges for the median", Annals of Mathematical Statistics 7, 1936): the k-th least and the k-th greatest ratio
//! hold the true median between them unless fewer than k of all rounds fell on one side of it, whatever the distribution. The
//! narrowest pair that is right in 95 of 100 cases is taken; five rounds reach 94 at most, six are enough.

use super::chart::{self, Dot};
use super::engine::Course;
use super::report::{Form, Row, json, label, noted};
use super::turns::{Bench, Site};
use crate::failure::Failure;
use crate::table::{Align, Table, count, duration, exact_bytes};
use serde::Serialize;
use std::path::Path;

/// The chance that the interval holds the true median.
const CONFIDENCE: f64 = 0.95;

/// The figure of a row that is compared.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Operations per second.
    Rate,
    /// The mean duration. (The histograms that medians come from have buckets an eighth wide: too wide to compare.)
    Mean,
    /// The duration that 99 of 100 don't exceed.
    P99,
    /// The p99 as a multiple of what it was without company.
    P99TimesAlone,
    /// Number of those that came too late.
    Missed,
    /// Number of those that failed.
    Errors,
}

impl Figure {
    /// All.
    const ALL: [Figure; 6] =
        [Figure::Rate, Figure::Mean, Figure::P99, Figure::P99TimesAlone, Figure::Missed, Figure::Errors];
    /// Its value in a row, if that has it.
    fn of(self, row: &Row) -> Option<f64> {
        match self {
            Figure::Rate => Some(row.per_second),
            Figure::Mean => Some(row.mean_ns as f64),
            Figure::P99 => Some(row.p99_ns as f64),
            Figure::P99TimesAlone => row.p99_times_alone,
            Figure::Missed => row.missed.map(|missed| missed as f64),
            Figure::Errors => row.errors.map(|errors| errors as f64),
        }
    }
    /// Its name in tables, where `rate` is the name of a rate.
    pub fn name(self, rate: &'static str) -> &'static str {
        match self {
            Figure::Rate => rate,
            Figure::Mean => "mean",
            Figure::P99 => "p99",
            Figure::P99TimesAlone => "p99 x alone",
            Figure::Missed => "missed",
            Figure::Errors => "errors",
        }
    }
    /// A value as people read it.
    pub fn show(self, value: f64) -> String {
        match self {
            Figure::Rate | Figure::Missed | Figure::Errors => count(value.round() as u64),
            Figure::Mean | Figure::P99 => duration(value.round() as u64),
            Figure::P99TimesAlone => format!("{value:.2}"),
        }
    }
    /// True of times.
    pub fn is_better_if_less(self) -> bool {
        self != Figure::Rate
    }
}

/// A ratio with its interval.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The median of all rounds' ratios.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Ratio {
    /// The ratio of values that were measured in turns, a pair per round.
    pub fn of(pairs: &[(f64, f64)]) -> Ratio {
        let quotient = |&(here, beside): &(f64, f64)| if here == beside { 1.0 } else { here / beside.max(1e-9) };
        let mut ratios: Vec<f64> = pairs.iter().map(quotient).collect();
        ratios.sort_by(f64::total_cmp);
        let (rank, last) = (interval_rank(ratios.len()), ratios.len() - 1);
        Ratio { ratio: median(&ratios), low: ratios[rank], high: ratios[last - rank] }
    }
    /// The ratio with both sides exchanged.
    pub fn inverse(self) -> Ratio {
        let inverse = |value: f64| 1.0 / value.max(1e-9);
        Ratio { ratio: inverse(self.ratio), low: inverse(self.high), high: inverse(self.low) }
    }
    /// The interval for people.
    pub fn interval(self) -> String {
        format!("{} to {}", shown(self.low), shown(self.high))
    }
}

/// A ratio for people: what is held against nothing has no figure.
pub fn shown(ratio: f64) -> String {
    if ratio < 1000.0 { format!("{ratio:.2}") } else { "above 999".to_string() }
}

/// The median of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The chance that at most so many of all rounds lie on a given side of the true median.
fn tail(rounds: usize, most: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for k in 0..=most {
        sum += ways;
        ways *= (rounds - k) as f64 / (k + 1) as f64;
    }
    sum / 2f64.powi(rounds as i32)
}

/// Number of the least values that lie outside of the interval, and as many of the greatest.
fn interval_rank(rounds: usize) -> usize {
    let outside = |rank: &usize| 2.0 * tail(rounds, *rank) <= 1.0 - CONFIDENCE;
    (0..rounds.div_ceil(2)).take_while(outside).last().unwrap_or(0)
}

/// The chance that an interval of this many rounds holds the true median.
pub fn confidence(rounds: usize) -> f64 {
    (1.0 - 2.0 * tail(rounds, interval_rank(rounds))).max(0.0)
}

/// One figure of one row, compared.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Line {
    /// The operation.
    pub mode: String,
    /// Threads that did it.
    pub threads: u32,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// The compared figure.
    pub figure: Figure,
    /// The directory's median.
    pub here: f64,
    /// The other's.
    pub beside: f64,
    /// Here by beside.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// The directory's values, round by round.
    pub here_rounds: Vec<f64>,
    /// The other's.
    pub beside_rounds: Vec<f64>,
}

/// All rows, compared.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The measurements.
    #[serde(flatten)]
    pub form: Form,
    /// The directory.
    pub directory: String,
    /// The directory that it is compared with.
    pub beside: String,
    /// Rounds that were asked for.
    pub rounds: usize,
    /// The chance that an interval of this many rounds holds the true median of the ratio.
    pub confidence: f64,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// The figures.
    pub lines: Vec<Line>,
}

/// Measures both in turns; an interruption leaves the cells whose rounds were all done.
pub fn beside(
    bench: &dyn Bench,
    directories: [&Path; 2],
    rounds: usize,
    course: &mut Course,
) -> Result<Comparison, Failure> {
    bench.check()?;
    let sites = [Site::make(bench, directories[0], "", course)?, Site::make(bench, directories[1], "-beside", course)?];
    let mut lines = Vec::new();
    for cell in 0..bench.cells() {
        let mut taken: [Vec<Vec<Row>>; 2] = Default::default();
        for round in 0..rounds {
            for (site, taken) in sites.iter().zip(&mut taken) {
                if !course.is_interrupted() {
                    course.set_turn(format!("round {} of {rounds}, {}: ", round + 1, site.directory.display()));
                    taken.push(site.measure(cell, course)?);
                }
            }
        }
        if !course.is_interrupted() {
            lines.extend(compared(&taken));
        }
    }
    course.set_turn(String::new());
    course.end();
    let [directory, beside] = directories.map(|directory| directory.display().to_string());
    let (form, notes) = (bench.form(), course.take_notes());
    Ok(Comparison { form, directory, beside, rounds, confidence: confidence(rounds), notes, lines })
}

/// The lines of one cell's rows, round by round.
fn compared(taken: &[Vec<Vec<Row>>; 2]) -> Vec<Line> {
    let first = taken[0].first().map_or(&[][..], Vec::as_slice);
    let of = |at: usize, row: &Row, figure: Figure| {
        let values = |side: &Vec<Vec<Row>>| side.iter().map(|rows| figure.of(&rows[at])).collect::<Option<Vec<f64>>>();
        let (here_rounds, beside_rounds) = (values(&taken[0])?, values(&taken[1])?);
        let middle = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            median(&sorted)
        };
        let pairs: Vec<(f64, f64)> = here_rounds.iter().copied().zip(beside_rounds.iter().copied()).collect();
        let (mode, here, beside) = (row.mode.clone(), middle(&here_rounds), middle(&beside_rounds));
        let (threads, block_bytes, ratio) = (row.threads, row.block_bytes, Ratio::of(&pairs));
        Some(Line { mode, threads, block_bytes, figure, here, beside, ratio, here_rounds, beside_rounds })
    };
    let rows = first.iter().enumerate();
    rows.flat_map(|(at, row)| Figure::ALL.into_iter().filter_map(move |figure| of(at, row, figure))).collect()
}

impl Comparison {
    /// A table, for people.
    pub fn table(&self) -> String {
        let (left, right) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("mode", left),
            (self.form.threads, right),
            ("size", right),
            ("figure", left),
            ("here", right),
            ("beside", right),
            ("ratio", right),
            ("interval", right),
        ]);
        for line in &self.lines {
            table.row(vec![
                line.mode.clone(),
                line.threads.to_string(),
                exact_bytes(line.block_bytes),
                line.figure.name(self.form.rate).to_string(),
                line.figure.show(line.here),
                line.figure.show(line.beside),
                shown(line.ratio.ratio),
                line.ratio.interval(),
            ]);
        }
        table.render() + &explained(&self.directory, &self.beside, self.rounds) + &noted(&self.notes)
    }
    /// Number of operations that failed, in all rounds of both.
    pub fn errors(&self) -> u64 {
        let lines = self.lines.iter().filter(|line| line.figure == Figure::Errors);
        lines.flat_map(|line| line.here_rounds.iter().chain(&line.beside_rounds)).map(|&errors| errors as u64).sum()
    }
    /// JSON, for programs.
    pub fn json(&self) -> String {
        json(self)
    }
    /// The ratios of rates and of p99, as a picture.
    pub fn svg(&self) -> String {
        let shown_ones = self.lines.iter().filter(|line| matches!(line.figure, Figure::Rate | Figure::P99));
        let dot = |line: &Line| {
            let figure = line.figure.name(self.form.rate);
            let row = label(&line.mode, line.threads, self.form.threads, line.block_bytes);
            Dot { label: format!("{row}, {figure}"), ..dot(&line.ratio) }
        };
        let title = format!("{}: {} / {}", self.form.bench, self.directory, self.beside);
        chart::dots(&title, &shown_ones.map(dot).collect::<Vec<Dot>>())
    }
}

/// A ratio in a picture, without its label.
pub fn dot(ratio: &Ratio) -> Dot {
    Dot { label: String::new(), ratio: [ratio.ratio, ratio.low, ratio.high], text: shown(ratio.ratio) }
}

/// An explanation of a comparison's columns.
pub fn explained(directory: &str, beside: &str, rounds: usize) -> String {
    let percent = confidence(rounds) * 100.0;
    format!(
        "here: {directory}, beside: {beside}, medians of {rounds} rounds in turns\n\
         ratio: median of the rounds' here/beside; the true one is in the interval at {percent:.0}% (sign test)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // Ranks from published tables of the sign test at 5%, two-sided, counted from 0.
        let ranks = [5, 6, 8, 9, 12, 20].map(interval_rank);
        assert_eq!(ranks, [0, 0, 0, 1, 2, 5]);
        let percent = [1, 2, 5, 6, 9].map(|rounds| (confidence(rounds) * 1000.0).round() / 10.0);
        assert_eq!(percent, [0.0, 50.0, 93.8, 96.9, 96.1]);
    }

    #[test]
    fn ratios_are_those_of_rounds_and_not_of_medians() {
        // Both drift by a factor of 10 together; here is always half as fast.
        let drifting: Vec<(f64, f64)> = (1..=10).map(|speed| (f64::from(speed), f64::from(speed) * 2.0)).collect();
        assert_eq!(Ratio::of(&drifting), Ratio { ratio: 0.5, low: 0.5, high: 0.5 });
        let known = [
            (1.0, 1.0),
            (2.0, 1.0),
            (3.0, 1.0),
            (4.0, 1.0),
            (5.0, 1.0),
            (6.0, 1.0),
            (7.0, 1.0),
            (8.0, 1.0),
            (90.0, 1.0),
        ];
        let ratio = Ratio::of(&known);
        assert_eq!(ratio, Ratio { ratio: 5.0, low: 2.0, high: 8.0 }, "an outlier moves nothing");
        assert_eq!(ratio.inverse(), Ratio { ratio: 0.2, low: 0.125, high: 0.5 });
        assert_eq!(Ratio::of(&[(0.0, 0.0)]).ratio, 1.0);
    }

    #[test]
    fn the_interval_holds_the_true_ratio_as_often_as_it_says() {
        let mut random = runtime::random::SplitMix(7);
        let mut held = 0;
        for _ in 0..2000 {
            let pairs: Vec<(f64, f64)> = (0..9).map(|_| (1.0 + random.below(1001) as f64, 501.0)).collect();
            let ratio = Ratio::of(&pairs);
            held += u32::from((ratio.low..=ratio.high).contains(&1.0));
        }
        assert!((1890..1960).contains(&held), "{held} of 2000, where 96.1% are expected");
    }
}
