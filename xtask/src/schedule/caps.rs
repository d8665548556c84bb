//! The row `caps`: what passes under a volume's limits, by fio's log of single requests.

use super::brick::Brick;
use crate::flash::ground::Ground;
use crate::flash::undo::Undo;
use crate::hybrid::load::Clients;
use crate::hybrid::report::{Report, Wish};
use crate::verdicts::load::{Load, READ};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ROW: &str = "caps";
/// Seconds that are looked at.
const SECONDS: u64 = 10;
/// Time until a load is under way, and the burst that it begins with is over.
const BEGUN: Duration = Duration::from_secs(2);
/// Time within which a limit that is set under load must hold.
const ACTS_WITHIN: Duration = Duration::from_secs(1);

/// A limit and the load that would exceed it.
struct Cap {
    option: &'static str,
    value: &'static str,
    /// Requests per second that it lets pass.
    rate: f64,
    load: Load,
}

const CAPS: [Cap; 5] = [
    Cap { option: "--iops-max", value: "1000", rate: 1000.0, load: Load { depth: 8, ..READ } },
    Cap { option: "--iops-max", value: "1000", rate: 1000.0, load: READ },
    Cap { option: "--iops-max", value: "8000", rate: 8000.0, load: Load { depth: 16, ..READ } },
    Cap {
        option: "--read-bandwidth-max",
        value: "100M",
        rate: 800.0,
        load: Load { block_bytes: 128 << 10, depth: 8, ..READ },
    },
    Cap {
        option: "--write-bandwidth-max",
        value: "50M",
        rate: 50.0,
        load: Load { pattern: "randwrite", block_bytes: 1 << 20, depth: 4, ..READ },
    },
];

/// Measures them.
pub fn run(brick: &Brick, ground: &Ground, report: &mut Report, undo: &Undo) -> Result<(), String> {
    for Cap { option, value, rate, load } in &CAPS {
        brick.set(&[option, value])?;
        let clients = Clients::start(load, &brick.file(0), &ground.root, ROW, undo)?;
        std::thread::sleep(BEGUN);
        let from = now_ms();
        std::thread::sleep(Duration::from_secs(SECONDS));
        let ends = clients.ends_ms(undo)?;
        brick.set(&[option, "none"])?;
        let name = |what: &str| format!("{} {value}, depth {}: {what}", &option[2..], load.depth);
        let off = |range: Range<u64>| (per_second(&ends, range) / rate - 1.0).abs();
        let most = (0..SECONDS).map(|second| off(from + second * 1000..from + (second + 1) * 1000)).fold(0.0, f64::max);
        report.add(ROW, name("off over 10 s"), off(from..from + SECONDS * 1000), "", Wish::MostIfAlone(0.02));
        report.add(ROW, name("off in a second, most"), most, "", Wish::MostIfAlone(0.1));
        let wish = if *rate == 1000.0 { Wish::MostIfAlone(20.0) } else { Wish::None };
        report.add(ROW, name("longest gap"), longest_gap(&ends, from..from + SECONDS * 1000), "ms", wish);
    }
    let clients = Clients::start(&Load { depth: 8, ..READ }, &brick.file(0), &ground.root, ROW, undo)?;
    std::thread::sleep(BEGUN);
    brick.set(&["--iops-max", "1000"])?;
    let from = now_ms() + ACTS_WITHIN.as_millis() as u64;
    std::thread::sleep(ACTS_WITHIN + Duration::from_secs(1));
    let ends = clients.ends_ms(undo)?;
    brick.set(&["--iops-max", "none"])?;
    let free = per_second(&ends, from - 3000..from - 2000);
    report.add(ROW, "before a limit of 1000 is set", free, "/s", Wish::None);
    report.add(ROW, "from 1 s after that", per_second(&ends, from..from + 1000), "/s", Wish::MostIfAlone(1100.0));
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Requests per second that ended in a range of milliseconds.
fn per_second(ends: &[u64], range: Range<u64>) -> f64 {
    let count = ends.iter().filter(|end| range.contains(end)).count();
    count as f64 * 1000.0 / (range.end - range.start) as f64
}

/// The longest time in a range in which no request ended, in milliseconds.
fn longest_gap(ends: &[u64], range: Range<u64>) -> f64 {
    let within: Vec<u64> = ends.iter().copied().filter(|end| range.contains(end)).collect();
    let bounds = [&[range.start], within.as_slice(), &[range.end]].concat();
    bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::seconds::request;

    #[test]
    fn rates_and_gaps_are_counted() {
        let lines = ["1000, 5, 0, 4096, 0, 0", "1010, 5, 0, 4096", "1990, 5"];
        let ends = lines.map(|line| request(line).expect("a line").0);
        assert_eq!((per_second(&ends, 1000..2000), per_second(&ends, 1000..1500)), (3.0, 4.0));
        assert_eq!((longest_gap(&ends, 1000..2000), longest_gap(&ends, 2000..2500)), (980.0, 500.0));
        assert!(request("fio: killed").is_err());
    }
}
