//! Makes copies and drops them: one background task per hybrid brick, which does what the order says (`core`). It writes
//! one segment after the other, each write to its end before the next, and enters copies in the map only then. Nothing waits for it but
//! the cleaner for flash, of which it keeps none that is wanted.

use super::{Cause, Copied, Offer, Order, Reason, Sight, Step, Wanted};
use crate::Store;
use crate::format::devices::Tier;
use crate::format::segment::{SegmentHeader, Stream};
use crate::log::Prepared;
use crate::segments::{Origin, prepare};
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Kind, Result, SegmentId};
use runtime::seeded::{Bug, active};
use runtime::{Event, Lock, Purpose, Request, Slice, Start, disk};
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that may wait to be copied, 4 MiB: what is read from many disks in the time of one large write.
const QUEUE_BLOCKS_MAX: u64 = 1024;
/// Blocks of one write.
const WRITE_BLOCKS_MAX: u32 = (IO_BYTES_MAX / BLOCK_BYTES) as u32;
/// Pieces that are read at the same time to be copied anew.
const PIECES_MAX: usize = 64;
/// Interval of looks at how much flash there is while there are copies: clients write a third of a segment in it at
/// 1 GiB/s.
const LOOK_NS: u64 = 20_000_000;
/// The part of the flash that is cleaned for copies if they want it: a quarter. What is written to flash has the rest, of which
/// five eighths of all stay alive before anything goes down to disks.
const SHARE_PARTS: u32 = 4;
/// Time for which copies want more after they have lacked a segment.
const WANTED_NS: u64 = 10_000_000_000;
const _: () = assert!(WRITE_BLOCKS_MAX as u64 <= QUEUE_BLOCKS_MAX);

/// Blocks that wait to be copied.
pub struct Copies {
    queue: Lock<Queue>,
    /// Notified when something is queued.
    came: Event,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    blocks: u64,
    /// Figures of the order as of its last step.
    held: u32,
    budget: u32,
    /// Number of segments that copies may want, and the time until which they do.
    share: u32,
    wanted_until_ns: u64,
}

/// Blocks with their content.
struct Waiting {
    wanted: Wanted,
    data: Slice,
    reason: Reason,
}

/// Segments of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segments {
    /// Number of those that hold copies.
    pub held: u32,
    /// Number of those that might.
    pub budget: u32,
    /// Number of those that should be cleaned for copies, beside what is kept free.
    pub wanted: u32,
}

impl Copies {
    /// Segments of copies as of the last step.
    pub fn segments(&self, now_ns: u64) -> Segments {
        let Queue { held, budget, share, wanted_until_ns, .. } = *self.queue.lock();
        Segments { held, budget, wanted: if now_ns < wanted_until_ns { share } else { 0 } }
    }
    /// Wakes the task, which ends if the log has stopped.
    pub fn wake(&self) {
        self.came.notify();
    }
    /// The lock's figures.
    pub fn lock_summary(&self) -> runtime::lock::LockSummary {
        self.queue.summary()
    }
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { queue: Lock::new("copies", Queue::default()), came: Event::new() }
    }
}

impl Store {
    /// Takes a copy of blocks that were read from disk, to be written to flash. `blocks`: all that was read, compared with their
    /// checksums; the reader's pin lives.
    pub fn offer_copy(&self, offer: &Offer, blocks: &[u8]) {
        let at_ns = self.runtime.clock.now_ns();
        let has_room = self.copies.queue.lock().blocks + u64::from(offer.blocks()) <= QUEUE_BLOCKS_MAX;
        let buffer = has_room.then(|| self.runtime.buffer(offer.blocks() as usize * BLOCK_BYTES).ok()).flatten();
        let Some(mut buffer) = buffer else { return self.promotion.refuse(offer, Reason::Busy, at_ns) };
        let mut to = 0;
        for (first, wanted) in offer.runs() {
            let (from, bytes) = (first as usize * BLOCK_BYTES, wanted.count as usize * BLOCK_BYTES);
            buffer[to..to + bytes].copy_from_slice(&blocks[from..from + bytes]);
            to += bytes;
        }
        let all = buffer.share();
        let mut queue = self.copies.queue.lock();
        let mut at = 0;
        for (_, wanted) in offer.runs() {
            let bytes = wanted.count as usize * BLOCK_BYTES;
            queue.waiting.push_back(Waiting { wanted, data: all.slice(at..at + bytes), reason: offer.reason() });
            at += bytes;
        }
        queue.blocks += u64::from(offer.blocks());
        drop(queue);
        self.copies.came.notify();
    }
}

struct Drive {
    store: Arc<Store>,
    order: Order,
    /// The segment that is being filled.
    open: Option<Prepared>,
    /// Copies of the oldest segment that are still to be copied anew.
    anew: Option<(SegmentId, VecDeque<Copied>)>,
}

/// The segment that the process before this one was filling with copies: its late writes may still hit that one (rule L4). It
/// has filled one after the other, and waited for the last write in each. `epoch`: that process's.
pub fn unended<'a>(headers: impl Iterator<Item = &'a SegmentHeader>, epoch: u64) -> Option<SegmentId> {
    let copies = headers.filter(|header| header.stream == Stream::Copies && header.epoch == epoch);
    copies.max_by_key(|header| header.sequence).map(|header| header.segment)
}

/// Starts the task, if the brick has room for knowing copies.
pub fn start(store: &Arc<Store>) {
    if store.promotion.has_room() {
        let (there, last) = (store.clone(), store.runtime.tasks.cores() - 1);
        store.runtime.tasks.spawn(last, Box::new(move || Box::pin(run(there))));
    }
}

/// The task. Ends when the log stops or fails.
async fn run(store: Arc<Store>) {
    let blocks = store.geometry.blocks();
    let mut drive = Drive { store, order: Order::new(blocks), open: None, anew: None };
    loop {
        let store = drive.store.clone();
        let ticket = store.copies.came.ticket();
        if store.log.stopping() || store.log.failed().is_some() {
            return;
        }
        let step = drive.order.step(&drive.sight());
        drive.tell(step);
        match drive.perform(step).await {
            Err(error) => return store.log.fail(error.with("copying to flash")),
            Ok(true) => {}
            Ok(false) if drive.order.held() > 0 => store.runtime.clock.sleep(LOOK_NS).await,
            Ok(false) => store.copies.came.after(ticket).await,
        }
    }
}

impl Drive {
    fn sight(&self) -> Sight {
        let queued = self.store.copies.queue.lock().blocks;
        let target = self.store.space.spare() as u32;
        let table = self.store.table.lock();
        let (free, leaving) = (table.free() as u32, table.leaving(Tier::Flash) as u32);
        let leaves = table.on_leaving_flash();
        drop(table);
        let is_leaving = leaves.is_some_and(|leaves| self.order.segments().any(leaves));
        Sight { free, leaving, target, queued, map_is_short: self.store.promotion.map_is_short(), is_leaving }
    }
    /// Publishes the order's figures.
    fn tell(&self, step: Step) {
        let wants = matches!(step, Step::Refuse | Step::Drop(_, Cause::Replaced));
        let now_ns = self.store.runtime.clock.now_ns();
        let segments = self.store.segments_of(Tier::Flash).segments as u32;
        let mut queue = self.store.copies.queue.lock();
        (queue.held, queue.budget, queue.share) = (self.order.held(), self.order.budget(), segments / SHARE_PARTS);
        if wants {
            queue.wanted_until_ns = now_ns + WANTED_NS;
        }
    }
    /// Does a step. False if there is nothing to do until something comes. Errors: of the flash.
    async fn perform(&mut self, step: Step) -> Result<bool> {
        match step {
            Step::Rest => return Ok(false),
            Step::Refuse => self.refuse_queued(),
            Step::Take => match prepare::prepare(&self.store, (Stream::Copies, Origin::Flash)).await {
                Ok(Some(prepared)) => {
                    self.order.took(prepared.segment);
                    self.open = Some(prepared);
                }
                Ok(None) => self.refuse_queued(),
                Err(error) if error.kind == Kind::NoSpace => self.refuse_queued(),
                Err(error) => return Err(error),
            },
            Step::Write(room) => self.write_queued(room).await?,
            Step::CopyAnew(segment, most) => self.copy_anew(segment, most).await?,
            Step::Drop(segment, cause) => self.drop_segment(segment, cause),
        }
        Ok(true)
    }
    fn refuse_queued(&self) {
        let mut queue = self.store.copies.queue.lock();
        let refused = std::mem::take(&mut queue.waiting);
        queue.blocks = 0;
        drop(queue);
        let at_ns = self.store.runtime.clock.now_ns();
        for one in refused {
            self.store.promotion.refuse_wanted(&one.wanted, Reason::NoFlash, at_ns);
        }
    }
    async fn write_queued(&mut self, room: u32) -> Result<()> {
        let mut left = room.min(WRITE_BLOCKS_MAX);
        let mut some = Vec::new();
        {
            let mut queue = self.store.copies.queue.lock();
            while left > 0
                && let Some(mut one) = queue.waiting.pop_front()
            {
                let count = one.wanted.count.min(left);
                let bytes = count as usize * BLOCK_BYTES;
                let copied = one.wanted.split(count, self.order.fill(count));
                some.push((copied, one.data.slice(0..bytes), one.reason));
                if one.wanted.count > 0 {
                    one.data = one.data.slice(bytes..one.data.len());
                    queue.waiting.push_front(one);
                }
                (left, queue.blocks) = (left - count, queue.blocks - u64::from(count));
            }
        }
        self.write(some).await
    }
    /// Writes copies that lie one behind the other, and enters them once the device has them.
    async fn write(&self, copies: Vec<(Copied, Slice, Reason)>) -> Result<()> {
        let Some((first, ..)) = copies.first() else { return Ok(()) };
        let open = self.open.expect("a step has granted room");
        assert!(open.segment == first.to.segment, "copies go to the segment that is being filled");
        let offset = open.offset + u64::from(first.to.block) * BLOCK_BYTES as u64;
        if active(Bug::CopyEarly) {
            self.enter(&copies);
        }
        let slices = copies.iter().map(|(_, data, _)| data.clone()).collect();
        let request = Request::Write { file: open.file, offset, slices, durable: false };
        let (_, result) = disk::write_for(Purpose::Cleaner, &*self.store.runtime.disk, request).await;
        result?;
        if !active(Bug::CopyEarly) {
            self.enter(&copies);
        }
        Ok(())
    }
    fn enter(&self, copies: &[(Copied, Slice, Reason)]) {
        let at_ns = self.store.runtime.clock.now_ns();
        for (copied, _, reason) in copies {
            self.store.promotion.enter(*copied, *reason, at_ns);
        }
    }
    /// Copies some of what was asked for again in the oldest segment.
    async fn copy_anew(&mut self, segment: SegmentId, most: u32) -> Result<()> {
        let mut left = match self.anew.take() {
            Some((of, left)) if of == segment => left,
            _ => self.store.promotion.asked(segment).into(),
        };
        let mut reads = Vec::new();
        let mut blocks = most.min(WRITE_BLOCKS_MAX);
        while blocks > 0
            && reads.len() < PIECES_MAX
            && let Some(mut old) = left.pop_front()
        {
            let count = old.count.min(blocks);
            let Ok(buffer) = self.store.runtime.buffer(count as usize * BLOCK_BYTES) else {
                // Memory is short for a moment, and what is not copied anew is read from disk again.
                left.clear();
                break;
            };
            let part = old.split(count);
            let transfer = self.store.begin_read_for(Purpose::Cleaner, part.to, buffer, Start::AtOnce)?;
            reads.push((part, transfer));
            if old.count > 0 {
                left.push_front(old);
            }
            blocks -= count;
        }
        if reads.is_empty() {
            self.order.copied_anew();
            return Ok(());
        }
        self.anew = Some((segment, left));
        let mut some = Vec::new();
        for (old, transfer) in reads {
            let done = transfer.await;
            let Some(buffer) = done.buffer.filter(|_| done.result.is_ok()) else { continue };
            let copied = old.wanted().split(old.count, self.order.fill(old.count));
            let bytes = buffer.len();
            some.push((copied, buffer.share().slice(0..bytes), Reason::AskedAgain));
        }
        self.write(some).await
    }
    fn drop_segment(&mut self, segment: SegmentId, cause: Cause) {
        let at_ns = self.store.runtime.clock.now_ns();
        self.store.promotion.drop_segment(segment, cause, at_ns);
        self.order.dropped(segment);
        self.anew = None;
        if self.open.is_some_and(|open| open.segment == segment) {
            self.open = None;
        }
        self.store.table.lock().free_copies(segment, self.store.geometry.blocks());
        self.store.free_unread();
    }
}
