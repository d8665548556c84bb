//! The causes of slowness that can be named. Each is one function: from what happened in a window to a finding, if its
//! evidence holds. A cause that needs a figure which the window lacks finds nothing.

mod compared;
mod core;
mod device;
mod index;
mod layer;
mod leader;
mod limit;
mod lock;
mod memory;
mod network;
mod peer;
mod space;
mod tiers;

use crate::{Finding, Window};

pub(crate) use leader::without_requests;
pub use network::Part;
pub use peer::class_name;
pub use tiers::is_of_disks;

/// A cause's evidence.
type Cause = fn(&Window) -> Option<Finding>;

/// The causes at a client of a server: those of its own process, the way to the server, and the server.
pub const OF_CLIENTS: [Cause; 7] =
    [core::find_busy, core::find_taken, lock::find, memory::find, layer::find, network::find, network::find_server];

/// The causes at a brick.
pub const OF_BRICKS: [Cause; 17] = [
    device::find,
    device::find_flush,
    core::find_busy,
    core::find_taken,
    lock::find,
    index::find_pool,
    index::find_engine,
    space::find,
    tiers::find_disk,
    tiers::find_destage,
    tiers::find_cleaning,
    tiers::find_flash_full,
    memory::find,
    layer::find,
    limit::find,
    peer::find,
    leader::find,
];

/// A duration for sentences.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// A share for sentences.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// The mean time of a request in stages of these names.
pub(crate) fn per_request(window: &Window, stages: &[&str]) -> String {
    time(window.stage_ns(stages) / window.requests().max(1) as f64)
}
