//! The places of the brick's segments: in files of 1 GiB (rule K7), created as needed, each a run of segments; or on a
//! block device, one after the other (rule X5). A brick may have further devices behind that one: each has a range of
//! segment numbers of its own.

use crate::format::devices::{DeviceRow, Tier};
use crate::format::label::SEGMENTS_AT;
use base::limits::{BLOCK_BYTES, DEVICES_MAX};
use base::{Error, Kind, Place, Result, SegmentId};
use runtime::{Disk, FileId, Lock, OpenMode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A data file: large enough that few are open, small enough to be made while clients wait little.
const FILE_BYTES: u64 = 1 << 30;

/// The brick's shape and its open files.
pub struct Geometry {
    /// Bytes per segment.
    pub segment_bytes: u64,
    home: Home,
    /// Devices beside the first, in the order in which they came.
    further: [OnceLock<Further>; DEVICES_MAX],
    disk: Arc<dyn Disk>,
}

/// A device beside the first.
struct Further {
    first: u32,
    end: u32,
    tier: Tier,
    medium: Medium,
    gone: AtomicBool,
}

/// The state in which a start finds a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// It is there.
    There(FileId),
    /// It belongs to the brick, and is not there.
    Missing,
    /// It has left the brick.
    Left,
}

impl Further {
    /// Its file; None if it is missing, or once it has left.
    fn file(&self) -> Option<FileId> {
        match self.medium {
            Medium::There(file) if !self.gone.load(Ordering::Acquire) => Some(file),
            _ => None,
        }
    }
    fn is_missing(&self) -> bool {
        self.medium == Medium::Missing && !self.gone.load(Ordering::Acquire)
    }
}

enum Home {
    Files(Lock<Files>),
    Device(FileId),
}

struct Files {
    /// Segments for which files are made: those of the brick, and those by which it is about to grow.
    segments: u32,
    open: Vec<Option<FileId>>,
    /// Those that a start found too short, and their numbers.
    short: Vec<(usize, FileId)>,
}

/// A block range's file and byte offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The file.
    pub file: FileId,
    /// Byte offset within it.
    pub offset: u64,
}

/// Prefix of the names of data files.
pub const FILE_PREFIX: &str = "segments-";

fn file_name(number: usize) -> String {
    format!("{FILE_PREFIX}{number:05}")
}

impl Geometry {
    /// Opens the data files that exist. One that is too short was being made when a crash came: no segment of it was
    /// ever used, because each is flushed before its first use, which makes the file's length durable.
    pub fn open(disk: Arc<dyn Disk>, segment_bytes: u64, segments: u32, writable: bool) -> Result<Geometry> {
        let names = disk.list()?;
        let mode = if writable { OpenMode::Existing } else { OpenMode::ReadOnly };
        let per_file = (FILE_BYTES / segment_bytes) as usize;
        let count = (segments as usize).div_ceil(per_file);
        // A file is made only once the superblock counts its segments.
        let number = |name: &String| name.strip_prefix(FILE_PREFIX)?.parse::<usize>().ok();
        if let Some(more) = names.iter().filter_map(number).find(|&number| number >= count) {
            let what = "the superblock counts fewer segments than there are files: restore it from a backup";
            return Err(Error::new(Kind::Corrupt, what).with(file_name(more)));
        }
        let mut files = Files { segments, open: vec![None; count], short: Vec::new() };
        for number in 0..files.open.len() {
            let name = file_name(number);
            if names.contains(&name) {
                let file = disk.open(&name, mode)?;
                let whole = disk.length(file)? >= files.bytes(number, segment_bytes);
                files.open[number] = whole.then_some(file);
                if !whole {
                    files.short.push((number, file));
                }
            }
        }
        Ok(Geometry::at(disk, segment_bytes, Home::Files(Lock::new("files", files))))
    }
    /// Segments on a device that was found to be the brick's and long enough.
    pub fn on_device(disk: Arc<dyn Disk>, segment_bytes: u64, device: FileId) -> Geometry {
        Geometry::at(disk, segment_bytes, Home::Device(device))
    }
    fn at(disk: Arc<dyn Disk>, segment_bytes: u64, home: Home) -> Geometry {
        Geometry { segment_bytes, home, further: [const { OnceLock::new() }; DEVICES_MAX], disk }
    }
    /// Adds a device that was found to be the brick's and long enough, or is not there. From now on places on one that is there can
    /// be read and written.
    pub fn add(&self, row: &DeviceRow, medium: Medium) {
        let free = self.further.iter().find(|further| further.get().is_none()).expect("the device table bounds them");
        let gone = AtomicBool::new(false);
        let added = free.set(Further { first: row.first, end: row.end(), tier: row.tier, medium, gone });
        assert!(added.is_ok(), "one adds devices at a time");
    }
    /// Removes a device on which nothing lies: its file, which nobody uses any more.
    pub fn remove(&self, row: &DeviceRow) -> Option<FileId> {
        let further = self.further(SegmentId(row.first)).expect("it was added");
        let file = further.file();
        further.gone.store(true, Ordering::Release);
        file
    }
    /// True if any device was added to the first.
    pub fn has_further(&self) -> bool {
        self.further[0].get().is_some()
    }
    fn further(&self, segment: SegmentId) -> Option<&Further> {
        let mut all = self.further.iter().map_while(OnceLock::get);
        all.find(|device| (device.first..device.end).contains(&segment.0))
    }
    /// True if a segment lies on a device that is missing.
    pub fn is_missing(&self, segment: SegmentId) -> bool {
        self.further(segment).is_some_and(Further::is_missing)
    }
    /// True if a segment lies on a device that is not there: it is missing, or has left.
    pub fn is_absent(&self, segment: SegmentId) -> bool {
        self.further(segment).is_some_and(|device| device.file().is_none())
    }
    /// True if any device is missing.
    pub fn has_missing(&self) -> bool {
        self.further.iter().map_while(OnceLock::get).any(Further::is_missing)
    }
    /// True if a segment lies on a block device.
    pub fn is_on_device(&self, segment: SegmentId) -> bool {
        matches!(self.home, Home::Device(_)) || self.further(segment).is_some()
    }
    /// True if a segment lies on a disk; the first device is flash.
    pub fn is_on_disk(&self, segment: SegmentId) -> bool {
        self.further(segment).is_some_and(|device| device.tier == Tier::Disk)
    }
    /// The first block device, if the segments of the brick's first device lie on one.
    pub fn device(&self) -> Option<FileId> {
        match &self.home {
            Home::Files(_) => None,
            Home::Device(file) => Some(*file),
        }
    }
    /// Blocks per segment, header included.
    pub fn blocks(&self) -> u32 {
        (self.segment_bytes / BLOCK_BYTES as u64) as u32
    }
    fn per_file(&self) -> u64 {
        FILE_BYTES / self.segment_bytes
    }
    /// The file and offset of a place; None if its file was never created, or its device is missing or has left.
    pub fn spot(&self, place: Place) -> Option<Spot> {
        if place == Place::MISSING {
            return None;
        }
        let segment = u64::from(place.segment.0);
        let (file, start) = match &self.home {
            _ if let Some(device) = self.further(place.segment) => {
                (device.file()?, SEGMENTS_AT + (segment - u64::from(device.first)) * self.segment_bytes)
            }
            Home::Device(file) => (*file, SEGMENTS_AT + segment * self.segment_bytes),
            Home::Files(files) => {
                let file = *files.lock().open.get((segment / self.per_file()) as usize)?;
                (file?, segment % self.per_file() * self.segment_bytes)
            }
        };
        Some(Spot { file, offset: start + u64::from(place.block) * BLOCK_BYTES as u64 })
    }
    /// Makes the segment's file if it is not there, wholly reserved and durable, and leaves `spare_bytes` to others; blocks.
    /// Errors: `NoSpace`, `Io`.
    pub fn make(&self, segment: SegmentId, spare_bytes: u64) -> Result<()> {
        let Home::Files(files) = &self.home else { return Ok(()) };
        if self.further(segment).is_some() {
            return Ok(());
        }
        let number = (u64::from(segment.0) / self.per_file()) as usize;
        if files.lock().open[number].is_some() {
            return Ok(());
        }
        let name = file_name(number);
        let begun = self.disk.list()?.contains(&name);
        let file = self.disk.open(&name, if begun { OpenMode::Existing } else { OpenMode::Create })?;
        loop {
            let bytes = files.lock().bytes(number, self.segment_bytes);
            let more_bytes = bytes - self.disk.length(file)?.min(bytes);
            if self.disk.free_bytes()? < more_bytes + spare_bytes {
                return Err(Error::new(Kind::NoSpace, "the brick's file system has no room for more segments"));
            }
            self.disk.allocate(file, bytes)?;
            self.disk.sync_names()?;
            let mut files = files.lock();
            // The brick may have grown meanwhile: then this file must be longer before it counts as made.
            if files.bytes(number, self.segment_bytes) <= bytes {
                files.open[number] = Some(file);
                return Ok(());
            }
        }
    }
    /// Makes ready for more segments; blocks. Returns the file that was made longer and must be flushed before the
    /// superblock says that the segments are there: a start takes a file for unmade that is shorter than it should be.
    /// Errors: `NoSpace`, `Io`; then nothing has changed that anybody sees.
    pub fn extend(&self, segments: u32) -> Result<Option<FileId>> {
        let Home::Files(files) = &self.home else { return Ok(None) };
        let (before, last) = {
            let mut files = files.lock();
            let before = files.segments;
            assert!(before <= segments, "bricks don't shrink");
            let last = files.open.len() - 1;
            let count = u64::from(segments).div_ceil(self.per_file()) as usize;
            files.segments = segments;
            files.open.resize(count, None);
            (before, files.open[last].map(|file| (file, files.bytes(last, self.segment_bytes))))
        };
        // A file that is being made now sees the new number when it is done.
        let Some((file, bytes)) = last else { return Ok(None) };
        if let Err(error) = self.disk.allocate(file, bytes) {
            self.give_up_extending(before);
            return Err(error);
        }
        Ok(Some(file))
    }
    /// The brick did not grow after all. Files that are longer than they need be do no harm.
    pub fn give_up_extending(&self, segments: u32) {
        let Home::Files(files) = &self.home else { return };
        let mut files = files.lock();
        files.segments = segments;
        files.open.truncate(u64::from(segments).div_ceil(self.per_file()) as usize);
    }
    /// Files that a start found too short, each with its first segment.
    pub fn short_files(&self) -> Vec<(FileId, u32)> {
        let Home::Files(files) = &self.home else { return Vec::new() };
        let first = |number: usize| (number as u64 * self.per_file()) as u32;
        files.lock().short.iter().map(|&(number, file)| (file, first(number))).collect()
    }
    /// Segments that the files would hold if the last one were as long as the others.
    pub fn segments_that_files_hold(&self) -> u32 {
        let Home::Files(files) = &self.home else { return 0 };
        (files.lock().open.len() as u64 * self.per_file()) as u32
    }
    /// Segments before the first whose file is not made.
    pub fn made_segments(&self) -> u32 {
        let Home::Files(files) = &self.home else { return u32::MAX };
        let files = files.lock();
        files.first_unmade().map_or(files.segments, |number| (number as u64 * self.per_file()) as u32)
    }
    /// Bytes of the files that have been made.
    pub fn made_bytes(&self) -> u64 {
        let Home::Files(files) = &self.home else { return 0 };
        let files = files.lock();
        let made = files.open.iter().enumerate().filter(|(_, file)| file.is_some());
        made.map(|(number, _)| files.bytes(number, self.segment_bytes)).sum()
    }
    /// Bytes of the first file that is not made; 0 if all are.
    pub fn unmade_bytes(&self) -> u64 {
        let Home::Files(files) = &self.home else { return 0 };
        let files = files.lock();
        files.first_unmade().map_or(0, |number| files.bytes(number, self.segment_bytes))
    }
    /// Every open data file.
    pub fn all_files(&self) -> Vec<FileId> {
        let mut all = match &self.home {
            Home::Device(file) => vec![*file],
            Home::Files(files) => files.lock().open.iter().copied().flatten().collect(),
        };
        all.extend(self.further.iter().map_while(OnceLock::get).filter_map(Further::file));
        all
    }
}

impl Files {
    /// The first file that is not made.
    fn first_unmade(&self) -> Option<usize> {
        self.open.iter().position(Option::is_none)
    }
    /// Bytes of a data file: the last one may hold fewer segments.
    fn bytes(&self, number: usize, segment_bytes: u64) -> u64 {
        let per_file = FILE_BYTES / segment_bytes;
        assert!(number as u64 * per_file < u64::from(self.segments), "file {number} holds segments of the brick");
        per_file.min(u64::from(self.segments) - number as u64 * per_file) * segment_bytes
    }
}
