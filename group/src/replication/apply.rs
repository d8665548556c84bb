//! Committed records go into the state, in their order, in one task for all groups of a brick. What they rest on is loaded first.

use crate::replica::kept::{Kept, maps_of};
use crate::state::State;
use crate::state::load::{Wanted, rests_on};
use crate::{CATALOGUE, Group, Groups};
use base::{Edit, GroupId, Index, Result, Term, VolumeId};
use names::Seen;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::format::record::{Head, Places, Record};

/// Records that are applied in one go, under the group's lock: some tens of microseconds.
const AT_ONCE: usize = 16;

enum Step {
    Done,
    Again,
    Load(VolumeId, Wanted),
    Volumes,
    Rebuild,
    TakeRows,
    /// The replica serves from now on, in this term.
    Serves(Term),
}

impl Groups {
    /// The task. Ends when the groups close.
    pub(super) async fn run_applying(self: Arc<Groups>) {
        loop {
            let ticket = self.replication().applying_came.ticket();
            if self.is_closing() {
                return;
            }
            let next = self.replication().applying.lock().pop_front();
            match next {
                None => self.replication().applying_came.after(ticket).await,
                // What can't be read stops the group here, not the others: its replica serves nobody until a restart.
                Some(number) => drop(self.apply_committed(self.state(number)).await),
            }
        }
    }

    async fn apply_committed(&self, group: &Group) -> Result<()> {
        loop {
            match self.apply_some(group)? {
                Step::Done => return Ok(()),
                Step::Again => {}
                Step::Load(volume, wanted) => self.load(volume, vec![wanted], None).await?,
                Step::Volumes => self.learn_volumes().await?,
                Step::Rebuild => self.rebuild(group).await?,
                Step::TakeRows => {
                    let taken = self.take_rows(group).await;
                    if self.is_closing() || self.store().log.failed().is_some() {
                        return taken;
                    }
                    self.note_heal(taken).await;
                }
                Step::Serves(term) => {
                    let volumes = self.volumes().await?;
                    volumes.iter().for_each(|volume| self.note_volume(volume));
                    // The leader before may have ordered a change's first record and not the others.
                    if !self.is_across() {
                        self.redo_intents().await?;
                    }
                    self.begin_tenure(group.number, term);
                    self.store().log.segment_came.notify();
                }
            }
        }
    }

    fn apply_some(&self, group: &Group) -> Result<Step> {
        let mut state = group.state.lock();
        if state.replica().rebuilds {
            return Ok(Step::Rebuild);
        }
        if state.replica().takes_rows() {
            return Ok(Step::TakeRows);
        }
        for _ in 0..AT_ONCE {
            let next = Index(state.row.applied.0 + 1);
            let replica = state.replica();
            if next > replica.order.committed().min(replica.kept.last()) {
                return Ok(self.begin_service(&mut state).map_or(Step::Done, Step::Serves));
            }
            let kept = replica.kept.get(next).expect("what is applied next is kept").clone();
            let record = kept.record()?;
            if let Some(step) = lacks(&mut state, &record, group.number) {
                return Ok(step);
            }
            self.apply_record(&mut state, &kept, &record);
        }
        Ok(Step::Again)
    }

    fn apply_record(&self, state: &mut State, kept: &Kept, record: &Record) {
        let mut places = Places::of(&kept.payload.runs);
        let index = kept.position.index;
        for edit in &record.edits {
            state.apply(record.volume, edit, index.0, &mut places, self.store().epoch as u32);
        }
        assert!(places.next().is_none(), "each block of the payload is mapped");
        state.release_payloads(self.store().log.written());
        let mut at = 0;
        for described in maps_of(&record.edits) {
            let held = kept.payload.part(at..at + described.crcs.len());
            at += described.crcs.len();
            state.hold_payload(record.volume, described.ino, described.first, &held, kept.batch);
        }
        let Record { group, volume, session, request, outcome, .. } = *record;
        let head = Head { group, term: kept.position.term, index, volume, session, request, outcome };
        state.ordered(&head, 0);
        self.note_overlay(state);
    }

    /// Begins to serve, if this replica leads, with a lease, and has applied the record with which its term begins. The term.
    fn begin_service(&self, state: &mut State) -> Option<Term> {
        let (applied, has_lease) = (state.row.applied, self.has_lease(state));
        let replica = state.replica();
        let (term, from) = replica.leads?;
        let leads = replica.order.is_leader() && replica.order.term() == term && replica.serves.is_none();
        if !leads || !has_lease || applied < from || replica.order.committed() < from {
            return None;
        }
        assert!(!replica.rebuilds && replica.kept.last() >= from, "who serves has all that was ordered");
        replica.serves = Some(term);
        self.clients_of(state.group).is_ready.store(false, Ordering::Release);
        state.begin_life(term);
        Some(term)
    }

    /// Loads all volumes into the catalogue's group: one is dropped by its id, and its row has its name as key.
    async fn learn_volumes(&self) -> Result<()> {
        let volumes = self.volumes().await?;
        let mut state = self.state(CATALOGUE).state.lock();
        volumes.into_iter().for_each(|volume| state.learn_volume(&volume.name.clone(), Some(volume)));
        state.knows_volumes = true;
        Ok(())
    }
}

/// The step that must come before a record is applied.
fn lacks(state: &mut State, record: &Record, group: GroupId) -> Option<Step> {
    for edit in &record.edits {
        if let Some(ino) = rests_on(edit)
            && matches!(state.inode(record.volume, ino), Seen::Missing)
        {
            return Some(Step::Load(record.volume, Wanted::Inode(ino)));
        }
        if matches!(edit, Edit::VolumeDrop { .. }) && group == CATALOGUE && !state.knows_volumes {
            return Some(Step::Volumes);
        }
    }
    None
}
