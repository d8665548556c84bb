//! The intact parts of a damaged log: passages over its bad batches, and the records on both sides of them. Changes
//! nothing.

use crate::format::passages::{Passage, Passages};
use crate::format::record::Logged;
use crate::format::segment::{SegmentHeader, Stream};
use crate::open::Opening;
use crate::recovery::{self, Replayed, Tail};
use base::{Place, Result};

/// Most passages over bad batches: a device that needs more is not worth it.
const PASSAGES_MAX: usize = 64;

/// A damaged log.
pub(crate) struct Survey {
    /// Those of earlier repairs, and ways over all bad batches that have whole ones behind them.
    pub passages: Passages,
    /// Its end: below its durable end only if nothing whole lies behind the damage.
    pub tail: Tail,
    /// All that can be read and that no earlier repair left out.
    pub records: Vec<Replayed>,
    /// Bad batches of which not every record can be read.
    pub unread: Vec<u64>,
}

impl Opening {
    /// Surveys a log that can't be walked. Errors: `Corrupt` if the header of a segment is missing that replay needs.
    pub(crate) async fn survey(&self) -> Result<Survey> {
        self.refuse_missing_segment()?;
        let mut passages = self.passages().clone();
        let mut unread = Vec::new();
        while passages.over.len() < PASSAGES_MAX {
            let tail = self.walk_damaged(&passages, async |_| Ok(())).await?;
            if tail.reached.0 >= tail.durable {
                break;
            }
            let Some(passage) = self.way_over(&tail, &mut unread).await? else { break };
            passages.over.push(passage);
        }
        let mut records = Vec::new();
        let tail = self.walk_damaged(&passages, async |chunk: Vec<Replayed>| {
            records.extend(chunk);
            Ok(())
        });
        let tail = tail.await?;
        records.retain(|replayed| match &replayed.logged {
            Logged::Record(record) => !passages.leave_out((record.group, record.index), replayed.batch),
            Logged::Moves(_) | Logged::Vote(_) => true,
        });
        if tail.number < tail.durable {
            unread.push(tail.number + 1);
        }
        Ok(Survey { passages, tail, records, unread })
    }

    async fn walk_damaged(
        &self,
        passages: &Passages,
        sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>,
    ) -> Result<Tail> {
        let log = recovery::Log { damaged: true, over: &passages.over, ..self.log() };
        recovery::walk(self.runtime(), self.geometry(), log, sink).await
    }

    /// The way over the first bad batch that a walk has met.
    async fn way_over(&self, tail: &Tail, unread: &mut Vec<u64>) -> Result<Option<Passage>> {
        let (runtime, geometry) = (self.runtime(), self.geometry());
        let mut headers: Vec<SegmentHeader> = self.headers().copied().collect();
        headers.retain(|header| header.stream == Stream::Commit && header.sequence >= self.replay_from());
        headers.sort_by_key(|header| header.sequence);
        let (reached, end) = tail.reached;
        let from = reached + 1;
        let stuck = end.or(headers.first().map(|first| (*first, self.replay_block())));
        if let Some((last, _)) = stuck {
            headers.retain(|header| header.sequence >= last.sequence);
        }
        let next = recovery::next_above(runtime, geometry, (self.superblock(), &headers), from).await?;
        let Some((to, at)) = next.filter(|(to, _)| to.number <= tail.durable + 1) else { return Ok(None) };
        // It lies behind the last whole one, or begins the next segment because it had no room there.
        let begins = headers.get(1).map(|header| (*header, 1));
        let (mut bad, mut all) = (None, false);
        for (header, block) in stuck.into_iter().chain(begins) {
            if header.segment == at.segment && block >= u32::from(at.block) {
                continue;
            }
            let salvaged = recovery::salvage(runtime, geometry, &header, block).await?;
            if !salvaged.records.is_empty() || salvaged.all {
                (bad, all) = (Some(Place { segment: header.segment, block: block as u16 }), salvaged.all);
                break;
            }
        }
        if !all || to.number != from + 1 {
            unread.push(from);
        }
        let (epoch, previous_crc) = (to.epoch, to.previous_crc);
        Ok(Some(Passage { from, to: to.number, epoch, previous_crc, at, bad }))
    }
}
