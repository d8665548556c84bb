//! Servers that join a cluster: admission by tokens, what others know of them, and the file that they share.

use super::admit::refused;
use super::damage::signed_as;
use super::scratch::Scratch;
use super::world::World;
use super::*;
use base::Kind;
use control::client::{Membership, begin};

/// A network side with a server that has joined with the secret of ones.
fn joined(world: &World) -> (Network<World>, Key, Chain) {
    let (mut network, key) = (network(world), key());
    let token = server_token(&mut network, 1);
    let chain = network.admit_server(&token.secret, &request(&key), &server(1), NOW_S).expect("invited");
    (network, key, chain)
}

/// The bytes of a world's file.
fn file(world: &World) -> Vec<u8> {
    world.bytes("state").expect("written")
}

fn head(world: &World) -> String {
    String::from_utf8_lossy(&file(world)[..17]).into_owned()
}

#[test]
fn a_token_lets_one_server_in_and_the_cluster_knows_it() {
    let world = World::default();
    let mut network = network(&world);
    let token = server_token(&mut network, 1);
    assert_eq!(token.to_text().parse::<Token>().expect("whole"), token, "the part is in the text");
    let chain = network.admit_server(&token.secret, &request(&key()), &server(1), NOW_S + 5).expect("invited");
    assert!(token.pins(&chain.ca));
    chain.certificate.check_signed_by(&chain.ca).expect("by the pinned CA");
    let (who, brick) = (identity(&chain), server(1).brick);
    assert_eq!(who.subject, Subject { cluster: CLUSTER, bearer: Bearer::Brick(brick) });
    for network in [&network, &reopen(world.copy()).expect("whole")] {
        assert_eq!(network.check_server(&who, NOW_S + 10), Ok(brick));
        let known = &network.servers()[&brick];
        let ServerWish { name, clients, peers, .. } = server(1);
        assert_eq!((&known.name, &known.clients, &known.peers, known.joined_s), (&name, &clients, &peers, NOW_S + 5));
        assert_eq!((network.servers().len(), network.clients().len()), (1, 0));
        assert!(matches!(&network.tokens()[0].used[..], [Use { name: used, .. }] if *used == name));
        refused(network.rights_of(&who, NOW_S + 10).cloned(), Kind::Permission, "of a brick");
    }
}

#[test]
fn a_token_is_for_one_part() {
    let mut network = network(&World::default());
    let (client, other) = (token(&mut network, 1, &[1]), server_token(&mut network, 2));
    let taken = network.admit_server(&client.secret, &request(&key()), &server(1), NOW_S);
    refused(taken, Kind::Permission, "sinter client join");
    refused(network.admit(&other.secret, &request(&key()), "c1", NOW_S), Kind::Permission, "sinter cluster join");
    assert!(network.tokens().iter().all(|token| token.used.is_empty()), "what was refused uses nothing up");
    for (wish, says) in [
        (Wish { rights: Rights::none(), ..wish(&[1]) }, "name them"),
        (Wish { role: Role::Server, ..wish(&[1]) }, "leave volumes out"),
    ] {
        refused(network.create_token(wish, Secret([3; 16]), place(), NOW_S), Kind::Invalid, says);
    }
    assert!(Rights::none().grants().is_empty() && Rights::new([]).is_err());
}

#[test]
fn each_servers_token_that_does_not_count_has_its_own_answer() {
    let (mut network, _, _) = joined(&World::default());
    let admit = |network: &mut Network<World>, seed: u8, now_s| {
        network.admit_server(&Secret([seed; 16]), &request(&key()), &server(2), now_s)
    };
    let again = refused(admit(&mut network, 1, NOW_S), Kind::Permission, "was used already");
    assert!(again.to_string().contains("used by s1"), "{again}");
    (2..=3).for_each(|seed| drop(server_token(&mut network, seed)));
    refused(admit(&mut network, 2, NOW_S + TOKEN_LIFE_S), Kind::Permission, "has expired");
    let id = network.tokens()[2].id();
    network.revoke_token(&id, NOW_S).expect("it is there");
    refused(admit(&mut network, 3, NOW_S), Kind::Permission, "was revoked");
    refused(admit(&mut network, 9, NOW_S), Kind::NotFound, "does not know this token");
    // A stranger's request is not even read, another one only as far as it is ours.
    let noise = network.admit_server(&Secret([9; 16]), b"noise", &server(2), NOW_S);
    refused(noise, Kind::NotFound, "does not know this token");
    refused(network.admit_server(&Secret([2; 16]), b"noise", &server(2), NOW_S), Kind::Invalid, "can't be read");
    assert!(network.tokens()[1].used.is_empty() && network.servers().len() == 1);
}

#[test]
fn a_server_that_asks_again_gets_the_same_answer_as_long_as_the_token_lives() {
    let world = World::default();
    let (mut network, key, first) = joined(&world);
    let steps = world.steps();
    let ask =
        |network: &mut Network<World>, now_s| network.admit_server(&Secret([1; 16]), &request(&key), &server(1), now_s);
    assert_eq!(ask(&mut network, NOW_S + 60).expect("again"), first);
    assert_eq!(world.steps(), steps, "nothing is written");
    assert_eq!(ask(&mut reopen(world.copy()).expect("whole"), NOW_S + 60).expect("after a restart"), first);
    refused(ask(&mut network, NOW_S + TOKEN_LIFE_S), Kind::Permission, "has expired");
    let strange = network.admit_server(&Secret([1; 16]), &request(&super::key()), &server(1), NOW_S);
    refused(strange, Kind::Permission, "was used already");
    let other = network.admit_server(&Secret([1; 16]), &request(&key), &server(2), NOW_S);
    refused(other, Kind::Permission, "was used already");
}

#[test]
fn a_server_may_move_until_its_token_is_over_and_with_another_one() {
    let world = World::default();
    let (mut network, key, first) = joined(&world);
    let moved = ServerWish { brick: server(1).brick, ..server(5) };
    let chain = network.admit_server(&Secret([1; 16]), &request(&key), &moved, NOW_S + 60).expect("the same token");
    assert_eq!(chain, first);
    let known = reopen(world.copy()).expect("whole").servers()[&moved.brick].clone();
    assert_eq!((&known.name, &known.clients, &known.peers), (&moved.name, &moved.clients, &moved.peers));
    assert_eq!((known.joined_s, network.tokens()[0].used.len()), (NOW_S, 1));
    // Another token later: the certificate is still young.
    let token = server_token(&mut network, 2);
    let chain = network.admit_server(&token.secret, &request(&key), &server(1), NOW_S + 90).expect("another token");
    let known = &network.servers()[&moved.brick];
    assert_eq!((chain, &known.clients, known.joined_s), (first, &server(1).clients, NOW_S + 90));
    assert_eq!(network.tokens()[1].used.len(), 1);
}

#[test]
fn brick_name_and_addresses_belong_to_one_server() {
    let (mut network, key, _) = joined(&World::default());
    server_token(&mut network, 2);
    let (one, two) = (server(1), server(2));
    let before = network.encoded();
    for (wanted, key, says) in [
        (server(1), super::key(), "with another key"),
        (two.clone(), key.clone(), "with another brick"),
        (ServerWish { name: one.name.clone(), ..server(2) }, super::key(), "has this name: choose another one: s1"),
        (ServerWish { clients: one.clients.clone(), ..server(2) }, super::key(), "10.0.1.1:7400, server s1"),
        (ServerWish { clients: one.peers.clone(), ..server(2) }, super::key(), "10.0.1.1:7401, server s1"),
        (ServerWish { peers: one.peers, ..server(2) }, super::key(), "10.0.1.1:7401, server s1"),
        (ServerWish { peers: one.clients, ..server(2) }, super::key(), "10.0.1.1:7400, server s1"),
    ] {
        let taken = network.admit_server(&Secret([2; 16]), &request(&key), &wanted, NOW_S);
        refused(taken, Kind::Exists, says);
        assert_eq!(network.encoded(), before, "what was refused changes nothing");
    }
    network.admit_server(&Secret([2; 16]), &request(&super::key()), &two, NOW_S).expect("all its own");
    // Nor may one take another's place when it moves.
    let moved = ServerWish { clients: two.clients, ..server(1) };
    refused(network.admit_server(&Secret([1; 16]), &request(&key), &moved, NOW_S), Kind::Exists, "server s2");
}

#[test]
fn a_key_that_was_revoked_as_a_clients_is_no_servers() {
    let (mut network, key) = (network(&World::default()), key());
    let (client, other) = (token(&mut network, 1, &[1]), server_token(&mut network, 2));
    network.admit(&client.secret, &request(&key), "c1", NOW_S).expect("invited");
    network.revoke_client("c1", NOW_S).expect("it is there");
    let taken = network.admit_server(&other.secret, &request(&key), &server(1), NOW_S);
    refused(taken, Kind::Permission, "key was revoked");
}

#[test]
fn a_cluster_has_at_most_64_servers_that_joined() {
    let mut network = network(&World::default());
    let wanted = Wish { uses: 65, ..server_wish() };
    let token = network.create_token(wanted, Secret([1; 16]), place(), NOW_S).expect("within bounds");
    for number in 1..=64 {
        network.admit_server(&token.secret, &request(&key()), &server(number), NOW_S).expect("room");
    }
    let more = network.admit_server(&token.secret, &request(&key()), &server(65), NOW_S);
    refused(more, Kind::NoSpace, "64 servers");
    assert_eq!((network.servers().len(), network.tokens()[0].used.len()), (64, 64));
}

#[test]
fn certificates_that_the_cluster_does_not_know_are_no_servers() {
    let (mut ours, _, chain) = joined(&World::default());
    let who = identity(&chain);
    let other = Network::create(World::default(), Uuid([2; 16]), server(1).brick, NOW_S).expect("an empty directory");
    let strange = other.server().certificate.identity().expect("ours");
    refused(ours.check_server(&strange, NOW_S), Kind::Permission, "of another cluster");
    let forgotten = Identity { serial: Serial([1; 16]), ..who.clone() };
    refused(ours.check_server(&forgotten, NOW_S), Kind::Permission, "does not know this certificate");
    let subject = Subject { cluster: CLUSTER, bearer: Bearer::Brick(server(2).brick) };
    let unknown = Identity { subject, ..who.clone() };
    refused(ours.check_server(&unknown, NOW_S), Kind::Permission, "does not know this server");
    refused(ours.check_server(&who, NOW_S + 91 * DAY_S), Kind::Permission, "has expired");
    refused(ours.check_server(&who, NOW_S - 2 * DAY_S), Kind::Permission, "not valid yet");
    let token = token(&mut ours, 2, &[1]);
    let client = ours.admit(&token.secret, &request(&key()), "c1", NOW_S).expect("invited");
    refused(ours.check_server(&identity(&client), NOW_S), Kind::Permission, "of a client");
    // The server that made the cluster joins it like the others.
    let first = ours.server().certificate.identity().expect("ours");
    refused(ours.check_server(&first, NOW_S), Kind::Permission, "does not know this server");
    server_token(&mut ours, 3);
    let founder = ServerWish { brick: BRICK, ..server(3) };
    let chain = ours.admit_server(&Secret([3; 16]), &request(&key()), &founder, NOW_S).expect("invited");
    assert_eq!(ours.check_server(&identity(&chain), NOW_S), Ok(BRICK));
}

#[test]
fn servers_certificates_are_renewed_with_their_keys() {
    let world = World::default();
    let (mut network, key, first) = joined(&world);
    let (who, late) = (identity(&first), NOW_S + 60 * DAY_S);
    assert_eq!(network.renew(&who, &request(&key), late - 1).expect("known"), first, "not due");
    refused(network.renew(&who, &request(&super::key()), late), Kind::Permission, "the key that it has");
    let second = network.renew(&who, &request(&key), late).expect("due");
    assert_ne!(identity(&second).serial, who.serial);
    assert_eq!(identity(&second).subject, who.subject);
    assert_eq!(network.renew(&who, &request(&key), late + DAY_S).expect("asked again"), second);
    let network = reopen(world).expect("whole");
    for (chain, lasts) in [(&first, 90), (&second, 150)] {
        assert_eq!(network.check_server(&identity(chain), NOW_S + lasts * DAY_S), Ok(server(1).brick));
    }
    let forgotten = Identity { serial: Serial([1; 16]), ..who };
    refused(network.check_server(&forgotten, late), Kind::Permission, "does not know this certificate");
}

#[test]
fn the_format_is_the_lowest_that_has_all_and_both_are_read() {
    let world = World::default();
    let mut network = network(&world);
    let client = token(&mut network, 1, &[1]);
    network.admit(&client.secret, &request(&key()), "c1", NOW_S).expect("invited");
    let alone = file(&world);
    assert_eq!(head(&world), "sinter-network 1 ");
    // An older Sinter does not know the part of this token.
    let token = server_token(&mut network, 2);
    assert_eq!(head(&world), "sinter-network 2 ");
    network.admit_server(&token.secret, &request(&key()), &server(1), NOW_S).expect("invited");
    assert_eq!(head(&world), "sinter-network 2 ");
    for (bytes, version, servers) in [(alone, 1, 0), (file(&world), 2, 1)] {
        let found = World::default();
        found.put("state", &bytes);
        let opened = reopen(found.clone()).expect("it is read");
        assert_eq!((opened.servers().len(), opened.clients().len()), (servers, 1));
        assert!(opened.encoded() == bytes, "and written as it was");
        let text = String::from_utf8(bytes).expect("text");
        let body = text.split_once('\n').expect("a head").1;
        found.put("state", &signed_as(3 - version, body));
        refused(reopen(found).map(drop), Kind::Corrupt, "it is not of format");
    }
}

#[test]
fn no_byte_of_a_file_with_servers_can_be_changed_or_missing_unnoticed() {
    let world = World::default();
    let _ = joined(&world);
    let whole = file(&world);
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        for bytes in [&bad, &whole[..at]] {
            let there = World::default();
            let error = Network::install(there.clone(), bytes, CLUSTER).map(drop).expect_err("damage");
            assert!(matches!(error.kind, Kind::Corrupt | Kind::Newer), "{at}: {error}");
            assert!(error.to_string().contains("another of its servers") && there.steps() == 0, "{error}");
        }
    }
}

#[test]
fn a_state_is_installed_on_another_server_also_over_an_older_one() {
    let (ours, there) = (World::default(), World::default());
    let (mut network, key, _) = joined(&ours);
    assert!(Network::open_of_cluster(there.clone(), CLUSTER).expect("nothing there").is_none());
    let installed = Network::install(there.clone(), &network.encoded(), CLUSTER).expect("whole");
    assert_eq!((file(&there), installed.encoded()), (file(&ours), network.encoded()));
    drop(installed);
    let mut second = Network::open_of_cluster(there.clone(), CLUSTER).expect("whole").expect("installed");
    assert_eq!((second.cluster(), second.brick(), second.servers()), (CLUSTER, BRICK, network.servers()));
    // What the other server knows lets others in, and goes back.
    assert_eq!(second.admit_server(&Secret([1; 16]), &request(&key), &server(1), NOW_S).map(drop), Ok(()));
    let token = server_token(&mut network, 2);
    second = Network::install(there.clone(), &network.encoded(), CLUSTER).expect("over the older one");
    second.admit_server(&token.secret, &request(&super::key()), &server(2), NOW_S).expect("it knows the token");
    let network = Network::install(ours, &second.encoded(), CLUSTER).expect("over the older one");
    assert_eq!(network.servers().len(), 2);
}

#[test]
fn a_state_of_another_cluster_is_neither_installed_nor_opened() {
    let (ours, there) = (World::default(), World::default());
    let (network, _, _) = joined(&ours);
    let other = Network::create(there.clone(), Uuid([2; 16]), BRICK, NOW_S).expect("an empty directory");
    let before = file(&there);
    let installed = Network::install(there.clone(), &network.encoded(), Uuid([2; 16])).map(drop);
    refused(installed, Kind::Corrupt, "of another cluster");
    refused(Network::install(there.clone(), b"noise", Uuid([2; 16])).map(drop), Kind::Corrupt, "not one that Sinter");
    let long = vec![b'x'; (32 << 20) + 1];
    refused(
        Network::install(there.clone(), &long, Uuid([2; 16])).map(drop),
        Kind::Corrupt,
        "more than a file may hold",
    );
    assert!(file(&there) == before && other.encoded() == before, "nothing was written");
    let error =
        refused(Network::open_of_cluster(there.clone(), CLUSTER).map(drop), Kind::Corrupt, "of another cluster");
    assert!(error.to_string().contains("/brick/network/state"), "{error}");
    there.put("state", &before[..100]);
    refused(Network::open_of_cluster(there, Uuid([2; 16])).map(drop), Kind::Corrupt, "damaged");
    ours.open_to_others();
    refused(Network::open_of_cluster(ours, CLUSTER).map(drop), Kind::Permission, "chmod 600");
}

#[test]
fn a_network_side_works_on_whatever_files() {
    let scratch = Scratch::new();
    let files = || -> Box<dyn Files + Send> { Box::new(scratch.lock().expect("free")) };
    let mut network = Network::create(files(), CLUSTER, BRICK, NOW_S).expect("empty");
    let token = server_token(&mut network, 1);
    network.admit_server(&token.secret, &request(&key()), &server(1), NOW_S).expect("invited");
    let bytes = network.encoded();
    drop(network);
    let opened = Network::open_of_cluster(files(), CLUSTER).expect("whole").expect("it is there");
    assert_eq!(opened.encoded(), bytes);
    drop(opened);
    Network::install(files(), &bytes, CLUSTER).map(drop).expect("over the same");
}

#[test]
fn a_membership_is_of_the_tokens_part() {
    let world = World::default();
    let (name, mut network): (ClientName, _) = ("cluster".parse().expect("a name"), network(&World::default()));
    let (token, other) = (server_token(&mut network, 1), token(&mut network, 2, &[1]));
    let begun = |token: &Token| begin(&world, &name, token.clone()).expect("the key is there or made");
    let joining = begun(&token);
    let right = network.admit_server(&token.secret, &joining.request, &server(1), NOW_S).expect("invited");
    let client = network.admit(&other.secret, &joining.request, "c1", NOW_S).expect("invited");
    for (token, wrong) in [(&token, &client), (&other, &right)] {
        refused(begun(token).finish(wrong.clone()), Kind::Permission, "for another part than the token");
        assert_eq!(world.bytes("cluster.toml"), None);
    }
    let mut membership = joining.finish(right).expect("the right one");
    assert_eq!(membership.brick(), Ok(Some(server(1).brick)));
    assert_eq!(Membership::read(&world, &name).expect("written"), membership);
    let text = String::from_utf8(world.bytes("cluster.toml").expect("written")).expect("text");
    assert!(text.contains("`sinter cluster join` wrote it"), "{text}");
    let (who, csr) = (membership.identity().expect("ours"), request(&membership.key));
    refused(membership.renew(&world, client), Kind::Permission, "for somebody else");
    let renewed = network.renew(&who, &csr, NOW_S + 61 * DAY_S).expect("due");
    membership.renew(&world, renewed).expect("its own");
    assert_eq!(Membership::read(&world, &name).expect("written"), membership);
    assert_eq!(membership.brick(), Ok(Some(server(1).brick)));
}
