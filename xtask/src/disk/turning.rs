//! The pace of a spindle: the model is asked in real time, and a thread gives each answer when the model says that its request has
//! ended.

use super::counted;
use crate::served::{Pace, Verb};
use runtime::sim::spindle::{self, Ask, Spindle};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Answer = Box<dyn FnOnce() + Send>;

struct State {
    spindle: Spindle,
    began: Instant,
    count: u64,
    /// Requests of which either the backing file has done its part, with their answers, or the spindle its own.
    halves: BTreeMap<u64, Option<Answer>>,
}

impl State {
    /// Read while the state is locked, so that the spindle's time never goes back.
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
    /// The answers that are due.
    fn due(&mut self) -> Vec<Answer> {
        let now_ns = self.now_ns();
        let mut due = Vec::new();
        for id in self.spindle.complete(now_ns) {
            match self.halves.remove(&id) {
                Some(answer) => due.extend(answer),
                None => drop(self.halves.insert(id, None)),
            }
        }
        due
    }
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    came: Arc<Condvar>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The thread.
    fn turn(&self) {
        let mut state = self.state();
        loop {
            let due = state.due();
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(|answer| answer());
                state = self.state();
                continue;
            }
            let wait =
                state.spindle.next_ns().map(|next_ns| Duration::from_nanos(next_ns.saturating_sub(state.now_ns())));
            state = match wait {
                None => self.came.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => self.came.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

/// A spindle that turns.
pub struct Turning {
    shared: Shared,
}

impl Turning {
    /// Starts a spindle of so many bytes, and its thread.
    pub fn start(bytes: u64) -> std::io::Result<Turning> {
        let (spindle, began) = (Spindle::new(bytes), Instant::now());
        let state = Arc::new(Mutex::new(State { spindle, began, count: 0, halves: BTreeMap::new() }));
        let shared = Shared { state, came: Arc::default() };
        let turning = shared.clone();
        std::thread::Builder::new().spawn(move || turning.turn())?;
        Ok(Turning { shared })
    }
}

impl Pace for Turning {
    /// The spindle's number of it; None for what costs the spindle no time.
    type Ticket = Option<u64>;
    fn came(&self, verb: Verb, offset: u64, bytes: u64) -> Option<u64> {
        let verb = match verb {
            Verb::Read => spindle::Verb::Read,
            Verb::Write => spindle::Verb::Write,
            // It has no write cache.
            Verb::Flush => return None,
        };
        if bytes == 0 {
            return None;
        }
        let mut state = self.shared.state();
        let was_idle = state.spindle.next_ns().is_none();
        state.count += 1;
        let (id, now_ns) = (state.count, state.now_ns());
        state.spindle.queue(now_ns, Ask::new(id, verb, offset, bytes));
        drop(state);
        // Else the thread is awake in time for what is under way.
        if was_idle {
            self.shared.came.notify_one();
        }
        Some(id)
    }
    fn answer(&self, ticket: Option<u64>, answer: impl FnOnce() + Send + 'static) {
        if let Some(id) = ticket {
            let mut state = self.shared.state();
            if state.halves.remove(&id).is_none() {
                state.halves.insert(id, Some(Box::new(answer)));
                return;
            }
        }
        answer();
    }
    /// `slowness N`, from 1 on.
    fn change(&self, text: &str) -> bool {
        let number = text.trim_end().strip_prefix("slowness ").and_then(|number| number.parse().ok());
        let Some(slowness) = number.filter(|&slowness| slowness > 0) else { return false };
        let mut state = self.shared.state();
        let now_ns = state.now_ns();
        state.spindle.set_slowness(now_ns, slowness);
        drop(state);
        self.shared.came.notify_one();
        true
    }
    fn figures(&self) -> Option<String> {
        Some(counted::text(&self.shared.state().spindle.counters()))
    }
}
