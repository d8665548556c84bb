//! Answers that wait for their time. One that is alone waits on the thread that has it: handing it over would take longer than
//! some delays. Others wait for a thread that gives them all. Both sleep until shortly before the time, and turn for the rest.

use super::delays::{Delays, Schedule};
use crate::served::{Pace, Verb};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which the thread turns rather than sleeps, if others may want the CPU: a sleeper wakes up this late on a CPU that was
/// busy a moment ago.
const TURN: Duration = Duration::from_micros(25);
/// The same for an answer that is alone: a virtual machine's timers come this late, and whoever waits for it has nothing to do.
const TURN_ALONE: Duration = Duration::from_micros(100);

type Answer = Box<dyn FnOnce() + Send>;

/// An answer and its time.
struct Waiting {
    due: Instant,
    /// Numbers in the order of arrival: those of the same time keep it.
    number: u64,
    answer: Answer,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The greatest is the next one due.
    fn cmp(&self, other: &Waiting) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    waiting: BinaryHeap<Waiting>,
    count: u64,
    /// True while one waits on its own thread.
    alone: bool,
}

/// The answers that wait.
pub struct Late {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Late {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Late> {
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let shared = state.clone();
        std::thread::Builder::new().spawn(move || give(&shared.0, &shared.1))?;
        Ok(Late { state })
    }
    /// Changes how late answers are; those that wait already keep their time.
    pub fn set(&self, delays: Delays) {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).schedule.set(delays);
    }
    /// True while an answer waits on its own thread.
    #[cfg(test)]
    pub fn is_waited_for_alone(&self) -> bool {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).alone
    }
}

impl Pace for Late {
    type Ticket = Verb;
    /// Delays are the verb's alone, and begin when the backing file has done its part.
    fn came(&self, verb: Verb, _offset: u64, _bytes: u64) -> Verb {
        verb
    }
    /// Gives an answer when it is due: on this thread if it is not late or is alone.
    fn answer(&self, verb: Verb, answer: impl FnOnce() + Send + 'static) {
        let now = Instant::now();
        let mut state = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.schedule.due(verb, now);
        if due <= now {
            drop(state);
            return answer();
        }
        if !state.alone && state.waiting.is_empty() {
            state.alone = true;
            drop(state);
            wait(due);
            self.state.0.lock().unwrap_or_else(PoisonError::into_inner).alone = false;
            return answer();
        }
        let is_next = state.waiting.peek().is_none_or(|first| due < first.due);
        state.count += 1;
        let number = state.count;
        state.waiting.push(Waiting { due, number, answer: Box::new(answer) });
        drop(state);
        if is_next {
            self.state.1.notify_one();
        }
    }
}

/// Waits on this thread.
fn wait(due: Instant) {
    loop {
        match due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return,
            left if left > TURN_ALONE => std::thread::sleep(left - TURN_ALONE),
            _ => std::hint::spin_loop(),
        }
    }
}

/// The thread.
fn give(state: &Mutex<State>, came: &Condvar) {
    let mut locked = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(due) = locked.waiting.peek().map(|first| first.due) else {
            locked = came.wait(locked).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let left = due.saturating_duration_since(Instant::now());
        if left > TURN {
            locked = came.wait_timeout(locked, left - TURN).unwrap_or_else(PoisonError::into_inner).0;
        } else if left > Duration::ZERO {
            drop(locked);
            std::hint::spin_loop();
            locked = state.lock().unwrap_or_else(PoisonError::into_inner);
        } else if let Some(first) = locked.waiting.pop() {
            drop(locked);
            (first.answer)();
            locked = state.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}
