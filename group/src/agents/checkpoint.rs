//! The decision when to checkpoint the overlay into the index (rule X2): when it is large or a replay would take long,
//! never by the clock; and once when changes have stopped, so that reported space is exact. Only records below the
//! durable position are checkpointed (rule U5).

use crate::Groups;
use crate::agents::cost::Cost;
use base::{Error, Kind, Result, Sync};
use runtime::budget::Agent;
use runtime::seeded::{Bug, active};
use runtime::tasks::run_background;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::checkpoint::Change;
use store::{GroupPart, Replay};

/// Interval between checks of the replay estimate, which grows by the log's bytes, at most a few GB/s.
const LOOK_NS: u64 = 100_000_000;

/// Interval between checks of the free space in the brick's file system, besides those at each checkpoint.
const HOST_NS: u64 = 1_000_000_000;

/// Pause between checkpoints that are made for clients who ask for space while changes go on: in multiples of the duration of the
/// last one, so that clients keep most of the device and of a core, and at least.
const ASKED_PAUSE: u64 = 4;
const ASKED_NS: u64 = 1_000_000_000;

/// The measurement of how long nothing has been ordered.
#[derive(Default)]
struct Quiet {
    records: u64,
    since_ns: u64,
}

impl Quiet {
    /// Returns two flags: the brick is at rest; a client has asked for its free space.
    fn look(&mut self, groups: &Groups, now_ns: u64) -> (bool, bool) {
        let quiet_ns = groups.options.quiet_ns;
        if quiet_ns == u64::MAX {
            return (false, false);
        }
        let records = groups.store().log.figures().records;
        if records != self.records {
            (self.records, self.since_ns) = (records, now_ns);
        }
        assert!(now_ns >= self.since_ns, "the clock does not go back");
        (now_ns - self.since_ns >= quiet_ns, groups.space_asked.load(Ordering::Acquire))
    }
}

/// The checkpoint task. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>) {
    let clock = groups.store().runtime.clock.clone();
    let (mut tell_from_ns, mut looked_ns) = (0, 0);
    let mut quiet = Quiet::default();
    loop {
        clock.sleep(LOOK_NS).await;
        if groups.is_closing() {
            return;
        }
        groups.wall_ns.store(clock.wall().0, Ordering::Relaxed);
        // An error has stopped the log, so the next change gets it.
        let _ = groups.reserve_numbers_ahead().await;
        let began_ns = clock.now_ns();
        if began_ns - looked_ns >= HOST_NS {
            let store = groups.store().clone();
            run_background(&*groups.store().runtime.tasks, move || store.check_host_room()).await;
            looked_ns = began_ns;
        }
        let scrub = groups.store().scrub.wants_checkpoint();
        let wanted = groups.checkpoint_wanted.swap(false, Ordering::AcqRel) || scrub;
        let (rests, asked) = quiet.look(&groups, began_ns);
        let tells = (rests || (asked && began_ns >= tell_from_ns)) && !groups.space_is_exact();
        let needed = wanted || tells || groups.checkpoint_is_due();
        // What is only freed draws from the budget of background work; every other checkpoint frees as much on its way.
        let freeing =
            (!needed && groups.is_freeing()).then(|| groups.store().runtime.begin_slice(Agent::Free).ok()).flatten();
        if needed || freeing.is_some() {
            if groups.checkpoint().await.is_err() {
                return;
            }
            let ended_ns = clock.now_ns();
            groups.space_asked.store(false, Ordering::Release);
            tell_from_ns = ended_ns + (ASKED_PAUSE * (ended_ns - began_ns)).max(ASKED_NS);
        }
    }
}

impl Groups {
    fn checkpoint_is_due(&self) -> bool {
        let limits = &self.options;
        if active(Bug::CheckpointNeverDue) {
            return false;
        }
        let cost = self.replay_cost();
        self.overlay_bytes.load(Ordering::Relaxed) >= limits.overlay_bytes
            || cost.bytes >= limits.replay_bytes
            || cost.records >= limits.replay_records
            || cost.is_due()
    }

    /// Upper estimate of the duration of a replay if the brick were killed now, in nanoseconds (rule X2).
    pub fn replay_ns(&self) -> u64 {
        self.replay_cost().ns()
    }

    /// Bytes of log that a replay would read now.
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog().0
    }

    /// Bytes and records that a replay would read now.
    fn backlog(&self) -> (u64, u64) {
        // In this order: a checkpoint that ends in between has a base that is no later than the figures.
        let (base, replayed) = (*self.checkpoint_base.lock(), *self.replayed.lock());
        let figures = self.store().log.figures();
        assert!(figures.records >= base.records && figures.bytes >= base.bytes, "what was logged stays counted");
        (figures.bytes - base.bytes + replayed.bytes, figures.records - base.records + replayed.records)
    }

    fn replay_cost(&self) -> Cost {
        let (bytes, records) = self.backlog();
        Cost { bytes, records, loads: self.loads() }
    }

    /// Number of look-ups in the index that a replay would make now.
    fn loads(&self) -> u64 {
        let of = |group: &crate::Group| {
            let state = group.state.lock();
            state.active.loads + state.frozen.as_ref().map_or(0, |frozen| frozen.loads)
        };
        self.states().iter().map(of).sum()
    }

    /// Makes a checkpoint of everything ordered so far, one at a time. If that fails, the brick takes no more changes
    /// (rule U4): the frozen generation has not reached the index, and only the log still has it.
    pub async fn checkpoint(&self) -> Result<()> {
        let _one = self.checkpoint_token.take().await;
        self.checkpoint_now().await
    }

    /// Makes a checkpoint like `checkpoint`; called by the holder of the checkpoint token.
    pub(crate) async fn checkpoint_now(&self) -> Result<()> {
        let done = match self.store().log.failed() {
            None => self.merge_overlays().await,
            Some(error) => Err(error),
        };
        if let Err(error) = &done {
            self.store().log.fail(error.clone().with("checkpoint"));
        }
        self.checkpointed.notify();
        done
    }

    async fn merge_overlays(&self) -> Result<()> {
        let figures = self.store().log.figures();
        // The cut comes first. A record that is ordered between the cut and its group's freeze is in the checkpoint and
        // behind the place where replay starts; replay skips it by its index.
        self.quotas.lock().values().for_each(|quota| quota.begin_checkpoint());
        let (mut replay, last) = self.store().cut();
        if self.replication.is_some() {
            // Without a majority nothing new comes, so nothing is lost by waiting for it.
            let Some(ends) = self.settle_replicas().await else { return Ok(()) };
            replay = self.replay_for_all(replay, ends);
        }
        let mut frozen = Vec::new();
        for group in self.states() {
            let mut state = group.state.lock();
            let counted = state.counted_bytes as u64;
            if !state.replica.as_ref().is_none_or(|replica| replica.is_settled(state.row.applied)) {
                let what =
                    "a checkpoint met records that are not committed (rule P21): please report this, it is a bug";
                return Err(Error::new(Kind::Corrupt, what));
            }
            if state.freeze() {
                let before = self.overlay_bytes.fetch_sub(counted, Ordering::Relaxed);
                assert!(before >= counted, "group {} takes {counted} bytes out of {before}", state.group);
            }
            let applied = state.row.applied;
            let replica = state.replica.as_mut().map(|replica| replica.include(applied));
            if state.frozen.is_some() || !state.purges.is_empty() || self.store().has_counted() || replica.is_some() {
                let left = (state.purges.clone(), state.reserves.clone());
                frozen.push((state.group, (state.row, state.young(), replica), state.frozen.clone(), left));
            }
        }
        self.resume_replicas();
        if !active(Bug::AppliedBeforeDurable) {
            // A record may have been ordered after the cut and before its group was frozen.
            let last = last.max(self.store().log.last_batch());
            self.store().log.wait(last, Sync::All, None).await?;
            let durable = self.store().log.positions().durable;
            let promised = durable >= last || active(Bug::AckBeforeFlush);
            assert!(promised, "batch {last} goes into the index, and {durable} is durable (rule U5)");
        }
        let (store, limits, count) = (self.store().clone(), self.options.free, frozen.len());
        let write = move || {
            let parts = frozen.into_iter().map(|(group, (row, young, replica), generation, (purges, reserves))| {
                let mut changes = generation.map_or(Vec::new(), |generation| generation.changes());
                let (replica, healed) = replica.unzip();
                changes.extend(healed.filter(|healed| *healed).map(|_| Change::Healed));
                GroupPart { group, row, young, changes, purges, reserves, replica }
            });
            store::checkpoint::write(&store, replay, parts.collect(), limits)
        };
        let left = run_background(&*self.store().runtime.tasks, write).await?;
        assert!(left.len() == count, "of {count} groups {} come back from the checkpoint", left.len());
        self.purging.store(left.iter().any(|left| !left.purges.is_empty()), Ordering::Release);
        for left in left {
            let given = self.given_from(left.group);
            let mut state = self.state(left.group).state.lock();
            let merged = state.merged(left);
            state.forget_kept((self.options.kept_records, self.states().len() as u64), given);
            drop(state);
            drop(merged);
        }
        self.measure_quotas();
        self.uncounted.store(false, Ordering::Release);
        let before = std::mem::replace(&mut *self.checkpoint_base.lock(), figures);
        assert!(before.records <= figures.records, "what was logged stays counted");
        *self.replayed.lock() = Replay::default();
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
