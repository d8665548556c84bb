//! Parsers against bytes that nobody wrote: inputs made by the product's own encoders, changed at random.
//!
//! Promises: a seed gives the same inputs everywhere; a failure is told with its seed and its bytes, cut down to what
//! still fails. Guidance is by answers: an input that gets an answer which no other got (another error, another shape of
//! value) is changed further. Absent by design: instrumented builds, which would need another compiler.

mod acl;
mod driver;
mod heal;
mod mutate;
mod recordings;
mod replicas;
mod request;
mod targets;
mod wire_frames;

pub use driver::{Failure, Plan, fuzz};
pub use targets::{Answer, TARGETS, Target, canary, greedy};
