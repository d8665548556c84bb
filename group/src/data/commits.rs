//! Detection of clients that commit small writes again and again. While there are some, large payloads that no client
//! waits to be durable keep out of their way (decision 0024).
//!
//! The detection is a guess from what clients do, and no promise depends on it. A client that writes a file and then
//! syncs it commits; only commits of small writes count.

use base::Ino;
use base::limits::{BULK_BYTES_MIN, GROUP_BITS};
use std::sync::atomic::{AtomicU64, Ordering};

/// Time within which a client that has committed is expected to commit again: a few commits of a slow device.
const EXPECTED_NS: u64 = 10_000_000;
/// Number of slots for files that are remembered. Files whose numbers fall into the same slot displace each other.
const FILES: usize = 256;
/// A mark beside a file's number, which never has this bit: the file was written in large pieces.
const LARGE: u64 = 1 << 63;
const _: () = assert!(Ino::SEQUENCE_END << GROUP_BITS <= LARGE);

/// The latest writes and commits.
pub(crate) struct SmallCommits {
    /// Files with writes that have not been committed yet.
    files: [AtomicU64; FILES],
    last_ns: AtomicU64,
}

impl SmallCommits {
    pub fn new() -> SmallCommits {
        SmallCommits { files: [const { AtomicU64::new(0) }; FILES], last_ns: AtomicU64::new(0) }
    }
    /// Notes that a client writes `bytes` bytes of a file.
    pub fn wrote(&self, ino: Ino, bytes: usize) {
        let file = self.file(ino);
        let before = file.load(Ordering::Relaxed);
        let large = ino.0 | LARGE;
        let after = if bytes >= BULK_BYTES_MIN || before == large { large } else { ino.0 };
        if after != before {
            file.store(after, Ordering::Relaxed);
        }
    }
    /// Notes that a client waits until its writes of a file are durable.
    pub fn commits(&self, ino: Ino, now_ns: u64) {
        let file = self.file(ino);
        let written = file.load(Ordering::Relaxed);
        if written == ino.0 {
            self.last_ns.store(now_ns, Ordering::Relaxed);
        }
        if written & !LARGE == ino.0 {
            file.store(0, Ordering::Relaxed);
        }
    }
    /// True while another small commit is expected soon.
    pub fn are_expected(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed)) < EXPECTED_NS
    }
    fn file(&self, ino: Ino) -> &AtomicU64 {
        // The low bits name the group, which is the same for files of one directory: the sequence number is mixed in.
        &self.files[(ino.0 ^ ino.0 >> 20) as usize % FILES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::GroupId;

    #[test]
    fn only_those_count_who_write_little() {
        let ino = |number| Ino::new(number, GroupId(3));
        // Bytes of the writes before the commit.
        for (writes, counts) in [
            (&[][..], false),
            (&[4096], true),
            (&[1 << 20], false),
            (&[1 << 20, 4096], false),
            (&[4096, 1 << 20], false),
            (&[4096; 3], true),
        ] {
            let seen = SmallCommits::new();
            writes.iter().for_each(|&bytes| seen.wrote(ino(7), bytes));
            seen.commits(ino(8), 1_000_000_000);
            assert!(!seen.are_expected(1_000_000_000), "another file");
            seen.commits(ino(7), 1_000_000_000);
            assert_eq!(seen.are_expected(1_000_000_001), counts, "{writes:?}");
            assert!(!seen.are_expected(2_000_000_000), "for a moment");
            seen.commits(ino(7), 3_000_000_000);
            assert!(!seen.are_expected(3_000_000_000), "nothing was written since");
        }
    }
}
