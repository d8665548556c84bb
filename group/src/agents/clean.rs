//! The cleaner's drive (rules K1-K4): asks the controller, copies live blocks of victims to the cold stream, and lets
//! each block's owner decide whether the copy counts. It runs in bounded slices beside the clients. A hybrid brick has a
//! cleaner for each tier; that of the flash passes victims full of cold blocks on to the destage (`destage`).

use crate::Groups;
use crate::agents::destage;
use crate::agents::moves::{is_there, leaf_of, order_all, places_of, source_of};
use crate::data::near::{self, RUN_BLOCKS_MAX};
use base::limits::BLOCK_BYTES;
use base::{Kind, Life, Place, Result, SegmentId, TierHint};
use runtime::Slice;
use runtime::budget::Agent;
use runtime::tasks::both;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::bulk::{Bulk, Ticket};
use store::checkpoint::held::Hold;
use store::cleaner::{Candidate, Choice, Controller, Destaged, Held, Pace, Pins, Sight, State as Doing, Tiering};
use store::format::devices::Tier;
use store::format::summary::SummaryEntry;

/// Pause while there is nothing to do: as long as between checks for a checkpoint.
const REST_NS: u64 = 100_000_000;
/// Shortest pause: about the overhead of a timer.
const PAUSE_NS_MIN: u64 = 50_000;
/// Longest time between two looks while the budget has it wait: as long as between two slices while it keeps pace.
const LOOK_NS: u64 = 20_000_000;
/// Most dead blocks read between live ones: 64 KiB more in one transfer take a third of the time of another transfer.
const GAP_BLOCKS_MAX: u16 = 16;
/// Blocks from which on a slice is moved in two parts at the same time: one is read while the other is written.
const PART_BLOCKS: usize = 64;
const _: () = assert!(GAP_BLOCKS_MAX < RUN_BLOCKS_MAX && PART_BLOCKS <= RUN_BLOCKS_MAX as usize);

/// Pause after which a choice that found nothing is made again if somebody waits: it looks at all segments.
const AGAIN_NS: u64 = 1_000_000_000;

/// The cleaner's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Its state and the reason; None before its first look.
    pub state: Option<Doing>,
    /// Nanoseconds between clients' blocks (throttle); 0: clients are not throttled.
    pub client_delay_ns: u64,
    /// Blocks moved since start.
    pub moved_blocks: u64,
    /// Segments emptied since start.
    pub emptied_segments: u64,
    /// Segments that are not cleaned, because a block or their summary can't be read.
    pub damaged_segments: u64,
    /// Blocks that are known to belong on flash, and are there.
    pub pinned_blocks: u64,
}

/// A segment being emptied.
struct Victim {
    segment: SegmentId,
    life: Life,
    entries: Vec<SummaryEntry>,
    next: usize,
    /// The live bitmap of a disk's segment stays in memory until all is moved: each block's owner asks for it.
    _bitmap: Option<Hold>,
}

struct Cleaner {
    groups: Arc<Groups>,
    tier: Tier,
    controller: Controller,
    choice: Chosen,
    /// The choice of victims that go down.
    down: Chosen,
    victim: Option<Victim>,
    /// Segments of which a part is being destaged, and those of which it was, each with the number of checkpoints that had ended by
    /// then. What is left in them is moved, or not, when a checkpoint has counted it.
    parts: BTreeSet<SegmentId>,
    parted: Vec<(SegmentId, u64)>,
    /// The knowledge of where pinned blocks lie, and the state of the tiers as of the last look.
    pins: Pins,
    tiering: Option<Tiering>,
    /// Number of checkpoints that had ended when room ran out for want of anything but pinned blocks, and whether these go down.
    held_at: Option<u64>,
    unpinning: bool,
    /// Segments that were emptied, each with the number of checkpoints that had ended by then.
    emptied: Vec<(SegmentId, u64)>,
    /// Lives of segments with a block or a summary that can't be read; they are not cleaned.
    damaged: Vec<(SegmentId, Life)>,
    moved_blocks: u64,
    emptied_segments: u64,
}

/// A choice of victims.
#[derive(Default)]
struct Chosen {
    choice: Choice,
    /// True if it was made while few segments were free and nothing else was to be had.
    pressed: bool,
    /// True if what is pinned goes down too.
    unpinned: bool,
    /// True once one of them has been taken.
    begun: bool,
    /// Number of checkpoints that had ended by then, and the clock. Until one more has ended, there is little new to choose from.
    at: Option<u64>,
    at_ns: u64,
}

impl Chosen {
    /// True if victims should be chosen again. A choice that nothing was taken of is made again: while the cleaner rested, blocks
    /// have died. One that was begun is used up, so that those at its end get their turn. One that found nothing while somebody
    /// waits is made again in a while: segments were sealed or let go since, and no checkpoint comes without changes.
    fn is_due(&self, ended: u64, (now_ns, is_wanted): (u64, bool)) -> bool {
        match self.choice.is_empty() {
            true if self.begun => true,
            true => self.at != Some(ended) || is_wanted && now_ns >= self.at_ns.saturating_add(AGAIN_NS),
            false => !self.begun && self.at != Some(ended),
        }
    }
    fn take(&mut self) -> Option<SegmentId> {
        let next = self.choice.take()?;
        self.begun = true;
        Some(next)
    }
}

/// The task of a tier's cleaner. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>, tier: Tier) {
    let segments = groups.store().segments_of(tier).segments as u32;
    let mut cleaner = Cleaner {
        groups,
        tier,
        controller: match tier {
            Tier::Flash => Controller::new(segments),
            Tier::Disk => Controller::of_disk(segments),
        },
        choice: Chosen::default(),
        down: Chosen::default(),
        victim: None,
        parts: BTreeSet::new(),
        parted: Vec::new(),
        pins: Pins::default(),
        tiering: None,
        held_at: None,
        unpinning: false,
        emptied: Vec::new(),
        damaged: Vec::new(),
        moved_blocks: 0,
        emptied_segments: 0,
    };
    let mut admitted_before = 0;
    while !cleaner.groups.is_closing() && cleaner.groups.store().log.failed().is_none() {
        let pace = cleaner.look();
        let mut starved = false;
        let groups = cleaner.groups.clone();
        if tier == Tier::Flash {
            destage::begin(&groups);
        }
        let Some(step) = groups.begin_step() else { break };
        // What is done ahead of time draws from the budget of background work. What space depends on does not (rule K4).
        let asks = pace.state == Doing::Ahead && pace.slice_blocks > 0 && tier == Tier::Flash;
        let turn = asks.then(|| groups.store().runtime.begin_slice(Agent::Clean));
        let slice_blocks = if matches!(turn, Some(Err(_))) { 0 } else { pace.slice_blocks };
        let moved = match cleaner.work(slice_blocks).await {
            Ok(moved) => moved,
            // Without a segment of its own it can't free any: only a checkpoint can.
            Err(error) if error.kind == Kind::Busy => {
                cleaner.groups.checkpoint_wanted.store(true, Ordering::Release);
                starved = true;
                0
            }
            // Out of memory for a moment, or a disk has failed; whatever else fails has stopped the log.
            Err(error) => {
                assert!(error.kind != Kind::Invalid, "a slice is what can be moved: {error}");
                0
            }
        };
        let waits_ns = turn.and_then(Result::err);
        drop(step);
        cleaner.moved_blocks += moved;
        let admitted = cleaner.client_blocks();
        let rests = pace.state == Doing::Idle && admitted == admitted_before;
        admitted_before = admitted;
        // A slice of dead blocks alone takes no time: others must get their turn all the same.
        let pause_ns = match waits_ns {
            _ if rests || starved => REST_NS,
            // It looks again soon: clients may have come back.
            Some(wait_ns) => wait_ns.clamp(PAUSE_NS_MIN, LOOK_NS),
            None => pace.pause_ns.max(PAUSE_NS_MIN),
        };
        cleaner.groups.store().runtime.clock.sleep(pause_ns).await;
    }
    if tier == Tier::Flash {
        cleaner.groups.store().space.set_pace(0, false);
    }
}

impl Groups {
    /// The status of the cleaner of the flash.
    pub fn cleaner(&self) -> Status {
        self.cleaner_of(Tier::Flash)
    }
    /// Blocks that were moved since start, within their tier or down.
    pub fn moved_blocks(&self) -> u64 {
        self.cleaners.lock().iter().map(|cleaner| cleaner.moved_blocks).sum::<u64>() + self.destaged_blocks()
    }
    /// Blocks that went down from flash to disks since start.
    pub fn destaged_blocks(&self) -> u64 {
        self.destage.figures(&self.store().runtime).blocks
    }
    /// Nanoseconds since start in which blocks were on their way down, or held back by the disks' cleaner.
    pub fn destage_ns(&self) -> u64 {
        self.destage.figures(&self.store().runtime).busy_ns
    }
    /// The status of a tier's cleaner.
    pub fn cleaner_of(&self, tier: Tier) -> Status {
        self.cleaners.lock()[tier as usize]
    }
}

impl Cleaner {
    /// Takes one step of the controller.
    fn look(&mut self) -> Pace {
        let store = self.groups.store().clone();
        if self.tier == Tier::Flash {
            store.free_unread();
            if store.release_held_back() {
                self.groups.checkpoint_wanted.store(true, Ordering::Release);
            }
            self.note_destaged();
        }
        let ended = self.groups.checkpoints();
        // A checkpoint that began after the last move finds them empty: at the latest the second to end since.
        self.emptied.retain(|(segment, at)| ended < at + 2 && store.is_live(*segment));
        self.parted.retain(|(_, at)| ended < at + 2);
        let now_ns = store.runtime.clock.now_ns();
        self.pins.follow(self.groups.wishes.changes(), now_ns);
        let space = store.segments_of(self.tier);
        let copies = match self.tier {
            Tier::Flash => store.copies.segments(now_ns),
            Tier::Disk => Default::default(),
        };
        let prepared = if self.tier == Tier::Flash { store.log.prepared() as u32 } else { 0 };
        let free = (space.free_segments as u32 + prepared + copies.held).min(space.segments as u32);
        let emptied = space.emptied_segments as u32 + self.emptied.len() as u32;
        self.choose_all((ended, now_ns), free, emptied);
        let destaged = self.tiering.map(|_| self.destaged());
        let sight = Sight {
            now_ns,
            free,
            for_copies: copies.wanted,
            emptied,
            segments: space.segments as u32,
            client_blocks: self.client_blocks(),
            moved_blocks: self.moved_blocks,
            victim: self.choice.choice.mean(),
            surplus_blocks: self.choice.choice.surplus_blocks(),
            destaged,
        };
        let pace = self.controller.step(&sight);
        self.pass_on(&pace);
        pace
    }

    /// Passes the controller's decisions on to others.
    fn pass_on(&self, pace: &Pace) {
        let store = self.groups.store();
        match self.tier {
            Tier::Flash => {
                self.groups.destage.set_rate(pace.destage_rate, pace.state == Doing::Ahead);
                // What is on its way to a disk will come free, however long that takes.
                let is_under_way = self.groups.destage.is_under_way() || !self.parted.is_empty();
                let may_unpin = self.tiering.is_some_and(|tiering| tiering.goes_down()) && self.pins.any();
                let full = pace.state == Doing::Full && !is_under_way && !may_unpin;
                store.space.set_pace(pace.client_delay_ns, !full);
                if full {
                    // Who waits for a segment must hear that none will come.
                    store.log.segment_wanted.notify();
                }
            }
            Tier::Disk => self.groups.destage.set_delay(pace.client_delay_ns),
        }
        if pace.checkpoint {
            self.groups.checkpoint_wanted.store(true, Ordering::Release);
        }
        self.groups.cleaners.lock()[self.tier as usize] = Status {
            state: Some(pace.state),
            client_delay_ns: pace.client_delay_ns,
            moved_blocks: self.moved_blocks,
            emptied_segments: self.emptied_segments,
            damaged_segments: self.damaged.len() as u64,
            pinned_blocks: self.pins.blocks(),
        };
    }

    /// Chooses victims where that is due.
    fn choose_all(&mut self, (ended, now_ns): (u64, u64), free: u32, emptied: u32) {
        let tiering = self.tiering();
        if std::mem::replace(&mut self.tiering, tiering).is_some() && tiering.is_none() {
            // The last disk failed, or leaves: what was chosen for it, or left to it, is to be had in another way.
            self.down = Chosen::default();
            self.groups.destage.abandon();
        }
        let wanted = (now_ns, self.groups.cleaner_of(self.tier).state != Some(Doing::Idle));
        if self.choice.is_due(ended, wanted) && self.victim.is_none() {
            self.choice = self.choose_staying(ended, tiering);
        }
        let pressed = self.is_pressed(free);
        self.look_for_pins(ended, free, free + emptied);
        if self.down.is_due(ended, wanted) || pressed && self.down.choice.is_empty() && !self.down.pressed {
            self.down = match &tiering {
                Some(tiering) => self.choose_down(ended, tiering, pressed),
                None => Chosen { at: Some(ended), at_ns: now_ns, ..Chosen::default() },
            };
        }
        if self.is_pressed(free) && self.down.pressed && self.down.choice.is_empty() && self.pins.any() {
            self.choice = self.choose_staying(ended, tiering.map(|tiering| tiering.fuller()));
        }
    }

    /// Blocks written so far by those whom this tier's cleaner must keep pace with: the clients, or the destage.
    fn client_blocks(&self) -> u64 {
        match self.tier {
            Tier::Flash => self.groups.store().space.written_blocks(),
            Tier::Disk => self.groups.destage.written_blocks(),
        }
    }

    /// Takes over what the destage has emptied, and what it could not read.
    fn note_destaged(&mut self) {
        for (segment, _) in self.groups.destage.take_emptied() {
            match self.parts.remove(&segment) {
                true => self.parted.push((segment, self.groups.checkpoints())),
                false => self.note_emptied(segment),
            }
        }
        // Others have left it, with a block that could not be moved.
        self.parts.retain(|segment| self.groups.destage.contains(*segment));
        self.damaged.extend(self.groups.destage.take_damaged());
    }

    fn note_emptied(&mut self, segment: SegmentId) {
        self.emptied.push((segment, self.groups.checkpoints()));
        self.emptied_segments += 1;
    }

    fn choose(&mut self, ended: u64, choose: impl FnOnce(&[Candidate], usize) -> Choice) -> Chosen {
        let mut candidates = self.groups.store().cleanable(self.tier);
        let busy = |segment: &SegmentId| {
            self.damaged.contains(&(*segment, self.life(*segment)))
                || self.emptied.iter().chain(&self.parted).any(|(moved, _)| moved == segment)
                || self.victim.as_ref().is_some_and(|victim| victim.segment == *segment)
                || self.choice.choice.contains(*segment)
                || self.down.choice.contains(*segment)
                || self.tier == Tier::Flash && self.groups.destage.contains(*segment)
        };
        candidates.retain(|candidate| !busy(&candidate.segment));
        let groups = &self.groups;
        self.pins.tell(&mut candidates, |segment| groups.store().life(segment));
        let choice = choose(&candidates, self.controller.thresholds().victims_max());
        Chosen { choice, at: Some(ended), at_ns: groups.store().runtime.clock.now_ns(), ..Chosen::default() }
    }
    fn choose_staying(&mut self, ended: u64, tiering: Option<Tiering>) -> Chosen {
        self.choose(ended, |candidates, max| match &tiering {
            Some(tiering) => Choice::staying(candidates, max, tiering),
            None => Choice::new(candidates, max),
        })
    }
    /// True if few segments are free and nothing is to be gained within flash.
    fn is_pressed(&self, free: u32) -> bool {
        let stays = self.victim.is_some() || !self.choice.choice.is_empty();
        free <= self.controller.thresholds().low && !stays
    }
    /// Decides whether what is pinned goes down: once room is short and a checkpoint has not shown anything else to be gained, and until
    /// room is short no more.
    fn look_for_pins(&mut self, ended: u64, free: u32, reclaimable: u32) {
        let marks = self.controller.thresholds();
        if free > marks.target {
            self.unpinning = false;
        }
        let is_held = reclaimable <= marks.low && self.is_pressed(free) && self.down.choice.is_empty();
        self.held_at = self.held_at.filter(|_| is_held).or(is_held.then_some(ended));
        // The second to end since has begun since.
        self.unpinning |= self.held_at.is_some_and(|at| ended >= at + 2);
    }
    /// Chooses victims that go down. While nothing is to be had in a better way, those that are not old go down too; as the last
    /// resort, what is pinned.
    fn choose_down(&mut self, ended: u64, tiering: &Tiering, pressed: bool) -> Chosen {
        let pressing = [*tiering, tiering.pressed(), tiering.pressed().unpinned()];
        let steps = 1 + usize::from(pressed) + usize::from(pressed && self.unpinning);
        let mut down = Chosen::default();
        for tiering in &pressing[..steps] {
            down = self.choose(ended, |candidates, max| Choice::destaged(candidates, max, tiering));
            down.unpinned = !tiering.pins_hold();
            if !down.choice.is_empty() {
                break;
            }
        }
        Chosen { pressed, ..down }
    }
    /// The measurements of the destage.
    fn destaged(&self) -> Destaged {
        let figures = self.groups.destage.figures(&self.groups.store().runtime);
        Destaged { victim: self.down.choice.mean(), ..figures }
    }
    /// The state of both tiers that decides what goes down; None if nothing can.
    fn tiering(&self) -> Option<Tiering> {
        let store = self.groups.store();
        if self.tier == Tier::Disk || store.roomiest_disk().is_none() {
            return None;
        }
        let held = |tier| {
            let space = store.segments_of(tier);
            let blocks = space.segments * (store.segment_bytes() / BLOCK_BYTES as u64);
            // Segments for which the host has no room hide, with what lives in them.
            Held { segments: space.segments as u32, live: space.live_blocks.min(blocks), blocks }
        };
        let state = self.groups.cleaner_of(Tier::Disk).state.unwrap_or(Doing::Idle);
        Some(Tiering::new(held(Tier::Flash), held(Tier::Disk), state))
    }

    fn life(&self, segment: SegmentId) -> Life {
        self.groups.store().life(segment)
    }

    /// Moves up to `blocks` blocks. Returns the number of copies that count.
    async fn work(&mut self, blocks: u32) -> Result<u64> {
        self.let_join().await?;
        if blocks == 0 {
            return Ok(0);
        }
        if self.victim.is_none() {
            self.take_victim().await?;
        }
        let Some(victim) = self.victim.as_mut() else { return Ok(0) };
        assert!(victim.next <= victim.entries.len(), "a victim is done once all of it was looked at");
        let until = (victim.next + blocks as usize).min(victim.entries.len());
        let slice = victim.entries[victim.next..until].to_vec();
        let (segment, life, last) = (victim.segment, victim.life, until == victim.entries.len());
        let (one, other) = match self.tier {
            Tier::Flash => slice.split_at(slice.len().min(PART_BLOCKS)),
            // A disk is not asked for two things at the same time: it would go back and forth between them.
            Tier::Disk => (&slice[..], &[][..]),
        };
        let part = |entries| move_blocks((&self.groups, self.tier), (segment, life), entries);
        let (one, other) = both(part(one), part(other)).await;
        let moved = match (one, other) {
            (Ok(one), Ok(other)) => Ok(one + other),
            (Err(error), moved) | (moved, Err(error)) => {
                self.moved_blocks += moved.unwrap_or(0);
                Err(error)
            }
        };
        match &moved {
            Err(error) if error.kind == Kind::Corrupt => {
                self.damaged.push((segment, life));
                self.victim = None;
            }
            Err(_) => {}
            Ok(_) if last => {
                self.victim = None;
                self.note_emptied(segment);
                self.choice.choice.note_emptied(segment);
            }
            Ok(_) => self.victim.as_mut().expect("it is being emptied").next = until,
        }
        moved
    }
}

impl Cleaner {
    /// Takes the next victim whose blocks stay on their tier. One with blocks that belong on disk is destaged first, as far as these
    /// are concerned, if there is room for it in the batch.
    async fn take_victim(&mut self) -> Result<()> {
        let Some(segment) = self.choice.take() else { return Ok(()) };
        let Some((life, mut entries, _bitmap)) = self.entries_of(segment).await? else { return Ok(()) };
        if self.tiering.is_some_and(|tiering| tiering.goes_down()) {
            let down = self.groups.take_hinted(&mut entries, TierHint::Disk).await;
            let max = self.controller.thresholds().batch_max();
            if !down.is_empty() && self.groups.destage.wants(down.len() as u32, max) {
                self.join((segment, life), down, !entries.is_empty());
                return Ok(());
            }
            entries.extend(down);
        }
        entries.sort_by_key(|entry| entry.block);
        self.victim = Some(Victim { segment, life, entries, next: 0, _bitmap });
        Ok(())
    }
    /// Lets victims join the destage, as soon as it wants them. What is pinned in them stays on flash.
    async fn let_join(&mut self) -> Result<()> {
        let max = self.controller.thresholds().batch_max();
        while self.down.choice.peek().is_some_and(|(_, live)| self.groups.destage.wants(live, max)) {
            let Some(segment) = self.down.take() else { break };
            let Some((life, mut entries, _)) = self.entries_of(segment).await? else { continue };
            let pinned = self.groups.take_hinted(&mut entries, TierHint::Flash).await;
            if self.down.unpinned {
                self.groups.wishes.note_unpinned(pinned.len());
                entries.extend(pinned);
                self.join((segment, life), entries, false);
                continue;
            }
            let (blocks, count) = (self.groups.store().segment_bytes() / BLOCK_BYTES as u64, pinned.len() as u32);
            self.pins.note(segment, life, count);
            if !self.tiering.is_some_and(|tiering| tiering.is_held(blocks as u32, count)) {
                self.join((segment, life), entries, count > 0);
            }
        }
        Ok(())
    }
    /// Lets blocks of a victim join the destage; `part`: it has others, which stay.
    fn join(&mut self, (segment, life): (SegmentId, Life), entries: Vec<SummaryEntry>, part: bool) {
        match (entries.is_empty(), part) {
            // All of it is pinned: the next choice knows.
            (true, true) => {}
            (true, false) => self.note_emptied(segment),
            (false, part) => {
                self.groups.destage.join(segment, life, entries);
                if part {
                    self.parts.insert(segment);
                }
            }
        }
    }
    /// The life and the live blocks of a segment that was chosen; None if it was freed since, or its summary is damaged.
    async fn entries_of(&mut self, segment: SegmentId) -> Result<Option<(Life, Vec<SummaryEntry>, Option<Hold>)>> {
        let groups = self.groups.clone();
        let _pin = groups.store().pin();
        let Some(life) = groups.store().sealed_life(segment) else { return Ok(None) };
        match groups.store().hold_live_of((segment, life)).await {
            Ok((entries, bitmap)) => Ok(Some((life, entries, bitmap))),
            Err(error) if error.kind == Kind::Corrupt => {
                self.damaged.push((segment, life));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies blocks of a segment to the cold stream of a tier and has their owners take the copies. Returns the number that
/// counts. Errors: `Corrupt` if a block still in use differs from its checksum; `NoSpace`, `Io`.
pub(super) async fn move_blocks(
    (groups, tier): (&Groups, Tier),
    victim: (SegmentId, Life),
    entries: &[SummaryEntry],
) -> Result<u64> {
    let segment = victim.0;
    let (live, copies) = {
        // Let go before anything waits for a segment: freed ones wait for readers.
        let _pin = groups.store().pin();
        let live = still_there(groups, victim, entries).await?;
        if live.is_empty() {
            return Ok(0);
        }
        let mut copies = Vec::new();
        // A buffer holds no more.
        for piece in live.chunks(usize::from(RUN_BLOCKS_MAX)) {
            copies.push(read_blocks(groups, segment, piece).await?);
        }
        (live, copies)
    };
    let (stream, tickets) = place(groups, tier, copies).await?;
    let places = tickets.iter().zip(live.chunks(usize::from(RUN_BLOCKS_MAX)));
    let places = places.flat_map(|(ticket, piece)| places_of(ticket, piece.len()));
    let moved = order_all(groups, live.iter().map(|entry| (victim, entry)), places).await;
    for ticket in tickets {
        match &stream {
            Some(stream) => stream.close(ticket),
            None => groups.store().cold.close(ticket),
        }
    }
    moved
}

/// Writes copies to a tier's cold stream; on disk durably, to the one with most room. Returns the disk's stream, and a ticket
/// for each copy.
async fn place(groups: &Groups, tier: Tier, mut copies: Vec<Slice>) -> Result<(Option<Arc<Bulk>>, Vec<Ticket>)> {
    if tier == Tier::Flash {
        assert!(copies.len() == 1, "a slice of flash fits into a buffer");
        let copy = copies.pop().expect("just seen");
        return Ok((None, vec![groups.store().cold.place(copy).await?]));
    }
    let stream =
        groups.store().roomiest_disk().ok_or_else(|| base::Error::new(Kind::Busy, "no disk takes anything"))?;
    let tickets = stream.place_durably(copies).await?;
    Ok((Some(stream), tickets))
}

/// The blocks that their owners still map to this place.
async fn still_there(
    groups: &Groups,
    victim: (SegmentId, Life),
    entries: &[SummaryEntry],
) -> Result<Vec<SummaryEntry>> {
    let mut there = Vec::with_capacity(entries.len());
    for entry in entries {
        if is_still_there(groups, victim, entry).await? {
            there.push(*entry);
        }
    }
    Ok(there)
}

/// True if its owner still maps a block to this place.
pub(super) async fn is_still_there(groups: &Groups, victim: (SegmentId, Life), entry: &SummaryEntry) -> Result<bool> {
    if !groups.hosts(entry.group) {
        return Ok(false);
    }
    let source = source_of(victim, entry);
    loop {
        let known = is_there(groups, &mut groups.state(entry.group).state.lock(), entry.volume, &source);
        match known {
            Some(is_there) => return Ok(is_there),
            None => groups.load(entry.volume, vec![leaf_of(&source)], None).await?,
        }
    }
}

/// Reads the blocks, one after the other, and compares each with its checksum.
async fn read_blocks(groups: &Groups, segment: SegmentId, entries: &[SummaryEntry]) -> Result<Slice> {
    let store = groups.store();
    let mut copy = store.runtime.buffer(entries.len() * BLOCK_BYTES)?;
    let mut at = 0;
    let place = |entry: &SummaryEntry| Place { segment, block: entry.block };
    let together = near::together(entries, place, GAP_BLOCKS_MAX);
    for run in together.flat_map(|together| near::transfers(together, place)) {
        let first = run[0].block;
        let count = run[run.len() - 1].block - first + 1;
        let buffer = store.runtime.buffer(usize::from(count) * BLOCK_BYTES)?;
        let (buffer, result) = store.read(runtime::Purpose::Cleaner, Place { segment, block: first }, buffer).await;
        result?;
        for entry in run {
            let from = usize::from(entry.block - first) * BLOCK_BYTES;
            let block = &buffer[from..from + BLOCK_BYTES];
            store::verify(block, std::iter::once(entry.crc)).map_err(|_| {
                let error = base::Error::new(Kind::Corrupt, "a block differs from its checksum; restore the file");
                error.with(format!("segment {segment} block {}", entry.block))
            })?;
            copy[at..at + BLOCK_BYTES].copy_from_slice(block);
            at += BLOCK_BYTES;
        }
    }
    assert!(at == entries.len() * BLOCK_BYTES, "each of {} blocks is copied", entries.len());
    Ok(copy.share().slice(0..at))
}
