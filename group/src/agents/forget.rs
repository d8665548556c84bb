//! The end of inodes that clients forget. An inode that no client knows, that is not open and has no name, is freed
//! soon by a background task, many in one record. A client that forgets waits for nothing.
//!
//! Owners: the group's lock guards the counts (`known`); inodes to be freed are in one list of the brick until the task
//! takes them. An entry of the list takes the memory that the count gave back, so the list needs no other bound.

use crate::order::held::{GroupSet, Held};
use crate::order::record::Record;
use crate::state::State;
use crate::state::known::Left;
use crate::state::load::Wanted;
use crate::{Answer, Groups, closing};
use base::{Edit, Ino, Kind, Outcome, Reply, Result, Sync, VolumeId};
use names::{Part, Seen};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::Context;

/// Largest number of inodes freed by one record, which then takes some kilobytes.
const ENDED_PER_RECORD: usize = 128;

/// Time for which forgotten inodes are collected, to be freed together.
const GATHER_NS: u64 = 2_000_000;

/// Longest time that a write which finds no space waits for removed inodes to be freed. The kernel queues FORGETs
/// separately, so we may see them after requests that were sent later; a tenth of a second is enough for us to catch
/// up.
const REMOVED_NS: u64 = 100_000_000;

/// Pause between two checks in that time.
const LOOK_NS: u64 = 2_000_000;

/// Pause after an error other than the log's end: space may come back.
const AGAIN_NS: u64 = 100_000_000;

/// The task. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>) {
    let clock = groups.store().runtime.clock.clone();
    loop {
        let ticket = groups.forgotten_came.ticket();
        if groups.is_closing() || groups.store().log.failed().is_some() {
            return;
        }
        if groups.forgotten.lock().is_empty() {
            groups.forgotten_came.after(ticket).await;
            continue;
        }
        clock.sleep(GATHER_NS).await;
        let Some(step) = groups.begin_step() else { return };
        groups.ending.store(true, Ordering::Release);
        let ended = groups.end_forgotten().await;
        groups.ending.store(false, Ordering::Release);
        drop(step);
        if ended.is_err() {
            clock.sleep(AGAIN_NS).await;
        }
    }
}

impl Groups {
    /// Takes back, for a client, `times` answers by which it learnt of the inode. Errors: `Fenced`.
    pub(crate) fn forget(&self, context: &Context, ino: Ino, times: u64) -> Result<Answer> {
        let done = Answer { reply: Reply::Done, data: None, position: None };
        let left = {
            let mut state = self.state(ino.group()).state.lock();
            // A second delivery takes nothing back.
            if state.result(context.session, context.request)?.is_some() {
                return Ok(done);
            }
            state.keep_in_memory(context, Outcome::Done);
            state.known.forget((context.volume, context.session), ino, times)
        };
        if left == Left::Nameless {
            let mut forgotten = self.forgotten.lock();
            forgotten.push((context.volume, ino));
            let first = forgotten.len() == 1;
            drop(forgotten);
            if first {
                self.forgotten_came.notify();
            }
        }
        Ok(done)
    }

    /// Number of inodes that clients know.
    pub fn known_inodes(&self) -> u64 {
        self.states().iter().map(|group| group.state.lock().known.len() as u64).sum()
    }

    /// Waits a little for removed inodes to be freed, which still take space although their clients may have forgotten
    /// them. False if there are none.
    pub(crate) async fn wait_for_removed(&self) -> bool {
        let clock = &self.store().runtime.clock;
        let (start_ns, before) = (clock.now_ns(), self.nameless());
        while self.nameless() > 0 && clock.now_ns() - start_ns < REMOVED_NS {
            clock.sleep(LOOK_NS).await;
        }
        before > 0
    }

    /// Number of inodes without a name that a client knows, or that are about to be freed.
    fn nameless(&self) -> usize {
        let known: usize = self.states().iter().map(|group| group.state.lock().known.nameless()).sum();
        known + self.forgotten.lock().len() + usize::from(self.ending.load(Ordering::Acquire))
    }

    /// Frees forgotten inodes. Those that could not be freed stay in the list.
    async fn end_forgotten(&self) -> Result<()> {
        let mut forgotten = std::mem::take(&mut *self.forgotten.lock());
        // Whoever leads a group frees what nobody uses there, when its clients have told what they have.
        if self.is_replicated() {
            let led: Vec<_> = self.numbers().filter(|group| self.leads(*group)).collect();
            forgotten.retain(|(_, ino)| led.contains(&ino.group()));
        }
        self.end_unused(forgotten).await
    }

    /// Frees those of the inodes that have no name and are neither open nor known to a client. Those that could not be freed are
    /// in the list of forgotten ones afterwards.
    pub(crate) async fn end_unused(&self, mut forgotten: Vec<(VolumeId, Ino)>) -> Result<()> {
        forgotten.sort_unstable_by_key(|(volume, ino)| (*volume, ino.group(), *ino));
        forgotten.dedup();
        let mut rest = &forgotten[..];
        let mut done = Ok(());
        while let (Some((volume, ino)), Ok(())) = (rest.first(), &done) {
            let same = |(of, one): &&(VolumeId, Ino)| of == volume && one.group() == ino.group();
            let count = rest.iter().take(ENDED_PER_RECORD).take_while(same).count();
            assert!((1..=ENDED_PER_RECORD).contains(&count), "each record frees some inodes, not {count}");
            done = self.end_inodes(*volume, &rest[..count]).await;
            if done.is_ok() {
                rest = &rest[count..];
            }
        }
        if done.is_err() {
            self.forgotten.lock().extend_from_slice(rest);
        }
        done
    }

    /// Frees inodes of one group, if they are still unused.
    async fn end_inodes(&self, volume: VolumeId, inodes: &[(VolumeId, Ino)]) -> Result<()> {
        self.throttle().await?;
        let mut rest: Vec<Ino> = inodes.iter().map(|(_, ino)| *ino).collect();
        let mut loaded = false;
        while let Some(first) = rest.first() {
            if self.is_closing() {
                return Err(closing());
            }
            let group = first.group();
            let ticket = self.store().log.segment_came.ticket();
            let (missing, ordered) = {
                let mut held = Held::new(self, &GroupSet::one(group));
                let (edits, missing) = endings(held.of(group), volume, &rest);
                if edits.is_empty() && missing.is_empty() {
                    return Ok(());
                }
                // A small cache may not hold all inodes that were loaded: then those that it holds are freed first.
                let ready = !edits.is_empty() && (missing.is_empty() || loaded);
                let part = Part { volume, group, edits };
                (missing, ready.then(|| self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered)))
            };
            match ordered {
                None => {
                    let wanted = missing.into_iter().map(Wanted::Inode).collect();
                    self.load(volume, wanted, None).await?;
                    loaded = true;
                }
                Some(Err(error)) if error.kind == Kind::Busy => self.wait_for_segment(ticket).await?,
                Some(ordered) => {
                    ordered?;
                    (rest, loaded) = (missing, false);
                }
            }
        }
        Ok(())
    }
}

/// Returns the edits that free the unused ones of `inodes` (no name, not open, not known to a client), and the inodes
/// that must be loaded first to tell.
fn endings(state: &mut State, volume: VolumeId, inodes: &[Ino]) -> (Vec<Edit>, Vec<Ino>) {
    let (mut edits, mut missing) = (Vec::with_capacity(2 * inodes.len()), Vec::new());
    for &ino in inodes {
        if state.holds(volume, ino) > 0 {
            continue;
        }
        match state.inode(volume, ino) {
            Seen::Known(Some(inode)) if inode.links == 0 => {
                edits.extend([Edit::InodeDrop { ino }, Edit::OrphanDrop { ino }]);
            }
            Seen::Known(_) => {}
            _ => missing.push(ino),
        }
    }
    (edits, missing)
}
