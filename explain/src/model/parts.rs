//! The demands of a request on each resource, from measurements at few requests in flight; and the rate at many, by a closed
//! network of these resources.
//!
//! Two things are added to the textbook's network. CPU time per request falls with requests in flight, since whoever is awake
//! is not woken: a part of it is divided by their number. And what no resource explains is a delay: it is chosen so that the
//! network gives the measured rate at the most requests in flight that were measured.

use super::closed::{Station, solve};

/// The resources, as far as they are known before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// CPUs that daemon, kernel and clients share.
    pub cpus: f64,
    /// The device: the time of one transfer while there is no other, in microseconds, and the most transfers per second.
    /// None: its time is one of the delays, because a transfer serves any number of requests (a log's batches).
    pub device: Option<(f64, f64)>,
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests per second.
    pub per_second: f64,
    /// CPU time per request of everyone, in microseconds.
    pub cpu_us: f64,
    /// CPU time per request of the daemon's busiest thread: a request can't pass it while another one does.
    pub thread_us: f64,
}

/// A demand that falls with requests in flight.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    /// The part that stays, in microseconds.
    pub each_us: f64,
    /// The part that those in flight share.
    pub shared_us: f64,
}

impl Demand {
    /// The demand with so many in flight.
    pub fn at(&self, in_flight: usize) -> f64 {
        self.each_us + self.shared_us / in_flight as f64
    }
    /// A fit by least squares over the points; without a shared part if that would be negative, or is not determined.
    fn fit(points: &[Point], of: impl Fn(&Point) -> f64) -> Demand {
        let count = points.len() as f64;
        let mean = |value: &dyn Fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / count;
        let inverse = |point: &Point| 1.0 / point.in_flight as f64;
        let (mean_inverse, mean_us) = (mean(&inverse), mean(&of));
        let spread = mean(&|point| (inverse(point) - mean_inverse).powi(2));
        let both = mean(&|point| (inverse(point) - mean_inverse) * (of(point) - mean_us));
        let shared_us = if spread > 0.0 { (both / spread).max(0.0) } else { 0.0 };
        // No request costs less than nothing.
        let each_us = (mean_us - shared_us * mean_inverse).max(0.0);
        Demand { each_us, shared_us }
    }
    /// The demand, so many times as large.
    pub fn times(self, factor: f64) -> Demand {
        Demand { each_us: self.each_us * factor, shared_us: self.shared_us * factor }
    }
}

/// The parts of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parts {
    /// The resources.
    pub machine: Machine,
    /// CPU time of everyone.
    pub cpu: Demand,
    /// CPU time of the busiest thread; a part of the former.
    pub thread: Demand,
    /// Time that no resource explains, in microseconds.
    pub delay_us: f64,
    /// The measured rate in multiples of the network's without any delay, if that is more than 1.
    pub excess: f64,
}

/// Steps of the search for the delay: each halves what is left.
const STEPS: usize = 60;

impl Parts {
    /// The parts behind measurements. None without a usable one.
    pub fn of(machine: Machine, points: &[Point]) -> Option<Parts> {
        let is_good = |point: &&Point| point.in_flight > 0 && point.per_second > 0.0 && point.cpu_us > 0.0;
        let points: Vec<Point> = points.iter().filter(is_good).copied().collect();
        let most = points.iter().max_by_key(|point| point.in_flight)?;
        let cpu = Demand::fit(&points, |point| point.cpu_us);
        let thread = Demand::fit(&points, |point| point.thread_us.min(point.cpu_us));
        let parts = Parts { machine, cpu, thread, delay_us: 0.0, excess: 1.0 };
        let without = parts.rate(most.in_flight);
        if without <= most.per_second {
            return Some(Parts { excess: most.per_second / without, ..parts });
        }
        let (mut low, mut high) = (0.0, most.in_flight as f64 / most.per_second * 1e6);
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            let is_slower = Parts { delay_us: middle, ..parts }.rate(most.in_flight) < most.per_second;
            if is_slower { high = middle } else { low = middle }
        }
        Some(Parts { delay_us: (low + high) / 2.0, ..parts })
    }
    /// Requests per second with so many in flight.
    pub fn rate(&self, in_flight: usize) -> f64 {
        let Machine { cpus, device } = self.machine;
        let cpu_us = self.cpu.at(in_flight);
        let thread_us = self.thread.at(in_flight).min(cpu_us);
        let mut stations = vec![Station::single(thread_us), Station::with_servers(cpu_us - thread_us, cpus)];
        stations.push(Station::delay(self.delay_us));
        stations.extend(device.map(|(alone_us, most)| limited(alone_us, most)));
        // The thread runs on one of the CPUs, which the network does not know.
        let most = cpus / cpu_us * 1e6;
        self.excess * solve(&stations, in_flight).per_second.min(most)
    }
    /// The same with another demand for CPU time.
    pub fn with_cpu(self, factor: f64) -> Parts {
        Parts { cpu: self.cpu.times(factor), thread: self.thread.times(factor), ..self }
    }
    /// The same on a device that takes `factor` times as long. Without a known device, the delay is its.
    pub fn with_device(self, factor: f64) -> Parts {
        match self.machine.device {
            Some((alone_us, most)) => {
                let device = Some((alone_us * factor, most / factor));
                Parts { machine: Machine { device, ..self.machine }, ..self }
            }
            None => Parts { delay_us: self.delay_us * factor, ..self },
        }
    }
}

/// A device that takes `alone_us` for one transfer and gives `most` per second.
fn limited(alone_us: f64, most: f64) -> Station {
    let servers = alone_us * most / 1e6;
    if servers >= 1.0 { Station::with_servers(alone_us, servers) } else { Station::single(1e6 / most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { cpus: 2.0, device: Some((25.0, 80_000.0)) };
    const TRUE: Parts = Parts {
        machine: MACHINE,
        cpu: Demand { each_us: 20.0, shared_us: 16.0 },
        thread: Demand { each_us: 4.0, shared_us: 2.0 },
        delay_us: 9.0,
        excess: 1.0,
    };

    fn measured(parts: &Parts, in_flight: usize) -> Point {
        let (cpu_us, thread_us) = (parts.cpu.at(in_flight), parts.thread.at(in_flight));
        Point { in_flight, per_second: parts.rate(in_flight), cpu_us, thread_us }
    }

    #[test]
    fn two_points_tell_all_others() {
        for (machine, delay_us) in [(MACHINE, 9.0), (Machine { device: None, ..MACHINE }, 80.0)] {
            let real = Parts { machine, delay_us, ..TRUE };
            let parts = Parts::of(machine, &[measured(&real, 1), measured(&real, 8)]).expect("two points");
            for in_flight in [1, 2, 8, 32, 64] {
                let (told, is) = (parts.rate(in_flight), real.rate(in_flight));
                assert!((told / is - 1.0).abs() < 1e-6, "{in_flight}: {told} {is} {parts:?}");
            }
        }
    }

    #[test]
    fn what_is_changed_is_told() {
        let rate = |parts: Parts| parts.rate(32);
        let now = rate(TRUE);
        // The device's limit is near: half its time gives much, half the CPU time little.
        assert!(rate(TRUE.with_device(0.5)) > 1.2 * now && rate(TRUE.with_cpu(0.5)) < 1.2 * now);
        // One thread for all requests is the limit, whatever the CPUs can do.
        let narrow = Parts { thread: Demand { each_us: 20.0, shared_us: 0.0 }, ..TRUE };
        assert!((45_000.0..50_000.0).contains(&rate(narrow)), "{}", rate(narrow));
        let delayed = Parts { machine: Machine { device: None, ..MACHINE }, delay_us: 1000.0, ..TRUE };
        assert!(rate(delayed.with_device(0.5)) > 1.8 * rate(delayed));
    }

    #[test]
    fn more_than_the_network_allows_is_an_excess() {
        let point = Point { in_flight: 8, per_second: 200_000.0, cpu_us: 20.0, thread_us: 3.0 };
        let parts = Parts::of(MACHINE, &[point]).expect("a point");
        assert!(parts.excess > 1.0 && (parts.rate(8) / 200_000.0 - 1.0).abs() < 1e-9);
        assert_eq!(parts.cpu, Demand { each_us: 20.0, shared_us: 0.0 });
    }

    #[test]
    fn nothing_measured_is_no_model() {
        assert_eq!(Parts::of(MACHINE, &[]), None);
        let nothing = Point { in_flight: 8, per_second: 0.0, cpu_us: 0.0, thread_us: 0.0 };
        assert_eq!(Parts::of(MACHINE, &[nothing]), None);
    }
}
