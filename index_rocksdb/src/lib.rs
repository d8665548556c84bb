//! The index engine: RocksDB behind `store::index::Index` (decision D8, rules X1, X2, X4).
//!
//! Promises
//! - A write is one `WriteBatch`: atomic. With the write-ahead log off it lives in one memtable as a whole (RocksDB
//!   changes memtables only between batches, `DBImpl::PreprocessWrite`); memtables reach the manifest in the order
//!   in which they were made (`MemTableList::TryInstallMemtableFlushResults`). There is one column family, so a crash
//!   leaves a prefix of the writes. `tests/crash.rs` kills a writing process to see it.
//! - `persist` returns after the table file, its directory and the manifest were synced, and not before every
//!   earlier memtable is in the manifest too.
//! - An index that opens without something that was persisted is `Corrupt` (`mark`).
//! - Every block's checksum is verified when it is read from the device. What fails is `Corrupt`, never a panic and
//!   never a wrong value; a merge function that panics is `Corrupt` too.
//! - Memory is bounded by `Options::cache_bytes` (blocks, their indexes and filters, memtables) and the largest
//!   write in flight. Flush and compaction bypass the page cache and are paced.
//! - What can be read of an index with bad blocks can be copied (`salvage`), and where rows are missing is told.
//!
//! Not here: what keys and values mean, when to checkpoint, caching of decoded leaves.
#![forbid(unsafe_code)]

mod engine;
mod failure;
mod manifest;
mod mark;
mod options;
mod place;
mod salvage;
mod snapshot;
#[cfg(test)]
mod tests;

pub use engine::RocksIndex;
pub use options::{Compaction, Compression, Options, Shape};
pub use salvage::{Salvaged, salvage};
