//! A session's share of a volume that others may have too, as its mount sees it: the caches that its kernel may have, and the locks that it
//! waits for (rules P10, P12).

use crate::cache_lease::CacheLease;
use crate::codec::hello::{Caches, Caching};
use base::Ino;
use runtime::{Event, Lock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of a start that a session of the brick's own process was told by.
const OWN_BOOT: u64 = 1;

/// The share; see the module. Times are in nanoseconds, of the clock of the process.
pub struct Share {
    pub(crate) lease: Lock<CacheLease>,
    /// Notified when caches were told, and when the session is over.
    told: Event,
    /// Those who wait for a lock, by file and owner.
    lock_waits: Lock<BTreeMap<(Ino, u64), Arc<Event>>>,
    is_over: AtomicBool,
}

/// The session of a mount, whose volume other mounts may have too.
pub trait Sharer: Send + Sync {
    /// Its share.
    fn share(&self) -> &Share;
    /// Tells whoever decides that the kernel caches no more than these.
    fn let_go(&self, applied: Caches);
    /// The inodes that the kernel knows, each with whether it is open.
    fn known(&self) -> Vec<(Ino, bool)>;
    /// True if the inode is open.
    fn has_open(&self, ino: Ino) -> bool;
    /// Ends what `Share::follow` began.
    fn unfollow(&self) {
        self.share().lease.lock().followers -= 1;
        self.confirm_unfollowed();
    }
    /// Lets go for a session without a kernel, which caches nothing.
    fn confirm_unfollowed(&self) {
        let caches = {
            let lease = self.share().lease.lock();
            (lease.followers == 0).then(|| lease.caches())
        };
        if let Some(caches) = caches {
            self.let_go(caches);
        }
    }
}

impl Default for Share {
    fn default() -> Share {
        Share {
            lease: Lock::new("caches", CacheLease::default()),
            told: Event::new(),
            lock_waits: Lock::new("waits for locks", BTreeMap::new()),
            is_over: AtomicBool::new(false),
        }
    }
}

impl Share {
    /// The share of a session of the brick's own process: what it is told holds until it is told otherwise.
    pub fn without_lease(caching: Caching) -> Share {
        let share = Share::default();
        share.lease.lock().is_welcomed(OWN_BOOT, Caches { caching, number: 0 }, (0, u64::MAX));
        share
    }
    /// Has a session of the brick's own process share: its mount is to let go of what it caches, and to say so.
    pub fn recall(&self) {
        self.tell(Caching::Shared);
    }
    /// Lets a session of the brick's own process cache all.
    pub fn leave_alone(&self) {
        self.tell(Caching::Alone);
    }
    fn tell(&self, caching: Caching) {
        let is_news = {
            let mut lease = self.lease.lock();
            let before = lease.caches();
            if before.caching != caching {
                lease.hear(OWN_BOOT, Caches { caching, number: before.number + 1 }, true);
            }
            before.caching != caching
        };
        if is_news {
            self.notify();
        }
    }
    /// Number of changes of the caches that the session may have, for `valid_s`.
    pub fn changes(&self) -> u64 {
        self.lease.lock().changes()
    }
    /// Seconds for which an answer that is given now may be cached by a kernel. `changes`: `changes` before it was asked for.
    pub fn valid_s(&self, changes: u64, now_ns: u64) -> u64 {
        self.lease.lock().valid_s(changes, now_ns)
    }
    /// The caches that the session may have.
    pub fn caches(&self) -> Caches {
        self.lease.lock().caches()
    }
    /// True while a mount follows.
    pub fn is_followed(&self) -> bool {
        self.lease.lock().followers > 0
    }
    /// Follows the caches: from now on only `Sharer::let_go` says that the kernel has let go.
    pub fn follow(&self) {
        self.lease.lock().followers += 1;
    }
    /// Waits for something to do for a mount that has applied these caches. None once the session is over.
    pub async fn next_caches(&self, applied: Option<Caches>) -> Option<Caches> {
        loop {
            let ticket = self.told.ticket();
            {
                let lease = self.lease.lock();
                if lease.has_news(applied) {
                    return Some(lease.caches());
                }
            }
            if self.is_over.load(Ordering::Acquire) {
                return None;
            }
            self.told.after(ticket).await;
        }
    }
    /// True, once, if it is awaited that the kernel caches no more than these.
    pub fn confirms(&self, applied: Caches) -> bool {
        self.lease.lock().confirms(applied)
    }
    pub(crate) fn notify(&self) {
        self.told.notify();
    }
    /// An event that is notified when a lock can be had that an owner waits for.
    pub fn lock_wait(&self, ino: Ino, owner: u64) -> LockWait<'_> {
        let event = self.lock_waits.lock().entry((ino, owner)).or_default().clone();
        LockWait { share: self, key: (ino, owner), event }
    }
    /// Notifies an owner that waits for a lock.
    pub fn lock_is_free(&self, ino: Ino, owner: u64) {
        if let Some(event) = self.lock_waits.lock().get(&(ino, owner)) {
            event.notify();
        }
    }
    /// Has all who wait for locks ask again: a server that was started anew knows no places in queues.
    pub fn places_are_lost(&self) {
        self.lock_waits.lock().values().for_each(|event| event.notify());
    }
    /// Ends all waits: the session is over.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.told.notify();
        self.lock_waits.lock().values().for_each(|event| event.notify());
    }
}

/// Somebody who waits for a lock.
pub struct LockWait<'a> {
    share: &'a Share,
    key: (Ino, u64),
    /// Notified when it can be had.
    pub event: Arc<Event>,
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.share.lock_waits.lock();
        // This one's and the map's.
        if waits.get(&self.key).is_some_and(|event| Arc::strong_count(event) <= 2) {
            waits.remove(&self.key);
        }
    }
}
