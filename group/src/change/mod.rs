//! Operations on names and attributes: evaluate under the locks of the groups concerned, then `order` (decision D5).

pub(crate) mod file_locks;
mod list;
pub(crate) mod local;
pub(crate) mod session;
mod several;

use crate::across::Attempt;
use crate::order::fetched::{Fetched, NOTHING};
use crate::order::held::{GroupSet, Held, HeldView};
use crate::order::receipt::Awaited;
use crate::order::record::{Attached, Record};
use crate::order::token::TokenGuard;
use crate::replica::across::Want;
use crate::replica::elsewhere;
use crate::state::Range;
use crate::state::load::wanted;
use crate::{Answer, CATALOGUE, Groups};
use base::limits::{BLOCK_BYTES, LAYERS_MAX};
use base::{
    Attr, Edit, Error, Follow, GroupId, Ino, Intent, IntentId, Kind, Op, Outcome, Reply, Result, Room, SessionId, Sync,
    Term, VolumeId,
};
use names::{Caller, Decision, Need, Part, Seen, Stop, evaluate};
use runtime::seeded::{Bug, active};
use runtime::{Stage, lock};
use several::lacks;
use std::sync::atomic::Ordering;
use store::format::superblock::{LAYERS, TREE_LIMITS, VOLUME_LIMITS};
use wire::Context;

enum Step {
    /// The answer, and its record, if something changes.
    Ordered(Answer, Awaited),
    Again(Box<Outcome>),
    Load(Need),
    Segment(u64),
    Range(u64, GroupId),
    /// The rename token is needed, because these directories move to these parents.
    Token(Vec<(Ino, Ino)>),
    /// There is no space for the names that it adds, by the latest count.
    Full(Error),
    /// This of another group is needed, which has an order of its own.
    Fetch(GroupId, Want),
    /// Something is held for another change.
    Barred(u64),
}

/// An operation on its way from one evaluation to the next.
struct Trial<'a> {
    /// The term in which it was asked for, where there are replicas: in a later one its client has asked again.
    term: Option<Term>,
    sync: Sync,
    attached: Option<&'a Attached>,
    range: Option<u64>,
    /// The groups that are locked for it.
    set: GroupSet,
    /// Directories of which it is known, each with its new parent, that a move there closes no loop.
    checked: Vec<(Ino, Ino)>,
    /// Its part in groups with orders of their own.
    across: Option<Box<Attempt<'a>>>,
}

impl Groups {
    /// Evaluates and orders an operation on names or attributes; waits as `sync_of` says.
    pub(crate) async fn change(&self, context: &Context, op: &Op) -> Result<Answer> {
        self.change_with(context, op, None, None).await
    }

    /// Evaluates and orders an operation as `change` does, with blocks that go into the same record, and the range lock
    /// held for them.
    pub(crate) async fn change_with(
        &self,
        context: &Context,
        op: &Op,
        attached: Option<&Attached>,
        range: Option<u64>,
    ) -> Result<Answer> {
        let (sync, set) = (sync_of(op), self.first_groups(op));
        let term = if self.replication.is_some() { Some(self.term_of(deciding_group(op))?) } else { None };
        let mut trial = Trial { term, sync, attached, range, set, checked: Vec::new(), across: None };
        // Held from the check that the directories in `checked`, each with its new parent, close no loop.
        let mut token: Option<TokenGuard<'_>> = None;
        let mut counted = 0;
        if op.mutates() {
            if self.is_overfull() {
                Box::pin(self.throttle()).await?;
            }
            self.admit_change(op).await?;
            self.store().log.admit(&context.span).await?;
        }
        loop {
            let before_ns = lock::waited_ns();
            let step = self.try_change(context, op, &mut trial);
            self.mark_order(&context.span, before_ns);
            match step? {
                Step::Ordered(answer, awaited) => {
                    if awaited.is_nothing() {
                        return Ok(answer);
                    }
                    match self.replication.is_some() {
                        true => Box::pin(self.replicated_change(&answer, awaited, &mut trial, context)).await?,
                        false => self.committed(awaited, sync, &context.span).await?,
                    }
                    return Ok(answer);
                }
                Step::Again(outcome) => return Box::pin(self.repeat(context, op, *outcome)).await,
                Step::Load(Need::Group(group)) => trial.set.insert(group),
                Step::Load(Need::Numbers) => self.reserve_numbers().await?,
                Step::Load(need) => {
                    let wanted = wanted(need).expect("the other needs are of the index");
                    // Operations on volumes are evaluated in the catalogue, whatever the caller's volume.
                    self.load(self.volume_of(context, op), vec![wanted], Some(&context.span)).await?;
                }
                Step::Segment(ticket) => {
                    self.wait_for_segment(ticket).await?;
                    context.span.mark(Stage::Space, self.stamp());
                }
                Step::Range(ticket, group) => {
                    self.state(group).ranges.after(ticket).await;
                    context.span.mark(Stage::Range, self.stamp());
                }
                Step::Full(error) => {
                    let quota = self.quota(context.volume);
                    if !self.count_again(quota.as_deref(), &mut counted).await? {
                        return Err(error);
                    }
                    context.span.mark(crate::order::admit::stage_of(&error), self.stamp());
                }
                Step::Token(moved) if !self.is_across() => {
                    drop(token.take());
                    token = Some(self.rename_token().take().await);
                    Box::pin(self.refuse_loops(context, op, &mut trial, &moved)).await?;
                    trial.checked = moved;
                    context.span.mark(Stage::Range, self.stamp());
                }
                step => Box::pin(self.step_across(context, op, &mut trial, step)).await?,
            }
        }
    }

    fn try_change(&self, context: &Context, op: &Op, trial: &mut Trial<'_>) -> Result<Step> {
        let segment = self.store().log.segment_came.ticket();
        let deciding = deciding_group(op);
        let free = self.is_across().then(|| self.state(deciding).ranges.ticket());
        let mut held = Held::new(self, &trial.set);
        if trial.term.is_some_and(|term| held.of(deciding).replica().serves() != Ok(term)) {
            return Err(elsewhere());
        }
        if is_kept(op)
            && let Some(outcome) = held.of(deciding).result(context.session, context.request)?
        {
            return Ok(Step::Again(Box::new(outcome)));
        }
        if let Some(step) = self.wait_for_range(context, op, trial.range, &mut held) {
            return Ok(step);
        }
        let volume = self.volume_of(context, op);
        let uid = if active(Bug::CallerForgotten) { 0 } else { context.uid };
        let caller = Caller { volume, uid, gid: context.gid, umask: context.umask };
        let (spread, now) = (self.spread(context, op), self.store().runtime.clock.wall());
        if matches!(op, Op::VolumeDelete { .. }) && held.of(deciding).is_out_of_numbers() {
            return Ok(Step::Load(Need::Numbers));
        }
        let fetched = free.map(|_| trial.across.as_ref().map_or(&NOTHING, |across| &across.fetched));
        let mut view = HeldView::new(&mut held, (volume, context.session), (now, spread), fetched);
        let mut decision = match evaluate(op, &caller, &mut view) {
            Ok(decision) => decision,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Need(need)) => return lacks(&mut view, deciding, need, free),
        };
        let counted = view.counted;
        self.note_link_read(context, op, volume, &mut held);
        if decision.parts.is_empty()
            && let Some(need) = tell_taken(op, volume, &mut held, (fetched, counted), &mut decision)
        {
            return Ok(Step::Load(need));
        }
        let moved = moved_directories(op, &decision);
        if moved != trial.checked && !active(Bug::LoopUnchecked) {
            return Ok(Step::Token(moved));
        }
        if matches!(op, Op::VolumeDelete { .. }) {
            if let Some(step) = self.lacks_turn(trial) {
                return Ok(step);
            }
            self.drop_everywhere(&mut held, fetched.and_then(|fetched| fetched.id), &mut decision);
        }
        trial.across.iter().try_for_each(|across| across.join(held.of(deciding), &mut decision))?;
        if let Some(attached) = trial.attached {
            let part = decision.parts.first_mut().expect("what clears blocks has a part");
            part.edits.extend(attached.maps());
        }
        let (mut awaited, mut position) = (Awaited::default(), None);
        if let Some(first) = decision.parts.first().map(|part| part.group) {
            assert!(first == deciding, "a second delivery looks for its result in group {deciding}, not in {first}");
            let receipt = match self.order(&mut held, context, &decision, trial.attached, trial.sync) {
                Err(error) if error.kind == Kind::Busy => return Ok(Step::Segment(segment)),
                Err(error) if matches!(error.kind, Kind::NoSpace | Kind::Quota) => return Ok(Step::Full(error)),
                ordered => ordered?,
            };
            (awaited, position) = (receipt.awaited, Some(receipt.position(trial.sync)));
            tell_changed((volume, self.among_others(context, deciding)), &mut held, &mut decision);
        }
        if count_open(context, op, &decision.reply, &mut held, volume) && position.is_none() {
            // Nothing was ordered, so no record keeps the result for a second delivery.
            held.of(deciding).keep_in_memory(context, decision.outcome);
        }
        Ok(Step::Ordered(Answer { reply: decision.reply, data: None, position }, awaited))
    }

    /// The session that asks, if several have had the volume at once; else 0.
    fn among_others(&self, context: &Context, group: GroupId) -> SessionId {
        if self.clients_of(group).was_shared.load(Ordering::Acquire) { context.session } else { SessionId(0) }
    }

    /// The range lock to wait for, if the operation removes blocks that another request is writing.
    fn wait_for_range(&self, context: &Context, op: &Op, mine: Option<u64>, held: &mut Held<'_>) -> Option<Step> {
        let (ino, first, last) = cleared(op)?;
        let ticket = self.state(ino.group()).ranges.ticket();
        let blocks = Range { volume: context.volume, ino, first, last };
        held.of(ino.group()).is_held(&blocks, mine).then_some(Step::Range(ticket, ino.group()))
    }

    /// Updates the access time of a symbolic link whose target is read.
    fn note_link_read(&self, context: &Context, op: &Op, volume: VolumeId, held: &mut Held<'_>) {
        let Op::ReadLink { ino } = op else { return };
        let state = held.of(ino.group());
        if let Seen::Known(Some(inode)) = state.inode(volume, *ino) {
            self.accessed(context, state, *ino, &inode);
        }
    }

    /// The kept result of a request that was delivered before and took effect (rule R1). None if it did not. Errors: `Fenced`.
    pub(crate) fn kept_result(&self, context: &Context, op: &Op) -> Result<Option<Outcome>> {
        if !is_kept(op) {
            return Ok(None);
        }
        self.state(deciding_group(op)).state.lock().result(context.session, context.request)
    }

    /// Answers a request that was delivered before, from its kept result (rule R1). Rare: callers box it, so that those that are
    /// common take no room for it.
    pub(crate) async fn repeat(&self, context: &Context, op: &Op, outcome: Outcome) -> Result<Answer> {
        // Where the first delivery was ordered is not remembered.
        Box::pin(self.scope_committed(self.scope_of(deciding_group(op)), sync_of(op), Some(&context.span))).await?;
        let reply = match outcome {
            Outcome::Done => Reply::Done,
            Outcome::Wrote { offset, length } => Reply::Wrote { offset, length },
            Outcome::Inode(ino) => match op {
                Op::VolumeCreate { name, .. }
                | Op::VolumeRename { new_name: name, .. }
                | Op::VolumeResize { name, .. }
                | Op::VolumeLayers { name, .. }
                | Op::VolumePolicy { name, .. }
                | Op::VolumeLimits { name, .. } => {
                    let volumes = self.volumes().await?;
                    let volume = volumes.into_iter().find(|volume| volume.name == *name);
                    Reply::Volume(volume.ok_or_else(|| Error::new(Kind::NotFound, "the volume is gone again"))?)
                }
                _ => match Box::pin(self.attributes_of(context, op, ino)).await {
                    Err(error) if error.kind == Kind::Stale => {
                        return Err(Error::new(Kind::Stale, "the inode was made, and is gone again"));
                    }
                    attr => {
                        let reply = Reply::Attr(attr?);
                        self.count_for_repeat(context, op, &reply);
                        reply
                    }
                },
            },
        };
        Ok(Answer { reply, data: None, position: None })
    }

    /// Counts what the answer to a request gives its client that took effect before a start, or before this brick led: its client was not
    /// answered, so it has not told of that.
    fn count_for_repeat(&self, context: &Context, op: &Op, reply: &Reply) {
        let Reply::Attr(attr) = reply else { return };
        let mut set = GroupSet::one(deciding_group(op));
        if !self.is_across() {
            set.insert(attr.ino.group());
        }
        let mut held = Held::new(self, &set);
        let session = held.of(deciding_group(op)).sessions.get_mut(&context.session);
        if session.is_some_and(|session| session.count(context.request)) && !active(Bug::AgainUncounted) {
            count_open(context, op, reply, &mut held, self.volume_of(context, op));
        }
    }

    /// True if the brick hosts the groups that an operation concerns from the start.
    pub(crate) fn concerns(&self, op: &Op) -> bool {
        self.hosts(deciding_group(op)) && other_group(op).is_none_or(|group| self.hosts(group))
    }

    /// The project of an inode; 0 if it has none, or is gone.
    pub async fn project(&self, context: &Context, ino: Ino) -> u32 {
        self.attributes(context, ino).await.map_or(0, |attr| attr.inode.project)
    }

    /// An inode's attributes. Errors: `Stale` if it is gone.
    pub(crate) async fn attributes(&self, context: &Context, ino: Ino) -> Result<Attr> {
        loop {
            let seen = self.state(ino.group()).state.lock().inode(context.volume, ino);
            match seen {
                Seen::Known(Some(inode)) => return Ok(Attr::new(ino, inode)),
                Seen::Known(None) => return Err(Error::new(Kind::Stale, "the inode is gone")),
                _ => {
                    self.load(context.volume, vec![crate::state::load::Wanted::Inode(ino)], Some(&context.span)).await?
                }
            }
        }
    }

    /// Completes the deletion of a volume: every group drops its part, as followers of the catalogue's record. `known`: the number by which the
    /// groups know the change, if they have orders of their own.
    fn drop_everywhere(&self, held: &mut Held<'_>, known: Option<IntentId>, decision: &mut Decision) {
        let deciding = decision.parts.first_mut().expect("a deletion has a part");
        let Some(Edit::VolumeDrop { id }) = deciding.edits.first() else { return };
        let id = *id;
        let state = held.of(deciding.group);
        let intent = known.unwrap_or_else(|| {
            state.row.next_intent += 1;
            state.check_granted();
            IntentId { group: deciding.group, number: state.row.next_intent - 1 }
        });
        let others = self.states().iter().map(|group| group.number).filter(|group| *group != deciding.group);
        let follow: Vec<_> =
            others.map(|group| Follow { volume: VolumeId(0), group, edits: vec![Edit::VolumeDrop { id }] }).collect();
        deciding.edits.push(Edit::IntentPut(Intent { id: intent, follow: follow.clone() }));
        for Follow { volume, group, mut edits } in follow {
            edits.push(Edit::FollowedPut { id: intent });
            decision.parts.push(Part { volume, group, edits });
        }
    }

    /// Gives a volume other layers. Before it has any, the brick is marked: a build that knows no layers would serve a volume
    /// without them. Errors: `NotFound`; `Invalid`; those of `store::feature::require`.
    pub(crate) async fn set_layers(
        &self,
        context: &Context,
        op: &Op,
        name: &base::Name,
        layers: &[base::Layer],
    ) -> Result<Answer> {
        if layers.len() > LAYERS_MAX {
            return Err(Error::new(Kind::Invalid, "a volume has at most 16 layers"));
        }
        layers.iter().try_for_each(|layer| layer.checked().map(drop))?;
        self.volume(name).await?;
        if !layers.is_empty() {
            store::feature::require(self.store(), LAYERS).await?;
        }
        self.change(context, op).await
    }

    /// Changes a volume's limits. Before it has any, the brick is marked: a build that knows no limits can't read the volume's row.
    /// Errors: `NotFound`; `Invalid`; those of `store::feature::require`.
    pub(crate) async fn set_limits(&self, context: &Context, op: &Op) -> Result<Answer> {
        if let Op::VolumeLimits { name, tree, changed } = op {
            let wanted = match tree {
                Some((project, top)) => base::Limits::NONE.with_tree(*project, *top, changed)?,
                None => base::Limits::NONE.with(changed)?,
            };
            self.volume(name).await?;
            let bit = if tree.is_some() { TREE_LIMITS } else { VOLUME_LIMITS };
            if wanted != base::Limits::NONE {
                store::feature::require(self.store(), bit).await?;
            }
        }
        self.change(context, op).await
    }

    /// Takes one open back. The last release of an orphan frees it, unless a client knows it.
    pub(crate) async fn release(&self, context: &Context, ino: Ino) -> Result<Answer> {
        let done = Answer { reply: Reply::Done, data: None, position: None };
        loop {
            let segment = self.store().log.segment_came.ticket();
            let mut held = Held::new(self, &GroupSet::one(ino.group()));
            let state = held.of(ino.group());
            if state.result(context.session, context.request)?.is_some() {
                return Ok(done);
            }
            let session = (context.volume, context.session);
            let own = state.known.opens_of(session, ino);
            if own > 1 || state.known.opens(context.volume, ino) > own {
                state.known.released(session, ino);
                state.keep_in_memory(context, Outcome::Done);
                return Ok(done);
            }
            match state.inode(context.volume, ino) {
                // If a client knows the inode, it is freed when the client forgets it.
                Seen::Known(Some(inode)) if inode.links == 0 && !state.known.knows(context.volume, ino) => {
                    let edits = vec![Edit::InodeDrop { ino }, Edit::OrphanDrop { ino }];
                    let part = Part { volume: context.volume, group: ino.group(), edits };
                    match self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered) {
                        Err(error) if error.kind == Kind::Busy => {
                            drop(held);
                            self.wait_for_segment(segment).await?;
                            continue;
                        }
                        ordered => ordered?,
                    };
                }
                Seen::Known(_) => {}
                _ => {
                    drop(held);
                    self.load(context.volume, vec![crate::state::load::Wanted::Inode(ino)], Some(&context.span))
                        .await?;
                    continue;
                }
            }
            let state = held.of(ino.group());
            state.known.released(session, ino);
            state.keep_in_memory(context, Outcome::Done);
            return Ok(done);
        }
    }
}

/// Has the other sessions forget the inodes that lost their last name: they live on only for who has them open, and for the session that
/// removed the name. Session 0: there are no others.
fn forget_elsewhere(session: (VolumeId, SessionId), held: &mut Held<'_>, decision: &Decision) {
    if session.1 == SessionId(0) {
        return;
    }
    for edit in decision.parts.iter().flat_map(|part| &part.edits) {
        if let Edit::OrphanPut { ino } = edit
            && let Some(state) = held.get(ino.group())
        {
            state.known.forget_elsewhere(session, *ino);
        }
    }
}

/// The group that an operation concerns from the start, beside the one that decides it.
fn other_group(op: &Op) -> Option<GroupId> {
    match op {
        Op::Rename { parent, .. } | Op::Exchange { parent, .. } => Some(parent.group()),
        Op::Link { ino, .. } => Some(ino.group()),
        _ => None,
    }
}

/// True for operations whose results are kept for a second delivery. Others may come under any number.
pub(crate) fn is_kept(op: &Op) -> bool {
    op.mutates() || matches!(op, Op::Open { .. })
}

/// Durability of an operation's record when the operation is answered. Volumes are made, changed and deleted for good.
fn sync_of(op: &Op) -> Sync {
    match op {
        Op::Write { sync, .. } => *sync,
        Op::VolumeCreate { .. }
        | Op::VolumeDelete { .. }
        | Op::VolumeRename { .. }
        | Op::VolumeResize { .. }
        | Op::VolumeLayers { .. }
        | Op::VolumePolicy { .. }
        | Op::VolumeLimits { .. } => Sync::All,
        _ => Sync::Ordered,
    }
}

/// The group whose record decides an operation.
pub(crate) fn deciding_group(op: &Op) -> GroupId {
    op.home().map_or(CATALOGUE, Ino::group)
}

/// The first and the last block that a truncation or a punch may remove or change.
fn cleared(op: &Op) -> Option<(Ino, u64, u64)> {
    match op {
        Op::SetAttr { ino, set } => set.size.map(|size| (*ino, size / BLOCK_BYTES as u64, u64::MAX)),
        Op::Open { ino, truncate: true } => Some((*ino, 0, u64::MAX)),
        Op::Allocate { ino, offset, length, room: Room::Hole | Room::Zeroed, .. } => {
            let last = offset.saturating_add(*length).saturating_sub(1);
            Some((*ino, offset / BLOCK_BYTES as u64, last / BLOCK_BYTES as u64))
        }
        _ => None,
    }
}

/// The directories that the decision of an operation moves to another parent, each with its new parent. Renames and exchanges alone move any: the
/// edits of the others need not be looked through.
fn moved_directories(op: &Op, decision: &Decision) -> Vec<(Ino, Ino)> {
    if !matches!(op, Op::Rename { .. } | Op::Exchange { .. }) {
        return Vec::new();
    }
    let edits = decision.parts.iter().flat_map(|part| &part.edits);
    let moved = edits.filter_map(|edit| match edit {
        Edit::InodeParent { ino, parent } => Some((*ino, *parent)),
        _ => None,
    });
    moved.collect()
}

/// Sets the number of blocks in the answer of an operation that changes nothing. GetAttr and Lookup report the true
/// number, so the inode's row may have to be read from the index first; other answers get an estimate.
fn tell_taken(
    op: &Op,
    volume: VolumeId,
    held: &mut Held<'_>,
    (fetched, counted): (Option<&Fetched>, Option<(Ino, u64)>),
    decision: &mut Decision,
) -> Option<Need> {
    let Reply::Attr(attr) = &mut decision.reply else { return None };
    let counted = counted.and_then(|(ino, blocks)| (ino == attr.ino).then_some(blocks));
    let Some(state) = held.get(attr.ino.group()) else {
        attr.blocks = fetched.and_then(|fetched| fetched.blocks(attr.ino)).unwrap_or(attr.blocks);
        return None;
    };
    match state.blocks(volume, attr.ino, &attr.inode, counted) {
        Some(blocks) => attr.blocks = blocks,
        None if matches!(op, Op::GetAttr { .. } | Op::Lookup { .. }) => return Some(Need::Inode(attr.ino)),
        None => {}
    }
    None
}

/// Sets the number of blocks in the answer of a change. Called after the change is applied, when the number is known
/// better than before.
fn tell_changed(session: (VolumeId, SessionId), held: &mut Held<'_>, decision: &mut Decision) {
    forget_elsewhere(session, held, decision);
    if let Reply::Attr(attr) = &mut decision.reply
        && let Some(state) = held.get(attr.ino.group())
    {
        attr.blocks = state.blocks(session.0, attr.ino, &attr.inode, None).unwrap_or(attr.blocks);
    }
}

/// Counts what the answer gives its client: knowledge of an inode, if the client uses inode numbers later
/// (`Context::keeps`), and an open (Open, Create, TempFile). Either keeps an unlinked inode alive (rule R2: opens
/// belong to sessions). True if an open was counted.
fn count_open(context: &Context, op: &Op, reply: &Reply, held: &mut Held<'_>, volume: VolumeId) -> bool {
    let (tells, opens) = match op {
        Op::Create { .. } | Op::TempFile { .. } => (true, true),
        Op::Open { .. } => (false, true),
        Op::Lookup { .. }
        | Op::Recall { .. }
        | Op::MakeDir { .. }
        | Op::SymLink { .. }
        | Op::MakeNode { .. }
        | Op::Link { .. } => (true, false),
        _ => return false,
    };
    let Reply::Attr(attr) = reply else { return false };
    let client = (volume, context.session);
    // Of an inode that another brick leads its client learns there.
    let Some(state) = held.get(attr.ino.group()) else { return false };
    if tells && context.keeps {
        state.known.told(client, attr.ino, attr.inode.links == 0);
    }
    let opens = opens && !active(Bug::OpenUncounted);
    if opens {
        state.known.opened(client, attr.ino);
    }
    opens
}
