//! Files that tell where each of their bytes belongs.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let (mut state, mut pattern) = (seed | 1, vec![0; bytes]);
    for word in pattern.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_le_bytes());
    }
    pattern
}

/// Makes a file of so many MiB durable.
pub fn write_synced(path: &Path, seed: u64, mib: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    for number in 0..mib {
        file.write_all(&pattern(seed << 32 | number << 1, 1 << 20))?;
    }
    file.sync_all()
}

/// Compares it.
pub fn verify(path: &Path, seed: u64, mib: u64) {
    let mut file = File::open(path).expect("the file is there");
    let mut bytes = vec![0; 1 << 20];
    for number in 0..mib {
        file.read_exact(&mut bytes).expect("it is whole");
        assert!(bytes == pattern(seed << 32 | number << 1, 1 << 20), "{} differs at {number} MiB", path.display());
    }
}
