//! The scenarios over the machine's own sockets, and what only these have.

use crate::scenarios::{ALL, Stage};
use base::Kind;
use runtime::net::{Address, DEAD_AFTER_NS};
use runtime::{Runtime, real};
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
