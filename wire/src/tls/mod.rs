//! Encrypted connections: TLS 1.3 and nothing older, both ends with certificates of one authority (decision 0076).
//!
//! Promises: ciphertext comes in and goes out through buffers of the caller; nothing waits, nothing is kept but half a handshake.
//! Where both ends were told `Encryption::Off`, content goes in the clear, and is as hard to forge as ever (decision 0081).
//! Absent by design: I/O; tickets, resumption and early data, whose replay would be a second delivery; older versions.

mod credentials;
mod mac;
#[cfg(test)]
mod tests;

pub use credentials::{Authority, Credentials, Encryption, Identity, Pin, Strangers};

use base::{Error, Kind, Result};
use mac::{Exporter, Opened, Records, Side};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError};
use rustls::{CertificateError, CommonState};
use std::ops::Deref;
use std::sync::Arc;

/// Most bytes of a record, as the standard bounds them: the least that `receive` must be given to get on in any case is these,
/// and those of a handshake message.
pub const RECORD_BYTES_MAX: usize = 5 + PLAIN_BYTES_MAX + 256;
/// Most bytes of a handshake message: of a chain of certificates.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// The least length of a buffer for what `receive` is given.
pub const RECEIVE_BYTES_MIN: usize = HANDSHAKE_BYTES_MAX + RECORD_BYTES_MAX;
/// Most plaintext of a record.
const PLAIN_BYTES_MAX: usize = 16 << 10;
/// Bytes that a record has beside its plaintext: its head, the type of its content, its tag.
const RECORD_EXTRA: usize = 5 + 1 + 16;
/// Bytes that are left free for a change of keys, which the library puts before a record when one is due.
const KEYS_BYTES: usize = 64;

/// One end of a connection.
pub struct Tls {
    end: End,
    content: Content,
    /// Handshake records and alerts that are to be sent.
    pending: Vec<u8>,
    /// Plaintext of a record that several slices make up.
    gathered: Vec<u8>,
    /// True once the peer has said that nothing more comes.
    ended: bool,
    /// The error that has ended the connection.
    failed: Option<Error>,
}

// Both have about a kilobyte, and there is one for each connection.
#[allow(clippy::large_enum_variant)]
enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The form of content.
enum Content {
    /// Records of TLS.
    Encrypted,
    /// The handshake decides; this end would have it in the clear.
    Open(Arc<Exporter>),
    /// Records in the clear, with tags.
    Clear(Box<Records>),
}

/// Bytes that `send` has gone on by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Bytes of plaintext that are in the buffer now, and need not be given again.
    pub taken: usize,
    /// Bytes of the buffer that are to be sent.
    pub written: usize,
}

/// Most bytes that so much plaintext becomes.
pub const fn encrypted_bytes(plain: usize) -> usize {
    plain + plain.div_ceil(PLAIN_BYTES_MAX) * RECORD_EXTRA + KEYS_BYTES
}

impl Tls {
    /// The client's end. The server must have a certificate for `name`. Errors: `Invalid`, if that is no name.
    pub fn client(credentials: &Credentials, name: &str) -> Result<Tls> {
        let name = ServerName::try_from(name.to_string())
            .map_err(|_| Error::new(Kind::Invalid, "a server's name has letters, digits and dots").with(name))?;
        let exporter = credentials.exporter();
        let end = UnbufferedClientConnection::new(credentials.client(exporter.clone()), name);
        Ok(Tls::new(End::Client(end.map_err(refused)?), exporter))
    }
    /// The server's end.
    pub fn server(credentials: &Credentials) -> Result<Tls> {
        let exporter = credentials.exporter();
        let end = UnbufferedServerConnection::new(credentials.server(exporter.clone()));
        Ok(Tls::new(End::Server(end.map_err(refused)?), exporter))
    }
    fn new(end: End, exporter: Option<Arc<Exporter>>) -> Tls {
        let content = exporter.map_or(Content::Encrypted, Content::Open);
        let mut tls = Tls { end, content, pending: Vec::new(), gathered: Vec::new(), ended: false, failed: None };
        // A client has the first word.
        let begun = tls.receive(&mut [], |_| ());
        assert!(begun == Ok(0), "nothing has come that could be wrong");
        tls
    }
    fn common(&self) -> &CommonState {
        match &self.end {
            End::Client(end) => end.deref(),
            End::Server(end) => end.deref(),
        }
    }
    /// True once both ends know each other, and plaintext can be sent.
    pub fn is_established(&self) -> bool {
        !self.common().is_handshaking()
    }
    /// True if content goes in the clear: both ends were told so.
    pub fn is_clear(&self) -> bool {
        matches!(self.content, Content::Clear(_))
    }
    /// True if `send` has something to send even without plaintext.
    pub fn wants_send(&self) -> bool {
        !self.pending.is_empty()
    }
    /// True once the peer has said that nothing more comes. A connection that ends without was cut.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
    /// The peer's certificate, in DER; None before there is one, and of a stranger.
    pub fn peer(&self) -> Option<&[u8]> {
        self.common().peer_certificates()?.first().map(AsRef::as_ref)
    }
    /// Takes in what has come, and gives the plaintext to `each`, in order, in pieces of any length. `came` is changed. Returns how
    /// many bytes of it are used up; the others must be given again, as they are now, with what comes behind them. Errors:
    /// `Permission`, if one end does not accept the other's certificate; `Corrupt`. The connection is over then, and each call has
    /// the same error; what the peer should hear of it can still be sent.
    pub fn receive(&mut self, came: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let received = match self.content {
            Content::Encrypted => self.hear(came, &mut each),
            Content::Open(_) | Content::Clear(_) => self.hear_both(came, &mut each),
        };
        self.failed = received.as_ref().err().cloned();
        received
    }
    /// Takes in records of TLS.
    fn hear(&mut self, came: &mut [u8], each: impl FnMut(&[u8])) -> Result<usize> {
        let Tls { end, pending, ended, .. } = self;
        let mut taking = Taking { pending, ended, each };
        let (used, result) = match end {
            End::Client(end) => taking.drive(end, came, |end, came| {
                let status = end.process_tls_records(came);
                (status.discard, status.state)
            }),
            End::Server(end) => taking.drive(end, came, |end, came| {
                let status = end.process_tls_records(came);
                (status.discard, status.state)
            }),
        };
        result.map(|()| used)
    }
    /// Takes in records of both kinds: those in the clear come behind a handshake, and alerts of TLS may come between them.
    fn hear_both(&mut self, came: &mut [u8], each: &mut impl FnMut(&[u8])) -> Result<usize> {
        if self.ended && !came.is_empty() {
            return Err(mac::changed());
        }
        let mut used = 0;
        loop {
            let own_at = used + mac::starts_at(&came[used..]);
            let mut strays = Vec::new();
            if used < own_at || matches!(self.content, Content::Open(_)) {
                used += self.hear(&mut came[used..own_at], |piece| strays.extend_from_slice(piece))?;
                self.agree();
            }
            let Content::Clear(records) = &mut self.content else {
                if !strays.is_empty() {
                    each(&strays);
                }
                return match self.content {
                    // Types that TLS does not know are for the library to refuse.
                    Content::Encrypted => Ok(used + self.hear(&mut came[used..], each)?),
                    _ if own_at == came.len() => Ok(used),
                    _ => Err(mac::changed()),
                };
            };
            // The peer says nothing within TLS but alerts: its content, and its end, have places among the other records, so that none in
            // front of them can be lost unseen. Neither do those come between the parts of a message of TLS.
            if !strays.is_empty() || self.ended || (used < own_at && own_at < came.len()) {
                return Err(mac::changed());
            }
            if used < own_at {
                return Ok(used);
            }
            let Opened { used: more, is_end } = records.take(&came[used..], &mut *each)?;
            used += more;
            self.ended = is_end;
            if is_end && used < came.len() {
                return Err(mac::changed());
            }
            if is_end || more == 0 {
                return Ok(used);
            }
        }
    }
    /// Settles how content goes, once the handshake has said it.
    fn agree(&mut self) {
        let Content::Open(exporter) = &self.content else { return };
        let common = self.common();
        if common.is_handshaking() {
            return;
        }
        let side = match self.end {
            End::Client(_) => Side::Client,
            End::Server(_) => Side::Server,
        };
        self.content = match common.alpn_protocol() == Some(credentials::PROTOCOL_CLEAR) {
            true => Content::Clear(Box::new(Records::new(common, exporter, side))),
            false => Content::Encrypted,
        };
    }
    /// Puts into `out` what is to be sent: what the handshake has to say, then, once there is a connection, as much of the plaintext
    /// as there is room for (`encrypted_bytes`). Errors: `Corrupt`, if the connection can't be used any more.
    pub fn send(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Sent> {
        let (mut plain, mut sent) = (Plain { slices: plain, at: 0 }, Sent::default());
        loop {
            let room = &mut out[sent.written..];
            let handed = self.pending.len().min(room.len());
            room[..handed].copy_from_slice(&self.pending[..handed]);
            self.pending.drain(..handed);
            sent.written += handed;
            if !self.is_established() || self.wants_send() || self.failed.is_some() {
                return Ok(sent);
            }
            if let Content::Clear(records) = &mut self.content {
                records.put(&mut plain, out, &mut sent)?;
                return Ok(sent);
            }
            let Tls { end, pending, gathered, ended, .. } = self;
            let taking = Taking { pending, ended, each: |_: &[u8]| () };
            let goes_on = match end {
                End::Client(end) => {
                    encrypt(end.process_tls_records(&mut []).state, taking, &mut plain, gathered, out, &mut sent)
                }
                End::Server(end) => {
                    encrypt(end.process_tls_records(&mut []).state, taking, &mut plain, gathered, out, &mut sent)
                }
            };
            if !goes_on? {
                return Ok(sent);
            }
        }
    }
    /// Has the next `send` say that nothing more comes.
    pub fn end(&mut self) {
        if let Content::Clear(records) = &mut self.content {
            self.pending.extend(records.end().into_iter().flatten());
            return;
        }
        let mut notice = [0; 2 * KEYS_BYTES];
        let written = match &mut self.end {
            End::Client(end) => match end.process_tls_records(&mut []).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(&mut notice).unwrap_or(0),
                _ => 0,
            },
            End::Server(end) => match end.process_tls_records(&mut []).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(&mut notice).unwrap_or(0),
                _ => 0,
            },
        };
        self.pending.extend_from_slice(&notice[..written]);
    }
}

/// A call of `receive` under way.
struct Taking<'a, F> {
    pending: &'a mut Vec<u8>,
    ended: &'a mut bool,
    each: F,
}

type State<'c, 'i, Data> = std::result::Result<ConnectionState<'c, 'i, Data>, rustls::Error>;

/// Bytes of a record's header; its last two tell the length of what follows (RFC 8446, 5.1).
const HEADER_BYTES: usize = 5;

/// Bytes that a record lacks of which these have come, or its header, if that is not whole.
pub fn missing_bytes(begun: &[u8]) -> usize {
    match begun.first_chunk::<HEADER_BYTES>() {
        None => HEADER_BYTES - begun.len(),
        Some([.., high, low]) => {
            (HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]))).saturating_sub(begun.len())
        }
    }
}

impl<F: FnMut(&[u8])> Taking<'_, F> {
    fn drive<End, Data>(
        &mut self,
        end: &mut End,
        came: &mut [u8],
        process: impl for<'c, 'i> Fn(&'c mut End, &'i mut [u8]) -> (usize, State<'c, 'i, Data>),
    ) -> (usize, Result<()>) {
        let (mut used, mut result) = (0, Ok(()));
        loop {
            let (discard, state) = process(end, &mut came[used..]);
            let (more, goes_on) = match state {
                Ok(state) => self.step(state),
                // What the end has to say of the error comes from it at the next call, and then the error again.
                Err(error) if result.is_ok() => {
                    result = Err(refused(error));
                    (0, true)
                }
                Err(_) => (0, false),
            };
            used += discard + more;
            if !goes_on {
                return (used, result);
            }
        }
    }
    /// Does what a state asks for. Returns how many bytes more are used up, and whether there may be more to do.
    fn step<Data>(&mut self, state: ConnectionState<'_, '_, Data>) -> (usize, bool) {
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                let mut more = 0;
                while let Some(Ok(record)) = traffic.next_record() {
                    more += record.discard;
                    (self.each)(record.payload);
                }
                (more, true)
            }
            ConnectionState::EncodeTlsData(mut data) => {
                if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
                    let at = self.pending.len();
                    self.pending.resize(at + needed.required_size, 0);
                    let written = data.encode(&mut self.pending[at..]).unwrap_or(0);
                    self.pending.truncate(at + written);
                }
                (0, true)
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                (0, true)
            }
            ConnectionState::PeerClosed => {
                *self.ended = true;
                (0, true)
            }
            _ => (0, false),
        }
    }
}

/// Plaintext in slices.
struct Plain<'a> {
    slices: &'a [&'a [u8]],
    /// Bytes of the first slice that are used up.
    at: usize,
}

impl<'a> Plain<'a> {
    /// The next bytes, at most `most`: of one slice if it has them, else gathered. None if there are no more.
    fn next<'b>(&mut self, most: usize, gathered: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        gathered.clear();
        while let Some((first, others)) = self.slices.split_first() {
            let rest = &first[self.at..];
            let count = rest.len().min(most - gathered.len());
            if count < rest.len() {
                self.at += count;
            } else {
                (self.slices, self.at) = (others, 0);
            }
            if gathered.is_empty() && (count == most || others.is_empty()) {
                return Some(&rest[..count]).filter(|piece| !piece.is_empty());
            }
            gathered.extend_from_slice(&rest[..count]);
            if gathered.len() == most {
                break;
            }
        }
        Some(gathered.as_slice()).filter(|piece| !piece.is_empty())
    }
    /// Copies the next bytes, as many as there are and have room, and returns their number.
    fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        while let Some((first, others)) = self.slices.split_first() {
            let rest = &first[self.at..];
            let count = rest.len().min(out.len() - copied);
            out[copied..copied + count].copy_from_slice(&rest[..count]);
            copied += count;
            if count < rest.len() {
                self.at += count;
                break;
            }
            (self.slices, self.at) = (others, 0);
        }
        copied
    }
}

/// Encrypts, if that is what the connection is ready for; else does what it asks for first, such as a change of keys. Returns
/// true if there may be more to do.
fn encrypt<Data>(
    state: State<'_, '_, Data>,
    mut taking: Taking<'_, impl FnMut(&[u8])>,
    plain: &mut Plain<'_>,
    gathered: &mut Vec<u8>,
    out: &mut [u8],
    sent: &mut Sent,
) -> Result<bool> {
    let mut traffic = match state.map_err(refused)? {
        ConnectionState::WriteTraffic(traffic) => traffic,
        other => return Ok(taking.step(other).1),
    };
    loop {
        let room = (out.len() - sent.written).saturating_sub(RECORD_EXTRA + KEYS_BYTES).min(PLAIN_BYTES_MAX);
        if room == 0 {
            return Ok(false);
        }
        let Some(piece) = plain.next(room, gathered) else { return Ok(false) };
        match traffic.encrypt(piece, &mut out[sent.written..]) {
            Ok(written) => {
                assert!(written <= piece.len() + RECORD_EXTRA + KEYS_BYTES, "a record is as long as was thought");
                sent.written += written;
                sent.taken += piece.len();
            }
            // Not for want of room, of which there is enough also for new keys.
            Err(_) => return Err(used_up()),
        }
    }
}

fn used_up() -> Error {
    Error::new(Kind::Corrupt, "the keys of a connection are used up; connect again")
}

/// The product's error for one of the library's.
fn refused(error: rustls::Error) -> Error {
    use rustls::AlertDescription as Alert;
    let what = match &error {
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the peer's certificate is over; renew it, or set the clock of this machine right"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "the peer's certificate is not valid yet; set the clocks of both machines right",
        // Authorities of two clusters may have one name.
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the peer belongs to another cluster: this one's authority did not sign its certificate"
        }
        rustls::Error::InvalidCertificate(_) => "the peer's certificate is not accepted",
        rustls::Error::NoCertificatesPresented => "the peer has no certificate; join it with a token first",
        rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => "the peer does not accept the certificate of this machine",
        rustls::Error::AlertReceived(Alert::NoApplicationProtocol) | rustls::Error::NoApplicationProtocol => {
            return Error::new(Kind::Unsupported, "the peer speaks no protocol of Sinter").with(error);
        }
        _ => return Error::new(Kind::Corrupt, "an encrypted connection fails").with(error),
    };
    Error::new(Kind::Permission, what).with(error)
}
