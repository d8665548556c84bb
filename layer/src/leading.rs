//! A brick that others replicate serves clients of each group while it leads that, and nobody listens where none is led: a client that has
//! several addresses finds the one who leads by trying. Each tenure has a server of its own, as each start of a process has one where a brick has
//! its groups alone; sessions go on in the next one (rule P11).

use crate::Served;
use base::{GroupId, Result};
use group::{CATALOGUE, Groups};
use runtime::net::Address;
use runtime::tasks::{self, either};
use runtime::{Event, Lock, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wire::server::{Door, Server};
use wire::tls::Credentials;

/// The pause after an error before the next attempt to serve: an address may be in use for a moment.
const AGAIN_NS: u64 = 100_000_000;

/// The keeper of certificates and rights of a brick that serves clients of other machines while it leads: what it knows may have been
/// changed by whoever led before.
pub trait Tenures: Send + Sync + 'static {
    /// Prepares for a tenure of a group that begins, and gives the credentials of its connections. Blocks.
    fn begin(&self, group: GroupId) -> Result<Credentials>;
    /// Knows the server of the tenure, to hang up when rights change.
    fn serves(&self, group: GroupId, server: &Arc<Server<Served>>);
}

/// The service of such a brick.
pub struct Leading {
    groups: Arc<Groups>,
    runtime: Runtime,
    address: Address,
    /// None: all clients are of this machine.
    keeper: Option<Arc<dyn Tenures>>,
    /// The place where clients come in, while a group is led.
    door: Lock<Option<Arc<Door<Served>>>>,
    /// The groups, in ascending order of their numbers.
    seats: Vec<Seat>,
    is_stopping: AtomicBool,
    stops: Event,
    /// Number of groups that may still be served.
    going: AtomicUsize,
    stopped: Event,
}

/// A group, as its clients are served.
struct Seat {
    group: GroupId,
    served: Arc<Served>,
    /// The server of the present tenure.
    server: Lock<Option<Arc<Server<Served>>>>,
}

impl Served {
    /// Serves whoever connects to the address and asks for a group while this brick leads that.
    #[inline(never)]
    pub fn serve_while_leading(
        self,
        runtime: &Runtime,
        address: Address,
        keeper: Option<Arc<dyn Tenures>>,
    ) -> Arc<Leading> {
        let groups = self.groups().clone();
        assert!(groups.is_replicated(), "a brick that has its groups alone leads always");
        let seat =
            |group| Seat { group, served: Arc::new(self.of(group)), server: Lock::new("server of a tenure", None) };
        let seats: Vec<_> = groups.numbers().map(seat).collect();
        let leading = Arc::new(Leading {
            groups,
            runtime: runtime.clone(),
            address,
            keeper,
            door: Lock::new("door", None),
            going: AtomicUsize::new(seats.len()),
            seats,
            is_stopping: AtomicBool::new(false),
            stops: Event::new(),
            stopped: Event::new(),
        });
        for number in 0..leading.seats.len() {
            let there = leading.clone();
            runtime.spawn(0, move || async move {
                there.run(&there.seats[number]).await;
                there.going.fetch_sub(1, Ordering::AcqRel);
                there.stopped.notify();
            });
        }
        leading
    }
}

impl Leading {
    /// The server of the group that has the catalogue of volumes, while this brick leads it.
    pub fn server(&self) -> Option<Arc<Server<Served>>> {
        self.seats.iter().find(|seat| seat.group == CATALOGUE)?.server.lock().clone()
    }
    /// The groups that this brick serves now, each with its server.
    pub fn servers(&self) -> Vec<(GroupId, Arc<Server<Served>>)> {
        self.seats.iter().filter_map(|seat| Some((seat.group, seat.server.lock().clone()?))).collect()
    }
    /// Serves nobody any more, and hands the lead to other bricks, where sessions go on.
    pub async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.groups.hand_over().await;
        self.stops.notify();
        loop {
            let ticket = self.stopped.ticket();
            if self.going.load(Ordering::Acquire) == 0 {
                return;
            }
            self.stopped.after(ticket).await;
        }
    }
    /// The credentials of a tenure's connections.
    async fn credentials(&self, group: GroupId) -> Result<Option<Credentials>> {
        let Some(keeper) = self.keeper.clone() else { return Ok(None) };
        tasks::run_blocking(&*self.runtime.tasks, move || keeper.begin(group)).await.map(Some)
    }
    async fn run(&self, seat: &Seat) {
        loop {
            let ticket = self.stops.ticket();
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let mut tenure = None;
            let begins = async { tenure = Some(self.groups.next_tenure(seat.group).await) };
            either(begins, self.stops.after(ticket)).await;
            match tenure {
                // It stops.
                None => {}
                Some(None) => return,
                Some(Some(number)) => self.serve(seat, number).await,
            }
        }
    }
    /// Serves clients until a tenure ends.
    async fn serve(&self, seat: &Seat, number: u64) {
        let ticket = self.stops.ticket();
        // Without sessions nobody is served. The next look shows whether this brick still leads.
        let Ok(known) = self.groups.begin_sessions(seat.group).await else {
            return self.runtime.clock.sleep(AGAIN_NS).await;
        };
        let Ok(credentials) = self.credentials(seat.group).await else {
            return self.runtime.clock.sleep(AGAIN_NS).await;
        };
        let begun = {
            let mut door = self.door.lock();
            self.opened(&mut door, credentials)
                .map(|door| Server::behind(&door, seat.group, seat.served.clone(), &known))
        };
        let Ok(server) = begun else { return self.runtime.clock.sleep(AGAIN_NS).await };
        self.keeper.iter().for_each(|keeper| keeper.serves(seat.group, &server));
        *seat.server.lock() = Some(server.clone());
        if !self.is_stopping.load(Ordering::Acquire) {
            either(self.groups.tenure_ends(seat.group, number), self.stops.after(ticket)).await;
        }
        // Before requests that are under way end: who comes now is to look elsewhere at once.
        server.leave();
        self.close_unused();
        server.stop().await;
        *seat.server.lock() = None;
    }
    /// The door, opened if it is not.
    fn opened(
        &self,
        door: &mut Option<Arc<Door<Served>>>,
        credentials: Option<Credentials>,
    ) -> Result<Arc<Door<Served>>> {
        match door {
            Some(door) => {
                credentials.into_iter().for_each(|credentials| door.renew(credentials));
                Ok(door.clone())
            }
            None => {
                let listener = self.runtime.net.listen(&self.address)?;
                Ok(door.insert(Door::open(&self.runtime, listener, credentials)).clone())
            }
        }
    }
    /// Closes the door if nobody is behind it.
    fn close_unused(&self) {
        let mut door = self.door.lock();
        if let Some(unused) = door.take_if(|door| !door.is_used()) {
            unused.close();
        }
    }
}
