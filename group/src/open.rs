//! Opening the groups of a brick: replay, redo of intents, purge of orphans (rules L6, M3, K6).

use crate::hosted::Hosted;
use crate::replication::found::{FoundReplica, missing};
use crate::replication::{Replicas, Replication};
use crate::state::load::{Wanted, load_blocking, rests_on};
use crate::state::rows::read_states;
use crate::state::{Block, State};
use crate::{CATALOGUE, Group, Groups, Options, Scope};
use base::{Edit, Error, GroupId, Intent, IntentId, Kind, Result, Term, VolumeId};
use names::{Part, Seen};
use runtime::Lock;
use runtime::seeded::{Bug, active};
use runtime::tasks::run_blocking;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::format::record::{Logged, Moves, Places, Run};
use store::format::superblock::{EPOCH_ENDS_MAX, REPLICA_ROWS, REPLICAS};
use store::format::{keys, values};
use store::index::Index;
use store::{Opening, Replay, Replayed};

/// The replicas of groups, as the log has them.
type FoundReplicas = Lock<BTreeMap<GroupId, FoundReplica>>;

/// Takes replayed records for groups that nobody uses yet; blocking. Those of groups with replicas are kept until they are committed; others
/// are applied. `count`: the number of all groups.
fn apply(
    groups: &Hosted,
    (index, count): (&dyn Index, usize),
    epoch: u32,
    records: Vec<Replayed>,
    replicas: Option<&FoundReplicas>,
) -> Result<()> {
    for Replayed { logged, runs, batch } in records {
        let record = match logged {
            Logged::Record(record) => record,
            Logged::Vote(vote) => {
                if let Some(replicas) = replicas {
                    replicas.lock().entry(vote.group).or_default().vote(&vote);
                }
                continue;
            }
            Logged::Moves(moves) => {
                apply_moves(groups, (index, count), &moves, &runs)?;
                continue;
            }
        };
        let Some(group) = groups.get(record.group) else {
            let what = "the log holds a record of a group that the brick does not have";
            return Err(Error::new(Kind::Corrupt, what).with(record.group));
        };
        if let Some(replicas) = replicas {
            let applied = group.state.lock().row.applied;
            replicas.lock().entry(record.group).or_default().find(record, runs, batch, applied)?;
            continue;
        }
        let mut state = group.state.lock();
        if record.index <= state.row.applied || active(Bug::RecordNotReplayed) {
            continue;
        }
        let mut places = Places::of(&runs);
        for edit in &record.edits {
            if let Some(ino) = rests_on(edit)
                && matches!(state.inode(record.volume, ino), Seen::Missing)
            {
                load_blocking((index, count), &mut state, record.volume, &Wanted::Inode(ino))?;
            }
            if matches!(edit, Edit::VolumeDrop { .. }) && record.group == CATALOGUE {
                load_volumes(index, &mut state)?;
            }
            state.apply(record.volume, edit, batch, &mut places, epoch);
        }
        let mut head = state.head(0, record.volume, (record.session, record.request), record.outcome);
        if head.index != record.index {
            return Err(missing(record.group, record.index, state.row.applied));
        }
        head.term = record.term;
        state.ordered(&head, 0);
    }
    Ok(())
}

/// Applies the cleaner's moves. Whether each copy counts is decided again, with the same result as before the crash
/// (rule K2).
fn apply_moves(groups: &Hosted, (index, count): (&dyn Index, usize), moves: &Moves, runs: &[Run]) -> Result<()> {
    let Some(group) = groups.get(moves.group) else { return Ok(()) };
    let mut state = group.state.lock();
    let places = runs.iter().flat_map(|run| (0..u32::from(run.count)).map(|number| run.place.advance(number)));
    for (moved, place) in moves.blocks.iter().zip(places) {
        if matches!(state.block(moves.volume, moved.ino, moved.block), Block::Missing) {
            let wanted = Wanted::Leaf(base::LeafKey::of(moved.ino, moved.block).0);
            load_blocking((index, count), &mut state, moves.volume, &wanted)?;
        }
        if state.is_at(moves.volume, moved, None) == Some(true) || active(Bug::MoveUnconditional) {
            state.move_block(moves.volume, moved, place);
        }
    }
    Ok(())
}

/// Loads all volumes into memory. A volume is dropped by its id, but its row in the catalogue's group has its name as
/// key, so it must be in memory to be found.
fn load_volumes(index: &dyn Index, state: &mut State) -> Result<()> {
    let (from, to) = keys::volumes();
    for (_, value) in index.scan(&from, &to, usize::MAX)? {
        let volume = values::decode_volume(&value)?;
        state.learn_volume(&volume.name.clone(), Some(volume));
    }
    Ok(())
}

impl Groups {
    /// Replays the log, completes half-done changes, and starts the checkpoint task.
    pub async fn open(opening: Opening, options: Options) -> Result<(Arc<Groups>, Replay)> {
        Groups::open_with(opening, options, None).await
    }

    /// Opens a brick whose groups other bricks have, too: it serves a group once it leads it.
    pub async fn open_replicated(
        opening: Opening,
        options: Options,
        replicas: Replicas,
    ) -> Result<(Arc<Groups>, Replay)> {
        Groups::open_with(opening, options, Some(replicas)).await
    }

    async fn open_with(
        mut opening: Opening,
        options: Options,
        replicas: Option<Replicas>,
    ) -> Result<(Arc<Groups>, Replay)> {
        opening.keep_reads(options.read_cache_bytes);
        opening.promote(options.promotion_bytes);
        let runtime = opening.runtime().clone();
        let index = opening.index().clone();
        let superblock = opening.superblock();
        // Replayed blocks get this epoch as their birth, though they may have been written in an earlier one: births
        // only serve to compare which block is older.
        let (count, epoch) = (superblock.groups, superblock.epoch as u32);
        let (reading, secret) = ((index.clone(), options), runtime.random.next_u64());
        let read = move || read_states(&*reading.0, count, &reading.1, secret);
        let states = run_blocking(&*runtime.tasks, read).await?;
        let groups = Arc::new(Hosted::new(states.into_iter().map(Group::new).collect()));
        let found = replicas.as_ref().map(|_| Arc::new(Lock::new("found", BTreeMap::new())));
        let sink = async |records: Vec<Replayed>| {
            let (groups, index, found) = (groups.clone(), index.clone(), found.clone());
            let apply = move || apply(&groups, (&*index, count as usize), epoch, records, found.as_deref());
            run_blocking(&*runtime.tasks, apply).await
        };
        let applied = |group: &Group| (group.number, group.state.lock().row.applied);
        let applied: BTreeMap<_, _> = groups.all().iter().map(applied).collect();
        let (store, replay) = opening.replay(sink, |group| applied.get(&group).copied().unwrap_or_default()).await?;
        let Ok(hosted) = Arc::try_unwrap(groups) else { unreachable!("the jobs that shared the groups have ended") };
        let replication = replicas.map(|replicas| Replication::new(&store, replicas, hosted.all().len()));
        match &replication {
            None => hosted.all().iter().for_each(|group| group.state.lock().begin_life(Term(store.epoch))),
            Some(replication) => {
                let found = found.map(|found| std::mem::take(&mut *found.lock())).unwrap_or_default();
                let index = store.index.clone();
                replication.begin(&hosted, index, found, &*runtime.tasks).await?;
            }
        }
        let groups = Arc::new(Groups::new(store, hosted, options, replication));
        *groups.replayed.lock() = replay;
        let volumes = groups.volumes().await?;
        volumes.iter().for_each(|volume| groups.note_volume(volume));
        if replay.records > 0 {
            groups.note_replayed();
        }
        // Comes first: the steps below may need space on a full brick. Until the cleaner has looked, writers wait for
        // space instead of being refused: a checkpoint may free segments that the crash has held back.
        groups.store().expect_space();
        groups.start_agents();
        if groups.replication.is_some() {
            // A build that knows no replicas would serve such a brick alone.
            store::feature::require(groups.store(), REPLICAS).await?;
            store::feature::require(groups.store(), REPLICA_ROWS).await?;
            groups.start_replication();
            return Ok((groups, replay));
        }
        if !active(Bug::IntentNotRedone) {
            groups.redo_intents().await?;
        }
        let untold = groups.expect_sessions(Scope::All);
        if !active(Bug::OrphansKept) {
            let ended = volumes.iter().map(|volume| volume.id).filter(|volume| !untold.contains(volume));
            groups.purge_orphans(Scope::All, ended.collect()).await?;
        }
        // Each start adds to the superblock's list of epoch ends, which shrinks only after a checkpoint. A daemon that is
        // killed again and again before its first checkpoint must not fill the list.
        if groups.store().epoch_ends > EPOCH_ENDS_MAX / 2 {
            groups.checkpoint().await?;
        }
        Ok((groups, replay))
    }

    /// Starts the tasks that run unasked.
    fn start_agents(self: &Arc<Groups>) {
        let groups = self;
        let tasks = groups.store().runtime.tasks.clone();
        let there = groups.clone();
        tasks.spawn(0, Box::new(move || Box::pin(crate::agents::checkpoint::run(there))));
        let there = groups.clone();
        tasks.spawn(0, Box::new(move || Box::pin(crate::agents::forget::run(there))));
        let there = groups.clone();
        tasks.spawn(
            tasks.cores() - 1,
            Box::new(move || Box::pin(crate::agents::clean::run(there, store::format::devices::Tier::Flash))),
        );
        let there = groups.clone();
        tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(crate::agents::defragment::run(there))));
        let there = groups.clone();
        tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(crate::agents::streams::run(there))));
        crate::agents::evacuate::go_on(groups);
        if !groups.store().uncounted().is_empty() {
            let there = groups.clone();
            tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(crate::agents::recount::run(there))));
        }
    }

    /// Completes every remaining intent: applies what its followers lack, then ends the intent.
    pub(crate) async fn redo_intents(&self) -> Result<()> {
        let (intents, mut marks) = self.standing_intents().await?;
        for intent in intents.values() {
            for follow in &intent.follow {
                if !marks.contains(&(follow.group, intent.id)) {
                    let mut edits = follow.edits.clone();
                    edits.push(Edit::FollowedPut { id: intent.id });
                    self.order_here(Part { volume: follow.volume, group: follow.group, edits }).await?;
                    marks.insert((follow.group, intent.id));
                }
            }
            let end = Edit::IntentDrop { id: intent.id };
            self.order_here(Part { volume: VolumeId(0), group: intent.id.group, edits: vec![end] }).await?;
        }
        for (group, id) in marks {
            self.order_here(Part { volume: VolumeId(0), group, edits: vec![Edit::FollowedDrop { id }] }).await?;
        }
        Ok(())
    }

    /// The intents that remain, and the marks of groups that have followed one, from the index and the overlay.
    async fn standing_intents(&self) -> Result<(BTreeMap<IntentId, Intent>, BTreeSet<(GroupId, IntentId)>)> {
        let (index, bounds) = (self.store().index.clone(), self.store().bounds());
        let numbers: Vec<_> = self.states().iter().map(|group| group.number).collect();
        let read = move || -> Result<_> {
            let (mut intents, mut marks) = (BTreeMap::new(), BTreeSet::new());
            for group in numbers {
                let (from, to) = keys::intents(group);
                for (_, value) in index.scan(&from, &to, usize::MAX)? {
                    let intent = values::decode_intent(&value)?;
                    bounds.intent(&intent)?;
                    intents.insert(intent.id, intent);
                }
                let (from, to) = keys::followed_all(group);
                let rows = index.scan(&from, &to, usize::MAX)?;
                marks.extend(rows.iter().map(|(key, _)| (group, keys::followed_id(key))));
            }
            Ok((intents, marks))
        };
        // Index and overlay are read one after the other. A checkpoint in between would move rows from the overlay into
        // the index, where they would be missed.
        let _still = self.checkpoint_token.take().await;
        let (mut intents, mut marks) = run_blocking(&*self.store().runtime.tasks, read).await?;
        for group in self.states() {
            let state = group.state.lock();
            for (id, intent) in &state.active.intents {
                match intent {
                    Some(intent) => drop(intents.insert(*id, intent.clone())),
                    None => drop(intents.remove(id)),
                }
            }
            for (id, followed) in &state.active.followed {
                match followed {
                    true => drop(marks.insert((state.group, *id))),
                    false => drop(marks.remove(&(state.group, *id))),
                }
            }
        }
        Ok((intents, marks))
    }

    /// Frees inodes of these volumes that have no name and that no session has open or knows any more (rule K6).
    pub(crate) async fn purge_orphans(&self, scope: Scope, volumes: Vec<VolumeId>) -> Result<()> {
        let index = self.store().index.clone();
        let numbers: Vec<_> = self.scoped(scope).iter().map(|group| group.number).collect();
        let read = move || -> Result<_> {
            let mut orphans = BTreeSet::new();
            for group in numbers {
                for &volume in &volumes {
                    let (from, to) = keys::orphans(group, volume);
                    let rows = index.scan(&from, &to, usize::MAX)?;
                    orphans.extend(rows.iter().map(|(key, _)| (volume, keys::orphan_ino(key))));
                }
            }
            Ok(orphans)
        };
        // No checkpoint in between, as in `standing_intents`: a file that has been given a name would be taken for an
        // orphan, and freed.
        let still = self.checkpoint_token.take().await;
        let mut orphans = run_blocking(&*self.store().runtime.tasks, read).await?;
        for group in self.scoped(scope) {
            for (key, is) in &group.state.lock().active.orphans {
                match is {
                    true => drop(orphans.insert(*key)),
                    false => drop(orphans.remove(key)),
                }
            }
        }
        drop(still);
        self.end_unused(orphans.into_iter().collect()).await
    }
}
