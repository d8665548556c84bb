//! Joins, renewals and revocations: admission by tokens, rights by certificates.

use super::world::World;
use super::*;
use base::{Error, Kind, Result};

/// A refusal has this kind and says this.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: Result<T>, kind: Kind, says: &str) -> Error {
    let error = result.expect_err(says);
    assert!(error.kind == kind && error.to_string().contains(says), "{error:?}, wanted {kind:?}: {says}");
    error
}

#[test]
fn a_token_lets_one_key_in_and_its_rights_follow_the_certificate() {
    let mut network = network(&World::default());
    let mut wanted = wish(&[7]);
    let read_only = Grant { read_only: true, root_squash: true, ..grant(9) };
    wanted.rights = wanted.rights.and(&Rights::new([read_only]).expect("one")).expect("two");
    let token = network.create_token(wanted, Secret([1; 16]), place(), NOW_S).expect("within bounds");
    let chain = network.admit(&token.secret, &request(&key()), "c1", NOW_S + 5).expect("invited");
    assert!(token.pins(&chain.ca));
    chain.certificate.check_signed_by(&chain.ca).expect("by the pinned CA");
    let who = identity(&chain);
    assert_eq!(who.subject.to_string(), format!("sinter://{CLUSTER}/client/c1"));
    let rights = network.rights_of(&who, NOW_S + 10).expect("joined");
    assert_eq!(rights.grants(), [grant(7), read_only]);
    assert_eq!(rights.of(VolumeId(9)).expect("granted"), read_only);
    refused(rights.of(VolumeId(8)), Kind::Permission, "may not mount this volume");
    let used = &network.tokens()[0].used;
    assert!(matches!(&used[..], [Use { name, at_s, .. }] if name.as_str() == "c1" && *at_s == NOW_S + 5));
    let stored = String::from_utf8(network.ca().to_pem().into()).expect("text");
    assert!(!stored.is_empty() && !format!("{token:?}").contains("1, 1, 1"), "messages hide the secret");
}

#[test]
fn the_file_does_not_hold_the_secret() {
    let world = World::default();
    let secret = Secret(*b"very secret word");
    network(&world).create_token(wish(&[1]), secret, place(), NOW_S).expect("within bounds");
    let file = String::from_utf8(world.bytes("state").expect("written")).expect("text");
    let hex: String = secret.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(file.contains(&secret.hash().to_string()));
    assert!(!file.contains("very secret word") && !file.contains(&hex));
}

#[test]
fn each_token_that_does_not_count_has_its_own_answer() {
    let mut network = network(&World::default());
    let used = token(&mut network, 1, &[1]);
    network.admit(&used.secret, &request(&key()), "c1", NOW_S).expect("the first use");
    let create = "sinter token create";
    let again =
        refused(network.admit(&used.secret, &request(&key()), "c2", NOW_S), Kind::Permission, "was used already");
    assert!(again.to_string().contains("used by c1") && again.to_string().contains(create), "{again}");

    let late = token(&mut network, 2, &[1]);
    let just = NOW_S + TOKEN_LIFE_S;
    let expired = refused(network.admit(&late.secret, &request(&key()), "c2", just), Kind::Permission, "has expired");
    assert!(expired.to_string().contains(create));
    network.admit(&late.secret, &request(&key()), "c2", just - 1).expect("the last second");

    let revoked = token(&mut network, 3, &[1]);
    let id = network.tokens()[2].id();
    network.revoke_token(&id, NOW_S).expect("it is there");
    refused(network.admit(&revoked.secret, &request(&key()), "c3", NOW_S), Kind::Permission, "was revoked");
    refused(network.revoke_token("no such", NOW_S), Kind::NotFound, "sinter token list");

    let unknown =
        refused(network.admit(&Secret([9; 16]), &request(&key()), "c4", NOW_S), Kind::NotFound, "does not know");
    assert!(unknown.to_string().contains(create));
    // A stranger's request is not even read.
    refused(network.admit(&Secret([9; 16]), b"noise", "", NOW_S), Kind::NotFound, "does not know");
    assert_eq!(network.clients().len(), 2);
}

#[test]
fn a_token_counts_its_uses() {
    let mut network = network(&World::default());
    let wanted = Wish { uses: 3, ..wish(&[1]) };
    let token = network.create_token(wanted, Secret([1; 16]), place(), NOW_S).expect("within bounds");
    for name in ["c1", "c2", "c3"] {
        network.admit(&token.secret, &request(&key()), name, NOW_S).expect("one of three");
    }
    refused(network.admit(&token.secret, &request(&key()), "c4", NOW_S), Kind::Permission, "was used already");
}

#[test]
fn who_asks_again_gets_the_same_answer_as_long_as_the_token_lives() {
    let world = World::default();
    let mut network = network(&world);
    let token = token(&mut network, 1, &[1]);
    let key = key();
    let first = network.admit(&token.secret, &request(&key), "c1", NOW_S).expect("invited");
    let steps = world.steps();
    // Requests are signed with random numbers: it is the key that is the same.
    assert_eq!(network.admit(&token.secret, &request(&key), "c1", NOW_S + 60).expect("again"), first);
    assert_eq!(world.steps(), steps, "nothing is written");
    let mut reopened = reopen(world.copy()).expect("whole");
    assert_eq!(reopened.admit(&token.secret, &request(&key), "c1", NOW_S + 60).expect("after a restart"), first);
    refused(network.admit(&token.secret, &request(&key), "other", NOW_S + 60), Kind::Permission, "was used already");
    let late = NOW_S + TOKEN_LIFE_S;
    refused(network.admit(&token.secret, &request(&key), "c1", late), Kind::Permission, "has expired");
}

#[test]
fn a_name_belongs_to_its_key() {
    let mut network = network(&World::default());
    let key = key();
    let tokens: Vec<Token> = (1..=4).map(|seed| token(&mut network, seed, &[u32::from(seed)])).collect();
    let first = network.admit(&tokens[0].secret, &request(&key), "c1", NOW_S).expect("invited");
    let epoch = network.epoch();
    let thief = network.admit(&tokens[1].secret, &request(&super::key()), "c1", NOW_S);
    refused(thief, Kind::Exists, "another machine has this name");
    assert!(network.tokens()[1].used.is_empty(), "what was refused uses nothing up");
    refused(network.admit(&tokens[1].secret, &request(&key), "c2", NOW_S), Kind::Exists, "joined under another name");
    // The same machine comes for a second volume.
    let second = network.admit(&tokens[1].secret, &request(&key), "c1", NOW_S).expect("its own name");
    assert_eq!(second, first, "its certificate is young");
    assert_eq!(network.rights_of(&identity(&first), NOW_S).expect("known").grants(), [grant(1), grant(2)]);
    assert!(network.epoch() > epoch, "who runs hears of it");
    for wrong in ["", "a b", "../x", "-c"] {
        refused(network.admit(&tokens[2].secret, &request(&key), wrong, NOW_S), Kind::Invalid, "choose another one");
    }
}

#[test]
fn a_revoked_client_is_refused_and_told_and_its_key_never_comes_back() {
    let world = World::default();
    let mut network = network(&world);
    let key = key();
    let tokens: Vec<Token> = (1..=3).map(|seed| token(&mut network, seed, &[u32::from(seed)])).collect();
    let old = network.admit(&tokens[0].secret, &request(&key), "c1", NOW_S).expect("invited");
    let epoch = network.epoch();
    network.revoke_client("c1", NOW_S + 1).expect("it is there");
    assert!(network.epoch() > epoch);
    refused(network.rights_of(&identity(&old), NOW_S + 2), Kind::Permission, "was revoked");
    refused(network.renew(&identity(&old), &request(&key), NOW_S + 2), Kind::Permission, "was revoked");
    // Neither by the answer that it had, nor by a token that it still has.
    for token in &tokens[..2] {
        refused(network.admit(&token.secret, &request(&key), "c1", NOW_S + 2), Kind::Permission, "key was revoked");
        refused(network.admit(&token.secret, &request(&key), "c2", NOW_S + 2), Kind::Permission, "key was revoked");
    }
    // Another machine takes the name, with none of the old rights.
    let new = network.admit(&tokens[1].secret, &request(&super::key()), "c1", NOW_S + 3).expect("a new key");
    for network in [&network, &reopen(world.copy()).expect("whole")] {
        assert_eq!(network.rights_of(&identity(&new), NOW_S + 4).expect("joined").grants(), [grant(2)]);
        refused(network.rights_of(&identity(&old), NOW_S + 4), Kind::Permission, "was revoked");
        assert!(network.epoch() > epoch, "the number survives");
    }
    refused(network.revoke_client("nobody", NOW_S), Kind::NotFound, "sinter client list");
}

#[test]
fn certificates_that_this_server_did_not_give_are_refused() {
    let mut ours = network(&World::default());
    let mut other = Network::create(World::default(), Uuid([2; 16]), BRICK, NOW_S).expect("an empty directory");
    let (here, there) = (token(&mut ours, 1, &[1]), token(&mut other, 1, &[1]));
    let joined = ours.admit(&here.secret, &request(&key()), "c1", NOW_S).expect("invited");
    let strange = other.admit(&there.secret, &request(&key()), "c1", NOW_S).expect("invited there");
    refused(ours.rights_of(&identity(&strange), NOW_S), Kind::Permission, "of another cluster");
    strange.certificate.check_signed_by(&joined.ca).expect_err("another CA");
    let forgotten = Identity { serial: Serial([1; 16]), ..identity(&joined) };
    refused(ours.rights_of(&forgotten, NOW_S), Kind::Permission, "does not know this certificate");
    let brick = ours.server().certificate.identity().expect("ours");
    refused(ours.rights_of(&brick, NOW_S), Kind::Permission, "of a brick");
    refused(ours.ca().identity(), Kind::Permission, "nobody's identity");
}

#[test]
fn certificates_end_after_90_days_and_are_renewed_from_the_60th_on() {
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let key = key();
    let first = network.admit(&token.secret, &request(&key), "c1", NOW_S).expect("invited");
    let who = identity(&first);
    assert_eq!((who.not_after_s - NOW_S, who.renewal_at_s() - NOW_S), (90 * DAY_S, 60 * DAY_S));
    assert!(who.not_before_s < NOW_S, "clocks may be a little behind");
    let early = network.renew(&who, &request(&key), NOW_S + 60 * DAY_S - 1).expect("known");
    assert_eq!(early, first, "not due");
    refused(network.renew(&who, &request(&super::key()), NOW_S + 61 * DAY_S), Kind::Permission, "the key that it has");
    let second = network.renew(&who, &request(&key), NOW_S + 60 * DAY_S).expect("due");
    assert_ne!(second, first);
    assert_ne!(identity(&second).serial, who.serial, "each certificate has its own number, also of one key");
    assert_eq!(network.renew(&who, &request(&key), NOW_S + 61 * DAY_S).expect("asked again"), second);
    // Both count as long as they last.
    for (chain, lasts) in [(&first, 90), (&second, 150)] {
        network.rights_of(&identity(chain), NOW_S + lasts * DAY_S).expect("its last second");
        refused(network.rights_of(&identity(chain), NOW_S + lasts * DAY_S + 1), Kind::Permission, "has expired");
    }
    refused(network.rights_of(&who, NOW_S - 2 * DAY_S), Kind::Permission, "not valid yet");
    // The server's own.
    let served = network.server().clone();
    assert!(!network.renew_server(NOW_S + 60 * DAY_S - 1).expect("not due"));
    assert!(network.renew_server(NOW_S + 60 * DAY_S).expect("due"));
    assert_eq!((network.server().key == served.key, network.server().certificate == served.certificate), (true, false));
}

#[test]
fn only_requests_of_our_kind_of_key_are_signed() {
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let good = request(&key());
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let other = rcgen::KeyPair::generate_for(algorithm).expect("ring has it");
        let request = rcgen::CertificateParams::default().serialize_request(&other).expect("a request");
        refused(
            network.admit(&token.secret, request.der(), "c1", NOW_S),
            Kind::Invalid,
            "another kind than ECDSA on P-256",
        );
    }
    let mut forged = good.clone();
    *forged.last_mut().expect("not empty") ^= 1;
    refused(network.admit(&token.secret, &forged, "c1", NOW_S), Kind::Invalid, "");
    let hash = certificates::read_request(&good).expect("ours").hash();
    for at in 0..good.len() {
        assert!(certificates::read_request(&good[..at]).is_err(), "cut at {at}");
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // What is not signed is not read either.
        assert!(certificates::read_request(&bad).map_or(true, |read| read.hash() == hash), "byte {at}");
    }
    for more in [1, 10_000] {
        let longer = [&good[..], &vec![0; more]].concat();
        refused(network.admit(&token.secret, &longer, "c1", NOW_S), Kind::Invalid, "can't be read");
    }
    assert!(network.tokens()[0].used.is_empty());
    network.admit(&token.secret, &good, "c1", NOW_S).expect("ours");
}

#[test]
fn what_a_request_asks_for_beside_its_key_does_not_count() {
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let mut params = rcgen::CertificateParams::new([server_name(CLUSTER)]).expect("a name");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let pair = rcgen::KeyPair::generate().expect("a key");
    let greedy = params.serialize_request(&pair).expect("a request");
    let chain = network.admit(&token.secret, greedy.der(), "c1", NOW_S).expect("invited");
    let text = String::from_utf8_lossy(&chain.certificate.0).into_owned();
    assert!(!text.contains("sinter.internal") && text.contains("/client/c1"));
}

#[test]
fn a_clients_certificate_is_for_clients_and_a_bricks_for_both_ends() {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let chain = network.admit(&token.secret, &request(&key()), "c1", NOW_S).expect("invited");
    for (certificate, is_server) in [(&chain.certificate, false), (&network.server().certificate, true)] {
        let (_, parsed) = X509Certificate::from_der(&certificate.0).expect("ours");
        let usage = parsed.extended_key_usage().expect("one").expect("said").value;
        assert_eq!((usage.client_auth, usage.server_auth, usage.any), (true, is_server, false));
    }
}

#[test]
fn lists_have_bounds() {
    let mut network = network(&World::default());
    let none = Rights::new([]).expect_err("no volume");
    assert_eq!(none.kind, Kind::Invalid);
    assert!(Rights::new((0..257).map(grant)).is_err());
    for wrong in [
        Wish { uses: 0, ..wish(&[1]) },
        Wish { uses: 1025, ..wish(&[1]) },
        Wish { life_s: 0, ..wish(&[1]) },
        Wish { life_s: 31 * DAY_S, ..wish(&[1]) },
    ] {
        assert_eq!(
            network.create_token(wrong, Secret([1; 16]), place(), NOW_S).expect_err("a bound").kind,
            Kind::Invalid
        );
    }
    assert!(network.create_token(wish(&[1]), Secret([1; 16]), (place().0, Vec::new()), NOW_S).is_err());
    for seed in 0..1024u128 {
        let secret = Secret(seed.to_le_bytes());
        network.create_token(wish(&[1]), secret, place(), NOW_S).expect("room");
    }
    let more = |at| (wish(&[1]), Secret([0xff; 16]), place(), at);
    let (wish, secret, to, at) = more(NOW_S + 2 * DAY_S);
    refused(network.create_token(wish, secret, to, at), Kind::NoSpace, "1024 tokens");
    let (wish, secret, to, at) = more(NOW_S + 8 * DAY_S);
    network.create_token(wish, secret, to, at).expect("expired ones are forgotten");
    assert_eq!(network.tokens().len(), 1);
}

#[test]
fn a_client_that_comes_and_goes_keeps_few_certificates() {
    let mut network = network(&World::default());
    let wanted = Wish { uses: 1024, ..wish(&[1]) };
    let token = network.create_token(wanted, Secret([1; 16]), place(), NOW_S).expect("within bounds");
    let mut first = None;
    for _ in 0..20 {
        let chain = network.admit(&token.secret, &request(&key()), "c1", NOW_S).expect("a new key");
        first.get_or_insert(identity(&chain));
        network.revoke_client("c1", NOW_S).expect("it is there");
    }
    let kept = &network.clients()[&"c1".parse::<ClientName>().expect("a name")].certificates;
    assert_eq!(kept.len(), 16);
    refused(network.rights_of(&first.expect("20 of them"), NOW_S), Kind::Permission, "");
}
