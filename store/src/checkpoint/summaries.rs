//! The summary entries of open segments, which the index holds until the segment is sealed and has its summary on the
//! device (rule L7).

use crate::Store;
use crate::format::values::SegmentState;
use crate::format::{keys, summary};
use crate::index::IndexEdit;
use crate::segments::Table;
use base::SegmentId;
use std::collections::BTreeMap;

/// Writes new summary entries of open segments to the index, so that a seal after a crash has all of them. Drops those
/// of sealed segments. Returns the number of entries that the index then holds, by segment.
pub(super) fn rows(store: &Store, edits: &mut Vec<IndexEdit>) -> BTreeMap<SegmentId, usize> {
    let before = store.summarised.lock().clone();
    let now: BTreeMap<_, _> = store.log.summary_lengths().into_iter().collect();
    for (&segment, _) in before.iter().filter(|(segment, _)| !now.contains_key(segment)) {
        let (from, to) = keys::summary_of(segment);
        edits.push(IndexEdit::DeleteRange(from, to));
    }
    let mut after = BTreeMap::new();
    for (&segment, &length) in &now {
        let from = before.get(&segment).copied().unwrap_or(0);
        assert!(from <= length, "the index has {from} entries of segment {segment}, the log {length}");
        let entries = store.log.summary_from(segment, from);
        after.insert(segment, from + entries.len());
        if from == 0 {
            // Removes entries of an earlier life, or from before a crash.
            let (from, to) = keys::summary_of(segment);
            edits.push(IndexEdit::DeleteRange(from, to));
        }
        if !entries.is_empty() {
            let key = keys::summary(segment, from as u16);
            edits.push(IndexEdit::Put(key, summary::encode_entries(&entries)));
        }
    }
    after
}

/// Drops the summary entries of segments that are sealed as of this checkpoint: the next process would take them for
/// entries of the segment's next life.
pub(super) fn drop_sealed(table: &Table, summaries: &mut BTreeMap<SegmentId, usize>, edits: &mut Vec<IndexEdit>) {
    let is_sealed = |segment: SegmentId| table.row(segment).is_some_and(|row| row.state == SegmentState::Sealed);
    for (segment, _) in summaries.extract_if(.., |segment, _| is_sealed(*segment)) {
        let (from, to) = keys::summary_of(segment);
        edits.push(IndexEdit::DeleteRange(from, to));
    }
}
