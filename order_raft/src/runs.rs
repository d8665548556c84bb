//! Which term the record at an index has: a log's terms as runs, since terms change rarely.

use crate::message::Position;
use base::{Index, Term};

/// The terms of a log from the first index that it keeps to its last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TermRuns {
    /// The position before the first index that is kept.
    before: Position,
    /// The first index of each run and its term; both rise.
    runs: Vec<(Index, Term)>,
    last: Index,
}

impl TermRuns {
    /// An empty log whose next record comes after `before`.
    pub fn new(before: Position) -> TermRuns {
        TermRuns { before, runs: Vec::new(), last: before.index }
    }
    /// Adds a record. One at an index that is there already voids it and all after it, whatever its term: a record may come
    /// back after one of a higher term took its place.
    pub fn push(&mut self, record: Position) {
        self.truncate(record.index);
        assert_eq!(record.index.0, self.last.0 + 1, "a log has no gaps");
        let term = self.last().term;
        assert!(record.term >= term, "the terms of a log never fall: {record:?} after {term}");
        if self.runs.last().is_none_or(|run| run.1 != record.term) {
            self.runs.push((record.index, record.term));
        }
        self.last = record.index;
    }
    /// Voids the records from `from` on.
    fn truncate(&mut self, from: Index) {
        if from > self.last {
            return;
        }
        assert!(from > self.before.index, "what is no longer kept is not voided");
        self.runs.retain(|run| run.0 < from);
        self.last = Index(from.0 - 1);
    }
    /// Lets go of the records before `first`.
    pub fn keep_from(&mut self, first: Index) {
        if first.0 <= self.before.index.0 + 1 {
            return;
        }
        let index = Index(first.0 - 1);
        let term = self.term(index).expect("only what is there is let go of");
        self.before = Position { index, term };
        let done = self.runs.partition_point(|run| run.0 <= first);
        // The run that `first` is in begins there from now on.
        if done > 0 && first <= self.last {
            self.runs[done - 1].0 = first;
            self.runs.drain(..done - 1);
        } else {
            self.runs.drain(..done);
        }
    }
    /// The term at an index that is kept, or just before.
    pub fn term(&self, index: Index) -> Option<Term> {
        if index == self.before.index {
            return Some(self.before.term);
        }
        let inside = index > self.before.index && index <= self.last;
        let run = self.runs.partition_point(|run| run.0 <= index);
        inside.then(|| self.runs[run - 1].1)
    }
    /// The position before the first record that is kept.
    pub fn before(&self) -> Position {
        self.before
    }
    /// The last position.
    pub fn last(&self) -> Position {
        let term = self.runs.last().map_or(self.before.term, |run| run.1);
        Position { index: self.last, term }
    }
    /// The first index of the last run, or the index after `before` if there is none.
    pub(crate) fn last_run(&self) -> Index {
        self.runs.last().map_or(Index(self.before.index.0 + 1), |run| run.0)
    }
    /// The bytes of memory that the runs take.
    pub fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<(Index, Term)>()
    }
}
