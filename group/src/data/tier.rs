//! Tiers that blocks belong on: hints of inodes and policies of volumes (decision 0064). Promises: a brick on which nobody has ever given a hint looks for
//! none; what moves blocks asks once per file of a segment, and reads past the caches. A hint is a wish: one that changes meanwhile, or
//! can't be read, is no reason to fail.

use crate::{Answer, Groups};
use base::{Ino, Kind, Op, Result, TierHint, TierPolicy, Volume, VolumeId};
use names::Seen;
use runtime::Lock;
use runtime::seeded::{Bug, active};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::Store;
use store::format::summary::SummaryEntry;
use store::format::superblock::{TIER_HINTS, TIER_POLICIES};
use store::format::{keys, values};
use wire::Context;

/// Rows of inodes that are read in one trip to the pool.
const ROWS_AT_ONCE: usize = 256;
/// Attempts to mark the brick while somebody else changes its superblock, and the pause between them.
const MARKS_MAX: u32 = 200;
const MARK_NS: u64 = 5_000_000;

/// The hints of a brick, as far as they are kept in memory.
pub(crate) struct Wishes {
    /// False if no inode has ever had a hint.
    hints: AtomicBool,
    /// Volumes whose policy keeps all of their blocks on flash, and whether there are any.
    flash_only: Lock<BTreeSet<VolumeId>>,
    has_flash_only: AtomicBool,
    /// Number of changes since start.
    changes: AtomicU64,
    /// Pinned blocks that went down all the same, because flash was full of such.
    unpinned: AtomicU64,
}

impl Wishes {
    pub fn new(store: &Store) -> Wishes {
        Wishes {
            hints: AtomicBool::new(store::feature::is_announced(store, TIER_HINTS)),
            flash_only: Lock::new("policies", BTreeSet::new()),
            has_flash_only: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            unpinned: AtomicU64::new(0),
        }
    }
    /// True if a block may belong on a tier of its own.
    pub fn any(&self) -> bool {
        self.hints.load(Ordering::Acquire) || self.has_flash_only.load(Ordering::Acquire)
    }
    /// Takes over a volume's policy.
    pub fn note_policy(&self, volume: &Volume) {
        let mut flash_only = self.flash_only.lock();
        let changed = match volume.policy {
            TierPolicy::FlashOnly => flash_only.insert(volume.id),
            TierPolicy::WriteBack => flash_only.remove(&volume.id),
        };
        self.has_flash_only.store(!flash_only.is_empty(), Ordering::Release);
        self.changes.fetch_add(u64::from(changed), Ordering::AcqRel);
    }
    /// The hint that a volume's policy gives all of its inodes, whatever their own.
    fn of_volume(&self, volume: VolumeId) -> Option<TierHint> {
        if !self.has_flash_only.load(Ordering::Acquire) {
            return None;
        }
        self.flash_only.lock().contains(&volume).then_some(TierHint::Flash)
    }
    /// Number of changes since start.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
    /// Counts pinned blocks that go down.
    pub fn note_unpinned(&self, blocks: usize) {
        self.unpinned.fetch_add(blocks as u64, Ordering::Relaxed);
    }
}

impl Groups {
    /// Blocks that belong on flash and went down to disks all the same since start, because flash was full of such.
    pub fn unpinned_blocks(&self) -> u64 {
        self.wishes.unpinned.load(Ordering::Relaxed)
    }

    /// Sets or removes an inode's tier hint. Before the first one of the brick is set, the brick is marked: from then on the cleaner
    /// looks for hints. Errors: as for other attributes; `Busy` while somebody else changes the superblock.
    pub(crate) async fn change_tier_hint(&self, context: &Context, op: &Op) -> Result<Answer> {
        // Others are refused when they are evaluated.
        let is_good = matches!(op, Op::SetXattr { value, .. } if TierHint::of(value).is_some());
        if is_good && !self.wishes.hints.load(Ordering::Acquire) {
            self.announce_hints().await?;
        }
        let answer = self.change(context, op).await?;
        self.wishes.changes.fetch_add(1, Ordering::AcqRel);
        Ok(answer)
    }

    async fn announce_hints(&self) -> Result<()> {
        let mut tries = 0;
        while let Err(error) = store::feature::announce(self.store(), TIER_HINTS).await {
            if error.kind != Kind::Busy || tries == MARKS_MAX {
                return Err(error);
            }
            tries += 1;
            self.store().runtime.clock.sleep(MARK_NS).await;
        }
        self.wishes.hints.store(true, Ordering::Release);
        Ok(())
    }

    /// Gives a volume another policy, for good; from then on no block is taken for the destage against it. Before a volume has any but
    /// the default, the brick is marked: a build that knows no policies would not keep to it. Errors: `NotFound`; those of
    /// `store::feature::require`.
    pub(crate) async fn set_policy(&self, context: &Context, op: &Op, policy: TierPolicy) -> Result<Answer> {
        if policy != TierPolicy::default() {
            store::feature::require(self.store(), TIER_POLICIES).await?;
        }
        self.change_volume(context, op).await
    }

    /// The hint of an inode that is in memory, or of its volume; None if it isn't there.
    fn hint_in_memory(&self, volume: VolumeId, ino: Ino) -> Option<Option<TierHint>> {
        if let Some(hint) = self.wishes.of_volume(volume) {
            return Some(Some(hint));
        }
        if !self.hosts(ino.group()) {
            return Some(None);
        }
        match self.state(ino.group()).state.lock().inode(volume, ino) {
            Seen::Known(inode) => Some(inode.and_then(|inode| inode.xattrs.tier())),
            _ => None,
        }
    }

    /// The hints of these inodes that are not in memory, as the index has them.
    async fn read_hints(&self, inodes: &[(VolumeId, Ino)]) -> Vec<Option<TierHint>> {
        let mut hints = Vec::with_capacity(inodes.len());
        for some in inodes.chunks(ROWS_AT_ONCE) {
            let (index, some) = (self.store().index.clone(), some.to_vec());
            let read = move |(volume, ino)| {
                let row = index.get(&keys::inode(volume, ino)).ok().flatten()?;
                values::decode_inode(&row).ok()?.xattrs.tier()
            };
            hints.extend(self.in_pool(None, move || some.into_iter().map(read).collect::<Vec<_>>()).await);
        }
        assert!(hints.len() == inodes.len(), "each was asked for");
        hints
    }

    /// Takes the blocks out of `entries` whose inodes have this hint.
    pub(crate) async fn take_hinted(&self, entries: &mut Vec<SummaryEntry>, hint: TierHint) -> Vec<SummaryEntry> {
        if !self.wishes.any() || active(Bug::HintUnread) {
            return Vec::new();
        }
        let mut inodes: Vec<_> = entries.iter().map(|entry| (entry.volume, entry.ino)).collect();
        inodes.sort_unstable();
        inodes.dedup();
        let (mut wanted, mut missing) = (Vec::new(), Vec::new());
        for one in inodes {
            match self.hint_in_memory(one.0, one.1) {
                Some(known) if known == Some(hint) => wanted.push(one),
                Some(_) => {}
                None => missing.push(one),
            }
        }
        let read = self.read_hints(&missing).await;
        wanted.extend(missing.into_iter().zip(read).filter(|(_, found)| *found == Some(hint)).map(|(one, _)| one));
        wanted.sort_unstable();
        let is_wanted = |entry: &mut SummaryEntry| wanted.binary_search(&(entry.volume, entry.ino)).is_ok();
        let before = entries.len();
        let taken: Vec<_> = entries.extract_if(.., is_wanted).collect();
        assert!(taken.len() + entries.len() == before, "a block is taken or stays");
        taken
    }
}
