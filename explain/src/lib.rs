//! The way from figures to a verdict: two snapshots of a daemon in, an explanation out. Everything here is a pure function.
//!
//! Promises: what is said follows from the snapshots alone, so that a saved pair gives the same explanation for ever; a
//! figure that a snapshot lacks is missing evidence and never an error; no cause is named whose evidence does not hold.
//! Absent by design: taking snapshots (package `node`), clocks, files, and any knowledge of what was injected in a test.

pub mod baseline;
pub mod causes;
pub mod model;
pub mod snapshot;
pub mod sweep;
pub mod times;
pub mod verdict;
pub mod waterfall;
pub mod window;

pub use baseline::Baseline;
pub use snapshot::Snapshot;
pub use times::Times;
pub use verdict::{Explanation, Finding, Verdict, explain};
pub use window::Window;
