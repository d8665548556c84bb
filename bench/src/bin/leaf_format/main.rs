//! The form of leaf that costs least in the index: whole leaves, patches of the changed slots, or one key per block?
//! Random 4 KiB overwrites of a full set; only the checkpoints are carried out, the data itself is not written.
//!
//!     cargo run --release -p bench --bin leaf_format -- form=whole,patch,block directory=DIR
//!
//! Settings, each `name=value`; a list of forms runs in turn, `rounds` times over:
//! form, directory, blocks (in the set), writes (per checkpoint), checkpoints, persist (checkpoints per persist),
//! cache (MiB), compression (lz4, none), compaction (levelled, universal), tables (flushed tables before a merge),
//! pace (MiB/s of background writing), segments (1: with rows of the segment table), rounds, settle (1: wait for
//! compaction after each persist).

mod forms;
mod set;

use base::Result;
use bench::{figures, process};
use forms::Form;
use index_rocksdb::{Compaction, Compression, Options, RocksIndex, Shape};
use set::Set;
use std::path::{Path, PathBuf};
use std::time::Instant;
use store::index::Index;

/// The settings of a run; see the head of the file.
#[derive(Clone)]
struct Settings {
    forms: Vec<Form>,
    directory: PathBuf,
    blocks: u64,
    writes: u64,
    checkpoints: u64,
    persist: u64,
    cache_bytes: usize,
    shape: Shape,
    pace_bytes: u64,
    segments: bool,
    settle: bool,
    rounds: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            forms: vec![Form::Whole, Form::Patch, Form::Block],
            directory: std::env::temp_dir().join("sinter-leaf-format"),
            blocks: 8 << 20,
            writes: 100_000,
            checkpoints: 252,
            persist: 1,
            cache_bytes: 64 << 20,
            shape: Shape::default(),
            // Higher than the device's: the pace is not what is measured.
            pace_bytes: 4 << 30,
            segments: false,
            settle: true,
            rounds: 1,
        }
    }
}

impl Settings {
    fn parse(arguments: impl Iterator<Item = String>) -> std::result::Result<Settings, String> {
        let mut settings = Settings::default();
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or(format!("{argument} is not name=value"))?;
            settings.set(name, value).ok_or(format!("{argument}: unknown name or value"))?;
        }
        Ok(settings)
    }
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let number = value.parse::<u64>();
        match name {
            "form" => self.forms = value.split(',').map(Form::parse).collect::<Option<_>>()?,
            "directory" => self.directory = value.into(),
            "blocks" => self.blocks = number.ok()?,
            "writes" => self.writes = number.ok()?,
            "checkpoints" => self.checkpoints = number.ok()?,
            "persist" => self.persist = number.ok()?,
            "cache" => self.cache_bytes = (number.ok()? as usize) << 20,
            "tables" => self.shape.flushed_tables = number.ok()? as i32,
            "pace" => self.pace_bytes = number.ok()? << 20,
            "segments" => self.segments = number.ok()? == 1,
            "settle" => self.settle = number.ok()? == 1,
            "rounds" => self.rounds = number.ok()?,
            "compression" => {
                self.shape.compression = match value {
                    "lz4" => Compression::Lz4,
                    "none" => Compression::None,
                    _ => return None,
                }
            }
            "compaction" => {
                self.shape.compaction = match value {
                    "levelled" => Compaction::Levelled,
                    "universal" => Compaction::Universal,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
    fn options(&self) -> Options {
        let mut options = Options::new(self.cache_bytes);
        options.shape = self.shape;
        options.write_bytes_per_second = self.pace_bytes;
        options
    }
}

/// Sums over the measured checkpoints of a run.
#[derive(Default)]
struct Totals {
    writes: u64,
    engine_bytes: u64,
    device_bytes: u64,
    cpu_ns: u64,
    wall_ns: u64,
    longest_ns: u64,
}

/// Runs the checkpoints.
fn overwrite(settings: &Settings, form: Form, set: &mut Set, index: &RocksIndex) -> Result<Totals> {
    let mut totals = Totals::default();
    let (engine_before, device_before) = (index.written_bytes(), process::device_write_bytes());
    for number in 1..=settings.checkpoints {
        let changed = set.overwrite(settings.writes);
        let mut edits = forms::edits(form, set, &changed);
        if settings.segments {
            edits.extend(set.segment_rows());
        }
        let (cpu_before, start) = (process::cpu_ns(), Instant::now());
        index.write(edits)?;
        if number.is_multiple_of(settings.persist) {
            index.persist()?;
        }
        let spent_ns = start.elapsed().as_nanos() as u64;
        if settings.settle && number.is_multiple_of(settings.persist) {
            index.settle()?;
        }
        totals.writes += settings.writes;
        totals.cpu_ns += process::cpu_ns() - cpu_before;
        totals.wall_ns += start.elapsed().as_nanos() as u64;
        totals.longest_ns = totals.longest_ns.max(spent_ns);
    }
    index.persist()?;
    index.settle()?;
    totals.engine_bytes = index.written_bytes() - engine_before;
    totals.device_bytes = process::device_write_bytes() - device_before;
    Ok(totals)
}

/// Times reads of whole leaves at random; checks what they say. Returns p50 and p99 in nanoseconds.
fn read(form: Form, set: &mut Set, index: &RocksIndex, count: u64) -> Result<(u64, u64)> {
    let mut samples = Vec::new();
    for _ in 0..count {
        let leaf = set.random_leaf();
        let start = Instant::now();
        let found = forms::read(form, index, leaf)?;
        samples.push(start.elapsed().as_nanos() as u64);
        assert_eq!(found, forms::whole(set.leaf(leaf)), "leaf {leaf}");
    }
    Ok((figures::percentile(&mut samples, 0.5), figures::percentile(&mut samples, 0.99)))
}

fn run(settings: &Settings, form: Form, round: u64) -> Result<()> {
    let path = settings.directory.join(form.name());
    let _ = std::fs::remove_dir_all(&path);
    let mut set = Set::new(settings.blocks, round);
    let index = RocksIndex::open(&path, &settings.options().create(), forms::merge)?;
    fill(form, &set, &index)?;
    let totals = overwrite(settings, form, &mut set, &index)?;
    let warm = read(form, &mut set, &index, 20_000)?;
    let stored_bytes = index.stored_bytes();
    drop(index);
    let cold = read_cold(settings, &path, form, &mut set)?;
    report(settings, form, &totals, stored_bytes, warm, cold);
    let _ = std::fs::remove_dir_all(&path);
    Ok(())
}

/// The full set, written in order as a first pass of sequential writes would leave it.
fn fill(form: Form, set: &Set, index: &RocksIndex) -> Result<()> {
    const LEAVES_PER_WRITE: u64 = 4096;
    for first in (0..set.leaves()).step_by(LEAVES_PER_WRITE as usize) {
        let leaves = first..(first + LEAVES_PER_WRITE).min(set.leaves());
        index.write(leaves.flat_map(|leaf| forms::full(form, set, leaf)).collect())?;
    }
    index.persist()?;
    index.settle()
}

/// Reads with the smallest cache, which direct I/O does not help out.
fn read_cold(settings: &Settings, path: &Path, form: Form, set: &mut Set) -> Result<(u64, u64)> {
    let mut options = settings.options();
    options.cache_bytes = 0;
    let index = RocksIndex::open(path, &options, forms::merge)?;
    assert!(index.is_direct(), "the page cache would answer instead of the device");
    read(form, set, &index, 20_000)
}

fn head() {
    println!(
        "{:>6} {:>5} {:>9} {:>7} {:>7} {:>6} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6}",
        "form",
        "lz4",
        "compact",
        "engine",
        "device",
        "us cpu",
        "ms/ckp",
        "ms max",
        "MiB",
        "warm50",
        "warm99",
        "cold50",
        "cold99"
    );
    println!("(engine, device: bytes written by the index per client byte; us cpu per client write; gets in us)");
}

fn report(settings: &Settings, form: Form, totals: &Totals, stored: u64, warm: (u64, u64), cold: (u64, u64)) {
    let client_bytes = (totals.writes * 4096) as f64;
    let us = |ns: u64| ns as f64 / 1000.0;
    println!(
        "{:>6} {:>5} {:>9} {:>7.4} {:>7.4} {:>6.2} {:>7.0} {:>7.0} {:>7} {:>6.1} {:>6.1} {:>6.1} {:>6.1}",
        form.name(),
        settings.shape.compression == Compression::Lz4,
        format!("{:?}{}", settings.shape.compaction, settings.shape.flushed_tables).replace("Universal", "Univ"),
        totals.engine_bytes as f64 / client_bytes,
        totals.device_bytes as f64 / client_bytes,
        us(totals.cpu_ns) / totals.writes as f64,
        us(totals.wall_ns) / 1000.0 / settings.checkpoints as f64,
        us(totals.longest_ns) / 1000.0,
        stored >> 20,
        us(warm.0),
        us(warm.1),
        us(cold.0),
        us(cold.1),
    );
}

fn main() {
    let settings = Settings::parse(std::env::args().skip(1)).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    std::fs::create_dir_all(&settings.directory).expect("the directory can be made");
    head();
    for round in 0..settings.rounds {
        for &form in &settings.forms {
            run(&settings, form, round).expect("the index works");
        }
    }
}
