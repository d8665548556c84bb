//! Destage: cold blocks of flash go down to the disks. The cleaner of the flash lets victims join; a task for each disk takes
//! runs from all of them, in the order of files, copies them and lets each block's owner decide whether the copy counts
//! (rule K2), as cleaning does. Promises: a copy is durable before its move is ordered; a disk is never read for it; a disk
//! that fails or fills leaves the blocks where they are. Absent by design: what goes down and how fast
//! (`store::cleaner`).

use crate::Groups;
use crate::agents::clean::{is_still_there, run as clean};
use crate::agents::moves::{order_all, places_of};
use crate::data::near;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Kind, Life, Place, Result, SegmentId};
use runtime::budget::Agent;
use runtime::tasks::both;
use runtime::{Lock, Purpose, Runtime, Slice, Start, Transfer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::bulk::{Bulk, Ticket};
use store::cleaner::{BATCH_BYTES_MAX, Batch, Destaged, RUN_BLOCKS, Survivor, Thresholds, run_ns};
use store::format::devices::Tier;
use store::format::summary::SummaryEntry;

/// Runs that a disk is given at once: so it always has the next one, and flushes once for 8 MiB.
const RUNS: usize = 8;
/// Pause while there is nothing to do.
const REST_NS: u64 = 50_000_000;
/// Pause between attempts to get a segment of a disk.
const RETRY_NS: u64 = 5_000_000;
/// Attempts after which runs stay on flash: a second.
const RETRIES_MAX: u32 = 200;
const _: () = assert!(RUN_BLOCKS * BLOCK_BYTES <= IO_BYTES_MAX);

/// Blocks on their way to disks.
pub(crate) struct Destage {
    state: Lock<State>,
}

struct State {
    batch: Batch,
    /// Blocks per second that the flash's controller allows, and whether that is ahead of time.
    rate: u64,
    is_ahead: bool,
    /// Nanoseconds per block that the disk's controller asks for.
    delay_ns: u64,
    /// The time at which the last runs began, and their blocks.
    began_ns: u64,
    blocks: u64,
    /// Disks whose tasks have been started.
    started: usize,
    written_blocks: u64,
    counted_blocks: u64,
    /// Time in which a run was under way, without the present one, and the time since which one is, or none is.
    busy_ns: u64,
    under_way: u32,
    since_ns: u64,
    emptied: Vec<(SegmentId, Life)>,
    damaged: Vec<(SegmentId, Life)>,
}

impl State {
    /// Counts the time as busy for which the disk's controller has held back the runs that begin now.
    fn note_held(&mut self, now_ns: u64) {
        let until_ns = self.began_ns.saturating_add(self.blocks.saturating_mul(self.delay_ns)).min(now_ns);
        if self.under_way == 0 {
            self.busy_ns += until_ns.saturating_sub(self.since_ns);
        }
    }
}

/// A run that was read.
struct Run {
    all: Vec<Survivor>,
    live: Vec<Survivor>,
    copy: Option<Slice>,
}

impl Destage {
    pub fn new() -> Destage {
        let state = State {
            batch: Batch::new(BATCH_BYTES_MAX),
            rate: 0,
            is_ahead: false,
            delay_ns: 0,
            began_ns: 0,
            blocks: 0,
            started: 0,
            written_blocks: 0,
            counted_blocks: 0,
            busy_ns: 0,
            under_way: 0,
            since_ns: 0,
            emptied: Vec::new(),
            damaged: Vec::new(),
        };
        Destage { state: Lock::new("destage", state) }
    }
    /// True if a victim of so many live blocks should join now.
    pub fn wants(&self, live: u32, victims_max: usize) -> bool {
        self.state.lock().batch.wants(live, victims_max)
    }
    /// A victim of flash joins.
    pub fn join(&self, segment: SegmentId, life: Life, entries: Vec<SummaryEntry>) {
        self.state.lock().batch.join(segment, life, entries);
    }
    /// True if a segment is being emptied here.
    pub fn contains(&self, segment: SegmentId) -> bool {
        self.state.lock().batch.contains(segment)
    }
    /// No disk takes blocks any more: all victims leave.
    pub fn abandon(&self) {
        self.state.lock().batch.clear();
    }
    /// True if something is on its way.
    pub fn is_under_way(&self) -> bool {
        let state = self.state.lock();
        state.batch.left() > 0 || state.under_way > 0
    }
    /// Segments that were emptied since the last call.
    pub fn take_emptied(&self) -> Vec<(SegmentId, Life)> {
        std::mem::take(&mut self.state.lock().emptied)
    }
    /// Segments with blocks that can't be read, found since the last call.
    pub fn take_damaged(&self) -> Vec<(SegmentId, Life)> {
        std::mem::take(&mut self.state.lock().damaged)
    }
    /// Takes the decision of the flash's controller, in blocks per second. `is_ahead`: while clients rest, and no space depends on it.
    pub fn set_rate(&self, rate: u64, is_ahead: bool) {
        let mut state = self.state.lock();
        (state.rate, state.is_ahead) = (rate, is_ahead);
    }
    /// True if it works ahead of time, or is about to.
    fn is_ahead(&self) -> bool {
        let state = self.state.lock();
        state.is_ahead && state.rate > 0 && state.batch.left() > 0
    }
    /// Takes the decision of the disk's controller, in nanoseconds per block.
    pub fn set_delay(&self, delay_ns: u64) {
        self.state.lock().delay_ns = delay_ns;
    }
    /// Blocks written to disks since start.
    pub fn written_blocks(&self) -> u64 {
        self.state.lock().written_blocks
    }
    /// The measurements that the flash's controller sees.
    pub fn figures(&self, runtime: &Runtime) -> Destaged {
        let now_ns = runtime.clock.now_ns();
        let state = self.state.lock();
        let present_ns = if state.under_way > 0 { now_ns.saturating_sub(state.since_ns) } else { 0 };
        Destaged {
            blocks: state.counted_blocks,
            victim: None,
            busy_ns: state.busy_ns + present_ns,
            left_blocks: state.batch.left() as u64,
        }
    }

    /// The next runs, `runs_max` at most, if their turn has come, and how long to wait for it otherwise.
    fn take_runs(&self, now_ns: u64, runs_max: usize) -> (Vec<Vec<Survivor>>, u64) {
        let mut state = self.state.lock();
        let Some(run_ns) = run_ns(state.blocks, state.rate, state.delay_ns) else { return (Vec::new(), REST_NS) };
        let turn_ns = state.began_ns.saturating_add(run_ns);
        if turn_ns > now_ns {
            return (Vec::new(), (turn_ns - now_ns).min(REST_NS));
        }
        let mut runs = Vec::with_capacity(runs_max);
        while runs.len() < runs_max
            && let Some(run) = state.batch.next_run(RUN_BLOCKS)
        {
            runs.push(run);
        }
        if !runs.is_empty() {
            state.note_held(now_ns);
            state.began_ns = now_ns;
            state.blocks = runs.iter().map(|run| run.len() as u64).sum();
        }
        (runs, REST_NS)
    }
    fn begin(&self, now_ns: u64) {
        let mut state = self.state.lock();
        if state.under_way == 0 {
            state.since_ns = now_ns;
        }
        state.under_way += 1;
    }
    fn end(&self, now_ns: u64) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            state.busy_ns += now_ns.saturating_sub(state.since_ns);
            state.since_ns = now_ns;
        }
    }
    /// Blocks of runs stay where they are: their segments leave, and may be chosen again.
    fn give_up<'a>(&self, runs: impl Iterator<Item = &'a Survivor>) {
        let mut state = self.state.lock();
        runs.for_each(|survivor| state.batch.remove(survivor));
    }
}

/// Runs that a disk is given at once by the memory that is reserved for the program's own work: a quarter of it holds those that
/// are written, those that are read meanwhile, and what one of them is read into. The log needs the rest.
fn runs_max(own_bytes: u64) -> usize {
    let runs = (own_bytes / 4 / IO_BYTES_MAX as u64).saturating_sub(1) / 2;
    (runs as usize).clamp(1, RUNS)
}

/// Starts what a brick's disks need, once each: a task that writes to it, and with the first one the disk tier's cleaner.
pub fn begin(groups: &Arc<Groups>) {
    let streams = groups.store().destage();
    let started = std::mem::replace(&mut groups.destage.state.lock().started, streams.len());
    let tasks = &groups.store().runtime.tasks;
    if started == 0 && !streams.is_empty() {
        let there = groups.clone();
        tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(clean(there, Tier::Disk))));
    }
    for stream in streams.into_iter().skip(started) {
        let there = groups.clone();
        tasks.spawn(tasks.cores() - 1, Box::new(move || Box::pin(run(there, stream))));
    }
}

/// The task of a disk. Ends when the groups close, the log fails, or the disk does.
async fn run(groups: Arc<Groups>, stream: Arc<Bulk>) {
    let runs_max = runs_max(groups.store().runtime.slabs.own_bytes_max());
    let mut ready = Vec::new();
    while !groups.closing.load(Ordering::Acquire) && groups.store().log.failed().is_none() {
        if !stream.takes_more() {
            break;
        }
        let Some(step) = groups.begin_step() else { break };
        let clock = groups.store().runtime.clock.clone();
        // What is done ahead of time draws from the budget of background work.
        let turn = groups.destage.is_ahead().then(|| groups.store().runtime.begin_slice(Agent::Destage));
        let (runs, rest_ns) = match &turn {
            Some(Err(wait_ns)) => (Vec::new(), (*wait_ns).min(REST_NS)),
            _ => groups.destage.take_runs(clock.now_ns(), runs_max),
        };
        let idle = runs.is_empty() && ready.is_empty();
        if !idle {
            groups.destage.begin(clock.now_ns());
            let present = std::mem::take(&mut ready);
            let write = async {
                write(&groups, &stream, present).await;
                Vec::new()
            };
            // The disk writes while the next runs are read from flash.
            (ready, _) = both(read(&groups, runs), write).await;
            groups.destage.end(clock.now_ns());
        }
        drop(turn);
        drop(step);
        if idle {
            clock.sleep(rest_ns).await;
        }
    }
    let left: Vec<Run> = ready;
    groups.destage.give_up(left.iter().flat_map(|run| &run.all));
}

/// Reads runs from flash. Blocks that their owners no longer map there are left out, and segments with a block that can't be
/// read leave.
async fn read(groups: &Groups, runs: Vec<Vec<Survivor>>) -> Vec<Run> {
    let mut all = Vec::with_capacity(runs.len());
    for run in runs {
        // Let go before anything waits for a segment: freed ones wait for readers.
        let _pin = groups.store().pin();
        let mut live = Vec::with_capacity(run.len());
        for survivor in &run {
            // What can't be looked up now is looked up again when its segment is chosen again.
            match is_still_there(groups, (survivor.segment, survivor.life), &survivor.entry).await {
                Ok(true) => live.push(*survivor),
                Ok(false) => {}
                Err(_) => groups.destage.give_up(std::iter::once(survivor)),
            }
        }
        let copy = read_blocks(groups, &mut live).await;
        all.push(Run { all: run, live, copy });
    }
    all
}

/// Reads blocks that may lie anywhere, all at once, and compares each with its checksum. Those that differ or can't be read are
/// taken out of `live`; without memory for the moment all are, and their segments leave. None if nothing is left.
async fn read_blocks(groups: &Groups, live: &mut Vec<Survivor>) -> Option<Slice> {
    if live.is_empty() {
        return None;
    }
    let store = groups.store();
    let Ok(mut copy) = store.runtime.buffer(live.len() * BLOCK_BYTES) else {
        groups.destage.give_up(live.iter());
        live.clear();
        return None;
    };
    let mut order: Vec<usize> = (0..live.len()).collect();
    order.sort_unstable_by_key(|&at| (live[at].segment, live[at].entry.block));
    let place = |&at: &usize| Place { segment: live[at].segment, block: live[at].entry.block };
    let mut begun: Vec<(&[usize], Result<Transfer>)> = Vec::new();
    for together in near::together(&order, place, 0) {
        let first = place(&together[0]);
        let buffer = store.runtime.buffer(together.len() * BLOCK_BYTES);
        let read = buffer.and_then(|buffer| store.begin_read_for(Purpose::Cleaner, first, buffer, Start::AtOnce));
        begun.push((together, read));
    }
    let mut bad = Vec::new();
    for (together, read) in begun {
        let done = match read {
            Ok(transfer) => transfer.await,
            Err(_) => {
                bad.extend(together.iter().map(|&at| (at, false)));
                continue;
            }
        };
        let bytes = done.buffer.filter(|_| done.result.is_ok());
        for (number, &at) in together.iter().enumerate() {
            let block = bytes.as_ref().map(|bytes| &bytes[number * BLOCK_BYTES..][..BLOCK_BYTES]);
            match block.filter(|block| store::verify(block, std::iter::once(live[at].entry.crc)).is_ok()) {
                Some(block) => copy[at * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(block),
                None => bad.push((at, true)),
            }
        }
    }
    drop(order);
    leave_out(groups, (live, &mut copy), bad);
    let length = live.len() * BLOCK_BYTES;
    (length > 0).then(|| copy.share().slice(0..length))
}

/// Takes blocks out of a run; their segments leave it too, those that are damaged for good.
fn leave_out(groups: &Groups, (live, copy): (&mut Vec<Survivor>, &mut [u8]), mut bad: Vec<(usize, bool)>) {
    bad.sort_unstable();
    for &(at, damaged) in bad.iter().rev() {
        let survivor = live.remove(at);
        copy.copy_within((at + 1) * BLOCK_BYTES.., at * BLOCK_BYTES);
        let mut state = groups.destage.state.lock();
        state.batch.remove(&survivor);
        let one = (survivor.segment, survivor.life);
        if damaged && !state.damaged.contains(&one) {
            state.damaged.push(one);
        }
    }
}

/// Writes runs to a disk, durably, and has the owners of their blocks take the copies.
async fn write(groups: &Groups, stream: &Arc<Bulk>, runs: Vec<Run>) {
    let copies: Vec<Slice> = runs.iter().filter_map(|run| run.copy.clone()).collect();
    let tickets = match place(groups, stream, copies).await {
        Ok(tickets) => tickets,
        Err(_) => return groups.destage.give_up(runs.iter().flat_map(|run| &run.all)),
    };
    let mut tickets = tickets.into_iter();
    for run in &runs {
        let ticket = run.copy.as_ref().map(|_| tickets.next().expect("a ticket for each copy"));
        let moved = match &ticket {
            Some(ticket) => {
                let blocks = run.live.iter().map(|survivor| ((survivor.segment, survivor.life), &survivor.entry));
                order_all(groups, blocks, places_of(ticket, run.live.len())).await
            }
            None => Ok(0),
        };
        ticket.into_iter().for_each(|ticket| stream.close(ticket));
        match moved {
            Ok(count) => {
                let mut state = groups.destage.state.lock();
                state.counted_blocks += count;
                let emptied = state.batch.note_moved(&run.all);
                state.emptied.extend(emptied);
            }
            Err(_) => groups.destage.give_up(run.all.iter()),
        }
    }
}

/// Writes copies durably once the disk has a segment for them. Its own cleaner keeps what it needs to free others. Errors: those
/// of the disk; `Busy` if it has had no segment for a second.
async fn place(groups: &Groups, stream: &Arc<Bulk>, copies: Vec<Slice>) -> Result<Vec<Ticket>> {
    let store = groups.store();
    let blocks: usize = copies.iter().map(|copy| copy.len() / BLOCK_BYTES).sum();
    if copies.is_empty() {
        return Ok(Vec::new());
    }
    let mut tries = 0;
    loop {
        let space = store.segments_of(Tier::Disk);
        let floor = u64::from(Thresholds::new(space.segments as u32).floor);
        let placed = match space.free_segments > floor {
            true => stream.place_durably(copies.clone()).await,
            false => Err(base::Error::new(Kind::Busy, "the disk tier has no segment to spare")),
        };
        match placed {
            Ok(tickets) => {
                groups.destage.state.lock().written_blocks += blocks as u64;
                return Ok(tickets);
            }
            Err(error) if error.kind == Kind::Busy && tries < RETRIES_MAX => tries += 1,
            Err(error) => return Err(error),
        }
        if groups.closing.load(Ordering::Acquire) {
            return Err(base::Error::new(Kind::Interrupted, "the brick is being closed"));
        }
        store.runtime.clock.sleep(RETRY_NS).await;
    }
}
