//! The controller of the cleaner's speed and of the throttle on clients (`Controller`): pure. Integers only, so that a step
//! gives the same answer on every machine.
//!
//! The controller holds one quantity, the level: the number of segments that can be opened now or after the next
//! checkpoint. Thresholds divide the reserve that a full brick still has (rule K5):
//!
//! ```text
//! 0 ... floor ........ low ........ target ........ high ........ ahead ... reserve
//!       delay at cap   cleaning at  delay begins,    cleaning      cleaning ahead stops,
//!                      full speed   cleaning at the  stops         with cheap victims,
//!                                   clients' pace                  while clients rest
//! ```
//!
//! If clients write faster than the cleaner can free space, it works at full speed already above `high`. The free
//! segments above `low` are then used up gradually, in a glide (see `delay_ns`).
//!
//! A hybrid brick has a controller for each tier, and they form a chain: the flash's clients are the clients, the disk's
//! clients are the destage. If the disk's cleaner falls behind, the disk's controller spaces the blocks that are destaged; so
//! the flash's controller measures a slower destage (`Destaged::busy_ns`), and spaces the clients' blocks. No tier knows more
//! of the other than this time, and whether it is full.

use runtime::seeded::{Bug, active};

/// Thresholds of the level, in segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Number of segments of a full brick beyond its live blocks (rule K5): free, open, or dead blocks in sealed
    /// segments.
    pub reserve: u32,
    /// The level below which clients wait: only the cleaner, deletions and checkpoints may take these last segments.
    pub floor: u32,
    /// The level below which the cleaner works at full speed.
    pub low: u32,
    /// The level at which the clients' delay begins, and the cleaner keeps their pace.
    pub target: u32,
    /// The level above which the cleaner rests while clients write.
    pub high: u32,
    /// The level above which the cleaner rests while clients rest too.
    pub ahead: u32,
}

/// Largest floor: segments for the cleaner's output, for its move records (a commit segment), and for deletions, and
/// more of them while used-up ones wait for a checkpoint.
const FLOOR_SEGMENTS_MAX: u32 = 4;
/// Bounds of the number of victims chosen at once. Fewer are hardly sorted by age; of more, the last would be out of
/// date.
const VICTIMS_MAX: (usize, usize) = (4, 16);
/// Bounds of the number of victims destaged together. A single one would get to the disk as it lay in the log; 64 are more than
/// the memory of a batch holds, unless much of them is dead.
const BATCH_MAX: (usize, usize) = (2, 64);
/// Largest distance of two thresholds. 64 segments are 4 GiB: a device that writes 2 GiB/s needs two seconds for them,
/// longer than a slice of a checkpoint takes. More free segments would only leave fewer dead blocks to the victims, and
/// make cleaning them more expensive.
const STEP_SEGMENTS_MAX: u32 = 64;

impl Thresholds {
    /// Thresholds of a brick of so many segments.
    pub fn new(segments: u32) -> Thresholds {
        // Rule K5: 10%, at least 16 segments; bricks of less than 32 (simulation only) keep half.
        // A step is an eighth of the reserve, so that at the target most of the reserve is dead blocks in victims.
        Thresholds::of((segments / 10).max(16.min(segments / 2)), 8)
    }
    /// Thresholds of a hybrid brick's flash of so many segments. More is kept free, and the steps are longer, than without a tier
    /// below. That costs little, since what is destaged costs the same however much of it is dead; and segments that are
    /// destaged together come free less evenly.
    pub fn tiered(segments: u32) -> Thresholds {
        Thresholds::of((segments / 5).max(16.min(segments / 2)), 6)
    }
    fn of(reserve: u32, steps: u32) -> Thresholds {
        let floor = (reserve / 3).clamp(1, FLOOR_SEGMENTS_MAX);
        let step = (reserve / steps).clamp(1, STEP_SEGMENTS_MAX);
        // At least two segments: within a single one the delay would be on or off.
        let low = floor + step.max(2);
        let (target, high) = (low + step, low + 2 * step);
        let ahead = high.max(floor + reserve / 2);
        assert!(floor < low && low < target && target < high && high <= ahead, "marks rise");
        Thresholds { reserve, floor, low, target, high, ahead }
    }
    /// Largest number of victims chosen at once. The more are chosen, the better are their live blocks sorted by age.
    /// But young victims gain much and old ones little, and this variation must stay small beside the reserve.
    pub fn victims_max(&self) -> usize {
        (self.reserve as usize / 3).clamp(VICTIMS_MAX.0, VICTIMS_MAX.1)
    }
    /// Largest number of victims that are destaged together. On average half of their blocks have left them: an eighth of the
    /// reserve is on its way.
    pub fn batch_max(&self) -> usize {
        (self.reserve as usize / 4).clamp(BATCH_MAX.0, BATCH_MAX.1)
    }
}

/// The measurements that the controller sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// The clock.
    pub now_ns: u64,
    /// Number of segments that can be opened now: free ones, and those prepared ahead.
    pub free: u32,
    /// Number of segments that copies of what is on disk want beside those that are kept free: they are cleaned for them while
    /// clients rest. Segments that hold copies count as free.
    pub for_copies: u32,
    /// Number of segments without a live block that will be free after the next checkpoint.
    pub emptied: u32,
    /// Number of all segments.
    pub segments: u32,
    /// Number of blocks that clients have had admitted since start.
    pub client_blocks: u64,
    /// Number of blocks that the cleaner has moved since start.
    pub moved_blocks: u64,
    /// The mean victim of the present choice: of its blocks those are gained that don't live. None if there is no victim.
    pub victim: Option<Mean>,
    /// Surplus of the present choice; see `Choice::surplus_blocks`.
    pub surplus_blocks: u64,
    /// The destage, which goes on at the same time; None if there is no tier below.
    pub destaged: Option<Destaged>,
}

/// The mean victim of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mean {
    /// Number of live blocks.
    pub live: u32,
    /// Number of all blocks.
    pub blocks: u32,
}

/// Measurements of the destage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Destaged {
    /// The mean victim of the present choice for the destage: all of its blocks are gained. None if there is no victim.
    pub victim: Option<Mean>,
    /// Number of blocks whose moves to the tier below count, since start. They are not among `Sight::moved_blocks`.
    pub blocks: u64,
    /// Time since start in which a run was under way, its wait for the tier below included. It goes on while that tier does
    /// not answer.
    pub busy_ns: u64,
    /// Number of blocks that are left in segments which are being emptied; see `Batch::left`.
    pub left_blocks: u64,
}

/// The decisions for the drive until the next step, which comes when the slice is done and the pause is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Number of blocks that the cleaner may move (a slice); 0: it rests.
    pub slice_blocks: u32,
    /// Pause after the slice.
    pub pause_ns: u64,
    /// Number of blocks per second that may be destaged (see `run_ns`). 0: the destage rests; `u64::MAX`: as fast as the tier
    /// below takes them, with the next run always queued.
    pub destage_rate: u64,
    /// Throttle of clients' writes: nanoseconds of delay per block. It spaces the blocks of all clients together: a
    /// delay for each client by itself would slow many clients less than few.
    pub client_delay_ns: u64,
    /// True if a checkpoint should begin, because segments or dead blocks wait for it. True in one step only: the drive
    /// remembers it while an earlier checkpoint still runs, and skips a checkpoint that would have nothing new.
    pub checkpoint: bool,
    /// The state, for status.
    pub state: State,
}

/// The state of the cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing is to be cleaned now.
    Idle,
    /// Cleans ahead of time while clients rest.
    Ahead,
    /// Cleans while clients write.
    Cleaning,
    /// Cleans at full speed, and clients are slowed.
    Slowing,
    /// Nothing to clean and nothing free.
    Full,
}

impl State {
    /// One sentence for an operator.
    pub fn reason(self) -> &'static str {
        match self {
            State::Idle => "enough segments are free; the cleaner rests",
            State::Ahead => "clients rest; the cleaner frees segments ahead of time",
            State::Cleaning => "the cleaner keeps pace with the clients' writes",
            State::Slowing => "free segments are short; clients' writes are slowed until the cleaner has caught up",
            State::Full => "no segment is free and every block is live; delete data or add a brick",
        }
    }
}

/// The number one in fixed-point numbers with 16 fractional bits ("in `ONE`s").
const ONE: u64 = 1 << 16;
/// The manner in which a tier's devices are given work.
#[derive(Clone, Copy, Debug)]
struct Manner {
    thresholds: fn(u32) -> Thresholds,
    /// Largest slice.
    slice_blocks_max: u64,
    /// Smallest slice while clients write.
    slice_blocks_min: u64,
    /// Longest time between steps.
    pause_ns_max: u64,
    /// Assumed time for moving a block until the first move was measured.
    move_ns_first: u64,
    /// Time without admitted blocks after which clients count as idle.
    idle_ns: u64,
    /// Largest unit of the delay's curve, as a multiple of the time in which space for a block is freed.
    units_max: u64,
}

const FLASH: Manner = Manner {
    thresholds: Thresholds::new,
    // 512 KiB, moved in two parts at the same time. A device does that in about a millisecond, so clients' I/O does not wait
    // long.
    slice_blocks_max: 128,
    // Below it, fixed costs of a move (a record, a wake) dominate.
    slice_blocks_min: 16,
    // A client at 1 GiB/s fills a third of a segment in it.
    pause_ns_max: 20_000_000,
    // 200 MB/s, reading and writing.
    move_ns_first: 20_000,
    idle_ns: 100_000_000,
    units_max: UNITS_MAX,
};
/// Flash above a disk. A disk may not answer for minutes. Clients that were slowed to nothing meanwhile must not be slow for
/// longer than that, because they were so.
const TIERED: Manner = Manner { thresholds: Thresholds::tiered, units_max: 2, ..FLASH };
const DISK: Manner = Manner {
    thresholds: Thresholds::new,
    // 4 MiB: a disk transfers them in about three times the time that it needs to get there.
    slice_blocks_max: 1_024,
    // 1 MiB: of less, most of the time would go into getting there.
    slice_blocks_min: 256,
    // A destage at 150 MB/s fills a sixteenth of a segment in it.
    pause_ns_max: 100_000_000,
    // 40 MB/s, reading and writing.
    move_ns_first: 100_000,
    // The destage comes in runs, and rests while it is flushed.
    idle_ns: 1_000_000_000,
    units_max: UNITS_MAX,
};
/// Longest delay per block: 20 blocks in a second still pass.
const DELAY_NS_MAX: u64 = 50_000_000;
/// Smallest upper bound of the delay, large enough to stop a burst of writes on a fast device in time.
const DELAY_CAP_NS_MIN: u64 = 1_000_000;
/// Time without a victim, in spite of a checkpoint asked for, after which there is none to be had.
const FULL_NS: u64 = 1_000_000_000;
/// Interval of steps while the cleaner waits for a checkpoint.
const SPARE_NS: u64 = 2_000_000;
/// Shortest time between two checkpoints that are asked for: usually, and while only the cleaner may still open
/// segments.
const CHECKPOINT_NS: (u64, u64) = (250_000_000, 100_000_000);
/// Largest number of segments that clients may write between two checkpoints shortly before cleaning begins: as many as
/// they write in a few seconds.
const AHEAD_SEGMENTS: u64 = 6;
/// Time constants: the level approaches the counts within about 1 s, so that it does not jump by whole segments; rates
/// and utilisation follow within half a second.
const LEVEL_NS: u64 = 1_000_000_000;
const RATE_NS: u64 = 500_000_000;
/// Time constant of the spacing of clients' blocks, of which their delay is a multiple. The delay curve changes by
/// about half for one segment more or less; with this time constant, the delay of a brick that uses a segment per
/// second does not oscillate.
const PACE_NS: u64 = 5_000_000_000;
/// Largest delay, as a multiple of the time in which the cleaner frees space for a block. Clients that were slow for
/// another reason are thus not slowed down as much as their own pace would suggest.
const UNITS_MAX: u64 = 16;
/// Bounds of the time for moving one block: 4 GB/s and 200 KB/s.
const MOVE_NS: (u64, u64) = (1_000, 20_000_000);
/// Busy time over which the destage's speed is averaged: many runs, and a few of its flushes.
const DESTAGE_NS: u64 = 4_000_000_000;
/// Assumed destage until the first one was measured: time and blocks, 40 MB/s. It counts for little beside a measurement.
const DESTAGE_FIRST: (u64, u64) = (50_000_000, 500);
/// Largest utilisation (live share of victims) to calculate with: for a victim with less than 1/64 dead blocks, the
/// number of blocks to be moved per block gained would be absurdly large.
const UTILISATION_MAX: u64 = ONE - ONE / 64;
/// Assumed number of blocks of a segment until a victim was seen: that of 64 MiB.
const SEGMENT_BLOCKS_FIRST: u64 = 16_384;

const _: () = assert!(FLASH.slice_blocks_min < FLASH.slice_blocks_max && DISK.slice_blocks_min < DISK.slice_blocks_max);
const _: () = assert!(TIERED.units_max > 0 && TIERED.units_max <= UNITS_MAX, "the curve ends below the cap");
const _: () = assert!(MOVE_NS.0 <= FLASH.move_ns_first && DISK.move_ns_first <= MOVE_NS.1);

/// The last measurements and the answer to them.
#[derive(Clone, Copy, Debug)]
struct Before {
    sight: Sight,
    pause_ns: u64,
    sparing: bool,
}

/// The progress since the last measurements.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    ns: u64,
    client_blocks: u64,
    moved_blocks: u64,
    destaged_blocks: u64,
    destage_ns: u64,
}

/// A way for blocks out of a victim.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Number of blocks that must go this way to gain the space of one block, in `ONE`s.
    moves_per_block: u64,
    /// Number of blocks per second at full speed.
    rate_max: u64,
    /// The level up to which blocks are moved while clients rest, and the number per second.
    ahead: u32,
    rate_ahead: u64,
}

/// The controller's state.
#[derive(Clone, Debug)]
pub struct Controller {
    marks: Thresholds,
    manner: Manner,
    /// The manner without a tier below.
    alone: Manner,
    before: Option<Before>,
    /// The level in `ONE`s: an estimate of free segments and a part of the emptied ones. It changes smoothly, while
    /// counts jump by whole segments.
    level: i64,
    segment_blocks: u64,
    /// Number of clients' blocks admitted per second, in 1/256.
    client_rate: u64,
    /// The same number, averaged over so long that the segments freed by one checkpoint don't show.
    paced_rate: u64,
    /// Time for which clients have been measured, up to `PACE_NS`.
    seen_ns: u64,
    /// Live share of victims, in `ONE`s: of those that are moved within the tier, and of those that are destaged.
    utilisation: u64,
    destage_utilisation: u64,
    /// Nanoseconds for moving one block within the tier.
    move_ns: u64,
    /// True if there is something to be gained within the tier, and by the destage.
    ways: (bool, bool),
    /// Busy time of the destage, and the number of blocks, in 1/256, that were destaged in it: sums in which the past counts less
    /// and less.
    destage_busy_ns: u64,
    destaged: u64,
    client_at_ns: u64,
    victim_at_ns: u64,
    /// Time since which as few segments are free as on a full brick.
    short_at_ns: Option<u64>,
    /// Share of the time, in `ONE`s, that the cleaner waited for checkpoints.
    spared: u64,
    /// Time since which the cleaner spares the last segments, because a checkpoint will free some.
    spare_at_ns: Option<u64>,
    /// The measurements when a checkpoint was last asked for.
    asked: Sight,
    /// The smallest number of emptied segments seen since then: checkpoints don't free these for now.
    stuck: u32,
}

impl Controller {
    /// A controller for a brick's flash, or for all of a brick without tiers.
    pub fn new(segments: u32) -> Controller {
        Controller::of(segments, FLASH)
    }
    /// A controller for a brick's disks. Its clients are the destage: blocks destaged count as admitted, and the delay is
    /// the destage's.
    pub fn of_disk(segments: u32) -> Controller {
        Controller::of(segments, DISK)
    }
    fn of(segments: u32, manner: Manner) -> Controller {
        let asked = Sight { segments, ..Sight::default() };
        Controller {
            marks: (manner.thresholds)(segments),
            manner,
            alone: manner,
            before: None,
            level: 0,
            segment_blocks: SEGMENT_BLOCKS_FIRST,
            client_rate: 0,
            paced_rate: 0,
            seen_ns: 0,
            utilisation: ONE / 2,
            destage_utilisation: ONE / 2,
            move_ns: manner.move_ns_first,
            ways: (true, false),
            destage_busy_ns: DESTAGE_FIRST.0,
            destaged: DESTAGE_FIRST.1 * 256,
            client_at_ns: 0,
            victim_at_ns: 0,
            short_at_ns: None,
            spared: 0,
            spare_at_ns: None,
            asked,
            stuck: 0,
        }
    }
    /// The thresholds, for status.
    pub fn thresholds(&self) -> Thresholds {
        self.marks
    }
    /// One step.
    pub fn step(&mut self, sight: &Sight) -> Pace {
        assert!(sight.free <= sight.segments, "no more segments free than there are");
        // The brick may have grown, or got its first disk.
        self.manner = match sight.destaged {
            Some(_) => TIERED,
            None => self.alone,
        };
        self.marks = (self.manner.thresholds)(sight.segments);
        let passed = self.passed(sight);
        self.learn(sight, passed);
        self.follow(sight, passed);
        self.ways = (self.within(sight).is_some(), self.down(sight).is_some());
        let idle = sight.now_ns - self.client_at_ns >= self.manner.idle_ns;
        self.stuck = self.stuck.min(sight.emptied);
        let checkpoint = self.wants_checkpoint(sight);
        if checkpoint {
            (self.asked, self.stuck) = (*sight, sight.emptied);
        }
        let sparing = self.is_sparing(sight);
        let within = self.within(sight).filter(|_| !sparing);
        let rate = within.map_or(0, |lane| self.wanted_rate(idle, lane));
        // The destage opens no segment of this tier: it goes on while the last ones are spared.
        let destage_rate = self.destage_rate(sight, idle);
        let (slice_blocks, longest_ns) = self.slice(rate);
        let pause_ns = if sparing { SPARE_NS } else { longest_ns };
        let full = self.is_full(sight);
        let delay_ns = if active(Bug::DelayUnfelt) { 0 } else { self.delay_ns() };
        let client_delay_ns = if full { DELAY_NS_MAX } else { delay_ns };
        let state = match () {
            () if full => State::Full,
            () if self.is_slowing(client_delay_ns) => State::Slowing,
            () if slice_blocks == 0 && destage_rate == 0 => State::Idle,
            () if idle => State::Ahead,
            () => State::Cleaning,
        };
        assert!(client_delay_ns <= DELAY_NS_MAX && pause_ns <= self.manner.pause_ns_max);
        assert!(u64::from(slice_blocks) <= self.manner.slice_blocks_max);
        self.before = Some(Before { sight: *sight, pause_ns, sparing });
        Pace { slice_blocks, pause_ns, destage_rate, client_delay_ns, checkpoint, state }
    }

    fn passed(&self, sight: &Sight) -> Passed {
        let Some(Before { sight: before, .. }) = &self.before else { return Passed::default() };
        assert!(sight.now_ns >= before.now_ns, "the clock does not go back");
        assert!(sight.client_blocks >= before.client_blocks && sight.moved_blocks >= before.moved_blocks);
        let (destaged, earlier) = sight.destaged.zip(before.destaged).unwrap_or_default();
        assert!(destaged.blocks >= earlier.blocks && destaged.busy_ns >= earlier.busy_ns, "the destage only grows");
        Passed {
            ns: sight.now_ns - before.now_ns,
            client_blocks: sight.client_blocks - before.client_blocks,
            moved_blocks: sight.moved_blocks - before.moved_blocks,
            destaged_blocks: destaged.blocks - earlier.blocks,
            destage_ns: destaged.busy_ns - earlier.busy_ns,
        }
    }
    /// Updates rates, and the costs of victims and of moves.
    fn learn(&mut self, sight: &Sight, passed: Passed) {
        let first = self.before.is_none();
        if first || passed.client_blocks > 0 {
            self.client_at_ns = sight.now_ns;
        }
        if passed.ns > 0 {
            let rate = u128::from(passed.client_blocks) * 256 * 1_000_000_000 / u128::from(passed.ns);
            self.client_rate = towards(self.client_rate, rate.min(1 << 40) as u64, passed.ns, RATE_NS);
            // At first this is the mean of all measurements.
            self.seen_ns = (self.seen_ns + passed.ns).min(PACE_NS);
            self.paced_rate = towards(
                self.paced_rate,
                rate.min(1 << 40) as u64,
                passed.ns,
                self.seen_ns - passed.ns.min(self.seen_ns),
            );
        }
        let constant_ns = if first { 0 } else { RATE_NS };
        let share = |one: Mean| {
            assert!(one.live <= one.blocks && one.blocks > 0, "a victim has blocks");
            (u64::from(one.live) * ONE / u64::from(one.blocks)).min(UTILISATION_MAX)
        };
        let follow = |value, one| towards(value, share(one), passed.ns.max(1), constant_ns);
        if let Some(one) = sight.victim {
            self.segment_blocks = one.blocks.into();
            self.utilisation = follow(self.utilisation, one);
        }
        let down = sight.destaged.and_then(|destaged| destaged.victim);
        if let Some(one) = down {
            self.segment_blocks = one.blocks.into();
            self.destage_utilisation = follow(self.destage_utilisation, one);
        }
        let gains = down.is_some() || sight.victim.is_some_and(|one| one.live < one.blocks);
        if first || gains {
            self.victim_at_ns = sight.now_ns;
        }
        let spared = if self.before.is_some_and(|before| before.sparing) { ONE } else { 0 };
        self.spared = towards(self.spared, spared, passed.ns.max(1), RATE_NS).min(ONE - ONE / 16);
        let paused_ns = self.before.map_or(0, |before| before.pause_ns);
        let worked_ns = passed.ns.saturating_sub(paused_ns);
        // Small slices are not measured: most of their time is a fixed cost. When the speed matters, slices are large.
        if passed.moved_blocks >= self.slice_blocks().1 / 2 {
            let taken_ns = worked_ns / passed.moved_blocks;
            // Each observation counts for an eighth, so that one slow slice changes little.
            self.move_ns = towards(self.move_ns, taken_ns.clamp(MOVE_NS.0, MOVE_NS.1), 1, 7);
        }
        // A destage that gets no answer is busy all the same, so it looks slower and slower; moves that count again outweigh that
        // within a few seconds.
        let fade = |sum| towards(sum, 0, passed.destage_ns, DESTAGE_NS);
        self.destage_busy_ns = fade(self.destage_busy_ns) + passed.destage_ns;
        self.destaged = fade(self.destaged) + passed.destaged_blocks * 256;
        assert!(self.destage_busy_ns >= passed.destage_ns, "the present counts in full");
    }
    /// Nanoseconds for destaging one block.
    fn destage_ns(&self) -> u64 {
        (self.destage_busy_ns * 256 / self.destaged.max(1)).clamp(MOVE_NS.0, MOVE_NS.1)
    }
    /// Updates the level. It changes at once with the blocks that are written and moved, and approaches the counts
    /// slowly. It never differs from the counts by more than one segment.
    fn follow(&mut self, sight: &Sight, passed: Passed) {
        // Emptied segments count for three quarters of free ones, but never for more than there are free ones above the
        // floor: until a checkpoint has come clients have only these, and their delay must have reached its bound when
        // the last of them is used.
        let room = i64::from(sight.free.saturating_sub(self.marks.floor)) * ONE as i64;
        let emptied = (i64::from(sight.emptied) * (ONE as i64 * 3 / 4)).min(room);
        // Cheap victims have gained more than the mean; the expensive ones behind them will need that surplus.
        let surplus = (sight.surplus_blocks * ONE / self.segment_blocks).min(at(self.marks.target - self.marks.low));
        let counted = i64::from(sight.free) * ONE as i64 + emptied - surplus as i64;
        if self.before.is_none() {
            self.level = counted;
            return;
        }
        // Moving live blocks frees segments, and fills a share of `utilisation` of them again. Those that were destaged fill none.
        let gain = (passed.moved_blocks * (ONE - self.utilisation)) / self.utilisation.max(ONE / 16)
            + passed.destaged_blocks * ONE / self.destage_utilisation.max(ONE / 16);
        let change = (gain as i64 - passed.client_blocks as i64) * ONE as i64 / self.segment_blocks as i64;
        let ahead = self.level + change - counted;
        // Two segments' worth of traffic weigh as much as the time constant.
        let traffic = passed.client_blocks + passed.moved_blocks + passed.destaged_blocks;
        let weight_ns = passed.ns + traffic * LEVEL_NS / (2 * self.segment_blocks);
        let ahead = ahead - (i128::from(ahead) * i128::from(weight_ns) / i128::from(weight_ns + LEVEL_NS)) as i64;
        self.level = counted + ahead.clamp(-(ONE as i64), ONE as i64);
    }
    /// The level's position between two thresholds, in `ONE`s: 0 at `from` and above, `ONE` at `to` and below.
    fn below(&self, from: u64, to: u64) -> u64 {
        assert!(from > to);
        let depth = (from as i64 - self.level).clamp(0, (from - to) as i64) as u64;
        (u128::from(depth) * u128::from(ONE) / u128::from(from - to)) as u64
    }
    /// Distance above `low` at which the glide begins. At least one segment, even if the host has no space for any.
    fn glide(&self) -> u64 {
        if active(Bug::GlideMissing) { ONE } else { (at(self.marks.reserve) * 3 / 8).max(ONE) }
    }
    /// Number of blocks moved within the tier per second at full speed, which leaves a ninth of the time to clients' I/O.
    fn rate_max(&self) -> u64 {
        1_000_000_000 / (self.move_ns + self.move_ns / 8)
    }
    /// Number of blocks that must be moved within the tier to gain the space of one block, in `ONE`s.
    fn moves_per_block(&self) -> u64 {
        self.utilisation * ONE / (ONE - self.utilisation)
    }
    /// The moves within the tier; None if there is nothing to be gained.
    fn within(&self, sight: &Sight) -> Option<Lane> {
        let Mean { live, blocks } = sight.victim.filter(|one| one.live < one.blocks)?;
        let Thresholds { target, high, ahead, .. } = self.marks;
        // Cleaning ahead costs writes: the fuller the victims are, the less is cleaned ahead.
        let ahead = match u64::from(live) * ONE / u64::from(blocks) {
            utilisation if utilisation < ONE / 2 => ahead + sight.for_copies,
            utilisation if utilisation < ONE * 3 / 4 => high,
            _ => target,
        };
        let rate_max = self.rate_max();
        // At least half: of less, `slice` makes small slices, which measure no speed, and moves that were slow once would stay so.
        Some(Lane { moves_per_block: self.moves_per_block(), rate_max, ahead, rate_ahead: rate_max.div_ceil(2) })
    }
    /// The destage; None if there is nothing for it. What has joined the batch is destaged although no more is to follow:
    /// until then it keeps all of its segments.
    fn down(&self, sight: &Sight) -> Option<Lane> {
        sight.destaged.filter(|destaged| destaged.victim.is_some() || destaged.left_blocks > 0)?;
        let rate_max = 1_000_000_000 / self.destage_ns();
        let moves_per_block = self.destage_utilisation;
        let ahead = self.marks.ahead + sight.for_copies;
        Some(Lane { moves_per_block, rate_max, ahead, rate_ahead: rate_max })
    }
    /// Number of blocks per second that should be destaged. What is wanted is bounded by what was measured; only where that
    /// is all, nothing holds the destage back, and it may turn out to be faster.
    fn destage_rate(&self, sight: &Sight, idle: bool) -> u64 {
        let Some(down) = self.down(sight) else { return 0 };
        let rate = self.wanted_rate(idle, down);
        if rate >= down.rate_max { u64::MAX } else { rate }
    }
    /// Number of blocks per second that should be moved.
    fn wanted_rate(&self, idle: bool, lane: Lane) -> u64 {
        let Lane { moves_per_block, rate_max, ahead, rate_ahead } = lane;
        let pace = (u128::from(self.client_rate) * u128::from(moves_per_block) / u128::from(ONE * 256)) as u64;
        let pace = pace.min(rate_max);
        let Thresholds { low, target, high, .. } = self.marks;
        // Nothing at `high`, the clients' pace at `target`, everything at `low`.
        let over = pace * self.below(at(high), at(target)) / ONE;
        let under = (rate_max - pace) * self.below(at(target), at(low)) / ONE;
        // While clients are held back, their rate must not set the pace of the cleaner that they wait for.
        let steady = if self.is_felt(self.glide_ns()) { rate_max } else { over + under };
        assert!(steady <= rate_max && rate_ahead <= rate_max, "no faster than was measured");
        if !idle {
            return steady;
        }
        if self.level < i64::from(ahead) * ONE as i64 { steady.max(rate_ahead) } else { 0 }
    }
    /// Bounds of a slice. One must not fill segments before the controller looks again.
    fn slice_blocks(&self) -> (u64, u64) {
        let max = self.manner.slice_blocks_max.min(self.segment_blocks / 2).max(1);
        let min = self.manner.slice_blocks_min.min(max);
        assert!(0 < min && min <= max, "a slice moves something");
        (min, max)
    }
    /// A slice and the pause after it, for a number of blocks per second.
    fn slice(&self, rate: u64) -> (u32, u64) {
        // The largest slice at full speed, the smallest at none.
        let (slice_blocks_min, slice_blocks_max) = self.slice_blocks();
        let pause_ns_max = self.manner.pause_ns_max;
        let share = rate * ONE / self.rate_max();
        let slice = slice_blocks_min + (slice_blocks_max - slice_blocks_min) * share.min(ONE) / ONE;
        let work_ns = slice * self.move_ns;
        let period_ns = (slice * 1_000_000_000).checked_div(rate).unwrap_or(u64::MAX);
        // Near full speed slices stay large, however long moves seem to take: only large slices measure that.
        if share < ONE / 2 && period_ns > work_ns + pause_ns_max {
            // The rate would need a pause longer than the longest: a smaller slice instead.
            let slice = rate * pause_ns_max / 1_000_000_000;
            return (slice.min(slice_blocks_min) as u32, pause_ns_max);
        }
        (slice as u32, (period_ns - work_ns.min(period_ns)).max(work_ns / 8).min(pause_ns_max))
    }
    /// Nanoseconds in which the cleaner frees space for one block, including the time in which it waits for
    /// checkpoints. What is destaged is so at the same time.
    fn room_ns(&self) -> u64 {
        let move_ns = self.move_ns * ONE / (ONE - self.spared);
        let within_ns = (move_ns * self.moves_per_block() / ONE).max(move_ns / 4);
        let down_ns = (self.destage_ns() * self.destage_utilisation / ONE).max(1);
        let room_ns = match self.ways {
            (true, true) => within_ns * down_ns / (within_ns + down_ns),
            (false, true) => down_ns,
            _ => within_ns,
        };
        assert!(room_ns <= within_ns.max(down_ns), "two ways are no slower than one");
        room_ns
    }
    /// The clients' delay per block: the larger of two delays.
    ///
    /// The glide: after a brick was filled in one go, few blocks have died when cleaning begins, so freeing space is
    /// more expensive than it will be later. Therefore the free segments above `low` are used up slowly, while victims
    /// become cheaper. Where the glide begins the delay is 0; it grows until, at `low`, clients write exactly as much
    /// as the cleaner frees.
    ///
    /// The curve: unit * 2x^2 / (1 - x), where x goes from 0 at the target to 1 at the floor. The unit is the recent
    /// spacing of clients' blocks. So the balance lies at x = 0.5 whatever limits the cleaner (its device, a core that
    /// it shares with the clients), and the delay does not oscillate with the few segments that come and go. The unit
    /// changes slowly; the curve answers at once.
    fn delay_ns(&self) -> u64 {
        let room_ns = self.room_ns();
        let spacing_ns = 256_000_000_000 / self.paced_rate.max(1);
        let unit_ns = spacing_ns.min(self.manner.units_max * room_ns);
        let cap_ns = (UNITS_MAX * room_ns).clamp(DELAY_CAP_NS_MIN, DELAY_NS_MAX);
        let x = self.below(at(self.marks.target), at(self.marks.floor));
        assert!(x <= ONE);
        if x == ONE {
            return cap_ns;
        }
        let curve_ns = (2 * u128::from(unit_ns) * u128::from(x * x / ONE) / u128::from(ONE - x)) as u64;
        curve_ns.max(self.glide_ns()).min(cap_ns)
    }
    fn glide_ns(&self) -> u64 {
        self.room_ns() * self.below(at(self.marks.low) + self.glide(), at(self.marks.low)) / ONE
    }
    /// True if the delay slows clients down: if they write at least half as many blocks as it allows.
    fn is_felt(&self, delay_ns: u64) -> bool {
        u128::from(delay_ns) * u128::from(self.client_rate) >= 256 * 500_000_000
    }
    fn is_slowing(&self, delay_ns: u64) -> bool {
        self.is_felt(delay_ns) || self.level < i64::from(self.marks.low) * ONE as i64
    }
    /// True if so few segments are free that the cleaner waits for a checkpoint to free more, instead of opening the
    /// last ones. Only for a while: readers may pin emptied segments for long, and then only more moves help.
    fn is_sparing(&mut self, sight: &Sight) -> bool {
        let short = sight.emptied > 0 && sight.free <= self.marks.floor / 2;
        let since_ns = self.spare_at_ns.filter(|_| short).or(short.then_some(sight.now_ns));
        self.spare_at_ns = since_ns;
        since_ns.is_some_and(|since_ns| sight.now_ns - since_ns < FULL_NS)
    }
    /// True if the brick is full: for some time, hardly any segment is free or will be, and none can be cleaned.
    fn is_full(&mut self, sight: &Sight) -> bool {
        let short = sight.free + sight.emptied <= self.marks.floor;
        self.short_at_ns = self.short_at_ns.filter(|_| short).or(short.then_some(sight.now_ns));
        let since = |since_ns| sight.now_ns - since_ns >= FULL_NS;
        since(self.victim_at_ns) && self.short_at_ns.is_some_and(since)
    }
    /// True if a checkpoint should begin. The fewer segments are free, the fewer emptied ones call for a checkpoint.
    fn wants_checkpoint(&self, sight: &Sight) -> bool {
        let Thresholds { floor, low, target, high, .. } = self.marks;
        let since_ns = sight.now_ns - self.asked.now_ns;
        let rest_ns = if sight.free <= floor { CHECKPOINT_NS.1 } else { CHECKPOINT_NS.0 };
        if since_ns < rest_ns {
            return false;
        }
        let batch = (sight.free.saturating_sub(floor) / 2).clamp(1, high - target);
        // The last checkpoint did not free some emptied segments (pinned by readers, or not counted yet): while there
        // are free ones, a checkpoint is asked for these only once in a second.
        let patient = sight.free > floor && since_ns < FULL_NS;
        if sight.emptied - if patient { self.stuck } else { 0 } >= batch {
            return true;
        }
        // Only a checkpoint shows which blocks have died: if victims are expensive, it may find cheaper ones. Deletions
        // are not counted here, so a brick with few free segments asks once in a second in any case.
        let written = sight.client_blocks - self.asked.client_blocks;
        let dear = sight.victim.is_none_or(|one| u64::from(one.live) * 8 >= u64::from(one.blocks) * 7);
        let dear = dear && sight.destaged.is_none_or(|destaged| destaged.victim.is_none());
        let reclaimable = sight.free + sight.emptied;
        // The first checkpoint after a long time has much to write: it should come before segments wait for it.
        if reclaimable <= high + 2 * (high - target) && written >= AHEAD_SEGMENTS * self.segment_blocks {
            return true;
        }
        let lasting = since_ns >= FULL_NS && (written > 0 || reclaimable <= low);
        reclaimable <= target && dear && (written >= self.segment_blocks / 2 || lasting)
    }
}

/// A threshold in `ONE`s.
fn at(mark: u32) -> u64 {
    u64::from(mark) * ONE
}

/// A low-pass filter: `value` after it has followed the observation `seen` for the time `passed`, with a time constant.
fn towards(value: u64, seen: u64, passed: u64, constant: u64) -> u64 {
    let step = (i128::from(seen) - i128::from(value)) * i128::from(passed) / i128::from(passed + constant);
    (i128::from(value) + step) as u64
}
