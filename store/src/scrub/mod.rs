//! The scrub: reads every live block of every sealed segment beside the clients and compares it with its checksum, so
//! that rot is known while there is still a backup to restore from. One pass when asked for; its position and what it
//! found are in the index, so that a restart goes on where the last checkpoint saw it.
//!
//! Promises: a finding is a block that a file still has; clients come first (decision D7, `runtime::budget`); it fills no cache.
//! What is written or moved during a pass counts as seen: a writer has just computed the checksum, the cleaner compares
//! each block that it moves. *Absent:* repair; segments that are still open, or on a disk that is
//! missing; blocks that the index does not know yet. But what a client could not read is looked at wherever it lies (`suspects`).

mod drive;
mod suspects;
#[cfg(test)]
mod tests;

use crate::Store;
use crate::format::keys;
pub use crate::format::scrub::{Bad, Position, State, Why};
use crate::format::values::{self, SegmentState, is_live};
use crate::index::{Index, IndexEdit};
use crate::segments::Row;
use base::{Error, Kind, Result, SegmentId};
use runtime::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
pub use suspects::{Suspect, failed_reads, suspect};

/// Findings that are kept: each is a row in what a checkpoint writes. A device that has lost more needs no list.
pub const FINDINGS_MAX: usize = 1000;
/// Findings that wait to be told: of more, the list tells.
const NEWS_MAX: usize = 100;
/// Interval at which a checkpoint is asked for while the scrub works: a crash repeats at most this much of a pass.
const REMEMBER_NS: u64 = 10_000_000_000;

/// The status of the scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The stored state, with those of its findings that a file still has.
    pub position: Position,
    /// Live blocks in sealed segments, and of these those of segments that the pass is through with.
    pub of_blocks: u64,
    /// Number of blocks that the pass has done.
    pub done_blocks: u64,
    /// Remaining time of the pass, if it goes on as it has since it was started.
    pub left_ns: Option<u64>,
}

/// The store's part of it.
pub struct Scrub {
    position: Lock<Position>,
    /// True if the next checkpoint must write the state.
    unsaved: AtomicBool,
    /// A checkpoint should come for its sake.
    wanted: AtomicBool,
    /// The task is there.
    working: AtomicBool,
    speed: Lock<Speed>,
    suspects: suspects::Suspects,
    /// Findings that nobody has been told of yet.
    news: Lock<Vec<Bad>>,
}

/// Blocks done when the task began, and the time of that: for the estimate when the pass ends.
#[derive(Clone, Copy, Default)]
struct Speed {
    since_ns: u64,
    blocks: u64,
    saved_ns: u64,
}

impl Scrub {
    /// The scrub as the last checkpoint knew it.
    pub(crate) fn read(index: &dyn Index) -> Result<Scrub> {
        let position = match index.get(&keys::scrub())? {
            // What can't be read is no reason not to start: a new pass finds all again.
            Some(row) => values::decode_scrub(&row).unwrap_or_default(),
            None => Position::default(),
        };
        Ok(Scrub {
            position: Lock::new("scrub", position),
            unsaved: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            working: AtomicBool::new(false),
            speed: Lock::new("scrub speed", Speed::default()),
            suspects: suspects::Suspects::default(),
            news: Lock::new("scrub news", Vec::new()),
        })
    }
    fn is_running(&self) -> bool {
        self.position.lock().state == State::Running
    }
    fn note(&self, urgent: bool) {
        self.unsaved.store(true, Ordering::Release);
        if urgent {
            self.wanted.store(true, Ordering::Release);
        }
    }
    /// The findings since the last call, each once; at most `NEWS_MAX`.
    pub fn take_news(&self) -> Vec<Bad> {
        std::mem::take(&mut *self.news.lock())
    }
    /// True once if a checkpoint should come for its sake.
    pub fn wants_checkpoint(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }
    /// The row that a checkpoint must write; None if it is written already.
    pub(crate) fn row(&self) -> Option<IndexEdit> {
        let unsaved = self.unsaved.swap(false, Ordering::AcqRel);
        unsaved.then(|| IndexEdit::Put(keys::scrub(), values::encode_scrub(&self.position.lock())))
    }
}

/// Starts a pass, or goes on with one that was stopped. False if one is under way already. Errors: `Interrupted` if the
/// brick is being closed.
pub fn start(store: &Arc<Store>) -> Result<bool> {
    if store.log.stopping() {
        return Err(Error::new(Kind::Interrupted, "the brick is being closed"));
    }
    {
        let mut position = store.scrub.position.lock();
        match position.state {
            State::Running => return Ok(false),
            State::Stopped => position.state = State::Running,
            State::Never | State::Done => {
                *position =
                    Position { state: State::Running, began: store.runtime.clock.wall(), ..Position::default() };
            }
        }
    }
    store.scrub.note(true);
    go_on(store);
    Ok(true)
}

/// Goes on with the pass that is under way, if there is one: at start, and when one was started.
pub(crate) fn go_on(store: &Arc<Store>) {
    if !store.scrub.is_running() || store.scrub.working.swap(true, Ordering::AcqRel) {
        return;
    }
    let there = store.clone();
    let core = store.runtime.tasks.cores() - 1;
    store.runtime.tasks.spawn(core, Box::new(move || Box::pin(drive::run(there))));
}

/// Stops the pass that is under way; it can be gone on with. False if there is none.
pub fn stop(store: &Store) -> bool {
    {
        let mut position = store.scrub.position.lock();
        if position.state != State::Running {
            return false;
        }
        position.state = State::Stopped;
    }
    store.scrub.note(true);
    true
}

/// The present status. If blocks on a disk were found bad it reads the index: blocks then, so not on a core.
pub fn status(store: &Store) -> Status {
    let mut position = store.scrub.position.lock().clone();
    position.bad = position.bad.iter().flat_map(|bad| still_there(store, bad)).collect();
    let table = store.table.lock();
    let (mut of_blocks, mut done_blocks) = (0, 0);
    let is_read = |(segment, row): &(SegmentId, &Row)| row.state == SegmentState::Sealed && !table.is_missing(*segment);
    for (segment, _) in table.iter().filter(is_read) {
        let live = u64::from(table.live(segment));
        of_blocks += live;
        done_blocks += if segment < position.next { live } else { 0 };
    }
    drop(table);
    if position.state == State::Done {
        done_blocks = of_blocks;
    }
    let Speed { since_ns, blocks, .. } = *store.scrub.speed.lock();
    let (done, elapsed_ns) = (position.blocks - blocks, store.runtime.clock.now_ns() - since_ns);
    let runs = position.state == State::Running && done > 0;
    let left_ns = runs.then(|| (of_blocks - done_blocks) as u128 * u128::from(elapsed_ns) / u128::from(done));
    Status { position, of_blocks, done_blocks, left_ns: left_ns.map(|ns| ns as u64) }
}

/// The parts of a finding that a file still has, as of the last checkpoint.
fn still_there(store: &Store, bad: &Bad) -> Vec<Bad> {
    let segment = bad.place.segment;
    if bad.why == Why::Untold {
        let is_live = store.life(segment) == bad.life && store.is_live(segment);
        return if is_live { vec![*bad] } else { Vec::new() };
    }
    let live = match store.bitmap_now((segment, bad.life)) {
        Ok(Some(live)) => live,
        Ok(None) => return Vec::new(),
        // What the index can't tell counts as live.
        Err(_) => return vec![*bad],
    };
    let mut there: Vec<Bad> = Vec::new();
    for number in 0..bad.blocks {
        let place = bad.place.advance(number);
        let block = Bad { place, blocks: 1, offset: bad.offset + u64::from(number), ..*bad };
        match there.last_mut() {
            _ if !is_live(&live, place.block) => {}
            Some(last) if last.goes_on_with(&block) => last.blocks += 1,
            _ => there.push(block),
        }
    }
    there
}
