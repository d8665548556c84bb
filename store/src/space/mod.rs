//! Space as clients see it: admission by logical bytes, free segments, and the throttle on clients (rules K4, K5).
//! Clients are never refused because the cleaner lags: they wait for it.

pub mod purge;
pub mod reserve;
pub mod usage;

use crate::cleaner::Thresholds;
use base::StatFs;
use base::limits::BLOCK_BYTES;
use runtime::Event;
use runtime::seeded::{Bug, active};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Number of free segments that the bulk stream leaves to the log and the cleaner.
pub const BULK_RESERVE_SEGMENTS: usize = 2;

/// Throttled writes are not released one by one but together, at regular times. The interval between two such times is
/// this many times the delay per block, at most `TOGETHER_NS_MAX`. So about 16 blocks (fewer if the delay is above 62.5
/// us, where the maximum applies) are released at once and can share one batch header. A header takes a block as well,
/// for which the cleaner must free space; shared by 16 blocks, it adds a sixteenth. A longer interval would let a
/// client with few writes in flight wait while the brick has nothing to do.
///
/// A write waits for its release in `turn`, after its bytes were admitted, unless its turn has come already. An
/// O_DIRECT write whose payload goes into the log then waits `gather_ns` more in its batch, so that the others of its
/// release can join.
const TOGETHER: u64 = 16;
/// Longest time between two releases, in nanoseconds; a throttled write waits half of it on average. With the 32 writes
/// in flight that keep a brick busy, each write takes longer than this anyway.
const TOGETHER_NS_MAX: u64 = 1_000_000;
/// Longest time that one write waits for its turn.
const WAIT_NS_MAX: u64 = 500_000_000;
const _: () = assert!(TOGETHER > 0 && TOGETHER_NS_MAX < WAIT_NS_MAX);

/// Admission of bytes against a bound. It counts the bytes in use at the last checkpoint and all bytes admitted since,
/// as if none of them overwrote anything.
#[derive(Default)]
pub struct Admission {
    /// Bytes admitted since start, overwrites included.
    admitted: AtomicU64,
    /// Bound of `admitted` as of the last measurement; negative if the brick has become smaller since.
    limit: AtomicI64,
    /// Admitted bytes that may not be ordered yet: a checkpoint that begins now may not count them.
    in_flight: AtomicU64,
    /// Bytes that were admitted and ordered when the latest checkpoint made its cut.
    cut: AtomicU64,
}

/// Admitted bytes, held until the write or change that takes them has been ordered, or has failed.
pub struct Admitted<'a> {
    admission: &'a Admission,
    bytes: u64,
}

impl Admitted<'_> {
    /// Takes the bytes back, because they are not used after all.
    pub fn take_back(self) {
        self.admission.take_back(self.bytes);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let before = self.admission.in_flight.fetch_sub(self.bytes, Ordering::AcqRel);
        assert!(before >= self.bytes, "{} bytes end, {before} were in flight", self.bytes);
    }
}

impl Admission {
    /// An admission that has `room` bytes left.
    pub fn new(room: u64) -> Admission {
        Admission { limit: AtomicI64::new(room as i64), ..Admission::default() }
    }
    /// Admits bytes if they fit even though none of them overwrites anything. None: only a checkpoint can tell whether
    /// they fit.
    pub fn admit(&self, bytes: u64) -> Option<Admitted<'_>> {
        // Counted as in flight before they are admitted: a cut between the two steps then leaves them out, which is
        // right.
        let admitted = self.count_in_flight(bytes);
        let limit = self.limit.load(Ordering::Acquire);
        let fits = |after: &u64| *after as i64 <= limit || active(Bug::AdmittedBeyondUsable);
        let after = |before: u64| Some(before + bytes).filter(fits);
        let fits = self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok();
        fits.then_some(admitted)
    }
    /// Admits bytes that take no space because they overwrite others.
    pub fn admit_overwrite(&self, bytes: u64) -> Admitted<'_> {
        let admitted = self.count_in_flight(bytes);
        self.admitted.fetch_add(bytes, Ordering::AcqRel);
        admitted
    }
    fn count_in_flight(&self, bytes: u64) -> Admitted<'_> {
        self.in_flight.fetch_add(bytes, Ordering::AcqRel);
        Admitted { admission: self, bytes }
    }
    /// Takes admitted bytes back, because they are not used after all.
    pub fn take_back(&self, bytes: u64) {
        let before = self.admitted.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "{bytes} bytes are taken back, {before} were admitted");
    }
    /// True if every write that was admitted has ended.
    pub fn is_settled(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }
    /// True if the last checkpoint has counted all admitted bytes that are no longer in flight.
    pub fn is_measured(&self) -> bool {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        self.admitted().saturating_sub(in_flight) == self.cut.load(Ordering::Acquire)
    }
    /// Bytes admitted since start.
    pub fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Acquire)
    }
    /// Notes that a checkpoint makes its cut. Bytes in flight may be ordered before or after the cut: until the next
    /// checkpoint they count as if they came after it.
    pub fn begin_checkpoint(&self) {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        self.cut.store(self.admitted().saturating_sub(in_flight), Ordering::Release);
    }
    /// Notes that a checkpoint has counted `used` bytes as of its cut, of at most `bound`.
    pub fn measured(&self, bound: u64, used: u64) {
        let limit = bound + self.cut.load(Ordering::Acquire);
        self.limit.store(limit as i64 - used as i64, Ordering::Release);
    }
    /// Raises the bound by `more` bytes, or lowers it.
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
    /// Number of segments of the flash tier, which may grow. Thresholds and usable blocks follow from it.
    segments: AtomicU32,
    /// Number of segments of the disk tier. Usable blocks follow from it.
    disk_segments: AtomicU32,
    /// The admission of clients' data and names.
    pub admission: Admission,
    /// Bytes that clients have written since start.
    client_bytes: AtomicU64,
    /// Blocks of data that clients have written since start.
    written_blocks: AtomicU64,
    /// The delay: nanoseconds between blocks of all clients together.
    delay_ns: AtomicU64,
    /// The time at which the next block has its turn.
    turn_ns: AtomicU64,
    /// True if a cleaner runs and has not found the brick full of live data.
    reclaims: AtomicBool,
    /// Notified when segments become free, or when it turns out that none will.
    pub came: Event,
}

impl Space {
    /// The space of a brick with so many segments on each tier, flash first, with `segment_blocks` blocks of data each, of
    /// which `used_bytes` are used.
    pub fn new([flash, disk]: [u32; 2], segment_blocks: u32, used_bytes: u64) -> Space {
        let usable_bytes = (usable(flash, segment_blocks) + usable(disk, segment_blocks)) * BLOCK_BYTES as u64;
        Space {
            segment_blocks,
            segments: AtomicU32::new(flash),
            disk_segments: AtomicU32::new(disk),
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
        self.usable_bytes_of([&self.segments, &self.disk_segments].map(|segments| segments.load(Ordering::Acquire)))
    }
    /// Bytes that clients could use if the tiers had these sizes.
    pub fn usable_bytes_of(&self, sizes: [u32; 2]) -> u64 {
        sizes.map(|segments| usable(segments, self.segment_blocks)).iter().sum::<u64>() * BLOCK_BYTES as u64
    }
    /// Bytes that clients could use less if the tiers had the sizes `after` instead of `before`.
    pub fn loss_bytes(&self, before: [u32; 2], after: [u32; 2]) -> u64 {
        self.usable_bytes_of(before).saturating_sub(self.usable_bytes_of(after))
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
    /// Sets the number of segments that the brick may use on each tier, flash first. No checkpoint measures at the same
    /// time: both hold the table's lock.
    pub fn resize(&self, [flash, disk]: [u32; 2]) {
        let before = self.usable_bytes();
        self.segments.store(flash, Ordering::Release);
        self.disk_segments.store(disk, Ordering::Release);
        let more = self.usable_bytes() as i64 - before as i64;
        self.admission.shift(more);
    }
    /// Notes that a checkpoint has counted `used_bytes` as of its cut.
    pub fn measured(&self, used_bytes: u64) {
        self.admission.measured(self.usable_bytes(), used_bytes);
    }
    /// The bytes that clients may use in all, and those that they may still write.
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
    /// The time at which a write of `blocks` blocks is released, if clients are throttled and other blocks have their
    /// turn before it. Blocks are spaced so that clients don't outrun the cleaner; a client that keeps to that pace by
    /// itself does not wait.
    pub fn turn(&self, now_ns: u64, blocks: u64) -> Option<u64> {
        let together_ns = self.gather_ns();
        if together_ns == 0 {
            return None;
        }
        let delay_ns = self.delay_ns.load(Ordering::Relaxed).saturating_mul(blocks);
        // Who waits no longer than that has not had to wait for the rest: it is no debt of those who come when the pace is another.
        let later = |turn_ns: u64| Some(turn_ns.clamp(now_ns, now_ns + WAIT_NS_MAX) + delay_ns);
        let before =
            self.turn_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).expect("there is a later one");
        // A large write waits only for the turn of its first block; the writes behind it wait for the rest.
        (before > now_ns).then(|| before.next_multiple_of(together_ns).min(now_ns + WAIT_NS_MAX))
    }
    /// Time for which an O_DIRECT write, which need not be durable, waits before its batch is written, so that other
    /// throttled writes join the batch and share its header (see `TOGETHER`). Zero while clients are not throttled.
    pub fn gather_ns(&self) -> u64 {
        self.delay_ns.load(Ordering::Relaxed).saturating_mul(TOGETHER).min(TOGETHER_NS_MAX)
    }
    /// Number of free segments below which client data waits.
    pub fn floor_for_data(&self) -> usize {
        self.marks().floor as usize
    }
    /// Number of free segments below which the cleaner works at the clients' pace, and no segment is discarded.
    pub fn target(&self) -> usize {
        self.marks().target as usize
    }
    /// Number of free segments from which on the cleaner rests while clients write: more than these may hold copies.
    pub fn spare(&self) -> usize {
        self.marks().high as usize + 1
    }
    /// Number of free segments below which changes of names wait.
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
    /// True if the cleaner may free segments, so that waiting for one makes sense.
    pub fn reclaims(&self) -> bool {
        self.reclaims.load(Ordering::Acquire)
    }
}

/// Number of blocks of a tier that clients may use (rule K5).
fn usable(segments: u32, segment_blocks: u32) -> u64 {
    let reserve = Thresholds::new(segments).reserve;
    assert!(reserve <= segments, "{reserve} segments are held back of {segments}");
    u64::from(segments - reserve) * u64::from(segment_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_were_slowed_for_minutes_leave_no_debt() {
        const SECOND_NS: u64 = 1_000_000_000;
        let space = Space::new([64, 0], 1000, 0);
        space.set_pace(SECOND_NS, true);
        let mut now_ns = 0;
        // More come than are let through, small ones and large ones.
        for number in 0..6000 {
            now_ns += SECOND_NS / 50;
            let turn_ns = space.turn(now_ns, if number % 100 == 0 { 256 } else { 1 });
            assert!(turn_ns.is_none_or(|turn_ns| turn_ns <= now_ns + WAIT_NS_MAX));
        }
        space.set_pace(10_000, true);
        space.turn(now_ns, 1).expect("those before still have their turns");
        for _ in 0..1000 {
            now_ns += SECOND_NS / 1000;
            space.turn(now_ns, 1);
        }
        let turn_ns = space.turn(now_ns, 1);
        assert!(turn_ns.is_none_or(|turn_ns| turn_ns <= now_ns + TOGETHER_NS_MAX), "{turn_ns:?} at {now_ns}");
    }

    #[test]
    fn writes_gather_only_while_clients_are_slowed_and_never_for_long() {
        let space = Space::new([64, 0], 1000, 0);
        for (delay_ns, gather_ns) in
            [(0, 0), (100, 1_600), (60_000, 960_000), (70_000, TOGETHER_NS_MAX), (u64::MAX, TOGETHER_NS_MAX)]
        {
            space.set_pace(delay_ns, true);
            assert_eq!(space.gather_ns(), gather_ns, "{delay_ns}");
        }
    }

    #[test]
    fn what_is_not_written_after_all_takes_no_room() {
        let space = Space::new([64, 0], 1000, 0);
        space.measured(0);
        let bytes = space.statfs().free_bytes;
        drop(space.admission.admit(bytes).expect("all of it"));
        assert!(space.admission.admit(1).is_none(), "it is full");
        space.admission.take_back(2);
        assert_eq!(space.admission.admitted(), bytes - 2);
        assert!(space.admission.admit(3).is_none() && space.admission.admit(2).is_some());
    }
}
