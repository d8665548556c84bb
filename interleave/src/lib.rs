//! Workshop: the product's own waiting code under the model checker loom, which runs a scene once for every order of its
//! threads' steps, up to a bound of preemptions, and for every value that a weakly ordered load may give.
//!
//! Promises: what runs is the product's files themselves, compiled with loom's primitives in the place of `runtime::sync`;
//! a thread that waits for ever, a race for bytes and a failed assertion are each reported.
//! Absent by design: rings, files, timers and figures (`real` has stand-ins); orders of reference counts, which are the
//! standard library's `Arc`; sequential consistency, which loom takes for acquire and release (decision note 0048).

// The product's files bring unit tests of their own, which need the standard library's primitives: nothing is left of this package
// where they would be run (`cargo test --workspace --lib`).
#![cfg(not(test))]

// Files above the ground floor name the package.
extern crate self as runtime;

#[path = "../../runtime/src/buffer.rs"]
pub mod buffer;
#[path = "../../runtime/src/disk.rs"]
pub mod disk;
#[path = "../../runtime/src/event.rs"]
pub mod event;
pub mod lock;
#[path = "../../store/src/segments/pins.rs"]
pub mod pins;
pub mod real;
#[expect(dead_code, reason = "nothing is measured, so nothing is converted")]
#[path = "../../runtime/src/stamp.rs"]
pub mod stamp;
pub mod sync;
#[path = "../../runtime/src/tasks.rs"]
pub mod tasks;
#[path = "../../group/src/order/token.rs"]
pub mod token;
#[path = "../../runtime/src/transfer.rs"]
pub mod transfer;

pub use event::Event;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs `scene` in every order of its threads' steps in which at most so many threads are interrupted. A test prints how many
/// orders there were.
pub fn explore(preemptions_max: usize, scene: impl Fn() + Send + Sync + 'static) {
    let (start, orders) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(preemptions_max);
    let counted = orders.clone();
    checker.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scene();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{orders} orders in {} ms", start.elapsed().as_millis());
    assert!(orders > 1, "a scene whose threads never meet shows nothing");
}
