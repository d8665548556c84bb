//! Snapshots for package `explain`: all that a daemon knows of itself and of its machine.
//!
//! Promises: taking a snapshot changes nothing but figures of its own; what the machine does not tell is left out; nothing
//! is sampled while nobody asks, but for one look a second that teaches what the device's service usually is. A command, not the daemon,
//! asks the kernel for the ways of requests (`runtime::real::Ways`): it has the rights, and costs requests something while it looks.
//! Absent by design: any judgement, which is package `explain`'s.

mod kernel;
mod learn;
mod recorder;
mod signals;

pub use learn::Learner;
pub use recorder::{Part, Recorder};
pub use signals::{Gatherer, LOOKING_MS_MAX, whole};
