//! The caches that a session may have, as the server told last, and the lease up to which that holds (rule P12).
//!
//! Promises: nothing that was told before outlives what is told now, whatever connection it comes over; no cache is valid for longer than
//! the server waits for a client that it does not hear. Absent by design: the kernel, whose mount follows (`front`).

use crate::codec::hello::{Caches, Caching};
use runtime::seeded::{Bug, active};
use std::collections::VecDeque;

/// Pulses whose time of sending is remembered: more are never under way on connections that work.
const PULSES_MAX: usize = 16;

/// The state; see the module. Times are of the client's clock, in nanoseconds.
pub struct CacheLease {
    /// The start of the server that told.
    boot: u64,
    caches: Caches,
    /// Number of changes of the caches so far, over all starts.
    changes: u64,
    /// True if the server waits to hear that the kernel has let go of what it may no longer cache.
    is_awaited: bool,
    lease_end_ns: u64,
    /// Numbers and times of the pulses that were sent last.
    pulses: VecDeque<(u64, u64)>,
}

impl Default for CacheLease {
    fn default() -> CacheLease {
        let caches = Caches { caching: Caching::Shared, number: 0 };
        CacheLease { boot: 0, caches, changes: 0, is_awaited: false, lease_end_ns: 0, pulses: VecDeque::new() }
    }
}

impl CacheLease {
    /// Notes a pulse that is sent now.
    pub fn sends_pulse(&mut self, sequence: u64, now_ns: u64) {
        if self.pulses.len() == PULSES_MAX {
            self.pulses.pop_front();
        }
        self.pulses.push_back((sequence, now_ns));
    }
    /// Notes the server's answer to a pulse: its lease runs from the time at which that was sent.
    pub fn pulse_is_heard(&mut self, sequence: u64, boot: u64, caches: Caches, lease_ns: u64) {
        let sent = self.pulses.iter().find(|(number, _)| *number == sequence).map(|(_, sent_ns)| *sent_ns);
        self.hear(boot, caches, false);
        if let Some(sent_ns) = sent.filter(|_| boot == self.boot) {
            self.lease_end_ns = self.lease_end_ns.max(sent_ns + lease_ns);
        }
    }
    /// Notes the server's welcome to a connection whose hello was sent at a time.
    pub fn is_welcomed(&mut self, boot: u64, caches: Caches, (sent_ns, lease_ns): (u64, u64)) {
        if boot != self.boot {
            (self.boot, self.caches, self.is_awaited) = (boot, caches, false);
            self.changes += 1;
            self.pulses.clear();
        }
        self.hear(boot, caches, true);
        self.lease_end_ns = self.lease_end_ns.max(sent_ns + lease_ns);
    }
    /// Notes what the server tells of caches. `awaits`: it waits to hear that nothing is cached any more.
    pub fn hear(&mut self, boot: u64, caches: Caches, awaits: bool) {
        if boot != self.boot || caches.number < self.caches.number {
            return;
        }
        self.changes += u64::from(self.caches != caches);
        self.caches = caches;
        self.is_awaited = caches.caching == Caching::Shared && (awaits || self.is_awaited);
    }
    /// The caches that the session may have.
    pub fn caches(&self) -> Caches {
        self.caches
    }
    /// Number of changes of the caches so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    /// Seconds, rounded down, for which an answer that is given now may be cached. `changes`: those at the time at which it was asked
    /// for; what was asked for under other caches may be out of date.
    pub fn valid_s(&self, changes: u64, now_ns: u64) -> u64 {
        match self.caches.caching {
            _ if changes != self.changes => 0,
            Caching::Alone if active(Bug::LeaseIgnored) => 3600,
            Caching::Alone => self.lease_end_ns.saturating_sub(now_ns) / 1_000_000_000,
            Caching::Shared => 0,
        }
    }
    /// The caches that the server awaits word of, once: the kernel caches nothing more than these.
    pub fn confirms(&mut self, applied: Caches) -> bool {
        let confirms = applied == self.caches && self.is_awaited;
        self.is_awaited &= !confirms;
        confirms
    }
    /// True if the server waits to hear that the kernel has let go of what it may no longer cache.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const LEASE_NS: u64 = 10 * S;

    fn alone(number: u64) -> Caches {
        Caches { caching: Caching::Alone, number }
    }
    fn shared(number: u64) -> Caches {
        Caches { caching: Caching::Shared, number }
    }

    #[test]
    fn caches_are_valid_for_as_long_as_the_server_waits() {
        let mut told = CacheLease::default();
        assert_eq!(told.valid_s(told.changes(), 0), 0, "nobody has told anything");
        told.is_welcomed(7, alone(0), (5 * S, LEASE_NS));
        assert_eq!(
            (
                told.valid_s(told.changes(), 5 * S),
                told.valid_s(told.changes(), 5 * S + 1),
                told.valid_s(told.changes(), 16 * S)
            ),
            (10, 9, 0)
        );
        told.sends_pulse(1, 8 * S);
        told.pulse_is_heard(1, 7, alone(0), LEASE_NS);
        assert_eq!(told.valid_s(told.changes(), 9 * S), 9);
        told.pulse_is_heard(2, 7, alone(0), LEASE_NS);
        assert_eq!(told.valid_s(told.changes(), 9 * S), 9, "a pulse that was not sent");
    }

    #[test]
    fn what_was_told_before_does_not_count() {
        let mut told = CacheLease::default();
        told.is_welcomed(7, alone(1), (0, LEASE_NS));
        let before = told.changes();
        assert_eq!(told.valid_s(before, 0), 10);
        assert!(!told.is_awaited());
        told.hear(7, shared(2), true);
        told.hear(7, alone(1), false);
        assert!(told.is_awaited() && told.valid_s(told.changes(), 0) == 0, "the later one counts");
        told.hear(7, alone(3), false);
        assert_eq!(told.valid_s(before, 0), 0, "it was asked for before others came and went");
        told.hear(7, shared(4), true);
        assert!(!told.confirms(alone(1)), "not what is awaited");
        assert!(told.confirms(shared(4)) && !told.confirms(shared(4)), "once");
        told.is_welcomed(7, shared(4), (0, LEASE_NS));
        assert!(told.is_awaited() && told.confirms(shared(4)), "over another connection it is awaited again");
        told.is_welcomed(8, alone(0), (0, LEASE_NS));
        assert_eq!(told.caches(), alone(0), "another start counts anew");
        told.hear(7, shared(9), true);
        assert_eq!(told.caches(), alone(0), "a former start");
    }
}
