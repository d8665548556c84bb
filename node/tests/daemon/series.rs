//! The daemon's memory and space over a test's time; shown if the test fails.

#![allow(dead_code)] // Each test program uses its own part.

use super::space::{Space, space};
use crate::daemon::{Daemon, Home};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks at the daemon.
const LOOK: Duration = Duration::from_secs(2);

/// The daemon at a moment.
pub struct Sample {
    at: Duration,
    resident: u64,
    pub space: Space,
}

/// The observations so far.
#[derive(Default)]
pub struct Series(pub Vec<Sample>);

impl Series {
    /// Looks at the daemon until the time is over or somebody has set `stop`; sets it.
    pub fn watch(&mut self, home: &Home, daemon: &Daemon, whole: Duration, stop: &AtomicBool) {
        let started = Instant::now();
        while started.elapsed() < whole && !stop.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK);
            self.0.push(Sample { at: started.elapsed(), resident: daemon.memory("VmRSS"), space: space(home) });
        }
        stop.store(true, Ordering::SeqCst);
    }
    fn show(&self) {
        println!(
            "  seconds  resident MB  buffers  index  overlay  logical MB  free segments  client MB  device MB  cleaner"
        );
        for Sample { at, resident, space } in &self.0 {
            let Space { logical, free, segment, client, device, memory, cleaner, .. } = space;
            let [buffers, index, overlay] = memory.map(|bytes| bytes >> 20);
            let (at, free) = (at.as_secs(), free / segment);
            let [resident, logical, client, device] = [*resident, *logical, *client, *device].map(|bytes| bytes >> 20);
            print!("{at:9}  {resident:11}  {buffers:7}  {index:5}  {overlay:7}");
            println!("  {logical:10}  {free:13}  {client:9}  {device:9}  {cleaner}");
        }
    }
    /// The most resident memory before a moment, and from then on, in bytes.
    pub fn peaks(&self, early: Duration) -> [u64; 2] {
        [self.peak(Duration::ZERO, early), self.peak(early, Duration::MAX)]
    }
    /// Resident memory at the start and at the end, in bytes.
    pub fn ends(&self) -> [u64; 2] {
        [self.0.first(), self.0.last()].map(|sample| sample.map_or(0, |sample| sample.resident))
    }
    fn peak(&self, from: Duration, to: Duration) -> u64 {
        let within = self.0.iter().filter(|sample| sample.at >= from && sample.at < to);
        within.map(|sample| sample.resident).max().unwrap_or_default()
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show();
        }
    }
}
