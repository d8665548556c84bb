//! The connections between bricks that replicate groups: small messages that nothing delays, and messages of groups, in order.
//!
//! A brick's messages to a peer travel over connections that it has made itself: one of pulses, one of parcels. A pair of bricks is
//! *connected* while the connections of parcels in both directions are up, and both end together; each end's service is told of that, and
//! of the other's process, before it gets the first parcel. All that happens with a peer is on one core: its service is told one thing
//! after the other.
//!
//! Promises: while a pair is connected, the parcels that come are a prefix of those that the other end has sent in one time of being
//! connected, in order, none twice, none changed on its way; a sender whose parcels were lost is told `disconnected`; what waits for a
//! peer is bounded (`QUEUED_BYTES_MAX`), and what has come from it by one message of each kind; connections are tried for ever.
//! Absent by design: what messages mean, and sending them again; members that change; several connections of parcels, by core, for
//! which the hello has a number.

mod announce;
mod incoming;
mod outgoing;
mod pair;

pub use announce::announce;

pub use crate::codec::peer::{PARCEL_BLOCKS_MAX, PARCEL_BYTES_MAX, PULSE_BYTES_MAX, PeerId};

use crate::codec::Sums;
use crate::codec::peer::{ParcelBody, Purpose};
use crate::lane::{Cipher, Lane};
use crate::strangers::{self, Strangers};
use crate::tls::Credentials;
use crate::{FrameKind, Header, frame};
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, GroupId, Kind, Result};
use pair::{Pair, Told};
use runtime::net::{Address, ListenerId, WayQuality};
use runtime::{Event, Lock, Runtime, Slice};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of parcels that wait for a peer, or are being sent to it, at which the connection is given up: what a fast network carries
/// in some tens of milliseconds. A peer that is so far behind catches up from the log.
pub const QUEUED_BYTES_MAX: usize = 32 << 20;
/// The same of pulses: what is older than a dozen of them is of no use.
const QUEUED_PULSE_BYTES_MAX: usize = 16 * PULSE_BYTES_MAX;

/// The brick of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Me {
    /// Its uuid.
    pub id: PeerId,
    /// The uuid of its cluster.
    pub cluster: [u8; 16],
    /// The epoch of its log, higher in each process of the brick.
    pub epoch: u64,
}

/// The reader of a certificate in DER whose signature TLS has looked at: the brick that it is of. Errors: it is of no brick of the cluster.
pub type BrickOf = Arc<dyn Fn(&[u8]) -> Result<PeerId> + Send + Sync>;

/// All that a brick needs to know others by their certificates.
#[derive(Clone)]
pub struct Trust {
    /// The brick's own credentials, of a server that refuses strangers.
    pub credentials: Credentials,
    /// The name that the certificate of each brick has.
    pub server_name: Box<str>,
    /// The reader of their certificates.
    pub brick_of: BrickOf,
}

/// A message of one group.
#[derive(Clone)]
pub struct Parcel {
    /// The group.
    pub group: GroupId,
    /// The message, at most `PARCEL_BYTES_MAX` bytes.
    pub body: Vec<u8>,
    /// Whole blocks, in slices of at least one, `PARCEL_BLOCKS_MAX` together. What has come is one slice.
    pub payload: Vec<Slice>,
    /// The checksums of these blocks. The receiver has compared them.
    pub sums: Sums,
}

impl Parcel {
    /// A message without payload.
    pub fn bare(group: GroupId, body: Vec<u8>) -> Parcel {
        Parcel { group, body, payload: Vec::new(), sums: Sums::default() }
    }
    /// A message with a payload whose checksums nobody has computed yet.
    pub fn new(group: GroupId, body: Vec<u8>, payload: Vec<Slice>) -> Parcel {
        let sums = Sums::of_blocks(payload.iter().map(|slice| &**slice));
        Parcel { group, body, payload, sums }
    }
    /// Bytes of the payload, which keeps to its bounds.
    fn payload_bytes(&self) -> usize {
        let are_blocks = self.payload.iter().all(|slice| !slice.is_empty() && slice.len() % BLOCK_BYTES == 0);
        let bytes = self.payload.iter().map(|slice| slice.len()).sum();
        assert!(
            are_blocks && bytes <= IO_BYTES_MAX,
            "a payload is of whole blocks, and not of too many: {bytes} bytes"
        );
        assert!(self.sums.crcs().len() * BLOCK_BYTES == bytes, "each block of a payload has a checksum");
        bytes
    }
}

/// The receiver of other bricks' messages. All calls for one peer come on one core.
pub trait PeerService: Send + Sync + 'static {
    /// Messages of both directions arrive from now on, in order, or `disconnected` follows; those before may have been lost, and come no
    /// more. `epoch` is the peer's process: no older one is told of any more.
    fn connected(&self, peer: PeerId, epoch: u64);
    /// Messages of both directions are lost until `connected` is told again; the last ones before may be.
    fn disconnected(&self, peer: PeerId);
    /// Pulses to the peer arrive from now on, until their connection breaks.
    fn pulses_arrive(&self, peer: PeerId);
    /// Takes a pulse, at once, whether the pair is connected or not.
    fn pulse(&self, peer: PeerId, body: &[u8]);
    /// Takes a message. The next one of the peer comes once the future has ended: while it waits, the peer's messages queue up there.
    fn parcel(&self, peer: PeerId, parcel: Parcel) -> impl Future<Output = ()>;
}

/// The state of a peer, as an operator wants to know it.
#[derive(Clone, Default, Debug)]
pub struct Reach {
    /// True while the pair is connected.
    pub is_connected: bool,
    /// The highest epoch of the peer that was seen.
    pub epoch: Option<u64>,
    /// The reason why the last connection to it broke or was not made.
    pub error: Option<Error>,
    /// The quality of the connection for messages to it, over TCP.
    pub way: Option<WayQuality>,
}

/// Another brick.
struct Peer {
    id: PeerId,
    /// The address to which the next connection is made.
    address: Lock<Address>,
    /// The core on which everything of it happens.
    core: usize,
    pair: Lock<Pair>,
    /// Notified when the peer has shown that it is there.
    knocked: Event,
    /// Notified when an incoming connection may have its turn.
    changed: Event,
}

/// Checks that a connection's other end has this brick's certificate, where certificates are asked for. Errors: `Permission`.
fn check_certificate(trust: Option<&Trust>, lane: &Lane, peer: PeerId) -> Result<()> {
    let Some(trust) = trust else { return Ok(()) };
    let certificate = lane.cipher.as_ref().and_then(Cipher::peer);
    let of = certificate.map(|certificate| (trust.brick_of)(&certificate)).transpose()?;
    match of == Some(peer) {
        true => Ok(()),
        false => {
            Err(Error::new(Kind::Permission, "the certificate is not of the brick that it was shown for").with(peer))
        }
    }
}

/// A brick's connections to its peers; see the module.
pub struct Peers<S> {
    runtime: Runtime,
    service: Arc<S>,
    me: Me,
    listener: Option<ListenerId>,
    peers: BTreeMap<PeerId, Arc<Peer>>,
    trust: Lock<Option<Trust>>,
    strangers: Strangers,
    is_stopping: AtomicBool,
    stopped: Event,
}

impl<S: PeerService> Peers<S> {
    /// Connects to the peers, and listens for them. `listen`: None, if they reach this brick in no way, so that no pair is ever
    /// connected. `trust`: None where nobody else can connect (a simulation, a Unix socket): each is believed to be who it says. Errors: those
    /// of `Net::listen`.
    pub fn start(
        runtime: &Runtime,
        service: Arc<S>,
        me: Me,
        listen: Option<&Address>,
        peers: Vec<(PeerId, Address)>,
        trust: Option<Trust>,
    ) -> Result<Arc<Peers<S>>> {
        let cores = runtime.tasks.cores();
        let peer = |(number, (id, address))| {
            let (pair, knocked, changed) = (Lock::new("peer", Pair::default()), Event::new(), Event::new());
            let address = Lock::new("peer's address", address);
            (id, Arc::new(Peer { id, address, core: number % cores, pair, knocked, changed }))
        };
        let peers: BTreeMap<PeerId, Arc<Peer>> = peers.into_iter().enumerate().map(peer).collect();
        assert!(!peers.contains_key(&me.id), "no brick is its own peer");
        let listener = listen.map(|address| runtime.net.listen(address)).transpose()?;
        let peers = Arc::new(Peers {
            runtime: runtime.clone(),
            service,
            me,
            listener,
            peers,
            trust: Lock::new("trust", trust),
            strangers: Strangers::default(),
            is_stopping: AtomicBool::new(false),
            stopped: Event::new(),
        });
        if let Some(listener) = listener {
            for core in 0..cores {
                let there = peers.clone();
                runtime.spawn(core, move || async move {
                    let serve = |connection| {
                        let peers = there.clone();
                        move || incoming::serve(peers, connection)
                    };
                    strangers::accept(&there.runtime, listener, serve).await;
                });
            }
        }
        for peer in peers.peers.values() {
            for purpose in Purpose::ALL {
                let (there, peer) = (peers.clone(), peer.clone());
                runtime.spawn(peer.core, move || outgoing::keep(there, peer, purpose));
            }
        }
        Ok(peers)
    }
    /// The address where it listens; None if it does not.
    pub fn address(&self) -> Option<Address> {
        self.listener.and_then(|listener| self.runtime.net.address(listener).ok())
    }
    /// Has the next connections to a peer be made to another address. Those that there are stay: they work, or end by themselves.
    pub fn move_to(&self, peer: PeerId, address: Address) {
        if let Some(peer) = self.peers.get(&peer) {
            *peer.address.lock() = address;
        }
    }
    /// Sends a parcel, on any core; waits for nothing. It is dropped if the pair is not connected; so is all that waits for the peer, with
    /// the connection, if that is too much. Bytes that are sent count for that, not the buffers in which they lie.
    pub fn send(&self, to: PeerId, parcel: &Parcel) {
        let payload_bytes = parcel.payload_bytes();
        let Some(peer) = self.peers.get(&to) else { return };
        let Some(lane) = peer.pair.lock().parcels() else { return };
        let header = Header { group: parcel.group, ..Header::new(FrameKind::Parcel) };
        let fits = lane.outbox.push_within(QUEUED_BYTES_MAX, parcel.payload.iter().cloned(), |out| {
            frame::put(out, header, payload_bytes, |out| ParcelBody::put(out, &parcel.sums, &parcel.body));
        });
        if !fits {
            self.note(
                peer,
                Error::new(Kind::Busy, "the other brick takes messages too slowly; it is connected to anew"),
            );
            lane.close(&self.runtime);
        }
    }
    /// Waits while so much is on its way to a peer that a parcel more might end the connection; not at all if there is none.
    pub async fn room(&self, to: PeerId) {
        let lane = self.peers.get(&to).and_then(|peer| peer.pair.lock().parcels());
        if let Some(lane) = lane {
            lane.outbox.room().await;
        }
    }
    /// Sends a pulse of at most `PULSE_BYTES_MAX`, on any core; waits for nothing. It is dropped if there is no connection for it.
    pub fn pulse(&self, to: PeerId, body: &[u8]) {
        assert!(body.len() <= PULSE_BYTES_MAX, "a pulse is small: {} bytes", body.len());
        let Some(peer) = self.peers.get(&to) else { return };
        let Some(lane) = peer.pair.lock().outgoing(Purpose::Pulse) else { return };
        let header = Header::new(FrameKind::PeerPulse);
        let fits = lane.outbox.push_within(QUEUED_PULSE_BYTES_MAX, None, |out| {
            frame::put(out, header, 0, |out| out.extend_from_slice(body));
        });
        if !fits {
            lane.close(&self.runtime);
        }
    }
    /// The state of a peer; None of a brick that is none.
    pub fn reach(&self, peer: PeerId) -> Option<Reach> {
        let peer = self.peers.get(&peer)?;
        let (reach, lane) = {
            let pair = peer.pair.lock();
            (pair.reach(), pair.parcels())
        };
        let way = lane.and_then(|lane| self.runtime.net.way(lane.connection).ok());
        Some(Reach { way, ..reach })
    }
    /// True if what is for a peer reaches it.
    pub fn is_connected(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.pair.lock().is_connected())
    }
    /// Has new connections use other credentials.
    pub fn renew(&self, credentials: Credentials) {
        if let Some(trust) = &mut *self.trust.lock() {
            trust.credentials = credentials;
        }
    }
    /// Ends all connections for good. The service is told nothing any more, but for calls that have begun on other cores.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stopped.notify();
        if let Some(listener) = self.listener {
            self.runtime.net.close_listener(listener);
        }
        self.strangers.close(&self.runtime);
        for peer in self.peers.values() {
            let lanes = peer.pair.lock().end();
            lanes.iter().for_each(|lane| lane.close(&self.runtime));
            peer.changed.notify();
        }
    }
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
    /// Waits for `stop`.
    async fn stopped(&self) {
        loop {
            let ticket = self.stopped.ticket();
            if self.is_stopping() {
                return;
            }
            self.stopped.after(ticket).await;
        }
    }
    fn note(&self, peer: &Peer, error: Error) {
        peer.pair.lock().note(error);
    }
    /// Closes connections that are over, and tells the service if the pair is connected no more, or is now.
    fn end(&self, peer: &Peer, over: &[Arc<Lane>]) {
        over.iter().for_each(|lane| lane.close(&self.runtime));
        peer.changed.notify();
        self.settle(peer);
    }
    /// Tells the service whether a pair is connected, if that has changed. Called on the peer's core.
    fn settle(&self, peer: &Peer) {
        if self.is_stopping() {
            return;
        }
        let told = peer.pair.lock().settle();
        match told {
            Told::Connected(epoch) => {
                self.service.connected(peer.id, epoch);
                peer.changed.notify();
            }
            Told::Disconnected => self.service.disconnected(peer.id),
            Told::Nothing => {}
        }
    }
}
