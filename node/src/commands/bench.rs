//! `sinter bench`: runs a bench until its end or SIGINT, prints what was measured.

use super::print;
use crate::bench::engine::Course;
use crate::bench::report::Progress;
use crate::bench::turns::{self, Bench as Measured};
use crate::bench::{access, smallfile, steady, sync};
use crate::cli::{Bench, BenchRandom, BenchSeq, BenchSmallfile, BenchSteady, BenchSync, BenchTarget};
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
    let course = &mut Course::new(Progress::new(), interrupted.clone());
    match command {
        Bench::Sync(options) => show(&sync(options), &options.target, course)?,
        Bench::Random(options) => show(&random(options), &options.target, course)?,
        Bench::Seq(options) => show(&seq(options), &options.target, course)?,
        Bench::Smallfile(options) => show(&smallfile(options), &options.target, course)?,
        Bench::Steady(options) => run_steady(options, course)?,
    }
    Ok(if interrupted.load(Ordering::Relaxed) { Exit::Failed } else { Exit::Done })
}

fn time(target: &BenchTarget) -> Duration {
    Duration::from_secs(target.time)
}

fn sync(options: &BenchSync) -> sync::Plan {
    sync::Plan {
        writers: options.writers.clone(),
        modes: options.mode.clone(),
        file_bytes: options.size,
        direct: options.direct,
        time: time(&options.target),
    }
}

fn random(options: &BenchRandom) -> access::Plan {
    let depth_default = if options.jobs.is_some() { 1 } else { DEPTH_DEFAULT };
    let (jobs, depth) = (options.jobs.unwrap_or(JOBS_DEFAULT), options.depth.unwrap_or(depth_default));
    access::Plan::random(jobs, depth, options.size, time(&options.target))
}

fn seq(options: &BenchSeq) -> access::Plan {
    access::Plan {
        order: access::Order::Sequential,
        block_bytes: options.block_size,
        jobs: options.jobs,
        depth: options.depth,
        file_bytes: options.size,
        time: time(&options.target),
    }
}

fn smallfile(options: &BenchSmallfile) -> smallfile::Plan {
    smallfile::Plan {
        threads: options.threads.clone(),
        sizes: options.file_size.clone(),
        exponential: options.exponential,
        files: options.files,
        phase: options.phase,
        time: time(&options.target),
    }
}

fn run_steady(options: &BenchSteady, course: &mut Course) -> Result<(), Failure> {
    let plan = steady::Plan {
        fill_percent: options.fill,
        file_bytes: options.size,
        zipf: options.zipf,
        brick: options.brick.clone(),
        time: time(&options.target),
    };
    let report = steady::measure(&options.target.directory, &plan, course)?;
    if options.target.json { print(&report.json()) } else { print(&report.table()) }
}

fn show(bench: &dyn Measured, target: &BenchTarget, course: &mut Course) -> Result<(), Failure> {
    let report = turns::alone(bench, &target.directory, course)?;
    if target.json { print(&report.json()) } else { print(&report.table()) }
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
