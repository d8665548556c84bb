//! The numbers of a session's requests, which of them are answered (rule P9), and the bytes that are under way with them.

use base::limits::{SESSION_BYTES_MAX, SESSION_OPEN_MAX};
use std::collections::BTreeMap;

/// Bytes under way at which those that wait for room are told of it: a quarter of the bound is free then, so that each time many
/// are woken, several go on.
const RESUME_BYTES: usize = SESSION_BYTES_MAX / 4 * 3;

/// The requests that are open; numbers begin with 1.
pub struct Window {
    /// The next number.
    next: u64,
    /// The open ones, with the bytes of each.
    open: BTreeMap<u64, usize>,
    /// The sum of their bytes.
    bytes: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { next: 1, open: BTreeMap::new(), bytes: 0 }
    }
}

impl Window {
    /// The number of the next request, which has so many bytes; None while too many are open, or too many bytes.
    pub fn open(&mut self, bytes: usize) -> Option<u64> {
        if self.next - self.done() >= SESSION_OPEN_MAX || self.bytes >= SESSION_BYTES_MAX {
            return None;
        }
        self.open.insert(self.next, bytes);
        self.bytes += bytes;
        self.next += 1;
        Some(self.next - 1)
    }
    /// Notes that the client has a request's answer. True if those that wait may look again.
    pub fn answered(&mut self, number: u64) -> bool {
        let bytes = self.open.remove(&number).expect("a request is answered once");
        self.bytes -= bytes;
        self.bytes < RESUME_BYTES
    }
    /// The client has the answers of all requests below this number.
    pub fn done(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_open_request_bounds_what_is_given_out() {
        let mut window = Window::default();
        assert_eq!((window.done(), window.open(0), window.done()), (1, Some(1), 1));
        for number in 2..=SESSION_OPEN_MAX {
            assert_eq!(window.open(0), Some(number));
        }
        (2..=SESSION_OPEN_MAX).for_each(|number| assert!(window.answered(number)));
        assert_eq!((window.open(0), window.done()), (None, 1), "the first one is open");
        assert!(window.answered(1));
        assert_eq!((window.done(), window.open(0)), (SESSION_OPEN_MAX + 1, Some(SESSION_OPEN_MAX + 1)));
    }

    #[test]
    fn bytes_under_way_are_bounded() {
        let (mut window, piece) = (Window::default(), SESSION_BYTES_MAX / 8);
        (1..=8).for_each(|number| assert_eq!(window.open(piece), Some(number)));
        assert_eq!((window.open(piece), window.open(0)), (None, None), "no more are under way");
        assert!(!window.answered(1) && !window.answered(2), "it is too early to wake those that wait");
        assert!(window.answered(3));
        assert_eq!((window.open(piece), window.open(piece), window.open(piece)), (Some(9), Some(10), Some(11)));
        assert_eq!(window.open(piece), None);
    }
}
