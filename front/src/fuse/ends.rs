//! The open handles of directories: the end of each one's listing, and which one fills the kernel's cache of listings.
//!
//! Promises: reading a directory through a handle ends, however fast the directory gets new entries: it shows the
//! entries that had their place when reading began. Reading begins anew at the directory's start, and at a place that does not
//! follow what was read last. A handle that is not tracked here has no such end; only the time at which each page is read
//! bounds what it shows. A handle takes at most 48 bytes, and at most `LISTED_HANDLES_MAX` handles of a mount are tracked.
//!
//! The kernel keeps a directory's listing, filled by whoever reads through a handle with `FOPEN_CACHE_DIR`, until an entry changes.
//! It compares the directory's version only where reading starts: a reading that started without the kept listing goes on in it
//! once another one has completed it, with entries from before its own start. So at most one open handle of a directory has that flag.

use base::Ino;
use base::limits::LISTED_HANDLES_MAX;
use std::array;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Number of a handle that is not tracked.
pub const ENDLESS: u32 = 0;

/// Slots for the handles that fill the kernel's cache, by directory. Of directories that share a slot, one at a time is cached.
const DIRECTORIES: usize = 256;

/// The open handles of a mount's directories. A handle's number names the core that handed it out: cores open directories in
/// parallel.
pub struct Ends {
    cores: Box<[Mutex<Slots>]>,
    /// The handle that fills the kernel's cache of the directories of each slot, or `ENDLESS` for none.
    caching: Box<[AtomicU32; DIRECTORIES]>,
}

#[derive(Default)]
struct Slots {
    handles: Vec<Handle>,
    free: Vec<u32>,
}

/// The state of one handle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handle {
    /// No handle has this number.
    Free,
    /// Nothing has been read through it.
    Unread,
    Read(Reading),
}

/// A reading of a directory that has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reading {
    /// Entries with cookies below it are shown.
    end: u64,
    /// The places that follow what was read last: above the first, up to the second. The kernel asks again for what its client had no
    /// room for.
    next: (u64, u64),
}

impl Ends {
    /// Ends without any handle.
    pub fn new(cores: usize) -> Ends {
        Ends {
            cores: (0..cores).map(|_| Mutex::default()).collect(),
            caching: Box::new(array::from_fn(|_| AtomicU32::new(ENDLESS))),
        }
    }
    /// Takes a number for a handle of a directory that a core hands out. Returns it, and whether the kernel's cache is filled through it.
    pub fn open(&self, core: usize, dir: Ino) -> (u32, bool) {
        let handle = self.number(core);
        let caching = &self.caching[dir.0 as usize % DIRECTORIES];
        let is_first = || caching.compare_exchange(ENDLESS, handle, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        (handle, handle != ENDLESS && is_first())
    }
    fn number(&self, core: usize) -> u32 {
        let count = self.cores.len();
        let mut slots = self.cores[core].lock().expect("no panic while held");
        let slot = match slots.free.pop() {
            Some(slot) => slot as usize,
            None if slots.handles.len() < LISTED_HANDLES_MAX / count => {
                slots.handles.push(Handle::Free);
                slots.handles.len() - 1
            }
            None => return ENDLESS,
        };
        assert!(slots.handles[slot] == Handle::Free, "a handle's number is given out once");
        slots.handles[slot] = Handle::Unread;
        (slot * count + core + 1) as u32
    }
    /// Gives the number of a directory's closed handle back.
    pub fn close(&self, handle: u32, dir: Ino) {
        let Some((mut slots, slot)) = self.slot(handle) else { return };
        let caching = &self.caching[dir.0 as usize % DIRECTORIES];
        let _ = caching.compare_exchange(handle, ENDLESS, Ordering::AcqRel, Ordering::Relaxed);
        // One that nobody handed out would be a mistake of the kernel's, which must not end the daemon.
        if slots.handles.get(slot).is_some_and(|handle| *handle != Handle::Free) {
            slots.handles[slot] = Handle::Free;
            slots.free.push(slot as u32);
            if slots.free.len() == slots.handles.len() {
                *slots = Slots::default();
            }
        }
    }
    /// A page behind the entry at `from` is read through a handle. Returns the end of the handle's listing: entries with cookies
    /// below it are shown. `newest`: the end of a reading that begins now.
    pub fn read(&self, handle: u32, from: u64, newest: u64) -> u64 {
        let Some((mut slots, slot)) = self.slot(handle) else { return newest };
        let Some(handle) = slots.handles.get_mut(slot).filter(|handle| **handle != Handle::Free) else { return newest };
        let reading = match *handle {
            Handle::Read(reading) if reading.follows(from) => reading,
            _ => Reading { end: newest, next: (from, from) },
        };
        *handle = Handle::Read(reading);
        reading.end
    }
    /// Notes that the page behind the entry at `from` ended with the one at `to`.
    pub fn note_page(&self, handle: u32, from: u64, to: u64) {
        let Some((mut slots, slot)) = self.slot(handle) else { return };
        if let Some(Handle::Read(reading)) = slots.handles.get_mut(slot) {
            reading.next = (from, to);
        }
    }
    fn slot(&self, handle: u32) -> Option<(MutexGuard<'_, Slots>, usize)> {
        let number = handle.checked_sub(1)? as usize;
        let slots = self.cores[number % self.cores.len()].lock().expect("no panic while held");
        Some((slots, number / self.cores.len()))
    }
}

impl Reading {
    /// True if a page behind the entry at `from` goes on with what was read last. At the directory's start, reading begins anew.
    fn follows(&self, from: u64) -> bool {
        let (last, next) = self.next;
        from != 0 && (from == next || (last < from && from < next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DIR: Ino = Ino(7);

    /// Opens a directory on a core. Returns the handle's number.
    fn open(ends: &Ends, core: usize) -> u32 {
        ends.open(core, DIR).0
    }

    /// Reads a page of `count` entries behind `from`. Returns the end.
    fn page(ends: &Ends, handle: u32, from: u64, count: u64, newest: u64) -> u64 {
        let end = ends.read(handle, from, newest);
        ends.note_page(handle, from, (from + count).min(end));
        end
    }

    #[test]
    fn each_handle_has_its_own_end() {
        let ends = Ends::new(3);
        let handles: Vec<u32> = (0..12).map(|number| open(&ends, number % 3)).collect();
        assert_eq!(handles.iter().collect::<BTreeSet<_>>().len(), 12);
        for &handle in &handles {
            assert_eq!(ends.read(handle, 0, 100 + u64::from(handle)), 100 + u64::from(handle));
            ends.note_page(handle, 0, 10);
        }
        for &handle in &handles {
            assert_eq!(ends.read(handle, 10, 500), 100 + u64::from(handle), "reading goes on");
        }
        ends.close(handles[5], DIR);
        assert_eq!(open(&ends, 2), handles[5], "a number is used again");
        assert_eq!(ends.read(handles[5], 10, 500), 500, "but not its end");
    }

    #[test]
    fn a_reading_keeps_its_end_until_it_begins_anew() {
        let ends = Ends::new(1);
        let handle = open(&ends, 0);
        assert_eq!(page(&ends, handle, 0, 20, 50), 50);
        assert_eq!(page(&ends, handle, 20, 20, 60), 50);
        assert_eq!(page(&ends, handle, 33, 20, 70), 50, "the client had no room for all of the page");
        assert_eq!(page(&ends, handle, 50, 0, 80), 50);
        assert_eq!(page(&ends, handle, 50, 0, 90), 50, "the end stays the end");
        for from in [0, 10, 20, 70] {
            let ends = Ends::new(1);
            let handle = open(&ends, 0);
            assert_eq!((page(&ends, handle, 0, 20, 50), page(&ends, handle, 20, 20, 60)), (50, 50));
            assert_eq!(page(&ends, handle, from, 20, 99), 99, "{from} does not follow 20 to 40");
        }
    }

    #[test]
    fn one_handle_of_a_directory_at_a_time_fills_the_cache() {
        let ends = Ends::new(2);
        let (one, fills) = ends.open(0, DIR);
        assert!(fills);
        let (other, fills) = ends.open(1, DIR);
        assert!(!fills);
        assert!(ends.open(1, Ino(DIR.0 + 1)).1, "a directory of its own");
        ends.close(other, DIR);
        assert!(!ends.open(1, DIR).1, "the first one is still open");
        ends.close(one, DIR);
        assert!(ends.open(1, DIR).1);
    }

    #[test]
    fn a_handle_of_nobody_changes_nothing() {
        let ends = Ends::new(2);
        for handle in [ENDLESS, 1, 2, 77, u32::MAX] {
            assert_eq!(ends.read(handle, 0, 5), 5);
            ends.note_page(handle, 0, 3);
            ends.close(handle, DIR);
            assert_eq!(ends.read(handle, 3, 6), 6);
        }
        let handle = open(&ends, 0);
        ends.close(handle, DIR);
        ends.close(handle, DIR);
        let others = [open(&ends, 0), open(&ends, 0)];
        assert_ne!(others[0], others[1], "a handle given back twice");
    }

    #[test]
    fn handles_beyond_the_bound_have_no_end() {
        let ends = Ends::new(4);
        let handles: Vec<u32> = (0..LISTED_HANDLES_MAX / 4).map(|_| open(&ends, 1)).collect();
        assert!(!handles.contains(&ENDLESS));
        ends.close(handles[0], DIR);
        open(&ends, 1);
        assert_eq!(ends.open(1, Ino(DIR.0 + 1)), (ENDLESS, false), "it could not be told when it closes");
        assert_ne!(open(&ends, 2), ENDLESS);
        ends.close(handles[9], DIR);
        assert_eq!(open(&ends, 1), handles[9]);
    }
}
