//! Loads of many files, which threads of this process make through the file system like any program.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Small files lie in so many directories.
const DIRECTORIES: usize = 100;
/// A prime, so that each file comes once.
const STRIDE: usize = 7919;

/// The measurements of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    pub operations: usize,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Does an operation for each number below `count`, thread by thread in turns; all threads start at once.
pub fn on_threads(threads: usize, count: usize, operation: impl Fn(usize) -> Result<()> + Sync) -> Result<Done> {
    let start = Barrier::new(threads);
    let thread = |first: usize| {
        let mut times = Vec::with_capacity(count / threads + 1);
        start.wait();
        let began = Instant::now();
        for number in (first..count).step_by(threads) {
            let began = Instant::now();
            operation(number)?;
            times.push(began.elapsed());
        }
        Ok((began, Instant::now(), times))
    };
    let of_threads: Vec<(Instant, Instant, Vec<Duration>)> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads).map(|first| scope.spawn(move || thread(first))).collect();
        spawned.into_iter().map(|one| one.join().expect("a load does not panic")).collect::<Result<_>>()
    })?;
    let first = of_threads.iter().map(|(began, ..)| *began).min().expect("there is a thread");
    let last = of_threads.iter().map(|(_, ended, _)| *ended).max().expect("there is a thread");
    let mut times: Vec<Duration> = of_threads.into_iter().flat_map(|(.., times)| times).collect();
    times.sort();
    let us = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_secs_f64() * 1e6;
    let per_second = count as f64 / (last - first).as_secs_f64();
    Ok(Done { operations: count, per_second, p50_us: us(50), p99_us: us(99) })
}

/// A tree of small files.
pub struct Spray {
    root: PathBuf,
    count: usize,
    /// Data that nothing can compress; each file takes another stretch of it.
    data: Vec<u8>,
    bytes: usize,
}

impl Spray {
    /// Makes the directories.
    pub fn new(directory: &Path, count: usize, bytes: usize) -> Result<Spray> {
        let root = directory.join("small");
        for number in 0..DIRECTORIES {
            std::fs::create_dir_all(root.join(number.to_string()))?;
        }
        Ok(Spray { root, count, data: noise(bytes + 4096), bytes })
    }
    fn path(&self, number: usize) -> PathBuf {
        self.root.join(format!("{}/{number}", number % DIRECTORIES))
    }
    fn content(&self, number: usize) -> &[u8] {
        &self.data[number % 4096..][..self.bytes]
    }
    /// Creates all files, each durable before the next of its thread.
    pub fn create(&self, threads: usize) -> Result<Done> {
        on_threads(threads, self.count, |number| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(self.path(number))?;
            file.write_all(self.content(number))?;
            file.sync_all()
        })
    }
    /// Reads all files to their ends, and holds them against what was written. By plain reads: `read_to_end` asks for the file's
    /// attributes first.
    pub fn read(&self, threads: usize) -> Result<Done> {
        on_threads(threads, self.count, |number| {
            let number = scattered(number, self.count);
            let (mut content, mut length) = (vec![0; self.bytes + 1], 0);
            let mut file = File::open(self.path(number))?;
            loop {
                match file.read(&mut content[length..])? {
                    0 => break,
                    more => length += more,
                }
            }
            if content[..length] == *self.content(number) {
                return Ok(());
            }
            Err(std::io::Error::other(format!("{} holds something else", self.path(number).display())))
        })
    }
    /// Removes it.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(self.root)
    }
}

/// Files are read in another order than they were made in: who reads them cold did not make them.
fn scattered(number: usize, count: usize) -> usize {
    number * STRIDE % count
}

/// Bytes of a xorshift generator.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut words = Vec::with_capacity(bytes + 8);
    while words.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend(state.to_le_bytes());
    }
    words.truncate(bytes);
    words
}

/// Empty files in one directory.
pub struct Crowd {
    root: PathBuf,
    count: usize,
}

impl Crowd {
    /// Makes the directory.
    pub fn new(directory: &Path, count: usize) -> Result<Crowd> {
        let root = directory.join("crowd");
        std::fs::create_dir(&root)?;
        Ok(Crowd { root, count })
    }
    fn path(&self, number: usize) -> PathBuf {
        self.root.join(format!("file-{number}"))
    }
    /// Creates all files.
    pub fn create(&self, threads: usize) -> Result<Done> {
        let create = |number| OpenOptions::new().write(true).create_new(true).open(self.path(number)).map(drop);
        on_threads(threads, self.count, create)
    }
    /// Asks for all files' attributes, as stat(2) does: without the birth time.
    pub fn stat(&self, threads: usize) -> Result<Done> {
        let stat = |number| Ok(rustix::fs::stat(self.path(scattered(number, self.count))).map(drop)?);
        on_threads(threads, self.count, stat)
    }
    /// Removes all files.
    pub fn unlink(&self, threads: usize) -> Result<Done> {
        on_threads(threads, self.count, |number| std::fs::remove_file(self.path(number)))
    }
    /// Removes the directory, in which nothing may be left.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir(self.root)
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
