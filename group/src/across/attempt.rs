//! The side of the group that decides: what it fetches of others, until it decides or lets go.

use crate::Groups;
use crate::order::fetched::Fetched;
use crate::replica::across::{Across, Answer, Ask, Want};
use crate::replica::elsewhere;
use crate::state::State;
use base::{Edit, Follow, GroupId, Intent, IntentId, Result, SessionId, VolumeId};
use names::Decision;
use std::collections::BTreeSet;

/// The pause before what another change was in the way of begins again; it doubles, and is drawn between half and one and a half.
const PAUSE_NS: u64 = 500_000;
const DOUBLED_MAX: u32 = 6;

/// An operation that has to do with several groups, on its way. It lets go of all that is held for it when it is dropped, unless it was decided.
pub(crate) struct Attempt<'a> {
    groups: &'a Groups,
    deciding: GroupId,
    volume: VolumeId,
    session: SessionId,
    mutates: bool,
    /// The state of other groups as far as it was fetched.
    pub fetched: Fetched,
    /// The groups that may hold something for it.
    holds: BTreeSet<GroupId>,
    tries: u32,
}

impl<'a> Attempt<'a> {
    /// An attempt of an operation that this group decides, in a volume, for a session.
    pub fn new(groups: &'a Groups, deciding: GroupId, of: (VolumeId, SessionId), mutates: bool) -> Attempt<'a> {
        let (fetched, holds) = (Fetched::default(), BTreeSet::new());
        Attempt { groups, deciding, volume: of.0, session: of.1, mutates, fetched, holds, tries: 0 }
    }
    /// Fetches something of another group, and has it held if this changes anything. False: something was in the way, and after a pause the
    /// attempt begins anew. Errors: `Elsewhere` if this brick does not lead the deciding group any more; those of the log.
    pub async fn fetch(&mut self, group: GroupId, wants: Vec<Want>) -> Result<bool> {
        assert!(group != self.deciding || wants == [Want::Turn], "the deciding group is seen, not fetched");
        if self.mutates && self.fetched.id.is_none() {
            self.fetched.id = Some(self.groups.begin_attempt(self.deciding).await?);
        }
        if self.mutates {
            // Before it is asked: it may hold it, though no answer comes.
            self.holds.insert(group);
        }
        self.ask(group, wants, self.mutates).await
    }
    /// Looks at something of another group, which is not held for it. Otherwise as `fetch`.
    pub async fn look(&mut self, group: GroupId, wants: Vec<Want>) -> Result<bool> {
        self.ask(group, wants, false).await
    }
    async fn ask(&mut self, group: GroupId, wants: Vec<Want>, holds: bool) -> Result<bool> {
        let (id, volume, session) = (self.fetched.id, self.volume, self.session);
        let ask = Ask { number: 0, id, holds, volume, session, wants };
        match self.groups.ask_leader(group, ask).await {
            Answer::Found(found) => {
                found.into_iter().for_each(|found| self.fetched.take(found));
                Ok(true)
            }
            Answer::Busy | Answer::Elsewhere => self.begin_again().await.map(|()| false),
        }
    }
    /// Lets go of all, and waits a little. Errors: as `fetch`.
    async fn begin_again(&mut self) -> Result<()> {
        self.let_go();
        let runtime = &self.groups.store().runtime;
        let pause_ns = PAUSE_NS << self.tries.min(DOUBLED_MAX);
        self.tries += 1;
        runtime.clock.sleep(pause_ns / 2 + runtime.random.next_u64() % pause_ns).await;
        self.groups.store().log.check()?;
        self.groups.state(self.deciding).state.lock().replica().serves().map(drop)
    }
    /// Lets go of all that is held for it; what was fetched counts no more.
    pub fn let_go(&mut self) {
        let fetched = std::mem::take(&mut self.fetched);
        if let Some(id) = fetched.id {
            self.groups.state(self.deciding).state.lock().across.running.remove(&id);
            for group in std::mem::take(&mut self.holds) {
                self.groups.tell_leader(group, Across::Drop(id));
            }
        }
    }
    /// Completes a decision with the ends of holds: each group that holds something ends that with its part, be it empty. Errors: `Elsewhere` if
    /// this brick has not led the deciding group all the time: then others may have been told that the change will never be decided.
    pub fn join(&self, state: &mut State, decision: &mut Decision) -> Result<()> {
        let Some((id, first)) = self.fetched.id.zip(decision.parts.first_mut()) else { return Ok(()) };
        if !state.across.running.contains(&id) {
            return Err(elsewhere());
        }
        if self.holds.contains(&self.deciding) {
            first.edits.push(Edit::LockDrop { id });
        }
        let mut without_part = self.holds.clone();
        without_part.remove(&self.deciding);
        let mut intent = Intent { id, follow: Vec::new() };
        if let Some(at) = first.edits.iter().position(|edit| matches!(edit, Edit::IntentPut(_)))
            && let Edit::IntentPut(wanted) = first.edits.remove(at)
        {
            intent = wanted;
        }
        assert!(intent.id == id, "a change has one number");
        for follow in &intent.follow {
            assert!(without_part.remove(&follow.group), "what is changed in another group is held there");
        }
        let empty = |group| Follow { volume: self.volume, group, edits: Vec::new() };
        intent.follow.extend(without_part.into_iter().map(empty));
        if !intent.follow.is_empty() {
            first.edits.push(Edit::IntentPut(intent));
        }
        Ok(())
    }
    /// The change was decided: what is held for it is for the parts. Its number.
    pub fn decided(&mut self) -> Option<IntentId> {
        assert!(self.mutates || self.holds.is_empty(), "nothing is held for who changes nothing");
        self.holds.clear();
        self.fetched.id.take()
    }
    /// The groups that hold something for it.
    pub fn holds(&self) -> &BTreeSet<GroupId> {
        &self.holds
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Groups {
    /// A number for a change that a group is about to decide, by which others know it. Errors: `Elsewhere`; those of the log.
    async fn begin_attempt(&self, deciding: GroupId) -> Result<IntentId> {
        loop {
            {
                let mut state = self.state(deciding).state.lock();
                state.replica().serves()?;
                if !state.is_out_of_numbers() {
                    let id = IntentId { group: deciding, number: state.row.next_intent };
                    state.row.next_intent += 1;
                    state.check_granted();
                    state.across.running.insert(id);
                    return Ok(id);
                }
            }
            self.reserve_numbers().await?;
        }
    }
}
