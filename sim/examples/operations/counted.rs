//! The counted part: the product's own work in a measured round. Work of the simulated world behind its doors (disk,
//! clock, tasks, randomness) does not count, and neither does the measuring itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

// One thread does everything.
static MEASURED: AtomicBool = AtomicBool::new(false);
static COUNTS: AtomicBool = AtomicBool::new(false);
static NOTES_SITES: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SITES: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The allocations of a round.
#[derive(Clone, Copy)]
pub struct Allocated {
    /// Allocations; one that grows counts again.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Callgrind counts while this runs (`--toggle-collect`): hence neither inlined nor left by a jump, and unlike the next one.
#[unsafe(no_mangle)]
#[inline(never)]
fn sinter_product(run: &mut dyn FnMut()) {
    run();
    black_box(1u8);
}

/// The function within which nothing is counted.
#[unsafe(no_mangle)]
#[inline(never)]
fn sinter_outside(run: &mut dyn FnMut()) {
    run();
    black_box(2u16);
}

/// The function after which Callgrind writes down what it has counted, and starts from zero (`--dump-after`).
#[unsafe(no_mangle)]
#[inline(never)]
fn sinter_round_ends() {
    black_box(3u32);
}

fn switched<R>(counts: bool, switch: fn(&mut dyn FnMut()), run: impl FnOnce() -> R) -> R {
    let (mut run, mut result) = (Some(run), None);
    COUNTS.store(counts, Relaxed);
    switch(&mut || result = run.take().map(|run| run()));
    COUNTS.store(!counts, Relaxed);
    result.expect("it has run")
}

/// Runs a part of the product.
fn product<R>(run: impl FnOnce() -> R) -> R {
    if MEASURED.load(Relaxed) { switched(true, sinter_product, run) } else { run() }
}

/// Runs a part of the world, called by the product.
pub fn outside<R>(run: impl FnOnce() -> R) -> R {
    if COUNTS.load(Relaxed) { switched(false, sinter_outside, run) } else { run() }
}

/// A future of the product.
pub async fn counted<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| product(|| future.as_mut().poll(context))).await
}

/// A measured round.
pub async fn measured(round: impl Future<Output = ()>) -> Allocated {
    ALLOCATIONS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    MEASURED.store(true, Relaxed);
    round.await;
    MEASURED.store(false, Relaxed);
    sinter_round_ends();
    Allocated { count: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
}

/// Notes from now on where allocations are made.
pub fn note_sites() {
    NOTES_SITES.store(true, Relaxed);
}

/// The places of allocations since the last call, with their numbers.
pub fn take_sites() -> BTreeMap<String, u64> {
    SITES.take()
}

/// The innermost functions of ours, with their places.
fn note_site() {
    let text = Backtrace::force_capture().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ours = |place: &str| place.contains("/src/") && !place.contains("/rustc/") && !place.contains("/registry/");
    let frames = lines.windows(2).filter(|pair| pair[1].starts_with("at ") && ours(pair[1]));
    let frames: Vec<_> = frames.take(3).map(|pair| format!("{} {}", pair[0], pair[1])).collect();
    SITES.with_borrow_mut(|sites| *sites.entry(frames.join("\n        ")).or_default() += 1);
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    if COUNTS.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
        if NOTES_SITES.load(Relaxed) {
            // Noting allocates too.
            COUNTS.store(false, Relaxed);
            note_site();
            COUNTS.store(true, Relaxed);
        }
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
