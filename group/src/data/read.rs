//! Data reads: places come from overlay, leaf cache or index; bytes go straight into the reply's buffer where one
//! device read suffices; every block's checksum is compared before a byte is given out (rule K8).

use crate::data::ahead::{self, Read};
use crate::data::copies::{Via, is_of_copy};
use crate::data::scattered::{Piece, Scattered, is_scattered};
use crate::data::streams::{Part, Unit};
use crate::state::Block;
use crate::state::load::Wanted;
use crate::{Answer, Groups};
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Crcs, Error, FileKind, Ino, Kind, LeafKey, Life, Place, Reply, Result, VolumeId};
use names::Seen;
use runtime::seeded::{Bug, active};
use runtime::{Buf, Done, Need, Slice, Span, Stage, Stamp, Start, Transfer, lock};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use store::Held;
use store::promote::Reader;
use store::scrub::Suspect;
use wire::Context;

/// Consecutive blocks of one kind.
enum Extent {
    Hole { blocks: u32 },
    Memory { slice: Slice },
    Device { place: Place, blocks: u32, crcs: Crcs },
}

impl Extent {
    fn blocks(&self) -> u32 {
        match self {
            Extent::Hole { blocks } | Extent::Device { blocks, .. } => *blocks,
            Extent::Memory { .. } => 1,
        }
    }
}

/// The extents that a read found under the lock. The first is inline, because most reads have one.
struct Extents {
    first: Option<Extent>,
    more: Vec<Extent>,
    offset: u64,
    length: u32,
    /// True if they are the whole file.
    whole: bool,
    /// True if the read cache may have them.
    kept: bool,
    /// The state of the file's stream, if some of them are on disks.
    streamed: Option<Box<Streamed>>,
}

/// A read of what lies on disks.
struct Streamed {
    reader: Reader,
    /// Units that were read ahead and have some of it.
    units: Vec<Arc<Unit>>,
}

/// A device read under way.
pub(super) struct Begun<'a> {
    pub transfer: Transfer,
    pub place: Place,
    pub crcs: &'a Crcs,
    /// Position of its first byte in the concatenated extents.
    pub at: usize,
    /// True if the read cache shall keep it.
    pub keep: bool,
    /// The way that it was read; None: at home, and nothing comes of it.
    pub via: Option<Box<Via>>,
}

/// Most device reads that one request has under way: enough to keep a flash device busy.
const READS_MAX: usize = 32;

/// Largest read that is cached. The device gives larger ones at its full rate, and one pass over a large file would
/// take all the room.
const KEPT_BYTES_MAX: u32 = 64 << 10;

/// Largest read that is under the concurrency limit: few larger ones keep the device busy.
const PACED_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(KEPT_BYTES_MAX as usize <= IO_BYTES_MAX && PACED_BYTES_MAX <= IO_BYTES_MAX);

enum Plan {
    Ready(Extents),
    Missing(Wanted),
}

impl Groups {
    /// Reads up to `length` bytes; fewer only at the end of the file. Bytes from the device are put into `room`, if it
    /// is given and fits.
    pub(crate) async fn read(
        &self,
        context: &Context,
        ino: Ino,
        offset: u64,
        length: u32,
        mut room: Option<Buf>,
    ) -> Result<Answer> {
        if length as usize > IO_BYTES_MAX {
            return Err(Error::new(Kind::Invalid, "a read has at most 1 MiB"));
        }
        if active(Bug::WaitUnnamed) {
            self.store().runtime.clock.sleep(1000).await;
        }
        let mut retried = false;
        loop {
            let _pin = self.store().pin();
            let before_ns = lock::waited_ns();
            let mut extents = match self.plan_read(context, ino, offset, length)? {
                Plan::Ready(extents) => extents,
                Plan::Missing(wanted) => {
                    self.load(context.volume, vec![wanted], Some(&context.span)).await?;
                    continue;
                }
            };
            self.mark_order(&context.span, before_ns);
            let length = extents.length;
            if extents.whole
                && let Some(read) = self.ahead.take(context.volume, ino)
                && let Some(data) = self.take_ahead(context, &extents, read).await
            {
                return Ok(Answer { reply: Reply::Data { length }, data: Some(data), position: None });
            }
            let scattered = extents.scattered();
            match self.fetch(context, ino, &mut extents, room.take()).await {
                Ok(data) => {
                    if let (Some(pieces), Some(bytes)) = (scattered, &data) {
                        self.offer_scattered((context.volume, ino, offset), pieces, bytes);
                    }
                    return Ok(Answer { reply: Reply::Data { length }, data, position: None });
                }
                // The block may have moved between look-up and read: once more, then it is damage (rule K8).
                Err(error) if error.kind == Kind::Corrupt && !retried && !active(Bug::LookedUpOnce) => retried = true,
                // Others have the block, and this brick heals.
                Err(error) if error.kind == Kind::Elsewhere => {
                    let (first, last) = (offset, (offset + u64::from(length)).saturating_sub(1));
                    let block = |at: u64| at / BLOCK_BYTES as u64;
                    self.wait_for_missing((context.volume, ino, block(first), block(last))).await;
                }
                Err(error) => {
                    self.report_bad_read(context, ino, (offset, length), &error);
                    return Err(error.with(format!("inode {ino}, offset {offset}")));
                }
            }
        }
    }

    /// Offers the blocks of a large read to be put together, unless nobody would do it now. The reader's pin still is held, so each place
    /// has the life that the file's map means.
    #[cold]
    fn offer_scattered(&self, (volume, ino, offset): (VolumeId, Ino, u64), mut pieces: Vec<Piece>, bytes: &Slice) {
        if self.scattered.is_full() || !self.may_defragment() {
            return;
        }
        let Ok(mut copy) = self.store().runtime.buffer(pieces.len() * BLOCK_BYTES) else { return };
        for (piece, block) in pieces.iter_mut().zip(copy.chunks_exact_mut(BLOCK_BYTES)) {
            block.copy_from_slice(&bytes[piece.at as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
            piece.life = self.store().life(piece.place.segment);
        }
        let (first, length) = (offset / BLOCK_BYTES as u64, copy.len());
        let blocks = copy.share().slice(0..length);
        self.scattered.offer(Scattered { volume, ino, first, pieces, blocks });
    }

    /// Has the blocks of a failed read checked once more, and reported (`store::scrub`). Their places are in memory, as
    /// they have just been looked up.
    #[cold]
    fn report_bad_read(&self, context: &Context, ino: Ino, (offset, length): (u64, u32), error: &Error) {
        if !matches!(error.kind, Kind::Corrupt | Kind::Io) {
            return;
        }
        let block_bytes = BLOCK_BYTES as u64;
        let (first, end) = (offset / block_bytes, (offset + u64::from(length)).div_ceil(block_bytes));
        let volume = context.volume;
        let mut state = self.state(ino.group()).state.lock();
        let suspect = |offset: u64| match state.block(volume, ino, offset) {
            Block::Device { place, crc } => Some(Suspect { volume, ino, offset, place, crc }),
            _ => None,
        };
        let blocks: Vec<_> = (first..end).filter_map(suspect).collect();
        drop(state);
        store::scrub::suspect(self.store(), blocks);
    }

    fn plan_read(&self, context: &Context, ino: Ino, offset: u64, length: u32) -> Result<Plan> {
        let mut state = self.state(ino.group()).state.lock();
        let inode = match state.inode(context.volume, ino) {
            Seen::Known(Some(inode)) => inode,
            Seen::Known(None) => return Err(Error::new(Kind::Stale, "the file is gone")),
            _ => return Ok(Plan::Missing(Wanted::Inode(ino))),
        };
        if inode.is_directory() {
            return Err(Error::new(Kind::IsDirectory, "a directory can't be read as a file"));
        }
        self.accessed(context, &mut state, ino, &inode);
        let length = inode.size.saturating_sub(offset).min(u64::from(length)) as u32;
        let whole = offset == 0 && u64::from(length) == inode.size;
        let kept = context.unkept && length <= KEPT_BYTES_MAX;
        let mut extents = Extents { first: None, more: Vec::new(), offset, length, whole, kept, streamed: None };
        if length == 0 {
            return Ok(Plan::Ready(extents));
        }
        state.release_payloads(self.store().log.written());
        let last = (offset + u64::from(length) - 1) / BLOCK_BYTES as u64;
        for block in offset / BLOCK_BYTES as u64..=last {
            match state.block(context.volume, ino, block) {
                Block::Missing => return Ok(Plan::Missing(Wanted::Leaf(LeafKey::of(ino, block).0))),
                found => extents.push(found),
            }
        }
        Ok(Plan::Ready(extents))
    }

    /// Prefetches a small file that was opened, if its client will probably read it.
    pub(crate) fn read_ahead(&self, context: &Context, ino: Ino) {
        if !self.ahead.opened(ino) {
            return;
        }
        let (runtime, volume) = (&self.store().runtime, context.volume);
        let _pin = self.store().pin();
        let Some(Extent::Device { place, blocks, .. }) = self.whole_file(volume, ino) else { return };
        let bytes = blocks as usize * BLOCK_BYTES;
        let Ok(buffer) = runtime.slabs.take(runtime.tasks.core(), bytes, Need::Starting) else { return };
        let at = self.place_ahead(place, blocks);
        if let Ok(transfer) = self.store().begin_read(at, buffer, Start::AtOnce) {
            self.ahead.keep(Read { volume, ino, place, blocks, at, transfer });
            context.span.mark(Stage::Read, self.stamp());
        }
    }

    /// The extent of a small file that has only one, if it is in memory.
    fn whole_file(&self, volume: VolumeId, ino: Ino) -> Option<Extent> {
        let group = self.state(ino.group());
        loop {
            let missing = {
                let mut state = group.state.lock();
                let Seen::Known(Some(inode)) = state.inode(volume, ino) else { return None };
                if inode.kind != FileKind::File || inode.size == 0 || inode.size > ahead::FILE_BYTES_MAX {
                    return None;
                }
                let length = inode.size as u32;
                let (first, more, offset, whole, kept) = (None, Vec::new(), 0, true, false);
                let mut extents = Extents { first, more, offset, length, whole, kept, streamed: None };
                let mut missing = None;
                for block in 0..inode.size.div_ceil(BLOCK_BYTES as u64) {
                    match state.block(volume, ino, block) {
                        Block::Missing => missing = Some(Wanted::Leaf(LeafKey::of(ino, block).0)),
                        found => extents.push(found),
                    }
                    if missing.is_some() || !extents.more.is_empty() {
                        break;
                    }
                }
                match missing {
                    None => return extents.first.filter(|_| extents.more.is_empty()),
                    Some(missing) => missing,
                }
            };
            if self.recall(volume, &[missing]) != Ok(1) {
                return None;
            }
        }
    }

    /// The prefetched bytes, if they still are the file's.
    async fn take_ahead(&self, context: &Context, extents: &Extents, read: Read) -> Option<Slice> {
        if active(Bug::AheadBelieved) {
            let buffer = read.transfer.await.buffer?;
            return (buffer.len() >= extents.length as usize).then(|| buffer.share().slice(0..extents.length as usize));
        }
        let Some(Extent::Device { place, blocks, crcs }) = &extents.first else { return None };
        if !extents.more.is_empty() || (read.place, read.blocks) != (*place, *blocks) {
            return None;
        }
        // If it can't be read, or is something else by now, the file's own read tells.
        let asked = self.via(Reader::Client, (*place, *blocks));
        let via = match read.at == *place {
            true => asked.filter(|via| matches!(via, Via::Disk(_))),
            false => Some(Via::Copy(read.at)),
        };
        let via = via.map(Box::new);
        let begun = Begun { transfer: read.transfer, place: *place, crcs, at: 0, keep: false, via };
        let buffer = self.end_read(context, begun).await.ok()?;
        Some(buffer.share().slice(0..extents.length as usize))
    }

    async fn fetch(
        &self,
        context: &Context,
        ino: Ino,
        extents: &mut Extents,
        room: Option<Buf>,
    ) -> Result<Option<Slice>> {
        if self.store().has_further() && extents.devices().any(|place| self.store().is_on_disk(place)) {
            Box::pin(self.wait_for_units(context, ino, extents)).await;
        }
        let skip = (extents.offset % BLOCK_BYTES as u64) as usize;
        let range = skip..skip + extents.length as usize;
        match (&extents.first, extents.more.is_empty()) {
            (None, _) => Ok(None),
            (Some(Extent::Memory { slice }), true) => Ok(Some(slice.slice(range))),
            (Some(Extent::Device { place, blocks, crcs }), true)
                if range.end <= *blocks as usize * BLOCK_BYTES && extents.streamed.is_none() =>
            {
                let bytes = *blocks as usize * BLOCK_BYTES;
                let mut buffer = match fitting(room, bytes) {
                    Some(room) => room,
                    None => self.buffer(context, bytes, Need::Starting).await?,
                };
                let held = if extents.kept { self.look(context, (*place, crcs), &mut buffer) } else { Held::New };
                if held != Held::All {
                    let start = if bytes <= PACED_BYTES_MAX { Start::Paced } else { Start::AtOnce };
                    let transfer = self.store().begin_read(*place, buffer, start)?;
                    let begun = Begun { transfer, place: *place, crcs, at: 0, keep: held == Held::Again, via: None };
                    buffer = self.end_read(context, begun).await?;
                }
                Ok(Some(buffer.share().slice(range)))
            }
            _ => self.assemble(context, extents, skip, room).await.map(Some),
        }
    }

    /// Copies a run of blocks from the read cache, if that has all of it; otherwise tells whether it is worth caching.
    fn look(&self, context: &Context, (place, crcs): (Place, &Crcs), out: &mut [u8]) -> Held {
        let held = self.store().read_cache.copy(place, out);
        if held == Held::All && !active(Bug::CacheBelieved) {
            let verified = store::verify(out, crcs.as_slice().iter().copied());
            context.span.mark(Stage::Verify, self.stamp());
            return if verified.is_ok() { Held::All } else { Held::Again };
        }
        held
    }

    /// Waits for a read under way and compares the checksums.
    pub(super) async fn end_read(&self, context: &Context, begun: Begun<'_>) -> Result<Buf> {
        let Begun { transfer, place, crcs, keep, via, .. } = begun;
        let done = transfer.await;
        self.mark_device(&context.span, Stage::Read, (done.held_ns, done.ended));
        let buffer = match via {
            Some(via) => Box::pin(self.end_read_via(context, (done, place, crcs), *via)).await?,
            None => {
                done.result?;
                let buffer = done.buffer.expect("a read hands its buffer back");
                self.verify(context, place, crcs, &buffer)?;
                buffer
            }
        };
        if keep {
            self.store().read_cache.keep(place, &buffer);
        }
        Ok(buffer)
    }
    /// The same of blocks whose home is on a disk.
    #[cold]
    async fn end_read_via(
        &self,
        context: &Context,
        (done, place, crcs): (Done, Place, &Crcs),
        via: Via,
    ) -> Result<Buf> {
        let mut buffer = done.buffer.expect("a read hands its buffer back");
        let mut verified = done.result;
        if verified.is_ok() {
            verified = self.verify(context, via.place(place), crcs, &buffer);
        }
        match (verified, &via) {
            (Err(error), Via::Copy(copy)) if is_of_copy(error.kind) => {
                self.forget_copies(place, *copy, buffer.len() / BLOCK_BYTES);
                buffer = Box::pin(self.read_home(context, (place, crcs), buffer)).await?;
            }
            (verified, _) => verified?,
        }
        if let Via::Disk(offer) = &via {
            self.store().offer_copy(offer, &buffer);
        }
        Ok(buffer)
    }
    fn verify(&self, context: &Context, place: Place, crcs: &Crcs, buffer: &Buf) -> Result<()> {
        let verified = store::verify(buffer, crcs.as_slice().iter().copied());
        context.span.mark(Stage::Verify, self.stamp());
        verified.map_err(|number| {
            let error = Error::new(Kind::Corrupt, "a block differs from its checksum; restore the file");
            error.with(format!("segment {} block {}", place.segment, usize::from(place.block) + number))
        })
    }

    /// Books a transfer: the time for which the concurrency limit held it back, the device's, and the time for which the
    /// core let it wait then. `held_ns` and `ended`: as in `Done`.
    pub(crate) fn mark_device(&self, span: &Span, stage: Stage, (held_ns, ended): (u64, Stamp)) {
        let now = self.stamp();
        if held_ns > 0 {
            span.mark_first(Stage::Held, self.store().runtime.ledger.lapse(held_ns), now);
        }
        span.mark_ended(stage, ended, now);
    }

    /// Books the time since the last mark on evaluation and ordering, but for the time that this thread has waited for
    /// locks since `lock::waited_ns` was `before_ns`.
    pub(crate) fn mark_order(&self, span: &Span, before_ns: u64) {
        let (now, waited_ns) = (self.stamp(), lock::waited_ns() - before_ns);
        if waited_ns > 0 {
            span.mark_first(Stage::Lock, self.store().runtime.ledger.lapse(waited_ns), now);
        }
        span.mark(Stage::Order, now);
    }

    /// Assembles extents; the device works on several at once.
    async fn assemble(&self, context: &Context, extents: &Extents, skip: usize, room: Option<Buf>) -> Result<Slice> {
        let length = extents.length as usize;
        let mut out = match fitting(room, length) {
            Some(room) => room,
            None => self.buffer(context, length, Need::Starting).await?,
        };
        // Where bytes at `at` of the extents' own count lie in what was asked for, and which of them.
        let part = |at: usize, bytes: usize| {
            let (from, to) = (at.max(skip), (at + bytes).min(skip + length));
            (from - skip..to - skip, from - at..to - at)
        };
        let mut begun = VecDeque::new();
        let mut at = 0;
        for extent in extents.first.iter().chain(&extents.more) {
            let bytes = extent.blocks() as usize * BLOCK_BYTES;
            let (target, source) = part(at, bytes);
            match extent {
                Extent::Hole { .. } => out[target].fill(0),
                Extent::Memory { slice } => out[target].copy_from_slice(&slice[source]),
                Extent::Device { place, crcs, .. } => {
                    // Whole blocks are kept: edges are not looked for.
                    let held = match extents.kept && target.len() == bytes {
                        true => self.look(context, (*place, crcs), &mut out[target]),
                        false => Held::New,
                    };
                    if held == Held::All
                        || self.take_streamed(context, extents, (at, *place, crcs), |block, slice| {
                            let (target, source) = part(block, BLOCK_BYTES);
                            out[target].copy_from_slice(&slice[source]);
                        })
                    {
                        at += bytes;
                        continue;
                    }
                    let buffer = loop {
                        match self.another_buffer(bytes, begun.len()) {
                            Some(buffer) => break buffer,
                            None => match begun.pop_front() {
                                Some(one) => self.take(context, one, &mut out, &part).await?,
                                None => break self.buffer(context, bytes, Need::Continuing).await?,
                            },
                        }
                    };
                    let reader = extents.streamed.as_ref().map_or(Reader::Client, |streamed| streamed.reader);
                    let via = self.via(reader, (*place, extent.blocks()));
                    if let Some(Via::Pieces(parts)) = &via {
                        let buffer = Box::pin(self.read_pieces(context, parts, (*place, crcs), buffer)).await?;
                        let (target, source) = part(at, bytes);
                        out[target].copy_from_slice(&buffer[source]);
                    } else {
                        let from = via.as_ref().map_or(*place, |via| via.place(*place));
                        let transfer = self.store().begin_read(from, buffer, Start::AtOnce)?;
                        let (keep, via) = (held == Held::Again, via.map(Box::new));
                        begun.push_back(Begun { transfer, place: *place, crcs, at, keep, via });
                    }
                }
            }
            at += bytes;
        }
        // What no extent fills would be others' bytes.
        assert!(at >= skip + length, "extents of {at} bytes are all of {length} from {skip} on");
        for one in begun {
            self.take(context, one, &mut out, &part).await?;
        }
        Ok(out.share().slice(0..length))
    }

    /// Begins to read ahead of a client that streams, and waits for what was. Its wait counts as reading.
    #[cold]
    async fn wait_for_units(&self, context: &Context, ino: Ino, extents: &mut Extents) {
        let Seen::Known(Some(inode)) = self.state(ino.group()).state.lock().inode(context.volume, ino) else { return };
        let (offset, length, size) = (extents.offset, extents.length, inode.size);
        let noted = self.note_stream(context, Part { ino, offset, length, size });
        for unit in &noted.units {
            unit.wait().await;
        }
        let reader = if noted.is_stream { Reader::Stream } else { Reader::Client };
        extents.streamed = Some(Box::new(Streamed { reader, units: noted.units }));
        context.span.mark(Stage::Read, self.stamp());
    }
    /// Hands over the blocks of an extent, if all of them were read ahead and are what they should be. `at`: its position in the
    /// concatenated extents, bytes; `hand` gets each block's position there.
    fn take_streamed(
        &self,
        context: &Context,
        extents: &Extents,
        (at, place, crcs): (usize, Place, &Crcs),
        mut hand: impl FnMut(usize, &Slice),
    ) -> bool {
        let first = extents.offset / BLOCK_BYTES as u64 + (at / BLOCK_BYTES) as u64;
        let Some(Streamed { units, .. }) = extents.streamed.as_deref() else { return false };
        if units.is_empty() || !self.store().is_on_disk(place) {
            return false;
        }
        let is_whole = crcs.as_slice().iter().zip(0u32..).all(|(crc, number)| {
            let taken = |unit: &Arc<Unit>| unit.take(first + u64::from(number), place.advance(number));
            let Some(slice) = units.iter().find_map(taken) else { return false };
            let verified = store::verify(&slice, std::iter::once(*crc)).is_ok() || active(Bug::UnitBelieved);
            hand(at + number as usize * BLOCK_BYTES, &slice);
            verified
        });
        context.span.mark(Stage::Verify, self.stamp());
        if is_whole {
            self.streams.taken(crcs.as_slice().len() as u64);
        }
        is_whole
    }

    /// A buffer beside those of `begun` reads, if there is one at once: a request that holds buffers does not wait for
    /// more, but ends the reads that it has begun.
    fn another_buffer(&self, bytes: usize, begun: usize) -> Option<Buf> {
        let runtime = &self.store().runtime;
        if begun < READS_MAX { runtime.slabs.take(runtime.tasks.core(), bytes, Need::Continuing).ok() } else { None }
    }

    /// Copies the bytes of a read to their place in `out`.
    async fn take(
        &self,
        context: &Context,
        one: Begun<'_>,
        out: &mut Buf,
        part: &impl Fn(usize, usize) -> (Range<usize>, Range<usize>),
    ) -> Result<()> {
        let at = one.at;
        let buffer = self.end_read(context, one).await?;
        let (target, source) = part(at, buffer.len());
        out[target].copy_from_slice(&buffer[source]);
        Ok(())
    }

    /// The content of one block of the file, zeros if it is not mapped; the caller holds its range lock.
    pub(crate) async fn read_block(&self, context: &Context, ino: Ino, block: u64) -> Result<Buf> {
        loop {
            let _pin = self.store().pin();
            let found = {
                let mut state = self.state(ino.group()).state.lock();
                state.release_payloads(self.store().log.written());
                state.block(context.volume, ino, block)
            };
            match found {
                Block::Missing => {
                    self.load(context.volume, vec![Wanted::Leaf(LeafKey::of(ino, block).0)], Some(&context.span))
                        .await?;
                }
                Block::Device { place, crc } => {
                    let buffer = self.buffer(context, BLOCK_BYTES, Need::Finishing).await?;
                    let crcs = &std::iter::once(crc).collect();
                    // Whoever waits for the range waits for this read too: it is not held back.
                    let transfer = self.store().begin_read(place, buffer, Start::AtOnce)?;
                    let begun = Begun { transfer, place, crcs, at: 0, keep: false, via: None };
                    let read = self.end_read(context, begun).await;
                    if let Err(error) = &read {
                        self.report_bad_read(context, ino, (block * BLOCK_BYTES as u64, BLOCK_BYTES as u32), error);
                    }
                    return read;
                }
                Block::Hole => {
                    let mut buffer = self.buffer(context, BLOCK_BYTES, Need::Finishing).await?;
                    buffer.fill(0);
                    return Ok(buffer);
                }
                Block::Memory(slice) => {
                    let mut buffer = self.buffer(context, BLOCK_BYTES, Need::Finishing).await?;
                    buffer.copy_from_slice(&slice);
                    return Ok(buffer);
                }
            }
        }
    }
}

/// The given room as memory of `bytes` bytes, if it is large enough.
fn fitting(room: Option<Buf>, bytes: usize) -> Option<Buf> {
    let mut room = room.filter(|room| room.capacity() >= bytes)?;
    room.set_len(bytes);
    Some(room)
}

impl Extents {
    /// The places of those on devices.
    fn devices(&self) -> impl Iterator<Item = Place> {
        let place = |extent: &Extent| if let Extent::Device { place, .. } = extent { Some(*place) } else { None };
        self.first.iter().chain(&self.more).filter_map(place)
    }
    /// The blocks on the device of a large read that found them in many pieces, but for a block that was not read whole.
    /// Their lives are to be filled in.
    fn scattered(&self) -> Option<Vec<Piece>> {
        let whole = self.length / BLOCK_BYTES as u32;
        if !is_scattered(whole, self.more.len() + 1) || !self.offset.is_multiple_of(BLOCK_BYTES as u64) {
            return None;
        }
        let mut blocks: Vec<Piece> = Vec::with_capacity(whole as usize);
        let (mut at, mut pieces) = (0, 0);
        for extent in self.first.iter().chain(&self.more) {
            if let Extent::Device { place, crcs, .. } = extent {
                // Across a hole, a piece may go on.
                let goes_on = blocks.last().is_some_and(|last| {
                    last.place.segment == place.segment && u32::from(last.place.block) + 1 == u32::from(place.block)
                });
                pieces += usize::from(!goes_on);
                let places = (0..).map(|n| place.advance(n));
                let some = (at..whole).zip(places).zip(crcs.as_slice());
                blocks.extend(some.map(|((at, place), crc)| Piece { at, place, crc: *crc, life: Life(0) }));
            }
            at += extent.blocks();
        }
        is_scattered(blocks.len() as u32, pieces).then_some(blocks)
    }
    fn push(&mut self, found: Block) {
        // A device read is one buffer: at most 256 blocks.
        const BLOCKS_MAX: u32 = (IO_BYTES_MAX / BLOCK_BYTES) as u32;
        let last = self.more.last_mut().or(self.first.as_mut());
        match (last, &found) {
            (Some(Extent::Hole { blocks }), Block::Hole) => return *blocks += 1,
            (Some(Extent::Device { place, blocks, crcs }), Block::Device { place: next, crc })
                if next.segment == place.segment
                    && u32::from(next.block) == u32::from(place.block) + *blocks
                    && *blocks < BLOCKS_MAX =>
            {
                *blocks += 1;
                return crcs.push(*crc);
            }
            _ => {}
        }
        let extent = match found {
            Block::Hole => Extent::Hole { blocks: 1 },
            Block::Memory(slice) => Extent::Memory { slice },
            Block::Device { place, crc } => Extent::Device { place, blocks: 1, crcs: std::iter::once(crc).collect() },
            Block::Missing => unreachable!("missing leaves are loaded first"),
        };
        if self.first.is_none() {
            self.first = Some(extent);
        } else {
            self.more.push(extent);
        }
    }
}
