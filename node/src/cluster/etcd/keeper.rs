//! A node's side of etcd while it runs: it announces itself every few seconds, and learns where the others have moved.
//!
//! Promises: nothing waits for etcd, neither requests nor a start nor (but for a moment) an end; in an etcd that does not have the cluster
//! nothing is written; what is known of it is told to operators. Absent by design: a decision of any kind that etcd could take.

use super::super::config::{Cluster, Place};
use super::access::Access;
use super::client::{Client, Lease, Put};
use super::keys::{self, Alive, Entry};
use crate::admin::protocol::EtcdState;
use crate::daemon::say;
use base::{Error, Result};
use runtime::real::Directory;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use store::format::Uuid;

/// Pause between two looks: a third of a lease, so that two may fail.
const PAUSE: Duration = Duration::from_secs(4);
/// Life of the row that says that a node runs, in seconds.
const LEASE_S: u32 = 15;
/// The longest time for which a node's end waits until etcd knows of it. The lease ends anyhow.
const FAREWELL: Duration = Duration::from_millis(500);

/// The node's side; see the module.
pub struct Keeper(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when the thread is to end, and when it has.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_ending: bool,
    has_ended: bool,
    told: Option<EtcdState>,
}

/// A node, as it announces itself.
pub struct Announced {
    /// The directory of its brick.
    pub data: Directory,
    /// Its cluster.
    pub cluster: Cluster,
    /// Its brick.
    pub brick: Uuid,
    /// The values that it gives of itself.
    pub alive: Alive,
}

impl Keeper {
    /// Starts the thread. `moved` is told the cluster and which other nodes have other addresses than before, by position, and answers
    /// whether it has noted them. Errors: the system has no thread.
    pub fn start(
        announced: Announced,
        moved: impl Fn(&Cluster, &[usize]) -> Result<()> + Send + 'static,
    ) -> Result<Keeper> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let there = shared.clone();
        let mut looks = Looks { announced, moved, way: None, last: None, answered: Instant::now() };
        let run = move || {
            loop {
                looks.look(&there);
                let slept = there.changed.wait_timeout_while(there.state(), PAUSE, |state| !state.is_ending);
                if slept.expect("no panic while held").0.is_ending {
                    break;
                }
            }
            looks.take_leave();
            there.state().has_ended = true;
            there.changed.notify_all();
        };
        let spawned = std::thread::Builder::new().name("etcd".into()).spawn(run);
        let failed = |error| Error::new(base::Kind::Host, "no thread for etcd").with(error);
        spawned.map_err(failed).map(|_| Keeper(shared))
    }
    /// The state of etcd; None if the node uses none.
    pub fn state(&self) -> Option<EtcdState> {
        self.0.state().told.clone()
    }
    /// Ends it. Waits a moment, so that etcd knows at once that the node is gone.
    pub fn stop(&self) {
        let mut state = self.0.state();
        state.is_ending = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_timeout_while(state, FAREWELL, |state| !state.has_ended));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}

/// The thread's own.
struct Looks<F> {
    announced: Announced,
    moved: F,
    way: Option<Way>,
    /// The error of the last look.
    last: Option<String>,
    /// The time at which etcd last had the cluster, or of the start.
    answered: Instant,
}

/// The way to etcd.
struct Way {
    access: Access,
    client: Client,
    version: String,
    lease: Option<Lease>,
}

impl<F: Fn(&Cluster, &[usize]) -> Result<()>> Looks<F> {
    fn look(&mut self, shared: &Shared) {
        let access = match Access::read(&self.announced.data) {
            Ok(Some(access)) => access,
            other => {
                self.take_leave();
                let told =
                    other.err().map(|error| EtcdState { error: Some(error.to_string()), ..EtcdState::default() });
                self.note(told.as_ref().and_then(|told| told.error.clone()));
                shared.state().told = told;
                return;
            }
        };
        if self.way.as_ref().is_some_and(|way| way.access != access) {
            self.take_leave();
        }
        let endpoints = access.endpoints.clone();
        let outcome = self.turn(access);
        let (nodes, error) = match outcome {
            Ok(nodes) => (nodes, None),
            Err(error) => {
                // Whoever has put other certificates there finds them used: the files are read again.
                self.way = None;
                (Vec::new(), Some(error.to_string()))
            }
        };
        let version = self.way.as_ref().map(|way| way.version.clone());
        let away_s = error.as_ref().map(|_| self.answered.elapsed().as_secs());
        self.note(error.clone());
        shared.state().told = Some(EtcdState { endpoints, version, away_s, error, nodes });
    }
    /// Says what is new, for the log.
    fn note(&mut self, error: Option<String>) {
        match (&self.last, &error) {
            (Some(_), None) => say("etcd has this node again"),
            (before, Some(now)) if before.as_ref() != Some(now) => {
                say(&format!("etcd: {now}. Data is served as before"))
            }
            _ => {}
        }
        self.last = error;
    }
    /// One look: announces what etcd does not have of this node, and takes what others have announced. The names of the nodes that run.
    fn turn(&mut self, access: Access) -> Result<Vec<String>> {
        let Announced { data: _, cluster, brick, alive } = &mut self.announced;
        let own = cluster.nodes[cluster.position(*brick).expect("the file was checked")].clone();
        let mut way = match self.way.take() {
            Some(way) => way,
            None => {
                let mut client = Client::open(&access)?;
                let version = client.check_version()?;
                Way { access, client, version, lease: None }
            }
        };
        let Way { client, lease, .. } = &mut way;
        let entry = Entry::read(cluster, client.range(&keys::prefix(cluster))?)?;
        if let Some(old) = *lease
            && !client.keep(old)?
        {
            *lease = None;
        }
        let mut puts = Vec::new();
        if !entry.has(cluster, &own) {
            puts.push(keys::member(cluster, &own));
        }
        if lease.is_none() || !entry.alive.contains(alive) {
            let held = match *lease {
                Some(held) => held,
                None => *lease.insert(client.grant(LEASE_S)?),
            };
            puts.push(Put { key: keys::alive_key(cluster, &own), value: alive.value(), lease: Some(held) });
        }
        // Not in the place of a cluster that was wiped a moment ago.
        if !puts.is_empty() && !client.put_if((&keys::meta_key(cluster), entry.revision), &puts)? {
            *lease = None;
        }
        self.way = Some(way);
        self.answered = Instant::now();
        let mut nodes: Vec<_> = entry.alive.iter().map(|alive| alive.node.clone()).collect();
        if !nodes.contains(&own.name) {
            nodes.push(own.name);
        }
        nodes.sort();
        self.take(entry.moved(&self.announced.cluster, self.announced.brick))?;
        Ok(nodes)
    }
    /// Takes the places that other nodes have announced.
    fn take(&mut self, moved: Vec<(usize, Place)>) -> Result<()> {
        if moved.is_empty() {
            return Ok(());
        }
        let mut cluster = self.announced.cluster.clone();
        let positions: Vec<_> = moved.iter().map(|(at, _)| *at).collect();
        moved.into_iter().for_each(|(at, place)| cluster.nodes[at] = place);
        cluster.check()?;
        (self.moved)(&cluster, &positions)?;
        for at in positions {
            let node = &cluster.nodes[at];
            say(&format!("node {} has moved to {}, as it has told etcd", node.name, node.clients));
        }
        self.announced.cluster = cluster;
        Ok(())
    }
    /// Has etcd forget that the node runs.
    fn take_leave(&mut self) {
        if let Some(Way { mut client, lease: Some(lease), .. }) = self.way.take() {
            // It ends by itself.
            drop(client.revoke(lease));
        }
    }
}
