//! Holes and zeroed ranges (fallocate). Blocks that lie completely in the range are cut, by one record whatever their
//! number (rule K6); blocks that lie in it partly are logged with their new content in the same record (rule M5).

use crate::data::write::RangeHold;
use crate::order::record::Attached;
use crate::state::Range;
use crate::{Answer, Groups};
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use base::{Crcs, Ino, Op, Result};
use runtime::{Buf, Need, Stage};
use std::ops;
use wire::Context;

/// Largest number of cuts of one file that wait to be carried out by checkpoints. They are one row of the index, which
/// then has 100 KB, and each checkpoint that carries out some of them writes the row anew. A client that makes more
/// cuts waits for checkpoints.
const CUTS_MAX: usize = 4096;

impl Groups {
    /// Makes a hole or zeros of a range of bytes.
    pub(crate) async fn clear(&self, context: &Context, op: &Op) -> Result<Answer> {
        let Op::Allocate { ino, offset, length, .. } = *op else {
            unreachable!("only called for what fallocate clears")
        };
        let bytes = offset..offset.saturating_add(length);
        if bytes.is_empty() || bytes.end > FILE_BYTES_MAX {
            // Evaluation refuses it.
            return self.change(context, op).await;
        }
        while self.state(ino.group()).state.lock().cuts_of(context.volume, ino) >= CUTS_MAX {
            self.checkpoint_after(self.checkpoints()).await?;
            context.span.mark(Stage::Space, self.stamp());
        }
        let group = self.state(ino.group());
        let [first, last] = [bytes.start, bytes.end - 1].map(|byte| byte / BLOCK_BYTES as u64);
        let range = Range { volume: context.volume, ino, first, last };
        loop {
            let ticket = group.ranges.ticket();
            let held = group.state.lock().hold_range(range);
            let Some(id) = held else {
                group.ranges.after(ticket).await;
                context.span.mark(Stage::Range, self.stamp());
                continue;
            };
            let hold = RangeHold { group, id };
            let edges = self.edges(context, ino, &bytes).await?;
            return self.change_with(context, op, edges.as_ref(), Some(hold.id)).await;
        }
    }

    /// The new content of the first and the last block, if they lie partly outside the range and hold data to be
    /// zeroed. A hole stays a hole.
    async fn edges(&self, context: &Context, ino: Ino, bytes: &ops::Range<u64>) -> Result<Option<Attached>> {
        let mut changed: Vec<(u64, Buf)> = Vec::new();
        let whole = names::write::whole_blocks(bytes);
        let [first, last] = [bytes.start, bytes.end - 1].map(|byte| byte / BLOCK_BYTES as u64);
        let edges = if first == last { vec![first] } else { vec![first, last] };
        for block in edges.into_iter().filter(|block| !whole.contains(block)) {
            let start = block * BLOCK_BYTES as u64;
            let within = |byte: u64| byte.saturating_sub(start).min(BLOCK_BYTES as u64) as usize;
            let cleared = within(bytes.start)..within(bytes.end);
            let mut content = self.read_block(context, ino, block).await?;
            if content[cleared.clone()].iter().any(|&byte| byte != 0) {
                content[cleared].fill(0);
                changed.push((block, content));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let mut payload = self.buffer(context, changed.len() * BLOCK_BYTES, Need::Finishing).await?;
        for (piece, (_, content)) in payload.chunks_mut(BLOCK_BYTES).zip(&changed) {
            piece.copy_from_slice(content);
        }
        let piece = |(block, content): &(u64, Buf)| (*block, Crcs::from_iter([crc32c(content)]));
        let pieces = changed.iter().map(piece).collect();
        let length = payload.len();
        Ok(Some(Attached { ino, pieces, slice: payload.share().slice(0..length) }))
    }
}
