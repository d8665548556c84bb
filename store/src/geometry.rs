//! Where segments lie in the brick's files: files of 1 GiB (rule K7), made as needed, each a run of segments.

use base::limits::BLOCK_BYTES;
use base::{Place, Result, SegmentId};
use runtime::{Disk, FileId, Lock, OpenMode};
use std::sync::Arc;

/// A data file: large enough that few are open, small enough to be made while clients wait little.
const FILE_BYTES: u64 = 1 << 30;

/// The brick's shape and its open files.
pub struct Geometry {
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Segments of the brick, made or not.
    pub segments: u32,
    files: Lock<Vec<Option<FileId>>>,
    disk: Arc<dyn Disk>,
}

/// A block range's file and byte offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The file.
    pub file: FileId,
    /// Byte offset within it.
    pub offset: u64,
}

fn file_name(number: usize) -> String {
    format!("segments-{number:05}")
}

impl Geometry {
    /// Opens the data files that exist. One that is too short was being made when a crash came: no segment of it was
    /// ever used, because each is flushed before its first use, which makes the file's length durable.
    pub fn open(disk: Arc<dyn Disk>, segment_bytes: u64, segments: u32, writable: bool) -> Result<Geometry> {
        let names = disk.list()?;
        let mode = if writable { OpenMode::Existing } else { OpenMode::ReadOnly };
        let per_file = (FILE_BYTES / segment_bytes) as usize;
        let count = (segments as usize).div_ceil(per_file);
        let geometry = Geometry { segment_bytes, segments, files: Lock::new("files", vec![None; count]), disk };
        for number in 0..count {
            let name = file_name(number);
            if names.contains(&name) {
                let file = geometry.disk.open(&name, mode)?;
                let whole = geometry.disk.length(file)? >= geometry.file_bytes(number);
                geometry.files.lock()[number] = whole.then_some(file);
            }
        }
        Ok(geometry)
    }
    /// Bytes of a data file: the last one may hold fewer segments.
    fn file_bytes(&self, number: usize) -> u64 {
        let first = number as u64 * self.per_file();
        self.per_file().min(u64::from(self.segments) - first) * self.segment_bytes
    }
    /// Blocks per segment, header included.
    pub fn blocks(&self) -> u32 {
        (self.segment_bytes / BLOCK_BYTES as u64) as u32
    }
    fn per_file(&self) -> u64 {
        FILE_BYTES / self.segment_bytes
    }
    /// Where a place lies; None if its file was never made.
    pub fn spot(&self, place: Place) -> Option<Spot> {
        let number = u64::from(place.segment.0) / self.per_file();
        let within = u64::from(place.segment.0) % self.per_file();
        let file = (*self.files.lock().get(number as usize)?)?;
        Some(Spot { file, offset: within * self.segment_bytes + u64::from(place.block) * BLOCK_BYTES as u64 })
    }
    /// Makes the segment's file if it is not there, wholly reserved and durable; blocks. Errors: `NoSpace`, `Io`.
    pub fn make(&self, segment: SegmentId) -> Result<()> {
        let number = (u64::from(segment.0) / self.per_file()) as usize;
        if self.files.lock()[number].is_some() {
            return Ok(());
        }
        let name = file_name(number);
        let begun = self.disk.list()?.contains(&name);
        let file = self.disk.open(&name, if begun { OpenMode::Existing } else { OpenMode::Create })?;
        self.disk.allocate(file, self.file_bytes(number))?;
        self.disk.sync_names()?;
        self.files.lock()[number] = Some(file);
        Ok(())
    }
    /// Every open data file.
    pub fn all_files(&self) -> Vec<FileId> {
        self.files.lock().iter().copied().flatten().collect()
    }
}
