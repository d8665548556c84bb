//! The blocks that this brick lacks: it asks the others for them, and moves each that comes to a place.
//!
//! A pass goes through the leaves of the index; a checkpoint follows, so the next pass finds only what is still missing. The heal ends with a pass that
//! finds nothing. Blocks that readers wait for come first.

use super::Wanted;
use crate::agents::moves::{Source, order, place_cold, places_of};
use crate::replica::heal::{Answer, Ask};
use crate::state::Block;
use crate::{Group, Groups};
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{Error, Index, Ino, Kind, LeafKey, Life, Place, Result, VolumeId};
use order_raft::Member;
use order_raft::support::BrickId;
use runtime::Slice;
use runtime::budget::Agent;
use runtime::seeded::{Bug, active};
use runtime::tasks::{all, run_background};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::format::record::Moved;
use store::heal::{Lacking, missing};

/// Batches that are under way at once: while some are placed the other brick reads others.
const BATCHES_AT_ONCE: usize = 2;
/// Runs of blocks of a batch, at most: those of all batches are fewer than the other brick lets wait.
const RUNS_MAX: usize = 24;
/// Blocks of a batch, unless a single run has more: 1 MiB.
const BLOCKS_MAX: usize = 256;
/// Most blocks of one write to the cold stream, which the smallest segment has room for, and of one record of moves.
const PLACED_AT_ONCE: usize = 64;
const _: () = assert!(RUNS_MAX * BATCHES_AT_ONCE <= super::ASKED_MAX);
/// Blocks that are looked for at a time.
const LOOK_BLOCKS: usize = 4096;
/// Tries to get a segment of the cold stream.
const TRIES: u32 = 200;

/// A block that came with the right checksum.
struct Came {
    volume: VolumeId,
    moved: Moved,
    bytes: Slice,
}

/// Splits runs into batches.
fn batches(mut runs: &[Lacking]) -> impl Iterator<Item = &[Lacking]> {
    std::iter::from_fn(move || {
        let mut blocks = 0;
        let fits = |run: &&Lacking| {
            blocks += run.crcs.len();
            blocks <= BLOCKS_MAX
        };
        let count = runs.iter().take(RUNS_MAX).take_while(fits).count().max(1).min(runs.len());
        let (some, others) = runs.split_at(count);
        runs = others;
        (count > 0).then_some(some)
    })
}

/// The blocks of an answer. Errors: `Corrupt` if they are not those that were asked for.
fn checked(run: &Lacking, mask: u64, payload: &[Slice]) -> Result<Vec<Came>> {
    let found = (0..run.crcs.len()).filter(|at| mask & 1 << at != 0);
    let blocks = payload.iter().flat_map(|slice| {
        (0..slice.len() / BLOCK_BYTES).map(|at| slice.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES))
    });
    let came = found.zip(blocks).map(|(at, bytes)| {
        let (block, crc) = (run.first + at as u64, run.crcs[at]);
        let moved = Moved { ino: run.ino, block, old: Place::MISSING, crc, index: Index(0) };
        Came { volume: run.volume, moved, bytes }
    });
    let came: Vec<_> = came.collect();
    let is_right = |came: &Came| base::checksum::crc32c(&came.bytes) == came.moved.crc;
    let count = mask.count_ones() as usize;
    let sent: usize = payload.iter().map(|slice| slice.len() / BLOCK_BYTES).sum();
    match (came.len(), sent) == (count, count) && came.iter().all(is_right) {
        true => Ok(came),
        false => Err(Error::new(Kind::Corrupt, "other blocks were sent than were asked for")),
    }
}

impl Groups {
    /// The task. Ends when the groups close or the log fails.
    pub(super) async fn run_filling(self: Arc<Groups>) {
        let healing = &self.replication().healing;
        loop {
            let ticket = healing.blocks_came.ticket();
            if self.is_closing() || self.store().log.failed().is_some() {
                return;
            }
            let lacks = |group: &&Group| group.state.lock().replica().heal.is_some_and(|row| !row.rows);
            let Some(group) = self.states().iter().find(lacks) else {
                healing.blocks_came.after(ticket).await;
                continue;
            };
            let tried = self.fill(group).await;
            self.note_heal(tried).await;
        }
    }

    /// Goes through all that is missing once; ends the heal if that is nothing.
    async fn fill(&self, group: &Group) -> Result<()> {
        self.checkpoint().await?;
        if active(Bug::HealEndsEarly) {
            return self.end_heal(group).await;
        }
        let (mut after, mut seen, mut filled) = (None, 0, 0);
        loop {
            let (index, number) = (self.store().index.clone(), group.number);
            let look = move || missing(&*index, number, after, LOOK_BLOCKS);
            let found = run_background(&*self.store().runtime.tasks, look).await?;
            seen += found.blocks;
            self.replication().healing.blocks_left.fetch_max(seen - filled, Ordering::Relaxed);
            let batches: Vec<&[Lacking]> = batches(&found.lacking).collect();
            for some in batches.chunks(BATCHES_AT_ONCE) {
                if !self.goes_on_filling(group) {
                    return Ok(());
                }
                let Some(turn) = self.store().runtime.slice(Agent::Heal, || self.goes_on_filling(group)).await else {
                    return Ok(());
                };
                self.fill_wanted(group).await?;
                let fills = some.iter().map(|batch| self.fill_some(group, batch.to_vec()));
                for count in all(fills.collect()).await {
                    filled += count?;
                }
                drop(turn);
            }
            match found.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert!(filled <= seen, "{filled} blocks of {seen} came");
        self.replication().healing.blocks_left.store(seen - filled, Ordering::Relaxed);
        if seen == 0 {
            return self.end_heal(group).await;
        }
        match filled {
            0 => Err(Error::new(Kind::NotFound, "no other brick gives the blocks that are missing: it may be away")),
            _ => Ok(()),
        }
    }

    fn goes_on_filling(&self, group: &Group) -> bool {
        !self.is_closing() && group.state.lock().replica().heal.is_some_and(|row| !row.rows)
    }

    /// Nothing is missing: the replica has all.
    async fn end_heal(&self, group: &Group) -> Result<()> {
        {
            let mut state = group.state.lock();
            let replica = state.replica();
            // It may lack records again by now.
            if replica.heal.is_none_or(|row| row.rows) || replica.lacks {
                return Ok(());
            }
            replica.heal = None;
            replica.healed = true;
        }
        self.checkpoint().await
    }

    /// Asks for runs of blocks, and moves those that came to their places. Returns their number.
    async fn fill_some(&self, group: &Group, runs: Vec<Lacking>) -> Result<u64> {
        let asks = |runs: &[Lacking]| {
            let ask = |Lacking { volume, ino, first, crcs }: &Lacking| {
                let (volume, ino, first, crcs) = (*volume, *ino, *first, crcs.clone());
                Ask::Blocks { volume, ino, first, crcs }
            };
            runs.iter().map(ask).collect::<Vec<_>>()
        };
        assert!(runs.iter().all(|run| (1..=BLOCKS_PER_LEAF).contains(&run.crcs.len())), "runs are of one leaf");
        let mut count = 0;
        let mut left = runs;
        for from in self.sources(group) {
            let answers = self.ask_all(group.number, from, asks(&left)).await;
            let (mut others, mut came, mut wrong) = (Vec::new(), Vec::new(), Ok(()));
            for (run, answer) in left.into_iter().zip(answers) {
                let whole = u64::MAX >> (u64::BITS as usize - run.crcs.len());
                let Some((Answer::Blocks { mask }, payload)) = answer else {
                    others.push(run);
                    continue;
                };
                match checked(&run, mask, &payload) {
                    Ok(blocks) => came.extend(blocks),
                    Err(error) => wrong = Err(error),
                }
                if mask != whole {
                    others.push(run);
                }
            }
            // What came right counts beside a wrong answer.
            count += self.take_blocks(came).await?;
            wrong?;
            left = others;
            if left.is_empty() {
                break;
            }
        }
        Ok(count)
    }

    /// The bricks that may have what is missing: first who leads.
    pub(super) fn sources(&self, group: &Group) -> Vec<BrickId> {
        let (leader, fed_by) = {
            let mut state = group.state.lock();
            let replica = state.replica();
            (replica.order.leader(), replica.fed_by)
        };
        let leads = |member: &Member| fed_by.map_or(Some(member.replica) == leader, |brick| member.brick == brick);
        let mut others = self.replication().others.clone();
        others.sort_by_key(|member| (!leads(member), self.heals(member.brick)));
        others.into_iter().map(|member| member.brick).collect()
    }

    /// Places blocks that came, and has their files take them. Returns the number of those that were still missing.
    async fn take_blocks(&self, came: Vec<Came>) -> Result<u64> {
        let mut count = 0;
        for of_volume in came.chunk_by(|one, other| one.volume == other.volume) {
            for some in of_volume.chunks(PLACED_AT_ONCE) {
                count += self.take_some(some).await?;
            }
        }
        Ok(count)
    }

    /// Does so for blocks of one volume, which one write to the cold stream and one record take.
    async fn take_some(&self, some: &[Came]) -> Result<u64> {
        let [Came { volume, moved: Moved { ino, .. }, .. }, ..] = some else { return Ok(0) };
        let mut buffer = self.store().runtime.buffer(some.len() * BLOCK_BYTES)?;
        for (room, came) in buffer.chunks_mut(BLOCK_BYTES).zip(some) {
            room.copy_from_slice(&came.bytes);
        }
        let blocks = buffer.share().slice(0..some.len() * BLOCK_BYTES);
        let ticket = place_cold(self, &blocks, TRIES, || !self.is_closing()).await?;
        let source = |came: &Came| Source { moved: came.moved, life: Life(0) };
        let moves: Vec<_> = some.iter().map(source).zip(places_of(&ticket, some.len())).collect();
        let moved = order(self, (ino.group(), *volume), &moves).await;
        self.store().cold.close(ticket);
        let healing = &self.replication().healing;
        let count = *moved.as_ref().unwrap_or(&0);
        healing.blocks_filled.fetch_add(count, Ordering::Relaxed);
        let left = healing.blocks_left.load(Ordering::Relaxed);
        healing.blocks_left.store(left.saturating_sub(count), Ordering::Relaxed);
        healing.blocks_came.notify();
        moved
    }

    /// Fills what readers wait for.
    async fn fill_wanted(&self, group: &Group) -> Result<()> {
        loop {
            let wanted = self.replication().healing.wanted.lock().pop_first();
            let Some((volume, ino, first, last)) = wanted else { return Ok(()) };
            let lacking = self.lacking_of(volume, ino, first, last).await?;
            for some in batches(&lacking) {
                self.fill_some(group, some.to_vec()).await?;
            }
            // Those that nobody had are asked for again as soon as their reader looks again.
            self.replication().healing.blocks_came.notify();
        }
    }

    /// The missing blocks of a range of a file, in runs within leaves.
    async fn lacking_of(&self, volume: VolumeId, ino: Ino, first: u64, last: u64) -> Result<Vec<Lacking>> {
        assert!(first <= last, "blocks {first} to {last}");
        let mut runs: Vec<Lacking> = Vec::new();
        let mut block = first;
        while block <= last {
            let found = self.state(ino.group()).state.lock().block(volume, ino, block);
            match found {
                Block::Missing => {
                    let wanted = crate::state::load::Wanted::Leaf(LeafKey::of(ino, block).0);
                    self.load(volume, vec![wanted], None).await?;
                    continue;
                }
                Block::Device { place: Place::MISSING, crc } => Lacking::add(&mut runs, (volume, ino), block, crc),
                _ => {}
            }
            block += 1;
        }
        Ok(runs)
    }

    /// Waits until missing blocks of a file have come, or might have.
    #[cold]
    pub(crate) async fn wait_for_missing(&self, wanted: Wanted) {
        let healing = &self.replication().healing;
        let ticket = healing.blocks_came.ticket();
        healing.wanted.lock().insert(wanted);
        healing.blocks_came.after(ticket).await;
    }
}
