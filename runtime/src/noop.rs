//! Implementations of the interfaces that do nothing, for benches and for tests of the packages above.

use crate::accepts::{Accepting, Connecting};
use crate::buffer::{Buf, Slice};
use crate::clock::{Clock, Sleep};
use crate::disk::{Disk, FileId, OpenMode};
use crate::net::{Address, Caller, ConnectionId, ListenerId, Net, WayQuality};
use crate::random::Random;
use crate::stream::{Receiving, Sending};
use crate::tasks::{MakeTask, Tasks};
use crate::transfer::{Purpose, Request, SlotPool, Transfer};
use base::{Error, Kind, Result, Time};
use std::sync::Arc;

/// A clock that stands still at the given nanosecond; sleeps end at once.
pub struct StillClock(pub u64);

impl Clock for StillClock {
    fn now_ns(&self) -> u64 {
        self.0
    }
    fn wall(&self) -> Time {
        Time(self.0 as i64)
    }
    fn sleep(&self, _: u64) -> Sleep {
        Box::pin(std::future::ready(()))
    }
}

/// A source that always gives the same number.
pub struct Constant(pub u64);

impl Random for Constant {
    fn next_u64(&self) -> u64 {
        self.0
    }
}

/// One core on which nothing is ever run; blocking jobs run at once, in the caller.
pub struct NoTasks;

impl Tasks for NoTasks {
    fn cores(&self) -> usize {
        1
    }
    fn core(&self) -> usize {
        0
    }
    fn spawn(&self, _: usize, _: MakeTask) {}
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        job()
    }
}

/// A disk that takes every write at once, keeps nothing, and reads zeros.
pub struct NullDisk(pub Arc<SlotPool>);

impl Disk for NullDisk {
    fn open(&self, _: &str, _: OpenMode) -> Result<FileId> {
        Ok(FileId(0))
    }
    fn mark_disk(&self, _: FileId) {}
    fn close(&self, _: FileId) {}
    fn list(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn length(&self, _: FileId) -> Result<u64> {
        Err(Error::new(Kind::Unsupported, "the null disk has no length"))
    }
    fn allocate(&self, _: FileId, _: u64) -> Result<()> {
        Ok(())
    }
    fn release(&self, _: FileId) -> Result<()> {
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        Ok(())
    }
    fn free_bytes(&self) -> Result<u64> {
        Ok(u64::MAX)
    }
    fn discard(&self, _: FileId, _: u64, _: u64) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "the null disk has nothing to discard"))
    }
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer {
        let (slot, transfer) = self.0.start(purpose, request);
        slot.with_request(|request| {
            if let Request::Read { buffer, .. } = request {
                buffer.fill(0);
            }
        });
        slot.finish(Ok(()));
        transfer
    }
}

/// No network at all: everything is refused.
pub struct NoNet;

fn no_net() -> Error {
    Error::new(Kind::Unsupported, "there is no network here")
}

impl Net for NoNet {
    fn resolve(&self, _: &str) -> Result<Vec<Address>> {
        Err(no_net())
    }
    fn listen(&self, _: &Address) -> Result<ListenerId> {
        Err(no_net())
    }
    fn address(&self, _: ListenerId) -> Result<Address> {
        Err(no_net())
    }
    fn accept(&self, _: ListenerId) -> Accepting {
        Accepting::failed(no_net())
    }
    fn close_listener(&self, _: ListenerId) {}
    fn connect(&self, _: &Address) -> Connecting {
        Connecting::failed(no_net())
    }
    fn receive(&self, _: ConnectionId, buffer: Buf, _: usize) -> Receiving {
        Receiving::failed(buffer, no_net())
    }
    fn send(&self, _: ConnectionId, slices: Vec<Slice>) -> Sending {
        Sending::failed(slices, no_net())
    }
    fn close(&self, _: ConnectionId) {}
    fn way(&self, _: ConnectionId) -> Result<WayQuality> {
        Err(no_net())
    }
    fn caller(&self, _: ConnectionId) -> Result<Option<Caller>> {
        Err(no_net())
    }
}
