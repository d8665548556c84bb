//! The universal scalability law (N. J. Gunther, "Guerrilla Capacity Planning", 2007): with `n` requests in flight,
//! throughput is `rate1 * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))`. Contention is the share of each request
//! that waits in a line for something shared; crosstalk is what each pair costs, whose part grows until more requests in
//! flight give less.

/// The law, fitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usl {
    /// Requests per second with one in flight.
    pub rate1: f64,
    /// The share of a request that only one can be in.
    pub contention: f64,
    /// The share of a request that each other one adds.
    pub crosstalk: f64,
}

/// The largest number of requests in flight that is considered.
const IN_FLIGHT_MAX: f64 = 1e6;

impl Usl {
    /// Requests per second with so many in flight.
    pub fn at(&self, in_flight: f64) -> f64 {
        let Usl { rate1, contention, crosstalk } = self;
        rate1 * in_flight / (1.0 + contention * (in_flight - 1.0) + crosstalk * in_flight * (in_flight - 1.0))
    }
    /// The number of requests in flight that gives most.
    pub fn peak(&self) -> f64 {
        let peak = ((1.0 - self.contention).max(0.0) / self.crosstalk).sqrt();
        if peak.is_finite() { peak.clamp(1.0, IN_FLIGHT_MAX) } else { IN_FLIGHT_MAX }
    }
    /// Fits the law to points of requests in flight and requests per second. None: less than three different numbers in
    /// flight, or rates that are none.
    ///
    /// The time of a request, `n / rate`, is linear in the unknowns; so its relative errors are made least by linear least
    /// squares. A part that would be negative has no meaning and is left out.
    pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
        let mut numbers: Vec<f64> = points.iter().map(|&(in_flight, _)| in_flight).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let is_good = |&(in_flight, rate): &(f64, f64)| in_flight >= 1.0 && rate > 0.0 && rate.is_finite();
        if numbers.len() < 3 || !points.iter().all(is_good) {
            return None;
        }
        let columns = |in_flight: f64| [1.0, in_flight - 1.0, in_flight * (in_flight - 1.0)];
        let rows: Vec<[f64; 3]> = (points.iter())
            .map(|&(in_flight, rate)| columns(in_flight).map(|column| column * rate / in_flight))
            .collect();
        // The fit with the least error of those that have no negative part.
        let tried = [[true, true], [true, false], [false, true], [false, false]];
        let fits = tried.iter().filter_map(|&[contention, crosstalk]| least(&rows, [true, contention, crosstalk]));
        let error = |fit: &[f64; 3]| {
            let of_row =
                |row: &[f64; 3]| (row.iter().zip(fit).map(|(one, other)| one * other).sum::<f64>() - 1.0).powi(2);
            rows.iter().map(of_row).sum::<f64>()
        };
        let meant = fits.filter(|fit| fit[0] > 0.0 && fit[1] >= 0.0 && fit[2] >= 0.0);
        let [alone, contention, crosstalk] = meant.min_by(|one, other| error(one).total_cmp(&error(other)))?;
        Some(Usl { rate1: 1.0 / alone, contention: contention / alone, crosstalk: crosstalk / alone })
    }
}

/// Least squares of `rows * unknowns = 1`, with only the unknowns that are free; the others are zero. None: they are not
/// determined.
fn least(rows: &[[f64; 3]], free: [bool; 3]) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for (at, line) in matrix.iter_mut().enumerate() {
        if !free[at] {
            line[at] = 1.0;
            continue;
        }
        for (other, cell) in line[..3].iter_mut().enumerate().filter(|&(other, _)| free[other]) {
            *cell = rows.iter().map(|row| row[at] * row[other]).sum();
        }
        line[3] = rows.iter().map(|row| row[at]).sum();
    }
    // Gauss's elimination, with the largest pivot.
    for at in 0..3 {
        let pivot = (at..3).max_by(|&one, &other| matrix[one][at].abs().total_cmp(&matrix[other][at].abs()))?;
        matrix.swap(at, pivot);
        if matrix[at][at].abs() < 1e-12 {
            return None;
        }
        for line in at + 1..3 {
            let factor = matrix[line][at] / matrix[at][at];
            (at..4).for_each(|column| matrix[line][column] -= factor * matrix[at][column]);
        }
    }
    let mut unknowns = [0.0; 3];
    for at in (0..3).rev() {
        let known: f64 = (at + 1..3).map(|other| matrix[at][other] * unknowns[other]).sum();
        unknowns[at] = (matrix[at][3] - known) / matrix[at][at];
    }
    Some(unknowns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(law: &Usl, numbers: &[f64]) -> Vec<(f64, f64)> {
        numbers.iter().map(|&number| (number, law.at(number))).collect()
    }

    #[test]
    fn a_law_is_found_again() {
        for (contention, crosstalk) in [(0.1, 0.002), (0.3, 0.0), (0.0, 0.001), (0.0, 0.0)] {
            let law = Usl { rate1: 15_000.0, contention, crosstalk };
            let fit = Usl::fit(&points(&law, &[1.0, 4.0, 16.0, 32.0])).expect("enough points");
            for number in [1.0, 2.0, 8.0, 64.0] {
                assert!((fit.at(number) / law.at(number) - 1.0).abs() < 1e-6, "{law:?} {fit:?} {number}");
            }
            assert!((fit.contention - contention).abs() < 1e-6 && (fit.crosstalk - crosstalk).abs() < 1e-6, "{fit:?}");
        }
    }

    #[test]
    fn parts_are_never_negative() {
        // Faster than linear: batches form. The law has no such thing, and says linear.
        let fit = Usl::fit(&[(1.0, 100.0), (2.0, 250.0), (4.0, 600.0)]).expect("enough points");
        assert!(fit.contention >= 0.0 && fit.crosstalk >= 0.0 && fit.rate1 > 100.0, "{fit:?}");
        assert_eq!(fit.peak(), IN_FLIGHT_MAX);
    }

    #[test]
    fn more_than_the_peak_gives_less() {
        let law = Usl { rate1: 1000.0, contention: 0.05, crosstalk: 0.01 };
        let peak = law.peak();
        assert!((9.7..9.8).contains(&peak), "{peak}");
        assert!(law.at(peak) > law.at(peak - 2.0) && law.at(peak) > law.at(peak + 2.0));
    }

    #[test]
    fn too_little_is_no_fit() {
        assert_eq!(Usl::fit(&[(1.0, 10.0), (2.0, 18.0), (2.0, 19.0)]), None);
        assert_eq!(Usl::fit(&[(1.0, 10.0), (2.0, 0.0), (4.0, 19.0)]), None);
        assert_eq!(Usl::fit(&[(0.0, 10.0), (2.0, 5.0), (4.0, 19.0)]), None);
    }
}
