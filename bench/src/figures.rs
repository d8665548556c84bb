//! Medians and percentiles of few samples.

/// The value below which `share` (0..=1) of the samples lie; 0 without samples. Sorts them.
pub fn percentile(samples: &mut [u64], share: f64) -> u64 {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    samples.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}

/// The middle sample; NaN without samples.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_ends() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        let mut samples: Vec<u64> = (0..=100).rev().collect();
        assert_eq!((percentile(&mut samples, 0.5), percentile(&mut samples, 0.99)), (50, 99));
        assert_eq!(percentile(&mut [], 0.5), 0);
    }
}
