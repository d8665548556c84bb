//! A brick that others replicate serves clients while it leads, and nobody listens where it does not: a client that has several addresses
//! finds the one who leads by trying. Each tenure has a server of its own, as each start of a process has one where a brick has its groups
//! alone; sessions go on in the next one (rule P11).

use crate::Served;
use base::Result;
use group::Groups;
use runtime::net::Address;
use runtime::tasks::{self, either};
use runtime::{Event, Lock, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::server::Server;
use wire::tls::Credentials;

/// The pause after an error before the next attempt to serve: an address may be in use for a moment.
const AGAIN_NS: u64 = 100_000_000;

/// The keeper of certificates and rights of a brick that serves clients of other machines while it leads: what it knows may have been
/// changed by whoever led before.
pub trait Tenures: Send + Sync + 'static {
    /// Prepares for a tenure that begins, and gives the credentials of its connections. Blocks.
    fn begin(&self) -> Result<Credentials>;
    /// Knows the server of the tenure, to hang up when rights change.
    fn serves(&self, server: &Arc<Server<Served>>);
}

/// The service of such a brick.
pub struct Leading {
    served: Arc<Served>,
    runtime: Runtime,
    address: Address,
    /// None: all clients are of this machine.
    keeper: Option<Arc<dyn Tenures>>,
    /// The server of the present tenure.
    server: Lock<Option<Arc<Server<Served>>>>,
    is_stopping: AtomicBool,
    stops: Event,
    /// True once nothing is served any more.
    has_stopped: AtomicBool,
    stopped: Event,
}

impl Served {
    /// Serves whoever connects to the address while this brick leads.
    #[inline(never)]
    pub fn serve_while_leading(
        self,
        runtime: &Runtime,
        address: Address,
        keeper: Option<Arc<dyn Tenures>>,
    ) -> Arc<Leading> {
        assert!(self.groups().is_replicated(), "a brick that has its groups alone leads always");
        let leading = Arc::new(Leading {
            served: Arc::new(self),
            runtime: runtime.clone(),
            address,
            keeper,
            server: Lock::new("server of a tenure", None),
            is_stopping: AtomicBool::new(false),
            stops: Event::new(),
            has_stopped: AtomicBool::new(false),
            stopped: Event::new(),
        });
        let there = leading.clone();
        runtime.spawn(0, move || async move {
            there.run().await;
            there.has_stopped.store(true, Ordering::Release);
            there.stopped.notify();
        });
        leading
    }
}

impl Leading {
    /// The server, while this brick leads.
    pub fn server(&self) -> Option<Arc<Server<Served>>> {
        self.server.lock().clone()
    }
    /// Serves nobody any more, and hands the lead to another brick, where sessions go on.
    pub async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.groups().hand_over().await;
        self.stops.notify();
        loop {
            let ticket = self.stopped.ticket();
            if self.has_stopped.load(Ordering::Acquire) {
                return;
            }
            self.stopped.after(ticket).await;
        }
    }
    fn groups(&self) -> &Arc<Groups> {
        self.served.groups()
    }
    /// The credentials of a tenure's connections.
    async fn credentials(&self) -> Result<Option<Credentials>> {
        let Some(keeper) = self.keeper.clone() else { return Ok(None) };
        tasks::run_blocking(&*self.runtime.tasks, move || keeper.begin()).await.map(Some)
    }
    async fn run(&self) {
        loop {
            let ticket = self.stops.ticket();
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let mut tenure = None;
            either(async { tenure = Some(self.groups().next_tenure().await) }, self.stops.after(ticket)).await;
            match tenure {
                // It stops.
                None => {}
                Some(None) => return,
                Some(Some(number)) => self.serve(number).await,
            }
        }
    }
    /// Serves clients until a tenure ends.
    async fn serve(&self, number: u64) {
        let ticket = self.stops.ticket();
        // Without sessions nobody is served. The next look shows whether this brick still leads.
        let Ok(known) = self.groups().begin_sessions().await else {
            return self.runtime.clock.sleep(AGAIN_NS).await;
        };
        let Ok(credentials) = self.credentials().await else { return self.runtime.clock.sleep(AGAIN_NS).await };
        let Ok(listener) = self.runtime.net.listen(&self.address) else {
            return self.runtime.clock.sleep(AGAIN_NS).await;
        };
        let server = Server::start(&self.runtime, listener, credentials, self.served.clone(), &known);
        self.keeper.iter().for_each(|keeper| keeper.serves(&server));
        *self.server.lock() = Some(server.clone());
        if !self.is_stopping.load(Ordering::Acquire) {
            either(self.groups().tenure_ends(number), self.stops.after(ticket)).await;
        }
        server.stop().await;
        *self.server.lock() = None;
    }
}
