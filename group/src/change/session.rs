//! Sessions: who has inodes open, knows inodes, and may deliver a request again (rules R1, R2). The session of a mount of this
//! machine ends with the process; that of a client on another machine goes on after a start, once the client has told what it
//! has open (rules P9 to P11). What is known of clients is known by scope: the leader of one group knows nothing of what they do with another.

use super::file_locks::FileLocks;
use crate::order::held::{GroupSet, Held};
use crate::state::State;
use crate::{Group, Groups, Scope};
use base::{Edit, GroupId, Holder, Ino, Kind, Result, SessionId, Sync, Term, VolumeId};
use names::Part;
use runtime::Lock;
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::format::superblock::NETWORK_SESSIONS;
use wire::Share;
use wire::codec::hello::Caching;

/// The clients of a scope, as they are known.
pub(crate) struct Clients {
    /// The sessions that are served.
    pub sessions: Lock<Sessions>,
    /// True once two clients have had a volume at once.
    pub was_shared: AtomicBool,
    /// True once inodes of sessions that have not told count as open, after a start or the beginning of a tenure.
    pub is_ready: AtomicBool,
    pub locks: FileLocks,
}

impl Default for Clients {
    fn default() -> Clients {
        let (was_shared, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let (sessions, locks) = (Lock::new("sessions", Sessions::default()), FileLocks::default());
        Clients { sessions, was_shared, is_ready, locks }
    }
}

/// The sessions that are served.
#[derive(Default)]
pub(crate) struct Sessions {
    served: BTreeMap<SessionId, Served>,
    /// The number that this process has drawn when it admitted the first client of another machine; 0 before.
    start: u64,
}

struct Served {
    volume: VolumeId,
    /// The share of a mount of this machine; None for a client, which keeps its own.
    share: Option<Arc<Share>>,
    /// True once it is known which inodes the session has open.
    has_told: bool,
    /// True once its kernel caches nothing that another session may change.
    shares: bool,
    /// True while its client is silent, and nobody need share with it.
    is_asleep: bool,
    /// False for a client's session that waits to be let in.
    is_in: bool,
}

impl Served {
    /// The session of a mount of this machine.
    fn local(volume: VolumeId, is_alone: bool) -> Served {
        let caching = if is_alone { Caching::Alone } else { Caching::Shared };
        let share = Some(Arc::new(Share::without_lease(caching)));
        Served { volume, share, has_told: true, shares: !is_alone, is_asleep: false, is_in: true }
    }
    /// The session of a client.
    fn remote(volume: VolumeId, has_told: bool) -> Served {
        Served { volume, share: None, has_told, shares: false, is_asleep: false, is_in: true }
    }
    fn is_local(&self) -> bool {
        self.share.is_some()
    }
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
    /// The volume and the share of the session of a mount of this machine.
    pub fn local(&self, session: SessionId) -> Option<(VolumeId, Arc<Share>)> {
        let served = self.served.get(&session)?;
        Some((served.volume, served.share.clone()?))
    }
    /// True if a session is not the only one of its volume, but for those that sleep.
    fn has_company(&self, session: SessionId) -> bool {
        let volume = self.served.get(&session).map(|served| served.volume);
        volume.is_some_and(|volume| self.company(volume, session).next().is_some())
    }
}

impl Groups {
    /// The clients of a scope.
    pub(crate) fn clients(&self, scope: Scope) -> &Clients {
        match scope {
            Scope::All => &self.clients[0],
            Scope::One(group) => self.clients_of(group),
        }
    }
    /// The clients of a group that is hosted.
    pub(crate) fn clients_of(&self, group: GroupId) -> &Clients {
        // A brick that has its groups alone knows its clients once for all of them.
        let at = if self.clients.len() == 1 { 0 } else { self.position(group) };
        &self.clients[at]
    }
    /// The groups of a scope.
    pub(crate) fn scoped(&self, scope: Scope) -> &[Group] {
        match scope {
            Scope::All => self.states(),
            Scope::One(group) => from_ref(self.state(group)),
        }
    }

    /// Reserves a volume for a session until it is ended. A session that is not alone there shares the volume: then this returns the other
    /// ones whose kernels may still cache all of it (rule R2), and the session has the volume once there are none. Mounts of this machine
    /// among those are told to let go; the caller tells clients. Mounts of this machine know of each other. None if a mount of this machine
    /// is in the way that follows nothing.
    pub fn claim(&self, scope: Scope, volume: VolumeId, session: SessionId, is_local: bool) -> Option<Vec<SessionId>> {
        assert!(session != SessionId(0), "zero means no session");
        let clients = self.clients(scope);
        let mut sessions = clients.sessions.lock();
        let others = || sessions.served.iter().filter(|(id, served)| **id != session && served.volume == volume);
        let bars = |other: &Served| !other.shares && other.share.as_ref().is_some_and(|share| !share.is_followed());
        if !is_local && others().any(|(_, other)| bars(other)) {
            return None;
        }
        if others().any(|(_, other)| !is_local || !other.is_local()) {
            clients.was_shared.store(true, Ordering::Release);
        }
        let caches = |(id, served): (SessionId, &Served)| (!served.shares || !served.has_told).then_some(id);
        let concerns = |(_, other): &(SessionId, &Served)| !is_local || !other.is_local();
        let in_the_way: Vec<_> = match sessions.served.get(&session) {
            _ if active(Bug::SharedUnasked) => Vec::new(),
            // One that the brick knows is let in again: what it asks for waits, if need be (`may_ask`).
            Some(known) if !is_local && known.is_in && !known.is_asleep => Vec::new(),
            _ => sessions.company(volume, session).filter(concerns).filter_map(caches).collect(),
        };
        in_the_way.iter().filter_map(|id| sessions.local(*id)).for_each(|(_, share)| share.recall());
        let is_alone = sessions.company(volume, session).next().is_none();
        let served = sessions.served.entry(session).or_insert_with(|| match is_local {
            true => Served::local(volume, is_alone),
            false => Served { shares: !is_alone, is_in: false, ..Served::remote(volume, true) },
        });
        // Whoever wakes has cached nothing for a lease; it waits like one that is new, and if it is alone it may cache again.
        if served.is_asleep {
            (served.is_asleep, served.is_in, served.shares) = (false, false, !is_alone);
        }
        Some(in_the_way)
    }
    /// Notes that a session's kernel caches nothing that another session may change.
    pub fn shares(&self, scope: Scope, session: SessionId) {
        if let Some(served) = self.clients(scope).sessions.lock().served.get_mut(&session) {
            served.shares = true;
        }
    }
    /// Notes that a session's client is silent: its kernel caches nothing any more, and others need not share with it until it comes back
    /// (`claim`).
    pub fn sleeps(&self, scope: Scope, session: SessionId) {
        if let Some(served) = self.clients(scope).sessions.lock().served.get_mut(&session) {
            (served.is_asleep, served.shares) = (true, true);
        }
    }
    /// True if no other session's kernel caches what this one may change. After a start it is not known what those of before cache.
    pub fn may_ask(&self, scope: Scope, session: SessionId) -> bool {
        let sessions = self.clients(scope).sessions.lock();
        let Some(volume) = sessions.served.get(&session).map(|served| served.volume) else { return true };
        sessions.company(volume, session).all(|(_, served)| served.shares)
    }
    /// The clients' sessions that share, and have company no more. Mounts of this machine are told here that they may cache all again.
    pub fn left_alone(&self, scope: Scope) -> Vec<SessionId> {
        let mut sessions = self.clients(scope).sessions.lock();
        let sharing =
            sessions.served.iter().filter(|(_, served)| served.shares && !served.is_asleep).map(|(id, _)| *id);
        let alone: Vec<_> = sharing.filter(|id| !sessions.has_company(*id)).collect();
        let mut is_remote = |id: &SessionId| {
            let Some((_, share)) = sessions.local(*id) else { return true };
            sessions.served.get_mut(id).expect("it was just there").shares = false;
            share.leave_alone();
            false
        };
        alone.into_iter().filter(|id| is_remote(id)).collect()
    }
    /// Notes that a session's kernel may cache all again. False, and nothing is noted, if it has company.
    pub fn leave_alone(&self, scope: Scope, session: SessionId) -> bool {
        let mut sessions = self.clients(scope).sessions.lock();
        let has_company = sessions.has_company(session);
        if let Some(served) = sessions.served.get_mut(&session).filter(|_| !has_company) {
            served.shares = false;
        }
        !has_company
    }
    pub(crate) fn volume_of_session(&self, scope: Scope, session: SessionId) -> Option<VolumeId> {
        self.clients(scope).sessions.lock().served.get(&session).map(|served| served.volume)
    }
    /// Begins the session of a mount of this machine. Ends the one that the volume's mount had before. Errors: those of a change.
    /// The new session has begun all the same, and open files of the former one are freed at the next start.
    pub async fn begin_session(&self, volume: VolumeId, session: SessionId) -> Result<()> {
        let former: Vec<_> = {
            let mut sessions = self.clients(Scope::All).sessions.lock();
            let is_former =
                |(id, served): (&SessionId, &Served)| (served.is_local() && served.volume == volume).then_some(*id);
            let former = sessions.served.iter().filter_map(is_former).collect();
            sessions.served.entry(session).or_insert_with(|| Served::local(volume, true));
            former
        };
        let mut ended = Ok(());
        for former in former {
            let has_begun = || self.states().iter().any(|group| group.state.lock().known.has(session));
            let outcome = match former == session {
                // It was claimed for this.
                true if !has_begun() => Ok(()),
                true => self.forget_all_of(Scope::All, former, volume).await,
                false => self.end_session(Scope::All, former).await,
            };
            ended = ended.and(outcome);
        }
        ended
    }

    /// Admits the session of a client on another machine, which has claimed its volume, or one of before a start again. When this
    /// returns, the session is durable: it outlives the process. Errors: those of a change, and of `store::feature::require`.
    pub async fn admit_session(&self, scope: Scope, session: SessionId, holder: &Holder) -> Result<Begun> {
        store::feature::require(self.store(), NETWORK_SESSIONS).await?;
        let start = {
            let mut sessions = self.clients(scope).sessions.lock();
            if sessions.start == 0 {
                sessions.start = self.store().runtime.random.next_u64() | 1;
            }
            sessions.start
        };
        let mut now = self.term();
        for group in self.scoped(scope) {
            let (term, edits) = {
                let state = group.state.lock();
                let is_known = state.sessions.get(&session).is_some_and(|known| known.holder.as_ref() == Some(holder));
                let put = (!is_known).then(|| Edit::SessionPut { session, holder: Box::new(holder.clone()) });
                let term = state.term();
                // Of groups with replicas no change is ever lost, so nobody asks.
                let has_begun = self.is_replicated()
                    || state.terms.last().is_some_and(|last| (last.term, last.start) == (term, start));
                (term, put.into_iter().chain((!has_begun).then_some(Edit::Term { term, start })).collect::<Vec<_>>())
            };
            if !edits.is_empty() {
                self.order_here(Part { volume: VolumeId(0), group: group.number, edits }).await?;
            }
            assert!(self.is_replicated() || term == now, "all groups that a brick has alone have one term");
            now = term;
        }
        self.scope_committed(scope, Sync::All, None).await?;
        let volume = holder.volume;
        self.clients(scope)
            .sessions
            .lock()
            .served
            .entry(session)
            .or_insert_with(|| Served::remote(volume, true))
            .is_in = true;
        Ok(Begun { term: now, start })
    }

    /// Takes in a part of what the client of a session from before the start has open and knows; the first part takes the place of
    /// whatever parts were told before. Inodes that are gone are left out: those that a crash took. A session that has told all
    /// tells nothing more. Errors: `Fenced` if the session is not known; those of a change.
    pub async fn reclaim(
        &self,
        scope: Scope,
        session: SessionId,
        kept: &[Kept],
        (is_first, is_last): (bool, bool),
    ) -> Result<()> {
        let volume = match self.clients(scope).sessions.lock().served.get(&session) {
            Some(served) if served.has_told => return Ok(()),
            Some(served) => served.volume,
            None => return Err(base::Error::new(Kind::Fenced, "the session is over")),
        };
        if is_first {
            self.scoped(scope).iter().for_each(|group| group.state.lock().known.end(session));
        }
        for kept in kept.iter().filter(|kept| self.is_in(scope, kept.ino)) {
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
        if let Some(served) = self.clients(scope).sessions.lock().served.get_mut(&session) {
            served.has_told = true;
        }
        self.settle_volume(scope, volume).await
    }

    /// Ends a session: closes its open files, which frees those without a name, and forgets its results. The caller has made sure
    /// that no request of the session is under way. Errors: as `begin_session`.
    pub async fn end_session(&self, scope: Scope, session: SessionId) -> Result<()> {
        if active(Bug::SessionsKept) {
            return Ok(());
        }
        let Some(served) = self.clients(scope).sessions.lock().served.remove(&session) else { return Ok(()) };
        served.share.iter().for_each(|share| share.end());
        self.forget_all_of(scope, session, served.volume).await
    }

    /// Forgets what a session has open and knows, and its results.
    async fn forget_all_of(&self, scope: Scope, session: SessionId, volume: VolumeId) -> Result<()> {
        self.scoped(scope).iter().for_each(|group| group.state.lock().known.end(session));
        self.end_locks(scope, session);
        self.settle_volume(scope, volume).await?;
        self.drop_sessions(scope, |of, _| of == session).await
    }

    /// Ends all sessions of a volume. Errors: as `begin_session`.
    pub async fn end_sessions(&self, scope: Scope, volume: VolumeId) -> Result<()> {
        let of_volume = |(session, served): (&SessionId, &Served)| (served.volume == volume).then_some(*session);
        let ending: Vec<_> = self.clients(scope).sessions.lock().served.iter().filter_map(of_volume).collect();
        for session in ending {
            self.end_session(scope, session).await?;
        }
        Ok(())
    }

    /// Forgets the sessions of mounts of this machine, once at start: they have ended with the former process, and nobody will ask
    /// for their results. Errors: those of a change.
    pub async fn forget_sessions(&self) -> Result<()> {
        let is_over = |_, is_local| is_local && !active(Bug::SessionsKept);
        self.drop_sessions(Scope::All, is_over).await
    }

    /// Lets go of the results of a session's requests below `done`: its client has the answers.
    pub fn answered(&self, scope: Scope, session: SessionId, done: u64) {
        for group in self.scoped(scope) {
            if let Some(known) = group.state.lock().sessions.get_mut(&session) {
                known.close(done);
            }
        }
    }

    /// The sessions of clients on other machines.
    pub fn network_sessions(&self, scope: Scope) -> Vec<Known> {
        let Some(group) = self.scoped(scope).first() else { return Vec::new() };
        let state = group.state.lock();
        let holders = state.sessions.iter().filter_map(|(id, known)| Some((*id, known.holder.clone()?)));
        let holders: Vec<_> = holders.collect();
        drop(state);
        let sessions = self.clients(scope).sessions.lock();
        let known = |(session, holder)| {
            let has_told = sessions.served.get(&session).is_some_and(|served| served.has_told);
            Known { session, holder, has_told }
        };
        holders.into_iter().map(known).collect()
    }

    /// True if a change that a client was told of is not in its group's order any more (rule P3).
    pub fn is_lost(&self, position: &wire::Position, start: u64) -> bool {
        if self.is_replicated() {
            // Each change was committed before it was answered.
            return false;
        }
        match self.hosted(position.group) {
            Some(group) => group.state.lock().is_lost(position.term, position.index, start),
            None => true,
        }
    }

    /// Forgets what is known here of all sessions of a scope: none is served now. The results of what was in memory go along: a client tells what it
    /// was answered, and delivers the rest again, which is to take effect then.
    pub(crate) fn forget_sessions_here(&self, scope: Scope) {
        *self.clients(scope).sessions.lock() = Sessions::default();
        for group in self.scoped(scope) {
            let mut state = group.state.lock();
            state.known.end_all();
        }
        self.forgotten.lock().retain(|(_, ino)| !self.is_in(scope, *ino));
        self.clients(scope).locks.forget_all();
    }

    /// True if an inode is of a scope's groups.
    fn is_in(&self, scope: Scope, ino: Ino) -> bool {
        match scope {
            Scope::All => self.hosts(ino.group()),
            Scope::One(group) => ino.group() == group,
        }
    }

    /// Notes, at a start, the sessions of clients on other machines. Returns their volumes: until they have told what they have open,
    /// every inode there counts as open.
    pub(crate) fn expect_sessions(&self, scope: Scope) -> Vec<VolumeId> {
        let known = if active(Bug::OrphansNotAwaited) { Vec::new() } else { self.network_sessions(scope) };
        let clients = self.clients(scope);
        let mut sessions = clients.sessions.lock();
        clients.was_shared.store(known.len() > 1, Ordering::Release);
        for Known { session, holder, .. } in &known {
            sessions.served.insert(*session, Served::remote(holder.volume, false));
        }
        drop(sessions);
        let mut volumes: Vec<_> = known.iter().map(|known| known.holder.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for group in self.scoped(scope) {
            let mut state = group.state.lock();
            state.sessions.values_mut().for_each(|session| session.forget_memory());
            volumes.iter().for_each(|volume| state.known.set_untold(*volume, true));
        }
        clients.is_ready.store(true, Ordering::Release);
        volumes
    }

    /// True if all clients of a group have told what they have, and none is silent.
    pub(crate) fn clients_are_there(&self, group: GroupId) -> bool {
        let sessions = self.clients_of(group).sessions.lock();
        sessions.served.values().all(|served| served.has_told && !served.is_asleep)
    }

    /// True if it is known of a group's inodes whether they may be open: clients of other machines have told, or are waited for.
    pub(crate) fn knows_opens(&self, state: &State) -> bool {
        let is_ready = self.clients_of(state.group).is_ready.load(Ordering::Acquire);
        is_ready || state.sessions.values().all(|session| session.holder.is_none())
    }

    /// Frees what no session of the volume has open any more, once all of them have told.
    async fn settle_volume(&self, scope: Scope, volume: VolumeId) -> Result<()> {
        let is_untold = |served: &Served| served.volume == volume && !served.has_told;
        if self.clients(scope).sessions.lock().served.values().any(is_untold) {
            return Ok(());
        }
        for group in self.scoped(scope) {
            group.state.lock().known.set_untold(volume, false);
        }
        // Inodes in `forgotten` are orphans too, and are freed here.
        self.purge_orphans(scope, vec![volume]).await
    }

    async fn drop_sessions(&self, scope: Scope, is_over: impl Fn(SessionId, bool) -> bool) -> Result<()> {
        for group in self.scoped(scope) {
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
