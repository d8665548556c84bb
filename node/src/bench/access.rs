//! `sinter bench random` and `sinter bench seq`: threads that read or overwrite blocks past the page cache, `depth` of them
//! per file; blocks at random, or one after the other from the file's start to its end, and again.

use super::engine::{BLOCK_BYTES, Course, Ground, Step, THREADS_MAX, Worker, random_bytes, run};
use super::report::{Form, Row};
use super::turns::Bench;
use crate::failure::{Exit, Failure};
use runtime::random::SplitMix;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each file if nobody says: with four jobs 1 GiB, above a device's own write cache.
const RANDOM_FILE_BYTES: u64 = 256 << 20;
/// The same for the one job of sequential access.
const SEQUENTIAL_FILE_BYTES: u64 = 1 << 30;

/// The choice of the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Any.
    Random,
    /// The one after the last that was begun in this file.
    Sequential,
}

impl Order {
    /// `next` counts what a file's threads have begun together.
    fn next(self, random: &mut SplitMix, next: &AtomicU64, blocks: u64) -> u64 {
        match self {
            Order::Random => random.below(blocks),
            Order::Sequential => next.fetch_add(1, Ordering::Relaxed) % blocks,
        }
    }
}

/// The plan of the measurement.
pub struct Plan {
    /// The choice of the next block.
    pub order: Order,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Files.
    pub jobs: u32,
    /// Requests in flight per file.
    pub depth: u32,
    /// Bytes of each file.
    pub file_bytes: Option<u64>,
    /// Time for reading, and again for writing.
    pub time: Duration,
}

/// The operations on blocks.
const MODES: [&str; 2] = ["read", "write"];

impl Plan {
    /// Random access to blocks as databases have them.
    pub fn random(jobs: u32, depth: u32, file_bytes: Option<u64>, time: Duration) -> Plan {
        Plan { order: Order::Random, block_bytes: BLOCK_BYTES, jobs, depth, file_bytes, time }
    }
    fn name(&self) -> &'static str {
        match self.order {
            Order::Random => "random",
            Order::Sequential => "seq",
        }
    }
    /// Whole blocks.
    fn file_bytes(&self) -> u64 {
        let default = match self.order {
            Order::Random => RANDOM_FILE_BYTES,
            Order::Sequential => SEQUENTIAL_FILE_BYTES,
        };
        self.file_bytes.unwrap_or(default).next_multiple_of(self.block_bytes)
    }
    fn worker(&self, ground: &Ground, thread: u32, write: bool, next: Arc<AtomicU64>) -> Result<Worker> {
        let file = ground.open(&file_name(thread % self.jobs), libc::O_DIRECT)?;
        let (order, block_bytes, blocks) = (self.order, self.block_bytes, self.file_bytes() / self.block_bytes);
        let mut random = SplitMix(u64::from(thread) << 1 | u64::from(write));
        let mut block = random_bytes(block_bytes as usize, random.next())?;
        Ok(Box::new(move || {
            let offset = order.next(&mut random, &next, blocks) * block_bytes;
            match write {
                true => file.write_all_at(&block, offset)?,
                false => file.read_exact_at(&mut block, offset)?,
            }
            Ok(Step::Done(block_bytes))
        }))
    }
}

/// Its cells are reading and writing.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: self.name(),
            file_bytes: Some(self.file_bytes()),
            direct: true,
            seconds: Some(self.time.as_secs()),
            threads: "threads",
            rate: "IOPS",
            ..Form::default()
        }
    }
    fn check(&self) -> std::result::Result<(), Failure> {
        let threads = self.jobs * self.depth;
        if threads > THREADS_MAX {
            let failure = Failure::new(Exit::Usage, format!("jobs x depth is {threads}, at most {THREADS_MAX}"));
            return Err(failure.next("lower --jobs or --depth"));
        }
        Ok(())
    }
    fn prepare(&self, ground: &Ground, course: &mut Course) -> Result<()> {
        for job in 0..self.jobs {
            course.begin(&format!("laying out file {} of {}", job + 1, self.jobs));
            ground.lay_out(&file_name(job), self.file_bytes(), u64::from(job), course)?;
        }
        Ok(())
    }
    fn cells(&self) -> usize {
        MODES.len()
    }
    fn measure(&self, cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let (mode, threads) = (MODES[cell], self.jobs * self.depth);
        course.begin(&format!("{} {mode}, {} files, depth {}", self.name(), self.jobs, self.depth));
        let next: Vec<Arc<AtomicU64>> = (0..self.jobs).map(|_| Arc::default()).collect();
        let worker = |thread| self.worker(ground, thread, mode == "write", next[(thread % self.jobs) as usize].clone());
        let measured = run((0..threads).map(worker).collect::<Result<Vec<Worker>>>()?, self.time, course)?;
        Ok(vec![Row::of(mode, threads, self.block_bytes, &measured)])
    }
}

fn file_name(job: u32) -> String {
    format!("file-{job}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_blocks_follow_each_other_and_random_ones_do_not() {
        let of = |order: Order| -> Vec<u64> {
            let (mut random, next) = (SplitMix(1), AtomicU64::new(0));
            (0..12).map(|_| order.next(&mut random, &next, 5)).collect()
        };
        assert_eq!(of(Order::Sequential), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]);
        let random = of(Order::Random);
        assert!(random.windows(2).any(|pair| pair[1] != (pair[0] + 1) % 5), "{random:?}");
        assert!(random.iter().all(|block| *block < 5), "{random:?}");
    }
}
