//! The objects of a run. Promises that their names, lengths, bytes and attributes follow from a seed, and that a get compares all of
//! these with what was put. Objects are stored as object servers do it: each in a directory of its own, named by its hash, two levels
//! below directories named by parts of it.

use super::super::contents::{Contents, LENGTH_RATIO_MAX, exponential_length, read_expected, wrong};
use runtime::random::SplitMix;
use rustix::fs::{Advice, XattrFlags, fadvise, fgetxattr, fsetxattr};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// Bytes of an object on average.
pub const MEAN_BYTES: u64 = 64 << 10;
/// Attributes of each object, and bytes of each of these.
const ATTRIBUTES: usize = 5;
const ATTRIBUTE_BYTES: usize = 32;
/// Directory of objects that have no name yet.
const TEMPORARY: &str = "tmp";

/// The fate of an object's bytes in the kernel's memory once they were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// They stay as long as there is room.
    Keep,
    /// The kernel is asked to drop them.
    Drop,
}

/// Objects, each known by its number.
pub struct Objects {
    path: PathBuf,
    seed: u64,
    contents: Contents,
}

impl Objects {
    /// Those of this seed, in the directory `path`.
    pub fn new(path: PathBuf, seed: u64) -> Objects {
        let contents = Contents::new(&format!("object {seed}"), MEAN_BYTES * LENGTH_RATIO_MAX);
        // Neighbouring seeds have nothing in common.
        Objects { path, seed: SplitMix(seed).next(), contents }
    }
    /// Their directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Makes the directories that all objects need.
    pub fn prepare(&self) -> Result<()> {
        fs::create_dir(&self.path)?;
        fs::create_dir(self.path.join(TEMPORARY))
    }
    /// Number of the first objects that have so many bytes together, or at most one object more than that.
    pub fn reaching(&self, bytes: u64) -> u64 {
        let (mut count, mut sum) = (0, 0);
        while sum < bytes {
            sum += self.length(count) as u64;
            count += 1;
        }
        count
    }
    /// 64 bits that no other object of the seed has.
    fn key(&self, number: u64) -> u64 {
        SplitMix(self.seed ^ number).next()
    }
    /// Bytes of an object.
    pub fn length(&self, number: u64) -> usize {
        exponential_length(&mut SplitMix(!self.key(number)), MEAN_BYTES)
    }
    /// The bytes themselves.
    pub fn bytes(&self, number: u64) -> &[u8] {
        self.contents.of(&hash(self.key(number)), self.length(number))
    }
    /// The values of its attributes.
    pub fn attributes(&self, number: u64) -> [[u8; ATTRIBUTE_BYTES]; ATTRIBUTES] {
        let mut random = SplitMix(self.key(number));
        let mut values = [[0; ATTRIBUTE_BYTES]; ATTRIBUTES];
        for word in values.as_flattened_mut().chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        values
    }
    /// The directory of an object.
    fn home(&self, number: u64) -> PathBuf {
        let hash = hash(self.key(number));
        self.path.join(&hash[..2]).join(&hash[13..]).join(hash)
    }
    /// The file of an object.
    pub fn file(&self, number: u64) -> PathBuf {
        self.home(number).join("data")
    }
    /// Stores one; its length.
    pub fn put(&self, number: u64) -> Result<u64> {
        let (bytes, home) = (self.bytes(number), self.home(number));
        let temporary = self.path.join(TEMPORARY).join(hash(self.key(number)));
        let mut file = File::create_new(&temporary)?;
        file.write_all(bytes)?;
        for (index, value) in self.attributes(number).iter().enumerate() {
            fsetxattr(&file, attribute(index), value, XattrFlags::CREATE).map_err(refused)?;
        }
        file.sync_all()?;
        fs::create_dir_all(&home)?;
        fs::rename(temporary, home.join("data"))?;
        Ok(bytes.len() as u64)
    }
    /// Reads one with its attributes; its length.
    pub fn get(&self, number: u64, after: After, buffer: &mut Vec<u8>) -> Result<u64> {
        let (path, bytes) = (self.file(number), self.bytes(number));
        let file = File::open(&path).map_err(|error| at(&path, error))?;
        for (index, value) in self.attributes(number).iter().enumerate() {
            let name = attribute(index);
            // Room for a byte too many, which would be noticed.
            let mut found = [0; ATTRIBUTE_BYTES + 1];
            let length =
                fgetxattr(&file, &name, &mut found).map_err(|errno| at(&path, attribute_error(&name, errno)))?;
            if &found[..length] != value {
                return Err(wrong(&path, &format!("the attribute {name} is not the one that was put")));
            }
        }
        read_expected(&file, &path, bytes, buffer).map_err(|error| at(&path, error))?;
        if after == After::Drop {
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| at(&path, errno.into()))?;
        }
        Ok(bytes.len() as u64)
    }
    /// Removes one, and its own directory.
    pub fn delete(&self, number: u64) -> Result<()> {
        let home = self.home(number);
        fs::remove_file(home.join("data")).and_then(|()| fs::remove_dir(&home)).map_err(|error| at(&home, error))
    }
}

fn hash(key: u64) -> String {
    format!("{key:016x}")
}

fn attribute(index: usize) -> String {
    format!("user.object.{index}")
}

/// The path is told with an error of the system; those of ours have it.
fn at(path: &Path, error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidData => error,
        kind => Error::new(kind, format!("{}: {error}", path.display())),
    }
}

fn attribute_error(name: &str, errno: Errno) -> Error {
    let error = Error::from(errno);
    Error::new(error.kind(), format!("the attribute {name}: {error}"))
}

fn refused(errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP => Error::new(
            ErrorKind::Unsupported,
            "the file system keeps no extended attributes of users (user.*); measure another directory",
        ),
        errno => errno.into(),
    }
}
