//! The groups of a brick, each the owner of a slice of names and data: evaluate, order, apply, overlay.
//!
//! Promises: an answered change is visible to every later operation; an answered durable change survives any crash; a
//! request delivered twice has one effect and one reply (rule R1); no lock is held across an await. Absent by design:
//! byte layouts (`store::format` has them), protocols (the fronts have them), a thread, timer or file per group (rule
//! Q1).
#![forbid(unsafe_code)]

mod across;
mod agents;
mod change;
mod data;
mod heal;
mod hosted;
mod led;
mod open;
mod order;
mod replica;
mod replication;
mod state;

pub use across::Changes;
pub use agents::clean;
use agents::destage;
pub use change::session::{Begun, Kept, Known};
pub use data::streams::ReadAhead;
pub use heal::HealStatus;
pub use led::Led;
pub use order_raft::Member;
pub use order_raft::support::{BrickId, Ended};
pub use replica::acks::Acknowledged;
pub use replica::across as across_codec;
pub use replica::codec as replica_codec;
pub use replica::heal as heal_codec;
pub use replication::{Follower, ReplicaStatus, Replicas, announce};
pub use wire::{Answer, Context, Position};

/// The group with the catalogue of volumes and, in a cluster, the network side: whoever leads it answers operators.
pub const CATALOGUE: GroupId = GroupId(0);

use base::limits::BLOCK_BYTES;
use base::{Error, GroupId, Kind, Op, Reply, Result, Sync, Term, Volume, VolumeId};
use hosted::Hosted;
use order::receipt::Awaited;
use order::token::Token;
use runtime::seeded::{Bug, active};
use runtime::{Buf, Event, Lock, Need, Stamp};
use state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use store::log::Figures;
use store::{Replay, Store};

/// Bounds of the overlay and the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of the overlay at which a checkpoint is due.
    pub overlay_bytes: u64,
    /// Bytes of log to replay at which a checkpoint is due.
    pub replay_bytes: u64,
    /// Number of records to replay at which a checkpoint is due.
    pub replay_records: u64,
    /// Time without changes after which a checkpoint is due if reported space is not exact. `u64::MAX`: no checkpoint
    /// is made to report space exactly, not even when a client asks for it.
    pub quiet_ns: u64,
    /// Bytes for all caches together.
    pub cache_bytes: u64,
    /// Bytes of the read cache: blocks that clients have read and that neither the kernel nor a front caches.
    pub read_cache_bytes: u64,
    /// Bytes for knowing the copies on flash of what is read from disks again.
    pub promotion_bytes: u64,
    /// Numbers that a group reserves at a time (rule L2).
    pub numbers_at_once: u64,
    /// Limits of the cut blocks that one checkpoint frees.
    pub free: store::FreeLimits,
    /// Records of all groups that a brick with replicas keeps in memory though a checkpoint has them: a follower that lacks more heals.
    pub kept_records: u64,
}

impl Options {
    /// Options that follow from the memory bound, without a read cache. A checkpoint is due before these bounds are
    /// reached if a replay would take longer than permitted (rule X2, `cost`).
    pub fn for_memory(memory_max_bytes: u64) -> Options {
        Options {
            overlay_bytes: (memory_max_bytes / 16).clamp(8 << 20, 128 << 20),
            replay_bytes: 1 << 30,
            replay_records: 400_000,
            quiet_ns: 700_000_000,
            cache_bytes: memory_max_bytes / 4,
            read_cache_bytes: 0,
            promotion_bytes: 0,
            // Each start skips up to 2^20 numbers: the 43 bits of a sequence number last for eight million starts.
            numbers_at_once: 1 << 20,
            free: store::FreeLimits::default(),
            // They take some hundred bytes each: 1 in 64 of the memory, 8 to 256 MiB.
            kept_records: (memory_max_bytes / 64).clamp(8 << 20, 256 << 20) / KEPT_RECORD_BYTES,
        }
    }
}

/// Number of directories below others, of which one goes to another group.
const SPREAD_ONE_IN: u64 = 16;

/// The place of a new directory.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    /// The group that its request draws.
    group: GroupId,
    /// True if it stays in its parent's group unless that is a volume's root.
    stays: bool,
}

/// Bytes that a kept record takes about.
pub(crate) const KEPT_RECORD_BYTES: u64 = 400;

/// The groups that a server serves, each client with one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All groups of a brick that has them alone.
    All,
    /// One of the groups that several bricks have: each is led by one of them, perhaps another one than the next group.
    One(GroupId),
}

pub(crate) struct Group {
    pub number: GroupId,
    pub state: Lock<State>,
    /// Notified when a range of one of the group's files is unlocked.
    pub ranges: Event,
    /// Notified when more of the group's order is committed, or another replica leads.
    pub committed: Event,
    /// True if a replica's state has changed since it was looked at last.
    pub has_changed: AtomicBool,
}

impl Group {
    pub(crate) fn new(state: State) -> Group {
        Group {
            number: state.group,
            state: Lock::new("group", state),
            ranges: Event::new(),
            committed: Event::new(),
            has_changed: AtomicBool::new(false),
        }
    }
}

/// The groups that one brick hosts.
pub struct Groups {
    store: Arc<Store>,
    hosted: Hosted,
    rename: Token,
    options: Options,
    replication: Option<replication::Replication>,
    overlay_bytes: AtomicU64,
    checkpoint_token: Token,
    checkpoint_base: Lock<Figures>,
    /// The records and bytes that this start replayed and that no checkpoint has taken yet: after a crash they would be
    /// replayed again.
    replayed: Lock<Replay>,
    checkpointed: Event,
    checkpoints: AtomicU64,
    /// True if a checkpoint would free space: the cleaner has emptied segments, or much was cut.
    checkpoint_wanted: AtomicBool,
    /// True if checkpoints have more cut blocks to free.
    purging: AtomicBool,
    /// True if replay has applied records that no checkpoint has counted.
    uncounted: AtomicBool,
    /// True if a client was given a figure of space, perhaps an inexact one, since the last checkpoint.
    space_asked: AtomicBool,
    /// The admission of each volume that has a size of its own.
    quotas: Lock<BTreeMap<VolumeId, Arc<order::admit::Quota>>>,
    has_quotas: AtomicBool,
    /// The clients: of all groups, or of each of those that several bricks have.
    clients: Vec<change::session::Clients>,
    /// The status of each tier's cleaner.
    cleaners: Lock<[clean::Status; 2]>,
    /// Blocks on their way from flash to disk.
    destage: destage::Destage,
    /// The wall clock as the checkpoint task saw it last: good enough for reads.
    wall_ns: AtomicI64,
    small_commits: data::commits::SmallCommits,
    ahead: data::ahead::Ahead,
    /// Tiers that inodes' blocks belong on.
    wishes: data::tier::Wishes,
    /// Large reads whose blocks lay scattered.
    scattered: data::scattered::Reads,
    /// Files that clients read in order from disks.
    streams: data::streams::Streams,
    /// Inodes without a name that nobody knows or has open any more, to be freed soon.
    forgotten: Lock<Vec<(VolumeId, base::Ino)>>,
    forgotten_came: Event,
    /// True while inodes taken from `forgotten` are being freed.
    ending: AtomicBool,
    closing: AtomicBool,
    /// Number of steps (`begin_step`) under way.
    steps: AtomicU64,
}

impl Groups {
    pub(crate) fn new(
        store: Arc<Store>,
        hosted: Hosted,
        options: Options,
        replication: Option<replication::Replication>,
    ) -> Groups {
        let count = |group: &Group| {
            let mut state = group.state.lock();
            state.counted_bytes = state.active.bytes;
            state.counted_bytes as u64
        };
        let bytes = hosted.all().iter().map(count).sum();
        let wall_ns = store.runtime.clock.wall().0;
        let purging = hosted.all().iter().any(|group| !group.state.lock().purges.is_empty());
        // As much as is reserved for the program's own work, an eighth of `memory_max` at most; it is taken from the clients' part.
        let streams = data::streams::Streams::new(store.runtime.slabs.own_bytes_max());
        let wishes = data::tier::Wishes::new(&store);
        let scopes = if replication.is_some() { hosted.all().len() } else { 1 };
        let clients = (0..scopes).map(|_| change::session::Clients::default()).collect();
        Groups {
            store,
            wishes,
            hosted,
            rename: Token::default(),
            options,
            replication,
            overlay_bytes: AtomicU64::new(bytes),
            checkpoint_token: Token::default(),
            checkpoint_base: Lock::new("checkpoint", Figures::default()),
            replayed: Lock::new("replayed", Replay::default()),
            checkpointed: Event::new(),
            checkpoints: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            purging: AtomicBool::new(purging),
            uncounted: AtomicBool::new(false),
            space_asked: AtomicBool::new(false),
            quotas: Lock::new("quotas", BTreeMap::new()),
            has_quotas: AtomicBool::new(false),
            clients,
            cleaners: Lock::new("cleaner", Default::default()),
            destage: destage::Destage::new(),
            wall_ns: AtomicI64::new(wall_ns),
            small_commits: data::commits::SmallCommits::new(),
            ahead: data::ahead::Ahead::new(),
            scattered: data::scattered::Reads::new(),
            streams,
            forgotten: Lock::new("forgotten", Vec::new()),
            forgotten_came: Event::new(),
            ending: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            steps: AtomicU64::new(0),
        }
    }

    /// Performs one operation of groups that this brick has alone; `call_replicated` is for others. `data`: the payload of a write, or
    /// memory for the answer of a read.
    pub async fn call(&self, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        // Clients may send any inode number (NFS handles, hostile fronts): a group that does not exist holds no inode.
        if !self.concerns(&op) {
            return Err(foreign());
        }
        // Here and not in a function of its own: each that an answer passes copies it.
        let answer = match op {
            Op::Read { ino, offset, length } => return self.read(context, ino, offset, length, data).await,
            Op::Write { ino, at, sync, kill_privileges } => {
                let data = data.ok_or_else(|| Error::new(Kind::Invalid, "a write needs a payload"))?;
                // Its blocks are admitted and placed before it is evaluated.
                if let Some(outcome) = self.kept_result(context, &op)? {
                    return Box::pin(self.repeat(context, &op, outcome)).await;
                }
                let length = data.len() as u32;
                let write = order::write::Write { ino, at, length, sync, kill_privileges };
                self.write(context, write, data).await
            }
            Op::SetAttr { ino, ref set } => self.set_attributes(context, &op, ino, set.size).await,
            Op::Allocate { .. } => self.allocate(context, &op).await,
            Op::Seek { ino, offset, what } => self.seek(context, ino, offset, what).await,
            Op::ReadDir { ino, cookie, count, plus } => self.read_dir(context, ino, cookie, count, plus).await,
            Op::Open { ino, truncate: false } => {
                let answer = self.change(context, &op).await;
                if answer.is_ok() {
                    self.read_ahead(context, ino);
                }
                answer
            }
            Op::Release { ino } => {
                self.ahead.closed(context.volume, ino);
                self.release(context, ino).await
            }
            Op::Forget { ino, times } => self.forget(context, ino, times),
            Op::Lock { lock, wish } => return self.lock(context, *lock, wish),
            Op::Fsync { ino, sync } => self.fsync(context, ino, sync).await,
            Op::SyncAll => {
                self.sync_all(context).await?;
                Ok(told(Reply::Done))
            }
            Op::StatFs => Ok(told(Reply::StatFs(self.statfs(context.volume)))),
            Op::VolumeList => Ok(told(Reply::Volumes(self.volumes().await?))),
            Op::VolumeResize { ref name, size_bytes } => self.resize_volume(context, &op, name, size_bytes).await,
            Op::VolumeLayers { ref name, ref layers } => self.set_layers(context, &op, name, layers).await,
            Op::VolumePolicy { policy, .. } => Box::pin(self.set_policy(context, &op, policy)).await,
            Op::VolumeLimits { .. } => Box::pin(self.set_limits(context, &op)).await,
            Op::VolumeCreate { .. } | Op::VolumeDelete { .. } | Op::VolumeRename { .. } => {
                Box::pin(self.change_volume(context, &op)).await
            }
            Op::SetXattr { ref name, .. } | Op::RemoveXattr { ref name, .. } if names::is_tier_hint(name) => {
                Box::pin(self.change_tier_hint(context, &op)).await
            }
            // It can't have been delivered before, whatever stands in its way.
            _ if !change::is_kept(&op) => return self.change(context, &op).await,
            _ => self.change(context, &op).await,
        };
        match answer {
            // What stands in its way now may have come since another delivery of it took effect.
            Err(error) => match self.kept_result(context, &op)? {
                Some(outcome) => Box::pin(self.repeat(context, &op, outcome)).await,
                None => Err(error),
            },
            answer => answer,
        }
    }

    async fn fsync(&self, context: &Context, ino: base::Ino, sync: Sync) -> Result<Answer> {
        self.small_commits.commits(ino, self.store.runtime.clock.now_ns());
        let batch = {
            let state = self.state(ino.group()).state.lock();
            if state.is_dropped(context.volume) {
                return Err(Error::new(Kind::Stale, "the volume was deleted"));
            }
            state.inode_slot(context.volume, ino).map(|slot| slot.batch)
        };
        // Nothing of the inode is in the overlay: all of it is in the index, hence durable (rule U5). Where there are replicas, every
        // change was committed before it was answered.
        if let Some(batch) = batch.filter(|_| !active(Bug::FsyncUnheard) && self.replication.is_none()) {
            self.committed(Awaited::in_batch(batch), sync.max(Sync::Data), &context.span).await?;
        }
        Ok(told(Reply::Done))
    }

    async fn sync_all(&self, context: &Context) -> Result<()> {
        self.all_committed(Sync::All, Some(&context.span)).await
    }

    /// The volume of this name. Errors: `NotFound`.
    pub async fn volume(&self, name: &base::Name) -> Result<Volume> {
        let found = self.volumes().await?.into_iter().find(|volume| volume.name == *name);
        found.ok_or_else(|| Error::new(Kind::NotFound, "no such volume; see `sinter volume list`"))
    }

    /// Makes everything durable, checkpoints it, and ends the brick's tasks: the next start replays nothing. The caller
    /// has made sure that no client's operation is under way: changes made during the close may be lost.
    pub async fn close(&self) -> Result<()> {
        self.closing.store(true, Ordering::SeqCst);
        self.replication.iter().for_each(replication::Replication::end);
        self.forgotten_came.notify();
        self.scattered.came.notify();
        self.streams.came.notify();
        self.store.log.close();
        let settled = if active(Bug::EndedUncommitted) { Ok(()) } else { self.settle().await };
        self.store.stop();
        settled
    }

    /// Begins a step of a task that orders records of its own. None if the brick is being closed. A close waits until
    /// the steps that have begun end.
    pub(crate) fn begin_step(&self) -> Option<Step<'_>> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let step = Step(self);
        // A close sets `closing` first and then reads `steps`: so one of the two always sees the other.
        (!self.closing.load(Ordering::SeqCst)).then_some(step)
    }

    /// Commits and checkpoints until nothing is left to replay.
    async fn settle(&self) -> Result<()> {
        let mut waited_ns = 0;
        while self.steps.load(Ordering::SeqCst) > 0 && waited_ns < STEPS_END_NS {
            self.store.runtime.clock.sleep(CLOSING_LOOK_NS).await;
            waited_ns += CLOSING_LOOK_NS;
        }
        for _ in 0..CLOSING_CHECKPOINTS_MAX {
            // Not until all is committed, where there are replicas: without a majority that would take for ever.
            self.store.log.wait(self.store.log.last_batch(), Sync::All, None).await?;
            self.checkpoint().await?;
            if self.store.log.figures().records == self.checkpoint_base.lock().records {
                break;
            }
        }
        Ok(())
    }

    /// Read-ahead from disks since start.
    pub fn streamed(&self) -> ReadAhead {
        self.streams.figures()
    }
    /// The brick below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
    /// True while checkpoints have more cut or deleted data to free (rule K6).
    pub fn is_freeing(&self) -> bool {
        self.purging.load(Ordering::Acquire)
    }
    /// Number of checkpoints since start.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }
    /// Blocks that were put together since start, because a client read them in order and found them scattered.
    pub fn defragmented_blocks(&self) -> u64 {
        self.scattered.moved()
    }
    /// Bytes of the overlay.
    pub fn overlay_bytes(&self) -> u64 {
        self.overlay_bytes.load(Ordering::Relaxed)
    }
    /// The figures of the groups' locks.
    pub fn lock_summaries(&self) -> Vec<runtime::lock::LockSummary> {
        self.states().iter().map(|group| group.state.summary()).collect()
    }

    /// Holds the locks of all groups while `during` runs, as a change of all of them would: tests make others wait so.
    #[cfg(feature = "seeded-bugs")]
    pub fn hold_locks(&self, during: impl FnOnce()) {
        let guards: Vec<_> = self.states().iter().map(|group| group.state.lock()).collect();
        during();
        drop(guards);
    }
    /// A group that is hosted.
    #[inline]
    pub(crate) fn state(&self, group: GroupId) -> &Group {
        self.hosted.get(group).expect("operations of other groups are refused")
    }
    /// True once the groups close.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
    /// A group, if it is hosted.
    pub(crate) fn hosted(&self, group: GroupId) -> Option<&Group> {
        self.hosted.get(group)
    }
    /// The term of this life: the log's epoch.
    pub(crate) fn term(&self) -> Term {
        Term(self.store.epoch)
    }
    /// The position of a group that is hosted.
    pub(crate) fn position(&self, group: GroupId) -> usize {
        self.hosted.position(group).expect("operations of other groups are refused")
    }
    /// The scope of a group: who serves it serves these.
    pub fn scope_of(&self, group: GroupId) -> Scope {
        if self.is_replicated() { Scope::One(group) } else { Scope::All }
    }
    /// The numbers of all hosted groups, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = GroupId> {
        self.states().iter().map(|group| group.number)
    }
    /// True if the brick hosts the group.
    pub(crate) fn hosts(&self, group: GroupId) -> bool {
        self.hosted.get(group).is_some()
    }
    /// All hosted groups, in ascending order of their numbers.
    pub(crate) fn states(&self) -> &[Group] {
        self.hosted.all()
    }
    pub(crate) fn rename_token(&self) -> &Token {
        &self.rename
    }
    /// A buffer for a client's request. Waiting for it is booked in the request's span. Errors: as
    /// `Runtime::client_buffer`.
    pub(crate) fn buffer<'a>(
        &'a self,
        context: &'a Context,
        bytes: usize,
        need: Need,
    ) -> impl Future<Output = Result<Buf>> + 'a {
        self.store.runtime.client_buffer(bytes, need, Some(&context.span))
    }
    /// A timestamp for spans.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        self.store.runtime.stamp()
    }

    /// The volume that an operation is about: the catalogue (volume 0) for operations on volumes, else the caller's.
    pub(crate) fn volume_of(&self, context: &Context, op: &Op) -> VolumeId {
        match op {
            Op::VolumeCreate { .. }
            | Op::VolumeDelete { .. }
            | Op::VolumeRename { .. }
            | Op::VolumeResize { .. }
            | Op::VolumeLayers { .. }
            | Op::VolumePolicy { .. }
            | Op::VolumeLimits { .. } => VolumeId(0),
            _ => context.volume,
        }
    }

    /// The group of a new directory: by the request's number, so that directories spread evenly (rule M1) and the
    /// answer stays the same when the operation is evaluated again. The multiplier (2^64 over the golden ratio) mixes
    /// the number's bits: FUSE's request numbers are all even.
    ///
    /// Where groups have orders of their own, a directory in another group than its parent's costs three commits instead of one, and so does what
    /// is moved between the two. So only those right below a root are spread, and one in `SPREAD_ONE_IN` of the others: trees stay
    /// together, and a large one does not stay with one brick (as ext4 spreads top-level directories: the Orlov allocator).
    pub(crate) fn spread(&self, context: &Context, op: &Op) -> Spread {
        match op {
            Op::MakeDir { .. } => {
                let mixed = context.request.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let group = self.states()[mixed as usize % self.states().len()].number;
                let stays = self.is_across() && !(mixed >> 16).is_multiple_of(SPREAD_ONE_IN);
                Spread { group, stays }
            }
            _ => Spread { group: GroupId(0), stays: false },
        }
    }

    /// True while the overlay holds twice the bytes at which a checkpoint is due.
    #[inline]
    pub(crate) fn is_overfull(&self) -> bool {
        self.overlay_bytes() >= 2 * self.options.overlay_bytes
    }

    /// Waits while the overlay is overfull: memory is bounded (back-pressure).
    pub(crate) async fn throttle(&self) -> Result<()> {
        while self.is_overfull() {
            let ticket = self.checkpointed.ticket();
            self.store.log.check()?;
            if !self.is_overfull() {
                break;
            }
            self.checkpointed.after(ticket).await;
        }
        Ok(())
    }

    /// Waits until the log has another segment. Errors: `NoSpace`, `Interrupted` if the brick closes.
    pub(crate) async fn wait_for_segment(&self, ticket: u64) -> Result<()> {
        let log = &self.store.log;
        log.check()?;
        if log.stopping() {
            return Err(closing());
        }
        log.segment_wanted.notify();
        if log.out_of_space() && log.prepared() == 0 {
            return Err(Error::new(Kind::NoSpace, "the brick has no free segment left for its log"));
        }
        log.segment_came.after(ticket).await;
        Ok(())
    }

    /// Adds the growth of a group's overlay to the brick's total. Asks for a checkpoint once a group has cut as many
    /// blocks as `replay_bytes` holds: the checkpoint frees them, and deletions cause no more checkpoints than writes
    /// do.
    pub(crate) fn note_overlay(&self, state: &mut State) {
        if state.active.cut_blocks >= self.options.replay_bytes / BLOCK_BYTES as u64 {
            self.checkpoint_wanted.store(true, Ordering::Release);
        }
        let grown = state.active.bytes.saturating_sub(state.counted_bytes);
        state.counted_bytes += grown;
        self.overlay_bytes.fetch_add(grown as u64, Ordering::Relaxed);
    }
}

/// A step that has begun: a close of the brick waits for it, up to `STEPS_END_NS`. Made by `begin_step`.
pub(crate) struct Step<'a>(&'a Groups);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let before = self.0.steps.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a step begins before it ends");
    }
}

/// Longest time that a close waits for steps of tasks to end, and the pause between its checks. A step takes
/// milliseconds, unless it waits for the checkpoint that the close itself makes: hence the bound.
const STEPS_END_NS: u64 = 1_000_000_000;
const CLOSING_LOOK_NS: u64 = 1_000_000;
const _: () = assert!(CLOSING_LOOK_NS < STEPS_END_NS);
/// Largest number of checkpoints at a close. The second one takes changes that were ordered during the first; a third
/// is not needed.
const CLOSING_CHECKPOINTS_MAX: usize = 3;

pub(crate) fn closing() -> Error {
    Error::new(Kind::Interrupted, "the brick is being closed")
}

/// The refusal of inode numbers of groups that the brick does not have: clients may send any number.
pub(crate) fn foreign() -> Error {
    Error::new(Kind::Stale, "no such group: the inode number is of another brick")
}

fn told(reply: Reply) -> Answer {
    Answer { reply, data: None, position: None }
}
