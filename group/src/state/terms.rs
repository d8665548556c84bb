//! The terms of a group: which process ordered which of its records (rule P3).

use super::State;
use base::limits::TERMS_MAX;
use base::{Index, Term};
use runtime::seeded::{Bug, active};
use store::format::values::TermRow;

impl State {
    /// The term of records of this life.
    pub fn term(&self) -> Term {
        self.term
    }
    /// Begins the term of this life in a record that is being applied.
    pub(super) fn begin_term(&mut self, term: Term, start: u64) {
        match self.terms.last_mut() {
            Some(last) if last.term == term => last.start = start,
            _ => return self.note_term(TermRow { term, first: Index(self.row.applied.0 + 1), start }),
        }
        self.active.terms = Some(Vec::new());
    }
    /// Notes a term and its first record.
    pub(crate) fn note_term(&mut self, row: TermRow) {
        if self.terms.len() == TERMS_MAX {
            self.terms.remove(0);
        }
        self.terms.push(row);
        self.active.terms = Some(Vec::new());
    }
    /// True if the change that a client was told of is not in the group's order: a crash took it, or it was made on another copy of
    /// the brick (rule P3). `start`: the number that the process drew which told.
    pub fn is_lost(&self, term: Term, index: Index, start: u64) -> bool {
        let Some(at) = self.terms.iter().position(|row| (row.term, row.start) == (term, start)) else { return true };
        let last = self.terms.get(at + 1).map_or(self.row.applied.0, |next| next.first.0 - 1);
        index.0 > last && !active(Bug::FsyncIgnoresTerm)
    }
}
