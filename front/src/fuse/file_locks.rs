//! Locks of files on a mount that shares its volume: the kernel passes them on, and the server decides (`wire::locks`).
//!
//! Promises: who waits for a lock is told when it can be had, and asks each second besides; a signal ends the wait; what is locked through
//! a handle is given back at its end, if the kernel does not say so itself. That concerns OFD locks and flock: their owner is the open file,
//! and the kernel tells of its end without naming them, while who closes it goes on; the next open file may have the same number, so it
//! gets no lock until what the former one had is given back. Owners that are processes (POSIX) give everything back with the first
//! close of the file (FLUSH).

use super::sharing::Sharing;
use base::lock::{Family, FileLock, LockWish, Mode};
use base::{Error, Ino, Kind, Op, Reply, Result};
use runtime::Event;
use runtime::tasks::either;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// Interval at which a lock is asked for again: its place in the queue is kept for five times as long.
const ASK_NS: u64 = 1_000_000_000;

/// The wish of the kernel for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsk {
    /// The handle through which it is locked.
    pub handle: u64,
    /// The lock.
    pub lock: FileLock,
    /// The wish.
    pub wish: LockWish,
}

/// An owner's family of locks.
type Owner = (Family, u64);

/// The owners that have locked something, by file and handle.
#[derive(Default)]
pub struct Owners {
    files: Mutex<Files>,
    /// Notified when what was locked through a handle is given back.
    given_back: Event,
}

#[derive(Default)]
struct Files {
    noted: BTreeMap<Ino, BTreeMap<u64, BTreeSet<Owner>>>,
    /// Owners whose locks are being given back, since their handles have ended.
    leaving: BTreeSet<(Ino, Owner)>,
}

impl Owners {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect("no panic while held")
    }
    /// Notes that an owner asks for a lock through a handle, once an open file whose number it has got has given its locks back: given back
    /// later, they would take the new one's along.
    pub async fn note(&self, handle: u64, lock: &FileLock) {
        loop {
            let ticket = self.given_back.ticket();
            if self.has_noted(handle, lock) {
                return;
            }
            self.given_back.after(ticket).await;
        }
    }
    fn has_noted(&self, handle: u64, lock: &FileLock) -> bool {
        let (mut files, owner) = (self.files(), (lock.family, lock.owner));
        if files.leaving.contains(&(lock.ino, owner)) {
            return false;
        }
        files.noted.entry(lock.ino).or_default().entry(handle).or_default().insert(owner);
        true
    }
    /// Forgets a process, which gives all of its locks of a file back. False if it has asked for none.
    pub fn flushed(&self, ino: Ino, owner: u64) -> bool {
        let noted = &mut self.files().noted;
        let Some(handles) = noted.get_mut(&ino) else { return false };
        let gone =
            handles.values_mut().filter_map(|owners| owners.remove(&(Family::Range, owner)).then_some(())).count();
        handles.retain(|_, owners| !owners.is_empty());
        if handles.is_empty() {
            noted.remove(&ino);
        }
        gone > 0
    }
    /// Forgets a handle; the owners that have locked something through it, and through no other: one that has is the next open file of
    /// the same number, which may have the lock already.
    pub fn released(&self, ino: Ino, handle: u64) -> Leaving<'_> {
        let files = &mut *self.files();
        let mut gone = BTreeSet::new();
        if let Some(handles) = files.noted.get_mut(&ino) {
            gone = handles.remove(&handle).unwrap_or_default();
            gone.retain(|owner| !handles.values().any(|others| others.contains(owner)));
            if handles.is_empty() {
                files.noted.remove(&ino);
            }
        }
        files.leaving.extend(gone.iter().map(|owner| (ino, *owner)));
        Leaving { owners: self, ino, gone }
    }
}

/// Owners whose locks of a file are being given back, until this is dropped.
pub struct Leaving<'a> {
    owners: &'a Owners,
    ino: Ino,
    gone: BTreeSet<Owner>,
}

impl Leaving<'_> {
    /// The owners.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.gone.iter().copied()
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        self.owners.files().leaving.retain(|(ino, owner)| *ino != self.ino || !self.gone.contains(owner));
        self.owners.given_back.notify();
    }
}

/// All of a file, for an owner to give back.
pub fn all_of(ino: Ino, (family, owner): Owner) -> Op {
    let lock = FileLock { ino, family, mode: Mode::Exclusive, owner, pid: 0, first: 0, last: u64::MAX };
    Op::Lock { lock: Box::new(lock), wish: LockWish::Release }
}

/// Waits for a lock. `ask` asks the server. Errors: those of the server; `Interrupted`, by a signal for the request.
pub async fn wait(
    sharing: &Sharing,
    unique: u64,
    lock: FileLock,
    ask: impl AsyncFn(Op) -> Result<Reply>,
) -> Result<()> {
    let wish = |wish| Op::Lock { lock: Box::new(lock), wish };
    let (clock, waiting) = (sharing.clock(), &sharing.waiting);
    let wait = sharing.session().share().lock_wait(lock.ino, lock.owner);
    loop {
        let (ticket, signals) = (wait.event.ticket(), waiting.signals.ticket());
        match ask(wish(LockWish::Queue)).await? {
            Reply::InTheWay(None) => return Ok(()),
            Reply::InTheWay(Some(_)) => {}
            other => panic!("the stack gave an answer of another operation: {other:?}"),
        }
        if waiting.is_interrupted(unique) {
            drop(ask(wish(LockWish::Leave)).await);
            return Err(Error::new(Kind::Interrupted, "a signal came while the lock was waited for"));
        }
        let ask_again = either(wait.event.after(ticket), clock.sleep(ASK_NS));
        either(async { _ = ask_again.await }, waiting.signals.after(signals)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(family: Family, owner: u64) -> FileLock {
        FileLock { ino: Ino(5), family, mode: Mode::Shared, owner, pid: 1, first: 0, last: 9 }
    }
    fn released(owners: &Owners, handle: u64) -> Vec<Owner> {
        owners.released(Ino(5), handle).owners().collect()
    }

    #[test]
    fn owners_are_known_by_their_handles() {
        let owners = Owners::default();
        for (handle, family, owner) in
            [(1, Family::Range, 70), (2, Family::Range, 70), (2, Family::Range, 71), (2, Family::Whole, 70)]
        {
            assert!(owners.has_noted(handle, &lock(family, owner)));
        }
        assert!(owners.flushed(Ino(5), 70), "through whichever handle");
        assert!(!owners.flushed(Ino(5), 70) && !owners.flushed(Ino(6), 70));
        assert!(released(&owners, 1).is_empty(), "a later lock of the process is not given back with an old handle");
        assert_eq!(released(&owners, 2), [(Family::Range, 71), (Family::Whole, 70)]);
        assert!(owners.files().noted.is_empty() && owners.files().leaving.is_empty());
    }

    /// The kernel numbers owners by the addresses of open files, which it uses again at once. The server gave the next one's lock back, too.
    #[test]
    fn a_number_that_is_used_again_gets_no_lock_while_the_former_ones_is_given_back() {
        let (owners, whole) = (Owners::default(), lock(Family::Whole, 70));
        assert!(owners.has_noted(1, &whole));
        let leaving = owners.released(Ino(5), 1);
        assert_eq!(leaving.owners().collect::<Vec<_>>(), [(Family::Whole, 70)]);
        assert!(!owners.has_noted(2, &whole), "it would be given back with the former one's");
        assert!(owners.has_noted(2, &lock(Family::Whole, 71)), "another one");
        assert!(owners.has_noted(2, &FileLock { ino: Ino(6), ..whole }), "another file");
        drop(leaving);
        assert!(owners.has_noted(2, &whole));
        // The end of the former one's handle may be heard late.
        assert!(owners.has_noted(3, &whole));
        assert!(released(&owners, 2).iter().all(|owner| *owner != (Family::Whole, 70)), "it is the next one's by now");
        assert_eq!(released(&owners, 3), [(Family::Whole, 70)]);
    }
}
