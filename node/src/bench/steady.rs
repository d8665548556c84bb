//! `sinter bench steady`: fills a file system to a level, then overwrites random 4 KiB blocks for long, and tells each
//! second's writes: whether what a device or a file system does when it is new is what it does for life.

use super::engine::{BLOCK_BYTES, Course, Ground, Step, Worker, random_bytes, run_groups, stride};
use super::stolen::Stolen;
use crate::admin::client::Client;
use crate::admin::protocol::{Answer, Request, Space, Status};
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes, count};
use runtime::random::SplitMix;
use serde::Serialize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "steady";
/// Writers: enough to keep a flash device busy.
const THREADS: u32 = 32;
/// Seconds at the end, and after the first as many, that are compared.
const SPAN_SECONDS: usize = 60;
/// A slow second in which the host took so many hundredths of the processors' time is laid at its door: a tenth costs 32
/// writers on two cores far more than a tenth, because it is taken from whoever holds what the others wait for.
const DISTURBED_PERCENT: u64 = 10;

/// The plan of the measurement.
pub struct Plan {
    /// Percent of the brick's size that is filled first.
    pub fill_percent: u64,
    /// Bytes to fill instead.
    pub file_bytes: Option<u64>,
    /// Few blocks get most of the writes.
    pub zipf: bool,
    /// A brick whose daemon tells what its device wrote.
    pub brick: Option<PathBuf>,
    /// Its duration.
    pub time: Duration,
}

/// The result.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// The bench's name.
    pub bench: &'static str,
    /// The directory.
    pub directory: String,
    /// Bytes of the file that was overwritten.
    pub file_bytes: u64,
    /// Some blocks get more writes than others.
    pub zipf: bool,
    /// Writes of each second.
    pub windows: Vec<u64>,
    /// Percentage of the processors' time that the host of this virtual machine took, by second.
    pub stolen_percent: Vec<u64>,
    /// Seconds with fewer writes than half of the mean.
    pub low: u64,
    /// Number of those during which, or just before which, the host took a tenth of the processors' time or more.
    pub low_disturbed: u64,
    /// Writes per second.
    pub mean: u64,
    /// The slowest second's writes.
    pub least: u64,
    /// Seconds without any write.
    pub zero: u64,
    /// The mean of the first minute, in which a brick may still have room that was never used; of the first half of a shorter
    /// run.
    pub first_mean: u64,
    /// The mean of the minute after the first; of the first half of a shorter run.
    pub early_mean: u64,
    /// The mean of the last minute; of the last half of a shorter run.
    pub late_mean: u64,
    /// Half of the writes took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes that the brick's device wrote.
    pub device_bytes: Option<u64>,
    /// The same per byte that clients wrote.
    pub amplification: Option<f64>,
    /// The least that a log with this fill must write under uniform overwrite.
    pub model: Option<f64>,
}

/// Fills and overwrites.
pub fn measure(directory: &Path, plan: &Plan, course: &mut Course) -> Result<Report, Failure> {
    let file_bytes = match (plan.file_bytes, plan.brick.as_deref()) {
        (Some(bytes), _) => bytes,
        (None, Some(brick)) => status_of(brick)?.size_bytes / 100 * plan.fill_percent,
        (None, None) => {
            let failure = Failure::new(Exit::Usage, "how much is to be filled is not known");
            return Err(failure.next("give --size, or --brick with the data directory of the daemon that serves it"));
        }
    };
    let ground = Ground::make(directory, &super::turns::ground_name(""))?;
    let failed = |error: std::io::Error| Failure::io(format!("bench in {}", directory.display()), &error);
    let file_bytes = file_bytes / BLOCK_BYTES * BLOCK_BYTES;
    course.begin(&format!("laying out {}", bytes(file_bytes)));
    ground.lay_out(FILE, file_bytes, 1, course).map_err(failed)?;
    let before = plan.brick.as_deref().map(space_of).transpose()?;
    course.begin(if plan.zipf { "overwriting by Zipf's law" } else { "overwriting uniformly" });
    let workers = (0..THREADS).map(|thread| worker(&ground, thread, file_bytes, plan.zipf));
    let workers = workers.collect::<std::io::Result<Vec<Worker>>>().map_err(failed)?;
    let (mut windows, mut stolen_percent) = (Vec::new(), Vec::new());
    let (mut seen, mut stolen) = (0, Stolen::start());
    let watch = |done: u64| {
        windows.push(done - seen);
        stolen_percent.push(stolen.percent());
        seen = done;
    };
    let measured = run_groups(vec![workers], plan.time, course, watch).map_err(failed)?.remove(0);
    let after = plan.brick.as_deref().map(space_of).transpose()?;
    course.end();
    let spent = before.zip(after);
    let span = SPAN_SECONDS.min(windows.len() / 2);
    let early = if windows.len() >= 3 * SPAN_SECONDS { SPAN_SECONDS } else { 0 };
    let [low, low_disturbed] = low(&windows, &stolen_percent);
    Ok(Report {
        bench: "steady",
        directory: directory.display().to_string(),
        file_bytes,
        zipf: plan.zipf,
        mean: mean(&windows),
        least: windows.iter().copied().min().unwrap_or(0),
        zero: windows.iter().filter(|&&writes| writes == 0).count() as u64,
        first_mean: mean(&windows[..span]),
        early_mean: mean(&windows[early..early + span]),
        late_mean: mean(&windows[windows.len() - span..]),
        p50_ns: measured.latency.quantile_ns(0.5),
        p99_ns: measured.latency.quantile_ns(0.99),
        max_ns: measured.latency.max_ns(),
        device_bytes: spent.as_ref().map(|(before, after)| after.device_bytes - before.device_bytes),
        amplification: spent.as_ref().map(|(before, after)| {
            let written = (after.device_bytes - before.device_bytes) as f64;
            written / (after.client_bytes - before.client_bytes).max(1) as f64
        }),
        model: spent.filter(|_| !plan.zipf).map(|(_, after)| {
            // Free segments hold nothing that could be overwritten.
            model(after.logical_bytes as f64 / (after.physical_bytes - after.free_bytes).max(1) as f64)
        }),
        windows,
        stolen_percent,
        low,
        low_disturbed,
    })
}

fn mean(part: &[u64]) -> u64 {
    part.iter().sum::<u64>() / part.len().max(1) as u64
}

/// Seconds below half of the mean, and those of them that the host disturbed.
fn low(windows: &[u64], stolen_percent: &[u64]) -> [u64; 2] {
    let half = mean(windows) / 2;
    let low: Vec<usize> = (0..windows.len()).filter(|&at| windows[at] < half).collect();
    let took = |at: usize| stolen_percent[at] >= DISTURBED_PERCENT;
    let disturbed = low.iter().filter(|&&at| took(at) || (at > 0 && took(at - 1)));
    [low.len() as u64, disturbed.count() as u64]
}

fn space_of(brick: &Path) -> Result<Space, Failure> {
    status_of(brick).map(|status| status.space)
}

fn status_of(brick: &Path) -> Result<Status, Failure> {
    match Client::need(brick)?.ask(&Request::Status)? {
        Answer::Status(status) => Ok(status),
        _ => Err(Failure::new(Exit::Failed, "the daemon answered something else than its status")),
    }
}

/// Write amplification of a log under uniform overwrite: a segment is reclaimed when a part `u` of it is still live,
/// where fill = (1 - u) / -ln u, and each reclaimed segment makes room for 1 - u (source: Menon, "A performance
/// comparison of RAID-5 and log-structured arrays"; Rosenblum and Ousterhout for the cost).
fn model(fill: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let u: f64 = (low + high) / 2.0;
        if (1.0 - u) / -u.ln() < fill { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

fn worker(ground: &Ground, thread: u32, file_bytes: u64, zipf: bool) -> std::io::Result<Worker> {
    let file = ground.open(FILE, libc::O_DIRECT)?;
    let blocks = (file_bytes / BLOCK_BYTES).max(1);
    let stride = stride(blocks);
    let mut random = SplitMix(u64::from(thread) << 1);
    let block = random_bytes(BLOCK_BYTES as usize, random.next())?;
    Ok(Box::new(move || {
        let number = if zipf { zipf_rank(&mut random, blocks) * stride % blocks } else { random.below(blocks) };
        file.write_all_at(&block, number * BLOCK_BYTES)?;
        Ok(Step::Done(BLOCK_BYTES))
    }))
}

/// A rank from 0 by Zipf's law with exponent 1: the chance of rank r is as 1/r, so its logarithm is uniform.
fn zipf_rank(random: &mut SplitMix, blocks: u64) -> u64 {
    let uniform = random.below(1 << 53) as f64 / (1u64 << 53) as f64;
    ((blocks as f64).powf(uniform) as u64).min(blocks) - 1
}

impl Report {
    /// A table, for people.
    pub fn table(&self) -> String {
        let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
        let mut row = |name: &str, value: String| table.row(vec![name.to_string(), value]);
        let percent = |part: u64, of: u64| format!("{} ({}%)", count(part), part * 100 / of.max(1));
        row("overwritten", format!("{}, {}", bytes(self.file_bytes), if self.zipf { "Zipf" } else { "uniform" }));
        row("seconds", count(self.windows.len() as u64));
        row("writes/s", count(self.mean));
        row("slowest second", percent(self.least, self.mean));
        let (low, disturbed) = (count(self.low), count(self.low_disturbed));
        row("below half of the mean", format!("{low} s, the host took processor time in {disturbed} of them"));
        row("without any write", format!("{} s", count(self.zero)));
        row("first", count(self.first_mean));
        row("early", count(self.early_mean));
        row("late", percent(self.late_mean, self.early_mean));
        row("p50", crate::table::duration(self.p50_ns));
        row("p99", crate::table::duration(self.p99_ns));
        row("max", crate::table::duration(self.max_ns));
        if let Some(device_bytes) = self.device_bytes {
            row("device bytes", bytes(device_bytes));
        }
        if let Some(amplification) = self.amplification {
            row("device bytes per client byte", format!("{amplification:.2}"));
        }
        if let Some(model) = self.model {
            row("the cleaner's model", format!("{model:.2}"));
        }
        table.render().trim_start().to_string()
    }
    /// Each second's writes, as a picture.
    pub fn svg(&self) -> String {
        super::chart::over_time(&format!("steady, writes/s, {}", self.directory), &self.windows)
    }
    /// JSON, for programs.
    pub fn json(&self) -> String {
        super::report::json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_known_curve() {
        // From the formula by hand: u = 0.5 belongs to fill 0.7213, and costs 2.
        assert!((model(0.7213) - 2.0).abs() < 0.01, "{}", model(0.7213));
        assert!(model(0.3) < 1.05 && model(0.9) > 4.0 && model(0.9) < 6.0, "{} {}", model(0.3), model(0.9));
    }

    #[test]
    fn zipf_prefers_few_blocks() {
        let mut random = SplitMix(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            let block = zipf_rank(&mut random, 1000) * stride(1000) % 1000;
            *seen.entry(block).or_insert(0u32) += 1;
        }
        let most = seen.values().max().copied().unwrap_or(0);
        assert!(most > 1000 && seen.len() > 500, "{most} of 10,000 on one block, {} blocks", seen.len());
    }

    #[test]
    fn slow_seconds_are_told_apart_from_those_the_host_made() {
        let windows = [100, 100, 30, 100, 30, 30, 100, 100, 100];
        let stolen = [0, 0, 0, 12, 0, 0, 30, 0, 0];
        assert_eq!(low(&windows, &stolen), [3, 1], "only the one after the disturbed second has an excuse");
        assert_eq!(low(&[], &[]), [0, 0]);
    }

    #[test]
    fn a_short_run_tells_every_second() {
        let scratch = crate::scratch::Scratch::new();
        let plan =
            Plan { fill_percent: 1, file_bytes: Some(1 << 20), zipf: false, brick: None, time: Duration::from_secs(2) };
        let report = measure(scratch.path(), &plan, &mut crate::bench::tests::silent());
        let report = report.unwrap_or_else(|failure| panic!("{failure:?}"));
        assert!((1..=3).contains(&report.windows.len()) && report.mean > 0, "{report:?}");
        assert!(report.table().contains("slowest second") && report.first_mean > 0);
        assert_eq!(report.stolen_percent.len(), report.windows.len());
    }
}
