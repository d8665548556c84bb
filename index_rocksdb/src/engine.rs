//! The engine behind the door.

use crate::failure::{Doing, failure};
use crate::mark::Mark;
use crate::snapshot::Snapshot;
use crate::{Options, place};
use base::{Error, Kind, Result};
use rocksdb::statistics::Ticker;
use rocksdb::{
    DB, DBRawIterator, ErrorKind, FlushOptions, ReadOptions, ReadTier, WaitForCompactOptions, WriteBatch, WriteOptions,
    properties,
};
use runtime::real::Directory;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::index::{Index, IndexEdit, MergeLeaf, Pair, Peeked};

/// RocksDB's message when the file system has no direct I/O.
const NO_DIRECT_IO: &str = "Direct I/O is not supported";

/// An open index. Dropping it persists what was written, as far as the device lets it.
pub struct RocksIndex {
    database: DB,
    /// Holds the statistics that `database` counts in.
    options: rocksdb::Options,
    peeking: ReadOptions,
    /// Held while a persist marks how far it came; so persists go one at a time.
    mark: Mutex<Mark>,
    direct: bool,
    read_only: bool,
    /// The directory through which `database` reaches its files; open, and held by nobody else, until that is closed.
    _directory: Directory,
}

impl RocksIndex {
    /// Opens the index in the directory `path`; as `open_in`.
    pub fn open(path: &Path, options: &Options, merge: MergeLeaf) -> Result<RocksIndex> {
        let (parent, name) = Directory::of_file(path).map_err(|error| error.with(path.display()))?;
        let name = name.to_str().ok_or_else(|| Error::new(Kind::Invalid, "an index has a name of letters"))?;
        RocksIndex::open_in(&parent, name, options, merge)
    }

    /// Opens the index in a directory of another one. `merge` lays patches over leaves; it must be associative and the same
    /// for as long as the index lives. Blocks.
    ///
    /// Errors: `NotFound` without an index, `Exists` when a new one was asked for where one is, `Busy` when another
    /// process has it open, `Corrupt`, `Permission`, `NoSpace`, `Io`.
    pub fn open_in(parent: &Directory, name: &str, options: &Options, merge: MergeLeaf) -> Result<RocksIndex> {
        let directory = place::prepare(parent, name, options)?;
        let shown = directory.path().to_path_buf();
        // Before RocksDB's own files: an index without a mark must not come to be.
        let mark = if options.create { Mark::create(&directory) } else { Mark::open(&directory, options.read_only) };
        let mark = mark.map_err(|error| error.with(shown.display()))?;
        let failed = |error| failure(Doing::Open, error).with(shown.display());
        let lacking = |error: Error| error.with(shown.display());
        let path = directory.at("");
        if !options.create {
            // A look that changes nothing: opening to write deletes the tables that the manifest doesn't know, and with
            // them what a repair would need.
            let (seen, ..) = open(&path, &options.clone().read_only(), merge).map_err(failed)?;
            mark.check(seen.latest_sequence_number()).map_err(lacking)?;
        }
        let (database, engine, direct) = open(&path, options, merge).map_err(failed)?;
        mark.check(database.latest_sequence_number()).map_err(lacking)?;
        let (peeking, mark, read_only) = (peeking(), Mutex::new(mark), options.read_only);
        Ok(RocksIndex { database, options: engine, peeking, mark, direct, read_only, _directory: directory })
    }

    pub(crate) fn database(&self) -> &DB {
        &self.database
    }

    /// True if the engine's own I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Waits until no compaction is left to do; for measurements and for tools that stop afterwards.
    pub fn settle(&self) -> Result<()> {
        self.database.wait_for_compact(&WaitForCompactOptions::default()).map_err(|error| failure(Doing::Settle, error))
    }

    /// Bytes of all table files that hold the present state.
    pub fn stored_bytes(&self) -> u64 {
        self.property(properties::LIVE_SST_FILES_SIZE)
    }

    fn property(&self, name: &properties::PropName) -> u64 {
        // A figure for people: what RocksDB can't tell counts as nothing.
        self.database.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    fn writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::new(Kind::ReadOnly, "the index was opened to be read only")),
            false => Ok(()),
        }
    }
}

/// Opens the database; says whether its I/O is direct. The threads that RocksDB starts for flushes and compactions,
/// once per process, are like the one that opens it: here one that gives way to whoever serves clients.
pub(crate) fn open(
    path: &Path,
    options: &Options,
    merge: MergeLeaf,
) -> Result<(DB, rocksdb::Options, bool), rocksdb::Error> {
    let opener = || {
        runtime::real::set_batch_policy();
        open_here(path, options, merge)
    };
    std::thread::scope(|scope| scope.spawn(opener).join()).expect("RocksDB opens without a panic")
}

fn open_here(path: &Path, options: &Options, merge: MergeLeaf) -> Result<(DB, rocksdb::Options, bool), rocksdb::Error> {
    let attempt = |direct: bool| -> Result<_, rocksdb::Error> {
        let engine = options.engine(merge, direct);
        let database = match options.read_only {
            true => DB::open_for_read_only(&engine, path, false)?,
            false => DB::open(&engine, path)?,
        };
        Ok((database, engine, direct))
    };
    match attempt(true) {
        // A file system in memory: tests, and trials of a command.
        Err(error) if error.as_ref().contains(NO_DIRECT_IO) => attempt(false),
        other => other,
    }
}

/// Options for reading rows: verified.
pub(crate) fn reading() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_verify_checksums(true);
    options
}

/// Options for reading rows of a range, verified.
pub(crate) fn bounded(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = reading();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

/// The first `count` pairs of an iterator from a key on.
pub(crate) fn pairs(mut iterator: DBRawIterator<'_>, from: &[u8], count: usize) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    iterator.seek(from);
    while pairs.len() < count {
        let Some((key, value)) = iterator.item() else { break };
        pairs.push((key.to_vec(), value.to_vec()));
        iterator.next();
    }
    // An iterator ends at the range's end and at an error alike.
    iterator.status().map_err(|error| failure(Doing::Read, error))?;
    assert!(pairs.len() <= count && pairs.is_sorted_by(|a, b| a.0 < b.0));
    Ok(pairs)
}

/// Options for reading rows from memory alone: memtables and cached blocks, which were verified when they came there.
fn peeking() -> ReadOptions {
    let mut options = reading();
    options.set_read_tier(ReadTier::BlockCache);
    options
}

/// Bytes that a batch needs, so that it is allocated once: RocksDB adds a tag and two lengths per edit.
fn batch_bytes(edits: &[IndexEdit]) -> usize {
    const OVERHEAD_BYTES: usize = 12;
    let edit_bytes = |edit: &IndexEdit| match edit {
        IndexEdit::Put(a, b) | IndexEdit::DeleteRange(a, b) | IndexEdit::Patch(a, b) => a.len() + b.len(),
        IndexEdit::Delete(key) => key.len(),
    };
    edits.iter().map(|edit| edit_bytes(edit) + OVERHEAD_BYTES).sum::<usize>() + OVERHEAD_BYTES
}

fn batch(edits: &[IndexEdit]) -> WriteBatch {
    let mut batch = WriteBatch::with_capacity_bytes(batch_bytes(edits));
    for edit in edits {
        match edit {
            IndexEdit::Put(key, value) => batch.put(key, value),
            IndexEdit::Delete(key) => batch.delete(key),
            // RocksDB refuses a range that ends before it starts; to the door it is an empty one.
            IndexEdit::DeleteRange(from, to) if from >= to => {}
            IndexEdit::DeleteRange(from, to) => batch.delete_range(from, to),
            IndexEdit::Patch(key, patch) => batch.merge(key, patch),
        }
    }
    batch
}

impl Index for RocksIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.database.get_opt(key, &reading()).map_err(|error| failure(Doing::Read, error))
    }

    fn peek(&self, key: &[u8]) -> Result<Peeked> {
        match self.database.get_opt(key, &self.peeking) {
            Ok(value) => Ok(Peeked::Known(value)),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(Peeked::Unknown),
            Err(error) => Err(failure(Doing::Read, error)),
        }
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let found = self.database.multi_get_opt(keys, &reading());
        found.into_iter().map(|value| value.map_err(|error| failure(Doing::Read, error))).collect()
    }

    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        match from >= to || count == 0 {
            true => Ok(Vec::new()),
            false => pairs(self.database.raw_iterator_opt(bounded(from, to)), from, count),
        }
    }

    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.writable()?;
        let batch = batch(&edits);
        // The batch holds its own copy; a checkpoint's edits are the largest thing in memory here.
        drop(edits);
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.database.write_opt(batch, &options).map_err(|error| failure(Doing::Write, error))
    }

    fn persist(&self) -> Result<()> {
        self.writable()?;
        let mut mark = self.mark.lock().expect("no panic while held");
        // Read before the flush: later writes may be in it, earlier ones are.
        let sequence = self.database.latest_sequence_number();
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.database.flush_opt(&options).map_err(|error| failure(Doing::Persist, error))?;
        mark.advance(sequence)
    }

    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        Ok(Arc::new(Snapshot::take(self)?))
    }

    fn written_bytes(&self) -> u64 {
        let count = |ticker| self.options.get_ticker_count(ticker);
        count(Ticker::FlushWriteBytes) + count(Ticker::CompactWriteBytes)
    }

    fn memory_bytes(&self) -> u64 {
        // Memtables are charged to the cache; readers of open tables are not.
        self.property(properties::BLOCK_CACHE_USAGE) + self.property(properties::ESTIMATE_TABLE_READERS_MEM)
    }
}
