//! The inbox of a core, by which other threads reach it: wake-ups, new tasks and I/O requests. A sleeping core is woken
//! by one write to an eventfd; a running one checks its inbox every turn, so that waking it costs no system call.

use super::eventfd::EventFd;
use super::executor::Task;
use crate::sync::{AtomicBool, Mutex};
use crate::tasks::{Flow, MakeTask};
use crate::transfer::Slot;
use base::seeded::{Bug, active};
use base::{Error, Kind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Inbox {
    state: Mutex<State>,
    /// True if there is mail; written under the mutex.
    pending: AtomicBool,
    /// True if the core is about to sleep, or sleeps: mail must then be announced through the eventfd. It is only ever
    /// swapped, so that whoever changes it later sees all that came before the earlier change; a sequentially consistent
    /// store costs the same.
    asleep: AtomicBool,
    event: EventFd,
}

#[derive(Default)]
struct State {
    mail: Mail,
    closed: bool,
}

/// The mail of a core.
#[derive(Default)]
pub(super) struct Mail {
    pub woken: Vec<Arc<Task>>,
    pub made: Vec<(Option<Arc<Flow>>, MakeTask)>,
    pub slots: Vec<Arc<Slot>>,
    pub stop: bool,
}

impl Inbox {
    pub fn new() -> Result<Inbox> {
        let (pending, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Inbox { state: Mutex::default(), pending, asleep, event: EventFd::new()? })
    }
    /// Signalled whenever mail comes for a sleeping core.
    pub fn event(&self) -> &EventFd {
        &self.event
    }
    /// Adds to the mail. Returns `what` if the core has ended.
    fn post<T>(&self, what: T, add: impl FnOnce(&mut Mail, T)) -> std::result::Result<(), T> {
        {
            let mut state = self.state.lock().expect("no panic while held");
            if state.closed {
                return Err(what);
            }
            add(&mut state.mail, what);
            self.pending.store(true, Ordering::SeqCst);
        }
        // Either the core sees `pending` before it sleeps, or we see that it is asleep (see `fall_asleep`).
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.event.signal();
        }
        Ok(())
    }
    /// Queues a task of this core to run; does nothing if the core has ended.
    pub fn wake(&self, task: Arc<Task>) {
        let _ = self.post(task, |mail, task| mail.woken.push(task));
    }
    /// Adds a new task of a flow, or of none; drops it if the core has ended.
    pub fn spawn(&self, flow: Option<Arc<Flow>>, make: MakeTask) {
        let _ = self.post((flow, make), |mail, made| mail.made.push(made));
    }
    /// Passes an I/O to this core.
    pub fn submit(&self, slot: Arc<Slot>) {
        if let Err(slot) = self.post(slot, |mail, slot| mail.slots.push(slot)) {
            slot.finish(Err(stopped()));
        }
    }
    /// Tells the core to end.
    pub fn stop(&self) {
        let _ = self.post((), |mail, ()| mail.stop = true);
    }
    /// Exchanges an empty `mail` for the core's mail. False if there is none.
    pub fn take(&self, mail: &mut Mail) -> bool {
        if !self.pending.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock().expect("no panic while held");
        self.pending.store(false, Ordering::SeqCst);
        // The emptied vectors go back and forth, so that warm mail allocates nothing.
        std::mem::swap(&mut state.mail, mail);
        true
    }
    /// Closes the inbox, which takes nothing from now on. Returns the rest of the mail.
    pub fn close(&self) -> Mail {
        let mut state = self.state.lock().expect("no panic while held");
        state.closed = true;
        std::mem::take(&mut state.mail)
    }
    /// Announces that the core will sleep. False if there is mail: then it must not.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.swap(true, Ordering::SeqCst);
        let may = !self.pending.load(Ordering::SeqCst) || active(Bug::WakeUpLost);
        if !may {
            self.asleep.swap(false, Ordering::SeqCst);
        }
        may
    }
    /// Announces that the core runs again.
    pub fn wake_up(&self) {
        self.asleep.swap(false, Ordering::SeqCst);
    }
}

/// The error of requests to a core that has ended.
pub(super) fn stopped() -> Error {
    Error::new(Kind::Interrupted, "the daemon is stopping")
}
