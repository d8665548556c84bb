//! The row `fair`: a client of one volume with one request in flight, beside a client of another with many.

use super::brick::Brick;
use crate::flash::figures::median;
use crate::flash::undo::Undo;
use crate::hybrid::report::{Report, Wish};
use crate::verdicts::load::{Load, READ, Said};
use std::path::Path;
use std::time::Duration;

const ROW: &str = "fair";
/// Time until a load is under way: what is done beside it counts from then on.
const BEGUN: Duration = Duration::from_millis(500);
/// Requests that the flood has in flight, and a polite client.
const FLOOD: u32 = 64;
const POLITE: [u32; 3] = [2, 4, 8];

const FLOODS: [(&str, Load); 3] = [
    ("4 KiB reads", READ),
    ("4 KiB writes", Load { pattern: "randwrite", ..READ }),
    ("1 MiB reads", Load { block_bytes: 1 << 20, ..READ }),
];

/// Both at the same time: the small client and the large one.
type Pair = (Said, Said);

/// Measures them, in turns.
pub fn run(brick: &Brick, rounds: u64, seconds: u64, report: &mut Report, undo: &Undo) -> Result<(), String> {
    for (name, flood) in FLOODS {
        let mut alone = Vec::new();
        let mut beside: Vec<Vec<Pair>> = vec![Vec::new(); 1 + POLITE.len()];
        for _ in 0..rounds {
            alone.push(READ.measure(&brick.file(1), seconds, undo)?);
            for (depth, pairs) in [FLOOD].into_iter().chain(POLITE).zip(&mut beside) {
                pairs.push(both(brick, &Load { depth, ..flood }, seconds, undo)?);
            }
        }
        told(name, &alone, &beside, report);
    }
    Ok(())
}

/// Two that want all, by weight and by reservation.
pub fn weights(brick: &Brick, rounds: u64, seconds: u64, report: &mut Report, undo: &Undo) -> Result<(), String> {
    // Each on both CPUs: a volume whose clients use one core shares that one alone.
    let all = Load { jobs: 4, depth: 8, ..READ };
    for (share, wanted) in [(["--weight", "none"], 1.0), (["--weight", "300"], 3.0), (["--reserve", "80"], 4.0)] {
        brick.set(&share)?;
        let (mut ratios, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (one, other) = pair(brick, (&all, &all), seconds, undo)?;
            ratios.push(other.per_second / one.per_second);
            rates.push(other.per_second + one.per_second);
        }
        brick.set(&[share[0], "none"])?;
        report.add("weights", format!("rates, of {wanted}:1"), median(&ratios), "", Wish::LeastIfAlone(wanted * 0.9));
        report.note("weights", format!("both together, of {wanted}:1: {:.0}/s", median(&rates)));
    }
    Ok(())
}

fn both(brick: &Brick, flood: &Load, seconds: u64, undo: &Undo) -> Result<Pair, String> {
    pair(brick, (&READ, flood), seconds, undo)
}

/// A load of the second volume beside one of the first.
fn pair(brick: &Brick, (small, flood): (&Load, &Load), seconds: u64, undo: &Undo) -> Result<Pair, String> {
    beside((flood, &brick.file(0), seconds), undo, || small.measure(&brick.file(1), seconds, undo))
}

/// Does something beside a load of a file, which has begun before and is measured for so many seconds from then on.
pub fn beside<T>(
    (load, file, seconds): (&Load, &Path, u64),
    undo: &Undo,
    during: impl FnOnce() -> Result<T, String>,
) -> Result<(T, Said), String> {
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load.measure_after(BEGUN, file, seconds, undo));
        std::thread::sleep(BEGUN);
        let done = during();
        Ok((done?, load.join().map_err(|_| "a client panicked".to_string())??))
    })
}

fn told(name: &str, alone: &[Said], beside: &[Vec<Pair>], report: &mut Report) {
    let of = |pairs: &[Pair], part: fn(&Pair) -> f64| median(&pairs.iter().map(part).collect::<Vec<_>>());
    let rates: Vec<(f64, f64, f64)> = beside
        .iter()
        .map(|pairs| {
            let (small, large) = (of(pairs, |pair| pair.0.per_second), of(pairs, |pair| pair.1.per_second));
            (small, large, of(pairs, |pair| pair.0.p99_us))
        })
        .collect();
    let own = median(&alone.iter().map(|said| said.per_second).collect::<Vec<_>>());
    report.add(ROW, format!("{name}: the small client alone"), own, "/s", Wish::None);
    for (depth, (small, large, p99)) in [FLOOD].into_iter().chain(POLITE).zip(&rates) {
        report.note(
            ROW,
            format!("{name}, {depth} in flight: {large:.0}/s; the small client {small:.0}/s, p99 {p99:.0} us"),
        );
    }
    // The polite one that the small client does best beside.
    let best = rates[1..].iter().copied().max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
    let (small, large, p99) = rates[0];
    report.add(ROW, format!("{name}: small, of that beside polite"), small / best.0, "", Wish::LeastIfAlone(0.9));
    report.add(ROW, format!("{name}: small p99, of that beside polite"), p99 / best.2, "", Wish::MostIfAlone(1.5));
    report.add(ROW, format!("{name}: large, of polite"), large / best.1, "", Wish::LeastIfAlone(0.95));
}
