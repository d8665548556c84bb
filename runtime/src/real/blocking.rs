//! An older design of device I/O, for `cargo xtask ablate`: system calls that block their thread, one I/O each, in a pool of
//! threads with one queue under one mutex. A thread that is a worker already (`base::ablated`) does its own.
//!
//! Absent by design: limits of concurrency (there are as many I/Os as threads) and figures.

use super::disk::RealDisk;
use super::files::Files;
use super::inbox::stopped;
use super::reactor;
use super::{device, scheduling};
use crate::buffer::Slice;
use crate::disk::{Disk, FileId, OpenMode};
use crate::transfer::{Purpose, Request, Slot, SlotPool, Transfer};
use base::ablated::{WORKERS, workers};
use base::{Error, Kind, Result};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex};

/// Largest number of slices per system call (IOV_MAX).
const SLICES_MAX: usize = 1024;

/// The disk whose I/O blocks threads.
pub(super) struct BlockingDisk {
    shared: Arc<Shared>,
    slots: Arc<SlotPool>,
}

struct Shared {
    disk: RealDisk,
    queue: Mutex<Queue>,
    came: Condvar,
    /// Descriptors by file, and whether they are for writing.
    open: Mutex<HashMap<(FileId, bool), Arc<File>>>,
}

#[derive(Default)]
struct Queue {
    slots: VecDeque<Arc<Slot>>,
    stopping: bool,
}

impl BlockingDisk {
    /// Starts the threads. Errors: `Host` if there is none left.
    pub fn start(disk: RealDisk) -> Result<BlockingDisk> {
        let shared = Shared { disk, queue: Mutex::default(), came: Condvar::new(), open: Mutex::default() };
        let disk = BlockingDisk { shared: Arc::new(shared), slots: SlotPool::new() };
        for number in 0..WORKERS {
            let shared = disk.shared.clone();
            let thread = std::thread::Builder::new().name(format!("sinter-io-{number}"));
            let spawned = thread.spawn(move || shared.work());
            spawned.map_err(|error| Error::new(Kind::Host, "no thread for I/O").with(error))?;
        }
        Ok(disk)
    }
}

impl Drop for BlockingDisk {
    fn drop(&mut self) {
        self.shared.queue.lock().expect("no panic while held").stopping = true;
        self.shared.came.notify_all();
    }
}

impl Shared {
    /// The life of a thread.
    fn work(&self) {
        scheduling::set_core_priority();
        while let Some(slot) = self.next() {
            self.perform(&slot);
        }
    }
    fn next(&self) -> Option<Arc<Slot>> {
        let mut queue = self.queue.lock().expect("no panic while held");
        loop {
            match queue.slots.pop_front() {
                Some(slot) => return Some(slot),
                None if queue.stopping => return None,
                None => queue = self.came.wait(queue).expect("no panic while held"),
            }
        }
    }
    fn perform(&self, slot: &Slot) {
        // Its future looks into the slot meanwhile, so the request must not be worked on in there.
        let mut request = slot.with_request(|there| {
            let file = file_of(there);
            std::mem::replace(there, Request::Flush { file })
        });
        let result = device::check(&request).and_then(|()| self.transfer(&mut request));
        let files = self.disk.files();
        let result = result.map_err(|error| error.with(files.name(file_of(&request))));
        slot.with_request(|there| *there = request);
        slot.finish(result);
    }
    fn transfer(&self, request: &mut Request) -> Result<()> {
        match request {
            Request::Read { file, offset, buffer, .. } => {
                let (file, offset) = (self.descriptor(*file, false)?, *offset);
                file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => Error::new(Kind::Io, "a read goes past the end of the file"),
                    _ => Error::os("the device cannot read", error.raw_os_error().unwrap_or(libc::EIO)),
                })
            }
            Request::Write { file, offset, slices, durable } => {
                write(&*self.descriptor(*file, true)?, *offset, slices, *durable)
            }
            Request::Flush { file } => {
                let flushed = rustix::fs::fdatasync(&*self.descriptor(*file, false)?);
                flushed.map_err(|errno| Error::os("the device cannot flush", errno.raw_os_error()))
            }
        }
    }
    fn descriptor(&self, file: FileId, writes: bool) -> Result<Arc<File>> {
        let files: &Files = self.disk.files();
        if writes && !files.handle(file).writable {
            return Err(Error::new(Kind::ReadOnly, "the file is open for reading only"));
        }
        let mut open = self.open.lock().expect("no panic while held");
        if let Some(known) = open.get(&(file, writes)) {
            return Ok(known.clone());
        }
        let copy = Arc::new(files.copy(file)?);
        open.insert((file, writes), copy.clone());
        Ok(copy)
    }
}

fn file_of(request: &Request) -> FileId {
    let (Request::Read { file, .. } | Request::Write { file, .. } | Request::Flush { file }) = request;
    *file
}

fn write(file: &File, mut offset: u64, slices: &[Slice], durable: bool) -> Result<()> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let mut parts: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let mut rest = &mut parts[..];
    while !rest.is_empty() {
        let count = rest.len().min(SLICES_MAX);
        match pwritev2(file, &rest[..count], offset, flags) {
            Ok(0) => return Err(Error::new(Kind::Io, "the device takes no more bytes")),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::os("the device cannot write", errno.raw_os_error())),
        }
    }
    Ok(())
}

/// True on a worker's thread: one behind those of the cores.
fn is_worker() -> bool {
    let index = |core: &std::rc::Rc<reactor::Core>| core.index + workers() >= core.world.inboxes.len();
    workers() > 0 && reactor::with_current(index).unwrap_or(false)
}

impl Disk for BlockingDisk {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        self.shared.disk.open(name, mode)
    }
    fn mark_disk(&self, file: FileId) {
        self.shared.disk.mark_disk(file);
    }
    fn close(&self, file: FileId) {
        self.shared.disk.close(file);
    }
    fn list(&self) -> Result<Vec<String>> {
        self.shared.disk.list()
    }
    fn length(&self, file: FileId) -> Result<u64> {
        self.shared.disk.length(file)
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        self.shared.disk.allocate(file, bytes)
    }
    fn release(&self, file: FileId) -> Result<()> {
        self.shared.disk.release(file)
    }
    fn sync_names(&self) -> Result<()> {
        self.shared.disk.sync_names()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.shared.disk.free_bytes()
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        self.shared.disk.discard(file, offset, bytes)
    }
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer {
        let (slot, transfer) = self.slots.start(purpose, request);
        if is_worker() {
            self.shared.perform(&slot);
            return transfer;
        }
        let mut queue = self.shared.queue.lock().expect("no panic while held");
        if queue.stopping {
            slot.finish(Err(stopped()));
        } else {
            queue.slots.push_back(slot);
            drop(queue);
            self.shared.came.notify_one();
        }
        transfer
    }
}
