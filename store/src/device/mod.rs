//! A brick's block devices (rule X5): the label of each, in two copies in the first MiB, and the search for foreign data before
//! a format. Promises that nothing is written to a device that holds anything, unless the operator insists. Absent by
//! design: who else has it open, which `runtime` keeps out.

mod signatures;

use crate::format::Uuid;
use crate::format::devices::{DeviceId, Tier};
use crate::format::label::{Label, SEGMENTS_AT};
use crate::format::superblock::Superblock;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, Kind, Result};
use runtime::disk::device_name;
use runtime::{FileId, OpenMode, Runtime, disk};

/// The treatment of a device that holds something, by a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// Refuses it.
    Keep,
    /// Takes it, and what it holds is lost.
    Destroy,
}

/// Copies of the label: a block that can't be read any more is no loss.
const COPIES: u64 = 2;
/// Bytes at a device's beginning and end that a format reads and clears. Partition tables, file systems, RAID and
/// volume managers all keep something there.
const EDGE_BYTES: u64 = SEGMENTS_AT;
const _: () = assert!(EDGE_BYTES == IO_BYTES_MAX as u64);

/// An open device.
pub struct Device<'a> {
    runtime: &'a Runtime,
    id: DeviceId,
    /// The device.
    pub file: FileId,
    /// Its length.
    pub bytes: u64,
}

impl Device<'_> {
    /// Opens a device of the brick. Errors: `NotFound`, `Busy`, and what the runtime refuses.
    pub fn open(runtime: &Runtime, (id, tier): (DeviceId, Tier), writable: bool) -> Result<Device<'_>> {
        let mode = if writable { OpenMode::Existing } else { OpenMode::ReadOnly };
        let file = runtime.disk.open(&device_name(id.0), mode)?;
        if tier == Tier::Disk {
            runtime.disk.mark_disk(file);
        }
        Device::at(runtime, id, file)
    }
    /// A device of the brick that is open. Errors: `Io`.
    pub fn at(runtime: &Runtime, id: DeviceId, file: FileId) -> Result<Device<'_>> {
        Ok(Device { runtime, id, file, bytes: runtime.disk.length(file)? })
    }
    /// Clears the label, and the device's end, durably: then it looks empty.
    pub async fn clear(&self) -> Result<()> {
        for at in self.edges() {
            self.write_zeros(at, 0).await?;
        }
        disk::flush(&*self.runtime.disk, self.file).await
    }
    /// Writes zeros over an edge, without its first bytes.
    async fn write_zeros(&self, at: u64, skip: usize) -> Result<()> {
        let mut zeros = self.buffer()?;
        zeros.fill(0);
        let length = zeros.len();
        let slices = vec![zeros.share().slice(skip..length)];
        disk::write(&*self.runtime.disk, self.file, at + skip as u64, slices, false).await.1
    }
    /// Bytes that segments may take.
    pub fn room_bytes(&self) -> u64 {
        self.bytes.saturating_sub(SEGMENTS_AT)
    }
    /// Refuses a device with anything at its beginning or end but `own` label, of a format that was interrupted. Errors:
    /// `Exists`, naming the brick if it is one's.
    pub async fn refuse_foreign(&self, own: Option<Uuid>) -> Result<()> {
        if self.bytes < 2 * EDGE_BYTES {
            return Err(Error::new(Kind::NoSpace, "the device is far too small for a brick: give another one"));
        }
        let forced = "`sinter format --force` destroys it";
        match self.label().await {
            Ok(label) if Some(label.uuid) == own && label.device == self.id => return Ok(()),
            Ok(label) => {
                let error = Error::new(Kind::Exists, "the device belongs to another brick; give another one");
                return Err(error.with(format!("brick {}; {forced}", label.uuid)));
            }
            Err(error) if error.kind == Kind::Corrupt => {}
            Err(error) => return Err(error),
        }
        for at in self.edges() {
            let (block, result) = disk::read(&*self.runtime.disk, self.file, at, self.buffer()?).await;
            result?;
            if let Some(byte) = block.iter().position(|&byte| byte != 0) {
                let error = Error::new(Kind::Exists, "the device holds data; give an empty one");
                let known = signatures::find(&block).filter(|_| at == 0).map_or(String::new(), |it| format!("{it}, "));
                return Err(error.with(format!("{known}at byte {}; {forced}", at + byte as u64)));
            }
        }
        Ok(())
    }
    /// Makes the device the brick's, durably: the label first, so that a format that was interrupted knows its own
    /// device, then zeros over what else would tell of something that is gone.
    pub async fn claim(&self, superblock: &Superblock, segments: u32) -> Result<()> {
        self.write_label(superblock, segments).await?;
        for at in self.edges() {
            self.write_zeros(at, if at == 0 { COPIES as usize * BLOCK_BYTES } else { 0 }).await?;
        }
        disk::flush(&*self.runtime.disk, self.file).await
    }
    /// Writes both copies, durably, one after the other.
    pub async fn write_label(&self, superblock: &Superblock, segments: u32) -> Result<()> {
        let Superblock { uuid, segment_bytes, .. } = *superblock;
        let label = Label { uuid, segment_bytes, segments, device: self.id }.encode();
        for copy in 0..COPIES {
            let mut buffer = self.runtime.buffer(BLOCK_BYTES)?;
            buffer.copy_from_slice(&label);
            let slices = vec![buffer.share().slice(0..BLOCK_BYTES)];
            disk::write(&*self.runtime.disk, self.file, copy * BLOCK_BYTES as u64, slices, false).await.1?;
            disk::flush(&*self.runtime.disk, self.file).await?;
        }
        Ok(())
    }
    /// Makes sure that the device is the brick's, the one of its number, and has all of its `segments`; its label. Errors:
    /// `NotFound` if it is another one, `Corrupt`.
    pub async fn verify(&self, superblock: &Superblock, segments: u32) -> Result<Label> {
        let mend = "give the right one with --device";
        let label = match self.label().await {
            Err(error) if error.kind == Kind::Corrupt => {
                let what = "the device has no label: it is not the brick's, or was overwritten";
                return Err(Error::new(Kind::NotFound, what).with(mend));
            }
            label => label?,
        };
        if label.uuid != superblock.uuid {
            let error = Error::new(Kind::NotFound, "the device belongs to another brick");
            return Err(error.with(format!("it says {}, the brick is {}; {mend}", label.uuid, superblock.uuid)));
        }
        if label.device != self.id {
            let error =
                Error::new(Kind::NotFound, "the device is another one of this brick: links to them are swapped");
            return Err(error.with(format!("device {} where {} should be", label.device, self.id)));
        }
        let needed = SEGMENTS_AT + u64::from(segments) * superblock.segment_bytes;
        if label.segment_bytes != superblock.segment_bytes || label.segments < segments {
            let error = Error::new(Kind::Corrupt, "label and superblock differ: restore the brick from a backup");
            return Err(error.with(format!("{label:?}")));
        }
        if self.bytes < needed {
            let error = Error::new(Kind::Corrupt, "the device is smaller than the brick on it: make it larger again");
            return Err(error.with(format!("{} of {needed} bytes", self.bytes)));
        }
        Ok(label)
    }
    /// The label. Errors: `Corrupt` if there is none, `Newer`, `Io`.
    async fn label(&self) -> Result<Label> {
        // As one whose medium was taken out.
        if self.bytes < SEGMENTS_AT {
            return Err(Error::new(Kind::Corrupt, "the device is smaller than its label"));
        }
        let mut last = None;
        for copy in 0..COPIES {
            let buffer = self.runtime.buffer(BLOCK_BYTES)?;
            let at = copy * BLOCK_BYTES as u64;
            let (buffer, result) = disk::read(&*self.runtime.disk, self.file, at, buffer).await;
            match result.and_then(|()| Label::decode(&buffer)) {
                // A brick that grows writes the first copy first: it is never the older one, but it may rot.
                Ok(label) => return Ok(label),
                Err(error) if last.is_none() || error.kind != Kind::Corrupt => last = Some(error),
                Err(_) => {}
            }
        }
        Err(last.expect("there are copies"))
    }
    /// Offsets of the beginning and the end, one I/O each. The rest behind the last whole block is ignored.
    fn edges(&self) -> impl Iterator<Item = u64> {
        let end = self.bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        assert!(end >= 2 * EDGE_BYTES, "a brick has been found to fit");
        [0, end - EDGE_BYTES].into_iter()
    }
    fn buffer(&self) -> Result<runtime::Buf> {
        self.runtime.buffer(IO_BYTES_MAX)
    }
}
