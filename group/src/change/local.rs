//! The sessions of mounts of this machine: they share their volumes with clients of other machines as those do with each other (rules P10,
//! P12). What such a session was told holds until it is told otherwise: it lives in the process of the brick, and needs no lease.

use crate::{Groups, Scope};
use base::{Ino, SessionId, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::codec::hello::Caches;
use wire::{Share, Sharer};

/// The session of a mount of this machine.
pub struct LocalSession {
    groups: Arc<Groups>,
    volume: VolumeId,
    session: SessionId,
    share: Arc<Share>,
}

impl Groups {
    /// Reserves a volume for the session of a mount of this machine, as `claim`. Errors: the sessions that are in the way.
    pub fn claim_locally(&self, volume: VolumeId, session: SessionId) -> Result<(), Vec<SessionId>> {
        let others = self
            .claim(Scope::All, volume, session, true)
            .expect("only clients have to wait for a mount that follows nothing");
        if others.is_empty() { Ok(()) } else { Err(others) }
    }
    /// The session of a mount of this machine, which has claimed its volume; None if there is none of this number.
    pub fn local_session(self: &Arc<Groups>, session: SessionId) -> Option<LocalSession> {
        let (volume, share) = self.clients(Scope::All).sessions.lock().local(session)?;
        Some(LocalSession { groups: self.clone(), volume, session, share })
    }
}

impl Sharer for LocalSession {
    fn share(&self) -> &Share {
        &self.share
    }
    fn let_go(&self, applied: Caches) {
        if self.share.confirms(applied) {
            self.groups.shares(Scope::All, self.session);
        }
    }
    fn known(&self) -> Vec<(Ino, bool)> {
        let mut all = BTreeMap::new();
        for group in self.groups.states() {
            all.extend(group.state.lock().known.of_session((self.volume, self.session)));
        }
        all.into_iter().collect()
    }
    fn has_open(&self, ino: Ino) -> bool {
        let group = self.groups.state(ino.group());
        group.state.lock().known.opens_of((self.volume, self.session), ino) > 0
    }
}
