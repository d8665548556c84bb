//! Helpers that the tests of the simulated world share.

mod crashes;
mod durability;
mod faults;
mod scheduling;
mod spindles;

use super::*;
use crate::disk::{self, DEVICE, FileId, OpenMode};
use crate::random::SplitMix;
use crate::transfer::{Request, Transfer};
use crate::{Runtime, Slice};
use base::{Kind, Result};

/// Pages of the test files.
const PAGES: u64 = 16;

/// Seeds per property: enough that each outcome that should be possible is met many times.
const SEEDS: u64 = 200;

fn slices(runtime: &Runtime, pages: usize, byte: u8) -> Vec<Slice> {
    let mut buffer = runtime.buffer(pages * 4096).expect("memory is left");
    buffer.fill(byte);
    vec![buffer.share().slice(0..pages * 4096)]
}

/// Creates a file whose name, length and zeros are durable.
async fn create(runtime: &Runtime, name: &str) -> FileId {
    let file = runtime.disk.open(name, OpenMode::Create).expect("a new name");
    runtime.disk.allocate(file, PAGES * 4096).expect("there is space");
    runtime.disk.sync_names().expect("no fault is planned");
    disk::flush(&*runtime.disk, file).await.expect("no fault is planned");
    file
}

fn submit(runtime: &Runtime, file: FileId, page: u64, byte: u8, durable: bool) -> Transfer {
    let slices = slices(runtime, 1, byte);
    runtime.disk.submit(Request::Write { file, offset: page * 4096, slices, durable })
}

async fn write(runtime: &Runtime, file: FileId, page: u64, byte: u8, durable: bool) {
    submit(runtime, file, page, byte, durable).await.result.expect("no fault is planned");
}

async fn flush(runtime: &Runtime, file: FileId) -> Result<()> {
    disk::flush(&*runtime.disk, file).await
}

async fn read(runtime: &Runtime, file: FileId, page: u64) -> Vec<u8> {
    let buffer = runtime.buffer(4096).expect("memory is left");
    let (buffer, result) = disk::read(&*runtime.disk, file, page * 4096, buffer).await;
    result.expect("no fault is planned");
    buffer.to_vec()
}

/// The page's byte, if all of its bytes are the same.
fn uniform(bytes: &[u8]) -> Option<u8> {
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

/// The page's bytes, one per sector; no sector may be torn in itself.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(512).map(|sector| uniform(sector).expect("a sector is written whole or not")).collect()
}

/// One byte per sector of a page in an image.
fn page(image: &DiskImage, name: &str, page: u64) -> Vec<u8> {
    sectors(&image.read(name, page * 4096, 4096).expect("the file survived"))
}
