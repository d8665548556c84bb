//! Bytes and lengths of many files. Promises that a file's bytes follow from its name, so that each byte that is read is compared
//! with what was written and nobody has to remember any.

use runtime::random::SplitMix;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The longest of files whose lengths are exponential, as a multiple of their mean: one in nine million is longer.
pub const LENGTH_RATIO_MAX: u64 = 16;
/// Each file's bytes are a part of the same random ones, which begins at one of so many places.
const PLACES: u64 = 1 << 20;

/// The content of files.
pub struct Contents {
    bytes: Vec<u8>,
    seed: u64,
}

impl Contents {
    /// Contents of a set of files, none of which is longer than `longest`; another set has others.
    pub fn new(set: &str, longest: u64) -> Contents {
        let mut random = SplitMix(1);
        let words = (PLACES + longest).div_ceil(8);
        let bytes = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        Contents { bytes, seed: hash(0, set) }
    }
    /// The bytes of the file of this name.
    pub fn of(&self, name: &str, length: usize) -> &[u8] {
        let start = (hash(self.seed, name) % PLACES) as usize;
        &self.bytes[start..start + length]
    }
}

fn hash(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |state, byte| SplitMix(state ^ u64::from(byte)).next())
}

/// A length of an exponential distribution around this mean: 1 at least, 16 times the mean at most.
pub fn exponential_length(random: &mut SplitMix, mean: u64) -> usize {
    // A share above 0 and up to 1: its logarithm is there.
    let share = ((random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let length = (-share.ln() * mean as f64).round() as u64;
    length.clamp(1, mean * LENGTH_RATIO_MAX) as usize
}

/// Reads a file in order up to its end. Errors: its bytes are not the expected ones.
pub fn read_expected(mut file: impl Read, path: &Path, expected: &[u8], buffer: &mut Vec<u8>) -> Result<()> {
    // Room for a byte too many, which would be noticed.
    buffer.resize(expected.len() + 1, 0);
    let mut end = 0;
    while end < buffer.len() {
        match file.read(&mut buffer[end..])? {
            0 => break,
            read => end += read,
        }
    }
    let length = expected.len();
    if end != length {
        let what = if end > length { "more" } else { "fewer" };
        return Err(wrong(path, &format!("should have {length} bytes, {what} were read")));
    }
    if &buffer[..end] != expected {
        let at = expected.iter().zip(&*buffer).position(|(one, other)| one != other);
        return Err(wrong(path, &format!("byte {} is not the one that was written", at.expect("they differ"))));
    }
    Ok(())
}

/// An error about a file that is not what was written.
pub fn wrong(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}
