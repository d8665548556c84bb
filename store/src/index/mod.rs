//! The interface to the index engine: an ordered map from keys to values that changes only by checkpoints (rule X1).

pub mod model;
pub mod paths;

use crate::format::keys;
use base::Result;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Number of rows that `each` reads at a time.
const ROWS: usize = 256;

/// One change of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEdit {
    /// Set a key's value.
    Put(Vec<u8>, Vec<u8>),
    /// Remove a key, if it is there.
    Delete(Vec<u8>),
    /// Remove all keys in `from..to`.
    DeleteRange(Vec<u8>, Vec<u8>),
    /// Lay a partial leaf over the key's leaf by `format::leaf::merge`: slots named by the patch replace those of
    /// the value, a missing value counts as an empty leaf. The engine may put the merge off until it reads.
    Patch(Vec<u8>, Vec<u8>),
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Merges a patch into a leaf's value: `merge(value, patch) -> value`; both are leaf bytes; associative.
pub type MergeLeaf = fn(Option<&[u8]>, &[u8]) -> Vec<u8>;

/// The knowledge that memory alone has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// Its value, or that it has none.
    Known(Option<Vec<u8>>),
    /// The device must be asked.
    Unknown,
}

/// The engine. All calls but `peek` block: they run in the pool, never on a core (rule X1).
///
/// Durability: what `write` was given is visible to reads at once; it survives a crash only after a later
/// `persist`, and then always together with every earlier write. Each write is atomic: after any crash all of its
/// edits are there or none.
pub trait Index: Send + Sync {
    /// A key's value. Errors: `Corrupt` when the stored block fails its checksum (rule X4), `Io`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// A key's value, if memory can tell: takes microseconds and never waits for the device. Errors: as `get`.
    fn peek(&self, _key: &[u8]) -> Result<Peeked> {
        Ok(Peeked::Unknown)
    }
    /// The values of many keys, which come in ascending order. Errors: as `get`.
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// The first `count` pairs with `from <= key < to`, in key order.
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>>;
    /// Applies all edits, in order, as one atomic change.
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()>;
    /// Makes every earlier write durable.
    fn persist(&self) -> Result<()>;
    /// The index as it is now, whatever is written later; to write to it is refused (`ReadOnly`).
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>>;
    /// Bytes written to the device so far by the engine, as far as it knows; 0 if it does not.
    fn written_bytes(&self) -> u64;
    /// Memory that the engine's caches hold, in bytes, as far as it knows.
    fn memory_bytes(&self) -> u64;
}

/// Goes through the rows between two keys, a bounded number at a time. Errors: those of the engine and of `with`.
pub fn each(index: &dyn Index, bounds: keys::Bounds, mut with: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    each_until(index, bounds, |key, value| with(key, value).map(ControlFlow::Continue)).map(drop)
}

/// The same, until `with` wants no more: then it ends with a break.
pub fn each_until(
    index: &dyn Index,
    (mut from, to): keys::Bounds,
    mut with: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    loop {
        let rows = index.scan(&from, &to, ROWS)?;
        for (key, value) in &rows {
            if with(key, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == ROWS => from = keys::after(key),
            _ => return Ok(ControlFlow::Continue(())),
        }
    }
}
