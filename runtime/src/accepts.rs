//! Connections that come to a listener, the tasks that wait for them, and the making of a connection: futures and what
//! they wait for, whoever performs it.
//!
//! Promises: a connection that came for a future that is gone goes to another one, or waits for the next; one that was
//! made for a `connect` whose future is gone is closed. Absent by design: how connections are made.

use crate::net::{Address, ConnectionId, not_listening};
use crate::sync::{Mutex, MutexGuard};
use base::{Error, Result};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A connection that has come, and the other end's address.
pub(crate) type Arrival = (ConnectionId, Address);

/// The connections that come to one listener.
#[derive(Default)]
pub(crate) struct Accepts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiters: Vec<Waiter>,
    /// Connections that nobody has waited for.
    spare: VecDeque<Arrival>,
    /// The cores on which the performer waits for a connection.
    armed: Vec<usize>,
    ended: bool,
}

struct Waiter {
    ticket: u64,
    core: usize,
    given: Option<Result<Arrival>>,
    waker: Option<Waker>,
}

impl State {
    /// Gives an outcome to who waits for one on this core, or else on another; a connection that nobody waits for is kept.
    fn give(&mut self, core: usize, outcome: Result<Arrival>) -> Option<Waker> {
        let waits = |waiter: &Waiter| waiter.given.is_none();
        let here = self.waiters.iter().position(|waiter| waits(waiter) && waiter.core == core);
        match here.or_else(|| self.waiters.iter().position(waits)) {
            Some(place) => {
                self.waiters[place].given = Some(outcome);
                self.waiters[place].waker.take()
            }
            None => {
                self.spare.extend(outcome.ok());
                None
            }
        }
    }
    fn arm(&mut self, core: usize) -> bool {
        let waits = |waiter: &Waiter| waiter.core == core && waiter.given.is_none();
        let arms = !self.ended && self.waiters.iter().any(waits) && !self.armed.contains(&core);
        if arms {
            self.armed.push(core);
        }
        arms
    }
}

impl Accepts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// A future of the next connection for a task on this core. True: the performer shall wait for one there.
    pub fn accept(self: &Arc<Accepts>, core: usize) -> (Accepting, bool) {
        let mut state = self.state();
        if state.ended {
            return (Accepting::failed(not_listening()), false);
        }
        let ticket = state.next;
        state.next += 1;
        let given = state.spare.pop_front().map(Ok);
        state.waiters.push(Waiter { ticket, core, given, waker: None });
        let arms = state.arm(core);
        drop(state);
        (Accepting { state: Accept::Waiting(self.clone(), ticket) }, arms)
    }
    /// Takes in what the performer has waited for on a core. True: it shall wait for more there.
    pub fn came(&self, core: usize, outcome: Result<Arrival>) -> bool {
        let mut state = self.state();
        state.armed.retain(|&armed| armed != core);
        let waker = state.give(core, outcome);
        let arms = state.arm(core);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        arms
    }
    /// Number of connections that nobody has taken yet.
    pub fn untaken(&self) -> usize {
        let state = self.state();
        state.spare.len() + state.waiters.iter().filter(|waiter| waiter.given.is_some()).count()
    }
    /// True once the listener has ended.
    pub fn has_ended(&self) -> bool {
        self.state().ended
    }
    /// Ends all waiting. Returns the connections that nobody has taken, to be closed.
    pub fn end(&self) -> Vec<ConnectionId> {
        let mut state = self.state();
        state.ended = true;
        let mut untaken: Vec<_> = state.spare.drain(..).collect();
        let mut wakers = Vec::new();
        for waiter in &mut state.waiters {
            untaken.extend(waiter.given.replace(Err(not_listening())).and_then(Result::ok));
            wakers.extend(waiter.waker.take());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        untaken.into_iter().map(|(connection, _)| connection).collect()
    }
}

enum Accept {
    Waiting(Arc<Accepts>, u64),
    Failed(Error),
    Ended,
}

/// The future of a connection that comes; see `Net::accept`.
pub struct Accepting {
    state: Accept,
}

impl Accepting {
    /// An accept that has failed.
    pub(crate) fn failed(error: Error) -> Accepting {
        Accepting { state: Accept::Failed(error) }
    }
}

impl Future for Accepting {
    type Output = Result<(ConnectionId, Address)>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(ConnectionId, Address)>> {
        match std::mem::replace(&mut self.state, Accept::Ended) {
            Accept::Waiting(accepts, ticket) => {
                let mut state = accepts.state();
                let place = state.waiters.iter().position(|waiter| waiter.ticket == ticket);
                let place = place.expect("a waiter stays until its future has ended");
                let Some(given) = state.waiters[place].given.take() else {
                    state.waiters[place].waker = Some(context.waker().clone());
                    drop(state);
                    self.state = Accept::Waiting(accepts, ticket);
                    return Poll::Pending;
                };
                state.waiters.remove(place);
                Poll::Ready(given)
            }
            Accept::Failed(error) => Poll::Ready(Err(error)),
            Accept::Ended => panic!("polled after its end"),
        }
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        let Accept::Waiting(accepts, ticket) = &self.state else { return };
        let mut state = accepts.state();
        let place = state.waiters.iter().position(|waiter| waiter.ticket == *ticket);
        let waiter = state.waiters.remove(place.expect("a waiter stays until its future has ended"));
        let waker = match waiter.given {
            Some(Ok(arrival)) => state.give(waiter.core, Ok(arrival)),
            _ => None,
        };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Closes a connection that nobody wants any more.
pub(crate) type Close = Box<dyn Fn(ConnectionId) + Send + Sync>;

/// A connection that is being made.
pub(crate) struct Attempt {
    state: Mutex<AttemptState>,
    close: Close,
}

#[derive(Default)]
struct AttemptState {
    done: Option<Result<ConnectionId>>,
    waker: Option<Waker>,
    abandoned: bool,
}

impl Attempt {
    /// An attempt, and its future. `close`: closes what was made for nobody.
    pub fn start(close: Close) -> (Arc<Attempt>, Connecting) {
        let attempt = Arc::new(Attempt { state: Mutex::default(), close });
        (attempt.clone(), Connecting { state: Connect::Waiting(attempt) })
    }
    /// Ends the attempt.
    pub fn finish(&self, result: Result<ConnectionId>) {
        let mut state = self.state.lock().expect("no panic while held");
        if state.abandoned {
            drop(state);
            result.into_iter().for_each(|connection| (self.close)(connection));
            return;
        }
        state.done = Some(result);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

enum Connect {
    Waiting(Arc<Attempt>),
    Failed(Error),
    Ended,
}

/// The future of a connection that is made; see `Net::connect`.
pub struct Connecting {
    state: Connect,
}

impl Connecting {
    /// An attempt that has failed.
    pub(crate) fn failed(error: Error) -> Connecting {
        Connecting { state: Connect::Failed(error) }
    }
}

impl Future for Connecting {
    type Output = Result<ConnectionId>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<ConnectionId>> {
        match std::mem::replace(&mut self.state, Connect::Ended) {
            Connect::Waiting(attempt) => {
                let mut state = attempt.state.lock().expect("no panic while held");
                let Some(result) = state.done.take() else {
                    state.waker = Some(context.waker().clone());
                    drop(state);
                    self.state = Connect::Waiting(attempt);
                    return Poll::Pending;
                };
                Poll::Ready(result)
            }
            Connect::Failed(error) => Poll::Ready(Err(error)),
            Connect::Ended => panic!("polled after its end"),
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let Connect::Waiting(attempt) = &self.state else { return };
        let mut state = attempt.state.lock().expect("no panic while held");
        state.abandoned = true;
        state.waker = None;
        let made = state.done.take();
        drop(state);
        made.into_iter().flatten().for_each(|connection| (attempt.close)(connection));
    }
}
