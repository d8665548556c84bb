//! The place where clients come in: one listener for the servers of all groups that this process serves. A client's first frame names the group.
//!
//! Promise: who asks for a group that is not served here hears nothing, and is gone at once: whoever leads it is elsewhere.

use super::lateness::{self, Lateness};
use super::{Busy, Server, Service, serve};
use crate::codec::Body;
use crate::codec::hello::Refused;
use crate::lane::{Lane, Reader};
use crate::strangers::{self, Strangers};
use crate::tls::{Credentials, Tls};
use crate::{FrameKind, Header};
use base::GroupId;
use runtime::net::{ConnectionId, ListenerId};
use runtime::tasks::either;
use runtime::{Event, Lock, Runtime};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The time for the last frame of a connection to get there.
const LAST_NS: u64 = 1_000_000_000;

/// The door; see the module.
pub struct Door<S> {
    runtime: Runtime,
    listener: ListenerId,
    /// Those of connections that are encrypted; None: they are of this machine.
    credentials: Lock<Option<Credentials>>,
    /// Weak: a server holds its door, and nobody takes the two apart when a simulation kills their process.
    servers: Lock<BTreeMap<GroupId, Weak<Server<S>>>>,
    strangers: Strangers,
    pub(super) lateness: Lateness,
    is_closed: AtomicBool,
    pub(super) closed: Event,
}

impl<S: Service> Door<S> {
    /// Takes connections, for servers to come.
    pub fn open(runtime: &Runtime, listener: ListenerId, credentials: Option<Credentials>) -> Arc<Door<S>> {
        let door = Arc::new(Door {
            runtime: runtime.clone(),
            listener,
            credentials: Lock::new("credentials", credentials),
            servers: Lock::new("servers", BTreeMap::new()),
            strangers: Strangers::default(),
            lateness: Lateness::new(runtime.tasks.cores()),
            is_closed: AtomicBool::new(false),
            closed: Event::new(),
        });
        for core in 0..runtime.tasks.cores() {
            let there = door.clone();
            runtime.spawn(core, move || async move {
                let take = |connection| {
                    let door = there.clone();
                    move || take(door, connection)
                };
                strangers::accept(&there.runtime, there.listener, take).await;
            });
            let there = door.clone();
            runtime.spawn(core, move || lateness::watch(there, core));
        }
        door
    }
    /// Takes no connection any more, and ends those that belong to no server.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.notify();
        self.runtime.net.close_listener(self.listener);
        self.strangers.close(&self.runtime);
    }
    /// Has new connections use other credentials.
    pub fn renew(&self, credentials: Credentials) {
        *self.credentials.lock() = Some(credentials);
    }
    /// True while a server is behind it.
    pub fn is_used(&self) -> bool {
        !self.servers.lock().is_empty()
    }
    /// Lets clients in to a server.
    pub(super) fn let_in(&self, server: &Arc<Server<S>>) {
        let former = self.servers.lock().insert(server.group, Arc::downgrade(server));
        assert!(former.is_none(), "a group has one server at a time");
    }
    /// Lets nobody in to the server of a group any more.
    pub(super) fn turn_away(&self, group: GroupId) {
        self.servers.lock().remove(&group);
    }
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
    /// The server of a group, which does not end before this is dropped.
    fn server(&self, group: GroupId) -> Option<Busy<S>> {
        // Under the lock: who turns clients away waits for those that are in.
        self.servers.lock().get(&group).and_then(Weak::upgrade).as_ref().map(Busy::new)
    }
    async fn linger(&self) {
        let ticket = self.closed.ticket();
        if !self.is_closed() {
            either(self.closed.after(ticket), self.runtime.clock.sleep(LAST_NS)).await;
        }
    }
}

/// Takes a connection to the server that it asks for, until it ends.
async fn take<S: Service>(door: Arc<Door<S>>, connection: ConnectionId) {
    let runtime = &door.runtime;
    let credentials = door.credentials.lock().clone();
    let tls = match credentials.as_ref().map(Tls::server).transpose() {
        Ok(tls) => tls,
        Err(_) => return runtime.net.close(connection),
    };
    let lane = Lane::start(runtime, connection, tls);
    let mut reader = Reader::new(runtime, &lane);
    match door.strangers.first(runtime, &lane, &mut reader, &door.is_closed).await {
        Ok(Some(came)) => {
            if let Some(server) = door.server(came.header.group) {
                serve(&server.0, &lane, &mut reader, came).await;
            }
        }
        Ok(None) => {}
        Err(error) => {
            let refused = Refused::nonsense(error);
            lane.outbox.push(None, |out| refused.frame(out, Header::new(FrameKind::Refused)));
            door.linger().await;
        }
    }
    lane.close(runtime);
}
