//! The index engine of a simulated brick: the model of `store`, which can crash between any two of its steps too, fail
//! any call, find that a row's block has rotted, and have a row in memory or not, as the seed has it.

use crate::small::{Calls, Trouble};
use base::{Error, Kind, Result};
use runtime::random::SplitMix;
use runtime::sim::SimDisk;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit, Pair, Peeked};

/// See the module.
pub struct CrashIndex {
    model: ModelIndex,
    disk: Arc<SimDisk>,
    state: Mutex<State>,
}

struct State {
    steps: u64,
    crash_at: Option<u64>,
    crashed: bool,
    reads: u64,
    writes: u64,
    fail_read: Option<u64>,
    fail_write: Option<u64>,
    met: u64,
    chance: SplitMix,
    rotten: BTreeSet<Vec<u8>>,
}

impl State {
    /// Counts a call that changes something; does it fail?
    fn write_fails(&mut self) -> bool {
        self.writes += 1;
        let fails = self.fail_write == Some(self.writes);
        self.met += u64::from(fails);
        fails
    }
    /// Counts a call that reads; does it fail?
    fn read_fails(&mut self) -> bool {
        self.reads += 1;
        let fails = self.fail_read == Some(self.reads);
        self.met += u64::from(fails);
        fails
    }
}

fn failed() -> Error {
    Error::new(Kind::Io, "the simulated index engine failed")
}

impl CrashIndex {
    /// An engine over what a crash left, or over nothing; it crashes together with `disk`.
    pub fn new(seed: u64, model: Option<ModelIndex>, disk: Arc<SimDisk>) -> CrashIndex {
        // Clones of a model share their content: machines that boot from one image must not.
        let model = model.map(|model| model.crashed(0));
        let model = model.unwrap_or_else(|| ModelIndex::new(store::format::leaf::merge));
        let state = State {
            steps: 0,
            crash_at: None,
            crashed: false,
            reads: 0,
            writes: 0,
            fail_read: None,
            fail_write: None,
            met: 0,
            chance: SplitMix(seed),
            rotten: BTreeSet::new(),
        };
        CrashIndex { model, disk, state: Mutex::new(state) }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// Crashes the machine right before a step (writes and persists, counted from 1).
    pub fn crash_at_step(&self, step: u64) {
        self.state().crash_at = Some(step);
    }
    /// One of its calls may fail; a write or persist that does has not happened.
    pub fn set_trouble(&self, trouble: Trouble) {
        let nth = |calls| (trouble.calls == calls).then_some(trouble.nth);
        let mut state = self.state();
        (state.fail_read, state.fail_write) = (nth(Calls::IndexReads), nth(Calls::IndexWrites));
    }
    /// Calls that have failed so.
    pub fn faults_met(&self) -> u64 {
        self.state().met
    }
    /// The block that holds a row no longer fits its checksum: who reads it is told (rule X4).
    pub fn rot(&self, key: Vec<u8>) {
        self.state().rotten.insert(key);
    }
    /// All rows, rotten ones too.
    pub fn rows(&self) -> Vec<Pair> {
        self.model.scan(&[], &[u8::MAX; 64], usize::MAX).expect("the model does not fail")
    }
    fn check_read(&self, is_read: impl Fn(&[u8]) -> bool) -> Result<()> {
        let mut state = self.state();
        if state.read_fails() {
            return Err(failed());
        }
        match state.rotten.iter().any(|key| is_read(key)) {
            true => Err(Error::new(Kind::Corrupt, "a block of the index does not fit its checksum")),
            false => Ok(()),
        }
    }
    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }
    /// The index after a crash at this moment: an engine may keep more than it promised.
    pub fn crashed(&self, rng: &mut SplitMix) -> ModelIndex {
        let kept = rng.below(self.model.unpersisted() as u64 + 1) as usize;
        self.model.crashed(kept)
    }
    /// True if a later crash can still take away what was written.
    pub fn has_volatile(&self) -> bool {
        self.model.unpersisted() > 0
    }
    fn step(&self) -> Result<()> {
        let mut state = self.state();
        if !state.crashed && state.crash_at == Some(state.steps + 1) {
            state.crashed = true;
            self.disk.crash_now();
        }
        if state.crashed || self.disk.has_crashed() {
            return Err(Error::new(Kind::Io, "the simulated machine has crashed"));
        }
        if state.write_fails() {
            return Err(failed());
        }
        state.steps += 1;
        Ok(())
    }
}

impl Index for CrashIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_read(|rotten| rotten == key)?;
        self.model.get(key)
    }
    /// A block that does not fit its checksum never comes into memory.
    fn peek(&self, key: &[u8]) -> Result<Peeked> {
        let mut state = self.state();
        if state.chance.one_in(2) || state.rotten.contains(key) {
            return Ok(Peeked::Unknown);
        }
        self.model.get(key).map(Peeked::Known)
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        let pairs = self.model.scan(from, to, count)?;
        self.check_read(|rotten| pairs.binary_search_by(|(key, _)| key.as_slice().cmp(rotten)).is_ok())?;
        Ok(pairs)
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.step()?;
        self.model.write(edits)
    }
    fn persist(&self) -> Result<()> {
        self.step()?;
        self.model.persist()
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        Arc::new(self.model.clone()).snapshot()
    }
    fn written_bytes(&self) -> u64 {
        0
    }
    fn memory_bytes(&self) -> u64 {
        0
    }
}
