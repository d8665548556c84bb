//! The news that a process of a brick begins, told to the others before it can take part. By then its former process has ended, so what it was
//! promised binds nobody any more; without the news they wait until the promise runs out.

use super::outgoing::exchange;
use super::{Me, PULSE_BYTES_MAX, PeerId, Trust};
use crate::codec::hello::VERSIONS;
use crate::codec::peer::{PeerHello, Purpose};
use crate::lane::{Lane, Reader};
use crate::tls::Tls;
use crate::{FrameKind, Header, frame};
use base::Result;
use runtime::Runtime;
use runtime::net::Address;
use runtime::tasks::either;

/// The time after which the connection is given up: a replay takes less, and then the process speaks for itself.
const ANNOUNCED_WITHIN_NS: u64 = 10_000_000_000;

/// Greets a peer in the name of the process that begins, and sends it one pulse. Ends with the connection: when the peer has another one from this
/// process, or after ten seconds. Errors: those of the connection, and of a peer that refuses it.
pub async fn announce(
    runtime: &Runtime,
    me: Me,
    (id, address): (PeerId, &Address),
    trust: Option<&Trust>,
    pulse: &[u8],
) -> Result<()> {
    assert!(pulse.len() <= PULSE_BYTES_MAX, "a pulse is small: {} bytes", pulse.len());
    let mut said = Ok(());
    let say = async { said = greet(runtime, me, (id, address), trust, pulse).await };
    either(say, runtime.clock.sleep(ANNOUNCED_WITHIN_NS)).await;
    said
}

async fn greet(
    runtime: &Runtime,
    me: Me,
    (whom, address): (PeerId, &Address),
    trust: Option<&Trust>,
    pulse: &[u8],
) -> Result<()> {
    let tls = trust.map(|trust| Tls::client(&trust.credentials, &trust.server_name)).transpose()?;
    let connection = runtime.net.connect(address).await?;
    let lane = Closed(Lane::start(runtime, connection, tls), runtime);
    let mut reader = Reader::new(runtime, &lane.0);
    let Me { id: who, cluster, epoch } = me;
    let purpose = Purpose::Pulse;
    let hello = PeerHello { versions: VERSIONS, features: 0, cluster, who, whom, epoch, purpose, lane: 0 };
    exchange(&hello, trust, &lane.0, &mut reader).await?;
    let header = Header::new(FrameKind::PeerPulse);
    lane.0.outbox.push(None, |out| frame::put(out, header, 0, |out| out.extend_from_slice(pulse)));
    // It says nothing; its end of the connection ends once it has another one.
    reader.next().await.map(drop)
}

/// A connection that ends with its owner, who may be given up.
struct Closed<'a>(std::sync::Arc<Lane>, &'a Runtime);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}
