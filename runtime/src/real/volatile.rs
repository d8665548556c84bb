//! A drive with a volatile write cache, for tests: a plain kill -9 proves nothing about flushes, because the kernel
//! keeps all writes. Here a write stays in the daemon's memory, and dies with it, until something makes it durable: a
//! flush of any file writes out the whole cache, as in a drive; a durable (FUA) write makes only itself durable. As
//! drives do, it sometimes writes out old blocks in any order, and it must when it is full.
//!
//! Absent by design: speed. Whatever touches a file runs in the pool, one job at a time.

use super::disk::RealDisk;
use super::files::failed;
use super::inbox::stopped;
use super::pool::Pool;
use crate::buffer::Slabs;
use crate::disk::{Disk, FileId, OpenMode};
use crate::random::SplitMix;
use crate::transfer::{Purpose, Request, Slot, SlotPool, Transfer};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// Largest number of cached blocks: roughly the cache of a large drive.
const BLOCKS_MAX: usize = (256 << 20) / BLOCK_BYTES;
/// Share of blocks that are written out early and out of order: one in this many.
const EARLY_ONE_IN: u64 = 64;

/// Largest number of blocks that one system call moves: those of a scratch buffer.
const RUN_BLOCKS_MAX: usize = (1 << 20) / BLOCK_BYTES;
/// Largest number of bytes of scratch buffers: two chunks for each thread of the pool would be twice the need.
const SCRATCH_BYTES_MAX: u64 = 64 << 20;

type Block = [u8; BLOCK_BYTES];

/// A file and a block number in it.
type Place = (FileId, u64);

struct Cached {
    block: Arc<Block>,
    /// Number of the write: tells a block that was written again from the one that went to the file.
    sequence: u64,
}

struct Cache {
    blocks: BTreeMap<Place, Cached>,
    /// Cached blocks by age.
    order: BTreeMap<u64, Place>,
    last: u64,
    random: SplitMix,
}

struct Inner {
    disk: RealDisk,
    cache: Mutex<Cache>,
    /// Aligned memory for O_DIRECT. The requests' own buffers are not used: a slot must not be held for long.
    scratch: Slabs,
    /// Held while files are written, so that an old block never overtakes a new one.
    writing: Mutex<()>,
}

/// The disk behind the cache.
pub(super) struct VolatileDisk {
    inner: Arc<Inner>,
    pool: Arc<Pool>,
    slots: Arc<SlotPool>,
}

impl VolatileDisk {
    /// `seed` decides which blocks are written out early.
    pub fn new(disk: RealDisk, pool: Arc<Pool>, seed: u64) -> VolatileDisk {
        let cache = Cache { blocks: BTreeMap::new(), order: BTreeMap::new(), last: 0, random: SplitMix(seed) };
        let scratch = Slabs::new(1, SCRATCH_BYTES_MAX);
        let inner = Arc::new(Inner { disk, cache: Mutex::new(cache), scratch, writing: Mutex::default() });
        VolatileDisk { inner, pool, slots: SlotPool::new() }
    }
    fn later(&self, slot: Arc<Slot>, job: impl FnOnce(&Inner, &Slot) -> Result<()> + Send + 'static) {
        let (inner, there) = (self.inner.clone(), slot.clone());
        let accepted = self.pool.run(Box::new(move || {
            let result = job(&inner, &there);
            there.finish(result);
        }));
        if !accepted {
            slot.finish(Err(stopped()));
        }
    }
}

impl Disk for VolatileDisk {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        self.inner.disk.open(name, mode)
    }
    fn mark_disk(&self, file: FileId) {
        self.inner.disk.mark_disk(file);
    }
    fn close(&self, file: FileId) {
        self.inner.disk.close(file);
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.disk.list()
    }
    fn length(&self, file: FileId) -> Result<u64> {
        let cache = self.inner.cache.lock().expect("no panic while held");
        let last = cache.blocks.range((file, 0)..=(file, u64::MAX)).next_back();
        let end = last.map_or(0, |(&(_, block), _)| (block + 1) * BLOCK_BYTES as u64);
        drop(cache);
        Ok(self.inner.disk.length(file)?.max(end))
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        self.inner.disk.allocate(file, bytes)
    }
    fn release(&self, file: FileId) -> Result<()> {
        self.inner.disk.release(file)
    }
    fn sync_names(&self) -> Result<()> {
        self.inner.disk.sync_names()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.inner.disk.free_bytes()
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        self.inner.discard(file, offset, bytes)
    }
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer {
        let (slot, transfer) = self.slots.start(purpose, request);
        match slot.with_request(|request| check(&self.inner, request)) {
            Err(error) => slot.finish(Err(error)),
            Ok(Way::Cache) => {
                let early = slot.with_request(|request| self.inner.write_cached(request));
                slot.finish(Ok(()));
                if let Some(place) = early {
                    let inner = self.inner.clone();
                    // A failure keeps the block in the cache, where the next flush will meet it.
                    let _ = self.pool.run(Box::new(move || drop(inner.write_out(&[place]))));
                }
            }
            Ok(Way::Read) => self.later(slot, Inner::read),
            Ok(Way::Durable) => self.later(slot, Inner::write_durable),
            Ok(Way::Flush) => self.later(slot, Inner::flush),
        }
        transfer
    }
}

enum Way {
    Cache,
    Read,
    Durable,
    Flush,
}

/// Refuses the same requests as without the cache.
fn check(inner: &Inner, request: &Request) -> Result<Way> {
    let (file, offset, length, way) = match request {
        Request::Read { file, offset, buffer, .. } => (*file, *offset, buffer.len(), Way::Read),
        Request::Write { file, offset, slices, durable } => {
            let length = slices.iter().map(|slice| slice.len()).sum();
            (*file, *offset, length, if *durable { Way::Durable } else { Way::Cache })
        }
        Request::Flush { .. } => return Ok(Way::Flush),
    };
    if offset % BLOCK_BYTES as u64 != 0 || length % BLOCK_BYTES != 0 || length == 0 {
        return Err(Error::new(Kind::Invalid, "an I/O is of whole blocks").with(inner.disk.files().name(file)));
    }
    if !matches!(way, Way::Read) && !inner.disk.files().handle(file).writable {
        return Err(Error::new(Kind::ReadOnly, "the file is open for reading only").with(inner.disk.files().name(file)));
    }
    Ok(way)
}

/// The blocks of a write, copied.
fn blocks(request: &Request) -> (FileId, u64, Vec<Arc<Block>>) {
    let Request::Write { file, offset, slices, .. } = request else { panic!("only writes have blocks") };
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    let copy = |chunk: &[u8]| -> Arc<Block> { Arc::new(chunk.try_into().expect("whole blocks")) };
    (*file, offset / BLOCK_BYTES as u64, bytes.chunks(BLOCK_BYTES).map(copy).collect())
}

impl Cache {
    fn put(&mut self, place: Place, block: Arc<Block>) {
        self.drop_block(place);
        self.last += 1;
        self.order.insert(self.last, place);
        self.blocks.insert(place, Cached { block, sequence: self.last });
    }
    fn drop_block(&mut self, place: Place) {
        if let Some(old) = self.blocks.remove(&place) {
            self.order.remove(&old.sequence);
        }
    }
    fn any_place(&mut self) -> Option<Place> {
        let (&first, _) = self.order.first_key_value()?;
        let from = first + self.random.below(self.last - first + 1);
        self.order.range(from..).next().map(|(_, &place)| place)
    }
}

impl Inner {
    /// Puts a plain write into the cache. Returns a block that is to be written out early, if any.
    fn write_cached(&self, request: &Request) -> Option<Place> {
        let (file, first, blocks) = blocks(request);
        let mut cache = self.cache.lock().expect("no panic while held");
        for (number, block) in blocks.into_iter().enumerate() {
            cache.put((file, first + number as u64), block);
        }
        let full = cache.blocks.len() > BLOCKS_MAX;
        let early = if cache.random.one_in(EARLY_ONE_IN) { cache.any_place() } else { None };
        drop(cache);
        if full {
            self.evict();
        }
        early
    }
    /// Writes out the oldest sixteenth, in the thread of the caller, which has filled the cache.
    fn evict(&self) {
        let cache = self.cache.lock().expect("no panic while held");
        let oldest: Vec<Place> = cache.order.values().take(BLOCKS_MAX / 16).copied().collect();
        drop(cache);
        // A failure keeps the blocks in the cache, where the next flush will meet them.
        let _ = self.write_out(&oldest);
    }
    fn with_file<R>(&self, file: FileId, with: impl FnOnce(&std::fs::File) -> std::io::Result<R>) -> Result<R> {
        let copy = self.disk.files().copy(file)?;
        with(&copy).map_err(|error| failed("the drive behind the cache", &error).with(self.disk.files().name(file)))
    }
    /// Writes cached blocks to their files, without making them durable, and drops them from the cache.
    fn write_out(&self, places: &[Place]) -> Result<()> {
        let _writing = self.writing.lock().expect("no panic while held");
        let adjacent = |a: &Place, b: &Place| a.0 == b.0 && a.1 + 1 == b.1;
        places.chunk_by(adjacent).flat_map(|run| run.chunks(RUN_BLOCKS_MAX)).try_for_each(|run| self.write_run(run))
    }
    /// Writes those blocks of the run that are still cached.
    fn write_run(&self, run: &[Place]) -> Result<()> {
        let cache = self.cache.lock().expect("no panic while held");
        let found: Vec<(Place, Arc<Block>, u64)> = run
            .iter()
            .filter_map(|place| cache.blocks.get(place).map(|cached| (*place, cached.block.clone(), cached.sequence)))
            .collect();
        drop(cache);
        for part in found.chunk_by(|a, b| a.0.1 + 1 == b.0.1) {
            let blocks: Vec<Arc<Block>> = part.iter().map(|(_, block, _)| block.clone()).collect();
            self.write_blocks(part[0].0, &blocks)?;
        }
        let mut cache = self.cache.lock().expect("no panic while held");
        for (place, _, sequence) in found {
            if cache.blocks.get(&place).is_some_and(|cached| cached.sequence == sequence) {
                cache.drop_block(place);
            }
        }
        Ok(())
    }
    /// Writes consecutive blocks of one file.
    fn write_blocks(&self, (file, first): Place, blocks: &[Arc<Block>]) -> Result<()> {
        for (number, run) in blocks.chunks(RUN_BLOCKS_MAX).enumerate() {
            let mut scratch = self.scratch.take_own(0, run.len() * BLOCK_BYTES)?;
            for (chunk, block) in scratch.chunks_mut(BLOCK_BYTES).zip(run) {
                chunk.copy_from_slice(&block[..]);
            }
            let offset = (first + (number * RUN_BLOCKS_MAX) as u64) * BLOCK_BYTES as u64;
            self.with_file(file, |file| file.write_all_at(&scratch, offset))?;
        }
        Ok(())
    }
    fn write_durable(&self, slot: &Slot) -> Result<()> {
        let (file, first, blocks) = slot.with_request(|request| blocks(request));
        let _writing = self.writing.lock().expect("no panic while held");
        self.write_blocks((file, first), &blocks)?;
        // What was cached of these blocks is older, as overlapping writes in flight have no order.
        let mut cache = self.cache.lock().expect("no panic while held");
        (first..first + blocks.len() as u64).for_each(|number| cache.drop_block((file, number)));
        drop(cache);
        self.with_file(file, |file| file.sync_data())
    }
    fn flush(&self, slot: &Slot) -> Result<()> {
        let cache = self.cache.lock().expect("no panic while held");
        let places: Vec<Place> = cache.blocks.keys().copied().collect();
        drop(cache);
        self.write_out(&places)?;
        let mut files: BTreeSet<FileId> = places.into_iter().map(|(file, _)| file).collect();
        files.insert(slot.with_request(|request| match request {
            Request::Flush { file } => *file,
            _ => panic!("only flushes flush"),
        }));
        files.into_iter().try_for_each(|file| self.with_file(file, |file| file.sync_data()))
    }
    /// Drops cached blocks of a discarded range, so that they don't come back over it.
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        let _writing = self.writing.lock().expect("no panic while held");
        let (first, count) = (offset / BLOCK_BYTES as u64, bytes / BLOCK_BYTES as u64);
        let mut cache = self.cache.lock().expect("no panic while held");
        (first..first + count).for_each(|number| cache.drop_block((file, number)));
        drop(cache);
        self.disk.discard(file, offset, bytes)
    }
    fn read(&self, slot: &Slot) -> Result<()> {
        let (file, first, length) = slot.with_request(|request| {
            let Request::Read { file, offset, buffer, .. } = request else { panic!("only reads read") };
            (*file, *offset / BLOCK_BYTES as u64, buffer.len())
        });
        let mut scratch = self.scratch.take_own(0, length)?;
        let end = first + (length / BLOCK_BYTES) as u64;
        // Looked up before the file is read: a block that is not cached now is in the file already.
        let cache = self.cache.lock().expect("no panic while held");
        let range = cache.blocks.range((file, first)..(file, end));
        let cached: BTreeMap<u64, Arc<Block>> = range.map(|(&(_, number), c)| (number, c.block.clone())).collect();
        drop(cache);
        let numbers: Vec<u64> = (first..end).collect();
        for run in numbers.chunk_by(|a, b| cached.contains_key(a) == cached.contains_key(b)) {
            let from = (run[0] - first) as usize * BLOCK_BYTES;
            let part = &mut scratch[from..from + run.len() * BLOCK_BYTES];
            if !cached.contains_key(&run[0]) {
                self.with_file(file, |file| file.read_exact_at(part, run[0] * BLOCK_BYTES as u64))?;
                continue;
            }
            for (chunk, number) in part.chunks_mut(BLOCK_BYTES).zip(run) {
                chunk.copy_from_slice(&cached[number][..]);
            }
        }
        slot.with_request(|request| {
            let Request::Read { buffer, .. } = request else { panic!("only reads read") };
            buffer.copy_from_slice(&scratch);
        });
        Ok(())
    }
}
