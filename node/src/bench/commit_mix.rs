//! `sinter bench commit-mix`: small synchronous writers alone, then beside one that commits much at once, again and again:
//! whether many small commits wait for a massive one (mission S6).

use super::engine::{BLOCK_BYTES, Course, Ground, LAYOUT_BYTES, Step, Worker, random_bytes, run, run_groups};
use super::report::{Form, Row};
use super::turns::Bench;
use runtime::random::SplitMix;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Each small writer's file: as those of `bench sync`.
const FILE_BYTES: u64 = 16 << 20;

/// The plan of the measurement.
pub struct Plan {
    /// Small writers.
    pub writers: u32,
    /// Bytes of a massive commit.
    pub massive_bytes: u64,
    /// Time for the small ones alone, and again for both.
    pub time: Duration,
}

/// Its one cell has the small ones alone and beside.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "commit-mix",
            file_bytes: Some(self.massive_bytes),
            direct: false,
            seconds: Some(self.time.as_secs()),
            threads: "writers",
            rate: "writes/s",
            ..Form::default()
        }
    }
    fn prepare(&self, ground: &Ground, course: &mut Course) -> Result<()> {
        course.begin(&format!("laying out {} files", self.writers));
        (0..self.writers)
            .try_for_each(|writer| ground.lay_out(&small_name(writer), FILE_BYTES, u64::from(writer), course))
    }
    fn cells(&self) -> usize {
        1
    }
    fn measure(&self, _cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let small = || (0..self.writers).map(|writer| small(ground, writer)).collect::<Result<Vec<Worker>>>();
        course.begin(&format!("{} small writers alone", self.writers));
        let alone = Row::of("small alone", self.writers, BLOCK_BYTES, &run(small()?, self.time, course)?);
        if course.is_interrupted() {
            return Ok(vec![alone]);
        }
        course.begin(&format!("{} small writers beside a massive commit", self.writers));
        let groups = vec![small()?, vec![massive(ground, self.massive_bytes)?]];
        let measured = run_groups(groups, self.time, course, |_| {})?;
        let mut beside = Row::of("small beside", self.writers, BLOCK_BYTES, &measured[0]);
        let times = |beside: u64, alone: u64| Some(beside as f64 / alone.max(1) as f64);
        beside.p50_times_alone = times(beside.p50_ns, alone.p50_ns);
        beside.p99_times_alone = times(beside.p99_ns, alone.p99_ns);
        Ok(vec![alone, beside, Row::of("massive", 1, LAYOUT_BYTES as u64, &measured[1])])
    }
}

fn small_name(writer: u32) -> String {
    format!("small-{writer}")
}

fn small(ground: &Ground, writer: u32) -> Result<Worker> {
    let file = ground.open(&small_name(writer), libc::O_DSYNC)?;
    let mut random = SplitMix(u64::from(writer));
    let block = random_bytes(BLOCK_BYTES as usize, random.next())?;
    Ok(Box::new(move || {
        file.write_all_at(&block, random.below(FILE_BYTES / BLOCK_BYTES) * BLOCK_BYTES)?;
        Ok(Step::Done(BLOCK_BYTES))
    }))
}

/// Writes through the page cache, then has all of it made durable, then overwrites it. The fsync belongs to the last write.
fn massive(ground: &Ground, bytes: u64) -> Result<Worker> {
    let file = ground.open("massive", 0)?;
    let chunk = random_bytes(LAYOUT_BYTES, 1)?;
    let mut offset = 0;
    Ok(Box::new(move || {
        let length = (bytes - offset).min(LAYOUT_BYTES as u64);
        file.write_all_at(&chunk[..length as usize], offset)?;
        offset += length;
        if offset == bytes {
            file.sync_all()?;
            offset = 0;
        }
        Ok(Step::Done(length))
    }))
}
