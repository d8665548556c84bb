//! Two ends of encrypted connections that talk through strings of bytes.

use super::{
    Authority, Credentials, Encryption, Identity, Pin, RECEIVE_BYTES_MIN, Sent, Strangers, Tls, credentials,
    encrypted_bytes, mac,
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
    /// The wish of all its ends.
    encryption: Encryption,
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
}

fn cluster() -> Cluster {
    cluster_with(Encryption::On)
}

fn cluster_with(encryption: Encryption) -> Cluster {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "cluster");
    let certificate = params.self_signed(&key).expect("signed").der().to_vec();
    Cluster { encryption, issuer: Issuer::new(params, key), certificate }
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
        let server = Credentials::of_server(identity, &self.certificate, strangers, clock());
        server.expect("good certificates").with(self.encryption)
    }
    fn a_client(&self) -> Credentials {
        self.client(&self.identity("c1", Purpose::ClientAuth, (-1, 1)))
    }
    fn client(&self, identity: &Identity) -> Credentials {
        let client = Credentials::of_client(Some(identity), Authority::Known(&self.certificate), clock());
        client.expect("good certificates").with(self.encryption)
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

fn established(encryption: Encryption) -> (End, End) {
    let cluster = cluster_with(encryption);
    agreed(&cluster.a_client(), &cluster.a_server())
}

fn agreed(client: &Credentials, server: &Credentials) -> (End, End) {
    let (mut client, mut server) = ends(client, server);
    assert_eq!(greet(&mut client, &mut server), (Ok(()), Ok(())));
    (client, server)
}

/// Both wishes that two ends may have.
const BOTH: [Encryption; 2] = [Encryption::On, Encryption::Off];

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn both_ends_know_each_other_and_hear_what_the_other_says() {
    BOTH.into_iter().for_each(ends_know_each_other_with);
}

fn ends_know_each_other_with(encryption: Encryption) {
    let cluster = cluster_with(encryption);
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
    BOTH.into_iter().for_each(bytes_may_be_cut_anywhere_with);
}

fn bytes_may_be_cut_anywhere_with(encryption: Encryption) {
    let cluster = cluster_with(encryption);
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
    BOTH.into_iter().for_each(a_small_buffer_takes_what_it_has_room_for_with);
}

fn a_small_buffer_takes_what_it_has_room_for_with(encryption: Encryption) {
    let (mut client, mut server) = established(encryption);
    let plain = bytes(100_000);
    for room in [0, 21, 22, 50, 100, 1000, 20_000, 70_000] {
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
        let least = if encryption == Encryption::On { 100 } else { 22 };
        assert_eq!(at, if room < least { 0 } else { plain.len() }, "{room}");
        assert!(std::mem::take(&mut server.plain) == plain[..at]);
    }
    // A handshake, too, may be told bit by bit.
    let cluster = cluster_with(encryption);
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
    let (_, mut other) = established(Encryption::On);
    for at in [5, 6, 100, 321] {
        let (mut client, mut server) = established(Encryption::On);
        let mut sent = client.encrypted(&[&bytes(300)]);
        assert_eq!(sent.len(), 322);
        sent[at] ^= 4;
        assert_eq!(server.take(&sent).map_err(|error| error.kind), Err(Kind::Corrupt));
        assert!(server.plain.is_empty());
        assert!(server.take(&client.encrypted(&[b"more"])).is_err(), "it goes on after an error");
        // Neither is the same record heard twice, nor by another connection.
        let (mut client, mut server) = established(Encryption::On);
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
    BOTH.into_iter().for_each(only_certificates_of_the_cluster_that_are_valid_now_are_accepted_with);
}

fn only_certificates_of_the_cluster_that_are_valid_now_are_accepted_with(encryption: Encryption) {
    let (own, foreign) = (cluster_with(encryption), cluster_with(encryption));
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
    let (own, foreign) = (cluster_with(Encryption::Off), cluster());
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
    BOTH.into_iter().for_each(whoever_speaks_something_else_is_refused_with);
}

fn whoever_speaks_something_else_is_refused_with(encryption: Encryption) {
    let cluster = cluster_with(encryption);
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

/// Words that are looked for on the wire.
const MARK: &[u8] = b"a line that anybody may read who holds the cable";

#[test]
fn content_is_in_the_clear_only_if_both_ends_were_told_so() {
    for (of_client, of_server) in BOTH.into_iter().flat_map(|client| BOTH.map(|server| (client, server))) {
        let cluster = cluster();
        let wanted = of_client == Encryption::Off && of_server == Encryption::Off;
        let (mut client, mut server) = agreed(&cluster.a_client().with(of_client), &cluster.a_server().with(of_server));
        assert_eq!((client.tls.is_clear(), server.tls.is_clear()), (wanted, wanted), "{of_client:?} {of_server:?}");
        let is_readable = |sent: &[u8]| sent.windows(MARK.len()).any(|window| window == MARK);
        let sent = client.encrypted(&[b"before", MARK]);
        assert_eq!(is_readable(&sent), wanted, "{of_client:?} {of_server:?}");
        server.take(&sent).expect("it was sent so");
        assert!(server.plain.ends_with(MARK) && server.plain.len() == 6 + MARK.len());
        let sent = server.encrypted(&[MARK]);
        assert_eq!(is_readable(&sent), wanted, "{of_client:?} {of_server:?}");
        client.take(&sent).expect("it was sent so");
        assert_eq!(client.plain, MARK);
    }
}

#[test]
fn both_ciphers_have_tags() {
    let cluster = cluster();
    let mut provider = credentials::provider().as_ref().clone();
    provider.cipher_suites = vec![rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let client = cluster.identity("c1", Purpose::ClientAuth, (-1, 1));
    let known = Authority::Known(&cluster.certificate);
    let client = Credentials::client_with(Arc::new(provider), Some(&client), known, clock()).expect("good");
    let (mut client, mut server) = agreed(&client.with(Encryption::Off), &cluster.a_server().with(Encryption::Off));
    let plain = bytes(40_000);
    let mut sent = client.encrypted(&[&plain]);
    server.take(&sent).expect("it was sent so");
    assert!(server.tls.is_clear() && server.plain == plain);
    sent = client.encrypted(&[&plain]);
    *sent.last_mut().expect("it has a tag") ^= 1;
    assert_eq!(server.take(&sent).map_err(|error| error.kind), Err(Kind::Corrupt));
}

/// Derives the keys as the library does, where it does.
#[test]
fn keys_come_from_the_exporter_of_the_standard() {
    let cluster = cluster_with(Encryption::Off);
    let (client, server) = (cluster.a_client(), cluster.a_server());
    let exporters = [Arc::new(mac::Exporter::new()), Arc::new(mac::Exporter::new())];
    let name = rustls::pki_types::ServerName::try_from(NAME).expect("a name");
    let client = rustls::ClientConnection::new(client.client(Some(exporters[0].clone())), name);
    let server = rustls::ServerConnection::new(server.server(Some(exporters[1].clone())));
    let (mut client, mut server) = (client.expect("good"), server.expect("good"));
    while client.is_handshaking() || server.is_handshaking() {
        let mut sent = Vec::new();
        client.write_tls(&mut sent).expect("memory takes it");
        server.read_tls(&mut sent.as_slice()).expect("memory gives it");
        server.process_new_packets().expect("it was sent so");
        sent.clear();
        server.write_tls(&mut sent).expect("memory takes it");
        client.read_tls(&mut sent.as_slice()).expect("memory gives it");
        client.process_new_packets().expect("it was sent so");
    }
    let Some(SupportedCipherSuite::Tls13(suite)) = client.negotiated_cipher_suite() else { panic!("a cipher") };
    let wanted = client.export_keying_material([0; 56], b"EXPERIMENTAL a label", Some(b"")).expect("exported");
    for exporter in exporters {
        let mut made = [0; 56];
        exporter.export(suite, b"EXPERIMENTAL a label", &mut made);
        assert_eq!(made, wanted);
    }
}

/// Two ends that go on from one handshake after the other, of the same certificates.
fn clear_ends() -> impl Fn() -> (End, End) {
    let cluster = cluster_with(Encryption::Off);
    let (client, server) = (cluster.a_client(), cluster.a_server());
    move || agreed(&client, &server)
}

/// Gives an end what never was sent so: it is corrupt, at the latest once enough has come behind it, and none of it is given out.
fn is_refused(end: &mut End, sent: &[u8], behind: &[u8]) {
    let before = end.plain.len();
    let said = end.take(sent).and_then(|()| end.take(behind));
    assert_eq!(said.map_err(|error| error.kind), Err(Kind::Corrupt));
    assert_eq!(end.plain.len(), before, "a byte was given out");
    assert!(end.take(b"").is_err(), "it goes on after an error");
}

/// Each bit of a record is changed in turn.
fn changed_bits_are_refused() {
    let ends = clear_ends();
    let length = ends().0.encrypted(&[b"twenty bytes of data"]).len();
    assert_eq!(length, 20 + 5 + 16);
    for at in 0..length {
        for bit in 0..8 {
            let (mut client, mut server) = ends();
            let mut sent = client.encrypted(&[b"twenty bytes of data"]);
            sent[at] ^= 1 << bit;
            // More than any length that the header may claim by now.
            let behind = client.encrypted(&[&bytes(70_000)]);
            is_refused(&mut server, &sent, &behind);
        }
    }
}

#[test]
fn a_record_in_the_clear_with_any_bit_changed_is_refused() {
    changed_bits_are_refused();
}

#[test]
fn records_in_the_clear_that_are_repeated_swapped_lost_or_cut_are_refused() {
    let ends = clear_ends();
    let three = |client: &mut End| [b"one", b"two", b"six"].map(|word| client.encrypted(&[word]));
    let (mut client, mut server) = ends();
    let [first, second, _] = three(&mut client);
    // Another connection of the same machines, and the sender itself.
    is_refused(&mut ends().1, &first, &[]);
    is_refused(&mut client, &first, &[]);
    server.take(&first).expect("it was sent so");
    is_refused(&mut server, &first, &[]);
    let (mut client, mut server) = ends();
    let swapped = three(&mut client);
    is_refused(&mut server, &[&swapped[1][..], &swapped[0]].concat(), &[]);
    let (mut client, mut server) = ends();
    let lost = three(&mut client);
    server.take(&lost[0]).expect("it was sent so");
    is_refused(&mut server, &lost[2], &[]);
    // A part of a record is waited for, and nothing of it is given out; what comes instead of its rest is refused.
    for length in 0..second.len() {
        let (mut client, mut server) = ends();
        let cut = three(&mut client);
        server.take(&cut[0][..length]).expect("it may go on");
        assert!(server.plain.is_empty() && !server.tls.is_ended());
        if length > 0 {
            // More than any length that the header may claim by now.
            is_refused(&mut server, &[&cut[1][..], &cut[2]].concat(), &client.encrypted(&[&bytes(70_000)]));
        }
    }
    // The end of a connection has its place as well: the last words can't be taken away, nor anything be put behind it.
    let (mut client, mut server) = ends();
    let [last] = [client.encrypted(&[b"last words"])];
    client.tls.end();
    let end = client.told();
    is_refused(&mut server, &end, &[]);
    assert!(!server.tls.is_ended());
    let (mut client, mut server) = ends();
    client.tls.end();
    let end = client.told();
    server.take(&end).expect("it was sent so");
    assert!(server.tls.is_ended());
    is_refused(&mut server, &last, &[]);
}

/// A client counts itself as connected before the server has looked at its certificate, and may have sent something.
#[test]
fn content_in_the_clear_of_who_is_refused_is_not_heard() {
    let (own, foreign) = (cluster_with(Encryption::Off), cluster());
    let cases = [
        (foreign.identity("c1", Purpose::ClientAuth, (-1, 1)), "another cluster"),
        (own.identity("c1", Purpose::ClientAuth, (-2, -1)), "is over"),
    ];
    for (identity, why) in cases {
        let (mut client, mut server) = ends(&own.client(&identity), &own.a_server());
        let hello = client.told();
        server.take(&hello).expect("no certificate has come");
        let answer = server.told();
        client.take(&answer).expect("the server is good");
        assert!(client.tls.is_clear() && client.tls.is_established());
        let sent = [client.told(), client.encrypted(&[MARK])].concat();
        assert!(sent.windows(MARK.len()).any(|window| window == MARK));
        let error = server.take(&sent).expect_err("its certificate is not accepted");
        assert!(error.kind == Kind::Permission && error.to_string().contains(why), "{error}");
        assert!(server.plain.is_empty());
        let error = client.take(&server.told()).expect_err("it hears why");
        assert!(error.to_string().contains("does not accept"), "{error}");
    }
    // One that is accepted is heard at once.
    let (mut client, mut server) = ends(&own.a_client(), &own.a_server());
    server.take(&client.told()).expect("it was sent so");
    client.take(&server.told()).expect("it was sent so");
    server.take(&[client.told(), client.encrypted(&[MARK])].concat()).expect("it was sent so");
    assert_eq!(server.plain, MARK);
}

#[test]
fn records_in_the_clear_before_the_end_of_a_handshake_are_refused() {
    let cluster = cluster_with(Encryption::Off);
    let record = clear_ends()().0.encrypted(&[MARK]);
    is_refused(&mut End::new(Tls::server(&cluster.a_server())), &record, &[]);
    let mut client = End::new(Tls::client(&cluster.a_client(), NAME));
    let hello = client.told();
    is_refused(&mut client, &record, &[]);
    let mut server = End::new(Tls::server(&cluster.a_server()));
    server.take(&hello).expect("it was sent so");
    is_refused(&mut server, &record, &[]);
    // Nor do they come within a message of TLS, here the first four bytes of a hello, where they would be kept for its rest.
    let mut server = End::new(Tls::server(&cluster.a_server()));
    is_refused(&mut server, &[&[0x16, 3, 1, 0, 4, 1, 0, 2, 0][..], &record].concat(), &[]);
    // One end that was not told takes none at all.
    let (_, mut server) = established(Encryption::On);
    is_refused(&mut server, &record, &record);
}

#[test]
fn content_within_tls_is_refused_once_it_goes_in_the_clear() {
    let ends = clear_ends();
    // No end of ours sends it so, unless its memory says something else than what was agreed.
    let (mut client, mut server) = ends();
    client.tls.content = super::Content::Encrypted;
    is_refused(&mut server, &client.encrypted(&[MARK]), &[]);
    let (mut client, mut server) = ends();
    client.tls.content = super::Content::Encrypted;
    client.tls.end();
    is_refused(&mut server, &client.told(), &[]);
    let (mut client, mut server) = ends();
    let first = client.encrypted(&[b"one"]);
    client.tls.content = super::Content::Encrypted;
    server.take(&first).expect("it was sent so");
    is_refused(&mut server, &client.encrypted(&[MARK]), &[]);
}

/// A receiver has heard the beginning of what was sent and nothing else, whatever is done to the stream on its way.
#[test]
fn only_the_beginning_of_what_was_sent_is_ever_heard() {
    let ends = clear_ends();
    let mut rng = runtime::random::SplitMix(7);
    let (mut refused, mut cut) = (0, 0);
    for _ in 0..3000 {
        let (mut client, mut server) = ends();
        let plain = bytes(200);
        let mut sent: Vec<u8> = plain.chunks(40).flat_map(|piece| client.encrypted(&[piece])).collect();
        for _ in 0..=rng.below(2) {
            let from = rng.below(sent.len() as u64 - 60) as usize;
            let to = from + 1 + rng.below(59) as usize;
            match rng.below(4) {
                0 => sent[from] ^= 1 << rng.below(8),
                1 => drop(sent.drain(from..to)),
                2 => drop(sent.splice(from..from, bytes(to - from))),
                _ => {
                    let again = sent[from..to].to_vec();
                    drop(sent.splice(to..to, again));
                }
            }
        }
        let mut said = Ok(());
        for piece in sent.chunks(1 + rng.below(100) as usize) {
            said = said.and_then(|()| server.take(piece));
        }
        assert!(plain.starts_with(&server.plain));
        assert!(said.is_err() || server.plain.len() < plain.len() || !server.came.is_empty());
        refused += u32::from(said.is_err());
        cut += u32::from(said.is_ok());
    }
    assert!(refused > 1000 && cut > 0, "the changes are no changes: {refused} {cut}");
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_record_whose_tag_nobody_looks_at() {
    assert!(base::seeded::fails(changed_bits_are_refused, base::seeded::Bug::RecordMacUnchecked));
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
    let (mut encrypted, mut clear) = (established(Encryption::On), established(Encryption::Off));
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes are a key");
    let (key, nonce) = (LessSafeKey::new(key), || Nonce::assume_unique_for_key([7; 12]));
    for length in [128, 4096 + 192, 64 << 10, 1 << 20] {
        let (head, payload) = (bytes(length.min(192)), bytes(length - length.min(192)));
        let (mut out, mut copy) = (vec![0; encrypted_bytes(length)], vec![0; length]);
        let mut times: [Vec<u64>; 8] = Default::default();
        for _ in 0..(256 << 20) / (length + 2000) {
            for (ends, [sent, came]) in [(&mut encrypted, [0, 1]), (&mut clear, [5, 6])] {
                let ((client, server), mut written) = (ends, 0);
                times[sent].push(timed(|| {
                    written = client.tls.send(&[&head, &payload], &mut out).expect("it is established").written;
                }));
                times[came].push(timed(|| {
                    let mut at = 0;
                    let used = server.tls.receive(&mut out[..written], |piece| {
                        copy[at..at + piece.len()].copy_from_slice(piece);
                        at += piece.len();
                    });
                    assert_eq!((used, at), (Ok(written), length));
                }));
            }
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
            // The tag of nothing, with the bytes beside it: the cipher's hash alone.
            times[7].push(timed(|| {
                for record in out[..length].chunks(16 << 10) {
                    tags.push(key.seal_in_place_separate_tag(nonce(), Aad::from(record), &mut []).expect("sealed"));
                }
            }));
        }
        let [encrypt, decrypt, seal, open, copied, put, take, hash] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2] as f64 / 1000.0
        });
        println!(
            "{length} bytes: encrypt {encrypt:.2} us, decrypt {decrypt:.2} us; cipher and a copy {seal:.2} and {open:.2} us; \
             a copy {copied:.2} us; in the clear: put {put:.2} us, take {take:.2} us; the cipher's hash alone {hash:.2} us"
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
