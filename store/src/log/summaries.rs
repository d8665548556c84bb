//! Summary entries of segments that are not sealed, as a checkpoint and the seal take them (rule L7). Promises that what a checkpoint
//! has taken stays as it is. Absent by design: the entries' making, in the step that orders their record.

use super::Log;
use crate::format::summary::SummaryEntry;
use base::SegmentId;

impl Log {
    /// Adds summary entries that recovery found.
    pub fn restore_summary(&self, segment: SegmentId, entries: Vec<SummaryEntry>) {
        self.state.lock().summaries.entry(segment).or_default().extend(entries);
    }
    /// The summary entries of a segment so far, from number `from` on.
    pub fn summary_from(&self, segment: SegmentId, from: usize) -> Vec<SummaryEntry> {
        let mut state = self.state.lock();
        let entries = state.summaries.get(&segment).and_then(|all| all.get(from..)).map(<[_]>::to_vec);
        let entries = entries.unwrap_or_default();
        if state.segment.is_some_and(|open| open.segment == segment) {
            assert!(from + entries.len() >= state.summary_taken, "what a checkpoint has taken stays as it is");
            state.summary_taken = from + entries.len();
        }
        entries
    }
    /// Segments that have summary entries, each with the number of its entries.
    pub fn summary_lengths(&self) -> Vec<(SegmentId, usize)> {
        self.state.lock().summaries.iter().map(|(&segment, entries)| (segment, entries.len())).collect()
    }
    /// Forgets the summary entries of a segment that is sealed.
    pub fn drop_summary(&self, segment: SegmentId) {
        self.state.lock().summaries.remove(&segment);
    }
}
