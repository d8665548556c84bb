//! Tests of medians, ratios and targets.

use super::*;

fn figures(values: &[f64]) -> Vec<Figure> {
    values.iter().map(|&value| Figure { value, p50_us: Some(1000.0 / value), ..Figure::default() }).collect()
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    assert_eq!(p50_us(&figures(&[10.0, 20.0, 50.0])), Some(50.0));
    assert_eq!(p50_us(&[Figure::default()]), None);
}

#[test]
fn a_ratio_is_the_median_of_rounds_and_not_that_of_medians() {
    // The device was ten times as fast in the last round, for both.
    let ratio = ratio(&figures(&[8.0, 9.0, 50.0]), &figures(&[10.0, 10.0, 100.0])).expect("there are rounds");
    assert_eq!(ratio, Ratio { median: 0.8, low: 0.5, high: 0.9 });
    assert_eq!(super::ratio(&figures(&[1.0]), &[]), None);
}

#[test]
fn an_interval_is_that_of_the_sign_test() {
    // From published tables at 5%, two-sided, counted from 0.
    assert_eq!([1, 5, 6, 8, 9, 12, 20].map(outside), [0, 0, 0, 0, 1, 2, 5]);
    let rounds: Vec<f64> = (1..=20).map(f64::from).collect();
    let ratio = ratio(&figures(&rounds), &figures(&[10.0; 20])).expect("there are rounds");
    assert_eq!(ratio, Ratio { median: 1.05, low: 0.6, high: 1.5 });
}

#[test]
fn a_target_is_met_when_all_its_parts_are() {
    let target = Target { of_raw: Some(0.8), of_peer: Some(2.0), ..Target::default() };
    let (ours, raw, peer) = (figures(&[80.0]), figures(&[100.0]), figures(&[40.0]));
    assert_eq!(judged(&target, &ours, Some(&raw), Some(&peer)), Outcome::Met);
    assert_eq!(judged(&target, &ours, Some(&raw), None), Outcome::Open(vec!["GlusterFS"]));
    let missed = |words: &[&str]| Outcome::Missed(words.iter().map(|word| word.to_string()).collect());
    let slow = figures(&[79.0]);
    assert_eq!(judged(&target, &slow, Some(&raw), None), missed(&["0.79 of raw"]));
    assert_eq!(judged(&target, &slow, Some(&raw), Some(&peer)), missed(&["0.79 of raw", "1.98 of GlusterFS"]));
    // It is the median that counts, not a lucky round.
    let once = judged(&target, &figures(&[70.0, 90.0, 75.0]), Some(&figures(&[100.0; 3])), None);
    assert_eq!(once, missed(&["0.75 of raw"]));
    assert_eq!(judged(&Target::default(), &slow, Some(&raw), None), Outcome::NoTarget);
}

#[test]
fn latency_cpu_and_value_have_targets_of_their_own() {
    let (ours, raw) = (figures(&[10.0]), figures(&[20.0]));
    let above = |most| Target { above_raw_us: Some(most), ..Target::default() };
    assert_eq!(judged(&above(50.0), &ours, Some(&raw), None), Outcome::Met);
    assert_eq!(judged(&above(49.0), &ours, Some(&raw), None), Outcome::Missed(vec!["p50 50 us above raw".to_string()]));
    assert_eq!(judged(&above(50.0), &ours, None, None), Outcome::Open(vec!["p50 above raw"]));
    let latency = |most| Target { p50_us: Some(most), ..Target::default() };
    assert_eq!(judged(&latency(100.0), &ours, None, None), Outcome::Met);
    assert_eq!(judged(&latency(99.0), &ours, None, None), Outcome::Missed(vec!["p50 100 us".to_string()]));
    assert_eq!(judged(&latency(99.0), &[Figure::default()], None, None), Outcome::Open(vec!["p50"]));
    let busy = [Figure { daemon_us: 10.1, value: 1.0, ..Figure::default() }];
    let cpu = Target { daemon_us: Some(10.0), ..Target::default() };
    assert_eq!(judged(&cpu, &busy, None, None), Outcome::Missed(vec!["10.1 us of CPU".to_string()]));
    let idle = Target { below: Some(1.0), ..Target::default() };
    assert_eq!(judged(&idle, &busy, None, None), Outcome::Missed(vec!["1.00".to_string()]));
    let least = |least| Target { at_least: Some(least), ..Target::default() };
    assert_eq!(judged(&least(1.1), &busy, None, None), Outcome::Missed(vec!["1.00".to_string()]));
    assert_eq!(judged(&least(1.0), &busy, None, None), Outcome::Met);
}
