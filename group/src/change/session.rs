//! Sessions: who has inodes open, knows inodes, and may deliver a request again (rules R1, R2). The session of a mount of this
//! machine ends with the process; that of a client on another machine goes on after a start, once the client has told what it
//! has open (rules P9 to P11).

use crate::Groups;
use crate::order::held::{GroupSet, Held};
use base::{Edit, Holder, Ino, Kind, Result, SessionId, Term, VolumeId};
use names::Part;
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use store::format::superblock::NETWORK_SESSIONS;

/// The sessions that are served.
#[derive(Default)]
pub(crate) struct Sessions {
    served: BTreeMap<SessionId, Served>,
    /// The number that this process has drawn when it admitted the first client of another machine; 0 before.
    start: u64,
}

struct Served {
    volume: VolumeId,
    /// True for a mount of this machine.
    is_local: bool,
    /// True once it is known which inodes the session has open.
    has_told: bool,
    /// True once its kernel caches nothing that another session may change.
    shares: bool,
    /// True while its client is silent, and nobody need share with it.
    is_asleep: bool,
    /// False for a client's session that waits to be let in.
    is_in: bool,
}

/// The term under which changes are ordered, and the number that the process has drawn: a client names both when it asks whether a
/// change is still there (rule P3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The term.
    pub term: Term,
    /// The number.
    pub start: u64,
}

/// One inode that a client has open or knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The inode.
    pub ino: Ino,
    /// Number of its opens.
    pub opens: u64,
    /// Number of answers by which the client learnt of it and that it has not taken back.
    pub told: u64,
}

/// A session that the brick knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The session.
    pub session: SessionId,
    /// The client that has it.
    pub holder: Holder,
    /// False after a start until the client has told what it has open.
    pub has_told: bool,
}

impl Sessions {
    /// The other sessions of a volume that don't sleep.
    fn company(&self, volume: VolumeId, session: SessionId) -> impl Iterator<Item = (SessionId, &Served)> {
        let others = self.served.iter().filter(move |(other, served)| **other != session && served.volume == volume);
        others.filter(|(_, served)| !served.is_asleep).map(|(other, served)| (*other, served))
    }
    /// True if a session is not the only one of its volume, but for those that sleep.
    fn has_company(&self, session: SessionId) -> bool {
        let volume = self.served.get(&session).map(|served| served.volume);
        volume.is_some_and(|volume| self.company(volume, session).next().is_some())
    }
}

impl Groups {
    /// Reserves a volume for a session until it is ended. A session that is not alone there shares the volume with clients of other
    /// machines: then this returns the other ones whose kernels may still cache all of it (rule R2), and the session has the volume once
    /// there are none. None if a mount of this machine is in the way, which shares with nobody, or the other way round; mounts of this
    /// machine know of each other.
    pub fn claim(&self, volume: VolumeId, session: SessionId, is_local: bool) -> Option<Vec<SessionId>> {
        assert!(session != SessionId(0), "zero means no session");
        let mut sessions = self.sessions.lock();
        let others = || sessions.served.iter().filter(|(id, served)| **id != session && served.volume == volume);
        if others().any(|(_, other)| other.is_local != is_local) {
            return None;
        }
        if others().next().is_some() {
            self.was_shared.store(true, Ordering::Release);
        }
        let caches = |(id, served): (SessionId, &Served)| (!served.shares || !served.has_told).then_some(id);
        let in_the_way: Vec<_> = match is_local {
            true => Vec::new(),
            false if active(Bug::SharedUnasked) => Vec::new(),
            // One that the brick knows is let in again: what it asks for waits, if need be (`may_ask`).
            false if sessions.served.get(&session).is_some_and(|known| known.is_in && !known.is_asleep) => Vec::new(),
            false => sessions.company(volume, session).filter_map(caches).collect(),
        };
        let is_alone = sessions.company(volume, session).next().is_none();
        let served = sessions.served.entry(session).or_insert(Served {
            volume,
            is_local,
            has_told: true,
            shares: !is_alone,
            is_asleep: false,
            is_in: is_local,
        });
        // Whoever wakes has cached nothing for a lease; it waits like one that is new, and if it is alone it may cache again.
        if served.is_asleep {
            (served.is_asleep, served.is_in, served.shares) = (false, false, !is_alone);
        }
        Some(in_the_way)
    }
    /// Notes that a session's kernel caches nothing that another session may change.
    pub fn shares(&self, session: SessionId) {
        if let Some(served) = self.sessions.lock().served.get_mut(&session) {
            served.shares = true;
        }
    }
    /// Notes that a session's client is silent: its kernel caches nothing any more, and others need not share with it until it comes back
    /// (`claim`).
    pub fn sleeps(&self, session: SessionId) {
        if let Some(served) = self.sessions.lock().served.get_mut(&session) {
            (served.is_asleep, served.shares) = (true, true);
        }
    }
    /// True if no other session's kernel caches what this one may change. After a start it is not known what those of before cache.
    pub fn may_ask(&self, session: SessionId) -> bool {
        let sessions = self.sessions.lock();
        let Some(volume) = sessions.served.get(&session).map(|served| served.volume) else { return true };
        sessions.company(volume, session).all(|(_, served)| served.shares)
    }
    /// The sessions that share, and have company no more.
    pub fn left_alone(&self) -> Vec<SessionId> {
        let sessions = self.sessions.lock();
        let sharing =
            sessions.served.iter().filter(|(_, served)| served.shares && !served.is_asleep).map(|(id, _)| *id);
        sharing.filter(|id| !sessions.has_company(*id)).collect()
    }
    /// Notes that a session's kernel may cache all again. False, and nothing is noted, if it has company.
    pub fn leave_alone(&self, session: SessionId) -> bool {
        let mut sessions = self.sessions.lock();
        let has_company = sessions.has_company(session);
        if let Some(served) = sessions.served.get_mut(&session).filter(|_| !has_company) {
            served.shares = false;
        }
        !has_company
    }
    pub(crate) fn volume_of_session(&self, session: SessionId) -> Option<VolumeId> {
        self.sessions.lock().served.get(&session).map(|served| served.volume)
    }
    /// Begins the session of a mount of this machine. Ends the one that the volume's mount had before. Errors: those of a change.
    /// The new session has begun all the same, and open files of the former one are freed at the next start.
    pub async fn begin_session(&self, volume: VolumeId, session: SessionId) -> Result<()> {
        let former: Vec<_> = {
            let mut sessions = self.sessions.lock();
            let is_former =
                |(id, served): (&SessionId, &Served)| (served.is_local && served.volume == volume).then_some(*id);
            let former = sessions.served.iter().filter_map(is_former).collect();
            let own = Served { volume, is_local: true, has_told: true, shares: false, is_asleep: false, is_in: true };
            sessions.served.insert(session, own);
            former
        };
        let mut ended = Ok(());
        for former in former {
            let has_begun = || self.states().iter().any(|group| group.state.lock().known.has(session));
            let outcome = match former == session {
                // It was claimed for this.
                true if !has_begun() => Ok(()),
                true => self.forget_all_of(former, volume).await,
                false => self.end_session(former).await,
            };
            ended = ended.and(outcome);
        }
        ended
    }

    /// Admits the session of a client on another machine, which has claimed its volume, or one of before a start again. When this
    /// returns, the session is durable: it outlives the process. Errors: those of a change, and of `store::feature::require`.
    pub async fn admit_session(&self, session: SessionId, holder: &Holder) -> Result<Begun> {
        store::feature::require(self.store(), NETWORK_SESSIONS).await?;
        let start = {
            let mut sessions = self.sessions.lock();
            if sessions.start == 0 {
                sessions.start = self.store().runtime.random.next_u64() | 1;
            }
            sessions.start
        };
        for group in self.states() {
            let (term, edits) = {
                let state = group.state.lock();
                let is_known = state.sessions.get(&session).is_some_and(|known| known.holder.as_ref() == Some(holder));
                let put = (!is_known).then(|| Edit::SessionPut { session, holder: Box::new(holder.clone()) });
                let has_begun = state.terms.last().is_some_and(|last| (last.term, last.start) == (state.term(), start));
                let term = state.term();
                (term, put.into_iter().chain((!has_begun).then_some(Edit::Term { term, start })).collect::<Vec<_>>())
            };
            if !edits.is_empty() {
                self.order_here(Part { volume: VolumeId(0), group: group.number, edits }).await?;
            }
            assert!(term == self.term(), "all groups of a brick have one term");
        }
        let log = &self.store().log;
        log.wait(log.last_batch(), base::Sync::All, None).await?;
        let volume = holder.volume;
        let served = Served { volume, is_local: false, has_told: true, shares: false, is_asleep: false, is_in: true };
        self.sessions.lock().served.entry(session).or_insert(served).is_in = true;
        Ok(Begun { term: self.term(), start })
    }

    /// Takes in a part of what the client of a session from before the start has open and knows; the first part takes the place of
    /// whatever parts were told before. Inodes that are gone are left out: those that a crash took. A session that has told all
    /// tells nothing more. Errors: `Fenced` if the session is not known; those of a change.
    pub async fn reclaim(&self, session: SessionId, kept: &[Kept], is_first: bool, is_last: bool) -> Result<()> {
        let volume = match self.sessions.lock().served.get(&session) {
            Some(served) if served.has_told => return Ok(()),
            Some(served) => served.volume,
            None => return Err(base::Error::new(Kind::Fenced, "the session is over")),
        };
        if is_first {
            self.states().iter().for_each(|group| group.state.lock().known.end(session));
        }
        for kept in kept.iter().filter(|kept| self.hosts(kept.ino.group())) {
            let wanted = vec![crate::state::load::Wanted::Inode(kept.ino)];
            loop {
                let seen = {
                    let mut held = Held::new(self, &GroupSet::one(kept.ino.group()));
                    let state = held.of(kept.ino.group());
                    let seen = state.inode(volume, kept.ino);
                    if let names::Seen::Known(Some(inode)) = &seen {
                        state.known.told_times((volume, session), kept.ino, inode.links == 0, kept.told);
                        state.known.opened_times((volume, session), kept.ino, kept.opens);
                    }
                    seen
                };
                match seen {
                    names::Seen::Known(_) => break,
                    _ => self.load(volume, wanted.clone(), None).await?,
                }
            }
        }
        if !is_last {
            return Ok(());
        }
        if let Some(served) = self.sessions.lock().served.get_mut(&session) {
            served.has_told = true;
        }
        self.settle_volume(volume).await
    }

    /// Ends a session: closes its open files, which frees those without a name, and forgets its results. The caller has made sure
    /// that no request of the session is under way. Errors: as `begin_session`.
    pub async fn end_session(&self, session: SessionId) -> Result<()> {
        if active(Bug::SessionsKept) {
            return Ok(());
        }
        let Some(served) = self.sessions.lock().served.remove(&session) else { return Ok(()) };
        self.forget_all_of(session, served.volume).await
    }

    /// Forgets what a session has open and knows, and its results.
    async fn forget_all_of(&self, session: SessionId, volume: VolumeId) -> Result<()> {
        self.states().iter().for_each(|group| group.state.lock().known.end(session));
        self.end_locks(session);
        self.settle_volume(volume).await?;
        self.drop_sessions(|of, _| of == session).await
    }

    /// Ends all sessions of a volume. Errors: as `begin_session`.
    pub async fn end_sessions(&self, volume: VolumeId) -> Result<()> {
        let of_volume = |(session, served): (&SessionId, &Served)| (served.volume == volume).then_some(*session);
        let ending: Vec<_> = self.sessions.lock().served.iter().filter_map(of_volume).collect();
        for session in ending {
            self.end_session(session).await?;
        }
        Ok(())
    }

    /// Forgets the sessions of mounts of this machine, once at start: they have ended with the former process, and nobody will ask
    /// for their results. Errors: those of a change.
    pub async fn forget_sessions(&self) -> Result<()> {
        let is_over = |_, is_local| is_local && !active(Bug::SessionsKept);
        self.drop_sessions(is_over).await
    }

    /// Lets go of the results of a session's requests below `done`: its client has the answers.
    pub fn answered(&self, session: SessionId, done: u64) {
        for group in self.states() {
            if let Some(known) = group.state.lock().sessions.get_mut(&session) {
                known.close(done);
            }
        }
    }

    /// The sessions of clients on other machines.
    pub fn network_sessions(&self) -> Vec<Known> {
        let Some(group) = self.states().first() else { return Vec::new() };
        let state = group.state.lock();
        let holders = state.sessions.iter().filter_map(|(id, known)| Some((*id, known.holder.clone()?)));
        let holders: Vec<_> = holders.collect();
        drop(state);
        let sessions = self.sessions.lock();
        let known = |(session, holder)| {
            let has_told = sessions.served.get(&session).is_some_and(|served| served.has_told);
            Known { session, holder, has_told }
        };
        holders.into_iter().map(known).collect()
    }

    /// True if a change that a client was told of is not in its group's order any more (rule P3).
    pub fn is_lost(&self, position: &wire::Position, start: u64) -> bool {
        match self.hosted(position.group) {
            Some(group) => group.state.lock().is_lost(position.term, position.index, start),
            None => true,
        }
    }

    /// Notes, at a start, the sessions of clients on other machines. Returns their volumes: until they have told what they have open,
    /// every inode there counts as open.
    pub(crate) fn expect_sessions(&self) -> Vec<VolumeId> {
        let known = if active(Bug::OrphansNotAwaited) { Vec::new() } else { self.network_sessions() };
        let mut sessions = self.sessions.lock();
        self.was_shared.store(known.len() > 1, Ordering::Release);
        for Known { session, holder, .. } in &known {
            let served = Served {
                volume: holder.volume,
                is_local: false,
                has_told: false,
                shares: false,
                is_asleep: false,
                is_in: true,
            };
            sessions.served.insert(*session, served);
        }
        drop(sessions);
        let mut volumes: Vec<_> = known.iter().map(|known| known.holder.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for group in self.states() {
            let mut state = group.state.lock();
            volumes.iter().for_each(|volume| state.known.set_untold(*volume, true));
        }
        volumes
    }

    /// Frees what no session of the volume has open any more, once all of them have told.
    async fn settle_volume(&self, volume: VolumeId) -> Result<()> {
        let is_untold = |served: &Served| served.volume == volume && !served.has_told;
        if self.sessions.lock().served.values().any(is_untold) {
            return Ok(());
        }
        for group in self.states() {
            group.state.lock().known.set_untold(volume, false);
        }
        // Inodes in `forgotten` are orphans too, and are freed here.
        self.purge_orphans(vec![volume]).await
    }

    async fn drop_sessions(&self, is_over: impl Fn(SessionId, bool) -> bool) -> Result<()> {
        for group in self.states() {
            let edits: Vec<_> = {
                let state = group.state.lock();
                let over = state.sessions.iter().filter(|(session, known)| is_over(**session, known.holder.is_none()));
                over.map(|(&session, _)| Edit::SessionDrop { session }).collect()
            };
            if !edits.is_empty() {
                self.order_here(Part { volume: VolumeId(0), group: group.number, edits }).await?;
            }
        }
        Ok(())
    }
}
