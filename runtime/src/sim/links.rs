//! Links between simulated hosts, with delay, bandwidth and faults, and the connections over them.
//!
//! Promises: what arrives is a prefix of what was sent, in order; when a connection breaks, what was sent may or may not
//! have arrived; each I/O ends once the faults have ended; nothing but the seed decides when. Absent by design: packets.
//! A segment that a cut link does not let through waits, as if it were sent again and again.

use super::ends::{Close, End, Segment};
use super::host::Host;
use super::schedule::{Due, Schedule};
use super::trace::TraceKind;
use crate::accepts::{Accepting, Accepts, Attempt};
use crate::net::{Address, BACKLOG, ConnectionId, DEAD_AFTER_NS, ListenerId, WayQuality, closed, not_listening};
use crate::random::SplitMix;
use crate::stream::Stream;
use base::{Error, Kind, Result};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first port that a host gives by itself.
const PORT_FIRST: u16 = 49_152;
/// Pauses after which a connection that did not come about is asked for again: 15 s in all.
const RETRIES_NS: [u64; 4] = [1_000_000_000, 2_000_000_000, 4_000_000_000, 8_000_000_000];

/// A way from one host to another, in this direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPlan {
    /// Least time that a byte takes.
    pub delay_ns: u64,
    /// Largest additional time, by seed.
    pub jitter_ns: u64,
    /// Bytes per second.
    pub bandwidth: u64,
    /// True if each byte travels alone, a millisecond behind the one before.
    pub trickles: bool,
}

impl LinkPlan {
    /// A way by seed: from a switch in the same rack to the next town.
    pub fn draw(rng: &mut SplitMix) -> LinkPlan {
        let delay_ns = 10_000 << rng.below(8);
        let (jitter_ns, bandwidth) = (1 + rng.below(delay_ns), 10_000_000 << rng.below(10));
        LinkPlan { delay_ns, jitter_ns, bandwidth, trickles: false }
    }
    fn loopback() -> LinkPlan {
        LinkPlan { delay_ns: 5_000, jitter_ns: 5_000, bandwidth: 4_000_000_000, trickles: false }
    }
}

/// A way and its faults.
pub(super) struct Way {
    pub plan: LinkPlan,
    /// True if nothing comes through.
    cut: bool,
    /// True if connections are made, but nothing comes through them.
    silent: bool,
    /// Bytes that still come through before the connection whose byte is next is broken off.
    pub reset_after: Option<u64>,
}

impl Way {
    pub fn is_blocked(&self) -> bool {
        self.cut || self.silent
    }
}

/// A listener.
struct Listening {
    host: Arc<Host>,
    address: Address,
    accepts: Arc<Accepts>,
}

/// A connection that is asked for.
struct Ask {
    attempt: Arc<Attempt>,
    from: Arc<Host>,
    to: usize,
    address: Address,
    tries: usize,
}

enum Event {
    /// The kernel looks after an end: it gives to receives and takes from sends.
    Pump(ConnectionId),
    /// The first segment on its way from this end arrives.
    Arrive(ConnectionId),
    /// An end is told that its connection is over.
    Break(ConnectionId, Error),
    /// A look whether an end is in trouble, and for how long.
    Look(ConnectionId),
    Ask(Ask),
    Answer(Arc<Attempt>, Result<ConnectionId>),
}

/// See the module's head.
pub struct Links {
    schedule: Arc<Schedule>,
    state: Mutex<State>,
}

pub(super) struct State {
    schedule: Arc<Schedule>,
    pub rng: SplitMix,
    next: u64,
    port: u16,
    /// Bytes of a direction that are on their way or wait for the reader.
    pub window: usize,
    hosts: BTreeMap<usize, Arc<Host>>,
    /// Machines that are switched off.
    down: BTreeSet<usize>,
    ways: BTreeMap<(usize, usize), Way>,
    listeners: BTreeMap<ListenerId, Listening>,
    pub ends: BTreeMap<ConnectionId, End>,
    events: BTreeMap<u64, Event>,
}

/// The address of a host's port.
pub(super) fn address_of(number: usize, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number as u8 + 1), port))
}

/// The host that has an address, for code on the host `here`.
fn host_of(here: usize, address: &Address) -> Option<usize> {
    let Address::Tcp(address) = address else { return Some(here) };
    match address.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => Some(here),
        IpAddr::V4(ip) if ip.octets()[..3] == [10, 0, 0] => (ip.octets()[3] as usize).checked_sub(1),
        IpAddr::V6(ip) if ip.segments()[0] == 0xfd00 => (ip.segments()[7] as usize).checked_sub(1),
        _ => None,
    }
}

pub(super) fn broken(what: &'static str) -> Error {
    Error::new(Kind::Interrupted, what)
}

pub(super) fn unanswered() -> Error {
    broken("the other end does not answer any more: check that machine and the way to it")
}

pub(super) fn broken_off() -> Error {
    broken("the other end has broken the connection off")
}

impl Links {
    pub(super) fn new(schedule: &Arc<Schedule>, mut rng: SplitMix) -> Links {
        // From a kernel that is short of memory to one that is not.
        let window = 4096 << rng.below(9);
        let state = State {
            schedule: schedule.clone(),
            rng,
            next: 1,
            port: PORT_FIRST,
            window,
            hosts: BTreeMap::new(),
            down: BTreeSet::new(),
            ways: BTreeMap::new(),
            listeners: BTreeMap::new(),
            ends: BTreeMap::new(),
            events: BTreeMap::new(),
        };
        Links { schedule: schedule.clone(), state: Mutex::new(state) }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in the code under test may have poisoned it; the fleet's end still needs what is in there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The address of a host's port.
    pub fn address(&self, number: usize, port: u16) -> Address {
        Address::Tcp(address_of(number, port))
    }
    /// The way from one host to another.
    pub fn plan(&self, from: usize, to: usize) -> LinkPlan {
        self.state().way(from, to).plan
    }
    /// Changes the way from one host to another.
    pub fn set_plan(&self, from: usize, to: usize, plan: LinkPlan) {
        assert!(plan.bandwidth > 0 && plan.jitter_ns > 0, "bytes arrive some time, and at any time");
        self.state().way(from, to).plan = plan;
    }
    /// Lets nothing through from one host to another, until `heal`.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        let mut state = self.state();
        state.way(from, to).cut = true;
        state.look_at(from, to);
    }
    /// Lets nothing through between two hosts, until `heal`.
    pub fn cut(&self, one: usize, other: usize) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }
    /// Lets connections from one host to another be made, but nothing through them in this direction, until `heal`.
    pub fn silence(&self, from: usize, to: usize) {
        let mut state = self.state();
        state.way(from, to).silent = true;
        state.look_at(from, to);
    }
    /// Lets everything through again between two hosts.
    pub fn heal(&self, one: usize, other: usize) {
        let mut state = self.state();
        for (from, to) in [(one, other), (other, one)] {
            let way = state.way(from, to);
            (way.cut, way.silent, way.reset_after) = (false, false, None);
            state.send_again(from, to);
        }
    }
    /// Ends the faults of all links.
    pub fn heal_all(&self) {
        let ways: Vec<_> = self.state().ways.keys().copied().collect();
        ways.into_iter().for_each(|(from, to)| self.heal(from, to));
    }
    /// Breaks off the connection whose byte is the next after so many from one host to another.
    pub fn reset_after(&self, from: usize, to: usize, bytes: u64) {
        self.state().way(from, to).reset_after = Some(bytes);
    }
    /// Breaks off all connections between two hosts.
    pub fn reset(&self, one: usize, other: usize) {
        let mut state = self.state();
        for id in state.ends_between(one, other) {
            state.break_end(id, &broken_off());
        }
    }

    /// A host has booted.
    pub(super) fn boot(&self, host: &Arc<Host>) {
        let mut state = self.state();
        let number = host.number();
        state.hosts.insert(number, host.clone());
        if state.down.remove(&number) {
            // It knows nothing of the connections of its life before, and says so.
            let orphans: Vec<_> = state.ends.iter().filter(|(_, end)| end.to == number).map(|(id, _)| *id).collect();
            for id in orphans {
                let at_ns = state.arrival_ns(number, number, 0);
                state.add(at_ns, Event::Break(id, broken_off()));
            }
        }
    }
    /// The process of a host was killed: its kernel ends the connections.
    pub(super) fn kill(&self, host: &Arc<Host>) {
        let mut state = self.state();
        state.end_listeners(host);
        for id in state.ends_of(host) {
            let cuts = state.rng.one_in(2);
            state.close(id, if cuts { Close::Cut } else { Close::Killed });
        }
    }
    /// A machine was switched off.
    pub(super) fn switch_off(&self, host: &Arc<Host>) {
        let mut state = self.state();
        let number = host.number();
        state.end_listeners(host);
        for id in state.ends_of(host) {
            state.ends.remove(&id);
        }
        state.down.insert(number);
        let others: Vec<_> = state.ends.iter().filter(|(_, end)| end.to == number).map(|(id, _)| *id).collect();
        others.into_iter().for_each(|id| state.look(id, 0));
    }
    /// Forgets all connections; their buffers return to their slabs.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        let ends = std::mem::take(&mut state.ends);
        let events = std::mem::take(&mut state.events);
        let listeners = std::mem::take(&mut state.listeners);
        state.hosts.clear();
        drop(state);
        drop((ends, events, listeners));
    }

    pub(super) fn listen(&self, host: &Arc<Host>, address: &Address) -> Result<ListenerId> {
        let mut state = self.state();
        if host_of(host.number(), address) != Some(host.number()) {
            let what = "this machine does not have this address: `ip address` shows those that it has";
            return Err(Error::new(Kind::Invalid, what).with(address));
        }
        let mut address = address.clone();
        if let Address::Tcp(address) = &mut address
            && address.port() == 0
        {
            address.set_port(state.port());
        }
        if state.listener_at(host.number(), &address).is_some() {
            let what = "another process listens at this address: stop it, or choose another port";
            return Err(Error::new(Kind::Busy, what).with(address));
        }
        let id = ListenerId(state.number());
        state.listeners.insert(id, Listening { host: host.clone(), address, accepts: Arc::default() });
        Ok(id)
    }
    pub(super) fn listener_address(&self, listener: ListenerId) -> Result<Address> {
        let state = self.state();
        state.listeners.get(&listener).map(|listening| listening.address.clone()).ok_or_else(not_listening)
    }
    pub(super) fn accept(&self, host: &Host, listener: ListenerId, core: usize) -> Accepting {
        let state = self.state();
        let listening = state.listeners.get(&listener).filter(|listening| listening.host.boot() == host.boot());
        listening.map_or_else(|| Accepting::failed(not_listening()), |listening| listening.accepts.accept(core).0)
    }
    pub(super) fn close_listener(&self, listener: ListenerId) {
        let mut state = self.state();
        if let Some(listening) = state.listeners.remove(&listener) {
            for id in listening.accepts.end() {
                state.close(id, Close::Wanted);
            }
        }
    }
    pub(super) fn connect(&self, host: &Arc<Host>, address: &Address, attempt: Arc<Attempt>) {
        let mut state = self.state();
        let here = host.number();
        let now = self.schedule.now();
        let Some(to) = host_of(here, address) else {
            let what = "no way leads to this address: check it, the routes and the firewall";
            let error = Error::new(Kind::Host, what).with(address);
            return state.add(now + 1_000, Event::Answer(attempt, Err(error)));
        };
        let at_ns = state.arrival_ns(here, to, 0);
        state.add(at_ns, Event::Ask(Ask { attempt, from: host.clone(), to, address: address.clone(), tries: 0 }));
    }
    /// The stream of a connection of a host.
    pub(super) fn stream(&self, host: &Host, connection: ConnectionId) -> Result<Arc<Stream>> {
        let state = self.state();
        let end = state.ends.get(&connection).filter(|end| !end.closed && end.host.boot() == host.boot());
        end.map(|end| end.stream.clone()).ok_or_else(closed)
    }
    /// The kernel is told that there is something to do for an end.
    pub(super) fn issue(&self, connection: ConnectionId) {
        let mut state = self.state();
        let delay_ns = 200 + state.rng.below(3_000);
        state.pump(connection, delay_ns);
    }
    pub(super) fn close(&self, connection: ConnectionId) {
        self.state().close(connection, Close::Wanted);
    }
    pub(super) fn way(&self, host: &Host, connection: ConnectionId) -> Result<WayQuality> {
        let mut state = self.state();
        let end = state.ends.get(&connection).filter(|end| !end.closed && end.host.boot() == host.boot());
        let (from, to, retransmits, is_local) =
            end.map(|end| (end.from, end.to, end.retransmits, end.is_local)).ok_or_else(closed)?;
        if is_local {
            return Ok(WayQuality::default());
        }
        let round_trip_ns = state.way(from, to).plan.delay_ns + state.way(to, from).plan.delay_ns;
        Ok(WayQuality { round_trip_ns, retransmits })
    }
    pub(super) fn is_local(&self, connection: ConnectionId) -> bool {
        self.state().ends.get(&connection).is_some_and(|end| end.is_local)
    }
    /// Does what is due.
    pub(super) fn happen(&self, id: u64) {
        let mut state = self.state();
        let Some(event) = state.events.remove(&id) else { return };
        match event {
            Event::Pump(id) => state.pump_now(id),
            Event::Arrive(id) => state.arrive(id),
            Event::Break(id, error) => state.break_end(id, &error),
            Event::Look(id) => state.look_now(id),
            Event::Ask(ask) => state.ask(ask),
            Event::Answer(attempt, result) => {
                // Its future may be gone, and the connection is then closed: by a call to here.
                drop(state);
                attempt.finish(result);
            }
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
    fn port(&mut self) -> u16 {
        let port = self.port;
        self.port = self.port.checked_add(1).unwrap_or(PORT_FIRST);
        port
    }
    fn add(&mut self, at_ns: u64, event: Event) {
        let due = if matches!(event, Event::Look(_)) { Due::Look } else { Due::Net };
        let id = self.schedule.add(at_ns, due);
        self.events.insert(id, event);
    }
    pub fn now(&self) -> u64 {
        self.schedule.now()
    }
    pub fn note(&self, kind: TraceKind, id: ConnectionId, detail: u64) {
        self.schedule.note(kind, id.0, detail);
    }
    pub fn way(&mut self, from: usize, to: usize) -> &mut Way {
        let rng = &mut self.rng;
        self.ways.entry((from, to)).or_insert_with(|| {
            let plan = if from == to { LinkPlan::loopback() } else { LinkPlan::draw(rng) };
            Way { plan, cut: false, silent: false, reset_after: None }
        })
    }
    pub fn is_down(&self, number: usize) -> bool {
        self.down.contains(&number)
    }
    /// The time at which bytes that leave now arrive.
    pub fn arrival_ns(&mut self, from: usize, to: usize, bytes: usize) -> u64 {
        let LinkPlan { delay_ns, jitter_ns, bandwidth, .. } = self.way(from, to).plan;
        let takes_ns = bytes as u64 * 1_000_000_000 / bandwidth;
        self.now() + delay_ns + self.rng.below(jitter_ns) + takes_ns
    }
    pub fn pump(&mut self, id: ConnectionId, delay_ns: u64) {
        if let Some(end) = self.ends.get_mut(&id)
            && !std::mem::replace(&mut end.pumps, true)
        {
            self.add(self.now() + delay_ns, Event::Pump(id));
        }
    }
    pub fn arrive_at(&mut self, id: ConnectionId, at_ns: u64) {
        self.add(at_ns, Event::Arrive(id));
    }
    pub fn break_at(&mut self, id: ConnectionId, at_ns: u64, error: Error) {
        self.add(at_ns, Event::Break(id, error));
    }
    pub fn look(&mut self, id: ConnectionId, delay_ns: u64) {
        self.add(self.now() + delay_ns, Event::Look(id));
    }
    fn ends_between(&self, one: usize, other: usize) -> Vec<ConnectionId> {
        let is_between = |end: &End| [(one, other), (other, one)].contains(&(end.from, end.to));
        self.ends.iter().filter(|(_, end)| is_between(end)).map(|(id, _)| *id).collect()
    }
    fn ends_of(&self, host: &Host) -> Vec<ConnectionId> {
        self.ends.iter().filter(|(_, end)| end.host.boot() == host.boot()).map(|(id, _)| *id).collect()
    }
    fn look_at(&mut self, from: usize, to: usize) {
        self.ends_between(from, to).into_iter().for_each(|id| self.look(id, 0));
    }
    fn end_listeners(&mut self, host: &Host) {
        let ended: Vec<_> = self.listeners.extract_if(.., |_, of| of.host.boot() == host.boot()).collect();
        ended.into_iter().for_each(|(_, listening)| drop(listening.accepts.end()));
    }
    fn listener_at(&self, number: usize, address: &Address) -> Option<&Listening> {
        let is_there = |listening: &&Listening| {
            listening.host.number() == number
                && match (&listening.address, address) {
                    (Address::Tcp(one), Address::Tcp(other)) => one.port() == other.port(),
                    (one, other) => one == other,
                }
        };
        self.listeners.values().find(is_there)
    }
    /// Somebody asks for a connection.
    fn ask(&mut self, mut ask: Ask) {
        let (from, to) = (ask.from.number(), ask.to);
        if ask.from.stopped() {
            return;
        }
        let (there, back) = (self.way(from, to).cut, self.way(to, from).cut);
        let is_there = self.hosts.contains_key(&to) && !self.is_down(to);
        let listening = self.listener_at(to, &ask.address);
        let is_full = listening.is_some_and(|listening| listening.accepts.untaken() >= BACKLOG as usize);
        if there || back || !is_there || is_full {
            return match RETRIES_NS.get(ask.tries) {
                Some(&pause_ns) => {
                    ask.tries += 1;
                    self.add(self.now() + pause_ns, Event::Ask(ask));
                }
                None => {
                    let what = "nobody answers at this address: check it, whether that machine is up, and the firewall";
                    ask.attempt.finish(Err(Error::new(Kind::Host, what).with(&ask.address)));
                }
            };
        }
        let at_ns = self.arrival_ns(to, from, 0);
        let result = match listening_parts(self.listener_at(to, &ask.address)) {
            Some((server, accepts)) => Ok(self.make(&ask, &server, &accepts)),
            None => Err(nobody(&ask.address)),
        };
        self.add(at_ns, Event::Answer(ask.attempt, result));
    }
    /// Makes both ends of a connection. Returns the client's.
    fn make(&mut self, ask: &Ask, server: &Arc<Host>, accepts: &Accepts) -> ConnectionId {
        let [client_id, server_id] = [(); 2].map(|()| ConnectionId(self.number()));
        let (from, to) = (ask.from.number(), ask.to);
        let is_local = matches!(ask.address, Address::Local(_));
        let came_from = match ask.address {
            Address::Local(_) => Address::Local(std::path::PathBuf::new()),
            Address::Tcp(address) if address.ip().is_loopback() && address.is_ipv6() => {
                Address::Tcp(SocketAddr::from((Ipv6Addr::LOCALHOST, self.port())))
            }
            Address::Tcp(address) if address.ip().is_loopback() => {
                Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port())))
            }
            Address::Tcp(_) => Address::Tcp(address_of(from, self.port())),
        };
        self.ends.insert(client_id, End::new(ask.from.clone(), server_id, (from, to), is_local));
        self.ends.insert(server_id, End::new(server.clone(), client_id, (to, from), is_local));
        self.note(TraceKind::Connect, client_id, server_id.0);
        let core = self.rng.below(8) as usize;
        let _ = accepts.came(core, Ok((server_id, came_from)));
        if self.way(from, to).is_blocked() || self.way(to, from).is_blocked() {
            self.look(client_id, 0);
            self.look(server_id, 0);
        }
        client_id
    }
    /// Sends again what a fault has kept from arriving.
    fn send_again(&mut self, from: usize, to: usize) {
        let stuck = |end: &End| end.stuck && (end.from, end.to) == (from, to);
        let ids: Vec<_> = self.ends.iter().filter(|(_, end)| stuck(end)).map(|(id, _)| *id).collect();
        for id in ids {
            // A retransmission comes up to a fifth of a second after the link is there again.
            let pause_ns = self.rng.below(200_000_000);
            let lengths: Vec<usize> = self.ends[&id].flying.iter().map(Segment::length).collect();
            let mut at_ns = self.now() + pause_ns;
            for length in lengths {
                at_ns = (self.arrival_ns(from, to, length) + pause_ns).max(at_ns + 1);
                self.arrive_at(id, at_ns);
            }
            let end = self.ends.get_mut(&id).expect("just seen");
            (end.stuck, end.arrives_ns) = (false, at_ns);
        }
    }
    /// A look whether an end has been in trouble for too long, or alone.
    fn look_now(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get(&id).filter(|end| !end.is_local) else { return };
        let (from, to, waits) = (end.from, end.to, end.stream.is_sending() && end.is_full);
        let is_alone = self.is_alone(end);
        let is_cut_off = self.is_down(to) || self.way(from, to).is_blocked() || self.way(to, from).is_blocked();
        if is_alone && !is_cut_off {
            // Its kernel asks now and then, and is told that nobody knows the connection any more.
            return self.break_end(id, &broken_off());
        }
        let now = self.now();
        let end = self.ends.get_mut(&id).expect("just seen");
        if !is_cut_off && !waits {
            end.troubled_ns = None;
            return;
        }
        let since_ns = *end.troubled_ns.get_or_insert(now);
        if now - since_ns >= DEAD_AFTER_NS {
            return self.break_end(id, &unanswered());
        }
        self.look(id, since_ns + DEAD_AFTER_NS - now);
    }
}

fn listening_parts(listening: Option<&Listening>) -> Option<(Arc<Host>, Arc<Accepts>)> {
    listening.map(|listening| (listening.host.clone(), listening.accepts.clone()))
}

fn nobody(address: &Address) -> Error {
    let (kind, what) = match address {
        Address::Tcp(_) => {
            (Kind::Host, "nobody listens at this address: check it, and whether the server runs and listens there")
        }
        Address::Local(_) => (Kind::NotFound, "no socket has this path: check it, and whether the server runs"),
    };
    Error::new(kind, what).with(address)
}
