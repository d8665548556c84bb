//! Files that are damaged, cut, foreign or newer: told apart, named, and never replaced.

use super::scratch::Scratch;
use super::world::World;
use super::*;
use base::Kind;
use runtime::random::SplitMix;

/// Opens a brick whose file has these bytes.
fn open(bytes: &[u8]) -> base::Result<Network<World>> {
    let world = World::default();
    world.put("state", bytes);
    let opened = reopen(world.clone());
    let made = Network::create(world.clone(), CLUSTER, BRICK, NOW_S);
    assert_eq!(made.err().map(|error| error.kind), Some(Kind::Exists), "a file that is there is never made anew");
    assert_eq!(world.bytes("state").as_deref(), Some(bytes));
    opened
}

fn whole() -> Vec<u8> {
    let world = World::default();
    let mut network = network(&world);
    let token = token(&mut network, 1, &[1]);
    network.admit(&token.secret, &request(&key()), "c1", NOW_S).expect("invited");
    world.bytes("state").expect("written")
}

#[test]
fn no_byte_can_be_changed_or_missing_unnoticed() {
    let whole = whole();
    open(&whole).map(drop).expect("whole");
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        for bytes in [&bad, &whole[..at]] {
            let error = open(bytes).map(drop).expect_err("damage");
            let text = error.to_string();
            assert!(matches!(error.kind, Kind::Corrupt | Kind::Newer), "{at}: {text}");
            assert!(text.contains("/brick/network/state"), "{text}");
            assert!(error.kind == Kind::Newer || text.contains("restore it from a backup"), "{text}");
        }
    }
    assert_eq!(open(&[&whole[..], b"\n"].concat()).map(drop).expect_err("longer").kind, Kind::Corrupt);
}

#[test]
fn other_files_are_told_apart() {
    let whole = String::from_utf8(whole()).expect("text");
    for (bytes, kind, says) in [
        (String::new(), Kind::Corrupt, "not one that Sinter wrote"),
        ("hello\n".repeat(100), Kind::Corrupt, "not one that Sinter wrote"),
        (whole.replacen("sinter-network 1 ", "sinter-network 3 ", 1), Kind::Newer, "newer Sinter"),
        (whole.replacen("sinter-network 1 ", "sinter-network 2 ", 1), Kind::Corrupt, "not of format 2"),
        (whole.replacen("sinter-network 1 ", "sinter-network 0 ", 1), Kind::Corrupt, "damaged"),
        (whole.replacen("sinter-network 1 ", "sinter-network 01 ", 1), Kind::Corrupt, "damaged"),
    ] {
        let error = open(bytes.as_bytes()).map(drop).expect_err(says);
        assert!(error.kind == kind && error.to_string().contains(says), "{error:?}");
    }
    let none = reopen(World::default()).map(drop).expect_err("nothing there");
    assert!(none.kind == Kind::NotFound && none.to_string().contains("restore the file"), "{none}");
}

/// A file with this text as its body and a checksum that is right.
fn signed(body: &str) -> Vec<u8> {
    signed_as(1, body)
}

/// The same of this version of the format.
pub fn signed_as(version: u32, body: &str) -> Vec<u8> {
    format!("sinter-network {version} {:08x}\n{body}", base::checksum::crc32c(body.as_bytes())).into_bytes()
}

#[test]
fn parts_of_two_bricks_make_none() {
    let (one, two) = (String::from_utf8(whole()).expect("text"), String::from_utf8(whole()).expect("text"));
    let body = |text: &str| text.split_once('\n').expect("a head").1.to_string();
    open(&signed(&body(&one))).map(drop).expect("nothing changed");
    let part = |text: &str, from: &str, to: &str| {
        let start = text.find(from).expect("there");
        text[start..start + text[start..].find(to).expect("there")].to_string()
    };
    for (from, to) in [("[ca]", "[server]"), ("[server]", "[[tokens]]")] {
        let mixed = body(&one).replace(&part(&one, from, to), &part(&two, from, to));
        let error = open(&signed(&mixed)).map(drop).expect_err("mixed");
        assert!(matches!(error.kind, Kind::Corrupt | Kind::Permission), "{error:?}");
    }
    // A key alone, of the CA and of the server.
    let keys = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("key = \"") && line.len() > 100).map(str::to_string).collect()
    };
    let (keys_one, keys_two) = (keys(&one), keys(&two));
    assert_eq!((keys_one.len(), keys_two.len()), (2, 2));
    for (ours, other) in keys_one.iter().zip(&keys_two) {
        let error = open(&signed(&body(&one).replace(ours, other))).map(drop).expect_err("another key");
        assert!(error.to_string().contains("don't belong together"), "{error}");
    }
    let moved = body(&one).replace(&CLUSTER.to_string(), &Uuid([3; 16]).to_string());
    assert_eq!(open(&signed(&moved)).map(drop).expect_err("of another cluster").kind, Kind::Corrupt);
    let world = World::default();
    world.put("state", one.as_bytes());
    let foreign = Network::open(world, Uuid([4; 16])).map(drop).expect_err("copied from another brick");
    assert!(foreign.kind == Kind::Corrupt && foreign.to_string().contains("of another brick"), "{foreign}");
    let unknown = open(&signed(&format!("new = 1\n{}", body(&one)))).map(drop).expect_err("a field of another version");
    assert_eq!(unknown.kind, Kind::Corrupt);
}

#[test]
fn no_bytes_whatever_end_a_process() {
    let (whole, mut dice) = (String::from_utf8(whole()).expect("text"), SplitMix(30));
    let body = whole.split_once('\n').expect("a head").1;
    let certificate = network(&World::default()).server().certificate.clone();
    for _ in 0..3000 {
        // Past the checksum: what a bug or somebody's hand could write.
        let mut bytes = body.as_bytes().to_vec();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(3) {
                0 => bytes[at] = dice.next() as u8 & 0x7f,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\"[]{}=\n0a"[dice.below(9) as usize]),
            }
        }
        drop(open(&signed(&String::from_utf8_lossy(&bytes))));
        let mut der = certificate.0.clone();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(der.len() as u64) as usize;
            if dice.one_in(3) { der.truncate(at.max(1)) } else { der[at] = dice.next() as u8 }
        }
        drop(Certificate(der).identity());
        let noise: Vec<u8> = (0..dice.below(200)).map(|_| dice.next() as u8).collect();
        assert!(
            open(&noise).is_err()
                && certificates::read_request(&noise).is_err()
                && Certificate(noise).identity().is_err()
        );
    }
}

#[test]
fn keys_that_others_may_read_are_refused() {
    let world = World::default();
    drop(network(&world));
    world.open_to_others();
    let error = reopen(world).map(drop).expect_err("open to others");
    assert!(error.kind == Kind::Permission && error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn real_files_are_their_owners_only_and_one_process_has_them() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let file = scratch.path().join("state");
    // The rest of a crash that somebody has copied about.
    std::fs::write(scratch.path().join("state.new"), "x".repeat(100_000)).expect("writable");
    let network = Network::create(scratch.lock().expect("free"), CLUSTER, BRICK, NOW_S).expect("empty");
    let mode = std::fs::metadata(&file).expect("written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = scratch.lock().map(drop).expect_err("the first one has it");
    assert!(second.kind == Kind::Busy && second.to_string().contains("another process"), "{second}");
    let served = network.server().clone();
    drop(network);
    assert_eq!(*reopen(scratch.lock().expect("free again")).expect("whole").server(), served);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
    let open = reopen(scratch.lock().expect("free")).map(drop).expect_err("the group may read it");
    assert!(
        open.to_string().contains("chmod 600") && open.to_string().contains(file.to_str().expect("text")),
        "{open}"
    );
    std::fs::remove_file(&file).expect("ours");
    std::os::unix::fs::symlink("/etc/hostname", &file).expect("ours");
    assert_eq!(reopen(scratch.lock().expect("free")).map(drop).expect_err("a link").kind, Kind::Permission);
}
