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

/// The bands of the operation named `name` within a sample, and `names` of stages in order.
pub fn bands(sample: &[Whole], name: &str, names: &[&str]) -> Vec<Band> {
    let mut all: Vec<&Whole> = sample.iter().filter(|whole| whole.name == name).collect();
    all.sort_by_key(|whole| whole.duration_ns);
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

fn band(name: &str, requests: &[&Whole], names: &[&str]) -> Band {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (stage, ns) in requests.iter().flat_map(|whole| &whole.stages) {
        *sums.entry(stage).or_default() += ns;
    }
    let count = requests.len().max(1) as u64;
    let mean = |name: &&str| sums.get(name).map(|sum| (name.to_string(), sum / count));
    let stages: Vec<_> = names.iter().filter_map(mean).filter(|(_, ns)| *ns > 0).collect();
    let duration_ns = requests.iter().map(|whole| whole.duration_ns).sum::<u64>() / count;
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
    }
}
