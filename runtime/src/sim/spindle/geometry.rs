//! The places of a spindle's bytes, and the time that arm and platter take to get there.

/// Bytes of a sector.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Time in which a sector passes below the head. A whole number: what follows at once is never late by a rounding.
pub(super) const SECTOR_NS: u64 = 3_255;
/// Sectors of a track. Drives have more of them outside than inside; here all tracks are the same, and sequential transfers are
/// equally fast everywhere: 140 MB/s with the switches from track to track.
const TRACK_SECTORS: u64 = 2_560;
/// Bytes of a track.
pub(super) const TRACK_BYTES: u64 = TRACK_SECTORS * SECTOR_BYTES;
/// Time of a turn: 7200 per minute.
pub(super) const ROTATION_NS: u64 = TRACK_SECTORS * SECTOR_NS;
/// The platter turns so far between the last sector of a track and the first of the next one, which lies that much later:
/// a little more than the arm takes, so that a sequential transfer loses no turn.
const SKEW_NS: u64 = SEEK_NS_MIN + 50_000;

/// Time to get to the next track.
const SEEK_NS_MIN: u64 = 1_000_000;
/// Mean time between two tracks chosen at random.
const SEEK_NS_MEAN: u64 = 8_000_000;
/// Time of the full stroke.
const SEEK_NS_MAX: u64 = 16_000_000;
/// The part of the full stroke's time that grows with the square root of the distance, while the arm speeds up and slows down
/// ...
const SEEK_NS_ROOT: u64 = (15 * SEEK_NS_MEAN - 10 * SEEK_NS_MIN - 5 * SEEK_NS_MAX) / 3;
/// ... and the part that grows with the distance itself, while it moves at full speed. This curve through three known times is
/// that of Lee and Katz: "An Analytic Performance Model of Disk Arrays", SIGMETRICS 1993.
const SEEK_NS_LINEAR: u64 = (7 * SEEK_NS_MIN + 8 * SEEK_NS_MAX - 15 * SEEK_NS_MEAN) / 3;

const _: () = assert!(SEEK_NS_MIN + SEEK_NS_ROOT + SEEK_NS_LINEAR == SEEK_NS_MAX);

/// The places of a disk. A byte's *passage* is the time at which it passes below a head that began at byte 0 at time 0 and reads
/// on for ever; modulo a turn, it is the angle at which the byte lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) bytes: u64,
}

impl Geometry {
    fn tracks(self) -> u64 {
        self.bytes.div_ceil(TRACK_BYTES)
    }
    /// The passage of the first bit of the sector at `offset`.
    pub(super) fn passage_ns(self, offset: u64) -> u64 {
        let sector = offset / SECTOR_BYTES;
        sector / TRACK_SECTORS * (ROTATION_NS + SKEW_NS) + sector % TRACK_SECTORS * SECTOR_NS
    }
    /// The time to transfer `offset..end` once its first sector is below the head.
    pub(super) fn transfer_ns(self, offset: u64, end: u64) -> u64 {
        assert!(offset < end, "something is transferred");
        self.passage_ns(end - 1) + SECTOR_NS - self.passage_ns(offset)
    }
    /// The end of the bytes that have passed below a head which was at `offset` so long ago and followed.
    pub(super) fn reached(self, offset: u64, ago_ns: u64) -> u64 {
        let passage_ns = self.passage_ns(offset) + ago_ns;
        let (track, rest_ns) = (passage_ns / (ROTATION_NS + SKEW_NS), passage_ns % (ROTATION_NS + SKEW_NS));
        track * TRACK_BYTES + rest_ns.min(ROTATION_NS) / SECTOR_NS * SECTOR_BYTES
    }
    /// The time to move the arm from the byte at `from` to the one at `to`; zero within a track.
    pub(super) fn seek_ns(self, from: u64, to: u64) -> u64 {
        let distance = (from / TRACK_BYTES).abs_diff(to / TRACK_BYTES);
        if distance == 0 {
            return 0;
        }
        // A fraction of the full stroke, in units of 2^-30, as is its root.
        let share = ((distance - 1) << 30) / (self.tracks() - 2).max(1);
        let root = (share << 30).isqrt();
        SEEK_NS_MIN + ((SEEK_NS_ROOT * root + SEEK_NS_LINEAR * share) >> 30)
    }
    /// The time from `at_ns` until the sector at `offset` comes by.
    pub(super) fn wait_ns(self, at_ns: u64, offset: u64) -> u64 {
        (self.passage_ns(offset) % ROTATION_NS + ROTATION_NS - at_ns % ROTATION_NS) % ROTATION_NS
    }
}
