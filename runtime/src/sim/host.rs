//! A simulated host from its boot to its end: cores, clocks, randomness and blocking jobs of one process, on the schedule that
//! all hosts share.

use super::schedule::{Boot, Due, Job, Schedule};
use super::trace::TraceKind;
use crate::clock::{Clock, Sleep};
use crate::random::{Random, SplitMix};
use crate::tasks::{MakeTask, Tasks};
use base::Time;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// A host's clock since its boot, as it runs. The default runs exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootClock {
    /// Nanoseconds that it shows at the boot; at least 1, so that nobody takes zero for "never".
    pub shows_ns: u64,
    /// Nanoseconds by which it gains in a millisecond of true time; negative: loses. At most 50,000 (5%) either way.
    pub gains_ppm: i64,
}

impl Default for BootClock {
    fn default() -> BootClock {
        BootClock { shows_ns: super::schedule::BOOT_NS, gains_ppm: 0 }
    }
}

impl BootClock {
    /// A clock by seed: of a host that was started up to a day ago, up to 5% too fast or too slow.
    pub fn draw(rng: &mut SplitMix) -> BootClock {
        BootClock { shows_ns: 1 + rng.below(86_400_000_000_000), gains_ppm: rng.below(100_001) as i64 - 50_000 }
    }
}

/// See the module's head.
pub(super) struct Host {
    pub(super) schedule: Arc<Schedule>,
    boot: Boot,
    /// Number of the machine, which stays from boot to boot.
    number: usize,
    cores: usize,
    core: AtomicUsize,
    clock: BootClock,
    booted_ns: u64,
    wall_ahead_ns: AtomicI64,
    random: Mutex<SplitMix>,
    stopped: AtomicBool,
    paused_until_ns: AtomicU64,
}

impl Host {
    pub(super) fn new(
        schedule: &Arc<Schedule>,
        (number, boot): (usize, Boot),
        cores: usize,
        clock: BootClock,
        wall_ns: i64,
        random: SplitMix,
    ) -> Arc<Host> {
        assert!(cores > 0, "a machine has a core");
        assert!(clock.shows_ns > 0 && clock.gains_ppm.abs() <= 50_000, "a clock that nobody would sell: {clock:?}");
        Arc::new(Host {
            schedule: schedule.clone(),
            boot,
            number,
            cores,
            core: AtomicUsize::new(0),
            clock,
            booted_ns: schedule.now(),
            wall_ahead_ns: AtomicI64::new(wall_ns - schedule.now() as i64),
            random: Mutex::new(random),
            stopped: AtomicBool::new(false),
            paused_until_ns: AtomicU64::new(0),
        })
    }
    pub(super) fn boot(&self) -> Boot {
        self.boot
    }
    pub(super) fn number(&self) -> usize {
        self.number
    }
    /// True time.
    pub(super) fn now(&self) -> u64 {
        self.schedule.now()
    }
    /// The time that its clock shows.
    pub(super) fn shown_ns(&self) -> u64 {
        let past = self.now() - self.booted_ns;
        let gained = i128::from(past) * i128::from(self.clock.gains_ppm) / 1_000_000;
        (i128::from(self.clock.shows_ns) + i128::from(past) + gained) as u64
    }
    /// The true time at which its clock will show `shown_ns`.
    fn true_ns(&self, shown_ns: u64) -> u64 {
        let ahead = i128::from(shown_ns) - i128::from(self.clock.shows_ns);
        let rate = 1_000_000 + i128::from(self.clock.gains_ppm);
        let past = (ahead * 1_000_000 + rate - 1).div_euclid(rate);
        // Rounded so that the clock shows that time then, and not less.
        u64::try_from(i128::from(self.booted_ns) + past).unwrap_or(u64::MAX)
    }
    pub(super) fn spend(&self, ns: u64) {
        self.schedule.spend(ns);
    }
    /// Moves the wall clock alone.
    pub(super) fn jump_wall(&self, ns: i64) {
        self.wall_ahead_ns.fetch_add(ns, Ordering::Relaxed);
    }
    pub(super) fn wall_ns(&self) -> i64 {
        self.now() as i64 + self.wall_ahead_ns.load(Ordering::Relaxed)
    }
    /// Sets the core on which the code that runs now is.
    pub(super) fn enter_core(&self, core: usize) {
        self.core.store(core, Ordering::Relaxed);
    }
    /// The core on which the code that runs now is.
    pub(super) fn core(&self) -> usize {
        self.core.load(Ordering::Relaxed)
    }
    /// Ends the host: nothing more happens on it.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
    /// Runs no task and no job for a while. The kernel below them goes on.
    pub(super) fn pause(&self, ns: u64) {
        let until_ns = self.now().saturating_add(ns);
        self.paused_until_ns.fetch_max(until_ns, Ordering::Relaxed);
        self.schedule.add(until_ns, |_| Due::Resume(self.boot));
    }
    /// The time until which it is paused, if it is.
    pub(super) fn paused_until(&self) -> Option<u64> {
        Some(self.paused_until_ns.load(Ordering::Relaxed)).filter(|&until_ns| until_ns > self.now())
    }
    pub(super) fn note(&self, kind: TraceKind, subject: u64, detail: u64) {
        self.schedule.note(kind, subject | (self.number as u64) << 48, detail);
    }
    pub(super) fn add_transfer(&self, delay_ns: u64) -> u64 {
        self.schedule.add_transfer(self.boot, delay_ns)
    }
    pub(super) fn start_transfer(&self) -> u64 {
        self.schedule.start_transfer(self.boot)
    }
    pub(super) fn end_transfer(&self) {
        self.schedule.end_transfer(self.boot);
    }
    /// Adds a look at a spindle.
    pub(super) fn add_look(&self, at_ns: u64, file: u64) {
        self.schedule.add(at_ns, |_| Due::Spindle(self.boot, file));
    }
}

/// A host as its own code sees it.
pub(super) struct Inside(pub(super) Arc<Host>);

impl Tasks for Inside {
    fn cores(&self) -> usize {
        self.0.cores
    }
    fn core(&self) -> usize {
        self.0.core()
    }
    fn spawn(&self, core: usize, make: MakeTask) {
        assert!(core < self.0.cores, "no core {core}");
        if !self.0.stopped() {
            self.0.schedule.spawn(self.0.clone(), core, make);
        }
    }
    fn blocking(&self, job: Job) {
        if !self.0.stopped() {
            self.0.schedule.add_job(self.0.clone(), job);
        }
    }
}

impl Random for Inside {
    fn next_u64(&self) -> u64 {
        self.0.random.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

impl Clock for Inside {
    fn now_ns(&self) -> u64 {
        self.0.shown_ns()
    }
    fn wall(&self) -> Time {
        Time(self.0.wall_ns())
    }
    fn sleep(&self, ns: u64) -> Sleep {
        let at_ns = self.0.shown_ns().saturating_add(ns);
        Box::pin(Timer { host: self.0.clone(), at_ns, id: None })
    }
}

struct Timer {
    host: Arc<Host>,
    at_ns: u64,
    id: Option<u64>,
}

impl Future for Timer {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.host.shown_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let at_ns = self.host.true_ns(self.at_ns);
        self.id = Some(self.host.schedule.set_timer(self.host.boot, at_ns, self.id, context.waker()));
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.host.schedule.drop_timer(id);
        }
    }
}
