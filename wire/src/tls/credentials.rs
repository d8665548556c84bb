//! Certificates, and whose are accepted.

use super::mac::Exporter;
use super::refused;
use base::{Error, Kind, Result};
use runtime::Clock;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;

/// The name of the protocol within TLS; others share the port by names of their own.
const PROTOCOL: &[u8] = b"sinter-data/1";
/// The same, with content in the clear (decision 0081).
pub(super) const PROTOCOL_CLEAR: &[u8] = b"sinter-data-mac/1";

/// A certificate with what is above it, and its key, in DER (PKCS 8).
pub struct Identity {
    /// The certificate, then those that sign it.
    pub chain: Vec<Box<[u8]>>,
    /// The key.
    pub key: Box<[u8]>,
}

/// The SHA-256 of an authority's certificate, by which a machine knows its server before it has any certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// The pin of an authority's certificate.
    pub fn of(certificate: &[u8]) -> Pin {
        let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("it is of TLS 1.3");
        let hash = suite.common.hash_provider.hash(certificate);
        Pin(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// The authority whose signatures count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authority<'a> {
    /// The one with this certificate.
    Known(&'a [u8]),
    /// The one that a token names: for a client without a certificate, and only until it has one.
    Pinned(Pin),
}

/// A server's way with peers that have no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strangers {
    /// It refuses them.
    Refused,
    /// It hears them, for them to join: `Tls::peer` is None, and nothing else may be done for them.
    Heard,
}

/// The wish of one end for content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// It is encrypted.
    #[default]
    On,
    /// It goes in the clear, with tags that nobody else can make, if the other end wishes the same; else it is encrypted.
    Off,
}

/// All that a machine needs for its ends of connections; cheap to clone.
#[derive(Clone)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    server: Option<Arc<ServerConfig>>,
    encryption: Encryption,
}

impl Credentials {
    /// The credentials of a client; without an identity it is a stranger. Errors: `Invalid`, if a certificate or the key is none.
    pub fn of_client(
        identity: Option<&Identity>,
        authority: Authority<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<Credentials> {
        Credentials::client_with(provider(), identity, authority, clock)
    }
    pub(super) fn client_with(
        provider: Arc<CryptoProvider>,
        identity: Option<&Identity>,
        authority: Authority<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<Credentials> {
        let time = Arc::new(Time(clock));
        let builder = ClientConfig::builder_with_details(provider.clone(), time).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(invalid)?;
        let builder = match authority {
            Authority::Known(certificate) => builder.with_root_certificates(roots(certificate)?),
            Authority::Pinned(pin) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin, provider }))
            }
        };
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(chain(identity), key(identity)?).map_err(invalid)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = rustls::client::Resumption::disabled();
        let credentials = Credentials { client: Arc::new(config), server: None, encryption: Encryption::On };
        Ok(credentials.with(Encryption::On))
    }
    /// The credentials of a server, which may be a client of other servers as well. Errors: as `of_client`.
    pub fn of_server(
        identity: &Identity,
        authority: &[u8],
        strangers: Strangers,
        clock: Arc<dyn Clock>,
    ) -> Result<Credentials> {
        Credentials::server_with(provider(), identity, authority, strangers, clock)
    }
    pub(super) fn server_with(
        provider: Arc<CryptoProvider>,
        identity: &Identity,
        authority: &[u8],
        strangers: Strangers,
        clock: Arc<dyn Clock>,
    ) -> Result<Credentials> {
        let known = Authority::Known(authority);
        let as_client = Credentials::client_with(provider.clone(), Some(identity), known, clock.clone())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider.clone());
        let verifier = match strangers {
            Strangers::Refused => verifier,
            Strangers::Heard => verifier.allow_unauthenticated(),
        };
        let verifier = verifier.build().map_err(|error| invalid(rustls::Error::General(error.to_string())))?;
        let builder = ServerConfig::builder_with_details(provider, Arc::new(Time(clock)));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(invalid)?;
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = builder.with_single_cert(chain(identity), key(identity)?).map_err(invalid)?;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Credentials { server: Some(Arc::new(config)), ..as_client }.with(Encryption::On))
    }
    /// The same credentials with another wish for content.
    pub fn with(mut self, encryption: Encryption) -> Credentials {
        let protocols: &[&[u8]] = match encryption {
            Encryption::On => &[PROTOCOL],
            // The handshake authenticates both lists, so nobody in between can take one for the other.
            Encryption::Off => &[PROTOCOL_CLEAR, PROTOCOL],
        };
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        if let Some(server) = &mut self.server {
            Arc::make_mut(server).alpn_protocols.clone_from(&protocols);
        }
        Arc::make_mut(&mut self.client).alpn_protocols = protocols;
        Credentials { encryption, ..self }
    }
    /// The exporter of a connection that may agree on content in the clear.
    pub(super) fn exporter(&self) -> Option<Arc<Exporter>> {
        (self.encryption == Encryption::Off).then(|| Arc::new(Exporter::new()))
    }
    pub(super) fn client(&self, exporter: Option<Arc<Exporter>>) -> Arc<ClientConfig> {
        let mut config = self.client.clone();
        if let Some(exporter) = exporter {
            Arc::make_mut(&mut config).key_log = exporter;
        }
        config
    }
    pub(super) fn server(&self, exporter: Option<Arc<Exporter>>) -> Arc<ServerConfig> {
        let mut config = self.server.clone().expect("only a server accepts connections");
        if let Some(exporter) = exporter {
            Arc::make_mut(&mut config).key_log = exporter;
        }
        config
    }
}

/// Cryptography as this product uses it: what every processor of the last ten years has instructions for comes first, and one key
/// exchange, so that no handshake takes a second round.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let aes = [ring::cipher_suite::TLS13_AES_128_GCM_SHA256, ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let cipher_suites = if has_aes() { aes.to_vec() } else { aes.into_iter().rev().collect() };
    let kx_groups = vec![ring::kx_group::X25519];
    Arc::new(CryptoProvider { cipher_suites, kx_groups, ..ring::default_provider() })
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_aes() -> bool {
    true
}

fn roots(certificate: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec())).map_err(invalid)?;
    Ok(roots)
}

fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
    identity.chain.iter().map(|certificate| CertificateDer::from(certificate.to_vec())).collect()
}

fn key(identity: &Identity) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::try_from(identity.key.to_vec());
    key.map_err(|why| Error::new(Kind::Invalid, "a private key can't be read; it is DER of PKCS 8").with(why))
}

fn invalid(error: rustls::Error) -> Error {
    let refused = refused(error);
    Error::new(Kind::Invalid, "a certificate or its key can't be used").with(refused)
}

/// The time at which certificates are looked at.
struct Time(Arc<dyn Clock>);

impl std::fmt::Debug for Time {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Time")
    }
}

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let (seconds, _) = self.0.wall().parts();
        u64::try_from(seconds).ok().map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Accepts a server whose certificate is signed by the authority that a token names. The server sends that authority's certificate.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(|one| Pin::of(one) == self.pin).ok_or(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone()).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
