//! The caller's options, and the RocksDB options that follow from them.

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, LogLevel, MergeOperands,
    UniversalCompactOptions, WriteBufferManager,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use store::index::MergeLeaf;

/// The options of opening an index.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for blocks, their indexes and filters, and memtables; at least `CACHE_BYTES_MIN`.
    pub cache_bytes: usize,
    /// Make a new index; refused where one is. Without it an index must be there.
    pub create: bool,
    /// Only read: takes no lock and changes no file.
    pub read_only: bool,
    /// Most bytes per second that flush and compaction write (rule X2); flushes go first.
    pub write_bytes_per_second: u64,
    /// The tree's shape.
    pub shape: Shape,
}

/// Less makes memtables so small that compaction takes over.
pub const CACHE_BYTES_MIN: usize = 8 << 20;
/// Bound of background writing: a few percent of what an NVMe drive writes, and eight times the measured need at
/// 100,000 random block writes per second. A full memtable is flushed within a second.
const WRITE_BYTES_PER_SECOND: u64 = 128 << 20;
/// The pacer hands out its budget every 10 ms, so that no burst holds the device for longer than a few milliseconds.
const PACER_PERIOD_US: i64 = 10_000;
/// RocksDB's default: flushes go first nine times out of ten.
const PACER_FAIRNESS: i32 = 10;
/// Background threads: one flushes, one compacts.
const BACKGROUND_JOBS: i32 = 2;
/// Open table files; at 32 MiB each they hold 16 GiB of index, 4 TiB of data. Above it files are reopened.
const OPEN_FILES_MAX: i32 = 512;
/// Size of a table file: small enough that one compaction's output is a fraction of a second of writing.
const TABLE_BYTES: u64 = 32 << 20;
/// 8 KiB blocks hold 8 leaves: a random get reads two device blocks, and the block index stays small.
const BLOCK_BYTES: usize = 8 << 10;
/// Bloom bits per key: 1% of misses read a block in vain.
const BLOOM_BITS: f64 = 10.0;
/// RocksDB's own log: two files of 1 MiB, warnings only.
const LOG_BYTES: usize = 1 << 20;
/// The manifest is rewritten at this size, so that opening stays short.
const MANIFEST_BYTES: usize = 16 << 20;

/// The tree's shape; the default is what `docs/decisions/0002-index-engine.md` measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Compression of blocks.
    pub compression: Compression,
    /// The way in which sorted runs are merged.
    pub compaction: Compaction,
    /// Flushed tables that wait before they are merged into the next level.
    pub flushed_tables: i32,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// LZ4.
    Lz4,
}

/// The way in which sorted runs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Levels, each ten times the one above: least space.
    Levelled,
    /// Runs of like size: fewest bytes written, up to twice the space for a while.
    Universal,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { compression: Compression::Lz4, compaction: Compaction::Levelled, flushed_tables: 8 }
    }
}

impl Options {
    /// Opens an existing index for reading and writing.
    pub fn new(cache_bytes: usize) -> Options {
        Options {
            cache_bytes,
            create: false,
            read_only: false,
            write_bytes_per_second: WRITE_BYTES_PER_SECOND,
            shape: Shape::default(),
        }
    }
    /// Makes a new index.
    pub fn create(mut self) -> Options {
        self.create = true;
        self
    }
    /// Only reads.
    pub fn read_only(mut self) -> Options {
        self.read_only = true;
        self
    }

    fn cache(&self) -> usize {
        self.cache_bytes.max(CACHE_BYTES_MIN)
    }
    /// A quarter of the memory is for memtables: one that fills and one that is flushed. More than 64 MiB gains
    /// nothing, since every checkpoint flushes.
    fn memtables(&self) -> usize {
        (self.cache() / 4).min(128 << 20)
    }

    /// RocksDB's options; `direct` bypasses the page cache.
    pub(crate) fn engine(&self, merge: MergeLeaf, direct: bool) -> rocksdb::Options {
        let cache = Cache::new_lru_cache(self.cache());
        let mut options = rocksdb::Options::default();
        options.create_if_missing(self.create);
        options.set_paranoid_checks(true);
        options.set_use_direct_reads(direct);
        options.set_use_direct_io_for_flush_and_compaction(direct);
        options.set_block_based_table_factory(&tables(&cache));
        self.bound_memory(&mut options, cache);
        self.set_shape(&mut options);
        self.set_pace(&mut options);
        set_housekeeping(&mut options);
        set_merge(&mut options, merge);
        options
    }

    fn bound_memory(&self, options: &mut rocksdb::Options, cache: Cache) {
        let memtables = self.memtables();
        // Memtables are charged to the cache, so that one number bounds both.
        let manager = WriteBufferManager::new_write_buffer_manager_with_cache(memtables, false, cache);
        options.set_write_buffer_manager(&manager);
        options.set_write_buffer_size(memtables / 2);
        options.set_max_write_buffer_number(2);
        options.set_max_open_files(OPEN_FILES_MAX);
    }

    fn set_shape(&self, options: &mut rocksdb::Options) {
        let shape = self.shape;
        options.set_compression_type(match shape.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        });
        match shape.compaction {
            Compaction::Levelled => options.set_compaction_style(DBCompactionStyle::Level),
            Compaction::Universal => {
                options.set_compaction_style(DBCompactionStyle::Universal);
                options.set_universal_compaction_options(&UniversalCompactOptions::default());
            }
        }
        options.set_level_zero_file_num_compaction_trigger(shape.flushed_tables);
        // A checkpoint is slowed down, and later stopped, when compaction falls this far behind: reads would have to
        // look into ever more tables.
        options.set_level_zero_slowdown_writes_trigger(shape.flushed_tables * 3);
        options.set_level_zero_stop_writes_trigger(shape.flushed_tables * 5);
        options.set_target_file_size_base(TABLE_BYTES);
    }

    fn set_pace(&self, options: &mut rocksdb::Options) {
        let rate = i64::try_from(self.write_bytes_per_second).unwrap_or(i64::MAX).max(1 << 20);
        options.set_ratelimiter(rate, PACER_PERIOD_US, PACER_FAIRNESS);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        // Compaction keeps its share of a busy core: a lower priority would starve it, and checkpoints, which wait where
        // flushed tables pile up, with it. That it takes no core for itself is up to the pace.
        options.set_max_subcompactions(1);
    }
}

fn tables(cache: &Cache) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_block_size(BLOCK_BYTES);
    tables.set_bloom_filter(BLOOM_BITS, false);
    // In parts of 4 KiB, of which those that are in use stay in the cache. The filter of a table in one piece has up to a
    // megabyte, more than a shard of a small cache takes: each look at it would read it again.
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables
}

fn set_housekeeping(options: &mut rocksdb::Options) {
    // Who reads last what a flush or a compaction has replaced does not free it: a core may be the one (rule X1).
    options.set_avoid_unnecessary_blocking_io(true);
    options.enable_statistics();
    // Tickers only: they carry `written_bytes`; timers would cost a clock read per block.
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(LOG_BYTES);
    options.set_keep_log_file_num(2);
    options.set_max_manifest_file_size(MANIFEST_BYTES);
}

/// Name of the merge operator: stored in table files, hence for ever.
const MERGE_NAME: &str = "sinter.leaf.1";

fn set_merge(options: &mut rocksdb::Options, merge: MergeLeaf) {
    let full = move |_: &[u8], value: Option<&[u8]>, patches: &MergeOperands| lay(merge, value, patches.iter());
    // Without a value below, the first patch stands for it: the merge is associative.
    let partial = move |_: &[u8], _: Option<&[u8]>, patches: &MergeOperands| lay(merge, None, patches.iter());
    options.set_merge_operator(MERGE_NAME, full, partial);
}

/// Lays the patches over the value, in order. None, which RocksDB reports as corruption, when the function panics:
/// a panic must not cross into C++.
fn lay<'a>(merge: MergeLeaf, value: Option<&[u8]>, patches: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let work = || {
        let mut merged: Option<Vec<u8>> = None;
        for patch in patches {
            merged = Some(merge(merged.as_deref().or(value), patch));
        }
        merged.or_else(|| value.map(<[u8]>::to_vec))
    };
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}
