//! The stages in which requests of an operation spend their time, at the mean, the median, the 99th percentile and the slowest. Each is
//! the mean of whole requests of that band, so its stages add up to it.

use crate::snapshot::Whole;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shares of the sample, ordered by duration, from which the bands are taken.
const BANDS: [(&str, f64, f64); 3] = [("mean", 0.0, 1.0), ("p50", 0.45, 0.55), ("p99", 0.985, 0.995)];

/// A band of an operation's requests.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Band {
    /// `mean`, `p50`, `p99` or `max`.
    pub name: String,
    /// Number of whole requests that it is the mean of.
    pub requests: u64,
    /// Their mean duration.
    pub duration_ns: u64,
    /// The stages with their mean times, in the order in which requests meet them.
    pub stages: Vec<(String, u64)>,
}

/// The stages before and behind the daemon's, where the kernel was asked.
pub const SENT: &str = "sent";
/// See `SENT`.
pub const RETURNED: &str = "returned";

/// The bands of the operation named `name` within a sample, and `names` of stages in order. With the ways through the kernel, if it told those
/// of most requests: then of these requests alone.
pub fn bands(sample: &[Whole], name: &str, names: &[&str]) -> Vec<Band> {
    let mut all: Vec<&Whole> = sample.iter().filter(|whole| whole.name == name).collect();
    if has_ways(all.iter().copied()) {
        all.retain(|whole| whole.way.is_some());
    }
    all.sort_by_key(|whole| whole.whole_ns());
    if all.is_empty() {
        return Vec::new();
    }
    let part = |from: f64, to: f64| {
        let place = |share: f64| (share * (all.len() - 1) as f64).round() as usize;
        &all[place(from)..=place(to)]
    };
    let mut bands: Vec<Band> = BANDS.iter().map(|(name, from, to)| band(name, part(*from, *to), names)).collect();
    bands.push(band("max", &all[all.len() - 1..], names));
    bands
}

/// True if the kernel told the ways of most of these requests.
pub fn has_ways<'a>(sample: impl Iterator<Item = &'a Whole>) -> bool {
    let (mut known, mut all) = (0, 0);
    sample.for_each(|whole| (known, all) = (known + usize::from(whole.way.is_some()), all + 1));
    2 * known > all
}

fn band(name: &str, requests: &[&Whole], names: &[&str]) -> Band {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (stage, ns) in requests.iter().flat_map(|whole| &whole.stages) {
        *sums.entry(stage).or_default() += ns;
    }
    for way in requests.iter().filter_map(|whole| whole.way) {
        *sums.entry(SENT).or_default() += way.there_ns;
        *sums.entry(RETURNED).or_default() += way.back_ns;
    }
    let count = requests.len().max(1) as u64;
    let mean = |name: &&str| sums.get(name).map(|sum| (name.to_string(), sum / count));
    let names = std::iter::once(&SENT).chain(names).chain([&RETURNED]);
    let stages: Vec<_> = names.filter_map(mean).filter(|(_, ns)| *ns > 0).collect();
    let duration_ns = requests.iter().map(|whole| whole.whole_ns()).sum::<u64>() / count;
    Band { name: name.to_string(), requests: requests.len() as u64, duration_ns, stages }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_band_adds_up() {
        let whole = |number: u64| Whole {
            name: "read".into(),
            duration_ns: 10 + number * 3,
            stages: vec![("order".into(), 10), ("read".into(), number * 3)],
            ..Whole::default()
        };
        let mut sample: Vec<Whole> = (0..1000).map(|number| whole((number * 7919) % 1000)).collect();
        sample.push(Whole { name: "write".into(), duration_ns: 1 << 40, ..Whole::default() });
        let bands = bands(&sample, "read", &["read", "order", "flush"]);
        let told: Vec<_> = bands.iter().map(|band| (&*band.name, band.duration_ns)).collect();
        assert_eq!(told, [("mean", 1508), ("p50", 1508), ("p99", 2977), ("max", 3007)]);
        for band in &bands {
            let sum: u64 = band.stages.iter().map(|(_, ns)| ns).sum();
            assert!(sum.abs_diff(band.duration_ns) <= 1, "{band:?}");
            assert_eq!((&*band.stages[0].0, band.stages.len()), ("read", 2));
        }
        assert!(super::bands(&sample, "fsync", &[]).is_empty());
        // The kernel told most ways: bands are of those, and add up with them.
        for whole in sample.iter_mut().skip(300) {
            whole.way = Some(crate::snapshot::Way { there_ns: 5, back_ns: 7 });
        }
        let with = super::bands(&sample, "read", &["read", "order"]);
        assert_eq!(with[0].requests, 700);
        for band in &with {
            let sum: u64 = band.stages.iter().map(|(_, ns)| ns).sum();
            assert!(sum.abs_diff(band.duration_ns) <= 2, "{band:?}");
            assert_eq!((band.stages[0].clone(), band.stages[3].clone()), ((SENT.into(), 5), (RETURNED.into(), 7)));
        }
    }
}
