//! The index as it was at one moment. RocksDB's snapshot borrows the database: so it lives on the stack of a thread of its own, which
//! answers whoever holds the `Snapshot`, one question after another.

use crate::RocksIndex;
use crate::engine::{bounded, pairs, reading};
use crate::failure::{Doing, failure};
use base::{Error, Kind, Result};
use rocksdb::DB;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use store::index::{Index, IndexEdit, Pair};

/// A question to the thread, and where the answer goes.
enum Ask {
    Get(Vec<u8>, SyncSender<Result<Option<Vec<u8>>>>),
    GetMany(Vec<Vec<u8>>, SyncSender<Result<Vec<Option<Vec<u8>>>>>),
    Scan((Vec<u8>, Vec<u8>), usize, SyncSender<Result<Vec<Pair>>>),
}

/// See the module. Dropping it ends the thread.
pub(crate) struct Snapshot {
    index: Arc<RocksIndex>,
    /// None: it is being dropped.
    asks: Mutex<Option<SyncSender<Ask>>>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshot {
    /// Takes a snapshot. Errors: `Host` if there is no room for a thread.
    pub fn take(index: Arc<RocksIndex>) -> Result<Snapshot> {
        let (asks, asked) = sync_channel(1);
        let (taken, is_taken) = sync_channel(1);
        let of = index.clone();
        let answer = move || {
            runtime::real::set_batch_policy();
            let snapshot = of.database().snapshot();
            // Otherwise whoever asked for it has gone.
            if taken.send(()).is_ok() {
                serve(&snapshot, &asked);
            }
        };
        let thread = std::thread::Builder::new().name("index-snapshot".into()).spawn(answer);
        let thread = thread.map_err(|error| {
            Error::new(Kind::Host, "there is no room for a thread that holds a snapshot of the index").with(error)
        })?;
        let snapshot = Snapshot { index, asks: Mutex::new(Some(asks)), thread: Some(thread) };
        is_taken.recv().map_err(|_| gone())?;
        Ok(snapshot)
    }

    fn ask<T>(&self, ask: impl FnOnce(SyncSender<Result<T>>) -> Ask) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        let asks = self.asks.lock().expect("no panic while held").clone();
        let asks = asks.expect("it is there until it is dropped");
        asks.send(ask(answer)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // The thread ends when nobody can ask it any more.
        drop(self.asks.lock().expect("no panic while held").take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has told so.
            drop(thread.join());
        }
    }
}

/// The thread has ended before its time.
fn gone() -> Error {
    Error::new(Kind::Io, "the thread that holds a snapshot of the index has ended")
}

/// Answers questions until nobody can ask any more.
fn serve(snapshot: &rocksdb::SnapshotWithThreadMode<'_, DB>, asked: &Receiver<Ask>) {
    let failed = |error| failure(Doing::Read, error);
    for ask in asked {
        // Whoever has asked and gone does not want to know.
        match ask {
            Ask::Get(key, answer) => drop(answer.send(snapshot.get_opt(key, reading()).map_err(failed))),
            Ask::GetMany(keys, answer) => {
                let found = snapshot.multi_get_opt(keys, reading());
                drop(answer.send(found.into_iter().map(|value| value.map_err(failed)).collect()));
            }
            Ask::Scan((from, to), count, answer) => {
                let found = match from >= to || count == 0 {
                    true => Ok(Vec::new()),
                    false => pairs(snapshot.raw_iterator_opt(bounded(&from, &to)), &from, count),
                };
                drop(answer.send(found));
            }
        }
    }
}

impl Index for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.ask(|answer| Ask::Get(key.to_vec(), answer))
    }
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.ask(|answer| Ask::GetMany(keys.to_vec(), answer))
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        self.ask(|answer| Ask::Scan((from.to_vec(), to.to_vec()), count, answer))
    }
    fn write(&self, _: Vec<IndexEdit>) -> Result<()> {
        Err(read_only())
    }
    fn persist(&self) -> Result<()> {
        Err(read_only())
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        Ok(self)
    }
    fn written_bytes(&self) -> u64 {
        self.index.written_bytes()
    }
    fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }
}

fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "a snapshot of the index is read only")
}
