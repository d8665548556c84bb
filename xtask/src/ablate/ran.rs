//! One measurement: fio on the mount, and who used the CPUs meanwhile.

use super::threads::Threads;
use crate::flash::cpu;
use crate::flash::figures::median;
use crate::flash::fio::{Durable, Files, Load};
use crate::flash::measure;
use crate::flash::sides::Side;
use crate::flash::undo::Undo;
use explain::model::Point;
use std::time::{Duration, Instant};

/// fio has begun by then.
const BEGUN: Duration = Duration::from_millis(400);

/// The kind of requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Read,
    Write,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Read, Kind::Write];
    /// The word for people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }
    /// 4 KiB at random past the page cache, with so many requests in flight: of four jobs, as far as there are as many.
    pub fn load(self, in_flight: usize) -> Load {
        let jobs = in_flight.min(4) as u32;
        let pattern = if self == Kind::Read { "randread" } else { "randwrite" };
        let depth = in_flight as u32 / jobs;
        let (durable, files) = (Durable::Some, Files::Laid);
        Load { pattern, block_bytes: 4096, jobs, depth, direct: true, durable, files, again: false }
    }
}

/// The figures of a measurement.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ran {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time per request of the daemon, of everyone, and of the daemon's busiest thread.
    pub daemon_us: f64,
    pub machine_us: f64,
    pub thread_us: f64,
}

impl Ran {
    /// The medians of several, each figure by itself.
    pub fn median(all: &[Ran]) -> Ran {
        let of = |part: fn(&Ran) -> f64| median(&all.iter().map(part).collect::<Vec<_>>());
        Ran {
            per_second: of(|ran| ran.per_second),
            p50_us: of(|ran| ran.p50_us),
            p99_us: of(|ran| ran.p99_us),
            daemon_us: of(|ran| ran.daemon_us),
            machine_us: of(|ran| ran.machine_us),
            thread_us: of(|ran| ran.thread_us),
        }
    }
    /// The figures that models are made of.
    pub fn point(&self, in_flight: usize) -> Point {
        let Ran { per_second, machine_us, thread_us, .. } = *self;
        Point { in_flight, per_second, cpu_us: machine_us, thread_us }
    }
}

/// The CPU time of a part of a run.
struct Spent {
    seconds: f64,
    daemon_us: f64,
    machine_us: f64,
    thread_us: f64,
}

/// Looks at the CPUs from when fio has begun until shortly before it ends.
fn watch(daemons: &[u32], seconds: u64) -> Result<Spent, String> {
    let threads = || daemons.iter().map(|&process| Threads::of(process)).collect::<Result<Vec<_>, _>>();
    std::thread::sleep(BEGUN);
    let (start, began, before) = (Instant::now(), cpu::begin(daemons)?, threads()?);
    std::thread::sleep(Duration::from_secs(seconds) - BEGUN);
    let (after, spent, seconds) = (threads()?, began.end(daemons)?, start.elapsed().as_secs_f64());
    let ran = after.iter().zip(&before).map(|(after, before)| after.since(before));
    let (all, most) = ran.fold((0, 0), |(sum, most), (all, one)| (sum + all, most.max(one)));
    let (daemon_us, thread_us) = (all as f64 / 1e3, most as f64 / 1e3);
    Ok(Spent { seconds, daemon_us, machine_us: spent.machine.as_secs_f64() * 1e6, thread_us })
}

/// Runs requests on a side.
pub fn ran(side: &Side, kind: Kind, in_flight: usize, seconds: u64, seed: u64, undo: &Undo) -> Result<Ran, String> {
    let load = kind.load(in_flight);
    let daemons = side.daemons()?;
    let (said, spent) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&daemons, seconds));
        let said = measure::run(load.command(&side.directory, seconds, seed), undo);
        (said, watching.join().expect("looking does not panic"))
    });
    let (said, spent) = (load.read(&said?)?, spent?);
    let requests = said.operations_per_second * spent.seconds;
    Ok(Ran {
        per_second: said.operations_per_second,
        p50_us: said.p50_us,
        p99_us: said.p99_us,
        daemon_us: spent.daemon_us / requests,
        machine_us: spent.machine_us / requests,
        thread_us: spent.thread_us / requests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_in_flight() {
        for in_flight in [1, 2, 4, 8, 16, 32] {
            let load = Kind::Write.load(in_flight);
            assert_eq!((load.jobs * load.depth, load.pattern), (in_flight as u32, "randwrite"));
        }
    }

    #[test]
    fn a_median_is_of_each_figure() {
        let ran = |per_second, p50_us| Ran { per_second, p50_us, ..Ran::default() };
        let median = Ran::median(&[ran(1.0, 9.0), ran(5.0, 2.0), ran(3.0, 4.0)]);
        assert_eq!((median.per_second, median.p50_us), (3.0, 4.0));
    }

    #[test]
    fn a_watch_sees_this_process_work() {
        let spent = std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&[std::process::id()], 1));
            let mut sum = 0u64;
            while !watching.is_finished() {
                (0..100_000u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
            }
            watching.join().expect("no panic").expect("it runs")
        });
        assert!((0.5..5.0).contains(&spent.seconds) && spent.thread_us > 0.0, "{}", spent.seconds);
        assert!(spent.daemon_us >= spent.thread_us && spent.machine_us > 0.0);
    }
}
