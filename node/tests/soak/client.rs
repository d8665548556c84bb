//! A client that works in a directory of its own and knows what each byte of its files must be: of each block the
//! version that was written to it, and up to where; what follows is zeros.

#![allow(dead_code)] // Each test program uses its own part.

use super::space::{BLOCK, block};
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes per second that a client moves: churn, not a benchmark.
const PACE_BYTES: u64 = 8 << 20;
/// Blocks by which one operation grows a file at most, apart from `Create`.
const GROWTH_BLOCKS: u64 = 512;

/// An action of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Create,
    Small,
    Large,
    Append,
    Truncate,
    Rename,
    Delete,
    Sync,
    Read,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Create,
        Action::Small,
        Action::Large,
        Action::Append,
        Action::Truncate,
        Action::Rename,
        Action::Delete,
        Action::Sync,
        Action::Read,
    ];
    /// Chooses an action; the weights are percentages. Creations follow from deletions.
    fn choose(random: &mut SplitMix) -> Action {
        match random.below(100) {
            0..40 => Action::Small,
            40..46 => Action::Large,
            46..64 => Action::Append,
            64..68 => Action::Truncate,
            68..74 => Action::Rename,
            74..76 => Action::Delete,
            76..80 => Action::Sync,
            _ => Action::Read,
        }
    }
}

/// Operations of one kind.
#[derive(Clone, Copy, Default)]
pub struct Figure {
    pub count: u64,
    pub total: Duration,
    pub slowest: Duration,
    /// Time at which the slowest one ended, since the client's start.
    pub slowest_at: Duration,
}

/// Operations of all kinds.
#[derive(Clone, Copy, Default)]
pub struct Figures([Figure; Action::ALL.len()]);

impl Figures {
    pub fn of(&self, action: Action) -> Figure {
        self.0[action as usize]
    }
    /// Adds those of another client.
    pub fn add(&mut self, other: &Figures) {
        for (one, other) in self.0.iter_mut().zip(&other.0) {
            one.count += other.count;
            one.total += other.total;
            if other.slowest > one.slowest {
                (one.slowest, one.slowest_at) = (other.slowest, other.slowest_at);
            }
        }
    }
}

/// The content of a block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Known {
    /// 0: a hole.
    version: u32,
    /// Bytes of that version; zeros follow.
    valid: u16,
}

/// The content of a file.
struct Model {
    id: u64,
    path: PathBuf,
    size: u64,
    blocks: Vec<Known>,
}

impl Model {
    /// Blocks that take space.
    fn taken(&self) -> u64 {
        self.blocks.iter().filter(|known| known.version != 0).count() as u64
    }
    /// The bytes of whole blocks, as they must be.
    fn expected(&self, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((count * BLOCK) as usize);
        for number in first..(first + count).min(self.blocks.len() as u64) {
            let Known { version, valid } = self.blocks[number as usize];
            let start = bytes.len();
            bytes.resize(start + BLOCK as usize, 0);
            if version != 0 {
                let valid = usize::from(valid);
                bytes[start..start + valid].copy_from_slice(&block(self.id, number, u64::from(version))[..valid]);
            }
        }
        bytes.truncate(self.size.saturating_sub(first * BLOCK).min(count * BLOCK) as usize);
        bytes
    }
    /// Notes that whole blocks were written.
    fn wrote(&mut self, first: u64, count: u64, version: u32) {
        let end = first + count;
        self.blocks.resize(self.blocks.len().max(end as usize), Known::default());
        self.blocks[first as usize..end as usize].fill(Known { version, valid: BLOCK as u16 });
        self.size = self.size.max(end * BLOCK);
    }
    /// Notes a new size.
    fn truncated(&mut self, size: u64) {
        self.blocks.resize(size.div_ceil(BLOCK) as usize, Known::default());
        let within = (size % BLOCK) as u16;
        if let Some(last) = self.blocks.last_mut().filter(|_| size < self.size && within != 0) {
            last.valid = last.valid.min(within);
        }
        self.size = size;
    }
}

/// See the module.
pub struct Client {
    directory: PathBuf,
    random: SplitMix,
    /// Blocks that its files hold at most.
    quota: u64,
    taken: u64,
    files: Vec<Model>,
    /// The last file's or version's number: none comes twice.
    last: u32,
    started: Instant,
    figures: Figures,
}

impl Client {
    /// Makes its directory.
    pub fn new(directory: &Path, number: u64, quota: u64) -> Client {
        std::fs::create_dir(directory).expect("the mount is writable");
        Client {
            directory: directory.to_path_buf(),
            random: SplitMix(number + 1),
            quota,
            taken: 0,
            files: Vec::new(),
            last: number as u32 * 1_000_000_000,
            started: Instant::now(),
            figures: Figures::default(),
        }
    }
    /// Blocks that its files take.
    pub fn blocks(&self) -> u64 {
        self.files.iter().map(Model::taken).sum()
    }
    /// The figures of what it did.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Fills its quota, then works until it is stopped. Errors: the first failure, with what was being done.
    pub fn work(&mut self, stop: &AtomicBool) -> std::result::Result<(), String> {
        while !stop.load(Ordering::SeqCst) {
            let room = self.quota.saturating_sub(self.taken);
            let action = match Action::choose(&mut self.random) {
                _ if self.files.is_empty() || room > 4 * GROWTH_BLOCKS => Action::Create,
                Action::Small | Action::Large | Action::Append | Action::Sync if room < GROWTH_BLOCKS => Action::Delete,
                action => action,
            };
            let file = self.random.below(self.files.len().max(1) as u64) as usize;
            let done = self.perform(action, file);
            let bytes = done.map_err(|error| {
                let path = self.files.get(file).map(|file| file.path.display().to_string()).unwrap_or_default();
                format!("{action:?} of {path} after {:?}: {error}", self.started.elapsed())
            })?;
            // While it fills its quota it need not rest.
            if action != Action::Create {
                std::thread::sleep(Duration::from_micros(200 + bytes * 1_000_000 / PACE_BYTES));
            }
        }
        Ok(())
    }

    /// Performs an operation; returns the bytes moved.
    fn perform(&mut self, action: Action, file: usize) -> Result<u64> {
        let before = self.files.get(file).map_or(0, Model::taken);
        let bytes = match action {
            Action::Create => return self.create(),
            Action::Delete => {
                let gone = self.files.swap_remove(file);
                self.taken -= before;
                self.timed(action, || std::fs::remove_file(&gone.path))?;
                return Ok(0);
            }
            Action::Small => self.overwrite(action, file, 1)?,
            Action::Large => {
                let blocks = 64 + self.random.below(GROWTH_BLOCKS - 64);
                self.overwrite(action, file, blocks)?
            }
            Action::Append => self.append(file)?,
            Action::Truncate => {
                let size = self.files[file].size;
                let size = self.random.below(size + size / 8 + 2);
                let path = &self.files[file].path;
                let opened = OpenOptions::new().write(true).open(path)?;
                self.timed(action, || opened.set_len(size))?;
                self.files[file].truncated(size);
                0
            }
            Action::Rename => {
                let path = self.new_path();
                let old = std::mem::replace(&mut self.files[file].path, path.clone());
                self.timed(action, || std::fs::rename(&old, &path))?;
                0
            }
            Action::Sync => {
                // With something to make durable.
                let bytes = self.overwrite(Action::Small, file, 1)?;
                let opened = File::open(&self.files[file].path)?;
                self.timed(action, || opened.sync_all())?;
                bytes
            }
            Action::Read => self.read(file)?,
        };
        self.taken = self.taken - before + self.files[file].taken();
        Ok(bytes)
    }

    fn timed<T>(&mut self, action: Action, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let done = operation();
        let took = started.elapsed();
        let figure = &mut self.figures.0[action as usize];
        figure.count += 1;
        figure.total += took;
        if took > figure.slowest {
            (figure.slowest, figure.slowest_at) = (took, self.started.elapsed());
        }
        done
    }

    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn new_path(&mut self) -> PathBuf {
        let number = self.number();
        self.directory.join(format!("file-{number}"))
    }

    /// Half of the files are small, a fifth are of many leaves.
    fn create(&mut self) -> Result<u64> {
        let room = self.quota.saturating_sub(self.taken).max(1);
        let blocks = match self.random.below(10) {
            0..5 => 1 + self.random.below(16),
            5..8 => 1 + self.random.below(512),
            _ => 1 + self.random.below(6144),
        };
        let (blocks, path, version) = (blocks.min(room), self.new_path(), self.number());
        let mut model = Model { id: u64::from(self.last), path, size: 0, blocks: Vec::new() };
        let file = File::create_new(&model.path)?;
        for first in (0..blocks).step_by(256) {
            let count = (blocks - first).min(256);
            let bytes: Vec<u8> =
                (first..first + count).flat_map(|number| block(model.id, number, u64::from(version))).collect();
            self.timed(Action::Create, || file.write_all_at(&bytes, first * BLOCK))?;
            model.wrote(first, count, version);
        }
        self.taken += blocks;
        self.files.push(model);
        Ok(blocks * BLOCK)
    }

    /// Writes whole blocks somewhere in the file, or a little beyond its end.
    fn overwrite(&mut self, action: Action, file: usize, count: u64) -> Result<u64> {
        let first = self.random.below(self.files[file].blocks.len() as u64 + 1);
        self.write_blocks(action, file, first, count)
    }

    fn write_blocks(&mut self, action: Action, file: usize, first: u64, count: u64) -> Result<u64> {
        let version = self.number();
        let (id, path) = (self.files[file].id, &self.files[file].path);
        let bytes: Vec<u8> = (first..first + count).flat_map(|number| block(id, number, u64::from(version))).collect();
        let opened = OpenOptions::new().write(true).open(path)?;
        self.timed(action, || opened.write_all_at(&bytes, first * BLOCK))?;
        self.files[file].wrote(first, count, version);
        Ok(count * BLOCK)
    }

    /// Appends up to five blocks of no even length: the last block's version goes on where it ended.
    fn append(&mut self, file: usize) -> Result<u64> {
        let length = 1 + self.random.below(5 * BLOCK);
        let version = self.number();
        let model = &self.files[file];
        let (id, size, within) = (model.id, model.size, model.size % BLOCK);
        let last = model.blocks.last().copied().unwrap_or_default();
        if within != 0 && (last.version == 0 || u64::from(last.valid) != within) {
            let first = size / BLOCK;
            return self.write_blocks(Action::Append, file, first, 1);
        }
        let end = size + length;
        let mut bytes = Vec::new();
        let mut blocks = Vec::new();
        for number in size / BLOCK..end.div_ceil(BLOCK) {
            let version = if number * BLOCK < size { last.version } else { version };
            bytes.extend_from_slice(&block(id, number, u64::from(version)));
            blocks.push(Known { version, valid: (end - number * BLOCK).min(BLOCK) as u16 });
        }
        let bytes = &bytes[within as usize..within as usize + length as usize];
        let opened = OpenOptions::new().append(true).open(&model.path)?;
        self.timed(Action::Append, || std::io::Write::write_all(&mut &opened, bytes))?;
        let model = &mut self.files[file];
        model.blocks.truncate((size / BLOCK) as usize);
        model.blocks.extend(blocks);
        model.size = end;
        Ok(length)
    }

    /// Reads up to a MiB and compares.
    fn read(&mut self, file: usize) -> Result<u64> {
        let first = self.random.below(self.files[file].blocks.len() as u64 + 1);
        let count = 1 + self.random.below(256);
        let opened = File::open(&self.files[file].path)?;
        let bytes = self.timed(Action::Read, || read_at(&opened, first, count))?;
        self.files[file].compare(first, count, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Compares all files.
    pub fn verify_all(&self) -> Result<()> {
        for model in &self.files {
            let opened = File::open(&model.path)?;
            if opened.metadata()?.len() != model.size {
                let what = format!("{} has {:?}, expected {} bytes", model.path.display(), opened, model.size);
                return Err(std::io::Error::other(what));
            }
            for first in (0..model.blocks.len() as u64).step_by(256) {
                model.compare(first, 256, &read_at(&opened, first, 256)?)?;
            }
        }
        Ok(())
    }
    /// Deletes all files, and the directory.
    pub fn delete_all(&self) {
        std::fs::remove_dir_all(&self.directory).expect("the mount is writable");
    }
}

impl Model {
    fn compare(&self, first: u64, count: u64, found: &[u8]) -> Result<()> {
        let expected = self.expected(first, count);
        if expected == found {
            return Ok(());
        }
        let at = expected.iter().zip(found).position(|(one, other)| one != other);
        let at = first * BLOCK + at.unwrap_or(expected.len().min(found.len())) as u64;
        let (size, known) = (self.size, self.blocks.get((at / BLOCK) as usize));
        let what = format!(
            "{} of {size} bytes differs from byte {at} on ({known:?}): {} bytes read, {} expected",
            self.path.display(),
            found.len(),
            expected.len()
        );
        Err(std::io::Error::other(what))
    }
}

fn read_at(file: &File, first: u64, count: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (count * BLOCK) as usize];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], first * BLOCK + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}
