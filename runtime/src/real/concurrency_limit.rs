//! The concurrency limit for transfers of one kind of a core at its device: a pure core, by feedback (decision D7,
//! mission T4; docs/decisions/0025).
//!
//! More transfers than the device needs to be busy only come back in larger groups, and device and CPUs then work in
//! turns instead of at the same time. The number that it needs follows from its rate and its own latency (Little's
//! law). The law and its use are those of BBR (Cardwell et al., 2016), with the device in the place of the network
//! path.
//!
//! Absent by design: the queue of transfers that wait, and the choice of those that never do (both are the device's).

/// Highest limit: no device gains from more on one core.
const MOST: u32 = 1024;
/// Length of the windows over which rates are measured, in nanoseconds: some hundred small reads of a busy core, twenty
/// of 1 MiB.
const WINDOW_NS: u64 = 10_000_000;
/// Number of windows whose highest rate counts, since a client that pauses says nothing about the device.
const WINDOWS: usize = 8;
/// Length of a span, in nanoseconds. The shortest latency of this span and of the one before counts, so that the limit
/// follows a device that has become slower. Spans begin for all cores at the same time.
const SPAN_NS: u64 = 4_000_000_000;
/// Windows of a span in which a core has one transfer under way if flows share the device. A queue that is always there
/// would else be taken for the device's own latency, and grow with each span (BBR's probes of the round-trip time). One window empties
/// the device, the other measures.
const PROBE_WINDOWS: u32 = 2;

const SECOND_NS: u64 = 1_000_000_000;

/// Bounds of a concurrency limit.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Number of transfers that are always allowed.
    pub least: u32,
    /// Multiple of its shortest latency that a device may take before more concurrency counts as waiting.
    pub times: u64,
}

/// A concurrency limit and its measurements; see the module.
pub(super) struct ConcurrencyLimit {
    /// Bounds while the device is one flow's, and while flows share it.
    bounds: [Bounds; 2],
    /// True while they do.
    shared: bool,
    /// Windows for which it still probes the latency of a device that flows share, and the span of the last probe.
    probes: u32,
    probed: u64,
    under_way: u32,
    /// Number of transfers that are allowed now, and while flows share the device.
    allowed: [u32; 2],
    /// Number of transfers that have ended since the window began.
    ended: u64,
    window_ns: u64,
    /// Transfers per second in the last windows, and the position of the rate to be replaced next.
    rates: [u64; WINDOWS],
    next: usize,
    /// Number of the span.
    span: u64,
    /// Shortest latencies of this span and of the one before.
    shortest_ns: [u64; 2],
}

impl ConcurrencyLimit {
    /// A limit with nothing under way, with its bounds while the device is one flow's, and while flows share it.
    pub fn new(bounds: [Bounds; 2]) -> ConcurrencyLimit {
        ConcurrencyLimit {
            bounds,
            shared: false,
            probes: 0,
            probed: 0,
            under_way: 0,
            allowed: bounds.map(|bounds| bounds.least),
            ended: 0,
            window_ns: 0,
            rates: [0; WINDOWS],
            next: 0,
            span: 0,
            shortest_ns: [u64::MAX; 2],
        }
    }
    /// Admits one more transfer; false if the limit is reached.
    pub fn admit(&mut self) -> bool {
        let allowed = if self.shared && self.probes > 0 { 1 } else { self.allowed[usize::from(self.shared)] };
        let may = self.under_way < allowed;
        self.under_way += u32::from(may);
        may
    }
    /// Says whether flows share the device.
    pub fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }
    /// Notes that a transfer has ended which was under way for `latency_ns`.
    pub fn ended(&mut self, latency_ns: u64, now_ns: u64) {
        assert!(self.under_way > 0, "what ends was under way");
        self.under_way -= 1;
        self.ended += 1;
        self.shortest_ns[0] = self.shortest_ns[0].min(latency_ns);
        let elapsed_ns = now_ns.saturating_sub(self.window_ns);
        if elapsed_ns >= WINDOW_NS {
            self.rates[self.next] = self.ended * SECOND_NS / elapsed_ns;
            self.next = (self.next + 1) % WINDOWS;
            (self.ended, self.window_ns) = (0, now_ns);
            self.allowed = self.bounds.map(|bounds| self.needed(bounds));
            self.probes = self.probes.saturating_sub(1);
            let span = now_ns / SPAN_NS;
            if span != self.span {
                self.shortest_ns = [u64::MAX, self.shortest_ns[0]];
                self.span = span;
            }
            // Also in the middle of a span, if flows have begun to share the device: until now nobody cared what waits in it.
            if self.shared && self.probed != span {
                (self.probed, self.probes) = (span, PROBE_WINDOWS);
            }
        }
    }
    fn needed(&self, Bounds { least, times }: Bounds) -> u32 {
        let rate = self.rates.into_iter().max().expect("there are windows");
        let shortest_ns = self.shortest_ns[0].min(self.shortest_ns[1]).min(SECOND_NS);
        let needed = times.saturating_mul(rate).saturating_mul(shortest_ns) / SECOND_NS;
        u32::try_from(needed).unwrap_or(MOST).clamp(least, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// The same bounds whether flows share the device or not.
    fn at_least(least: u32) -> ConcurrencyLimit {
        ConcurrencyLimit::new([Bounds { least, times: 4 }; 2])
    }
    fn shared(least: u32, times: u64) -> ConcurrencyLimit {
        let mut limit = ConcurrencyLimit::new([Bounds { least, times }; 2]);
        limit.set_shared(true);
        limit
    }
    /// Simulates clients that each ask again once they are answered, and a device that works on `parallel` transfers at
    /// once, each for `service_ns`. Returns transfers per second and the limit after a second.
    fn closed_loop(least: u32, clients: usize, parallel: usize, service_ns: u64) -> (u64, u32) {
        loop_under(&mut at_least(least), clients, parallel, service_ns)
    }
    fn loop_under(limit: &mut ConcurrencyLimit, clients: usize, parallel: usize, service_ns: u64) -> (u64, u32) {
        loop_for(1, limit, clients, parallel, service_ns)
    }
    /// The same for so many seconds; the rate is that of the second half.
    fn loop_for(
        seconds: u64,
        limit: &mut ConcurrencyLimit,
        clients: usize,
        parallel: usize,
        service_ns: u64,
    ) -> (u64, u32) {
        // Ends of those that the device works on; when those that wait in it came, and those that the limit holds back.
        let (mut busy, mut inside, mut held) = (BinaryHeap::new(), std::collections::VecDeque::new(), clients);
        let (mut now_ns, mut done) = (0, 0);
        while now_ns < seconds * SECOND_NS {
            while held > 0 && limit.admit() {
                held -= 1;
                inside.push_back(now_ns);
            }
            while busy.len() < parallel
                && let Some(came_ns) = inside.pop_front()
            {
                busy.push(Reverse((now_ns + service_ns, came_ns)));
            }
            let Some(Reverse((end_ns, came_ns))) = busy.pop() else { break };
            now_ns = end_ns;
            limit.ended(now_ns - came_ns, now_ns);
            held += 1;
            done += u64::from(now_ns >= seconds * SECOND_NS / 2);
        }
        (done * 2 / seconds, limit.allowed[usize::from(limit.shared)])
    }

    #[test]
    fn what_a_quick_device_does_not_need_is_held_back() {
        // 4 at a time for 60 us each: 66,667 reads per second.
        let (rate, limit) = closed_loop(16, 64, 4, 60_000);
        assert!(rate > 66_000 && limit == 16, "{rate} reads/s, {limit} under way");
    }

    #[test]
    fn a_slow_device_that_works_on_many_gets_many() {
        for (clients, parallel) in [(200, 256), (400, 100), (1000, 500)] {
            let (rate, limit) = closed_loop(16, clients, parallel, 1_000_000);
            let best = clients.min(parallel) as u64 * 1000;
            assert!(rate * 100 >= best * 95, "{clients} clients: {rate} of {best} reads/s, {limit} under way");
            assert!(u64::from(limit) <= 4 * best / 1000 + 8, "{limit} under way");
        }
    }

    #[test]
    fn large_transfers_get_what_the_device_needs() {
        // A flash drive that writes 1 MiB in 400 us, one after the other; and a distant one with 100 under way for 10 ms each.
        let (rate, limit) = closed_loop(4, 32, 1, 400_000);
        assert!(rate >= 2500 && limit == 4, "{rate} of 2500 transfers/s, {limit} under way");
        let (rate, limit) = closed_loop(4, 64, 100, 10_000_000);
        assert!(rate >= 6000 && limit >= 64, "{rate} of 6400 transfers/s, {limit} under way");
    }

    #[test]
    fn while_flows_share_the_device_no_more_waits_in_the_device_than_keeps_it_busy() {
        let (rate, limit) = loop_under(&mut shared(1, 2), 32, 1, 400_000);
        assert!(rate >= 2500 && limit <= 2, "{rate} of 2500 transfers/s, {limit} under way");
        let (rate, limit) = loop_under(&mut shared(1, 2), 64, 100, 10_000_000);
        assert!(rate >= 5500 && limit >= 60, "{rate} of 6400 transfers/s, {limit} under way");
    }

    /// A device that takes 8,000 a second, one after the other, as disks of clouds do: what waits in it is not its latency, however long
    /// it goes on.
    #[test]
    fn a_queue_that_never_empties_is_not_taken_for_latency() {
        let (rate, limit) = loop_for(30, &mut shared(8, 4), 64, 1, 125_000);
        assert!(rate >= 7_900 && limit == 8, "{rate} of 8000 transfers/s, {limit} under way");
        // And where it was one flow's before, from the next span on at the latest.
        let mut limit = ConcurrencyLimit::new([Bounds { least: 16, times: 4 }, Bounds { least: 8, times: 4 }]);
        let (_, alone) = loop_for(10, &mut limit, 64, 1, 125_000);
        limit.set_shared(true);
        // The model's clock begins again.
        (limit.window_ns, limit.span) = (0, 0);
        let (rate, both) = loop_for(11, &mut limit, 64, 1, 125_000);
        assert!(alone > 50 && both == 8, "{rate} transfers/s, {alone} and {both} under way");
        let (rate, limit) = loop_for(30, &mut shared(8, 4), 64, 32, 1_000_000);
        assert!(rate >= 31_000 && limit >= 32, "{rate} of 32,000 transfers/s, {limit} under way");
    }

    #[test]
    fn a_device_that_became_quicker_or_slower_shows_after_two_spans() {
        let mut limit = at_least(16);
        let mut now_ns = 0;
        let mut serve = |latency_ns: u64, for_ns: u64| {
            let until_ns = now_ns + for_ns;
            while now_ns < until_ns {
                assert!(limit.admit());
                now_ns += 20_000;
                limit.ended(latency_ns, now_ns);
            }
            limit.allowed[0]
        };
        assert_eq!(serve(50_000, SECOND_NS), 16);
        // 50,000 a second of 1 ms each keep 50 busy.
        assert_eq!(serve(1_000_000, 2 * SPAN_NS + SECOND_NS), 200);
        assert_eq!(serve(50_000, SECOND_NS), 16);
    }
}
