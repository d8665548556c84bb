//! The ends of directory listings, by handle.
//!
//! Promises: reading a directory through a handle ends, however fast the directory gets new entries: it shows the
//! entries that had their place when reading began. Reading begins anew at the directory's start, and at a place that does not
//! follow what was read last. A handle that is not tracked here has no such end; only the time at which each page is read
//! bounds what it shows. A handle takes at most 48 bytes, and at most `LISTED_HANDLES_MAX` handles of a mount are tracked.
//!
//! The kernel keeps listings. A stream that is rewound is answered from a kept one without a word to the daemon, as far as that
//! goes, and asks for the rest. What was kept has been read through another handle since the directory changed; so once another
//! handle has begun to read the directory, this one may have been rewound, and takes a new end. It does so `RENEWALS_MAX` times at
//! most, so that it ends all the same.

use base::Ino;
use base::limits::LISTED_HANDLES_MAX;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Number of a handle that is not tracked.
pub const ENDLESS: u32 = 0;

/// Most ends that a handle takes because others have begun to read its directory. More would be needed only if a stream were
/// rewound as often between two pages, each time met by a listing that another one had kept just as far.
const RENEWALS_MAX: u8 = 8;

/// Slots for the directories that were begun last. Directories that share a slot renew each other's ends: within the bound.
const DIRECTORIES: usize = 256;

/// The ends for a mount's handles. A handle's number names the core that handed it out: cores open directories in
/// parallel.
pub struct Ends {
    cores: Box<[Mutex<Slots>]>,
    /// Number of beginnings so far.
    beginnings: AtomicU64,
    /// The latest beginning in each directory.
    latest: Box<[AtomicU64; DIRECTORIES]>,
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
    /// The number of its beginning.
    begun: u64,
    renewals: u8,
}

impl Ends {
    /// Ends without any handle.
    pub fn new(cores: usize) -> Ends {
        Ends {
            cores: (0..cores).map(|_| Mutex::default()).collect(),
            beginnings: AtomicU64::new(0),
            latest: Box::new(array::from_fn(|_| AtomicU64::new(0))),
        }
    }
    /// Takes a number for a handle that a core hands out.
    pub fn open(&self, core: usize) -> u32 {
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
    /// Gives the number of a closed handle back.
    pub fn close(&self, handle: u32) {
        let Some((mut slots, slot)) = self.slot(handle) else { return };
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
    pub fn read(&self, handle: u32, dir: Ino, from: u64, newest: u64) -> u64 {
        let Some((mut slots, slot)) = self.slot(handle) else { return newest };
        let Some(handle) = slots.handles.get_mut(slot).filter(|handle| **handle != Handle::Free) else { return newest };
        let latest = &self.latest[dir.0 as usize % DIRECTORIES];
        let reading = match *handle {
            Handle::Read(reading) if reading.follows(from) => {
                let rewound = latest.load(Ordering::Relaxed) > reading.begun && reading.renewals < RENEWALS_MAX;
                match rewound {
                    true => Reading {
                        end: newest,
                        begun: self.beginnings.load(Ordering::Relaxed),
                        renewals: reading.renewals + 1,
                        ..reading
                    },
                    false => reading,
                }
            }
            _ => {
                let begun = self.beginnings.fetch_add(1, Ordering::Relaxed) + 1;
                latest.fetch_max(begun, Ordering::Relaxed);
                Reading { end: newest, next: (from, from), begun, renewals: 0 }
            }
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

    /// Reads a page of `count` entries behind `from`. Returns the end.
    fn page(ends: &Ends, handle: u32, from: u64, count: u64, newest: u64) -> u64 {
        let end = ends.read(handle, DIR, from, newest);
        ends.note_page(handle, from, (from + count).min(end));
        end
    }

    #[test]
    fn each_handle_has_its_own_end() {
        let ends = Ends::new(3);
        let handles: Vec<u32> = (0..12).map(|number| ends.open(number % 3)).collect();
        assert_eq!(handles.iter().collect::<BTreeSet<_>>().len(), 12);
        for (number, &handle) in handles.iter().enumerate() {
            assert_eq!(ends.read(handle, Ino(number as u64), 0, 100 + u64::from(handle)), 100 + u64::from(handle));
            ends.note_page(handle, 0, 10);
        }
        for (number, &handle) in handles.iter().enumerate() {
            assert_eq!(ends.read(handle, Ino(number as u64), 10, 500), 100 + u64::from(handle), "reading goes on");
        }
        ends.close(handles[5]);
        assert_eq!(ends.open(2), handles[5], "a number is used again");
        assert_eq!(ends.read(handles[5], Ino(5), 10, 500), 500, "but not its end");
    }

    #[test]
    fn a_reading_keeps_its_end_until_it_begins_anew() {
        let ends = Ends::new(1);
        let handle = ends.open(0);
        assert_eq!(page(&ends, handle, 0, 20, 50), 50);
        assert_eq!(page(&ends, handle, 20, 20, 60), 50);
        assert_eq!(page(&ends, handle, 33, 20, 70), 50, "the client had no room for all of the page");
        assert_eq!(page(&ends, handle, 50, 0, 80), 50);
        assert_eq!(page(&ends, handle, 50, 0, 90), 50, "the end stays the end");
        for from in [0, 10, 20, 70] {
            let ends = Ends::new(1);
            let handle = ends.open(0);
            assert_eq!((page(&ends, handle, 0, 20, 50), page(&ends, handle, 20, 20, 60)), (50, 50));
            assert_eq!(page(&ends, handle, from, 20, 99), 99, "{from} does not follow 20 to 40");
        }
    }

    #[test]
    fn a_stream_that_may_have_been_rewound_takes_a_new_end() {
        let ends = Ends::new(2);
        let (one, other) = (ends.open(0), ends.open(1));
        assert_eq!(page(&ends, one, 0, 20, 50), 50);
        // An entry is made, the other stream reads just as far, and the kernel answers the rewound one from that.
        assert_eq!(page(&ends, other, 0, 20, 51), 51);
        assert_eq!(page(&ends, one, 20, 20, 51), 51);
        assert_eq!(page(&ends, one, 40, 20, 60), 51, "nobody has begun since");
        // Others who begin all the time don't keep it from ending.
        let renewed = (0..100).filter(|number| {
            ends.read(other, DIR, 0, 0);
            page(&ends, one, 51 + number, 1, 1000 + number) == 1000 + number
        });
        assert_eq!(renewed.count() + 1, usize::from(RENEWALS_MAX));
        assert_eq!(page(&ends, one, 0, 20, 5000), 5000);
    }

    #[test]
    fn a_handle_of_nobody_changes_nothing() {
        let ends = Ends::new(2);
        for handle in [ENDLESS, 1, 2, 77, u32::MAX] {
            assert_eq!(ends.read(handle, DIR, 0, 5), 5);
            ends.note_page(handle, 0, 3);
            ends.close(handle);
            assert_eq!(ends.read(handle, DIR, 3, 6), 6);
        }
        let handle = ends.open(0);
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
