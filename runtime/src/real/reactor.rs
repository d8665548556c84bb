//! One core: a thread with a ring, timers and tasks. Each turn does a bounded amount of work and then submits the I/O
//! that was started. Draining everything first would make all requests travel as one batch, so that disk and CPU
//! alternate (decision D4).

use super::abort::AbortOnPanic;
use super::clock::{Timers, now_ns};
use super::device::{Device, Event};
use super::executor::Executor;
use super::figures::Figures;
use super::files::Files;
use super::inbox::{Inbox, Mail, stopped};
use super::listener::Network;
use super::pm_qos::PmQos;
use super::ring::Ring;
use super::shares::CORRECTION_NS;
use super::socket::Call;
use crate::sync::{AtomicU64, thread_local};
use crate::transfer::{Slot, SlotPool};
use base::Result;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Largest numbers of completions processed and of tasks run per turn; also the number of operations that may wait
/// unsubmitted before tasks go on. Measured with a prototype: submitting after at most 4 keeps device and CPU busy at
/// the same time.
const PER_TURN: usize = 4;
/// Largest number of completions processed per turn while flows share the core: as many as one mount can have on it, since who
/// waits behind them is not known before. To process one takes a tenth of a microsecond.
const SHARED_COMPLETIONS: usize = 64;

/// Time for which the flows that a core has told of count: longer than between two requests of a client that has one in flight, and
/// no longer than a large client should notice that it is alone.
const ACTIVE_NS: u64 = 10_000_000;

/// The flows that a core has, for the others; on cache lines of its own, for each core writes its own in every turn.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Active {
    mask: AtomicU64,
    at_ns: AtomicU64,
}

/// Tells of the flows that a core has now, perhaps none, and learns whether several are active on all cores.
pub(super) fn tell_active(active: &[Active], core: usize, mask: u64, now_ns: u64) -> bool {
    active[core].mask.store(mask, Ordering::Relaxed);
    active[core].at_ns.store(now_ns, Ordering::Relaxed);
    // Those of a core that has slept for long are over.
    let is_now = |of: &&Active| now_ns.saturating_sub(of.at_ns.load(Ordering::Relaxed)) < ACTIVE_NS;
    active.iter().filter(is_now).fold(0, |all, of| all | of.mask.load(Ordering::Relaxed)).count_ones() > 1
}

/// State that all cores of one world share.
pub(super) struct World {
    pub inboxes: Vec<Arc<Inbox>>,
    pub figures: Vec<Arc<Figures>>,
    pub files: Files,
    pub net: Network,
    /// Slots for I/O started by threads that are not cores.
    pub foreign_slots: Arc<SlotPool>,
    /// The flows that each core has.
    pub active: Vec<Active>,
    /// The watcher that bounds the CPUs' wake-up latency, if this machine has one.
    pub pm_qos: Option<PmQos>,
}

/// The half of a core that belongs to its thread.
pub(super) struct Core {
    pub world: Arc<World>,
    pub index: usize,
    pub inbox: Arc<Inbox>,
    pub executor: Executor,
    pub timers: RefCell<Timers>,
    pub device: RefCell<Device>,
    pub slots: Arc<SlotPool>,
    figures: Arc<Figures>,
    mail: RefCell<Mail>,
    /// Time at which flows were charged last for what they have had on other cores.
    corrected_ns: Cell<u64>,
    stopping: Cell<bool>,
}

thread_local! {
    // Wakers, timers and I/O must find the core they are on: a waker cannot carry what never leaves its thread.
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Runs `with` on the calling thread's core; `None` if the thread is not a core.
pub(super) fn with_current<R>(with: impl FnOnce(&Rc<Core>) -> R) -> Option<R> {
    // After the thread's end there is no core either.
    CURRENT.try_with(|current| current.borrow().as_ref().map(with)).ok().flatten()
}

/// The calling thread's core.
pub(super) fn current() -> Option<Rc<Core>> {
    with_current(Rc::clone)
}

/// The life of a core's thread. `ready` is told that the core runs, or why it cannot.
pub(super) fn run(world: Arc<World>, index: usize, ready: impl FnOnce(Result<()>)) {
    let guard = AbortOnPanic;
    let core = match Core::new(world, index) {
        Ok(core) => Rc::new(core),
        Err(error) => return ready(Err(error)),
    };
    CURRENT.with(|current| current.replace(Some(core.clone())));
    ready(Ok(()));
    while !core.stopping.get() {
        core.turn();
    }
    core.wind_down();
    CURRENT.with(|current| current.replace(None));
    assert!(Rc::strong_count(&core) == 1, "nothing on the core outlives its tasks");
    drop(guard);
}

impl Core {
    fn new(world: Arc<World>, index: usize) -> Result<Core> {
        let ring = Ring::new()?;
        if let Some(lock) = world.files.lock_fd() {
            ring.hold(lock)?;
        }
        let inbox = world.inboxes[index].clone();
        let figures = world.figures[index].clone();
        let device = RefCell::new(Device::new(ring, inbox.event().fd(), figures.clone()));
        Ok(Core {
            world,
            index,
            inbox,
            executor: Executor::default(),
            timers: RefCell::default(),
            device,
            slots: SlotPool::new(),
            figures,
            mail: RefCell::default(),
            corrected_ns: Cell::new(0),
            stopping: Cell::new(false),
        })
    }
    /// True once the core has begun to end: nothing new may be started.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }
    /// Starts an I/O of this core.
    pub fn start(&self, slot: Arc<Slot>) {
        if self.stopping.get() {
            return slot.finish(Err(stopped()));
        }
        let ended = self.device.borrow_mut().start(slot, self.executor.running(), &self.world.files);
        if let Some((slot, result)) = ended {
            slot.finish(result);
        }
    }
    /// Starts a call of this core.
    pub fn call(&self, call: Call) {
        if self.stopping.get() {
            return call.end(self, Call::CANCELLED);
        }
        self.device.borrow_mut().call(call);
    }
    fn turn(&self) {
        self.figures.turn();
        self.take_mail();
        if self.stopping.get() {
            // No task may meet a core that refuses its I/O.
            return;
        }
        self.fire_timers();
        // What a flow waits for must not wait behind what others wait for.
        self.take_completions(if self.executor.is_shared() { SHARED_COMPLETIONS } else { PER_TURN });
        let (turn, mask) = self.executor.begin(PER_TURN);
        let contended = mask.is_some_and(|mask| self.share_device(mask, turn.shared));
        let (mut ran, mut of_flow, mut since_ns) = (0, 0, None);
        while ran < PER_TURN && of_flow < turn.most {
            let Some(task) = self.executor.next(turn) else { break };
            ran += 1;
            if task.is_of_flow() {
                of_flow += 1;
                if contended && of_flow == 1 {
                    since_ns = Some(self.figures.control_ns());
                }
            }
            self.executor.run(task, &self.figures);
            let device = self.device.borrow();
            if device.unsubmitted() >= PER_TURN || device.is_urgent() {
                break;
            }
        }
        if let Some(since_ns) = since_ns {
            if turn.shared {
                // The kernel copies the bytes of answers while it takes them.
                self.device.borrow_mut().submit();
            }
            self.executor.charge(turn, of_flow, self.figures.control_ns().saturating_sub(since_ns));
        }
        self.submit_or_sleep();
    }
    /// Tells the other cores which flows this one has, and its device whether there are several on all of them: they share the device
    /// also where none of them shares a core. `here`: several share this core. True if there are several.
    fn share_device(&self, mask: u64, here: bool) -> bool {
        let now_ns = self.figures.control_ns();
        // Two flows of this core may have the same bit of the mask.
        let shared = tell_active(&self.world.active, self.index, mask, now_ns) || here;
        let mut device = self.device.borrow_mut();
        device.set_shared(shared);
        if shared && now_ns.saturating_sub(self.corrected_ns.get()) >= CORRECTION_NS {
            self.corrected_ns.set(now_ns);
            self.executor.correct(|flow, weight| device.weigh(flow, weight));
        }
        shared
    }
    fn take_mail(&self) {
        let mut mail = self.mail.borrow_mut();
        if !self.inbox.take(&mut mail) {
            return;
        }
        self.executor.take(&mut mail.woken);
        mail.slots.drain(..).for_each(|slot| self.start(slot));
        for (flow, make) in mail.made.drain(..) {
            self.executor.add(&self.inbox, flow, make());
        }
        self.stopping.set(mail.stop);
    }
    fn fire_timers(&self) {
        if self.timers.borrow().next_ns().is_none() {
            return;
        }
        let now_ns = now_ns();
        loop {
            let Some(waker) = self.timers.borrow_mut().pop(now_ns) else { break };
            waker.wake();
        }
    }
    fn take_completions(&self, count_max: usize) {
        for _ in 0..count_max {
            let Some(event) = self.device.borrow_mut().complete(&self.world.files) else { break };
            match event {
                Event::Nothing => {}
                Event::Finished(slot, result, ended) => slot.finish_at(result, ended),
                Event::Wake(waker) => waker.wake(),
                Event::Called(call, result) => call.end(self, result),
            }
        }
    }
    fn submit_or_sleep(&self) {
        let mut device = self.device.borrow_mut();
        if !self.executor.is_idle() || device.has_completions() {
            return device.submit();
        }
        let next_ns = self.timers.borrow().next_ns();
        if next_ns.is_some_and(|next_ns| next_ns <= now_ns()) || !self.inbox.fall_asleep() {
            return device.submit();
        }
        let sleeps = self.figures.sleep();
        if let Some(pm_qos) = &self.world.pm_qos {
            pm_qos.sleeps(sleeps);
        }
        device.sleep_until(next_ns);
        self.inbox.wake_up();
    }
    /// Ends the core in order: no more mail, no more tasks, then waits for the I/O that the device still works on.
    fn wind_down(&self) {
        let mail = self.inbox.close();
        mail.slots.into_iter().for_each(|slot| slot.finish(Err(stopped())));
        drop(mail.made);
        self.executor.clear();
        self.device.borrow_mut().cancel_calls();
        while self.device.borrow().in_flight() > 0 {
            self.device.borrow_mut().sleep_until(None);
            self.take_completions(usize::MAX);
        }
        self.executor.clear();
        self.device.borrow().release();
    }
}
