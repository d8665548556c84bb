//! The tasks that perform the log's writes and flushes: a few long-lived ones per core. A request that finds the log
//! idle wakes one of its own core, so that the batch is submitted, completed and acknowledged without a change of
//! thread.

use super::build::Batch;
use super::core::Flush;
use super::{Log, State, Waiter};
use base::limits::DURABLE_WITHIN_NS;
use base::{Error, Kind, Result};
use runtime::ledger::Phases;
use runtime::seeded::{Bug, active};
use runtime::{Lapse, Purpose, Request, disk};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

/// Largest number of transfers under way: the writes of batches, and a flush.
pub const UNDER_WAY_MAX: usize = super::WRITING_MAX + 1;
/// Number of writer tasks per core: one for each transfer that may be under way.
const WRITERS: usize = UNDER_WAY_MAX;
/// Interval between checks for unsynced changes: they must be durable within `DURABLE_WITHIN_NS`, flush included.
const TICK_NS: u64 = DURABLE_WITHIN_NS / 8;
/// A change waits for two looks at most before its write begins, and the flush must end in time.
const _: () = assert!(3 * TICK_NS < DURABLE_WITHIN_NS);

enum Job {
    Write { batch: Batch, fua: bool, since_ns: u64 },
    Flush { flush: Flush, since_ns: u64 },
    End,
}

impl Log {
    /// The time by the clock since when the oldest write or flush that is not done yet has been under way; None if there is none. A log
    /// that has failed may keep one for ever.
    pub fn oldest_pending_ns(&self) -> Option<u64> {
        self.state.lock().under_way.iter().min().copied()
    }
}

/// Starts the log's tasks on all cores.
pub fn start(log: &Arc<Log>) {
    let tasks = log.runtime.tasks.clone();
    for core in 0..tasks.cores() {
        for _ in 0..WRITERS {
            let log = log.clone();
            tasks.spawn(core, Box::new(move || Box::pin(writer(log, core))));
        }
    }
    let log = log.clone();
    tasks.spawn(0, Box::new(move || Box::pin(ticker(log))));
}

async fn writer(log: Arc<Log>, core: usize) {
    let mut woken = Vec::with_capacity(64);
    let mut flushes = Vec::with_capacity(8);
    loop {
        let job = std::future::poll_fn(|context| {
            let mut state = log.state.lock();
            match state.take_job(&log) {
                Some(job) => Poll::Ready(job),
                None => {
                    state.idle_writers[core].push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        match job {
            Job::Write { batch, fua, since_ns } => write(&log, batch, (fua, since_ns), &mut woken).await,
            Job::Flush { flush, since_ns } => perform_flush(&log, (flush, since_ns), &mut flushes, &mut woken).await,
            Job::End => return,
        }
        woken.drain(..).for_each(Waker::wake);
        log.drained.notify();
    }
}

async fn write(log: &Log, batch: Batch, (fua, since_ns): (bool, u64), woken: &mut Vec<Waker>) {
    let start = log.runtime.stamp();
    let Batch { number, file, offset, slices, bytes, .. } = batch;
    let (mut slices, result) =
        disk::write_for(Purpose::Log, &*log.runtime.disk, Request::Write { file, offset, slices, durable: fua }).await;
    let result = result.map_err(|error| error.with(format!("log batch {number}")));
    let held_bytes = super::held_bytes(&slices);
    slices.clear();
    finish(log, since_ns, result, woken, |state| {
        state.spare.push(slices);
        let pending_bytes = log.pending_bytes.fetch_sub(held_bytes, Ordering::AcqRel);
        assert!(pending_bytes >= held_bytes, "batch {number} lets go of what was counted when it was formed");
        state.figures.batches += 1;
        state.figures.bytes += bytes;
        state.figures.fua_batches += u64::from(fua);
        let ended = log.runtime.stamp();
        state.phases = Phases { write: ended.since(start), flush: Lapse::default(), ended };
        state.commit.written(number);
    });
}

async fn perform_flush(
    log: &Log,
    (flush, since_ns): (Flush, u64),
    flushes: &mut Vec<runtime::Transfer>,
    woken: &mut Vec<Waker>,
) {
    let start = log.runtime.stamp();
    let mut result = Ok(());
    let begin = |&file| log.runtime.disk.submit_for(Purpose::Log, Request::Flush { file });
    flushes.extend(flush.files.iter().map(begin));
    for flush in flushes.drain(..) {
        result = result.and(flush.await.result);
    }
    finish(log, since_ns, result.map_err(|error| error.with("log flush")), woken, |state| {
        state.figures.flushes += 1;
        state.phases.ended = log.runtime.stamp();
        state.phases.flush = state.phases.ended.since(start);
        state.commit.flushed();
        state.commit.reuse(flush.files);
    });
}

/// Applies a completion to the state and collects the waiters that can go on. A failed operation stops the log (rule
/// U4): what a failed flush should have made durable may be lost, even if a later flush of the same file succeeds. If
/// the log has failed already, the completion has no effect.
fn finish(log: &Log, since_ns: u64, result: Result<()>, woken: &mut Vec<Waker>, done: impl FnOnce(&mut State)) {
    if let Err(error) = result
        && !active(Bug::FailureForgotten)
    {
        return log.fail(error);
    }
    let mut state = log.state.lock();
    if state.failed.is_some() {
        return;
    }
    state.end_transfer(since_ns);
    done(&mut state);
    let positions = state.commit.positions();
    let before = log.written.swap(positions.written, Ordering::AcqRel);
    assert!(before <= positions.written, "what was written stays written");
    assert!(positions.written < state.next_number, "batch {} is not formed yet", positions.written);
    let early = active(Bug::AckBeforeFlush);
    let mut at = 0;
    while at < state.waiters.len() {
        let Waiter { batch, durable, .. } = state.waiters[at];
        let reached = if durable && !early { positions.durable } else { positions.written };
        if batch <= reached {
            woken.push(state.waiters.swap_remove(at).waker);
        } else {
            at += 1;
        }
    }
    if early {
        state.acknowledged_early = state.acknowledged_early.max(positions.written);
    }
    // If the next batch is due, another idle writer of this core takes it while this one wakes the waiters.
    woken.extend(state.writer(log.runtime.tasks.core()));
}

impl State {
    fn take_job(&mut self, log: &Log) -> Option<Job> {
        if self.failed.is_some() {
            return self.stopping.then_some(Job::End);
        }
        if let Some(flush) = self.commit.flush() {
            return Some(Job::Flush { flush, since_ns: self.begin_transfer(log) });
        }
        if self.commit.writing() < super::WRITING_MAX {
            if self.ready.is_empty() && self.building_is_due() {
                self.close_building(log);
            }
            if let Some(batch) = self.ready.pop_front() {
                assert!(batch.number < self.next_number, "a batch is closed before it is written");
                let fua = self.commit.submit(batch.number, batch.file, batch.wants_durable);
                return Some(Job::Write { batch, fua, since_ns: self.begin_transfer(log) });
            }
        }
        let idle = self.building.is_none() && !self.commit.has_undurable();
        (self.stopping && idle).then_some(Job::End)
    }
    /// Notes that a transfer begins. Returns its time, by which `end_transfer` finds it.
    fn begin_transfer(&mut self, log: &Log) -> u64 {
        let now_ns = log.runtime.clock.now_ns();
        self.under_way.push(now_ns);
        assert!(self.under_way.len() <= UNDER_WAY_MAX, "no more is under way than there is anybody to do");
        now_ns
    }
    fn end_transfer(&mut self, since_ns: u64) {
        let at = self.under_way.iter().position(|other| *other == since_ns);
        self.under_way.swap_remove(at.expect("a transfer ends once, after it began"));
    }
}

/// Makes unsynced changes durable in time (rule U3), and carries `durable_through` forward when the log is idle (L5).
async fn ticker(log: Arc<Log>) {
    let mut resting_at = 0;
    while !log.stopping() {
        log.runtime.clock.sleep(TICK_NS).await;
        let now_ns = log.runtime.clock.now_ns();
        let mut state = log.state.lock();
        if std::mem::take(&mut state.short_of_memory) {
            log.segment_came.notify();
        }
        if state.failed.is_some() {
            continue;
        }
        let last = state.next_number - u64::from(state.building.is_none());
        let building_since = state.building.as_ref().map(|building| building.since_ns);
        if building_since.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= TICK_NS)
            || (building_since.is_none() && (state.commit.has_undurable() || !state.ready.is_empty()))
        {
            state.want(last, !active(Bug::TimerForgotten));
        }
        let durable = state.commit.positions().durable;
        assert!(durable <= last, "batch {durable} is durable, and {last} the last");
        let resting = building_since.is_none() && durable == last && state.last_durable_stamp < durable;
        if resting && resting_at == last && !state.closing {
            // An error means that no buffer is left: the next tick tries again.
            let _ = state.open_empty(&log);
        }
        resting_at = last;
        drop(state);
        log.kick(false);
    }
}

/// Flushes every file, outside the log's order: recovery makes the state that it has found durable before anything is
/// written that relies on that state.
pub async fn flush_all(log_runtime: &runtime::Runtime, files: &[runtime::FileId]) -> Result<()> {
    for &file in files {
        let flushed = disk::flush(&*log_runtime.disk, file).await;
        flushed.map_err(|error| Error::new(Kind::Io, "a flush failed while opening the brick").with(error))?;
    }
    Ok(())
}
