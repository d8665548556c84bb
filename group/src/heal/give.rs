//! The side that has what another brick lacks: pages of rows, from a snapshot of the index, and blocks.

use super::gather::ToRead;
use super::{Answered, Asked, Healing};
use crate::replica::heal::{Answer, Ask, Heal};
use crate::state::Block;
use crate::state::load::Wanted;
use crate::{Group, Groups};
use base::limits::BLOCK_BYTES;
use base::{GroupId, Index, Ino, LeafKey, Place, Result, VolumeId};
use order_raft::Position;
use order_raft::support::BrickId;
use runtime::Slice;
use runtime::tasks::run_background;
use std::sync::Arc;
use store::format::record::Run;
use store::format::{keys, values};
use store::heal::give;
use store::index::Index as Engine;
use store::purge::Purges;
use wire::peer::PARCEL_BLOCKS_MAX;

/// The time after which a brick that asks for no more pages is given none, so that another one may be.
const GIVEN_NS: u64 = 60_000_000_000;

/// Reads of one task that are under way at a time: those of all tasks are as many as a fast drive needs for its full rate.
const READS_MAX: usize = 8;

/// The rows of one moment, for one brick.
pub(super) struct Giving {
    to: BrickId,
    group: GroupId,
    heal: u64,
    rows: Arc<dyn Engine>,
    purges: Arc<Purges>,
    position: Position,
    asked_ns: u64,
}

/// The place of a block that was found.
enum Found {
    Held(Slice),
    At(Place),
}

impl Healing {
    /// The position from which on records of a group must be kept for a brick that is given its rows.
    pub fn gives_from(&self, group: GroupId, now: u64) -> Option<Index> {
        let giving = self.giving.lock();
        let of_group = |giving: &&Giving| giving.group == group && now - giving.asked_ns < GIVEN_NS;
        giving.as_ref().filter(of_group).map(|giving| giving.position.index)
    }
}

impl Groups {
    /// Answers questions of other bricks, one after the other, beside other tasks that do the same. Only the first task gives rows: one brick gets
    /// them at a time. Ends when the groups close.
    pub(super) async fn run_giving(self: Arc<Groups>, is_first: bool) {
        let healing = &self.replication().healing;
        loop {
            let ticket = healing.asked_came.ticket();
            if self.is_closing() {
                return;
            }
            let next = {
                let mut asked = healing.asked.lock();
                let is_for_us = |asked: &Asked| is_first || matches!(asked.ask, Ask::Blocks { .. });
                asked.iter().position(is_for_us).and_then(|at| asked.remove(at))
            };
            let Some(Asked { from, group, number, ask }) = next else {
                healing.asked_came.after(ticket).await;
                continue;
            };
            let (answer, payload) = match ask {
                Ask::Rows { heal, cursor } => self.give_rows(self.state(group), from.brick, heal, cursor).await,
                Ask::Blocks { volume, ino, first, crcs } => self.give_blocks(volume, ino, first, &crcs).await,
            }
            // What fails for good has stopped the log; the other brick asks again, perhaps somebody else.
            .unwrap_or((Answer::Not, Vec::new()));
            self.tell_heal(group, from.brick, Heal::Answer(number, answer), payload);
        }
    }

    /// A brick has all rows.
    pub(super) fn given(&self, to: BrickId) {
        let mut giving = self.replication().healing.giving.lock();
        let gone = giving.take_if(|giving| giving.to == to);
        drop(giving);
        drop(gone);
    }

    async fn give_rows(&self, group: &Group, to: BrickId, heal: u64, cursor: Vec<u8>) -> Result<Answered> {
        let nothing = (Answer::Not, Vec::new());
        let may_give = {
            let mut state = group.state.lock();
            let replica = state.replica();
            replica.order.is_leader() && replica.heal.is_none() && !replica.lacks
        };
        // A brick that is given rows lets go of files that have changed, and the others must have them whole by then.
        let others = self.replication().others.iter();
        let others_heal = others.into_iter().any(|member| member.brick != to && self.heals(member.brick));
        if !may_give || (others_heal && cursor.is_empty()) {
            return Ok(nothing);
        }
        let healing = &self.replication().healing;
        let now = self.store().runtime.clock.now_ns();
        let is_other = |giving: &Giving| giving.to != to && now - giving.asked_ns < GIVEN_NS;
        if healing.giving.lock().as_ref().is_some_and(is_other) {
            return Ok(nothing);
        }
        if cursor.is_empty() {
            let giving = self.begin_giving(group, to, heal).await?;
            let before = healing.giving.lock().replace(giving);
            drop(before);
        }
        let (rows, purges, position) = {
            let mut giving = healing.giving.lock();
            let Some(giving) =
                giving.as_mut().filter(|giving| (giving.to, giving.group, giving.heal) == (to, group.number, heal))
            else {
                return Ok(nothing);
            };
            giving.asked_ns = self.store().runtime.clock.now_ns();
            (giving.rows.clone(), giving.purges.clone(), giving.position)
        };
        let number = group.number;
        let read = move || give::page(&*rows, number, &purges, &cursor);
        let page = run_background(&*self.store().runtime.tasks, read).await?;
        let length = page.bytes.len();
        assert!(length <= PARCEL_BLOCKS_MAX * BLOCK_BYTES, "a page of {length} bytes fits into a parcel");
        let mut buffer = self.store().runtime.buffer(length.next_multiple_of(BLOCK_BYTES))?;
        buffer[..length].copy_from_slice(&page.bytes);
        buffer[length..].fill(0);
        let whole = buffer.len();
        let answer = Answer::Page { position, next: page.next.unwrap_or_default(), length: length as u32 };
        Ok((answer, vec![buffer.share().slice(0..whole)]))
    }

    /// Takes a snapshot of the index, which has as much as is committed.
    async fn begin_giving(&self, group: &Group, to: BrickId, heal: u64) -> Result<Giving> {
        let _still = self.checkpoint_token.take().await;
        self.checkpoint_now().await?;
        let (index, number) = (self.store().index.clone(), group.number);
        let read = move || -> Result<_> {
            let rows = index.snapshot()?;
            let row =
                rows.get(&keys::group(number))?.map_or(Ok(Default::default()), |row| values::decode_group(&row))?;
            let purges = Arc::new(give::purges(&*rows, number)?);
            Ok((rows, purges, Position { index: row.applied, term: row.term }))
        };
        let (rows, purges, position) = run_background(&*self.store().runtime.tasks, read).await?;
        let of = group.number;
        Ok(Giving { to, group: of, heal, rows, purges, position, asked_ns: self.store().runtime.clock.now_ns() })
    }

    /// The blocks of a leaf that are as the other brick knows them.
    async fn give_blocks(&self, volume: VolumeId, ino: Ino, first: u64, crcs: &[u32]) -> Result<Answered> {
        // From the look to the read: no place is used for something else meanwhile.
        let _pin = self.store().pin();
        let found = loop {
            match self.find_blocks(volume, ino, first, crcs) {
                Ok(found) => break found,
                Err(wanted) => self.load(volume, vec![wanted], None).await?,
            }
        };
        let (mut blocks, mut to_read) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
        for (at, found) in found {
            match found {
                Found::Held(slice) => blocks.push((at, slice)),
                Found::At(place) => to_read.push(ToRead { run: Run { place, count: 1 }, of: at }),
            }
        }
        let read = self.gather(to_read, READS_MAX).await;
        blocks.extend(read.into_iter().filter_map(|(at, read)| Some((at, read.ok()?))));
        blocks.sort_unstable_by_key(|(at, _)| *at);
        // One that has rotten here may be whole elsewhere.
        blocks.retain(|(at, slice)| base::checksum::crc32c(slice) == crcs[*at]);
        let mask = blocks.iter().fold(0u64, |mask, (at, _)| mask | 1 << at);
        let payload: Vec<Slice> = blocks.into_iter().map(|(_, slice)| slice).collect();
        assert!(mask.count_ones() as usize == payload.len(), "each block that is named goes with it");
        Ok((Answer::Blocks { mask }, payload))
    }

    /// The blocks with these checksums, by their numbers among them; what has to be loaded first.
    fn find_blocks(
        &self,
        volume: VolumeId,
        ino: Ino,
        first: u64,
        crcs: &[u32],
    ) -> std::result::Result<Vec<(usize, Found)>, Wanted> {
        let Some(group) = self.hosted(ino.group()) else { return Ok(Vec::new()) };
        let mut state = group.state.lock();
        state.release_payloads(self.store().log.written());
        let mut all = Vec::with_capacity(crcs.len());
        for (at, wanted) in crcs.iter().enumerate() {
            let block = first + at as u64;
            match state.block(volume, ino, block) {
                Block::Missing => return Err(Wanted::Leaf(LeafKey::of(ino, block).0)),
                Block::Memory(slice) => all.push((at, Found::Held(slice))),
                Block::Device { place, crc } if crc == *wanted && place != Place::MISSING => {
                    all.push((at, Found::At(place)));
                }
                Block::Device { .. } | Block::Hole => {}
            }
        }
        assert!(all.len() <= crcs.len(), "no more are found than were asked for");
        Ok(all)
    }
}
