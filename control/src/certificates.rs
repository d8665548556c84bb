//! Keys and certificates: ECDSA on P-256, made here (rcgen) and read here (x509-parser). Promises that a certificate tells
//! its bearer by a URI, and that no client's certificate serves as a server's. Whether TLS believes a certificate is not
//! decided here: that is rustls' part, against the CA that a client has pinned.
//!
//! Each server's certificate has the name `CLUSTER-UUID.sinter.internal` besides its URI (`server_name`), and clients ask
//! for that one. So no address is in any certificate, and a server that moves needs no other.

use crate::identity::{Bearer, Subject, Uuid};
use base::{Error, Kind, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

const DAY_S: u64 = 24 * 60 * 60;
/// Life of a certificate of a brick or client.
pub const LIFE_S: u64 = 90 * DAY_S;
/// Age at which a certificate is renewed: a month is left in which that may fail.
pub const RENEWAL_S: u64 = 60 * DAY_S;
/// Life of the CA. Clients have pinned it: its end would be everybody's.
const CA_LIFE_S: u64 = 36_500 * DAY_S;
/// Time before now from which a certificate is valid, for peers whose clocks are behind.
const BEHIND_S: u64 = DAY_S;
/// End of the times that a certificate can hold, the year 10000, less the life of a CA.
const NOW_END_S: u64 = 253_402_300_800 - CA_LIFE_S;
/// Largest certificate or request: ours have 600 bytes.
pub const DER_BYTES_MAX: usize = 8 << 10;

macro_rules! text_of_bytes {
    ($(#[$doc:meta])* $name:ident($inner:ty), $encoding:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub $inner);
        impl From<$name> for String {
            fn from(from: $name) -> String {
                data_encoding::$encoding.encode(&from.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<$name> {
                let bytes = data_encoding::$encoding.decode(text.as_bytes()).ok();
                let inner = bytes.and_then(|bytes| bytes.try_into().ok());
                inner.map($name).ok_or_else(|| Error::new(Kind::Corrupt, "a field is no text of bytes"))
            }
        }
    };
}

text_of_bytes!(
    /// A SHA-256.
    Hash([u8; 32]), HEXLOWER);
text_of_bytes!(
    /// A certificate's number, unique within its CA; see `Serial::new`.
    Serial([u8; 16]), HEXLOWER);
text_of_bytes!(
    /// A certificate, DER.
    Certificate(Vec<u8>), BASE64);
text_of_bytes!(
    /// A private key, PKCS #8 DER. Its bytes are in no message.
    Key(Vec<u8>), BASE64);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}
impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a certificate of {} bytes", self.0.len())
    }
}
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a private key")
    }
}

impl Hash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(digest(&SHA256, bytes).as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }
}

impl Serial {
    /// The number of the `count`th certificate of a CA, for this public key. The key is in it so that a CA whose files were
    /// restored from a backup, and count again, give no number twice.
    pub fn new(count: u64, public_key: &PublicKey) -> Serial {
        let hash = Hash::of(&[&count.to_le_bytes()[..], &public_key.0].concat());
        let mut bytes: [u8; 16] = hash.0[..16].try_into().expect("16 of 32");
        // A serial is a positive number, and DER leaves leading zeros away: none can come.
        bytes[0] = bytes[0] & 0x7f | 0x40;
        Serial(bytes)
    }
}

/// A public key on P-256 as a `SubjectPublicKeyInfo`, DER.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Its hash, by which a key is known again.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.0)
    }
    fn checked(raw: &[u8]) -> Result<PublicKey> {
        let what = "the key is of another kind than ECDSA on P-256: let `sinter client join` make it";
        let refused = || Error::new(Kind::Invalid, what);
        let info = SubjectPublicKeyInfo::from_der(raw).map_err(|_| refused())?;
        if info.algorithm() != &PKCS_ECDSA_P256_SHA256 {
            return Err(refused());
        }
        Ok(PublicKey(raw.to_vec()))
    }
}

impl Key {
    /// A new key, from the kernel's random numbers.
    pub fn generate() -> Result<Key> {
        let pair =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| failed("a key can't be made", &error))?;
        Ok(Key(pair.serialize_der()))
    }
    /// The key of a file. Errors: `Corrupt`.
    pub fn of_pem(text: &str) -> Result<Key> {
        let key = Key(of_pem(text, "PRIVATE KEY")?);
        key.pair().map(|_| key)
    }
    /// The key as text.
    pub fn to_pem(&self) -> String {
        to_pem("PRIVATE KEY", &self.0)
    }
    /// Its public half.
    pub fn public(&self) -> Result<PublicKey> {
        Ok(PublicKey(self.pair()?.subject_public_key_info()))
    }
    fn pair(&self) -> Result<KeyPair> {
        KeyPair::from_pkcs8_der_and_sign_algo(&self.0.as_slice().into(), &PKCS_ECDSA_P256_SHA256)
            .map_err(|error| Error::new(Kind::Corrupt, "a private key is damaged or of another kind").with(error))
    }
}

impl Certificate {
    /// The certificate of a file. Errors: `Corrupt`.
    pub fn of_pem(text: &str) -> Result<Certificate> {
        let certificate = Certificate(of_pem(text, "CERTIFICATE")?);
        certificate.parsed().map(|_| certificate.clone())
    }
    /// The certificate as text.
    pub fn to_pem(&self) -> String {
        to_pem("CERTIFICATE", &self.0)
    }
    /// Its hash, by which tokens pin a CA.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.0)
    }
    /// Its public key. Errors: as `identity`.
    pub fn public_key(&self) -> Result<PublicKey> {
        PublicKey::checked(self.parsed()?.public_key().raw)
    }
    /// Refuses a certificate that the CA did not sign. Errors: `Permission`; `Corrupt` if one of both can't be read.
    pub fn check_signed_by(&self, ca: &Certificate) -> Result<()> {
        let (ours, ca) = (self.parsed()?, ca.parsed()?);
        ours.verify_signature(Some(ca.public_key()))
            .map_err(|_| Error::new(Kind::Permission, "a certificate is not signed by the CA of this cluster"))
    }
    /// The bearer and the times of a certificate of ours. It believes what it reads: TLS, or `check_signed_by`, has to have
    /// looked at the signature. Errors: `Corrupt` if it can't be read; `Permission` if it says nothing of a bearer, or that
    /// of a CA; `Newer` for a kind of bearer that this version does not know.
    pub fn identity(&self) -> Result<Identity> {
        let parsed = self.parsed()?;
        let refused = |what| Err(Error::new(Kind::Permission, what));
        if parsed.is_ca() {
            return refused("a CA's certificate is nobody's identity");
        }
        let names = parsed.subject_alternative_name().map_err(|_| unreadable())?;
        let uris: Vec<&str> =
            names.map_or(Vec::new(), |names| names.value.general_names.iter().filter_map(uri).collect());
        let &[uri] = uris.as_slice() else {
            return refused("a certificate has to name one bearer: this one is not of Sinter's making");
        };
        let times = [parsed.validity().not_before, parsed.validity().not_after].map(|at| at.timestamp().try_into());
        let [Ok(not_before_s), Ok(not_after_s)] = times else { return Err(unreadable()) };
        let serial = parsed.raw_serial().try_into().map(Serial).map_err(|_| unreadable())?;
        Ok(Identity { subject: uri.parse()?, serial, not_before_s, not_after_s })
    }
    fn parsed(&self) -> Result<X509Certificate<'_>> {
        if self.0.len() > DER_BYTES_MAX {
            return Err(unreadable());
        }
        match X509Certificate::from_der(&self.0) {
            Ok(([], parsed)) => Ok(parsed),
            _ => Err(unreadable()),
        }
    }
}

/// The statement of a certificate. All times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The bearer.
    pub subject: Subject,
    /// The certificate's number.
    pub serial: Serial,
    /// Start of its validity: a day before it was made.
    pub not_before_s: u64,
    /// Its last second.
    pub not_after_s: u64,
}

impl Identity {
    /// The time from which on it should be renewed: 60 days after it was made, 30 before its end.
    pub fn renewal_at_s(&self) -> u64 {
        self.not_after_s.saturating_sub(LIFE_S - RENEWAL_S)
    }
    /// Refuses a certificate outside of its time. Errors: `Permission`.
    pub fn check_time(&self, now_s: u64) -> Result<()> {
        let what = if now_s < self.not_before_s {
            "a certificate is not valid yet: set the clock of this machine and of the one that made it"
        } else if now_s > self.not_after_s {
            "a certificate has expired: set this machine's clock if it is wrong, else join again with a new token"
        } else {
            return Ok(());
        };
        let context =
            format!("{}, valid from {} to {}, and now is {now_s}", self.subject, self.not_before_s, self.not_after_s);
        Err(Error::new(Kind::Permission, what).with(context))
    }
}

/// The name that clients ask a server of the cluster for in TLS.
pub fn server_name(cluster: Uuid) -> String {
    format!("{cluster}.sinter.internal")
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The certificate.
    pub certificate: Certificate,
    /// Its private key.
    pub key: Key,
}

/// Makes a cluster's CA.
pub fn make_ca(cluster: Uuid, now_s: u64) -> Result<Pair> {
    let key = Key::generate()?;
    let mut params = ca_params(cluster);
    (params.not_before, params.not_after) = (at(now_s - now_s.min(BEHIND_S))?, at(now_s.saturating_add(CA_LIFE_S))?);
    params.serial_number = Some(SerialNumber::from_slice(&Serial::new(0, &key.public()?).0));
    let made = params.self_signed(&key.pair()?).map_err(|error| failed("a CA can't be made", &error))?;
    Ok(Pair { certificate: Certificate(made.der().to_vec()), key })
}

/// Makes the certificate of a brick or client, valid for 90 days. `public_key` comes from `read_request`, or is the
/// server's own.
pub fn sign(ca: &Pair, serial: &Serial, subject: &Subject, public_key: &PublicKey, now_s: u64) -> Result<Certificate> {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (at(now_s - now_s.min(BEHIND_S))?, at(now_s.saturating_add(LIFE_S))?);
    params.serial_number = Some(SerialNumber::from_slice(&serial.0));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let text = |text: String| text.try_into().expect("names and uuids are ASCII");
    params.subject_alt_names = vec![SanType::URI(text(subject.to_string()))];
    params.distinguished_name = rcgen::DistinguishedName::new();
    match &subject.bearer {
        Bearer::Brick(uuid) => {
            // Bricks are each other's clients, too.
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            params.subject_alt_names.push(SanType::DnsName(text(server_name(subject.cluster))));
            params.distinguished_name.push(DnType::CommonName, format!("brick {uuid}"));
        }
        Bearer::Client(name) => params.distinguished_name.push(DnType::CommonName, name.as_str()),
    }
    let info = SubjectPublicKeyInfo::from_der(&public_key.0).expect("checked when it was made");
    let issuer = Issuer::new(ca_params(subject.cluster), ca.key.pair()?);
    let made = params.signed_by(&info, &issuer).map_err(|error| failed("a certificate can't be signed", &error))?;
    Ok(Certificate(made.der().to_vec()))
}

/// Makes a request for a certificate (CSR, DER), which shows that the key is its sender's. It says nothing of a name: the
/// server decides what a certificate says.
pub fn make_request(key: &Key) -> Result<Vec<u8>> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let made = params.serialize_request(&key.pair()?).map_err(|error| failed("a request can't be made", &error))?;
    Ok(made.der().to_vec())
}

/// The public key of a request; nothing else in it counts. Errors: `Invalid` if it can't be read, is of another kind of key
/// or not signed by it.
pub fn read_request(request: &[u8]) -> Result<PublicKey> {
    let refused = |what| Error::new(Kind::Invalid, what);
    let unreadable = || refused("a request for a certificate can't be read: let `sinter client join` make it");
    if request.len() > DER_BYTES_MAX {
        return Err(unreadable());
    }
    let Ok(([], parsed)) = X509CertificationRequest::from_der(request) else { return Err(unreadable()) };
    let key = PublicKey::checked(parsed.certification_request_info.subject_pki.raw)?;
    let signed = parsed.verify_signature();
    signed.map_err(|_| {
        refused("a request for a certificate is not signed by its key: let `sinter client join` make it")
    })?;
    Ok(key)
}

fn ca_params(cluster: Uuid) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("sinter {cluster}"));
    params
}

fn at(seconds: u64) -> Result<OffsetDateTime> {
    let end = NOW_END_S + CA_LIFE_S;
    let whole = i64::try_from(seconds).ok().filter(|_| seconds < end);
    let time = whole.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.ok_or_else(|| Error::new(Kind::Host, "the clock of this machine is centuries ahead: set it").with(seconds))
}

fn uri<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    match name {
        GeneralName::URI(uri) => Some(uri),
        _ => None,
    }
}

fn to_pem(label: &str, der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), lines)
}

fn of_pem(text: &str, label: &str) -> Result<Vec<u8>> {
    let parsed = pem::parse(text).ok().filter(|parsed| parsed.tag() == label);
    let what = "a text in PEM is damaged, or of something else";
    parsed.map(pem::Pem::into_contents).ok_or_else(|| Error::new(Kind::Corrupt, what).with(label))
}

fn unreadable() -> Error {
    Error::new(Kind::Corrupt, "a certificate can't be read, or is not of Sinter's making")
}

/// An error of rcgen: the kernel gave no random numbers, or a CA's key does not sign.
fn failed(what: &'static str, error: &rcgen::Error) -> Error {
    Error::new(Kind::Host, what).with(error)
}
