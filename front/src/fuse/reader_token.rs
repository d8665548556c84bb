//! The token decides which of a core's tasks reads /dev/fuse: one task at a time holds it, the others wait in a line,
//! from which the last comer is woken first.
//!
//! Promise: no wake-up is lost. If no task holds the token although tasks are in line, then one of two tasks is about
//! to run: a task that `wake_next` has woken, which will take the token; or the last holder, which has released it but
//! has not suspended yet, and will take it again or call `wake_next`.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// The token that entitles a task to read. All calls come from one core, so its mutex is never contended.
pub struct ReaderToken {
    state: Mutex<State>,
}

struct State {
    held: bool,
    ended: bool,
    /// Tasks that wait, last in first out: the one that ran last has the warmest caches.
    line: Vec<usize>,
    /// The waker of each task that waits. A task is in `line` exactly once while it has a waker here.
    wakers: Vec<Option<Waker>>,
}

impl ReaderToken {
    /// A token that nobody holds, for tasks numbered `0..tasks`.
    pub fn new(tasks: usize) -> ReaderToken {
        let state = State { held: false, ended: false, line: Vec::with_capacity(tasks), wakers: vec![None; tasks] };
        ReaderToken { state: Mutex::new(state) }
    }
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// Waits for the token and takes it. False: reading has ended, nothing was taken.
    pub async fn take(&self, task: usize) -> bool {
        poll_fn(|context| {
            let mut state = self.state();
            if state.ended {
                return Poll::Ready(false);
            }
            if !state.held {
                state.held = true;
                return Poll::Ready(true);
            }
            if state.wakers[task].is_none() {
                state.line.push(task);
            }
            state.wakers[task] = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
    /// Gives the token up without waking anyone: the caller either takes it again or calls `wake_next` before it suspends.
    pub fn release(&self) {
        let mut state = self.state();
        assert!(state.held, "only the holder releases the token");
        state.held = false;
    }
    /// Wakes the next task in line if nobody holds the token.
    pub fn wake_next(&self) {
        let mut state = self.state();
        if state.held {
            return;
        }
        if let Some(task) = state.line.pop()
            && let Some(waker) = state.wakers[task].take()
        {
            waker.wake();
        }
    }
    /// Ends reading: `take` returns false for everyone in line and from now on.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.line.clear();
        state.wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn one_holds_it_and_the_next_in_line_gets_it() {
        let token = ReaderToken::new(3);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(token.take(0));
        let mut second = pin!(token.take(1));
        let mut third = pin!(token.take(2));
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(true));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending(), "a spurious poll does not queue twice");
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert_eq!(token.state().line, [1, 2]);
        token.wake_next();
        assert_eq!(token.state().line, [1, 2], "a held token wakes nobody");
        token.release();
        token.wake_next();
        assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(true));
        token.end();
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(false));
    }

    #[test]
    fn a_woken_task_that_finds_it_taken_stands_in_line_again() {
        let token = ReaderToken::new(2);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(token.take(0)).poll(&mut context), Poll::Ready(true));
        let mut second = pin!(token.take(1));
        assert!(second.as_mut().poll(&mut context).is_pending());
        token.release();
        token.wake_next();
        assert_eq!(pin!(token.take(0)).poll(&mut context), Poll::Ready(true));
        assert!(second.as_mut().poll(&mut context).is_pending());
        token.release();
        token.wake_next();
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(true));
    }
}
