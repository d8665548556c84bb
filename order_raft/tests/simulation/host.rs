//! A brick with one replica: clock, log, and the process that serves them.

use crate::disk::{Disk, Records};
use base::{ReplicaId, Term};
use order_raft::support::{BrickId, Ended, Nanos, Spell, Supports};
use order_raft::{Member, Moment, Order};

/// The leader that was acknowledged last while its brick was supported.
#[derive(Clone, Copy)]
pub struct Bond {
    pub leader: Member,
    pub spell: Spell,
    pub term: Term,
}

pub struct Process {
    /// Rises with each start of any host.
    pub number: u64,
    pub order: Order,
    pub supports: Supports,
    /// The log as it is in memory.
    pub records: Records,
    /// The highest index that was told as committed.
    pub committed: u64,
    pub hinted: u64,
    pub campaign_is_due: bool,
    pub nudge_is_due: bool,
    /// The time at which this leader began to hand over, by its clock.
    pub released: Option<Nanos>,
    pub bond: Option<Bond>,
    /// Leaders up to this term have let it go.
    pub let_go: Term,
    pub is_ending: bool,
}

pub struct Host {
    pub member: Member,
    pub epoch: u64,
    pub ended: Ended,
    pub disk: Disk,
    pub process: Option<Process>,
    /// The clock: it differs by this, and runs faster by so many in a million.
    pub offset: u64,
    pub drift_ppm: i64,
}

pub fn member(number: usize) -> Member {
    Member { replica: ReplicaId(number as u64 + 1), brick: BrickId(number as u128 + 100) }
}

impl Host {
    /// The host's clock at a true time.
    pub fn clock(&self, now: u64) -> Nanos {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        u64::try_from(i128::from(self.offset) + i128::from(now) + drift).expect("clocks are positive")
    }
    /// The true time that a time by the host's clock takes.
    pub fn true_time(&self, local: Nanos) -> u64 {
        let rate = u64::try_from(1_000_000 + self.drift_ppm).expect("clocks run forward");
        local * 1_000_000 / rate
    }
    pub fn has_lease(&self, now: u64) -> bool {
        let Some(process) = &self.process else { return false };
        process.order.has_lease(Moment { supports: &process.supports, now: self.clock(now) })
    }
}
