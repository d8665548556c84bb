//! `sinter explain --sweep FILE`: reads a file with more and more requests in flight, and tells what a change would bring.
//!
//! Promises: nothing is written; it stops when others' requests take twice as long.

use super::bench::watch_signals;
use super::snapshots::{self, look};
use super::{print, print_json};
use crate::admin::client::Client;
use crate::bench::engine::{BLOCK_BYTES, Course, Measured, Step as Done, Worker, random_bytes, run as work};
use crate::bench::report::Progress;
use crate::cli::Explain;
use crate::failure::{Exit, Failure};
use crate::proc::cpu_ticks;
use crate::table::{Align, Table, count};
use explain::sweep::{Client as Seen, Step, Sweep, is_too_much, others_p99_us, swept};
use explain::{Snapshot, Window};
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Numbers of requests in flight.
const NUMBERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Least blocks of a file: two requests of many should seldom be for the same.
const BLOCKS_MIN: u64 = 256;
/// Time of reads that teach the daemon where the file's blocks lie, and of the look at others before.
const BEFORE: Duration = Duration::from_secs(1);
/// Share of the CPUs that others may take before, for figures that mean something.
const OTHERS_MAX: f64 = 0.2;
/// Microseconds of a tick in /proc/stat (USER_HZ is 100 on every Linux).
const TICK_US: f64 = 10_000.0;

/// The file, and the daemon that serves it.
struct Ground<'a> {
    path: &'a Path,
    blocks: u64,
    ino: u64,
    client: Client,
}

/// Sweeps, and tells what was seen.
pub fn run(options: &Explain, data: &Path, path: &Path) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("can't read {}", path.display()), &error);
    let metadata = open(path).and_then(|file| file.metadata()).map_err(failed)?;
    let blocks = metadata.len() / BLOCK_BYTES;
    if !metadata.is_file() || blocks < BLOCKS_MIN {
        let failure = Failure::new(Exit::Usage, format!("{} is no file of a MiB or more", path.display()));
        return Err(failure.next("give a file of a mount of the brick, best one that is larger than its memory"));
    }
    let mut ground = Ground { path, blocks, ino: metadata.ino(), client: Client::need(data)? };
    let course = &mut Course::new(Progress::new(), watch_signals()?);
    let (steps, others) = ground.steps(Duration::from_secs(options.seconds), course)?;
    course.end();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let sweep = swept(steps, (cpus - others).max(1.0)).ok_or_else(|| {
        let failure = Failure::new(Exit::Failed, "no request was measured");
        failure.next("let it run for longer")
    })?;
    if others > cpus * OTHERS_MAX {
        course.note(format!("others took {others:.1} of {cpus} CPUs before: sweep again when they rest"));
    }
    course.take_notes().iter().for_each(|note| eprintln!("note: {note}"));
    if options.json {
        print_json(&sweep)?
    } else {
        print(&told(&sweep))?
    }
    Ok(if course.is_interrupted() { Exit::Failed } else { Exit::Done })
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// A moment, from which the work of the machine's CPUs is counted, whoever it is for.
struct Began {
    at: Instant,
    ticks: u64,
}

impl Began {
    fn now() -> Began {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Began { at: Instant::now(), ticks: cpu_ticks(&stat).map_or(0, |ticks| ticks.busy) }
    }
    /// Microseconds of work since then, and how many passed.
    fn worked_us(&self) -> (f64, f64) {
        let ticks = Began::now().ticks.saturating_sub(self.ticks);
        (ticks as f64 * TICK_US, self.at.elapsed().as_secs_f64() * 1e6)
    }
}

impl Ground<'_> {
    /// The steps, and the number of CPUs that were busy with something else before.
    fn steps(&mut self, time: Duration, course: &mut Course) -> Result<(Vec<Step>, f64), Failure> {
        self.read(NUMBERS[3], BEFORE, course)?;
        course.begin("others alone");
        let (before, began) = (look(&mut self.client, 0)?, Began::now());
        std::thread::sleep(BEFORE);
        let ((worked_us, passed_us), alone) = (began.worked_us(), self.window(&before)?);
        let others = worked_us / passed_us;
        let others_us = others_p99_us(&alone, self.ino);
        let mut steps = Vec::new();
        for in_flight in NUMBERS {
            course.begin(&format!("{in_flight} in flight"));
            let (before, began) = (look(&mut self.client, 0)?, Began::now());
            let measured = self.read(in_flight, time, course)?;
            let (worked_us, passed_us) = began.worked_us();
            let window = self.window(&before)?;
            if course.is_interrupted() || measured.latency.count() == 0 {
                break;
            }
            let latency = &measured.latency;
            let us = |ns: u64| ns as f64 / 1e3;
            let seen = Seen {
                in_flight,
                per_second: measured.per_second(),
                mean_us: us(latency.mean_ns()),
                p99_us: us(latency.quantile_ns(0.99)),
                // The clock's grain is a tick.
                cpu_us: (worked_us - others * passed_us).max(TICK_US) / latency.count() as f64,
            };
            let step = Step::of(seen, &window, self.ino).ok_or_else(|| {
                let elsewhere = format!("{} is not read through this brick's daemon", self.path.display());
                Failure::new(Exit::Usage, elsewhere).next("give a file of a mount of the brick")
            })?;
            let too_much = is_too_much(others_us, &step);
            steps.push(step);
            if too_much {
                break;
            }
        }
        Ok((steps, others))
    }
    fn window(&mut self, before: &Snapshot) -> Result<Window, Failure> {
        snapshots::window(before, &look(&mut self.client, 0)?)
    }
    /// Reads blocks at random, so many at a time.
    fn read(&self, in_flight: usize, time: Duration, course: &mut Course) -> Result<Measured, Failure> {
        let workers = (0..in_flight as u64).map(|number| self.worker(number)).collect::<std::io::Result<Vec<_>>>();
        let failed = |error: std::io::Error| Failure::io(format!("can't read {}", self.path.display()), &error);
        work(workers.map_err(failed)?, time, course).map_err(failed)
    }
    fn worker(&self, number: u64) -> std::io::Result<Worker> {
        let (file, blocks) = (open(self.path)?, self.blocks);
        let (mut buffer, mut random) = (random_bytes(BLOCK_BYTES as usize, 0)?, SplitMix(number));
        Ok(Box::new(move || {
            file.read_exact_at(&mut buffer, random.below(blocks) * BLOCK_BYTES)?;
            Ok(Done::Done(BLOCK_BYTES))
        }))
    }
}

fn told(sweep: &Sweep) -> String {
    let heads = ["in flight", "reads/s", "mean us", "p99 us", "CPU us", "core us", "transfers", "device us", "lock us"];
    let heads = heads.into_iter().chain(["others' p99 us", "model"]);
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)).collect::<Vec<_>>());
    for step in &sweep.steps {
        let figure = |value: f64| format!("{value:.1}");
        let mut row = vec![step.in_flight.to_string(), count(step.per_second as u64)];
        row.extend([step.mean_us, step.p99_us, step.cpu_us, step.core_us].map(figure));
        row.extend([format!("{:.2}", step.transfers), figure(step.device_us), figure(step.lock_us)]);
        row.push(step.others_p99_us.map_or_else(|| "-".to_string(), figure));
        row.push(count(step.modelled as u64));
        table.row(row);
    }
    let mut text = table.render();
    let last = sweep.steps.last().map_or(0, |step| step.in_flight);
    if last < NUMBERS[NUMBERS.len() - 1] {
        text += &format!("Stopped at {last}: others' requests took more than twice as long.\n");
    }
    let busy: Vec<String> =
        sweep.busy.iter().map(|(name, share)| format!("{name} {:.0}%", share.min(1.0) * 100.0)).collect();
    text += &format!("\nBusy with {last} in flight: {}.\n", busy.join(", "));
    if let Some(law) = &sweep.law {
        let (contention, crosstalk) = (law.contention * 100.0, law.crosstalk * 100.0);
        text +=
            &format!("A request waits for something shared for {contention:.1}% of its time, and each other one adds ");
        text += &format!("{crosstalk:.2}%{}.\n", law.peak.map_or_else(String::new, peak));
    }
    text += "What a change would bring:\n";
    for change in &sweep.changes {
        text += &format!("  {}: {:+.0}%\n", change.change, change.gain * 100.0);
    }
    text
}

fn peak(in_flight: f64) -> String {
    format!("; {in_flight:.0} in flight give most")
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::sweep::{Change, Law};

    #[test]
    fn a_sweep_is_told_with_its_changes() {
        let step = Step { in_flight: 8, per_second: 12_345.0, transfers: 0.5, device_us: 41.0, ..Step::default() };
        let change = Change { change: "a device twice as fast".to_string(), per_second: 12_839.0, gain: 0.04 };
        let law = Law { contention: 0.031, crosstalk: 0.0005, peak: Some(44.0) };
        let busy = vec![("CPUs".to_string(), 0.88), ("the device".to_string(), 1.2)];
        let text = told(&Sweep { steps: vec![step], busy, law: Some(law), changes: vec![change] });
        for part in [
            "12,345",
            "0.50",
            "41.0",
            "Stopped at 8",
            "CPUs 88%, the device 100%",
            "3.1% of its time",
            "0.05%; 44 in flight give most",
            "a device twice as fast: +4%",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
