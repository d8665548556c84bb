//! The doors of the simulated world: what happens behind them does not count, the tasks that the product starts do.

use crate::counted::{counted, outside};
use base::{Result, Time};
use runtime::clock::Sleep;
use runtime::real::Stamps;
use runtime::tasks::{Local, MakeTask};
use runtime::{Clock, Disk, FileId, Ledger, OpenMode, Random, Request, Runtime, Tasks, Transfer};
use std::sync::Arc;

struct Outside(Runtime);

/// The same world, whose work does not count; with a ledger of real stamps for `names`, since taking them is part of what
/// observing a request costs.
pub fn behind_doors(runtime: Runtime, names: &'static [&'static str]) -> Runtime {
    let ledger = Ledger::in_ticks(runtime.tasks.cores(), names, Arc::new(Stamps::start()));
    let doors = Arc::new(Outside(runtime.clone()));
    Runtime { clock: doors.clone(), disk: doors.clone(), tasks: doors.clone(), random: doors, ledger, ..runtime }
}

impl Clock for Outside {
    fn now_ns(&self) -> u64 {
        outside(|| self.0.clock.now_ns())
    }
    fn wall(&self) -> Time {
        outside(|| self.0.clock.wall())
    }
    fn sleep(&self, ns: u64) -> Sleep {
        outside(|| self.0.clock.sleep(ns))
    }
}

impl Random for Outside {
    fn next_u64(&self) -> u64 {
        outside(|| self.0.random.next_u64())
    }
}

impl Tasks for Outside {
    fn cores(&self) -> usize {
        outside(|| self.0.tasks.cores())
    }
    fn core(&self) -> usize {
        outside(|| self.0.tasks.core())
    }
    fn spawn(&self, core: usize, make: MakeTask) {
        let make = move || -> Local { Box::pin(counted(make())) };
        outside(|| self.0.tasks.spawn(core, Box::new(make)));
    }
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        outside(|| self.0.tasks.blocking(job));
    }
}

impl Disk for Outside {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        outside(|| self.0.disk.open(name, mode))
    }
    fn mark_disk(&self, file: FileId) {
        outside(|| self.0.disk.mark_disk(file));
    }
    fn close(&self, file: FileId) {
        outside(|| self.0.disk.close(file));
    }
    fn list(&self) -> Result<Vec<String>> {
        outside(|| self.0.disk.list())
    }
    fn length(&self, file: FileId) -> Result<u64> {
        outside(|| self.0.disk.length(file))
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        outside(|| self.0.disk.allocate(file, bytes))
    }
    fn release(&self, file: FileId) -> Result<()> {
        outside(|| self.0.disk.release(file))
    }
    fn sync_names(&self) -> Result<()> {
        outside(|| self.0.disk.sync_names())
    }
    fn free_bytes(&self) -> Result<u64> {
        outside(|| self.0.disk.free_bytes())
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        outside(|| self.0.disk.discard(file, offset, bytes))
    }
    fn submit_for(&self, purpose: runtime::Purpose, request: Request) -> Transfer {
        outside(|| self.0.disk.submit_for(purpose, request))
    }
}
