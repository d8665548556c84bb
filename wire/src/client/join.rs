//! Joining: a machine gets its certificate, and another one later.

use crate::codec::Body;
use crate::codec::hello::{Join, Joined, Refused};
use crate::lane::{Lane, Reader};
use crate::tls::{Credentials, Encryption, Tls};
use crate::{FrameKind, Header};
use base::{Error, Kind, Result};
use runtime::Runtime;
use runtime::net::Address;
use runtime::tasks::either;

/// Longest time for an answer.
const WITHIN_NS: u64 = 15_000_000_000;

/// Asks the server at an address for a certificate: with the secret of a token, or, with credentials that have an identity and an
/// empty secret, for another one of the same key. `credentials`: also the name that the server's certificate must have. Errors:
/// `Permission`, if one end refuses the other, with its reason; those of a connection.
pub async fn join(
    runtime: &Runtime,
    address: &Address,
    credentials: &(Credentials, Box<str>),
    join: &Join,
) -> Result<Joined> {
    let mut joined = Err(Error::new(Kind::Host, "the server has not answered within 15 s; is it Sinter's port?"));
    either(async { joined = ask(runtime, address, credentials, join).await }, runtime.clock.sleep(WITHIN_NS)).await;
    joined
}

async fn ask(
    runtime: &Runtime,
    address: &Address,
    (credentials, name): &(Credentials, Box<str>),
    join: &Join,
) -> Result<Joined> {
    let connection = runtime.net.connect(address).await?;
    // The secret of a token is for nobody else's eyes, whatever a mount may show.
    let credentials = credentials.clone().with(Encryption::On);
    let lane = Lane::start(runtime, connection, Some(Tls::client(&credentials, name)?));
    let closed = Closing(runtime, &lane);
    let mut reader = Reader::new(runtime, &lane);
    lane.outbox.push(None, |out| join.frame(out, Header::new(FrameKind::Join)));
    let came = reader.next().await?.ok_or_else(super::gone)?;
    drop(closed);
    match came.header.kind {
        FrameKind::Joined => Joined::decode(reader.body()),
        FrameKind::Refused => {
            let Refused { text, .. } = Refused::decode(reader.body())?;
            Err(Error::new(Kind::Permission, "the server does not let this machine join").with(text))
        }
        _ => Err(super::unexpected()),
    }
}

/// A connection that ends with this, also if nobody waits for the answer any more.
struct Closing<'a>(&'a Runtime, &'a Lane);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.1.close(self.0);
    }
}
