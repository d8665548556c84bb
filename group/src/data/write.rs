//! Data writes. Aligned writes go straight from the client's buffer. Others are first made whole blocks, merged with
//! the file's old content under a range lock (rule M5). Large payloads are placed before they are ordered (rule U2).

use crate::order::receipt::Receipt;
use crate::order::record::Attached;
use crate::order::write::{Blocks, Pieces, Try, Write};
use crate::state::load::Wanted;
use crate::state::{Range, RangeId};
use crate::{Answer, Group, Groups, Position};
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, BULK_BYTES_MIN, IO_BYTES_MAX};
use base::{At, Crcs, Error, Ino, Kind, Op, Reply, RequestId, Result, SessionId, Sync};
use names::Seen;
use names::write::{Edge, WritePlan};
use runtime::seeded::{Bug, active};
use runtime::tasks::yield_now;
use runtime::{Buf, Need, Slice, Span, Stage, lock};
use store::bulk::{Begun, Ticket};
use wire::Context;

/// A payload that is not aligned has one block more than an aligned one, and two pieces.
const _: () = assert!(IO_BYTES_MAX + BLOCK_BYTES <= 2 * IO_BYTES_MAX);

/// A held range lock; dropping it unlocks the range and wakes waiters.
pub(crate) struct RangeHold<'a> {
    /// The file's group.
    pub group: &'a Group,
    /// The number of the lock.
    pub id: RangeId,
}

impl Drop for RangeHold<'_> {
    fn drop(&mut self) {
        self.group.state.lock().release_range(self.id);
        self.group.ranges.notify();
    }
}

impl Groups {
    /// Writes `data` and waits as the operation asks.
    pub(crate) async fn write(&self, context: &Context, write: Write, data: Buf) -> Result<Answer> {
        if data.len() != write.length as usize {
            return Err(Error::new(Kind::Invalid, "a write's length and payload differ"));
        }
        self.small_commits.wrote(write.ino, data.len());
        if write.sync >= Sync::Data {
            self.small_commits.commits(write.ino, self.store().runtime.clock.now_ns());
        }
        self.throttle().await?;
        self.store().log.admit(&context.span).await?;
        let quota = self.quota(context.volume);
        let _admitted = self.admit_data(context, quota.as_deref(), &write).await?;
        self.store().space.note_write(u64::from(write.length));
        let aligned = |offset: u64| offset.is_multiple_of(BLOCK_BYTES as u64);
        match write.at {
            At::Offset(offset) if aligned(offset) && aligned(u64::from(write.length)) => {
                self.write_aligned(context, write, data).await
            }
            _ => self.write_unaligned(context, write, data).await,
        }
    }

    async fn write_aligned(&self, context: &Context, write: Write, data: Buf) -> Result<Answer> {
        let length = data.len();
        let slices = [Some(data.share().slice(0..length)), None];
        let begun = self.begin_bulk(&slices, write.sync).await?;
        if begun[0].is_some() {
            // Lets the reactor submit the write, so that the device works on it while the checksums are computed.
            yield_now().await;
        }
        let crcs: Crcs = slices.iter().flatten().flat_map(|slice| slice.chunks(BLOCK_BYTES)).map(crc32c).collect();
        context.span.mark(Stage::Verify, self.stamp());
        self.order_blocks(context, write, None, Blocks { slices, crcs }, None, begun).await
    }

    /// Begins to place a large payload (rule U2); nothing for a small one, which goes into the log.
    async fn begin_bulk(&self, slices: &Pieces<Slice>, sync: Sync) -> Result<Pieces<Begun>> {
        let mut begun = [None, None];
        if slices.iter().flatten().map(|slice| slice.len()).sum::<usize>() < BULK_BYTES_MIN {
            return Ok(begun);
        }
        // A commit makes all that was ordered before it durable. So if no client waits for this payload to be durable,
        // but small commits are expected, it is flushed before it is ordered: then these commits don't wait for it.
        let beside = sync < Sync::Data && self.small_commits.are_expected(self.store().runtime.clock.now_ns());
        for (slice, one) in slices.iter().zip(&mut begun) {
            let Some(slice) = slice else { continue };
            match self.store().bulk.begin(slice.clone(), beside).await {
                Ok(some) => *one = Some(some),
                Err(error) => {
                    self.close_bulk(self.end_bulk(begun).await?);
                    return Err(error);
                }
            }
        }
        Ok(begun)
    }

    /// Waits until the device has written a large payload.
    async fn end_bulk(&self, begun: Pieces<Begun>) -> Result<Pieces<Ticket>> {
        let mut tickets = [None, None];
        let mut result = Ok(());
        for (one, ticket) in begun.into_iter().zip(&mut tickets) {
            let Some(one) = one else { continue };
            match self.store().bulk.end(one).await {
                Ok(some) => *ticket = Some(some),
                Err(error) => result = result.and(Err(error)),
            }
        }
        if result.is_err() {
            self.close_bulk(tickets);
            return result.map(|()| [None, None]);
        }
        Ok(tickets)
    }

    /// Closes the tickets of a large payload, whose record has been ordered or never will be.
    fn close_bulk(&self, tickets: Pieces<Ticket>) {
        tickets.into_iter().flatten().for_each(|ticket| self.store().bulk.close(ticket));
    }

    /// Locks the range, makes the payload whole blocks, and orders it. Starts over if the payload no longer fits the
    /// file: the end of the file may move while an append waits for its range.
    async fn write_unaligned(&self, context: &Context, write: Write, data: Buf) -> Result<Answer> {
        loop {
            let (hold, plan) = self.hold_write(context, &write).await?;
            let blocks = self.make_blocks(context, write.ino, &plan, &data).await?;
            context.span.mark(Stage::Verify, self.stamp());
            let begun = self.begin_bulk(&blocks.slices, write.sync).await?;
            match self.order_blocks(context, write, Some(&plan), blocks, Some(hold.id), begun).await {
                Err(error) if error.kind == Kind::Interrupted => continue,
                answer => return answer,
            }
        }
    }

    /// Plans the write and locks its blocks; an append locks all blocks from the end of the file on.
    async fn hold_write(&self, context: &Context, write: &Write) -> Result<(RangeHold<'_>, WritePlan)> {
        let group = self.state(write.ino.group());
        loop {
            let ticket = group.ranges.ticket();
            let held = {
                let mut state = group.state.lock();
                match state.inode(context.volume, write.ino) {
                    Seen::Known(inode) => {
                        let plan = self.plan(write, inode)?;
                        let last = if write.at == At::End { u64::MAX } else { plan.last_block };
                        let range = Range { volume: context.volume, ino: write.ino, first: plan.first_block, last };
                        Some(state.hold_range(range).map(|id| (id, plan)))
                    }
                    _ => None,
                }
            };
            match held {
                Some(Some((id, plan))) => return Ok((RangeHold { group, id }, plan)),
                Some(None) => {
                    group.ranges.after(ticket).await;
                    context.span.mark(Stage::Range, self.stamp());
                }
                None => self.load_inode(context, write.ino).await?,
            }
        }
    }

    async fn load_inode(&self, context: &Context, ino: Ino) -> Result<()> {
        self.load(context.volume, vec![Wanted::Inode(ino)], Some(&context.span)).await
    }

    async fn make_blocks(&self, context: &Context, ino: Ino, plan: &WritePlan, data: &Buf) -> Result<Blocks> {
        let count = (plan.last_block - plan.first_block + 1) as usize;
        let total = count * BLOCK_BYTES;
        let mut pieces = [Some(self.buffer(context, total.min(IO_BYTES_MAX), Need::Continuing).await?), None];
        if total > IO_BYTES_MAX {
            pieces[1] = Some(self.buffer(context, total - IO_BYTES_MAX, Need::Finishing).await?);
        }
        let within = (plan.offset - plan.first_block * BLOCK_BYTES as u64) as usize;
        let end = within + data.len();
        assert!(end <= total, "{} bytes from byte {within} on lie in {count} blocks", data.len());
        let mut crcs = Crcs::default();
        let mut slices = [None, None];
        for (number, piece) in pieces.into_iter().enumerate() {
            let Some(mut piece) = piece else { continue };
            let base = number * IO_BYTES_MAX;
            for (index, block) in piece.chunks_mut(BLOCK_BYTES).enumerate() {
                let from = base + index * BLOCK_BYTES;
                let number = plan.first_block + (from / BLOCK_BYTES) as u64;
                let edge = edge_of(plan, number);
                if edge == Edge::Merge && !active(Bug::EdgeForgotten) {
                    let old = self.read_block(context, ino, number).await?;
                    block.copy_from_slice(&old);
                } else if edge == Edge::Zeros {
                    block.fill(0);
                }
                let (first, last) = (within.max(from), end.min(from + BLOCK_BYTES));
                block[first - from..last - from].copy_from_slice(&data[first - within..last - within]);
                crcs.push(crc32c(block));
            }
            let length = piece.len();
            slices[number] = Some(piece.share().slice(0..length));
        }
        assert!(crcs.len() == count, "each of {count} blocks has a checksum");
        Ok(Blocks { slices, crcs })
    }

    /// Orders whole blocks; a large payload once the device has written it. `planned`: the plan for which the payload
    /// was made. Errors: `Interrupted` if the file no longer agrees with the plan.
    async fn order_blocks(
        &self,
        context: &Context,
        write: Write,
        planned: Option<&WritePlan>,
        blocks: Blocks,
        mine: Option<RangeId>,
        begun: Pieces<Begun>,
    ) -> Result<Answer> {
        let large = begun[0].is_some();
        let tickets = self.end_bulk(begun).await?;
        if large {
            // The two pieces were held back at the same time: the longer wait counts.
            let held_ns = tickets.iter().flatten().map(Ticket::held_ns).max().unwrap_or_default();
            let ended = tickets.iter().flatten().map(Ticket::ended).max().unwrap_or_default();
            self.mark_device(&context.span, Stage::Write, (held_ns, ended));
        }
        assert!(tickets[1].is_none() || tickets[0].is_some(), "the second piece follows the first");
        let sync = match write.sync {
            // The device write that O_DIRECT waits for has been the payload's (rule U3).
            Sync::Written if large => Sync::Ordered,
            sync => sync,
        };
        let gather_ns = if sync == Sync::Written { self.store().space.gather_ns() } else { 0 };
        let soon = Write { sync: if gather_ns > 0 { Sync::Ordered } else { sync }, ..write };
        let ordered = self.order_until_done(context, &soon, planned, &blocks, mine, &tickets).await;
        self.close_bulk(tickets);
        let (offset, receipt) = ordered?;
        if gather_ns > 0 {
            self.store().runtime.clock.sleep(gather_ns).await;
        }
        match &receipt {
            Some(receipt) if self.replication.is_some() => {
                Box::pin(self.replicated_at(Some(receipt.position(sync)), receipt.awaited.batch(), &context.span))
                    .await?;
            }
            Some(receipt) => self.committed(receipt.awaited, sync, &context.span).await?,
            None => self.all_committed(sync, Some(&context.span)).await?,
        }
        Ok(wrote(&write, offset, receipt.map(|receipt| receipt.position(soon.sync))))
    }

    /// Orders the write, trying again where needed. Returns the offset in the file, and the receipt if this delivery was ordered.
    async fn order_until_done(
        &self,
        context: &Context,
        write: &Write,
        planned: Option<&WritePlan>,
        blocks: &Blocks,
        mine: Option<RangeId>,
        tickets: &Pieces<Ticket>,
    ) -> Result<(u64, Option<Receipt>)> {
        let group = self.state(write.ino.group());
        loop {
            let before_ns = lock::waited_ns();
            let tried = self.try_order(context, group, write, planned, blocks, mine, tickets)?;
            self.mark_order(&context.span, before_ns);
            match tried {
                Try::Ordered(offset, receipt) => return Ok((offset, receipt)),
                Try::Changed => return Err(Error::new(Kind::Interrupted, "the file changed underneath")),
                Try::Wait(ticket) => {
                    group.ranges.after(ticket).await;
                    context.span.mark(Stage::Range, self.stamp());
                }
                Try::Segment(ticket) => {
                    self.wait_for_segment(ticket).await?;
                    context.span.mark(Stage::Space, self.stamp());
                }
                Try::Load => self.load_inode(context, write.ino).await?,
                Try::Capability => self.end_capability(context, write.ino).await?,
            }
        }
    }

    /// Removes a file's capabilities before a write to it (capabilities(7)), by a separate record, since few files have
    /// any. The kernel removes them itself, except before direct writes.
    async fn end_capability(&self, context: &Context, ino: Ino) -> Result<()> {
        self.load(context.volume, vec![Wanted::Xattrs(ino)], Some(&context.span)).await?;
        // Not under the request's number, under which the write's result will be kept.
        let (session, request) = (SessionId(0), RequestId(0));
        let own = Context { session, request, span: Span::start(self.stamp()), ..*context };
        let remove = Op::RemoveXattr { ino, name: names::capability() };
        match self.change(&own, &remove).await {
            Err(error) if error.kind != Kind::NoAttribute => Err(error),
            _ => Ok(()),
        }
    }

    /// Truncates to a size within a block: the rest of that block is logged as zeros in the same record (rule M5).
    pub(crate) async fn set_attributes(
        &self,
        context: &Context,
        op: &Op,
        ino: Ino,
        size: Option<u64>,
    ) -> Result<Answer> {
        let Some(size) = size else { return self.change(context, op).await };
        let within = (size % BLOCK_BYTES as u64) as usize;
        if within == 0 {
            return self.change(context, op).await;
        }
        let group = self.state(ino.group());
        let block = size / BLOCK_BYTES as u64;
        let range = Range { volume: context.volume, ino, first: block, last: u64::MAX };
        loop {
            let ticket = group.ranges.ticket();
            let held = group.state.lock().hold_range(range);
            let Some(id) = held else {
                group.ranges.after(ticket).await;
                continue;
            };
            let hold = RangeHold { group, id };
            // Read while the range is locked: from here on no write moves the end past this block.
            if size >= self.attributes(context, ino).await?.inode.size {
                return self.change_with(context, op, None, Some(hold.id)).await;
            }
            let mut tail = self.read_block(context, ino, block).await?;
            // A hole stays a hole.
            if tail[within..].iter().all(|&byte| byte == 0) || active(Bug::TailKept) {
                return self.change_with(context, op, None, Some(hold.id)).await;
            }
            tail[within..].fill(0);
            let crcs = std::iter::once(crc32c(&tail)).collect();
            let slice = tail.share().slice(0..BLOCK_BYTES);
            let attached = Attached { ino, pieces: vec![(block, crcs)], slice };
            return self.change_with(context, op, Some(&attached), Some(hold.id)).await;
        }
    }
}

/// The answer to a write at this offset.
fn wrote(write: &Write, offset: u64, position: Option<Position>) -> Answer {
    Answer { reply: Reply::Wrote { offset, length: write.length }, data: None, position }
}

fn edge_of(plan: &WritePlan, block: u64) -> Edge {
    if block == plan.first_block {
        plan.head
    } else if block == plan.last_block {
        plan.tail
    } else {
        Edge::Full
    }
}
