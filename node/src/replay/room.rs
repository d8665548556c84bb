//! A worker's memory for data: aligned for O_DIRECT, with bytes that no file system can compress.

use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use runtime::random::SplitMix;

/// A buffer for one read or write.
pub struct Room {
    memory: Vec<u8>,
    skip: usize,
    random: SplitMix,
}

impl Room {
    /// A buffer whose bytes follow from `seed`.
    pub fn new(seed: u64) -> Room {
        let mut memory = vec![0; IO_BYTES_MAX + BLOCK_BYTES];
        let skip = memory.as_ptr().align_offset(BLOCK_BYTES);
        assert!(skip < BLOCK_BYTES, "a byte can be aligned");
        let mut random = SplitMix(seed);
        memory.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        Room { memory, skip, random }
    }
    /// Room for a read of so many bytes, at most 1 MiB.
    pub fn for_read(&mut self, length: u64) -> &mut [u8] {
        let length = (length as usize).min(IO_BYTES_MAX);
        &mut self.memory[self.skip..][..length]
    }
    /// The same with bytes to write: no two of its blocks, and no two writes, are alike.
    pub fn for_write(&mut self, length: u64) -> &[u8] {
        let length = (length as usize).min(IO_BYTES_MAX);
        let bytes = &mut self.memory[self.skip..][..length];
        for word in bytes.chunks_mut(BLOCK_BYTES).filter_map(|block| block.first_chunk_mut()) {
            *word = self.random.next().to_le_bytes();
        }
        bytes
    }
}
