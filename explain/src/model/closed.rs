//! Closed networks of queues with a product form, solved exactly by convolution (J. P. Buzen, "Computational algorithms for
//! closed queueing networks with exponential servers", 1973; with stations of any number of servers: M. Reiser and
//! H. Kobayashi, "Queuing networks with multiple closed chains", 1975). It gives what mean value analysis gives (M. Reiser
//! and S. S. Lavenberg, 1980), and stays exact in floating point where a station has several servers.

/// A station: a resource that each request takes for some time.
#[derive(Clone, PartialEq, Debug)]
pub struct Station {
    /// Time for which a request takes it, in all, in microseconds.
    pub demand_us: f64,
    /// Number of requests that it serves at a time; infinite for a delay that is nobody's queue. A disk that is limited to
    /// 1.8 times the rate that one request at a time would reach has 1.8.
    pub servers: f64,
}

impl Station {
    /// A station that serves one request at a time.
    pub fn single(demand_us: f64) -> Station {
        Station { demand_us, servers: 1.0 }
    }
    /// A station with so many servers.
    pub fn with_servers(demand_us: f64, servers: f64) -> Station {
        assert!(servers >= 1.0 && demand_us >= 0.0);
        Station { demand_us, servers }
    }
    /// A time that passes whatever others do.
    pub fn delay(demand_us: f64) -> Station {
        Station { demand_us, servers: f64::INFINITY }
    }
    /// The rate with `present` requests, in multiples of that with one.
    fn speed(&self, present: usize) -> f64 {
        (present as f64).min(self.servers)
    }
}

/// The network's answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Solved {
    /// Requests per second.
    pub per_second: f64,
    /// Mean time of a request, in microseconds.
    pub response_us: f64,
    /// Mean number of requests at each station, those in service included.
    pub present: Vec<f64>,
}

/// Solves the network for `in_flight` requests, each of which is followed by another. At least one station must take time.
pub fn solve(stations: &[Station], in_flight: usize) -> Solved {
    let largest_us = stations.iter().map(|station| station.demand_us).fold(0.0, f64::max);
    assert!(largest_us > 0.0 && in_flight > 0, "something must take time");
    // Demands are taken relative to the largest, so that constants neither vanish nor overflow.
    let weights: Vec<Vec<f64>> = stations.iter().map(|station| weights(station, largest_us, in_flight)).collect();
    let all = convolved(weights.iter(), in_flight);
    let present = (0..stations.len()).map(|at| {
        let others = weights.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, weights)| weights);
        let rest = convolved(others, in_flight);
        (1..=in_flight).map(|count| count as f64 * weights[at][count] * rest[in_flight - count]).sum::<f64>()
            / all[in_flight]
    });
    let present = present.collect();
    let per_us = all[in_flight - 1] / all[in_flight] / largest_us;
    Solved { per_second: per_us * 1e6, response_us: in_flight as f64 / per_us, present }
}

/// The weight of each number of requests at a station.
fn weights(station: &Station, unit_us: f64, in_flight: usize) -> Vec<f64> {
    let mut weights = vec![1.0];
    for present in 1..=in_flight {
        let before = weights[present - 1];
        weights.push(before * station.demand_us / unit_us / station.speed(present));
    }
    weights
}

/// The normalisation constants of a network of stations with these weights, by number of requests.
fn convolved<'a>(weights: impl Iterator<Item = &'a Vec<f64>>, in_flight: usize) -> Vec<f64> {
    let mut all = vec![0.0; in_flight + 1];
    all[0] = 1.0;
    for station in weights {
        let with = |total: usize| (0..=total).map(|here| station[here] * all[total - here]).sum();
        all = (0..=in_flight).map(with).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one / other - 1.0).abs() < 1e-9
    }

    /// Mean value analysis of stations with one server and of delays.
    fn by_mean_values(stations: &[Station], in_flight: usize) -> (f64, Vec<f64>) {
        let mut present = vec![0.0; stations.len()];
        let mut per_us = 0.0;
        for count in 1..=in_flight {
            let is_delay = |station: &Station| station.servers.is_infinite();
            let time = |(station, present): (&Station, &f64)| {
                station.demand_us * if is_delay(station) { 1.0 } else { 1.0 + present }
            };
            let times: Vec<f64> = stations.iter().zip(&present).map(time).collect();
            per_us = count as f64 / times.iter().sum::<f64>();
            present = times.iter().map(|time| time * per_us).collect();
        }
        (per_us * 1e6, present)
    }

    #[test]
    fn it_agrees_with_mean_value_analysis() {
        let stations = [Station::single(5.0), Station::single(8.0), Station::delay(30.0)];
        for in_flight in [1, 2, 7, 64] {
            let (per_second, present) = by_mean_values(&stations, in_flight);
            let solved = solve(&stations, in_flight);
            assert!(near(solved.per_second, per_second), "{in_flight}: {solved:?} {per_second}");
            assert!(
                solved.present.iter().zip(&present).all(|(one, other)| near(*one, *other)),
                "{solved:?} {present:?}"
            );
            assert!(near(solved.present.iter().sum(), in_flight as f64));
        }
    }

    #[test]
    fn one_request_waits_for_nobody_and_many_reach_the_bottlenecks_rate() {
        let stations = [Station::with_servers(20.0, 2.0), Station::single(4.0), Station::delay(26.0)];
        assert!(near(solve(&stations, 1).response_us, 50.0));
        // Two servers of 20 us: 100,000 a second.
        let many = solve(&stations, 200);
        assert!((99_000.0..=100_000.1).contains(&many.per_second), "{many:?}");
        // A station with a server for each request is a delay: nobody queues.
        let wide = [Station::with_servers(20.0, 8.0), Station::single(4.0)];
        let free = [Station::delay(20.0), Station::single(4.0)];
        assert!(near(solve(&wide, 8).per_second, solve(&free, 8).per_second));
    }

    #[test]
    fn two_servers_are_erlangs() {
        // A machine-repair model with two repairers: 3 machines that run for 10 us and take 5 us to repair. By hand, the
        // weights of 0 to 3 broken machines are 1, 3/2, 3/4 and 3/16 (each relative to the running ones).
        let solved = solve(&[Station::delay(10.0), Station::with_servers(5.0, 2.0)], 3);
        let weights = [1.0, 1.5, 0.75, 0.1875];
        let sum: f64 = weights.iter().sum();
        let running: f64 = (0..4).map(|broken| (3 - broken) as f64 * weights[broken] / sum).sum();
        assert!(near(solved.present[0], running), "{solved:?} {running}");
        assert!(near(solved.per_second, running / 10.0 * 1e6));
    }

    #[test]
    fn a_limited_device_has_a_part_of_a_server_more() {
        let rate = |servers| solve(&[Station::with_servers(10.0, servers)], 32).per_second;
        assert!(near(rate(1.0), 100_000.0) && near(rate(1.8), 180_000.0));
    }
}
