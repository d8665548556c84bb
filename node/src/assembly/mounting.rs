//! Mounts of a brick's volumes on its own machine: each has a session, and shares its volume with clients of other machines if the daemon
//! listens.

use super::{Brick, mount, on_core};
use crate::cli::Transport;
use crate::network::Listener;
use base::{Error, Kind, Result, SessionId};
use front::fuse::{Identity, MountOptions, Serving};
use group::Scope;

impl Brick {
    /// Refuses mounts here of a brick that others replicate: what such a mount is told could be void once another brick leads.
    pub fn check_may_mount(&self) -> Result<()> {
        let what = "a brick of a cluster has no mounts of its own: mount the volume as a client (sinter client join TOKEN, sinter mount \
                    CLUSTER/VOLUME MOUNT), or if all nodes are on this machine, sinter mount DIR VOLUME MOUNT with the cluster's directory";
        if self.is_replicated() { Err(Error::new(Kind::Unsupported, what)) } else { Ok(()) }
    }

    /// Mounts a volume and serves it. `listener`: the way of clients, which may have the volume too. Blocks; not on a core.
    pub fn serve(
        &self,
        volume: &base::Volume,
        options: &MountOptions,
        transport: Transport,
        listener: Option<&Listener>,
    ) -> Result<Serving> {
        // Never zero, which means "no session".
        let session = SessionId(self.runtime.random.next_u64() | 1);
        let claimed = self.claim(volume, session, listener);
        let served = claimed.and_then(|()| self.serve_as(session, volume, options, transport));
        served.inspect_err(|_| self.unmounted(session))
    }
    fn claim(&self, volume: &base::Volume, session: SessionId, listener: Option<&Listener>) -> Result<()> {
        if let Some(listener) = listener {
            return listener.claim(&*self.reactors()?, volume.id, session);
        }
        let next =
            "a client of another machine has the volume mounted: start the daemon with --listen, and both can have it";
        self.refuse_attached(volume, next)?;
        self.groups.claim_locally(volume.id, session).map_err(|_| Error::new(Kind::Busy, next))
    }
    fn serve_as(
        &self,
        session: SessionId,
        volume: &base::Volume,
        options: &MountOptions,
        transport: Transport,
    ) -> Result<Serving> {
        let mount = mount(&self.runtime, &self.entries, options, transport)?;
        let stack = self.stack(volume);
        let (groups, reactors, id) = (self.groups.clone(), self.reactors()?, volume.id);
        // A brick that takes no changes is mounted all the same: to be read.
        drop(on_core(&reactors, move || async move { groups.begin_session(id, session).await }));
        let brick = self.groups.store().uuid.mark();
        let identity = Identity { volume: volume.id, root: volume.root, session, brick };
        front::fuse::serve(&self.runtime, mount, stack, identity)
    }

    /// Ends the session of a mount that is gone. If that can't be noted now, it is at the next start.
    pub fn unmounted(&self, session: SessionId) {
        let groups = self.groups.clone();
        if let Ok(reactors) = self.reactors() {
            drop(on_core(&reactors, move || async move { groups.end_session(Scope::All, session).await }));
        }
    }
}
