//! `sinter bench sync`: 1 to 64 threads, each with its own file, each of whose 4 KiB writes is durable before its next.

use super::engine::{BLOCK_BYTES, Course, Ground, Step, Worker, random_bytes, run};
use super::report::{Form, Row};
use super::turns::Bench;
use crate::cli::SyncMode;
use clap::ValueEnum;
use runtime::random::SplitMix;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Each writer's file if nobody says: more blocks than a log's batch, yet laid out in a moment even for 64 writers.
const FILE_BYTES_DEFAULT: u64 = 16 << 20;

/// The plan of the measurement.
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

impl Plan {
    fn file_bytes(&self) -> u64 {
        self.file_bytes.unwrap_or(FILE_BYTES_DEFAULT)
    }
    fn modes(&self) -> &[SyncMode] {
        if self.modes.is_empty() { SyncMode::value_variants() } else { &self.modes }
    }
}

/// A cell is a mode with a number of writers.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "sync",
            file_bytes: Some(self.file_bytes()),
            direct: self.direct,
            seconds: Some(self.time.as_secs()),
            threads: "writers",
            rate: "writes/s",
            ..Form::default()
        }
    }
    fn prepare(&self, ground: &Ground, course: &mut Course) -> Result<()> {
        let most = self.writers.iter().copied().max().unwrap_or(0);
        let overwrites = self.modes().iter().any(|mode| *mode != SyncMode::AppendFdatasync);
        for writer in (0..most).filter(|_| overwrites) {
            course.begin(&format!("laying out file {} of {most}", writer + 1));
            ground.lay_out(&overwritten(writer), self.file_bytes(), u64::from(writer), course)?;
        }
        Ok(())
    }
    fn cells(&self) -> usize {
        self.modes().len() * self.writers.len()
    }
    fn measure(&self, cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let mode = self.modes()[cell / self.writers.len()];
        let writers = self.writers[cell % self.writers.len()];
        course.begin(&format!("{} with {writers} writers", name(mode)));
        let workers = (0..writers).map(|writer| worker(ground, mode, self.direct, self.file_bytes(), writer));
        let measured = run(workers.collect::<Result<Vec<Worker>>>()?, self.time, course)?;
        Ok(vec![Row::of(&name(mode), writers, BLOCK_BYTES, &measured)])
    }
}

fn name(mode: SyncMode) -> String {
    let value = mode.to_possible_value().expect("no mode is hidden");
    value.get_name().to_string()
}

fn overwritten(writer: u32) -> String {
    format!("overwrite-{writer}")
}

fn worker(ground: &Ground, mode: SyncMode, direct: bool, file_bytes: u64, writer: u32) -> Result<Worker> {
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let blocks = file_bytes / BLOCK_BYTES;
    let mut random = SplitMix(u64::from(writer));
    let block = random_bytes(BLOCK_BYTES as usize, random.next())?;
    Ok(match mode {
        SyncMode::OverwriteDsync => {
            let file = ground.open(&overwritten(writer), direct | libc::O_DSYNC)?;
            Box::new(move || {
                file.write_all_at(&block, random.below(blocks) * BLOCK_BYTES)?;
                Ok(Step::Done(BLOCK_BYTES))
            })
        }
        SyncMode::Fsync => {
            let file = ground.open(&overwritten(writer), direct)?;
            Box::new(move || {
                file.write_all_at(&block, random.below(blocks) * BLOCK_BYTES)?;
                file.sync_all()?;
                Ok(Step::Done(BLOCK_BYTES))
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
                Ok(Step::Done(BLOCK_BYTES))
            })
        }
    })
}
