//! The engine against the model, and what it does when its directory or its files are not as they should be.

use crate::{Options, RocksIndex, salvage};
use base::{Kind, Result};
use runtime::random::SplitMix;
use runtime::real::Directory;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit, Peeked};

const CACHE_BYTES: usize = 8 << 20;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("sinter-index-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Scratch(path)
    }
    fn index(&self) -> PathBuf {
        self.0.join("index")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A small leaf: pairs of slot and content, sorted by slot; a patch has the same form.
fn lay(value: Option<&[u8]>, patch: &[u8]) -> Vec<u8> {
    let mut slots: std::collections::BTreeMap<u8, u8> = Default::default();
    for bytes in [value.unwrap_or_default(), patch] {
        slots.extend(bytes.chunks_exact(2).map(|pair| (pair[0], pair[1])));
    }
    slots.into_iter().flat_map(|(slot, content)| [slot, content]).collect()
}

fn create(path: &Path) -> RocksIndex {
    RocksIndex::open(path, &Options::new(CACHE_BYTES).create(), lay).expect("a new index in an empty place")
}

fn reopen(path: &Path) -> Result<RocksIndex> {
    RocksIndex::open(path, &Options::new(CACHE_BYTES), lay)
}

fn refusal(path: &Path, options: &Options) -> base::Error {
    match RocksIndex::open(path, options, lay) {
        Err(error) => error,
        Ok(_) => panic!("{} should not open", path.display()),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

fn put(number: u64, content: u8) -> IndexEdit {
    // Two bytes per pair of slot and content; long enough that tables have many blocks.
    IndexEdit::Put(key(number), (0..100).flat_map(|slot| [slot, content]).collect())
}

fn random_edit(random: &mut SplitMix, keys: u64) -> IndexEdit {
    let at = random.below(keys);
    match random.below(10) {
        0 | 1 => IndexEdit::Put(key(at), vec![random.below(9) as u8 * 7, random.next() as u8]),
        2 => IndexEdit::Delete(key(at)),
        // Now and then a range that ends before it starts: nothing is in it.
        3 => IndexEdit::DeleteRange(key(at + 1), key(at + random.below(6))),
        _ => IndexEdit::Patch(key(at), vec![random.below(200) as u8, random.next() as u8]),
    }
}

/// The model's map refuses ranges that end before they start.
fn for_model(edits: &[IndexEdit]) -> Vec<IndexEdit> {
    let empty = |edit: &&IndexEdit| matches!(edit, IndexEdit::DeleteRange(from, to) if from >= to);
    edits.iter().filter(|edit| !empty(edit)).cloned().collect()
}

fn compare(index: &dyn Index, model: &dyn Index, random: &mut SplitMix, keys: u64) {
    for _ in 0..20 {
        let at = key(random.below(keys));
        let known = model.get(&at).map(Peeked::Known);
        let peeked = index.peek(&at);
        assert!(peeked == Ok(Peeked::Unknown) || peeked == known, "{peeked:?}");
        // What was read is in memory, unless a compaction put other tables in the place of those that it was read from,
        // just then. It has blocks to read and to write before it can do so again.
        let read = (0..3).any(|_| {
            assert_eq!(index.get(&at), model.get(&at));
            let peeked = index.peek(&at);
            assert!(peeked == Ok(Peeked::Unknown) || peeked == known, "{peeked:?}");
            peeked == known
        });
        assert!(read, "what was read is in memory");
        let (from, to, count) = (key(random.below(keys)), key(random.below(keys)), random.below(50) as usize);
        assert_eq!(index.scan(&from, &to, count), model.scan(&from, &to, count));
    }
    assert_eq!(index.scan(b"", b"z", usize::MAX), model.scan(b"", b"z", usize::MAX));
}

#[test]
fn answers_like_the_model() {
    let scratch = Scratch::new("model");
    let mut random = SplitMix(7);
    let model = ModelIndex::new(lay);
    let mut index = create(&scratch.index());
    for round in 0..300 {
        // Few keys for many patches of one, many for several tables.
        let keys = if round % 3 == 0 { 12 } else { 2000 };
        let edits: Vec<_> = (0..random.below(200)).map(|_| random_edit(&mut random, keys)).collect();
        model.write(for_model(&edits)).expect("the model takes all");
        index.write(edits).expect("a healthy disk");
        match random.below(8) {
            0 | 1 => index.persist().expect("a healthy disk"),
            2 => index.settle().expect("a healthy disk"),
            3 => {
                drop(index);
                index = reopen(&scratch.index()).expect("closed in order");
            }
            _ => {}
        }
        compare(&index, &model, &mut random, keys);
    }
}

/// The tables are spoilt beneath an open index: whoever asked the device would be told.
#[test]
fn a_peek_tells_what_memory_has_and_never_asks_the_device() {
    let scratch = Scratch::new("peek");
    filled(&scratch.index());
    let index = reopen(&scratch.index()).expect("closed in order");
    index.write(vec![IndexEdit::Patch(key(7), vec![0, 1]), put(300, 5)]).expect("a healthy disk");
    let read = index.get(&key(100)).expect("a healthy disk");
    for table in files(&scratch.index(), is_table) {
        let spoilt: Vec<u8> = fs::read(&table).expect("readable").iter().map(|byte| !byte).collect();
        fs::write(&table, spoilt).expect("writable");
    }
    assert_eq!(index.peek(&key(100)), Ok(Peeked::Known(read)));
    let new = index.get(&key(300)).expect("it is in memory");
    assert!(new.is_some() && index.peek(&key(300)) == Ok(Peeked::Known(new)));
    // The patch is in memory, what it is laid over is not.
    assert_eq!(index.peek(&key(7)), Ok(Peeked::Unknown));
    assert_eq!(index.peek(&key(200)), Ok(Peeked::Unknown));
    assert_eq!(index.get(&key(200)).expect_err("it is spoilt").kind, Kind::Corrupt);
}

/// The name of a file that is to be created: most are new, and the filters say so.
#[test]
fn memory_tells_that_a_key_is_not_there() {
    let scratch = Scratch::new("absent");
    filled(&scratch.index());
    let index = reopen(&scratch.index()).expect("closed in order");
    let absent = |number: u64| format!("key{number:04}+").into_bytes();
    assert_eq!(index.get(&absent(0)), Ok(None), "the first one brings the filters into memory");
    let told = (1..299).filter(|number| index.peek(&absent(*number)) == Ok(Peeked::Known(None))).count();
    // The filters are wrong about one in a hundred of each of the two tables.
    assert!(told > 270, "{told} of 298");
}

#[test]
fn counts_what_it_writes_and_holds() {
    let scratch = Scratch::new("figures");
    let index = create(&scratch.index());
    assert_eq!(index.written_bytes(), 0);
    index.write((0..2000).map(|number| put(number, 1)).collect()).expect("a healthy disk");
    assert!(index.memory_bytes() >= 2000 * 200);
    index.persist().expect("a healthy disk");
    assert!(index.written_bytes() > 0 && index.stored_bytes() > 0);
    assert!(index.stored_bytes() <= index.written_bytes());
}

#[test]
fn memory_stays_within_the_cache() {
    let scratch = Scratch::new("memory");
    let index = create(&scratch.index());
    for round in 0..40 {
        index.write((0..5000).map(|number| put(number, round)).collect()).expect("a healthy disk");
        (0..5000).step_by(7).for_each(|number| drop(index.get(&key(number)).expect("a healthy disk")));
    }
    // What was written is 40 MB. The cache is a soft bound: pinned blocks and the batch in flight come on top.
    assert!(index.memory_bytes() < 2 * CACHE_BYTES as u64, "{}", index.memory_bytes());
}

#[test]
fn a_missing_or_unfit_directory_is_named() {
    let scratch = Scratch::new("unfit");
    let open = Options::new(CACHE_BYTES);
    let refused = |path: &Path, options: &Options, kind: Kind| {
        let error = refusal(path, options);
        assert_eq!(error.kind, kind, "{error}");
        let context = error.context.expect("says where");
        assert!(context.contains(&*path.to_string_lossy()), "{context}");
    };
    refused(&scratch.index(), &open, Kind::NotFound);
    assert!(!scratch.index().exists(), "a refused open makes nothing");
    refused(&scratch.0.join("a/b"), &open.clone().create(), Kind::NotFound);
    fs::write(scratch.0.join("file"), b"").expect("writable");
    refused(&scratch.0.join("file"), &open, Kind::NotDirectory);
    fs::create_dir(scratch.index()).expect("writable");
    refused(&scratch.index(), &open, Kind::NotFound);
    refused(&scratch.index(), &open.clone().read_only(), Kind::NotFound);
    assert_eq!(refusal(&scratch.index(), &open.clone().create().read_only()).kind, Kind::Invalid);

    drop(create(&scratch.index()));
    refused(&scratch.index(), &open.clone().create(), Kind::Exists);
    fs::remove_file(scratch.index().join("CURRENT")).expect("writable");
    refused(&scratch.index(), &open, Kind::Corrupt);
    refused(&scratch.index(), &open.create(), Kind::Exists);
}

#[test]
fn a_link_in_the_index_is_not_followed() {
    let scratch = Scratch::new("links");
    drop(create(&scratch.index()));
    let victim = scratch.0.join("victim");
    fs::write(&victim, "precious").expect("writable");
    for name in ["LOG", "PERSISTED", "000099.sst", "CURRENT"] {
        let (path, away) = (scratch.index().join(name), scratch.0.join("away"));
        let had = fs::rename(&path, &away).is_ok();
        std::os::unix::fs::symlink(&victim, &path).expect("writable");
        assert_eq!(refusal(&scratch.index(), &Options::new(CACHE_BYTES)).kind, Kind::Permission, "{name}");
        fs::remove_file(&path).expect("writable");
        if had {
            fs::rename(&away, &path).expect("writable");
        }
    }
    assert_eq!(fs::read_to_string(&victim).expect("readable"), "precious");
    reopen(&scratch.index()).expect("nothing was changed");
}

#[test]
fn one_process_writes_and_others_may_read() {
    let scratch = Scratch::new("lock");
    let index = create(&scratch.index());
    index.write(vec![put(1, 1)]).expect("a healthy disk");
    index.persist().expect("a healthy disk");
    assert_eq!(refusal(&scratch.index(), &Options::new(CACHE_BYTES)).kind, Kind::Busy);
    let reader = RocksIndex::open(&scratch.index(), &Options::new(CACHE_BYTES).read_only(), lay).expect("no lock");
    assert_eq!(reader.get(&key(1)), index.get(&key(1)));
    let kind = |result: Result<()>| result.expect_err("read-only").kind;
    assert_eq!(kind(reader.write(vec![put(2, 2)])), Kind::ReadOnly);
    assert_eq!(kind(reader.persist()), Kind::ReadOnly);
}

#[test]
fn a_full_memtable_never_splits_a_write() {
    let scratch = Scratch::new("large");
    let index = create(&scratch.index());
    // Memtables hold 1 MiB at this cache size: each write is several of them.
    for round in 0..3 {
        index.write((0..30_000).map(|number| put(number, round)).collect()).expect("a healthy disk");
    }
    let reader = RocksIndex::open(&scratch.index(), &Options::new(CACHE_BYTES).read_only(), lay).expect("no lock");
    let pairs = reader.scan(b"", b"z", usize::MAX).expect("a healthy disk");
    assert!(pairs.is_empty() || pairs.len() == 30_000, "{}", pairs.len());
    assert!(pairs.iter().all(|pair| pair.1 == pairs[0].1), "a write is there in part");
}

/// Files of the index with this ending.
/// A checkpoint waits for compaction where flushed tables pile up: on a machine that is busy with other things, compaction must
/// have its share of it.
#[test]
fn others_that_take_all_cores_do_not_stop_checkpoints() {
    const LONGEST: Duration = Duration::from_secs(5);
    let scratch = Scratch::new("busy");
    let index = create(&scratch.index());
    let ended = AtomicBool::new(false);
    let spin = || {
        while !ended.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        (0..2 * cores).for_each(|_| drop(scope.spawn(spin)));
        let mut random = SplitMix(5);
        // More tables than may wait, each of half a MiB that does not compress.
        let longest = (0..40).map(|_| {
            let mut value = || (0..64).flat_map(|_| random.next().to_le_bytes()).collect();
            let edits = (0..1000).map(|number| IndexEdit::Put(key(number * 7), value())).collect();
            let started = Instant::now();
            index.write(edits).and_then(|()| index.persist()).expect("the directory is writable");
            started.elapsed()
        });
        let longest = longest.max();
        ended.store(true, Ordering::Relaxed);
        assert!(longest < Some(LONGEST), "a checkpoint took {longest:?}");
    });
}

fn files(path: &Path, named: fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("readable").map(|entry| entry.expect("readable").path());
    let name = |path: &PathBuf| path.file_name().is_some_and(|name| named(&name.to_string_lossy()));
    let mut files: Vec<_> = entries.filter(name).collect();
    files.sort();
    files
}

fn is_table(name: &str) -> bool {
    name.ends_with(".sst")
}

fn is_manifest(name: &str) -> bool {
    name.starts_with("MANIFEST-")
}

/// An index of 300 keys in two tables; returns what a scan of it yields.
fn filled(path: &Path) -> Vec<store::index::Pair> {
    let index = create(path);
    for part in 0..2 {
        index
            .write((0..300).filter(|number| number % 2 == part).map(|number| put(number, 9)).collect())
            .expect("healthy");
        index.persist().expect("healthy");
    }
    index.scan(b"", b"z", usize::MAX).expect("healthy")
}

#[test]
fn a_flipped_byte_in_a_table_is_corrupt_and_nothing_else() {
    let scratch = Scratch::new("table");
    let expected = filled(&scratch.index());
    let tables = files(&scratch.index(), is_table);
    assert_eq!(tables.len(), 2);
    let healthy = fs::read(&tables[0]).expect("readable");
    let mut random = SplitMix(3);
    let (mut at_open, mut at_read, mut unread) = (0, 0, 0);
    for _ in 0..150 {
        let mut bytes = healthy.clone();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        fs::write(&tables[0], &bytes).expect("writable");
        match reopen(&scratch.index()) {
            Err(error) => {
                assert_eq!(error.kind, Kind::Corrupt, "{error}");
                at_open += 1;
            }
            Ok(index) => {
                let mut failed = false;
                for (key, value) in &expected {
                    match index.get(key) {
                        Ok(found) => assert_eq!(found.as_ref(), Some(value)),
                        Err(error) => {
                            assert_eq!(error.kind, Kind::Corrupt, "{error}");
                            failed = true;
                        }
                    }
                }
                let scan = index.scan(b"", b"z", usize::MAX);
                assert!(scan.is_err() || !failed, "a scan reads what a get reads");
                assert!(scan.is_err() || scan.as_ref() == Ok(&expected));
                if failed { at_read += 1 } else { unread += 1 }
            }
        }
    }
    // Bytes that no get needs: table properties, the filter (without it every block is read), padding.
    assert!(at_read > 75, "{at_open} at open, {at_read} at read, {unread} unread");
    fs::write(&tables[0], &healthy).expect("writable");
    let index = reopen(&scratch.index()).expect("restored");
    assert_eq!(index.scan(b"", b"z", usize::MAX), Ok(expected));
}

/// Bytes that the calling thread has read from files.
fn thread_read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").expect("Linux tells it");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("it is told");
    line.parse().expect("a number")
}

#[test]
fn what_is_not_there_is_told_without_reading_much() {
    let scratch = Scratch::new("absent");
    let index = create(&scratch.index());
    let key = |number: u64| format!("a name of some length {:016x}", SplitMix(number).next()).into_bytes();
    const KEYS: u64 = 1_000_000;
    for batch in 0..KEYS / 10_000 {
        let numbers = batch * 10_000..(batch + 1) * 10_000;
        index.write(numbers.map(|number| IndexEdit::Put(key(number), vec![0, 1])).collect()).expect("written");
    }
    index.persist().and_then(|()| index.settle()).expect("persisted");
    const GETS: u64 = 2_000;
    let before = thread_read_bytes();
    for number in KEYS..KEYS + GETS {
        assert_eq!(index.get(&key(number)), Ok(None));
    }
    let each = (thread_read_bytes() - before) / GETS;
    println!("{each} bytes are read for a key that is not there");
    assert!(each < 16 << 10, "{each} bytes: a few parts of filters, not whole ones");
}

#[test]
fn a_short_or_missing_table_is_corrupt() {
    let scratch = Scratch::new("short");
    filled(&scratch.index());
    let table = files(&scratch.index(), is_table).remove(0);
    let bytes = fs::read(&table).expect("readable");
    fs::write(&table, &bytes[..bytes.len() / 2]).expect("writable");
    assert_eq!(refusal(&scratch.index(), &Options::new(CACHE_BYTES)).kind, Kind::Corrupt);
    fs::remove_file(&table).expect("writable");
    assert_eq!(refusal(&scratch.index(), &Options::new(CACHE_BYTES)).kind, Kind::Corrupt);
}

#[test]
fn compaction_of_a_bad_block_stops_writes_not_the_process() {
    let scratch = Scratch::new("compaction");
    filled(&scratch.index());
    let table = files(&scratch.index(), is_table).remove(0);
    let mut bytes = fs::read(&table).expect("readable");
    bytes[1000] ^= 1;
    fs::write(&table, &bytes).expect("writable");
    let index = reopen(&scratch.index()).expect("the flip is in a data block");
    let mut outcome = Ok(());
    for round in 0..40 {
        let edits = (0..300).map(|number| IndexEdit::Patch(key(number), vec![1, round])).collect();
        outcome = index.write(edits).and_then(|()| index.persist()).and_then(|()| index.settle());
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome.expect_err("compaction reads every block").kind, Kind::Corrupt);
    assert_eq!(index.write(vec![put(1, 1)]).expect_err("stopped").kind, Kind::Corrupt);
}

#[test]
fn a_merge_that_panics_is_corrupt() {
    fn panics(_: Option<&[u8]>, patch: &[u8]) -> Vec<u8> {
        assert!(patch[0] != 66, "a patch that should not be");
        patch.to_vec()
    }
    let scratch = Scratch::new("panic");
    let index = RocksIndex::open(&scratch.index(), &Options::new(CACHE_BYTES).create(), panics).expect("new");
    index.write(vec![IndexEdit::Patch(key(1), vec![66]), IndexEdit::Patch(key(2), vec![1])]).expect("merged later");
    assert_eq!(index.get(&key(1)).expect_err("can't be merged").kind, Kind::Corrupt);
    assert_eq!(index.get(&key(2)), Ok(Some(vec![1])));
}

/// Opens copies of a filled index in which `spoil` has changed a file; each must hold everything or be corrupt.
/// Returns how many were corrupt.
fn whole_or_corrupt(name: &str, named: fn(&str) -> bool, spoiled: fn(&[u8]) -> Vec<Vec<u8>>) -> (usize, usize) {
    let scratch = Scratch::new(name);
    let expected = filled(&scratch.index());
    let file = files(&scratch.index(), named).pop().expect("the file is there");
    let copy = scratch.0.join("copy");
    let images = spoiled(&fs::read(&file).expect("readable"));
    let mut corrupt = 0;
    for (number, image) in images.iter().enumerate() {
        copy_directory(&scratch.index(), &copy);
        fs::write(copy.join(file.file_name().expect("a file")), image).expect("writable");
        let options = Options::new(CACHE_BYTES);
        let options = if number % 2 == 0 { options.read_only() } else { options };
        match RocksIndex::open(&copy, &options, lay) {
            Err(error) => {
                assert_eq!(error.kind, Kind::Corrupt, "{name} {number}: {error}");
                assert_eq!(files(&copy, is_table).len(), 2, "what a repair needs is left alone");
                corrupt += 1;
            }
            Ok(index) => assert_eq!(index.scan(b"", b"z", usize::MAX).as_ref(), Ok(&expected), "{name} {number}"),
        }
    }
    (corrupt, images.len())
}

fn flips(bytes: &[u8]) -> Vec<Vec<u8>> {
    let flip = |bit: usize| {
        let mut image = bytes.to_vec();
        image[bit / 8] ^= 1 << (bit % 8);
        image
    };
    // Every third bit: all bits of a byte are met within three bytes.
    (0..bytes.len() * 8).step_by(3).map(flip).collect()
}

fn cuts(bytes: &[u8]) -> Vec<Vec<u8>> {
    (0..bytes.len()).map(|length| bytes[..length].to_vec()).collect()
}

#[test]
fn a_flipped_bit_in_the_manifest_is_corrupt() {
    let (corrupt, all) = whole_or_corrupt("manifest-flip", is_manifest, flips);
    // The last record repeats what is known: without it nothing is missing.
    assert!(corrupt > all * 9 / 10, "{corrupt} of {all}");
}

#[test]
fn a_cut_manifest_is_corrupt() {
    let (corrupt, all) = whole_or_corrupt("manifest-cut", is_manifest, cuts);
    assert!(corrupt > all * 9 / 10, "{corrupt} of {all}");
}

#[test]
fn a_spoiled_current_is_corrupt() {
    let is_current = |name: &str| name == "CURRENT";
    let (corrupt, all) = whole_or_corrupt("current-flip", is_current, flips);
    assert_eq!(corrupt, all);
    whole_or_corrupt("current-cut", is_current, cuts);
}

#[test]
fn a_mark_survives_one_bad_slot_and_not_two() {
    let is_mark = |name: &str| name == "PERSISTED";
    let in_slots = |bytes: &[u8]| {
        let byte = |at: usize| [&bytes[..at], &[bytes[at] ^ 4], &bytes[at + 1..]].concat();
        (0..28).chain(4096..4124).map(byte).collect()
    };
    let (corrupt, _) = whole_or_corrupt("mark-flip", is_mark, in_slots);
    assert_eq!(corrupt, 0, "a flip spoils one slot, the other holds");
    let (corrupt, _) = whole_or_corrupt("mark-none", is_mark, |bytes| vec![vec![], vec![0; bytes.len()]]);
    assert_eq!(corrupt, 2);
}

#[test]
fn edits_that_cancel_out_move_the_mark_too() {
    let scratch = Scratch::new("cancel");
    let index = create(&scratch.index());
    for _ in 0..3 {
        index.write(vec![put(1, 1), IndexEdit::Delete(key(1))]).expect("healthy");
        index.persist().expect("healthy");
        index.persist().expect("nothing to do");
    }
    index.settle().expect("healthy");
    drop(index);
    let index = reopen(&scratch.index()).expect("nothing is missing");
    assert_eq!(index.scan(b"", b"z", usize::MAX), Ok(vec![]));
}

fn copy_directory(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).expect("writable");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copyable");
    }
}

/// The copied rows are those of the newest table, and missing rows lie in a gap, whatever block is bad.
#[test]
fn what_can_be_read_of_a_damaged_index_is_salvaged() {
    const KEYS: u64 = 4000;
    let scratch = Scratch::new("salvage");
    let index = create(&scratch.index());
    for (every, content) in [(1, 1), (3, 2)] {
        index.write((0..KEYS).step_by(every).map(|number| put(number, content)).collect()).expect("healthy");
        index.persist().expect("healthy");
    }
    let expected = index.scan(b"", b"z", usize::MAX).expect("healthy");
    drop(index);
    let tables = files(&scratch.index(), is_table);
    assert_eq!(tables.len(), 2);
    let healthy: Vec<_> = tables.iter().map(|table| fs::read(table).expect("readable")).collect();
    let new = scratch.0.join("new");
    let home = Directory::open(&scratch.0).expect("ours");
    let mut random = SplitMix(5);
    let (mut whole, mut gaps, mut refused, mut lost, mut rows) = (0, 0, 0, 0, 0);
    for round in 0..60 {
        for (table, bytes) in tables.iter().zip(&healthy) {
            let mut bytes = bytes.clone();
            for _ in 0..random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            fs::write(table, bytes).expect("writable");
        }
        let _ = fs::remove_dir_all(&new);
        let salvaged = match salvage(&home, "index", "new", &Options::new(CACHE_BYTES), lay) {
            Ok(salvaged) => salvaged,
            Err(error) => {
                assert_eq!(error.kind, Kind::Corrupt, "{error}");
                refused += 1;
                continue;
            }
        };
        let found = reopen(&new).expect("it is new").scan(b"", b"z", usize::MAX).expect("it is whole");
        assert_eq!(found.len() as u64, salvaged.rows, "no row is copied twice");
        let in_gap = |key: &[u8]| {
            salvaged.gaps.iter().any(|gap| key > &gap.after[..] && (gap.before.is_empty() || key < &gap.before[..]))
        };
        let kept: Vec<_> = expected.iter().filter(|(key, _)| !in_gap(key)).cloned().collect();
        assert!(found == kept, "round {round}: {} rows of {}, {:?}", found.len(), kept.len(), salvaged.gaps);
        whole += u32::from(salvaged.gaps.is_empty());
        gaps += salvaged.gaps.len();
        lost += expected.len() - found.len();
        rows += expected.len();
    }
    println!("{whole} whole, {gaps} gaps, {refused} refused, {lost} of {rows} rows lost");
    assert!(whole > 5 && gaps > 30, "{whole} whole, {gaps} gaps, {refused} refused");
    // A bad block takes its own rows, a bad list of blocks takes a table's.
    assert!(lost * 10 < rows, "{lost} of {rows} lost");
}

#[test]
fn a_snapshot_stays_as_it_was_and_takes_no_writes() {
    let scratch = Scratch::new("snapshot");
    let index = Arc::new(create(&scratch.index()));
    let mut random = SplitMix(7);
    let edits = |random: &mut SplitMix| (0..200).map(|_| random_edit(random, 50)).collect::<Vec<_>>();
    index.write(edits(&mut random)).expect("a healthy index");
    let all = |index: &dyn Index| index.scan(&key(0), &key(9999), usize::MAX).expect("a healthy index");
    let before = all(&*index);
    let snapshot = index.clone().snapshot().expect("there is room for a thread");
    for round in 0..5 {
        index.write(edits(&mut random)).expect("a healthy index");
        index.persist().expect("a healthy index");
        assert_eq!(all(&*snapshot), before, "round {round}");
    }
    assert_ne!(all(&*index), before);
    let keys: Vec<_> = (0..50).map(key).collect();
    let found = snapshot.get_many(&keys).expect("a healthy index");
    for (key, value) in keys.iter().zip(found) {
        assert_eq!(value, before.iter().find(|pair| pair.0 == *key).map(|pair| pair.1.clone()));
        assert_eq!(snapshot.get(key).expect("a healthy index"), value);
    }
    assert_eq!(snapshot.scan(&key(9), &key(3), 5), Ok(Vec::new()));
    assert_eq!(snapshot.write(Vec::new()).map_err(|error| error.kind), Err(Kind::ReadOnly));
    assert_eq!(snapshot.persist().map_err(|error| error.kind), Err(Kind::ReadOnly));
    // It ends with whoever holds it, and lets the index go.
    drop(snapshot);
    assert_eq!(Arc::strong_count(&index), 1);
}
