//! Ends and failures at each step of each change: the old state or the new one, and what was answered stays.

use super::world::World;
use super::*;
use base::Result;
use std::collections::BTreeMap;

/// All that can be seen of a network side but the epoch.
fn seen(network: &Network<World>) -> Seen {
    let (clients, servers) = (network.clients().clone(), network.servers().clone());
    (network.tokens().to_vec(), clients, servers, network.server().certificate.clone())
}

type Seen = (Vec<Invitation>, BTreeMap<ClientName, Client>, BTreeMap<Uuid, Server>, Certificate);

type Change = fn(&mut Network<World>, &Key) -> Result<()>;
const CHANGES: [(&str, Change); 9] = [
    ("token", |network, _| network.create_token(wish(&[3]), Secret([8; 16]), place(), NOW_S).map(drop)),
    ("revoke token", |network, _| network.revoke_token(&network.tokens()[1].id(), NOW_S)),
    ("join", |network, key| network.admit(&Secret([2; 16]), &request(key), "c2", NOW_S).map(drop)),
    ("renew server", |network, _| network.renew_server(NOW_S + 61 * DAY_S).map(drop)),
    ("renew client", |network, _| {
        let client = network.clients().values().next().expect("one has joined");
        let who = client.certificates[0].certificate.identity().expect("ours");
        network.renew(&who, &request(&first_key()), NOW_S + 61 * DAY_S).map(drop)
    }),
    ("revoke client", |network, _| network.revoke_client("c1", NOW_S)),
    ("join server", |network, key| network.admit_server(&Secret([4; 16]), &request(key), &server(2), NOW_S).map(drop)),
    ("move server", |network, _| {
        let moved = ServerWish { clients: server(3).clients, ..server(1) };
        network.admit_server(&Secret([3; 16]), &request(&first_key()), &moved, NOW_S).map(drop)
    }),
    ("renew server that joined", |network, _| {
        let who = network.servers()[&server(1).brick].certificates[0].certificate.identity().expect("ours");
        network.renew(&who, &request(&first_key()), NOW_S + 61 * DAY_S).map(drop)
    }),
];

/// The key of the client and the server that have joined: always the same.
fn first_key() -> Key {
    static KEY: std::sync::OnceLock<Key> = std::sync::OnceLock::new();
    KEY.get_or_init(key).clone()
}

/// A network side with two tokens for clients and two for servers, of which one each is used.
fn begun() -> World {
    let world = World::default();
    let mut network = network(&world);
    let (used, _) = (token(&mut network, 1, &[1]), token(&mut network, 2, &[2]));
    network.admit(&used.secret, &request(&first_key()), "c1", NOW_S).expect("invited");
    let (used, _) = (server_token(&mut network, 3), server_token(&mut network, 4));
    network.admit_server(&used.secret, &request(&first_key()), &server(1), NOW_S).expect("invited");
    world
}

#[test]
fn an_end_at_any_step_leaves_the_old_or_the_new_and_what_was_answered() {
    for (name, change) in CHANGES {
        let (start, key) = (begun(), key());
        let old = seen(&reopen(start.copy()).expect("whole"));
        let (mut olds, mut news) = (0, 0);
        for steps in 0..=4 {
            let world = start.copy();
            let mut network = reopen(world.clone()).expect("whole");
            world.end_after(steps);
            let answer = change(&mut network, &key);
            assert_eq!(answer.is_ok(), steps == 4, "{name} takes four steps");
            assert_eq!(seen(&network) == old, answer.is_err(), "{name}: memory has what is durable");
            for image in world.images() {
                let mut found = reopen(image.clone()).unwrap_or_else(|error| panic!("{name}, {steps}: {error:?}"));
                let is_old = seen(&found) == old;
                assert!(!is_old || answer.is_err(), "{name}: an answer was lost");
                // Whoever asks again is answered, once the server is back.
                if name == "join" {
                    change(&mut found, &key).expect("the same token, key and name");
                    assert_eq!((found.clients().len(), found.tokens()[1].used.len()), (2, 1));
                }
                if name == "join server" {
                    change(&mut found, &key).expect("the same token, key and brick");
                    assert_eq!((found.servers().len(), found.tokens()[3].used.len()), (2, 1));
                }
                if is_old { olds += 1 } else { news += 1 }
            }
        }
        assert!(olds > 0 && news > 0, "{name} was seen before and after");
    }
}

#[test]
fn an_end_while_it_is_made_leaves_nothing_or_all_of_it() {
    for steps in 0..=4 {
        let world = World::default();
        world.end_after(steps);
        let made = Network::create(world.clone(), CLUSTER, BRICK, NOW_S);
        assert_eq!(made.is_ok(), steps == 4);
        for image in world.images() {
            match reopen(image.clone()) {
                Ok(found) => {
                    assert!(made.as_ref().is_err() || seen(&found) == seen(made.as_ref().expect("just asked")))
                }
                Err(error) => {
                    assert!(error.kind == base::Kind::NotFound && made.is_err(), "{error:?}");
                    Network::create(image, CLUSTER, BRICK, NOW_S).expect("it was never there");
                }
            }
        }
    }
}

#[test]
fn a_step_that_fails_changes_nothing_and_may_be_tried_again() {
    for (name, change) in CHANGES {
        for steps in 0..4 {
            let (world, key) = (begun(), key());
            let mut network = reopen(world.clone()).expect("whole");
            let (old, epoch) = (seen(&network), network.epoch());
            world.fail_after(steps);
            change(&mut network, &key).expect_err("a full device");
            assert_eq!((seen(&network), network.epoch()), (old.clone(), epoch), "{name}");
            change(&mut network, &key).expect("there is room again");
            assert_ne!(seen(&network), old);
            assert_eq!(seen(&reopen(world.copy()).expect("whole")), seen(&network), "{name}");
        }
    }
}

#[test]
fn an_end_while_a_state_is_installed_leaves_the_old_or_the_new() {
    let old = begun();
    let mut network = reopen(old.copy()).expect("whole");
    network.admit_server(&Secret([4; 16]), &request(&key()), &server(2), NOW_S).expect("invited");
    let new = network.encoded();
    for start in [old, World::default()] {
        for steps in 0..=4 {
            let world = start.copy();
            world.end_after(steps);
            let installed = Network::install(world.clone(), &new, CLUSTER).map(drop);
            assert_eq!(installed.is_ok(), steps == 4, "it takes four steps");
            for image in world.images() {
                let found = Network::open_of_cluster(image, CLUSTER).expect("whole or not there");
                let bytes = found.map(|found| found.encoded());
                assert!(bytes == Some(new.clone()) || installed.is_err() && bytes == start.bytes("state"), "{steps}");
            }
        }
    }
}

#[test]
fn a_client_that_ends_at_any_step_can_join_again() {
    let server = World::default();
    let mut network = network(&server);
    let token = token(&mut network, 1, &[1]);
    let name: ClientName = "prod".parse().expect("a name");
    let mut join = |world: &World| -> Result<client::Membership> {
        let joining = client::begin(world, &name, token.clone())?;
        let chain = network.admit(&token.secret, &joining.request, "c1", NOW_S).expect("always the same key");
        joining.finish(chain)
    };
    // Once to the end of the key, so that each later try has the key that the token was used with.
    let keyed = World::default();
    keyed.end_after(4);
    join(&keyed).expect_err("the end comes before the file");
    for steps in 0..=4 {
        let world = keyed.copy();
        world.end_after(steps);
        let joined = join(&world);
        for image in world.images() {
            if let Err(error) = client::Membership::read(&image, &name) {
                assert!(joined.is_err() && error.kind == base::Kind::NotFound, "{error:?}");
            }
            let again = join(&image).expect("the token is still good");
            assert_eq!(client::Membership::read(&image, &name).expect("written"), again);
        }
    }
    // The key itself: none or a whole one.
    for steps in 0..=4 {
        let world = World::default();
        world.end_after(steps);
        let begun = client::begin(&world, &name, token.clone()).map(|joining| joining.request);
        assert_eq!(begun.is_ok(), steps == 4);
        for image in world.images() {
            let again = client::begin(&image, &name, token.clone()).expect("a whole key, or a new one");
            let public = |request: &[u8]| certificates::read_request(request).expect("ours").hash();
            if let Ok(request) = &begun {
                assert_eq!(public(request), public(&again.request), "a key that was used stays");
            }
        }
    }
}
