//! The sessions of a server's clients: which requests of each are under way, when it was heard last, and whether it is over.
//!
//! Promises: a request that is delivered while its first delivery is under way waits for that one's end (rule R1); a session whose
//! end has begun begins no request any more; no connection is let in while the brick is made to forget its session.

use crate::Header;
use crate::codec::Body;
use crate::codec::hello::{Caches, Caching};
use crate::lane::Lane;
use base::SessionId;
use runtime::{Event, Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A session.
pub struct Session {
    /// Its number.
    pub id: SessionId,
    under_way: Lock<BTreeMap<u64, Arc<Event>>>,
    ended: Event,
    /// Its connections.
    lanes: Lock<Vec<Arc<Lane>>>,
    /// The time at which a frame of it came last, by the clock of the process.
    heard_ns: AtomicU64,
    /// True once the brick knows what the session has open.
    has_told: AtomicBool,
    is_over: AtomicBool,
    /// True once it was silent for a lease, until its client is let in again.
    is_asleep: AtomicBool,
    /// False after a start, until it is known that no other session's kernel caches what this one may change.
    may_ask: AtomicBool,
    /// The caches that its client was told to have, and whether it has said that it has no others.
    caches: Lock<(Caches, bool)>,
}

/// The way to begin a request.
pub enum Begin {
    /// Nobody does it.
    Begun,
    /// The session sleeps: its client is to say hello again.
    Asleep,
    /// A delivery before this one is under way; the event tells its end.
    UnderWay(Arc<Event>, u64),
    /// The session is over.
    Over,
}

impl Session {
    fn new(id: SessionId, now_ns: u64, has_told: bool) -> Session {
        Session {
            id,
            under_way: Lock::new("session", BTreeMap::new()),
            ended: Event::new(),
            lanes: Lock::new("session's lanes", Vec::new()),
            heard_ns: AtomicU64::new(now_ns),
            has_told: AtomicBool::new(has_told),
            is_over: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            may_ask: AtomicBool::new(has_told),
            caches: Lock::new("caches", (Caches { caching: Caching::Alone, number: 0 }, true)),
        }
    }
    /// The caches that its client is to have.
    pub fn caches(&self) -> Caches {
        self.caches.lock().0
    }
    /// Has it share its volume. `again`: also if it has done so before, since it may cache more by now.
    pub fn share(&self, again: bool) {
        let (caches, is_confirmed) = &mut *self.caches.lock();
        if caches.caching == Caching::Alone || again && *is_confirmed {
            *caches = Caches { caching: Caching::Shared, number: caches.number + 1 };
            *is_confirmed = false;
        }
    }
    /// Lets it cache all again, unless it was told something else since it was told these. False if it was.
    pub fn leave_alone(&self, told: Caches) -> bool {
        let (caches, is_confirmed) = &mut *self.caches.lock();
        let is_same = *caches == told;
        if is_same {
            (*caches, *is_confirmed) = (Caches { caching: Caching::Alone, number: told.number + 1 }, true);
        }
        is_same
    }
    /// Notes that it shares, as it was told under a number. False if that is known, or it was told something else since.
    pub fn confirm(&self, number: u64) -> bool {
        let (caches, is_confirmed) = &mut *self.caches.lock();
        let is_news = caches.number == number && !*is_confirmed;
        *is_confirmed |= is_news;
        is_news
    }
    /// Sends a frame over one of its connections, if it has one.
    pub fn tell<B: Body>(&self, body: &B) {
        let lane = self.lanes.lock().first().cloned();
        let header = Header { session: self.id, ..Header::new(B::KIND) };
        if let Some(lane) = lane {
            lane.outbox.push(None, |out| body.frame(out, header));
        }
    }
    /// Begins a request.
    pub fn begin(&self, request: u64) -> Begin {
        let mut under_way = self.under_way.lock();
        if self.is_over.load(Ordering::Acquire) {
            return Begin::Over;
        }
        if self.is_asleep.load(Ordering::Acquire) {
            return Begin::Asleep;
        }
        match under_way.get(&request) {
            Some(event) => Begin::UnderWay(event.clone(), event.ticket()),
            None => {
                under_way.insert(request, Arc::default());
                Begin::Begun
            }
        }
    }
    /// Ends a request that was begun.
    pub fn finish(&self, request: u64) {
        let event = self.under_way.lock().remove(&request).expect("a request ends once");
        event.notify();
        self.ended.notify();
    }
    /// Number of requests under way.
    pub fn under_way(&self) -> usize {
        self.under_way.lock().len()
    }
    /// Notes that a frame of it has come.
    pub fn hear(&self, now_ns: u64) {
        self.heard_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
    /// The time at which it was heard last.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns.load(Ordering::Relaxed)
    }
    /// Notes a connection of it, until the guard is dropped.
    pub fn connect(self: &Arc<Session>, lane: &Arc<Lane>) -> Connected {
        self.lanes.lock().push(lane.clone());
        Connected { session: self.clone(), lane: lane.clone() }
    }
    /// True if it has a connection.
    pub fn is_connected(&self) -> bool {
        !self.lanes.lock().is_empty()
    }
    /// Ends its connections.
    pub fn hang_up(&self, runtime: &Runtime) {
        let lanes = self.lanes.lock().clone();
        lanes.iter().for_each(|lane| lane.close(runtime));
    }
    /// True once the brick knows what it has open.
    pub fn has_told(&self) -> bool {
        self.has_told.load(Ordering::Acquire)
    }
    /// Notes that the brick knows what it has open.
    pub fn told(&self) {
        self.has_told.store(true, Ordering::Release);
    }
    /// Begins no request any more until it wakes. False, and nothing has changed, while some are under way.
    pub fn sleep(&self) -> bool {
        let under_way = self.under_way.lock();
        let may_sleep = under_way.is_empty() && !self.is_over.load(Ordering::Acquire);
        if may_sleep {
            self.is_asleep.store(true, Ordering::Release);
        }
        may_sleep
    }
    /// True while it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Acquire)
    }
    /// Ends its sleep: its client was let in again.
    pub fn wake(&self) {
        self.is_asleep.store(false, Ordering::Release);
    }
    /// True once its requests are performed at once.
    pub fn may_ask(&self) -> bool {
        self.may_ask.load(Ordering::Acquire)
    }
    /// Has its requests performed at once from now on.
    pub fn set_may_ask(&self) {
        self.may_ask.store(true, Ordering::Release);
    }
    /// True if it is over.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
    /// Begins no request any more, and waits until those under way have ended. False if somebody else ends the session already.
    pub async fn stop(&self) -> bool {
        {
            let _still = self.under_way.lock();
            if self.is_over.swap(true, Ordering::AcqRel) {
                return false;
            }
        }
        loop {
            let ticket = self.ended.ticket();
            if self.under_way() == 0 {
                return true;
            }
            self.ended.after(ticket).await;
        }
    }
}

/// A connection of a session.
pub struct Connected {
    session: Arc<Session>,
    lane: Arc<Lane>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.session.lanes.lock().retain(|lane| !Arc::ptr_eq(lane, &self.lane));
    }
}

/// All sessions of a server.
pub struct Sessions {
    all: Lock<BTreeMap<SessionId, Arc<Session>>>,
    /// The sessions of which connections are being let in, and their number; 0 while the brick is made to forget the session.
    coming: Lock<BTreeMap<SessionId, usize>>,
}

/// A connection that is being let in, until this is dropped.
pub struct Coming<'a> {
    sessions: &'a Sessions,
    id: SessionId,
}

impl Coming<'_> {
    /// True if no other connection of the session is being let in: none is any more, until this is dropped. If it fails, it undoes at the brick
    /// what all attempts have left there; one that does so beside others would undo what is theirs.
    pub fn is_last(&self) -> bool {
        let mut coming = self.sessions.coming.lock();
        let count = coming.get_mut(&self.id).expect("this one is counted");
        let is_last = *count == 1;
        *count -= usize::from(is_last);
        is_last
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut coming = self.sessions.coming.lock();
        match coming.get_mut(&self.id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(coming.remove(&self.id)),
        }
    }
}

impl Sessions {
    /// Those that the brick knows from before its start.
    pub fn known(sessions: &[SessionId], now_ns: u64) -> Sessions {
        let known = |id: &SessionId| (*id, Arc::new(Session::new(*id, now_ns, false)));
        Sessions {
            all: Lock::new("sessions", sessions.iter().map(known).collect()),
            coming: Lock::new("sessions coming", BTreeMap::new()),
        }
    }
    /// Begins to let a connection of a session in, beside others of it. None while the brick is made to forget the session: it would forget one
    /// that its client believes in.
    pub fn come(&self, id: SessionId) -> Option<Coming<'_>> {
        let mut coming = self.coming.lock();
        match coming.get_mut(&id) {
            Some(0) => return None,
            Some(count) => *count += 1,
            None => drop(coming.insert(id, 1)),
        }
        Some(Coming { sessions: self, id })
    }
    /// The session of this number.
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.all.lock().get(&id).cloned()
    }
    /// The session of this number, a new one if there is none.
    pub fn get_or_begin(&self, id: SessionId, now_ns: u64) -> Arc<Session> {
        self.all.lock().entry(id).or_insert_with(|| Arc::new(Session::new(id, now_ns, true))).clone()
    }
    /// Forgets a session that is over.
    pub fn remove(&self, id: SessionId) {
        self.all.lock().remove(&id);
    }
    /// All sessions.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.all.lock().values().cloned().collect()
    }
}
