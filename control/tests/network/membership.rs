//! The client's two files.

use super::scratch::Scratch;
use super::world::World;
use super::*;
use base::{Error, Kind, Result};
use control::client::{Membership, begin};

fn name() -> ClientName {
    "prod".parse().expect("a name")
}

fn joined(world: &World) -> (Network<World>, Token, Membership) {
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let joining = begin(world, &name(), token.clone()).expect("an empty directory");
    let chain = network.admit(&joining.token().secret, &joining.request, "c1", NOW_S).expect("invited");
    let membership = joining.finish(chain).expect("the pinned CA");
    (network, token, membership)
}

#[test]
fn a_membership_reads_back_and_addresses_may_be_changed() {
    let world = World::default();
    let (_, token, membership) = joined(&world);
    assert_eq!(Membership::read(&world, &name()).expect("written"), membership);
    assert_eq!((&membership.addresses, membership.cluster), (&addresses(), CLUSTER));
    assert_eq!(membership.identity().expect("ours").subject.to_string(), format!("sinter://{CLUSTER}/client/c1"));
    let text = String::from_utf8(world.bytes("prod.toml").expect("written")).expect("text");
    assert!(!text.contains("PRIVATE") && !text.contains(&format!("{:?}", token.secret.0)));
    world.put("prod.toml", text.replace("10.0.0.5:7400", "10.0.0.6:7400").as_bytes());
    let moved = Membership::read(&world, &name()).expect("an address is no secret");
    assert_eq!(moved.addresses[0].to_string(), "10.0.0.6:7400");
}

#[test]
fn an_answer_that_the_token_does_not_vouch_for_is_not_written() {
    let world = World::default();
    let mut ours = network(&World::default());
    let mut other = network(&World::default());
    let (token, _) = (token(&mut ours, 1, &[1]), super::token(&mut other, 1, &[1]));
    let begun = || begin(&world, &name(), token.clone()).expect("the key is there or made");
    let refused = |result: Result<Membership>, says: &str| {
        let error = result.expect_err(says);
        assert!(error.kind == Kind::Permission && error.to_string().contains(says), "{error}");
        assert_eq!(world.bytes("prod.toml"), None);
    };
    let joining = begun();
    let right = ours.admit(&token.secret, &joining.request, "c1", NOW_S).expect("invited");
    let wrong = other.admit(&token.secret, &joining.request, "c1", NOW_S).expect("the same secret");
    refused(joining.finish(wrong.clone()), "not the one that made the token");
    refused(begun().finish(Chain { certificate: wrong.certificate, ca: right.ca.clone() }), "not signed by the CA");
    let brick = ours.server().certificate.clone();
    refused(begun().finish(Chain { certificate: brick, ca: right.ca.clone() }), "not one of this key");
    begun().finish(right).expect("the right one");
}

#[test]
fn a_name_leads_to_one_cluster() {
    let world = World::default();
    let (_, token, membership) = joined(&world);
    let again = begin(&world, &name(), token.clone()).expect("the same cluster");
    let public = certificates::read_request(&again.request).expect("ours");
    assert_eq!(public.hash(), membership.key.public().expect("whole").hash(), "the key stays");
    let other = Token { cluster: Uuid([5; 16]), ..token };
    let error = begin(&world, &name(), other).map(drop).expect_err("another cluster");
    assert!(error.kind == Kind::Exists && error.to_string().contains("choose another name"), "{error}");
}

#[test]
fn a_renewed_certificate_takes_the_old_ones_place() {
    let world = World::default();
    let (mut network, _, mut membership) = joined(&world);
    let before = membership.clone();
    let (who, csr) = (membership.identity().expect("ours"), request(&membership.key));
    let late = NOW_S + 61 * DAY_S;
    let chain = network.renew(&who, &csr, late).expect("due");
    let strange = Chain { ca: super::network(&World::default()).ca().clone(), ..chain.clone() };
    membership.renew(&world, strange).expect_err("another CA");
    assert_eq!(membership, before);
    membership.renew(&world, chain).expect("ours");
    assert_eq!(Membership::read(&world, &name()).expect("written"), membership);
    assert_eq!(membership.identity().expect("ours").not_after_s, late + 90 * DAY_S);
}

#[test]
fn files_that_were_changed_are_refused_by_name_and_place() {
    let world = World::default();
    let (_, token, _) = joined(&world);
    let config = String::from_utf8(world.bytes("prod.toml").expect("written")).expect("text");
    let key = world.bytes("prod.key").expect("written");
    let read = |file: &str, bytes: &[u8]| -> Error {
        let copy = world.copy();
        copy.put(file, bytes);
        let error = Membership::read(&copy, &name()).expect_err("changed");
        assert!(error.to_string().contains(&format!("/brick/network/{file}")), "{error}");
        error
    };
    for (from, to, kind, says) in [
        ("format = 1", "format = 2", Kind::Newer, "another version"),
        ("format = 1", "format = 1\nspeed = 9", Kind::Invalid, "line 3"),
        ("10.0.0.5:7400", "10.0.0.5", Kind::Invalid, "HOST:PORT"),
        ("addresses = [", "addresses = [] #", Kind::Invalid, "1 to 8 addresses"),
        ("BEGIN CERTIFICATE", "BEGIN KEY", Kind::Corrupt, "PEM"),
        ("cluster = \"c1", "cluster = \"c2", Kind::Permission, "not one of this key for this cluster"),
        ("cluster = ", "closter = ", Kind::Invalid, "closter"),
        ("format = 1\n", "", Kind::Invalid, "format"),
    ] {
        assert!(config.contains(from), "{from}");
        let error = read("prod.toml", config.replacen(from, to, 1).as_bytes());
        assert!(error.kind == kind && error.to_string().contains(says), "{error:?}, wanted {says}");
        assert!(kind == Kind::Newer || error.to_string().contains("join again"), "{error}");
    }
    assert_eq!(read("prod.toml", b"\xff\xfe").kind, Kind::Invalid);
    for at in 0..key.len() {
        assert!(matches!(read_or_same(&world, &key[..at]), Some(Kind::Corrupt) | None), "cut at {at}");
    }
    let strange = read_or_same(&world, Key::generate().expect("a key").to_pem().as_bytes());
    assert_eq!(strange, Some(Kind::Permission), "another machine's key");
    let damaged = World::default();
    damaged.put("prod.toml", b"format = 1\n");
    let error = begin(&damaged, &name(), token).map(drop).expect_err("no cluster");
    assert!(error.to_string().contains("remove it") && damaged.bytes("prod.key").is_none(), "{error}");
    let empty = Membership::read(&World::default(), &name()).expect_err("nothing there");
    assert!(empty.kind == Kind::NotFound && empty.to_string().contains("sinter client join"), "{empty}");
    let keyless = World::default();
    keyless.put("prod.toml", config.as_bytes());
    let error = Membership::read(&keyless, &name()).expect_err("no key");
    assert!(error.kind == Kind::NotFound && error.to_string().contains("prod.key"), "{error}");
}

/// The kind of error with these bytes as the key's file; None if it reads as before (a last line break is missing).
fn read_or_same(world: &World, key: &[u8]) -> Option<Kind> {
    let copy = world.copy();
    copy.put("prod.key", key);
    match Membership::read(&copy, &name()) {
        Ok(read) => {
            assert_eq!(read, Membership::read(world, &name()).expect("whole"));
            None
        }
        Err(error) => Some(error.kind),
    }
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let mut network = network(&World::default());
    let token = token(&mut network, 1, &[1]);
    let files = scratch.lock().expect("free");
    let joining = begin(&files, &name(), token.clone()).expect("empty");
    let chain = network.admit(&token.secret, &joining.request, "c1", NOW_S).expect("invited");
    let membership = joining.finish(chain).expect("pinned");
    assert_eq!(Membership::read(&files, &name()).expect("written"), membership);
    let key = scratch.path().join("prod.key");
    assert_eq!(std::fs::metadata(&key).expect("written").permissions().mode() & 0o777, 0o600);
    let open = |file| {
        std::fs::set_permissions(scratch.path().join(file), std::fs::Permissions::from_mode(0o644)).expect("ours")
    };
    open("prod.toml");
    Membership::read(&files, &name()).expect("others may know where the cluster is");
    open("prod.key");
    let error = Membership::read(&files, &name()).expect_err("but not this");
    assert!(error.kind == Kind::Permission && error.to_string().contains("chmod 600"), "{error}");
    assert!(begin(&files, &name(), token).is_err());
}
