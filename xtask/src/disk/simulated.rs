//! A pattern on a spindle of the simulated world.

use super::patterns::{Order, Pattern};
use runtime::disk::{self, DEVICE, FileId, OpenMode};
use runtime::random::SplitMix;
use runtime::sim::spindle::Verb;
use runtime::sim::{Ran, Setup, World};
use runtime::tasks::Local;
use runtime::{Request, Runtime};
use std::sync::{Arc, Mutex, PoisonError};

/// Simulated time for each pattern: the rates of random places differ by less than 1% from run to run ...
const SECONDS: u64 = 60;
/// ... and those in sequence hardly: what is written stays in memory.
const SECONDS_ONWARD: u64 = 3;

struct State {
    rng: SplitMix,
    next: u64,
    done: u64,
}

/// A load of several tasks on one device.
#[derive(Clone)]
struct Load {
    runtime: Runtime,
    file: FileId,
    pattern: Pattern,
    bytes: u64,
    state: Arc<Mutex<State>>,
}

impl Load {
    fn place(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.bytes / self.pattern.bytes;
        state.next += 1;
        let number = if self.pattern.order == Order::Random { state.rng.below(count) } else { state.next % count };
        number * self.pattern.bytes
    }
    /// One request after the other, for ever.
    async fn client(self) {
        let length = self.pattern.bytes as usize;
        loop {
            let offset = self.place();
            let buffer = self.runtime.buffer(length).expect("few buffers are in use");
            let result = match self.pattern.verb {
                Verb::Read => disk::read(&*self.runtime.disk, self.file, offset, buffer).await.1,
                Verb::Write => {
                    let slices = vec![buffer.share().slice(0..length)];
                    self.runtime
                        .disk
                        .submit(Request::Write { file: self.file, offset, slices, durable: true })
                        .await
                        .result
                }
            };
            result.expect("no fault is planned");
            self.state.lock().unwrap_or_else(PoisonError::into_inner).done += 1;
        }
    }
}

/// Requests per second of a pattern, on a disk of so many bytes.
pub fn requests_per_second(pattern: &Pattern, bytes: u64) -> f64 {
    let spindles = vec![DEVICE.to_string()];
    let mut world = World::with(Setup { device_bytes: Some(bytes), spindles, ..Setup::new(1) });
    let runtime = world.runtime();
    let file = runtime.disk.open(DEVICE, OpenMode::Existing).expect("the world has a device");
    let state = Arc::new(Mutex::new(State { rng: SplitMix(1), next: 0, done: 0 }));
    let load = Load { runtime: runtime.clone(), file, pattern: *pattern, bytes, state: state.clone() };
    for _ in 0..pattern.depth {
        let load = load.clone();
        runtime.tasks.spawn(0, Box::new(move || -> Local { Box::pin(load.client()) }));
    }
    let seconds = if pattern.order == Order::Random { SECONDS } else { SECONDS_ONWARD };
    assert_eq!(world.run_for(seconds * 1_000_000_000), Ran::Finished(()), "nobody crashes it");
    let done = state.lock().unwrap_or_else(PoisonError::into_inner).done;
    done as f64 / seconds as f64
}
