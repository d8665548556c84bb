//! The search for the server that serves, where there are several addresses: that of the present leader is one of them. Who does not answer
//! may be cut off while another one leads, so none of them is waited for as long as the only server of a brick is.
//!
//! Promises: all addresses are tried before there is a pause; a connection on which nothing comes ends within `SILENCE_NS`. Absent by
//! design: knowing who leads. A server that does not lead does not listen, or ends the connection.

use super::session::{Session, Wire};
use crate::FrameKind;
use crate::codec::Body;
use crate::codec::session::Pulse;
use crate::pauses::Pauses;
use base::{Error, Kind, Result};
use runtime::tasks::either;

/// Longest time for a connection to be made. Within a data centre it takes less than a millisecond; where its first packet was lost, the
/// next round comes before that would be sent again.
pub(super) const CONNECT_NS: u64 = 400_000_000;
/// Longest time for an answer to one message of a greeting. A volume's other clients may take some seconds to let go of what they cache;
/// who asks again meanwhile has lost nothing.
pub(super) const GREETING_NS: u64 = 10_000_000_000;
/// The same for the first message, in the first round of a search; it doubles with each round, up to the longest. A process that hangs still
/// takes connections: so it holds up who looks for another leader for no longer than the search has lasted anyway. A server that serves
/// answers within milliseconds, unless it waits for other clients.
const GREETING_FIRST_NS: u64 = 500_000_000;
/// Time without an answer to pulses after which a connection is given up: two of them, which are sent each second. By then another brick leads,
/// or is about to.
pub(super) const SILENCE_NS: u64 = 1_900_000_000;
/// Longest pause between two rounds, but for the jitter: a new leader is found within a second of its election.
const PAUSE_NS_MAX: u64 = 200_000_000;

/// Rounds after which the first message is waited for the longest.
const ROUNDS_MAX: u32 = 5;
const _: () = assert!(GREETING_FIRST_NS << ROUNDS_MAX >= GREETING_NS);

/// The attempts of one connection.
pub(super) struct Search {
    /// The present one.
    pub attempt: usize,
    first: usize,
    /// Rounds since a server has let the session in.
    rounds: u32,
    pauses: Pauses,
    /// The longest that one of this round has lasted.
    longest_ns: u64,
}

impl Search {
    /// The search of a core's connection: those of other cores begin elsewhere.
    pub fn of(core: usize) -> Search {
        Search { attempt: core, first: core, rounds: 0, pauses: Pauses::new(), longest_ns: 0 }
    }
    /// The longest time for an answer to the first message of a greeting.
    pub fn patience_ns(&self) -> u64 {
        (GREETING_FIRST_NS << self.rounds.min(ROUNDS_MAX)).min(GREETING_NS)
    }
    /// Notes that a server has let the session in.
    pub fn is_let_in(&mut self) {
        self.rounds = 0;
    }
    /// Begins the next attempt after one that lasted so long; the pause before it.
    pub fn go_on(&mut self, client: &Session, lasted_ns: u64) -> u64 {
        let addresses = client.addresses.lock().len();
        self.longest_ns = self.longest_ns.max(lasted_ns);
        self.attempt += 1;
        if !(self.attempt - self.first).is_multiple_of(addresses) {
            return 0;
        }
        self.rounds += 1;
        let pause_ns = self.pauses.next_ns(&*client.runtime.random, std::mem::take(&mut self.longest_ns));
        if addresses > 1 { pause_ns.min(PAUSE_NS_MAX + pause_ns % PAUSE_NS_MAX) } else { pause_ns }
    }
}

impl Session {
    fn has_several(&self) -> bool {
        self.addresses.lock().len() > 1
    }
    /// Waits for something of a server, for so long if another one may serve instead, else until it comes. Errors: `Host`; those of what is
    /// waited for.
    pub(super) async fn soon<T>(&self, within_ns: u64, what: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.has_several() {
            return what.await;
        }
        let mut done = Err(Error::new(Kind::Host, "the server does not answer"));
        either(async { done = what.await }, self.runtime.clock.sleep(within_ns)).await;
        done
    }
    /// Gives a pulse to the server, and ends connections to one that does not answer if another one may.
    pub(super) fn give_pulse(&self, pulse: &Pulse) {
        if !self.has_several() {
            return self.say(pulse);
        }
        let now_ns = self.runtime.clock.now_ns();
        for wire in &self.wires {
            let wire = wire.lock();
            let Wire { lane: Some(lane), heard_ns, .. } = &*wire else { continue };
            match now_ns.saturating_sub(*heard_ns) > SILENCE_NS {
                true => lane.close(&self.runtime),
                false => lane.outbox.push(None, |out| pulse.frame(out, self.header(FrameKind::Pulse))),
            }
        }
    }
    /// Notes that the server has answered a pulse over a core's connection.
    pub(super) fn pulse_is_answered(&self, core: usize) {
        self.wires[core].lock().heard_ns = self.runtime.clock.now_ns();
    }
}
