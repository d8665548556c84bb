//! The side that lacks records: it takes the rows of the group from the leader, in the place of its own.
//!
//! The applying task does it, under the checkpoint token: nothing is applied meanwhile, and no checkpoint comes in between. The log keeps all that
//! the replica has acknowledged, and replay starts where it did, until the rows are of one position.

use super::AGAIN_NS;
use crate::replica::Replica;
use crate::replica::heal::{Answer, Ask, Heal};
use crate::replica::kept::KeptRecords;
use crate::state::rows::read_state;
use crate::{Group, Groups};
use base::{Error, Kind, Result, Sync};
use order_raft::Position;
use order_raft::support::BrickId;
use runtime::tasks::{run_background, run_blocking};
use std::sync::atomic::Ordering;
use store::format::superblock::HEALING;
use store::format::values::{GroupRow, HealRow, ReplicaRow};
use store::heal::{Page, take};

impl Groups {
    /// Replaces the rows of a group that lacks records. Returns when the group goes on, or the groups close. Errors: those of the
    /// store; the group stops then.
    pub(crate) async fn take_rows(&self, group: &Group) -> Result<()> {
        store::feature::require(self.store(), HEALING).await?;
        let _still = self.checkpoint_token.take().await;
        let started = {
            let wall = self.store().runtime.clock.wall().0 as u64;
            let mut state = group.state.lock();
            let replica = state.replica();
            assert!(replica.serves().is_err(), "who serves lacks nothing");
            replica.lacks = false;
            let row = replica.heal.get_or_insert(HealRow { rows: true, started: wall });
            row.rows = true;
            row.started
        };
        // What no checkpoint has taken may be void, and is of no use: the rows come from another brick.
        self.drop_overlay(group).await?;
        while !self.is_closing() {
            for from in self.sources(group) {
                if let Some(row) = self.take_all(group, from, started).await? {
                    return self.end_rows(group, row, started).await;
                }
            }
            self.store().runtime.clock.sleep(AGAIN_NS).await;
        }
        Ok(())
    }

    /// Takes all pages from a brick. The group's row; None if it does not lead, or another try is needed.
    async fn take_all(&self, group: &Group, from: BrickId, started: u64) -> Result<Option<GroupRow>> {
        let last = group.state.lock().replica().order.last().index;
        let heal = self.store().runtime.random.next_u64();
        let mut cursor = Vec::new();
        while !self.is_closing() {
            let Some((position, page)) = self.ask_page(group, from, (heal, &cursor)).await? else { return Ok(None) };
            // An earlier position lacks what this replica has acknowledged.
            if position.index <= last {
                return Ok(None);
            }
            let next = page.next.clone();
            let (store, number) = (self.store().clone(), group.number);
            let take = move || take::take_page(&store, number, (&cursor, &page), started);
            let row = run_background(&*self.store().runtime.tasks, take).await?;
            match next {
                Some(next) => cursor = next,
                None => {
                    let row = row.filter(|row| row.applied == position.index && row.term == position.term);
                    return row.map(Some).ok_or_else(|| Error::new(Kind::Corrupt, "rows of no position were sent"));
                }
            }
        }
        Ok(None)
    }

    async fn ask_page(
        &self,
        group: &Group,
        from: BrickId,
        (heal, cursor): (u64, &[u8]),
    ) -> Result<Option<(Position, Page)>> {
        let ask = Ask::Rows { heal, cursor: cursor.to_vec() };
        let answer = self.ask_all(group.number, from, vec![ask]).await.pop().flatten();
        let Some((Answer::Page { position, next, length }, payload)) = answer else { return Ok(None) };
        let mut bytes: Vec<u8> = payload.iter().flat_map(|slice| slice.iter().copied()).collect();
        bytes.truncate(length as usize);
        Ok(Some((position, Page { bytes, next: Some(next).filter(|next| !next.is_empty()) })))
    }

    /// All rows are here: the group goes on from their position.
    async fn end_rows(&self, group: &Group, row: GroupRow, started: u64) -> Result<()> {
        let (store, number) = (self.store().clone(), group.number);
        let finish = move || take::finish(&store, number, row);
        run_background(&*self.store().runtime.tasks, finish).await?;
        // Payloads in memory go with the overlay: the device has them from here on.
        self.store().log.wait(self.store().log.last_batch(), Sync::Written, None).await?;
        let (index, options) = (self.store().index.clone(), self.options);
        let of = (number, self.states().len() as u32);
        let secret = self.store().runtime.random.next_u64();
        let read = move || read_state(&*index, of, &options, secret);
        let mut fresh = run_blocking(&*self.store().runtime.tasks, read).await?;
        let replication = self.replication();
        let gone = {
            let mut state = group.state.lock();
            let counted = state.counted_bytes as u64;
            let before = self.overlay_bytes.fetch_sub(counted, Ordering::Relaxed);
            assert!(before >= counted, "group {number} takes {counted} bytes out of {before}");
            let old = state.replica.take().expect("what heals is a replica");
            assert!(old.order.last().index < row.applied, "nothing that was acknowledged is behind the rows");
            let position = Position { index: row.applied, term: row.term };
            let kept = KeptRecords::after(position.index);
            let own = ReplicaRow { promise: old.promise, before: None };
            let mut replica = Replica::open(&replication.me, &replication.members, own, position, kept);
            replica.go_on_after(&old, HealRow { rows: false, started });
            self.drop_stashed(old.stash);
            fresh.replica = Some(Box::new(replica));
            std::mem::replace(&mut *state, fresh)
        };
        drop(gone);
        let volumes = self.volumes().await?;
        volumes.iter().for_each(|volume| self.note_volume(volume));
        for other in &replication.others {
            self.tell_heal(number, other.brick, Heal::Done, Vec::new());
        }
        replication.healing.blocks_came.notify();
        replication.wake(number);
        Ok(())
    }
}
