//! The row `checkpoints`: seconds in which a checkpoint is under way, held against the seconds around them.
//!
//! Promises writers that think between requests: what a stall takes is not caught up within the second.

use super::brick::{Brick, Devices, number};
use super::load::{Clients, Done};
use super::overwrite::WRITERS;
use super::report::{Report, Wish};
use super::seconds::{Ended, STOLEN_MAX};
use super::watch::{Watch, now};
use crate::flash::figures::median;
use crate::flash::ground::Ground;
use crate::flash::undo::Undo;
use crate::verdicts::load::{FILE, Load};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROW: &str = "checkpoints";
/// Seconds of writing.
const SECONDS: u64 = 180;
/// Time for which each of the writers thinks: together they do what the brick can hold for as long as they like.
const THINK_US: u64 = 10_000;
/// Time between looks at the counters.
const LOOK: Duration = Duration::from_millis(100);
/// Seconds without a checkpoint, before and after, that one is held against.
const AROUND: usize = 3;
/// Part of a second's writes that a checkpoint may take.
const DENT_MOST: f64 = 0.1;
/// Checkpoints that say something.
const COUNT_LEAST: f64 = 3.0;

/// The counters at a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Look {
    /// Milliseconds since 1970.
    at_ms: u64,
    checkpoints: f64,
    /// Bytes of changes that no checkpoint has taken.
    overlay_bytes: f64,
}

/// Measures them.
pub fn run(
    ground: &Ground,
    (brick, devices): (&Brick, &Devices),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let load = Load { think_us: THINK_US, ..WRITERS };
    let writers = Clients::start(&load, &brick.file(FILE), &ground.root, ROW, undo)?;
    eprintln!("overwriting for {SECONDS} s");
    let (mut watch, ends) = (Watch::default(), AtomicBool::new(false));
    let looks = std::thread::scope(|scope| {
        let looks = scope.spawn(|| looks(brick, &ends));
        let watched = (0..SECONDS).try_for_each(|_| watch.look(&devices.spindle).map(drop));
        ends.store(true, Ordering::Relaxed);
        let looks = looks.join().map_err(|_| "the thread that looks at checkpoints panicked".to_string())?;
        watched.and(looks)
    })?;
    told(&writers.end(undo)?, &watch, &spans(&looks), report);
    Ok(())
}

/// Looks at the counters until the end.
fn looks(brick: &Brick, ends: &AtomicBool) -> Result<Vec<Look>, String> {
    let mut looks = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let status = brick.status()?;
        let figure = |name: &str| {
            let found = status["figures"].as_array().into_iter().flatten().find(|figure| figure["name"] == name);
            number(found.ok_or_else(|| format!("sinter status has no {name}"))?, "value")
        };
        let (checkpoints, overlay_bytes) = (figure("checkpoints")?, figure("overlay bytes")?);
        looks.push(Look { at_ms: now().as_millis() as u64, checkpoints, overlay_bytes });
        std::thread::sleep(LOOK);
    }
    Ok(looks)
}

/// The times of checkpoints, in milliseconds: from when their changes were set aside until they were counted.
fn spans(looks: &[Look]) -> Vec<RangeInclusive<u64>> {
    let (mut began, mut spans) = (None, Vec::new());
    for pair in looks.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        if after.overlay_bytes < before.overlay_bytes / 2.0 {
            began = Some(before.at_ms);
        }
        if after.checkpoints > before.checkpoints {
            spans.push(began.take().unwrap_or(before.at_ms)..=after.at_ms);
        }
    }
    spans
}

/// The part of the writes that the slowest of some seconds lacks, in the median of those around. `quiet`: seconds that may be held
/// against. None: there are none on one side.
fn dent(ended: &Ended, seconds: &RangeInclusive<u64>, quiet: &[u64]) -> Option<f64> {
    let before = quiet.iter().rev().filter(|second| *second < seconds.start()).take(AROUND);
    let after = quiet.iter().filter(|second| *second > seconds.end()).take(AROUND);
    let (before, after): (Vec<&u64>, Vec<&u64>) = (before.collect(), after.collect());
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let around: Vec<f64> = before.into_iter().chain(after).map(|second| ended.at(*second) as f64).collect();
    let slowest = seconds.clone().map(|second| ended.at(second)).min()?;
    Some(1.0 - slowest as f64 / median(&around).max(1.0))
}

fn told(done: &Done, watch: &Watch, spans: &[RangeInclusive<u64>], report: &mut Report) {
    let seconds: Vec<RangeInclusive<u64>> = spans.iter().map(|span| span.start() / 1000..=span.end() / 1000).collect();
    let is_left_alone = |second: u64| watch.stolen(second) <= STOLEN_MAX;
    let is_quiet = |second: &u64| is_left_alone(*second) && !seconds.iter().any(|range| range.contains(second));
    let quiet: Vec<u64> = watch.range().filter(is_quiet).collect();
    let whole = seconds.iter().filter(|range| (**range).clone().all(is_left_alone));
    let dents: Vec<f64> = whole.filter_map(|range| dent(&done.ended, range, &quiet)).collect();
    let other: Vec<f64> = quiet.iter().filter_map(|second| dent(&done.ended, &(*second..=*second), &quiet)).collect();
    let lengths: Vec<f64> = spans.iter().map(|span| (span.end() - span.start()) as f64).collect();
    let above =
        |dents: &[f64]| dents.iter().filter(|dent| **dent >= DENT_MOST).count() as f64 / dents.len().max(1) as f64;
    let most = |dents: &[f64]| dents.iter().copied().fold(0.0, f64::max);
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    add("failed writes", done.errors as f64, "", Wish::Zero);
    add("mean", done.ended.mean(watch.range()).unwrap_or(0.0), "/s", Wish::None);
    add("longest write", done.ended.longest_ns as f64 / 1e6, "ms", Wish::None);
    add("checkpoints", dents.len() as f64, "", Wish::LeastIfAlone(COUNT_LEAST));
    if !dents.is_empty() {
        add("time of one, within 200 ms, median", median(&lengths), "ms", Wish::None);
        add("dent, median", median(&dents), "", Wish::MostIfAlone(DENT_MOST));
        add("dent, greatest", most(&dents), "", Wish::None);
        add("part of checkpoints with a dent of a tenth", above(&dents), "", Wish::None);
    }
    add("greatest dent of a second without", most(&other), "", Wish::None);
    add("part of those with a dent of a tenth", above(&other), "", Wish::None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_lasts_from_its_cut_until_it_is_counted() {
        let look = |at_ms, checkpoints, overlay_bytes| Look { at_ms, checkpoints, overlay_bytes };
        let looks =
            [look(0, 4.0, 90.0), look(100, 4.0, 5.0), look(200, 4.0, 9.0), look(300, 5.0, 8.0), look(400, 6.0, 9.0)];
        assert_eq!(spans(&looks), [0..=300, 300..=400]);
    }

    #[test]
    fn the_slowest_second_is_held_against_those_around() {
        let lines = [64, 64, 48, 56, 64, 64].iter().enumerate();
        let log = lines.flat_map(|(second, count)| vec![Ok::<_, String>(format!("{second}500, 1, 1")); *count]);
        let ended = Ended::read(log).expect("it is a log");
        assert_eq!(dent(&ended, &(2..=3), &[0, 1, 4, 5]), Some(0.25));
        assert_eq!(dent(&ended, &(3..=3), &[0, 1, 4, 5]), Some(0.125));
        assert_eq!(dent(&ended, &(2..=3), &[0, 1]), None, "nothing comes after");
    }
}
