//! Aligned buffers from slabs of fixed classes (mission S2: no large allocation per request). A buffer returns to the
//! slab that it came from, whichever core drops it.
//!
//! Promises: all slabs together stay within one bound, and at the bound no request starves. A quarter is reserved for
//! the program's own work (log, cleaner, segments), for which clients' requests wait. The further a request has got,
//! the more of the rest it may use, so that requests that have begun can end. An unused chunk moves to the class that
//! lacks one.

use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard};
use base::ablated::{Ablation, OneMutex, is_on};
use base::limits::BLOCK_BYTES;
use base::seeded::{Bug, active};
use base::{Error, Kind, Result};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sizes of the classes: a buffer comes from the smallest class that holds the length asked for.
pub const CLASS_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Size of the chunks from which buffers are carved: one huge page.
const CHUNK_BYTES: usize = 2 << 20;

/// Share of all buffers that is reserved for the program's own work: one part in 4. With the smallest `memory_max` (256
/// MiB, half of which are buffers) that is 32 MiB. A buffer for each kind of work at the same time takes about 10 MiB.
const OWN_SHARE: u64 = 4;

/// The stage of a request that asks for a buffer, which decides how much of the clients' memory it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A client's request that holds no buffer yet: up to half.
    Starting,
    /// A request that holds a buffer already: up to three quarters.
    Continuing,
    /// A request that holds several buffers or asks for single blocks, and memory that is held for as long as a mount:
    /// all of the clients' memory.
    Finishing,
}

/// A function that prepares a chunk's memory before it is first touched. It gets the address and the length in bytes.
pub type Prepare = fn(NonNull<u8>, usize);

/// The slabs of all cores, under one bound.
pub struct Slabs {
    clients: Pool,
    own: Pool,
}

/// Slabs that share a bound.
struct Pool {
    shards: Vec<Arc<Shard>>,
    /// Bytes of all chunks.
    bytes: AtomicU64,
    bytes_max: u64,
    prepare: Prepare,
}

#[derive(Default)]
struct Shard {
    classes: [Mutex<Class>; CLASS_BYTES.len()],
    /// Bytes of buffers in use.
    used_bytes: AtomicU64,
    /// The mutex of a pool that has one for all of it.
    whole: OneMutex,
}

#[derive(Default)]
struct Class {
    /// Chunks by number. None: the chunk went to another class.
    chunks: Vec<Option<Chunk>>,
    /// A bit for each chunk that has a free buffer. Buffers come from the first such chunk, so that later ones fall
    /// idle.
    giving: Vec<u64>,
}

/// A pointer that threads may hand to each other and share. It alone gives no access: each use says why what it leads to is there,
/// and who else may use it.
struct Pointer<T>(NonNull<T>);

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Pointer<T> {
        *self
    }
}

impl<T> Copy for Pointer<T> {}

// SAFETY: the uses of the pointer are those of a value that threads may send and share.
unsafe impl<T: Send + Sync> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pointer<T> {}

struct Chunk {
    data: Pointer<u8>,
    /// An `Arc`, not a `Box`: handles keep raw pointers to the headers. Moving a `Box` asserts that nothing else points
    /// into it, which would invalidate these pointers.
    headers: Arc<[Header]>,
    free: Vec<Pointer<Header>>,
}

struct Header {
    data: Pointer<u8>,
    class: usize,
    chunk: usize,
    references: AtomicU32,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Chunk::new`. No handle is left: each keeps its shard alive, and a chunk that
        // leaves its shard has none.
        unsafe { dealloc(self.data.0.as_ptr(), chunk_layout()) }
    }
}

fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("constant layout is valid")
}

impl Chunk {
    fn new(prepare: Prepare) -> Chunk {
        let layout = chunk_layout();
        // SAFETY: the layout has a size; zeroed, because handles give out the bytes as initialised.
        let data = unsafe { alloc(layout) };
        let data = NonNull::new(data).unwrap_or_else(|| handle_alloc_error(layout));
        prepare(data, CHUNK_BYTES);
        // SAFETY: the chunk was just allocated with this size.
        unsafe { data.as_ptr().write_bytes(0, CHUNK_BYTES) };
        Chunk { data: Pointer(data), headers: Arc::default(), free: Vec::new() }
    }
    /// Cuts the chunk into buffers of a class, under this chunk number. None of its buffers is in use.
    fn cut(&mut self, class: usize, number: usize) {
        let (data, size) = (self.data.0, CLASS_BYTES[class]);
        self.free.clear();
        self.headers = (0..CHUNK_BYTES / size)
            .map(|i| data.map_addr(|address| address.checked_add(i * size).expect("within the chunk")))
            .map(|data| Header { data: Pointer(data), class, chunk: number, references: AtomicU32::new(0) })
            .collect();
        // All buffers of the chunk are put in once, so that giving one back never allocates.
        self.free.extend(self.headers.iter().rev().map(|header| Pointer(NonNull::from(header))));
    }
    fn is_idle(&self) -> bool {
        self.free.len() == self.headers.len()
    }
}

impl Class {
    fn set_giving(&mut self, number: usize, gives: bool) {
        let (word, bit) = (&mut self.giving[number / 64], 1 << (number % 64));
        *word = if gives { *word | bit } else { *word & !bit };
    }
    fn take(&mut self) -> Option<Pointer<Header>> {
        let word = self.giving.iter().position(|word| *word != 0)?;
        let number = word * 64 + self.giving[word].trailing_zeros() as usize;
        let chunk = self.chunks[number].as_mut().expect("a chunk that gives is there");
        let header = chunk.free.pop();
        if chunk.free.is_empty() {
            self.set_giving(number, false);
        }
        header
    }
    fn give_back(&mut self, number: usize, header: Pointer<Header>) {
        let chunk = self.chunks[number].as_mut().expect("a chunk with a buffer in use stays");
        chunk.free.push(header);
        self.set_giving(number, true);
    }
    fn add(&mut self, class: usize, mut chunk: Chunk) {
        let number = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        chunk.cut(class, number);
        if number == self.chunks.len() {
            self.chunks.push(None);
            self.giving.resize(self.chunks.len().div_ceil(64), 0);
        }
        self.chunks[number] = Some(chunk);
        self.set_giving(number, true);
    }
    /// Removes a chunk whose buffers are all free: the last such chunk, since buffers are taken from the first.
    fn remove_idle(&mut self) -> Option<Chunk> {
        let number = self.chunks.iter().rposition(|chunk| chunk.as_ref().is_some_and(Chunk::is_idle))?;
        self.set_giving(number, false);
        self.chunks[number].take()
    }
}

impl Shard {
    fn class(&self, class: usize) -> MutexGuard<'_, Class> {
        self.classes[class].lock().expect("no panic while held")
    }
}

impl Pool {
    fn new(shards: usize, bytes_max: u64, prepare: Prepare) -> Pool {
        let shards = (0..shards).map(|_| Arc::default()).collect();
        Pool { shards, bytes: AtomicU64::new(0), bytes_max, prepare }
    }
    /// A buffer; None if the bound leaves no memory for its chunk.
    fn take(&self, shard: usize, class: usize) -> Option<Handle> {
        let shard = &self.shards[shard];
        let _whole = shard.whole.hold(Ablation::Buffers);
        let taken = shard.class(class).take();
        let header = match taken {
            Some(header) => header,
            None => {
                let chunk = self.chunk()?;
                let mut state = shard.class(class);
                state.add(class, chunk);
                state.take().expect("the slab has just grown")
            }
        };
        shard.used_bytes.fetch_add(CLASS_BYTES[class] as u64, Ordering::Relaxed);
        let handle = Handle { shard: shard.clone(), header };
        // A header that was free has no other handle.
        handle.header().references.store(1, Ordering::Relaxed);
        Some(handle)
    }
    /// A chunk: a new one if the bound allows, or else one that another class does not use.
    fn chunk(&self) -> Option<Chunk> {
        let chunk_bytes = CHUNK_BYTES as u64;
        let bytes = self.bytes.fetch_add(chunk_bytes, Ordering::Relaxed) + chunk_bytes;
        if bytes <= self.bytes_max || active(Bug::MemoryUnbounded) {
            return Some(Chunk::new(self.prepare));
        }
        self.bytes.fetch_sub(chunk_bytes, Ordering::Relaxed);
        let mut classes = self.shards.iter().flat_map(|shard| &shard.classes);
        classes.find_map(|class| class.lock().expect("no panic while held").remove_idle())
    }
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// True if at most `limit` bytes are used with `bytes` more. The counts of other cores are read only near the
    /// limit.
    fn is_below(&self, limit: u64, bytes: u64) -> bool {
        let used = || self.shards.iter().map(|shard| shard.used_bytes.load(Ordering::Relaxed)).sum::<u64>();
        self.bytes() + CHUNK_BYTES as u64 <= limit || used() + bytes <= limit
    }
}

impl Slabs {
    /// Slabs for `cores` cores that together take at most `bytes_max` bytes.
    pub fn new(cores: usize, bytes_max: u64) -> Slabs {
        Slabs::prepared(cores, bytes_max, |_, _| ())
    }
    /// Slabs whose memory is prepared by `prepare`.
    pub fn prepared(cores: usize, bytes_max: u64, prepare: Prepare) -> Slabs {
        let own_bytes = bytes_max / OWN_SHARE / CHUNK_BYTES as u64 * CHUNK_BYTES as u64;
        let cores = if is_on(Ablation::Buffers) { 1 } else { cores };
        Slabs { clients: Pool::new(cores, bytes_max - own_bytes, prepare), own: Pool::new(1, own_bytes, prepare) }
    }
    /// A buffer of `length` bytes (at most 1 MiB) for a client, contents undefined but initialised. Errors: `Host` at
    /// the bound for this need.
    pub fn take(&self, core: usize, length: usize, need: Need) -> Result<Buf> {
        let class = class_of(length)?;
        let quarter = self.clients.bytes_max / 4;
        let may = match need {
            Need::Starting => self.clients.is_below(2 * quarter, CLASS_BYTES[class] as u64),
            Need::Continuing => self.clients.is_below(3 * quarter, CLASS_BYTES[class] as u64),
            Need::Finishing => true,
        };
        let handle = if may { self.clients.take(shard_of(core), class) } else { None };
        handle.map(|handle| Buf { handle, length }).ok_or_else(full)
    }
    /// A buffer like those of `take`, but for the program's own work, which has a reserved part and may then use what
    /// is left of the clients' part. Errors: `Host` if both are used up.
    pub fn take_own(&self, core: usize, length: usize) -> Result<Buf> {
        let class = class_of(length)?;
        let handle = self.own.take(0, class).or_else(|| self.clients.take(shard_of(core), class));
        handle.map(|handle| Buf { handle, length }).ok_or_else(full)
    }
    /// Bytes reserved for the program's own work.
    pub fn own_bytes_max(&self) -> u64 {
        self.own.bytes_max
    }
    /// Bytes taken from the system, in use or not.
    pub fn bytes(&self) -> u64 {
        self.clients.bytes() + self.own.bytes()
    }
}

/// The shard of the clients' pool from which a core takes.
fn shard_of(core: usize) -> usize {
    if is_on(Ablation::Buffers) { 0 } else { core }
}

fn class_of(length: usize) -> Result<usize> {
    let class = CLASS_BYTES.iter().position(|&bytes| bytes >= length);
    class.ok_or_else(|| Error::new(Kind::Invalid, "a buffer holds at most 1 MiB"))
}

fn full() -> Error {
    Error::new(Kind::Host, "memory_max is reached: no buffer left")
}

struct Handle {
    shard: Arc<Shard>,
    header: Pointer<Header>,
}

impl Handle {
    fn header(&self) -> &Header {
        // SAFETY: the shard, which this handle keeps alive, owns the header.
        unsafe { self.header.0.as_ref() }
    }
    /// The first bytes of the buffer, for `Buf` and `Shared`, whose lengths are at most its capacity.
    #[inline]
    fn bytes(&self, length: usize) -> &[u8] {
        // SAFETY: the slot has that many initialised bytes. They change only through a `Buf`, which is borrowed then or has no
        // other handle beside it but a loan, which does not reach the bytes.
        unsafe { std::slice::from_raw_parts(self.header().data.0.as_ptr(), length) }
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
            let Header { class, chunk, .. } = *self.header();
            self.shard.used_bytes.fetch_sub(CLASS_BYTES[class] as u64, Ordering::Relaxed);
            let _whole = self.shard.whole.hold(Ablation::Buffers);
            self.shard.class(class).give_back(chunk, self.header);
        }
    }
}

/// A buffer with one owner: 4 KiB-aligned, readable and writable.
pub struct Buf {
    handle: Handle,
    length: usize,
}

impl Buf {
    /// Number of bytes that fit into the buffer.
    pub fn capacity(&self) -> usize {
        CLASS_BYTES[self.handle.header().class]
    }
    /// Sets the length, at most the capacity. Bytes beyond the old length have any value.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity());
        self.length = length;
    }
    /// Lends the buffer: the returned buffer is for the borrower, and the loan is the right to get it back.
    pub fn lend(self) -> (Loan, Buf) {
        (Loan { handle: self.handle.clone() }, self)
    }
    /// Gives up sole ownership: the bytes can no longer change.
    pub fn share(self) -> Shared {
        Shared { handle: self.handle, length: self.length }
    }
}

/// The right to get a lent buffer back. It gives no access to the bytes.
pub struct Loan {
    handle: Handle,
}

impl Loan {
    /// The offset of `bytes` in the buffer, if they are a part of it.
    pub fn offset(&self, bytes: &[u8]) -> Option<usize> {
        let Header { class, data, .. } = self.handle.header();
        let offset = (bytes.as_ptr() as usize).checked_sub(data.0.as_ptr() as usize)?;
        (offset + bytes.len() <= CLASS_BYTES[*class]).then_some(offset)
    }
    /// The whole buffer, once its borrower has dropped it and all shares of it; before that, the loan again.
    pub fn back(self) -> std::result::Result<Buf, Loan> {
        let Header { class, references, .. } = self.handle.header();
        // Acquire: every use of the bytes by those who had them is past.
        if references.load(Ordering::Acquire) > 1 {
            return Err(self);
        }
        let length = CLASS_BYTES[*class];
        Ok(Buf { handle: self.handle, length })
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.handle.bytes(self.length)
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.handle.header().data.0.as_ptr(), self.length) }
    }
}

/// A buffer whose bytes no longer change, with any number of owners.
#[derive(Clone)]
pub struct Shared {
    handle: Handle,
    length: usize,
}

impl Shared {
    /// A part of the buffer, which keeps the whole buffer alive.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.length);
        Slice { buffer: self.clone(), range }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.handle.bytes(self.length)
    }
}

/// A part of a shared buffer.
#[derive(Clone)]
pub struct Slice {
    buffer: Shared,
    range: Range<usize>,
}

impl Slice {
    /// Bytes of memory that the slice keeps in use, alone or with other slices.
    pub fn held_bytes(&self) -> usize {
        CLASS_BYTES[self.buffer.handle.header().class]
    }
    /// A part of this slice.
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

    /// Miri runs these tests too, and is slow.
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 10_000 };

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let slabs = Slabs::new(1, 4 << 20);
        for _ in 0..ROUNDS {
            let mut buf = slabs.take(0, 4096, Need::Starting).expect("within the bound");
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
    fn a_loan_brings_a_buffer_back_when_nobody_has_it_any_more() {
        let slabs = Slabs::new(1, 4 << 20);
        let (loan, mut lent) = slabs.take(0, 1 << 20, Need::Starting).expect("within the bound").lend();
        let place = lent.as_ptr();
        lent.set_len(3);
        lent.copy_from_slice(b"abc");
        let loan = loan.back().err().expect("it is lent");
        let slice = lent.share().slice(1..2);
        let loan = loan.back().err().expect("a part of it is still there");
        drop(slice);
        let back = loan.back().ok().expect("nobody has it");
        assert_eq!((back.as_ptr(), back.len(), &back[..3]), (place, 1 << 20, &b"abc"[..]));
        drop(back);
        let all: Vec<_> = std::iter::from_fn(|| slabs.take(0, 1 << 20, Need::Finishing).ok()).collect();
        assert_eq!(all.len(), 4, "it went home once");
    }

    #[test]
    fn bytes_go_from_owner_to_owner_across_threads() {
        // The program's own part is empty, and the other chunk has two of the largest.
        let slabs = Slabs::new(1, 2 << 20);
        for round in 0..ROUNDS / 10 {
            let _other = slabs.take(0, 1 << 20, Need::Finishing).expect("within the bound");
            let mut buffer = slabs.take(0, 1 << 20, Need::Finishing).expect("the last one came home");
            buffer[0] = round as u8;
            let (loan, buffer) = buffer.lend();
            let shared = buffer.share();
            let read = |slice: Slice| assert_eq!(slice[0], round as u8);
            std::thread::scope(|scope| {
                let readers = [0, 1].map(|_| shared.slice(0..1));
                for slice in readers {
                    scope.spawn(move || read(slice));
                }
                drop(shared);
                let mut loan = loan;
                let mut back = loop {
                    match loan.back() {
                        Ok(back) => break back,
                        Err(still) => loan = still,
                    }
                    std::thread::yield_now();
                };
                back[0] += 1;
            });
        }
    }

    #[test]
    fn the_bound_holds() {
        let slabs = Slabs::new(1, 4 << 20);
        let all: Vec<_> = (0..5).map(|_| slabs.take(0, 1 << 20, Need::Finishing)).collect();
        assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 4);
        assert!(slabs.take(0, (1 << 20) + 1, Need::Starting).is_err());
    }

    /// Takes buffers of a class until there are none left.
    fn all(slabs: &Slabs, core: usize, length: usize, need: Need) -> Vec<Buf> {
        std::iter::from_fn(|| slabs.take(core, length, need).ok()).collect()
    }

    #[test]
    fn what_nobody_uses_serves_another_class() {
        let slabs = Slabs::new(2, 16 << 20);
        for length in [1 << 20, 4096, 60_000] {
            for core in [1, 0] {
                let mut held = all(&slabs, core, length, Need::Finishing);
                assert_eq!(held.len(), (12 << 20) / length.next_power_of_two());
                held.iter_mut().enumerate().for_each(|(number, buffer)| buffer.fill(number as u8));
                assert!(
                    held.iter().enumerate().all(|(number, buffer)| buffer.iter().all(|byte| *byte == number as u8))
                );
            }
        }
        assert!(slabs.bytes() <= 12 << 20);
    }

    #[test]
    fn a_few_that_are_held_do_not_keep_all_chunks() {
        let slabs = Slabs::new(1, 16 << 20);
        let mut held = all(&slabs, 0, 4096, Need::Finishing);
        // Fewer and fewer requests, each of which soon has another buffer.
        while held.len() > 20 {
            let mut number = 0;
            held.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            held.iter_mut().for_each(|one| *one = slabs.take(0, 4096, Need::Finishing).expect("half are free"));
        }
        assert_eq!(all(&slabs, 0, 1 << 20, Need::Finishing).len(), 10);
    }

    #[test]
    fn who_has_begun_and_the_house_may_use_more() {
        let slabs = Slabs::new(1, 16 << 20);
        let first = all(&slabs, 0, 1 << 20, Need::Starting);
        assert_eq!(first.len(), 6);
        assert!(slabs.take(0, 4096, Need::Starting).is_err());
        let second = all(&slabs, 0, 1 << 20, Need::Continuing);
        assert_eq!(second.len(), 3);
        let third = all(&slabs, 0, 1 << 20, Need::Finishing);
        assert!(!third.is_empty() && slabs.take(0, 4096, Need::Finishing).is_err());
        let own: Vec<_> = [4096, 1 << 20].map(|length| slabs.take_own(0, length).expect("a part of its own")).into();
        drop((second, third));
        assert!(slabs.take(0, 4096, Need::Starting).is_err(), "half is in use");
        drop(first);
        assert!(slabs.take(0, 4096, Need::Starting).is_ok());
        // Beyond its own part, the program uses what clients leave.
        let more: Vec<_> = std::iter::from_fn(|| slabs.take_own(0, 1 << 20).ok()).collect();
        assert!(more.len() >= 12, "{}", more.len());
        drop(own);
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn memory_without_a_bound_is_noticed() {
        assert!(base::seeded::fails(the_bound_holds, Bug::MemoryUnbounded));
    }
}
