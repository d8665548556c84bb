//! Locks of files on a mount that shares its volume: the kernel passes them on, and the server decides (`wire::locks`).
//!
//! Promises: who waits for a lock is told when it can be had, and asks each second besides; a signal ends the wait; what is locked through
//! a handle is given back at its end, if the kernel does not say so itself. That concerns OFD locks and flock: their owner is the open file,
//! and the kernel tells of its end without naming them. Owners that are processes (POSIX) give everything back with the first
//! close of the file (FLUSH).

use super::sharing::Sharing;
use base::lock::{Family, FileLock, LockWish, Mode};
use base::{Error, Ino, Kind, Op, Reply, Result};
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
pub struct Owners(Mutex<BTreeMap<Ino, BTreeMap<u64, BTreeSet<Owner>>>>);

impl Owners {
    fn files(&self) -> MutexGuard<'_, BTreeMap<Ino, BTreeMap<u64, BTreeSet<Owner>>>> {
        self.0.lock().expect("no panic while held")
    }
    /// Notes that an owner asks for a lock through a handle.
    pub fn note(&self, handle: u64, lock: &FileLock) {
        let mut files = self.files();
        files.entry(lock.ino).or_default().entry(handle).or_default().insert((lock.family, lock.owner));
    }
    /// Forgets a process, which gives all of its locks of a file back. False if it has asked for none.
    pub fn flushed(&self, ino: Ino, owner: u64) -> bool {
        let mut files = self.files();
        let Some(handles) = files.get_mut(&ino) else { return false };
        let gone =
            handles.values_mut().filter_map(|owners| owners.remove(&(Family::Range, owner)).then_some(())).count();
        handles.retain(|_, owners| !owners.is_empty());
        if handles.is_empty() {
            files.remove(&ino);
        }
        gone > 0
    }
    /// Forgets a handle; the owners that have locked something through it.
    pub fn released(&self, ino: Ino, handle: u64) -> BTreeSet<Owner> {
        let mut files = self.files();
        let Some(handles) = files.get_mut(&ino) else { return BTreeSet::new() };
        let owners = handles.remove(&handle).unwrap_or_default();
        if handles.is_empty() {
            files.remove(&ino);
        }
        owners
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

    #[test]
    fn owners_are_known_by_their_handles() {
        let owners = Owners::default();
        let lock =
            |family, owner| FileLock { ino: Ino(5), family, mode: Mode::Shared, owner, pid: 1, first: 0, last: 9 };
        owners.note(1, &lock(Family::Range, 70));
        owners.note(2, &lock(Family::Range, 70));
        owners.note(2, &lock(Family::Range, 71));
        owners.note(2, &lock(Family::Whole, 70));
        assert!(owners.flushed(Ino(5), 70), "through whichever handle");
        assert!(!owners.flushed(Ino(5), 70) && !owners.flushed(Ino(6), 70));
        assert!(
            owners.released(Ino(5), 1).is_empty(),
            "a later lock of the process is not given back with an old handle"
        );
        assert_eq!(owners.released(Ino(5), 2), BTreeSet::from([(Family::Range, 71), (Family::Whole, 70)]));
        assert!(owners.files().is_empty());
    }
}
