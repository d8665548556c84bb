//! A client's share of its volume: what it caches is the server's to say, and so is who has which lock.

use super::Client;
use super::session::Session;
use crate::codec::hello::Caches;
use crate::codec::session::RecallDone;
use crate::locks::Owned;
use crate::share::{Share, Sharer};
use base::{FileLock, Ino, LockWish, Op, Reply, VolumeId};
use runtime::seeded::{Bug, active};

impl Sharer for Client {
    fn share(&self) -> &Share {
        &self.part.share
    }
    fn let_go(&self, applied: Caches) {
        for (server, number) in self.part.share.confirmed(applied) {
            // Whoever comes back without having been heard is asked again.
            self.sessions().nth(server).expect("it has told").say(&RecallDone { number });
        }
    }
    fn known(&self) -> Vec<(Ino, bool)> {
        self.sessions().flat_map(|session| session.holdings.lock().inodes()).collect()
    }
    fn has_open(&self, ino: Ino) -> bool {
        self.with(ino.group()).holdings.lock().has_open(ino)
    }
}

impl Session {
    /// Notes which locks the session has.
    pub(super) fn note_lock(&self, op: &Op, reply: &Reply) {
        let Op::Lock { lock, wish } = op else { return };
        let (owned, mut locks) = (Owned { session: self.id(), lock: **lock }, self.locks.lock());
        match (wish, reply) {
            (LockWish::Take | LockWish::Queue, Reply::InTheWay(None)) => locks.note(VolumeId(0), owned),
            (LockWish::Release, _) => drop(locks.release(VolumeId(0), &owned)),
            _ => {}
        }
    }
    pub(super) fn hear_caches(&self) {
        self.share().notify();
        self.confirm_unfollowed();
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
            locks.release(VolumeId(0), &Owned { session: self.id(), lock: *lock });
        }
    }
}
