//! Loads that know what was acknowledged as durable, and check it after a crash. All content follows from who wrote
//! it, where and in which version, so that a torn, misplaced or stale block is recognised.

use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK_BYTES: usize = 4096;
/// Few, so that a round overwrites many of them more than once.
const BLOCKS: u64 = 64;
/// No divisor or multiple of a block: records cross blocks.
const RECORD_BYTES: usize = 1000;
/// Up to five blocks.
const SMALL_BYTES_MAX: u64 = 20_000;
const O_DSYNC: i32 = 0o10000;

/// A load, and what it was promised.
pub trait Claim: Send {
    /// The name of its object.
    fn name(&self) -> String;
    /// Works until an error.
    fn work(&mut self, random: &mut SplitMix) -> Result<()>;
    /// Acknowledgements so far.
    fn acknowledged(&self) -> u64;
    /// Compares what is there with what was promised.
    fn check(&mut self, violations: &mut Vec<String>);
}

/// The way in which a load makes its writes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syncing {
    /// O_DSYNC.
    EachWrite,
    /// Calls of fdatasync.
    Fdatasync,
    /// Calls of fsync.
    Fsync,
}

impl Syncing {
    fn sync(self, file: &File) -> Result<()> {
        match self {
            Syncing::EachWrite => Ok(()),
            Syncing::Fdatasync => file.sync_data(),
            Syncing::Fsync => file.sync_all(),
        }
    }
    fn open(self, path: &Path) -> Result<File> {
        let flags = if self == Syncing::EachWrite { O_DSYNC } else { 0 };
        OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path)
    }
}

/// The bytes that a writer puts at a place in a version; the version is readable in them.
fn content(writer: u64, place: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix((writer << 48) ^ (place << 32) ^ version);
    let mut bytes_made = version.to_le_bytes().to_vec();
    while bytes_made.len() < bytes {
        bytes_made.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes_made.truncate(bytes);
    bytes_made
}

/// The version of a block, if all of it is of that version.
fn version(writer: u64, place: u64, block: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(block.get(..8)?.try_into().expect("8 bytes"));
    if block.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    (version != 0 && block == content(writer, place, version, block.len())).then_some(version)
}

/// A file's blocks, overwritten at random.
pub struct Blocks {
    path: PathBuf,
    writer: u64,
    mode: Syncing,
    durable: [u64; BLOCKS as usize],
    attempted: [u64; BLOCKS as usize],
    acknowledged: u64,
    version: u64,
}

impl Blocks {
    /// A claim whose file is not yet made.
    pub fn new(directory: &Path, writer: u64, mode: Syncing) -> Blocks {
        let (durable, attempted) = ([0; BLOCKS as usize], [0; BLOCKS as usize]);
        let path = directory.join(format!("blocks-{writer}"));
        Blocks { path, writer, mode, durable, attempted, acknowledged: 0, version: 0 }
    }
    fn write(&mut self, file: &File, random: &mut SplitMix) -> Result<()> {
        let place = random.below(BLOCKS);
        self.version += 1;
        self.attempted[place as usize] = self.version;
        let block = content(self.writer, place, self.version, BLOCK_BYTES);
        file.write_all_at(&block, place * BLOCK_BYTES as u64)
    }
}

impl Claim for Blocks {
    fn name(&self) -> String {
        format!("{} ({:?})", self.path.display(), self.mode)
    }
    fn work(&mut self, random: &mut SplitMix) -> Result<()> {
        let file = self.mode.open(&self.path)?;
        loop {
            let together = if self.mode == Syncing::EachWrite { 1 } else { 1 + random.below(8) };
            for _ in 0..together {
                self.write(&file, random)?;
            }
            self.mode.sync(&file)?;
            self.durable = self.attempted;
            self.acknowledged += 1;
        }
    }
    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
    fn check(&mut self, violations: &mut Vec<String>) {
        let mut read = read(&self.path).unwrap_or_default();
        read.resize(BLOCKS as usize * BLOCK_BYTES, 0);
        for (place, block) in read.chunks(BLOCK_BYTES).enumerate() {
            let (durable, attempted) = (self.durable[place], self.attempted[place]);
            match version(self.writer, place as u64, block) {
                // What a reader saw after a crash neither goes back at the next one, nor is overtaken by a write that
                // died with the daemon.
                Some(version) if (durable..=attempted).contains(&version) => {
                    (self.durable[place], self.attempted[place]) = (version, version);
                }
                found => violations.push(format!(
                    "{}: block {place} has version {found:?}, durable is {durable}, attempted {attempted}",
                    self.name()
                )),
            }
        }
    }
}

/// A file that grows by records.
pub struct Appended {
    path: PathBuf,
    writer: u64,
    mode: Syncing,
    durable: u64,
    attempted: u64,
}

impl Appended {
    /// A claim whose file is not yet made.
    pub fn new(directory: &Path, writer: u64, mode: Syncing) -> Appended {
        let path = directory.join(format!("appended-{writer}"));
        Appended { path, writer, mode, durable: 0, attempted: 0 }
    }
}

impl Claim for Appended {
    fn name(&self) -> String {
        format!("{} ({:?})", self.path.display(), self.mode)
    }
    fn work(&mut self, random: &mut SplitMix) -> Result<()> {
        let file = self.mode.open(&self.path)?;
        // The name is durable too, before anything counts.
        sync_directory(&self.path)?;
        loop {
            for _ in 0..1 + random.below(3) {
                let record = content(self.writer, self.attempted, self.attempted + 1, RECORD_BYTES);
                self.attempted += 1;
                file.write_all_at(&record, (self.attempted - 1) * RECORD_BYTES as u64)?;
            }
            self.mode.sync(&file)?;
            self.durable = self.attempted;
        }
    }
    fn acknowledged(&self) -> u64 {
        self.durable
    }
    fn check(&mut self, violations: &mut Vec<String>) {
        let read = read(&self.path).unwrap_or_default();
        if read.len() > self.attempted as usize * RECORD_BYTES {
            violations.push(format!("{}: {} bytes, more than were written", self.name(), read.len()));
        }
        for number in 0..self.durable {
            let from = number as usize * RECORD_BYTES;
            let expected = content(self.writer, number, number + 1, RECORD_BYTES);
            if read.get(from..from + RECORD_BYTES) != Some(&expected) {
                let text = format!("record {number} of {} durable ones, length {}", self.durable, read.len());
                violations.push(format!("{}: {text}", self.name()));
            }
        }
    }
}

/// Small files, each made, written and made durable with its name; some are removed again.
pub struct Small {
    directory: PathBuf,
    writer: u64,
    durable: u64,
    /// Durably removed.
    removed: Vec<u64>,
    /// Perhaps removed.
    removing: Option<u64>,
}

impl Small {
    /// None yet.
    pub fn new(directory: &Path, writer: u64) -> Small {
        Small { directory: directory.to_path_buf(), writer, durable: 0, removed: Vec::new(), removing: None }
    }
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("small-{number}"))
    }
    fn content(&self, number: u64) -> Vec<u8> {
        let bytes = SplitMix((self.writer << 32) ^ number).below(SMALL_BYTES_MAX);
        content(self.writer, number, number + 1, bytes as usize)
    }
}

impl Claim for Small {
    fn name(&self) -> String {
        format!("small files in {}", self.directory.display())
    }
    fn work(&mut self, random: &mut SplitMix) -> Result<()> {
        loop {
            let file = OpenOptions::new().write(true).create_new(true).open(self.path(self.durable))?;
            file.write_all_at(&self.content(self.durable), 0)?;
            file.sync_all()?;
            sync_directory(&self.path(self.durable))?;
            self.durable += 1;
            let victim = random.below(self.durable);
            if random.one_in(4) && !self.removed.contains(&victim) {
                self.removing = Some(victim);
                std::fs::remove_file(self.path(victim))?;
                sync_directory(&self.path(victim))?;
                self.removed.push(victim);
            }
        }
    }
    fn acknowledged(&self) -> u64 {
        self.durable + self.removed.len() as u64
    }
    fn check(&mut self, violations: &mut Vec<String>) {
        for number in 0..self.durable {
            let (found, removed) = (read(&self.path(number)), self.removed.contains(&number));
            let gone_is_right = removed || self.removing == Some(number);
            match found {
                None if gone_is_right => {}
                None => violations.push(format!("{}: {number} is missing", self.name())),
                Some(_) if removed => violations.push(format!("{}: {number} is back", self.name())),
                Some(found) if found == self.content(number) => {}
                Some(found) => violations.push(format!("{}: {number} differs, {} bytes", self.name(), found.len())),
            }
        }
    }
}

/// A name that new versions of a file are renamed to.
pub struct Replaced {
    directory: PathBuf,
    durable: u64,
    attempted: u64,
}

impl Replaced {
    /// A claim whose file is not yet there.
    pub fn new(directory: &Path) -> Replaced {
        Replaced { directory: directory.to_path_buf(), durable: 0, attempted: 0 }
    }
    fn target(&self) -> PathBuf {
        self.directory.join("replaced")
    }
}

impl Claim for Replaced {
    fn name(&self) -> String {
        self.target().display().to_string()
    }
    fn work(&mut self, _: &mut SplitMix) -> Result<()> {
        let new = self.directory.join("replacement");
        loop {
            let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
            file.write_all_at(&content(0, 0, self.attempted + 1, BLOCK_BYTES), 0)?;
            file.sync_all()?;
            self.attempted += 1;
            std::fs::rename(&new, self.target())?;
            sync_directory(&new)?;
            self.durable = self.attempted;
        }
    }
    fn acknowledged(&self) -> u64 {
        self.durable
    }
    fn check(&mut self, violations: &mut Vec<String>) {
        let found = match read(&self.target()) {
            None => Some(0),
            Some(bytes) if bytes.len() == BLOCK_BYTES => version(0, 0, &bytes).filter(|&version| version != 0),
            Some(_) => None,
        };
        if !found.is_some_and(|version| (self.durable..=self.attempted).contains(&version)) {
            let (durable, attempted) = (self.durable, self.attempted);
            let text = format!("version {found:?}, durable is {durable}, attempted {attempted}");
            violations.push(format!("{}: {text}", self.name()));
        }
    }
}

/// Makes the names in a file's directory durable.
/// A large file of which random parts are overwritten all the time, without any promise: it makes the cleaner work.
pub struct Churn {
    path: PathBuf,
    bytes: u64,
}

impl Churn {
    /// Bytes of one write.
    const PIECE: u64 = 64 << 10;

    /// Lays out a file of `bytes` bytes, and overwrites random parts of it, `again` bytes in all.
    pub fn lay_out(directory: &Path, bytes: u64, again: u64) -> Churn {
        let path = directory.join("churn");
        let file = File::create(&path).expect("the mount is writable");
        let piece = vec![7; 1 << 20];
        for offset in (0..bytes).step_by(1 << 20) {
            file.write_all_at(&piece, offset).expect("there is room");
        }
        let mut random = SplitMix(bytes);
        for _ in 0..again / Churn::PIECE {
            let offset = random.below(bytes / Churn::PIECE) * Churn::PIECE;
            file.write_all_at(&piece[..Churn::PIECE as usize], offset).expect("there is room");
        }
        file.sync_all().expect("the mount is writable");
        Churn { path, bytes }
    }
}

impl Claim for Churn {
    fn name(&self) -> String {
        self.path.display().to_string()
    }
    fn work(&mut self, random: &mut SplitMix) -> Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        let piece = vec![8; Churn::PIECE as usize];
        loop {
            file.write_all_at(&piece, random.below(self.bytes / Churn::PIECE) * Churn::PIECE)?;
        }
    }
    fn acknowledged(&self) -> u64 {
        0
    }
    fn check(&mut self, violations: &mut Vec<String>) {
        let length = std::fs::metadata(&self.path).map(|metadata| metadata.len()).ok();
        if length != Some(self.bytes) {
            violations.push(format!("{} has {length:?} bytes of {}", self.name(), self.bytes));
        }
    }
}

fn sync_directory(file: &Path) -> Result<()> {
    File::open(file.parent().expect("files are in directories"))?.sync_all()
}

/// A file's content; `None` if there is none.
fn read(path: &Path) -> Option<Vec<u8>> {
    match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
