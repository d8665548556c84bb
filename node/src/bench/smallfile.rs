//! `sinter bench smallfile`: threads that create small files (create, write, fsync, close), then read them cold (open, read,
//! close). Promises that each byte that is read is compared with what was written: it follows from the file's name.

use super::engine::{Course, Ground, Step, Tickets, Worker, run, stride};
use super::report::{Form, Row};
use super::turns::Bench;
use crate::cli::Phase;
use crate::failure::{Exit, Failure};
use runtime::random::SplitMix;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Files are spread over so many directories.
const DIRECTORIES: u64 = 100;
/// The longest of files whose lengths differ, as a multiple of their mean: one in nine million is longer.
const LENGTH_RATIO_MAX: u64 = 16;
/// Each file's bytes are a part of the same random ones, which begins at one of so many places.
const PLACES: u64 = 1 << 20;
/// The directory that a run leaves for a later one.
const KEPT: &str = "sinter-bench-smallfile";
/// Name of the file in each set of files that tells their number.
const COUNT: &str = "count";

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
        let count = set.count()?;
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
        fs::write(set.path.join(COUNT), tickets.taken().to_string())?;
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
            seconds: self.time.as_secs(),
            threads: "threads",
            rate: "files/s",
        }
    }
    fn ground(&self, directory: &Path, name: &str) -> std::result::Result<Ground, Failure> {
        match self.phase {
            Phase::Both => Ground::make(directory, name),
            Phase::Create if directory.join(KEPT).exists() => {
                let failure =
                    Failure::new(Exit::Usage, format!("{} holds the files of an earlier run", directory.display()));
                Err(failure.next("remove them with --phase remove"))
            }
            Phase::Create => Ground::make(directory, KEPT).map(Ground::keep),
            Phase::Read | Phase::Remove => {
                let missing =
                    || Failure::new(Exit::Usage, format!("{} holds no files of an earlier run", directory.display()));
                let ground =
                    Ground::existing(directory, KEPT).ok_or_else(|| missing().next("make them with --phase create"))?;
                Ok(if self.phase == Phase::Read { ground.keep() } else { ground })
            }
        }
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
        // A share above 0 and up to 1: its logarithm is there.
        let share = ((SplitMix(!number).next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let length = (-share.ln() * self.bytes as f64).round() as u64;
        length.clamp(1, self.bytes * LENGTH_RATIO_MAX) as usize
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
        // Room for a byte too many, which would be noticed.
        buffer.resize(length + 1, 0);
        let mut end = 0;
        let mut file = File::open(&path)?;
        while end < buffer.len() {
            match file.read(&mut buffer[end..])? {
                0 => break,
                read => end += read,
            }
        }
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display())));
        let expected = self.contents.of(&name, length);
        if end != length {
            return wrong(format!(
                "should have {length} bytes, {} were read",
                if end > length { "more" } else { "fewer" }
            ));
        }
        if &buffer[..end] != expected {
            let at = expected.iter().zip(&*buffer).position(|(one, other)| one != other);
            return wrong(format!("byte {} is not the one that was written", at.expect("they differ")));
        }
        Ok(length as u64)
    }
    /// Number of files that an earlier phase made.
    fn count(&self) -> Result<u64> {
        let missing = |error: Error| match error.kind() {
            ErrorKind::NotFound => {
                let set = self.path.file_name().unwrap_or_default().display();
                Error::other(format!("no files {set} were created; use the same options for both phases"))
            }
            _ => error,
        };
        let text = fs::read_to_string(self.path.join(COUNT)).map_err(missing)?;
        text.parse().map_err(|_| Error::other(format!("{} is no count", self.path.join(COUNT).display())))
    }
}

/// The content of files.
struct Contents {
    bytes: Vec<u8>,
    seed: u64,
}

impl Contents {
    fn new(set: &str, longest: u64) -> Contents {
        let mut random = SplitMix(1);
        let words = (PLACES + longest).div_ceil(8);
        let bytes = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        Contents { bytes, seed: hash(0, set) }
    }
    /// The bytes of the file of this name.
    fn of(&self, name: &str, length: usize) -> &[u8] {
        let start = (hash(self.seed, name) % PLACES) as usize;
        &self.bytes[start..start + length]
    }
}

fn hash(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |state, byte| SplitMix(state ^ u64::from(byte)).next())
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
