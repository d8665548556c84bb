//! Connections whose other end has not said who it is, and the loop that takes them.
//!
//! Promises: there are few of them; who connects later is not kept out by who says nothing: the oldest ones go.

use crate::lane::{Came, Lane, Reader};
use base::{Kind, Result};
use runtime::net::{ConnectionId, ListenerId};
use runtime::tasks::either;
use runtime::{Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest number of them. Each takes a few KiB, and a descriptor.
const STRANGERS_MAX: usize = 1024;
/// Time within which a connection says who it is, and within which the other end answers that.
pub const HELLO_WITHIN_NS: u64 = 10_000_000_000;

/// Takes connections on the calling core until the listener ends; `serve` makes what makes the task that serves one.
pub async fn accept<Make, Task>(runtime: &Runtime, listener: ListenerId, serve: impl Fn(ConnectionId) -> Make)
where
    Make: FnOnce() -> Task + Send + 'static,
    Task: Future<Output = ()> + 'static,
{
    while let Ok((connection, _)) = runtime.net.accept(listener).await {
        runtime.spawn(runtime.tasks.core(), serve(connection));
    }
}

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
    /// The first frame of a connection, if it comes in time, and nobody hangs up. `is_stopping` is set before all are closed.
    pub async fn first(
        &self,
        runtime: &Runtime,
        lane: &Arc<Lane>,
        reader: &mut Reader,
        is_stopping: &AtomicBool,
    ) -> Result<Option<Came>> {
        let number = self.add(runtime, lane);
        // Who comes while the server stops is not seen by who hangs up.
        if is_stopping.load(Ordering::SeqCst) {
            lane.close(runtime);
        }
        let mut came = Ok(None);
        either(async { came = reader.next().await }, runtime.clock.sleep(HELLO_WITHIN_NS)).await;
        self.remove(number);
        match came {
            Err(error) if error.kind == Kind::Interrupted => Ok(None),
            came => came,
        }
    }
    /// Takes one in; the oldest one is closed if there are too many. Its number.
    fn add(&self, runtime: &Runtime, lane: &Arc<Lane>) -> u64 {
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
    fn remove(&self, number: u64) {
        self.0.lock().lanes.remove(&number);
    }
    /// Closes all.
    pub fn close(&self, runtime: &Runtime) {
        let lanes = std::mem::take(&mut self.0.lock().lanes);
        lanes.values().for_each(|lane| lane.close(runtime));
    }
}
