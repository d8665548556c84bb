//! A mount whose volume other mounts may have too, on other machines (rules R2, P12): that of a client, or of the server itself.
//!
//! While it is alone, its kernel caches as on a local mount, but for no longer than the session's lease, if it has one. While others have the volume,
//! names and attributes are asked for each time, files are opened past the page cache, and of a file that was opened before, the pages
//! are forgotten whenever its attributes show a change. Between the two, the kernel lets go of all that it has.
//!
//! Promises: the server hears that the kernel has let go only after it has; an answer that is given from then on is not cached. Absent by
//! design: mappings that are in place already: they show what they showed until their pages are read anew.

use super::dying::{Listed, Waiting};
use super::file_locks::Owners;
use super::notices::{Notices, Why};
use super::serve::TURN_NS;
use base::{Ino, Time};
use layer::{Caches, Caching, Sharer};
use runtime::seeded::{Bug, active};
use runtime::tasks::Local;
use runtime::{Event, Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Seconds after which a kernel asks anew for what it was told while the mount was alone: no more than a lease (`LEASE_NS`).
const ALONE_VALID_S: u64 = 10;

/// A mount's share of its volume; see the module.
pub struct Sharing {
    session: Arc<dyn Sharer>,
    runtime: Runtime,
    notices: Arc<Notices>,
    /// Files that were opened before the volume was shared, with the change that their pages show.
    opened: Lock<BTreeMap<Ino, Time>>,
    has_opened: AtomicBool,
    /// The owners of locks.
    pub owners: Owners,
    /// The requests of the mount.
    pub waiting: Arc<Waiting>,
    has_ended: AtomicBool,
}

impl Sharing {
    /// Starts for a session's mount, which caches nothing yet.
    pub fn start(runtime: &Runtime, session: Arc<dyn Sharer>, notices: &Arc<Notices>) -> Arc<Sharing> {
        let (runtime, notices) = (runtime.clone(), notices.clone());
        session.share().follow();
        let opened = Lock::new("files opened before", BTreeMap::new());
        let sharing = Arc::new(Sharing {
            session,
            runtime,
            notices,
            opened,
            has_opened: AtomicBool::new(false),
            owners: Owners::default(),
            waiting: Arc::default(),
            has_ended: AtomicBool::new(false),
        });
        let there = sharing.clone();
        sharing.runtime.tasks.spawn(0, Box::new(move || -> Local { Box::pin(there.follow()) }));
        sharing
    }
    /// The session.
    pub fn session(&self) -> &dyn Sharer {
        &*self.session
    }
    /// The clock of the mount.
    pub fn clock(&self) -> &dyn runtime::Clock {
        &*self.runtime.clock
    }
    /// Lists a request of a thread that begins now.
    pub fn list(&self, unique: u64, thread: u32) -> Listed<'_> {
        self.waiting.list(unique, thread, self.session.share().changes())
    }
    /// Seconds for which the kernel may cache the answer to a listed request, if it is given now.
    pub fn valid_s(&self, unique: u64) -> u64 {
        let changes = self.waiting.cache_changes(unique);
        let now_ns = self.runtime.clock.now_ns();
        changes.map_or(0, |changes| self.session.share().valid_s(changes, now_ns).min(ALONE_VALID_S))
    }
    /// True if files are opened past the page cache.
    pub fn is_shared(&self) -> bool {
        self.session.share().caches().caching == Caching::Shared
    }
    /// Has the kernel forget what it has of a file that was opened before the volume was shared, if it has changed since. Called
    /// before the file's attributes are told: the kernel reads no page of it before it has asked for them.
    pub async fn looks_at(&self, ino: Ino, changed: Time) {
        if !self.has_opened.load(Ordering::Acquire) {
            return;
        }
        match self.opened.lock().get(&ino) {
            Some(shown) if *shown != changed => {}
            _ => return,
        }
        let is_done = self.notices.forget_pages(ino, 0, u64::MAX, Why::Stale).await;
        let mut opened = self.opened.lock();
        if !self.session.has_open(ino) {
            opened.remove(&ino);
        } else if let Some(shown) = opened.get_mut(&ino).filter(|_| is_done) {
            *shown = changed;
        }
    }
    /// Follows the caches that the session may have, until it ends.
    async fn follow(self: Arc<Sharing>) {
        let mut applied = None;
        while let Some(caches) = self.session.share().next_caches(applied).await {
            let is_other = applied.map(|applied: Caches| applied.caching) != Some(caches.caching);
            if is_other && !active(Bug::RecallUnheeded) {
                self.let_go().await;
            }
            applied = Some(caches);
            self.session.let_go(caches);
        }
        self.end();
    }
    /// Notes that the kernel has nothing any more.
    pub fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.session.unfollow();
        }
    }
    /// Has the kernel forget all that it caches.
    async fn let_go(&self) {
        outlast_turns(&self.runtime).await;
        let forgets_names = self.notices.forget_names().await;
        let known = self.session.known();
        {
            let mut opened = self.opened.lock();
            let open = known.iter().filter(|(_, is_open)| *is_open);
            *opened = open.map(|(ino, _)| (*ino, Time(i64::MIN))).collect();
            self.has_opened.store(!opened.is_empty(), Ordering::Release);
        }
        let known: Vec<_> = known.into_iter().map(|(ino, _)| ino).collect();
        self.notices.forget_inodes(&known).await;
        if !forgets_names {
            // The kernel is older than Linux 6.16: what it was told runs out.
            self.runtime.clock.sleep((ALONE_VALID_S + 1) * 1_000_000_000).await;
        }
    }
}

/// Waits until every core has handed over to the kernel what it has answered so far.
async fn outlast_turns(runtime: &Runtime) {
    let cores = runtime.tasks.cores();
    let (left, done) = (Arc::new(AtomicUsize::new(cores)), Arc::new(Event::new()));
    for core in 0..cores {
        let (clock, left, done) = (runtime.clock.clone(), left.clone(), done.clone());
        let turn = async move {
            clock.sleep(TURN_NS).await;
            left.fetch_sub(1, Ordering::AcqRel);
            done.notify();
        };
        runtime.tasks.spawn(core, Box::new(move || -> Local { Box::pin(turn) }));
    }
    loop {
        let ticket = done.ticket();
        if left.load(Ordering::Acquire) == 0 {
            return;
        }
        done.after(ticket).await;
    }
}
