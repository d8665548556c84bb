//! The model engine: a map that loses everything after the last `persist` (decision D9).

use super::{Index, IndexEdit, MergeLeaf, Pair, Peeked};
use base::checksum::crc32c;
use base::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct State {
    live: Map,
    durable: Map,
    /// Writes since the last persist: a crash keeps any prefix of them.
    since: Vec<Vec<IndexEdit>>,
}

/// See the module. Clones share the same content, as a daemon and its successor share a disk.
#[derive(Clone)]
pub struct ModelIndex {
    merge: MergeLeaf,
    /// A snapshot takes no writes.
    read_only: bool,
    state: Arc<Mutex<State>>,
}

fn apply(map: &mut Map, merge: MergeLeaf, edits: &[IndexEdit]) {
    for edit in edits {
        match edit {
            IndexEdit::Put(key, value) => {
                map.insert(key.clone(), value.clone());
            }
            IndexEdit::Delete(key) => {
                map.remove(key);
            }
            IndexEdit::DeleteRange(from, to) => {
                let doomed: Vec<_> = map.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                doomed.iter().for_each(|key| drop(map.remove(key)));
            }
            IndexEdit::Patch(key, patch) => {
                let merged = merge(map.get(key).map(Vec::as_slice), patch);
                map.insert(key.clone(), merged);
            }
        }
    }
}

impl ModelIndex {
    /// An empty index.
    pub fn new(merge: MergeLeaf) -> ModelIndex {
        ModelIndex { merge, read_only: false, state: Arc::default() }
    }
    /// The crash image: the durable content and the first `kept` writes after it (an engine may persist more than
    /// it promised, but never a later write without the earlier).
    pub fn crashed(&self, kept: usize) -> ModelIndex {
        let state = self.state.lock().expect("no panic while held");
        let mut live = state.durable.clone();
        state.since.iter().take(kept).for_each(|edits| apply(&mut live, self.merge, edits));
        self.with(live)
    }
    /// Another index that has this durably.
    fn with(&self, live: Map) -> ModelIndex {
        let durable = live.clone();
        let state = Arc::new(Mutex::new(State { live, durable, since: Vec::new() }));
        ModelIndex { merge: self.merge, read_only: false, state }
    }
    fn writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::new(Kind::ReadOnly, "a snapshot of the index is read only")),
            false => Ok(()),
        }
    }
    /// Writes since the last persist.
    pub fn unpersisted(&self) -> usize {
        self.state.lock().expect("no panic while held").since.len()
    }
}

impl Index for ModelIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.state.lock().expect("no panic while held").live.get(key).cloned())
    }
    /// Peeks into memory. Half of the keys are not there, always the same ones, so that tests with this engine meet
    /// both cases.
    fn peek(&self, key: &[u8]) -> Result<Peeked> {
        if crc32c(key).is_multiple_of(2) { self.get(key).map(Peeked::Known) } else { Ok(Peeked::Unknown) }
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let state = self.state.lock().expect("no panic while held");
        let range = state.live.range(from.to_vec()..to.to_vec());
        Ok(range.take(count).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.writable()?;
        let mut state = self.state.lock().expect("no panic while held");
        apply(&mut state.live, self.merge, &edits);
        state.since.push(edits);
        Ok(())
    }
    fn persist(&self) -> Result<()> {
        self.writable()?;
        let mut state = self.state.lock().expect("no panic while held");
        let State { durable, since, .. } = &mut *state;
        since.drain(..).for_each(|edits| apply(durable, self.merge, &edits));
        Ok(())
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        let live = self.state.lock().expect("no panic while held").live.clone();
        Ok(Arc::new(ModelIndex { read_only: true, ..self.with(live) }))
    }
    fn written_bytes(&self) -> u64 {
        0
    }
    fn memory_bytes(&self) -> u64 {
        0
    }
}
