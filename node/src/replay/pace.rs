//! The order and the times of a replay: which operation is done when, and by which thread.

use super::act::act;
use super::live::Live;
use super::room::Room;
use crate::progress::Progress;
use recording::plan::{Plan, Way};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use store::progress::Step as Shown;

/// Most threads: above what a mount has under way.
const THREADS_MAX: usize = 256;

/// The times at which operations begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Begins each as soon as what had been answered before it has ended.
    Possible,
    /// The same, but not before its time in the recording.
    Recorded,
}

/// The outcome of a step, packed: nanoseconds, and above them one of these.
const SAME: u64 = 1 << 62;
const OTHERWISE: u64 = 2 << 62;
const DURATION: u64 = (1 << 62) - 1;

/// The outcome of a replay.
pub struct Ran {
    outcomes: Vec<AtomicU64>,
    /// Its length.
    pub took: Duration,
    /// The time by which the latest operation began too late, where they had a time.
    pub late_max: Duration,
}

impl Ran {
    /// The duration of a step, and whether it ended as recorded; None: it was not done by itself.
    pub fn outcome(&self, step: usize) -> Option<(u64, bool)> {
        let packed = self.outcomes[step].load(Ordering::Relaxed);
        (packed != 0).then_some((packed & DURATION, packed & !DURATION == SAME))
    }
}

/// The steps that have ended, by their recorded ends.
struct Ended {
    has_ended: Vec<bool>,
    /// The first ones, so many, have all ended.
    first: usize,
}

struct Order<'a> {
    plan: &'a Plan,
    next: AtomicUsize,
    ended: Mutex<Ended>,
    bell: Condvar,
}

impl Order<'_> {
    /// Waits until all that had been answered when the step began has ended.
    fn wait(&self, step: usize) {
        let before = self.plan.overlap.ended_before[step] as usize;
        let ended = self.ended.lock().expect("no panic while held");
        drop(self.bell.wait_while(ended, |ended| ended.first < before).expect("no panic while held"));
    }
    fn end(&self, step: usize) {
        let mut ended = self.ended.lock().expect("no panic while held");
        ended.has_ended[self.plan.overlap.position_by_end[step] as usize] = true;
        let first = ended.first;
        while ended.has_ended.get(ended.first) == Some(&true) {
            ended.first += 1;
        }
        if ended.first > first {
            self.bell.notify_all();
        }
    }
}

/// Does all steps.
pub fn run(live: &Live<'_>, pace: Pace, progress: &Progress) -> Ran {
    let plan = live.plan;
    let ended = Ended { has_ended: vec![false; plan.steps.len()], first: 0 };
    let order = Order { plan, next: AtomicUsize::new(0), ended: Mutex::new(ended), bell: Condvar::new() };
    let outcomes: Vec<AtomicU64> = plan.steps.iter().map(|_| AtomicU64::new(0)).collect();
    let (late_max_ns, began) = (AtomicU64::new(0), Instant::now());
    let first_ns = plan.steps.first().map_or(0, |step| step.operation.start_ns);
    let worker = |number: u64| {
        // The kernel would wake it up to 50 us late. If it can't be asked not to, times are worse.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut room = Room::new(number);
        loop {
            let at = order.next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = plan.steps.get(at) else { return };
            order.wait(at);
            if pace == Pace::Recorded {
                let due = Duration::from_nanos(step.operation.start_ns - first_ns);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                late_max_ns.fetch_max(began.elapsed().saturating_sub(due).as_nanos() as u64, Ordering::Relaxed);
            }
            if step.way == Way::Itself {
                let (took, same) = act(live, step, &mut room);
                let packed = (took.as_nanos() as u64).min(DURATION) | if same { SAME } else { OTHERWISE };
                outcomes[at].store(packed, Ordering::Relaxed);
            }
            order.end(at);
            if number == 0 {
                progress.step(Shown { what: "operations", done: at as u64, of: plan.steps.len() as u64 });
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = plan.overlap.depth_max.clamp(1, THREADS_MAX) as u64;
        let worker = &worker;
        (1..threads).for_each(|number| drop(scope.spawn(move || worker(number))));
        worker(0);
    });
    Ran { outcomes, took: began.elapsed(), late_max: Duration::from_nanos(late_max_ns.into_inner()) }
}
