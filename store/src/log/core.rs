//! The condition under which a batch counts as durable: the decisions of rule U1, pure. The log reports submissions and
//! completions; this core says how to write the next batch, when to flush, and how far acknowledgements may go.

use runtime::FileId;
use runtime::seeded::{Bug, active};
use std::collections::VecDeque;

/// A batch from its submission until the batch and all earlier ones are written.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    file: FileId,
    /// True if the batch's own write makes it durable (FUA), provided that all earlier batches are.
    fua: bool,
    written: bool,
    wanted: bool,
}

/// A flush to perform on these files; afterwards every batch up to `through` is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Files that hold unflushed bytes.
    pub files: Vec<FileId>,
    /// The last batch covered.
    pub through: u64,
}

/// The progress of the log, as numbers of batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Positions {
    /// This batch and all earlier ones are written.
    pub written: u64,
    /// This batch and all earlier ones are durable.
    pub durable: u64,
}

/// The state of batches on their way to durability; see the module. Each call takes the same time, however much is not
/// durable yet.
#[derive(Debug, Default)]
pub struct Commit {
    /// The batches under way. Those before them are described by `positions`.
    flights: VecDeque<Flight>,
    positions: Positions,
    /// The last written batch that a request waits to be durable.
    wanted: u64,
    /// Files with writes without FUA that have completed since the files' last flush was submitted.
    dirty: Vec<FileId>,
    /// The list of an earlier flush, reused so that a warm flush allocates nothing.
    spare: Vec<FileId>,
    plain_writing: usize,
    flushing: Option<u64>,
}

impl Commit {
    /// The state after recovery: every batch up to `number` is durable.
    pub fn new(number: u64) -> Commit {
        Commit { positions: Positions { written: number, durable: number }, ..Commit::default() }
    }
    /// The progress of writes and durability.
    pub fn positions(&self) -> Positions {
        self.positions
    }
    /// Number of batches submitted and not yet written.
    pub fn writing(&self) -> usize {
        self.flights.iter().filter(|flight| !flight.written).count()
    }
    /// True if a batch that was submitted is not durable.
    pub fn has_undurable(&self) -> bool {
        !self.flights.is_empty() || self.positions.durable < self.positions.written
    }
    /// True while a request waits for a submitted batch to be durable.
    pub fn is_committing(&self) -> bool {
        self.wants_flush() || self.flights.iter().any(|flight| flight.wanted)
    }
    /// True if a request waits for a written batch to be durable.
    fn wants_flush(&self) -> bool {
        self.wanted > self.positions.durable
    }
    /// Notes that a request waits for batch `number` to be durable. Has no effect for a batch that is not submitted
    /// yet.
    pub fn want(&mut self, number: u64) {
        if number <= self.positions.written {
            self.wanted = self.wanted.max(number);
        } else if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.wanted = true;
        }
    }
    /// Submits the next batch. Returns whether its own write may make it durable (FUA): only if nothing, on any file,
    /// was written without FUA since the last flush, nor is being written or flushed (rule U1).
    pub fn submit(&mut self, number: u64, file: FileId, wanted: bool) -> bool {
        let last = self.flights.back().map_or(self.positions.written, |flight| flight.number);
        assert!(number == last + 1, "batches are submitted in order");
        let clean = self.dirty.is_empty() && self.plain_writing == 0 && self.flushing.is_none();
        // The seeded bug that acknowledges before the flush needs batches that are made durable by a flush.
        let fua = wanted && (clean || active(Bug::FuaAfterPlain)) && !active(Bug::AckBeforeFlush);
        self.plain_writing += usize::from(!fua);
        self.flights.push_back(Flight { number, file, fua, written: false, wanted });
        assert!(self.plain_writing <= self.flights.len(), "only batches under way are being written");
        fua
    }
    /// Notes that a batch's write has completed.
    pub fn written(&mut self, number: u64) {
        let flight = self.flights.iter_mut().find(|flight| flight.number == number);
        let flight = flight.expect("a batch completes once, after its submission");
        assert!(!flight.written, "batch {number} completes once");
        flight.written = true;
        let (fua, file) = (flight.fua, flight.file);
        if !fua {
            assert!(self.plain_writing > 0, "batch {number} was counted when it was submitted");
            self.plain_writing -= 1;
            self.mark_dirty(file);
        }
        if active(Bug::FuaAfterPlain) && fua {
            // The seeded mistake: one FUA write is taken for a flush of everything before it.
            self.positions.durable = self.positions.durable.max(self.positions.written);
        }
        self.advance();
        if active(Bug::AckOutOfOrder) && fua {
            self.positions.durable = self.positions.durable.max(number);
        }
    }
    /// Notes that a write beside the log (bulk, cold) has completed without flush.
    pub fn mark_dirty(&mut self, file: FileId) {
        if !self.dirty.contains(&file) {
            self.dirty.push(file);
        }
    }
    /// Takes a file, of which nobody needs anything unflushed, out of those that flushes cover. Returns the last batch that the flush
    /// under way covers: that one may be of the file.
    pub fn forget(&mut self, file: FileId) -> Option<u64> {
        assert!(self.flights.iter().all(|flight| flight.file != file), "no batch is on its way to a file that goes");
        self.dirty.retain(|dirty| *dirty != file);
        self.flushing
    }
    /// True if `flush` would return one.
    pub fn flush_due(&self) -> bool {
        self.flushing.is_none() && self.wants_flush()
    }
    /// The flush that is due, if any: a request waits for a written batch to be durable, and no flush is under way. The
    /// flush covers all writes that have completed.
    pub fn flush(&mut self) -> Option<Flush> {
        if !self.flush_due() {
            return None;
        }
        let through = self.positions.written;
        self.flushing = Some(through);
        let files = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare));
        // What is not durable was written without FUA, and has made its file dirty (rule U1).
        assert!(!files.is_empty() || active(Bug::FuaAfterPlain), "a flush through batch {through} flushes something");
        Some(Flush { files, through })
    }
    /// Takes the list of a performed flush back for reuse.
    pub fn reuse(&mut self, mut files: Vec<FileId>) {
        files.clear();
        self.spare = files;
    }
    /// Notes that the flush under way has completed.
    pub fn flushed(&mut self) {
        let through = self.flushing.take().expect("a flush completes once");
        assert!(through <= self.positions.written, "a flush covers only what was written before it (rule U1)");
        self.positions.durable = self.positions.durable.max(through);
        self.check();
    }
    fn advance(&mut self) {
        while let Some(&Flight { number, fua, wanted, .. }) = self.flights.front().filter(|flight| flight.written) {
            self.flights.pop_front();
            assert!(number == self.positions.written + 1, "batches are acknowledged in log order");
            self.positions.written = number;
            // A batch's own write makes it durable only if all earlier batches are (rule U1).
            if fua && self.positions.durable + 1 >= number {
                self.positions.durable = self.positions.durable.max(number);
            }
            if wanted {
                self.wanted = number;
            }
        }
        self.check();
    }
    fn check(&self) {
        let in_order = self.positions.durable <= self.positions.written || active(Bug::AckOutOfOrder);
        assert!(in_order, "what is durable has been written");
        assert!(self.wanted <= self.positions.written, "nobody waits here for a batch that is not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(1);
    const BULK: FileId = FileId(2);

    #[test]
    fn a_lone_synchronous_batch_needs_no_flush() {
        let mut commit = Commit::new(0);
        assert!(commit.submit(1, FILE, true));
        commit.written(1);
        assert_eq!((commit.positions().durable, commit.flush()), (1, None));
    }

    #[test]
    fn fua_is_refused_while_plain_bytes_are_unflushed() {
        let mut commit = Commit::new(0);
        assert!(!commit.submit(1, FILE, false));
        assert!(!commit.submit(2, FILE, true), "a plain write is under way");
        commit.written(1);
        assert!(!commit.submit(3, FILE, true), "a plain write is unflushed");
        commit.written(3);
        assert_eq!(commit.positions(), Positions { written: 1, durable: 0 });
        assert_eq!(commit.flush(), None, "nobody wants batch 1, and 2 is not written");
        commit.written(2);
        let flush = commit.flush().expect("2 and 3 are wanted");
        assert_eq!(flush, Flush { files: vec![FILE], through: 3 });
        assert!(!commit.submit(4, FILE, true), "a flush is under way");
        commit.flushed();
        assert_eq!(commit.positions().durable, 3);
    }

    #[test]
    fn bulk_bytes_are_flushed_before_the_batch_that_names_them_counts() {
        let mut commit = Commit::new(0);
        commit.mark_dirty(BULK);
        assert!(!commit.submit(1, FILE, true));
        commit.written(1);
        let flush = commit.flush().expect("wanted");
        assert_eq!(flush.files, [BULK, FILE]);
        assert_eq!(commit.positions().durable, 0);
    }

    #[test]
    fn acknowledgements_keep_the_log_order() {
        let mut commit = Commit::new(0);
        assert!(commit.submit(1, FILE, true));
        assert!(commit.submit(2, FILE, true));
        commit.written(2);
        assert_eq!(commit.positions(), Positions { written: 0, durable: 0 });
        commit.written(1);
        assert_eq!(commit.positions(), Positions { written: 2, durable: 2 });
    }

    #[test]
    fn what_nobody_waits_for_takes_no_room() {
        let mut commit = Commit::new(0);
        for number in 1..=1000 {
            commit.submit(number, FILE, false);
            commit.written(number);
        }
        assert!(commit.flights.is_empty() && commit.has_undurable() && !commit.is_committing() && !commit.flush_due());
        commit.want(7);
        assert!(commit.is_committing());
        assert_eq!(commit.flush().expect("wanted").through, 1000);
        commit.want(9);
        commit.want(1001);
        assert_eq!(commit.flush(), None, "the one under way covers it");
        commit.flushed();
        assert!(!commit.has_undurable() && !commit.is_committing() && !commit.flush_due());
        assert!(commit.submit(1001, FILE, true), "nothing is unflushed");
    }

    #[test]
    fn a_file_that_goes_is_flushed_no_more_and_the_flush_under_way_is_told() {
        let mut commit = Commit::new(0);
        commit.mark_dirty(BULK);
        commit.submit(1, FILE, true);
        commit.written(1);
        assert_eq!(commit.forget(BULK), None);
        assert_eq!(commit.flush().expect("wanted").files, [FILE]);
        commit.mark_dirty(BULK);
        assert_eq!(commit.forget(BULK), Some(1), "it may be of the file");
        commit.flushed();
        assert!(commit.submit(2, FILE, true), "nothing is unflushed");
    }

    #[test]
    fn a_flush_covers_only_what_was_written_before_it() {
        let mut commit = Commit::new(0);
        commit.submit(1, FILE, false);
        commit.written(1);
        commit.want(1);
        let flush = commit.flush().expect("wanted");
        commit.submit(2, FILE, true);
        commit.written(2);
        commit.flushed();
        assert_eq!((flush.through, commit.positions().durable), (1, 1));
        assert_eq!(commit.flush().expect("2 is wanted").through, 2);
    }
}
