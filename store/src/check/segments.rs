//! Segments against the index: live bits, headers, and the summaries that tell of each block whose it is.

use super::blocks::{Claims, beyond};
use super::{Check, Means, Progress};
use crate::format::segment::SegmentHeader;
use crate::format::summary::SummaryEntry;
use crate::format::values::{SegmentRow, SegmentState};
use crate::progress::Step;
use crate::segments::summaries;
use base::{Kind, Result, SegmentId};
use std::collections::BTreeMap;

/// A segment of which leaves say something else than its live bits or its summary: its blocks are looked at one by one.
pub(super) struct Suspect {
    pub segment: SegmentId,
    pub claims: Claims,
}

impl Check<'_> {
    pub(super) async fn segments(&mut self, progress: Progress<'_>) -> Result<Vec<Suspect>> {
        let headers: BTreeMap<_, SegmentHeader> =
            self.opening.headers().map(|header| (header.segment, *header)).collect();
        let mut suspects = Vec::new();
        let opening = self.opening;
        for (segment, row) in opening.table().whole_rows() {
            let of = u64::from(opening.superblock().segments);
            progress(Step { what: "segments", done: u64::from(segment.0), of });
            let claims = self.claims.remove(&segment).unwrap_or_default();
            let leaked = beyond(&row.live, &claims.bits);
            if leaked > 0 {
                let (who, means) = match self.unread_leaves {
                    0 => ("no file", Means::Leak),
                    _ => ("no readable map", Means::Unreadable),
                };
                self.find(format!("segment {segment}: {leaked} blocks count as live which {who} has"), means);
            }
            let mut suspect = beyond(&claims.bits, &row.live) > 0 || !claims.twice.is_empty();
            if row.state != SegmentState::Free {
                self.report.segments += 1;
            }
            // What lies on a missing disk nobody can look at: that it is missing is a finding.
            if is_told(&row) && !opening.table().is_missing(segment) {
                match headers.get(&segment) {
                    Some(header) if (header.life, header.sequence) == (row.life, row.sequence) => {}
                    _ => self.find(format!("segment {segment}: its header is damaged or missing"), Means::Unreadable),
                }
                match self.summary(segment, &row).await? {
                    Ok(entries) => suspect |= !claims.are_told(&entries),
                    Err(finding) => self.find(finding, Means::Untold),
                }
            }
            if suspect {
                suspects.push(Suspect { segment, claims });
            }
        }
        Ok(suspects)
    }

    /// The summary of a segment with live blocks, in the order of blocks, or the fault in it.
    pub(super) async fn summary(
        &mut self,
        segment: SegmentId,
        row: &SegmentRow,
    ) -> Result<std::result::Result<Vec<SummaryEntry>, String>> {
        let entries = match row.state {
            SegmentState::Sealed => {
                let of = (self.opening.superblock().uuid, segment, row.life);
                match summaries::read(self.opening.runtime(), self.opening.geometry(), of).await {
                    Ok(entries) => entries,
                    // Memory that is short for a moment is no damage.
                    Err(error) if !matches!(error.kind, Kind::Corrupt | Kind::Io) => return Err(error),
                    Err(error) => return Ok(Err(format!("segment {segment}: its summary: {error}"))),
                }
            }
            _ => {
                let mut entries = self.opening.unsealed_summary(segment).to_vec();
                entries.sort_by_key(|entry| entry.block);
                entries
            }
        };
        match entries.is_sorted_by(|one, next| one.block < next.block) {
            true => Ok(Ok(entries)),
            false => Ok(Err(format!("segment {segment}: its summary tells of a block twice"))),
        }
    }
}

/// True if a segment's header and summary must say what the table says of it. Without live blocks it may have been
/// taken into another life since the checkpoint, and be overwritten.
pub(crate) fn is_told(row: &SegmentRow) -> bool {
    row.state != SegmentState::Free && row.live.iter().any(|&word| word != 0)
}
