//! A session as one group knows it: who has it, and the results of its requests whose answers the client may not have, for
//! requests that are delivered twice (rules R1, P9). Request numbers ascend and nearly all requests are new, so a comparison
//! with the highest number tells that there is no result.

use super::State;
use base::limits::SESSION_OPEN_MAX;
use base::{Error, Holder, Kind, Outcome, RequestId, Result, SessionId};
use runtime::seeded::{Bug, active};
use std::collections::VecDeque;
use store::format::values::SessionRow;
use wire::Context;

/// The effect of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It has a record. What it has opened or made known is counted in memory.
    Recorded,
    /// It has a record of before a start, or of a tenure before: what it has opened or made known is not counted, since its client has not told
    /// of it.
    Uncounted,
    /// It has changed only memory, such as an open or a lock.
    InMemory,
}

/// A session; see the module.
#[derive(Default)]
pub struct Session {
    /// The client on another machine that has it.
    pub holder: Option<Holder>,
    /// Requests and outcomes in the order in which they took effect.
    kept: VecDeque<(RequestId, Outcome, Effect)>,
    /// Highest number of a kept request so far.
    highest: u64,
    /// The client has the answers of all requests with a lower number.
    done: u64,
}

impl Session {
    /// Keeps the outcome of a request, and lets go of those that the client has.
    pub fn keep(&mut self, request: RequestId, outcome: Outcome, effect: Effect) {
        self.highest = self.highest.max(request.0);
        // A client gives out no number before it has the answers of those this far below.
        self.close((self.highest + 1).saturating_sub(SESSION_OPEN_MAX));
        if active(Bug::ResultsCutByCount) && self.kept.len() >= 8 {
            self.kept.pop_front();
        }
        self.kept.push_back((request, outcome, effect));
    }
    /// Lets go of the results of requests below `done`: the client has them, and delivers none of these requests again.
    pub fn close(&mut self, done: u64) {
        self.done = self.done.max(done);
        while self.kept.front().is_some_and(|(request, ..)| request.0 < self.done) {
            self.kept.pop_front();
        }
    }
    /// The outcome of a request, if it took effect before. Errors: `Fenced` for a request that the client has the answer of: its
    /// result may be gone, so it can't be told whether it took effect.
    pub fn of(&self, request: RequestId) -> Result<Option<Outcome>> {
        if request.0 < self.done {
            return Err(Error::new(Kind::Fenced, "the request is older than those whose answers its client has"));
        }
        if request.0 > self.highest {
            return Ok(None);
        }
        Ok(self.kept.iter().rev().find(|(known, ..)| *known == request).map(|(_, outcome, _)| *outcome))
    }
    /// Forgets the results whose effects were in memory, with those: what is delivered again is to take effect again.
    pub fn forget_memory(&mut self) {
        self.kept.retain(|(_, _, effect)| *effect != Effect::InMemory);
        self.kept.iter_mut().for_each(|(_, _, effect)| *effect = Effect::Uncounted);
    }
    /// True, once, if a request took effect before a start and is delivered again: what it has opened or made known is to be counted.
    pub fn count(&mut self, request: RequestId) -> bool {
        let found = self.kept.iter_mut().rev().find(|(known, ..)| *known == request);
        found.is_some_and(|(_, _, effect)| std::mem::replace(effect, Effect::Recorded) == Effect::Uncounted)
    }
    /// The session's row. A start loses what is in memory.
    pub fn row(&self) -> SessionRow {
        let recorded = self.kept.iter().filter(|(_, _, effect)| *effect != Effect::InMemory);
        let results = recorded.map(|(request, outcome, _)| (*request, *outcome)).collect();
        SessionRow { holder: self.holder.clone(), results }
    }
}

impl From<SessionRow> for Session {
    fn from(row: SessionRow) -> Session {
        let highest = row.results.iter().map(|(request, _)| request.0).max().unwrap_or(0);
        let kept = row.results.into_iter().map(|(request, outcome)| (request, outcome, Effect::Uncounted)).collect();
        Session { holder: row.holder, kept, highest, done: 0 }
    }
}

impl State {
    /// Keeps the outcome of a request that has a record for a second delivery (rule R1), and lets go of those of requests below `done`.
    /// False if there is nothing to keep: the request is no session's, or is delivered once.
    pub fn keep_result(&mut self, session: SessionId, request: RequestId, outcome: Outcome, done: u64) -> bool {
        self.keep(session, (request, outcome, Effect::Recorded), done)
    }
    /// The same of a request that changes only memory, and has no record: its result is lost together with its effect.
    pub fn keep_in_memory(&mut self, context: &Context, outcome: Outcome) {
        self.keep(context.session, (context.request, outcome, Effect::InMemory), context.done);
    }
    fn keep(&mut self, session: SessionId, kept: (RequestId, Outcome, Effect), done: u64) -> bool {
        if session == SessionId(0) || done == Context::ONCE {
            return false;
        }
        let session = self.sessions.entry(session).or_default();
        session.close(done);
        session.keep(kept.0, kept.1, kept.2);
        true
    }
    /// The result of a request that was delivered before. Errors: `Fenced` if its client has the answer already.
    pub fn result(&self, session: SessionId, request: RequestId) -> Result<Option<Outcome>> {
        match self.sessions.get(&session) {
            Some(session) if !active(Bug::ResultForgotten) => session.of(request),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(request: u64) -> Outcome {
        Outcome::Wrote { offset: request, length: 1 }
    }

    #[test]
    fn what_is_kept_is_found_in_any_order_of_numbers() {
        let mut session = Session::default();
        for request in [7, 3, 900, 5, 0] {
            assert_eq!(session.of(RequestId(request)), Ok(None));
            session.keep(RequestId(request), wrote(request), Effect::Recorded);
        }
        let stored = Session::from(session.row());
        for session in [&session, &stored] {
            for request in [7, 3, 900, 5, 0] {
                assert_eq!(session.of(RequestId(request)), Ok(Some(wrote(request))));
            }
            assert_eq!([1, 901].map(|request| session.of(RequestId(request))), [Ok(None), Ok(None)]);
        }
    }

    #[test]
    fn a_result_is_kept_until_the_client_has_it_and_an_older_request_is_refused() {
        let mut session = Session::default();
        (1..=3000).for_each(|request| session.keep(RequestId(request), wrote(request), Effect::Recorded));
        assert_eq!(session.of(RequestId(3000 - SESSION_OPEN_MAX + 1)), Ok(Some(wrote(3000 - SESSION_OPEN_MAX + 1))));
        let old = session.of(RequestId(3000 - SESSION_OPEN_MAX));
        assert_eq!(old.map_err(|error| error.kind), Err(Kind::Fenced));
        session.close(2990);
        assert_eq!(session.row().results.len(), 11);
        assert_eq!(session.of(RequestId(2990)), Ok(Some(wrote(2990))));
        assert_eq!(session.of(RequestId(2989)).map_err(|error| error.kind), Err(Kind::Fenced));
        session.close(5);
        assert_eq!(session.row().results.len(), 11, "what is closed stays closed");
    }

    #[test]
    fn a_result_goes_with_an_effect_that_was_in_memory() {
        let mut session = Session::default();
        session.keep(RequestId(1), wrote(1), Effect::Recorded);
        session.keep(RequestId(2), Outcome::Done, Effect::InMemory);
        session.keep(RequestId(3), wrote(3), Effect::Recorded);
        assert_eq!(session.of(RequestId(2)), Ok(Some(Outcome::Done)));
        let stored = Session::from(session.row());
        session.forget_memory();
        for mut session in [session, stored] {
            let found = [1, 2, 3].map(|request| session.of(RequestId(request)).expect("it is not done"));
            assert_eq!(found, [Some(wrote(1)), None, Some(wrote(3))], "what is delivered again takes effect again");
            session.keep(RequestId(4), wrote(4), Effect::Recorded);
            let counts = [1, 1, 2, 3, 4].map(|request| session.count(RequestId(request)));
            assert_eq!(counts, [true, false, false, true, false], "of each from before once");
        }
    }
}
