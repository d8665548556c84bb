//! Medians, ratios of rounds, and whether a target is met.

/// One measurement of one row on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The value in the row's unit.
    pub value: f64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// CPU time of the side's daemons per operation.
    pub daemon_us: f64,
    /// CPU time of the whole machine per operation.
    pub machine_us: f64,
    /// The share of CPU time that the host of a virtual machine took.
    pub stolen: f64,
}

/// The targets of Sinter in a row; `None`: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Target {
    /// Least share of the file system's rate.
    pub of_raw: Option<f64>,
    /// Least multiple of the peer's rate.
    pub of_peer: Option<f64>,
    /// The median latency at most so much above the file system's.
    pub above_raw_us: Option<f64>,
    /// The median latency itself, at most.
    pub p50_us: Option<f64>,
    /// CPU time of the daemons per operation, at most.
    pub daemon_us: Option<f64>,
    /// The value itself must be less.
    pub below: Option<f64>,
    /// The value itself must not be less.
    pub at_least: Option<f64>,
}

/// The chance that an interval holds the true median.
const CONFIDENCE: f64 = 0.95;

/// Ratios of rounds: their median, and the interval in which the sign test finds the true one (W. R. Thompson, "On confidence
/// ranges for the median", 1936). Of less than six rounds it is all there is between the least and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "a row is measured at least once");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The median of one part of all rounds' figures.
pub fn median_of(figures: &[Figure], part: impl Fn(&Figure) -> f64) -> f64 {
    median(&figures.iter().map(part).collect::<Vec<_>>())
}

/// The median of the latencies, if there are any.
pub fn p50_us(figures: &[Figure]) -> Option<f64> {
    let all: Vec<f64> = figures.iter().filter_map(|figure| figure.p50_us).collect();
    (!all.is_empty()).then(|| median(&all))
}

/// Ours to theirs, round by round: what the device did in a round, it did to both.
pub fn ratio(ours: &[Figure], theirs: &[Figure]) -> Option<Ratio> {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(our, their)| our.value / their.value).collect();
    if ratios.is_empty() {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let outside = outside(ratios.len());
    Some(Ratio { median: median(&ratios), low: ratios[outside], high: ratios[ratios.len() - 1 - outside] })
}

/// Number of `count` ratios that lie below the interval, and as many above. It is the largest for which the chance is
/// small that only so few fell on one side of the true median.
fn outside(count: usize) -> usize {
    let (mut ways, mut sum) = (1.0, 0.0);
    let mut outside = 0;
    for fewer in 0..count {
        sum += ways;
        ways *= (count - fewer) as f64 / (fewer + 1) as f64;
        // On either side.
        if 2.0 * sum / 2f64.powi(count as i32) > 1.0 - CONFIDENCE {
            break;
        }
        outside = fewer;
    }
    outside
}

/// The outcome of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    NoTarget,
    Met,
    /// The missed parts of the target.
    Missed(Vec<String>),
    /// Nothing was missed, but this was not measured.
    Open(Vec<&'static str>),
}

/// Holds figures against a target; `raw` and `peer` are those that were measured.
pub fn judged(target: &Target, ours: &[Figure], raw: Option<&[Figure]>, peer: Option<&[Figure]>) -> Outcome {
    if *target == Target::default() {
        return Outcome::NoTarget;
    }
    let (mut missed, mut open) = (Vec::new(), Vec::new());
    for (least, theirs, name) in [(target.of_raw, raw, "raw"), (target.of_peer, peer, "GlusterFS")] {
        let Some(least) = least else { continue };
        match theirs.and_then(|theirs| ratio(ours, theirs)) {
            Some(ratio) if ratio.median < least => missed.push(format!("{:.2} of {name}", ratio.median)),
            Some(_) => {}
            None => open.push(name),
        }
    }
    if let Some(most) = target.above_raw_us {
        let pairs = raw.map(|raw| ours.iter().zip(raw)).into_iter().flatten();
        let above: Vec<f64> = pairs.filter_map(|(our, raw)| Some(our.p50_us? - raw.p50_us?)).collect();
        if above.is_empty() {
            open.push("p50 above raw");
        } else if median(&above) > most {
            missed.push(format!("p50 {:.0} us above raw", median(&above)));
        }
    }
    if let Some(most) = target.p50_us {
        match p50_us(ours) {
            Some(p50) if p50 > most => missed.push(format!("p50 {p50:.0} us")),
            Some(_) => {}
            None => open.push("p50"),
        }
    }
    let daemon_us = median_of(ours, |figure| figure.daemon_us);
    if target.daemon_us.is_some_and(|most| daemon_us > most) {
        missed.push(format!("{daemon_us:.1} us of CPU"));
    }
    let value = median_of(ours, |figure| figure.value);
    if target.below.is_some_and(|most| value >= most) || target.at_least.is_some_and(|least| value < least) {
        missed.push(format!("{value:.2}"));
    }
    match (missed.is_empty(), open.is_empty()) {
        (false, _) => Outcome::Missed(missed),
        (true, true) => Outcome::Met,
        (true, false) => Outcome::Open(open),
    }
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
