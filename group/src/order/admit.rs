//! Admission of client data (rules K4, K5): by logical bytes, so that a write is refused only if the brick or volume is
//! full of live data; then throttled to the pace that the cleaner keeps up with. Names, inodes and attributes count
//! with the bytes of their rows. Deletions pass when data and new names are refused, and all changes of names pass when
//! data waits for the cleaner.

use crate::order::held::Held;
use crate::order::write::Write;
use crate::state::load::Wanted;
use crate::state::overlay::Generation;
use crate::{Answer, Groups};
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use base::{At, Error, Ino, Kind, LeafKey, Name, Op, Reply, Result, Room, StatFs, Volume, VolumeId};
use names::Part;
use runtime::Stage;
use runtime::seeded::{Bug, active};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::format::charge;
use store::format::leaf::Slot;
use store::space::{Admission, Admitted};
use store::usage::Usage;
use wire::Context;

fn full() -> Error {
    Error::new(Kind::NoSpace, "the brick is full; delete something, or add space")
}

fn host_full() -> Error {
    Error::new(Kind::NoSpace, "the file system that holds the brick's directory is nearly full; free room on it")
}

/// The stage of a wait for the space that `error` says is lacking.
pub(crate) fn stage_of(error: &Error) -> Stage {
    if error.kind == Kind::Quota { Stage::Quota } else { Stage::Space }
}

fn volume_full() -> Error {
    Error::new(Kind::Quota, "the volume has reached its size; delete something in it")
}

/// True for operations that make the index larger for good.
fn adds(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::MakeDir { .. }
            | Op::SymLink { .. }
            | Op::MakeNode { .. }
            | Op::TempFile { .. }
            | Op::Rename { whiteout: true, .. }
            | Op::Link { .. }
            | Op::SetXattr { .. }
            | Op::VolumeCreate { .. }
    )
}

/// The admission of a volume that has a size of its own.
pub(crate) struct Quota {
    bound_bytes: AtomicU64,
    admission: Admission,
}

impl Quota {
    fn bound_bytes(&self) -> u64 {
        self.bound_bytes.load(Ordering::Acquire)
    }
    /// Changes the bound. No checkpoint measures at the same time: both hold the table's lock.
    fn resize(&self, bound_bytes: u64) {
        let before = self.bound_bytes.swap(bound_bytes, Ordering::AcqRel);
        self.admission.shift(bound_bytes as i64 - before as i64);
    }
    /// Takes back bytes that were admitted but need no space of their own.
    pub fn take_back(&self, bytes: u64) {
        self.admission.take_back(bytes);
    }
    /// Notes that a checkpoint makes its cut.
    pub fn begin_checkpoint(&self) {
        self.admission.begin_checkpoint();
    }
}

/// Blocks of a file that a client is about to write or reserve.
#[derive(Clone, Copy)]
struct Blocks {
    ino: Ino,
    first: u64,
    count: u64,
}

impl Blocks {
    fn of(ino: Ino, offset: u64, length: u64) -> Blocks {
        let block = BLOCK_BYTES as u64;
        let first = offset / block;
        // Evaluation refuses offsets so large that this saturates.
        let count = offset.saturating_add(length).div_ceil(block).saturating_sub(first);
        Blocks { ino, first, count }
    }
}

/// The bytes admitted by the brick and by a volume.
pub(crate) type Guards<'a> = (Admitted<'a>, Option<Admitted<'a>>);

/// Takes back admitted bytes whose write or change is not ordered after all.
pub(crate) fn take_back(guards: Option<Guards<'_>>) {
    let (brick, volume) = guards.unzip();
    brick.into_iter().chain(volume.flatten()).for_each(Admitted::take_back);
}

impl Groups {
    /// Admits a client's write; the guard is kept until the write is ordered. Errors: `NoSpace` if the live data of the
    /// brick leaves no space for it, `Quota` if that of the volume does not.
    pub(crate) async fn admit_data<'a>(
        &'a self,
        context: &Context,
        quota: Option<&'a Quota>,
        write: &Write,
    ) -> Result<Guards<'a>> {
        self.refuse_if_short()?;
        // An append may begin anywhere in a block; counted from 0, it covers as many blocks as may be new.
        let offset = if let At::Offset(offset) = write.at { offset } else { 0 };
        let count = Blocks::of(write.ino, offset, write.length.into()).count;
        let mut waited = false;
        let admitted = loop {
            let error = match self.admit(quota, count) {
                Ok(admitted) => break admitted,
                Err(error) => error,
            };
            if self.overwrites(context, write).await? {
                let bytes = count * BLOCK_BYTES as u64;
                let quota = quota.map(|quota| quota.admission.admit_overwrite(bytes));
                break (self.store().space.admission.admit_overwrite(bytes), quota);
            }
            // So far overwrites count as new blocks, and deleted data as if it still existed. A checkpoint counts what
            // is really used.
            let arrived = self.checkpoints();
            if !waited {
                waited = true;
                if self.wait_for_removed().await {
                    context.span.mark(stage_of(&error), self.stamp());
                    continue;
                }
            }
            if self.is_measured(quota) {
                // A checkpoint may have ended since the try above: once more.
                break self.admit(quota, count).map_err(|_| error)?;
            }
            self.checkpoint_after(arrived).await?;
            context.span.mark(stage_of(&error), self.stamp());
        };
        if !self.wait_for_room(self.store().space.floor_for_data()).await? {
            return Err(full());
        }
        let clock = &self.store().runtime.clock;
        if let Some(turn_ns) = self.store().space.turn(clock.now_ns(), count) {
            clock.sleep(turn_ns.saturating_sub(clock.now_ns())).await;
        }
        self.store().space.note_written(count);
        context.span.mark(Stage::Space, self.stamp());
        Ok(admitted)
    }

    fn refuse_if_short(&self) -> Result<()> {
        match self.store().host.is_short() {
            // If the brick has failed, that is the error to report (rule U4).
            true => self.store().log.check().and(Err(host_full())),
            false => Ok(()),
        }
    }

    /// Reserves space for a range of bytes of a file (rule K5): the blocks of the range that have no space yet are
    /// admitted. A request that only makes a hole is admitted like a truncation.
    pub(crate) async fn allocate(&self, context: &Context, op: &Op) -> Result<Answer> {
        let Op::Allocate { ino, offset, length, room, .. } = *op else { unreachable!("only called for fallocate") };
        if room == Room::Hole {
            return self.clear(context, op).await;
        }
        // A request that is delivered again has its space already.
        if let Some(outcome) = self.kept_result(context, op)? {
            return Box::pin(self.repeat(context, op, outcome)).await;
        }
        // Evaluation refuses empty ranges and those beyond the largest file.
        let blocks = Blocks::of(ino, offset, length.min(FILE_BYTES_MAX));
        let quota = self.quota(context.volume);
        let _admitted = self.admit_promise(context, quota.as_deref(), blocks).await?;
        context.span.mark(Stage::Space, self.stamp());
        match room {
            Room::Zeroed => self.clear(context, op).await,
            _ => self.change(context, op).await,
        }
    }

    async fn admit_promise<'a>(
        &'a self,
        context: &Context,
        quota: Option<&'a Quota>,
        blocks: Blocks,
    ) -> Result<Guards<'a>> {
        self.refuse_if_short()?;
        let (mut count, mut waited) = (blocks.count, false);
        loop {
            let error = match self.admit(quota, count) {
                Ok(admitted) => return Ok(admitted),
                Err(error) => error,
            };
            // So many blocks can't all be mapped already, since the brick has fewer: no need to count.
            let brick_bytes = self.store().segments().segments * self.store().segment_bytes();
            if blocks.count > 2 * brick_bytes / BLOCK_BYTES as u64 {
                return Err(error);
            }
            if !waited {
                waited = true;
                if self.wait_for_removed().await {
                    context.span.mark(stage_of(&error), self.stamp());
                    continue;
                }
            }
            let arrived = self.checkpoints();
            let new = self.new_blocks(context, blocks).await?;
            if new == count && self.is_measured(quota) {
                return Err(error);
            }
            if new == count {
                self.checkpoint_after(arrived).await?;
                context.span.mark(stage_of(&error), self.stamp());
            }
            count = new;
        }
    }

    /// Number of blocks of a range that are neither mapped nor reserved.
    async fn new_blocks(&self, context: &Context, blocks: Blocks) -> Result<u64> {
        let mut new = 0;
        for block in blocks.first..blocks.first + blocks.count {
            new += u64::from(self.is_new(context, blocks.ino, block).await?);
        }
        Ok(new)
    }

    /// True if a block takes space when it is written.
    async fn is_new(&self, context: &Context, ino: Ino, block: u64) -> Result<bool> {
        loop {
            let slot = {
                let mut state = self.state(ino.group()).state.lock();
                if state.is_promised(context.volume, ino, block) {
                    return Ok(false);
                }
                state.slot(context.volume, ino, block)
            };
            match slot {
                Some(slot) => return Ok(slot == Slot::Hole),
                None => {
                    self.load(context.volume, vec![Wanted::Leaf(LeafKey::of(ino, block).0)], Some(&context.span))
                        .await?
                }
            }
        }
    }

    fn admit<'a>(&'a self, quota: Option<&'a Quota>, blocks: u64) -> Result<Guards<'a>> {
        self.admit_bytes(quota, blocks.saturating_mul(BLOCK_BYTES as u64))
    }

    fn admit_bytes<'a>(&'a self, quota: Option<&'a Quota>, bytes: u64) -> Result<Guards<'a>> {
        let brick = &self.store().space.admission;
        let admitted = brick.admit(bytes).ok_or_else(full)?;
        let Some(quota) = quota else { return Ok((admitted, None)) };
        match quota.admission.admit(bytes) {
            Some(of_volume) => Ok((admitted, Some(of_volume))),
            None => {
                brick.take_back(bytes);
                Err(volume_full())
            }
        }
    }

    /// Admits the bytes that a decision adds to the rows of names, inodes and attributes; the guard is kept until the
    /// decision is ordered. A decision that adds nothing always passes. Errors: `NoSpace`, `Quota`, by the latest
    /// count.
    pub(crate) fn admit_names<'a>(
        &'a self,
        held: &mut Held<'_>,
        quota: Option<&'a Quota>,
        parts: &[Part],
    ) -> Result<Option<Guards<'a>>> {
        let mut growth = 0;
        for part in parts {
            // Those that have a part led elsewhere admit it there.
            let Some(state) = held.get(part.group) else { continue };
            growth += part.edits.iter().map(|edit| state.growth(part.volume, edit)).sum::<i64>();
        }
        match growth {
            ..=0 => Ok(None),
            _ if active(Bug::NamesNotCharged) => Ok(None),
            _ => self.admit_bytes(quota, growth as u64).map(Some),
        }
    }

    /// Waits for a checkpoint to count used space again, for names that found no space by the latest count. True if it
    /// is worth trying again. `counted`: number of checkpoints made for these names already.
    pub(crate) async fn count_again(&self, quota: Option<&Quota>, counted: &mut u32) -> Result<bool> {
        // While other clients change something, no count is exact, so two checkpoints must do: the second one has
        // counted everything that was deleted before this request came.
        if *counted >= 2 && !self.is_freeing() {
            return Ok(false);
        }
        if *counted == 0 {
            self.wait_for_removed().await;
        }
        let arrived = self.checkpoints();
        if self.is_measured(quota) {
            // A checkpoint may have ended since the last try: once more.
            *counted = 2;
            return Ok(true);
        }
        self.checkpoint_after(arrived).await?;
        *counted += 1;
        Ok(true)
    }

    /// True if every block of a write is mapped or reserved already, so that the write takes no space. A truncation or
    /// another append may come before the write and make its blocks new ones; the reserve has space for all writes that
    /// may be in flight.
    async fn overwrites(&self, context: &Context, write: &Write) -> Result<bool> {
        let offset = match write.at {
            At::Offset(offset) => offset,
            At::End => self.attributes(context, write.ino).await?.inode.size,
        };
        let blocks = Blocks::of(write.ino, offset, write.length.into());
        for block in blocks.first..blocks.first + blocks.count {
            if self.is_new(context, blocks.ino, block).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Admits a change of names. It waits only if so few segments are free that the cleaner itself needs them. New
    /// names are refused, like data, if the index has no space for more.
    pub(crate) async fn admit_change(&self, op: &Op) -> Result<()> {
        if adds(op) {
            self.refuse_if_short()?;
        }
        if active(Bug::LadderFlat) && self.store().space.admission.room() < BLOCK_BYTES as u64 {
            return Err(full());
        }
        // If nothing can be reclaimed, or if the wait finds that out, the change takes space of the reserve.
        if self.store().space.reclaims() {
            self.wait_for_room(self.store().space.floor_for_names()).await?;
        }
        Ok(())
    }

    /// Waits until more than `reserve` segments are free. False if the cleaner can't free any more.
    async fn wait_for_room(&self, reserve: usize) -> Result<bool> {
        loop {
            let ticket = self.store().space.came.ticket();
            if self.store().free_segments() > reserve {
                return Ok(true);
            }
            self.store().log.check()?;
            if self.store().log.stopping() {
                return Err(crate::closing());
            }
            if !self.store().space.reclaims() || active(Bug::RefusedWhileBehind) {
                return Ok(false);
            }
            self.store().space.came.after(ticket).await;
        }
    }

    /// True if the last checkpoint has counted exactly the live blocks: nothing has been ordered since or is about to
    /// be, and the checkpoint left nothing to free.
    fn is_measured(&self, quota: Option<&Quota>) -> bool {
        let flies =
            !self.store().space.admission.is_settled() || quota.is_some_and(|quota| !quota.admission.is_settled());
        let base = self.checkpoint_base.lock();
        let settled = self.checkpoints() > 0 && !self.is_freeing() && !flies;
        settled && self.store().log.figures().records == base.records
    }

    /// Waits for a checkpoint that begins after this call, whichever task makes it. `arrived`: number of checkpoints
    /// when the caller decided to wait.
    pub(crate) async fn checkpoint_after(&self, arrived: u64) -> Result<()> {
        let _one = self.checkpoint_token.take().await;
        // If two checkpoints have ended since, the second one began after the call.
        if self.checkpoints.load(Ordering::Relaxed) >= arrived + 2 { Ok(()) } else { self.checkpoint_now().await }
    }

    /// Notes the present size of a volume: none, its first, or another one than before; and its policy.
    pub(crate) fn note_volume(&self, volume: &Volume) {
        self.wishes.note_policy(volume);
        let mut quotas = self.quotas.lock();
        let Some(bytes) = volume.size_bytes else {
            quotas.remove(&volume.id);
            return;
        };
        let bound = bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        match quotas.get(&volume.id) {
            Some(quota) => quota.resize(bound),
            None => {
                let admission = Admission::new(bound.saturating_sub(self.used_by(volume.id).bytes()));
                quotas.insert(volume.id, Arc::new(Quota { bound_bytes: AtomicU64::new(bound), admission }));
            }
        }
        self.has_quotas.store(true, Ordering::Release);
    }
    /// Gives a volume another size, if its content fits. Errors: `NotFound`; `Invalid` with the figures if it uses
    /// more.
    pub(crate) async fn resize_volume(
        &self,
        context: &Context,
        op: &Op,
        name: &Name,
        size_bytes: Option<u64>,
    ) -> Result<Answer> {
        if let Some(bytes) = size_bytes {
            let volume = self.volume(name).await?;
            self.checkpoint_after(self.checkpoints.load(Ordering::Relaxed)).await?;
            let used = self.used_by(volume.id).bytes();
            if used > bytes {
                let figures = format!("{used} bytes used, {bytes} wanted; delete something in it first");
                return Err(Error::new(Kind::Invalid, "the volume uses more than that").with(figures));
            }
        }
        self.change_volume(context, op).await
    }
    /// Makes, changes or deletes a volume, and takes over what the answer says of it.
    pub(crate) async fn change_volume(&self, context: &Context, op: &Op) -> Result<Answer> {
        let answer = self.change(context, op).await?;
        if let Reply::Volume(volume) = &answer.reply {
            self.note_volume(volume);
        }
        Ok(answer)
    }
    /// Admits the blocks that replay has mapped: the former process had admitted them, and no checkpoint has counted
    /// them yet.
    pub(crate) fn note_replayed(&self) {
        self.uncounted.store(true, Ordering::Release);
        let admit = |volume: VolumeId, bytes: u64| {
            drop(self.store().space.admission.admit_overwrite(bytes));
            if let Some(quota) = self.quota(volume) {
                drop(quota.admission.admit_overwrite(bytes));
            }
        };
        for group in self.states() {
            let state = group.state.lock();
            for ((volume, _), patch) in &state.active.leaves {
                admit(*volume, patch.leaf.places().count() as u64 * BLOCK_BYTES as u64);
            }
            for ((volume, _), more) in &state.active.counts {
                admit(*volume, (more.inodes * charge::INODE as i64 + more.names).max(0) as u64);
            }
        }
    }
    /// False if a checkpoint would make the space in use known more exactly: records came since the last checkpoint
    /// began, replay has applied some, or an admitted change was not ordered.
    pub(crate) fn space_is_exact(&self) -> bool {
        let base = self.checkpoint_base.lock().records;
        !self.uncounted.load(Ordering::Acquire)
            && self.store().log.figures().records == base
            && self.store().space.admission.is_measured()
            && self.quotas.lock().values().all(|quota| quota.admission.is_measured())
    }
    /// The volume's quota, if it has a size of its own.
    pub(crate) fn quota(&self, volume: VolumeId) -> Option<Arc<Quota>> {
        // Most bricks have no quota, and then the lock is not taken.
        let some = self.has_quotas.load(Ordering::Acquire);
        some.then(|| self.quotas.lock().get(&volume).cloned()).flatten()
    }
    /// Notes the space of volumes that a checkpoint has counted.
    pub(crate) fn measure_quotas(&self) {
        for (volume, quota) in self.quotas.lock().iter() {
            quota.admission.measured(quota.bound_bytes(), self.used_by(*volume).bytes());
        }
    }
    /// The space that a volume used at the last checkpoint. Another checkpoint follows soon if there is anything new to
    /// count.
    pub fn used(&self, volume: VolumeId) -> Usage {
        self.space_asked.store(true, Ordering::Release);
        self.used_by(volume)
    }
    fn used_by(&self, volume: VolumeId) -> Usage {
        let mut sum = Usage::default();
        self.store().usage(volume).values().for_each(|usage| sum.add(usage));
        sum
    }
    /// Space as seen by clients of a volume.
    pub(crate) fn statfs(&self, volume: VolumeId) -> StatFs {
        self.space_asked.store(true, Ordering::Release);
        let brick = StatFs { inodes: self.inodes(volume), ..self.store().space.statfs() };
        let Some(quota) = self.quota(volume) else { return brick };
        let (size, free) = (quota.bound_bytes(), quota.admission.room());
        StatFs { size_bytes: size, free_bytes: free.min(size).min(brick.free_bytes), ..brick }
    }
    /// Number of inodes of a volume: the last checkpoint's, corrected by those created and freed since.
    fn inodes(&self, volume: VolumeId) -> u64 {
        let counted = self.used_by(volume).inodes;
        let since = |group: &crate::Group| -> i64 {
            let state = group.state.lock();
            let layers = [Some(&state.active), state.frozen.as_deref()].into_iter().flatten();
            let births = |layer: &Generation| -> i64 {
                layer.counts.range((volume, 0)..=(volume, u32::MAX)).map(|(_, more)| more.inodes).sum()
            };
            layers.map(births).sum()
        };
        counted.saturating_add_signed(self.states().iter().map(since).sum())
    }
}
