//! The number of threads that a pool wants: a pure core, by a model of a server (decision D7, mission T2 and T4).
//!
//! Jobs that are there at a time are as many as come while one is there (Little's law: rate times stay). Each has a thread, as
//! far as CPUs go round: a job that needs the CPU for a part of its time keeps that part of a core busy, and more of them than
//! the cores carry would only wait for each other. Jobs that only compute have as many threads as there are cores. What a job
//! waits for a device is no reason to have fewer.
//!
//! A thread costs nothing while it sleeps, so those stay that were needed within the last minute: the number does not go up and
//! down with the load's chance.
//!
//! Absent by design: trials. Nothing is changed to see what comes of it.

/// Largest number of threads. Jobs are reads of a device by the index. 64 at once keep a disk of a cloud busy, which answers
/// 64,000 in a second after 1 ms each; a faster one is kept busy by fewer.
pub(super) const THREADS_MAX: usize = 64;
/// Time between two looks while jobs wait, and the wait after which a job is to have a thread.
pub(super) const LOOK_NS: u64 = 500_000;
/// Time between two looks while none waits.
pub(super) const SPAN_NS: u64 = 1_000_000_000;
/// Number of spans for which a thread stays that was needed.
const SPANS: usize = 60;
/// Shortest time over which the number of jobs is averaged: some hundred reads of a device.
const WINDOW_NS: u64 = 10_000_000;
/// Jobs' time of which the parts are remembered.
const PARTS_NS: u64 = 2_000_000_000;
/// Multiple of the jobs at the device that there may be beside those that keep the cores busy: jobs come back from it by
/// chance, and with just as many as it takes on average, cores would have nothing to do for a fifth of the time.
const DEVICE_TIMES: u128 = 2;
/// Longest wait while no job ends: then one more thread comes, even if it can only compete for the CPU.
const STALL_NS: u64 = 10_000_000;

/// Sums since the pool's start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// The present time, in nanoseconds.
    pub now_ns: u64,
    /// Number of jobs that have ended.
    pub done: u64,
    /// Waits of jobs that have begun, in nanoseconds.
    pub waited_ns: u64,
    /// Time for which threads had a job, in nanoseconds.
    pub busy_ns: u64,
}

impl Sums {
    fn since(&self, before: &Sums) -> Sums {
        Sums {
            now_ns: self.now_ns.saturating_sub(before.now_ns),
            done: self.done.saturating_sub(before.done),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
        }
    }
}

/// Sums of the kernel since the pool's start, about its threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// CPU time of the threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Time for which threads waited for a CPU, in nanoseconds.
    pub ready_ns: u64,
}

/// The state of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Sums until now.
    pub sums: Sums,
    /// Number of jobs that wait.
    pub waiting: usize,
    /// Number of threads.
    pub threads: usize,
    /// Highest number of threads that had a job at a time since the look before.
    pub busy_most: usize,
}

/// The model; see the module.
pub(super) struct Size {
    cores: usize,
    /// The number of threads for tests that say it.
    pinned: Option<usize>,
    /// Sums at the last look, at the start of this window and of the one before.
    last: Sums,
    window: Sums,
    window_before: Sums,
    /// Mean number of jobs that were there in the last window.
    there: usize,
    /// Sums and parts when the parts were last asked for.
    parts_at: (Sums, Parts),
    /// CPU time and time at a device of the jobs of late, in nanoseconds.
    cpu_ns: u64,
    device_ns: u64,
    /// Time at which a job was last seen to have ended, or none to wait.
    moved_ns: u64,
    /// Most threads needed in each of the last spans; the position of the present one, and its start.
    needed: [usize; SPANS],
    span: usize,
    span_ns: u64,
}

impl Size {
    /// A model without measurements, for threads on so many cores. `pinned`: a number that is always wanted.
    pub fn new(cores: usize, pinned: Option<usize>) -> Size {
        let nothing = Sums::default();
        Size {
            cores: cores.clamp(1, THREADS_MAX),
            pinned,
            last: nothing,
            window: nothing,
            window_before: nothing,
            there: 0,
            parts_at: (nothing, Parts::default()),
            cpu_ns: 0,
            device_ns: 0,
            moved_ns: 0,
            needed: [0; SPANS],
            span: 0,
            span_ns: 0,
        }
    }
    /// True if the next call of `wanted` needs to know the parts, which are dear to find out.
    pub fn asks(&self, look: &Look) -> bool {
        self.pinned.is_none() && (self.window_is_over(&look.sums) || self.there(look) > look.threads)
    }
    /// The number of threads that are wanted, at least one.
    pub fn wanted(&mut self, look: &Look, parts: Option<Parts>) -> usize {
        if let Some(threads) = self.pinned {
            return threads;
        }
        if let Some(parts) = parts {
            self.divide(&look.sums, parts);
        }
        let carried = self.carried();
        let needed = self.there(look).min(carried).max(self.unstuck(look));
        self.learn(&look.sums);
        self.note(look.sums.now_ns, needed.max(look.busy_most));
        let held = self.needed.into_iter().max().expect("there are spans").max(1);
        if needed > look.threads {
            needed
        } else if look.threads > carried + 1 {
            // One more is within what measurements differ by.
            held.min(carried)
        } else {
            held.min(look.threads).max(1)
        }
    }
    /// The number of threads with which jobs begin before the next look, wherever their time goes. 0: none waits.
    fn there(&self, look: &Look) -> usize {
        if look.waiting == 0 {
            return 0;
        }
        // Jobs that the present threads begin until then.
        let begun = look.threads as u64 * LOOK_NS / self.stay_ns(&look.sums).max(1);
        let behind = look.waiting.saturating_sub(begun as usize);
        self.there.max(look.threads + behind).min(THREADS_MAX)
    }
    /// A job's mean time with its thread; of jobs of which none has ended, the time until now.
    fn stay_ns(&self, sums: &Sums) -> u64 {
        let (late, last) = (sums.since(&self.window_before), sums.since(&self.last));
        let mean_ns = late.busy_ns / late.done.max(1);
        if last.done == 0 { mean_ns.max(last.busy_ns) } else { mean_ns }
    }
    /// One thread more than there are, whatever the cores carry, if jobs wait and none has ended for long. Otherwise 0.
    fn unstuck(&mut self, look: &Look) -> usize {
        let now_ns = look.sums.now_ns;
        if look.waiting == 0 || look.sums.done > self.last.done {
            self.moved_ns = now_ns;
        }
        if now_ns.saturating_sub(self.moved_ns) < STALL_NS {
            return 0;
        }
        self.moved_ns = now_ns;
        (look.threads + 1).min(THREADS_MAX)
    }
    /// The number of threads whose jobs the cores carry; as many as there are cores while nothing is known.
    fn carried(&self) -> usize {
        let all_ns = u128::from(self.cpu_ns) + u128::from(self.device_ns) * DEVICE_TIMES;
        let carried = (all_ns * self.cores as u128).checked_div(u128::from(self.cpu_ns)).unwrap_or(0);
        (carried.min(THREADS_MAX as u128) as usize).max(self.cores)
    }
    /// Learns how jobs divide their time.
    fn divide(&mut self, sums: &Sums, parts: Parts) {
        let (sums_before, parts_before) = self.parts_at;
        let passed = sums.since(&sums_before);
        let cpu_ns = parts.cpu_ns.saturating_sub(parts_before.cpu_ns);
        let ready_ns = parts.ready_ns.saturating_sub(parts_before.ready_ns);
        let kept_ns = PARTS_NS.saturating_sub(passed.busy_ns);
        let kept = |ns: u64| (u128::from(ns) * u128::from(kept_ns) / u128::from(PARTS_NS)) as u64;
        self.cpu_ns = kept(self.cpu_ns) + cpu_ns;
        self.device_ns = kept(self.device_ns) + passed.busy_ns.saturating_sub(cpu_ns + ready_ns);
        self.parts_at = (*sums, parts);
    }
    fn window_is_over(&self, sums: &Sums) -> bool {
        sums.since(&self.window).now_ns >= WINDOW_NS
    }
    /// Ends a window, if that is due.
    fn learn(&mut self, sums: &Sums) {
        self.last = *sums;
        if self.window_is_over(sums) {
            let window = sums.since(&self.window);
            let there = (window.waited_ns + window.busy_ns + window.now_ns / 2) / window.now_ns;
            self.there = usize::try_from(there).unwrap_or(THREADS_MAX);
            (self.window_before, self.window) = (self.window, *sums);
        }
    }
    fn note(&mut self, now_ns: u64, needed: usize) {
        let passed = now_ns.saturating_sub(self.span_ns) / SPAN_NS;
        for _ in 0..passed.min(SPANS as u64) {
            self.span = (self.span + 1) % SPANS;
            self.needed[self.span] = 0;
        }
        self.span_ns += passed * SPAN_NS;
        self.needed[self.span] = self.needed[self.span].max(needed);
    }
}
