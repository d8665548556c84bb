//! Reads that go through a file from end to end: what they read is not worth copying.

use super::Reader;
use base::{Ino, VolumeId};
use runtime::Lock;
use runtime::lock::LockSummary;

/// Files that are followed at the same time: so many streams are told apart.
const FILES: usize = 4096;
/// Bytes read in order from which on it is a stream. What is smaller is a file of its own, which may be read again as a whole;
/// and of a stream, the beginning may be copied: with it, the next one starts at once.
const STREAM_BYTES: u64 = 1 << 20;
/// Requests of one stream may overtake each other, and leave out this much.
const SLACK_BYTES: u64 = 256 << 10;
const _: () = assert!(SLACK_BYTES < STREAM_BYTES);

/// The reads of a file.
#[derive(Clone, Copy, Default)]
struct File {
    /// Tells most files with the same slot apart.
    name: u64,
    /// The end of what was read in order.
    end: u64,
    /// The length of that.
    bytes: u64,
}

/// See the module. Files that share a slot displace each other.
pub struct Streams(Lock<Vec<File>>);

impl Streams {
    /// Follows up to `FILES` files, or none.
    pub fn new(follows: bool) -> Streams {
        Streams(Lock::new("streams", vec![File::default(); if follows { FILES } else { 0 }]))
    }
    /// Bytes that following takes.
    pub fn bytes_of() -> u64 {
        (FILES * size_of::<File>()) as u64
    }
    /// Notes that a client reads a part of a file, and says whether that belongs to a stream.
    pub fn note(&self, volume: VolumeId, ino: Ino, offset: u64, length: u32) -> Reader {
        let name = crate::read_cache::mixed(u64::from(volume.0) << 32 ^ ino.0);
        let mut files = self.0.lock();
        let slots = files.len() as u64;
        let Some(file) = name.checked_rem(slots).and_then(|slot| files.get_mut(slot as usize)) else {
            return Reader::Client;
        };
        let end = offset.saturating_add(u64::from(length));
        let near = file.end.saturating_sub(SLACK_BYTES)..=file.end.saturating_add(SLACK_BYTES);
        if file.name != name || !near.contains(&offset) {
            *file = File { name, end, bytes: u64::from(length) };
        } else if end > file.end {
            file.bytes += end - file.end;
            file.end = end;
        }
        if file.bytes > STREAM_BYTES { Reader::Stream } else { Reader::Client }
    }
    /// The lock's figures.
    pub fn lock_summary(&self) -> LockSummary {
        self.0.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::GroupId;
    use runtime::random::SplitMix;

    const VOLUME: VolumeId = VolumeId(1);
    const READ_BYTES: u32 = 128 << 10;

    fn ino(number: u64) -> Ino {
        Ino::new(number + 2, GroupId(0))
    }
    /// The share of reads that count as parts of a stream.
    fn streamed(streams: &Streams, reads: impl Iterator<Item = (u64, u64)>) -> f64 {
        let noted: Vec<_> = reads.map(|(file, offset)| streams.note(VOLUME, ino(file), offset, READ_BYTES)).collect();
        noted.iter().filter(|reader| **reader == Reader::Stream).count() as f64 / noted.len() as f64
    }

    #[test]
    fn files_that_are_read_in_order_are_streams_also_if_requests_overtake_each_other() {
        let read_bytes = u64::from(READ_BYTES);
        for (swapped, files) in [(false, 1), (true, 1), (true, 60)] {
            let streams = Streams::new(true);
            let order = |number: u64| if swapped { number ^ 1 } else { number };
            let reads = (0..1000u64).flat_map(|number| (0..files).map(move |file| (file, order(number) * read_bytes)));
            let share = streamed(&streams, reads);
            assert!(share > 0.98 && share < 1.0, "{share} of {files}: all but the beginning ({swapped})");
        }
    }

    #[test]
    fn reads_at_random_and_of_small_files_are_none() {
        let random = &mut SplitMix(3);
        for file_bytes in [512 << 10, 4 << 20, 1 << 30] {
            let reads = (0..10_000).map(|_| (1, random.below(file_bytes / 4096) * 4096));
            let share = streamed(&Streams::new(true), reads);
            assert!(share < 0.15, "{share} of {file_bytes} bytes");
        }
        let reads = (0..800u64).map(|number| (number / 8 % 10, number % 8 * u64::from(READ_BYTES)));
        assert_eq!(streamed(&Streams::new(true), reads), 0.0, "files of 1 MiB, again and again");
        assert_eq!(streamed(&Streams::new(false), (0..100).map(|number| (1, number << 17))), 0.0);
    }
}
