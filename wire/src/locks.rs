//! The locks of files that sessions have, and the queues of those who want them.
//!
//! Promises: two owners never have locks that exclude each other; who asks first gets a lock first (a place in a queue is in the way of
//! whoever comes later, as if it had the lock); memory is bounded per session. A place is kept for `LOCK_PLACE_NS` after each time that
//! it is asked for, so a client that is gone is in nobody's way for longer. Absent by design: waiting. Who has a place asks again
//! when it is told that it may get the lock, and from time to time. Nothing is stored: clients tell a server that was started anew what
//! they have (rule P11). A client uses the same for what it has itself.

use base::limits::{LOCK_PLACE_NS, SESSION_LOCKS_MAX};
use base::lock::{Family, FileLock};
use base::{Error, Ino, Kind, Result, SessionId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// A lock and the session that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owned {
    /// The session.
    pub session: SessionId,
    /// The lock.
    pub lock: FileLock,
}

impl Owned {
    fn is_owners(&self, other: &Owned) -> bool {
        self.session == other.session && self.lock.owner == other.lock.owner
    }
    fn excludes(&self, other: &Owned) -> bool {
        !self.is_owners(other) && self.lock.excludes(&other.lock)
    }
}

/// A place in a queue.
struct Place {
    wanted: Owned,
    asked_ns: u64,
}

/// The locks of one file.
#[derive(Default)]
struct File {
    held: Vec<Owned>,
    queue: Vec<Place>,
}

impl File {
    /// The locks that are in the way of `wanted`: those that others have, and those that others want since before. `before`: places that
    /// came earlier. Who waits for what the owner of `wanted` has is not in its way: each would wait for the other.
    fn obstacles(&self, wanted: &Owned, before: usize) -> impl Iterator<Item = Owned> {
        let waits_for_it = |place: &Owned| self.held.iter().any(|held| held.is_owners(wanted) && held.excludes(place));
        let held = self.held.iter().filter(|held| held.excludes(wanted)).copied();
        let queued = self.queue[..before].iter().map(|place| place.wanted);
        held.chain(queued.filter(move |place| place.excludes(wanted) && !waits_for_it(place)))
    }
    fn place(&self, wanted: &Owned) -> Option<usize> {
        self.queue.iter().position(|place| place.wanted == *wanted)
    }
    /// Cuts a range out of what its owner has; in any mode.
    fn cut(&mut self, range: &Owned) {
        let cuts = |held: &Owned| {
            held.is_owners(range) && held.lock.family == range.lock.family && held.lock.overlaps(&range.lock)
        };
        let cut: Vec<_> = self.held.iter().filter(|held| cuts(held)).copied().collect();
        self.held.retain(|held| !cuts(held));
        for Owned { session, lock } in cut {
            if lock.first < range.lock.first {
                self.held.push(Owned { session, lock: FileLock { last: range.lock.first - 1, ..lock } });
            }
            if lock.last > range.lock.last {
                self.held.push(Owned { session, lock: FileLock { first: range.lock.last + 1, ..lock } });
            }
        }
    }
    /// Gives an owner a range, in place of what it has of it. Ranges that touch become one.
    fn hold(&mut self, mut taken: Owned) {
        self.cut(&taken);
        let touches = |held: &Owned, taken: &Owned| {
            let (held_lock, lock) = (&held.lock, &taken.lock);
            let is_next =
                held_lock.last.checked_add(1) == Some(lock.first) || lock.last.checked_add(1) == Some(held_lock.first);
            held.is_owners(taken) && (held_lock.family, held_lock.mode) == (lock.family, lock.mode) && is_next
        };
        while let Some(at) = self.held.iter().position(|held| touches(held, &taken)) {
            let Owned { lock, .. } = self.held.swap_remove(at);
            taken.lock.first = taken.lock.first.min(lock.first);
            taken.lock.last = taken.lock.last.max(lock.last);
        }
        self.held.push(taken);
    }
    /// The places whose lock can be had now.
    fn ready(&self) -> impl Iterator<Item = Owned> {
        let places = self.queue.iter().enumerate();
        places.filter(|(at, place)| self.obstacles(&place.wanted, *at).next().is_none()).map(|(_, place)| place.wanted)
    }
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }
    /// The session of each lock and place.
    fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.held.iter().chain(self.queue.iter().map(|place| &place.wanted)).map(|owned| owned.session)
    }
}

/// All locks; see the module.
#[derive(Default)]
pub struct Locks {
    files: BTreeMap<(VolumeId, Ino), File>,
    /// Number of locks and places of each session.
    counts: BTreeMap<SessionId, usize>,
    /// Sessions that were in somebody's way since `wanted_sessions` was asked.
    in_the_way: BTreeSet<SessionId>,
}

impl Locks {
    /// Changes a file's locks; the places whose lock can be had since.
    fn change(&mut self, (volume, ino): (VolumeId, Ino), change: impl FnOnce(&mut File)) -> Vec<Owned> {
        let file = self.files.entry((volume, ino)).or_default();
        let (ready, before): (Vec<_>, Vec<_>) = (file.ready().collect(), file.sessions().collect());
        change(file);
        let came = file.ready().filter(|place| !ready.contains(place)).collect();
        file.sessions().for_each(|session| *self.counts.entry(session).or_default() += 1);
        for session in before {
            let count = self.counts.get_mut(&session).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&session);
            }
        }
        if file.is_empty() {
            self.files.remove(&(volume, ino));
        }
        came
    }
    /// Takes a lock; None if it was taken, else one that is in its way. With `queues` it gets a place in the queue then. Also the places
    /// whose lock can be had since. Errors: `Deadlock`, if its owner would wait for itself; `NoLocks`, if the session has too many.
    pub fn take(
        &mut self,
        volume: VolumeId,
        wanted: Owned,
        queues: bool,
        now_ns: u64,
    ) -> Result<(Option<Owned>, Vec<Owned>)> {
        if self.counts.get(&wanted.session).is_some_and(|count| *count >= SESSION_LOCKS_MAX) {
            return Err(Error::new(Kind::NoLocks, "the mount has as many locks as one may have"));
        }
        let file = (volume, wanted.lock.ino);
        let mut ready = self.change(file, |file| {
            let is_fresh =
                |place: &Place| place.wanted == wanted || now_ns.saturating_sub(place.asked_ns) <= LOCK_PLACE_NS;
            file.queue.retain(is_fresh);
            // As flock(2) has it: a lock of a whole file is given up before another mode of it is taken.
            if wanted.lock.family == Family::Whole && !file.held.contains(&wanted) {
                file.cut(&wanted);
            }
        });
        let empty = File::default();
        let known = self.files.get(&file).unwrap_or(&empty);
        let place = known.place(&wanted);
        let obstacle = known.obstacles(&wanted, place.unwrap_or(known.queue.len())).next();
        if let Some(obstacle) = obstacle {
            self.in_the_way.insert(obstacle.session);
            if queues && wanted.lock.family == Family::Range && self.waits_for_itself(volume, &wanted) {
                self.leave(volume, &wanted);
                return Err(Error::new(Kind::Deadlock, "the lock's owner would wait for itself"));
            }
        }
        let came = self.change(file, |file| match (obstacle, place) {
            (None, place) => {
                if let Some(place) = place {
                    file.queue.remove(place);
                }
                file.hold(wanted);
            }
            (Some(_), Some(place)) => file.queue[place].asked_ns = now_ns,
            (Some(_), None) if queues => file.queue.push(Place { wanted, asked_ns: now_ns }),
            (Some(_), None) => {}
        });
        ready.extend(came);
        Ok((obstacle, ready))
    }
    /// True if who is in the way of `wanted`, or in the way of those, is its owner itself.
    fn waits_for_itself(&self, volume: VolumeId, wanted: &Owned) -> bool {
        let mut asked: Vec<Owned> = vec![*wanted];
        let mut seen: Vec<Owned> = Vec::new();
        while let Some(place) = asked.pop() {
            let Some(file) = self.files.get(&(volume, place.lock.ino)) else { continue };
            let before = file.place(&place).unwrap_or(file.queue.len());
            for obstacle in file.obstacles(&place, before) {
                if obstacle.is_owners(wanted) {
                    return true;
                }
                if seen.iter().any(|seen| seen.is_owners(&obstacle)) {
                    continue;
                }
                seen.push(obstacle);
                let places = self.files.values().flat_map(|file| &file.queue).map(|place| place.wanted);
                asked.extend(places.filter(|place| place.is_owners(&obstacle) && place.lock.family == Family::Range));
            }
        }
        false
    }
    /// A lock that is in the way of this one, if any.
    pub fn test(&self, volume: VolumeId, wanted: &Owned) -> Option<Owned> {
        let file = self.files.get(&(volume, wanted.lock.ino))?;
        file.held.iter().find(|held| held.excludes(wanted)).copied()
    }
    /// Gives a range back. The places whose lock can be had since.
    pub fn release(&mut self, volume: VolumeId, range: &Owned) -> Vec<Owned> {
        self.change((volume, range.lock.ino), |file| file.cut(range))
    }
    /// Gives a place in the queue up. The places whose lock can be had since.
    pub fn leave(&mut self, volume: VolumeId, wanted: &Owned) -> Vec<Owned> {
        let leave = |file: &mut File| file.queue.retain(|place| place.wanted != *wanted);
        self.change((volume, wanted.lock.ino), leave)
    }
    /// Gives a session back what it had before the server was started anew. False if another session has it. Locks of its own that exclude
    /// each other were had one after the other: its client delivers the release of the first again.
    pub fn reclaim(&mut self, volume: VolumeId, lock: Owned) -> bool {
        let is_full = self.counts.get(&lock.session).is_some_and(|count| *count >= SESSION_LOCKS_MAX);
        let is_anothers = |held: &Owned| held.session != lock.session && held.excludes(&lock);
        if is_full || self.files.get(&(volume, lock.lock.ino)).is_some_and(|file| file.held.iter().any(is_anothers)) {
            return false;
        }
        self.note(volume, lock);
        true
    }
    /// Notes a lock that was given. A client hears of that on one connection, maybe before it hears on another one that the former owner's
    /// release was done.
    pub fn note(&mut self, volume: VolumeId, lock: Owned) {
        self.change((volume, lock.lock.ino), |file| {
            // As `take` does.
            if lock.lock.family == Family::Whole {
                file.cut(&lock);
            }
            file.hold(lock);
        });
    }
    /// Forgets everything of a session. The places whose lock can be had since.
    pub fn end(&mut self, session: SessionId) -> Vec<Owned> {
        self.in_the_way.remove(&session);
        if !self.counts.contains_key(&session) {
            return Vec::new();
        }
        let concerned = self.files.iter().filter(|(_, file)| file.sessions().any(|it| it == session));
        let files: Vec<_> = concerned.map(|(key, _)| *key).collect();
        let end = |file: &mut File| {
            file.held.retain(|held| held.session != session);
            file.queue.retain(|place| place.wanted.session != session);
        };
        files.into_iter().flat_map(|key| self.change(key, end)).collect()
    }
    /// All locks that somebody has.
    pub fn held(&self) -> impl Iterator<Item = &Owned> {
        self.files.values().flat_map(|file| &file.held)
    }
    /// The sessions that were in somebody's way since the last call.
    pub fn wanted_sessions(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.in_the_way)
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
