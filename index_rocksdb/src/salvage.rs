//! Salvage of an index with damaged blocks: its readable rows are copied into a new one.
//!
//! The rows of all tables are read as one. Where a block is bad, no rows are taken from the last row before it to the
//! first one behind it, of any table: older rows that other tables still hold of that range must not come back.

use crate::engine::{RocksIndex, open, reading};
use crate::failure::{Doing, failure};
use crate::mark::Mark;
use crate::{Options, place};
use base::{Kind, Result};
use rocksdb::{DB, DBRawIterator};
use runtime::real::Directory;
use store::index::{Index, IndexEdit, MergeLeaf};
use store::repair::gaps::Gap;

/// Rows written at once: 4 MB if all are full leaves.
const ROWS: usize = 4096;
/// Bytes of a key that are counted up to find the end of a bad block: to the end of an inode's number.
const STEP_BYTES: usize = 17;

/// The copied rows, as figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Rows.
    pub rows: u64,
    /// Ranges where nothing could be read.
    pub gaps: Vec<Gap>,
}

/// Copies all rows of the index `from` that can be read into a new one `to` in the same directory, durably. `from` stays as it is, and
/// nobody has it open to write. Blocks. Errors: `Corrupt` if it can't even be opened; as `RocksIndex::open` for the new one.
pub fn salvage(parent: &Directory, from: &str, to: &str, options: &Options, merge: MergeLeaf) -> Result<Salvaged> {
    let read = Options { create: false, ..options.clone().read_only() };
    let directory = place::prepare(parent, from, &read)?;
    let mark = Mark::open(&directory, true)?;
    let (old, ..) = open(&directory.at(""), &read, merge)
        .map_err(|error| failure(Doing::Open, error).with(directory.path().display()))?;
    mark.check(old.latest_sequence_number())?;
    let new = RocksIndex::open_in(parent, to, &Options { read_only: false, ..options.clone().create() }, merge)?;
    let mut copy = Copy { old: &old, new: &new, edits: Vec::new(), salvaged: Salvaged::default() };
    copy.all()?;
    let salvaged = copy.salvaged;
    new.persist()?;
    Ok(salvaged)
}

struct Copy<'a> {
    old: &'a DB,
    new: &'a RocksIndex,
    edits: Vec<IndexEdit>,
    salvaged: Salvaged,
}

impl Copy<'_> {
    fn all(&mut self) -> Result<()> {
        let mut iterator = self.old.raw_iterator_opt(reading());
        iterator.seek_to_first();
        let mut last = Vec::new();
        while !self.up(&mut iterator, &mut last)? {
            let behind = steps(&last).into_iter().find(|key| {
                iterator.seek(key);
                iterator.status().is_ok()
            });
            let before = match &behind {
                Some(key) => self.down(key, &last)?,
                None => Vec::new(),
            };
            self.salvaged.gaps.push(Gap { after: last.clone(), before });
            let Some(key) = behind else { break };
            last = key;
        }
        self.write()
    }

    /// Copies rows to the end, or to a bad block: then false. `last`: the last key seen.
    fn up(&mut self, iterator: &mut DBRawIterator<'_>, last: &mut Vec<u8>) -> Result<bool> {
        while let Some((key, value)) = iterator.item() {
            last.clear();
            last.extend_from_slice(key);
            self.take(key, value)?;
            iterator.next();
        }
        match iterator.status().map_err(|error| failure(Doing::Read, error)) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies rows before `key` down to a bad block behind `last`; the first key that could be read.
    fn down(&mut self, key: &[u8], last: &[u8]) -> Result<Vec<u8>> {
        let mut first = key.to_vec();
        let mut iterator = self.old.raw_iterator_opt(reading());
        iterator.seek_for_prev(key);
        while let Some((found, value)) = iterator.item().filter(|(found, _)| *found > last) {
            first.clear();
            first.extend_from_slice(found);
            // `key` itself comes on the way up.
            if found != key {
                self.take(found, value)?;
            }
            iterator.prev();
        }
        Ok(first)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.salvaged.rows += 1;
        self.edits.push(IndexEdit::Put(key.to_vec(), value.to_vec()));
        if self.edits.len() >= ROWS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        match self.edits.is_empty() {
            true => Ok(()),
            false => self.new.write(std::mem::take(&mut self.edits)),
        }
    }
}

/// Keys behind a key, each twice as far as the one before.
fn steps(key: &[u8]) -> Vec<Vec<u8>> {
    let mut start = key.to_vec();
    start.resize(STEP_BYTES, 0);
    let step = |bit: usize| {
        let mut at = start.clone();
        let byte = STEP_BYTES - 1 - bit / 8;
        let mut carry = 1u16 << (bit % 8);
        for digit in at[..=byte].iter_mut().rev() {
            let sum = u16::from(*digit) + carry;
            (*digit, carry) = (sum as u8, sum >> 8);
        }
        (carry == 0).then_some(at)
    };
    (0..8 * STEP_BYTES).filter_map(step).collect()
}
