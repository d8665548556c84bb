//! Space as clients see it: admission by logical bytes, physical room, and how much the cleaner slows them (rules K4,
//! K5). Clients never hear "full" because the cleaner lags: they wait for it.

pub mod purge;
pub mod reserve;
pub mod usage;

use crate::cleaner::Thresholds;
use base::StatFs;
use base::limits::BLOCK_BYTES;
use runtime::Event;
use runtime::seeded::{Bug, active};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Free segments that the bulk stream leaves to the log and the cleaner.
pub const BULK_RESERVE_SEGMENTS: usize = 2;

/// Slowed writes are released 16 blocks at a time, so that they share one batch header. A header takes a block, which
/// the cleaner has to make room for as well; shared by 16, it is a sixteenth of what is written. A write waits for the
/// others of its release twice: in `turn` before it is admitted, and for `gather_ns` in its batch. Releases are not
/// larger, because a client with few writes in flight would then spend its time waiting while the brick has nothing to
/// do.
const TOGETHER: u64 = 16;
/// Longest time between two such releases, in nanoseconds; a write waits half of it on average. With the 32 writes in
/// flight that keep a brick busy, each takes longer than this anyway.
const TOGETHER_NS_MAX: u64 = 1_000_000;
/// Longest time that one write waits for its turn.
const WAIT_NS_MAX: u64 = 500_000_000;

/// Admission of bytes against a bound. Counted are the bytes in use at the last checkpoint, and all bytes admitted
/// since, as if none of them had overwritten anything.
#[derive(Default)]
pub struct Admission {
    /// Bytes admitted since start, overwrites included.
    admitted: AtomicU64,
    /// Bound of `admitted` by the last measurement; negative if a part of the brick has gone since.
    limit: AtomicI64,
    /// Admitted bytes that are not known to be ordered yet: a checkpoint may not find them.
    in_flight: AtomicU64,
    /// Bytes that were admitted and ordered when the checkpoint under way made its cut.
    cut: AtomicU64,
}

/// Bytes that were admitted, until what takes them has been ordered, or has failed.
pub struct Admitted<'a> {
    admission: &'a Admission,
    bytes: u64,
}

impl Admitted<'_> {
    /// Takes the bytes back: their use does not come after all.
    pub fn take_back(self) {
        self.admission.take_back(self.bytes);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Admission {
    /// Admission of `room` more bytes.
    pub fn new(room: u64) -> Admission {
        Admission { limit: AtomicI64::new(room as i64), ..Admission::default() }
    }
    /// Admits bytes if they fit even if nothing of them overwrites anything. None: measure by a checkpoint, then they fit or
    /// there is no room.
    pub fn admit(&self, bytes: u64) -> Option<Admitted<'_>> {
        // First: a cut between the two takes them for in flight, which is right.
        let admitted = self.count_in_flight(bytes);
        let limit = self.limit.load(Ordering::Acquire);
        let fits = |after: &u64| *after as i64 <= limit || active(Bug::AdmittedBeyondUsable);
        let after = |before: u64| Some(before + bytes).filter(fits);
        let fits = self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok();
        fits.then_some(admitted)
    }
    /// Admits bytes that take no room, as they overwrite others.
    pub fn admit_overwrite(&self, bytes: u64) -> Admitted<'_> {
        let admitted = self.count_in_flight(bytes);
        self.admitted.fetch_add(bytes, Ordering::AcqRel);
        admitted
    }
    fn count_in_flight(&self, bytes: u64) -> Admitted<'_> {
        self.in_flight.fetch_add(bytes, Ordering::AcqRel);
        Admitted { admission: self, bytes }
    }
    /// Bytes that were admitted are not used after all.
    pub fn take_back(&self, bytes: u64) {
        self.admitted.fetch_sub(bytes, Ordering::AcqRel);
    }
    /// True if every write that was admitted has ended.
    pub fn is_settled(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }
    /// True if the last checkpoint has counted all that was admitted and has ended.
    pub fn is_measured(&self) -> bool {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        self.admitted().saturating_sub(in_flight) == self.cut.load(Ordering::Acquire)
    }
    /// Bytes admitted since start.
    pub fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Acquire)
    }
    /// Notes that a checkpoint makes its cut. Bytes in flight may be before or after the cut: until the next one they
    /// count as after it.
    pub fn begin_checkpoint(&self) {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        self.cut.store(self.admitted().saturating_sub(in_flight), Ordering::Release);
    }
    /// A checkpoint has counted what is used as of its cut.
    pub fn measured(&self, bound: u64, used: u64) {
        let limit = bound + self.cut.load(Ordering::Acquire);
        self.limit.store(limit as i64 - used as i64, Ordering::Release);
    }
    /// The bound is by so much higher, or lower.
    pub fn shift(&self, more: i64) {
        self.limit.fetch_add(more, Ordering::AcqRel);
    }
    /// Bytes that may still be admitted.
    pub fn room(&self) -> u64 {
        (self.limit.load(Ordering::Acquire) - self.admitted() as i64).max(0) as u64
    }
}

/// The space that clients may still use; one per brick.
pub struct Space {
    /// Data blocks of a segment.
    segment_blocks: u32,
    /// Segments of the brick: it may grow. Marks and usable blocks follow from them.
    segments: AtomicU32,
    /// The admission of clients' data and names.
    pub admission: Admission,
    /// Bytes that clients have written since start.
    client_bytes: AtomicU64,
    /// Blocks of data that clients have written since start.
    written_blocks: AtomicU64,
    /// Nanoseconds between blocks of all clients together.
    delay_ns: AtomicU64,
    /// Time of the next block's turn.
    turn_ns: AtomicU64,
    /// A cleaner runs, and has not found the brick full of live data.
    reclaims: AtomicBool,
    /// Happens when segments became free, or none will.
    pub came: Event,
}

impl Space {
    /// The space of a brick of `segments` segments with `segment_blocks` blocks of data each, of which `used_bytes` are
    /// used.
    pub fn new(segments: u32, segment_blocks: u32, used_bytes: u64) -> Space {
        let usable_bytes = usable(segments, segment_blocks) * BLOCK_BYTES as u64;
        Space {
            segment_blocks,
            segments: AtomicU32::new(segments),
            client_bytes: AtomicU64::new(0),
            admission: Admission::new(usable_bytes.saturating_sub(used_bytes)),
            written_blocks: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            turn_ns: AtomicU64::new(0),
            reclaims: AtomicBool::new(false),
            came: Event::new(),
        }
    }
    fn usable_bytes(&self) -> u64 {
        usable(self.segments.load(Ordering::Acquire), self.segment_blocks) * BLOCK_BYTES as u64
    }
    /// Counts blocks of data that clients write.
    pub fn note_written(&self, blocks: u64) {
        self.written_blocks.fetch_add(blocks, Ordering::Relaxed);
    }
    /// Blocks of data that clients have written since start; never falls.
    pub fn written_blocks(&self) -> u64 {
        self.written_blocks.load(Ordering::Relaxed)
    }
    fn marks(&self) -> Thresholds {
        Thresholds::new(self.segments.load(Ordering::Acquire))
    }
    /// The brick has more or less segments to use. No checkpoint measures at the same time: both hold the table's lock.
    pub fn resize(&self, segments: u32) {
        let before = self.usable_bytes();
        self.segments.store(segments, Ordering::Release);
        let more = self.usable_bytes() as i64 - before as i64;
        self.admission.shift(more);
    }
    /// A checkpoint has counted what is used as of its cut.
    pub fn measured(&self, used_bytes: u64) {
        self.admission.measured(self.usable_bytes(), used_bytes);
    }
    /// Bytes for clients: all, and those that may still be written.
    pub fn statfs(&self) -> StatFs {
        let size_bytes = self.usable_bytes();
        StatFs { size_bytes, free_bytes: self.admission.room().min(size_bytes), inodes: 0 }
    }
    /// Counts bytes that a client writes.
    pub fn note_write(&self, bytes: u64) {
        self.client_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Bytes that clients have written since start.
    pub fn client_bytes(&self) -> u64 {
        self.client_bytes.load(Ordering::Relaxed)
    }
    /// The time at which a write of `blocks` blocks has its turn, if clients are throttled and others come first.
    /// Blocks are spaced so that clients don't outrun the cleaner; a client that keeps to that pace by itself does not
    /// wait.
    pub fn turn(&self, now_ns: u64, blocks: u64) -> Option<u64> {
        let together_ns = self.gather_ns();
        if together_ns == 0 {
            return None;
        }
        let delay_ns = self.delay_ns.load(Ordering::Relaxed).saturating_mul(blocks);
        let later = |turn_ns: u64| Some(turn_ns.max(now_ns) + delay_ns);
        let before =
            self.turn_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).expect("there is a later one");
        // One large write does not wait for all its blocks' turns: those who come next do.
        (before > now_ns).then(|| before.next_multiple_of(together_ns).min(now_ns + WAIT_NS_MAX))
    }
    /// Time for which a write that nobody waits to be durable collects others into its batch, while clients are
    /// throttled anyway: a batch's header takes a block, too, which the cleaner has to make room for. Zero while they
    /// are not throttled.
    pub fn gather_ns(&self) -> u64 {
        self.delay_ns.load(Ordering::Relaxed).saturating_mul(TOGETHER).min(TOGETHER_NS_MAX)
    }
    /// Free segments below which client data waits.
    pub fn floor_for_data(&self) -> usize {
        self.marks().floor as usize
    }
    /// Free segments below which the cleaner works at the clients' pace: no time to discard any.
    pub fn target(&self) -> usize {
        self.marks().target as usize
    }
    /// Free segments below which changes of names wait.
    pub fn floor_for_names(&self) -> usize {
        self.marks().floor as usize / 2
    }
    /// Takes the decisions of the cleaner's controller: the delay, and whether anything can be reclaimed.
    pub fn set_pace(&self, delay_ns: u64, reclaims: bool) {
        self.delay_ns.store(delay_ns, Ordering::Relaxed);
        if self.reclaims.swap(reclaims, Ordering::AcqRel) != reclaims {
            self.came.notify();
        }
    }
    /// True if waiting for a free segment makes sense.
    pub fn reclaims(&self) -> bool {
        self.reclaims.load(Ordering::Acquire)
    }
}

/// Blocks for clients (rule K5).
fn usable(segments: u32, segment_blocks: u32) -> u64 {
    u64::from(segments - Thresholds::new(segments).reserve) * u64::from(segment_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_gather_only_while_clients_are_slowed_and_never_for_long() {
        let space = Space::new(64, 1000, 0);
        for (delay_ns, gather_ns) in
            [(0, 0), (100, 1_600), (60_000, 960_000), (70_000, TOGETHER_NS_MAX), (u64::MAX, TOGETHER_NS_MAX)]
        {
            space.set_pace(delay_ns, true);
            assert_eq!(space.gather_ns(), gather_ns, "{delay_ns}");
        }
    }

    #[test]
    fn what_is_not_written_after_all_takes_no_room() {
        let space = Space::new(64, 1000, 0);
        space.measured(0);
        let bytes = space.statfs().free_bytes;
        drop(space.admission.admit(bytes).expect("all of it"));
        assert!(space.admission.admit(1).is_none(), "it is full");
        space.admission.take_back(2);
        assert_eq!(space.admission.admitted(), bytes - 2);
        assert!(space.admission.admit(3).is_none() && space.admission.admit(2).is_some());
    }
}
