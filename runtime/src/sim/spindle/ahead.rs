//! The drive's buffer: what was read last, and what the head has passed since.

use super::geometry::Geometry;

/// Bytes that the drive reads on while nobody asks for anything: a part of a drive's buffer of some ten MiB, which it shares out
/// to readers.
pub(super) const AHEAD_BYTES: u64 = 4 << 20;

/// A stretch of bytes that the buffer has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Its first byte.
    pub(super) first: u64,
    /// The head was here at `since_ns` (which may be yet to come), and follows ...
    pub(super) from: u64,
    pub(super) since_ns: u64,
    /// ... until here.
    pub(super) until: u64,
}

impl Ahead {
    /// The buffer after a read of `first..end` that ended at `done_ns`: the head goes on where it is.
    pub(super) fn after(geometry: Geometry, first: u64, end: u64, done_ns: u64) -> Ahead {
        let since_ns = done_ns + geometry.wait_ns(done_ns, end);
        Ahead { first, from: end, since_ns, until: geometry.bytes.min(end + AHEAD_BYTES) }
    }
    /// The end of what it has at `at_ns`.
    pub(super) fn reached(&self, geometry: Geometry, at_ns: u64) -> u64 {
        let ago_ns = at_ns.saturating_sub(self.since_ns);
        geometry.reached(self.from, ago_ns).clamp(self.from, self.until)
    }
    /// The same, while the head is needed elsewhere.
    pub(super) fn left(self, geometry: Geometry, at_ns: u64) -> Ahead {
        let end = self.reached(geometry, at_ns);
        Ahead { from: end, until: end, ..self }
    }
    /// The same with a reader that has got as far as `first..end` at `at_ns`: a head that had stopped for want of room goes on
    /// when the platter has come round.
    pub(super) fn continued(self, geometry: Geometry, at_ns: u64, first: u64, end: u64) -> Ahead {
        let until = geometry.bytes.min(self.until.max(end + AHEAD_BYTES));
        let has_stopped = self.reached(geometry, at_ns) == self.until;
        let (from, since_ns) = match has_stopped && until > self.until {
            true => (self.until, at_ns + geometry.wait_ns(at_ns, self.until)),
            false => (self.from, self.since_ns),
        };
        Ahead { first, from, since_ns, until }
    }
    /// The time at which it has all bytes before `end`.
    pub(super) fn has_ns(&self, geometry: Geometry, end: u64) -> u64 {
        if end > self.from { self.since_ns + geometry.transfer_ns(self.from, end) } else { 0 }
    }
}
