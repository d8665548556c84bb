//! `sinter bench smallfile`: threads that create small files (create, write, fsync, close), then read them cold (open, read,
//! close). Promises that each byte that is read is compared with what was written: it follows from the file's name.

use super::contents::{Contents, LENGTH_RATIO_MAX, exponential_length, read_expected};
use super::engine::{Course, Ground, Step, Tickets, Worker, run, stride};
use super::kept;
use super::report::{Form, Row};
use super::turns::Bench;
use crate::cli::Phase;
use crate::failure::Failure;
use runtime::random::SplitMix;
use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Files are spread over so many directories.
const DIRECTORIES: u64 = 100;
/// The directory that a run leaves for a later one.
const KEPT: &str = "sinter-bench-smallfile";

/// The plan of the measurement.
pub struct Plan {
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Bytes of files: of each, or on average.
    pub sizes: Vec<u64>,
    /// Lengths are distributed exponentially.
    pub exponential: bool,
    /// Files of a cell at most: reading them needs room and time for all.
    pub files: u64,
    /// The part of the work that is done.
    pub phase: Phase,
    /// Time for creating in each cell, and again for reading.
    pub time: Duration,
}

impl Plan {
    fn set(&self, cell: usize, ground: &Ground) -> Set {
        let (bytes, threads) = (self.sizes[cell / self.threads.len()], self.threads[cell % self.threads.len()]);
        let name = format!("{threads}x{bytes}{}", if self.exponential { "-exponential" } else { "" });
        let longest = if self.exponential { bytes * LENGTH_RATIO_MAX } else { bytes };
        let contents = Contents::new(&name, longest);
        Set { path: ground.path(&name), bytes, threads, exponential: self.exponential, contents }
    }
    fn read(&self, set: &Arc<Set>, course: &mut Course) -> Result<Row> {
        let count = kept::count(&set.path)?;
        course.begin(&format!("forgetting {count} files"));
        course.forget_files();
        course.begin(&format!("reading files of {} bytes cold, {} threads", set.bytes, set.threads));
        let tickets = Tickets::new(count);
        let stride = stride(count);
        let worker = |_| -> Worker {
            let (set, tickets, mut buffer) = (set.clone(), tickets.clone(), Vec::new());
            Box::new(move || match tickets.take() {
                Some(ticket) => set.read(ticket * stride % count, &mut buffer).map(Step::Done),
                None => Ok(Step::End),
            })
        };
        let measured = run((0..set.threads).map(worker).collect(), self.time, course)?;
        Ok(Row::of("read", set.threads, set.bytes, &measured))
    }
    fn create(&self, set: &Arc<Set>, course: &mut Course) -> Result<Row> {
        course.begin(&format!("creating files of {} bytes, {} threads", set.bytes, set.threads));
        fs::create_dir(&set.path)?;
        (0..DIRECTORIES).try_for_each(|number| fs::create_dir(set.path.join(directory(number))))?;
        let tickets = Tickets::new(self.files);
        let worker = |_| -> Worker {
            let (set, tickets) = (set.clone(), tickets.clone());
            Box::new(move || match tickets.take() {
                Some(ticket) => set.create(ticket).map(Step::Done),
                None => Ok(Step::End),
            })
        };
        let measured = run((0..set.threads).map(worker).collect(), self.time, course)?;
        kept::set_count(&set.path, tickets.taken())?;
        Ok(Row::of("create", set.threads, set.bytes, &measured))
    }
}

/// A cell is a size with a number of threads.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "smallfile",
            file_bytes: None,
            direct: false,
            seconds: Some(self.time.as_secs()),
            threads: "threads",
            rate: "files/s",
            ..Form::default()
        }
    }
    fn ground(&self, directory: &Path, name: &str) -> std::result::Result<Ground, Failure> {
        kept::ground(directory, name, KEPT, self.phase)
    }
    fn cells(&self) -> usize {
        if self.phase == Phase::Remove { 0 } else { self.sizes.len() * self.threads.len() }
    }
    fn measure(&self, cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let set = Arc::new(self.set(cell, ground));
        let mut rows = Vec::new();
        if self.phase != Phase::Read {
            rows.push(self.create(&set, course)?);
        }
        if self.phase != Phase::Create && !course.is_interrupted() {
            rows.push(self.read(&set, course)?);
        }
        if self.phase == Phase::Both {
            course.begin("removing the files");
            fs::remove_dir_all(&set.path)?;
        }
        Ok(rows)
    }
}

/// The files of one cell.
struct Set {
    path: PathBuf,
    bytes: u64,
    threads: u32,
    exponential: bool,
    contents: Contents,
}

fn directory(number: u64) -> String {
    format!("{number:02}")
}

/// The name of the file of this number, in any of the directories.
fn name(number: u64) -> String {
    format!("{}/{number}", directory(SplitMix(number).next() % DIRECTORIES))
}

impl Set {
    fn length(&self, number: u64) -> usize {
        if !self.exponential {
            return self.bytes as usize;
        }
        exponential_length(&mut SplitMix(!number), self.bytes)
    }
    fn create(&self, number: u64) -> Result<u64> {
        let (name, length) = (name(number), self.length(number));
        let mut file = File::create_new(self.path.join(&name))?;
        file.write_all(self.contents.of(&name, length))?;
        file.sync_all()?;
        Ok(length as u64)
    }
    fn read(&self, number: u64, buffer: &mut Vec<u8>) -> Result<u64> {
        let (name, length) = (name(number), self.length(number));
        let path = self.path.join(&name);
        read_expected(File::open(&path)?, &path, self.contents.of(&name, length), buffer)?;
        Ok(length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exponential_around_their_mean() {
        let contents = Contents::new("set", 16 * 4096);
        let set = Set { path: PathBuf::new(), bytes: 4096, threads: 1, exponential: true, contents };
        let lengths: Vec<u64> = (0..20_000).map(|number| set.length(number) as u64).collect();
        let mean = lengths.iter().sum::<u64>() / 20_000;
        let below_mean = lengths.iter().filter(|length| **length < 4096).count();
        assert!((3_950..4_250).contains(&mean), "{mean}");
        // 1 - 1/e of them.
        assert!((12_300..13_000).contains(&below_mean), "{below_mean}");
    }

    #[test]
    fn files_are_spread_over_all_directories() {
        let mut files = std::collections::BTreeMap::new();
        for number in 0..10_000 {
            *files.entry(name(number).split('/').next().map(str::to_string)).or_insert(0) += 1;
        }
        assert!(files.len() == 100 && files.values().all(|count| (60..140).contains(count)), "{files:?}");
    }
}
