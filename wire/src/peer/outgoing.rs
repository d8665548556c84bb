//! Connections that a brick makes to a peer: one of each purpose, made again for ever.

use super::{Peer, PeerService, Peers, Trust, check_certificate};
use crate::codec::Body;
use crate::codec::hello::{Refused, VERSIONS};
use crate::codec::peer::{PeerHello, PeerOk, Purpose};
use crate::lane::{Lane, Reader};
use crate::pauses::Pauses;
use crate::strangers::HELLO_WITHIN_NS;
use crate::tls::Tls;
use crate::{FrameKind, Header};
use base::{Error, Kind, Result};
use runtime::tasks::either;
use std::sync::Arc;

/// Pause after a peer has shown that it is there: it may do so again and again.
const KNOCKED_NS: u64 = 5_000_000;

/// Keeps a connection to a peer. Runs on the peer's core.
pub async fn keep<S: PeerService>(peers: Arc<Peers<S>>, peer: Arc<Peer>, purpose: Purpose) {
    let clock = peers.runtime.clock.clone();
    let mut pauses = Pauses::new();
    while !peers.is_stopping() {
        let began_ns = clock.now_ns();
        let mut ticket = peer.knocked.ticket();
        match peers.reach_out(&peer, purpose, ticket).await {
            Ok((lane, mut reader, epoch)) => {
                let ended = peers.hold(&peer, purpose, &lane, &mut reader, epoch).await;
                // Whoever closes it here knows why.
                if !lane.outbox.is_closed() {
                    peers.note(&peer, ended);
                }
                lane.close(&peers.runtime);
                ticket = peer.knocked.ticket();
            }
            Err(error) => peers.note(&peer, error),
        }
        let pause_ns = pauses.next_ns(&*peers.runtime.random, clock.now_ns() - began_ns);
        let wait = async {
            if !either(clock.sleep(pause_ns), peer.knocked.after(ticket)).await {
                clock.sleep(KNOCKED_NS).await;
            }
        };
        either(wait, peers.stopped()).await;
    }
}

impl<S: PeerService> Peers<S> {
    /// Connects to a peer and greets it: the connection, and the epoch of its process. Gives up at once if the peer knocks before it has answered
    /// at all: then it is there, whatever the attempt was waiting for.
    async fn reach_out(&self, peer: &Peer, purpose: Purpose, ticket: u64) -> Result<(Arc<Lane>, Reader, u64)> {
        let mut made = None;
        let address = peer.address.lock().clone();
        let connect = async { made = Some(self.runtime.net.connect(&address).await) };
        let ended = async {
            either(peer.knocked.after(ticket), self.stopped()).await;
        };
        either(connect, ended).await;
        let connection =
            made.unwrap_or_else(|| Err(Error::new(Kind::Interrupted, "the attempt to connect was given up")))?;
        let lane = match self.end_of_tls() {
            Ok(tls) => Lane::start(&self.runtime, connection, tls),
            Err(error) => {
                self.runtime.net.close(connection);
                return Err(error);
            }
        };
        let mut reader = Reader::new(&self.runtime, &lane);
        match self.greet(peer, purpose, &lane, &mut reader).await {
            Ok(epoch) => Ok((lane, reader, epoch)),
            Err(error) => {
                lane.close(&self.runtime);
                Err(error)
            }
        }
    }
    /// The client's end of an encrypted connection; None where connections are not.
    fn end_of_tls(&self) -> Result<Option<Tls>> {
        let trust = self.trust.lock().clone();
        trust.map(|trust| Tls::client(&trust.credentials, &trust.server_name)).transpose()
    }
    /// Says who this brick is, and waits for the answer: the epoch of the peer's process.
    async fn greet(&self, peer: &Peer, purpose: Purpose, lane: &Lane, reader: &mut Reader) -> Result<u64> {
        let super::Me { id: who, cluster, epoch } = self.me;
        let hello = PeerHello { versions: VERSIONS, features: 0, cluster, who, whom: peer.id, epoch, purpose, lane: 0 };
        let trust = self.trust.lock().clone();
        let mut came = None;
        let answer = async { came = Some(exchange(&hello, trust.as_ref(), lane, reader).await) };
        let ended = async {
            either(self.runtime.clock.sleep(HELLO_WITHIN_NS), self.stopped()).await;
        };
        either(answer, ended).await;
        let late = || Error::new(Kind::Interrupted, "the other brick is connected, and does not say who it is");
        came.ok_or_else(late)?
    }
    /// Keeps a connection until it ends. Returns the reason.
    async fn hold(&self, peer: &Peer, purpose: Purpose, lane: &Arc<Lane>, reader: &mut Reader, epoch: u64) -> Error {
        let over = {
            let mut pair = peer.pair.lock();
            let Some(over) = pair.see(epoch) else {
                return Error::new(Kind::Fenced, "a process of the other brick answers that is over");
            };
            pair.reached(purpose, lane);
            over
        };
        self.end(peer, &over);
        // Whoever stops it sees the connection, or is seen here.
        if self.is_stopping() {
            return gone();
        }
        if purpose == Purpose::Pulse {
            self.service.pulses_arrive(peer.id);
        }
        let ended = match reader.next().await {
            Ok(Some(came)) if came.header.kind == FrameKind::Refused => refused(reader.body()),
            Ok(Some(_)) => unexpected(),
            Ok(None) => gone(),
            Err(error) => error,
        };
        let over = peer.pair.lock().lost(purpose, lane);
        self.end(peer, &over);
        ended
    }
}

/// Says who this brick is, and waits for the answer: the epoch of the peer's process. Errors: it refuses, or shows the certificate of another
/// brick.
pub(super) async fn exchange(
    hello: &PeerHello,
    trust: Option<&Trust>,
    lane: &Lane,
    reader: &mut Reader,
) -> Result<u64> {
    lane.outbox.push(None, |out| hello.frame(out, Header::new(FrameKind::PeerHello)));
    let came = reader.next().await?.ok_or_else(gone)?;
    match came.header.kind {
        FrameKind::PeerOk => {
            check_certificate(trust, lane, hello.whom)?;
            Ok(PeerOk::decode(reader.body())?.epoch)
        }
        FrameKind::Refused => Err(refused(reader.body())),
        _ => Err(unexpected()),
    }
}

/// The error of a brick that the other one refuses.
fn refused(body: &[u8]) -> Error {
    match Refused::decode(body) {
        Ok(refused) => Error::new(Kind::Permission, "the other brick refuses this one").with(refused.text),
        Err(error) => error,
    }
}

fn gone() -> Error {
    Error::new(Kind::Interrupted, "the other brick has ended the connection")
}

fn unexpected() -> Error {
    Error::new(Kind::Corrupt, "the other brick has sent a message that it does not send here")
}
