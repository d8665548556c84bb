//! Orders records: each gets its group's next index, enters the log's queue and is applied to the overlay, all under the
//! locks that its evaluation held (decision D5, rule Q1).

use crate::Groups;
use crate::order::admit::take_back;
use crate::order::held::{GroupSet, Held};
use crate::order::receipt::Receipt;
use crate::replica::kept::Carried;
use crate::state::State;
use crate::state::load::{Wanted, rests_on};
use base::limits::BLOCK_BYTES;
use base::{
    Crcs, Edit, GroupId, Index, Ino, Intent, Kind, Outcome, RequestId, Result, SessionId, Sync, Term, VolumeId,
};
use names::{Decision, Part, Seen};
use runtime::Slice;
use store::format::record::{Head, Places, Run, encode_replicated};
use store::log::{Described, Entry, Ordered, Payload};
use wire::Context;

/// A payload that a change carries beside its edits: blocks of one inode, in one or more pieces.
pub(crate) struct Attached {
    /// The inode.
    pub ino: Ino,
    /// First block and checksums of each piece.
    pub pieces: Vec<(u64, Crcs)>,
    /// The blocks of all pieces, one behind the other.
    pub slice: Slice,
}

impl Attached {
    /// The edits that map the payload.
    pub fn maps(&self) -> impl Iterator<Item = Edit> {
        let map = |(first, crcs): &(u64, Crcs)| Edit::Map { ino: self.ino, first: *first, crcs: crcs.clone() };
        self.pieces.iter().map(map)
    }
    fn blocks(&self) -> usize {
        self.slice.len() / BLOCK_BYTES
    }
    fn described(&self) -> Vec<Described<'_>> {
        let described: usize = self.pieces.iter().map(|(_, crcs)| crcs.len()).sum();
        assert!(described == self.blocks(), "{described} of {} attached blocks have a checksum", self.blocks());
        let pieces = self.pieces.iter();
        pieces.map(|(first, crcs)| Described { ino: self.ino, first: *first, crcs: crcs.as_slice() }).collect()
    }
}

/// The edits that one group is to apply, and the request on whose behalf they are ordered.
pub(crate) struct Record<'a> {
    part: &'a Part,
    session: SessionId,
    request: RequestId,
    outcome: Outcome,
    done: u64,
}

impl<'a> Record<'a> {
    /// A record on the brick's own behalf.
    pub fn own(part: &'a Part) -> Record<'a> {
        Record { part, session: SessionId(0), request: RequestId(0), outcome: Outcome::Done, done: 0 }
    }
    fn head(&self, state: &State, behind: u64) -> Head {
        state.head(behind, self.part.volume, (self.session, self.request), self.outcome)
    }
}

/// The record in the form that the log takes.
fn entry<'a>(
    head: &Head,
    replicated: &'a [u8],
    attached: Option<&'a Attached>,
    described: &'a [Described<'a>],
) -> Entry<'a> {
    let payload = attached.map_or(Payload::None, |a| Payload::Inline(std::slice::from_ref(&a.slice)));
    Entry { owner: (head.group, head.volume, head.index), replicated, payload, described }
}

impl Groups {
    /// Orders a decision that has parts, if there is space for the names that it adds. Returns its first group's
    /// receipt. Errors: `NoSpace` or `Quota` if there is no space by the latest count.
    pub(crate) fn order(
        &self,
        held: &mut Held<'_>,
        context: &Context,
        decision: &Decision,
        attached: Option<&Attached>,
        sync: Sync,
    ) -> Result<Receipt> {
        let quota = self.quota(context.volume);
        let admitted = self.admit_names(held, quota.as_deref(), &decision.parts)?;
        let ordered = self.order_parts(held, context, decision, attached, sync);
        if ordered.is_err() {
            take_back(admitted);
        }
        ordered.map(|batch| Receipt::of(held.of(decision.parts[0].group), batch))
    }

    /// Orders one record per part, all or nothing. Several parts are joined by an intent. The records that end the
    /// intent and the followers' marks go into the same append: all groups share one log, which keeps their order (rule
    /// M3). Where each group has an order of its own the first part's record is the decision (`across`).
    fn order_parts(
        &self,
        held: &mut Held<'_>,
        context: &Context,
        decision: &Decision,
        attached: Option<&Attached>,
        sync: Sync,
    ) -> Result<u64> {
        let of = |part, session, request, outcome| Record { part, session, request, outcome, done: context.done };
        let first = of(&decision.parts[0], context.session, context.request, decision.outcome);
        let deciding = first.part.group;
        let is_across = || self.is_across() && decision.parts.iter().any(|part| part.group != deciding);
        if decision.parts.len() == 1 || is_across() {
            return self.order_record(held, &first, attached, sync);
        }
        let endings = endings(decision);
        let others = decision.parts[1..].iter().map(|part| of(part, SessionId(0), RequestId(0), decision.outcome));
        let ends = endings.iter().map(Record::own);
        let records: Vec<_> = std::iter::once(first).chain(others).chain(ends).collect();
        self.order_records(held, &records, attached, sync)
    }

    /// Orders one record on the brick's own behalf.
    pub(crate) async fn order_here(&self, part: Part) -> Result<()> {
        let Part { volume, group, edits } = part;
        self.order_when(group, volume, |_| Ok(Some(edits.clone()))).await.map(drop)
    }

    /// Orders a record of the edits that `wanted` says under the group's lock, perhaps several times until there is room for it; none if it says
    /// that there are none. The term and the index of the record. Errors: those of `wanted`, of the log and of the index.
    pub(crate) async fn order_when(
        &self,
        group: GroupId,
        volume: VolumeId,
        mut wanted: impl FnMut(&mut State) -> Result<Option<Vec<Edit>>>,
    ) -> Result<Option<(Term, Index)>> {
        loop {
            let segment = self.store().log.segment_came.ticket();
            let missing: Vec<_> = {
                let mut held = Held::new(self, &GroupSet::one(group));
                let state = held.of(group);
                let Some(edits) = wanted(state)? else { return Ok(None) };
                let part = Part { volume, group, edits };
                let rests = part.edits.iter().filter_map(rests_on);
                let missing = rests.filter(|ino| matches!(state.inode(volume, *ino), Seen::Missing));
                let missing: Vec<_> = missing.map(Wanted::Inode).collect();
                if missing.is_empty() {
                    match self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered) {
                        Err(error) if error.kind == Kind::Busy => {}
                        ordered => {
                            ordered?;
                            let row = &held.of(group).row;
                            return Ok(Some((row.term, row.applied)));
                        }
                    }
                }
                missing
            };
            match missing.is_empty() {
                true => self.wait_for_segment(segment).await?,
                false => self.load(volume, missing, None).await?,
            }
        }
    }

    /// Appends a record of a group whose lock is held, and applies it.
    pub(crate) fn order_record(
        &self,
        held: &mut Held<'_>,
        record: &Record<'_>,
        attached: Option<&Attached>,
        sync: Sync,
    ) -> Result<u64> {
        let state = held.of(record.part.group);
        if state.replica.is_some() {
            state.may_order()?;
        }
        let head = record.head(state, 0);
        let sync = state.log_sync(sync);
        let mut encoded = std::mem::take(&mut state.encoded);
        encoded.clear();
        encode_replicated(&mut encoded, &head, &record.part.edits);
        let described = attached.map_or(Vec::new(), Attached::described);
        let ordered = self.store().log.append_one_record(&entry(&head, &encoded, attached, &described), sync);
        if let Ok(ordered) = &ordered {
            self.apply_ordered(state, record, (&head, &encoded), attached, ordered);
        }
        state.encoded = encoded;
        ordered.map(|ordered| ordered.batch)
    }

    /// Appends records of groups whose locks are held, and applies them. Attached blocks belong to the first record.
    fn order_records(
        &self,
        held: &mut Held<'_>,
        records: &[Record<'_>],
        attached: Option<&Attached>,
        sync: Sync,
    ) -> Result<u64> {
        held.of(records[0].part.group).may_order()?;
        let mut heads: Vec<Head> = Vec::with_capacity(records.len());
        let mut encoded = Vec::with_capacity(records.len());
        for record in records {
            let behind = heads.iter().filter(|before| before.group == record.part.group).count();
            let head = record.head(held.of(record.part.group), behind as u64);
            let mut bytes = Vec::with_capacity(256);
            encode_replicated(&mut bytes, &head, &record.part.edits);
            heads.push(head);
            encoded.push(bytes);
        }
        let described = attached.map_or(Vec::new(), Attached::described);
        let entries: Vec<Entry<'_>> = (heads.iter().zip(&encoded).enumerate())
            .map(|(number, (head, replicated))| match number {
                0 => entry(head, replicated, attached, &described),
                _ => entry(head, replicated, None, &[]),
            })
            .collect();
        let mut ordered: Vec<Ordered> = Vec::with_capacity(entries.len());
        let sync = held.of(records[0].part.group).log_sync(sync);
        self.store().log.append(&entries, sync, &mut ordered)?;
        assert!(ordered.len() == records.len(), "the log orders all records or none");
        for (((record, head), ordered), bytes) in records.iter().zip(&heads).zip(&ordered).zip(&encoded) {
            self.apply_ordered(held.of(head.group), record, (head, bytes), attached, ordered);
        }
        Ok(ordered.last().map_or(0, |ordered| ordered.batch))
    }

    /// Applies a record that the log has accepted, and gives it to the other replicas, if there are any.
    fn apply_ordered(
        &self,
        state: &mut State,
        record: &Record<'_>,
        (head, replicated): (&Head, &[u8]),
        attached: Option<&Attached>,
        ordered: &Ordered,
    ) {
        state.release_payloads(self.store().log.written());
        let run =
            ordered.place.map(|place| Run { place, count: attached.map_or(0, |attached| attached.blocks() as u16) });
        let mut places = Places::of(run.as_slice());
        let mark = state.mark(ordered.batch, head.index);
        for edit in &record.part.edits {
            state.apply(record.part.volume, edit, mark, &mut places, self.store().epoch as u32);
        }
        assert!(places.next().is_none(), "each block of the payload is mapped");
        if let Some(attached) = attached.filter(|_| ordered.place.is_some()) {
            let mut at = 0;
            for (first, crcs) in &attached.pieces {
                let slice = attached.slice.slice(at..at + crcs.len() * BLOCK_BYTES);
                at += slice.len();
                state.hold_payload(record.part.volume, attached.ino, *first, &[slice], ordered.batch);
            }
        }
        state.ordered(head, record.done);
        self.note_overlay(state);
        if state.replica.is_some() {
            let slices = attached.filter(|_| run.is_some()).map(|attached| &attached.slice);
            let payload = Carried::of(&record.part.edits, slices.map_or(&[], std::slice::from_ref), run.as_slice());
            self.propose(state, head, replicated.into(), payload, ordered.batch);
        }
    }
}

/// The records that end a cross-group change: the intent first, then the followers' marks.
fn endings(decision: &Decision) -> Vec<Part> {
    let intent = decision.parts[0].edits.iter().find_map(|edit| match edit {
        Edit::IntentPut(intent) => Some(intent),
        _ => None,
    });
    let Some(Intent { id, follow }) = intent else { return Vec::new() };
    let end = |group, edit| Part { volume: VolumeId(0), group, edits: vec![edit] };
    let mut endings = vec![end(id.group, Edit::IntentDrop { id: *id })];
    endings.extend(follow.iter().map(|follow| end(follow.group, Edit::FollowedDrop { id: *id })));
    endings
}
