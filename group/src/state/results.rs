//! Results of a session's last requests, for requests that are delivered twice (rule R1). Request numbers ascend and
//! nearly all requests are new, so a comparison with the highest number tells that there is no result.

use base::limits::SESSION_RESULTS_MAX;
use base::{Outcome, RequestId};
use std::collections::VecDeque;

/// The kept results of one session.
#[derive(Default)]
pub struct Results {
    /// Requests and outcomes, oldest first.
    last: VecDeque<(RequestId, Outcome)>,
    /// Highest number of a kept request so far.
    highest: u64,
}

impl Results {
    /// Keeps the outcome of a request; drops the oldest if there are too many.
    pub fn keep(&mut self, request: RequestId, outcome: Outcome) {
        // The index may hold more than this build keeps.
        while self.last.len() >= SESSION_RESULTS_MAX {
            self.last.pop_front();
        }
        self.highest = self.highest.max(request.0);
        self.last.push_back((request, outcome));
        assert!(self.last.len() <= SESSION_RESULTS_MAX, "a session keeps its last results");
    }
    /// The outcome of a request, if it is kept.
    pub fn of(&self, request: RequestId) -> Option<Outcome> {
        if request.0 > self.highest {
            return None;
        }
        self.last.iter().rev().find(|(known, _)| *known == request).map(|(_, outcome)| *outcome)
    }
    /// All, oldest first.
    pub fn all(&self) -> Vec<(RequestId, Outcome)> {
        self.last.iter().copied().collect()
    }
}

impl From<Vec<(RequestId, Outcome)>> for Results {
    fn from(last: Vec<(RequestId, Outcome)>) -> Results {
        let highest = last.iter().map(|(request, _)| request.0).max().unwrap_or(0);
        Results { last: last.into(), highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_in_any_order_of_numbers() {
        let mut results = Results::default();
        for request in [7, 3, 900, 5, 0] {
            assert_eq!(results.of(RequestId(request)), None);
            results.keep(RequestId(request), Outcome::Wrote { offset: request, length: 1 });
        }
        let stored = Results::from(results.all());
        for results in [&results, &stored] {
            for request in [7, 3, 900, 5, 0] {
                assert_eq!(results.of(RequestId(request)), Some(Outcome::Wrote { offset: request, length: 1 }));
            }
            assert_eq!([1, 901].map(|request| results.of(RequestId(request))), [None, None]);
        }
    }
}
