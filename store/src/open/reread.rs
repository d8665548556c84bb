//! Reading the log of the running brick again: for whoever has to build a group's state anew, and for a follower that lacks records.
//!
//! Promises: all records that were ordered before the call, from a position on, each once and in the order of the log; the segments in
//! which they and their payloads lie are not written again meanwhile. Absent by design: which of the records still count (`group`).

use crate::Store;
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::values::{ReplayRow, SegmentState};
use crate::recovery;
use crate::recovery::running::{Stored, walk_through};
use crate::{progress, segments::Table};
use base::{Error, Kind, Result, Sync};
use runtime::seeded::{Bug, active};
use std::sync::atomic::Ordering;

impl Store {
    /// Reads the log from `from` on, which an earlier call returned; without one, from where replay starts by the last durable
    /// checkpoint. Ends the batch being built, waits until it is written, and hands the records of all batches up to it, in order, to
    /// `sink`, about a mebibyte at a time; among them some that groups have already (those up to a row's applied index, and
    /// those that became void). Returns the position behind them.
    ///
    /// While it lasts, freed segments are not taken again, whatever was in them: a reader that dawdles makes the brick short of space.
    /// Whoever reads rows of the index as well keeps checkpoints from coming in between. Errors: `NotFound` if the log no longer goes
    /// back as far as `from`; `Busy` if a repair has mended the log and no checkpoint has come since; `Host` if there is no memory to
    /// read; `Io`, `Corrupt`, and what `sink` returns: then it has had a part.
    pub async fn read_log(
        &self,
        from: Option<&ReplayRow>,
        sink: impl AsyncFnMut(Vec<Stored>) -> Result<()>,
    ) -> Result<ReplayRow> {
        // Comes first: what is freed from now on stays as it is. What comes before the start of replay may be gone already.
        let _pin = (!active(Bug::LogReadUnpinned)).then(|| self.pin());
        let (end, through) = self.log.cut();
        let (from, segments) = self.stretch(from)?;
        assert!(end.number == through + 1, "the end lies behind the last batch");
        self.log.wait(through, Sync::Written, None).await?;
        let (superblock, tell) = (self.superblock.lock().clone(), progress::nobody());
        let log =
            recovery::Log { superblock: &superblock, replay: &from, segments, tell: &tell, damaged: false, over: &[] };
        walk_through(&self.runtime, &self.geometry, (log, through), sink).await?;
        Ok(end)
    }

    /// The place where a read starts, and the headers of the segments that it will meet, in their order. Called with a pin, after
    /// the cut: the segments of all batches before that are in the table.
    fn stretch(&self, from: Option<&ReplayRow>) -> Result<(ReplayRow, Vec<SegmentHeader>)> {
        // A checkpoint frees segments under the same lock in one go with moving the start.
        let table = self.table.lock();
        let start = *self.replay.lock();
        if self.mended.load(Ordering::Acquire) {
            return Err(Error::new(
                Kind::Busy,
                "the log was mended, and no checkpoint has come since; ask again later",
            ));
        }
        let from = *from.unwrap_or(&start);
        if from.number < start.number {
            let error = Error::new(Kind::NotFound, "the log does not go back as far");
            return Err(error.with(format!("batch {}, the first is {}", from.number, start.number)));
        }
        Ok((from, self.commit_segments(&table, from.sequence)))
    }

    fn commit_segments(&self, table: &Table, first: u64) -> Vec<SegmentHeader> {
        let of_log = table.iter().filter(|(_, row)| {
            row.stream == Stream::Commit && row.state != SegmentState::Free && row.sequence >= first
        });
        // Nobody asks for the epoch: each batch tells its own.
        let header = |(segment, row): (_, &crate::segments::Row)| SegmentHeader {
            uuid: self.uuid,
            segment,
            life: row.life,
            stream: row.stream,
            sequence: row.sequence,
            epoch: 0,
        };
        let mut segments: Vec<_> = of_log.map(header).collect();
        segments.sort_by_key(|header| header.sequence);
        segments
    }
}
