//! The account of a client's requests: how long each was on its way there and back, and how long the server had it.
//!
//! Promise: each core counts its own, without a cache line that others write; anybody may read. Absent by design: what is usual.

use super::Client;
use super::session::Session;
use crate::codec::reply::Told;
use base::{Op, Reply, Sync};
use runtime::classes::{DEPTHS, SIZES, bytes_max, depth, depth_min, size};
use runtime::histogram::{Histogram, Summary};
use runtime::net::WayQuality;
use runtime::{Lapse, Span, Stage, Stamp};
use std::sync::OnceLock;

/// The work that a request asks for. How long a server has it depends on that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Read,
    Write,
    /// Making durable what was written, also with the write itself.
    Sync,
    Other,
}

impl Verb {
    const ALL: [Verb; 4] = [Verb::Read, Verb::Write, Verb::Sync, Verb::Other];
    fn of(op: &Op) -> Verb {
        match op {
            Op::Read { .. } => Verb::Read,
            Op::Write { sync: Sync::Ordered | Sync::Written, .. } => Verb::Write,
            Op::Write { .. } | Op::Fsync { .. } | Op::SyncAll => Verb::Sync,
            _ => Verb::Other,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Sync => "sync",
            Verb::Other => "other",
        }
    }
}

/// The times of one class of requests.
#[derive(Default)]
struct Times {
    wire: Histogram,
    server: Histogram,
}

/// One core's times by class; most classes never come and have none.
pub(super) struct Account(Box<[OnceLock<Box<Times>>]>);

impl Default for Account {
    fn default() -> Account {
        Account((0..Verb::ALL.len() * SIZES * DEPTHS).map(|_| OnceLock::new()).collect())
    }
}

impl Account {
    fn record(&self, (verb, bytes, under_way): (Verb, usize, usize), wire_ns: u64, server_ns: u64) {
        assert!(under_way > 0, "a request that is booked is one of those under way");
        let class = (verb as usize * SIZES + size(bytes)) * DEPTHS + depth(under_way);
        let times = self.0[class].get_or_init(Box::default);
        times.wire.record(wire_ns);
        times.server.record(server_ns);
    }
}

/// The requests of one class, over all cores.
#[derive(Clone)]
pub struct Trips {
    /// `read`, `write`, `sync` or `other`.
    pub verb: &'static str,
    /// Largest number of bytes beside request and answer.
    pub bytes_max: u64,
    /// Least number of requests of the core that were under way.
    pub depth: u64,
    /// Times on the way there and back.
    pub wire: Summary,
    /// Times at the server.
    pub server: Summary,
}

/// The connections to the server, and the requests that went over them.
#[derive(Clone)]
pub struct Ways {
    /// Requests by class.
    pub trips: Vec<Trips>,
    /// Connections that are up.
    pub connections: usize,
    /// Round-trip time in nanoseconds, the mean of the connections; 0 without one.
    pub round_trip_ns: u64,
    /// Segments that were sent again so far, by the client.
    pub retransmits: u64,
    /// Nanoseconds without any connection to a server so far, since the first one: of the server that was away for longest.
    pub away_ns: u64,
    /// Alarms of the server's cores since its start, and the nanoseconds by which they were late: as late as a request is looked at.
    pub late: (u64, u64),
}

/// The qualities of a core's connections.
#[derive(Default)]
pub(super) struct Quality {
    last: WayQuality,
    /// Segments that were sent again over connections that have ended.
    retransmits: u64,
}

impl Quality {
    /// Notes that the connection has ended.
    pub fn ended(&mut self) {
        self.retransmits += std::mem::take(&mut self.last).retransmits;
    }
}

/// The stage in which a client books what its server has spent in one.
fn at_client(stage: Stage) -> Stage {
    if stage.is_of_both_ends() { Stage::Server } else { stage }
}

impl Session {
    /// Books the time since a request was handed over, of which the answer came at `came`, as one of so many under way.
    pub(super) fn book(&self, span: &Span, told: Option<&Told>, of: (&Op, usize, usize), came: Stamp) {
        let (ledger, now) = (&self.runtime.ledger, self.runtime.stamp());
        let Some(told) = told else {
            span.mark(Stage::Wire, now);
            return;
        };
        let spent = told.stages.spent().map(|(stage, us)| (at_client(stage), ledger.lapse(u64::from(us) * 1000)));
        let (server, wire) = span.mark_answer(spent, Stage::Wire, came, now);
        let (op, sent_bytes, under_way) = of;
        let came_bytes = match (&told.result, op) {
            (Ok(Reply::Data { .. }), Op::Read { length, .. }) => *length as usize,
            _ => 0,
        };
        let ns = |lapse: Lapse| ledger.ns(lapse);
        let class = (Verb::of(op), sent_bytes.max(came_bytes), under_way);
        self.accounts()[self.runtime.tasks.core()].record(class, ns(wire), ns(server));
    }
    /// Adds the connections of the session to those of others. The round-trip times are summed.
    fn add_to(&self, ways: &mut Ways) {
        let before = ways.connections;
        for wire in &self.wires {
            let mut wire = wire.lock();
            let quality = wire.lane.as_ref().and_then(|lane| self.runtime.net.way(lane.connection).ok());
            if let Some(quality) = quality {
                wire.quality.last = quality;
                ways.connections += 1;
                ways.round_trip_ns += quality.round_trip_ns;
            }
            ways.retransmits += wire.quality.retransmits + wire.quality.last.retransmits;
        }
        assert!(ways.connections - before <= self.wires.len(), "a core has one connection");
        let server = self.server.lock();
        let since = server.reach.away_since_ns.map_or(0, |since_ns| self.runtime.clock.now_ns() - since_ns);
        ways.away_ns = ways.away_ns.max(server.away_ns + since);
        ways.late = (ways.late.0 + server.late.0, ways.late.1 + server.late.1);
    }
}

impl Client {
    /// The connections, and the requests so far.
    pub fn ways(&self) -> Ways {
        let trips = self.trips();
        let mut ways = Ways { trips, connections: 0, round_trip_ns: 0, retransmits: 0, away_ns: 0, late: (0, 0) };
        self.sessions().for_each(|session| session.add_to(&mut ways));
        ways.round_trip_ns /= ways.connections.max(1) as u64;
        ways
    }
    fn trips(&self) -> Vec<Trips> {
        let mut all = Vec::new();
        for class in 0..Verb::ALL.len() * SIZES * DEPTHS {
            let mut of_cores = self.part.accounts.iter().filter_map(|account| account.0[class].get()).peekable();
            // Most classes never come, and a summary takes some KiB.
            if of_cores.peek().is_none() {
                continue;
            }
            let (mut wire, mut server) = (Summary::default(), Summary::default());
            for times in of_cores {
                times.wire.add_to(&mut wire);
                times.server.add_to(&mut server);
            }
            let (rest, depth) = (class / DEPTHS, class % DEPTHS);
            let (verb, size) = (Verb::ALL[rest / SIZES].name(), rest % SIZES);
            all.push(Trips { verb, bytes_max: bytes_max(size), depth: depth_min(depth), wire, server });
        }
        all
    }
}
