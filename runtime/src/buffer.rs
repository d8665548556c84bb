//! Aligned buffers from per-core slabs of fixed classes (mission S2: no large allocation per request). A buffer
//! goes home to the slab it came from, whichever core drops it.

use base::limits::BLOCK_BYTES;
use base::seeded::{Bug, active};
use base::{Error, Kind, Result};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Sizes of the classes: a buffer has the smallest that holds what was asked for.
pub const CLASS_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Buffers are carved from chunks of this size: one huge page.
const CHUNK_BYTES: usize = 2 << 20;

/// The slabs of all cores, under one bound.
pub struct Slabs {
    shards: Vec<Arc<Shard>>,
    budget: Arc<Budget>,
}

struct Budget {
    bytes: AtomicU64,
    bytes_max: u64,
}

struct Shard {
    classes: [Mutex<Class>; CLASS_BYTES.len()],
    budget: Arc<Budget>,
}

#[derive(Default)]
struct Class {
    chunks: Vec<Chunk>,
    free: Vec<NonNull<Header>>,
}

struct Chunk {
    data: NonNull<u8>,
    headers: Box<[Header]>,
}

struct Header {
    data: NonNull<u8>,
    class: usize,
    references: AtomicU32,
}

// SAFETY: chunks and headers are only reached through the class's mutex or through a handle that owns a reference.
unsafe impl Send for Class {}
// SAFETY: the pointers lead to memory that lives as long as the shard, which every handle keeps alive.
unsafe impl Send for Header {}
// SAFETY: as above; `references` is atomic and the rest never changes after creation.
unsafe impl Sync for Header {}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Shard::grow`; every handle keeps its shard alive, so none is left.
        unsafe { dealloc(self.data.as_ptr(), chunk_layout()) }
    }
}

fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("constant layout is valid")
}

impl Slabs {
    /// Slabs for `cores` cores that together take at most `bytes_max` bytes.
    pub fn new(cores: usize, bytes_max: u64) -> Slabs {
        let budget = Arc::new(Budget { bytes: AtomicU64::new(0), bytes_max });
        let shard = || Arc::new(Shard { classes: Default::default(), budget: budget.clone() });
        Slabs { shards: (0..cores).map(|_| shard()).collect(), budget }
    }
    /// A buffer of `length` bytes (at most 1 MiB), contents undefined but initialised. Errors: `Host` at the bound.
    pub fn take(&self, core: usize, length: usize) -> Result<Buf> {
        let class = CLASS_BYTES.iter().position(|&bytes| bytes >= length);
        let class = class.ok_or_else(|| Error::new(Kind::Invalid, "a buffer holds at most 1 MiB"))?;
        let shard = &self.shards[core];
        let mut state = shard.classes[class].lock().expect("no panic while held");
        if state.free.is_empty() {
            shard.grow(&mut state, class)?;
        }
        let header = state.free.pop().expect("the slab has just grown");
        drop(state);
        // SAFETY: a header on the free list has no handle; the shard keeps it alive.
        unsafe { header.as_ref() }.references.store(1, Ordering::Relaxed);
        Ok(Buf { handle: Handle { shard: shard.clone(), header }, length })
    }
    /// Bytes taken from the system, in use or not.
    pub fn bytes(&self) -> u64 {
        self.budget.bytes.load(Ordering::Relaxed)
    }
}

impl Shard {
    fn grow(&self, state: &mut Class, class: usize) -> Result<()> {
        let chunk_bytes = CHUNK_BYTES as u64;
        let bytes = self.budget.bytes.fetch_add(chunk_bytes, Ordering::Relaxed) + chunk_bytes;
        if bytes > self.budget.bytes_max && !active(Bug::MemoryUnbounded) {
            self.budget.bytes.fetch_sub(chunk_bytes, Ordering::Relaxed);
            return Err(Error::new(Kind::Host, "memory_max is reached: no buffer left"));
        }
        let layout = chunk_layout();
        // SAFETY: the layout has a size; zeroed, because handles give out the bytes as initialised.
        let data = unsafe { alloc(layout) };
        let data = NonNull::new(data).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the chunk was just allocated with this size.
        unsafe { data.as_ptr().write_bytes(0, CHUNK_BYTES) };
        let size = CLASS_BYTES[class];
        let headers: Box<[Header]> = (0..CHUNK_BYTES / size)
            // SAFETY: the offset lies within the chunk.
            .map(|i| Header { data: unsafe { data.add(i * size) }, class, references: AtomicU32::new(0) })
            .collect();
        state.free.extend(headers.iter().map(NonNull::from));
        state.chunks.push(Chunk { data, headers });
        let total: usize = state.chunks.iter().map(|chunk| chunk.headers.len()).sum();
        let missing = total - state.free.len();
        // So that giving a buffer back never allocates.
        state.free.reserve(missing);
        Ok(())
    }
}

struct Handle {
    shard: Arc<Shard>,
    header: NonNull<Header>,
}

// SAFETY: the handle counts as a reference to memory that any thread may use and free.
unsafe impl Send for Handle {}
// SAFETY: a shared handle only gives shared access to the bytes.
unsafe impl Sync for Handle {}

impl Handle {
    fn header(&self) -> &Header {
        // SAFETY: the shard, which this handle keeps alive, owns the header.
        unsafe { self.header.as_ref() }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.header().references.fetch_add(1, Ordering::Relaxed);
        Handle { shard: self.shard.clone(), header: self.header }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Release, then acquire by the last: its next owner sees every use of the bytes as past.
        if self.header().references.fetch_sub(1, Ordering::AcqRel) == 1 {
            let class = self.header().class;
            self.shard.classes[class].lock().expect("no panic while held").free.push(self.header);
        }
    }
}

/// A buffer with one owner: 4 KiB-aligned, readable and writable.
pub struct Buf {
    handle: Handle,
    length: usize,
}

impl Buf {
    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        CLASS_BYTES[self.handle.header().class]
    }
    /// Sets the length; at most the capacity. Bytes beyond the old length are whatever they were.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity());
        self.length = length;
    }
    /// Gives up sole ownership: the bytes can no longer change.
    pub fn share(self) -> Shared {
        Shared { handle: self.handle, length: self.length }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot has `capacity` initialised bytes, `length` is at most that, and nobody else has a handle.
        unsafe { std::slice::from_raw_parts(self.handle.header().data.as_ptr(), self.length) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.handle.header().data.as_ptr(), self.length) }
    }
}

/// A buffer whose bytes no longer change, with any number of owners.
#[derive(Clone)]
pub struct Shared {
    handle: Handle,
    length: usize,
}

impl Shared {
    /// A part of it that keeps the whole alive.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.length);
        Slice { buffer: self.clone(), range }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `Buf`; all handles are shared, so the bytes do not change.
        unsafe { std::slice::from_raw_parts(self.handle.header().data.as_ptr(), self.length) }
    }
}

/// A part of a shared buffer.
#[derive(Clone)]
pub struct Slice {
    buffer: Shared,
    range: Range<usize>,
}

impl Slice {
    /// A part of this part.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.end <= self.range.len());
        self.buffer.slice(self.range.start + range.start..self.range.start + range.end)
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

const _: () = assert!(CLASS_BYTES[0] == BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let slabs = Slabs::new(1, 4 << 20);
        for _ in 0..10_000 {
            let mut buf = slabs.take(0, 4096).expect("within the bound");
            assert_eq!(buf.as_ptr() as usize % BLOCK_BYTES, 0);
            buf[0] = 1;
            let shared = buf.share();
            let slice = shared.slice(0..1);
            drop(shared);
            assert_eq!(slice[0], 1);
        }
        assert_eq!(slabs.bytes(), CHUNK_BYTES as u64);
    }

    #[test]
    fn the_bound_holds() {
        let slabs = Slabs::new(1, 4 << 20);
        let all: Vec<_> = (0..5).map(|_| slabs.take(0, 1 << 20)).collect();
        assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 4);
        assert!(slabs.take(0, (1 << 20) + 1).is_err());
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn memory_without_a_bound_is_noticed() {
        assert!(base::seeded::fails(the_bound_holds, Bug::MemoryUnbounded));
    }
}
