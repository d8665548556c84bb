//! `sinter bench sync`: 1 to 64 threads, each with its own file, each of whose 4 KiB writes is durable before its next.

use super::engine::{BLOCK_BYTES, Ground, Worker, random_bytes, run};
use super::report::{Progress, Report, Row};
use crate::cli::SyncMode;
use crate::failure::Failure;
use clap::ValueEnum;
use runtime::random::SplitMix;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Each writer's file if nobody says: more blocks than a log's batch, yet laid out in a moment even for 64 writers.
const FILE_BYTES_DEFAULT: u64 = 16 << 20;

/// What to measure.
pub struct Plan {
    /// Numbers of writers.
    pub writers: Vec<u32>,
    /// Ways to be durable; none means all.
    pub modes: Vec<SyncMode>,
    /// Bytes of each writer's file.
    pub file_bytes: Option<u64>,
    /// O_DIRECT.
    pub direct: bool,
    /// Time per row.
    pub time: Duration,
}

/// Measures every mode with every number of writers; what was measured before an interruption is reported.
pub fn measure(
    directory: &Path,
    plan: &Plan,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<Report, Failure> {
    let ground = Ground::make(directory)?;
    let failed = |error: std::io::Error| Failure::io(format!("bench in {}", directory.display()), &error);
    let file_bytes = plan.file_bytes.unwrap_or(FILE_BYTES_DEFAULT);
    let all: &[SyncMode] = SyncMode::value_variants();
    let modes = if plan.modes.is_empty() { all } else { &plan.modes };
    let most = plan.writers.iter().copied().max().unwrap_or(0);
    let overwrites = modes.iter().any(|mode| *mode != SyncMode::AppendFdatasync);
    for writer in (0..most).filter(|_| overwrites) {
        progress.begin(format!("laying out file {} of {most}", writer + 1));
        ground.lay_out(&overwritten(writer), file_bytes, u64::from(writer), interrupted).map_err(failed)?;
    }
    let mut rows = Vec::new();
    for &mode in modes {
        for &writers in &plan.writers {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            progress.begin(format!("{} with {writers} writers", name(mode)));
            let workers = (0..writers).map(|writer| worker(&ground, mode, plan.direct, file_bytes, writer));
            let workers = workers.collect::<std::io::Result<Vec<Worker>>>().map_err(failed)?;
            let measured = run(workers, plan.time, progress, interrupted).map_err(failed)?;
            rows.push(Row::of(&name(mode), writers, &measured));
        }
    }
    progress.end();
    let directory = directory.display().to_string();
    let seconds = plan.time.as_secs();
    Ok(Report { bench: "sync", directory, block_bytes: BLOCK_BYTES, file_bytes, direct: plan.direct, seconds, rows })
}

fn name(mode: SyncMode) -> String {
    let value = mode.to_possible_value().expect("no mode is hidden");
    value.get_name().to_string()
}

fn overwritten(writer: u32) -> String {
    format!("overwrite-{writer}")
}

fn worker(ground: &Ground, mode: SyncMode, direct: bool, file_bytes: u64, writer: u32) -> std::io::Result<Worker> {
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let blocks = file_bytes / BLOCK_BYTES;
    let mut random = SplitMix(u64::from(writer));
    let block = random_bytes(BLOCK_BYTES as usize, random.next())?;
    Ok(match mode {
        SyncMode::OverwriteDsync => {
            let file = ground.open(&overwritten(writer), direct | libc::O_DSYNC)?;
            Box::new(move || file.write_all_at(&block, random.below(blocks) * BLOCK_BYTES))
        }
        SyncMode::Fsync => {
            let file = ground.open(&overwritten(writer), direct)?;
            Box::new(move || {
                file.write_all_at(&block, random.below(blocks) * BLOCK_BYTES)?;
                file.sync_all()
            })
        }
        SyncMode::AppendFdatasync => {
            let file = ground.open(&format!("append-{writer}"), direct)?;
            file.set_len(0)?;
            let mut end = 0;
            Box::new(move || {
                file.write_all_at(&block, end)?;
                file.sync_data()?;
                end += BLOCK_BYTES;
                Ok(())
            })
        }
    })
}
