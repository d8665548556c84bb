//! Records in the clear, each with a tag that only the two ends can make: after a handshake in which both ends asked for them.
//!
//! Promises: no byte is given out before its tag was found right, and a record counts once, in its place. Absent by design: secrecy,
//! the handshake, and records of TLS, which may come between these.

use super::{HEADER_BYTES, PLAIN_BYTES_MAX, Plain, Sent};
use base::seeded::{Bug, active};
use base::{Error, Kind, Result};
use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use runtime::Lock;
use rustls::crypto::tls13::OkmBlock;
use rustls::{CipherSuite, CommonState, KeyLog, SupportedCipherSuite, Tls13CipherSuite};

/// Types of records, at the place where TLS has its own, which end far below.
const DATA: u8 = 0xf0;
const END: u8 = 0xf1;
/// The version that all records of TLS 1.3 claim to have.
const VERSION: [u8; 2] = [3, 3];
const TAG_BYTES: usize = 16;
/// Bytes that a record has beside its data.
const EXTRA: usize = HEADER_BYTES + TAG_BYTES;
const _: () = assert!(EXTRA <= super::RECORD_EXTRA, "what is reserved for a record of TLS is enough");
const _: () = assert!(PLAIN_BYTES_MAX + TAG_BYTES <= u16::MAX as usize, "a header tells the length");
/// Records of one direction: 2^54 blocks of the cipher, far from the 2^64 of which it would promise nothing, and months at a
/// million records in a second. The connection is over then, and its client makes another one.
const RECORDS_MAX: u64 = 1 << 44;
/// The label of the keys among all that may be derived from a handshake (RFC 8446, 7.5); such ones are free to use (RFC 5705, 4).
const LABEL: &[u8] = b"EXPERIMENTAL sinter-data-mac/1";

/// Takes a handshake's secret for exporters from the library, whose connections without buffers lack the call that exports.
pub struct Exporter(Lock<Option<Box<[u8]>>>);

impl std::fmt::Debug for Exporter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Exporter")
    }
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            *self.0.lock() = Some(secret.into());
        }
    }
    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

impl Exporter {
    /// The exporter of a connection that begins.
    pub fn new() -> Exporter {
        Exporter(Lock::new("exporter", None))
    }
    /// Derives bytes from the handshake of a cipher suite, as RFC 8446, 7.5 has it, with an empty context; the secret is gone then.
    pub fn export(&self, suite: &Tls13CipherSuite, label: &[u8], out: &mut [u8]) {
        let secret =
            self.0.lock().take().expect("a handshake that has ended has told its secret, and keys are made once");
        let nothing = suite.common.hash_provider.hash(b"");
        let mut derived = vec![0; secret.len()];
        expand(suite, &secret, label, nothing.as_ref(), &mut derived);
        expand(suite, &derived, b"exporter", nothing.as_ref(), out);
    }
}

/// HKDF-Expand-Label of RFC 8446, 7.1.
fn expand(suite: &Tls13CipherSuite, secret: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    let byte = |length: usize| [u8::try_from(length).expect("labels and hashes are short")];
    let length = u16::try_from(out.len()).expect("keys are short").to_be_bytes();
    let info: [&[u8]; 6] = [&length, &byte(PREFIX.len() + label.len()), PREFIX, label, &byte(context.len()), context];
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    expander.expand_slice(&info, out).expect("keys are shorter than 255 hashes");
}

/// A direction's key.
struct Key {
    key: LessSafeKey,
    /// The nonces' fixed part.
    iv: [u8; NONCE_LEN],
    /// Records so far.
    records: u64,
}

impl Key {
    fn new(algorithm: &'static Algorithm, bytes: &[u8]) -> Key {
        let (key, iv) = bytes.split_at(algorithm.key_len());
        let key = UnboundKey::new(algorithm, key).expect("it is as long as a key");
        Key { key: LessSafeKey::new(key), iv: iv.try_into().expect("the rest is as long as a nonce"), records: 0 }
    }
    /// The tag of the next record: that which the cipher gives when it encrypts the data, with the header beside it. Whoever has the key
    /// can compute what the data would be encrypted, so the data itself says as much: the tag is as hard to forge as one of the
    /// cipher's own. Its hash alone would do, but the library has that four times slower than all of the cipher (decision 0081).
    /// `scratch` is what it encrypts in. Errors: `Corrupt`, once the key is used up.
    fn tag(&mut self, header: [u8; HEADER_BYTES], data: &[u8], scratch: &mut Vec<u8>) -> Result<Tag> {
        if self.records == RECORDS_MAX {
            return Err(super::used_up());
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.records.to_be_bytes()) {
            *byte ^= number;
        }
        self.records += 1;
        scratch.clear();
        scratch.extend_from_slice(data);
        let sealed =
            self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(header), scratch);
        let tag = sealed.map_err(|_| super::used_up())?;
        assert!(tag.as_ref().len() == TAG_BYTES, "both ciphers have tags of 16 bytes");
        Ok(tag)
    }
}

/// The two directions of a connection's records.
pub struct Records {
    sent: Key,
    came: Key,
    /// The data of a record, as it would be encrypted.
    scratch: Vec<u8>,
}

/// Progress with what has come.
pub struct Opened {
    /// Bytes that are used up; the others are no record of these, or a part of one.
    pub used: usize,
    /// True if the peer has said that nothing more comes.
    pub is_end: bool,
}

/// True if a record that begins with this byte is one of these.
pub fn is_own(first: u8) -> bool {
    first == DATA || first == END
}

/// Bytes in front of the first of these records: whole records of TLS, or the part of one that has come.
pub fn starts_at(came: &[u8]) -> usize {
    let mut at = 0;
    while came.get(at).is_some_and(|first| !is_own(*first)) {
        let Some([.., high, low]) = came[at..].first_chunk::<HEADER_BYTES>() else { return came.len() };
        at += HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    }
    at.min(came.len())
}

impl Records {
    /// The records of one end of a connection whose handshake has ended.
    pub fn new(common: &CommonState, exporter: &Exporter, end: Side) -> Records {
        let Some(SupportedCipherSuite::Tls13(suite)) = common.negotiated_cipher_suite() else {
            unreachable!("a handshake of TLS 1.3 has agreed on a cipher");
        };
        let algorithm = match suite.common.suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => &AES_128_GCM,
            _ => &CHACHA20_POLY1305,
        };
        let mut keys = vec![0; 2 * (algorithm.key_len() + NONCE_LEN)];
        exporter.export(suite, LABEL, &mut keys);
        let (of_client, of_server) = keys.split_at(keys.len() / 2);
        let (sent, came) = match end {
            Side::Client => (of_client, of_server),
            Side::Server => (of_server, of_client),
        };
        Records { sent: Key::new(algorithm, sent), came: Key::new(algorithm, came), scratch: Vec::new() }
    }
    /// Puts as much of the plaintext into `out` as there is room for. Errors: `Corrupt`, once the key is used up.
    pub fn put(&mut self, plain: &mut Plain<'_>, out: &mut [u8], sent: &mut Sent) -> Result<()> {
        loop {
            let room = &mut out[sent.written..];
            let most = room.len().saturating_sub(EXTRA).min(PLAIN_BYTES_MAX);
            let length = plain.copy_to(room.get_mut(HEADER_BYTES..HEADER_BYTES + most).unwrap_or_default());
            if length == 0 {
                return Ok(());
            }
            sent.written += self.close(DATA, &mut room[..length + EXTRA])?;
            sent.taken += length;
        }
    }
    /// The record that says that nothing more comes; None once the key is used up.
    pub fn end(&mut self) -> Option<[u8; EXTRA]> {
        let mut record = [0; EXTRA];
        self.close(END, &mut record).ok().map(|_| record)
    }
    /// Puts header and tag around the data of a record, and returns its length.
    fn close(&mut self, kind: u8, record: &mut [u8]) -> Result<usize> {
        let header = header(kind, record.len() - HEADER_BYTES);
        let (front, tag) = record.split_at_mut(record.len() - TAG_BYTES);
        front[..HEADER_BYTES].copy_from_slice(&header);
        tag.copy_from_slice(self.sent.tag(header, &front[HEADER_BYTES..], &mut self.scratch)?.as_ref());
        Ok(record.len())
    }
    /// Gives the data of whole records at the front of what has come to `each`, up to the first one of another type. Errors: `Corrupt`.
    pub fn take(&mut self, came: &[u8], mut each: impl FnMut(&[u8])) -> Result<Opened> {
        let mut used = 0;
        loop {
            let rest = &came[used..];
            if !rest.first().is_some_and(|first| is_own(*first)) {
                return Ok(Opened { used, is_end: false });
            }
            let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return Ok(Opened { used, is_end: false }) };
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            let kind = header[0];
            let bounds = if kind == END { TAG_BYTES..=TAG_BYTES } else { TAG_BYTES + 1..=TAG_BYTES + PLAIN_BYTES_MAX };
            if header[1..3] != VERSION || !bounds.contains(&length) {
                return Err(changed());
            }
            let Some(body) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
                return Ok(Opened { used, is_end: false });
            };
            let (data, tag) = body.split_at(length - TAG_BYTES);
            let right = self.came.tag(*header, data, &mut self.scratch)?;
            // How long this takes tells a forger nothing: the first wrong tag is the last of its key.
            if right.as_ref() != tag && !active(Bug::RecordMacUnchecked) {
                return Err(changed());
            }
            used += HEADER_BYTES + length;
            if kind == END {
                return Ok(Opened { used, is_end: true });
            }
            each(data);
        }
    }
}

/// The ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that connects.
    Client,
    /// The one that listens.
    Server,
}

fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = u16::try_from(length).expect("records are short").to_be_bytes();
    [kind, VERSION[0], VERSION[1], high, low]
}

/// The error of records that are not those that the peer has sent.
pub fn changed() -> Error {
    Error::new(
        Kind::Corrupt,
        "what came over a connection is not what its other end has sent; look at what is in between",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_used_up_makes_no_more_tags() {
        let mut key = Key::new(&AES_128_GCM, &[7; 16 + NONCE_LEN]);
        key.records = RECORDS_MAX - 1;
        let mut scratch = Vec::new();
        assert!(key.tag([0; HEADER_BYTES], b"the last one", &mut scratch).is_ok());
        for _ in 0..2 {
            let error = key.tag([0; HEADER_BYTES], b"one more", &mut scratch).map(|_| ()).expect_err("it is used up");
            assert!(error.kind == Kind::Corrupt && error.to_string().contains("used up"), "{error}");
        }
    }

    #[test]
    fn records_of_tls_are_told_from_own_ones_by_their_lengths() {
        // Within a record any byte may stand.
        let of_tls = [0x17, 3, 3, 0, 3, DATA, END, DATA];
        let own = [DATA, 3, 3, 0, 17];
        for (came, at) in [
            (&[][..], 0),
            (&own[..], 0),
            (&own[..1], 0),
            (&of_tls, 8),
            (&of_tls[..7], 7),
            (&of_tls[..3], 3),
            (&[&of_tls[..], &own].concat(), 8),
            (&[&of_tls[..], &of_tls, &own[..1]].concat(), 16),
            (&[&of_tls[..], &of_tls[..6]].concat(), 14),
        ] {
            assert_eq!(starts_at(came), at, "{came:?}");
        }
    }
}
