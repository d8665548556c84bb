//! The number of blocks that a file occupies (decision 0032): the last checkpoint's count, and the changes in the
//! overlay since. The count does not say which blocks of a file are mapped. So whether a write in the overlay maps a
//! block for the first time is known only if all or none of the file's blocks were mapped or reserved at the
//! checkpoint. Otherwise the number is an estimate until the next checkpoint.

use crate::state::State;
use crate::state::intervals::Intervals;
use crate::state::overlay::{Generation, blocks_of};
use base::limits::BLOCKS_PER_LEAF;
use base::{Attr, Blocks, FileKind, Ino, Inode, LeafKey, VolumeId};
use std::ops::Range;
use store::format::leaf::Leaf;

/// A file's blocks at the last checkpoint.
struct Counted {
    /// Blocks that may have been mapped or reserved.
    domain: Intervals,
    /// Number of blocks of the domain that were mapped or reserved.
    taken: u64,
    /// True if blocks of the file are yet to be freed, so that `taken` is too large.
    freeing: bool,
}

/// A function that counts the blocks that the overlay maps in a range of a leaf's slots.
type Slots<'a> = dyn Fn(Range<usize>) -> usize + 'a;

/// The changes in the overlay since the checkpoint.
struct Since {
    /// Blocks of the domain that have not been cut since, and blocks reserved since: those that are occupied for sure
    /// if all of the domain was.
    taken: Intervals,
    /// Number of blocks of the domain that have not been cut since.
    kept: u64,
    /// Number of blocks mapped since: `within` the part of the domain that was not cut, and `beyond` everything that
    /// may be occupied already.
    within: u64,
    beyond: u64,
    /// True if a part of the domain was cut, or reserved again.
    changed: bool,
}

impl State {
    /// An inode's attributes with its number of blocks. `counted`: see `blocks`.
    pub fn attributes(&mut self, volume: VolumeId, ino: Ino, inode: Inode, counted: Option<u64>) -> Attr {
        let attr = Attr::new(ino, inode);
        let blocks = self.blocks(volume, ino, &inode, counted).unwrap_or(attr.blocks);
        Attr { blocks, ..attr }
    }

    /// The number of blocks that an inode occupies; None if its row must be read first. `counted`: the number of blocks
    /// that `counted_inode` returned with the inode, if nothing has been ordered since.
    #[inline]
    pub fn blocks(&mut self, volume: VolumeId, ino: Ino, inode: &Inode, counted: Option<u64>) -> Option<Blocks> {
        if inode.kind != FileKind::File {
            return Some(Blocks { count: 0, exact: true });
        }
        match counted {
            // Nearly always no file of the group has reserved blocks.
            Some(count) if self.reserves.files.is_empty() => {
                let exact = self.purges.cuts_of(volume, ino) == 0;
                Some(Blocks { count: count.min(blocks_of(inode.size)), exact })
            }
            _ => self.changed_blocks(volume, ino, inode),
        }
    }

    fn changed_blocks(&mut self, volume: VolumeId, ino: Ino, inode: &Inode) -> Option<Blocks> {
        let promises = |layer: &Generation| !layer.promises.is_empty();
        if inode.size == 0
            && self.is_young(ino)
            && !promises(&self.active)
            && !self.frozen.as_deref().is_some_and(promises)
        {
            return Some(Blocks { count: 0, exact: true });
        }
        let counted = self.counted(volume, ino)?;
        let exact = |count| Some(Blocks { count, exact: !counted.freeing });
        if self.inode_slot(volume, ino).is_none() {
            return exact(counted.taken);
        }
        let all = counted.domain.count();
        let since = self.since(volume, ino, &counted.domain, counted.taken > 0);
        if counted.taken == all || counted.taken == 0 || since.kept == 0 {
            return exact(since.taken.count() + since.beyond);
        }
        // An unknown part of the domain was taken.
        assert!(since.taken.count() >= since.kept, "what was kept is taken");
        let new = since.taken.count() - since.kept;
        if since.within == 0 && !since.changed {
            return exact(counted.taken + new + since.beyond);
        }
        let count = (counted.taken.min(since.kept) + since.within).min(all) + new + since.beyond;
        Some(Blocks { count, exact: false })
    }

    fn counted(&mut self, volume: VolumeId, ino: Ino) -> Option<Counted> {
        let none = Counted { domain: Intervals::default(), taken: 0, freeing: false };
        if self.is_young(ino) {
            return Some(none);
        }
        let Some((inode, blocks)) = self.inodes.get(&(volume, ino), |indexed| *indexed)? else { return Some(none) };
        let end = blocks_of(inode.size);
        let (mut domain, mut taken) = (Intervals::of(0..end), blocks.min(end));
        if let Some(reserve) = self.reserves.files.get(&(volume, ino)) {
            reserve.extents.iter().for_each(|extent| domain.add(extent.first..extent.end));
            taken += reserve.left();
        }
        let freeing = self.purges.cuts_of(volume, ino) > 0;
        Some(Counted { taken: taken.min(domain.count()), domain, freeing })
    }

    /// The overlay's changes of a file. `some`: a part of the domain was occupied.
    fn since(&self, volume: VolumeId, ino: Ino, domain: &Intervals, some: bool) -> Since {
        let layers = || self.frozen.as_deref().into_iter().chain([&self.active]);
        let mut kept = if some { domain.clone() } else { Intervals::default() };
        let mut changed = false;
        let mut taken = kept.clone();
        for layer in layers() {
            for cut in layer.cuts.get(&(volume, ino)).into_iter().flat_map(|cuts| cuts.iter()) {
                changed |= domain.meet(&cut);
                kept.remove(&cut);
                taken.remove(&cut);
            }
            for range in layer.promises.get(&(volume, ino)).into_iter().flatten() {
                changed |= domain.meet(range);
                taken.add(range.clone());
            }
        }
        let (mut within, mut beyond) = (0, 0);
        let mut count = |key: LeafKey, slots: &Slots<'_>| {
            let first = key.leaf * BLOCKS_PER_LEAF as u64;
            let blocks = first..first + BLOCKS_PER_LEAF as u64;
            // A leaf that meets nothing of the domain or of reserved ranges has only new blocks.
            match (taken.meet(&blocks), some && domain.meet(&blocks)) {
                (false, false) => beyond += slots(0..BLOCKS_PER_LEAF) as u64,
                _ => {
                    for index in (0..BLOCKS_PER_LEAF).filter(|index| slots(*index..index + 1) > 0) {
                        let block = first + index as u64;
                        match (some && kept.hold(block), taken.hold(block)) {
                            (true, _) => within += 1,
                            (false, true) => {}
                            (false, false) => beyond += 1,
                        }
                    }
                }
            }
        };
        self.each_leaf(volume, ino, &mut count);
        Since { kept: kept.count(), taken, within, beyond, changed }
    }

    /// Calls `with` for each leaf of which the overlay maps blocks, with a function that counts them in a range of
    /// slots.
    fn each_leaf(&self, volume: VolumeId, ino: Ino, with: &mut dyn FnMut(LeafKey, &Slots<'_>)) {
        let ends = [0, u64::MAX].map(|leaf| (volume, LeafKey { ino, leaf }));
        let in_range = |leaf: &Leaf, range: Range<usize>| match range.len() {
            BLOCKS_PER_LEAF => leaf.len(),
            _ => range.filter(|index| leaf.get(*index).is_some()).count(),
        };
        for ((_, key), patch) in self.active.leaves.range(ends[0]..=ends[1]) {
            with(*key, &|range| in_range(&patch.leaf, range));
        }
        let Some(frozen) = &self.frozen else { return };
        for ((_, key), patch) in frozen.leaves.range(ends[0]..=ends[1]) {
            let first = key.leaf * BLOCKS_PER_LEAF as u64;
            let newer = |active: &Generation, index: usize| active.slot(volume, ino, first + index as u64).is_some();
            let mapped = |index: &usize| patch.leaf.get(*index).is_some() && !newer(&self.active, *index);
            with(*key, &|range| range.filter(mapped).count());
        }
    }
}
