//! The end of sessions: their open files are closed, and their results are forgotten (rules R1, R2).

use crate::Groups;
use base::{Edit, Result, SessionId, VolumeId};
use names::Part;
use runtime::seeded::{Bug, active};

impl Groups {
    /// Begins a volume's only session, which from now on may cache all of the volume: names, attributes, data and sizes
    /// (rule R2). Ends the session that had this lease before. Errors: those of a change. The new session has begun all
    /// the same, and open files of the former session are freed at the next start.
    pub async fn begin_session(&self, volume: VolumeId, session: SessionId) -> Result<()> {
        let ended = self.end_session(volume).await;
        self.leases.lock().insert(volume, session);
        ended
    }

    /// Ends the session that has a volume's lease, if there is one: closes its open files, which frees those without a
    /// name, and forgets its results. The caller has made sure that no request of the session is under way. Errors: as
    /// `begin_session`.
    pub async fn end_session(&self, volume: VolumeId) -> Result<()> {
        let session = self.leases.lock().remove(&volume);
        let Some(session) = session.filter(|_| !active(Bug::SessionsKept)) else { return Ok(()) };
        for group in self.states() {
            let mut state = group.state.lock();
            state.opens.retain(|(of, _), _| *of != volume);
            state.known.end(volume);
        }
        // The inodes in `forgotten` are orphans too, and are freed below.
        self.forgotten.lock().retain(|(of, _)| *of != volume);
        self.purge_orphans(vec![volume]).await?;
        self.forget_results(|of| of == session).await
    }

    /// Forgets the results of all sessions, once at start: the clients of the former process come back with new
    /// sessions, so nobody will ask for these results. Errors: those of a change.
    pub async fn forget_sessions(&self) -> Result<()> {
        self.forget_results(|_| !active(Bug::SessionsKept)).await
    }

    async fn forget_results(&self, of: impl Fn(SessionId) -> bool) -> Result<()> {
        for group in self.states() {
            let (id, edits): (_, Vec<_>) = {
                let state = group.state.lock();
                let gone = state.results.keys().filter(|session| of(**session));
                (state.group, gone.map(|&session| Edit::SessionDrop { session }).collect())
            };
            if !edits.is_empty() {
                self.order_here(Part { volume: VolumeId(0), group: id, edits }).await?;
            }
        }
        Ok(())
    }
}
