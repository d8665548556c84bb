//! A session's share of a volume that others may have too: the caches that it may have, and its locks.

use super::Client;
use crate::codec::hello::Caches;
use crate::codec::session::RecallDone;
use crate::locks::Owned;
use base::{FileLock, Ino, LockWish, Op, Reply, VolumeId};
use runtime::Event;
use runtime::seeded::{Bug, active};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Client {
    /// Notes which locks the session has.
    pub(super) fn note_lock(&self, op: &Op, reply: &Reply) {
        let Op::Lock { lock, wish } = op else { return };
        let (owned, mut locks) = (Owned { session: self.session, lock: **lock }, self.locks.lock());
        match (wish, reply) {
            // The server has bounds, and there is nobody else here.
            (LockWish::Take | LockWish::Queue, Reply::InTheWay(None)) => {
                drop(locks.take(VolumeId(0), owned, false, 0));
            }
            (LockWish::Release, _) => drop(locks.release(VolumeId(0), &owned)),
            _ => {}
        }
    }
    /// An event that is notified when a lock can be had that an owner waits for.
    pub fn lock_wait(&self, ino: Ino, owner: u64) -> LockWait<'_> {
        let event = self.lock_waits.lock().entry((ino, owner)).or_default().clone();
        LockWait { client: self, key: (ino, owner), event }
    }
    /// Number of changes of the caches that the session may have, for `valid_s`.
    pub fn cache_changes(&self) -> u64 {
        self.cache_lease.lock().changes()
    }
    /// Seconds for which an answer that is given now may be cached by a kernel. `changes`: `cache_changes` before it was asked for.
    pub fn valid_s(&self, changes: u64) -> u64 {
        self.cache_lease.lock().valid_s(changes, self.runtime.clock.now_ns())
    }
    /// The caches that the session may have.
    pub fn caches(&self) -> Caches {
        self.cache_lease.lock().caches()
    }
    /// Follows the caches: from now on the server hears that the kernel has let go only from `let_go`.
    pub fn follow(&self) {
        self.cache_lease.lock().followers += 1;
    }
    /// Ends that.
    pub fn unfollow(&self) {
        self.cache_lease.lock().followers -= 1;
        self.confirm_alone();
    }
    /// Waits for something to do for a mount that has applied these caches. None once the session is over.
    pub async fn next_caches(&self, applied: Option<Caches>) -> Option<Caches> {
        loop {
            let ticket = self.recalled.ticket();
            {
                let lease = self.cache_lease.lock();
                if lease.has_news(applied) {
                    return Some(lease.caches());
                }
            }
            if self.is_over.load(Ordering::Acquire) {
                return None;
            }
            self.recalled.after(ticket).await;
        }
    }
    /// Tells the server that the kernel caches no more than these.
    pub fn let_go(&self, applied: Caches) {
        if self.cache_lease.lock().confirms(applied) {
            // Whoever comes back without having been heard is asked again.
            self.say(&RecallDone { number: applied.number });
        }
    }
    /// Confirms for a session without a kernel, which caches nothing.
    fn confirm_alone(&self) {
        let caches = {
            let lease = self.cache_lease.lock();
            (lease.followers == 0).then(|| lease.caches())
        };
        if let Some(caches) = caches {
            self.let_go(caches);
        }
    }
    pub(super) fn hear_caches(&self) {
        self.recalled.notify();
        self.confirm_alone();
    }
    /// True if the inode is open.
    pub fn has_open(&self, ino: Ino) -> bool {
        self.holdings.lock().has_open(ino)
    }
    /// The inodes that the kernel knows, each with whether it is open.
    pub fn known(&self) -> Vec<(Ino, bool)> {
        self.holdings.lock().inodes()
    }
    /// The locks that the session has, for a server that was started anew.
    pub(super) fn held_locks(&self) -> Vec<FileLock> {
        let locks = self.locks.lock();
        locks.held().filter(|_| !active(Bug::LocksNotReclaimed)).map(|held| held.lock).collect()
    }
    /// Notes locks that somebody else has by now.
    pub(super) fn lose_locks(&self, lost: &[FileLock]) {
        let mut locks = self.locks.lock();
        for lock in lost {
            locks.release(VolumeId(0), &Owned { session: self.session, lock: *lock });
        }
    }
}

/// Somebody who waits for a lock.
pub struct LockWait<'a> {
    client: &'a Client,
    key: (Ino, u64),
    /// Notified when it can be had.
    pub event: Arc<Event>,
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.client.lock_waits.lock();
        // This one's and the map's.
        if waits.get(&self.key).is_some_and(|event| Arc::strong_count(event) <= 2) {
            waits.remove(&self.key);
        }
    }
}
