//! Locks of files: which session has which, and who may have one since (rules P10, P11).

use crate::{Answer, Groups, Scope};
use base::lock::{FileLock, LockWish};
use base::{Outcome, Reply, Result, SessionId};
use runtime::{Event, Lock};
use std::collections::BTreeSet;
use wire::Context;
use wire::codec::lock::Freed;
use wire::locks::{Locks, Owned};

/// The locks of all sessions, and the news for those who wait.
pub(crate) struct FileLocks {
    locks: Lock<Locks>,
    /// Places whose lock can be had, whose sessions are still to be told.
    freed: Lock<Vec<Owned>>,
    came: Event,
}

impl Default for FileLocks {
    fn default() -> FileLocks {
        let (locks, freed) = (Lock::new("file locks", Locks::default()), Lock::new("freed locks", Vec::new()));
        FileLocks { locks, freed, came: Event::new() }
    }
}

impl FileLocks {
    /// Forgets all locks of all sessions.
    pub fn forget_all(&self) {
        *self.locks.lock() = Locks::default();
        self.freed.lock().clear();
    }
}

impl Groups {
    /// Performs a session's wish for a lock. After a start, the caller has waited until all have told which they have (`may_ask`).
    pub(crate) fn lock(&self, context: &Context, lock: FileLock, wish: LockWish) -> Result<Answer> {
        let (volume, session) = (context.volume, context.session);
        assert!(lock.first <= lock.last, "a range has a byte");
        let answer = |obstacle: Option<Owned>| {
            // The number of a process means something on its own machine only.
            let seen =
                |held: Owned| FileLock { pid: if held.session == session { held.lock.pid } else { 0 }, ..held.lock };
            let reply = Reply::InTheWay(obstacle.map(|held| Box::new(seen(held))));
            Ok(Answer { reply, data: None, position: None })
        };
        let (group, scope) = (self.state(lock.ino.group()), self.scope_of(lock.ino.group()));
        if group.state.lock().result(session, context.request)?.is_some() {
            return answer(None);
        }
        let wanted = Owned { session, lock };
        let now_ns = self.store().runtime.clock.now_ns();
        let (obstacle, freed) = {
            let mut locks = self.clients(scope).locks.locks.lock();
            match wish {
                LockWish::Test => (locks.test(volume, &wanted), Vec::new()),
                LockWish::Take => locks.take(volume, wanted, false, now_ns)?,
                LockWish::Queue => locks.take(volume, wanted, true, now_ns)?,
                LockWish::Leave => (None, locks.leave(volume, &wanted)),
                LockWish::Release => (None, locks.release(volume, &wanted)),
            }
        };
        self.tell_freed(scope, freed);
        if obstacle.is_none() && wish != LockWish::Test {
            // What was not taken may be asked for again, and is decided anew.
            group.state.lock().keep_in_memory(context, Outcome::Done);
        }
        answer(obstacle)
    }
    /// Gives a session the locks back that it had before a start. Those that somebody else has by now.
    pub fn reclaim_locks(&self, scope: Scope, session: SessionId, locks: &[FileLock]) -> Vec<FileLock> {
        let Some(volume) = self.volume_of_session(scope, session) else { return locks.to_vec() };
        let mut held = self.clients(scope).locks.locks.lock();
        locks.iter().filter(|lock| !held.reclaim(volume, Owned { session, lock: **lock })).copied().collect()
    }
    /// Forgets all locks of a session.
    pub(crate) fn end_locks(&self, scope: Scope, session: SessionId) {
        let freed = self.clients(scope).locks.locks.lock().end(session);
        self.tell_freed(scope, freed);
    }
    fn tell_freed(&self, scope: Scope, freed: Vec<Owned>) {
        if freed.is_empty() {
            return;
        }
        let clients = self.clients(scope);
        let (here, there): (Vec<_>, Vec<_>) = {
            let sessions = clients.sessions.lock();
            freed
                .into_iter()
                .map(|owned| (owned, sessions.local(owned.session)))
                .partition(|(_, local)| local.is_some())
        };
        for (Owned { lock, .. }, local) in here {
            local.iter().for_each(|(_, share)| share.lock_is_free(lock.ino, lock.owner));
        }
        if !there.is_empty() {
            clients.locks.freed.lock().extend(there.into_iter().map(|(owned, _)| owned));
            clients.locks.came.notify();
        }
    }
    /// Waits for locks that can be had, each with the client's session that waits for it. One task of the process asks.
    pub async fn freed_locks(&self, scope: Scope) -> Vec<(SessionId, Freed)> {
        let locks = &self.clients(scope).locks;
        loop {
            let ticket = locks.came.ticket();
            let freed = std::mem::take(&mut *locks.freed.lock());
            if !freed.is_empty() {
                let news = |Owned { session, lock }| (session, Freed { ino: lock.ino, owner: lock.owner });
                return freed.into_iter().map(news).collect();
            }
            locks.came.after(ticket).await;
        }
    }
    /// The sessions whose locks somebody has wanted since the last call.
    pub fn wanted_sessions(&self, scope: Scope) -> BTreeSet<SessionId> {
        self.clients(scope).locks.locks.lock().wanted_sessions()
    }
}
