//! The index engine of a simulated brick: the model of `store`, which can crash between any two of its steps too.

use base::{Error, Kind, Result};
use runtime::random::SplitMix;
use runtime::sim::SimDisk;
use std::sync::{Arc, Mutex, MutexGuard};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit, Pair};

/// See the module.
pub struct CrashIndex {
    model: ModelIndex,
    disk: Arc<SimDisk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: u64,
    crash_at: Option<u64>,
    crashed: bool,
}

impl CrashIndex {
    /// An engine over what a crash left, or over nothing; it crashes together with `disk`.
    pub fn new(model: Option<ModelIndex>, disk: Arc<SimDisk>) -> CrashIndex {
        // Clones of a model share their content: machines that boot from one image must not.
        let model = model.map(|model| model.crashed(0));
        let model = model.unwrap_or_else(|| ModelIndex::new(store::format::leaf::merge));
        CrashIndex { model, disk, state: Mutex::default() }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// Crashes the machine right before a step (writes and persists, counted from 1).
    pub fn crash_at_step(&self, step: u64) {
        self.state().crash_at = Some(step);
    }
    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }
    /// What a crash at this moment leaves: an engine may keep more than it promised.
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
        state.steps += 1;
        Ok(())
    }
}

impl Index for CrashIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.model.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        self.model.scan(from, to, count)
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.step()?;
        self.model.write(edits)
    }
    fn persist(&self) -> Result<()> {
        self.step()?;
        self.model.persist()
    }
    fn written_bytes(&self) -> u64 {
        0
    }
    fn memory_bytes(&self) -> u64 {
        0
    }
}
