//! Connections that peers make: who they are, and what they send.

use super::pair::{Pair, Turn};
use super::{PULSE_BYTES_MAX, Parcel, Peer, PeerService, Peers, check_certificate};
use crate::codec::Body;
use crate::codec::hello::{Reason, Refused, VERSIONS};
use crate::codec::peer::{ParcelBody, PeerHello, PeerOk, Purpose};
use crate::lane::{Came, Lane, Reader};
use crate::tls::Tls;
use crate::{FrameKind, Header};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};
use runtime::net::ConnectionId;
use runtime::tasks::either;
use std::sync::Arc;

/// Time for the last frame of a connection to get there.
const LINGER_NS: u64 = 1_000_000_000;

/// Serves a connection until its first frame is here, then on the core of the peer that has sent it.
pub async fn serve<S: PeerService>(peers: Arc<Peers<S>>, connection: ConnectionId) {
    let runtime = peers.runtime.clone();
    let credentials = peers.trust.lock().as_ref().map(|trust| trust.credentials.clone());
    let tls = match credentials.as_ref().map(Tls::server).transpose() {
        Ok(tls) => tls,
        Err(_) => return runtime.net.close(connection),
    };
    let lane = Lane::start(&runtime, connection, tls);
    let mut reader = Reader::new(&runtime, &lane);
    match peers.greeted(&lane, &mut reader).await {
        Ok(Some((peer, hello))) => {
            let core = peer.core;
            runtime.spawn(core, move || async move {
                let taken = peers.take_in(&peer, &hello, &lane, &mut reader).await;
                peers.part(&lane, taken).await;
            });
        }
        Ok(None) => lane.close(&runtime),
        Err(refused) => peers.part(&lane, Err(refused)).await,
    }
}

impl<S: PeerService> Peers<S> {
    /// Ends a connection, and tells the reason if there is one.
    async fn part(&self, lane: &Lane, ended: Result<(), Refused>) {
        if let Err(refused) = ended {
            lane.outbox.push(None, |out| refused.frame(out, Header::new(FrameKind::Refused)));
            either(self.runtime.clock.sleep(LINGER_NS), self.stopped()).await;
        }
        lane.close(&self.runtime);
    }
    /// The peer that greets, and its hello; None if it has gone. Errors: the reason why it is not taken.
    async fn greeted(&self, lane: &Arc<Lane>, reader: &mut Reader) -> Result<Option<(Arc<Peer>, PeerHello)>, Refused> {
        let first = self.strangers.first(&self.runtime, lane, reader, &self.is_stopping).await;
        let Some(came) = first.map_err(Refused::nonsense)? else { return Ok(None) };
        if came.header.kind != FrameKind::PeerHello {
            return Err(Refused::protocol("the first message says which brick it is"));
        }
        let hello = PeerHello::decode(reader.body()).map_err(Refused::nonsense)?;
        VERSIONS.common(hello.versions)?;
        let refuse = |reason, text: String| Err(Refused { reason, text: text.into() });
        if hello.who == self.me.id {
            return refuse(
                Reason::Itself,
                format!("brick {} has connected to itself: correct its peers' addresses", hello.who),
            );
        }
        if hello.cluster != self.me.cluster {
            return refuse(Reason::Cluster, "the brick is of another cluster: correct its peers' addresses".into());
        }
        if hello.whom != self.me.id {
            return refuse(
                Reason::Member,
                format!("this is brick {}, not {}: correct its address", self.me.id, hello.whom),
            );
        }
        let Some(peer) = self.peers.get(&hello.who) else {
            return refuse(Reason::Member, format!("brick {} is none of this brick's peers", hello.who));
        };
        let trust = self.trust.lock().clone();
        if let Err(error) = check_certificate(trust.as_ref(), lane, hello.who) {
            return refuse(Reason::Stranger, Refused::nonsense(error).text.into());
        }
        if hello.lane != 0 {
            return Err(Refused::protocol("this brick takes one connection of each purpose"));
        }
        Ok(Some((peer.clone(), hello)))
    }
    /// Takes what a peer sends until the connection ends, or another one replaces it. Errors: the reason to tell the peer.
    async fn take_in(
        &self,
        peer: &Peer,
        hello: &PeerHello,
        lane: &Arc<Lane>,
        reader: &mut Reader,
    ) -> Result<(), Refused> {
        let purpose = hello.purpose;
        let over = {
            let mut pair = peer.pair.lock();
            let Some(mut over) = pair.see(hello.epoch) else {
                let text = format!(
                    "a newer process of brick {} was here: this one of epoch {} is over",
                    hello.who, hello.epoch
                );
                return Err(Refused { reason: Reason::Epoch, text: text.into() });
            };
            over.extend(pair.came(purpose, lane));
            over
        };
        self.end(peer, &over);
        // Whoever stops it sees the connection, or is seen here.
        if self.is_stopping() {
            return Ok(());
        }
        let ok = PeerOk { version: VERSIONS.highest.min(hello.versions.highest), features: 0, epoch: self.me.epoch };
        lane.outbox.push(None, |out| ok.frame(out, Header::new(FrameKind::PeerOk)));
        peer.knocked.notify();
        let taken = match purpose {
            Purpose::Pulse => self.take_pulses(peer, lane, reader).await,
            Purpose::Append => self.take_parcels(peer, lane, reader).await,
        };
        let over = peer.pair.lock().went(purpose, lane);
        self.end(peer, &over);
        match taken {
            Err(error) if error.kind != Kind::Interrupted => {
                self.note(peer, error.clone());
                Err(Refused::nonsense(error))
            }
            _ => Ok(()),
        }
    }
    async fn take_pulses(&self, peer: &Peer, lane: &Arc<Lane>, reader: &mut Reader) -> Result<()> {
        while let Some(Came { header, payload }) = reader.next().await? {
            if header.kind != FrameKind::PeerPulse || payload.is_some() || reader.body().len() > PULSE_BYTES_MAX {
                return Err(Error::new(Kind::Corrupt, "a connection for pulses has other messages"));
            }
            if !peer.pair.lock().is_current(Purpose::Pulse, lane) {
                return Ok(());
            }
            self.service.pulse(peer.id, reader.body());
        }
        Ok(())
    }
    async fn take_parcels(&self, peer: &Peer, lane: &Arc<Lane>, reader: &mut Reader) -> Result<()> {
        if !turn(peer, |pair| pair.rise(lane)).await {
            return Ok(());
        }
        self.settle(peer);
        while let Some(came) = reader.next().await? {
            let parcel = parcel_of(came, reader.body())?;
            if !turn(peer, |pair| pair.begin(lane)).await {
                return Ok(());
            }
            self.service.parcel(peer.id, parcel).await;
            peer.pair.lock().rests();
            peer.changed.notify();
        }
        Ok(())
    }
}

/// Waits for the turn of a connection; false if it never comes.
async fn turn(peer: &Peer, take: impl Fn(&mut Pair) -> Turn) -> bool {
    loop {
        let ticket = peer.changed.ticket();
        let turn = take(&mut peer.pair.lock());
        match turn {
            Turn::Now => return true,
            Turn::Over => return false,
            Turn::Later => peer.changed.after(ticket).await,
        }
    }
}

/// A parcel as it has come. Errors: `Corrupt`, if it was changed on its way, or is none.
fn parcel_of(Came { header, payload }: Came, body: &[u8]) -> Result<Parcel> {
    let corrupt = |what| Err(Error::new(Kind::Corrupt, what));
    if header.kind != FrameKind::Parcel {
        return corrupt("a connection for parcels has other messages");
    }
    let ParcelBody { sums, message } = ParcelBody::decode(body)?;
    let payload: Vec<_> = payload
        .map(|payload| {
            let length = payload.len();
            payload.share().slice(0..length)
        })
        .into_iter()
        .collect();
    let bytes = payload.first().map_or(&[][..], |payload| payload);
    if bytes.len() % BLOCK_BYTES != 0 {
        return corrupt("a parcel's payload is not of whole blocks");
    }
    sums.check(bytes)?;
    Ok(Parcel { group: header.group, body: message, payload, sums })
}
