//! The order of one replicated group, by the Raft protocol (rules P1, P4, P13), and the support of bricks for each other
//! on which its leader's lease rests (rules P4, P5, P6, P17).
//!
//! Promises: an `Order` is a value that is told what happened (a record proposed, a message come, the log durable up to
//! here) and says what to do (`Effects`); nothing that promises a vote, a term or a record leaves before the caller said that
//! it is durable; of a record it knows 16 bytes, its shadow. Nothing ever ticks: an idle group costs no message, and what a lost message
//! would stop is taken up again when the connection is there again. Absent by design: clock, I/O, tasks and locks; records
//! and where they lie; bytes on the wire; changes of membership, which is fixed when an order is opened. The protocol's own
//! library does not show in the interface.
//!
//! Who drives it: writes votes and records to the log in the order of `Effects`, and replays by what was written last; tells
//! `reconnected` at both ends whenever messages may have been lost; calls `nudge` some 2 ms after a commit that no
//! further record followed, and when a leader lacks its lease though it is supported, so that followers acknowledge it in the new
//! spell; looks at `lacks_leader` when support is asked for, and calls `campaign` after a jitter; ends a transfer that leads nowhere by
//! `resign`; keeps records until `keep_from`.
#![forbid(unsafe_code)]

mod ballot;
mod collect;
mod convert;
mod log;
mod message;
mod order;
mod runs;
pub mod support;

pub use collect::{Effects, Old, Role, Ticket};
pub use message::{Body, Entry, Message, Number, Position, Record, Shadow, Stage};
pub use order::{HardState, Member, Moment, NotLeader, Order};
pub use runs::TermRuns;
