//! The scenarios over the machine's own sockets, and what only these have.

use crate::scenarios::{ALL, Stage, receive, send};
use base::Kind;
use runtime::Address;
use runtime::{Runtime, real};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Cores, and a directory that goes away with the test.
struct World {
    path: PathBuf,
    runtime: Runtime,
    reactors: Option<real::Reactors>,
}

impl World {
    fn new(name: &str) -> World {
        let path = std::env::temp_dir().join(format!("sinter-net-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory can be written");
        let directory = real::Directory::open(&path).expect("ours");
        let options = real::Options { cores: Some(2), ..real::Options::new(directory, 256 << 20, &[]) };
        let (runtime, reactors) = real::start(options).expect("io_uring works here");
        World { path, runtime, reactors: Some(reactors) }
    }
    fn reactors(&self) -> &real::Reactors {
        self.reactors.as_ref().expect("they run until the end")
    }
    fn stage(&self, address: Address, nobody: Address) -> Stage {
        Stage { server: self.runtime.clone(), client: self.runtime.clone(), address, nobody }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.reactors.take());
        std::fs::remove_dir_all(&self.path).expect("the test made it");
    }
}

fn tcp(text: &str) -> Address {
    Address::Tcp(text.parse().expect("an address"))
}

fn play_all(world: &World, address: &Address, nobody: &Address) {
    for (name, scenario) in ALL {
        println!("{name}, at {address}");
        let stage = world.stage(address.clone(), nobody.clone());
        world.reactors().run(0, move || scenario(stage)).expect("the core runs");
    }
}

#[test]
fn all_scenarios_hold_over_ipv4() {
    let world = World::new("v4");
    play_all(&world, &tcp("127.0.0.1:0"), &tcp("127.0.0.1:1"));
}

#[test]
fn all_scenarios_hold_over_ipv6() {
    let world = World::new("v6");
    play_all(&world, &tcp("[::1]:0"), &tcp("[::1]:1"));
}

#[test]
fn all_scenarios_hold_over_unix_sockets() {
    let world = World::new("unix");
    let [address, nobody] = ["socket", "nobody"].map(|name| Address::Local(world.path.join(name)));
    play_all(&world, &address, &nobody);
}

#[test]
fn the_kernel_tells_of_the_way_and_of_who_is_there() {
    let world = World::new("way");
    let path = world.path.join("socket");
    let runtime = world.runtime.clone();
    let ask = move || async move {
        let mut told = Vec::new();
        for address in [tcp("127.0.0.1:0"), Address::Local(path)] {
            let listener = runtime.net.listen(&address).expect("a free address");
            let address = runtime.net.address(listener).expect("it listens");
            let client = runtime.net.connect(&address).await.expect("somebody listens");
            let (server, from) = runtime.net.accept(listener).await.expect("somebody came");
            send(&runtime, client, 0, 1000).await.expect("it is open");
            assert_eq!(receive(&runtime, server, 0, 1000).await, Ok(1000));
            let way = runtime.net.way(client).expect("it is open");
            told.push((from, way, runtime.net.caller(server).expect("it is open")));
        }
        told
    };
    let told = world.reactors().run(0, ask).expect("the core runs");
    let (from, way, caller) = &told[0];
    assert!(matches!(from, Address::Tcp(from) if from.ip().is_loopback() && from.port() > 0), "{from}");
    assert!(way.round_trip_ns > 0 && way.round_trip_ns < 1_000_000_000 && caller.is_none(), "{way:?} {caller:?}");
    let (from, way, caller) = &told[1];
    assert_eq!((from, way.round_trip_ns), (&Address::Local(PathBuf::new()), 0));
    assert_eq!(caller.expect("the kernel knows").pid, std::process::id());
}

#[test]
fn a_socket_on_which_nobody_listens_any_more_is_replaced_and_other_files_are_not() {
    let world = World::new("stale");
    let [stale, file] = ["stale", "file"].map(|name| world.path.join(name));
    drop(UnixListener::bind(&stale).expect("a free name"));
    std::fs::write(&file, b"precious").expect("the test may write there");
    let net = &world.runtime.net;
    let listener = net.listen(&Address::Local(stale.clone())).expect("nobody listens there");
    assert_eq!(net.listen(&Address::Local(stale.clone())).expect_err("we do").kind, Kind::Busy);
    net.close_listener(listener);
    assert!(!stale.exists());
    assert_eq!(net.listen(&Address::Local(file.clone())).expect_err("it is no socket").kind, Kind::Busy);
    assert_eq!(std::fs::read(&file).expect("it is there"), b"precious");
    let long = Address::Local(world.path.join("x".repeat(200)));
    assert_eq!(net.listen(&long).expect_err("too long").kind, Kind::Invalid);
    let missing = Address::Local(world.path.join("no/socket"));
    assert_eq!(net.listen(&missing).expect_err("no directory").kind, Kind::NotFound);
    let foreign = tcp("192.0.2.1:0");
    assert_eq!(net.listen(&foreign).expect_err("it is no address of ours").kind, Kind::Invalid);
}

#[test]
fn a_stop_ends_all_that_waits_and_closes_all_ports() {
    let mut world = World::new("stop");
    let runtime = world.runtime.clone();
    let path = world.path.join("socket");
    let wait = move || async move {
        for address in [tcp("127.0.0.1:0"), Address::Local(path)] {
            let listener = runtime.net.listen(&address).expect("a free address");
            let address = runtime.net.address(listener).expect("it listens");
            let client = runtime.net.connect(&address).await.expect("somebody listens");
            let (server, _) = runtime.net.accept(listener).await.expect("somebody came");
            for connection in [client, server] {
                let runtime = runtime.clone();
                runtime.clone().spawn(1, move || async move {
                    let _ = receive(&runtime, connection, 0, 100).await;
                });
            }
            let sender = runtime.clone();
            runtime.spawn(0, move || async move { while send(&sender, server, 0, 1 << 20).await.is_ok() {} });
            drop(runtime.net.accept(listener));
        }
        runtime.clock.sleep(20_000_000).await;
        let listener = runtime.net.listen(&tcp("127.0.0.1:0")).expect("a free address");
        runtime.net.address(listener).expect("it listens")
    };
    let address = world.reactors().run(0, wait).expect("the core runs");
    drop(world.reactors.take());
    assert!(!world.path.join("socket").exists(), "the listener removes its socket");
    let after = World::new("after");
    let listener = after.runtime.net.listen(&address).expect("the port is free");
    after.runtime.net.close_listener(listener);
}
