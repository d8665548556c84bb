//! The controller of the cleaner's speed and of the throttle on clients (`Controller`): pure. Integers only, so that a step
//! gives the same answer on every machine.
//!
//! The controller holds one quantity, the level: segments that can be opened now or after the next checkpoint. Marks
//! divide the reserve that a full brick still has (rule K5):
//!
//! ```text
//! 0 ... floor ........ low ........ target ........ high ........ ahead ... reserve
//!       delay at cap   cleaning at  delay begins,    cleaning      cleaning ahead stops,
//!                      full speed   cleaning at the  stops         with cheap victims,
//!                                   clients' pace                  while clients rest
//! ```
//!
//! The cleaner begins at full speed above `high` already if clients write more than it can make room for. The room above
//! `low` is then used up gradually, in a glide.

use runtime::seeded::{Bug, active};

/// Marks of the level, in segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Segments of a full brick beyond its live blocks (rule K5): free, open, or dead blocks in sealed segments.
    pub reserve: u32,
    /// Only the cleaner, deletions and checkpoints may take the last ones: clients are held.
    pub floor: u32,
    /// Cleaning is at full speed.
    pub low: u32,
    /// The clients' delay begins, and cleaning keeps their pace.
    pub target: u32,
    /// Cleaning stops.
    pub high: u32,
    /// Cleaning ahead stops.
    pub ahead: u32,
}

/// Most segments of the floor: for the cleaner's output, for the commit segment that takes its move records, and for
/// deletions; one more for each while the first waits for a checkpoint.
const FLOOR_SEGMENTS_MAX: u32 = 4;
/// Bounds of how many victims are chosen at once: fewer are hardly sorted, and more would be out of date at the end.
const VICTIMS_MAX: (usize, usize) = (4, 16);
/// Distance of two marks. 64 segments are 4 GiB: a device that writes 2 GiB/s needs two seconds for them, longer than
/// a slice of a checkpoint takes. More would only take dead space from the victims, and make them fuller.
const STEP_SEGMENTS_MAX: u32 = 64;

impl Thresholds {
    /// Marks of a brick.
    pub fn new(segments: u32) -> Thresholds {
        // Rule K5: 10%, at least 16 segments; bricks of less than 32 (simulation only) keep half.
        let reserve = (segments / 10).max(16.min(segments / 2));
        let floor = (reserve / 3).clamp(1, FLOOR_SEGMENTS_MAX);
        // An eighth of the reserve each: at the target, most of it is left to be dead blocks in victims. Two segments at
        // least, where there are so many, because free segments come and go in whole ones.
        let step = (reserve / 8).clamp(1, STEP_SEGMENTS_MAX);
        // A range of one segment would make the delay a switch.
        let low = floor + step.max(2);
        let (target, high) = (low + step, low + 2 * step);
        Thresholds { reserve, floor, low, target, high, ahead: high.max(floor + reserve / 2) }
    }
    /// Victims chosen at once: between two choices their order does not change much. The more, the better are survivors
    /// sorted by age; but what they gain comes in fits, which must stay small beside the reserve.
    pub fn victims_max(&self) -> usize {
        (self.reserve as usize / 3).clamp(VICTIMS_MAX.0, VICTIMS_MAX.1)
    }
}

/// The measurements that the controller sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// The clock.
    pub now_ns: u64,
    /// Segments that can be opened now: the free list, and those prepared ahead.
    pub free: u32,
    /// Segments without a live block, moved away or dead, that will be free after the next checkpoint.
    pub emptied: u32,
    /// All segments.
    pub segments: u32,
    /// Blocks that clients have had admitted since start.
    pub client_blocks: u64,
    /// Blocks that the cleaner has moved since start.
    pub moved_blocks: u64,
    /// Live blocks, and all blocks, of the mean victim of the present choice. None if there is no victim.
    pub victim: Option<(u32, u32)>,
    /// Blocks that the victims of this choice have gained beyond their share.
    pub surplus_blocks: u64,
}

/// The orders for the drive until the next step. It steps again when the slice is done and the pause over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Blocks that the cleaner may move; 0: it rests.
    pub slice_blocks: u32,
    /// Pause after the slice.
    pub pause_ns: u64,
    /// Throttle of clients' writes: nanoseconds of delay per block. It spaces the blocks of all clients together:
    /// otherwise more clients would wait for less.
    pub client_delay_ns: u64,
    /// True if a checkpoint should begin: segments or dead blocks wait for it. Said once; the drive remembers it while
    /// a checkpoint that began earlier still runs, and leaves out one that would have nothing new.
    pub checkpoint: bool,
    /// The state, for status.
    pub state: State,
}

/// The state of the cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing.
    Idle,
    /// Cleans ahead of time while clients rest.
    Ahead,
    /// Cleans beside the clients.
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

/// One, in fractions of 2^-16.
const ONE: u64 = 1 << 16;
/// One step moves at most 512 KiB, in two parts at the same time: what a device does in about a millisecond, so that
/// clients' I/O gets through.
const SLICE_BLOCKS_MAX: u64 = 128;
/// Smallest slice while clients write: below it, fixed costs of a move (a record, a wake) dominate.
const SLICE_BLOCKS_MIN: u64 = 16;
/// Longest time between steps: a client at 1 GiB/s fills a third of a segment in it.
const PAUSE_NS_MAX: u64 = 20_000_000;
/// Longest delay per block: 20 blocks in a second still pass.
const DELAY_NS_MAX: u64 = 50_000_000;
/// The cap is never below, so that a burst against a fast device is stopped in time as well.
const DELAY_CAP_NS_MIN: u64 = 1_000_000;
/// Clients that had nothing admitted for so long are idle.
const IDLE_NS: u64 = 100_000_000;
/// No victim for so long, in spite of a checkpoint asked for: there is none.
const FULL_NS: u64 = 1_000_000_000;
/// Interval of steps while the cleaner waits for a checkpoint.
const SPARE_NS: u64 = 2_000_000;
/// Checkpoints are asked for at most so often; the second where only the cleaner may still open segments.
const CHECKPOINT_NS: (u64, u64) = (250_000_000, 100_000_000);
/// Most segments that clients may write between two checkpoints, shortly before cleaning begins: a few
/// seconds' worth.
const AHEAD_SEGMENTS: u64 = 6;
/// Time constants: the level follows what is counted in 1 s (a segment's come and go is smoothed by what was written
/// and moved meanwhile); rates and utilisation in half a second.
const LEVEL_NS: u64 = 1_000_000_000;
const RATE_NS: u64 = 500_000_000;
/// Time constant of what clients' delay is a multiple of. With a delay curve that answers a segment more or less by half
/// again as much, a brick that uses a segment per second is damped well above critically with it.
const PACE_NS: u64 = 5_000_000_000;
/// Largest delay, as a multiple of the time for making room for a block: clients that were slow for another reason are
/// not held back by it.
const UNITS_MAX: u64 = 16;
/// Bounds of what moving one block takes: 4 GB/s and 200 KB/s.
const MOVE_NS: (u64, u64) = (1_000, 20_000_000);
/// Assumed time for moving a block until the first move was measured: 200 MB/s, reading and writing.
const MOVE_NS_FIRST: u64 = 20_000;
/// A rule of three with a victim that has less than 1/64 dead blocks asks for nonsense.
const UTILISATION_MAX: u64 = ONE - ONE / 64;
/// Blocks of a segment of 64 MiB, until a victim was seen.
const SEGMENT_BLOCKS_FIRST: u64 = 16_384;

/// The last measurements and the answer to them.
#[derive(Clone, Copy, Debug)]
struct Before {
    sight: Sight,
    pause_ns: u64,
    sparing: bool,
}

/// The progress since then.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    ns: u64,
    client_blocks: u64,
    moved_blocks: u64,
}

/// The controller's state.
#[derive(Clone, Debug)]
pub struct Controller {
    marks: Thresholds,
    before: Option<Before>,
    /// Estimate of free segments and a part of the emptied ones, in `ONE`s. It is smooth where the count is not.
    level: i64,
    segment_blocks: u64,
    /// Blocks that clients have admitted in a second, in 1/256.
    client_rate: u64,
    /// The same, over so long that one checkpoint's segments don't show.
    paced_rate: u64,
    /// Time for which clients have been measured, up to `PACE_NS`.
    seen_ns: u64,
    /// Live part of victims, in `ONE`s.
    utilisation: u64,
    /// Time for moving one block.
    move_ns: u64,
    client_at_ns: u64,
    victim_at_ns: u64,
    /// Time at which segments became as short as on a full brick.
    short_at_ns: Option<u64>,
    /// Share of the time, in `ONE`s, that the cleaner waited for checkpoints.
    spared: u64,
    /// Time from which on the last segments are spared, for what a checkpoint will free.
    spare_at_ns: Option<u64>,
    /// The measurements when a checkpoint was last asked for.
    asked: Sight,
    /// The fewest emptied segments seen since: what no checkpoint frees for now.
    stuck: u32,
}

impl Controller {
    /// A controller for a brick.
    pub fn new(segments: u32) -> Controller {
        let asked = Sight { segments, ..Sight::default() };
        Controller {
            marks: Thresholds::new(segments),
            before: None,
            level: 0,
            segment_blocks: SEGMENT_BLOCKS_FIRST,
            client_rate: 0,
            paced_rate: 0,
            seen_ns: 0,
            utilisation: ONE / 2,
            move_ns: MOVE_NS_FIRST,
            client_at_ns: 0,
            victim_at_ns: 0,
            short_at_ns: None,
            spared: 0,
            spare_at_ns: None,
            asked,
            stuck: 0,
        }
    }
    /// The marks, for status.
    pub fn thresholds(&self) -> Thresholds {
        self.marks
    }
    /// One step.
    pub fn step(&mut self, sight: &Sight) -> Pace {
        assert!(sight.free <= sight.segments, "no more segments free than there are");
        // Bricks grow.
        self.marks = Thresholds::new(sight.segments);
        let passed = self.passed(sight);
        self.learn(sight, passed);
        self.follow(sight, passed);
        let idle = sight.now_ns - self.client_at_ns >= IDLE_NS;
        self.stuck = self.stuck.min(sight.emptied);
        let checkpoint = self.wants_checkpoint(sight);
        if checkpoint {
            (self.asked, self.stuck) = (*sight, sight.emptied);
        }
        let sparing = self.is_sparing(sight);
        let rate = if sparing { 0 } else { self.wanted_rate(sight, idle) };
        let (slice_blocks, longest_ns) = self.slice(rate);
        let pause_ns = if sparing { SPARE_NS } else { longest_ns };
        let full = self.is_full(sight);
        let delay_ns = if active(Bug::DelayUnfelt) { 0 } else { self.delay_ns() };
        let client_delay_ns = if full { DELAY_NS_MAX } else { delay_ns };
        let state = match () {
            () if full => State::Full,
            () if self.is_slowing(client_delay_ns) => State::Slowing,
            () if slice_blocks == 0 => State::Idle,
            () if idle => State::Ahead,
            () => State::Cleaning,
        };
        assert!(client_delay_ns <= DELAY_NS_MAX && pause_ns <= PAUSE_NS_MAX);
        assert!(u64::from(slice_blocks) <= SLICE_BLOCKS_MAX);
        self.before = Some(Before { sight: *sight, pause_ns, sparing });
        Pace { slice_blocks, pause_ns, client_delay_ns, checkpoint, state }
    }

    fn passed(&self, sight: &Sight) -> Passed {
        let Some(Before { sight: before, .. }) = &self.before else { return Passed::default() };
        assert!(sight.now_ns >= before.now_ns, "the clock does not go back");
        assert!(sight.client_blocks >= before.client_blocks && sight.moved_blocks >= before.moved_blocks);
        Passed {
            ns: sight.now_ns - before.now_ns,
            client_blocks: sight.client_blocks - before.client_blocks,
            moved_blocks: sight.moved_blocks - before.moved_blocks,
        }
    }
    /// Rates, and what victims and moves cost.
    fn learn(&mut self, sight: &Sight, passed: Passed) {
        let first = self.before.is_none();
        if first || passed.client_blocks > 0 {
            self.client_at_ns = sight.now_ns;
        }
        if passed.ns > 0 {
            let rate = u128::from(passed.client_blocks) * 256 * 1_000_000_000 / u128::from(passed.ns);
            self.client_rate = towards(self.client_rate, rate.min(1 << 40) as u64, passed.ns, RATE_NS);
            // At first the mean of all that was seen.
            self.seen_ns = (self.seen_ns + passed.ns).min(PACE_NS);
            self.paced_rate = towards(
                self.paced_rate,
                rate.min(1 << 40) as u64,
                passed.ns,
                self.seen_ns - passed.ns.min(self.seen_ns),
            );
        }
        if let Some((live, blocks)) = sight.victim {
            assert!(live <= blocks && blocks > 0, "a victim has blocks");
            self.segment_blocks = blocks.into();
            let utilisation = (u64::from(live) * ONE / u64::from(blocks)).min(UTILISATION_MAX);
            let constant_ns = if first { 0 } else { RATE_NS };
            self.utilisation = towards(self.utilisation, utilisation, passed.ns.max(1), constant_ns);
        }
        if first || sight.victim.is_some_and(|(live, blocks)| live < blocks) {
            self.victim_at_ns = sight.now_ns;
        }
        let spared = if self.before.is_some_and(|before| before.sparing) { ONE } else { 0 };
        self.spared = towards(self.spared, spared, passed.ns.max(1), RATE_NS).min(ONE - ONE / 16);
        let paused_ns = self.before.map_or(0, |before| before.pause_ns);
        let worked_ns = passed.ns.saturating_sub(paused_ns);
        // Of small slices most is fixed cost. They are taken while little is to do; where it matters, slices are large.
        if passed.moved_blocks >= SLICE_BLOCKS_MAX / 2 {
            let taken_ns = worked_ns / passed.moved_blocks;
            // An eighth of each observation: one slow slice is no news.
            self.move_ns = towards(self.move_ns, taken_ns.clamp(MOVE_NS.0, MOVE_NS.1), 1, 7);
        }
    }
    /// Brings the level up to date. Between two changes of the counts it follows the blocks that were written and
    /// moved; towards the counts it is drawn slowly, and never further from them than one segment.
    fn follow(&mut self, sight: &Sight, passed: Passed) {
        // Emptied segments are nearly as good as free ones, but no more of them than there are free above the floor: until
        // a checkpoint has come, clients have only those, and their delay must have grown to its cap when the last of
        // them is used.
        let room = i64::from(sight.free.saturating_sub(self.marks.floor)) * ONE as i64;
        let emptied = (i64::from(sight.emptied) * (ONE as i64 * 3 / 4)).min(room);
        // What cheap victims have gained beyond their share the dear ones behind them will use.
        let surplus = (sight.surplus_blocks * ONE / self.segment_blocks).min(at(self.marks.target - self.marks.low));
        let counted = i64::from(sight.free) * ONE as i64 + emptied - surplus as i64;
        if self.before.is_none() {
            self.level = counted;
            return;
        }
        // Of what the cleaner frees it fills `utilisation` again.
        let gain = (passed.moved_blocks * (ONE - self.utilisation)) / self.utilisation.max(ONE / 16);
        let change = (gain as i64 - passed.client_blocks as i64) * ONE as i64 / self.segment_blocks as i64;
        let ahead = self.level + change - counted;
        // Two segments' worth of traffic weigh as much as the time constant.
        let traffic = passed.client_blocks + passed.moved_blocks;
        let weight_ns = passed.ns + traffic * LEVEL_NS / (2 * self.segment_blocks);
        let ahead = ahead - (i128::from(ahead) * i128::from(weight_ns) / i128::from(weight_ns + LEVEL_NS)) as i64;
        self.level = counted + ahead.clamp(-(ONE as i64), ONE as i64);
    }
    /// The level's position between two marks in `ONE`s: 0 at `from`, `ONE` at `to`, where `to` is the lower one.
    fn below(&self, from: u64, to: u64) -> u64 {
        assert!(from > to);
        let depth = (from as i64 - self.level).clamp(0, (from - to) as i64) as u64;
        (u128::from(depth) * u128::from(ONE) / u128::from(from - to)) as u64
    }
    /// Distance above `low` at which the glide begins. Not at once, also where the host has no room for any segment.
    fn glide(&self) -> u64 {
        if active(Bug::GlideMissing) { ONE } else { (at(self.marks.reserve) * 3 / 8).max(ONE) }
    }
    /// Blocks that must be moved for the space of one that a client writes, in `ONE`s.
    fn moves_per_block(&self) -> u64 {
        self.utilisation * ONE / (ONE - self.utilisation)
    }
    /// Blocks per second at full speed: a ninth of the time remains for clients' I/O.
    fn rate_max(&self) -> u64 {
        1_000_000_000 / (self.move_ns + self.move_ns / 8)
    }
    /// Blocks per second that the cleaner should move.
    fn wanted_rate(&self, sight: &Sight, idle: bool) -> u64 {
        let Some((live, blocks)) = sight.victim.filter(|(live, blocks)| live < blocks) else { return 0 };
        let rate_max = self.rate_max();
        let pace = (u128::from(self.client_rate) * u128::from(self.moves_per_block()) / u128::from(ONE * 256)) as u64;
        let pace = pace.min(rate_max);
        let Thresholds { low, target, high, ahead, .. } = self.marks;
        // Nothing at `high`, the clients' pace at `target`, everything at `low`.
        let over = pace * self.below(at(high), at(target)) / ONE;
        let under = (rate_max - pace) * self.below(at(target), at(low)) / ONE;
        // Clients that are held back must not set the pace of what they wait for.
        let steady = if self.is_felt(self.glide_ns()) { rate_max } else { over + under };
        if !idle {
            return steady;
        }
        // Wear is the price of cleaning ahead: the fuller the victim, the less of it.
        let goal = match u64::from(live) * ONE / u64::from(blocks) {
            utilisation if utilisation < ONE / 2 => ahead,
            utilisation if utilisation < ONE * 3 / 4 => high,
            _ => target,
        };
        if self.level < i64::from(goal) * ONE as i64 { steady.max(rate_max / 2) } else { 0 }
    }
    /// A slice and the pause after it, for a number of blocks per second.
    fn slice(&self, rate: u64) -> (u32, u64) {
        // The largest slice at full speed, the smallest at none.
        let share = rate * ONE / self.rate_max();
        let slice = SLICE_BLOCKS_MIN + (SLICE_BLOCKS_MAX - SLICE_BLOCKS_MIN) * share.min(ONE) / ONE;
        let work_ns = slice * self.move_ns;
        let period_ns = (slice * 1_000_000_000).checked_div(rate).unwrap_or(u64::MAX);
        // Near full speed slices stay large, whatever moves seem to take: only large ones tell.
        if share < ONE / 2 && period_ns > work_ns + PAUSE_NS_MAX {
            // Slower than the longest pause allows: less at a time.
            let slice = rate * PAUSE_NS_MAX / 1_000_000_000;
            return (slice.min(SLICE_BLOCKS_MIN) as u32, PAUSE_NS_MAX);
        }
        (slice as u32, (period_ns - work_ns.min(period_ns)).max(work_ns / 8).min(PAUSE_NS_MAX))
    }
    /// Time that the cleaner takes to make room for a block, including the time in which it waits for checkpoints.
    fn room_ns(&self) -> u64 {
        let move_ns = self.move_ns * ONE / (ONE - self.spared);
        (move_ns * self.moves_per_block() / ONE).max(move_ns / 4)
    }
    /// The clients' delay per block, the larger of two.
    ///
    /// The glide: where cleaning begins, little has died in what was filled in one go, and room is dearer than it will be.
    /// So the room above `low` is used up little by little, and meanwhile victims become cheaper: from where the glide begins,
    /// clients may write ever less more than the cleaner makes room for, and just that at `low`.
    ///
    /// The curve: unit * 2x^2 / (1 - x), where x goes from 0 at the target to 1 at the floor. The unit
    /// is the spacing that clients had of late, so that the balance lies at x = 0.5 whatever limits the cleaner (its
    /// device, a core that it shares with the clients), and the delay does not swing with the few segments that come and
    /// go. It learns slowly; the curve is what answers at once.
    fn delay_ns(&self) -> u64 {
        let room_ns = self.room_ns();
        let spacing_ns = 256_000_000_000 / self.paced_rate.max(1);
        let unit_ns = spacing_ns.min(UNITS_MAX * room_ns);
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
    /// Clients that keep twice that spacing by themselves don't feel it.
    fn is_felt(&self, delay_ns: u64) -> bool {
        u128::from(delay_ns) * u128::from(self.client_rate) >= 256 * 500_000_000
    }
    fn is_slowing(&self, delay_ns: u64) -> bool {
        self.is_felt(delay_ns) || self.level < i64::from(self.marks.low) * ONE as i64
    }
    /// True if so few segments are free that the cleaner waits for the checkpoint that brings more, instead of opening
    /// the last. Only for a while: emptied segments may be pinned for long, and then moving on is the way out.
    fn is_sparing(&mut self, sight: &Sight) -> bool {
        let short = sight.emptied > 0 && sight.free <= self.marks.floor / 2;
        let since_ns = self.spare_at_ns.filter(|_| short).or(short.then_some(sight.now_ns));
        self.spare_at_ns = since_ns;
        since_ns.is_some_and(|since_ns| sight.now_ns - since_ns < FULL_NS)
    }
    /// Nothing free, nothing that will be, and nothing to clean.
    fn is_full(&mut self, sight: &Sight) -> bool {
        let short = sight.free + sight.emptied <= self.marks.floor;
        self.short_at_ns = self.short_at_ns.filter(|_| short).or(short.then_some(sight.now_ns));
        let since = |since_ns| sight.now_ns - since_ns >= FULL_NS;
        since(self.victim_at_ns) && self.short_at_ns.is_some_and(since)
    }
    /// True if a checkpoint should begin. The fewer segments are free, the fewer need wait for it.
    fn wants_checkpoint(&self, sight: &Sight) -> bool {
        let Thresholds { floor, low, target, high, .. } = self.marks;
        let since_ns = sight.now_ns - self.asked.now_ns;
        let rest_ns = if sight.free <= floor { CHECKPOINT_NS.1 } else { CHECKPOINT_NS.0 };
        if since_ns < rest_ns {
            return false;
        }
        let batch = (sight.free.saturating_sub(floor) / 2).clamp(1, high - target);
        // Pinned by readers, or not counted yet: those are asked for again once in a second only, if there is room.
        let patient = sight.free > floor && since_ns < FULL_NS;
        if sight.emptied - if patient { self.stuck } else { 0 } >= batch {
            return true;
        }
        // Blocks that died since the last checkpoint are not seen yet: where victims are dear, look again. Deletions
        // are not counted: a brick that is short looks once in a second anyway.
        let written = sight.client_blocks - self.asked.client_blocks;
        let dear = sight.victim.is_none_or(|(live, blocks)| u64::from(live) * 8 >= u64::from(blocks) * 7);
        let reclaimable = sight.free + sight.emptied;
        // The first one after a long time has much to write: better before segments wait for it.
        if reclaimable <= high + 2 * (high - target) && written >= AHEAD_SEGMENTS * self.segment_blocks {
            return true;
        }
        let lasting = since_ns >= FULL_NS && (written > 0 || reclaimable <= low);
        reclaimable <= target && dear && (written >= self.segment_blocks / 2 || lasting)
    }
}

/// A mark, in `ONE`s.
fn at(mark: u32) -> u64 {
    u64::from(mark) * ONE
}

/// A low-pass: how far a value goes towards what was seen, for so much time passed.
fn towards(value: u64, seen: u64, passed: u64, constant: u64) -> u64 {
    let step = (i128::from(seen) - i128::from(value)) * i128::from(passed) / i128::from(passed + constant);
    (i128::from(value) + step) as u64
}
