//! A warm I/O, wake-up or poll allocates nothing on its core (mission S2): counted, not believed.

use runtime::disk::{flush, read, write};
use runtime::tasks::yield_now;
use runtime::{Address, ConnectionId, OpenMode, Runtime, real};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

thread_local! {
    /// Allocations of this thread; `None` when they are not counted.
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
    /// The vector that writes hand back.
    static SLICES: Cell<Vec<runtime::Slice>> = const { Cell::new(Vec::new()) };
}

struct Counting;

fn count() {
    // A thread that is ending has no count any more.
    let _ = COUNT.try_with(|count| count.set(count.get().map(|number| number + 1)));
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One of everything that happens per request.
async fn round(runtime: &Runtime, file: runtime::FileId, pipe: &mut (PipeReader, PipeWriter)) {
    let mut slices = SLICES.take();
    for number in 0..8u64 {
        let mut buffer = runtime.buffer(4096).expect("within the bound");
        buffer.fill(number as u8);
        slices.push(buffer.share().slice(0..4096));
    }
    let (mut slices, result) = write(&*runtime.disk, file, 0, slices, true).await;
    result.expect("the write is within the file");
    slices.clear();
    SLICES.set(slices);
    for number in 0..4u64 {
        let buffer = runtime.buffer(4096).expect("within the bound");
        let (buffer, result) = read(&*runtime.disk, file, number * 4096, buffer).await;
        result.expect("the read is within the file");
        assert_eq!(buffer[0], number as u8);
    }
    flush(&*runtime.disk, file).await.expect("it can be flushed");
    pipe.1.write_all(b"x").expect("the pipe has room");
    real::readable(pipe.0.as_raw_fd()).await.expect("a pipe can be polled");
    pipe.0.read_exact(&mut [0]).expect("it is readable");
    yield_now().await;
}

/// A message there and back, in several parts, of which the first comes alone.
async fn exchange(runtime: &Runtime, ends: [ConnectionId; 2]) {
    for [from, to] in [ends, [ends[1], ends[0]]] {
        let mut slices = SLICES.take();
        slices.extend((0..8).map(|_| runtime.buffer(4096).expect("within the bound").share().slice(0..100)));
        let buffer = runtime.buffer(4096).expect("within the bound");
        let receiving = runtime.net.receive(to, buffer, 800);
        let (mut slices, result) = runtime.net.send(from, slices).await;
        result.expect("it is open");
        slices.clear();
        SLICES.set(slices);
        assert_eq!(receiving.await.1, Ok(800));
    }
}

#[test]
fn a_warm_connection_allocates_nothing() {
    let directory = std::env::temp_dir().join(format!("sinter-no-alloc-net-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let options = real::Options {
        cores: Some(1),
        ..real::Options::new(real::Directory::open(&directory).expect("ours"), 16 << 20, &[])
    };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    let counted = reactors.run(0, move || async move {
        let anywhere = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let listener = runtime.net.listen(&anywhere).expect("a free address");
        let address = runtime.net.address(listener).expect("it listens");
        let client = runtime.net.connect(&address).await.expect("somebody listens");
        let (server, _) = runtime.net.accept(listener).await.expect("somebody came");
        for _ in 0..50 {
            exchange(&runtime, [client, server]).await;
        }
        COUNT.set(Some(0));
        for _ in 0..200 {
            exchange(&runtime, [client, server]).await;
        }
        COUNT.take()
    });
    assert_eq!(counted.expect("the core runs"), Some(0));
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("the test made it");
}

#[test]
fn a_warm_core_allocates_nothing() {
    let directory = std::env::temp_dir().join(format!("sinter-no-alloc-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let options = real::Options {
        cores: Some(1),
        ..real::Options::new(real::Directory::open(&directory).expect("ours"), 16 << 20, &[])
    };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    let file = runtime.disk.open("data", OpenMode::Create).expect("a new file");
    runtime.disk.allocate(file, 1 << 20).expect("there is space");
    let counted = reactors.run(0, move || async move {
        let mut pipe = std::io::pipe().expect("descriptors are left");
        for _ in 0..50 {
            round(&runtime, file, &mut pipe).await;
        }
        COUNT.set(Some(0));
        for _ in 0..200 {
            round(&runtime, file, &mut pipe).await;
        }
        COUNT.take()
    });
    assert_eq!(counted.expect("the core runs"), Some(0));
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("the test made it");
}
