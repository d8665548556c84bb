//! Predictions, from measurements at few requests in flight.
//!
//! A design's rate is told relative to the one that it is compared with: the network's rates of the parts of both
//! (`explain::model::parts`). What
//! the network does not know is the same for both then. Our rate over requests in flight is the universal scalability law's.

use super::design::{Design, OURS};
use super::ran::{Kind, Ran};
use explain::model::{Machine, Parts, Usl};
use std::collections::BTreeMap;

/// Requests in flight from which models are made ...
pub const KNOWN: [usize; 3] = [1, 4, 16];
/// ... and for which our rate is predicted.
pub const ASKED: [usize; 3] = [2, 8, 32];
/// Requests in flight of the comparison: 4 jobs at depth 8.
pub const FULL: usize = 32;

/// Measurements by design, kind and requests in flight; one per round.
pub type Runs = BTreeMap<(&'static str, Kind, usize), Vec<Ran>>;

/// All that is predicted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Predictions {
    /// The rate of designs with `FULL` requests in flight, in multiples of the rate of what they are compared with.
    pub designs: BTreeMap<(&'static str, Kind), f64>,
    /// Our rate by requests in flight.
    pub in_flight: BTreeMap<(Kind, usize), f64>,
    /// The parts of which it was made.
    pub parts: BTreeMap<(&'static str, Kind), Parts>,
    /// The laws of which it was made.
    pub laws: BTreeMap<Kind, Usl>,
}

/// The name under which the file system below is measured.
pub const RAW: &str = "raw";

fn known(runs: &Runs, design: &'static str, kind: Kind) -> Vec<(usize, Ran)> {
    let at = |&in_flight: &usize| Some((in_flight, Ran::median(runs.get(&(design, kind, in_flight))?)));
    KNOWN.iter().filter_map(at).collect()
}

/// CPUs, and the device as reads of the file system below show it: its time alone is what a request takes beside CPU time,
/// its limit the highest rate. A write's device time is the log's, whose batches serve any number of writes: a delay.
fn machine(runs: &Runs, kind: Kind, cpus: usize) -> Machine {
    let cpus = cpus as f64;
    let raw = |in_flight: usize| runs.get(&(RAW, kind, in_flight)).map(|all| Ran::median(all));
    let device = match (kind, raw(1), raw(FULL)) {
        (Kind::Read, Some(alone), Some(full)) => {
            let beside_us = 1e6 / alone.per_second - alone.machine_us;
            (beside_us > 0.0).then_some((beside_us, full.per_second))
        }
        _ => None,
    };
    Machine { cpus, device }
}

/// Predicts for these designs. Errors: too little was measured.
pub fn predictions(runs: &Runs, designs: &[Design], cpus: usize) -> Result<Predictions, String> {
    let mut told = Predictions::default();
    for kind in Kind::ALL {
        let machine = machine(runs, kind, cpus);
        let parts = |design: &'static str| {
            let points: Vec<_> = known(runs, design, kind).iter().map(|(count, ran)| ran.point(*count)).collect();
            Parts::of(machine, &points).ok_or_else(|| format!("{design}: no {} was measured", kind.name()))
        };
        for Design { name, beside, .. } in designs {
            let (parts, others) = (parts(name)?, parts(beside)?);
            told.parts.insert((name, kind), parts);
            told.parts.insert((beside, kind), others);
            told.designs.insert((name, kind), parts.rate(FULL) / others.rate(FULL));
        }
        let points: Vec<_> =
            known(runs, OURS, kind).iter().map(|&(count, ran)| (count as f64, ran.per_second)).collect();
        let law = Usl::fit(&points).ok_or("our rate was measured with too few numbers of requests in flight")?;
        told.laws.insert(kind, law);
        told.in_flight.extend(ASKED.map(|in_flight| ((kind, in_flight), law.at(in_flight as f64))));
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is limited by its CPUs: two of them, and `cpu_us` for each request.
    fn measured(runs: &mut Runs, design: &'static str, cpu_us: f64) {
        for kind in Kind::ALL {
            for in_flight in KNOWN.into_iter().chain([FULL]) {
                let per_second = (in_flight as f64 / (cpu_us + 50.0)).min(2.0 / cpu_us) * 1e6;
                let ran = Ran { per_second, machine_us: cpu_us, thread_us: cpu_us / 4.0, ..Ran::default() };
                runs.insert((design, kind, in_flight), vec![ran; 3]);
            }
        }
    }

    fn queue() -> Vec<Design> {
        vec![Design::named("queue").expect("it is one")]
    }

    #[test]
    fn twice_the_cpu_time_gives_half_the_rate_of_a_busy_machine() {
        let mut runs = Runs::new();
        measured(&mut runs, OURS, 20.0);
        measured(&mut runs, "queue", 40.0);
        measured(&mut runs, RAW, 5.0);
        let told = predictions(&runs, &queue(), 2).expect("all was measured");
        let ratio = told.designs[&("queue", Kind::Write)];
        assert!((0.45..0.6).contains(&ratio), "{ratio}");
        assert_eq!(told.in_flight.len(), 6);
        let two = told.in_flight[&(Kind::Read, 2)];
        assert!((14_000.0..40_000.0).contains(&two), "{two}");
        let device = told.parts[&(OURS, Kind::Read)].machine.device;
        assert!(device.is_some_and(|(alone_us, most)| alone_us > 45.0 && most > 100_000.0), "{device:?}");
        assert!(told.parts[&(OURS, Kind::Write)].machine.device.is_none());
    }

    #[test]
    fn what_was_not_measured_is_not_predicted() {
        let mut runs = Runs::new();
        measured(&mut runs, OURS, 20.0);
        assert!(predictions(&runs, &queue(), 2).is_err_and(|error| error.contains("queue: no read")));
        assert!(predictions(&Runs::new(), &[], 2).is_err());
    }
}
