//! Operations that concern several groups of a replicated volume: the steps that they take beside those of all others (`across`).

use super::{Step, Trial, deciding_group, other_group};
use crate::across::Attempt;
use crate::order::held::{GroupSet, HeldView};
use crate::order::receipt::Awaited;
use crate::replica::across::Want;
use crate::{Answer, CATALOGUE, Groups};
use base::{Attr, Error, GroupId, Ino, Kind, Op, Result, Term};
use names::Need;
use runtime::Stage;
use wire::Context;

/// The group in which whoever moves directories takes its turn.
const TURNS: GroupId = GroupId(0);

/// The step of an operation that lacks something. `free`: the ticket for the end of holds, where groups have orders of their own.
pub(super) fn lacks(view: &mut HeldView<'_, '_>, deciding: GroupId, need: Need, free: Option<u64>) -> Result<Step> {
    let Some(ticket) = free else { return Ok(Step::Load(need)) };
    if view.barred {
        view.held.of(deciding).replica().serves()?;
        return Ok(Step::Barred(ticket));
    }
    match (need, view.wanted.take()) {
        (Need::Group(_), Some((group, want))) => Ok(Step::Fetch(group, want)),
        (Need::Group(_), None) => Err(Error::new(Kind::Unsupported, "an operation looks at what no group tells")),
        (need, _) => Ok(Step::Load(need)),
    }
}

impl Groups {
    /// The groups that are locked for an operation from the start. Evaluation may find that it concerns more.
    pub(super) fn first_groups(&self, op: &Op) -> GroupSet {
        let mut set = GroupSet::one(deciding_group(op));
        // What groups that have orders of their own have is fetched.
        if self.is_across() {
            return set;
        }
        if matches!(op, Op::VolumeDelete { .. }) {
            return GroupSet::all();
        }
        if let Some(group) = other_group(op) {
            set.insert(group);
        }
        set
    }

    /// The term in which this brick serves a group. Errors: `Elsewhere`.
    #[cold]
    pub(super) fn term_of(&self, group: GroupId) -> Result<Term> {
        self.state(group).state.lock().replica().serves()
    }

    /// Takes a step of an operation that only groups with orders of their own ask for. Errors: as `Attempt::fetch`; `Invalid` for a move that closes
    /// a loop.
    pub(super) async fn step_across<'a>(
        &'a self,
        context: &Context,
        op: &Op,
        trial: &mut Trial<'a>,
        step: Step,
    ) -> Result<()> {
        assert!(self.is_across(), "groups that share an order take other steps");
        match step {
            Step::Fetch(group, want) => self.fetch_across(context, op, trial, (group, want)).await?,
            Step::Token(moved) => self.take_turn(context, op, trial, moved).await?,
            Step::Barred(ticket) => {
                // Nobody waits while others hold something for it.
                trial.across = None;
                trial.checked.clear();
                self.state(deciding_group(op)).ranges.after(ticket).await;
            }
            _ => unreachable!("the caller takes all other steps"),
        }
        context.span.mark(Stage::Peer, self.stamp());
        Ok(())
    }

    /// Fetches what an operation wants of another group, and what it is about to want there.
    pub(super) async fn fetch_across<'a>(
        &'a self,
        context: &Context,
        op: &Op,
        trial: &mut Trial<'a>,
        (group, want): (GroupId, Want),
    ) -> Result<()> {
        assert!(group != deciding_group(op), "an operation sees the group that decides it");
        let mut wants = vec![want];
        if let Op::Rename { parent, name, .. } | Op::Exchange { parent, name, .. } = op
            && wants[0] == Want::Inode(*parent)
        {
            wants.push(Want::Entry(*parent, name.clone()));
        }
        if !self.attempt(context, op, trial).fetch(group, wants).await? {
            trial.checked.clear();
        }
        Ok(())
    }

    fn attempt<'t, 'a>(&'a self, context: &Context, op: &Op, trial: &'t mut Trial<'a>) -> &'t mut Attempt<'a> {
        let of = (self.volume_of(context, op), context.session);
        trial.across.get_or_insert_with(|| Box::new(Attempt::new(self, deciding_group(op), of, op.mutates())))
    }

    /// Has the turn to move directories held, and makes sure that these moves close no loop. Errors: `Invalid` if one does.
    pub(super) async fn take_turn<'a>(
        &'a self,
        context: &Context,
        op: &Op,
        trial: &mut Trial<'a>,
        moved: Vec<(Ino, Ino)>,
    ) -> Result<()> {
        trial.checked.clear();
        if !self.attempt(context, op, trial).fetch(TURNS, vec![Want::Turn]).await? {
            return Ok(());
        }
        if self.refuse_loops(context, op, trial, &moved).await? {
            trial.checked = moved;
        }
        Ok(())
    }

    /// Refuses to move directories below themselves: walks from each one's new parent up to the root, while nobody else moves any. False: the
    /// attempt has to begin anew. Errors: `Invalid`.
    pub(super) async fn refuse_loops<'a>(
        &'a self,
        context: &Context,
        op: &Op,
        trial: &mut Trial<'a>,
        moved: &[(Ino, Ino)],
    ) -> Result<bool> {
        for (ino, parent) in moved {
            let mut at = *parent;
            loop {
                if at == *ino {
                    return Err(Error::new(Kind::Invalid, "a directory can't be moved below itself"));
                }
                let Some(above) = self.parent_of(context, op, trial, at).await? else { return Ok(false) };
                if above == at {
                    break;
                }
                at = above;
            }
        }
        Ok(true)
    }

    /// The directory above another one. None: the attempt has to begin anew.
    async fn parent_of<'a>(
        &'a self,
        context: &Context,
        op: &Op,
        trial: &mut Trial<'a>,
        dir: Ino,
    ) -> Result<Option<Ino>> {
        if !self.is_across() || dir.group() == deciding_group(op) {
            return self.attributes(context, dir).await.map(|attr| Some(attr.inode.parent));
        }
        let attempt = self.attempt(context, op, trial);
        if !attempt.look(dir.group(), vec![Want::Inode(dir)]).await? {
            return Ok(None);
        }
        match attempt.fetched.inode(dir) {
            Some(Some(inode)) => Ok(Some(inode.parent)),
            _ => Err(Error::new(Kind::NotFound, "a directory above the new place was removed")),
        }
    }

    /// The next group in which the deletion of a volume has to hold something, so that its part ends that.
    pub(super) fn lacks_turn(&self, trial: &Trial<'_>) -> Option<Step> {
        let held = |group: GroupId| trial.across.as_ref().is_some_and(|across| across.holds().contains(&group));
        let others = self.states().iter().map(|group| group.number).filter(|group| *group != CATALOGUE);
        let lacks = others.filter(|_| self.is_across()).find(|group| !held(*group));
        lacks.map(|group| Step::Fetch(group, Want::Turn))
    }

    /// The attributes of an inode that may be of a group which another brick leads. Errors: `Stale` if it is gone; `Elsewhere`.
    pub(super) async fn attributes_of(&self, context: &Context, op: &Op, ino: Ino) -> Result<Attr> {
        if !self.is_across() || ino.group() == deciding_group(op) {
            return self.attributes(context, ino).await;
        }
        let mut attempt = Attempt::new(self, deciding_group(op), (context.volume, context.session), false);
        while !attempt.look(ino.group(), vec![Want::Inode(ino)]).await? {}
        match attempt.fetched.inode(ino).flatten() {
            Some(inode) => Ok(Attr::new(ino, inode)),
            None => Err(Error::new(Kind::Stale, "the inode is gone")),
        }
    }

    /// Waits until an operation's record is committed, and then has the other groups take their parts. Errors: `Elsewhere`.
    pub(super) async fn replicated_change(
        &self,
        answer: &Answer,
        awaited: Awaited,
        trial: &mut Trial<'_>,
        context: &Context,
    ) -> Result<()> {
        let id = trial.across.as_mut().and_then(|across| across.decided());
        self.replicated_at(answer.position, awaited.batch(), &context.span).await?;
        if let Some((position, id)) = answer.position.zip(id) {
            self.send_parts(position.group, id);
        }
        Ok(())
    }

    /// Waits until nothing of a directory is held for a change. Errors: `Elsewhere`.
    pub(super) async fn free_to_list(&self, context: &Context, dir: Ino) -> Result<()> {
        let group = self.state(dir.group());
        while self.is_across() {
            let ticket = group.ranges.ticket();
            {
                let mut state = group.state.lock();
                state.replica().serves()?;
                if !state.across.bars(context.volume, dir, None) {
                    break;
                }
            }
            group.ranges.after(ticket).await;
        }
        Ok(())
    }
}
