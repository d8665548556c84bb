//! Two ends of encrypted connections that talk through strings of bytes.

use super::{
    Authority, Credentials, Identity, Pin, RECEIVE_BYTES_MIN, Sent, Strangers, Tls, credentials, encrypted_bytes,
};
use base::{Kind, Result, Time};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use runtime::Clock;
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};
use std::sync::Arc;

/// 2026-01-01.
const NOW: i64 = 1_767_225_600;
const NAME: &str = "server.sinter";

/// A clock that stands.
struct Stands(i64);

impl Clock for Stands {
    fn now_ns(&self) -> u64 {
        0
    }
    fn wall(&self) -> Time {
        Time::from_parts(self.0, 0)
    }
    fn sleep(&self, _: u64) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Stands(NOW))
}

/// An authority.
struct Cluster {
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
}

fn cluster() -> Cluster {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "cluster");
    let certificate = params.self_signed(&key).expect("signed").der().to_vec();
    Cluster { issuer: Issuer::new(params, key), certificate }
}

impl Cluster {
    /// A certificate for a purpose, from some years before `NOW` to some years after.
    fn identity(&self, name: &str, purpose: Purpose, years: (i32, i32)) -> Identity {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2026 + years.0, 1, 1), rcgen::date_time_ymd(2026 + years.1, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").der().to_vec();
        Identity { chain: vec![certificate.into(), self.certificate.clone().into()], key: key.serialize_der().into() }
    }
    fn a_server(&self) -> Credentials {
        self.server(&self.identity(NAME, Purpose::ServerAuth, (-1, 1)), Strangers::Refused)
    }
    fn server(&self, identity: &Identity, strangers: Strangers) -> Credentials {
        Credentials::of_server(identity, &self.certificate, strangers, clock()).expect("good certificates")
    }
    fn a_client(&self) -> Credentials {
        self.client(&self.identity("c1", Purpose::ClientAuth, (-1, 1)))
    }
    fn client(&self, identity: &Identity) -> Credentials {
        Credentials::of_client(Some(identity), Authority::Known(&self.certificate), clock()).expect("good certificates")
    }
}

/// One end, with what has come to it and is not used up, and the plaintext that it had.
struct End {
    tls: Tls,
    came: Vec<u8>,
    plain: Vec<u8>,
}

impl End {
    fn new(tls: Result<Tls>) -> End {
        End { tls: tls.expect("it begins"), came: Vec::new(), plain: Vec::new() }
    }
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.came.extend_from_slice(bytes);
        let used = self.tls.receive(&mut self.came, |piece| self.plain.extend_from_slice(piece))?;
        self.came.drain(..used);
        assert!(self.came.len() < RECEIVE_BYTES_MIN, "more is kept than half a message");
        Ok(())
    }
    fn told(&mut self) -> Vec<u8> {
        let mut out = vec![0; RECEIVE_BYTES_MIN];
        let Sent { taken, written } = self.tls.send(&[], &mut out).expect("it has no error yet");
        assert_eq!(taken, 0);
        out.truncate(written);
        out
    }
    fn encrypted(&mut self, plain: &[&[u8]]) -> Vec<u8> {
        let length = plain.iter().map(|slice| slice.len()).sum();
        let mut out = vec![0; encrypted_bytes(length)];
        let Sent { taken, written } = self.tls.send(plain, &mut out).expect("it is established");
        assert_eq!(taken, length, "there was room for all");
        out.truncate(written);
        out
    }
}

fn ends(client: &Credentials, server: &Credentials) -> (End, End) {
    (End::new(Tls::client(client, NAME)), End::new(Tls::server(server)))
}

/// Lets both ends talk until neither has anything to say. The errors are those of client and server.
fn greet(client: &mut End, server: &mut End) -> (Result<()>, Result<()>) {
    let (mut results, mut silent) = ((Ok(()), Ok(())), 0);
    while silent < 2 {
        let from_client = client.told();
        let from_server = server.told();
        silent = if from_client.is_empty() && from_server.is_empty() { silent + 1 } else { 0 };
        results = (results.0.and(client.take(&from_server)), results.1.and(server.take(&from_client)));
    }
    results
}

fn established() -> (End, End) {
    let cluster = cluster();
    let (mut client, mut server) = ends(&cluster.a_client(), &cluster.a_server());
    assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
    (client, server)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn both_ends_know_each_other_and_hear_what_the_other_says() {
    let cluster = cluster();
    let identities =
        [cluster.identity(NAME, Purpose::ServerAuth, (-1, 1)), cluster.identity("c1", Purpose::ClientAuth, (-1, 1))];
    let [server, client] = &identities;
    let (mut client, mut server) = ends(&cluster.client(client), &cluster.server(server, Strangers::Refused));
    assert!(!client.tls.is_established() && client.tls.peer().is_none());
    assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
    assert!(client.tls.is_established() && server.tls.is_established());
    assert_eq!(client.tls.peer(), Some(&*identities[0].chain[0]));
    assert_eq!(server.tls.peer(), Some(&*identities[1].chain[0]));
    for length in [1, 16_383, 16_384, 16_385, 1 << 20] {
        let plain = bytes(length);
        let (from, to) = plain.split_at(length / 3);
        let sent = client.encrypted(&[&[], from, &[], to]);
        server.take(&sent).expect("it was sent so");
        assert!(std::mem::take(&mut server.plain) == plain, "{length}");
        let sent = server.encrypted(&[&plain]);
        client.take(&sent).expect("it was sent so");
        assert!(std::mem::take(&mut client.plain) == plain, "{length}");
    }
    client.tls.end();
    let last = client.told();
    server.take(&last).expect("the end is no error");
    assert!(server.tls.is_ended() && !client.tls.is_ended());
}

/// Gives an end bytes in pieces of this length.
fn in_pieces(end: &mut End, bytes: &[u8], length: usize) {
    bytes.chunks(length).for_each(|piece| end.take(piece).expect("nothing is changed on the way"));
}

#[test]
fn bytes_may_be_cut_anywhere() {
    let cluster = cluster();
    let (client, server) = (cluster.a_client(), cluster.a_server());
    let says = bytes(300);
    // The whole conversation in two strings: each cut of each of them, and each length of equal pieces.
    let converse = |deliver: &dyn Fn(&mut End, &[u8])| {
        let (mut client, mut server) = ends(&client, &server);
        for _ in 0..3 {
            let sent = client.told();
            deliver(&mut server, &sent);
            let sent = server.told();
            deliver(&mut client, &sent);
        }
        let sent = client.encrypted(&[&says]);
        deliver(&mut server, &sent);
        let sent = server.encrypted(&[&says]);
        deliver(&mut client, &sent);
        assert!(client.plain == says && server.plain == says && client.came.is_empty() && server.came.is_empty());
        sent.len()
    };
    (1..100).chain([211, 500, 1000, 5000]).for_each(|length| {
        converse(&|end, bytes| in_pieces(end, bytes, length));
    });
    for cut in 0..1500 {
        converse(&|end, bytes| {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            end.take(first).expect("nothing is changed on the way");
            end.take(second).expect("nothing is changed on the way");
        });
    }
}

#[test]
fn a_small_buffer_takes_what_it_has_room_for() {
    let (mut client, mut server) = established();
    let plain = bytes(100_000);
    for room in [0, 50, 100, 1000, 20_000, 70_000] {
        let (mut at, mut out) = (0, vec![0; room]);
        loop {
            let (first, second) = plain[at..].split_at((plain.len() - at) / 2);
            let Sent { taken, written } = client.tls.send(&[first, second], &mut out).expect("it is established");
            assert!(written <= room && (taken > 0) == (written > 0));
            server.take(&out[..written]).expect("it was sent so");
            at += taken;
            if taken == 0 || at == plain.len() {
                break;
            }
        }
        // A record's own bytes, and those of a change of keys, leave room for nothing else.
        assert_eq!(at, if room < 100 { 0 } else { plain.len() }, "{room}");
        assert!(std::mem::take(&mut server.plain) == plain[..at]);
    }
    // A handshake, too, may be told bit by bit.
    let cluster = cluster();
    let (mut client, mut server) = ends(&cluster.a_client(), &cluster.a_server());
    for _ in 0..5000 {
        let mut out = [0; 2];
        let written = client.tls.send(&[], &mut out).expect("no error").written;
        server.take(&out[..written]).expect("it was sent so");
        let written = server.tls.send(&[], &mut out).expect("no error").written;
        client.take(&out[..written]).expect("it was sent so");
    }
    assert!(client.tls.is_established() && server.tls.is_established());
}

#[test]
fn what_was_changed_on_its_way_ends_the_connection() {
    let (_, mut other) = established();
    for at in [5, 6, 100, 321] {
        let (mut client, mut server) = established();
        let mut sent = client.encrypted(&[&bytes(300)]);
        assert_eq!(sent.len(), 322);
        sent[at] ^= 4;
        assert_eq!(server.take(&sent).map_err(|error| error.kind), Err(Kind::Corrupt));
        assert!(server.plain.is_empty());
        assert!(server.take(&client.encrypted(&[b"more"])).is_err(), "it goes on after an error");
        // Neither is the same record heard twice, nor by another connection.
        let (mut client, mut server) = established();
        let sent = client.encrypted(&[&bytes(300)]);
        server.take(&sent).expect("it was sent so");
        assert!(server.take(&sent).is_err());
        assert!(other.take(&sent).is_err());
    }
}

/// Keys are changed long before a cipher's limit of records, which takes hours to reach: here it is one of 40.
#[test]
fn keys_are_changed_before_they_are_used_up() {
    let cluster = cluster();
    let few = || {
        let mut provider = credentials::provider().as_ref().clone();
        let known = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("it is of TLS 1.3");
        let common = CipherSuiteCommon {
            suite: known.common.suite,
            hash_provider: known.common.hash_provider,
            confidentiality_limit: 40,
        };
        let (hkdf_provider, aead_alg) = (known.hkdf_provider, known.aead_alg);
        let suite = Box::new(Tls13CipherSuite { common, hkdf_provider, aead_alg, quic: None });
        provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(suite))];
        Arc::new(provider)
    };
    let client = cluster.identity("c1", Purpose::ClientAuth, (-1, 1));
    let client = Credentials::client_with(few(), Some(&client), Authority::Known(&cluster.certificate), clock());
    let server = cluster.identity(NAME, Purpose::ServerAuth, (-1, 1));
    let server = Credentials::server_with(few(), &server, &cluster.certificate, Strangers::Refused, clock());
    let (mut client, mut server) = ends(&client.expect("good"), &server.expect("good"));
    assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
    // In few large calls, in many small ones, and into a buffer that is always nearly full.
    for (length, room) in [(1 << 20, encrypted_bytes(1 << 20)), (100, 1000), (100, 187)] {
        let (plain, mut out) = (bytes(length), vec![0; room]);
        for round in 0..500_000 / length.max(1000) {
            let mut at = 0;
            while at < length {
                let Sent { taken, written } = client.tls.send(&[&plain[at..]], &mut out).expect("it is established");
                at += taken;
                server.take(&out[..written]).expect("it was sent so");
                assert!(written > 0, "it stands still: {length} {room} {round}");
            }
            assert!(std::mem::take(&mut server.plain) == plain);
            client.take(&server.encrypted(&[&plain])).expect("it was sent so");
            assert!(std::mem::take(&mut client.plain) == plain);
        }
    }
}

/// The words of client and server on each other, neither of whom takes it for a connection.
fn refused(client: &Credentials, server: &Credentials) -> (String, String) {
    let (mut client, mut server) = ends(client, server);
    let (client_says, server_says) = greet(&mut client, &mut server);
    assert!(!server.tls.is_established() || !client.tls.is_established() || client_says.is_err());
    assert!(client_says.is_err() || server_says.is_err());
    let text = |result: Result<()>| result.map_or_else(|error| error.to_string(), |()| "fine".to_string());
    (text(client_says), text(server_says))
}

#[test]
fn only_certificates_of_the_cluster_that_are_valid_now_are_accepted() {
    let (own, foreign) = (cluster(), cluster());
    let server = |years| own.server(&own.identity(NAME, Purpose::ServerAuth, years), Strangers::Refused);
    let client = |years| own.client(&own.identity("c1", Purpose::ClientAuth, years));

    let (client_says, server_says) = refused(&own.a_client(), &foreign.a_server());
    assert!(
        client_says.contains("another cluster") && server_says.contains("does not accept"),
        "{client_says} {server_says}"
    );
    // A client that trusts the server, with a certificate of another cluster.
    let stranger = foreign.identity("c1", Purpose::ClientAuth, (-1, 1));
    let (client_says, server_says) = refused(&own.client(&stranger), &own.a_server());
    assert!(
        client_says.contains("does not accept") && server_says.contains("another cluster"),
        "{client_says} {server_says}"
    );

    let (client_says, _) = refused(&own.a_client(), &server((-2, -1)));
    assert!(client_says.contains("is over"), "{client_says}");
    let (client_says, _) = refused(&own.a_client(), &server((1, 2)));
    assert!(client_says.contains("not valid yet"), "{client_says}");
    let (_, server_says) = refused(&client((-2, -1)), &own.a_server());
    assert!(server_says.contains("is over"), "{server_says}");

    // A client is no server, and one server is not another.
    let as_server = own.server(&own.identity(NAME, Purpose::ClientAuth, (-1, 1)), Strangers::Refused);
    let (client_says, _) = refused(&own.a_client(), &as_server);
    assert!(client_says.contains("is not accepted"), "{client_says}");
    let other = own.server(&own.identity("other.sinter", Purpose::ServerAuth, (-1, 1)), Strangers::Refused);
    let (client_says, _) = refused(&own.a_client(), &other);
    assert!(client_says.contains("is not accepted"), "{client_says}");
}

#[test]
fn a_stranger_is_heard_only_where_it_may_join_and_knows_its_server_by_the_pin() {
    let (own, foreign) = (cluster(), cluster());
    let identity = own.identity(NAME, Purpose::ServerAuth, (-1, 1));
    let stranger = |pin| Credentials::of_client(None, Authority::Pinned(pin), clock()).expect("no certificates");
    let pinned = stranger(Pin::of(&own.certificate));
    let (_, server_says) = refused(&pinned, &own.server(&identity, Strangers::Refused));
    assert!(server_says.contains("join it with a token"), "{server_says}");
    let hears = own.server(&identity, Strangers::Heard);
    let (mut client, mut server) = ends(&pinned, &hears);
    assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
    assert!(server.tls.is_established() && server.tls.peer().is_none() && client.tls.peer().is_some());
    let (client_says, _) = refused(&stranger(Pin::of(&foreign.certificate)), &hears);
    assert!(client_says.contains("another cluster"), "{client_says}");
    // The pinned authority beside a certificate that it did not sign.
    let mut mixed = foreign.identity(NAME, Purpose::ServerAuth, (-1, 1));
    mixed.chain.push(own.certificate.clone().into());
    let (client_says, _) = refused(&pinned, &own.server(&mixed, Strangers::Heard));
    assert!(client_says.contains("another cluster"), "{client_says}");
}

#[test]
fn whoever_speaks_something_else_is_refused() {
    let cluster = cluster();
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], &[0x16, 3, 1, 0xff, 0xff, 1], b"SIW\x01\x01\0"] {
        let mut server = End::new(Tls::server(&cluster.a_server()));
        let mut said = Ok(());
        for _ in 0..20 {
            said = said.and(server.take(words));
        }
        assert!(said.is_err() && server.plain.is_empty());
    }
    // The first word of a client of TLS 1.2: it offers no versions above.
    let hello = [&[0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0]].concat();
    let mut server = End::new(Tls::server(&cluster.a_server()));
    assert!(server.take(&hello).is_err());
    assert!(!server.told().is_empty(), "the client hears why");
}

/// Nanoseconds that a call takes.
#[allow(clippy::disallowed_methods)]
fn timed(call: impl FnOnce()) -> u64 {
    let start = std::time::Instant::now();
    call();
    start.elapsed().as_nanos() as u64
}

/// Prints the median cost of encrypting and decrypting, beside that of the cipher alone with one copy, and of plain copies.
/// `cargo test --release -p wire tls -- --ignored --nocapture`
#[test]
#[ignore = "measures, and says so by printing"]
fn cost_of_encryption() {
    let (mut client, mut server) = established();
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes are a key");
    let (key, nonce) = (LessSafeKey::new(key), || Nonce::assume_unique_for_key([7; 12]));
    for length in [128, 4096 + 192, 64 << 10, 1 << 20] {
        let (head, payload) = (bytes(length.min(192)), bytes(length - length.min(192)));
        let (mut out, mut copy) = (vec![0; encrypted_bytes(length)], vec![0; length]);
        let mut times: [Vec<u64>; 5] = Default::default();
        for _ in 0..(256 << 20) / (length + 2000) {
            let mut written = 0;
            times[0].push(timed(|| {
                written = client.tls.send(&[&head, &payload], &mut out).expect("it is established").written;
            }));
            times[1].push(timed(|| {
                let mut at = 0;
                let used = server.tls.receive(&mut out[..written], |piece| {
                    copy[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                });
                assert_eq!((used, at), (Ok(written), length));
            }));
            // As records of 16 KiB each with its tag behind it: the cipher, and the one copy that there must be.
            let mut tags = Vec::with_capacity(64);
            times[2].push(timed(|| {
                out[..head.len()].copy_from_slice(&head);
                out[head.len()..length].copy_from_slice(&payload);
                for record in out[..length].chunks_mut(16 << 10) {
                    tags.push(key.seal_in_place_separate_tag(nonce(), Aad::from([0; 5]), record).expect("sealed"));
                }
            }));
            times[3].push(timed(|| {
                for (record, tag) in out[..length].chunks_mut(16 << 10).zip(&tags) {
                    let opened = key.open_in_place_separate_tag(nonce(), Aad::from([0; 5]), *tag, record, 0..);
                    opened.expect("it was sealed so");
                }
                copy.copy_from_slice(&out[..length]);
            }));
            times[4].push(timed(|| {
                out[..length].copy_from_slice(&copy);
                std::hint::black_box(&mut out);
            }));
        }
        let [encrypt, decrypt, seal, open, copied] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2] as f64 / 1000.0
        });
        println!(
            "{length} bytes: encrypt {encrypt:.2} us, decrypt {decrypt:.2} us; cipher and a copy {seal:.2} and {open:.2} us; \
             a copy {copied:.2} us"
        );
    }
    let cluster = cluster();
    let (client, server) = (cluster.a_client(), cluster.a_server());
    let mut times: Vec<u64> = (0..300)
        .map(|_| {
            timed(|| {
                let (mut client, mut server) = ends(&client, &server);
                assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
            })
        })
        .collect();
    times.sort_unstable();
    println!("a handshake: {} us for both ends", times[150] / 1000);
}
