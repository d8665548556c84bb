//! The times in which somebody leads the groups of a brick with replicas, as this brick sees it: a value that the looking task feeds.
//!
//! Promises: figures only grow, so that two looks subtract. Absent by design: a clock, and what others saw meanwhile; a brick that reaches nobody sees
//! nobody who leads, while the others may be served well.

use base::Term;
use order_raft::support::{ASK_EVERY_NS, BrickId, PROMISE_NS};

/// The silence after which a leader that has asked for support so far counts as gone: it missed one question, and the next is late. When the
/// brick's promise to it runs out is later: then others may lead.
const SILENT_NS: u64 = 2 * ASK_EVERY_NS;

const _: () = assert!(SILENT_NS < PROMISE_NS);

/// True for a brick that has asked for support at a time, and not again by now, though it should have.
pub(crate) fn is_silent(asked_ns: u64, now: u64) -> bool {
    asked_ns + SILENT_NS <= now
}

/// A look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The time.
    pub at_ns: u64,
    /// The brick that leads, as far as this one knows, and its term.
    pub leader: Option<(BrickId, Term)>,
    /// True if it serves clients, as far as this brick can tell.
    pub serves: bool,
    /// The time of its last question for support, if it is another brick that has support.
    pub asked_ns: Option<u64>,
}

/// The brick that leads, and what came before, since this brick's process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Led {
    /// The brick that leads, or led last, and its term; None if there was none.
    pub leader: Option<(BrickId, Term)>,
    /// Times that somebody led after somebody else, or after itself in an earlier term.
    pub changes: u64,
    /// Nanoseconds in which nobody served clients.
    pub without_ns: u64,
    /// True if nobody does now.
    pub is_without: bool,
    /// The last look, and the last one that found nobody: time until then has been counted.
    looked_ns: Option<u64>,
    counted_ns: u64,
}

impl Led {
    /// Takes a look.
    pub(crate) fn look(&mut self, look: Look) {
        let Look { at_ns, leader, serves, asked_ns } = look;
        let looked_ns = self.looked_ns.unwrap_or(at_ns);
        assert!(looked_ns <= at_ns, "looks come in order: {looked_ns} and {at_ns} ns");
        if leader.is_some() && leader != self.leader {
            self.changes += u64::from(self.leader.is_some());
            self.leader = leader;
        }
        let is_silent = asked_ns.is_some_and(|asked_ns| is_silent(asked_ns, at_ns));
        let is_without = leader.is_none() || !serves || is_silent;
        if is_without {
            // It ended when it was heard of last, not when that was noticed.
            let heard_ns = asked_ns.filter(|_| is_silent && !self.is_without).unwrap_or(looked_ns);
            self.without_ns += at_ns - heard_ns.min(looked_ns).max(self.counted_ns);
            self.counted_ns = at_ns;
        }
        (self.is_without, self.looked_ns) = (is_without, Some(at_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    type Leader = Option<(BrickId, Term)>;

    const ONE: Leader = Some((BrickId(1), Term(3)));
    const TWO: Leader = Some((BrickId(2), Term(5)));

    /// The value after looks at these milliseconds: who leads, whether it serves, and when it asked last.
    fn after(looks: &[(u64, Leader, bool, Option<u64>)]) -> Led {
        let mut led = Led::default();
        for &(at, leader, serves, asked) in looks {
            led.look(Look { at_ns: at * MS, leader, serves, asked_ns: asked.map(|asked| asked * MS) });
        }
        led
    }

    #[test]
    fn a_change_of_leader_counts_once_and_the_time_between_as_nobodys() {
        let looks =
            [(100, ONE, true, None), (120, None, false, None), (140, None, false, None), (160, TWO, false, None)];
        let led = after(&looks);
        assert_eq!((led.leader, led.changes, led.without_ns, led.is_without), (TWO, 1, 60 * MS, true));
        let served = after(&[&looks[..], &[(180, TWO, true, None)]].concat());
        assert_eq!((served.leader, served.changes, served.without_ns, served.is_without), (TWO, 1, 60 * MS, false));
    }

    #[test]
    fn the_first_leader_is_no_change_and_the_same_one_in_another_term_is() {
        let again = Some((BrickId(1), Term(4)));
        assert_eq!(after(&[(0, None, false, None), (20, ONE, true, None)]).changes, 0);
        let led = after(&[(0, ONE, true, None), (20, again, true, None)]);
        assert_eq!((led.changes, led.without_ns), (1, 0));
    }

    #[test]
    fn a_leader_that_falls_silent_is_gone_since_it_was_heard() {
        let led = after(&[(1000, ONE, true, Some(990)), (1780, ONE, true, Some(990))]);
        assert_eq!(led.without_ns, 0, "its next question may be late");
        let led = after(&[(1000, ONE, true, Some(990)), (1780, ONE, true, Some(990)), (1800, ONE, true, Some(990))]);
        assert_eq!(led.without_ns, 810 * MS);
        let led = after(&[(1780, ONE, true, Some(990)), (1800, ONE, true, Some(990)), (1820, ONE, false, None)]);
        assert_eq!(led.without_ns, 830 * MS, "the silence counts once");
        let led = after(&[
            (980, ONE, false, None),
            (1000, ONE, false, None),
            (1780, ONE, true, Some(990)),
            (1800, ONE, true, Some(990)),
        ]);
        assert_eq!(led.without_ns, 820 * MS, "no time counts twice");
    }

    #[test]
    fn a_brick_that_stood_still_counts_that_only_if_nobody_serves_then() {
        assert_eq!(after(&[(0, ONE, true, None), (4000, TWO, true, None)]).without_ns, 0);
        assert_eq!(after(&[(0, ONE, true, None), (4000, None, false, None)]).without_ns, 4000 * MS);
    }
}
