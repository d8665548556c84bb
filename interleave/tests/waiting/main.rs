//! The product's own waiting code in every order of its threads' steps; see the package.

mod buffers;
mod cores;
mod events;
mod pins;
mod pool;
mod slots;

use interleave::Event;
use interleave::buffer::{Buf, CLASS_BYTES, Need, Slabs};
use interleave::sync::AtomicBool;
use loom::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Something that one thread brings about and others wait for.
#[derive(Default)]
struct Flag {
    is_set: AtomicBool,
    changed: Event,
}

impl Flag {
    fn new() -> Arc<Flag> {
        Arc::default()
    }
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.changed.notify();
    }
    async fn wait(&self) {
        loop {
            let ticket = self.changed.ticket();
            if self.is_set.load(Ordering::Acquire) {
                return;
            }
            self.changed.after(ticket).await;
        }
    }
}

/// The largest buffers, of which a chunk has two: the fewer places there are, the more orders can be tried.
const LARGE: usize = CLASS_BYTES[4];

/// Bytes of one chunk.
const CHUNK: u64 = 2 << 20;

/// A value of which the checker sees who uses it at once, or without having waited for who used it before.
struct Watched(UnsafeCell<u32>);

// SAFETY: the checker refuses to run a scene in which two threads race for it.
unsafe impl Sync for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }
    fn read(&self) -> u32 {
        // SAFETY: the checker refuses a pointer beside one for writing.
        self.0.with(|value| unsafe { *value })
    }
    fn write(&self) {
        // SAFETY: the checker refuses a pointer that is not the only one.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

/// Stands for the bytes of the two large buffers of a chunk.
struct Bytes([Watched; 2]);

impl Bytes {
    fn new() -> Arc<Bytes> {
        Arc::new(Bytes([Watched::new(), Watched::new()]))
    }
    fn of(&self, buffer: &[u8]) -> &Watched {
        &self.0[buffer.as_ptr() as usize / LARGE % 2]
    }
    fn read(&self, buffer: &[u8]) {
        self.of(buffer).read();
    }
    fn write(&self, buffer: &[u8]) {
        self.of(buffer).write();
    }
}

/// A buffer of the largest class.
fn large(slabs: &Slabs) -> Option<Buf> {
    slabs.take(0, LARGE, Need::Finishing).ok()
}
