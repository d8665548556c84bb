//! Evaluation of operations on names and inodes into logical edits (decision D5: evaluate once, apply blindly).
//!
//! Promises: `evaluate` checks everything before it takes any fresh number, so that no number is wasted when something
//! must be read first or when the operation is refused; its edits can be applied without checks, clock, ids or errors;
//! `apply_inode` is the one place that says what an edit does to an inode. Absent by design: no I/O, no async, no
//! clock, no store; no permission checks (the kernel makes them: default_permissions); no walk up a directory's
//! ancestors (the holder of the volume's rename token does that).
#![forbid(unsafe_code)]

mod acl;
mod apply;
mod attributes;
mod create;
mod decision;
mod evaluate;
mod guard;
mod remove;
mod rename;
mod tier;
mod view;
mod volumes;
pub mod write;
mod xattr;

#[cfg(test)]
mod tests;

pub use apply::{TIME_KEPT, apply_inode};
pub use decision::{Decision, Part};
pub use evaluate::evaluate;
pub use tier::is_tier_hint;
pub use view::{Caller, Entry, Need, Seen, Stop, View};
pub use xattr::capability;
