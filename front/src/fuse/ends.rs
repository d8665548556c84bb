//! The ends of directory listings, by handle.
//!
//! Promises: reading a directory through a handle ends, however fast the directory gets new entries: it shows only
//! entries that existed when reading began. Reading at the directory's start begins a new listing with a new end. A
//! handle that is not tracked here has no such end, so its listing also shows entries made while it is read. A handle
//! takes at most 12 bytes, and at most `LISTED_HANDLES_MAX` handles of a mount are tracked.

use base::limits::LISTED_HANDLES_MAX;
use std::sync::{Mutex, MutexGuard};

/// Number of a handle that is not tracked.
pub const ENDLESS: u32 = 0;

/// The ends for a mount's handles. A handle's number names the core that handed it out: cores open directories in
/// parallel.
pub struct Ends {
    cores: Box<[Mutex<Slots>]>,
}

#[derive(Default)]
struct Slots {
    ends: Vec<End>,
    free: Vec<u32>,
}

/// The end of one handle.
#[derive(Clone, Copy, PartialEq, Eq)]
struct End(u64);

/// Marks a number that no handle has.
const FREE: End = End(u64::MAX);
/// Marks a handle through which nothing has been read.
const UNREAD: End = End(0);

impl Ends {
    /// Ends without any handle.
    pub fn new(cores: usize) -> Ends {
        Ends { cores: (0..cores).map(|_| Mutex::default()).collect() }
    }
    /// Takes a number for a handle that a core hands out.
    pub fn open(&self, core: usize) -> u32 {
        let count = self.cores.len();
        let mut slots = self.cores[core].lock().expect("no panic while held");
        let slot = match slots.free.pop() {
            Some(slot) => slot as usize,
            None if slots.ends.len() < LISTED_HANDLES_MAX / count => {
                slots.ends.push(FREE);
                slots.ends.len() - 1
            }
            None => return ENDLESS,
        };
        assert!(slots.ends[slot] == FREE, "a handle's number is given out once");
        slots.ends[slot] = UNREAD;
        (slot * count + core + 1) as u32
    }
    /// Gives the number of a closed handle back.
    pub fn close(&self, handle: u32) {
        let Some((mut slots, slot)) = self.slot(handle) else { return };
        // A number that was never handed out would be a mistake of the kernel's, which must not end the daemon.
        if slots.ends.get(slot).is_some_and(|end| *end != FREE) {
            slots.ends[slot] = FREE;
            slots.free.push(slot as u32);
            if slots.free.len() == slots.ends.len() {
                *slots = Slots::default();
            }
        }
    }
    /// The end of a handle's listing: entries with cookies below it are shown. None if nothing has been read through
    /// the handle.
    pub fn of(&self, handle: u32) -> Option<u64> {
        let (slots, slot) = self.slot(handle)?;
        slots.ends.get(slot).copied().filter(|end| ![FREE, UNREAD].contains(end)).map(|end| end.0)
    }
    /// Notes that reading through the handle begins, and where it will end.
    pub fn begin(&self, handle: u32, end: u64) {
        assert!(![FREE, UNREAD].contains(&End(end)), "the cookie of no entry");
        let Some((mut slots, slot)) = self.slot(handle) else { return };
        if let Some(known) = slots.ends.get_mut(slot).filter(|end| **end != FREE) {
            *known = End(end);
        }
    }
    fn slot(&self, handle: u32) -> Option<(MutexGuard<'_, Slots>, usize)> {
        let number = handle.checked_sub(1)? as usize;
        let slots = self.cores[number % self.cores.len()].lock().expect("no panic while held");
        Some((slots, number / self.cores.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_handle_has_its_own_end() {
        let ends = Ends::new(3);
        let handles: Vec<u32> = (0..12).map(|number| ends.open(number % 3)).collect();
        assert_eq!(handles.iter().collect::<BTreeSet<_>>().len(), 12);
        assert!(handles.iter().all(|handle| *handle != ENDLESS && ends.of(*handle).is_none()));
        handles.iter().for_each(|handle| ends.begin(*handle, 100 + u64::from(*handle)));
        assert!(handles.iter().all(|handle| ends.of(*handle) == Some(100 + u64::from(*handle))));
        ends.begin(handles[5], 7);
        assert_eq!((ends.of(handles[5]), ends.of(handles[2])), (Some(7), Some(100 + u64::from(handles[2]))));
        ends.close(handles[5]);
        assert_eq!(ends.of(handles[5]), None);
        assert_eq!(ends.open(2), handles[5], "a number is used again");
        assert_eq!(ends.of(handles[5]), None, "but not its end");
    }

    #[test]
    fn a_handle_of_nobody_changes_nothing() {
        let ends = Ends::new(2);
        for handle in [ENDLESS, 1, 2, 77, u32::MAX] {
            ends.begin(handle, 5);
            ends.close(handle);
            assert_eq!(ends.of(handle), None);
        }
        let handle = ends.open(0);
        ends.begin(handle, 5);
        ends.close(handle);
        ends.close(handle);
        let others = [ends.open(0), ends.open(0)];
        assert_ne!(others[0], others[1], "a handle given back twice");
    }

    #[test]
    fn handles_beyond_the_bound_have_no_end() {
        let ends = Ends::new(4);
        let handles: Vec<u32> = (0..LISTED_HANDLES_MAX / 4).map(|_| ends.open(1)).collect();
        assert!(!handles.contains(&ENDLESS));
        assert_eq!(ends.open(1), ENDLESS);
        assert_ne!(ends.open(2), ENDLESS);
        ends.close(handles[9]);
        assert_eq!(ends.open(1), handles[9]);
    }
}
