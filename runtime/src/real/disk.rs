//! The brick's files through the rings of the cores.

use super::files::Files;
use super::reactor::{self, World};
use crate::disk::{Disk, FileId, OpenMode};
use crate::transfer::{Purpose, Request, Transfer};
use base::Result;
use std::sync::Arc;

pub(super) struct RealDisk {
    world: Arc<World>,
}

impl RealDisk {
    pub fn new(world: Arc<World>) -> RealDisk {
        RealDisk { world }
    }
    /// The files below it.
    pub fn files(&self) -> &Files {
        &self.world.files
    }
}

impl Disk for RealDisk {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        self.files().open(name, mode)
    }
    fn mark_disk(&self, file: FileId) {
        self.files().mark_disk(file);
    }
    fn close(&self, file: FileId) {
        self.files().close(file);
    }
    fn list(&self) -> Result<Vec<String>> {
        self.files().list()
    }
    fn length(&self, file: FileId) -> Result<u64> {
        self.files().length(file)
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        self.files().allocate(file, bytes)
    }
    fn release(&self, file: FileId) -> Result<()> {
        self.files().release(file)
    }
    fn sync_names(&self) -> Result<()> {
        self.files().sync_names()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.files().free_bytes()
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        self.files().discard(file, offset, bytes)
    }
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer {
        let mut request = Some(request);
        let here = reactor::with_current(|core| {
            // A core of another world is a stranger here.
            Arc::ptr_eq(&core.world, &self.world).then(|| {
                let (slot, transfer) = core.slots.start(purpose, request.take().expect("taken once"));
                core.start(slot);
                transfer
            })
        });
        if let Some(transfer) = here.flatten() {
            return transfer;
        }
        let request = request.expect("only a core of this world takes it");
        let (slot, transfer) = self.world.foreign_slots.start(purpose, request);
        self.world.inboxes[0].submit(slot);
        transfer
    }
}
