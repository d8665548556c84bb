//! The numbers of a session's requests, and which of them are answered (rule P9).

use base::limits::SESSION_OPEN_MAX;
use std::collections::BTreeSet;

/// The requests that are open; numbers begin with 1.
pub struct Window {
    /// The next number.
    next: u64,
    open: BTreeSet<u64>,
}

impl Default for Window {
    fn default() -> Window {
        Window { next: 1, open: BTreeSet::new() }
    }
}

impl Window {
    /// The next request's number; None while too many are open.
    pub fn open(&mut self) -> Option<u64> {
        if self.next - self.done() >= SESSION_OPEN_MAX {
            return None;
        }
        self.open.insert(self.next);
        self.next += 1;
        Some(self.next - 1)
    }
    /// Notes that the client has a request's answer.
    pub fn answered(&mut self, number: u64) {
        let was_open = self.open.remove(&number);
        assert!(was_open, "request {number} is answered once");
    }
    /// The client has the answers of all requests below this number.
    pub fn done(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_open_request_bounds_what_is_given_out() {
        let mut window = Window::default();
        assert_eq!((window.done(), window.open(), window.done()), (1, Some(1), 1));
        for number in 2..=SESSION_OPEN_MAX {
            assert_eq!(window.open(), Some(number));
        }
        (2..=SESSION_OPEN_MAX).for_each(|number| window.answered(number));
        assert_eq!((window.open(), window.done()), (None, 1), "the first one is open");
        window.answered(1);
        assert_eq!((window.done(), window.open()), (SESSION_OPEN_MAX + 1, Some(SESSION_OPEN_MAX + 1)));
    }
}
