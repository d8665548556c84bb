//! A log's terms as runs, since terms change rarely.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64, term: u64) -> Position {
        Position { index: Index(index), term: Term(term) }
    }

    fn runs(terms: &[u64]) -> TermRuns {
        let mut runs = TermRuns::default();
        (1..).zip(terms).for_each(|(index, term)| runs.push(at(index, *term)));
        runs
    }

    #[test]
    fn terms_are_those_of_the_records_from_the_one_before_the_first_that_is_kept() {
        let terms = [1, 1, 3, 3, 3, 7];
        for first in 1..=7 {
            let mut runs = runs(&terms);
            runs.keep_from(Index(first));
            runs.keep_from(Index(1));
            let known = |index: u64| match index {
                0 => Some(Term(0)),
                _ => terms.get(index as usize - 1).map(|term| Term(*term)),
            };
            for index in 0..9 {
                assert_eq!(
                    runs.term(Index(index)),
                    known(index).filter(|_| index + 1 >= first),
                    "{index} from {first}"
                );
            }
            assert_eq!(runs.last(), at(6, 7));
            runs.push(at(7, 9));
            assert_eq!((runs.last(), runs.last_run()), (at(7, 9), Index(7)));
        }
    }

    #[test]
    fn a_record_voids_what_is_there_and_after_it() {
        let mut runs = runs(&[1, 1, 3, 3, 7]);
        runs.push(at(3, 2));
        assert_eq!((runs.last(), runs.term(Index(2)), runs.term(Index(4))), (at(3, 2), Some(Term(1)), None));
        runs.push(at(1, 5));
        assert_eq!((runs.last(), runs.term(Index(2))), (at(1, 5), None));
    }
}
