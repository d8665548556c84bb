//! Handshakes of rustls with our certificates, and a CA that the client has pinned.

use super::world::World;
use super::*;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct At(u64);
impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

/// One end's certificate with its key, and the CA that it believes.
struct End<'a> {
    certificate: &'a Certificate,
    key: &'a Key,
    ca: &'a Certificate,
}

fn roots(ca: &Certificate) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.0.clone())).expect("a CA");
    Arc::new(roots)
}

fn own(end: &End) -> (Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>) {
    (vec![CertificateDer::from(end.certificate.0.clone())], PrivatePkcs8KeyDer::from(end.key.0.clone()))
}

/// Shakes hands in memory; the client's identity as the server sees it, or why one end refused.
fn shake(server: &End, client: &End, name: &str, now_s: u64) -> Result<Identity, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let only = [&rustls::version::TLS13];
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(server.ca), provider.clone()).build().expect("a root");
    let (chain, key) = own(server);
    let serving = ServerConfig::builder_with_details(provider.clone(), Arc::new(At(now_s)))
        .with_protocol_versions(&only)
        .expect("ring has it")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key.into())
        .expect("a pair");
    let (chain, key) = own(client);
    let asking = ClientConfig::builder_with_details(provider, Arc::new(At(now_s)))
        .with_protocol_versions(&only)
        .expect("ring has it")
        .with_root_certificates(roots(client.ca))
        .with_client_auth_cert(chain, key.into())
        .expect("a pair");
    let name = ServerName::try_from(name.to_string()).expect("a name of DNS");
    let mut there = ServerConnection::new(Arc::new(serving)).expect("a server");
    let mut here = ClientConnection::new(Arc::new(asking), name).expect("a client");
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while here.wants_write() {
            here.write_tls(&mut bytes).expect("memory");
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            there.read_tls(&mut rest).expect("memory");
        }
        there.process_new_packets().map_err(|error| format!("server: {error}"))?;
        let mut bytes = Vec::new();
        while there.wants_write() {
            there.write_tls(&mut bytes).expect("memory");
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            here.read_tls(&mut rest).expect("memory");
        }
        here.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    assert!(!here.is_handshaking() && !there.is_handshaking());
    let shown = there.peer_certificates().expect("mutual")[0].to_vec();
    Certificate(shown).identity().map_err(|error| error.to_string())
}

/// A server and a client that has joined it.
struct Both {
    network: Network<World>,
    key: Key,
    chain: Chain,
}

fn both() -> Both {
    let mut network = network(&World::default());
    let (token, key) = (token(&mut network, 1, &[1]), key());
    let chain = network.admit(&token.secret, &request(&key), "c1", NOW_S).expect("invited");
    Both { network, key, chain }
}

impl Both {
    fn server(&self) -> End<'_> {
        let pair = self.network.server();
        End { certificate: &pair.certificate, key: &pair.key, ca: self.network.ca() }
    }
    fn client(&self) -> End<'_> {
        End { certificate: &self.chain.certificate, key: &self.key, ca: &self.chain.ca }
    }
}

#[test]
fn server_and_client_shake_hands_and_the_server_knows_whom() {
    let both = both();
    let seen = shake(&both.server(), &both.client(), &server_name(CLUSTER), NOW_S + 10).expect("both are whole");
    assert_eq!(seen, identity(&both.chain));
    both.network.rights_of(&seen, NOW_S + 10).expect("joined");
    // A clock that is an hour behind does no harm.
    shake(&both.server(), &both.client(), &server_name(CLUSTER), NOW_S - 3600).expect("valid since yesterday");
}

#[test]
fn each_wrong_certificate_ends_the_handshake() {
    let (ours, other) = (both(), both());
    let name = server_name(CLUSTER);
    let at = NOW_S + 10;
    let refused = |server: &End, client: &End, name: &str, at: u64, says: &str| {
        let error = shake(server, client, name, at).expect_err(says);
        assert!(error.starts_with(says), "{error}, wanted {says}");
    };
    refused(&other.server(), &ours.client(), &name, at, "client: invalid peer certificate: ");
    let knows_both = End { ca: other.network.ca(), ..ours.client() };
    refused(&other.server(), &knows_both, &name, at, "server: invalid peer certificate: ");
    refused(
        &ours.server(),
        &ours.client(),
        &server_name(Uuid([9; 16])),
        at,
        "client: invalid peer certificate: certificate not valid for name",
    );
    // A client that plays the server to another client.
    refused(&ours.client(), &ours.client(), &name, at, "client: invalid peer certificate: ");
    refused(
        &ours.server(),
        &ours.client(),
        &name,
        at + 91 * DAY_S,
        "client: invalid peer certificate: certificate expired",
    );
    refused(
        &ours.server(),
        &ours.client(),
        &name,
        at - 3 * DAY_S,
        "client: invalid peer certificate: certificate not valid yet",
    );
}

#[test]
fn a_server_that_joined_serves_clients_and_is_known_by_the_others() {
    let mut both = both();
    let (token, key) = (server_token(&mut both.network, 2), key());
    let chain = both.network.admit_server(&token.secret, &request(&key), &super::server(1), NOW_S).expect("invited");
    let joined = End { certificate: &chain.certificate, key: &key, ca: &chain.ca };
    let name = server_name(CLUSTER);
    shake(&joined, &both.client(), &name, NOW_S + 10).expect("clients ask any server for the cluster's name");
    let seen = shake(&both.server(), &joined, &name, NOW_S + 10).expect("it connects to the first one");
    assert_eq!(both.network.check_server(&seen, NOW_S + 10), Ok(super::server(1).brick));
    let seen = shake(&joined, &both.server(), &name, NOW_S + 10).expect("and the first one to it");
    assert_eq!(seen.subject.bearer, control::Bearer::Brick(BRICK));
}

#[test]
fn a_client_that_outlives_the_servers_certificate_meets_the_next_one() {
    let mut both = both();
    let late = NOW_S + 80 * DAY_S;
    assert!(both.network.renew_server(late).expect("due"));
    shake(&both.server(), &both.client(), &server_name(CLUSTER), late).expect("renewed");
    let who = identity(&both.chain);
    both.chain = both.network.renew(&who, &request(&both.key), late).expect("due");
    shake(&both.server(), &both.client(), &server_name(CLUSTER), late + 60 * DAY_S).expect("both renewed");
}
