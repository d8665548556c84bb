//! Reads of many runs of blocks, which lie anywhere: many at a time, and near ones with one transfer.

use crate::Groups;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Kind, Result};
use runtime::transfer::Transfer;
use runtime::{Purpose, Slice, Start};
use std::collections::VecDeque;
use store::format::record::Run;

/// Blocks of a read: the largest transfer.
const READ_BLOCKS_MAX: u16 = (IO_BYTES_MAX / BLOCK_BYTES) as u16;
/// Blocks between two runs that are read with them: between batches of the log lie their descriptions.
const GAP_BLOCKS_MAX: u16 = 4;

/// A run of blocks to be read, and the caller's name for it.
pub(crate) struct ToRead<K> {
    pub run: Run,
    pub of: K,
}

impl<K> ToRead<K> {
    fn end(&self) -> u16 {
        self.run.place.block + self.run.count
    }
}

/// Splits runs, which are in the order of their places, into those that one transfer reads.
fn transfers<K>(mut rest: &[ToRead<K>]) -> Vec<&[ToRead<K>]> {
    let mut transfers = Vec::new();
    while let Some(first) = rest.first() {
        let (from, mut end) = (first.run.place, first.end());
        let is_near = |wanted: &&ToRead<K>| {
            let place = wanted.run.place;
            let fits = place.segment == from.segment && wanted.end().max(end) - from.block <= READ_BLOCKS_MAX;
            let is_near = fits && place.block <= end + GAP_BLOCKS_MAX;
            end = end.max(wanted.end());
            is_near
        };
        let count = 1 + rest[1..].iter().take_while(is_near).count();
        let (one, others) = rest.split_at(count);
        transfers.push(one);
        rest = others;
    }
    transfers
}

impl Groups {
    /// Reads runs of blocks, and returns each with its name, in the order of their names. The caller has pinned the store since it learned their
    /// places, and compares checksums. `reads_max`: transfers under way at a time. Errors, for each run: those of the device; `Host` if there is no memory.
    pub(crate) async fn gather<K: Copy + Ord>(
        &self,
        mut wanted: Vec<ToRead<K>>,
        reads_max: usize,
    ) -> Vec<(K, Result<Slice>)> {
        wanted.sort_unstable_by_key(|wanted| (wanted.run.place.segment, wanted.run.place.block));
        let (mut read, mut begun) = (Vec::with_capacity(wanted.len()), VecDeque::new());
        for together in transfers(&wanted) {
            if begun.len() == reads_max {
                self.end_gather(begun.pop_front().expect("there are some"), &mut read).await;
            }
            begun.push_back((together, self.begin_gather(together).await));
        }
        for begun in begun {
            self.end_gather(begun, &mut read).await;
        }
        assert!(read.len() == wanted.len(), "each run is told of once");
        read.sort_unstable_by_key(|(of, _)| *of);
        read
    }

    async fn begin_gather<K>(&self, together: &[ToRead<K>]) -> Result<Transfer> {
        let from = together[0].run.place;
        let end = together.iter().map(ToRead::end).max().expect("there is one");
        let buffer = self.store().runtime.own_buffer(usize::from(end - from.block) * BLOCK_BYTES).await?;
        self.store().begin_read_for(Purpose::Other, from, buffer, Start::AtOnce)
    }

    /// Waits for a transfer, and takes out what is wanted of it. After an error each run is read alone: a block that nobody wants, or one of the
    /// others, may be the one that can't be read.
    async fn end_gather<K: Copy>(
        &self,
        (together, begun): (&[ToRead<K>], Result<Transfer>),
        read: &mut Vec<(K, Result<Slice>)>,
    ) {
        let from = together[0].run.place;
        match all_of(begun).await {
            Ok(blocks) => read.extend(together.iter().map(|ToRead { run, of }| {
                let at = usize::from(run.place.block - from.block) * BLOCK_BYTES;
                (*of, Ok(blocks.slice(at..at + usize::from(run.count) * BLOCK_BYTES)))
            })),
            Err(error) if together.len() > 1 && error.kind != Kind::Host => {
                for wanted in together {
                    let alone = all_of(self.begin_gather(std::slice::from_ref(wanted)).await).await;
                    read.push((wanted.of, alone));
                }
            }
            Err(error) => read.extend(together.iter().map(|wanted| (wanted.of, Err(error.clone())))),
        }
    }
}

/// All bytes of a transfer.
async fn all_of(begun: Result<Transfer>) -> Result<Slice> {
    let done = begun?.await;
    done.result?;
    let buffer = done.buffer.expect("a read hands its buffer back");
    let length = buffer.len();
    Ok(buffer.share().slice(0..length))
}
