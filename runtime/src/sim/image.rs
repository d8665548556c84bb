//! The contents of a simulated disk after a crash; a new world can boot from it.

use super::content::Patch;
use super::pages::Pages;
use crate::random::SplitMix;
use base::checksum::crc32c_append;
use base::limits::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// The extent to which changes that were not durable survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// No change that was not durable survives: the emptiest legal image.
    Nothing,
    /// Everything survives, including writes in flight: as after a kill -9.
    Everything,
    /// Each write survives by seed, independently: whole, lost, or torn at sectors.
    Random,
}

/// The contents of a disk that is switched off. Cheap to clone.
#[derive(Clone)]
pub struct DiskImage {
    pub(super) capacity_bytes: u64,
    pub(super) wall_ns: i64,
    pub(super) files: BTreeMap<String, ImageFile>,
    /// Writes of a killed process that land while the next world runs: file and pages.
    pub(super) late: Vec<(String, Patch)>,
    /// Names of the devices that are hard disks.
    pub(super) spindles: BTreeSet<String>,
}

/// A file of an image.
#[derive(Clone, Default)]
pub(super) struct ImageFile {
    pub(super) length: u64,
    pub(super) pages: Pages,
}

impl DiskImage {
    /// Names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }
    /// Length of a file; None if there is no such file.
    pub fn length(&self, name: &str) -> Option<u64> {
        Some(self.files.get(name)?.length)
    }
    /// Bytes of a file from `offset` on; bytes beyond the file's end read as zero. None if there is no such file.
    pub fn read(&self, name: &str, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.files.get(name)?.pages.read(offset, &mut bytes);
        Some(bytes)
    }
    /// Rots the byte at `offset`: at least one of its bits changes. Panics if there is no such file or byte.
    pub fn flip_bits(&mut self, name: &str, offset: u64, rng: &mut SplitMix) {
        let file = self.files.get_mut(name).expect("the file exists");
        assert!(offset < file.length, "only bytes of the file can rot");
        file.pages.flip(offset, rot_mask(rng));
    }
    /// The same disk, with another disk's file in the place of its own.
    pub fn with_file_of(mut self, other: &DiskImage, name: &str) -> DiskImage {
        self.files.insert(name.to_string(), other.files[name].clone());
        self
    }
    /// The same disk without a file.
    pub fn without(mut self, name: &str) -> DiskImage {
        self.files.remove(name);
        self.spindles.remove(name);
        self
    }
    /// The same disk, with two of its files in each other's place.
    pub fn with_swapped(mut self, one: &str, other: &str) -> DiskImage {
        let [first, second] = [one, other].map(|name| self.files[name].clone());
        self.files.extend([(one.to_string(), second), (other.to_string(), first)]);
        self
    }
    /// Writes that will land late, by file and byte offset; see `World::kill`.
    pub fn late_writes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.late.iter().map(|(name, patch)| (name.as_str(), patch.first * BLOCK_BYTES as u64))
    }
    /// The same disk with only those late writes that `keep` wants.
    pub fn keep_late(mut self, mut keep: impl FnMut(&str, u64) -> bool) -> DiskImage {
        self.late.retain(|(name, patch)| keep(name, patch.first * BLOCK_BYTES as u64));
        self
    }
    /// A checksum over names, lengths and bytes, to compare images.
    pub fn checksum(&self) -> u32 {
        self.files.iter().fold(0, |crc, (name, file)| {
            let crc = crc32c_append(crc32c_append(crc, name.as_bytes()), &file.length.to_le_bytes());
            let written = file.pages.iter().filter(|(_, page)| page.iter().any(|&byte| byte != 0));
            written.fold(crc, |crc, (number, page)| crc32c_append(crc32c_append(crc, &number.to_le_bytes()), &page[..]))
        })
    }
}

/// Bits of a byte that rot: at least one.
pub(super) fn rot_mask(rng: &mut SplitMix) -> u8 {
    1 + rng.below(255) as u8
}
