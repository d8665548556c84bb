//! `sinter bench`: runs a bench until its end or SIGINT, prints what was measured.

use super::print;
use crate::bench::report::{Progress, Report};
use crate::bench::{random, steady, sync};
use crate::cli::{Bench, BenchRandom, BenchSteady, BenchSync, BenchTarget};
use crate::failure::{Exit, Failure};
use crate::host::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files and requests in flight per file if nobody says: 32 requests, where most flash devices are near their limit.
const JOBS_DEFAULT: u32 = 4;
const DEPTH_DEFAULT: u32 = 8;

/// Runs a bench.
pub fn run(command: &Bench) -> Result<Exit, Failure> {
    let interrupted = watch_signals()?;
    match command {
        Bench::Sync(options) => show(&run_sync(options, &interrupted)?, &options.target)?,
        Bench::Random(options) => show(&run_random(options, &interrupted)?, &options.target)?,
        Bench::Steady(options) => run_steady(options, &interrupted)?,
    }
    Ok(if interrupted.load(Ordering::Relaxed) { Exit::Failed } else { Exit::Done })
}

fn run_sync(options: &BenchSync, interrupted: &AtomicBool) -> Result<Report, Failure> {
    let plan = sync::Plan {
        writers: options.writers.clone(),
        modes: options.mode.clone(),
        file_bytes: options.target.size,
        direct: options.direct,
        time: Duration::from_secs(options.target.time),
    };
    sync::measure(&options.target.directory, &plan, &mut Progress::new(), interrupted)
}

fn run_random(options: &BenchRandom, interrupted: &AtomicBool) -> Result<Report, Failure> {
    let depth_default = if options.jobs.is_some() { 1 } else { DEPTH_DEFAULT };
    let plan = random::Plan {
        jobs: options.jobs.unwrap_or(JOBS_DEFAULT),
        depth: options.depth.unwrap_or(depth_default),
        file_bytes: options.target.size,
        time: Duration::from_secs(options.target.time),
    };
    random::measure(&options.target.directory, &plan, &mut Progress::new(), interrupted)
}

fn run_steady(options: &BenchSteady, interrupted: &AtomicBool) -> Result<(), Failure> {
    let plan = steady::Plan {
        fill_percent: options.fill,
        file_bytes: options.target.size,
        zipf: options.zipf,
        brick: options.brick.clone(),
        time: Duration::from_secs(options.target.time),
    };
    let report = steady::measure(&options.target.directory, &plan, &mut Progress::new(), interrupted)?;
    if options.target.json { print(&report.json()) } else { print(&report.table()) }
}

fn show(report: &Report, target: &BenchTarget) -> Result<(), Failure> {
    match (target.json, report.bench) {
        (true, _) => print(&report.json()),
        (false, "sync") => print(&report.table("writers", "writes/s")),
        (false, _) => print(&report.table("threads", "IOPS")),
    }
}

/// A bench that is interrupted removes its files first, hence it looks at a flag instead of dying.
fn watch_signals() -> Result<Arc<AtomicBool>, Failure> {
    let failed = |error: std::io::Error| Failure::io("can't watch for signals", &error);
    let mut signals = Signals::block().map_err(failed)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let there = interrupted.clone();
    let watch = move || {
        if signals.wait().is_ok() {
            there.store(true, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
    Ok(interrupted)
}
