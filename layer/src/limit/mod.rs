//! Holds a volume's operations back so that they stay within its limits (docs/decisions/0068).
//!
//! Promises: over any time that begins at rest, no more passes than the limits' rates and their burst allow, and one operation;
//! operations of one kind pass in the order of their arrival; a change of limits holds at once for all that waits. What frees space
//! or makes durable what was accepted is never held. Absent by design: a share for each client of a volume.

mod core;
#[cfg(test)]
mod tests;
mod trees;

use self::core::{Asked, Core, Line, Ticket, Turn};
use crate::Call;
use crate::read_only::{Effect, effect};
use base::{Limits, Op, Room};
use runtime::event::Event;
use runtime::tasks::either;
use runtime::{Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::Arc;
pub(crate) use trees::Trees;

/// The limits of one volume at work.
pub(crate) struct Limiter {
    state: Lock<State>,
}

struct State {
    core: Core,
    /// One event for each operation that waits.
    waiting: BTreeMap<Ticket, Arc<Event>>,
    /// Operations that had to wait, and for how long in all.
    held: u64,
    held_ns: u64,
}

/// The figures of a volume's limits since the daemon was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitSummary {
    /// Operations that had to wait.
    pub held: u64,
    /// Nanoseconds for which they waited, in all.
    pub held_ns: u64,
    /// Operations that wait now.
    pub waiting: u64,
}

impl Limiter {
    pub fn new(limits: &Limits, now_ns: u64) -> Limiter {
        let state = State { core: Core::new(limits, now_ns), waiting: BTreeMap::new(), held: 0, held_ns: 0 };
        Limiter { state: Lock::new("limits", state) }
    }
    /// Puts other limits in place; what waits is judged by them at once.
    pub fn change(&self, limits: &Limits, now_ns: u64) {
        let mut state = self.state.lock();
        state.core.change(limits, now_ns);
        state.wake();
    }
    /// Waits until an operation may pass. True if it had to wait.
    pub async fn pass(&self, runtime: &Runtime, call: &Call) -> bool {
        let Some(asked) = asked(call) else { return false };
        let arrived_ns = runtime.clock.now_ns();
        let (ticket, event) = {
            let mut state = self.state.lock();
            let Some(ticket) = state.core.arrive(asked, arrived_ns) else { return false };
            (ticket, state.waiting.entry(ticket).or_default().clone())
        };
        let _waits = Waits { limiter: self, runtime, line: asked.line, ticket, arrived_ns };
        loop {
            let noted = event.ticket();
            let now_ns = runtime.clock.now_ns();
            let turn = self.state.lock().core.turn(asked.line, ticket, now_ns);
            match turn {
                Turn::Pass => return true,
                Turn::At(at_ns) => {
                    either(event.after(noted), runtime.clock.sleep(at_ns - now_ns)).await;
                }
                Turn::Behind => event.after(noted).await,
            }
        }
    }
    pub fn summary(&self) -> LimitSummary {
        let state = self.state.lock();
        LimitSummary { held: state.held, held_ns: state.held_ns, waiting: state.core.waiting() as u64 }
    }
}

impl State {
    /// Has the first of each line ask again.
    fn wake(&self) {
        for first in self.core.first() {
            if let Some(event) = self.waiting.get(&first) {
                event.notify();
            }
        }
    }
}

/// An operation that waits. However it ends, it leaves, and those behind it move up.
struct Waits<'a> {
    limiter: &'a Limiter,
    runtime: &'a Runtime,
    line: Line,
    ticket: Ticket,
    arrived_ns: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let now_ns = self.runtime.clock.now_ns();
        let mut state = self.limiter.state.lock();
        state.core.leave(self.line, self.ticket);
        state.waiting.remove(&self.ticket);
        state.held += 1;
        state.held_ns += now_ns.saturating_sub(self.arrived_ns);
        state.wake();
    }
}

/// True if limits may hold an operation.
pub(crate) fn may_hold(call: &Call) -> bool {
    asked(call).is_some()
}

/// The part of its volume's limits that an operation takes; None if it is never held: it gives back, frees space, or makes durable
/// what was accepted.
fn asked(call: &Call) -> Option<Asked> {
    match &call.op {
        Op::Release { .. }
        | Op::Forget { .. }
        | Op::Unlink { .. }
        | Op::RemoveDir { .. }
        | Op::Open { truncate: true, .. }
        | Op::Allocate { room: Room::Hole, .. }
        | Op::Fsync { .. }
        | Op::SyncAll => return None,
        Op::SetAttr { set, .. } if set.size.is_some() => return None,
        _ => (),
    }
    let bytes = match &call.op {
        Op::Read { length, .. } => u64::from(*length),
        Op::Write { .. } => call.data.as_ref().map_or(0, |data| data.len() as u64),
        _ => 0,
    };
    let line = if effect(&call.op) == Effect::Change { Line::Changes } else { Line::Reads };
    Some(Asked { line, bytes })
}
