//! The answer to an operation.

use base::{GroupId, Index, Reply, Term};
use runtime::Slice;

/// The position of a change in its group's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The group.
    pub group: GroupId,
    /// The term.
    pub term: Term,
    /// The index in the group's order. An answer without change has the index of the last change that it saw.
    pub index: Index,
    /// True if the change was durable when it was answered.
    pub durable: bool,
}

/// A reply, a read's bytes, and the position of the change (rule R1).
#[derive(Clone)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// The bytes of a read; None when there are none.
    pub data: Option<Slice>,
    /// The position; None if nothing was ordered.
    pub position: Option<Position>,
}
