//! Connections whose other end has not said who it is.
//!
//! Promises: there are few of them; who connects later is not kept out by who says nothing: the oldest ones go.

use crate::lane::Lane;
use runtime::{Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest number of them. Each takes a few KiB, and a descriptor.
const STRANGERS_MAX: usize = 1024;

/// The connections, in the order in which they came.
pub struct Strangers(Lock<Waiting>);

#[derive(Default)]
struct Waiting {
    came: u64,
    lanes: BTreeMap<u64, Arc<Lane>>,
}

impl Default for Strangers {
    fn default() -> Strangers {
        Strangers(Lock::new("strangers", Waiting::default()))
    }
}

impl Strangers {
    /// Takes one in; the oldest one is closed if there are too many. Its number.
    pub fn add(&self, runtime: &Runtime, lane: &Arc<Lane>) -> u64 {
        let (number, oldest) = {
            let mut waiting = self.0.lock();
            let oldest = match waiting.lanes.len() >= STRANGERS_MAX {
                true => waiting.lanes.pop_first(),
                false => None,
            };
            waiting.came += 1;
            let number = waiting.came;
            waiting.lanes.insert(number, lane.clone());
            assert!(waiting.lanes.len() <= STRANGERS_MAX, "there are few");
            (number, oldest)
        };
        if let Some((_, oldest)) = oldest {
            oldest.close(runtime);
        }
        number
    }
    /// Takes one out: it has said who it is, or is gone.
    pub fn remove(&self, number: u64) {
        self.0.lock().lanes.remove(&number);
    }
    /// Closes all.
    pub fn close(&self, runtime: &Runtime) {
        let lanes = std::mem::take(&mut self.0.lock().lanes);
        lanes.values().for_each(|lane| lane.close(runtime));
    }
}
