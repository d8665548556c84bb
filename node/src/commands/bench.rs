//! `sinter bench`: runs a bench until its end or SIGINT, prints what was measured.

use super::print;
use crate::bench::engine::Course;
use crate::bench::report::Progress;
use crate::bench::turns::{self, Bench as Measured};
use crate::bench::{access, commit_mix, compare, metadata, object, scorecard, smallfile, steady, streams, sync};
use crate::cli::{
    Bench, BenchBeside, BenchCommitMix, BenchMetadata, BenchObject, BenchPlace, BenchRandom, BenchScorecard, BenchSeq,
    BenchSmallfile, BenchSteady, BenchStreams, BenchSync, BenchTarget, Phase,
};
use crate::failure::{Exit, Failure};
use crate::host::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files and requests in flight per file if nobody says: 32 requests, where most flash devices are near their limit.
const JOBS_DEFAULT: u32 = 4;
const DEPTH_DEFAULT: u32 = 8;

/// Most bytes of the file that is read at full speed beside streams. It is as large as all their files together, but at
/// most some seconds' worth.
const READER_BYTES_MAX: u64 = 2 << 30;

/// Runs a bench.
pub fn run(command: &Bench) -> Result<Exit, Failure> {
    let interrupted = watch_signals()?;
    let course = &mut Course::new(Progress::new(), interrupted.clone());
    let failed = match command {
        Bench::Sync(options) => show(&sync(options), &options.target.place, &options.versus, course)?,
        Bench::Random(options) => show(&random(options), &options.target.place, &options.versus, course)?,
        Bench::Seq(options) => show(&seq(options), &options.target.place, &options.versus, course)?,
        Bench::Smallfile(options) => show(&smallfile(options)?, &options.target.place, &options.versus, course)?,
        Bench::Object(options) => show(&object(options)?, &options.place, &options.versus, course)?,
        Bench::Metadata(options) => show(&metadata(options), &options.target.place, &options.versus, course)?,
        Bench::CommitMix(options) => show(&commit_mix(options), &options.target.place, &options.versus, course)?,
        Bench::Streams(options) => show(&streams(options), &options.target.place, &options.versus, course)?,
        Bench::Scorecard(options) => run_scorecard(options, course)?,
        Bench::Steady(options) => run_steady(options, course)?,
    };
    Ok(if failed > 0 || interrupted.load(Ordering::Relaxed) { Exit::Failed } else { Exit::Done })
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

fn smallfile(options: &BenchSmallfile) -> Result<smallfile::Plan, Failure> {
    whole_rounds(&options.versus, options.phase)?;
    Ok(smallfile::Plan {
        threads: options.threads.clone(),
        sizes: options.file_size.clone(),
        exponential: options.exponential,
        files: options.files,
        phase: options.phase,
        time: time(&options.target),
    })
}

fn object(options: &BenchObject) -> Result<object::Plan, Failure> {
    whole_rounds(&options.versus, options.phase)?;
    Ok(object::Plan {
        threads: options.threads,
        bytes: options.bytes,
        seed: options.seed,
        phase: options.phase,
        time: options.time.map(Duration::from_secs),
    })
}

/// Refuses parts of the work where rounds need all of it.
fn whole_rounds(versus: &BenchBeside, phase: Phase) -> Result<(), Failure> {
    if versus.beside.is_some() && phase != Phase::Both {
        let failure = Failure::new(Exit::Usage, "with --beside each round creates its files and reads them");
        return Err(failure.next("leave --phase out"));
    }
    Ok(())
}

fn metadata(options: &BenchMetadata) -> metadata::Plan {
    metadata::Plan { threads: options.threads.clone(), files: options.files, time: time(&options.target) }
}

fn commit_mix(options: &BenchCommitMix) -> commit_mix::Plan {
    commit_mix::Plan { writers: options.writers, massive_bytes: options.size, time: time(&options.target) }
}

fn streams(options: &BenchStreams) -> streams::Plan {
    let file_bytes = options.size.next_multiple_of(streams::CHUNK_BYTES);
    streams::Plan {
        streams: options.streams,
        bit_rate: options.bit_rate,
        start_over: options.start_over.map(Duration::from_secs),
        file_bytes,
        reader_bytes: (u64::from(options.streams) * file_bytes).min(READER_BYTES_MAX),
        time: time(&options.target),
    }
}

fn run_scorecard(options: &BenchScorecard, course: &mut Course) -> Result<u64, Failure> {
    let missing = || Failure::new(Exit::Usage, "a scorecard holds two directories against each other");
    let beside = options.versus.beside.as_deref().ok_or_else(|| missing().next("give the other one with --beside"))?;
    let plan = scorecard::Plan {
        file_bytes: options.size,
        files: options.files,
        rounds: options.versus.rounds as usize,
        time: time(&options.target),
    };
    let card = scorecard::measure([&options.target.place.directory, beside], &plan, course)?;
    tell(&options.target.place, [card.table(), card.json(), card.svg()])?;
    Ok(0)
}

fn run_steady(options: &BenchSteady, course: &mut Course) -> Result<u64, Failure> {
    let plan = steady::Plan {
        fill_percent: options.fill,
        file_bytes: options.size,
        zipf: options.zipf,
        brick: options.brick.clone(),
        time: time(&options.target),
    };
    let report = steady::measure(&options.target.place.directory, &plan, course)?;
    tell(&options.target.place, [report.table(), report.json(), report.svg()])?;
    Ok(0)
}

/// Measures and tells; the number of operations that failed without ending the bench.
fn show(bench: &dyn Measured, place: &BenchPlace, versus: &BenchBeside, course: &mut Course) -> Result<u64, Failure> {
    let directory = place.directory.as_path();
    let (told, failed) = match &versus.beside {
        Some(beside) => {
            let comparison = compare::beside(bench, [directory, beside], versus.rounds as usize, course)?;
            ([comparison.table(), comparison.json(), comparison.svg()], comparison.errors())
        }
        None => {
            let report = turns::alone(bench, directory, course)?;
            ([report.table(), report.json(), report.svg()], report.errors())
        }
    };
    tell(place, told)?;
    Ok(failed)
}

/// Prints the table or the JSON, and writes the picture if it is asked for.
fn tell(place: &BenchPlace, [table, json, svg]: [String; 3]) -> Result<(), Failure> {
    print(if place.json { &json } else { &table })?;
    match &place.svg {
        Some(file) => std::fs::write(file, svg)
            .map_err(|error| Failure::io(format!("can't write the chart to {}", file.display()), &error)),
        None => Ok(()),
    }
}

/// A bench that is interrupted removes its files first, hence it looks at a flag instead of dying.
pub(super) fn watch_signals() -> Result<Arc<AtomicBool>, Failure> {
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
