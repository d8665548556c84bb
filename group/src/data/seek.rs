//! Search for data and holes of a file (lseek), in overlay and index, by existing leaves and not by blocks. A reserved
//! block is a hole until it is written. Each part of the answer is true at the moment in which that part was read.

use crate::state::State;
use crate::state::load::Wanted;
use crate::{Answer, Groups};
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{Error, FileKind, Ino, Inode, Kind, LeafKey, Reply, Result, Seek, VolumeId};
use names::Seen;
use runtime::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use store::format::keys;
use store::format::leaf::{Leaf, Slot};
use wire::Context;

/// Number of leaves searched under one acquisition of the group's lock: 16 MiB of the file, 0.2 ms.
const LEAVES: usize = 64;

/// The index's leaves of a part of a file.
struct Part {
    /// The range of leaves of which `Part` has all that are in the index.
    leaves: Range<u64>,
    rows: BTreeMap<u64, Leaf>,
}

impl Groups {
    /// The first byte of data, or of a hole, at `offset` or behind it.
    pub(crate) async fn seek(&self, context: &Context, ino: Ino, offset: u64, what: Seek) -> Result<Answer> {
        let size = self.seekable(context, ino).await?.size;
        let found = match offset < size {
            true => {
                self.find(context, ino, offset / BLOCK_BYTES as u64..size.div_ceil(BLOCK_BYTES as u64), what).await?
            }
            false => return Ok(told(None)),
        };
        let found = found.map(|block| offset.max(block * BLOCK_BYTES as u64));
        Ok(told(match what {
            Seek::Data => found,
            // Behind the last byte lies a hole.
            Seek::Hole => Some(found.unwrap_or(size).min(size)),
        }))
    }

    async fn seekable(&self, context: &Context, ino: Ino) -> Result<Inode> {
        loop {
            let seen = self.state(ino.group()).state.lock().inode(context.volume, ino);
            match seen {
                Seen::Known(Some(inode)) if inode.kind == FileKind::File => return Ok(inode),
                Seen::Known(Some(_)) => return Err(Error::new(Kind::Invalid, "only files have holes")),
                Seen::Known(None) => return Err(Error::new(Kind::Stale, "the file is gone")),
                _ => self.load(context.volume, vec![Wanted::Inode(ino)], Some(&context.span)).await?,
            }
        }
    }

    /// The first of some blocks that is mapped (or is not, when looking for a hole).
    async fn find(&self, context: &Context, ino: Ino, mut blocks: Range<u64>, what: Seek) -> Result<Option<u64>> {
        let group = self.state(ino.group());
        while !blocks.is_empty() {
            let merges = group.state.lock().merges;
            let part = self.part(context, ino, &blocks).await?;
            let before_ns = lock::waited_ns();
            let state = group.state.lock();
            // Leaves that were read while a checkpoint was merged may be stale: read again.
            if state.merges != merges {
                continue;
            }
            let (found, next) = part.search(&state, (context.volume, ino), &blocks, what);
            drop(state);
            self.mark_order(&context.span, before_ns);
            if found.is_some() {
                return Ok(found);
            }
            assert!(next > blocks.start, "a search goes on from block {next}");
            blocks.start = next;
        }
        Ok(None)
    }

    /// The first leaves of a range of blocks, as the index has them.
    async fn part(&self, context: &Context, ino: Ino, blocks: &Range<u64>) -> Result<Part> {
        let all = blocks.start / BLOCKS_PER_LEAF as u64..blocks.end.div_ceil(BLOCKS_PER_LEAF as u64);
        let (index, volume) = (self.store().index.clone(), context.volume);
        let read = move || -> Result<Part> {
            let (from, to) = keys::leaves_within(volume, ino, &all);
            let mut rows = BTreeMap::new();
            for (key, value) in index.scan(&from, &to, LEAVES)? {
                rows.insert(keys::leaf_number(&key), Leaf::decode(&value)?);
            }
            let end = match rows.last_key_value() {
                Some((last, _)) if rows.len() == LEAVES => last + 1,
                _ => all.end,
            };
            Ok(Part { leaves: all.start..end, rows })
        };
        self.in_pool(Some(&context.span), read).await
    }
}

impl Part {
    /// Searches a part for a block. Returns the block, if there is one, and the block at which to continue.
    fn search(&self, state: &State, file: (VolumeId, Ino), blocks: &Range<u64>, what: Seek) -> (Option<u64>, u64) {
        let mut from = blocks.start;
        for _ in 0..LEAVES {
            let at = from / BLOCKS_PER_LEAF as u64;
            let Some(leaf) = self.next(state, file, at) else {
                // No leaf up to the part's end: a hole.
                let end = (self.leaves.end * BLOCKS_PER_LEAF as u64).min(blocks.end);
                return ((what == Seek::Hole && from < end).then_some(from), end);
            };
            if leaf > at && what == Seek::Hole {
                return (Some(from), from);
            }
            let first = leaf * BLOCKS_PER_LEAF as u64;
            let end = (first + BLOCKS_PER_LEAF as u64).min(blocks.end);
            let wanted = |block: &u64| self.is_mapped(state, file, *block) == (what == Seek::Data);
            if let Some(block) = (from.max(first)..end).find(wanted) {
                return (Some(block), block);
            }
            from = end;
            if from >= blocks.end {
                break;
            }
        }
        (None, from)
    }

    /// The first leaf from `at` on that exists in the overlay or in the index.
    fn next(&self, state: &State, (volume, ino): (VolumeId, Ino), at: u64) -> Option<u64> {
        let counts = |leaf: &u64, row: &Leaf| row.trim >= state.purges.trim_of(volume, LeafKey { ino, leaf: *leaf });
        let indexed = self.rows.range(at..).find(|(leaf, row)| counts(leaf, row)).map(|(leaf, _)| *leaf);
        let overlaid = state.next_leaf(volume, ino, at..self.leaves.end);
        indexed.into_iter().chain(overlaid).min()
    }

    fn is_mapped(&self, state: &State, (volume, ino): (VolumeId, Ino), block: u64) -> bool {
        let (key, index) = LeafKey::of(ino, block);
        let slot = state.overlay_slot(volume, ino, block).or_else(|| {
            let row = self.rows.get(&key.leaf).filter(|row| row.trim >= state.purges.trim_of(volume, key));
            row?.get(index)
        });
        matches!(slot, Some(Slot::Local { .. }))
    }
}

fn told(found: Option<u64>) -> Answer {
    Answer { reply: Reply::Found(found), data: None, position: None }
}
