//! The budget of background work: agents ask it before each slice of work, and rest while it says so (`core`).
//!
//! Promises: what agents that ask take from clients is bounded, whatever they are and however many; each gets on. Absent by
//! design: work that space or a restart's duration depends on, which does not ask (rules K4, X2).

mod core;
#[cfg(test)]
mod tests;

use crate::{Lock, Runtime};
pub use core::Figures;
use core::{CLASSES, Clients, Core};

/// Longest uninterrupted wait for a slice: closing the brick does not wait longer.
const WAIT_NS_MAX: u64 = 100_000_000;
/// Shortest one: about the overhead of a timer.
const WAIT_NS_MIN: u64 = 50_000;

/// Background work that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agent {
    /// Reads everything again.
    Scrub,
    /// Checkpoints that are made only to free what was deleted.
    Free,
    /// Cleans ahead of time.
    Clean,
    /// Passes cold blocks on to disks ahead of time.
    Destage,
    /// Puts scattered files together.
    Defragment,
    /// Empties a device that leaves.
    Evacuate,
    /// Fetches blocks that this brick lacks from others.
    Heal,
}

impl Agent {
    /// All agents.
    pub const ALL: [Agent; 7] =
        [Agent::Scrub, Agent::Free, Agent::Clean, Agent::Destage, Agent::Defragment, Agent::Evacuate, Agent::Heal];
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Agent::Scrub => "scrub",
            Agent::Free => "freeing",
            Agent::Clean => "cleaner",
            Agent::Destage => "destage",
            Agent::Defragment => "defragmentation",
            Agent::Evacuate => "removal",
            Agent::Heal => "heal",
        }
    }
    /// Its weight among those that want to work: what gives room goes before what only improves.
    fn weight(self) -> u64 {
        match self {
            Agent::Free | Agent::Clean | Agent::Destage | Agent::Evacuate | Agent::Heal => 2,
            Agent::Scrub | Agent::Defragment => 1,
        }
    }
    /// The least share of a turn of work, in thousandths, that it gets beside any clients. On a device that reads 1 GB/s a scrub of a
    /// terabyte then takes two days and a half at most.
    fn floor(self) -> u64 {
        match self {
            Agent::Scrub | Agent::Defragment => 5,
            // A checkpoint that frees 2^18 blocks takes half a second or less: each ten seconds.
            Agent::Free => 50,
            Agent::Clean | Agent::Destage => 20,
            // Somebody waits for the device, or a copy is missing: as much of the time as clients have.
            Agent::Evacuate | Agent::Heal => 500,
        }
    }
}

/// The budget of a brick's agents.
pub struct Budget(Lock<Core>);

impl Budget {
    /// The budget of a world that begins now.
    pub(crate) fn new(now_ns: u64) -> Budget {
        Budget(Lock::new("budget", Core::new(now_ns)))
    }
}

/// A slice of an agent's work that is under way.
pub struct Working<'a> {
    runtime: &'a Runtime,
    agent: Agent,
}

impl Runtime {
    /// Begins a slice of work of an agent. Errors: how long to wait, in nanoseconds, before asking again; at most a little longer
    /// than what a rest after its last slice takes.
    pub fn begin_slice(&self, agent: Agent) -> Result<Working<'_>, u64> {
        match self.budget.0.lock().ask(self.clock.now_ns(), agent, || self.clients()) {
            0 => Ok(Working { runtime: self, agent }),
            wait_ns => Err(wait_ns),
        }
    }
    /// Waits until an agent may begin a slice of work; None if it is told meanwhile not to go on.
    pub async fn slice(&self, agent: Agent, goes_on: impl Fn() -> bool) -> Option<Working<'_>> {
        while goes_on() {
            match self.begin_slice(agent) {
                Ok(working) => return Some(working),
                Err(wait_ns) => self.clock.sleep(wait_ns.clamp(WAIT_NS_MIN, WAIT_NS_MAX)).await,
            }
        }
        None
    }
    /// The figures of all agents.
    pub fn agents(&self) -> Vec<Figures> {
        self.budget.0.lock().figures(self.clock.now_ns())
    }
    fn clients(&self) -> Clients {
        Clients(self.ledger.durations::<CLASSES>(class_of))
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let Working { runtime, agent } = *self;
        runtime.budget.0.lock().ended(runtime.clock.now_ns(), agent, || runtime.clients());
    }
}

/// The class of an operation; None: nobody waits for it.
fn class_of(operation: &str) -> Option<usize> {
    match operation {
        "read" => Some(0),
        "write" | "write-direct" | "fallocate" => Some(1),
        "write-sync" | "fsync" | "sync" => Some(2),
        "forget" | "release" => None,
        _ => Some(3),
    }
}
