//! The two directions of a connection, as futures and as the slots that they wait for. A direction owns the buffers of
//! its I/O until the performer (the kernel, or the simulation) is done with them; the connection is the slot, so a warm
//! I/O allocates nothing.
//!
//! Promises: bytes that came for a receive whose future is gone go to the next one, in order; a send whose future is
//! gone goes on. A performer has at most one receive and one send of a connection at a time. Absent by design: how bytes
//! are moved.

use crate::buffer::{Buf, Slice};
use crate::sync::{Mutex, MutexGuard};
use base::{Error, Result};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The next step of a performer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Step {
    /// An I/O is to be begun, or gone on with.
    Issue,
    /// There is nothing to do.
    Rest,
}

/// Both directions of a connection.
#[derive(Default)]
pub(crate) struct Stream {
    receiver: Mutex<Receiver>,
    sender: Mutex<Sender>,
}

/// A receive.
struct Receive {
    buffer: Buf,
    least: usize,
    filled: usize,
    /// Bytes at its beginning that receives after it have taken, since its own future is gone.
    taken: usize,
}

impl Receive {
    /// Takes bytes from another place, as many as there are and fit. Returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..][..count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }
}

#[derive(Default)]
struct Receiver {
    /// The receive that the performer has.
    performed: Option<Receive>,
    /// True if its future is gone.
    abandoned: bool,
    /// The future's receive, while the performer still has one before it.
    waiting: Option<Receive>,
    done: Option<(Buf, Result<usize>)>,
    /// Bytes that came for receives whose futures are gone.
    left: VecDeque<(Buf, Range<usize>)>,
    /// The end of the stream or, as an error, of the connection.
    end: Option<Result<()>>,
    has_future: bool,
    waker: Option<Waker>,
}

/// A send.
struct Send {
    slices: Vec<Slice>,
    sent: usize,
}

impl Send {
    fn is_whole(&self) -> bool {
        self.sent == self.slices.iter().map(|slice| slice.len()).sum()
    }
}

#[derive(Default)]
struct Sender {
    performed: Option<Send>,
    abandoned: bool,
    waiting: Option<Send>,
    done: Option<(Vec<Slice>, Result<()>)>,
    end: Option<Error>,
    has_future: bool,
    waker: Option<Waker>,
}

impl Receiver {
    /// Begins a receive behind one whose future is gone, and takes what that one has. The performer writes behind these bytes.
    fn queue(&mut self, mut receive: Receive) {
        let before = self.performed.as_mut().expect("the caller looked");
        assert!(self.abandoned && self.waiting.is_none(), "one receive at a time has a future");
        before.taken += receive.take(&before.buffer[before.taken..before.filled]);
        if receive.filled >= receive.least {
            self.done = Some((receive.buffer, Ok(receive.filled)));
        } else {
            self.waiting = Some(receive);
        }
    }
    /// Gives bytes back that nobody has seen, the last that were taken.
    fn give_back(&mut self, buffer: Buf, count: usize) {
        match &mut self.performed {
            // As long as this one is there, they came from it.
            Some(before) => before.taken -= count,
            None if count > 0 => self.left.push_front((buffer, 0..count)),
            None => {}
        }
    }
    /// Takes what is left from earlier. Done if that is enough or the stream has ended.
    fn begin(&mut self, mut receive: Receive) -> Step {
        while receive.filled < receive.buffer.len()
            && let Some((from, range)) = self.left.front_mut()
        {
            range.start += receive.take(&from[range.clone()]);
            if range.start == range.end {
                self.left.pop_front();
            }
        }
        self.go_on(receive)
    }
    fn go_on(&mut self, receive: Receive) -> Step {
        let Receive { filled, least, .. } = receive;
        let result = match &self.end {
            _ if filled >= least => Ok(filled),
            None => {
                self.performed = Some(receive);
                return Step::Issue;
            }
            Some(Ok(())) => Ok(filled),
            Some(Err(error)) => Err(error.clone()),
        };
        self.done = Some((receive.buffer, result));
        Step::Rest
    }
    /// Takes in what the performer has done: the number of bytes, where 0 is the end of the stream.
    fn received(&mut self, result: Result<usize>) -> Step {
        let mut receive = self.performed.take().expect("the performer had a receive");
        match result {
            Ok(0) => drop(self.end.get_or_insert(Ok(()))),
            Ok(count) => receive.filled += count,
            Err(error) => drop(self.end.get_or_insert(Err(error))),
        }
        assert!(receive.filled <= receive.buffer.len(), "no more comes than was asked for");
        if !std::mem::take(&mut self.abandoned) {
            return self.go_on(receive);
        }
        assert!(self.left.is_empty(), "what is left is taken first");
        if receive.filled > receive.taken {
            self.left.push_back((receive.buffer, receive.taken..receive.filled));
        }
        self.waiting.take().map_or(Step::Rest, |waiting| self.begin(waiting))
    }
}

impl Sender {
    fn go_on(&mut self, send: Send) -> Step {
        let result = match &self.end {
            _ if send.is_whole() => Ok(()),
            None => {
                self.performed = Some(send);
                return Step::Issue;
            }
            Some(error) => Err(error.clone()),
        };
        self.done = Some((send.slices, result));
        Step::Rest
    }
    fn sent(&mut self, result: Result<usize>) -> Step {
        let mut send = self.performed.take().expect("the performer had a send");
        match result {
            Ok(count) => send.sent += count,
            Err(error) => drop(self.end.get_or_insert(error)),
        }
        let step = self.go_on(send);
        if step == Step::Issue || !std::mem::take(&mut self.abandoned) {
            return step;
        }
        self.done = None;
        self.waiting.take().map_or(Step::Rest, |waiting| self.go_on(waiting))
    }
}

impl Stream {
    fn receiver(&self) -> MutexGuard<'_, Receiver> {
        self.receiver.lock().expect("no panic while held")
    }
    fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().expect("no panic while held")
    }
    /// A receive, which the caller has to issue if it is told so.
    pub fn receive(self: &Arc<Stream>, buffer: Buf, least: usize) -> (Receiving, Step) {
        assert!((1..=buffer.len()).contains(&least), "a receive is of 1 byte to the buffer's length: {least}");
        let mut receiver = self.receiver();
        assert!(!receiver.has_future, "a connection has one receive at a time");
        receiver.has_future = true;
        let receive = Receive { buffer, least, filled: 0, taken: 0 };
        let step = if receiver.performed.is_some() {
            receiver.queue(receive);
            Step::Rest
        } else {
            receiver.begin(receive)
        };
        drop(receiver);
        (Receiving { state: State::Waiting(self.clone()) }, step)
    }
    /// Runs `with` on the memory that the issued receive has to fill. It stays where it is until `received`.
    pub fn with_room<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut receiver = self.receiver();
        let receive = receiver.performed.as_mut().expect("an issued receive is there");
        with(&mut receive.buffer[receive.filled..])
    }
    /// Ends an issued receive: with the number of bytes that came, 0 at the end of the stream.
    pub fn received(&self, result: Result<usize>) -> Step {
        let mut receiver = self.receiver();
        let step = receiver.received(result);
        let waker = receiver.done.is_some().then(|| receiver.waker.take()).flatten();
        drop(receiver);
        waker.into_iter().for_each(Waker::wake);
        step
    }
    /// A send, which the caller has to issue if it is told so.
    pub fn send(self: &Arc<Stream>, slices: Vec<Slice>) -> (Sending, Step) {
        let mut sender = self.sender();
        assert!(!sender.has_future, "a connection has one send at a time");
        sender.has_future = true;
        let send = Send { slices, sent: 0 };
        let step = if sender.performed.is_some() {
            sender.waiting = Some(send);
            Step::Rest
        } else {
            sender.go_on(send)
        };
        drop(sender);
        (Sending { state: State::Waiting(self.clone()) }, step)
    }
    /// Runs `with` on the slices of the issued send, and on the number of bytes that were sent already. They stay where
    /// they are until `sent`.
    pub fn with_rest<R>(&self, with: impl FnOnce(&[Slice], usize) -> R) -> R {
        let sender = self.sender();
        let send = sender.performed.as_ref().expect("an issued send is there");
        with(&send.slices, send.sent)
    }
    /// Ends an issued send, with the number of bytes that were sent.
    pub fn sent(&self, result: Result<usize>) -> Step {
        let mut sender = self.sender();
        let step = sender.sent(result);
        let waker = sender.done.is_some().then(|| sender.waker.take()).flatten();
        drop(sender);
        waker.into_iter().for_each(Waker::wake);
        step
    }
    /// Ends both directions: nothing is issued any more. What the performer has, it still has to end.
    pub fn end(&self, error: &Error) {
        self.receiver().end.get_or_insert_with(|| Err(error.clone()));
        self.sender().end.get_or_insert_with(|| error.clone());
    }
    /// True while a receive is issued.
    pub fn is_receiving(&self) -> bool {
        self.receiver().performed.is_some()
    }
    /// True while a send is issued.
    pub fn is_sending(&self) -> bool {
        self.sender().performed.is_some()
    }
}

enum State<T> {
    Waiting(Arc<Stream>),
    Failed(T, Error),
    Ended,
}

/// The future of a receive; see `Net::receive`.
pub struct Receiving {
    state: State<Buf>,
}

impl Receiving {
    /// A receive that has failed.
    pub(crate) fn failed(buffer: Buf, error: Error) -> Receiving {
        Receiving { state: State::Failed(buffer, error) }
    }
}

impl Future for Receiving {
    type Output = (Buf, Result<usize>);
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(Buf, Result<usize>)> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Waiting(stream) => {
                let mut receiver = stream.receiver();
                let Some(done) = receiver.done.take() else {
                    wait(&mut receiver.waker, context);
                    drop(receiver);
                    self.state = State::Waiting(stream);
                    return Poll::Pending;
                };
                receiver.has_future = false;
                Poll::Ready(done)
            }
            State::Failed(buffer, error) => Poll::Ready((buffer, Err(error))),
            State::Ended => panic!("polled after its end"),
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let State::Waiting(stream) = &self.state else { return };
        let mut receiver = stream.receiver();
        receiver.has_future = false;
        receiver.waker = None;
        if let Some((buffer, result)) = receiver.done.take() {
            receiver.give_back(buffer, result.unwrap_or(0));
        } else if let Some(waiting) = receiver.waiting.take() {
            receiver.give_back(waiting.buffer, waiting.filled);
        } else {
            receiver.abandoned = true;
        }
    }
}

/// The future of a send; see `Net::send`.
pub struct Sending {
    state: State<Vec<Slice>>,
}

impl Sending {
    /// A send that has failed.
    pub(crate) fn failed(slices: Vec<Slice>, error: Error) -> Sending {
        Sending { state: State::Failed(slices, error) }
    }
}

impl Future for Sending {
    type Output = (Vec<Slice>, Result<()>);
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(Vec<Slice>, Result<()>)> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Waiting(stream) => {
                let mut sender = stream.sender();
                let Some(done) = sender.done.take() else {
                    wait(&mut sender.waker, context);
                    drop(sender);
                    self.state = State::Waiting(stream);
                    return Poll::Pending;
                };
                sender.has_future = false;
                Poll::Ready(done)
            }
            State::Failed(slices, error) => Poll::Ready((slices, Err(error))),
            State::Ended => panic!("polled after its end"),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let State::Waiting(stream) = &self.state else { return };
        let mut sender = stream.sender();
        sender.has_future = false;
        sender.waker = None;
        if sender.done.take().is_none() && sender.waiting.take().is_none() {
            sender.abandoned = true;
        }
    }
}

fn wait(waker: &mut Option<Waker>, context: &Context<'_>) {
    if !waker.as_ref().is_some_and(|old| old.will_wake(context.waker())) {
        *waker = Some(context.waker().clone());
    }
}
