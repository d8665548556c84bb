//! The pace of the scrub, as a pure core (decision D7). It works and rests in turns of equal length, and compares the
//! durations of clients' requests in both. If they took longer while it worked, it works for a smaller share of the
//! time.

/// One turn of work or of rest: long enough for many requests, short for a person.
pub const TURN_NS: u64 = 100_000_000;
/// Fewer requests in a turn say nothing about what requests take.
const REQUESTS_MIN: u64 = 8;
/// Clients may wait so much longer, in percent and in nanoseconds, before it slows down: less than what chance does to
/// the means of two turns.
const SLOWER_PERCENT: u64 = 10;
const SLOWER_NS: u64 = 20_000;
/// The least share of a turn that it works, in thousandths: it must come to an end beside any clients. On a device that
/// reads 1 GB/s a terabyte then takes two days and a half at most.
const SHARE_MIN: u64 = 5;
/// Share of a working turn, in thousandths, if requests are too few to be compared: half of the time.
const SHARE_FEW: u64 = 500;
/// Largest share, in thousandths: the whole turn.
const SHARE_MAX: u64 = 1000;
/// Increase of the share, in thousandths, after a turn that did not hurt.
const SHARE_STEP: u64 = 50;
const _: () = assert!(0 < SHARE_MIN && SHARE_MIN < SHARE_FEW && SHARE_FEW < SHARE_MAX && SHARE_STEP < SHARE_FEW);

/// Clients' requests so far: how many, and how long they took together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clients {
    /// Requests answered.
    pub count: u64,
    /// Nanoseconds.
    pub sum_ns: u64,
}

impl Clients {
    /// The requests since `before`.
    fn since(self, before: Clients) -> Clients {
        assert!(self.count >= before.count, "answered requests stay answered");
        // The sum may become a little less as the length of a tick is known better.
        Clients { count: self.count - before.count, sum_ns: self.sum_ns.saturating_sub(before.sum_ns) }
    }
    /// None if there are too few to tell.
    fn mean_ns(self) -> Option<u64> {
        (self.count >= REQUESTS_MIN).then(|| self.sum_ns / self.count)
    }
}

/// Decides when to read and when to pause.
pub struct Pacer {
    /// Thousandths of a working turn.
    share: u64,
    turn: Turn,
    began_ns: u64,
    before: Clients,
    /// Mean duration of requests in the last turn of rest.
    rested_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Work,
    Rest,
}

impl Pacer {
    /// Begins slowly.
    pub fn new(now_ns: u64, clients: Clients) -> Pacer {
        Pacer { share: SHARE_STEP, turn: Turn::Rest, began_ns: now_ns, before: clients, rested_ns: None }
    }
    /// The share of a working turn in which it works, in thousandths.
    #[cfg(test)]
    pub fn share(&self) -> u64 {
        self.share
    }
    /// A slice took so long and ended now: how long to pause before the next one.
    pub fn pause_ns(&mut self, now_ns: u64, took_ns: u64, clients: Clients) -> u64 {
        assert!(now_ns >= self.began_ns, "the clock does not go back");
        if now_ns - self.began_ns >= TURN_NS {
            self.end_turn(now_ns, clients);
        }
        assert!((SHARE_MIN..=SHARE_MAX).contains(&self.share));
        match self.turn {
            Turn::Rest => TURN_NS - (now_ns - self.began_ns).min(TURN_NS - 1),
            Turn::Work => took_ns * (SHARE_MAX - self.share) / self.share,
        }
    }
    fn end_turn(&mut self, now_ns: u64, clients: Clients) {
        let seen = clients.since(self.before);
        (self.began_ns, self.before) = (now_ns, clients);
        match self.turn {
            Turn::Rest => {
                self.rested_ns = seen.mean_ns();
                self.turn = Turn::Work;
            }
            Turn::Work => {
                let faster = self.share + SHARE_STEP;
                self.share = match (seen.mean_ns(), self.rested_ns) {
                    (Some(worked), Some(rested)) if worked <= rested + rested * SLOWER_PERCENT / 100 + SLOWER_NS => {
                        faster.min(SHARE_MAX)
                    }
                    (None, None) if seen.count == 0 => faster.min(SHARE_MAX),
                    (None, None) => faster.min(SHARE_FEW),
                    // It hurts; or it has silenced clients, or some have just come, and nobody knows.
                    _ => (self.share / 2).max(SHARE_MIN),
                };
                // Without clients there is nothing to learn from a rest.
                self.turn = if seen.count == 0 && self.rested_ns.is_none() { Turn::Work } else { Turn::Rest };
            }
        }
    }
}
