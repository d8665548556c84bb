//! Orders data writes whose payload is whole blocks: under the group's lock the write is evaluated, its record enters
//! the log's queue and its blocks the overlay. Nothing here waits: `Try` says what must come first, and `data` tries
//! again after that.

use crate::order::receipt::Receipt;
use crate::order::replace::may_follow;
use crate::replica::kept::Carried;
use crate::state::{Range, RangeId, State};
use crate::{Group, Groups};
use base::limits::BLOCK_BYTES;
use base::{At, Crcs, Edit, Error, Ino, Inode, Kind, Outcome, Result, Sync};
use names::Seen;
use names::write::{WritePlan, evaluate_write};
use runtime::Slice;
use store::bulk::Ticket;
use store::format::record::{Head, Places, Run, encode_replicated};
use store::log::{Described, Entry, Ordered, Payload};
use wire::Context;

/// A write as requested.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub ino: Ino,
    pub at: At,
    pub length: u32,
    pub sync: Sync,
    pub kill_privileges: bool,
}

/// A value for each piece of a write's payload. There are at most two pieces: a 1 MiB write that is not aligned covers
/// 257 blocks, and no buffer holds more than 256. The second exists only if the first does.
pub(crate) type Pieces<T> = [Option<T>; 2];

/// A write's whole blocks.
pub(crate) struct Blocks {
    pub slices: Pieces<Slice>,
    pub crcs: Crcs,
}

/// The outcome of a try to order a write.
pub(crate) enum Try {
    /// Ordered at this offset of the file. No receipt: an earlier delivery of the write was ordered.
    Ordered(u64, Option<Receipt>),
    /// The file has changed since the payload was made, so the payload must be made again.
    Changed,
    Wait(u64),
    Segment(u64),
    Load,
    /// The file has capabilities, or may have some: they must be removed first.
    Capability,
}

const NO_RUN: Run = Run { place: base::Place { segment: base::SegmentId(0), block: 0 }, count: 0 };

impl Groups {
    /// Plans the write for the file as it is now. Errors: `Stale` if the file is gone.
    pub(crate) fn plan(&self, write: &Write, inode: Option<Inode>) -> Result<WritePlan> {
        let inode = inode.ok_or_else(|| Error::new(Kind::Stale, "the file is gone"))?;
        let now = self.store().runtime.clock.wall();
        evaluate_write(write.ino, &inode, write.at, write.length, write.kill_privileges, now)
    }

    /// Orders the write, unless something must come first.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn try_order(
        &self,
        context: &Context,
        group: &Group,
        write: &Write,
        planned: Option<&WritePlan>,
        blocks: &Blocks,
        mine: Option<RangeId>,
        tickets: &Pieces<Ticket>,
    ) -> Result<Try> {
        let segment = self.store().log.segment_came.ticket();
        let range_ticket = group.ranges.ticket();
        let mut state = group.state.lock();
        // Looked up again, now under the lock that orders: the first delivery may have been under way when this one
        // came.
        if let Some(offset) = written_before(&state, context)? {
            return Ok(Try::Ordered(offset, None));
        }
        let inode = match state.inode(context.volume, write.ino) {
            Seen::Known(inode) => inode,
            _ => return Ok(Try::Load),
        };
        let capable =
            |state: &mut State| state.has_xattr(context.volume, write.ino, &names::capability()) != Some(false);
        if !context.written_back && inode.is_some_and(|inode| inode.xattrs.are_stored()) && capable(&mut state) {
            return Ok(Try::Capability);
        }
        let plan = self.plan(write, inode)?;
        if planned.is_some_and(|planned| !same_blocks(planned, &plan)) {
            return Ok(Try::Changed);
        }
        let planned_blocks = plan.last_block - plan.first_block + 1;
        assert!(planned_blocks == blocks.crcs.len() as u64, "the payload has the blocks that it is planned for");
        let range = Range { volume: context.volume, ino: write.ino, first: plan.first_block, last: plan.last_block };
        if state.is_held(&range, mine) {
            return Ok(Try::Wait(range_ticket));
        }
        if state.replica.is_some() {
            match state.may_order() {
                Err(error) if error.kind == Kind::Busy => return Ok(Try::Segment(segment)),
                may => may?,
            }
        }
        let outcome = Outcome::Wrote { offset: plan.offset, length: write.length };
        let head = state.head(0, context.volume, (context.session, context.request), outcome);
        let replaced = match may_follow(write, planned, blocks) && state.replica.is_none() {
            true => self.try_replace(&mut state, write, &plan, blocks, &head),
            false => Ok(None),
        };
        let offset = plan.offset;
        let appended = match replaced {
            Ok(None) => self.append_new(&mut state, write, plan, blocks, tickets, &head),
            Ok(Some(batch)) => Ok(batch),
            Err(error) => Err(error),
        };
        let batch = match appended {
            Err(error) if error.kind == Kind::Busy => return Ok(Try::Segment(segment)),
            appended => appended?,
        };
        state.ordered(&head, context.done);
        self.note_overlay(&mut state);
        Ok(Try::Ordered(offset, Some(Receipt::of(&state, batch))))
    }

    /// Logs a write that replaces no block that waits in the log: its blocks get new places. Returns its batch.
    fn append_new(
        &self,
        state: &mut State,
        write: &Write,
        plan: WritePlan,
        blocks: &Blocks,
        tickets: &Pieces<Ticket>,
        head: &Head,
    ) -> Result<u64> {
        let map = Edit::Map { ino: write.ino, first: plan.first_block, crcs: blocks.crcs.clone() };
        let edits = [map, plan.extend];
        let mut encoded = std::mem::take(&mut state.encoded);
        encoded.clear();
        encode_replicated(&mut encoded, head, &edits);
        let mut runs = [NO_RUN; 4];
        let sync = state.log_sync(write.sync);
        let appended = self.append_blocks(head, &encoded, &edits, blocks, tickets, sync, &mut runs);
        state.encoded = encoded;
        let (ordered, runs) = appended?;
        state.release_payloads(self.store().log.written());
        let mark = state.mark(ordered.batch, head.index);
        let mut places = Places::of(runs);
        for edit in &edits {
            state.apply(head.volume, edit, mark, &mut places, self.store().epoch as u32);
        }
        if tickets[0].is_none() {
            let slice = blocks.slices[0].as_slice();
            state.hold_payload(head.volume, write.ino, plan.first_block, slice, ordered.batch);
        }
        if state.replica.is_some() {
            let bytes = state.encoded[..].into();
            let slices = if tickets[0].is_none() { blocks.slices[0].as_slice() } else { &[] };
            self.propose(state, head, bytes, Carried::of(&edits, slices, runs), ordered.batch);
        }
        Ok(ordered.batch)
    }

    #[allow(clippy::too_many_arguments)]
    fn append_blocks<'r>(
        &self,
        head: &Head,
        replicated: &[u8],
        edits: &[Edit; 2],
        blocks: &Blocks,
        tickets: &Pieces<Ticket>,
        sync: Sync,
        runs: &'r mut [Run; 4],
    ) -> Result<(Ordered, &'r [Run])> {
        let Edit::Map { ino, first, crcs } = &edits[0] else { unreachable!("the first edit maps the payload") };
        let described = &[Described { ino: *ino, first: *first, crcs: crcs.as_slice() }];
        let mut count = 0;
        for run in tickets.iter().flatten().flat_map(Ticket::runs) {
            runs[count] = *run;
            count += 1;
        }
        let payload = match &blocks.slices {
            [Some(slice), None] if tickets[0].is_none() => Payload::Inline(std::slice::from_ref(slice)),
            _ => Payload::Placed(&runs[..count]),
        };
        let placed_blocks = match payload {
            Payload::Inline(slices) => slices[0].len() / BLOCK_BYTES,
            _ => runs[..count].iter().map(|run| usize::from(run.count)).sum(),
        };
        assert!(placed_blocks == crcs.len(), "{} blocks have {placed_blocks} places", crcs.len());
        let inline = matches!(payload, Payload::Inline(_));
        let owner = (head.group, head.volume, head.index);
        let ordered = self.store().log.append_one_record(&Entry { owner, replicated, payload, described }, sync)?;
        if inline {
            let place = ordered.place.expect("inline payloads are placed by the log");
            runs[0] = Run { place, count: crcs.len() as u16 };
            count = 1;
        }
        Ok((ordered, &runs[..count]))
    }
}

/// The offset of a write, if it was delivered before.
fn written_before(state: &State, context: &Context) -> Result<Option<u64>> {
    match state.result(context.session, context.request)? {
        Some(Outcome::Wrote { offset, .. }) => Ok(Some(offset)),
        _ => Ok(None),
    }
}

/// True if a payload made for one plan serves another one: the same offset, and the same edges.
fn same_blocks(made: &WritePlan, now: &WritePlan) -> bool {
    made.offset == now.offset && (made.head, made.tail) == (now.head, now.tail)
}
