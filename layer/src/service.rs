//! The groups of this process as a server serves them to clients on other machines. A volume's layers run at the client, its limits
//! here.

use crate::{Call, Stack};
use base::{Error, Holder, Ino, Name, Op, Result, SessionId};
use group::{Answer, Context, Groups, Kept, Position};
use runtime::Buf;
use std::sync::Arc;
use wire::codec::hello::{Caching, Hello, HelloOk, Reason, Refused, VERSIONS};
use wire::codec::session::{Changed, Held};
use wire::server::{Admitted, LEASE_NS, Service};

/// Gives the stack of a volume.
type StackOf = Box<dyn Fn(&base::Volume) -> Arc<Stack> + Send + Sync>;

/// Groups that are served.
pub struct Served {
    groups: Arc<Groups>,
    who: Box<str>,
    cluster: [u8; 16],
    stack_of: StackOf,
}

impl Served {
    /// The groups of a server of this name. `stack_of` gives a volume's stack, for its limits and its flow.
    pub fn new(
        groups: Arc<Groups>,
        who: &str,
        cluster: [u8; 16],
        stack_of: impl Fn(&base::Volume) -> Arc<Stack> + Send + Sync + 'static,
    ) -> Served {
        Served { groups, who: who.into(), cluster, stack_of: Box::new(stack_of) }
    }
}

impl Service for Served {
    type Volume = Arc<Stack>;

    async fn admit(
        &self,
        session: SessionId,
        hello: &Hello,
        _peer: Option<&[u8]>,
    ) -> Result<Admitted<Arc<Stack>>, Refused> {
        let version = VERSIONS.common(hello.versions)?;
        let Some(name) = &hello.volume else { return Err(refused(Reason::Volume, "a client asks for a volume")) };
        let volume = self.groups.volume(name).await.map_err(|error| told(Reason::Volume, &error))?;
        // Its kernel may cache all of the volume (rule R2).
        if self.groups.has_other_session(volume.id, session) {
            return Err(refused(Reason::Busy, "the volume is mounted elsewhere; unmount it there"));
        }
        let client = Name::new(hello.who.as_bytes()).map_err(|error| told(Reason::Protocol, &error))?;
        let holder = Holder { client, volume: volume.id, locks: false };
        let begun = self.groups.admit_session(session, &holder).await.map_err(|error| told(Reason::Busy, &error))?;
        let stack = (self.stack_of)(&volume);
        let welcome = HelloOk {
            version,
            features: 0,
            cluster: self.cluster,
            who: self.who.clone(),
            boot: begun.start,
            epoch: begun.term.0,
            lease_ms: (LEASE_NS / 1_000_000) as u32,
            volume: Some(volume),
            read_only: hello.read_only,
            squash_root: false,
            caching: Caching::Alone,
        };
        let flow = Some(Arc::new(stack.flow().sibling()));
        Ok(Admitted { welcome, flow, volume: stack })
    }
    async fn call(&self, stack: &Arc<Stack>, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        stack.call_below_layers(context, Call { op, data }).await
    }
    async fn reclaim(
        &self,
        session: SessionId,
        (held, changed): (&[Held], &[Changed]),
        is_first: bool,
        is_last: bool,
    ) -> Result<Vec<Ino>> {
        let kept = |held: &Held| Kept { ino: held.ino, opens: held.opens, told: held.known };
        let kept: Vec<_> = held.iter().map(kept).collect();
        self.groups.reclaim(session, &kept, is_first, is_last).await?;
        let is_lost = |changed: &&Changed| {
            let Changed { group, term, index, .. } = **changed;
            self.groups.is_lost(&Position { group, term, index, durable: false }, changed.start)
        };
        Ok(changed.iter().filter(is_lost).map(|changed| changed.ino).collect())
    }
    fn answered(&self, session: SessionId, done: u64) {
        self.groups.answered(session, done);
    }
    async fn end(&self, session: SessionId) -> Result<()> {
        self.groups.end_session(session).await
    }
}

fn refused(reason: Reason, text: &str) -> Refused {
    Refused { reason, text: text.into() }
}

fn told(reason: Reason, error: &Error) -> Refused {
    refused(reason, &error.to_string())
}
