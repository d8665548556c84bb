//! A recording's operations, done again in a directory of any file system.
//!
//! Promises: what must be there before is made first; each operation is done by a call that reaches the file system, whatever
//! the kernel has cached, and brings about no other one (`act`); an operation never begins before those whose outcome its
//! client knew have ended (`pace`). Absent by design: what the data and the names were, which no recording holds; who did what.

mod act;
mod ground;
mod live;
mod pace;
mod report;
mod room;

pub use ground::{check_empty, prepare};
pub use live::Live;
pub use pace::{Pace, run};
pub use report::Report;
