//! The log as the protocol's library sees it: terms as runs, and a window of shadows, though nothing of it need be durable.
//!
//! The library asks for entries for three reasons. To send them, it gets shadows from the window; what is older it gets when
//! the caller has read it. To count changes of membership among those that become committed or are about to be, it gets entries
//! without shadows: there are no such changes. A follower that lacks what the log no longer keeps is told to the caller.

use crate::message::{Position, Record, Shadow};
use crate::runs::TermRuns;
use base::{Index, ReplicaId};
use raft::eraftpb::{ConfState, HardState};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

/// Shadows that the window holds at most. A leader that has more of them under way with its slowest follower reads
/// older ones from the log, for that one alone. With what a growing queue holds in reserve they take 12 KiB, so that a replica of which
/// another one is away stays below 16 KiB (rule Q1).
pub const WINDOW_MAX: usize = 512;
/// Entries that a message has at most, and that the caller is asked to read at once.
pub const ENTRIES_MAX: usize = 256;

/// Records that are to be read again, or can't be: the library asks while it only looks.
#[derive(Default)]
struct Wanted {
    /// The first index of what the caller is to read, and is reading.
    reading: BTreeSet<u64>,
    /// Ranges that it has not been told of yet.
    old: Vec<(Index, Index)>,
    /// Followers that seem to need what is no longer kept.
    lacking: Vec<ReplicaId>,
}

/// See the head of this file.
pub struct Log {
    runs: TermRuns,
    /// Shadows up to the last record.
    window: VecDeque<Shadow>,
    /// Older ones that the caller has just read, from this index on.
    found: Option<(u64, Vec<Shadow>)>,
    hard: HardState,
    voters: ConfState,
    wanted: RefCell<Wanted>,
}

impl Log {
    /// A log that the caller has recovered.
    pub fn new(runs: TermRuns, hard: HardState, voters: ConfState) -> Log {
        Log { runs, window: VecDeque::new(), found: None, hard, voters, wanted: RefCell::default() }
    }
    /// The terms.
    pub fn runs(&self) -> &TermRuns {
        &self.runs
    }
    /// The first index whose shadow is in the window.
    fn window_first(&self) -> u64 {
        self.runs.last().index.0 + 1 - self.window.len() as u64
    }
    /// Adds a record; one at an index that is there voids what is there from that index on. True if it voids something.
    pub fn push(&mut self, record: Record) -> bool {
        let (index, last) = (record.position.index.0, self.runs.last().index.0);
        let kept = index.saturating_sub(self.window_first());
        self.window.truncate(usize::try_from(kept).expect("the window fits into memory"));
        self.runs.push(record.position);
        self.window.push_back(record.shadow);
        assert!(self.window_first() <= index, "the window ends with the log");
        index <= last
    }
    /// Forgets the shadows that nobody is likely to need: those up to `needless`, and what exceeds the window.
    pub fn trim(&mut self, needless: u64) {
        let surplus = self.window.len().saturating_sub(WINDOW_MAX) as u64;
        let needless = (needless + 1).saturating_sub(self.window_first()).min(self.window.len() as u64);
        self.window.drain(..usize::try_from(needless.max(surplus)).expect("no more than the window has"));
        // An idle group gives its memory back, and what came at once leaves no more than the bound.
        if self.window.is_empty() && self.window.capacity() > 0 {
            self.window = VecDeque::new();
        } else if self.window.capacity() > 2 * WINDOW_MAX {
            self.window.shrink_to(WINDOW_MAX);
        }
    }
    /// Lets go of the records before `first`.
    pub fn keep_from(&mut self, first: Index) {
        self.runs.keep_from(first);
        self.trim(first.0 - 1);
    }
    /// Takes shadows that the caller has read; `forget_found` ends it.
    pub fn lend_found(&mut self, first: Index, shadows: Vec<Shadow>) {
        self.wanted.get_mut().reading.remove(&first.0);
        assert!(self.found.is_none(), "what was read is used at once");
        self.found = Some((first.0, shadows));
    }
    /// Ends what `lend_found` began.
    pub fn forget_found(&mut self) {
        self.found = None;
    }
    /// Forgets what the caller is reading: a new term needs something else.
    pub fn forget_wanted(&mut self) {
        *self.wanted.get_mut() = Wanted::default();
    }
    /// True if the caller is reading what comes from this index on.
    pub fn is_reading(&self, first: u64) -> bool {
        self.wanted.borrow().reading.contains(&first)
    }
    /// Ranges of records whose shadows the caller is to read, and followers that seem to need older ones.
    pub fn take_wanted(&mut self) -> (Vec<(Index, Index)>, Vec<ReplicaId>) {
        let wanted = self.wanted.get_mut();
        (std::mem::take(&mut wanted.old), std::mem::take(&mut wanted.lacking))
    }
    /// The bytes of memory that the log takes beyond its own size.
    pub fn memory(&self) -> usize {
        self.window.capacity() * size_of::<Shadow>() + self.runs.memory()
    }

    fn shadow(&self, index: u64) -> Option<Shadow> {
        let at = |first: u64| usize::try_from(index.checked_sub(first)?).ok();
        let found = self.found.as_ref().and_then(|(first, shadows)| shadows.get(at(*first)?).copied());
        found.or_else(|| self.window.get(at(self.window_first())?).copied())
    }
    fn entry(&self, index: u64, shadow: Option<Shadow>) -> raft::eraftpb::Entry {
        let term = self.runs.term(Index(index)).expect("only what the log has is asked for").0;
        let mut entry = raft::eraftpb::Entry { index, term, ..Default::default() };
        if let Some(shadow) = shadow.filter(|shadow| *shadow != Shadow::TERM) {
            entry.data = shadow.to_bytes().to_vec().into();
        }
        entry
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.hard.clone(), conf_state: self.voters.clone() })
    }
    fn entries(
        &self,
        low: u64,
        high: u64,
        _: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<raft::eraftpb::Entry>> {
        assert!(high <= self.runs.last().index.0 + 1, "only what the log has is asked for");
        if low <= self.runs.before().index.0 {
            return Err(StorageError::Compacted.into());
        }
        if !context.can_async() {
            return Ok((low..high).map(|index| self.entry(index, None)).collect());
        }
        let high = high.min(low + ENTRIES_MAX as u64);
        let known = (low..high).map_while(|index| Some(self.entry(index, Some(self.shadow(index)?))));
        let entries: Vec<_> = known.collect();
        if entries.is_empty() && low < high {
            let wanted = &mut *self.wanted.borrow_mut();
            if wanted.reading.insert(low) {
                wanted.old.push((Index(low), Index(high.min(self.window_first()))));
            }
            return Err(StorageError::LogTemporarilyUnavailable.into());
        }
        Ok(entries)
    }
    fn term(&self, index: u64) -> raft::Result<u64> {
        let lacking =
            if index < self.runs.before().index.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.runs.term(Index(index)).map(|term| term.0).ok_or(lacking.into())
    }
    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.runs.before().index.0 + 1)
    }
    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.runs.last().index.0)
    }
    fn snapshot(&self, _: u64, to: u64) -> raft::Result<raft::eraftpb::Snapshot> {
        let lacking = &mut self.wanted.borrow_mut().lacking;
        if !lacking.contains(&ReplicaId(to)) {
            lacking.push(ReplicaId(to));
        }
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

/// The end of a log as the library names it.
pub fn position(index: u64, term: u64) -> Position {
    Position { index: Index(index), term: base::Term(term) }
}
