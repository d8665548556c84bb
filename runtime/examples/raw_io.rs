//! The reactor's speed: 4 KiB random reads and writes on one core, beside fio with libaio on the same file. Run it on a
//! quiet machine: `cargo run --release --example raw_io [directory [depth]]` (depth 32).

use runtime::disk::FileId;
use runtime::random::SplitMix;
use runtime::{OpenMode, Request, Runtime, Start, real};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 1 << 30;
const RUN: Duration = Duration::from_secs(4);

fn main() {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let depth = std::env::args().nth(2).map_or(32, |depth| depth.parse().expect("a number"));
    let directory = parent.join(format!("sinter-raw-io-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the directory can be written");
    prepare(&directory);
    for round in 1..=3 {
        for write in [false, true] {
            let fio = fio(&directory, write, depth);
            let ours = ours(&directory, write, depth);
            let name = if write { "write" } else { "read" };
            println!("round {round} {name}: ours {ours:.0}/s, fio {fio:.0}/s, ratio {:.2}", ours / fio);
        }
    }
    std::fs::remove_dir_all(&directory).expect("we made it");
}

/// Real blocks everywhere, so that nobody writes to unwritten extents.
fn prepare(directory: &Path) {
    let path = directory.join("data");
    let file = std::fs::File::create(path).expect("the directory can be written");
    let mut random = SplitMix(1);
    let chunk: Vec<u8> = (0..1 << 20).map(|_| random.next() as u8).collect();
    for _ in 0..FILE_BYTES >> 20 {
        std::io::Write::write_all(&mut &file, &chunk).expect("there is space");
    }
    file.sync_all().expect("it can be synced");
}

/// I/Os per second of fio.
fn fio(directory: &Path, write: bool, depth: u64) -> f64 {
    let rw = if write { "randwrite" } else { "randread" };
    let output = Command::new("fio")
        .args(["--name=raw", "--ioengine=libaio", "--direct=1", "--bs=4k", "--time_based=1", "--terse-version=3"])
        .args(["--output-format=terse", "--randrepeat=0", "--norandommap=1"])
        .arg(format!("--filename={}", directory.join("data").display()))
        .arg(format!("--size={FILE_BYTES}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={}", RUN.as_secs()))
        .arg(format!("--rw={rw}"))
        .output()
        .expect("fio is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Terse version 3: field 8 holds the reads per second, field 49 the writes.
    let field = if write { 48 } else { 7 };
    text.split(';').nth(field).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("fio said: {text}"))
}

/// I/Os per second of one core.
fn ours(directory: &Path, write: bool, depth: u64) -> f64 {
    let options = real::Options {
        cores: Some(1),
        ..real::Options::new(real::Directory::open(directory).expect("ours"), 64 << 20, &[])
    };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    let file = runtime.disk.open("data", OpenMode::Existing).expect("it was made");
    let count = Arc::new(AtomicU64::new(0));
    for number in 0..depth {
        let (there, count) = (runtime.clone(), count.clone());
        let make = move || -> runtime::tasks::Local { Box::pin(load(there, file, write, number, count)) };
        runtime.tasks.spawn(0, Box::new(make));
    }
    // The first moments fill caches and slabs.
    std::thread::sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    std::thread::sleep(RUN);
    let done = count.load(Ordering::Relaxed) - before;
    let rate = done as f64 / start.elapsed().as_secs_f64();
    reactors.stop();
    rate
}

async fn load(runtime: Runtime, file: FileId, write: bool, seed: u64, count: Arc<AtomicU64>) {
    let mut random = SplitMix(seed);
    let mut slices = Vec::new();
    loop {
        let offset = random.below(FILE_BYTES / 4096) * 4096;
        let mut buffer = runtime.buffer(4096).expect("within the bound");
        let request = if write {
            buffer[..8].copy_from_slice(&offset.to_ne_bytes());
            slices.clear();
            slices.push(buffer.share().slice(0..4096));
            Request::Write { file, offset, slices: std::mem::take(&mut slices), durable: false }
        } else {
            Request::Read { file, offset, buffer, start: Start::AtOnce }
        };
        let done = runtime.disk.submit(request).await;
        done.result.expect("within the file");
        slices = done.slices;
        count.fetch_add(1, Ordering::Relaxed);
    }
}
