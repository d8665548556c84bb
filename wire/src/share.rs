//! A session's share of a volume that others may have too, as its mount sees it: the caches that its kernel may have, and the locks that it
//! waits for (rules P10, P12). Where several servers have the volume, each tells what the session may cache, and all of them have to agree.

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
    leases: Lock<Leases>,
    /// Notified when caches were told, and when the session is over.
    told: Event,
    /// Those who wait for a lock, by file and owner.
    lock_waits: Lock<BTreeMap<(Ino, u64), Arc<Event>>>,
    is_over: AtomicBool,
}

/// The word of each server of a volume: to a mount of this machine, of its own process.
struct Leases {
    all: Vec<CacheLease>,
    /// Number of mounts that follow.
    followers: usize,
}

impl Leases {
    /// The caches that all servers let the session have. Their number tells them from all that were told before.
    fn caches(&self) -> Caches {
        match &self.all[..] {
            [only] => only.caches(),
            all => {
                let is_alone = all.iter().all(|lease| lease.caches().caching == Caching::Alone);
                Caches { caching: if is_alone { Caching::Alone } else { Caching::Shared }, number: self.changes() }
            }
        }
    }
    fn changes(&self) -> u64 {
        self.all.iter().map(CacheLease::changes).sum()
    }
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
        self.share().leases.lock().followers -= 1;
        self.confirm_unfollowed();
    }
    /// Lets go for a session without a kernel, which caches nothing.
    fn confirm_unfollowed(&self) {
        let caches = {
            let leases = self.share().leases.lock();
            (leases.followers == 0).then(|| leases.caches())
        };
        if let Some(caches) = caches {
            self.let_go(caches);
        }
    }
}

impl Default for Share {
    fn default() -> Share {
        Share {
            leases: Lock::new("caches", Leases { all: vec![CacheLease::default()], followers: 0 }),
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
        share.told_by(0, |lease| lease.is_welcomed(OWN_BOOT, Caches { caching, number: 0 }, (0, u64::MAX)));
        share
    }
    /// Expects so many servers: nothing is cached until all have told.
    pub(crate) fn expect(&self, servers: usize) {
        let mut leases = self.leases.lock();
        assert!(leases.all.len() <= servers, "servers don't become fewer");
        leases.all.resize_with(servers, CacheLease::default);
        drop(leases);
        self.told.notify();
    }
    /// Takes what a server tells.
    pub(crate) fn told_by<T>(&self, server: usize, take: impl FnOnce(&mut CacheLease) -> T) -> T {
        take(&mut self.leases.lock().all[server])
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
            let mut leases = self.leases.lock();
            let lease = &mut leases.all[0];
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
        self.leases.lock().changes()
    }
    /// Seconds for which an answer that is given now may be cached by a kernel. `changes`: `changes` before it was asked for.
    pub fn valid_s(&self, changes: u64, now_ns: u64) -> u64 {
        let leases = self.leases.lock();
        if leases.changes() != changes {
            return 0;
        }
        leases.all.iter().map(|lease| lease.valid_s(lease.changes(), now_ns)).min().unwrap_or(0)
    }
    /// The caches that the session may have.
    pub fn caches(&self) -> Caches {
        self.leases.lock().caches()
    }
    /// True while a mount follows.
    pub fn is_followed(&self) -> bool {
        self.leases.lock().followers > 0
    }
    /// Follows the caches: from now on only `Sharer::let_go` says that the kernel has let go.
    pub fn follow(&self) {
        self.leases.lock().followers += 1;
    }
    /// Waits for something to do for a mount that has applied these caches. None once the session is over.
    pub async fn next_caches(&self, applied: Option<Caches>) -> Option<Caches> {
        loop {
            let ticket = self.told.ticket();
            {
                let leases = self.leases.lock();
                let caches = leases.caches();
                if applied != Some(caches) || leases.all.iter().any(CacheLease::is_awaited) {
                    return Some(caches);
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
        !self.confirmed(applied).is_empty()
    }
    /// The servers that await, once, that the kernel caches no more than these, each with the number under which it told that.
    pub(crate) fn confirmed(&self, applied: Caches) -> Vec<(usize, u64)> {
        let mut leases = self.leases.lock();
        if leases.caches() != applied {
            return Vec::new();
        }
        let confirm = |(server, lease): (usize, &mut CacheLease)| {
            let own = lease.caches();
            lease.confirms(own).then_some((server, own.number))
        };
        leases.all.iter_mut().enumerate().filter_map(confirm).collect()
    }
    /// The number under which a server awaits, once, that nothing is cached, if no mount follows.
    pub(crate) fn confirmed_unfollowed(&self, server: usize) -> Option<u64> {
        let mut leases = self.leases.lock();
        let is_followed = leases.followers > 0;
        let lease = &mut leases.all[server];
        let own = lease.caches();
        (!is_followed && lease.confirms(own)).then_some(own.number)
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
