//! The scenarios between simulated hosts, and what must hold under their faults.

use crate::scenarios::{ALL, Stage, serve_echo, slices, spawn};
use base::Kind;
use runtime::net::{Address, ConnectionId, DEAD_AFTER_NS};
use runtime::random::SplitMix;
use runtime::sim::{BootClock, Fleet, Hosts, LinkPlan, Setup, Survival};
use runtime::tasks::{both, either};
use runtime::{Net, Runtime};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds per property.
const SEEDS: u64 = 60;

const SECOND_NS: u64 = 1_000_000_000;

/// A fleet whose hosts have clocks of their own.
fn fleet(seed: u64, count: usize) -> Fleet {
    let fleet = Fleet::with_patience(seed, 600 * SECOND_NS);
    let mut rng = SplitMix(seed);
    for number in 0..count {
        let clock = BootClock::draw(&mut rng);
        fleet.hosts().boot(number, Setup { clock, ..Setup::new(seed) });
    }
    fleet
}

fn stage(hosts: &Hosts, server: usize, client: usize) -> Stage {
    let [server_runtime, client_runtime] = [server, client].map(|number| hosts.runtime(number));
    let [address, nobody] = [0, 1].map(|port| hosts.links().address(server, port));
    Stage { server: server_runtime, client: client_runtime, address, nobody }
}

#[test]
fn all_scenarios_hold_between_hosts() {
    for seed in 0..SEEDS {
        for (name, scenario) in ALL {
            let mut fleet = fleet(seed, 2);
            println!("{name}, seed {seed}");
            let stage = stage(fleet.hosts(), 1, 0);
            fleet.block_on(scenario(stage));
        }
    }
}

#[test]
fn all_scenarios_hold_on_one_host() {
    for seed in 0..SEEDS / 4 {
        for (name, scenario) in ALL {
            let mut fleet = fleet(seed, 1);
            println!("{name}, seed {seed}");
            let over_tcp = Stage {
                address: Address::Tcp("127.0.0.1:0".parse().expect("an address")),
                nobody: Address::Tcp("127.0.0.1:1".parse().expect("an address")),
                ..stage(fleet.hosts(), 0, 0)
            };
            let [address, nobody] = ["/run/socket", "/run/nobody"].map(|path| Address::Local(PathBuf::from(path)));
            let over_unix = Stage { address, nobody, ..over_tcp.clone() };
            fleet.block_on(async {
                scenario(over_tcp).await;
                scenario(over_unix).await;
            });
        }
    }
}
